"""An operation that locks its thread sees what was committed while it waited, and holds the lock until it commits.

That is so in each kind of session, also if its transactions are REPEATABLE READ by default. (A lock that is taken in
autocommit ends with its statement, and at REPEATABLE READ the snapshot is older than the wait.)
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import psycopg
import pytest
from psycopg_pool import AsyncConnectionPool, ConnectionPool

from langgraph_checkpoint_custom import PostgresSaver, ThreadExists
from tests.behaviour.helpers import config, metadata, put
from tests.conftest import APIS
from tests.drivers.batches import jammed
from tests.faults.bouncer import bounced
from tests.faults.workload import LARGE, WAITING, fill, set_for_database
from tests.stores import Client

SESSIONS = ["our own", "PgBouncer", "a caller's pool", "a caller's pool without autocommit", "a caller's connection"]

# What is done to the thread "t". It has the checkpoints 0 to 2, the first two of one run, or none if it is to be made
# from another thread. Then the checkpoints that remain, or the error, if checkpoint 9 of that run is stored meanwhile.
OPERATIONS: Mapping[str, tuple[Callable[[Client], Awaitable[Any]], Any]] = {
    "prune": (lambda client: client.prune(["t"]), {"checkpoint 9"}),
    "delete_thread": (lambda client: client.delete_thread("t"), set()),
    "delete_for_runs": (lambda client: client.delete_for_runs(["run on t"]), {"checkpoint 2"}),
    "rollback": (lambda client: client.do("rollback", "t", "checkpoint 1"), {"checkpoint 0", "checkpoint 1"}),
    "copy_thread": (lambda client: client.copy_thread("source", "t"), ThreadExists),
    "fork_thread": (lambda client: client.do("fork_thread", "source", "t"), ThreadExists),
}

everywhere = pytest.mark.parametrize("session", SESSIONS)
either = pytest.mark.parametrize("api", APIS)


@pytest.fixture
async def filled(postgres_url: str, watcher: psycopg.Connection[Any]) -> str:
    set_for_database(watcher, default_transaction_isolation="repeatable read")
    async with PostgresSaver(postgres_url) as saver:
        for thread_id in ("t", "source"):
            await fill(Client(saver, "async"), thread_id)
    return postgres_url


@asynccontextmanager
async def opened(session: str, url: str, api: str) -> AsyncIterator[Client]:
    """A saver in a kind of session."""
    kwargs = {"autocommit": session != "a caller's pool without autocommit"}
    async with AsyncExitStack() as stack:
        source: Any = url
        if session == "PgBouncer":
            source = stack.enter_context(bounced(url))
        elif session == "a caller's connection":
            source = stack.enter_context(psycopg.connect(url, autocommit=True))
        elif session != "our own" and api == "sync":
            source = stack.enter_context(ConnectionPool(url, kwargs=kwargs, min_size=1, open=True))
        elif session != "our own":
            source = await stack.enter_async_context(AsyncConnectionPool(url, kwargs=kwargs, min_size=1, open=False))
        yield Client(await stack.enter_async_context(PostgresSaver(source)), api)


async def waiting(operation: str, client: Client, watcher: psycopg.Connection[Any]) -> tuple[asyncio.Future[Any], int]:
    """An operation that waits for a lock, and the id of its server process."""
    call = asyncio.ensure_future(OPERATIONS[operation][0](client))
    while not (found := watcher.execute(WAITING).fetchall()):
        assert not call.done()
        await asyncio.sleep(0.005)  # No event is raised when a session begins to wait.
    return call, int(found[0][0])


async def stored(client: Client) -> set[str]:
    return {found.checkpoint["id"] for found in await client.all(config("t"))}


@pytest.mark.parametrize("operation", OPERATIONS)
@everywhere
@either
async def test_it_sees_what_was_committed_while_it_waited(
    filled: str, watcher: psycopg.Connection[Any], session: str, api: str, operation: str
) -> None:
    expected = OPERATIONS[operation][1]
    async with opened(session, filled, api) as client:
        if expected is ThreadExists:
            await client.delete_thread("t")
        await stored(client)
        with psycopg.connect(filled) as other:
            mine = Client(PostgresSaver(other), "sync")
            await put(mine, "checkpoint 9", {"list": [LARGE]}, thread_id="t", meta=metadata(9, run_id="run on t"))
            call, _ = await waiting(operation, client, watcher)
            other.commit()
            if expected is ThreadExists:
                with pytest.raises(ThreadExists):
                    await call
                expected = {"checkpoint 9"}
            else:
                await call
        assert await stored(client) == expected


@pytest.mark.parametrize("operation", OPERATIONS)
@everywhere
@either
async def test_it_holds_the_lock_until_it_commits(
    filled: str, watcher: psycopg.Connection[Any], session: str, api: str, operation: str
) -> None:
    async with opened(session, filled, api) as client:
        if OPERATIONS[operation][1] is ThreadExists:
            await client.delete_thread("t")
        with jammed(filled, "SHARE ROW EXCLUSIVE") as blocker:
            call, pid = await waiting(operation, client, watcher)
            held = "SELECT count(*) FROM pg_locks WHERE pid = %s AND locktype = 'advisory' AND granted"
            locks = 2 if OPERATIONS[operation][1] is ThreadExists else 1  # That of the source as well.
            assert watcher.execute(held, [pid]).fetchone() == (locks,)
            blocker.rollback()
            await call
        assert watcher.execute("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'").fetchone() == (0,)
