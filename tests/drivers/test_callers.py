"""Pools and connections of the caller, with any row factory and transaction mode, also if they are shared."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from pathlib import Path
from typing import Any

import psycopg
import pytest
from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.checkpoint.conformance.test_utils import generate_checkpoint, generate_config, generate_metadata
from langgraph.checkpoint.postgres.aio import AsyncPostgresSaver
from langgraph.store.postgres import AsyncPostgresStore
from psycopg.rows import dict_row, namedtuple_row, scalar_row
from psycopg_pool import AsyncConnectionPool, AsyncNullConnectionPool, ConnectionPool, NullConnectionPool

from langgraph_checkpoint_custom import ConfigError, PostgresSaver, StorageError
from langgraph_checkpoint_custom.drivers.either import settled
from langgraph_checkpoint_custom.tools.exchange import export_file
from tests.conftest import APIS
from tests.faults.workload import WAITING
from tests.stores import Client

SOURCES = ("ConnectionPool", "AsyncConnectionPool", "Connection", "AsyncConnection")
CURSORS: dict[str, tuple[Any, Any]] = {
    "usual": (psycopg.Cursor, psycopg.AsyncCursor),
    "client": (psycopg.ClientCursor, psycopg.AsyncClientCursor),
    "raw": (psycopg.RawCursor, psycopg.AsyncRawCursor),
}


@asynccontextmanager
async def brought(kind: str, url: str, **options: Any) -> AsyncIterator[Any]:
    """A pool of two connections, or a connection, with options of psycopg's."""
    if kind == "ConnectionPool":
        with ConnectionPool(url, kwargs=options, min_size=1, max_size=2, open=True) as pool:
            yield pool
    elif kind == "AsyncConnectionPool":
        async with AsyncConnectionPool(url, kwargs=options, min_size=1, max_size=2, open=False) as async_pool:
            yield async_pool
    elif kind == "Connection":
        with psycopg.connect(url, **options) as connection:
            yield connection
    else:
        async with await psycopg.AsyncConnection.connect(url, **options) as async_connection:
            yield async_connection


async def life(saver_client: Client, thread_id: str, steps: int = 2) -> None:
    """Store, read and delete, by one statement and by several."""
    config = generate_config(thread_id)
    for step in range(steps):
        checkpoint = generate_checkpoint(channel_values={"a": [step, "日"]}, channel_versions={"a": f"{step}"})
        config = await saver_client.put(config, checkpoint, generate_metadata(step=step), {"a": f"{step}"})
        await saver_client.put_writes(config, [("a", step)], "task")
        found = await saver_client.get_tuple(generate_config(thread_id))
        assert found is not None
        assert (found.checkpoint, found.pending_writes) == (checkpoint, [("task", "a", step)])
    await saver_client.do("label", config, "here")
    assert await saver_client.do("labels", thread_id) == {"here": config}
    await saver_client.prune([thread_id])
    assert len(await saver_client.all(generate_config(thread_id))) == 1
    await saver_client.delete_thread(thread_id)
    assert await saver_client.get_tuple(generate_config(thread_id)) is None


@pytest.mark.parametrize("kind", SOURCES)
@pytest.mark.parametrize("cursors", CURSORS)
async def test_any_row_and_cursor_factory_works(postgres_url: str, kind: str, cursors: str) -> None:
    for rows, autocommit in ((dict_row, True), (namedtuple_row, False), (scalar_row, False)):
        factory: Any = CURSORS[cursors]["Async" in kind]
        options: dict[str, Any] = {"row_factory": rows, "cursor_factory": factory, "autocommit": autocommit}
        async with brought(kind, postgres_url, **options) as source:
            for api in APIS:
                async with PostgresSaver(source) as saver:
                    await life(Client(saver, api), f"{api} {options}")


@pytest.mark.parametrize("kind", SOURCES)
async def test_any_prepare_threshold_works(postgres_url: str, kind: str) -> None:
    for threshold, autocommit in ((None, True), (0, False), (1, True), (5, False)):
        async with brought(kind, postgres_url, autocommit=autocommit, prepare_threshold=threshold) as source:
            for api in APIS:
                async with PostgresSaver(source) as saver:
                    await life(Client(saver, api), f"{api} {threshold}", steps=7)


@pytest.mark.parametrize("autocommit", [True, False])
async def test_an_async_pool_is_shared_with_langgraphs_store_while_both_work(
    empty_postgres_url: str, autocommit: bool
) -> None:
    options: dict[str, Any] = {"autocommit": autocommit, "prepare_threshold": 0, "row_factory": dict_row}
    shared: Any = AsyncConnectionPool(empty_postgres_url, kwargs=options, max_size=4, open=False)
    async with AsyncPostgresStore.from_conn_string(empty_postgres_url) as store:
        await store.setup()  # This needs autocommit.
    async with shared as pool:
        store = AsyncPostgresStore(pool)
        saver = PostgresSaver(pool)
        await saver.asetup()

        async def remember(number: int) -> None:
            for turn in range(6):
                await store.aput(("notes",), f"{number}", {"turn": turn})
                found = await store.aget(("notes",), f"{number}")
                assert found is not None
                assert found.value == {"turn": turn}

        lives = [life(Client(saver, "async"), f"{number}", steps=6) for number in range(8)]
        await asyncio.gather(*lives, *(remember(number) for number in range(8)))
        assert len(await store.asearch(("notes",), limit=20)) == 8
        await saver.aclose()
        await store.aput(("notes",), "after", {"turn": 0})


@pytest.mark.parametrize("max_size", [0, 20])
@pytest.mark.parametrize("api", APIS)
async def test_a_call_opens_one_connection_of_a_pool_that_keeps_none(
    postgres_url: str, api: str, max_size: int
) -> None:
    """As psycopg recommends behind PgBouncer."""
    kind: Any = AsyncNullConnectionPool if api == "async" else NullConnectionPool
    pool = kind(postgres_url, kwargs={"autocommit": True}, max_size=max_size, open=False)
    await settled(pool.open())
    client = Client(PostgresSaver(pool), api)
    config = generate_config("t")
    await client.get_tuple(config)  # Checks the tables.
    before = pool.get_stats()["connections_num"]
    location = await client.put(config, generate_checkpoint(), generate_metadata(), {})
    await client.put_writes(location, [("a", 1)], "task")
    assert await client.get_tuple(config) is not None
    assert pool.get_stats()["connections_num"] == before + 3
    await settled(pool.close())


async def test_a_call_can_be_cancelled_while_it_has_a_callers_pool_checked(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The pool then checks its connections to the end: psycopg_pool takes a cancelled check for a broken one."""
    begins, goes_on = asyncio.Event(), asyncio.Event()
    check = AsyncConnectionPool.check_connection

    async def slowly(connection: Any) -> None:
        begins.set()
        await goes_on.wait()
        await check(connection)

    async with brought("AsyncConnectionPool", postgres_url) as pool:
        client = Client(PostgresSaver(pool), "async")
        await life(client, "before")
        monkeypatch.setattr(AsyncConnectionPool, "check_connection", staticmethod(slowly))
        with psycopg.connect(postgres_url) as server:
            server.execute(
                "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity"
                " WHERE datname = current_database() AND pid <> pg_backend_pid()"
            )
        call = asyncio.ensure_future(client.get_tuple(generate_config("before")))
        await begins.wait()
        call.cancel()
        await asyncio.sleep(0)
        goes_on.set()
        await asyncio.wait([call])
        assert call.cancelled()
        async with pool.connection(timeout=150), pool.connection(timeout=150):
            pass
        await life(client, "after")


async def ended(connection: Any, how: str) -> None:
    """End the transaction of a connection of either api."""
    ending = getattr(connection, how)()
    if isinstance(connection, psycopg.AsyncConnection):
        await ending


@pytest.mark.parametrize("kind", ["Connection", "AsyncConnection"])
async def test_without_autocommit_the_caller_ends_the_transaction(postgres_url: str, kind: str) -> None:
    async with PostgresSaver(postgres_url) as others, brought(kind, postgres_url) as connection:
        saver_client = Client(PostgresSaver(connection), "async")
        config = generate_config("t")
        checkpoint = generate_checkpoint(channel_values={"a": [1]}, channel_versions={"a": "1"})
        for how in ("rollback", "commit"):
            stored = await saver_client.put(config, checkpoint, generate_metadata(), {"a": "1"})
            await saver_client.put_writes(stored, [("a", 1)], "task")
            assert await saver_client.get_tuple(config) is not None
            assert await others.aget_tuple(config) is None, "it was committed"
            await ended(connection, how)
            assert (await others.aget_tuple(config) is not None) is (how == "commit")
        await saver_client.do("label", stored, "here")
        await ended(connection, "rollback")
        assert await others.alabels("t") == {}


@pytest.mark.parametrize("kind", ["Connection", "AsyncConnection"])
async def test_a_failed_call_leaves_a_callers_transaction_usable(own_postgres_url: str, kind: str) -> None:
    async with PostgresSaver(own_postgres_url) as others, brought(kind, own_postgres_url) as connection:
        with psycopg.connect(own_postgres_url) as owner:
            owner.execute(
                "ALTER TABLE langgraph_checkpoint.checkpoints ADD CONSTRAINT no CHECK (thread_id NOT LIKE 'no%')"
            )
        saver_client = Client(PostgresSaver(connection), "async")
        await saver_client.get_tuple(generate_config("t"))  # Checks the session and the tables.
        await ended(connection, "commit")
        checkpoint = generate_checkpoint(channel_values={"a": [1]}, channel_versions={"a": "1"})
        for before in (None, "t"):
            if before:
                await saver_client.put(generate_config(before), checkpoint, generate_metadata(), {"a": "1"})
            with pytest.raises(StorageError, match="check constraint"):
                await saver_client.put(generate_config("no"), checkpoint, generate_metadata(), {"a": "1"})
        await ended(connection, "commit")
        assert await others.aget_tuple(generate_config("t")) is not None


@pytest.mark.parametrize("kind", ["ConnectionPool", "AsyncConnectionPool"])
async def test_a_pools_connections_are_returned_unchanged(postgres_url: str, kind: str) -> None:
    async with brought(kind, postgres_url) as pool:
        saver_client = Client(PostgresSaver(pool), APIS["Async" in kind])
        await life(saver_client, "t")
        if kind == "ConnectionPool":
            with pool.connection() as connection:
                assert connection.autocommit is False
        else:
            async with pool.connection() as connection:
                assert connection.autocommit is False


def sync_life(saver: BaseCheckpointSaver[str], thread_id: str) -> None:
    """Store, read and delete with the sync methods that every saver has."""
    config = generate_config(thread_id)
    checkpoint = generate_checkpoint(channel_values={"a": 1}, channel_versions={"a": "1"})
    location = saver.put(config, checkpoint, generate_metadata(), {"a": "1"})
    saver.put_writes(location, [("a", 2)], "task")
    found = saver.get_tuple(config)
    assert found is not None
    assert (found.checkpoint["channel_values"], found.pending_writes) == ({"a": 1}, [("task", "a", 2)])
    assert [one.config for one in saver.list(config)] == [found.config]
    saver.delete_thread(thread_id)
    assert saver.get_tuple(config) is None


@pytest.mark.parametrize("whose", ["official", "ours"])
@pytest.mark.parametrize("kind", ["AsyncConnection", "AsyncConnectionPool"])
async def test_an_async_source_serves_sync_calls_from_other_os_threads_while_its_loop_runs(
    empty_postgres_url: str, kind: str, whose: str
) -> None:
    options: dict[str, Any] = {"autocommit": True, "row_factory": dict_row}
    async with brought(kind, empty_postgres_url, **options) as source:
        saver: Any = AsyncPostgresSaver(source) if whose == "official" else PostgresSaver(source)
        await (saver.setup() if whose == "official" else saver.asetup())
        await asyncio.gather(*(asyncio.to_thread(sync_life, saver, f"t{number}") for number in range(5)))
        await asyncio.to_thread(asyncio.run, in_another_loop(saver))
        # A sync call in that loop would deadlock.
        with pytest.raises(asyncio.InvalidStateError if whose == "official" else ConfigError, match="async"):
            saver.get_tuple(generate_config("t"))
        if whose == "ours":
            await asyncio.to_thread(saver.setup)


async def in_another_loop(saver: BaseCheckpointSaver[str]) -> None:
    """A sync call where an event loop runs, but not the connection's."""
    sync_life(saver, "t")


def test_sync_calls_on_an_async_connection_whose_loop_does_not_run_are_refused(postgres_url: str) -> None:
    async def connect() -> psycopg.AsyncConnection[Any]:
        return await psycopg.AsyncConnection.connect(postgres_url)

    with closing(asyncio.new_event_loop()) as loop:
        connection = loop.run_until_complete(connect())
        saver = PostgresSaver(connection)
        for _ in range(2):
            with pytest.raises(ConfigError, match="needs its event loop to run in another OS thread"):
                saver.get_tuple(generate_config("t"))
            assert loop.run_until_complete(saver.aget_tuple(generate_config("t"))) is None
        loop.run_until_complete(connection.close())


@pytest.mark.parametrize("level", [psycopg.IsolationLevel.REPEATABLE_READ, psycopg.IsolationLevel.SERIALIZABLE])
@pytest.mark.parametrize("kind", ["Connection", "AsyncConnection"])
async def test_a_change_at_another_isolation_level_is_refused(
    postgres_url: str, kind: str, level: psycopg.IsolationLevel
) -> None:
    """A deletion there would not see, and would break, what was committed while it waited for the lock."""
    async with brought(kind, postgres_url) as connection:
        client = Client(PostgresSaver(connection), "async")
        await client.put(generate_config("thread"), generate_checkpoint(), generate_metadata(), {})
        await settled(connection.commit())
        await settled(connection.set_isolation_level(level))
        with pytest.raises(ConfigError, match="READ COMMITTED"):
            await client.delete_thread("thread")
        assert await client.get_tuple(generate_config("thread")) is not None
        await settled(connection.rollback())


@pytest.mark.parametrize("kind", ["Connection", "AsyncConnection"])
async def test_the_servers_default_level_does_not_matter(own_postgres_url: str, kind: str) -> None:
    with psycopg.connect(own_postgres_url, autocommit=True) as admin:
        name = psycopg.sql.Identifier(admin.info.dbname)
        admin.execute(
            psycopg.sql.SQL("ALTER DATABASE {} SET default_transaction_isolation = 'repeatable read'").format(name)
        )
    async with brought(kind, own_postgres_url) as connection:
        saver = PostgresSaver(connection)
        client = Client(saver, "async")
        await client.do("setup")
        await life(client, "thread")
        await settled(connection.commit())
        await client.delete_thread("thread")
        ((level,),) = await settled((await settled(connection.execute("SHOW transaction_isolation"))).fetchall())
        assert level == "read committed"


@pytest.mark.parametrize("autocommit", [False, True])
@pytest.mark.parametrize("kind", ["Connection", "AsyncConnection"])
async def test_what_needs_its_own_transaction_is_refused_in_a_callers_one(
    postgres_url: str, kind: str, autocommit: bool, tmp_path: Path
) -> None:
    """A heartbeat would begin a transaction that nobody ends, and an export would read several points in time."""
    path = tmp_path / "threads.jsonl"
    async with brought(kind, postgres_url, autocommit=autocommit) as connection:
        saver = PostgresSaver(connection)
        await Client(saver, "async").put(generate_config("thread"), generate_checkpoint(), generate_metadata(), {})
        if autocommit:
            await settled(connection.execute("BEGIN"))
        with pytest.raises(ConfigError, match="needs a transaction of its own: pass a connection string, a pool"):
            async with saver.claim("thread"):
                raise AssertionError
        with pytest.raises(ConfigError, match="needs a transaction of its own"):
            await asyncio.to_thread(export_file, saver, path)
        assert not path.exists()
        await settled(connection.rollback())
        if autocommit:
            async with saver.claim("thread"):
                pass
            assert (await asyncio.to_thread(export_file, saver, path)).threads


@pytest.mark.parametrize("kind", SOURCES)
async def test_a_claim_that_is_cancelled_while_it_is_taken_is_released(postgres_url: str, kind: str) -> None:
    """On a sync pool or connection, the call goes on after that: it waits for the thread's lock."""
    lock = "SELECT pg_advisory_xact_lock(hashtextextended('t', hashtextextended('langgraph_checkpoint', 0)))"
    async with brought(kind, postgres_url, autocommit=True) as source, PostgresSaver(source) as saver:
        await saver.aget_tuple(generate_config("t"))  # Checks the tables.
        with psycopg.connect(postgres_url) as other, psycopg.connect(postgres_url, autocommit=True) as watcher:
            other.execute(lock)
            taking = asyncio.ensure_future(saver.claim("t", ttl_seconds=3600).__aenter__())
            while not watcher.execute(WAITING).fetchall():
                await asyncio.sleep(0.01)
            taking.cancel()
            await asyncio.sleep(0.1)  # On a pool, its release is sent, and finds nothing yet.
            other.rollback()
            await asyncio.wait([taking])
            assert taking.cancelled()
            ends = time.monotonic() + 30
            while watcher.execute(f"{WAITING} UNION ALL SELECT 1 FROM langgraph_checkpoint.claims").fetchall():
                assert time.monotonic() < ends
                await asyncio.sleep(0.01)
