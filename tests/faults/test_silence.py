"""A server or network that is silent: what is bounded by the server and the kernel, and that the next call works."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from langgraph_checkpoint_custom import ConnectionLost, PostgresSaver, StorageError
from langgraph_checkpoint_custom.drivers.postgres_errors import RetryPolicy
from langgraph_checkpoint_custom.drivers.postgres_sessions import SILENCE
from tests.behaviour.helpers import Database, config
from tests.conftest import APIS
from tests.drivers.test_round_trips import settings_of
from tests.faults.bouncer import bounced
from tests.faults.faulty import faulty
from tests.faults.workload import WAITING, fill, put_one
from tests.proxy import proxied
from tests.stores import Client, Store


@pytest.mark.parametrize("api", APIS)
async def test_first_calls_on_a_network_that_drops_packets_fail_together(
    postgres_url: str, api: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not one after the other, each after its own connect_timeout."""
    with faulty(postgres_url) as proxy:
        proxy.connections_to_ignore = 1_000
        async with PostgresSaver(proxy.url, connect_timeout=2) as saver:
            monkeypatch.setattr(RetryPolicy, "pause", RetryPolicy(attempts=2).pause)
            client = Client(saver, api)
            calls = await asyncio.gather(*(client.get_tuple(config(f"t{i}")) for i in range(5)), return_exceptions=True)
            assert [type(call) for call in calls] == [ConnectionLost] * 5
            assert proxy.connections < 10  # 2, and more on a busy machine; one after the other, they would be 10.
            proxy.connections_to_ignore = 0
            monkeypatch.undo()
            await fill(client, "t")


@pytest.mark.parametrize("api", APIS)
async def test_a_connection_string_may_say_how_long_to_wait_for_a_connection(
    postgres_url: str, api: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(RetryPolicy, "pause", RetryPolicy(attempts=1).pause)
    with faulty(postgres_url) as proxy:
        proxy.connections_to_ignore = 1_000
        async with PostgresSaver(f"{proxy.url}&connect_timeout=2", connect_timeout=30) as saver:
            since = time.monotonic()
            with pytest.raises(ConnectionLost, match="timeout expired"):
                await Client(saver, api).get_tuple(config("t"))
            assert time.monotonic() - since < 20


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
                await asyncio.wait_for(client.get_tuple(config("t")), 300)
            proxy.cut()
            await asyncio.wait_for(waiting, 300)
            assert len(await client.all(config("t"))) == 4


def options_of(url: str) -> dict[str, int]:
    """What the kernel has been told about the socket of a saver's session: seconds, milliseconds and numbers."""
    peer = "127.0.0.1", int(str(conninfo_to_dict(url)["port"]))
    with PostgresSaver(url) as saver:
        saver.get_tuple(config("t"))
        for each in Path("/proc/self/fd").iterdir():
            with suppress(OSError):  # It is closed by now, or not connected.
                if os.readlink(each).startswith("socket:"):
                    with socket.socket(fileno=os.dup(int(each.name))) as copy:
                        if copy.family == socket.AF_INET and copy.getpeername() == peer:
                            return {name: copy.getsockopt(*option) for name, option in OPTIONS.items()}
    raise AssertionError("the session has no socket")


OPTIONS = {
    "keepalives": (socket.SOL_SOCKET, socket.SO_KEEPALIVE),
    "idle": (socket.IPPROTO_TCP, getattr(socket, "TCP_KEEPIDLE", 0)),
    "interval": (socket.IPPROTO_TCP, getattr(socket, "TCP_KEEPINTVL", 0)),
    "count": (socket.IPPROTO_TCP, getattr(socket, "TCP_KEEPCNT", 0)),
    "unacknowledged": (socket.IPPROTO_TCP, getattr(socket, "TCP_USER_TIMEOUT", 0)),
}


@pytest.mark.skipif(sys.platform != "linux", reason="the options of a socket have other names elsewhere")
def test_the_kernel_ends_a_connection_whose_peer_is_silent(postgres_url: str) -> None:
    """A connection string may say something else."""
    with proxied(postgres_url) as proxy:
        found = options_of(proxy.url)
        assert found["keepalives"] == 1
        assert found["idle"] + found["interval"] * found["count"] == SILENCE
        assert found["unacknowledged"] == SILENCE * 1000
        theirs = make_conninfo(proxy.url, keepalives_idle=7, tcp_user_timeout=8_000)
        found = options_of(theirs)
        assert (found["idle"], found["unacknowledged"]) == (7, 8_000)


SERVERS_LIMITS = {
    "tcp_keepalives_idle": SILENCE // 2,
    "tcp_keepalives_interval": SILENCE // 6,
    "tcp_keepalives_count": 3,
    "tcp_user_timeout": SILENCE * 1000,
    "idle_in_transaction_session_timeout": SILENCE * 1000,
    "client_connection_check_interval": SILENCE // 6 * 1000,
}


@pytest.mark.parametrize("api", APIS)
async def test_the_server_ends_a_session_whose_client_is_silent(postgres_url: str, api: str) -> None:
    with proxied(postgres_url) as proxy:
        async with PostgresSaver(proxy.url) as saver:
            settings = await settings_of(Client(saver, api))
    over_tcp = {name: int(settings[name]) for name in SERVERS_LIMITS}
    if not any(over_tcp[name] for name in SERVERS_LIMITS if name.startswith("tcp_")):
        # The proxy connects to the server's socket in a folder, which needs no such limits.
        assert over_tcp == {name: 0 if name.startswith("tcp_") else value for name, value in SERVERS_LIMITS.items()}
    else:
        assert over_tcp == SERVERS_LIMITS


@pytest.mark.parametrize("api", APIS)
async def test_a_shared_session_has_the_limit_during_our_transactions_only(postgres_url: str, api: str) -> None:
    with bounced(postgres_url, servers=1) as url:
        async with PostgresSaver(url) as saver:
            settings = await settings_of(Client(saver, api))
        with psycopg.connect(url, autocommit=True) as other:
            after = other.execute("SHOW idle_in_transaction_session_timeout", prepare=False).fetchone()
    assert int(settings["idle_in_transaction_session_timeout"]) == SILENCE * 1000
    assert after == ("0",)


KILLED = """
import sys
from langgraph_checkpoint_custom import PostgresSaver
print("begun", flush=True)
PostgresSaver(sys.argv[1]).delete_thread("t")
"""


async def test_the_session_of_a_killed_client_ends_although_its_statement_waits(
    postgres_url: str, watcher: psycopg.Connection[Any]
) -> None:
    async with PostgresSaver(postgres_url) as saver:
        await fill(Client(saver, "async"), "t")
    with Database(Store("postgres", postgres_url)).locked():
        with subprocess.Popen([sys.executable, "-c", KILLED, postgres_url]) as client:
            while not watcher.execute(WAITING).fetchall():
                await asyncio.sleep(0.01)
            client.send_signal(signal.SIGKILL)
        while watcher.execute(WAITING).fetchall():  # For a sixth of `SILENCE` at most.
            await asyncio.sleep(0.05)


async def idle(client: Client, saver: PostgresSaver) -> None:
    """Wait until the pool has all of its connections back."""
    name = "workers" if client.api == "sync" else "loops"

    def stats() -> Any:
        found = saver.stats()[name]
        return found if name == "workers" else found[0]

    while stats()["pool_available"] < stats()["pool_size"]:
        await asyncio.sleep(0.01)


@pytest.mark.parametrize("api", APIS)
async def test_when_one_connection_breaks_the_silent_ones_are_not_used(postgres_url: str, api: str) -> None:
    with faulty(postgres_url) as proxy:
        async with PostgresSaver(proxy.url, max_size=5) as saver:
            client = Client(saver, api)
            await asyncio.gather(*(fill(client, f"t{i}") for i in range(10)))
            assert proxy.connections > 1
            await idle(client, saver)
            proxy.hush()
            proxy.cut_next("before the request")
            await asyncio.wait_for(put_one(client, "t1"), 300)
            assert not proxy.armed
            assert len(await client.all(config("t1"))) == 4


@pytest.mark.parametrize("call", ["put", "prune"])
async def test_a_cancelled_call_on_a_silent_network_ends_with_the_connection(postgres_url: str, call: str) -> None:
    """The server is asked to cancel; what it answers is lost. The next call works."""
    calls: dict[str, Callable[[Client], Any]] = {
        "put": lambda client: put_one(client, "t"),
        "prune": lambda client: client.prune(["t"]),
    }
    with faulty(postgres_url) as proxy:
        async with PostgresSaver(proxy.url, max_size=2) as saver:
            client = Client(saver, "async")
            await fill(client, "t")
            proxy.hush()
            round_trips = proxy.round_trips
            waiting = asyncio.ensure_future(calls[call](client))
            while proxy.round_trips == round_trips:
                await asyncio.sleep(0.01)
            waiting.cancel()
            await asyncio.sleep(0.1)
            proxy.cut()  # As the kernel does when the limit is over.
            await asyncio.wait([waiting], timeout=300)
            assert waiting.done()
            await asyncio.wait_for(client.get_tuple(config("t")), 300)
