"""A server that accepts a connection, or a request, and then does not reply."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from pathlib import Path
from typing import Any, cast

import psycopg
import pytest

from langgraph_checkpoint_custom import ConfigError, ConnectionLost, PostgresSaver, StorageError
from langgraph_checkpoint_custom.drivers.postgres_prepared import Process
from langgraph_checkpoint_custom.engine.retry import RetryPolicy
from tests.behaviour.helpers import Database, config
from tests.conftest import APIS
from tests.faults.faulty import FaultyProxy, faulty
from tests.faults.workload import OPERATIONS, SESSIONS, WAITING, fill, put_one, read, rows
from tests.needs import need
from tests.stores import Client, Store


@pytest.mark.parametrize("api", APIS)
async def test_a_call_to_a_server_that_accepts_but_does_not_reply_is_retried(postgres_url: str, api: str) -> None:
    with faulty(postgres_url) as proxy:
        proxy.connections_to_ignore = 1
        async with PostgresSaver(proxy.url, connect_timeout=2) as saver:
            await asyncio.wait_for(fill(Client(saver, api), "t"), 30)
        assert proxy.connections_to_ignore == 0
        assert proxy.connections > 1


@pytest.mark.parametrize("api", APIS)
async def test_first_calls_on_a_network_that_drops_packets_fail_together(
    postgres_url: str, api: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not one after the other, each after its own connect_timeout."""
    with faulty(postgres_url) as proxy:
        proxy.connections_to_ignore = 1_000
        async with PostgresSaver(proxy.url, connect_timeout=2) as saver:
            monkeypatch.setattr(saver._driver, "_retry", RetryPolicy(attempts=2))
            client = Client(saver, api)
            calls = await asyncio.gather(*(client.get_tuple(config(f"t{i}")) for i in range(5)), return_exceptions=True)
            assert [type(call) for call in calls] == [ConnectionLost] * 5
            assert proxy.connections == 2
            proxy.connections_to_ignore = 0
            await fill(client, "t")


@pytest.mark.parametrize("api", APIS)
async def test_a_silent_session_delays_other_calls_for_at_most_the_pool_timeout(postgres_url: str, api: str) -> None:
    """Its own operation waits as long as the network is silent, and then takes effect once."""
    with faulty(postgres_url) as proxy:
        async with PostgresSaver(proxy.url, max_size=1, pool_timeout=0.5) as saver:
            client = Client(saver, api)
            await fill(client, "t")
            proxy.hush()
            round_trips = proxy.round_trips
            waiting = asyncio.ensure_future(put_one(client, "t"))
            while proxy.round_trips == round_trips:
                await asyncio.sleep(0.01)
            with pytest.raises(StorageError, match="raise max_size or pool_timeout"):
                await asyncio.wait_for(client.get_tuple(config("t")), 30)
            proxy.cut()
            await asyncio.wait_for(waiting, 30)
            assert len(await client.all(config("t"))) == 4


@contextmanager
def all_hushed(proxy: FaultyProxy, watcher: psycopg.Connection[Any]) -> Iterator[None]:
    """The server receives everything, and its replies are held back."""
    proxy.hush()
    yield


@contextmanager
def all_stopped(proxy: FaultyProxy, watcher: psycopg.Connection[Any]) -> Iterator[None]:
    """The server's processes are stopped, and continued at the end of the block."""
    pids = [row[0] for row in watcher.execute(f"SELECT pid{SESSIONS}").fetchall()]
    assert pids
    try:
        assert all(b"postgres" in Path(f"/proc/{pid}/cmdline").read_bytes() for pid in pids)
        for pid in pids:
            os.kill(pid, signal.SIGSTOP)
    except (AssertionError, OSError):
        need(None, "the right to stop the server's processes, on this machine: their user and root have it")
    try:
        yield
    finally:
        for pid in pids:
            os.kill(pid, signal.SIGCONT)


Silence = Callable[[FaultyProxy, psycopg.Connection[Any]], AbstractContextManager[None]]
SILENCES: Sequence[Silence] = (all_hushed, all_stopped)


async def no_connection_is_missing(client: Client) -> None:
    """The pool has all of its connections, and can lend them all at the same time."""
    held = cast(Any, client.saver)._driver._connections._held
    pool = held.pool if client.api == "sync" else held.loops[asyncio.get_running_loop()].pool
    await asyncio.gather(*(client.all(config("t")) for _ in range(2 * pool.max_size)))
    while (stats := pool.get_stats())["pool_available"] < stats["pool_size"]:
        await asyncio.sleep(0.01)
    assert pool.min_size <= stats["pool_size"] <= pool.max_size
    assert stats.get("requests_waiting", 0) == 0


@pytest.mark.parametrize("api", APIS)
@pytest.mark.parametrize("silence", SILENCES)
async def test_an_operation_whose_session_falls_silent_takes_effect_once_on_another(
    postgres_url: str, watcher: psycopg.Connection[Any], silence: Silence, api: str
) -> None:
    with faulty(postgres_url) as proxy:
        async with PostgresSaver(proxy.url, max_size=3, answer_timeout=0.3) as saver:
            client = Client(saver, api)
            await asyncio.gather(*(fill(client, f"t{i}") for i in range(10)))
            for name, call in {**OPERATIONS, "read": read}.items():
                await fill(client, name)
                with silence(proxy, watcher):
                    await asyncio.wait_for(call(client, name), 30)
                    before = rows(watcher)
                # What a stopped process still does, it does before its session ends.
                while len(watcher.execute(f"SELECT 1{SESSIONS}").fetchall()) > 3:
                    await asyncio.sleep(0.01)
                assert rows(watcher) == before, name
            await no_connection_is_missing(client)


async def undo(client: Client, name: str) -> None:
    """Undo an operation, so that repeating it would be noticed."""
    await client.delete_thread(f"{name} copied" if name == "copy_thread" else name)
    if name in ("prune", "delete_for_runs", "delete_thread"):
        await fill(client, name)


def pids(watcher: psycopg.Connection[Any]) -> set[int]:
    return {row[0] for row in watcher.execute(f"SELECT pid{SESSIONS}").fetchall()}


@pytest.mark.parametrize(("how", "api"), [("made again", "sync"), ("made again", "async"), ("cancelled", "async")])
async def test_an_abandoned_session_does_nothing_when_it_continues(
    postgres_url: str, watcher: psycopg.Connection[Any], api: str, how: str
) -> None:
    """Its process still has to read a call that was retried or cancelled, and undone since."""
    with faulty(postgres_url) as proxy:
        async with PostgresSaver(proxy.url, max_size=3, answer_timeout=0.3 if how == "made again" else 60) as saver:
            client = Client(saver, api)
            await asyncio.gather(*(fill(client, f"t{i}") for i in range(10)))
            for name, call in OPERATIONS.items():
                await fill(client, name)
                stopped = pids(watcher)
                with all_stopped(proxy, watcher):
                    if how == "made again":
                        await call(client, name)
                    else:
                        with pytest.raises(asyncio.TimeoutError):
                            await asyncio.wait_for(call(client, name), 0.2)
                    await undo(client, name)
                    before = rows(watcher)
                while stopped & pids(watcher):
                    await asyncio.sleep(0.01)
                assert rows(watcher) == before, name


@pytest.mark.parametrize("api", APIS)
async def test_only_the_abandoned_session_is_ended(postgres_url: str, api: str) -> None:
    """Its process id belongs to another session by now, or belonged to one on another server."""
    async with PostgresSaver(postgres_url) as saver:
        await fill(Client(saver, api), "t")
        with psycopg.connect(postgres_url) as other:
            driver = cast(Any, saver)._driver
            driver._sessions.given_up.add(Process(other.info.backend_pid, 1))
            await read(Client(saver, api), "t")
            assert not driver._sessions.given_up
            assert other.execute("SELECT 1").fetchone() == (1,)


@pytest.mark.parametrize("api", APIS)
async def test_a_second_attempt_follows_however_long_the_silence_was(
    postgres_url: str, api: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As with the default answer_timeout, which is longer than operations are retried."""
    monkeypatch.setattr("langgraph_checkpoint_custom.drivers.postgres.RetryPolicy", partial(RetryPolicy, seconds=0.1))
    with faulty(postgres_url) as proxy:
        async with PostgresSaver(proxy.url, answer_timeout=0.3) as saver:
            client = Client(saver, api)
            await fill(client, "t")
            proxy.hush()
            await asyncio.wait_for(put_one(client, "t"), 30)
            assert len(await client.all(config("t"))) == 4


async def test_a_server_that_stays_silent_is_one_clear_error(postgres_url: str) -> None:
    """A lock makes each attempt wait; both APIs at the same time, since that takes seconds."""

    async def refused(client: Client) -> None:
        with pytest.raises(ConnectionLost, match=r"no answer for 0\.3 s \(answer_timeout\)") as caught:
            await put_one(client, client.api)
        assert caught.value.operation == "put"

    async with PostgresSaver(postgres_url, max_size=4, answer_timeout=0.3) as saver:
        clients = [Client(saver, api) for api in APIS]
        for client in clients:
            await fill(client, client.api)
        with Database(Store("postgres", postgres_url)).locked():
            await asyncio.wait_for(asyncio.gather(*map(refused, clients)), 60)
        for client in clients:
            await put_one(client, client.api)
            assert len(await client.all(config(client.api))) == 4
            await no_connection_is_missing(client)


@pytest.mark.parametrize("api", APIS)
async def test_a_reply_that_arrives_in_pieces_does_not_time_out(postgres_url: str, api: str) -> None:
    """The complete reply takes longer than the server may be silent."""
    with faulty(postgres_url) as proxy:
        async with PostgresSaver(proxy.url, max_size=1, answer_timeout=0.5) as saver:
            client = Client(saver, api)
            await fill(client, "t")
            connections = proxy.connections
            proxy.trickle(0.1)
            assert len(await client.all(config("t"))) == 3
            assert proxy.connections == connections


@pytest.mark.parametrize("api", APIS)
async def test_when_one_connection_breaks_the_silent_ones_are_not_checked(postgres_url: str, api: str) -> None:
    """Checking them would take twenty seconds each."""
    with faulty(postgres_url) as proxy:
        async with PostgresSaver(proxy.url, max_size=5, answer_timeout=20) as saver:
            client = Client(saver, api)
            await asyncio.gather(*(fill(client, f"t{i}") for i in range(10)))
            assert proxy.connections > 1
            proxy.hush()
            proxy.cut_next("before the request")
            await asyncio.wait_for(put_one(client, "t1"), 15)
            assert not proxy.armed
            assert len(await client.all(config("t1"))) == 4
            await no_connection_is_missing(client)


@pytest.mark.parametrize("silence", SILENCES)
async def test_a_cancelled_call_on_a_silent_session_ends_soon(
    postgres_url: str, watcher: psycopg.Connection[Any], silence: Silence
) -> None:
    """The server is asked to cancel the statement, which takes a long time, or forever."""
    with faulty(postgres_url) as proxy:
        async with PostgresSaver(proxy.url, max_size=3) as saver:
            client = Client(saver, "async")
            await fill(client, "t")
            for name, call in {**OPERATIONS, "read": read}.items():
                await fill(client, name)
                with silence(proxy, watcher):
                    waiting = asyncio.ensure_future(asyncio.wait_for(call(client, name), 0.2))
                    # psycopg alone would wait for five seconds more.
                    await asyncio.wait([waiting], timeout=4)
                    assert waiting.done(), name
                    assert isinstance(waiting.exception(), asyncio.TimeoutError)
                    await asyncio.wait_for(client.get_tuple(config("t")), 30)
            await no_connection_is_missing(client)


@pytest.mark.parametrize("api", APIS)
async def test_setup_waits_for_another_setup_without_a_timeout(empty_postgres_url: str, api: str) -> None:
    with (
        faulty(empty_postgres_url) as proxy,
        psycopg.connect(empty_postgres_url) as other,
        psycopg.connect(empty_postgres_url, autocommit=True) as watcher,
    ):
        other.execute("SELECT 1")
        PostgresSaver(other).setup()
        async with PostgresSaver(proxy.url, max_size=1, answer_timeout=0.1) as saver:
            waiting = asyncio.ensure_future(saver.asetup() if api == "async" else asyncio.to_thread(saver.setup))
            while not (session := watcher.execute(WAITING).fetchall()):
                await asyncio.sleep(0.01)
            await asyncio.sleep(1)  # Ten times as long as a read or write would wait.
            assert watcher.execute(WAITING).fetchall() == session
            other.commit()
            await asyncio.wait_for(waiting, 30)
            # After that, the same connection has its timeout again.
            await fill(Client(saver, api), "t")
            proxy.hush()
            await asyncio.wait_for(put_one(Client(saver, api), "t"), 30)


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (0, "must be more than 0 seconds, not 0"),
        (-1, "must be more than 0 seconds, not -1"),
        (float("nan"), "must be a number of seconds, not nan"),
    ],
)
def test_an_impossible_answer_timeout_is_refused(seconds: float, words: str) -> None:
    with pytest.raises(ConfigError, match=f"answer_timeout {words}"):
        PostgresSaver("postgresql://nowhere", answer_timeout=seconds)
