"""Round trips on PostgreSQL, counted on the wire, are those of the design; borrowing a connection adds none."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any, cast

import psycopg
import pytest
from langgraph.checkpoint.conformance.test_utils import generate_checkpoint, generate_config, generate_metadata

from langgraph_checkpoint_custom import PostgresSaver
from langgraph_checkpoint_custom.engine.operation import RoundTrip, Statement, Steps, operation
from langgraph_checkpoint_custom.sql.dialect import SqlDialect
from tests.conftest import APIS
from tests.proxy import Proxy, proxied
from tests.stores import Client


async def fill(client: Client, thread_id: str, steps: int) -> Any:
    """A thread of some steps, with a blob, a delta channel and a write each; returns the last config."""
    config = generate_config(thread_id)
    seen: dict[str, Any] = {}
    for step in range(steps):
        versions: dict[str, Any] = {
            channel: client.saver.get_next_version(seen.get(channel), None) for channel in ("list", "log")
        }
        seen |= versions
        checkpoint = generate_checkpoint(channel_values={"list": [step]}, channel_versions=dict(seen))
        metadata = generate_metadata(
            step=step, run_id=f"run-{thread_id}", counters_since_delta_snapshot={"log": (1, 1)}
        )
        config = await client.put(config, checkpoint, metadata, versions)
        await client.put_writes(config, [("log", step), ("list", [step])], "task")
    return config


@asynccontextmanager
async def watched(url: str, api: str, *, other_pid: bool = False) -> AsyncIterator[tuple[Proxy, Client]]:
    """A saver with one connection, and the proxy that it connects through."""
    with proxied(url, other_pid=other_pid) as proxy:
        saver = PostgresSaver(proxy.url, min_size=1, max_size=1)
        yield proxy, Client(saver, api)
        await saver.aclose()


@pytest.mark.parametrize("api", APIS)
async def test_each_operation_takes_as_many_round_trips_as_designed(postgres_url: str, api: str) -> None:
    async with watched(postgres_url, api) as (proxy, client):
        last = await fill(client, "t", 60)
        await fill(client, "other", 2)
        for _ in range(6):  # psycopg prepares a statement that it has sent five times, such as COMMIT, in a round trip.
            await client.prune(["unknown"])

        async def round_trips(call: Callable[[], Awaitable[Any]]) -> int:
            before = proxy.round_trips
            await call()
            return proxy.round_trips - before

        small = generate_checkpoint(channel_values={"a": [1], "b": 2}, channel_versions={"a": "1", "b": "1"})
        small["v"] = 4  # A format in which no checkpoint needs its parent's sends.
        thread = generate_config("t")
        thread["configurable"].pop("checkpoint_ns")
        calls: dict[str, tuple[int, Callable[[], Awaitable[Any]]]] = {
            "put": (1, lambda: client.put(generate_config("t2"), small, generate_metadata(), {"a": "1", "b": "1"})),
            "put_writes, 1": (1, lambda: client.put_writes(last, [("a", 1)], "task 1")),
            "put_writes, 50": (1, lambda: client.put_writes(last, [("a", i) for i in range(50)], "task 2")),
            "put_writes, none": (0, lambda: client.put_writes(last, [], "task 3")),
            "get_tuple, latest": (1, lambda: client.get_tuple(generate_config("t"))),
            "get_tuple, by id": (1, lambda: client.get_tuple(last)),
            "get_tuple, unknown": (1, lambda: client.get_tuple(generate_config("unknown"))),
            "list, one page": (1, lambda: client.all(generate_config("t"), limit=10)),
            "list, two pages": (2, lambda: client.all(generate_config("t"))),
            # The keys; where a search ends.
            "list, a thread": (4, lambda: client.all(thread)),
            "list, everything, filtered": (2, lambda: client.all(None, filter={"step": 1})),
            "list, limit 0": (0, lambda: client.all(None, limit=0)),
            "history": (1, lambda: client.history(last, ["log", "list"])),
            "history, no channels": (0, lambda: client.history(last, [])),
            # The outline, the copies, and the end.
            "copy_thread": (3, lambda: client.copy_thread("t", "copy")),
            # The outline, sends of an old format, the change, and the end.
            "prune": (2, lambda: client.prune(["t2"])),
            "prune, two threads": (4, lambda: client.prune(["t2", "unknown"])),
            "prune, with a delta channel": (4, lambda: client.prune(["t"])),
            "delete_for_runs": (5, lambda: client.delete_for_runs(["run-other", "unknown"])),
            "delete_for_runs, none": (0, lambda: client.delete_for_runs([])),
            "set_ttl": (1, lambda: client.do("set_ttl", "t", timedelta(days=1))),
            "sweep_status": (2, lambda: client.do("sweep_status")),
            "delete_thread": (1, lambda: client.delete_thread("copy")),
        }
        counted = {name: await round_trips(call) for name, (_, call) in calls.items()}
        assert counted == {name: expected for name, (expected, _) in calls.items()}
        assert proxy.connections == 2  # The first one tries the address.


@pytest.mark.parametrize("api", APIS)
async def test_statements_are_prepared_on_direct_connections_only(postgres_url: str, api: str) -> None:
    for other_pid, prepare, expected in (
        (False, None, True),
        (True, None, False),
        (True, True, True),
        (False, False, False),
    ):
        with proxied(postgres_url, other_pid=other_pid) as proxy:
            saver = PostgresSaver(proxy.url, min_size=1, max_size=1, prepare=prepare)
            client = Client(saver, api)
            await fill(client, f"t {other_pid} {prepare}", 10)
            assert (proxy.prepares > 0) is expected, (other_pid, prepare)
            await saver.aclose()


async def test_each_connection_is_checked_once_for_a_pooler(postgres_url: str) -> None:
    with proxied(postgres_url) as proxy, PostgresSaver(proxy.url, min_size=1, max_size=1) as saver:
        saver.get_tuple(generate_config("t"))
        first = proxy.round_trips
        for _ in range(3):
            saver.get_tuple(generate_config("t"))
        # One on a connection that tries the address, and one on that of the pool; two for the tables, one for the read
        # itself; then one each.
        assert (first, proxy.round_trips - first) == (5, 3)


async def settings_of(client: Client) -> dict[str, str]:
    """The settings of a session of a saver's own."""

    @operation("read")
    def show(d: SqlDialect) -> Steps[dict[str, str]]:
        (rows,) = yield RoundTrip([Statement("show", "SELECT name, setting FROM pg_settings", ())])
        return dict(rows)

    saver = cast(Any, client.saver)
    op = show(saver.backend.dialect)
    return await saver.backend.driver.arun(op) if client.api == "async" else saver.backend.driver.run(op)  # type: ignore[no-any-return]


BEGUN = ["BEGIN ISOLATION LEVEL READ COMMITTED", "SET LOCAL jit = off"]


@pytest.mark.parametrize("api", APIS)
async def test_through_a_pooler_no_large_statement_is_jit_compiled(postgres_url: str, api: str) -> None:
    async with watched(postgres_url, api, other_pid=True) as (proxy, client):
        last = await fill(client, "t", 5)
        calls: dict[str, Callable[[], Awaitable[Any]]] = {
            "history": lambda: client.history(last, ["log"]),
            "threads": lambda: client.do("count_threads", filter={"step": 1}),
            "copy_thread": lambda: client.copy_thread("t", "copy"),
            "rollback": lambda: client.do("rollback", "copy", last["configurable"]["checkpoint_id"]),
            "prune": lambda: client.prune(["t"]),
            "delete_for_runs": lambda: client.delete_for_runs(["run-t"]),
        }
        for name, call in calls.items():
            proxy.statements.clear()
            await call()
            assert proxy.statements[:2] == BEGUN, name
        proxy.statements.clear()
        await client.get_tuple(last)
        assert len(proxy.statements) == 1, "a small read became a transaction"


@pytest.mark.parametrize("api", APIS)
async def test_one_statement_stores_blobs_on_a_parent(postgres_url: str, api: str) -> None:
    async with watched(postgres_url, api, other_pid=True) as (proxy, client):
        values: dict[str, Any] = {"stays": ["large"] * 2_000, "log": ["large"] * 5_000}
        parent = await client.put(
            generate_config("t"),
            generate_checkpoint(channel_values=values, channel_versions={"stays": "1", "log": "1"}),
            generate_metadata(),
            {"stays": "1", "log": "1"},
        )
        for version in "234":  # The last one shares chunks with its parent.
            values = {**values, "log": [*values["log"], version]}
            document = generate_checkpoint(channel_values=values, channel_versions={"stays": "1", "log": version})
            proxy.statements.clear()
            parent = await client.put(parent, document, generate_metadata(), {"log": version})
            assert len(proxy.statements) == 1
        found = await client.get_tuple(parent)
        assert found
        assert found.checkpoint["channel_values"] == values


@pytest.mark.parametrize("api", APIS)
async def test_the_savers_own_sessions_do_not_jit_compile(postgres_url: str, api: str) -> None:
    async with watched(postgres_url, api) as (proxy, client):
        last = await fill(client, "t", 5)
        proxy.statements.clear()
        await client.history(last, ["log"])
        await client.prune(["t"])
        assert not [sql for sql in proxy.statements if "jit" in sql]
        settings = await settings_of(client)
        assert settings["jit"] == "off"


async def test_a_callers_session_is_not_changed(postgres_url: str) -> None:
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        before = connection.execute("SHOW jit").fetchone()
        saver = PostgresSaver(connection)
        last = await fill(Client(saver, "sync"), "t", 5)
        saver.get_delta_channel_history(config=last, channels=["log"])
        saver.prune(["t"])
        assert connection.execute("SHOW jit").fetchone() == before == ("on",)
