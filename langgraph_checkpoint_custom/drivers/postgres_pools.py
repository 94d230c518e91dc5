"""Pools on PostgreSQL, and what is borrowed from them: one pool for all OS threads, and one for each event loop.

A pool of ours is opened on first use. A connection cannot leave its loop, and a loop that ends takes its pool with it:
a task of ours is cancelled then and closes the pool. (psycopg_pool's own tasks can take a cancellation for a failed
attempt to connect, and `asyncio.run` would wait for them forever.) If a loop was closed without cancelling its tasks,
its connections are closed when a pool for another loop is opened, or with the saver.

psycopg_pool connects in the background, and reports only that no connection came in time. So a connection is tried
before a pool is opened, and when a pool gave none although not all are borrowed: a wrong password or address is
reported in the server's words. If several calls come first, one of them tries, and if that fails, all of them fail: on
a network that drops packets, each would take `connect_timeout`, one after the other.

Must not know: statements, operations.
"""

from __future__ import annotations

import asyncio
import atexit
import itertools
import threading
import time
import weakref
from collections.abc import Callable, Hashable, Iterator
from concurrent.futures import CancelledError, TimeoutError
from contextlib import closing, contextmanager, suppress
from functools import partial
from typing import Any

from psycopg import AsyncConnection, Connection, Error, OperationalError
from psycopg_pool import AsyncConnectionPool, ConnectionPool, PoolTimeout

from langgraph_checkpoint_custom.drivers.postgres_address import Address, aresolve, resolve
from langgraph_checkpoint_custom.drivers.postgres_sessions import Sessions
from langgraph_checkpoint_custom.drivers.workers import warn_unclosed
from langgraph_checkpoint_custom.engine.batching import Queue
from langgraph_checkpoint_custom.errors import closed

SyncConnection = Connection[Any]
LoopConnection = AsyncConnection[Any]
SyncPool = ConnectionPool[SyncConnection]
LoopPool = AsyncConnectionPool[LoopConnection]
POOL_NAME = "langgraph-checkpoint-custom"
# Seconds after which a pool that cannot connect starts over, with pauses of one and two seconds. Otherwise each pause
# is twice as long as the one before, and a server that is back stays unused for as long again as it was away.
RECONNECT_TIMEOUT = 5.0
# Calls of an event loop that are sent alone at the same time; more of them are sent together. With 64 tasks, the
# client's CPU time of a call was 160 µs with 2, 190 with 4, 290 with 8 and 420 with 20; with 8 tasks, the number did
# not matter. Each call that is sent alone is served by a process of its own.
ALONE = 8
# Seconds that `close` waits for an event loop of another OS thread to close its pool, which takes milliseconds.
CLOSE_TIMEOUT = 1.0
_NUMBERS = itertools.count(1)


class Borrowing:
    """A pool for OS threads, and the connections that this saver has borrowed from it.

    Args:
        pool: The pool.
        attempt: Makes a connection as the pool does, to find out why the pool has none; None for a caller's pool.
    """

    def __init__(self, pool: SyncPool, attempt: Callable[[], None] | None = None) -> None:
        self.pool = pool
        self._attempt = attempt
        self._lent: set[SyncConnection] = set()

    def take(self) -> SyncConnection:
        """Borrow a connection."""
        try:
            connection = self.pool.getconn()
        except PoolTimeout:
            if self._attempt is None or len(self._lent) >= self.pool.max_size:  # All are busy.
                raise
            self._attempt()
            raise _not_connected() from None
        self._lent.add(connection)
        return connection

    def give(self, connection: SyncConnection) -> None:
        """Give a connection back."""
        self._lent.discard(connection)
        self.pool.putconn(connection)


class LoopBorrowing:
    """The same for the pool of an event loop, and the queues of the calls that wait for a batch.

    Args:
        pool: The pool.
        attempt: As for `Borrowing`.
    """

    def __init__(self, pool: LoopPool, attempt: Callable[[], Any] | None = None) -> None:
        self.pool = pool
        self.size = min(pool.max_size, ALONE)
        self.users = 0  # Tasks that have a connection or wait for one.
        self.lent: set[LoopConnection] = set()
        self.queues: dict[Hashable, Queue[Any]] = {}
        self.batches: set[asyncio.Task[None]] = set()  # A loop references its tasks only weakly.
        self._attempt = attempt

    async def take(self) -> LoopConnection:
        """Borrow a connection."""
        self.users += 1
        try:
            connection = await self.pool.getconn()
        except BaseException as error:
            self.users -= 1
            if isinstance(error, PoolTimeout) and self._attempt is not None and len(self.lent) < self.pool.max_size:
                await self._attempt()
                raise _not_connected() from None
            raise
        self.lent.add(connection)
        return connection

    async def give(self, connection: LoopConnection) -> None:
        """Give a connection back."""
        self.users -= 1
        self.lent.discard(connection)
        if self.users > len(self.lent):
            # The pool is locked while it passes a connection on, and would lose this one if the task is cancelled then.
            await asyncio.shield(asyncio.ensure_future(self.pool.putconn(connection)))
        else:
            await self.pool.putconn(connection)


def _not_connected() -> OperationalError:
    return OperationalError("the server answers, but the pool has not connected yet")


class OwnPools:
    """Pools that are opened on first use and closed with the saver.

    Args:
        address: The connection string, or a function that returns one.
        kwargs: psycopg's arguments for each connection.
        sessions: Finds out about each new session.
        min_size: Connections that each pool keeps open.
        max_size: The largest number of connections in each pool.
        pool_timeout: Seconds to wait for a free connection.
    """

    replaceable = True
    by_worker = False
    loop: Callable[[], asyncio.AbstractEventLoop] | None = None

    def __init__(
        self,
        address: Address,
        kwargs: dict[str, Any],
        sessions: Sessions,
        min_size: int,
        max_size: int,
        pool_timeout: float,
    ) -> None:
        self._address = address
        self._kwargs = kwargs
        self._sessions = sessions
        self._options: dict[str, Any] = {
            "kwargs": kwargs,
            "min_size": min_size,
            "max_size": max_size,
            "timeout": pool_timeout,
            "name": f"{POOL_NAME}-{next(_NUMBERS)}",
            "reconnect_timeout": RECONNECT_TIMEOUT,
            "open": False,
        }
        # A pool waits for its first connections, or else it would make one more for the waiting call.
        self._opening_timeout: float = max(pool_timeout, kwargs.get("connect_timeout", 0))
        self._closed = False
        self._workers: Borrowing | None = None
        self._opening = threading.Lock()  # For the first use by several OS threads; unused later.
        self._failure = _Failure()
        self._loops: dict[asyncio.AbstractEventLoop, _Loop] = {}
        _ALL.add(self)

    # Sync

    def borrowing(self) -> Borrowing:
        """Return what the OS threads borrow from."""
        return self._workers or self._open()

    def _open(self) -> Borrowing:
        since = time.monotonic()
        with self._opening:
            self._check_open()
            if self._workers is None:
                with self._failure.shared(since):
                    self._workers = Borrowing(self._opened(), self._attempt)
                if self._closed:  # A concurrent `close` found nothing to close yet.
                    self.close()
                    self._check_open()
            return self._workers

    def _opened(self) -> SyncPool:
        self._attempt()
        pool: SyncPool = ConnectionPool(
            partial(resolve, self._address),
            configure=self._configure,
            reconnect_failed=_retry_if_awaited,
            **self._options,
        )
        try:
            pool.open(wait=True, timeout=self._opening_timeout)
        except PoolTimeout as error:
            raise self._too_few() from error
        return pool

    def _configure(self, connection: SyncConnection) -> None:
        self._sessions.inspect(connection)

    def _attempt(self) -> None:
        with closing(Connection.connect(resolve(self._address), **self._kwargs)) as connection:
            self._configure(connection)

    # Async

    def aborrowing(self) -> LoopBorrowing | None:
        """Return what the running event loop borrows from; None if `aopen` has to open its pool first."""
        entry = self._loops.get(asyncio.get_running_loop())
        return None if entry is None else entry.borrowing

    async def aopen(self) -> LoopBorrowing:
        """Open the pool of the running event loop, if it is not open."""
        since, loop = time.monotonic(), asyncio.get_running_loop()
        self._check_open()
        self._finish_closed_loops()
        entry = self._loops.get(loop)
        if entry is None:
            entry = self._loops[loop] = _Loop(loop)
        async with entry.opening:
            self._check_open()
            if entry.borrowing is None:
                with entry.failure.shared(since):
                    await entry.open(await self._aopened(entry), self._aattempt, self._loops)
            if self._closed:
                await entry.close()
                self._check_open()
            assert entry.borrowing is not None
            return entry.borrowing

    async def _aopened(self, entry: _Loop) -> LoopPool:
        await self._aattempt()
        pool: LoopPool = AsyncConnectionPool(
            partial(aresolve, self._address),
            configure=partial(self._aconfigure, entry),
            reconnect_failed=_aretry_if_awaited,
            **self._options,
        )
        try:
            await pool.open(wait=True, timeout=self._opening_timeout)
        except PoolTimeout as error:
            raise self._too_few() from error
        except BaseException:  # It may have been cancelled, after its workers have started.
            await pool.close()
            raise
        return pool

    async def _aconfigure(self, entry: _Loop, connection: LoopConnection) -> None:
        entry.connections.add(connection)
        await self._sessions.ainspect(connection)

    async def _aattempt(self) -> None:
        connection = await AsyncConnection.connect(await aresolve(self._address), **self._kwargs)
        try:
            await self._sessions.ainspect(connection)
        finally:
            await connection.close()

    # Shared by sync and async

    def _too_few(self) -> OperationalError:
        """Return the error for a pool whose first connections did not all come; psycopg_pool has closed the pool."""
        return OperationalError(
            f"the pool could not open its first {self._options['min_size']} connections within "
            f"{self._opening_timeout:g} s; lower min_size, or raise max_connections on the server"
        )

    def _check_open(self) -> None:
        if self._closed:
            raise closed()

    def _finish_closed_loops(self) -> None:
        for loop in list(self._loops):  # Other OS threads add and remove loops concurrently.
            if loop.is_closed() and (entry := self._loops.pop(loop, None)) is not None:
                entry.finish()

    def renew(self) -> None:
        """Replace the idle connections after one was lost: a restarted server has broken all of them."""
        if self._workers is not None:
            self._workers.pool.drain()

    async def arenew(self) -> None:
        """Async version of `renew`."""
        if (borrowing := self.aborrowing()) is not None:
            await borrowing.pool.drain()

    def forget(self) -> None:
        """Leave all pools to the parent of this forked process."""
        _OF_PARENT.append((self._workers, self._loops))
        self._opening = threading.Lock()
        self._workers, self._loops = None, {}

    def stats(self) -> dict[str, Any]:
        """Return psycopg_pool's statistics of the OS threads' pool and of the event loops' pools."""
        loops = [entry.borrowing for entry in list(self._loops.values())]
        return {
            "workers": self._workers.pool.get_stats() if self._workers else {},
            "loops": [each.pool.get_stats() for each in loops if each is not None],
        }

    def drop(self) -> None:
        """Close what is still open, on another OS thread, and warn: a finalizer may interrupt any code."""
        if self._workers is not None or self._loops:
            threading.Thread(target=self.close, name=f"{POOL_NAME}-drop", daemon=True).start()
            warn_unclosed("PostgreSQL")

    def close(self) -> None:
        """Close all pools; those of other running loops are closed there."""
        self._closed = True
        workers, self._workers = self._workers, None
        if workers is not None:
            workers.pool.close()
        for loop in list(self._loops):
            if (entry := self._loops.pop(loop, None)) is not None:
                entry.close_from_outside(loop)

    async def aclose(self) -> None:
        """Close all pools, that of the running loop before this returns."""
        self._closed = True
        if (entry := self._loops.pop(asyncio.get_running_loop(), None)) is not None:
            await entry.close()
        await asyncio.to_thread(self.close)


class _Loop:
    """An event loop's pool, the task that closes it, and its connections, for a loop that ends without cancelling."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.opening = asyncio.Lock()
        self.failure = _Failure()
        self.borrowing: LoopBorrowing | None = None
        self.connections: weakref.WeakSet[LoopConnection] = weakref.WeakSet()
        self._loop = loop
        self._life: asyncio.Task[None] | None = None

    async def open(
        self, pool: LoopPool, attempt: Callable[[], Any], loops: dict[asyncio.AbstractEventLoop, _Loop]
    ) -> None:
        """Use a pool for as long as the event loop runs."""
        self.borrowing = LoopBorrowing(pool, attempt)
        self._life = asyncio.create_task(self._live(self.borrowing, loops), name=f"{POOL_NAME}-life")
        await asyncio.sleep(0)  # A task that is cancelled before its first step does nothing.

    async def _live(self, borrowing: LoopBorrowing, loops: dict[asyncio.AbstractEventLoop, _Loop]) -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:  # Not GeneratorExit, at garbage collection: there is no loop then.
            loops.pop(self._loop, None)  # If the loop runs on anyway, the next call makes a new pool.
            try:
                await borrowing.pool.close()
            finally:  # Closing does not reach the connections if the pool's workers were cancelled as well.
                self.finish()
            raise

    async def close(self) -> None:
        """Close the pool if it is open."""
        if self._life is not None:
            self._life.cancel()
            await asyncio.wait([self._life])

    def close_from_outside(self, loop: asyncio.AbstractEventLoop) -> None:
        """Close the pool from another OS thread, or while the loop does not run."""
        if loop.is_running():
            ended = asyncio.run_coroutine_threadsafe(self.close(), loop)
            if asyncio._get_running_loop() is not loop:  # Otherwise it would wait for itself.
                with suppress(TimeoutError, CancelledError):
                    ended.result(CLOSE_TIMEOUT)
            return
        if self._life is not None and not loop.is_closed():
            loop.call_soon_threadsafe(self._life.cancel)
        self.finish()

    def finish(self) -> None:
        """Close the connections that nobody has borrowed, which needs no event loop."""
        lent = set() if self.borrowing is None or self._loop.is_closed() else self.borrowing.lent
        for connection in set(self.connections) - lent:
            connection.pgconn.finish()


class _Failure:
    """Why the last attempt to open a pool failed; the calls that waited for it raise the same error."""

    def __init__(self) -> None:
        self._error: Error | None = None
        self._at = 0.0

    @contextmanager
    def shared(self, since: float) -> Iterator[None]:
        """Run an attempt, or raise the error of one that has failed since then."""
        if self._error is not None and self._at >= since:
            raise self._error.with_traceback(None)
        self._error = None
        try:
            yield
        except Error as error:
            self._error, self._at = error, time.monotonic()
            raise


def _retry_if_awaited(pool: SyncPool) -> None:
    """Make a pool try again as long as a call waits for a connection."""
    if pool.get_stats().get("requests_waiting"):
        pool.check()


async def _aretry_if_awaited(pool: LoopPool) -> None:
    """Async version of `_retry_if_awaited`."""
    if pool.get_stats().get("requests_waiting"):
        await pool.check()


# The parent's pools, in a forked process: referenced, because collecting them would end the parent's sessions.
_OF_PARENT: list[Any] = []
_ALL: weakref.WeakSet[OwnPools] = weakref.WeakSet()


@atexit.register
def _close_all() -> None:
    """Close all pools at the end of the process, so that savers need not be closed."""
    for pools in list(_ALL):
        pools.close()
