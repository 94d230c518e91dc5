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

# Cases about many threads: all others are about one thread.
ACROSS = {
    "list page of all threads",
    "newest threads",
    "threads, from the middle",
    "threads, filtered",
    "threads, filtered by operators",
    "threads, recent",
    "count of threads",
    "next thread",
    "inbox",
    "inbox of some",
    "sizes of threads",
    "sizes of a thread",
    "doctor, checkpoints",
    "doctor, values",
    "doctor, writes",
    "threads of runs",
    "stored checkpoints",
}
# Cases about two threads, which may be on two servers.
OF_TWO = {"copied", "copied already", "copy", "fork"}
# They need an index that these tables do not have.
SEARCHED = {"threads, searched", "count of threads, searched"}


def cases(d: PostgresDialect) -> dict[str, RoundTrip]:
    key = Key("t7", "", "000050")
    rows = [WriteRow("task", "", "run", idx, "channel", "msgpack", b"1") for idx in range(6)]
    encoded = an_extension("t7")
    return {
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
    for case, round_trip in cases(dialect).items():
        for statement, plan in () if case in ACROSS | OF_TWO | SEARCHED else plans(urls[server], round_trip):
            if "langgraph_checkpoint" in statement.sql:
                # The coordinator makes rows of arrays, and sends these to the server.
                is_pulled = "pull to coordinator" in plan and not tasks(plan)
                assert tasks(plan) == [1] or is_pulled, f"{case}, {statement.name}: {plan}"
                assert "Distributed Subplan" not in plan, f"{case}, {statement.name}: {plan}"


def test_a_statement_about_many_threads_asks_each_shard_once_for_each_table(
    urls: Sequence[str], dialect: PostgresDialect
) -> None:
    for case in ACROSS | OF_TWO:
        for statement, plan in plans(urls[0], cases(dialect)[case]):
            assert max(tasks(plan), default=0) <= SHARDS, f"{case}, {statement.name}: {plan}"
