"""The stores whose statements are explained: filled in the database, with more rows than a test would store."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import ormsgpack
import psycopg
import pytest

from langgraph_checkpoint_custom import SqliteSaver, open_saver
from tests.conftest import made_database

# One long thread among many short ones; all in one namespace, each checkpoint with a blob and two writes. In each
# thread, every 100th checkpoint has a value of the delta channel `log`, and ten values of `messages` share a chunk.
# Three checkpoints of each have labels; 50 threads have asked a question, and one of them waits for an answer.
LONG, THREADS, SHORT = 4_000, 1_960, 100
FILL_POSTGRES = """
INSERT INTO langgraph_checkpoint.checkpoints
SELECT 't' || t, '', to_char(i, 'FM000000'), CASE WHEN i > 1 THEN to_char(i - 1, 'FM000000') END, NULL,
    'run' || t || '-' || i / 10, 4, false, '{step}', '{log}',
    CASE WHEN i %% 100 = 1 THEN '{messages,log}' ELSE '{messages}' END::text[],
    CASE WHEN i %% 100 = 1 THEN ARRAY[i::text, i::text] ELSE ARRAY[i::text] END,
    'msgpack', '\\x80', 'msgpack', '\\x80',
    jsonb_build_object('source', '"loop"', 'step', i::text, 'run', format('"run%%s-%%s"', t, i / 10)), ''
FROM generate_series(0, %(threads)s) AS t,
    generate_series(1, CASE t WHEN 0 THEN %(long)s ELSE %(short)s END) AS i;
INSERT INTO langgraph_checkpoint.blobs
SELECT c.thread_id, '', u.channel, u.version, 'msgpack', '\\x80',
    CASE u.channel WHEN 'messages' THEN '["#/' || u.version::integer / 10 || '"]' END
FROM langgraph_checkpoint.checkpoints c, unnest(c.blob_channels, c.blob_versions) AS u (channel, version);
INSERT INTO langgraph_checkpoint.blobs
SELECT DISTINCT thread_id, '', channel, chunks::json ->> 0, 'msgpack', '\\x80'::bytea, NULL
FROM langgraph_checkpoint.blobs WHERE chunks IS NOT NULL;
INSERT INTO langgraph_checkpoint.writes
SELECT c.thread_id, '', c.checkpoint_id, 'task', i, '', c.run_id, CASE i WHEN 0 THEN 'messages' ELSE 'log' END,
    'msgpack', '\\xc0'
FROM langgraph_checkpoint.checkpoints c, generate_series(0, 1) AS i;
INSERT INTO langgraph_checkpoint.labels
SELECT thread_id, 'label ' || checkpoint_id, '', checkpoint_id
FROM langgraph_checkpoint.checkpoints WHERE checkpoint_id IN ('000001', '000011', '000021');
INSERT INTO langgraph_checkpoint.writes
SELECT 't1' || t, '', CASE t WHEN 7 THEN '000100' ELSE '000050' END, 'asks', -3, '', NULL, '__interrupt__',
    'msgpack', '\\x90'
FROM generate_series(0, 49) AS t;
INSERT INTO langgraph_checkpoint.threads
SELECT DISTINCT thread_id, '', 1000.0 + substr(thread_id, 2)::integer FROM langgraph_checkpoint.checkpoints;
"""
FILL_SQLITE = """
WITH RECURSIVE t (t) AS (SELECT 0 UNION ALL SELECT t + 1 FROM t WHERE t < :threads),
i (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM i WHERE i < :long)
INSERT INTO checkpoints
SELECT 't' || t, '', printf('%06d', i), CASE WHEN i > 1 THEN printf('%06d', i - 1) END, NULL,
    'run' || t || '-' || i / 10, 4, 0, '["step"]', '["log"]',
    CASE WHEN i % 100 = 1 THEN '["messages","log"]' ELSE '["messages"]' END,
    CASE WHEN i % 100 = 1 THEN json_array('' || i, '' || i) ELSE json_array('' || i) END,
    'msgpack', x'80', json_object('source', '"loop"', 'step', '' || i, 'run', printf('"run%d-%d"', t, i / 10)),
    'msgpack', x'80'
FROM t CROSS JOIN i WHERE i <= CASE t WHEN 0 THEN :long ELSE :short END;
INSERT INTO blobs
SELECT c.thread_id, '', n.value, v.value, 'msgpack', x'80',
    CASE n.value WHEN 'messages' THEN json_array('#/' || v.value / 10) END
FROM checkpoints c, json_each(c.blob_channels) n, json_each(c.blob_versions) v WHERE v.key = n.key;
INSERT INTO blobs
SELECT DISTINCT thread_id, '', channel, chunks ->> 0, 'msgpack', x'80', NULL FROM blobs WHERE chunks IS NOT NULL;
INSERT INTO writes
SELECT c.thread_id, '', c.checkpoint_id, 'task', w.value, '', c.run_id,
    CASE w.value WHEN 0 THEN 'messages' ELSE 'log' END, 'msgpack', x'c0'
FROM checkpoints c, json_each('[0, 1]') AS w;
INSERT INTO labels
SELECT thread_id, 'label ' || checkpoint_id, '', checkpoint_id
FROM checkpoints WHERE checkpoint_id IN ('000001', '000011', '000021');
WITH RECURSIVE t (t) AS (SELECT 0 UNION ALL SELECT t + 1 FROM t WHERE t < 49)
INSERT INTO writes
SELECT 't1' || t, '', CASE t WHEN 7 THEN '000100' ELSE '000050' END, 'asks', -3, '', NULL, '__interrupt__',
    'msgpack', x'90'
FROM t;
INSERT INTO threads SELECT DISTINCT thread_id, '', 1000.0 + substr(thread_id, 2), NULL, NULL FROM checkpoints;
"""
SIZES = {"threads": THREADS, "long": LONG, "short": SHORT}


def without_autovacuum(cursor: psycopg.Cursor[Any]) -> None:
    """It would change the plans, and block the ANALYZE of a test that has granted rights on all tables."""
    for table in ("checkpoints", "blobs", "writes"):
        cursor.execute(f"ALTER TABLE langgraph_checkpoint.{table} SET (autovacuum_enabled = off)".encode())


@pytest.fixture(scope="session")
def postgres_store(postgres_dsn: str, postgres_template: str) -> Iterator[str]:
    with made_database(postgres_dsn, postgres_template) as (_, url):
        with psycopg.connect(url, autocommit=True) as connection, connection.cursor() as cursor:
            without_autovacuum(cursor)
            for statement in FILL_POSTGRES.split(";\n"):
                if statement.strip():
                    cursor.execute(statement, SIZES)
            cursor.execute("ANALYZE")
        with open_saver(url) as saver:
            saver.setup(searchable=["run"])  # The expressions of an index have no statistics yet.
        yield url


@pytest.fixture(scope="session", params=[False, True], ids=["no statistics", "statistics"])
def few_postgres_threads(request: pytest.FixtureRequest, postgres_dsn: str, postgres_template: str) -> Iterator[str]:
    """A few threads of 1,000 checkpoints: considered short when just filled, and later most of the rows."""
    with made_database(postgres_dsn, postgres_template) as (_, url):
        with psycopg.connect(url, autocommit=True) as connection, connection.cursor() as cursor:
            without_autovacuum(cursor)
            for statement in FILL_POSTGRES.split(";\n"):
                if statement.strip():
                    cursor.execute(statement, {"threads": 9, "long": 1_000, "short": 1_000})
            cursor.execute(  # What a sweep knows of threads is one row of each, of however many checkpoints.
                "INSERT INTO langgraph_checkpoint.threads SELECT 'x' || n, '', n FROM generate_series(1, 2000) AS n"
            )
            if request.param:
                cursor.execute("ANALYZE")
        with open_saver(url) as saver:
            saver.setup(searchable=["run"])
        yield url


# Checkpoints of 1 KB, those of all threads by turns, so that each of a thread is on another page of the table.
FILL_BY_TURNS = """
INSERT INTO langgraph_checkpoint.checkpoints (
    thread_id, checkpoint_ns, checkpoint_id, format, inline_channels, delta_channels, blob_channels, blob_versions,
    checkpoint_type, checkpoint, metadata_type, metadata, metadata_filter, tenant
)
SELECT 't' || t, '', to_char(n, 'FM000000'), 4, '{}', '{}', '{}', '{}', 'msgpack', %(document)b,
    'msgpack', %(metadata)b, '{}', ''
FROM generate_series(1, 400) AS n, generate_series(1, 9) AS t
ORDER BY n, t
"""


@pytest.fixture(scope="session")
def postgres_threads_by_turns(postgres_dsn: str, postgres_template: str) -> Iterator[str]:
    """A few threads of 400 checkpoints that were filled at the same time, as by a server."""
    with made_database(postgres_dsn, postgres_template) as (_, url):
        with psycopg.connect(url, autocommit=True) as connection:
            document = {"v": 4, "channel_values": {}, "text": "x" * 1000}
            connection.execute(FILL_BY_TURNS, {"document": ormsgpack.packb(document), "metadata": ormsgpack.packb({})})
            connection.execute("ANALYZE")
        yield url


@pytest.fixture(scope="session")
def sqlite_store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("plans") / "store.db"
    with SqliteSaver(path, synchronous="OFF") as saver:
        saver.setup()
    with sqlite3.connect(path) as connection:
        for statement in FILL_SQLITE.split(";\n"):
            if statement.strip():
                connection.execute(statement, SIZES)
    connection.close()
    with SqliteSaver(path, synchronous="OFF") as saver:
        saver.setup(searchable=["run"])
    return path
