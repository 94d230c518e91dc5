"""Sources of PostgreSQL connections: pools of our own, or a pool or connection of the caller."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any, Protocol

from psycopg import AsyncConnection, Connection, Error
from psycopg_pool import AsyncConnectionPool, ConnectionPool

from langgraph_checkpoint_custom.drivers.postgres_address import Address, checked
from langgraph_checkpoint_custom.drivers.postgres_pools import (
    LoopConnection,
    LoopPool,
    OwnPools,
    SyncConnection,
    SyncPool,
)
from langgraph_checkpoint_custom.errors import ConfigError

# Settings of each connection that we create. The server, the role or the environment may set another client_encoding.
_OURS: dict[str, Any] = {"autocommit": True, "client_encoding": "UTF8"}

Source = Address | SyncPool | LoopPool | SyncConnection | LoopConnection


class Connections(Protocol):
    """What the driver needs from a source of connections."""

    replaceable: bool
    """Whether a new connection follows a broken one, so that a retry makes sense."""

    own: bool
    """Whether the sessions belong to the saver, which may change their settings."""

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
    def close(self) -> None: ...
    async def aclose(self) -> None: ...


def connections_from(
    source: Source,
    *,
    min_size: int,
    max_size: int,
    pool_timeout: float,
    connect_timeout: float,
    answer_timeout: float,
) -> Connections:
    """Return the source of connections for what the caller gave."""
    if not answer_timeout > 0:
        raise ConfigError(f"answer_timeout must be more than 0 seconds, not {answer_timeout!r}")
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
        return OwnPools(source, kwargs, min_size, max_size, pool_timeout, answer_timeout)
    if isinstance(source, (ConnectionPool, AsyncConnectionPool)):
        return CallersPool(source)
    if isinstance(source, (Connection, AsyncConnection)):
        return CallersConnection(source)
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


@contextmanager
def _lent(pool: SyncPool) -> Iterator[SyncConnection]:
    """Borrow a connection of a caller's pool, in autocommit until it is returned."""
    with pool.connection() as connection:
        if connection.autocommit:
            yield connection
            return
        connection.autocommit = True
        try:
            yield connection
        finally:
            try:
                connection.rollback()
                connection.autocommit = False
            except Error:
                connection.close()  # The pool creates another one.


@asynccontextmanager
async def _alent(pool: LoopPool) -> AsyncIterator[LoopConnection]:
    """Async version of `_lent`.

    A task of its own returns the connection, because the pool loses it if the task that returns it is cancelled.
    """
    lent = pool.connection()
    connection = await lent.__aenter__()
    changed = not connection.autocommit
    error: BaseException | None = None

    async def give_back() -> None:
        if changed:
            try:
                await connection.rollback()
                await connection.set_autocommit(False)
            except Error:
                await connection.close()
        await lent.__aexit__(None if error is None else type(error), error, None)

    try:
        if changed:
            await connection.set_autocommit(True)
        yield connection
    except BaseException as raised:
        error = raised
        raise
    finally:
        await asyncio.shield(asyncio.ensure_future(give_back()))


class CallersPool:
    """A caller's pool, sync or async; calls of the other kind use own pools with the same connection settings."""

    replaceable = True
    own = False
    loop: Callable[[], asyncio.AbstractEventLoop] | None = None

    def __init__(self, pool: SyncPool | LoopPool) -> None:
        self._pool = pool
        kwargs = {**(pool.kwargs if isinstance(pool.kwargs, dict) else {}), **_OURS}
        self._other = OwnPools(pool.conninfo, kwargs, 0, pool.max_size or 20, pool.timeout)
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
        return _lent(self._pool) if isinstance(self._pool, ConnectionPool) else self._other.borrow()

    def aborrow(self) -> Any:
        """Borrow a connection for the running event loop."""
        _check_ours(self._of_parent)
        return _alent(self._pool) if isinstance(self._pool, AsyncConnectionPool) else self._other.aborrow()

    def distrust(self) -> None:
        """Close the idle connections that do not answer."""
        self._pool.check() if isinstance(self._pool, ConnectionPool) else self._other.distrust()

    async def adistrust(self) -> None:
        """Async version of `distrust`."""
        await (self._pool.check() if isinstance(self._pool, AsyncConnectionPool) else self._other.adistrust())

    def forget(self) -> None:
        """Leave the caller's pool to the parent of this forked process."""
        self._of_parent = True
        self._other.forget()

    def stats(self) -> dict[str, Any]:
        """Return psycopg_pool's statistics of the caller's pool and of the own pools."""
        return {"given": self._pool.get_stats(), **self._other.stats()}

    def close(self) -> None:
        """Close the own pools; the caller's stays open."""
        self._other.close()

    async def aclose(self) -> None:
        """Async version of `close`."""
        await self._other.aclose()


class CallersConnection:
    """A caller's single connection, for one operation at a time; the caller ends its own transactions."""

    replaceable = False
    own = False

    def __init__(self, connection: SyncConnection | LoopConnection) -> None:
        self._connection = connection
        self._lock = threading.Lock()
        self._loop_lock = asyncio.Lock()
        self.by_worker = isinstance(connection, Connection)
        self.loop = None if self.by_worker else self._running_loop
        self._seen_loop = asyncio._get_running_loop()  # A saver made in a loop, as LangGraph's has to be, uses that.
        self._of_parent = False

    @contextmanager
    def borrow(self) -> Iterator[SyncConnection]:
        """Borrow the connection."""
        _check_ours(self._of_parent)
        assert isinstance(self._connection, Connection)
        with self._lock:
            yield self._connection

    @asynccontextmanager
    async def aborrow(self) -> AsyncIterator[LoopConnection]:
        """Async version of `borrow`."""
        _check_ours(self._of_parent)
        assert isinstance(self._connection, AsyncConnection)
        self._seen_loop = asyncio.get_running_loop()
        async with self._loop_lock:
            yield self._connection

    def _running_loop(self) -> asyncio.AbstractEventLoop:
        _check_ours(self._of_parent)
        loop = self._seen_loop
        if loop is None or not loop.is_running() or loop is asyncio._get_running_loop():
            raise ConfigError(
                "this saver has an AsyncConnection, so a sync call needs its event loop to run in another OS thread; "
                "use the async methods here, or give PostgresSaver a connection string or a pool"
            )
        return loop

    def forget(self) -> None:
        """Leave the connection to the parent of this forked process."""
        self._of_parent = True

    def stats(self) -> dict[str, Any]:
        """Return nothing: there are no statistics."""
        return {}

    def distrust(self) -> None:
        """Do nothing: there is no other connection."""

    async def adistrust(self) -> None:
        """Async version of `distrust`."""

    def close(self) -> None:
        """Do nothing: the caller closes the connection."""

    async def aclose(self) -> None:
        """Async version of `close`."""
