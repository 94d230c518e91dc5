"""PostgreSQL over psycopg 3: sends statements and round trips, retries a bounded number of times, wraps errors.

A statement is sent in autocommit. A round trip with several is sent as `BEGIN` … `COMMIT` in one pipeline, which is one
round trip and one transaction. (The implicit transaction of a bare pipeline is not atomic on every database that speaks
this protocol.) In a session that others use as well, a round trip is always sent like that, with settings of its own.

On a caller's connection that is in a transaction, a round trip is a savepoint in it. Without autocommit, the first
round trip begins that transaction, as any statement does in psycopg, at READ COMMITTED, and the caller ends it.
"""

from __future__ import annotations

import asyncio
import itertools
import time
import weakref
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, suppress
from copy import copy
from functools import partial
from typing import Any, TypeVar

import psycopg
from psycopg import AsyncCursor, Connection, Cursor, pq
from psycopg.rows import tuple_row
from psycopg_pool import PoolClosed, PoolTimeout

from langgraph_checkpoint_custom.drivers.either import at_once, entered, settled
from langgraph_checkpoint_custom.drivers.postgres_batching import Batches
from langgraph_checkpoint_custom.drivers.postgres_errors import RetryPolicy, pool_error, server_error
from langgraph_checkpoint_custom.drivers.postgres_pools import Connections, LoopSource
from langgraph_checkpoint_custom.drivers.postgres_sessions import (
    AnyConnection,
    Session,
    Sessions,
    as_bytes,
    cursor_of,
    execute,
    has_begun,
    in_transaction,
)
from langgraph_checkpoint_custom.drivers.workers import close_aside, run_aside
from langgraph_checkpoint_custom.engine.operation import (
    READS,
    Access,
    Form,
    Offload,
    Operation,
    RoundTrip,
    Row,
    Statement,
    adrive,
    operation_of,
)
from langgraph_checkpoint_custom.errors import (
    CheckpointError,
    ConfigError,
    ConnectionLost,
    RetryableError,
    SchemaMissing,
    closed_error,
    read_only_error,
)
from langgraph_checkpoint_custom.forks import Forked, register_for_forks

T = TypeVar("T")

# The accesses whose round trips are all in one transaction.
_ONE_TRANSACTION = frozenset({"migrate", "snapshot", "transaction"})
_SEES_COMMITTED = "SELECT current_setting('transaction_isolation') LIKE 'read %'"
_COMMIT = Statement("commit", "COMMIT", ())
# OS threads that decode, which holds the GIL for most of its time; and those that run calls in a loop in which psycopg
# cannot wait: as many as there may be connections, and some for calls that wait for one.
DECODE_WORKERS, CALL_WORKERS = 2, 32
# Seconds that asking the server to cancel a statement may take, as in psycopg.
CANCELLING = 5.0


class PostgresDriver(Forked):
    """Runs operations on one PostgreSQL database; all copies of a saver share it.

    Args:
        connections: The source of the connections.
        sessions: What is known of their sessions.
        check: The operation that checks whether the tables are current; it runs once, before the first other operation.
        read_only: Whether to refuse everything that is not a read; the database refuses it, too.
    """

    def __init__(
        self,
        connections: Connections,
        sessions: Sessions,
        *,
        check: Operation[None],
        read_only: bool = False,
    ) -> None:
        self._connections = connections
        self._sessions = sessions
        self._check = check
        self._read_only = read_only
        self._retry = RetryPolicy()
        self._is_pooled = connections.is_pooled
        self._sends_at_once = self._is_pooled and not read_only  # Whether `send` may send a form as it is.
        self._ready = False
        self._closed = False
        self.after_fork()
        register_for_forks(self, connections)
        weakref.finalize(self, connections.drop).atexit = False

    def after_fork(self) -> None:
        """Start without workers: those of the parent are not in a forked process."""
        self._decode_workers = ThreadPoolExecutor(DECODE_WORKERS, "checkpoint-decode")
        self._call_workers = ThreadPoolExecutor(CALL_WORKERS, "checkpoint-call")

    # One statement

    def send(self, form: Form, params: Sequence[Any]) -> list[Row]:
        """Send one statement and return its rows."""
        if not (self._sends_at_once and self._ready) or self._connections.loop:
            return self.run(operation_of(form, params))
        since, connection, error = time.monotonic(), None, None
        try:
            source = self._connections.source()
            connection = source.getconn()
            if connection.autocommit:  # Otherwise it is a caller's.
                session = self._sessions.get(connection) or at_once(self._sessions.inspect(connection))
                cursor: Cursor[Any] = Cursor(connection, row_factory=tuple_row)
                cursor.execute(as_bytes(form.sql), params, prepare=session.prepares, binary=True)
                return [] if cursor.rownumber is None else cursor.fetchall()
        except psycopg.Error as raised:
            error = self._wrap(raised, connection, form.operation, [form.with_params(params)])
            error.__cause__ = raised
        except BaseException as interruption:
            if connection is not None:
                _give_up(connection, interruption)
            raise
        finally:
            if connection is not None:
                source.putconn(connection)
        return at_once(self._retrying(operation_of(form, params), since, error, is_async=False))

    async def asend(self, form: Form, params: Sequence[Any], *, wait: float | None = None) -> list[Row]:
        """Async version of `send`; calls beyond the few that are underway are sent together.

        One that may `wait` a number of seconds for a connection is sent alone.
        """
        source = self._connections.loop_source()
        if source is None or not (self._sends_at_once and self._ready):
            return await self.arun(operation_of(form, params))
        if wait is None and form.batching and (source.batches.queues or source.users >= source.alone):
            batches: Batches = source.batches
            few = source.users < source.alone
            send = partial(self._asend_alone, form, params, source, time.monotonic())
            exchange = partial(self._exchange, form)
            return await batches.send_together(exchange, form.batching, params, send, may_be_alone=few)
        since, connection, error = time.monotonic(), None, None
        try:
            connection = await source.getconn(wait)
            if connection.autocommit:
                session = self._sessions.get(connection) or await self._sessions.inspect(connection)
                cursor: AsyncCursor[Any] = AsyncCursor(connection, row_factory=tuple_row)
                await cursor.execute(as_bytes(form.sql), params, prepare=session.prepares, binary=True)
                return [] if cursor.rownumber is None else await cursor.fetchall()
        except psycopg.Error as raised:
            error = self._wrap(raised, connection, form.operation, [form.with_params(params)])
            error.__cause__ = raised
        finally:
            if connection is not None:
                await source.putconn(connection)
        return await self._retrying(operation_of(form, params), since, error, is_async=True)

    async def _asend_alone(
        self, form: Form, params: Sequence[Any], source: LoopSource, since: float, failure: Exception | None
    ) -> list[Row]:
        """Send a call that began at `since` by itself; if a batch with it has failed, `failure` says why."""
        wait = source.pool.timeout
        if isinstance(failure and failure.__cause__, PoolTimeout):  # The call may have come while the batch waited.
            wait -= time.monotonic() - since
        # A lost batch was an attempt, and may have stored something.
        if isinstance(failure, CheckpointError) and (wait <= 0 or isinstance(failure, ConnectionLost)):
            error = copy(failure)  # Each call raises its own.
            error.__cause__ = failure.__cause__
            return await self._retrying(operation_of(form, params), since, error, is_async=True)
        return await self.asend(form, params, wait=wait)

    async def _exchange(self, form: Form, take: Callable[[], RoundTrip | None]) -> Sequence[Any]:
        """Make the round trip of a batch, which is taken when there is a connection."""
        async with self._borrow(form.operation, is_async=True) as (connection, session):
            request = take()
            return await self._round_trip(connection, session, form.access, request) if request else ()

    # Operations, sync and async

    def run(self, op: Operation[T]) -> T:
        """Run an operation and return its result."""
        if self._connections.loop is None:
            return at_once(self._run(op, is_async=False))
        loop = self._connections.loop()
        future = asyncio.run_coroutine_threadsafe(self.arun(op), loop)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    async def arun(self, op: Operation[T]) -> T:
        """Async version of `run`."""
        if self._connections.by_worker:
            return await run_aside(self._call_workers, partial(self.run, op))
        return await self._run(op, is_async=True)

    def look(self, op: Operation[T]) -> T:
        """Run a read without a check of the tables, for the command line, which has pools of its own."""
        return at_once(self._retrying(op, time.monotonic(), is_async=False))

    def setup(self, op: Operation[None]) -> None:
        """Create or migrate the tables with `op`."""
        self.run(op)

    async def asetup(self, op: Operation[None]) -> None:
        """Async version of `setup`."""
        await self.arun(op)

    async def aoffload(self, request: Offload) -> Any:
        """Run work on a worker and return its result."""
        return await run_aside(self._decode_workers, request.work)

    def close(self) -> None:
        """Close the connections and stop the workers; a caller's connection or pool stays open."""
        self._closed, self._ready = True, False
        self._connections.close()
        for executor in (self._decode_workers, self._call_workers):
            executor.shutdown()

    async def aclose(self) -> None:
        """Async version of `close`."""
        self._closed, self._ready = True, False
        await self._connections.aclose()
        await close_aside(self.close)

    def stats(self) -> Mapping[str, Any]:
        """Return the statistics of the pools."""
        return self._connections.stats()

    async def _run(self, op: Operation[T], *, is_async: bool) -> T:
        if self._read_only and op.access not in READS:
            raise read_only_error(op.name)
        since = time.monotonic()
        if not self._ready and op.access != "migrate":
            await self._retrying(self._check, since, is_async=is_async)
            self._ready = True
        return await self._retrying(op, since, is_async=is_async)

    async def _retrying(
        self, op: Operation[T], since: float, error: CheckpointError | None = None, *, is_async: bool
    ) -> T:
        """Attempt an operation until it succeeds; the call began at `since`.

        The first attempt may have failed already, with `error`.
        """
        # The pause before a repetition; in a sync call, it stops the caller's OS thread.
        sleep: Any = asyncio.sleep if is_async else time.sleep
        unanswered = False  # Whether the reply to an attempt was lost.
        for failed in itertools.count(1):
            if error is None:
                try:
                    result = await self._attempt(op, is_async=is_async)
                    # An attempt without a reply may have changed something.
                    return True if unanswered and op.reports_change else result  # type: ignore[return-value]
                except CheckpointError as raised:
                    error = raised
            if (
                isinstance(error, SchemaMissing)
                and op is not self._check
                and op.access != "migrate"
                and self._is_pooled
            ):
                await self._retrying(self._check, since, is_async=is_async)
            pause = None
            if isinstance(error, RetryableError) and self._is_pooled:
                pause = self._retry.pause(failed, time.monotonic() - since)
            lost = isinstance(error, ConnectionLost)
            if isinstance(error, ConnectionLost):
                unanswered = error.unanswered = unanswered or error.unanswered
            if pause is None:
                if unanswered and not lost and op.access in ("write", "transaction"):
                    error.args = (
                        f"{op.name} was retried because no answer came; an earlier attempt may have succeeded. Then: "
                        f"{error}",
                    )
                raise error
            if lost:
                await self._connections.renew(is_async=is_async)
            error = None
            await settled(sleep(pause))
        raise AssertionError

    async def _attempt(self, op: Operation[T], *, is_async: bool) -> T:
        async def work(request: Offload) -> Any:
            return await self.aoffload(request) if is_async else request.work()

        borrow = partial(self._borrow, op.name, changes=op.access not in READS, joins=op.joins, is_async=is_async)
        access: Access = "snapshot" if op.all_servers and self._sessions.citus else op.access
        if access in _ONE_TRANSACTION or (op.checks_first and self._sessions.citus):
            async with borrow() as (connection, session):
                return await adrive(op, partial(self._round_trip, connection, session, access, ends=False), work)

        async def perform(request: RoundTrip) -> Any:
            async with borrow(request.statements) as (connection, session):
                return await self._round_trip(connection, session, op.access, request)

        return await adrive(op, perform, work)

    async def _round_trip(
        self, connection: AnyConnection, session: Session, access: Access, request: RoundTrip, *, ends: bool = True
    ) -> Any:
        """Make a round trip in a transaction: the one that has begun on the connection, or one that it begins.

        Without `ends`, `_borrow` ends that one. A statement in a session of ours is a transaction by itself.
        """
        begun = connection.pgconn.pipeline_status or has_begun(connection)  # A pipeline is the caller's.
        if not (begun or (ends and session.own and len(request.sent()) == 1)):
            before = (*self._sessions.opening(connection, session, access), *request.before)
            after = (*request.after, _COMMIT) if ends else request.after
            request = request._replace(before=before, after=after)
        return await _execute(connection, session.prepares_others, request)

    @asynccontextmanager
    async def _borrow(
        self,
        name: str,
        statements: Sequence[Statement] = (),
        *,
        changes: bool = True,
        joins: bool = True,
        is_async: bool,
    ) -> AsyncIterator[tuple[AnyConnection, Session]]:
        """Borrow a connection for a transaction of ours, which is ended here, or for a savepoint in a caller's one.

        `changes` says whether the operation is not a read, and `joins` whether it may be in a caller's transaction.
        Errors are wrapped.
        """
        if self._closed:
            raise closed_error()
        connection: Any = None
        try:
            if is_async:
                source = self._connections.loop_source() or await self._connections.open_loop_source()
            else:
                source = self._connections.source()
            connection = await settled(source.getconn())
            session = self._sessions.get(connection)
            if session is None:
                had_begun = has_begun(connection)
                session = await self._sessions.inspect(connection)
                if not had_begun and has_begun(connection):  # By `inspect`, without autocommit.
                    await settled(connection.rollback())
            if not self._is_pooled and in_transaction(connection):
                if not joins:
                    raise ConfigError(
                        f"{name}: your connection is in a transaction, or begins one because it is not in autocommit, "
                        "and this needs a transaction of its own: pass a connection string, a pool, or a connection "
                        "in autocommit"
                    )
                await _join(connection, name, changes=changes)
                async with entered(connection.transaction()):
                    yield connection, session
            else:
                try:
                    yield connection, session
                    if has_begun(connection):
                        await settled(connection.commit())
                except BaseException as error:
                    _raise_interruption(connection, error, is_pooled=self._is_pooled)
                    with suppress(psycopg.Error):
                        await settled(connection.rollback())
                    raise
        except psycopg.Error as error:
            raise self._wrap(error, connection, name, statements) from error
        finally:
            if connection is not None:
                await settled(source.putconn(connection))

    def _wrap(
        self, error: psycopg.Error, connection: AnyConnection | None, operation: str, statements: Sequence[Statement]
    ) -> CheckpointError:
        """Return the error of this package for one of psycopg or its pool."""
        if isinstance(error, (PoolClosed, PoolTimeout)):
            statement = statements[0].name if len(statements) == 1 else None
            return pool_error(error, operation, statement, own=self._sessions.own)
        found = server_error(error, operation, statements, connection, citus=self._sessions.citus)
        if isinstance(found, SchemaMissing):
            self._ready = False  # The tables were deleted or changed in the meantime: check again.
        return found


# What is sent on one connection


async def _join(connection: AnyConnection, name: str, *, changes: bool) -> None:
    """Begin the transaction that the caller ends, if it has not begun, and check its isolation level.

    A statement sees what was committed while it waited for a lock at READ COMMITTED only. A deletion at another level
    would delete what a checkpoint needs that it does not see.
    """
    if not has_begun(connection):
        given = connection.isolation_level is not None
        await execute(connection, "SELECT" if given else "SET TRANSACTION ISOLATION LEVEL READ COMMITTED")
    if changes and not (await execute(connection, _SEES_COMMITTED))[0][0]:
        raise ConfigError(
            f"{name}: the transaction of your connection is at REPEATABLE READ or SERIALIZABLE, where a change could "
            "delete what other transactions have stored; begin it at READ COMMITTED, or use a pool"
        )


async def _execute(connection: AnyConnection, prepare: bool | None, request: RoundTrip) -> Any:
    """Send the statements of a round trip and return the rows of each."""
    statements = request.sent()
    if len(statements) == 1:
        return [await execute(connection, statements[0].sql, statements[0].params, prepare)]
    cursors = [cursor_of(connection) for _ in statements]
    async with entered(connection.pipeline()):
        try:
            for cursor, (_, sql, params) in zip(cursors, statements, strict=True):
                await settled(cursor.execute(as_bytes(sql), params, prepare=prepare, binary=True))
        except psycopg.Error:
            raise
        except BaseException:  # When it ends, the pipeline would wait for the server.
            _give_up(connection)
            raise
    return request.reply([[] if cursor.rownumber is None else await settled(cursor.fetchall()) for cursor in cursors])


def _give_up(connection: AnyConnection, interruption: BaseException | None = None) -> bool:
    """Cancel what the server still does for an interrupted call, and disconnect; returns whether there was something.

    psycopg has cancelled it if a task was cancelled, and after Ctrl-C, but not if a signal handler raised another
    exception, or if the interrupt did not come while psycopg waited. After Ctrl-C, a connection of a pool is given up
    in any state: psycopg may not know how far it was, for example with a pipeline.
    """
    status = connection.pgconn.transaction_status
    is_used = connection.pgconn.pipeline_status or status == pq.TransactionStatus.ACTIVE
    if connection.closed or not (is_used or isinstance(interruption, (KeyboardInterrupt, SystemExit))):
        return False
    if is_used and isinstance(connection, Connection):
        with suppress(psycopg.Error):
            connection.cancel_safe(timeout=CANCELLING)
    connection.pgconn.finish()
    return True


def _raise_interruption(connection: AnyConnection, error: BaseException, *, is_pooled: bool) -> None:
    """Give up what was interrupted, and raise what has interrupted it if psycopg's error hides that."""
    given_up = _give_up(connection, error if is_pooled else None)
    if given_up and isinstance(error, psycopg.Error) and error.__context__ is not None:
        raise error.__context__ from None
