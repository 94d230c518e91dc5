"""A call that is cancelled halfway stores all or nothing, and the saver still works."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from langgraph_checkpoint_custom import CheckpointSaver
from tests.behaviour.helpers import LONG, Database, checkpoint, config, get, metadata, put
from tests.stores import Client

CHANNELS = [f"channel {number}" for number in range(5)]


@pytest.fixture
def saver(one_connection: CheckpointSaver) -> CheckpointSaver:
    """If its connection is lost, the next call fails."""
    return one_connection


@pytest.fixture
def client(saver: CheckpointSaver) -> Client:
    return Client(saver, "async")


async def cancel_after(call: Coroutine[Any, Any, object], turns: int) -> bool:
    """Cancel a call after `turns` iterations of the event loop; returns whether that was in time."""
    task = asyncio.create_task(call)
    for _ in range(turns):
        await asyncio.sleep(0)
    task.cancel()
    try:
        await task
    except asyncio.CancelledError:
        return True
    return False


def values(step: int) -> dict[str, Any]:
    return {channel: [step, LONG] for channel in CHANNELS}


async def is_complete(client: Client, thread_id: str, step: int) -> bool:
    """Whether a checkpoint exists; if it does, it is complete."""
    found = await client.get_tuple(config(thread_id, str(step)))
    if found is None:
        return False
    assert found.checkpoint["channel_values"] == values(step)
    assert found.metadata == metadata(step)
    return True


async def test_a_put_is_stored_completely_or_not_at_all(client: Client, database: Database) -> None:
    await put(client, "x")
    in_time = []
    for step in range(30):
        document = checkpoint(str(step), values(step))
        call = client.put(config(f"t {step}"), document, metadata(step), dict(document["channel_versions"]))
        in_time.append(await cancel_after(call, step))
    await put(client, "y")
    there = [await is_complete(client, f"t {step}", step) for step in range(30)]
    assert in_time[0], "at least the first call is cancelled in time"
    assert sum(there) >= in_time.count(False)
    assert database.count("blobs") == len(CHANNELS) * sum(there)


WRITES = [(channel, [LONG]) for channel in CHANNELS]
# What waits for the database: the call, and the number of checkpoints, writes and blobs once it is done.
CALLS: dict[str, tuple[Callable[[Client], Coroutine[Any, Any, object]], tuple[int, int, int]]] = {
    "put": (
        lambda client: put(client, "9", values(9), versions=dict.fromkeys(CHANNELS, "9")),
        (4, 3, 4 * len(CHANNELS)),
    ),
    "put_writes": (
        lambda client: client.put_writes(config(checkpoint_id="2"), WRITES, "another"),
        (3, 3 + len(CHANNELS), 3 * len(CHANNELS)),
    ),
    "delete_thread": (lambda client: client.delete_thread("thread"), (0, 0, 0)),
    "prune": (lambda client: client.prune(["thread"]), (1, 1, len(CHANNELS))),
    "delete_for_runs": (lambda client: client.delete_for_runs(["run"]), (0, 0, 0)),
    "copy_thread": (lambda client: client.copy_thread("thread", "copy"), (6, 6, 6 * len(CHANNELS))),
}


@pytest.mark.usefixtures("changing_values_in_blobs")
@pytest.mark.parametrize("name", CALLS)
async def test_a_call_that_waits_for_the_database_is_done_completely_or_not_at_all(
    client: Client, database: Database, name: str
) -> None:
    where = None
    for step in range(3):
        where = await put(client, str(step), values(step), parent=where, meta=metadata(step, run_id="run"))
        await client.put_writes(where, [("a", step)], "task")
    call, done = CALLS[name]
    with database.locked() as unlock:
        task = asyncio.ensure_future(call(client))
        await wait_until_it_waits(task)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        unlock()
    await client.put_writes(config("elsewhere", "1"), [("a", 1)], "task")
    await client.delete_thread("elsewhere")
    assert tuple(database.counts().values()) in ((3, 3, 3 * len(CHANNELS)), done)
    await call(client)
    assert tuple(database.counts().values()) == done


async def test_reads_that_are_cancelled_do_no_harm(client: Client) -> None:
    for step in range(3):
        await put(client, str(step), values(step))

    async def read_all() -> None:
        await client.all(config())

    for turns in range(12):
        await cancel_after(client.get_tuple(config()), turns)
        await cancel_after(read_all(), turns)
        await cancel_after(client.history(config(), CHANNELS), turns)
        assert (await get(client, config())).checkpoint["channel_values"] == values(2)
    assert len(await client.all(config())) == 3


async def test_cancelling_many_calls_at_once_loses_no_connection(client: Client) -> None:
    await put(client, "x")
    tasks = [asyncio.create_task(put(client, str(step), values(step), thread_id=f"t {step}")) for step in range(30)]
    await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    for task in tasks[::2]:
        task.cancel()
    results = await asyncio.gather(*tasks, return_exceptions=True)
    assert {type(result) for result in results} <= {dict, asyncio.CancelledError}
    for step in range(1, 30, 2):
        assert (await get(client, config(f"t {step}"))).checkpoint["channel_values"] == values(step)


async def wait_until_it_waits(task: asyncio.Future[Any]) -> None:
    """Let the loop run long enough for a call to reach the lock of the database."""
    for _ in range(20):
        await asyncio.sleep(0.002)
    assert not task.done(), "the call was to wait for the lock"
