"""A saver belongs to no event loop: it works in consecutive and concurrent loops, inside one, and without one."""

from __future__ import annotations

import asyncio
import gc
import socket
import threading
import warnings
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest

from langgraph_checkpoint_custom import CheckpointSaver
from tests.behaviour.helpers import cancel_the_rest, config, get, metadata, new_versions, next_uuid, put
from tests.proxy import Proxy, proxied
from tests.stores import Client, Store


async def use(saver: CheckpointSaver, thread_id: str = "thread", count: int = 1) -> None:
    """Call each type of async method, from `count` tasks at once."""

    async def once(thread_id: str) -> None:
        client = Client(saver, "async")
        where = await put(client, next_uuid(), {"a": [1]}, thread_id=thread_id)
        await client.put_writes(where, [("a", 1)], "task")
        assert await get(client, config(thread_id)) == await get(client, where)
        assert [found.config async for found in saver.alist(config(thread_id), limit=1)] == [where]
        await client.history(where, ["a"])
        await client.prune([thread_id])

    await asyncio.gather(*(once(f"{thread_id} {task}") for task in range(count)))


def use_sync(saver: CheckpointSaver, thread_id: str = "thread") -> None:
    """Call the sync methods in the same way."""
    document: Any = {
        "v": 4,
        "id": next_uuid(),
        "ts": "",
        "channel_values": {"a": [1]},
        "channel_versions": new_versions(["a"]),
        "versions_seen": {},
    }
    where = saver.put(config(thread_id), document, metadata(), document["channel_versions"])
    saver.put_writes(where, [("a", 1)], "task")
    found = saver.get_tuple(where)
    assert found is not None
    assert found.checkpoint == document
    assert [found.config for found in saver.list(config(thread_id), limit=1)] == [where]
    saver.get_delta_channel_history(config=where, channels=["a"])
    saver.prune([thread_id])


async def test_sync_calls_work_inside_a_loop_while_its_tasks_wait(saver: CheckpointSaver) -> None:
    """They need nothing from the loop, which is blocked."""
    tasks = [asyncio.create_task(use(saver, f"async {number}")) for number in range(8)]
    for number in range(8):
        await asyncio.sleep(0)
        use_sync(saver, f"sync {number}")
    await asyncio.gather(*tasks)
    assert len(list(saver.list(None))) == 16


def test_an_abandoned_iterator_does_not_disturb_the_next_loop(saver: CheckpointSaver) -> None:
    """An iterator that one loop has abandoned."""

    async def abandon() -> None:
        for number in range(3):
            await use(saver, str(number))
        iterator = saver.alist(None)
        await anext(iterator)

    asyncio.run(abandon())
    gc.collect()
    asyncio.run(abandon())
    assert len(list(saver.list(None))) == 3


def test_a_sync_iterator_may_move_between_loops_and_os_threads(saver: CheckpointSaver) -> None:
    for number in range(3):
        use_sync(saver, str(number))
    iterator = saver.list(None)

    async def one() -> Any:
        return next(iterator)

    found = [asyncio.run(one()), next(iterator)]
    worker = threading.Thread(target=lambda: found.append(next(iterator)))
    worker.start()
    worker.join()
    assert len({each.config["configurable"]["thread_id"] for each in found}) == 3


@pytest.mark.parametrize("ending", ["close", "aclose in another loop", "nothing"])
def test_what_a_loop_left_open_is_closed_without_a_warning(store: Store, ending: str) -> None:
    """Warnings are errors here, also those of the garbage collector."""
    gc.collect()  # Do not count what other tests left.
    saver = store.open()
    asyncio.run(use(saver, "one", 3))
    use_sync(saver)
    asyncio.run(use(saver, "two", 3))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        if ending == "close":
            saver.close()
        elif ending == "aclose in another loop":
            asyncio.run(saver.aclose())
        del saver
        gc.collect()
        while ending == "nothing" and not caught:
            gc.collect()  # A worker may have held it for a moment.
    warned = [str(each.message).partition(" on ")[0] for each in caught]
    assert warned == (["unclosed saver"] if ending == "nothing" else [])


def test_a_loop_whose_tasks_were_all_cancelled_can_run_again(saver: CheckpointSaver) -> None:
    """As in programs that run one loop several times and cancel all tasks in between."""

    with closing(asyncio.new_event_loop()) as loop:
        try:
            for number in range(3):
                loop.run_until_complete(use(saver, str(number)))
                loop.run_until_complete(cancel_the_rest())
        finally:
            loop.run_until_complete(saver.aclose())


class Stalling(Proxy):
    """A network on which new connections get no reply from some moment on."""

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self.stalled = threading.Event()
        self.waiting = threading.Event()
        self._over = threading.Event()

    def _from_client(self, source: socket.socket) -> Iterator[bytes]:
        if self.stalled.is_set():
            self.waiting.set()
            self._over.wait()
        return super()._from_client(source)

    def close(self) -> None:
        self._over.set()
        super().close()


def test_a_loop_ends_although_its_pool_is_still_connecting(postgres_url: str) -> None:
    """`asyncio.run` cancels the remaining tasks and waits: no task of ours may take that for an error and continue."""
    network = Stalling(postgres_url)
    saver = Store("postgres", network.url).open()
    loops: list[asyncio.AbstractEventLoop] = []

    async def work() -> None:
        loops.append(asyncio.get_running_loop())
        await use(saver)
        network.stalled.set()
        await use(saver, count=8)  # More than there are connections, so that the pool wants another one.

    worker = threading.Thread(target=lambda: asyncio.run(work()), daemon=True)
    worker.start()
    worker.join(timeout=150)
    ended = not worker.is_alive()
    while worker.is_alive():  # Let the OS thread end before the test does.
        loops[0].call_soon_threadsafe(lambda: [task.cancel() for task in asyncio.all_tasks(loops[0])])
        worker.join(timeout=0.05)
    saver.close()
    network.close()
    assert network.waiting.is_set(), "the pool did not grow, so that nothing was tested"
    assert ended, "asyncio.run did not come back"


@pytest.mark.parametrize("way", ["tasks", "workers"])
def test_a_concurrent_first_use_opens_no_more_connections_than_allowed(postgres_url: str, way: str) -> None:
    """And perhaps one more, which checks whether the server is there."""
    with proxied(postgres_url) as proxy, Store("postgres", proxy.url).open(max_size=2) as saver:
        if way == "tasks":
            asyncio.run(use(saver, count=30))
        else:
            workers = [threading.Thread(target=use_sync, args=(saver, str(number))) for number in range(30)]
            for worker in workers:
                worker.start()
            for worker in workers:
                worker.join()
        assert proxy.connections <= 3
