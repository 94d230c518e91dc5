"""Lists read rows in proportion to what they return, or to the keys of a thread, whatever the planner believes.

Each call is run page by page. On PostgreSQL, each statement is explained and its rows are counted; on SQLite, the
instructions of its virtual machine are.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import ormsgpack
import psycopg
import pytest
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer

from langgraph_checkpoint_custom import SqliteSaver
from langgraph_checkpoint_custom.encoding.values import ValueCodec
from langgraph_checkpoint_custom.engine.operation import Offload, RoundTrip, Statement, drive
from langgraph_checkpoint_custom.model.filter import wanted
from langgraph_checkpoint_custom.model.keys import AFTER_ALL, Page
from langgraph_checkpoint_custom.model.records import RECORDS, ThreadPage
from langgraph_checkpoint_custom.operations.list_threads import history_page, threads_page
from langgraph_checkpoint_custom.operations.pages import REACH, first_page, next_page
from langgraph_checkpoint_custom.operations.read import list_page
from langgraph_checkpoint_custom.operations.thread_states import waiting_threads
from langgraph_checkpoint_custom.sql.dialect import SqlDialect
from langgraph_checkpoint_custom.sql.postgres_dialect import PostgresDialect
from langgraph_checkpoint_custom.sql.sqlite_dialect import SqliteDialect
from tests.conftest import made_database
from tests.plans.conftest import without_autovacuum
from tests.plans.explaining import explain, table_reads

# Threads of one size: with one namespace, with five, and with one for each two checkpoints. And many short threads, of
# which 100 have a user that others do not have, at their newest checkpoint, and as many have asked a question.
SIZE, SMALL, THREADS, STEPS = 4_000, 400, 1_500, 10
COLUMNS = """(
    thread_id, checkpoint_ns, checkpoint_id, format, inline_channels, delta_channels, blob_channels, blob_versions,
    checkpoint_type, checkpoint, metadata_type, metadata, metadata_filter{}
)"""
INSERTS = [
    (thread_id, namespace, size, "500000")
    for thread_id, namespace in (
        ("long", "''"),
        ("five", "CASE n %% 5 WHEN 0 THEN '' ELSE 'memory ' || (n %% 5) END"),
        ("calls", "'call:' || (n + 1) / 2"),
    )
    for thread_id, size in ((thread_id, SIZE), (f"small {thread_id}", SMALL))
]
USUAL = "'user', '\"usual\"'"
USER = "'user', CASE WHEN n > {0} AND n %% 15 = 0 THEN '\"rare\"' ELSE '\"usual\"' END"
DOCUMENT = ormsgpack.packb({"v": 4, "channel_values": {}, "channel_versions": {}})
METADATA = {name: ormsgpack.packb({"user": name}) for name in ("usual", "rare")}


def inserts(columns: str, ident: str, made: str, arrays: str, series: str) -> Iterator[str]:
    """The statements that fill a store, in the order of time."""
    tail = f"4, {arrays}, 'msgpack', %(document)b, 'msgpack'"
    for thread_id, namespace, size, _ in INSERTS:
        yield (
            f"INSERT INTO {columns} SELECT '{thread_id}', {namespace}, {ident.format('n')}, {tail}, %(usual)b, "
            f"{made.format(USUAL)} FROM {series.format(size)}"
        )
    last = THREADS * (STEPS - 1)
    yield (
        f"INSERT INTO {columns} SELECT 't' || (n %% {THREADS}), '', {ident.format('500000 + n')}, {tail}, "
        f"CASE WHEN n > {last} AND n %% 15 = 0 THEN %(rare)b ELSE %(usual)b END, {made.format(USER.format(last))} "
        f"FROM {series.format(THREADS * STEPS)}"
    )


PARAMS = {"document": DOCUMENT, **METADATA}
QUESTIONS = """
INSERT INTO {}writes
SELECT thread_id, '', checkpoint_id, 'task', -3, '', NULL, '__interrupt__', 'msgpack', {}
FROM {}checkpoints WHERE metadata_filter ->> 'user' = '"rare"'
"""
NO_QUESTION = ormsgpack.packb([{"id": "1", "value": "sure?"}])


@pytest.fixture(scope="session", params=["no statistics", "statistics", "wrong statistics"])
def postgres_lists(request: pytest.FixtureRequest, postgres_dsn: str, postgres_template: str) -> Iterator[str]:
    schema = "langgraph_checkpoint."
    with made_database(postgres_dsn, postgres_template) as (_, url):
        with psycopg.connect(url, autocommit=True) as connection, connection.cursor() as cursor:
            without_autovacuum(cursor)
            statements = inserts(
                f"{schema}checkpoints {COLUMNS.format(', tenant')}",
                "to_char({}, 'FM000000')",
                "jsonb_build_object({}), ''",
                "'{}', '{}', '{}', '{}'",
                "generate_series(1, {}) AS g (n)",
            )
            for number, statement in enumerate(statements):
                cursor.execute(statement.encode(), PARAMS)
                if number == 1 and request.param == "wrong statistics":
                    cursor.execute("ANALYZE")
            cursor.execute(QUESTIONS.format(schema, "%s", schema).encode(), [NO_QUESTION])
            if request.param == "statistics":
                cursor.execute("VACUUM ANALYZE")
        yield url


@pytest.fixture(scope="session", params=["no statistics", "statistics"])
def sqlite_lists(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("lists") / "store.db"
    with SqliteSaver(path, synchronous="OFF") as saver:
        saver.setup()
    series = "(WITH RECURSIVE s (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM s WHERE n < {}) SELECT n FROM s)"
    with closing(sqlite3.connect(path)) as connection, connection:
        for statement in inserts(
            f"checkpoints {COLUMNS.format('')}",
            "printf('%%06d', {})",
            "json_object({})",
            "'[]', '[]', '[]', '[]'",
            series,
        ):
            text = statement.replace("%%", "%")
            for name in PARAMS:
                text = text.replace(f"%({name})b", f":{name}")
            connection.execute(text, PARAMS)
        columns = "thread_id, checkpoint_ns, checkpoint_id, task_id, idx, task_path, run_id, channel, type, value"
        connection.execute(QUESTIONS.format("", "?", "").replace("writes\n", f"writes ({columns})\n"), [NO_QUESTION])
        if request.param == "statistics":
            connection.execute("ANALYZE")
    return path


class Reader:
    """Runs round trips and counts the rows that they read, in total and at most in one statement."""

    def __init__(self, run: Callable[[Statement], tuple[Sequence[Any], float]]) -> None:
        self.run = run
        self.rows = self.most = self.statements = 0.0

    def __call__(self, request: RoundTrip | Offload) -> Any:
        if isinstance(request, Offload):
            return request.work()
        replies = []
        for statement in request.sent():
            found, rows = self.run(statement)
            replies.append(found)
            self.rows += rows
            self.most = max(self.most, rows)
            self.statements += 1
        return request.reply(replies)


@pytest.fixture(params=["custom plan", "generic plan"])
def on_postgres(request: pytest.FixtureRequest, postgres_lists: str) -> Iterator[tuple[SqlDialect, Reader]]:
    with psycopg.connect(postgres_lists) as connection:
        connection.execute("SET random_page_cost = 1")  # As in our own sessions.

        def run(statement: Statement) -> tuple[Sequence[Any], float]:
            scans, rows = table_reads(explain(connection, statement, generic=request.param == "generic plan"))
            assert (statement.name, scans) == (statement.name, [])
            params: Any = statement.params
            return connection.execute(statement.sql.encode(), params).fetchall(), rows

        yield PostgresDialect("langgraph_checkpoint"), Reader(run)


# Instructions of SQLite for a row. A search with a filter, which reads JSON, takes the most.
INSTRUCTIONS = 70


@pytest.fixture
def on_sqlite(sqlite_lists: Path) -> Iterator[tuple[SqlDialect, Reader]]:
    with closing(sqlite3.connect(sqlite_lists)) as connection:
        steps = 0

        def step() -> None:
            nonlocal steps
            steps += 1

        connection.set_progress_handler(step, INSTRUCTIONS)

        def run(statement: Statement) -> tuple[Sequence[Any], float]:
            before = steps
            return connection.execute(statement.sql, statement.params).fetchall(), steps - before

        yield SqliteDialect(""), Reader(run)


CODEC = ValueCodec(JsonPlusSerializer())


def listed(
    d: SqlDialect, read: Reader, page: Page | None, limit: int | None = None, filter: dict[str, Any] | None = None
) -> int:
    """Read the pages of `list`."""
    number, most = 0, 50
    while page is not None:
        reply = drive(list_page(d, CODEC, page, wanted(filter)), read)
        number += len(reply.tuples)
        page, limit = next_page(reply.after, len(reply.tuples), limit, most)
    return number


def records(d: SqlDialect, read: Reader, page: Page | None, filter: dict[str, Any] | None = None) -> list[Any]:
    """Read the pages of `history`."""
    found: list[Any] = []
    while page is not None:
        reply = drive(history_page(d, CODEC, page, wanted(filter)), read)
        found += reply.records
        page = reply.after
    return found


def of(thread_id: str | None, limit: int = 50) -> Page:
    return first_page(thread_id, None, None, None, limit)


def check_lists_of_threads(d: SqlDialect, read: Reader) -> None:
    # How often each row may be read: once, and its key at first; or where the next keys are chosen, of 2,000 at once.
    for name, times, first in (("long", 2.1, 1_100), ("five", 3.6, 1_300), ("calls", 5.6, SIZE + 1_100)):
        for thread_id, size in ((name, SIZE), (f"small {name}", SMALL)):
            read.rows = 0
            found = records(d, read, of(thread_id, RECORDS))
            assert [record.checkpoint_id for record in found] == [f"{n:06}" for n in range(size, 0, -1)]
            assert read.rows <= times * size, (thread_id, read.rows)
            read.rows = 0
            assert listed(d, read, of(thread_id)) == size
            assert read.rows <= times * size, (thread_id, read.rows)
            read.rows = 0
            assert records(d, read, of(thread_id, RECORDS), {"user": "nobody"}) == []
            assert read.rows <= times * size, (thread_id, read.rows)
        read.rows = 0
        assert listed(d, read, of(name, 10), limit=10) == 10
        assert read.rows <= first, (name, read.rows)  # The keys of a thread, or 1,000 of them and the newest ones.


def check_searches(d: SqlDialect, read: Reader) -> None:
    everything = 3 * (SIZE + SMALL) + THREADS * STEPS
    for filter, number in (({"user": "rare"}, 100), ({"user": "nobody"}, 0)):
        read.rows = read.most = 0
        assert len(records(d, read, of(None, RECORDS), filter)) == number
        # A piece has 5,000 checkpoints; one row is read to find where it ends, and one to see what it has.
        assert read.rows <= 2.1 * everything, read.rows
        assert read.most <= 1.1 * REACH, read.most
        read.rows = read.most = 0
        assert listed(d, read, of(None), filter=filter) == number
        assert read.rows <= 2.4 * everything, read.rows
        assert read.most <= 1.1 * REACH, read.most
    read.rows = 0
    assert listed(d, read, of(None), limit=50, filter={"user": "usual"}) == 50
    # Without statistics, PostgreSQL 15 sorts the piece instead of reading only its first rows.
    assert read.rows <= 2.1 * REACH, read.rows


def check_threads(d: SqlDialect, read: Reader) -> None:
    everything = 3 * (SIZE + SMALL) + THREADS * STEPS
    conditions = wanted({"user": "rare"})
    page: ThreadPage | None = ThreadPage(AFTER_ALL, "", (), 20)
    found: list[str] = []
    while page is not None:
        reply = drive(threads_page(d, CODEC, page, conditions), read)
        found += [each.thread_id for each in reply.threads]
        page = reply.after
    assert len(set(found)) == len(found) == 100
    # The pages go on below one another; each looks up the threads of 5,000 checkpoints before it searches.
    assert read.rows <= 4 * everything, read.rows
    assert read.most <= 4 * REACH, read.most
    read.rows = 0
    assert (
        drive(threads_page(d, CODEC, ThreadPage(AFTER_ALL, "", (), 20), wanted({"user": "nobody"})), read).threads == []
    )
    assert read.rows <= 4 * everything, read.rows


def check_inbox(d: SqlDialect, read: Reader) -> None:
    seen: list[tuple[str, str]] = []
    while True:
        read.rows = 0
        reply = drive(waiting_threads(d, CODEC, "", seen[-1] if seen else ("", ""), 30), read)
        assert reply.asking == 100
        # Of each that has asked, its newest checkpoint; of the page, also what it asks.
        assert read.rows <= 4 * 100 + 4 * 30, read.rows
        if not reply.threads:
            break
        seen += [(each.checkpoint_id, each.thread_id) for each in reply.threads]
    assert seen == sorted(seen)
    assert len(seen) == 100


CHECKS = [check_lists_of_threads, check_searches, check_threads, check_inbox]


@pytest.mark.parametrize("check", CHECKS)
def test_lists_on_postgres(on_postgres: tuple[SqlDialect, Reader], check: Callable[[SqlDialect, Reader], None]) -> None:
    check(*on_postgres)


@pytest.mark.parametrize("check", CHECKS)
def test_lists_on_sqlite(on_sqlite: tuple[SqlDialect, Reader], check: Callable[[SqlDialect, Reader], None]) -> None:
    check(*on_sqlite)


# What SQLite knows of three threads, one of which has a namespace for each two checkpoints.
OF_THREE_THREADS = [("2106 702 3 1", "sqlite_autoindex_checkpoints_1"), ("2106 2106 2", "checkpoints_by_id")]


def test_sqlite_looks_for_keys_in_their_thread_whatever_it_knows(tmp_path: Path) -> None:
    """With these statistics, it would look for the ids in all threads: there may be many by now."""
    path, d = tmp_path / "store.db", SqliteDialect("")
    with SqliteSaver(path) as saver:
        saver.setup()
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("ANALYZE")
        connection.executemany(
            "INSERT INTO sqlite_stat1 (tbl, stat, idx) VALUES ('checkpoints', ?, ?)", OF_THREE_THREADS
        )
    (statement,) = d.select_newest_keys(of("calls"), None, 50).statements
    with closing(sqlite3.connect(path)) as connection:
        plan = [row[3] for row in connection.execute(f"EXPLAIN QUERY PLAN {statement.sql}", statement.params)]
    assert [line for line in plan if "checkpoints_1 (thread_id=?" in line]
    assert [line for line in plan if "ANY(" in line] == []
