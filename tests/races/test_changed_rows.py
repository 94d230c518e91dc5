"""A deletion on PostgreSQL whose rows another transaction has changed, but not yet committed, deletes the same rows.

PostgreSQL then checks the condition of the statement again on the changed row, in a way that depends on the plan. So
each deletion is played with each kind of plan that a join can have.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import psycopg
import pytest
from psycopg import sql

from tests.conftest import made_database
from tests.races.calls import do
from tests.races.pairs import OPERATIONS, THREAD, Bench
from tests.tables import TABLES

DELETIONS = ("delete_thread", "delete_checkpoint", "delete_for_runs", "prune", "sweep", "rollback")
BEGINNINGS = ("plain", "labelled", "delta")
# Each second row of a table is changed, beginning with the first or with the second one.
PARTS = (0, 1)
NESTED_LOOPS = ("enable_hashjoin", "enable_mergejoin", "enable_seqscan", "enable_material")
PLANS = {
    "as planned": (),
    "nested loops over indexes": (*NESTED_LOOPS, "enable_bitmapscan"),
    "nested loops over bitmaps": (*NESTED_LOOPS, "enable_indexscan"),
    "hash joins": ("enable_nestloop", "enable_mergejoin"),
    "merge joins": ("enable_nestloop", "enable_hashjoin"),
}


@pytest.fixture(scope="module", params=PLANS)
def bench(request: pytest.FixtureRequest, postgres_dsn: str, postgres_template: str) -> Iterator[Bench]:
    with ExitStack() as stack:
        folder = Path(stack.enter_context(TemporaryDirectory()))
        name, url = stack.enter_context(made_database(postgres_dsn, postgres_template))
        with psycopg.connect(url, autocommit=True) as server:
            for setting in PLANS[request.param]:
                server.execute(
                    sql.SQL("ALTER DATABASE {} SET {} = off").format(sql.Identifier(name), sql.Identifier(setting))
                )
        made = Bench(url, folder, stack)
        made.begin("delta")
        made.connection.execute("ANALYZE")  # Without statistics, the planner sees no use for the whole key of an index.
        yield made


@pytest.mark.parametrize("table", ["checkpoints", "blobs", "writes"])
@pytest.mark.parametrize("name", DELETIONS)
def test_a_deletion_finds_rows_that_are_being_changed(bench: Bench, name: str, table: str) -> None:
    for begun in BEGINNINGS:
        bench.begin(begun)
        delete(bench, name)
        expected = rows(bench)
        for part in PARTS:
            bench.begin(begun)
            worker = threading.Thread(target=delete, args=(bench, name))
            with bench.connection.transaction():
                change(bench, table, part)
                worker.start()
                assert bench.waits(worker) or name != "delete_thread"  # That one deletes all rows.
            worker.join()
            assert rows(bench) == expected, (begun, part)


def change(bench: Bench, table: str, part: int) -> None:
    """Change each second row of a table, in a way that does not show."""
    query = sql.SQL(
        """
        UPDATE langgraph_checkpoint.{table} SET thread_id = thread_id WHERE ctid IN (
            SELECT ctid FROM (
                SELECT ctid, row_number() OVER (ORDER BY t::text) AS number
                FROM langgraph_checkpoint.{table} AS t WHERE thread_id = %s
            ) AS numbered WHERE number %% 2 = %s
        )
        """
    )
    assert bench.connection.execute(query.format(table=sql.Identifier(table)), [THREAD, part]).rowcount > 0


def delete(bench: Bench, name: str) -> None:
    kind, *_ = do(bench.free[0], OPERATIONS[name].call(10, False, ""), {})
    assert kind == "ok"


def rows(bench: Bench) -> dict[str, list[tuple[Any, ...]]]:
    """All rows, in the order of their keys."""
    query = sql.SQL("SELECT * FROM langgraph_checkpoint.{} AS t ORDER BY t::text")
    return {table: bench.connection.execute(query.format(sql.Identifier(table))).fetchall() for table in TABLES}
