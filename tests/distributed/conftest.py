"""The fixtures of these tests."""

from __future__ import annotations

from collections.abc import Sequence

import psycopg
import pytest

from langgraph_checkpoint_custom.sql.postgres_dialect import PostgresDialect
from tests import citus


@pytest.fixture
def urls(cluster_urls: Sequence[str]) -> Sequence[str]:
    """The servers of a cluster with empty tables, the coordinator first."""
    citus.end_sessions(cluster_urls)
    with psycopg.connect(cluster_urls[0]) as server:
        tables = ("checkpoints", "blobs", "writes", "threads", "sweeps", "moves", "claims", "labels")
        server.execute("TRUNCATE " + ", ".join(f"langgraph_checkpoint.{table}" for table in tables))
    return cluster_urls


@pytest.fixture
def dialect() -> PostgresDialect:
    """The statements for distributed tables."""
    found = PostgresDialect("langgraph_checkpoint")
    found.learn_layout("citus")
    return found
