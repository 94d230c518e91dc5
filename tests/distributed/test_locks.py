"""A thread has one lock, to whichever server the clients are connected."""

from __future__ import annotations

import time
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import psycopg
import pytest

from langgraph_checkpoint_custom import PostgresSaver
from langgraph_checkpoint_custom.engine.operation import RoundTrip
from langgraph_checkpoint_custom.sql.postgres_dialect import PostgresDialect
from tests.behaviour.helpers import checkpoint, config, metadata
from tests.invariants import check_invariants
from tests.stores import Store

LARGE = "x" * 100_000

# The coordinator and a worker: the first server stores, the second one deletes.
SERVERS = [(first, second) for first in (0, 1) for second in (0, 1)]


def waits_for_a_lock(urls: Sequence[str]) -> bool:
    """Whether a session on any server waits for an advisory lock."""
    for url in urls:
        with psycopg.connect(url) as server:
            row = server.execute(
                "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted AND database ="
                " (SELECT oid FROM pg_database WHERE datname = current_database())"
            ).fetchone()
            if row and row[0]:
                return True
    return False


def begun(connection: psycopg.Connection[Any], round_trip: RoundTrip) -> None:
    """Send a round trip, and leave its transaction open."""
    for statement in round_trip.sent():
        connection.execute(statement.sql, statement.params)


def wait_until_it_waits(urls: Sequence[str], call: Future[Any]) -> None:
    for _ in range(7_500):
        if waits_for_a_lock(urls):
            return
        assert not call.done(), f"it did not wait: {call.result()!r}"
        time.sleep(0.02)  # No event is raised when a session of another server begins to wait.
    raise AssertionError("it neither ended nor waited for the lock")


def stored(saver: PostgresSaver, thread_id: str, checkpoint_id: str, **values: Any) -> None:
    document = checkpoint(checkpoint_id, values)
    saver.put(config(thread_id), document, metadata(), document["channel_versions"])


@pytest.mark.parametrize(("puts", "deletes"), SERVERS)
@pytest.mark.parametrize("thread_id", ["thread", "another", "third"])  # Their rows are on different servers.
def test_a_put_waits_for_a_deletion_on_another_server(
    urls: Sequence[str], dialect: PostgresDialect, puts: int, deletes: int, thread_id: str
) -> None:
    with PostgresSaver(urls[puts]) as saver, psycopg.connect(urls[deletes]) as deleting:
        stored(saver, thread_id, "1", large=LARGE)
        begun(deleting, dialect.ask("delete_thread", lock="exclusive", thread_id=thread_id))
        with ThreadPoolExecutor() as workers:
            document = checkpoint("2", {"large": LARGE}, checkpoint("1", {"large": LARGE})["channel_versions"])
            # The value is unchanged, so the put only refers to it.
            put = workers.submit(saver.put, config(thread_id, "1"), document, metadata(), {})
            wait_until_it_waits(urls, put)
            deleting.commit()
            put.result()
        found = saver.get_tuple(config(thread_id))
        assert found is not None
        assert found.checkpoint["channel_values"] == {"large": LARGE}
    check_invariants(Store("postgres", urls[0]))


@pytest.mark.parametrize(("puts", "deletes"), SERVERS)
@pytest.mark.parametrize("thread_id", ["thread", "another", "third"])
def test_a_deletion_waits_for_a_put_on_another_server(
    urls: Sequence[str], dialect: PostgresDialect, puts: int, deletes: int, thread_id: str
) -> None:
    with PostgresSaver(urls[deletes]) as saver, psycopg.connect(urls[puts]) as putting:
        stored(saver, thread_id, "1", large=LARGE)
        begun(putting, RoundTrip(dialect._lock(thread_id, alone=False)))
        putting.execute(
            "INSERT INTO langgraph_checkpoint.blobs (thread_id, checkpoint_ns, channel, version, type, value)"
            " VALUES (%s, '', 'other', '1', 'msgpack', '')",
            (thread_id,),
        )
        with ThreadPoolExecutor() as workers:
            deletion = workers.submit(saver.delete_thread, thread_id)
            wait_until_it_waits(urls, deletion)
            putting.commit()
            deletion.result()
        assert saver.get_tuple(config(thread_id)) is None
        with psycopg.connect(urls[0]) as server:
            for table in ("checkpoints", "blobs", "writes"):
                assert server.execute(f"SELECT count(*) FROM langgraph_checkpoint.{table}").fetchone() == (0,)
