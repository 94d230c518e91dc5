"""In a store of 200,000 checkpoints the hot statements read by index, and rows in proportion to their result.

On PostgreSQL the statements are explained with the plan for the given parameters and with the generic plan that a
prepared statement ends up with; on SQLite the query plan must not contain a scan of a table.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import psycopg
import pytest

from langgraph_checkpoint_custom import SqliteSaver, open_saver
from langgraph_checkpoint_custom.core.codec import Encoded
from langgraph_checkpoint_custom.core.dialect import SqlDialect, first_page
from langgraph_checkpoint_custom.core.model import BlobRef, BlobRow, CheckpointRow, Key, WriteRow
from langgraph_checkpoint_custom.core.operation import Statement, Trip
from langgraph_checkpoint_custom.core.records import ThreadPage
from langgraph_checkpoint_custom.dialects.postgres import PostgresDialect
from langgraph_checkpoint_custom.dialects.sqlite import SqliteDialect
from tests.conftest import made_database

# One long thread among many short ones; all in one namespace, each checkpoint with a blob and two writes. In each
# thread, every 100th checkpoint holds a value of the delta channel `log`, and ten values of `messages` share a part.
# Three checkpoints of each have labels; 50 threads have asked a question, and one of them waits for an answer.
LONG, THREADS, SHORT = 4_000, 1_960, 100
FILL_POSTGRES = """
INSERT INTO langgraph_checkpoint.checkpoints
SELECT 't' || t, '', to_char(i, 'FM000000'), CASE WHEN i > 1 THEN to_char(i - 1, 'FM000000') END, NULL,
    'run' || t || '-' || i / 10, 4, false, false, '{step}', '{log}',
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
SELECT DISTINCT thread_id, '', channel, parts::json ->> 0, 'msgpack', '\\x80'::bytea, NULL
FROM langgraph_checkpoint.blobs WHERE parts IS NOT NULL;
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
"""
FILL_SQLITE = """
WITH RECURSIVE t (t) AS (SELECT 0 UNION ALL SELECT t + 1 FROM t WHERE t < :threads),
i (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM i WHERE i < :long)
INSERT INTO checkpoints
SELECT 't' || t, '', printf('%06d', i), CASE WHEN i > 1 THEN printf('%06d', i - 1) END, NULL,
    'run' || t || '-' || i / 10, 4, 0, 0, '["step"]', '["log"]',
    CASE WHEN i % 100 = 1 THEN '["messages","log"]' ELSE '["messages"]' END,
    CASE WHEN i % 100 = 1 THEN json_array('' || i, '' || i) ELSE json_array('' || i) END,
    'msgpack', x'80', 'msgpack', x'80',
    json_object('source', '"loop"', 'step', '' || i, 'run', printf('"run%d-%d"', t, i / 10))
FROM t CROSS JOIN i WHERE i <= CASE t WHEN 0 THEN :long ELSE :short END;
INSERT INTO blobs
SELECT c.thread_id, '', n.value, v.value, 'msgpack', x'80',
    CASE n.value WHEN 'messages' THEN json_array('#/' || v.value / 10) END
FROM checkpoints c, json_each(c.blob_channels) n, json_each(c.blob_versions) v WHERE v.key = n.key;
INSERT INTO blobs
SELECT DISTINCT thread_id, '', channel, parts ->> 0, 'msgpack', x'80', NULL FROM blobs WHERE parts IS NOT NULL;
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
"""
SEARCHED = ThreadPage("\U0010ffff", "", {"run": '"run7-10"'}, 20)
SIZES = {"threads": THREADS, "long": LONG, "short": SHORT}


def trips(d: SqlDialect) -> dict[str, tuple[Trip, int]]:
    """What is looked at, with the number of rows that it may read, all of its steps together."""
    page = first_page("t0", "", None, "003000", {}, 20)
    after = {"thread_id": "t1", "checkpoint_ns": ""}
    return {
        "latest": (d.select_checkpoint(Key("t0", "", None)), 20),
        "by id": (d.select_checkpoint(Key("t0", "", "000123")), 20),
        "list page": (d.select_page(page), 300),
        "list page, filtered": (d.select_page(page._replace(filter={"source": '"loop"'})), 300),
        "list page of all threads": (d.select_page(first_page(None, None, None, "000050", {}, 20)), 6_000),
        # All namespaces of a thread: every checkpoint of it is looked at for the order, and none of another thread.
        "list page of a thread": (d.select_page(first_page("t1", None, None, None, {}, 20)), 600),
        "history page": (d.select_records(page), 300),
        "history page of a thread": (d.select_records(first_page("t1", None, None, None, {}, 20)), 600),
        # The long thread's 4,000 are the newest of the store, and then 1,960 threads have the same newest id.
        "newest threads": (d.select_newest_threads(ThreadPage("\U0010ffff", "", {}, 20), 5_000), 16_000),
        "threads, from the middle": (d.select_newest_threads(ThreadPage("000100", "t1700", {}, 20), 5_000), 6_000),
        # Of each of 1,961 threads: the next one, its first namespace, its newest checkpoint.
        "threads, filtered": (d.select_threads(ThreadPage("\U0010ffff", "", {"source": '"loop"'}, 20)), 8_000),
        "threads, recent": (
            d.select_recent_threads(ThreadPage("\U0010ffff", "", {"source": '"loop"'}, 20), 5_000),
            40_000,
        ),
        # The last run of a thread has one checkpoint, which is the thread's newest.
        "threads, searched": (d.select_searched_threads(SEARCHED, "run"), 10),
        "count of threads, searched": (d.count_searched_threads(SEARCHED.filter, "run"), 10),
        "count of threads": (d.count_threads("", {}), 8_000),
        "thread exists": (d.thread_exists("t7"), 1),
        "next thread": (d.select_next_thread("t7"), 2),
        "newest id": (d.select_newest_id(Key("t7", "", None)), 1),
        "document": (d.select_document(Key("t7", "", "000050")), 1),
        "order of writes": (d.select_write_places(Key("t7", "", "000050")), 2),
        "export of checkpoints": (
            d.export_rows("checkpoint", "t0", {"checkpoint_ns": "", "checkpoint_id": "0001"}, 20),
            20,
        ),
        "export of values": (
            d.export_rows("blob", "t0", {"checkpoint_ns": "", "channel": "messages", "version": "100"}, 20),
            20,
        ),
        "export of writes": (
            d.export_rows("write", "t0", {"checkpoint_ns": "", "checkpoint_id": "000100", "task_id": "", "idx": 0}, 20),
            20,
        ),
        "runs": (d.select_runs("t7"), 150),
        # Of each of the 50 threads that have ever asked: the next one, its newest checkpoint and that one's writes.
        "inbox": (d.select_interrupts(""), 300),
        "inbox of some": (d.select_interrupts("t1"), 300),
        "sizes of threads": (d.sizes_of_threads(["t1", "t2"]), 1_500),
        "sizes of a thread": (d.sizes_of_thread("t1", 10), 2_500),
        # A page of 200 rows, what they refer to, and what refers to those of their threads: 100 checkpoints in each.
        "doctor, checkpoints": (d.doctor_page("checkpoints", {**after, "checkpoint_id": ""}, 200), 3_000),
        "doctor, values": (d.doctor_page("blobs", {**after, "channel": "", "version": ""}, 200), 3_000),
        "doctor, writes": (
            d.doctor_page("writes", {**after, "checkpoint_id": "", "task_id": "", "idx": 0}, 200),
            2_000,
        ),
        "delta walk": (d.select_delta_history(Key("t0", "", "003999"), ["log"]), 2_000),
        "delta values": (d.select_delta_values(Key("t0", "", "003999"), ["log"]), 2_000),
    }


def statement_rows(plan: dict[str, Any]) -> Iterator[tuple[dict[str, Any], int]]:
    """Every node of a plan with the rows that it read, those that it threw away included."""
    loops = plan.get("Actual Loops", 1)
    lost = sum(plan.get(key, 0) for key in ("Rows Removed by Filter", "Rows Removed by Index Recheck"))
    yield plan, int(loops * (plan.get("Actual Rows", 0) + lost))
    for child in plan.get("Plans", ()):
        yield from statement_rows(child)


def table_reads(plan: dict[str, Any]) -> tuple[list[str], int]:
    """Tables that were read from end to end, and the rows read from tables."""
    scans, rows = [], 0
    for node, read in statement_rows(plan):
        if "Scan" in node["Node Type"] and not node.get("Relation Name", "pg_").startswith("pg_"):
            rows += read
            if node["Node Type"] == "Seq Scan":
                scans.append(f"{node['Relation Name']} ({read} rows)")
    return scans, rows


@pytest.fixture(scope="module")
def postgres_store(postgres_dsn: str, postgres_template: str) -> Iterator[str]:
    with made_database(postgres_dsn, postgres_template) as (_, url):
        with psycopg.connect(url, autocommit=True) as connection, connection.cursor() as cursor:
            for statement in FILL_POSTGRES.split(";\n"):
                if statement.strip():
                    cursor.execute(statement, SIZES)
            cursor.execute("ANALYZE")
        with open_saver(url) as saver:
            saver.setup(searchable=["run"])  # Of what an index is about, no statistics are there yet.
        yield url


@pytest.fixture(scope="module", params=[False, True], ids=["no statistics", "statistics"])
def few_postgres_threads(request: pytest.FixtureRequest, postgres_dsn: str, postgres_template: str) -> Iterator[str]:
    """A few threads of 1,000 checkpoints: taken for short when just filled, and later for most rows."""
    with made_database(postgres_dsn, postgres_template) as (_, url):
        with psycopg.connect(url, autocommit=True) as connection, connection.cursor() as cursor:
            for table in ("checkpoints", "blobs", "writes"):
                cursor.execute(f"ALTER TABLE langgraph_checkpoint.{table} SET (autovacuum_enabled = off)".encode())
            for statement in FILL_POSTGRES.split(";\n"):
                if statement.strip():
                    cursor.execute(statement, {"threads": 9, "long": 1_000, "short": 1_000})
            if request.param:
                cursor.execute("ANALYZE")
        with open_saver(url) as saver:
            saver.setup(searchable=["run"])
        yield url


@pytest.fixture(scope="module")
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


CASES = list(trips(PostgresDialect("langgraph_checkpoint")))


NO_METADATA = {"metadata_type": "msgpack", "metadata": b"\x80", "metadata_filter": "{}"}


def maintenance(d: SqlDialect) -> dict[str, Trip]:
    """What changes many rows or walks through all."""
    after = {"thread_id": "t5", "checkpoint_ns": "", "checkpoint_id": ""}
    return {
        "delete runs": d.delete_runs(["run7-3"]),
        "prune": d.delete_superseded("t7", 1),
        "prune to the newest": d.erase_superseded("t7"),
        "copy": d.copy_thread("t7", "t8"),
        "delete a thread": d.delete_thread("t7"),
        "delete an idle thread": d.delete_idle("t7", "999999"),
        "places": d.select_places("t7"),
        "places that a prune looks at": d.select_kept_places("t7"),
        "fork point": d.select_fork_point("t7", "t8", None, "run7-3"),
        "fork": d.fork_thread("t7", "new", "000050", NO_METADATA),
        "label": d.label_checkpoint(Key("t7", "", None), "name"),
        "delete a checkpoint": d.delete_checkpoint(Key("t7", "", "000050")),
        "rollback": d.delete_later(Key("t7", "", "000050")),
        "stored checkpoints": d.stored_rows("checkpoint", after, 100),
    }


MAINTENANCE = list(maintenance(PostgresDialect("langgraph_checkpoint")))


def explain(connection: psycopg.Connection[Any], statement: Statement) -> dict[str, Any]:
    row = connection.execute(
        f"EXPLAIN (ANALYZE, FORMAT JSON) {statement.sql}",
        statement.values(),
    ).fetchone()
    assert row is not None
    plan: dict[str, Any] = row[0][0]["Plan"]
    return plan


def connected(url: str, *, owner: bool, generic: bool = False) -> psycopg.Connection[Any]:
    """A connection as the tables' owner, or as a role under row-level security, which the planner knows less about."""
    connection = psycopg.connect(url)
    connection.execute("SET statement_timeout = '20s'")
    if not owner:
        connection.execute("CREATE ROLE plans_runner")
        connection.execute("GRANT USAGE ON SCHEMA langgraph_checkpoint TO plans_runner")
        connection.execute(
            "GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA langgraph_checkpoint TO plans_runner"
        )
        connection.execute("SET LOCAL ROLE plans_runner")
    if generic:
        connection.execute("SET plan_cache_mode = force_generic_plan")
        connection.prepare_threshold = 0
    return connection


@pytest.mark.parametrize("owner", [True, False], ids=["owner", "another role"])
@pytest.mark.parametrize("generic", [False, True], ids=["custom plan", "generic plan"])
@pytest.mark.parametrize("case", CASES)
def test_postgres_reads_by_index(postgres_store: str, case: str, generic: bool, owner: bool) -> None:
    trip, bound = trips(PostgresDialect("langgraph_checkpoint"))[case]
    with connected(postgres_store, owner=owner, generic=generic) as connection:
        for statement in trip.statements:
            scans, rows = table_reads(explain(connection, statement))
            assert scans == []
            assert (0 if statement.name == "searchable_there" else 1) <= rows <= bound
        connection.rollback()


def an_extension(thread_id: str) -> Encoded:
    """A checkpoint that keeps a value of the last one, shares a part with it and has a value of its own."""
    last = str(SHORT)
    return Encoded(
        CheckpointRow(
            thread_id, "", "000101", f"{SHORT:06}", None, None, 4, [], [], ["messages"], [last],
            "msgpack", b"", "msgpack", b"", "{}",
        ),
        [BlobRow("own", "1", "msgpack", b"")],
        [BlobRef("messages", last, required=True), BlobRef("messages", last, required=True, begins='["#/10"')],
        [],
        lambda _: [],
        None,
        {},
    )  # fmt: skip


SHARED: dict[str, tuple[Callable[[SqlDialect, str], Trip | None], int]] = {
    "latest": (lambda d, thread: d.select_checkpoint(Key(thread, "", None)), 20),
    "by id": (lambda d, thread: d.select_checkpoint(Key(thread, "", "000077")), 20),
    "put": (lambda d, thread: d.insert_checkpoint(an_extension(thread)), 2),
    "put_writes": (
        lambda d, thread: d.insert_writes(
            Key(thread, "", "000077"), [WriteRow("a", "new", "", None, 0, "msgpack", b"")], None
        ),
        0,
    ),
}


@pytest.mark.parametrize("generic", [False, True], ids=["custom plan", "generic plan"])
@pytest.mark.parametrize("members", [1, 64])
@pytest.mark.parametrize("case", SHARED)
def test_postgres_reads_by_index_for_many(postgres_store: str, case: str, members: int, generic: bool) -> None:
    make, bound = SHARED[case]
    d = PostgresDialect("langgraph_checkpoint")
    shares = [trip.share for n in range(1, members + 1) if (trip := make(d, f"t{n}")) and trip.share]
    assert len(shares) == members
    (statement,) = shares[0].merge([share.part for share in shares]).trip.statements
    with psycopg.connect(postgres_store) as connection:
        if generic:
            connection.execute("SET plan_cache_mode = force_generic_plan")
            connection.prepare_threshold = 0
        plan = explain(connection, statement)
        scans, rows = table_reads(plan)
        assert scans == []
        assert rows <= bound * members
        assert rows >= (members if bound else 0)
        if bound == 2:
            stored = connection.execute(
                "SELECT count(*) FROM langgraph_checkpoint.checkpoints"
                " WHERE checkpoint_id = '000101' AND run_id IS NULL"
            ).fetchone()
            assert stored == (members,)
        connection.rollback()


@pytest.mark.parametrize("analyzed", [False, True], ids=["no statistics", "statistics"])
@pytest.mark.parametrize("owner", [True, False], ids=["owner", "another role"])
@pytest.mark.parametrize("case", ["threads, searched", "count of threads, searched"])
def test_postgres_finds_threads_by_a_searchable_key(
    postgres_store: str, case: str, owner: bool, analyzed: bool
) -> None:
    """Under row-level security too, below which an expression on JSON would not be looked up."""
    trip, bound = trips(PostgresDialect("langgraph_checkpoint"))[case]
    with connected(postgres_store, owner=owner) as connection:
        if analyzed:
            connection.execute("RESET ROLE")
            connection.execute("ANALYZE langgraph_checkpoint.checkpoints")
            connection.execute("" if owner else "SET LOCAL ROLE plans_runner")
        (statement,) = trip.statements
        plan = explain(connection, statement)
        indexes = {node["Index Name"] for node, _ in statement_rows(plan) if "Index Name" in node}
        scans, rows = table_reads(plan)
        assert scans == []
        assert 0 < rows <= bound
        assert "searchable_run" in indexes
        connection.rollback()


@pytest.mark.parametrize("owner", [True, False], ids=["owner", "another role"])
@pytest.mark.parametrize("run_ids", [["run7-3"], ["run0-5", "run9-1", "unknown"]], ids=["one run", "several"])
def test_postgres_deletes_runs_by_index(postgres_store: str, run_ids: Sequence[str], owner: bool) -> None:
    trip = PostgresDialect("langgraph_checkpoint").delete_runs(run_ids)
    with connected(postgres_store, owner=owner) as connection:
        rows = 0
        for statement in trip.statements:
            scans, read = table_reads(explain(connection, statement))
            assert (statement.name, scans) == (statement.name, [])
            rows += read
        # In proportion to the threads that the runs are part of, here 100 or 4,100 checkpoints; not to the store.
        assert 0 < rows <= (2_000 if len(run_ids) == 1 else 45_000)
        connection.rollback()


# What asks for so many rows that to go once through a table of 10,000 or 20,000 may be the shortest way.
LARGE_PAGES = {"newest threads", "threads, recent", "doctor, checkpoints", "doctor, values", "doctor, writes"}


@pytest.mark.parametrize("owner", [True, False], ids=["owner", "another role"])
@pytest.mark.parametrize("generic", [False, True], ids=["custom plan", "generic plan"])
@pytest.mark.parametrize("case", CASES)
def test_postgres_reads_no_table_where_each_thread_is_a_tenth_of_the_store(
    few_postgres_threads: str, case: str, generic: bool, owner: bool
) -> None:
    """The planner thinks that the first of so many is found soon, from the beginning of the table."""
    trip, _ = trips(PostgresDialect("langgraph_checkpoint"))[case]
    with connected(few_postgres_threads, owner=owner, generic=generic) as connection:
        for statement in trip.statements:
            scans, rows = table_reads(explain(connection, statement))
            assert case in LARGE_PAGES or scans == []
            assert rows <= 30_000
        connection.rollback()


@pytest.mark.parametrize("owner", [True, False], ids=["owner", "another role"])
@pytest.mark.parametrize("case", MAINTENANCE)
def test_postgres_changes_a_thread_in_proportion_to_it_where_it_is_a_tenth_of_the_store(
    few_postgres_threads: str, case: str, owner: bool
) -> None:
    d = PostgresDialect("langgraph_checkpoint")
    with connected(few_postgres_threads, owner=owner) as connection:
        if case == "prune to the newest":
            connection.execute("DELETE FROM langgraph_checkpoint.labels")
            connection.execute("UPDATE langgraph_checkpoint.checkpoints SET delta_channels = '{}'")
        rows = 0
        for statement in maintenance(d)[case].statements:
            rows += sum(read for _, read in statement_rows(explain(connection, statement)))
        assert 0 < rows <= 300_000  # Of all nodes; a million and more where each row is looked for among all others.
        connection.rollback()


@pytest.mark.parametrize("checkpoint_id", ["000050", "000100"])
def test_postgres_forks_by_index(postgres_store: str, checkpoint_id: str) -> None:
    trip = PostgresDialect("langgraph_checkpoint").fork_thread("t7", "new", checkpoint_id, NO_METADATA)
    with psycopg.connect(postgres_store) as connection:
        rows = 0
        for statement in trip.statements:
            scans, read = table_reads(explain(connection, statement))
            assert (statement.name, scans) == (statement.name, [])
            rows += read
        # The names of the delta channels of a thread of 100, and the 50 or 100 back to the snapshot with their values.
        assert 100 < rows <= 6_000
        copied = connection.execute(
            "SELECT count(*) FROM langgraph_checkpoint.checkpoints WHERE thread_id = 'new'"
        ).fetchone()
        assert copied == (int(checkpoint_id),)
        connection.rollback()


@pytest.fixture(scope="module")
def sqlite_store_with_statistics(sqlite_store: Path) -> Path:
    path = sqlite_store.with_name("analyzed.db")
    with sqlite3.connect(sqlite_store) as source, sqlite3.connect(path) as target:
        source.backup(target)
        target.execute("ANALYZE")
    source.close()
    target.close()
    return path


def sqlite_plan(connection: sqlite3.Connection, statement: Statement) -> list[str]:
    params = statement.params[0] if isinstance(statement.params, list) else statement.params
    return [row[3] for row in connection.execute(f"EXPLAIN QUERY PLAN {statement.sql}", params)]


# The aliases of tables that are too large to be read from end to end.
TABLES = ("checkpoints", "blobs", "writes", "labels", "c", "b", "w", "d", "e", "o", "l")


@pytest.mark.parametrize("statistics", [False, True], ids=["no statistics", "statistics"])
@pytest.mark.parametrize("case", [*CASES, *MAINTENANCE])
def test_sqlite_reads_by_index(
    sqlite_store: Path, sqlite_store_with_statistics: Path, case: str, statistics: bool
) -> None:
    """With statistics it may also read a whole table for a Bloom filter first."""
    path = sqlite_store_with_statistics if statistics else sqlite_store
    d = SqliteDialect(str(path))
    trip = trips(d)[case][0] if case in CASES else maintenance(d)[case]
    with sqlite3.connect(path) as connection:
        for statement in trip.statements:
            details = sqlite_plan(connection, statement)
            scans = [text for text in details if text.startswith("SCAN ") and text.split()[1] in TABLES]
            scans = [text for text in scans if "VIRTUAL TABLE" not in text and "checkpoints_doomed" not in text]
            scans += [text for text in details if "BLOOM FILTER" in text]
            assert (statement.name, scans) == (statement.name, [])
    connection.close()


@pytest.mark.parametrize("statistics", [False, True], ids=["no statistics", "statistics"])
@pytest.mark.parametrize("case", ["threads, searched", "count of threads, searched"])
def test_sqlite_finds_threads_by_a_searchable_key(
    sqlite_store: Path, sqlite_store_with_statistics: Path, case: str, statistics: bool
) -> None:
    (statement,) = trips(SqliteDialect(""))[case][0].statements
    with sqlite3.connect(sqlite_store_with_statistics if statistics else sqlite_store) as connection:
        details = sqlite_plan(connection, statement)
    connection.close()
    assert "SEARCH checkpoints USING INDEX searchable_run (tenant=? AND <expr>=?)" in details


@pytest.mark.parametrize("case", ["delta walk", "delta values", *MAINTENANCE])
def test_sqlite_plans_do_not_depend_on_statistics(
    sqlite_store: Path, sqlite_store_with_statistics: Path, case: str
) -> None:
    d = SqliteDialect("")
    for statement in (trips(d)[case][0] if case in CASES else maintenance(d)[case]).statements:
        plans = []
        for path in (sqlite_store, sqlite_store_with_statistics):
            with sqlite3.connect(path) as connection:
                plans.append(sqlite_plan(connection, statement))
            connection.close()
        assert plans[0] == plans[1], statement.name


def test_the_explained_store_is_the_one_the_saver_reads(postgres_store: str, sqlite_store: Path) -> None:
    for url in (postgres_store, f"sqlite:///{sqlite_store}"):
        with open_saver(url) as saver:
            history = saver.get_delta_channel_history(
                config={"configurable": {"thread_id": "t0", "checkpoint_id": "003999"}}, channels=["log"]
            )
        assert len(history["log"]["writes"]) == 98
        assert history["log"]["seed"] == json.loads("{}")
