"""One saver serves any number of tasks and OS threads at the same time."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from contextlib import closing
from typing import Any

import pytest

from langgraph_checkpoint_custom import CheckpointSaver
from tests.behaviour.helpers import (
    LONG,
    cancel_the_rest,
    config,
    get,
    metadata,
    new_versions,
    next_uuid,
    put,
)
from tests.stores import Client

pytestmark = pytest.mark.usefixtures("changing_values_in_blobs")

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
        barrier.wait(timeout=150)
        try:
            work(number)
        except BaseException as error:
            errors.append(error)

    workers = [threading.Thread(target=begin, args=(number,), daemon=True) for number in range(count)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(timeout=150)
        assert not worker.is_alive(), "a worker never came back"
    assert errors == []


class Blocking(Client):
    """Calls the sync methods on the current OS thread, so that a test's own OS thread can run one of its coroutines."""

    def __init__(self, saver: CheckpointSaver) -> None:
        super().__init__(saver, "sync")

    async def _call(self, name: str, *args: Any, **kwargs: Any) -> Any:
        return getattr(self.saver, name)(*args, **kwargs)


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
