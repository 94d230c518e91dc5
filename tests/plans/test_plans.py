"""In a store of 200,000 checkpoints, the hot statements read by index, and rows in proportion to their result.

On PostgreSQL the statements are explained with the plan for the given parameters and with the generic plan that a
prepared statement ends up with; on SQLite the query plan must not contain a scan of a table.
"""

from __future__ import annotations

import json
import sqlite3
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing
from itertools import product
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg_pool import ConnectionPool

from langgraph_checkpoint_custom import PostgresSaver, open_saver
from langgraph_checkpoint_custom.engine.operation import Form, Statement
from langgraph_checkpoint_custom.model.keys import Ahead, Key
from langgraph_checkpoint_custom.model.outline import Removal, of_runs
from langgraph_checkpoint_custom.operations.delete import changes
from langgraph_checkpoint_custom.operations.pages import first_page
from langgraph_checkpoint_custom.operations.sizes import ALL
from langgraph_checkpoint_custom.sql.dialect import SqlDialect
from langgraph_checkpoint_custom.sql.postgres_dialect import PostgresDialect
from langgraph_checkpoint_custom.sql.sqlite_dialect import SqliteDialect
from tests.plans.explaining import (
    a_checkpoint,
    an_outline,
    connected,
    explain,
    maintenance,
    round_trips,
    some_writes,
    sqlite_plan,
    sqlite_reads,
    statement_rows,
    table_reads,
)

POSTGRES = PostgresDialect("langgraph_checkpoint")
OWNERS = pytest.mark.parametrize("owner", [True, False], ids=["owner", "another role"])
PLANS = pytest.mark.parametrize("generic", [False, True], ids=["custom plan", "generic plan"])
STATISTICS = pytest.mark.parametrize("statistics", [False, True], ids=["no statistics", "statistics"])


@OWNERS
@PLANS
def test_postgres_reads_by_index(postgres_store: str, generic: bool, owner: bool) -> None:
    wrong = []
    with connected(postgres_store, owner=owner) as connection:
        for case, (round_trip, bound) in round_trips(POSTGRES).items():
            with connection.transaction(force_rollback=True):
                for statement in round_trip.statements:
                    scans, rows = table_reads(explain(connection, statement, generic=generic))
                    least = 0 if statement.name == "searchable_indexes" else min(1, bound)
                    if scans or not least <= rows <= bound:
                        wrong.append((case, statement.name, scans, rows, bound))
        connection.rollback()
    assert wrong == []


BATCHED: dict[str, tuple[Callable[[SqlDialect, str], tuple[Form, Sequence[Any]]], int]] = {
    "latest": (lambda d, thread: d.read_form(Key(thread, "", None)), 20),
    "by id": (lambda d, thread: d.read_form(Key(thread, "", "000077")), 20),
    "put": (lambda d, thread: d.put_form(a_checkpoint(thread)), 0),
    "first put": (lambda d, thread: d.put_form(a_checkpoint(thread)._replace(parent_id=None)), 1),
    "put_writes": (some_writes, 0),
}


@PLANS
@pytest.mark.parametrize("size", [1, 64])
@pytest.mark.parametrize("case", BATCHED)
def test_postgres_reads_by_index_for_many(postgres_store: str, case: str, size: int, generic: bool) -> None:
    make, bound = BATCHED[case]
    forms, calls = zip(*[make(POSTGRES, f"t{n}") for n in range(1, size + 1)], strict=True)
    (batching,) = {form.batching for form in forms}
    (statement,) = batching.merge(calls).statements
    with psycopg.connect(postgres_store) as connection:
        plan = explain(connection, statement, generic=generic)
        scans, rows = table_reads(plan)
        assert scans == []
        assert rows <= bound * size
        assert rows >= (size if bound else 0)
        if case == "put":
            stored = connection.execute(
                "SELECT count(*) FROM langgraph_checkpoint.checkpoints"
                " WHERE checkpoint_id = '000101' AND run_id IS NULL"
            ).fetchone()
            assert stored == (size,)
        connection.rollback()


@pytest.mark.parametrize("analyzed", [False, True], ids=["no statistics", "statistics"])
@OWNERS
def test_postgres_finds_threads_by_a_searchable_key(postgres_store: str, owner: bool, analyzed: bool) -> None:
    """Also under row-level security, which prevents the lookup of an expression on JSON."""
    round_trip, bound = round_trips(POSTGRES)["threads, searched"]
    with connected(postgres_store, owner=owner) as connection:
        if analyzed:
            connection.execute("RESET ROLE")
            connection.execute("ANALYZE langgraph_checkpoint.checkpoints")
            connection.execute("" if owner else "SET LOCAL ROLE plans_runner")
        (statement,) = round_trip.statements
        plan = explain(connection, statement)
        indexes = {node["Index Name"] for node, _ in statement_rows(plan) if "Index Name" in node}
        scans, rows = table_reads(plan)
        assert scans == []
        assert 0 < rows <= bound
        assert "searchable_run" in indexes
        connection.rollback()


# Queries of the view `checkpoints_readable`, as in docs/storage-format.md, with the number of rows that they may read.
READABLE = {
    "newest": ("SELECT * FROM {} WHERE tenant = '' ORDER BY checkpoint_id DESC LIMIT 20", 20),
    "thread": ("SELECT * FROM {} WHERE stored_thread_id = 't7' ORDER BY checkpoint_id DESC LIMIT 20", 100),
    "run": ("SELECT * FROM {} WHERE run_id = 'run7-3'", 10),
    "since": ("SELECT source, count(*) FROM {} WHERE tenant = '' AND checkpoint_id > '003990' GROUP BY source", 10),
}


@OWNERS
@pytest.mark.parametrize("case", READABLE)
def test_postgres_reads_the_readable_view_by_index(postgres_store: str, case: str, owner: bool) -> None:
    """The order of the view makes the planner consider an index for the newest ones; the barrier hides the query's."""
    query, bound = READABLE[case]
    with connected(postgres_store, owner=owner) as connection:
        sql = query.format("langgraph_checkpoint.checkpoints_readable")
        scans, rows = table_reads(explain(connection, Statement(case, sql, {})))
        assert scans == []
        assert 0 < rows <= bound
        connection.rollback()


@STATISTICS
@pytest.mark.parametrize("case", ["newest", "thread", "since"])  # All checkpoints of this store have one run.
def test_sqlite_reads_the_readable_view_by_index(
    sqlite_store: Path, sqlite_store_with_statistics: Path, case: str, statistics: bool
) -> None:
    statement = Statement(case, READABLE[case][0].format("checkpoints_readable"), {})
    assert sqlite_reads(sqlite_store_with_statistics if statistics else sqlite_store, statement) == []


@OWNERS
@pytest.mark.parametrize("run_ids", [["run7-3"], ["run0-5", "run9-1", "unknown"]], ids=["one run", "several"])
def test_postgres_deletes_runs_by_index(postgres_store: str, run_ids: Sequence[str], owner: bool) -> None:
    threads = sorted({f"t{run_id[3]}" for run_id in run_ids if run_id != "unknown"})
    outline = an_outline(100)
    removal = Removal(outline, of_runs(outline, {"run7-3"}))
    ids = POSTGRES.array(run_ids)
    names = "select_outline", "select_labels", "select_written"
    deletions = [POSTGRES.ask(*names, thread_id=thread_id, limit=ALL, run_ids=ids) for thread_id in threads]
    for thread_id in threads:
        deletions += POSTGRES.delete_blobs(thread_id, removal.blobs), changes(POSTGRES, thread_id, removal, {}, run_ids)
    with connected(postgres_store, owner=owner) as connection:
        rows = 0
        for statement in [
            s
            for round_trip in (POSTGRES.ask("threads_of_runs", run_ids=ids), *deletions)
            for s in round_trip.statements
        ]:
            scans, read = table_reads(explain(connection, statement))
            assert (statement.name, scans) == (statement.name, [])
            rows += read
        # In proportion to the threads of the runs, here 100 or 4,100 checkpoints; not to the store.
        assert 0 < rows <= (2_000 if len(run_ids) == 1 else 45_000)
        connection.rollback()


# Statements that read so many rows that reading a table of 10,000 or 20,000 once may be fastest.
LARGE_PAGES = {
    "newest threads",
    "numbers of a thread",
    "doctor",
    "threads to hasten",
    "threads left",
}
# They read few rows in any store: not the writes of all checkpoints of a thread, for example.
ONE_CHECKPOINT = {"latest", "by id"}


@OWNERS
@PLANS
def test_postgres_reads_no_table_where_each_thread_is_a_tenth_of_the_store(
    few_postgres_threads: str, generic: bool, owner: bool
) -> None:
    """The planner assumes that the first of so many rows is found soon, from the beginning of the table."""
    wrong = []
    with connected(few_postgres_threads, owner=owner) as connection:
        for case, (round_trip, bound) in round_trips(POSTGRES).items():
            most = bound if case in ONE_CHECKPOINT else 30_000
            with connection.transaction(force_rollback=True):
                for statement in round_trip.statements:
                    scans, rows = table_reads(explain(connection, statement, generic=generic))
                    scans = [each for each in scans if not each.startswith("labels")]  # All are on one page.
                    if rows > most or (scans and case not in LARGE_PAGES):
                        wrong.append((case, statement.name, scans, rows))
        connection.rollback()
    assert wrong == []


@OWNERS
@pytest.mark.parametrize("limit", [1, 10, 50])
def test_postgres_reads_no_more_than_a_page_of_a_thread(
    postgres_threads_by_turns: str, limit: int, owner: bool
) -> None:
    """A generic plan takes the range of a page for a few rows, which it would read completely and sort."""
    page = first_page("t1", "", None, None, limit)
    form, params = POSTGRES.page_form(page)
    with connected(postgres_threads_by_turns, owner=owner) as connection:
        for statement, generic in product(
            (*POSTGRES.select_page(page).statements, form.with_params(params)), (False, True)
        ):
            _, rows = table_reads(explain(connection, statement, generic=generic))
            assert limit <= rows <= limit + 1
        connection.rollback()


@pytest.mark.parametrize("whose", ["ours", "the caller's"])
def test_postgres_sessions_read_no_more_than_a_page_of_a_thread(postgres_threads_by_turns: str, whose: str) -> None:
    """What the server has counted for many pages, most of which are prepared: it counts when a session ends."""

    def read() -> int:
        with psycopg.connect(postgres_threads_by_turns) as connection:
            found = connection.execute(
                "SELECT idx_tup_fetch FROM pg_stat_user_tables WHERE relname = 'checkpoints'"
            ).fetchone()
            assert found
            return int(found[0])

    before = read()
    with ExitStack() as stack:
        source: Any = postgres_threads_by_turns
        if whose == "the caller's":
            options = {"autocommit": True}
            source = stack.enter_context(ConnectionPool(source, min_size=1, max_size=1, kwargs=options, open=True))
        saver = stack.enter_context(PostgresSaver(source, max_size=1))
        for _ in range(40):
            assert len(list(saver.list({"configurable": {"thread_id": "t1", "checkpoint_ns": ""}}, limit=10))) == 10
    deadline = time.monotonic() + 150
    while (found := read() - before) < 400 and time.monotonic() < deadline:
        time.sleep(0.05)  # The server ends a closed session, and updates its counters, a moment later.
    assert 400 <= found <= 500


@pytest.fixture(scope="session")
def sqlite_store_with_statistics(sqlite_store: Path) -> Path:
    path = sqlite_store.with_name("analyzed.db")
    with sqlite3.connect(sqlite_store) as source, sqlite3.connect(path) as target:
        source.backup(target)
        target.execute("ANALYZE")
    source.close()
    target.close()
    return path


def on_sqlite() -> Iterator[tuple[str, Statement]]:
    """Each statement, with its case."""
    d = SqliteDialect("")
    for case, round_trip in ({name: each for name, (each, _) in round_trips(d).items()} | maintenance(d)).items():
        yield from ((case, statement) for statement in round_trip.statements)


@STATISTICS
def test_sqlite_reads_by_index(sqlite_store: Path, sqlite_store_with_statistics: Path, statistics: bool) -> None:
    """With statistics it may also read a complete table for a Bloom filter first."""
    path = sqlite_store_with_statistics if statistics else sqlite_store
    reads = [(case, statement.name, sqlite_reads(path, statement)) for case, statement in on_sqlite()]
    assert [read for read in reads if read[2]] == []


@STATISTICS
def test_sqlite_finds_threads_by_a_searchable_key(
    sqlite_store: Path, sqlite_store_with_statistics: Path, statistics: bool
) -> None:
    (statement,) = round_trips(SqliteDialect(""))["threads, searched"][0].statements
    with sqlite3.connect(sqlite_store_with_statistics if statistics else sqlite_store) as connection:
        details = sqlite_plan(connection, statement)
    connection.close()
    assert "SEARCH checkpoints USING INDEX searchable_run (tenant=? AND <expr>=?)" in details


def test_sqlite_plans_do_not_depend_on_statistics(sqlite_store: Path, sqlite_store_with_statistics: Path) -> None:
    d = SqliteDialect("")
    round_trip_of = maintenance(d) | {"delta history": round_trips(d)["delta history"][0]}
    with (
        closing(sqlite3.connect(sqlite_store)) as without,
        closing(sqlite3.connect(sqlite_store_with_statistics)) as analyzed,
    ):
        for case, round_trip in round_trip_of.items():
            for statement in round_trip.statements:
                plan = sqlite_plan(without, statement)
                assert plan == sqlite_plan(analyzed, statement), (case, statement.name)


@pytest.mark.parametrize("d", [POSTGRES, SqliteDialect("")], ids=["postgres", "sqlite"])
def test_the_keys_of_later_pages_are_no_parameter(d: SqlDialect) -> None:
    """There are up to 10,000 of them, in which an observer would look for bytes at each page of a list."""
    trip, _ = round_trips(d)["list page of a thread"]
    (statement,) = trip.statements
    assert isinstance(statement.params, Mapping)
    assert not any(isinstance(value, Ahead) for value in statement.params.values())


def test_the_explained_store_is_the_one_the_saver_reads(postgres_store: str, sqlite_store: Path) -> None:
    for url in (postgres_store, f"sqlite:///{sqlite_store}"):
        with open_saver(url) as saver:
            history = saver.get_delta_channel_history(
                config={"configurable": {"thread_id": "t0", "checkpoint_id": "003999"}}, channels=["log"]
            )
        assert len(history["log"]["writes"]) == 98
        assert history["log"]["seed"] == json.loads("{}")
