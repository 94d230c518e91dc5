"""An operation that locks its thread sees what was committed while it waited, and holds the lock until it commits.

That is so in each kind of session, also if its transactions are REPEATABLE READ by default. (A lock that is taken in
autocommit ends with its statement, and at REPEATABLE READ the snapshot is older than the wait.)
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, nullcontext
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

# What is done to a thread. It has the checkpoints 0 to 2, the first two of one run, or none if it is to be made from
# another thread. Then the checkpoints that remain, or the error, if checkpoint 9 of that run is stored meanwhile.
OPERATIONS: Mapping[str, tuple[Callable[[Client, str], Awaitable[Any]], Any]] = {
    "prune": (lambda client, thread_id: client.prune([thread_id]), {"checkpoint 9"}),
    "delete_thread": (lambda client, thread_id: client.delete_thread(thread_id), set()),
    "delete_for_runs": (lambda client, thread_id: client.delete_for_runs([f"run on {thread_id}"]), {"checkpoint 2"}),
    "rollback": (
        lambda client, thread_id: client.do("rollback", thread_id, "checkpoint 1"),
        {"checkpoint 0", "checkpoint 1"},
    ),
    "copy_thread": (lambda client, thread_id: client.copy_thread("source", thread_id), ThreadExists),
    "fork_thread": (lambda client, thread_id: client.do("fork_thread", "source", thread_id), ThreadExists),
}

# The locks of this database.
ADVISORY = (
    "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'"
    " AND database = (SELECT oid FROM pg_database WHERE datname = current_database())"
)


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


async def waiting(operation: Awaitable[Any], watcher: psycopg.Connection[Any]) -> tuple[asyncio.Future[Any], int]:
    """An operation that waits for a lock, and the id of its server process."""
    call = asyncio.ensure_future(operation)
    while not (found := watcher.execute(WAITING).fetchall()):
        assert not call.done()
        await asyncio.sleep(0.005)  # No event is raised when a session begins to wait.
    return call, int(found[0][0])


async def stored(client: Client, thread_id: str) -> set[str]:
    return {found.checkpoint["id"] for found in await client.all(config(thread_id))}


@pytest.mark.parametrize("session", SESSIONS)
@pytest.mark.parametrize("api", APIS)
async def test_it_sees_what_was_committed_while_it_waited_and_holds_the_lock_until_it_commits(
    postgres_url: str, watcher: psycopg.Connection[Any], session: str, api: str
) -> None:
    set_for_database(watcher, default_transaction_isolation="repeatable read")
    async with PostgresSaver(postgres_url) as saver, opened(session, postgres_url, api) as client:
        others = Client(saver, "async")
        await fill(others, "source")
        for name, (operation, expected) in OPERATIONS.items():
            makes = expected is ThreadExists
            meets, holds = f"{name} meets a run", f"{name} holds the lock"
            for thread_id in () if makes else (meets, holds):
                await fill(others, thread_id)

            await stored(client, meets)
            with psycopg.connect(postgres_url) as other:
                mine = Client(PostgresSaver(other), "sync")
                meta = metadata(9, run_id=f"run on {meets}")
                await put(mine, "checkpoint 9", {"list": [LARGE]}, thread_id=meets, meta=meta)
                call, _ = await waiting(operation(client, meets), watcher)
                other.commit()
                with pytest.raises(ThreadExists) if makes else nullcontext():
                    await call
            assert await stored(client, meets) == ({"checkpoint 9"} if makes else expected), name

            with jammed(postgres_url, "SHARE ROW EXCLUSIVE") as blocker:
                call, pid = await waiting(operation(client, holds), watcher)
                held = "SELECT count(*) FROM pg_locks WHERE pid = %s AND locktype = 'advisory' AND granted"
                assert watcher.execute(held, [pid]).fetchone() == (2 if makes else 1,), name  # That of the source, too.
                blocker.rollback()
                await call
            assert watcher.execute(ADVISORY).fetchone() == (0,)
