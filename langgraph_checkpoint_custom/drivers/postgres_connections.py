"""Sources of PostgreSQL connections: pools of our own, or a pool or connection of the caller."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

from psycopg import AsyncConnection, Connection
from psycopg_pool import AsyncConnectionPool, ConnectionPool

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
        kwargs = {
            **_OURS,
            "connect_timeout": max(1, round(connect_timeout)),
            "fallback_application_name": "langgraph-checkpoint-custom",
        }
        sessions = Sessions(own=True, prepare=prepare, read_only=read_only)
        sizes = {"min_size": min_size, "max_size": max_size, "timeout": pool_timeout}
        return OwnPools(source, sessions, kwargs, **sizes), sessions
    sessions = Sessions(own=False, prepare=prepare, read_only=False)
    if isinstance(source, (ConnectionPool, AsyncConnectionPool)):
        return CallersPool(source, sessions), sessions
    if isinstance(source, (Connection, AsyncConnection)):
        return CallersConnection(source), sessions
    raise ConfigError(
        "PostgresSaver takes a connection string or a function that gives one, a psycopg ConnectionPool or "
        f"AsyncConnectionPool, or a psycopg Connection or AsyncConnection, not a {type(source).__name__}"
    )


def _check_ours(of_parent: bool) -> None:
    if of_parent:
        raise ConfigError(
            "this process was forked, and the connections that this saver was given belong to its parent; after "
            "os.fork(), create a saver with new ones"
        )


class CallersPool(OwnPools):
    """A caller's pool, sync or async; calls of the other kind use own pools with the same connection settings."""

    def __init__(self, pool: SyncPool | LoopPool, sessions: Sessions) -> None:
        kwargs = {**(pool.kwargs if isinstance(pool.kwargs, dict) else {}), **_OURS}
        sizes = {"min_size": 0, "max_size": pool.max_size or 20, "timeout": pool.timeout}
        super().__init__(pool.conninfo, sessions, kwargs, **sizes)
        self._given = pool
        self._given_in_loop = LoopSource(pool) if isinstance(pool, AsyncConnectionPool) else None

    @property
    def by_worker(self) -> bool:
        """Whether async calls run on workers; a caller's async pool cannot work in such a loop."""
        if super().by_worker and self._given_in_loop:
            raise ConfigError(
                "psycopg's AsyncConnectionPool cannot work in this event loop (the default on Windows), which cannot "
                "wait for sockets; give PostgresSaver a connection string or a ConnectionPool, or run the program in "
                "an asyncio.SelectorEventLoop"
            )
        return super().by_worker

    def source(self) -> SyncPool:
        _check_ours(self.of_parent)
        return self._given if isinstance(self._given, ConnectionPool) else super().source()

    def loop_source(self) -> LoopSource | None:
        _check_ours(self.of_parent)
        return self._given_in_loop or super().loop_source()

    def renew(self) -> None:
        """Replace the idle connections that do not answer; those of others may be intact."""
        self._given.check() if isinstance(self._given, ConnectionPool) else super().renew()

    async def arenew(self) -> None:
        """Async version of `renew`."""
        await (self._given.check() if isinstance(self._given, AsyncConnectionPool) else super().arenew())

    def stats(self) -> dict[str, Any]:
        """Return psycopg_pool's statistics of the caller's pool and of the own pools."""
        return {"given": self._given.get_stats(), **super().stats()}


class _OneConnection:
    """A caller's connection, borrowed by one OS thread at a time."""

    def __init__(self, connection: SyncConnection) -> None:
        self._connection = connection
        self._lock = threading.Lock()

    def getconn(self) -> SyncConnection:
        self._lock.acquire()
        return self._connection

    def putconn(self, connection: SyncConnection) -> None:
        self._lock.release()


class _OneLoopConnection:
    """A caller's connection, borrowed by one task at a time."""

    def __init__(self, connection: LoopConnection) -> None:
        self._connection = connection
        self._lock = asyncio.Lock()

    async def getconn(self) -> LoopConnection:
        await self._lock.acquire()
        return self._connection

    async def putconn(self, connection: LoopConnection) -> None:
        self._lock.release()


class CallersConnection(Connections):
    """A caller's single connection, for one round trip or transaction at a time; the caller ends its own transactions.

    Sync and async calls both use it, in its own way.
    """

    replaceable = False

    def __init__(self, connection: SyncConnection | LoopConnection) -> None:
        self._source: Any = (
            _OneConnection(connection) if isinstance(connection, Connection) else _OneLoopConnection(connection)
        )
        self.loop = self._running_loop if isinstance(connection, AsyncConnection) else None
        self._seen_loop = asyncio._get_running_loop()  # A saver made in a loop, as LangGraph's has to be, uses that.

    @property
    def by_worker(self) -> bool:
        """Whether it is a sync connection."""
        return self.loop is None

    def source(self) -> Any:
        _check_ours(self.of_parent)
        return self._source

    def loop_source(self) -> Any:
        self._seen_loop = asyncio.get_running_loop()
        return self.source()

    def _running_loop(self) -> asyncio.AbstractEventLoop:
        _check_ours(self.of_parent)
        loop = self._seen_loop
        if loop is None or not loop.is_running() or loop is asyncio._get_running_loop():
            raise ConfigError(
                "this saver has an AsyncConnection, so a sync call needs its event loop to run in another OS thread; "
                "use the async methods here, or give PostgresSaver a connection string or a pool"
            )
        return loop
