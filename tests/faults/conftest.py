"""What the fault tests share."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from tests.faults.cluster import programs


@pytest.fixture
def watcher(postgres_url: str) -> Iterator[psycopg.Connection[Any]]:
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        yield connection


@pytest.fixture(scope="session")
def postgres_programs(postgres_dsn: str) -> None:
    """PostgreSQL's programs, once whoever brings them has made them readable for the user that runs them."""
    programs()
