"""Sources of PostgreSQL connections: pools of our own, or a pool or connection of the caller."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any, Protocol

from psycopg import AsyncConnection, Connection, Error
from psycopg_pool import AsyncConnectionPool, ConnectionPool

from langgraph_checkpoint_custom.drivers.postgres_address import Address, checked
from langgraph_checkpoint_custom.drivers.postgres_pools import (
    Borrowing,
    LoopBorrowing,
    LoopConnection,
    LoopPool,
    OwnPools,
    SyncConnection,
    SyncPool,
)
from langgraph_checkpoint_custom.drivers.postgres_sessions import Sessions
from langgraph_checkpoint_custom.errors import ConfigError

# Settings of each connection that we create. The server, the role or the environment may set another client_encoding.
_OURS: dict[str, Any] = {"autocommit": True, "client_encoding": "UTF8"}

Source = Address | SyncPool | LoopPool | SyncConnection | LoopConnection


class Connections(Protocol):
    """What the driver needs from a source of connections."""

    replaceable: bool
    """Whether a new connection follows a broken one, so that a retry makes sense."""

    by_worker: bool
    """Whether async calls have to run the sync method on a worker."""

    loop: Callable[[], asyncio.AbstractEventLoop] | None
    """Returns the event loop on which sync calls have to run the async method; None if they do not have to.

    Raises:
        ConfigError: Sync calls are not possible.
    """

    @property
    def by_worker(self) -> bool:
        """Whether async calls have to run the sync method on a worker, in the running event loop.

        Raises:
            ConfigError: Async calls are not possible in this loop.
        """

    def borrow(self) -> Any: ...
    def aborrow(self) -> Any: ...
    def distrust(self) -> None: ...
    async def adistrust(self) -> None: ...
    def forget(self) -> None: ...
    def stats(self) -> dict[str, Any]: ...
    def drop(self) -> None: ...
    def close(self) -> None: ...
    async def aclose(self) -> None: ...


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

    Args:
        source: What the caller gave.
        prepare: Whether to prepare statements; None finds out for each connection whether it is direct.
        read_only: Whether the database has to refuse everything that is not a read.
        min_size: Connections that each pool keeps open.
        max_size: The largest number of connections in each pool.
        pool_timeout: Seconds to wait for a free connection.
        connect_timeout: Seconds to wait for a new connection.
    """
    if isinstance(source, str) or callable(source):
        if not pool_timeout > 0:
            raise ConfigError(f"pool_timeout must be more than 0 seconds, not {pool_timeout!r}")
        if not 0 <= min_size <= max_size or max_size < 1:
            raise ConfigError(f"pool sizes must be 0 <= min_size <= max_size, not {min_size} and {max_size}")
        if isinstance(source, str):
            checked(source)
        kwargs = {
            **_OURS,
            "connect_timeout": max(1, round(connect_timeout)),
            "fallback_application_name": "langgraph-checkpoint-custom",
        }
        sessions = Sessions(own=True, prepare=prepare, read_only=read_only)
        return OwnPools(source, kwargs, sessions, min_size, max_size, pool_timeout), sessions
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


class _CallersBorrowing(Borrowing):
    """What is borrowed from a caller's pool: in autocommit until it is given back."""

    def __init__(self, pool: SyncPool) -> None:
        super().__init__(pool)
        self._changed: set[SyncConnection] = set()

    def take(self) -> SyncConnection:
        connection = super().take()
        if not connection.autocommit:
            connection.autocommit = True
            self._changed.add(connection)
        return connection

    def give(self, connection: SyncConnection) -> None:
        if connection in self._changed:
            self._changed.discard(connection)
            try:
                connection.rollback()
                connection.autocommit = False
            except Error:
                connection.close()  # The pool creates another one.
        super().give(connection)


class _CallersLoopBorrowing(LoopBorrowing):
    """Async version of `_CallersBorrowing`."""

    def __init__(self, pool: LoopPool) -> None:
        super().__init__(pool)
        self._changed: set[LoopConnection] = set()

    async def take(self) -> LoopConnection:
        connection = await super().take()
        if not connection.autocommit:
            self._changed.add(connection)
            try:
                await connection.set_autocommit(True)
            except BaseException:
                await self.give(connection)
                raise
        return connection

    async def give(self, connection: LoopConnection) -> None:
        # A task of its own: the pool may be locked by others, and loses the connection if this task is cancelled.
        await asyncio.shield(asyncio.ensure_future(self._given(connection)))

    async def _given(self, connection: LoopConnection) -> None:
        if connection in self._changed:
            self._changed.discard(connection)
            try:
                await connection.rollback()
                await connection.set_autocommit(False)
            except Error:
                await connection.close()
        await super().give(connection)


class CallersPool:
    """A caller's pool, sync or async; calls of the other kind use own pools with the same connection settings."""

    replaceable = True
    by_worker = False
    loop: Callable[[], asyncio.AbstractEventLoop] | None = None

    def __init__(self, pool: SyncPool | LoopPool, sessions: Sessions) -> None:
        self._pool = pool
        kwargs = {**(pool.kwargs if isinstance(pool.kwargs, dict) else {}), **_OURS}
        self._other = OwnPools(pool.conninfo, kwargs, sessions, 0, pool.max_size or 20, pool.timeout)
        self._workers = _CallersBorrowing(pool) if isinstance(pool, ConnectionPool) else None
        self._loop = _CallersLoopBorrowing(pool) if isinstance(pool, AsyncConnectionPool) else None
        self._of_parent = False

    @property
    def by_worker(self) -> bool:
        """Whether the running event loop cannot have a pool; a caller's async one cannot work there."""
        found = self._other.by_worker
        if found and isinstance(self._pool, AsyncConnectionPool):
            raise ConfigError(
                "psycopg's AsyncConnectionPool cannot work in this event loop (the default on Windows), which cannot "
                "wait for sockets; give PostgresSaver a connection string or a ConnectionPool, or run the program in "
                "an asyncio.SelectorEventLoop"
            )
        return found

    def borrow(self) -> Any:
        """Borrow a connection for an OS thread."""
        _check_ours(self._of_parent)
        return self._workers or self._other.borrowing()

    def aborrowing(self) -> LoopBorrowing | None:
        """Return what the running event loop borrows from; None if `aopen` has to open a pool first."""
        _check_ours(self._of_parent)
        return self._loop or self._other.aborrowing()

    async def aopen(self) -> LoopBorrowing:
        """Open the pool of the running event loop."""
        return await self._other.aopen()

    def renew(self) -> None:
        """Replace the idle connections that do not answer; those of others may be intact."""
        self._pool.check() if isinstance(self._pool, ConnectionPool) else self._other.renew()

    async def arenew(self) -> None:
        """Async version of `renew`."""
        await (self._pool.check() if isinstance(self._pool, AsyncConnectionPool) else self._other.arenew())

    def forget(self) -> None:
        """Leave the caller's pool to the parent of this forked process."""
        self._of_parent = True
        self._other.forget()

    def stats(self) -> dict[str, Any]:
        """Return psycopg_pool's statistics of the caller's pool and of the own pools."""
        return {"given": self._pool.get_stats(), **self._other.stats()}

    def drop(self) -> None:
        """Close the own pools of a saver that was dropped."""
        self._other.drop()

    def close(self) -> None:
        """Close the own pools; the caller's stays open."""
        self._other.close()

    async def aclose(self) -> None:
        """Async version of `close`."""
        await self._other.aclose()


class _Alone:
    """A caller's connection, borrowed by one OS thread at a time."""

    def __init__(self, connection: SyncConnection) -> None:
        self._connection = connection
        self._lock = threading.Lock()

    def take(self) -> SyncConnection:
        self._lock.acquire()
        return self._connection

    def give(self, connection: SyncConnection) -> None:
        self._lock.release()


class _AloneInLoop:
    """A caller's connection, borrowed by one task at a time."""

    def __init__(self, connection: LoopConnection) -> None:
        self._connection = connection
        self._lock = asyncio.Lock()

    async def take(self) -> LoopConnection:
        await self._lock.acquire()
        return self._connection

    async def give(self, connection: LoopConnection) -> None:
        self._lock.release()


class CallersConnection:
    """A caller's single connection, for one round trip or transaction at a time; the caller ends its own transactions.

    Sync and async calls both use it, in its own way.
    """

    replaceable = False

    def __init__(self, connection: SyncConnection | LoopConnection) -> None:
        self._alone: Any = _Alone(connection) if isinstance(connection, Connection) else _AloneInLoop(connection)
        self.by_worker = isinstance(connection, Connection)
        self.loop = None if self.by_worker else self._running_loop
        self._seen_loop = asyncio._get_running_loop()  # A saver made in a loop, as LangGraph's has to be, uses that.
        self._of_parent = False

    def borrowing(self) -> Any:
        """Return what OS threads borrow from."""
        _check_ours(self._of_parent)
        return self._alone

    def aborrowing(self) -> Any:
        """Return what tasks borrow from."""
        _check_ours(self._of_parent)
        self._seen_loop = asyncio.get_running_loop()
        return self._alone

    async def aopen(self) -> Any:
        """Do as `aborrowing`: there is nothing to open."""
        return self.aborrowing()

    def _running_loop(self) -> asyncio.AbstractEventLoop:
        _check_ours(self._of_parent)
        loop = self._seen_loop
        if loop is None or not loop.is_running() or loop is asyncio._get_running_loop():
            raise ConfigError(
                "this saver has an AsyncConnection, so a sync call needs its event loop to run in another OS thread; "
                "use the async methods here, or give PostgresSaver a connection string or a pool"
            )
        return loop

    def renew(self) -> None:
        """Do nothing: there is no other connection."""

    async def arenew(self) -> None:
        """Async version of `renew`."""

    def forget(self) -> None:
        """Leave the connection to the parent of this forked process."""
        self._of_parent = True

    def stats(self) -> dict[str, Any]:
        """Return nothing: there are no statistics."""
        return {}

    def drop(self) -> None:
        """Do nothing: the caller closes the connection."""

    def close(self) -> None:
        """Do nothing: the caller closes the connection."""

    async def aclose(self) -> None:
        """Async version of `close`."""
