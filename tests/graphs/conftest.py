"""The colours and durabilities in which graphs are run."""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import psycopg
import pytest
from psycopg import sql

from tests.conftest import COLOURS, drop_database, dsn_for
from tests.graphs.running import Durability


@pytest.fixture(scope="session")
def postgres_url(postgres_dsn: str, postgres_template: str) -> Iterator[str]:
    """One database for all the graphs, on threads of their own, since making one for each takes as long as a graph."""
    name = f"graphs_{uuid.uuid4().hex[:12]}"
    with psycopg.connect(postgres_dsn, autocommit=True) as connection:
        connection.execute(
            sql.SQL("CREATE DATABASE {} TEMPLATE {}").format(sql.Identifier(name), sql.Identifier(postgres_template))
        )
    yield dsn_for(postgres_dsn, name)
    drop_database(postgres_dsn, name)


@pytest.fixture(params=COLOURS)
def colour(request: pytest.FixtureRequest) -> str:
    """Whether graphs are run through their async methods, or through their sync ones on an OS thread."""
    return str(request.param)


@pytest.fixture(params=["sync", "async", "exit"])
def durability(request: pytest.FixtureRequest) -> Durability:
    """When LangGraph stores a step: before the next one, while it runs, or at the end of the run."""
    found: Durability = request.param
    return found
