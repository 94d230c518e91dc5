"""Helpers that make async calls on PostgreSQL wait for one batch, and calls of every type that can be batched."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from typing import Any

import psycopg
from langgraph.checkpoint.base import ChannelVersions, Checkpoint
from langgraph.checkpoint.conformance.test_utils import generate_checkpoint, generate_metadata

from langgraph_checkpoint_custom import PostgresSaver
from tests.behaviour.helpers import config
from tests.faults.workload import WAITING
from tests.stores import Client

# Of a saver in these tests.
CONNECTIONS = 2

Calls = Sequence[Callable[[], Awaitable[Any]]]
# Names that mean something in the text of an array.
ODD = ["", '"', "\\", "{a,b}", "NULL", " x ", "é\n\t", "a\\\"b'"]


def a_checkpoint(number: int, parent: Checkpoint | None = None) -> Checkpoint:
    """A checkpoint with a new value and, if it has a parent, a value of the parent."""
    made = generate_checkpoint(
        channel_values={"own": [number], "unchanged": ["unchanged"]},
        channel_versions={"own": f"{number}", "unchanged": "1"},
    )
    return made if parent is None else {**made, "channel_values": made["channel_values"] | {"unchanged": ["unchanged"]}}


NEW: ChannelVersions = {"own": "1", "unchanged": "1"}


def with_few(url: str) -> PostgresSaver:
    """A saver whose calls soon find no free connection."""
    return PostgresSaver(url, max_size=CONNECTIONS)


@contextmanager
def jammed(url: str, mode: str = "ACCESS EXCLUSIVE") -> Iterator[psycopg.Connection[Any]]:
    """Lock the tables, so that every statement waits; with SHARE ROW EXCLUSIVE, only those that store."""
    with psycopg.connect(url) as blocker:
        blocker.execute(
            "LOCK TABLE langgraph_checkpoint.checkpoints, langgraph_checkpoint.writes, langgraph_checkpoint.blobs"
            f" IN {mode} MODE"
        )
        yield blocker


@asynccontextmanager
async def in_one_batch(
    url: str, first: Callable[[int], Awaitable[Any]], calls: Calls, mode: str = "ACCESS EXCLUSIVE"
) -> AsyncIterator[list[asyncio.Future[Any]]]:
    """Calls that wait while `first`s of their type have all connections; they are one batch when those end."""
    with jammed(url, mode) as blocker, psycopg.connect(url, autocommit=True) as watcher:
        ahead: list[asyncio.Future[Any]] = []
        for number in range(CONNECTIONS):
            ahead.append(asyncio.ensure_future(first(number)))
            while len(watcher.execute(WAITING).fetchall()) <= number:
                await asyncio.sleep(0.005)  # No event is raised when a session begins to wait.
        waiters: list[asyncio.Future[Any]] = []
        for call in calls:
            waiters.append(asyncio.ensure_future(call()))
            await asyncio.sleep(0)  # It finds no free connection, and waits.
        assert not any(each.done() for each in (*waiters, *ahead))
        yield [*waiters, *ahead]
        blocker.rollback()
    await asyncio.gather(*waiters, *ahead, return_exceptions=True)


def outcome(call: asyncio.Future[Any]) -> Any:
    """The result of a call, or the class of its error."""
    if call.cancelled():
        return "cancelled"
    error = call.exception()
    return call.result() if error is None else type(error)


async def a_life(saver_client: Client, thread_id: str) -> None:
    """Make every call that can be batched, and check the results."""
    parent = a_checkpoint(1)
    first = await saver_client.put(config(thread_id), parent, generate_metadata(), NEW)
    await saver_client.put_writes(first, [(channel, [thread_id]) for channel in ODD], "task")
    found = await saver_client.get_tuple(config(thread_id))
    assert found is not None
    assert (found.config, found.checkpoint) == (first, parent)
    assert found.pending_writes == [("task", channel, [thread_id]) for channel in ODD]
    child = a_checkpoint(2)
    second = await saver_client.put(first, child, generate_metadata(run_id=thread_id), {"own": "2"})
    exact, newest = await asyncio.gather(saver_client.get_tuple(first), saver_client.get_tuple(config(thread_id)))
    assert exact is not None
    assert newest is not None
    assert (exact.checkpoint, exact.pending_writes) == (parent, found.pending_writes)
    assert (newest.checkpoint, newest.parent_config, newest.config) == (child, first, second)
    assert newest.metadata["run_id"] == thread_id
