"""Where PostgreSQL connections come from: pools of our own, or what a caller brings."""

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

# Of each connection that we make. The server's, the role's or the environment's client_encoding may be another one.
_OURS: dict[str, Any] = {"autocommit": True, "client_encoding": "UTF8"}

Source = Address | SyncPool | LoopPool | SyncConnection | LoopConnection


class Connections(Protocol):
    """What the driver needs of a source of connections."""

    replaceable: bool
    """Whether a broken connection is followed by a new one, so that trying again makes sense."""

    own: bool
    """Whether the sessions are the saver's, to be set as it likes."""

    by_worker: bool
    """Whether async calls have to run their sync twin on a worker."""

    loop: Callable[[], asyncio.AbstractEventLoop] | None
    """Gives the event loop on which sync calls have to run their async twin, if they have to; a ConfigError if they
    cannot."""

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
    """The connections for what a caller gave."""
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
            "this process was forked, and the connections that this saver was given are its parent's; make a saver "
            "with new ones after os.fork()"
        )


@contextmanager
def _lent(pool: SyncPool) -> Iterator[SyncConnection]:
    """A connection of a caller's pool, in autocommit for as long as it is lent."""
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
                connection.close()  # The pool makes another one.


@asynccontextmanager
async def _alent(pool: LoopPool) -> AsyncIterator[LoopConnection]:
    """The same, given back by a task of its own: the pool loses it if whoever does that is cancelled."""
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
    """A caller's pool for one colour; for the other one, own pools with the same connection settings."""

    replaceable = True
    own = False
    by_worker = False
    loop: Callable[[], asyncio.AbstractEventLoop] | None = None

    def __init__(self, pool: SyncPool | LoopPool) -> None:
        self._pool = pool
        kwargs = {**(pool.kwargs if isinstance(pool.kwargs, dict) else {}), **_OURS}
        self._other = OwnPools(pool.conninfo, kwargs, 0, pool.max_size or 20, pool.timeout)
        self._of_parent = False

    def borrow(self) -> Any:
        """A connection for an OS thread."""
        _check_ours(self._of_parent)
        return _lent(self._pool) if isinstance(self._pool, ConnectionPool) else self._other.borrow()

    def aborrow(self) -> Any:
        """A connection for the running loop."""
        _check_ours(self._of_parent)
        return _alent(self._pool) if isinstance(self._pool, AsyncConnectionPool) else self._other.aborrow()

    def distrust(self) -> None:
        """Drop the idle connections that do not answer."""
        self._pool.check() if isinstance(self._pool, ConnectionPool) else self._other.distrust()

    async def adistrust(self) -> None:
        """Drop the idle connections that do not answer."""
        await (self._pool.check() if isinstance(self._pool, AsyncConnectionPool) else self._other.adistrust())

    def forget(self) -> None:
        """Leave the caller's pool to the parent of this process, which was forked."""
        self._of_parent = True
        self._other.forget()

    def stats(self) -> dict[str, Any]:
        """What psycopg_pool counts of the caller's pool, and of those beside it."""
        return {"given": self._pool.get_stats(), **self._other.stats()}

    def close(self) -> None:
        """Close what is not the caller's."""
        self._other.close()

    async def aclose(self) -> None:
        """Close what is not the caller's."""
        await self._other.aclose()


class CallersConnection:
    """A caller's one connection, used by one operation at a time; its transaction stays the caller's."""

    replaceable = False
    own = False

    def __init__(self, connection: SyncConnection | LoopConnection) -> None:
        self._connection = connection
        self._lock = threading.Lock()
        self._loop_lock = asyncio.Lock()
        self.by_worker = isinstance(connection, Connection)
        self.loop = None if self.by_worker else self._running_loop
        self._seen_loop = asyncio._get_running_loop()  # Made in a loop, as LangGraph's saver has to be, it is that.
        self._of_parent = False

    @contextmanager
    def borrow(self) -> Iterator[SyncConnection]:
        """The connection."""
        _check_ours(self._of_parent)
        assert isinstance(self._connection, Connection)
        with self._lock:
            yield self._connection

    @asynccontextmanager
    async def aborrow(self) -> AsyncIterator[LoopConnection]:
        """The connection."""
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
        """Leave the connection to the parent of this process, which was forked."""
        self._of_parent = True

    def stats(self) -> dict[str, Any]:
        """There is nothing to count."""
        return {}

    def distrust(self) -> None:
        """There is no other connection."""

    async def adistrust(self) -> None:
        """There is no other connection."""

    def close(self) -> None:
        """The connection is the caller's."""

    async def aclose(self) -> None:
        """The connection is the caller's."""
