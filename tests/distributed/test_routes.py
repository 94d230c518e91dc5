"""A statement about one thread goes to one server; one about all threads asks each shard once for each table."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

import psycopg
import pytest

from langgraph_checkpoint_custom.engine.operation import RoundTrip, Statement
from langgraph_checkpoint_custom.model.keys import Key, WriteRow
from langgraph_checkpoint_custom.sql.postgres_dialect import PostgresDialect
from tests.plans.explaining import a_checkpoint, an_extension, maintenance, round_trips

SHARDS = 4

# Statements about many threads: all others are about one thread.
ACROSS = {
    "count_due",
    "doctor_blobs",
    "doctor_checkpoints",
    "doctor_labels",
    "doctor_writes",
    "hasten_threads",
    "page_of_store",
    "records_of_store",
    "select_due",
    "select_grown",
    "select_id_below",
    "select_interrupting",
    "select_later",
    "sizes",
    "stored_checkpoints",
    "stored_labels",
    "thread_at",
    "thread_ids",
    "threads_by_id",
    "threads_counted",
    "threads_failed",
    "threads_newest",
    "threads_of_runs",
    "threads_waiting",
}
# About two threads, which may be on two servers.
OF_TWO = {"select_not_in_source"}
# It needs an index that these tables do not have; and Citus is not sent the form of a page.
NOT_SENT = {"threads, searched", "list page without a filter"}


def cases(d: PostgresDialect) -> dict[str, RoundTrip]:
    key = Key("t7", "", "000050")
    rows = [WriteRow("task", "", "run", idx, "channel", "msgpack", b"1") for idx in range(6)]
    encoded = an_extension("t7")
    found = {
        **{name: round_trip for name, (round_trip, _) in round_trips(d).items()},
        **maintenance(d),
        "put of one row": d.insert_checkpoint(a_checkpoint("t7")),
        "check of a put": d.find_problems(encoded, only_newest=True, even_if_hidden=False),
        "put of values": d.store_checked(encoded, ()),
        "writes": d.insert_writes(key, rows[:2], None),
        "many writes": d.insert_writes(key, rows, None),
        "writes with a claim": d.insert_writes(key, rows, "claim"),
        "claim": d.ask(
            "claim_expire", "claim_take", "claim_holder", thread_id="t7", claim="token", owner="owner", ttl_seconds=1.0
        ),
        "renewed claim": d.ask("renew_claim", thread_id="t7", claim="token", ttl_seconds=1.0),
        "released claim": d.ask("release_claim", thread_id="t7", claim="token"),
    }
    return {case: round_trip for case, round_trip in found.items() if case not in NOT_SENT}


def plans(url: str, round_trip: RoundTrip) -> Iterator[tuple[Statement, str]]:
    with psycopg.connect(url) as connection:
        cursor = psycopg.ClientCursor(connection)  # Of INSERT … SELECT, Citus explains only one without parameters.
        for statement in round_trip.sent():
            found = cursor.execute(f"EXPLAIN (COSTS off) {statement.sql}", statement.params).fetchall()
            yield statement, "\n".join(line for (line,) in found)


def tasks(plan: str) -> Sequence[int]:
    return [int(count) for count in re.findall(r"Task Count: (\d+)", plan)]


@pytest.mark.parametrize("server", range(3))
def test_a_statement_about_one_thread_is_one_task(urls: Sequence[str], dialect: PostgresDialect, server: int) -> None:
    asked = set()
    for case, round_trip in cases(dialect).items():
        for statement, plan in plans(urls[server], round_trip):
            if statement.name in ACROSS | OF_TWO:
                asked.add(statement.name)
                assert max(tasks(plan), default=0) <= SHARDS, f"{case}, {statement.name}: {plan}"
            elif "langgraph_checkpoint" in statement.sql:
                # The coordinator makes rows of arrays, and sends these to the server.
                is_pulled = "pull to coordinator" in plan and not tasks(plan)
                assert tasks(plan) == [1] or is_pulled, f"{case}, {statement.name}: {plan}"
                assert "Distributed Subplan" not in plan, f"{case}, {statement.name}: {plan}"
    assert asked == ACROSS | OF_TWO
