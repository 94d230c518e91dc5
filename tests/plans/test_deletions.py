"""On PostgreSQL a deletion reads each row a few times, whatever the planner knows about the tables."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
import pytest

from langgraph_checkpoint_custom.engine.operation import RoundTrip
from langgraph_checkpoint_custom.model.outline import Outline, Removal, everything, later, superseded
from langgraph_checkpoint_custom.sql.postgres_dialect import PostgresDialect
from tests.plans.conftest import without_autovacuum
from tests.plans.explaining import explain, statement_rows

SIZE = 3_000
# Threads of one checkpoint, or a thread of many in one namespace or in namespaces of two. Each has a value in a chunk
# and two writes.
FILL = """
INSERT INTO langgraph_checkpoint.checkpoints (
    thread_id, checkpoint_ns, checkpoint_id, parent_id, root_id, format, inline_channels, delta_channels, blob_channels,
    blob_versions, checkpoint_type, checkpoint, metadata_type, metadata, metadata_filter, tenant
)
SELECT t, ns, to_char(i, 'FM000000'), to_char(i - 1, 'FM000000'), NULL, 4, '{}', '{}', '{a}', ARRAY[i::text],
    'msgpack', '\\x80', 'msgpack', '\\x80', '{}', ''
FROM (
    SELECT i, CASE WHEN %(threads)s THEN 't' || i ELSE 'long' END AS t,
        CASE WHEN %(namespaces)s THEN 'ns' || i / 2 ELSE '' END AS ns
    FROM generate_series(1, %(size)s) AS i
) AS rows;
INSERT INTO langgraph_checkpoint.blobs
SELECT thread_id, checkpoint_ns, 'a', blob_versions[1], 'msgpack', '\\x80',
    json_build_array('#/' || checkpoint_id)::text
FROM langgraph_checkpoint.checkpoints ON CONFLICT DO NOTHING;
INSERT INTO langgraph_checkpoint.blobs
SELECT thread_id, checkpoint_ns, 'a', '#/' || checkpoint_id, 'msgpack', '\\x80', NULL
FROM langgraph_checkpoint.checkpoints ON CONFLICT DO NOTHING;
INSERT INTO langgraph_checkpoint.writes
SELECT thread_id, checkpoint_ns, checkpoint_id, 'task', i, '', NULL, 'a', 'msgpack', '\\xc0'
FROM langgraph_checkpoint.checkpoints, generate_series(0, 1) AS i ON CONFLICT DO NOTHING;
"""


@contextmanager
def filled(url: str, known: str, *, namespaces: bool) -> Iterator[psycopg.Connection[Any]]:
    """A store with short threads and a long one, of which the planner knows nothing, all, or only the short ones."""
    with psycopg.connect(url, autocommit=True, cursor_factory=psycopg.ClientCursor) as connection:
        with connection.cursor() as cursor:
            without_autovacuum(cursor)
        connection.execute(FILL, {"threads": True, "namespaces": False, "size": 300})
        if known == "the short threads":
            connection.execute("ANALYZE")
        connection.execute(FILL, {"threads": False, "namespaces": namespaces, "size": SIZE})
        if known == "all":
            connection.execute("ANALYZE")
        connection.execute("SET statement_timeout = '60s'")
        yield connection


@pytest.mark.parametrize("known", ["nothing", "all", "the short threads"])
@pytest.mark.parametrize("generic", [False, True], ids=["custom plan", "generic plan"])
@pytest.mark.parametrize("namespaces", [False, True], ids=["one namespace", "many namespaces"])
@pytest.mark.parametrize("change", ["prune", "rollback", "copy"])
def test_a_deletion_takes_linear_time(
    postgres_url: str, change: str, namespaces: bool, generic: bool, known: str
) -> None:
    d = PostgresDialect("langgraph_checkpoint")
    with filled(postgres_url, known, namespaces=namespaces) as connection:
        read, *_ = d.select_outline("long").statements
        outline = Outline(connection.execute(read.sql, read.params).fetchall())
        if change == "copy":
            copies = everything(outline)
            trip: RoundTrip | None = d.store_copies("long", "new", copies, copies.blobs)
        else:
            chosen = superseded(outline, 1) if change == "prune" else later(outline, f"{SIZE // 2:06}")
            removal = Removal(outline, chosen)
            assert len(removal.gone) >= SIZE // 2 - 1
            trip = d.remove("long", removal, {}, None)
        assert trip is not None
        for statement in [
            *d.select_chunks("long", {blob for row in outline.rows.values() for blob in row.blobs()}).statements,
            *trip.statements,
        ]:
            nodes = list(statement_rows(explain(connection, statement, generic=generic)))
            compared = sum(node["Actual Loops"] * node.get("Rows Removed by Join Filter", 0) for node, _ in nodes)
            assert (statement.name, sum(rows for _, rows in nodes) + compared) <= (statement.name, 40 * SIZE)
