"""Pools on PostgreSQL: one for all OS threads, and one for each event loop.

A pool of ours is opened on first use. A loop in which psycopg cannot wait, as the default one of Windows, has none; its
calls run on workers. A connection cannot leave its loop, and a loop that ends takes its pool with it: a task of ours is
cancelled then and closes the pool. (psycopg_pool's own tasks can take a cancellation for a failed attempt to connect,
and `asyncio.run` would wait for them forever.) If a loop was closed without cancelling its tasks, its connections are
closed when a pool for another loop is opened, or with the saver.

psycopg_pool connects in the background, and reports only that no connection came in time. So a connection is tried
before a pool is opened, and when a pool gave none although some of its connections are not in use: a wrong password or
address is reported in the server's words. If several calls come first, one of them tries, and if that fails, all of
them fail: on a network that drops packets, each would take `connect_timeout`, one after the other.

Must not know: statements, operations.
"""

from __future__ import annotations

import asyncio
import atexit
import threading
import time
import weakref
from collections.abc import Callable
from concurrent.futures import CancelledError, TimeoutError
from contextlib import suppress
from functools import partial
from typing import Any

from psycopg import AsyncConnection, Connection, Error, OperationalError
from psycopg_pool import AsyncConnectionPool, ConnectionPool, PoolTimeout

from langgraph_checkpoint_custom.drivers.either import at_once, settled
from langgraph_checkpoint_custom.drivers.postgres_address import Address, aresolve, resolve
from langgraph_checkpoint_custom.drivers.postgres_batching import Batches
from langgraph_checkpoint_custom.drivers.postgres_sessions import Sessions
from langgraph_checkpoint_custom.drivers.workers import warn_unclosed
from langgraph_checkpoint_custom.errors import closed_error
from langgraph_checkpoint_custom.forks import Forked

SyncConnection = Connection[Any]
LoopConnection = AsyncConnection[Any]
SyncPool = ConnectionPool[SyncConnection]
LoopPool = AsyncConnectionPool[LoopConnection]
POOL_NAME = "langgraph-checkpoint-custom"
# Seconds after which a pool that cannot connect starts over, with pauses of one and two seconds. Otherwise each pause
# is twice as long as the one before, and a server that is back stays unused for as long again as it was away.
RECONNECT_TIMEOUT = 5.0
# Calls of an event loop that are sent alone at the same time, if its pool has as many connections; more of them are
# sent together. With 64 tasks, the client's CPU time of a call was 160 µs with 2, 190 with 4, 290 with 8 and 420 with
# 20; with 8 tasks, the number did not matter. Each call that is sent alone is served by a process of its own.
ALONE = 8
# Seconds that `close` waits for an event loop of another OS thread to close its pool, which takes milliseconds.
CLOSE_TIMEOUT = 1.0


class LoopSource:
    """The pool of an event loop, who uses it, and the calls that wait for a batch."""

    is_shared = True  # Whether somebody else uses the pool as well.

    def __init__(self, pool: LoopPool) -> None:
        self.pool = pool
        # Calls that are sent alone at the same time. A caller's pool that keeps no connections may have no maximum: 0.
        self.alone = min(pool.max_size or ALONE, ALONE)
        self.users = 0  # Tasks that have a connection or wait for one.
        self.lent: set[LoopConnection] = set()
        self.batches = Batches()

    async def getconn(self, timeout: float | None = None) -> LoopConnection:
        """Borrow a connection."""
        self.users += 1
        try:
            connection = await self.pool.getconn(timeout)
        except BaseException:
            self.users -= 1
            raise
        self.lent.add(connection)
        return connection

    async def putconn(self, connection: LoopConnection) -> None:
        """Give a connection back."""
        self.users -= 1
        self.lent.discard(connection)
        if self.is_shared or self.users > len(self.lent):
            # The pool is locked while it passes a connection on. It would lose this one if the task is cancelled then.
            await asyncio.shield(asyncio.ensure_future(self.pool.putconn(connection)))
        else:
            await self.pool.putconn(connection)


class Connections(Forked):
    """What the driver needs of a source of connections; `OwnPools` and `Callers` complete it."""

    is_pooled = True
    """Whether it has a pool: a new connection follows a broken one, so that a retry makes sense."""
    loop: Callable[[], asyncio.AbstractEventLoop] | None = None
    """Returns the event loop on which sync calls have to run the async method; None if they do not have to.

    Raises:
        ConfigError: Sync calls are not possible.
    """
    of_parent = False
    """Whether this process was forked from the one that may use the source."""

    @property
    def by_worker(self) -> bool:
        """Whether async calls have to run the sync method on a worker, as psycopg refuses Windows' default loop."""
        loop, refused = asyncio.get_running_loop(), getattr(asyncio, "ProactorEventLoop", ())
        return type(loop).add_reader is asyncio.AbstractEventLoop.add_reader or isinstance(loop, refused)

    def source(self) -> Any:
        """Return the pool of OS threads, opened, or what has its methods."""

    def loop_source(self) -> Any:
        """Return the same for tasks of the running event loop; None if `open_loop_source` has to open it first."""

    async def open_loop_source(self) -> Any:
        """Open and return what tasks of the running event loop borrow from, if it is not open."""

    async def renew(self, *, is_async: bool) -> None:
        """Replace idle connections, of OS threads or of the running event loop, after one was lost."""

    def after_fork(self) -> None:
        """Leave the connections to the parent of this forked process."""
        self.of_parent = True

    def stats(self) -> dict[str, Any]:
        """Return the statistics of the pools."""
        return {}

    def drop(self) -> None:
        """Close what is still open of a saver that was dropped."""

    def close(self) -> None:
        """Close what was opened."""

    async def aclose(self) -> None:
        """Close what was opened for the running event loop, before `close`."""


class OwnPools(Connections):
    """Pools that are opened on first use and closed with the saver.

    Args:
        address: The connection string, or a function that returns one.
        sessions: Finds out about each new session.
        kwargs: psycopg's arguments for each connection.
        connect_timeout: Seconds to wait for a connection, unless the connection string says how long.
        options: Arguments of each pool: its sizes and its timeout.
    """

    def __init__(
        self, address: Address, sessions: Sessions, kwargs: dict[str, Any], connect_timeout: int, **options: Any
    ) -> None:
        self._resolve = partial(resolve, address, connect_timeout)
        self._aresolve = partial(aresolve, address, connect_timeout)
        self._sessions = sessions
        self._kwargs = kwargs
        options |= {"kwargs": kwargs, "name": POOL_NAME, "reconnect_timeout": RECONNECT_TIMEOUT, "open": False}
        self._options = options
        # A pool waits for its first connections, or else it would make one more for the waiting call.
        self._opening_timeout: float = max(options["timeout"], connect_timeout)
        self._closed = False
        self._pool: SyncPool | None = None
        self._opening = threading.Lock()  # For the first use by several OS threads; unused later.
        self._failure: tuple[float, Error | None] = 0.0, None  # When the last attempt to open has failed, and why.
        self._loops: dict[asyncio.AbstractEventLoop, _OwnLoopSource] = {}
        _ALL.add(self)

    # Sync

    def source(self) -> SyncPool:
        return self._pool or self._open()

    def _open(self) -> SyncPool:
        since = time.monotonic()
        with self._opening:
            self._check_open()
            if self._pool is None:
                failed_at, failure = self._failure
                if failure is not None and failed_at >= since:
                    raise failure.with_traceback(None)
                try:
                    self._pool = self._opened_pool()
                except Error as error:
                    self._failure = time.monotonic(), error
                    raise
                if self._closed:  # A concurrent `close` found nothing to close yet.
                    self.close()
                    self._check_open()
            return self._pool

    def _opened_pool(self) -> SyncPool:
        def find_out() -> None:
            at_once(self._attempt(is_async=False))

        find_out()
        hooks: dict[str, Any] = {
            "configure": lambda connection: at_once(self._sessions.inspect(connection)),
            "reconnect_failed": lambda pool: at_once(_retry_if_awaited(pool)),
        }
        pool = _OwnPool(self._resolve, find_out, **hooks, **self._options)
        try:
            pool.open(wait=True, timeout=self._opening_timeout)
        except PoolTimeout as error:
            raise self._too_few() from error
        return pool

    # Async

    def loop_source(self) -> LoopSource | None:
        found = self._loops.get(asyncio.get_running_loop())
        return found if found is not None and found.opened.done() else None

    async def open_loop_source(self) -> LoopSource:
        self._check_open()
        for loop in list(self._loops):  # Other OS threads add and remove loops concurrently.
            if loop.is_closed() and (gone := self._loops.pop(loop, None)) is not None:
                gone.finish()
        loop = asyncio.get_running_loop()
        found = self._loops.get(loop)
        if found is None:
            find_out = partial(self._attempt, is_async=True)
            found = _OwnLoopSource(find_out, self._sessions, self._aresolve, self._options)
            self._loops[loop] = found
            found.life = loop.create_task(self._live(found), name=f"{POOL_NAME}-life")
            found.life.add_done_callback(found.ended)
        await asyncio.shield(found.opened)
        return found

    async def _live(self, found: _OwnLoopSource) -> None:
        """Open the pool of an event loop, and close it when the loop ends or the saver is closed."""
        # A task of its own: before Python 3.12 `asyncio.wait_for`, with which the pool waits, may lose a cancellation.
        opening = asyncio.ensure_future(self._open_pool_of(found))
        try:
            await asyncio.wait([opening])
            opening.result()
            self._check_open()  # A concurrent `close` found nothing to close yet.
            found.opened.set_result(None)
            await asyncio.Event().wait()
        except (Exception, asyncio.CancelledError) as error:  # Not GeneratorExit: there is no loop then.
            opening.cancel()
            loop = asyncio.get_running_loop()
            if self._loops.get(loop) is found:  # If the loop runs on anyway, the next call makes a new pool.
                del self._loops[loop]
            try:
                await asyncio.gather(opening, return_exceptions=True)
                await found.pool.close()
            finally:  # Closing does not reach the connections if the pool's workers were cancelled as well.
                found.finish()
            if isinstance(error, Exception):  # A cancellation would keep a connection that it has interrupted.
                raise

    async def _open_pool_of(self, found: _OwnLoopSource) -> None:
        await self._attempt(is_async=True)
        try:
            await found.pool.open(wait=True, timeout=self._opening_timeout)
        except PoolTimeout as error:
            raise self._too_few() from error

    # Shared by sync and async

    async def _attempt(self, *, is_async: bool) -> None:
        """Connect as the pool does, to find out why it has no connection."""
        kind: Any = AsyncConnection if is_async else Connection
        address = await self._aresolve() if is_async else self._resolve()
        connection = await settled(kind.connect(address, **self._kwargs))
        try:
            await self._sessions.inspect(connection)
        finally:
            await settled(connection.close())

    async def renew(self, *, is_async: bool) -> None:
        pool: Any = self._pool
        if is_async:
            source = self.loop_source()
            pool = source and source.pool
        if pool is not None:  # A restarted server has broken all of its connections.
            await settled(pool.drain())

    def _too_few(self) -> OperationalError:
        """Return the error for a pool whose first connections did not all come; psycopg_pool has closed the pool."""
        return OperationalError(
            f"the pool could not open its first {self._options['min_size']} connections within "
            f"{self._opening_timeout:g} s; lower min_size, or raise max_connections on the server"
        )

    def _check_open(self) -> None:
        if self._closed:
            raise closed_error()

    def after_fork(self) -> None:
        super().after_fork()
        _OF_PARENT.append((self._pool, self._loops))
        self._opening = threading.Lock()
        self._pool, self._loops = None, {}

    def stats(self) -> dict[str, Any]:
        loops = [each.pool.get_stats() for each in list(self._loops.values()) if each.opened.done()]
        return {"workers": self._pool.get_stats() if self._pool else {}, "loops": loops}

    def drop(self) -> None:
        """Close the pools on another OS thread, and warn: a finalizer may interrupt any code."""
        if self._pool is not None or self._loops:
            threading.Thread(target=self.close, name=f"{POOL_NAME}-drop", daemon=True).start()
            warn_unclosed("PostgreSQL")

    def close(self) -> None:
        """Close all pools; those of other running loops are closed there."""
        self._closed = True
        pool, self._pool = self._pool, None
        if pool is not None:
            pool.close()
        for loop in list(self._loops):
            entry = self._loops.pop(loop, None)
            if entry is not None and loop.is_running():
                ended = asyncio.run_coroutine_threadsafe(entry.close(), loop)
                if asyncio._get_running_loop() is not loop:  # Otherwise it would wait for itself.
                    with suppress(TimeoutError, CancelledError):
                        ended.result(CLOSE_TIMEOUT)
            elif entry is not None:
                if not loop.is_closed():
                    loop.call_soon_threadsafe(entry.life.cancel)
                entry.finish()

    async def aclose(self) -> None:
        self._closed = True
        if (entry := self._loops.pop(asyncio.get_running_loop(), None)) is not None:
            await entry.close()


class _OwnPool(ConnectionPool[SyncConnection]):
    """The pool of OS threads; if it has no connection, `find_out` raises the reason, unless all are busy."""

    def __init__(self, address: Any, find_out: Callable[[], None], **options: Any) -> None:
        super().__init__(address, **options)
        self._find_out = find_out
        self._borrowed: set[SyncConnection] = set()

    def getconn(self, timeout: float | None = None) -> SyncConnection:
        """Borrow a connection."""
        try:
            connection = super().getconn(timeout)
        except PoolTimeout:
            if len(self._borrowed) >= self.max_size:
                raise
            self._find_out()
            raise _not_connected() from None
        self._borrowed.add(connection)
        return connection

    def putconn(self, conn: SyncConnection) -> None:
        """Give a connection back."""
        try:
            self._borrowed.discard(conn)
            super().putconn(conn)
        except BaseException:  # Ctrl-C, for example.
            with suppress(ValueError):  # The pool has it already.
                super().putconn(conn)
            raise


class _OwnLoopSource(LoopSource):
    """What is borrowed from a pool of ours in the running event loop, the task that opens and closes it, and all of its
    connections: a loop that was closed without cancelling its tasks leaves them open.
    """

    is_shared = False
    life: asyncio.Task[None]

    def __init__(self, find_out: Callable[[], Any], sessions: Sessions, address: Any, options: dict[str, Any]) -> None:
        self._find_out = find_out
        self._sessions = sessions
        self._connections: weakref.WeakSet[LoopConnection] = weakref.WeakSet()
        self._loop = asyncio.get_running_loop()
        self.opened: asyncio.Future[None] = self._loop.create_future()
        hooks: dict[str, Any] = {"configure": self._configure, "reconnect_failed": _retry_if_awaited}
        super().__init__(AsyncConnectionPool(address, **hooks, **options))

    async def getconn(self, timeout: float | None = None) -> LoopConnection:
        """Borrow a connection; if there is none, raise the reason, as `_OwnPool` does."""
        try:
            return await super().getconn(timeout)
        except PoolTimeout:
            if len(self.lent) >= self.pool.max_size:
                raise
            await self._find_out()
            raise _not_connected() from None

    async def _configure(self, connection: LoopConnection) -> None:
        self._connections.add(connection)
        await self._sessions.inspect(connection)

    def ended(self, life: asyncio.Task[None]) -> None:
        """Tell the calls that wait for the pool why it was not opened."""
        if not self.opened.done():
            self.opened.set_exception((None if life.cancelled() else life.exception()) or closed_error())
            self.opened.exception()  # The calls that waited may have been cancelled.

    async def close(self) -> None:
        """Close the pool."""
        self.life.cancel()
        await asyncio.wait([self.life])

    def finish(self) -> None:
        """Close the connections that nobody has borrowed, which needs no event loop."""
        for connection in set(self._connections) - (set() if self._loop.is_closed() else self.lent):
            connection.pgconn.finish()


def _not_connected() -> OperationalError:
    return OperationalError("the server answers, but the pool has not connected yet")


async def _retry_if_awaited(pool: SyncPool | LoopPool) -> None:
    """Make a pool try again as long as a call waits for a connection."""
    if pool.get_stats().get("requests_waiting"):
        await settled(pool.check())


# The parent's pools, in a forked process: referenced, because collecting them would end the parent's sessions.
_OF_PARENT: list[Any] = []
_ALL: weakref.WeakSet[OwnPools] = weakref.WeakSet()


@atexit.register
def _close_all() -> None:
    """Close all pools at the end of the process, so that savers need not be closed."""
    for pools in list(_ALL):
        for loop, entry in list(pools._loops.items()):
            if not (loop.is_running() or loop.is_closed()):  # Nobody else will run it.
                with suppress(Exception):
                    loop.run_until_complete(asyncio.wait_for(entry.close(), CLOSE_TIMEOUT))
        pools.close()
