"""A statement about one thread goes to one server; one about all threads asks each shard once for each table."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

import psycopg
import pytest

from langgraph_checkpoint_custom.engine.operation import RoundTrip, Statement
from langgraph_checkpoint_custom.model.keys import Key, WriteRow
from langgraph_checkpoint_custom.sql.postgres_dialect import PostgresDialect
from tests.plans.explaining import ALL_THREADS, a_checkpoint, an_extension, maintenance, round_trips
from tests.test_architecture import ACROSS_THREADS

SHARDS = 4

# Statements about many threads: all others are about one thread. These are the documented ones without the one whose
# index these tables do not have, and those with which the command line reads everything.
ACROSS = ACROSS_THREADS - {"threads_searched"} | {
    "doctor_blobs",
    "doctor_checkpoints",
    "doctor_labels",
    "doctor_writes",
    "sizes",
    "stored_checkpoints",
    "stored_labels",
    "thread_at",
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
        "threads that were moved": d.ask("select_moves", **ALL_THREADS._asdict(), store="store", limit=100),
        "moves that are forgotten": d.ask("forget_moves", **ALL_THREADS._asdict(), store="store"),
        "threads with a label": d.ask(
            "threads_with_label", **ALL_THREADS._asdict(), name="name", thread_id="t5", limit=20
        ),
        "names of labels": d.ask("label_names", **ALL_THREADS._asdict(), limit=20, reach=100),
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


def test_each_statement_about_many_threads_has_a_case(dialect: PostgresDialect) -> None:
    asked = {statement.name for round_trip in cases(dialect).values() for statement in round_trip.sent()}
    assert (ACROSS | OF_TWO) - asked == set()


@pytest.mark.parametrize("server", range(3))
def test_a_statement_is_one_task_for_one_thread_and_at_most_one_a_shard_for_many(
    urls: Sequence[str], dialect: PostgresDialect, server: int
) -> None:
    for case, round_trip in cases(dialect).items():
        for statement, plan in plans(urls[server], round_trip):
            if statement.name in ACROSS | OF_TWO:
                assert max(tasks(plan), default=0) <= SHARDS, f"{case}, {statement.name}: {plan}"
            elif "langgraph_checkpoint" in statement.sql:
                # The coordinator makes rows of arrays, and sends these to the server.
                is_pulled = "pull to coordinator" in plan and not tasks(plan)
                assert tasks(plan) == [1] or is_pulled, f"{case}, {statement.name}: {plan}"
                assert "Distributed Subplan" not in plan, f"{case}, {statement.name}: {plan}"
