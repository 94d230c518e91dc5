"""In an event loop that cannot wait for sockets, as the default one of Windows, async calls to PostgreSQL work as well.

psycopg refuses that loop, so the calls run on workers. Here it is simulated by a loop that lacks the same methods, and
that psycopg takes for the one of Windows. Nothing was tried on Windows.
"""

from __future__ import annotations

import asyncio
import threading
from asyncio import AbstractEventLoop
from asyncio.proactor_events import BaseProactorEventLoop
from collections.abc import Callable, Coroutine, Iterator
from functools import wraps
from inspect import iscoroutinefunction
from pathlib import Path
from types import SimpleNamespace
from typing import Any, TypedDict

import psycopg
import pytest
from langgraph.graph import START, StateGraph
from langgraph.types import Command, interrupt
from psycopg_pool import ConnectionPool

from langgraph_checkpoint_custom import CheckpointSaver, ConfigError, PostgresSaver
from tests.behaviour import test_cancellation, test_delta_history
from tests.behaviour.helpers import Database, config, get, put
from tests.conftest import check_what_is_left, empty_store
from tests.stores import Client, Store

pytestmark = pytest.mark.usefixtures("changing_values_in_blobs")


class WithoutSockets(asyncio.SelectorEventLoop):
    """An event loop with the public methods of Windows' default one."""

    add_reader = AbstractEventLoop.add_reader
    remove_reader = AbstractEventLoop.remove_reader
    add_writer = AbstractEventLoop.add_writer
    remove_writer = AbstractEventLoop.remove_writer


@pytest.fixture(autouse=True)
def _as_on_windows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make psycopg take `WithoutSockets` for the loop that it refuses."""
    monkeypatch.setattr(asyncio, "ProactorEventLoop", WithoutSockets, raising=False)
    monkeypatch.setattr("psycopg.connection_async.sys", SimpleNamespace(platform="win32"))


@pytest.fixture(params=["postgres"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    found = empty_store(request, tmp_path)
    yield found
    check_what_is_left(request, found)


@pytest.fixture
def saver(store: Store) -> Iterator[CheckpointSaver]:
    """A saver with one connection: if that is lost, the next call fails."""
    with store.open(max_size=1) as opened:
        yield opened


@pytest.fixture
def client(saver: CheckpointSaver) -> Client:
    return Client(saver, "async")


def without_sockets(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """Turn a coroutine into a plain test that runs it in such a loop."""

    @wraps(test)
    def run(*args: Any, **kwargs: Any) -> None:
        loop = WithoutSockets()
        try:
            loop.run_until_complete(test(*args, **kwargs))
        finally:
            loop.run_until_complete(loop.shutdown_asyncgens())
            loop.run_until_complete(loop.shutdown_default_executor())
            loop.close()

    return run


# The tests of these files, in such a loop.
globals().update(
    (f"{name}_without_sockets", without_sockets(test))
    for file in (test_cancellation, test_delta_history)
    for name, test in vars(file).items()
    if name.startswith("test_") and iscoroutinefunction(test)
)


def test_the_loop_of_windows_lacks_the_same_methods() -> None:
    for name in ("add_reader", "remove_reader", "add_writer", "remove_writer"):
        assert getattr(BaseProactorEventLoop, name) is getattr(WithoutSockets, name)


@without_sockets
async def test_psycopg_refuses_the_loop(store: Store) -> None:
    """Shows that the other tests can fail."""
    with pytest.raises(psycopg.InterfaceError, match="ProactorEventLoop"):
        await psycopg.AsyncConnection.connect(store.url)


@without_sockets
async def test_the_tables_are_created(empty_postgres_url: str) -> None:
    async with PostgresSaver(lambda: empty_postgres_url) as saver:
        await saver.asetup(searchable=["user"])
        await put(Client(saver, "async"), "1")


class State(TypedDict, total=False):
    answer: str


@without_sockets
async def test_a_graph_asks_and_continues(saver: CheckpointSaver) -> None:
    builder = StateGraph(State)
    builder.add_node("asks", lambda state: {"answer": interrupt("?")})
    builder.add_edge(START, "asks")
    graph = builder.compile(checkpointer=saver)
    where: Any = {"configurable": {"thread_id": "1"}}
    async with saver.claim("1") as lease:
        await graph.ainvoke({}, lease.config)
        await saver.acheck_interrupt(where, (await graph.aget_state(where)).interrupts[0].id)
        assert await graph.ainvoke(Command(resume="!"), lease.config) == {"answer": "!"}
    assert saver.stats()["loops"] == []


@without_sockets
async def test_the_workers_end_with_the_saver(store: Store) -> None:
    before = set(threading.enumerate())
    async with store.open() as saver:
        await put(Client(saver, "async"), "1")
        assert set(threading.enumerate()) > before
    assert {thread for thread in threading.enumerate() if thread.name.startswith("checkpoint")} <= before


@without_sockets
async def test_a_call_that_is_cancelled_before_a_worker_takes_it_does_nothing(store: Store, database: Database) -> None:
    async with store.open(max_size=40) as saver:
        client = Client(saver, "async")
        await put(client, "x")
        with database.locked() as unlock:
            calls = [asyncio.create_task(put(client, "1", thread_id=f"t {number}")) for number in range(200)]
            await asyncio.sleep(0)
            calls[-1].cancel()
            with pytest.raises(asyncio.CancelledError):
                await calls[-1]
            unlock()
            await asyncio.gather(*calls[:-1])
        assert len(await client.all(None)) == 200
        assert await client.get_tuple(config("t 199")) is None


@without_sockets
async def test_a_callers_pool_of_sync_connections_is_used(store: Store) -> None:
    with ConnectionPool(store.url, min_size=1, max_size=2, open=True) as pool:
        before = pool.get_stats().get("requests_num", 0)
        async with PostgresSaver(pool) as saver:
            where = await put(Client(saver, "async"), "1", {"a": [1]})
            assert (await get(Client(saver, "async"), where)).checkpoint["channel_values"] == {"a": [1]}
            assert saver.stats().keys() == {"given"}
        assert pool.get_stats()["requests_num"] > before


@without_sockets
async def test_an_async_function_for_the_address_is_refused(store: Store) -> None:
    async def address() -> str:
        return store.url

    async with PostgresSaver(address) as saver:
        with pytest.raises(ConfigError, match="not in an event loop that cannot wait for sockets"):
            await saver.aget_tuple(config())
