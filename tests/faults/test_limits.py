"""Refusals by a server or pool: one error that says why, and what is still possible works."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any
from urllib.parse import urlsplit

import psycopg
import pytest
from psycopg import sql

from langgraph_checkpoint_custom import ConnectionLost, PostgresSaver, StorageError
from langgraph_checkpoint_custom.drivers.postgres_errors import RetryPolicy
from tests.behaviour.helpers import Database, config
from tests.conftest import APIS
from tests.faults.workload import OPERATIONS, SESSIONS, WAITING, fill, put_one, rows, set_for_database, within_limit
from tests.needs import need
from tests.proxy import proxied
from tests.stores import Client, Store

# Too many connections


@contextmanager
def limited_role(url: str, watcher: psycopg.Connection[Any], limit: int) -> Iterator[tuple[str, Callable[[int], None]]]:
    """A URL with a role that may have `limit` connections, and a function that changes that."""
    name, password = f"test_{uuid.uuid4().hex[:12]}", uuid.uuid4().hex
    role = sql.Identifier(name)

    def set_limit(limit: int) -> None:
        watcher.execute(sql.SQL("ALTER ROLE {} CONNECTION LIMIT {}").format(role, sql.Literal(limit)))

    try:
        watcher.execute(sql.SQL("CREATE ROLE {} LOGIN PASSWORD {}").format(role, sql.Literal(password)))
    except psycopg.errors.InsufficientPrivilege:
        need(
            None,
            "the right to create roles, since superusers have no limit: give it to the role in CHECKPOINT_TEST_DSN",
        )
    try:
        set_limit(limit)
        watcher.execute(sql.SQL("GRANT USAGE ON SCHEMA langgraph_checkpoint TO {}").format(role))
        watcher.execute(sql.SQL("GRANT ALL ON ALL TABLES IN SCHEMA langgraph_checkpoint TO {}").format(role))
        parts = urlsplit(url)
        address = parts.netloc.rpartition("@")[2]
        yield parts._replace(netloc=f"{name}:{password}@{address}").geturl(), set_limit
    finally:
        watcher.execute("SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE usename = %s", [name])
        watcher.execute(sql.SQL("DROP OWNED BY {}").format(role))
        watcher.execute(sql.SQL("DROP ROLE {}").format(role))


@pytest.mark.parametrize("api", APIS)
@pytest.mark.parametrize("limit", [1, 2])
async def test_a_pool_works_with_fewer_connections_than_it_may_have(
    postgres_url: str, watcher: psycopg.Connection[Any], limit: int, api: str
) -> None:
    with limited_role(postgres_url, watcher, limit) as (url, _):
        async with PostgresSaver(url, max_size=10) as saver:
            client = Client(saver, api)
            await asyncio.gather(*(fill(client, f"t{i}") for i in range(20)))
            assert len(await client.all(None)) == 60


async def test_too_many_connections_are_one_clear_error(postgres_url: str, watcher: psycopg.Connection[Any]) -> None:
    """Both APIs at the same time, since they wait for seconds."""

    async def refused(url: str, api: str) -> None:
        async with PostgresSaver(url) as saver:
            with pytest.raises(ConnectionLost, match="too many connections"):
                await Client(saver, api).get_tuple(config("t"))

    with limited_role(postgres_url, watcher, limit=0) as (url, _):
        await asyncio.wait_for(asyncio.gather(*(refused(url, api) for api in APIS)), 150)


async def test_the_error_about_a_min_size_above_the_servers_limit_says_so(
    postgres_url: str, watcher: psycopg.Connection[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def refused(url: str, api: str) -> None:
        async with PostgresSaver(url, min_size=4, pool_timeout=0.5, connect_timeout=1) as saver:
            monkeypatch.setattr(RetryPolicy, "pause", RetryPolicy(attempts=1).pause)
            client = Client(saver, api)
            wanted = "the pool could not open its first 4 connections within 1 s; lower min_size"
            errors: list[str] = []
            while not any(wanted in error for error in errors):  # On a busy machine, one may take longer than that.
                reads = [client.get_tuple(config(f"t{i}")) for i in range(8)]
                calls = await asyncio.gather(*reads, return_exceptions=True)
                errors = [str(call) for call in calls if isinstance(call, ConnectionLost)]
                assert len(errors) == len(calls)
            # A call that begins after that finds the sessions of the pool still open.
            assert all(wanted in error or "too many connections" in error for error in errors)

    for api in APIS:
        with limited_role(postgres_url, watcher, limit=3) as (url, _):
            await asyncio.wait_for(refused(url, api), 300)


# A server that refuses


@pytest.mark.parametrize("api", APIS)
async def test_a_statement_timeout_is_one_clear_error_and_the_call_can_be_repeated(
    postgres_url: str, watcher: psycopg.Connection[Any], api: str
) -> None:
    async with PostgresSaver(postgres_url) as other:
        await fill(Client(other, api), "t")
    set_for_database(watcher, statement_timeout="200ms")
    async with PostgresSaver(postgres_url, max_size=1) as saver:
        client = Client(saver, api)
        before = rows(watcher)
        for name, call in OPERATIONS.items():
            with Database(Store("postgres", postgres_url)).locked():
                with pytest.raises(StorageError, match="statement_timeout") as caught:
                    await call(client, "t")
                assert caught.value.sqlstate == "57014"
                assert caught.value.operation.startswith(name)
                assert rows(watcher) == before
        for call in OPERATIONS.values():
            await within_limit(partial(call, client, "t"))


async def test_a_callers_connection_is_usable_after_a_cancelled_operation(
    postgres_url: str, watcher: psycopg.Connection[Any]
) -> None:
    async with await psycopg.AsyncConnection.connect(postgres_url, autocommit=True) as connection:
        client = Client(PostgresSaver(connection), "async")
        await fill(client, "t")
        with Database(Store("postgres", postgres_url)).locked():
            waiting = asyncio.ensure_future(client.delete_thread("t"))
            while not watcher.execute(WAITING).fetchall():
                await asyncio.sleep(0.01)
            waiting.cancel()
            await asyncio.wait([waiting])
        assert len(await client.all(config("t"))) == 3


# Connections


@pytest.mark.parametrize("api", APIS)
async def test_the_pool_never_has_too_many_sessions_and_leaves_none_busy(
    postgres_url: str, watcher: psycopg.Connection[Any], api: str
) -> None:
    url = f"{postgres_url}&application_name=the-application"
    seen: list[list[str]] = []

    def look() -> list[str]:
        seen.append(
            [str(row[0]) for row in watcher.execute(f"SELECT state{SESSIONS} AND application_name = 'the-application'")]
        )
        return seen[-1]

    saver = PostgresSaver(url, max_size=3)
    client = Client(saver, api)
    await fill(client, "t")
    work = [asyncio.ensure_future(fill(client, f"t{i}")) for i in range(30)]
    while len(look()) < 3:
        await asyncio.sleep(0.005)
    # Sessions that end and, where possible, calls that are cancelled.
    watcher.execute(f"SELECT pg_terminate_backend(pid, 5000) FROM (SELECT pid{SESSIONS} LIMIT 1) AS one")
    if api == "async":
        for task in work[::5]:
            task.cancel()
    while not all(task.done() for task in work):
        look()
        await asyncio.sleep(0.005)
    results = await asyncio.gather(*work, return_exceptions=True)
    assert all(result is None or isinstance(result, asyncio.CancelledError) for result in results)
    # The pool has closed and replaced the other two as well, which are as old as the ended one. The server may list
    # them for a moment after that.
    assert 3 <= max(map(len, seen)) <= 6
    while set(look()) - {"idle"}:
        await asyncio.sleep(0.01)
    assert 1 <= len(look()) <= 3
    await (saver.aclose() if api == "async" else asyncio.to_thread(saver.close))
    while look():
        await asyncio.sleep(0.01)


@pytest.mark.parametrize("api", APIS)
async def test_calls_that_wait_too_long_for_the_pool_do_not_each_connect(postgres_url: str, api: str) -> None:
    with proxied(postgres_url) as proxy:
        async with PostgresSaver(proxy.url, max_size=1, pool_timeout=0.5) as saver:
            client = Client(saver, api)
            await fill(client, "t")
            before = proxy.connections
            with Database(Store("postgres", postgres_url)).locked() as unlock:
                waiting = [asyncio.ensure_future(put_one(client, "t")) for _ in range(6)]
                while sum(task.done() for task in waiting) < 5:
                    await asyncio.sleep(0.01)
                unlock()
            results = await asyncio.gather(*waiting, return_exceptions=True)
            assert sum(isinstance(result, StorageError) for result in results) == 5
            assert proxy.connections - before <= 1
