"""On PostgreSQL a deletion, copy or fork reads each row a few times, whatever the planner knows about the tables."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import psycopg
import pytest
from langgraph.checkpoint.base import BaseCheckpointSaver

from langgraph_checkpoint_custom.encoding.values import ValueCodec
from langgraph_checkpoint_custom.engine.operation import Offload, Operation, RoundTrip, drive
from langgraph_checkpoint_custom.model.keys import Key
from langgraph_checkpoint_custom.operations.copies import copy_thread, fork_thread
from langgraph_checkpoint_custom.operations.delete import delete_checkpoint, delete_for_runs, prune_thread, rollback
from langgraph_checkpoint_custom.sql.postgres_dialect import PostgresDialect
from tests.plans.conftest import without_autovacuum
from tests.plans.explaining import explain, statement_rows

SIZE = 1_400
# The checkpoints of a thread: namespace, number, parent, root checkpoint, and the channels with an inline value.
SHAPES = {
    "long": "SELECT '', i, i - 1, NULL::integer, '{}' FROM generate_series(1, %(size)s) AS i",
    "many namespaces": """
        SELECT CASE WHEN i > 20 THEN 'call:' || i / 2 ELSE '' END, i, CASE WHEN i <= 20 OR i %% 2 = 1 THEN i - 1 END,
            CASE WHEN i > 20 THEN i %% 20 + 1 END, '{}'
        FROM generate_series(1, %(size)s) AS i""",
    "agent": """
        SELECT CASE WHEN i %% 7 < 5 THEN '' ELSE 'tools:' || i / 7 END, i, i - CASE i %% 7 WHEN 0 THEN 3 ELSE 1 END,
            CASE WHEN i %% 7 >= 5 THEN i / 7 * 7 + 4 END, '{}'
        FROM generate_series(1, %(size)s) AS i""",
    "delta": """
        SELECT '', i, i - 1, NULL::integer, CASE WHEN i %% 700 = 1 THEN '{log}' ELSE '{}' END
        FROM generate_series(1, %(size)s) AS i""",
}
# Each checkpoint has a value in a chunk, and two writes.
FILL = """
INSERT INTO langgraph_checkpoint.checkpoints (
    thread_id, checkpoint_ns, checkpoint_id, parent_id, root_id, run_id, format, inline_channels, delta_channels,
    blob_channels, blob_versions, checkpoint_type, checkpoint, metadata_type, metadata, metadata_filter, tenant
)
SELECT {thread}, ns, to_char(i, 'FM000000'), to_char(parent, 'FM000000'), to_char(root, 'FM000000'), 'run ' || i / 100,
    4, inline::text[], %(delta)s, '{{a}}', ARRAY[i::text], 'msgpack', '\\x80', 'msgpack', '\\x80', '{{}}', ''
FROM ({shape}) AS rows (ns, i, parent, root, inline);
INSERT INTO langgraph_checkpoint.blobs
SELECT thread_id, checkpoint_ns, 'a', blob_versions[1], 'msgpack', '\\x80',
    json_build_array('#/' || checkpoint_id)::text
FROM langgraph_checkpoint.checkpoints ON CONFLICT DO NOTHING;
INSERT INTO langgraph_checkpoint.blobs
SELECT thread_id, checkpoint_ns, 'a', '#/' || checkpoint_id, 'msgpack', '\\x80', NULL
FROM langgraph_checkpoint.checkpoints ON CONFLICT DO NOTHING;
INSERT INTO langgraph_checkpoint.writes
SELECT thread_id, checkpoint_ns, checkpoint_id, 'task', i, '', run_id, 'log', 'msgpack', '\\xc0'
FROM langgraph_checkpoint.checkpoints, generate_series(0, 1) AS i ON CONFLICT DO NOTHING;
"""


@contextmanager
def filled(url: str, shape: str, known: str) -> Iterator[psycopg.Connection[Any]]:
    """A store with short threads and a large one, of which the planner knows nothing, all, or only the short ones."""
    delta = ["log"] if shape == "delta" else []
    short = FILL.format(thread="'t' || i", shape=SHAPES["long"])
    with psycopg.connect(url, autocommit=True, cursor_factory=psycopg.ClientCursor) as connection:
        with connection.cursor() as cursor:
            without_autovacuum(cursor)
        connection.execute(short.encode(), {"size": 300, "delta": []})
        if known == "the short threads":
            connection.execute("ANALYZE")
        connection.execute(FILL.format(thread="'large'", shape=SHAPES[shape]).encode(), {"size": SIZE, "delta": delta})
        if known == "all":
            connection.execute("ANALYZE")
        connection.execute("SET statement_timeout = '300s'")
        connection.execute("SET jit = off")  # As in our own sessions.
        yield connection


def operations(d: PostgresDialect, shape: str) -> Mapping[str, Operation[Any]]:
    """What is done to the large thread, at its newest root checkpoint or in its middle."""
    newest, middle = (20, 10) if shape == "many namespaces" else (SIZE, SIZE // 2)
    codec = ValueCodec(BaseCheckpointSaver.serde)
    return {
        "prune": prune_thread(d, "large"),
        "delete_for_runs": delete_for_runs(d, "large", [f"run {number}" for number in range(0, 30, 2)]),
        "copy": copy_thread(d, "large", "new"),
        "fork": fork_thread(d, codec, "large", "new", None, None),
        "fork from the middle": fork_thread(d, codec, "large", "new", f"{middle:06}", None),
        "rollback": rollback(d, Key("large", "", f"{middle:06}")),
        "delete_checkpoint": delete_checkpoint(d, Key("large", "", f"{newest:06}")),
    }


@pytest.mark.parametrize("known", ["nothing", "all", "the short threads"])
@pytest.mark.parametrize("generic", [False, True], ids=["custom plan", "generic plan"])
@pytest.mark.parametrize("shape", SHAPES)
def test_rows_are_read_in_proportion_to_the_thread(
    own_postgres_url: str, shape: str, generic: bool, known: str
) -> None:
    d = PostgresDialect("langgraph_checkpoint")
    with filled(own_postgres_url, shape, known) as connection:
        for name, op in operations(d, shape).items():
            read: Counter[str] = Counter()

            def perform(request: RoundTrip | Offload, read: Counter[str] = read) -> Any:
                if isinstance(request, Offload):
                    return request.work()
                replies = []
                for statement in request.sent():
                    with connection.transaction(force_rollback=True):
                        nodes = list(statement_rows(explain(connection, statement, generic=generic)))
                    lost = sum(node["Actual Loops"] * node.get("Rows Removed by Join Filter", 0) for node, _ in nodes)
                    read[statement.name] += int(sum(rows for _, rows in nodes) + lost)
                    cursor = connection.execute(statement.sql.encode(), statement.params)
                    replies.append(cursor.fetchall() if cursor.description else [])
                return request.reply(replies)

            with connection.transaction(force_rollback=True):
                drive(op, perform)
            assert SIZE <= read.total() <= 60 * SIZE, (name, read.most_common(3))  # Half of that, usually.
