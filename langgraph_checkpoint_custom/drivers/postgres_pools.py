"""Pools of our own on PostgreSQL.

A pool is opened on first use: one for all OS threads, and one for each event loop, since a connection cannot leave its
loop. A loop in which psycopg cannot wait, as the default one of Windows, has none; its calls run on workers. A loop
that ends takes its pool with it: a task of ours is cancelled then and closes the pool. (The pool's own workers can take
a cancellation for a failed attempt to connect, and `asyncio.run` would wait for them forever.) If a loop was closed
without cancelling its tasks, the sockets are closed when a pool for the next loop is opened, or at the end of the
process.

psycopg_pool connects in the background, and reports only that no connection came in time. So the first connection of a
pool is made here and handed to the pool, and one more is tried after a timeout of the pool. A wrong password or address
is then reported immediately, in the server's words. After the first connection, opening waits until the pool has
`min_size` of them; otherwise the pool would make one more for the waiting call. If several calls come first, one of
them connects, and if that fails, all of them fail: on a network that drops packets, each would take `connect_timeout`,
one after the other.

If that attempt after a timeout succeeds, there are two cases. Either the pool is in a pause between two attempts and
connects soon. Or it makes no more connections: an interrupt while psycopg_pool hands a connection out or takes it back
loses that connection, but the pool counts it forever.

When a connection breaks, the pool drops those that are as old, as soon as they are idle: a restarted server has broken
all of them, and on a network that drops packets, checking each one would take `answer_timeout`.
"""

from __future__ import annotations

import asyncio
import atexit
import itertools
import logging
import threading
import time
import weakref
from collections.abc import AsyncIterator, Callable, Collection, Coroutine, Iterator
from concurrent.futures import CancelledError, TimeoutError
from contextlib import asynccontextmanager, contextmanager, suppress
from functools import partial
from typing import Any

from psycopg import AsyncConnection, Connection, Error, OperationalError
from psycopg_pool import AsyncConnectionPool, ConnectionPool, PoolTimeout

from langgraph_checkpoint_custom.drivers.postgres_address import Address
from langgraph_checkpoint_custom.drivers.postgres_waiting import TimedAsyncConnection, TimedConnection
from langgraph_checkpoint_custom.drivers.workers import waits_for_sockets, warn_unclosed
from langgraph_checkpoint_custom.errors import closed

SyncConnection = Connection[Any]
LoopConnection = AsyncConnection[Any]
SyncPool = ConnectionPool[SyncConnection]
LoopPool = AsyncConnectionPool[LoopConnection]
POOL_NAME = "langgraph-checkpoint-custom"
# Seconds after which a pool that cannot connect starts over, with pauses of one and two seconds. Otherwise each pause
# is twice as long as the one before, and a server that is back stays unused for as long again as it was away.
RECONNECT_TIMEOUT = 5.0
# Seconds that `close` waits for an event loop of another OS thread to close its pool, which takes milliseconds.
CLOSE_TIMEOUT = 1.0
_NUMBERS = itertools.count(1)


def _not_the_end_of_a_loop(record: logging.LogRecord) -> bool:
    """Whether to log a record of psycopg_pool: not if a pool of ours was connecting when its event loop ended."""
    match record.args:
        case (str(name), asyncio.CancelledError()):
            return not name.startswith(POOL_NAME)
        case (task, "CancelledError", _):
            return POOL_NAME not in repr(task)
    return True


class OwnPools:
    """Pools that are opened on first use and closed with the saver."""

    replaceable = True
    own = True
    loop: Callable[[], asyncio.AbstractEventLoop] | None = None

    def __init__(
        self,
        address: Address,
        kwargs: dict[str, Any],
        min_size: int,
        max_size: int,
        pool_timeout: float,
        answer_timeout: float | None = None,
    ) -> None:
        self._answer_timeout = answer_timeout
        self._options: dict[str, Any] = {
            "kwargs": {**kwargs, "address": address},
            "min_size": min_size,
            "max_size": max_size,
            "timeout": pool_timeout,
            "name": f"{POOL_NAME}-{next(_NUMBERS)}",
            "reconnect_timeout": RECONNECT_TIMEOUT,
            "open": False,
        }
        self._opening = threading.Lock()  # For the first use by several OS threads; unused later.
        self._failure = _Failure()
        self._lent: set[SyncConnection] = set()
        self._drained_at = 0.0
        self._held = _Held()
        weakref.finalize(self, self._held.drop).atexit = False

    @property
    def by_worker(self) -> bool:
        """Whether the running event loop cannot have a pool, because psycopg could not wait in it."""
        return not waits_for_sockets(asyncio.get_running_loop())

    @contextmanager
    def borrow(self) -> Iterator[SyncConnection]:
        """Borrow a connection of the pool that all OS threads share."""
        pool = self._held.pool
        if pool is None:
            pool = self._open()
        try:
            # Not `pool.connection()`: it ends with a commit of nothing, which takes 8 µs and more.
            connection = pool.getconn()
        except PoolTimeout:
            if len(self._lent) >= pool.max_size:  # All are busy, and one more would be too many.
                raise
            self._connect().close()
            with _detect_spent_pool(pool, self._lent):
                connection = pool.getconn(RECONNECT_TIMEOUT)
        self._lent.add(connection)
        try:
            yield connection
        except BaseException:
            with suppress(Error):
                connection.rollback()
            raise
        finally:
            self._lent.discard(connection)
            if connection.closed and connection.made_at > self._drained_at:
                self._drained_at = time.monotonic()
                pool.drain()
            pool.putconn(connection)

    @asynccontextmanager
    async def aborrow(self) -> AsyncIterator[LoopConnection]:
        """Borrow a connection of the running event loop's pool."""
        loop = asyncio.get_running_loop()
        entry = self._held.loops.get(loop)
        if entry is None or entry.ending:
            self._held.check_open()
            self._held.reap()
            entry = self._held.loops[loop] = _LoopEntry(self._options, self._answer_timeout)
        if entry.life is None:
            since = time.monotonic()
            async with entry.opening:
                self._held.check_open()
                if entry.life is None:
                    with entry.failure.shared(since):
                        await entry.open(await self._aconnect())
                if self._held.closed:  # A concurrent `close` found nothing to close yet.
                    await entry.close()
                    self._held.check_open()
        try:
            connection = await entry.pool.getconn()
        except PoolTimeout:
            if len(entry.lent) >= entry.pool.max_size:
                raise
            await (await self._aconnect()).close()
            with _detect_spent_pool(entry.pool, entry.lent):
                connection = await entry.pool.getconn(RECONNECT_TIMEOUT)
        entry.lent.add(connection)
        try:
            yield connection
        except BaseException:
            with suppress(Error):
                await connection.rollback()
            raise
        finally:
            entry.lent.discard(connection)
            try:
                if connection.closed and connection.made_at > entry.drained_at:
                    entry.drained_at = time.monotonic()
                    await entry.pool.drain()
            finally:
                # In a task of its own: the pool loses a connection if the task that returns it is cancelled.
                await asyncio.shield(asyncio.ensure_future(entry.pool.putconn(connection)))

    def distrust(self) -> None:
        """Do nothing: `borrow` has already dropped the connections that are as old as the broken one."""

    async def adistrust(self) -> None:
        """Async version of `distrust`."""

    def forget(self) -> None:
        """Leave all pools to the parent of this forked process."""
        self._opening = threading.Lock()
        self._lent = set()
        self._held.forget()

    def stats(self) -> dict[str, Any]:
        """Return psycopg_pool's statistics of the OS threads' pool and of the event loops' pools."""
        pool = self._held.pool
        loops = [entry.pool for entry in list(self._held.loops.values()) if entry.life is not None]
        return {"workers": pool.get_stats() if pool else {}, "loops": [pool.get_stats() for pool in loops]}

    def close(self) -> None:
        """Close all pools; those of other running loops are closed there."""
        self._held.close()

    async def aclose(self) -> None:
        """Close all pools, that of the running loop before this returns."""
        self._held.closed = True
        entry = self._held.loops.pop(asyncio.get_running_loop(), None)
        if entry is not None:
            await entry.close()
        await asyncio.to_thread(self._held.close)

    def _open(self) -> ConnectionPool[TimedConnection]:
        since = time.monotonic()
        with self._opening:
            self._held.check_open()
            pool = self._held.pool
            if pool is None:
                with self._failure.shared(since):
                    pool = self._held.pool = self._opened(self._connect())
                if self._held.closed:  # A concurrent `close` found nothing to close yet.
                    self._held.close()
                    self._held.check_open()
            return pool

    def _opened(self, first: TimedConnection) -> ConnectionPool[TimedConnection]:
        made = [first]
        pool = ConnectionPool(
            **_beginning_with(made, self._options),
            connection_class=TimedConnection,
            configure=partial(_set_answer_timeout, self._answer_timeout),
            reconnect_failed=_retry_if_awaited,
        )
        try:
            pool.open(wait=True, timeout=pool.timeout)
        except PoolTimeout as error:
            raise OperationalError(_too_few(pool)) from error
        finally:
            while made:  # With a min_size of 0 the pool does not take it; later it would take it closed.
                made.pop().close()
        return pool

    def _connect(self) -> TimedConnection:
        return TimedConnection.connect(**self._options["kwargs"])

    async def _aconnect(self) -> TimedAsyncConnection:
        return await TimedAsyncConnection.connect(**self._options["kwargs"])


def _set_answer_timeout(answer_timeout: float | None, connection: TimedConnection | TimedAsyncConnection) -> None:
    connection.answer_timeout = answer_timeout
    connection.made_at = time.monotonic()


def _beginning_with(made: list[Any], options: dict[str, Any]) -> dict[str, Any]:
    """Return the options of a pool that uses these connections before it makes any."""
    return {**options, "kwargs": {**options["kwargs"], "made": made}}


def _retry_if_awaited(pool: ConnectionPool[TimedConnection]) -> None:
    """Make a pool try again as long as a call waits for a connection."""
    if pool.get_stats().get("requests_waiting"):
        pool.check()


async def _aretry_if_awaited(pool: AsyncConnectionPool[TimedAsyncConnection]) -> None:
    """Async version of `_retry_if_awaited`."""
    if pool.get_stats().get("requests_waiting"):
        await pool.check()


class PoolSpent(PoolTimeout):
    """The pool still counts connections that it has lost, and so makes no new ones."""


@contextmanager
def _detect_spent_pool(pool: ConnectionPool[Any] | AsyncConnectionPool[Any], lent: Collection[Any]) -> Iterator[None]:
    """Raise `PoolSpent` instead of `PoolTimeout` for a pool that has lost its connections.

    That is so if it gives none although the server answers and not all are busy.
    """
    tries = pool.get_stats().get("connections_num")
    try:
        yield
    except PoolTimeout:
        if len(lent) >= pool.max_size:  # They are busy by now.
            raise
        if pool.get_stats().get("connections_num") != tries:
            raise OperationalError("the server answers, but the pool has not connected yet") from None
        raise PoolSpent(
            f"the server answers, but the pool has lost all but {len(lent)} of its {pool.max_size} connections, "
            "because calls were interrupted; open a new saver"
        ) from None


def _too_few(pool: ConnectionPool[Any] | AsyncConnectionPool[Any]) -> str:
    """Return the message for a pool whose first connections did not all come; psycopg_pool has closed the pool."""
    return (
        f"the pool could not open its first {pool.min_size} connections within {pool.timeout:g} s; lower min_size, "
        "or raise max_connections on the server"
    )


class _Failure:
    """Why the last attempt to make a first connection failed; the calls that waited for it raise the same error."""

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


class _LoopEntry:
    """An event loop's pool, the task that closes it, and its connections, for a loop that ends without cancelling."""

    def __init__(self, options: dict[str, Any], answer_timeout: float | None) -> None:
        self.opening = asyncio.Lock()
        self.failure = _Failure()
        self.life: asyncio.Task[None] | None = None
        self.ending = False
        self.connections: weakref.WeakSet[LoopConnection] = weakref.WeakSet()
        self.lent: set[LoopConnection] = set()
        self.drained_at = 0.0
        self.pool: AsyncConnectionPool[TimedAsyncConnection]
        self._options = options
        self._answer_timeout = answer_timeout

    async def open(self, first: TimedAsyncConnection) -> None:
        """Open the pool for as long as the event loop runs."""
        made = [first]
        logging.getLogger("psycopg.pool").addFilter(_not_the_end_of_a_loop)  # Adds it only once.
        pool = AsyncConnectionPool(
            **_beginning_with(made, self._options),
            connection_class=TimedAsyncConnection,
            configure=self._remember,
            reconnect_failed=_aretry_if_awaited,
        )
        try:
            await pool.open(wait=True, timeout=pool.timeout)
        except PoolTimeout as error:
            raise OperationalError(_too_few(pool)) from error
        except BaseException:  # It may have been cancelled, after its workers have started.
            await pool.close()
            raise
        finally:
            while made:
                await made.pop().close()
        self.pool = pool
        self.life = asyncio.create_task(self._live(), name=f"{POOL_NAME}-life")

    async def close(self) -> None:
        """Close the pool if it is open."""
        if self.life is not None:
            self.life.cancel()
            await asyncio.wait([self.life])
            await self.pool.close()  # A task that is cancelled before its first step does nothing.

    async def _live(self) -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:  # Not GeneratorExit, at garbage collection: there is no loop then.
            self.ending = True  # If the loop runs on anyway, the next call makes a new pool.
            try:
                await self.pool.close()
            finally:  # Closing does not reach the connections if the pool's workers were cancelled as well.
                for connection in set(self.connections) - self.lent:
                    connection.pgconn.finish()
            raise

    async def _remember(self, connection: TimedAsyncConnection) -> None:
        _set_answer_timeout(self._answer_timeout, connection)
        self.connections.add(connection)

    def hang_up(self, loop: asyncio.AbstractEventLoop) -> None:
        """Close the sockets, which needs no event loop, and end the pool's tasks without log messages."""
        for connection in list(self.connections):
            connection.pgconn.finish()
        for task in asyncio.all_tasks(loop):
            if not _is_of_a_pool(task):
                continue
            task._log_destroy_pending = False  # type: ignore[attr-defined]  # As asyncio's own `gather` does.
            if not loop.is_closed():
                task.cancel()
            elif isinstance(coroutine := task.get_coro(), Coroutine):
                with suppress(RuntimeError):  # Otherwise Python would warn when the coroutine is collected.
                    coroutine.close()


def _is_of_a_pool(task: asyncio.Task[Any]) -> bool:
    if task.get_name().startswith(POOL_NAME):
        return True
    # Before Python 3.12 `wait_for`, in which a pool's timer waits, makes a task of its own.
    frame = getattr(task.get_coro(), "cr_frame", None)
    return frame is not None and type(frame.f_locals.get("self")).__module__.startswith("psycopg_pool.")


# The parent's pools, in a forked process: referenced, because collecting them would end the parent's sessions.
_OF_PARENT: list[Any] = []


class _Held:
    """What has to be closed; separate from `OwnPools`, so that it can be closed after that is collected."""

    def __init__(self) -> None:
        self.closed = False
        self.pool: ConnectionPool[TimedConnection] | None = None
        self.loops: dict[asyncio.AbstractEventLoop, _LoopEntry] = {}
        _ALL.add(self)

    def check_open(self) -> None:
        if self.closed:
            raise closed()

    def reap(self) -> None:
        for loop in list(self.loops):  # Other OS threads add and remove loops concurrently.
            if loop.is_closed() and (entry := self.loops.pop(loop, None)) is not None:
                entry.hang_up(loop)

    def forget(self) -> None:
        _OF_PARENT.append((self.pool, self.loops))
        self.pool, self.loops = None, {}

    def drop(self) -> None:
        """Close what is still open, on another OS thread, and warn: a finalizer may interrupt any code."""
        if self.pool is not None or self.loops:
            threading.Thread(target=self.close, name=f"{POOL_NAME}-drop", daemon=True).start()
            warn_unclosed("PostgreSQL")

    def close(self) -> None:
        self.closed = True
        pool, self.pool = self.pool, None
        if pool is not None:
            pool.close()
        for loop in list(self.loops):
            entry = self.loops.pop(loop, None)
            if entry is None:
                continue
            if loop.is_running() and entry.life is not None:
                ended = asyncio.run_coroutine_threadsafe(entry.close(), loop)
                if asyncio._get_running_loop() is not loop:  # Otherwise it would wait for itself.
                    with suppress(TimeoutError, CancelledError):
                        ended.result(CLOSE_TIMEOUT)
            else:
                entry.hang_up(loop)


_ALL: weakref.WeakSet[_Held] = weakref.WeakSet()


@atexit.register
def _close_all() -> None:
    """Close all pools at the end of the process, so that savers need not be closed."""
    for held in list(_ALL):
        held.close()
