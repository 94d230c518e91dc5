"""Sources of PostgreSQL connections: pools of our own, or a pool or connection of the caller."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

from psycopg import AsyncConnection, Connection
from psycopg_pool import AsyncConnectionPool, ConnectionPool

from langgraph_checkpoint_custom.drivers.either import settled
from langgraph_checkpoint_custom.drivers.postgres_address import Address, check_conninfo
from langgraph_checkpoint_custom.drivers.postgres_pools import (
    Connections,
    LoopConnection,
    LoopPool,
    LoopSource,
    OwnPools,
    SyncConnection,
    SyncPool,
)
from langgraph_checkpoint_custom.drivers.postgres_sessions import Sessions
from langgraph_checkpoint_custom.errors import ConfigError

# Settings of each connection that we create. The server, the role or the environment may set another client_encoding.
_OURS: dict[str, Any] = {"autocommit": True, "client_encoding": "UTF8"}

Source = Address | SyncPool | LoopPool | SyncConnection | LoopConnection


def connections_from(
    source: Source,
    *,
    prepare: bool | None,
    read_only: bool,
    min_size: int,
    max_size: int,
    pool_timeout: float,
    connect_timeout: float,
) -> tuple[Connections, Sessions]:
    """Return the source of connections for what the caller gave, and what will be known of their sessions.

    The arguments are those of `PostgresSaver`.
    """
    if isinstance(source, str) or callable(source):
        if not pool_timeout > 0:
            raise ConfigError(f"pool_timeout must be more than 0 seconds, not {pool_timeout!r}")
        if not 0 <= min_size <= max_size or max_size < 1:
            raise ConfigError(f"pool sizes must be 0 <= min_size <= max_size, not {min_size} and {max_size}")
        if isinstance(source, str):
            check_conninfo(source)
        kwargs = {**_OURS, "fallback_application_name": "langgraph-checkpoint-custom"}
        sessions = Sessions(own=True, prepare=prepare, read_only=read_only)
        sizes = {"min_size": min_size, "max_size": max_size, "timeout": pool_timeout}
        return OwnPools(source, sessions, kwargs, max(1, round(connect_timeout)), **sizes), sessions
    sessions = Sessions(own=False, prepare=prepare, read_only=False)
    if isinstance(source, (ConnectionPool, AsyncConnectionPool, Connection, AsyncConnection)):
        return Callers(source), sessions
    raise ConfigError(
        "PostgresSaver takes a connection string or a function that gives one, a psycopg ConnectionPool or "
        f"AsyncConnectionPool, or a psycopg Connection or AsyncConnection, not a {type(source).__name__}"
    )


class _SingleConnection:
    """A caller's connection, borrowed by one OS thread or one task at a time."""

    def __init__(self, connection: SyncConnection | LoopConnection) -> None:
        self._connection = connection
        self._lock: Any = threading.Lock() if isinstance(connection, Connection) else asyncio.Lock()

    async def getconn(self) -> SyncConnection | LoopConnection:
        await settled(self._lock.acquire())
        return self._connection

    async def putconn(self, connection: SyncConnection | LoopConnection) -> None:
        self._lock.release()


class Callers(Connections):
    """A caller's pool or connection, sync or async; it is the only source, and stays the caller's to close.

    Async calls use a sync one on workers, and sync calls use an async one on its event loop. A single connection serves
    one round trip or transaction at a time; the caller ends its own transactions.
    """

    def __init__(self, given: SyncPool | LoopPool | SyncConnection | LoopConnection) -> None:
        self._pool = given if isinstance(given, (ConnectionPool, AsyncConnectionPool)) else None
        self.is_pooled = self._pool is not None
        self._sync: Any = None
        self._async: Any = None
        if isinstance(given, (ConnectionPool, Connection)):
            self._sync = given if isinstance(given, ConnectionPool) else _SingleConnection(given)
        else:
            self._async = LoopSource(given) if isinstance(given, AsyncConnectionPool) else _SingleConnection(given)
            self.loop = self._running_loop
        self._seen_loop = asyncio._get_running_loop()  # A saver made in a loop, as LangGraph's has to be, uses that.

    @property
    def by_worker(self) -> bool:
        """Whether it is sync."""
        return self.loop is None

    def source(self) -> Any:
        self._check_ours()
        return self._sync

    def loop_source(self) -> Any:
        self._check_ours()
        self._seen_loop = asyncio.get_running_loop()
        return self._async

    async def renew(self, *, is_async: bool) -> None:
        """Replace the idle connections that do not answer; those of others may be intact."""
        if isinstance(self._pool, AsyncConnectionPool):
            # If the call is cancelled, psycopg_pool would take it for a broken connection, and the call would go on.
            await asyncio.shield(self._pool.check())
        elif self._pool:
            self._pool.check()

    def stats(self) -> dict[str, Any]:
        """Return psycopg_pool's statistics of a pool."""
        return {"given": self._pool.get_stats()} if self._pool else {}

    def _running_loop(self) -> asyncio.AbstractEventLoop:
        self._check_ours()
        loop = self._seen_loop
        if loop is None or not loop.is_running() or loop is asyncio._get_running_loop():
            kind = "AsyncConnectionPool" if self._pool else "AsyncConnection"
            raise ConfigError(
                f"this saver has an {kind}, so a sync call needs its event loop to run in another OS thread; use the "
                "async methods here, or give PostgresSaver a connection string"
            )
        return loop

    def _check_ours(self) -> None:
        if self.of_parent:
            raise ConfigError(
                "this process was forked, and the connections that this saver was given belong to its parent; after "
                "os.fork(), create a saver with new ones"
            )
