"""One saver serves any number of tasks and OS threads at the same time."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import closing
from typing import Any

import pytest
from langgraph.checkpoint.serde.types import _DeltaSnapshot

from langgraph_checkpoint_custom import CheckpointSaver
from tests.behaviour.helpers import (
    LONG,
    cancel_the_rest,
    config,
    default_walk,
    get,
    ids_of,
    metadata,
    new_versions,
    next_uuid,
    put,
)
from tests.stores import Client

TASKS = 64
WORKERS = 16
STEPS = 4


async def run_thread(client: Client, thread_id: str) -> None:
    """What a run does: put, writes, reads, a list with writes in its body, and the history."""
    where = None
    versions = new_versions(["shared", "own"])
    for step in range(STEPS):
        versions |= new_versions(["own"])
        new = versions if step == 0 else {"own": versions["own"]}
        values = {"shared": [thread_id, LONG], "own": [step], "small": step}
        where = await put(
            client,
            next_uuid(),
            values,
            thread_id=thread_id,
            parent=where,
            versions=versions,
            new=new,
            meta=metadata(step),
        )
        await client.put_writes(where, [("own", step), ("__error__", thread_id)], f"task {step}")
        found = await get(client, config(thread_id))
        assert found.config == where
        assert found.checkpoint["channel_values"] == values
        assert found.pending_writes is not None
        assert sorted(found.pending_writes) == [(f"task {step}", "__error__", thread_id), (f"task {step}", "own", step)]
    seen = []
    async for found in client.list(config(thread_id)):
        seen.append(found.metadata["step"])
        await client.put_writes(found.config, [("seen", 1)], "list")
    assert seen == list(range(STEPS))[::-1]
    assert (await client.history(config(thread_id), ["shared"]))["shared"]["seed"] == [thread_id, LONG]


async def test_64_tasks_run_concurrently(saver: CheckpointSaver) -> None:
    client = Client(saver, "async")
    await asyncio.gather(*(run_thread(client, f"t {number}") for number in range(TASKS)))
    assert len(await client.all(None)) == TASKS * STEPS


def in_workers(work: Callable[[int], object], count: int = WORKERS) -> None:
    """Run a function in OS threads that start together. One that never ends fails the test instead of blocking it."""
    barrier = threading.Barrier(count)
    errors: list[BaseException] = []

    def begin(number: int) -> None:
        barrier.wait(timeout=10)
        try:
            work(number)
        except BaseException as error:
            errors.append(error)

    workers = [threading.Thread(target=begin, args=(number,), daemon=True) for number in range(count)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(timeout=30)
        assert not worker.is_alive(), "a worker never came back"
    assert errors == []


class Blocking(Client):
    """Calls the sync methods on the current OS thread, so that a test's own OS thread can run one of its coroutines."""

    def __init__(self, saver: CheckpointSaver) -> None:
        super().__init__(saver, "sync")

    async def _call(self, name: str, *args: Any, **kwargs: Any) -> Any:
        return getattr(self.saver, name)(*args, **kwargs)


@pytest.mark.parametrize("way", ["sync", "a loop in each"])
def test_16_os_threads_run_concurrently(saver: CheckpointSaver, way: str) -> None:
    client = Blocking(saver) if way == "sync" else Client(saver, "async")
    in_workers(lambda number: asyncio.run(run_thread(client, f"t {number}")))
    assert len(list(saver.list(None))) == WORKERS * STEPS


def test_os_threads_and_tasks_run_concurrently(saver: CheckpointSaver) -> None:
    async def tasks(number: int) -> None:
        client = Client(saver, "async")
        await asyncio.gather(*(run_thread(client, f"t {number} {task}") for task in range(4)))

    def work(number: int) -> None:
        asyncio.run(run_thread(Blocking(saver), f"t {number}") if number % 2 else tasks(number))

    in_workers(work, 8)
    assert len(list(saver.list(None))) == (4 + 16) * STEPS


class SlowToSayClosed(asyncio.SelectorEventLoop):
    """Lets other OS threads run before it says that it is closed."""

    def is_closed(self) -> bool:
        closed = super().is_closed()
        if closed:
            time.sleep(0.001)  # Any duration releases the GIL.
        return closed


def test_event_loops_may_start_and_end_concurrently(saver: CheckpointSaver) -> None:
    """Each leaves its open connections to the next loop, on whatever OS thread."""
    saver.setup()

    def work(_: int) -> None:
        for _ in range(4):
            with closing(SlowToSayClosed()) as loop:
                assert loop.run_until_complete(saver.aget_tuple(config())) is None
                loop.run_until_complete(cancel_the_rest())

    in_workers(work, 8)


async def test_the_first_use_may_come_from_many_tasks_at_once(saver: CheckpointSaver) -> None:
    """Opening and, on SQLite, creating the tables happens once."""
    client = Client(saver, "async")
    workers = asyncio.to_thread(in_workers, lambda number: asyncio.run(put(Blocking(saver), f"sync {number}")))
    await asyncio.gather(workers, *(put(client, f"async {number}") for number in range(WORKERS)))
    assert len(await client.all(config())) == 2 * WORKERS


async def test_writers_of_one_thread_lose_nothing(client: Client) -> None:
    """The tasks of a superstep save their writes at the same time, and each write has one winner."""
    where = await put(client, "1")
    calls = [client.put_writes(where, [("a", task), ("b", task)], f"task {task}") for task in range(32)]
    calls += [client.put_writes(where, [("a", rival)], "contended") for rival in range(32)]
    calls += [client.put_writes(where, [("__resume__", rival)], "contended") for rival in range(32)]
    await asyncio.gather(*calls)
    found = (await get(client, where)).pending_writes or []
    assert sorted(write for write in found if write[0] != "contended") == sorted(
        (f"task {task}", channel, task) for task in range(32) for channel in "ab"
    )
    assert sorted(channel for task, channel, _ in found if task == "contended") == ["__resume__", "a"]


async def while_running(work: Coroutine[Any, Any, None], other: Callable[[], Awaitable[None]]) -> int:
    """Call `other` again and again while some work is in progress; returns how often."""
    task = asyncio.create_task(work)
    times = 0
    try:
        while not task.done():
            await other()
            await asyncio.sleep(0)
            times += 1
    finally:
        await task
    return times


@pytest.mark.leaves_values("a checkpoint that is stored again with other versions leaves its old values")
async def test_readers_never_see_half_a_checkpoint(client: Client) -> None:
    """Its document, its values and its metadata appear and change together."""
    channels = [f"channel {number}" for number in range(8)]

    def values(step: int) -> dict[str, list[int]]:
        return {channel: [step] for channel in channels}

    async def write() -> None:
        for step in range(25):
            versions = dict.fromkeys(channels, str(step % 3))
            await put(client, "1", values(step), versions=versions, meta=metadata(step))

    async def read() -> None:
        found = await client.get_tuple(config())
        if found is not None:
            step = found.metadata["step"]
            assert found.checkpoint["channel_values"] == values(step)

    assert await while_running(write(), read) > 0


async def test_copies_and_deletions_are_seen_completely_or_not_at_all(client: Client) -> None:
    for step in range(5):
        await put(client, str(step), {"a": [step]})

    async def write() -> None:
        for _ in range(10):
            await client.copy_thread("thread", "copy")
            await client.delete_thread("copy")

    async def read() -> None:
        if client.api == "async":
            found = [each async for each in client.saver.alist(config("copy"))]
        else:
            found = await asyncio.to_thread(lambda: list(client.saver.list(config("copy"))))
        assert len(found) in (0, 5)

    assert await while_running(write(), read) > 0


async def test_a_run_that_writes_during_prunes_loses_nothing(client: Client) -> None:
    """A big value that does not change, and a delta channel with an occasional snapshot."""

    async def run() -> None:
        versions = new_versions(["big"])
        where = None
        seed, since = 0, 0
        for step in range(40):
            versions |= new_versions(["delta"])
            values: dict[str, Any] = {"big": [LONG]}
            meta = metadata(step)
            if step % 7 == 0:
                values["delta"], seed, since = _DeltaSnapshot(step), step, step
            else:
                meta = metadata(step, counters_since_delta_snapshot={"delta": [1, 1]})
            new = {"delta": versions["delta"]} | ({"big": versions["big"]} if step == 0 else {})
            where = await put(client, next_uuid(), values, parent=where, versions=versions, new=new, meta=meta)
            if step != seed:
                for walk in (await client.history(where, ["delta"]), await default_walk(client, where, ["delta"])):
                    writes = [("task", "delta", each) for each in range(since, step)]
                    assert walk == {"delta": {"writes": writes, "seed": _DeltaSnapshot(seed)}}, step
            await client.put_writes(where, [("delta", step)], "task")
            found = await get(client, config())
            assert found.config == where
            assert found.checkpoint["channel_values"] == values

    async def prune() -> None:
        await asyncio.gather(client.prune(["thread"]), client.prune(["thread"]))

    assert await while_running(run(), prune) > 0
    await client.prune(["thread"])
    assert len(await client.all(config())) == 1
    assert (await get(client, config())).checkpoint["channel_values"]["big"] == [LONG]


@pytest.mark.leaves_writes("they are for checkpoints that never come")
async def test_concurrent_prunes_copies_and_deletions_do_not_deadlock(client: Client) -> None:
    """Whatever the order in which threads and runs are named."""
    threads = ["a", "b", "c"]
    for thread_id in threads:
        where = None
        for step in range(6):
            meta = metadata(step, run_id=f"run {step}")
            where = await put(client, next_uuid(), {"x": [step]}, thread_id=thread_id, parent=where, meta=meta)
    await asyncio.gather(
        *(client.prune(order) for order in (threads, threads[::-1], ["b", "c", "a"])),
        *(client.delete_for_runs([f"run {step}"]) for step in range(5)),
        client.delete_for_runs(["run 4", "run 0", "run 2"]),
        *(client.copy_thread(thread_id, f"copy of {thread_id}") for thread_id in threads),
        *(client.put_writes(config(thread_id, "x"), [("a", 1)], "task") for thread_id in threads),
    )
    for thread_id in threads:
        assert len(ids_of(await client.all(config(thread_id)))) == 1
