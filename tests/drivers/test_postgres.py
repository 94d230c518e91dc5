"""The Postgres driver: pools, event loops, connections of the caller, and broken connections."""

from __future__ import annotations

import asyncio
import gc
import time
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from operator import itemgetter
from typing import Any

import psycopg
import pytest
from langgraph.checkpoint.base import Checkpoint
from langgraph.checkpoint.conformance.test_utils import generate_checkpoint, generate_config, generate_metadata
from psycopg_pool import AsyncConnectionPool, ConnectionPool

from langgraph_checkpoint_custom import (
    ClosedError,
    ConnectionLost,
    PostgresSaver,
    StorageError,
)
from langgraph_checkpoint_custom.drivers.postgres_errors import RetryPolicy
from tests.conftest import APIS
from tests.drivers.batches import jammed
from tests.faults.faulty import faulty
from tests.faults.workload import WAITING
from tests.proxy import proxied
from tests.stores import Client


def a_checkpoint() -> Checkpoint:
    return generate_checkpoint(channel_values={"a": [1]}, channel_versions={"a": "1"})


async def store_and_read(client: Client, thread_id: str) -> None:
    checkpoint = a_checkpoint()
    config = await client.put(generate_config(thread_id), checkpoint, generate_metadata(), {"a": "1"})
    await client.put_writes(config, [("a", 1)], "task")
    found = await client.get_tuple(generate_config(thread_id))
    assert found is not None
    assert (found.checkpoint, found.pending_writes) == (checkpoint, [("task", "a", 1)])
    await client.prune([thread_id])
    assert len(await client.all(generate_config(thread_id))) == 1


def sessions(watcher: psycopg.Connection[Any], *, state: str = "%") -> int:
    row = watcher.execute(
        "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
        " AND state LIKE %s AND application_name NOT LIKE 'citus_%%'",
        [state],
    ).fetchone()
    assert row is not None
    return int(row[0])


@pytest.mark.parametrize("api", APIS)
async def test_a_pool_that_keeps_no_connection_makes_one_without_a_warning(
    postgres_url: str, api: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with PostgresSaver(postgres_url, min_size=0, max_size=1) as saver:
        await store_and_read(Client(saver, api), "t")
    assert caplog.text == ""


@pytest.mark.parametrize("api", APIS)
async def test_closing_while_the_first_call_connects_leaves_no_session(
    postgres_url: str, watcher: psycopg.Connection[Any], api: str
) -> None:
    with faulty(postgres_url) as proxy:
        proxy.trickle(2)
        saver = PostgresSaver(proxy.url)
        call = asyncio.ensure_future(Client(saver, api).get_tuple(generate_config("t")))
        while not proxy.connections:
            await asyncio.sleep(0.002)
        closing = asyncio.ensure_future(saver.aclose())
        await asyncio.sleep(0)  # It begins to close.
        proxy.trickle(0)
        with pytest.raises(ClosedError):
            await call
        await closing
        while sessions(watcher):
            await asyncio.sleep(0.01)  # The server ends a session after its connection.


@pytest.mark.parametrize("api", APIS)
async def test_a_database_that_does_not_exist_raises_at_once(postgres_url: str, api: str) -> None:
    async with PostgresSaver(postgres_url.replace("/test_", "/no_such_")) as saver:
        with pytest.raises(StorageError, match="does not exist"):
            await Client(saver, api).get_tuple(generate_config("t"))


@pytest.mark.parametrize("api", APIS)
async def test_the_error_about_a_callers_pool_that_cannot_connect_does_not_say_busy(
    postgres_url: str, api: str
) -> None:
    options: dict[str, Any] = {"min_size": 1, "max_size": 1, "timeout": 0.2, "reconnect_timeout": 0.1}
    kind: Any = ConnectionPool if api == "sync" else AsyncConnectionPool
    pool = kind(postgres_url.replace("/test_", "/no_such_"), open=False, **options)
    try:
        opening = pool.open()
        if api == "async":
            await opening
        with pytest.raises(StorageError, match="or it cannot connect"):
            await Client(PostgresSaver(pool), api).get_tuple(generate_config("t"))
    finally:
        closing = pool.close()
        if api == "async":
            await closing


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # psycopg_pool's tasks end with a loop.
@pytest.mark.parametrize("way", ["asyncio.run", "closed with its tasks"])
def test_several_loops_in_a_row_leave_the_connections_of_one(
    postgres_url: str, watcher: psycopg.Connection[Any], way: str
) -> None:
    """Counted at the server. `asyncio.run` cancels the tasks of a loop; without that, the next loop finds out."""
    with PostgresSaver(postgres_url, min_size=2, max_size=2) as saver:
        for number in range(5):
            calls = store_and_read(Client(saver, "async"), f"t{number}")
            if way == "asyncio.run":
                asyncio.run(calls)
            else:
                loop = asyncio.new_event_loop()
                loop.run_until_complete(calls)
                for task in asyncio.all_tasks(loop):
                    task._log_destroy_pending = False  # type: ignore[attr-defined]  # Silences asyncio's own log.
                loop.close()
            while sessions(watcher) > 4:
                time.sleep(0.01)  # The server does not announce the end of a session.
        while sessions(watcher) > (0 if way == "asyncio.run" else 2):
            time.sleep(0.01)  # The server does not announce the end of a session.
        saver.get_tuple(generate_config("t0"))
    while sessions(watcher):
        time.sleep(0.01)  # The server does not announce the end of a session.
    gc.collect()


@pytest.mark.parametrize("steps", range(3))
async def test_a_pool_that_is_cancelled_in_the_moment_in_which_it_opens_is_closed(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch, steps: int
) -> None:
    """As by `asyncio.run`, which cancels all tasks once and then waits for them: before Python 3.12, for ever."""
    add = AsyncConnectionPool._add_to_pool

    async def add_and_cancel(pool: Any, connection: Any) -> None:
        monkeypatch.undo()
        await add(pool, connection)
        for _ in range(steps):
            await asyncio.sleep(0)
        life.cancel()

    async with PostgresSaver(postgres_url) as saver:
        monkeypatch.setattr(AsyncConnectionPool, "_add_to_pool", add_and_cancel)
        call = asyncio.ensure_future(saver.aget_tuple(generate_config("t")))
        while not (lives := [each for each in asyncio.all_tasks() if each.get_name().endswith("-life")]):
            await asyncio.sleep(0)
        (life,) = lives
        await asyncio.wait([life], timeout=30)
        assert life.done()
        await asyncio.wait([call])
        call.exception()
        assert await saver.aget_tuple(generate_config("t")) is None


async def test_a_broken_connection_of_the_caller_raises_and_is_not_retried(postgres_url: str) -> None:
    with proxied(postgres_url) as proxy, psycopg.connect(proxy.url, autocommit=True) as connection:
        saver = PostgresSaver(connection)
        await store_and_read(Client(saver, "sync"), "t")
        proxy.cut()
        with pytest.raises(ConnectionLost, match="connection to PostgreSQL was lost"):
            saver.get_tuple(generate_config("t"))


@pytest.mark.parametrize("kind", ["own", "a caller's"])
async def test_a_call_cancelled_while_it_returns_its_connection_does_not_lose_it(
    postgres_url: str, watcher: psycopg.Connection[Any], kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    begins, goes_on = asyncio.Event(), asyncio.Event()
    give_back = AsyncConnectionPool.putconn

    async def slowly(pool: Any, connection: Any) -> None:
        begins.set()
        await goes_on.wait()  # As for the pool's lock, which the waiting call has while it takes or gives up its place.
        await give_back(pool, connection)

    async with AsyncExitStack() as stack:
        source: Any = postgres_url
        if kind != "own":
            source = await stack.enter_async_context(AsyncConnectionPool(postgres_url, min_size=1, open=False))
        options: Any = {"min_size": 1, "max_size": 1} if kind == "own" else {}
        saver = await stack.enter_async_context(PostgresSaver(source, **options))
        await store_and_read(Client(saver, "async"), "before")
        with jammed(postgres_url) as blocker:
            call = asyncio.ensure_future(saver.aget_tuple(generate_config("before")))
            while not watcher.execute(WAITING).fetchall():
                await asyncio.sleep(0.002)  # No event is raised when a session begins to wait.
            waiting = asyncio.ensure_future(saver.aget_tuple(generate_config("another")))
            await asyncio.sleep(0.01)  # Until it waits for the only connection.
            monkeypatch.setattr(AsyncConnectionPool, "putconn", slowly)
            blocker.rollback()
            await begins.wait()
            call.cancel()
            await asyncio.sleep(0.002)
            goes_on.set()
        assert await waiting is None
        assert (await asyncio.gather(call, return_exceptions=True))[0].__class__ is asyncio.CancelledError
        await asyncio.wait_for(store_and_read(Client(saver, "async"), "after"), 150)


@pytest.mark.parametrize("where", [(ConnectionPool, "putconn"), (psycopg.connection, "Pipeline")], ids=itemgetter(1))
async def test_ctrl_c_inside_psycopg_costs_no_connection(
    postgres_url: str, where: tuple[Any, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where a pool has not taken the connection back, and where psycopg takes it for one in a pipeline."""

    def interrupted(first: Any, *_: Any) -> None:
        monkeypatch.undo()
        if isinstance(first, psycopg.Connection):  # Its method `pipeline` has made one, and has not begun it.
            first._pipeline = psycopg.Pipeline(first)
        raise KeyboardInterrupt

    with PostgresSaver(postgres_url, min_size=1, max_size=1, pool_timeout=150) as saver:
        client = Client(saver, "sync")
        await store_and_read(client, "before")
        monkeypatch.setattr(*where, interrupted)
        with pytest.raises(KeyboardInterrupt):
            await store_and_read(client, "meanwhile")
        await client.prune(["before"])
        await store_and_read(client, "after")


@dataclass(frozen=True)
class NotedPolicy(RetryPolicy):
    """Notes after which attempts it was asked."""

    asked: list[int] = field(default_factory=list)

    def pause(self, failed: int, elapsed: float) -> float | None:
        self.asked.append(failed)
        return super().pause(failed, elapsed)


@pytest.mark.parametrize("api", APIS)
async def test_the_time_of_the_first_attempt_counts(
    postgres_url: str, api: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two attempts wait a second each for a connection, and after a second and a half there is no third one."""
    with proxied(postgres_url) as proxy:
        saver = PostgresSaver(proxy.url, min_size=1, max_size=1, pool_timeout=1)
        client, driver = Client(saver, api), saver.backend.driver
        await store_and_read(client, "before")
        proxy.close()
        for policy, asked in ((NotedPolicy(attempts=1), [1]), (NotedPolicy(seconds=1.5), [1, 2])):
            monkeypatch.setattr(driver, "_retry", policy)
            with pytest.raises(ConnectionLost):
                await client.get_tuple(generate_config("before"))
            assert policy.asked == asked
        await saver.aclose()
