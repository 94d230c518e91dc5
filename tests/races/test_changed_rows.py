"""A deletion on PostgreSQL whose rows another transaction has changed, but not yet committed, deletes the same rows.

PostgreSQL then checks the condition of the statement again on the changed row.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest
from psycopg import sql

from tests.races.calls import do
from tests.races.pairs import OPERATIONS, THREAD, Bench, made_bench
from tests.tables import TABLES

DELETIONS = ("delete_thread", "delete_checkpoint", "delete_for_runs", "prune", "sweep", "rollback")
BEGINNINGS = ("plain", "labelled", "delta")
# Each second row of a table is changed, beginning with the first or with the second one.
PARTS = (0, 1)


@pytest.fixture(scope="module")
def bench(postgres_dsn: str, postgres_template: str) -> Iterator[Bench]:
    with made_bench(postgres_dsn, postgres_template) as made:
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
    """All rows, in the order of their keys, except those with the times of sweeps."""
    tables = set(TABLES) - {"threads", "sweeps"}
    query = sql.SQL("SELECT * FROM langgraph_checkpoint.{} AS t ORDER BY t::text")
    return {table: bench.connection.execute(query.format(sql.Identifier(table))).fetchall() for table in tables}
