"""PostgreSQL over psycopg 3: sends round trips, retries a bounded number of times, wraps errors.

A round trip with one statement is sent in autocommit. One with several statements is sent as `BEGIN` … `COMMIT` in one
pipeline, which is one round trip and one transaction. (The implicit transaction of a bare pipeline is not atomic on
every database that speaks this protocol.) So is one statement in a session that others use as well, if a setting has
to be made for it.

On a caller's connection that is in a transaction, a round trip is a savepoint in it. Without autocommit, the first
round trip begins that transaction, as any statement does in psycopg, and the caller ends it.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, asynccontextmanager, contextmanager, nullcontext, suppress
from functools import partial
from typing import Any, TypeGuard, TypeVar

import psycopg
from psycopg import AsyncConnection, AsyncCursor, Connection, Cursor, pq
from psycopg.errors import InsufficientPrivilege
from psycopg.rows import tuple_row
from psycopg_pool import PoolClosed, PoolTimeout

from langgraph_checkpoint_custom.drivers.postgres_batching import LoopBatching, WorkerBatching
from langgraph_checkpoint_custom.drivers.postgres_connections import Connections
from langgraph_checkpoint_custom.drivers.postgres_errors import pool_error, server_error
from langgraph_checkpoint_custom.drivers.postgres_sessions import (
    INSPECT,
    TERMINATE,
    AnyConnection,
    Sessions,
    in_transaction,
)
from langgraph_checkpoint_custom.drivers.postgres_waiting import (
    CANCEL_TIMEOUT,
    TimedAsyncConnection,
    TimedConnection,
    no_timeout,
)
from langgraph_checkpoint_custom.drivers.workers import aside, finished_aside, on_loop
from langgraph_checkpoint_custom.engine.batching import BATCH_BYTES
from langgraph_checkpoint_custom.engine.operation import (
    OFFLOAD_BYTES,
    READS,
    Batchable,
    Form,
    Offload,
    Operation,
    Parts,
    RoundTrip,
    Row,
    Statement,
    adrive,
    afollow,
    drive,
    follow,
    operation_of,
)
from langgraph_checkpoint_custom.engine.retry import RetryPolicy
from langgraph_checkpoint_custom.errors import (
    CheckpointError,
    ConnectionLost,
    RetryableError,
    SchemaMissing,
    closed,
    is_read_only,
)
from langgraph_checkpoint_custom.forks import register_for_forks

T = TypeVar("T")

# The accesses whose round trips are all in one transaction.
_ONE_TRANSACTION = frozenset({"migrate", "dry_run", "snapshot", "exclusive"})


class PostgresDriver:
    """Runs operations on one PostgreSQL database; all copies of a saver share it.

    Args:
        connections: The source of the connections.
        check: The operation that checks whether the tables are current; it runs once, before the first other operation.
        setup: The operation that creates or migrates the tables.
        prepare: Whether to prepare statements; None finds out for each connection whether it is direct.
        read_only: Whether to refuse everything that is not a read, here and in the database.
    """

    def __init__(
        self,
        connections: Connections,
        *,
        check: Operation[None],
        setup: Operation[None],
        prepare: bool | None,
        read_only: bool = False,
    ) -> None:
        self._connections = connections
        self._check = check
        self._setup = setup
        self._read_only = read_only
        self._retry = RetryPolicy()
        self._ready = False
        self._closed = False
        self._sessions = Sessions(own=connections.own, prepare=prepare, read_only=read_only)
        self._workers: dict[int, ThreadPoolExecutor] = {}
        self._reset_batching()
        register_for_forks(self)

    def before_fork(self) -> None:
        """Do nothing: the connections stay open in the parent."""

    def after_fork(self) -> None:
        """Leave the connections to the parent; the child does not have its workers either."""
        self._connections.forget()
        self._workers = {}
        self._reset_batching()

    # Sync

    def setup(self, op: Operation[None] | None = None) -> None:
        """Create or migrate the tables; `op` replaces the usual operation for that."""
        self._check_reads(op or self._setup)
        if self._connections.loop:
            return on_loop(self._connections.loop(), lambda: self.asetup(op))
        self._retrying(op or self._setup)
        self._ready = True

    def send(self, form: Form, params: Sequence[Any]) -> list[Row]:
        """Send one statement and return its rows."""
        return self.run(operation_of(form, params))

    async def asend(self, form: Form, params: Sequence[Any]) -> list[Row]:
        """Async version of `send`."""
        return await self.arun(operation_of(form, params))

    def run(self, op: Operation[T]) -> T:
        """Run an operation and return its result."""
        self._check_reads(op)
        if self._connections.loop:
            return on_loop(self._connections.loop(), lambda: self.arun(op))
        if not self._ready:
            self._retrying(self._check)
            self._ready = True
        return self._retrying(op)

    def look(self, op: Operation[T]) -> T:
        """Run a read without a check of the tables."""
        if self._connections.loop:
            return on_loop(self._connections.loop(), lambda: self._aretrying(op))
        return self._retrying(op)

    def close(self) -> None:
        """Close the connections and stop the workers; a caller's connection or pool stays open."""
        self._closed = True
        self._connections.close()
        self._stop_workers()

    def stats(self) -> Mapping[str, Any]:
        """Return the statistics of the pools."""
        return self._connections.stats()

    def _retrying(self, op: Operation[T]) -> T:
        started, failed, unanswered = time.monotonic(), 0, False
        while True:
            try:
                return _result(op, self._attempt(op), unanswered)
            except RetryableError as error:
                failed += 1
                unanswered = unanswered or (isinstance(error, ConnectionLost) and error.unanswered)
                pause = self._pause(failed, started)
                if pause is None:
                    _note_unanswered(op, error, unanswered)
                    raise
                if isinstance(error, ConnectionLost):
                    self._connections.distrust()
            except SchemaMissing:
                if self._rechecks(op):
                    self._retrying(self._check)
                raise
            except CheckpointError as error:
                _note_unanswered(op, error, unanswered)
                raise
            time.sleep(pause)

    def _attempt(self, op: Operation[T]) -> T:
        if op.access not in _ONE_TRANSACTION:
            return drive(op, lambda request: self._perform(op.name, request))
        with self._borrow(op.name, ()) as connection, _timeout_for(op, connection):
            settings = self._sessions.settings(op.access, connection)
            with _atomic(connection):
                for setting in settings:
                    _cursor(connection).execute(setting, prepare=False)
                return drive(op, lambda request: self._inside(connection, request))

    def _perform(self, name: str, request: RoundTrip | Offload) -> Any:
        if isinstance(request, Offload):
            return request.work()
        if self._is_batchable(request.batchable):
            return self._worker_batching.send(name, request, request.batchable)
        return self._send(name, request.statements, request)

    def _send(self, name: str, statements: Sequence[Statement], round_trip: RoundTrip) -> Any:
        with self._borrow(name, statements) as connection:
            return self._reply(connection, round_trip)

    @contextmanager
    def _borrow(self, name: str, statements: Sequence[Statement]) -> Iterator[Connection[Any]]:
        self._check_open()
        try:
            with self._connections.borrow() as connection:
                try:
                    if not self._sessions.has(connection):
                        expected = self._sessions.expected(connection)
                        asked = _cursor(connection).execute(INSPECT, expected, prepare=False)
                        self._sessions.note(connection, asked.fetchone())
                    for process in list(self._sessions.given_up):
                        with suppress(InsufficientPrivilege):
                            _cursor(connection).execute(TERMINATE, process._asdict(), prepare=False)
                        self._sessions.given_up.discard(process)
                    yield connection
                except BaseException as error:
                    # Here, before the pool rolls back: after that, a broken connection would look like an intact one.
                    self._sessions.note_given_up(connection)
                    if not isinstance(error, psycopg.Error):
                        raise
                    if (interruption := _interruption(error)) is not None:
                        raise interruption from None
                    raise self._wrapped(error, connection, name, statements) from error
        except (psycopg.Error, PoolTimeout, PoolClosed) as error:
            raise self._wrapped(error, None, name, statements) from error

    def _reply(self, connection: Connection[Any], request: RoundTrip | Offload) -> Any:
        if isinstance(request, Offload):
            return request.work()
        if in_transaction(connection):
            with _atomic(connection):
                return self._inside(connection, request)
        if request.parts:
            return self._send_parts(connection, request.parts, request.atomic)
        session = self._sessions.of(connection)
        statements = request.sent()
        if session.sends(statements):
            assert isinstance(connection, TimedConnection)  # The session is ours.
            try:
                steps = session.round_trip(connection.pgconn, statements)
                return request.reply(follow(steps, connection.complete))
            except BaseException:
                if connection.pgconn.pipeline_status:
                    connection.close()
                raise
        cursors = [_cursor(connection) for _ in statements]
        opening = self._sessions.opening(statements, session)
        if not opening:
            cursors[0].execute(statements[0].sql, statements[0].values(), prepare=session.how(statements[0]))
        else:
            try:
                with connection.pipeline():
                    for word in opening:
                        _cursor(connection).execute(word, prepare=False)
                    for cursor, statement in zip(cursors, statements, strict=True):
                        cursor.execute(statement.sql, statement.values(), prepare=session.how(statement))
                    _cursor(connection).execute("COMMIT", prepare=False)
            except BaseException:
                # The server skips everything after a failed statement, COMMIT included, and a caller's connection has
                # no pool that ends the transaction. An interrupt on entering or leaving the pipeline leaves the
                # connection in pipeline mode; it would then wait forever for a reply that was never requested.
                try:
                    with suppress(psycopg.Error):
                        connection.rollback()
                finally:
                    if connection.pgconn.pipeline_status:
                        connection.close()
                raise
        return request.reply([cursor.fetchall() if _has_rows(cursor) else [] for cursor in cursors])

    def _inside(self, connection: Connection[Any], request: RoundTrip | Offload) -> Any:
        """Send statements in a transaction that the caller of this function begins and ends."""
        if isinstance(request, Offload):
            return request.work()
        if request.parts and not request.statements:
            return follow(request.parts(), lambda part: self._inside(connection, part))
        cursors = []
        with connection.pipeline() if connection.pgconn.pipeline_status else nullcontext():  # Leaving it sends a sync.
            for statement in request.sent():
                cursors.append(_cursor(connection))
                cursors[-1].execute(statement.sql, statement.values(), prepare=False)
        return request.reply([cursor.fetchall() if _has_rows(cursor) else [] for cursor in cursors])

    def _send_parts(self, connection: Connection[Any], parts: Callable[[], Parts], atomic: bool) -> Any:
        """Send the parts of a round trip, in one transaction if they are `atomic`."""
        session = self._sessions.of(connection)
        if session.own_pipelines:
            assert isinstance(connection, TimedConnection)
            try:
                return follow(session.send_parts(connection.pgconn, parts, atomic), connection.complete)
            except BaseException:
                if connection.pgconn.pipeline_status:
                    connection.close()
                raise

        def sent(part: RoundTrip) -> Any:
            with connection.pipeline():
                return self._inside(connection, part)

        with connection.transaction() if atomic else nullcontext():
            for setting in self._sessions.settings_of_parts(session, atomic):
                _cursor(connection).execute(setting, prepare=False)
            return follow(parts(), sent)

    # Async: the same

    async def asetup(self, op: Operation[None] | None = None) -> None:
        """Async version of `setup`."""
        self._check_reads(op or self._setup)
        if self._connections.by_worker:
            return await self._on_worker(partial(self.setup, op))
        await self._aretrying(op or self._setup)
        self._ready = True

    async def arun(self, op: Operation[T]) -> T:
        """Async version of `run`."""
        self._check_reads(op)
        if self._connections.by_worker:
            return await self._on_worker(partial(self.run, op))
        if not self._ready:
            await self._aretrying(self._check)
            self._ready = True
        return await self._aretrying(op)

    async def aoffload(self, request: Offload) -> Any:
        """Run work on a worker and return its result."""
        return await self._offload(request)

    async def aclose(self) -> None:
        """Async version of `close`."""
        self._closed = True
        await self._connections.aclose()
        await asyncio.to_thread(self._stop_workers)

    async def _aretrying(self, op: Operation[T]) -> T:
        started, failed, unanswered = time.monotonic(), 0, False
        while True:
            try:
                return _result(op, await self._aattempt(op), unanswered)
            except RetryableError as error:
                failed += 1
                unanswered = unanswered or (isinstance(error, ConnectionLost) and error.unanswered)
                pause = self._pause(failed, started)
                if pause is None:
                    _note_unanswered(op, error, unanswered)
                    raise
                if isinstance(error, ConnectionLost):
                    await self._connections.adistrust()
            except SchemaMissing:
                if self._rechecks(op):
                    await self._aretrying(self._check)
                raise
            except CheckpointError as error:
                _note_unanswered(op, error, unanswered)
                raise
            await asyncio.sleep(pause)

    async def _aattempt(self, op: Operation[T]) -> T:
        if op.access not in _ONE_TRANSACTION:
            return await adrive(op, lambda request: self._aperform(op.name, request))
        async with self._aborrow(op.name, ()) as connection:
            with _timeout_for(op, connection):
                settings = self._sessions.settings(op.access, connection)
                async with _aatomic(connection):
                    for setting in settings:
                        await _acursor(connection).execute(setting, prepare=False)
                    return await adrive(op, lambda request: self._ainside(connection, request))

    async def _aperform(self, name: str, request: RoundTrip | Offload) -> Any:
        if isinstance(request, Offload):
            return request.work() if request.size < OFFLOAD_BYTES else await self._offload(request)
        if self._is_batchable(request.batchable):
            return await self._loop_batching().send(name, request, request.batchable)
        return await self._asend(name, request.statements, request)

    async def _asend(self, name: str, statements: Sequence[Statement], round_trip: RoundTrip) -> Any:
        async with self._aborrow(name, statements) as connection:
            return await self._areply(connection, round_trip)

    @asynccontextmanager
    async def _aborrow(self, name: str, statements: Sequence[Statement]) -> AsyncIterator[AsyncConnection[Any]]:
        self._check_open()
        try:
            async with self._connections.aborrow() as connection:
                try:
                    if not self._sessions.has(connection):
                        asked = await _acursor(connection).execute(
                            INSPECT, self._sessions.expected(connection), prepare=False
                        )
                        self._sessions.note(connection, await asked.fetchone())
                    for process in list(self._sessions.given_up):
                        with suppress(InsufficientPrivilege):
                            await _acursor(connection).execute(TERMINATE, process._asdict(), prepare=False)
                        self._sessions.given_up.discard(process)
                    yield connection
                except BaseException as error:
                    self._sessions.note_given_up(connection)
                    if not isinstance(error, psycopg.Error):
                        raise
                    raise self._wrapped(error, connection, name, statements) from error
        except (psycopg.Error, PoolTimeout, PoolClosed) as error:
            raise self._wrapped(error, None, name, statements) from error

    async def _areply(self, connection: AsyncConnection[Any], request: RoundTrip | Offload) -> Any:
        if isinstance(request, Offload):
            return request.work()
        if in_transaction(connection):
            async with _aatomic(connection):
                return await self._ainside(connection, request)
        if request.parts:
            return await self._asend_parts(connection, request.parts, request.atomic)
        session = self._sessions.of(connection)
        statements = request.sent()
        if session.sends(statements):
            assert isinstance(connection, TimedAsyncConnection)
            try:
                steps = session.round_trip(connection.pgconn, statements)
                return request.reply(await afollow(steps, connection.complete))
            except BaseException:
                if connection.pgconn.pipeline_status:
                    await connection.close()
                raise
        cursors = [_acursor(connection) for _ in statements]
        opening = self._sessions.opening(statements, session)
        if not opening:
            await cursors[0].execute(statements[0].sql, statements[0].values(), prepare=session.how(statements[0]))
        else:
            try:
                async with connection.pipeline():
                    for word in opening:
                        await _acursor(connection).execute(word, prepare=False)
                    for cursor, statement in zip(cursors, statements, strict=True):
                        await cursor.execute(statement.sql, statement.values(), prepare=session.how(statement))
                    await _acursor(connection).execute("COMMIT", prepare=False)
            except BaseException:
                # As in `_reply`; a task may be cancelled there whenever the event loop was busy.
                try:
                    with suppress(psycopg.Error):
                        await connection.rollback()
                finally:
                    if connection.pgconn.pipeline_status:
                        await connection.close()
                raise
        return request.reply([await cursor.fetchall() if _has_rows(cursor) else [] for cursor in cursors])

    async def _ainside(self, connection: AsyncConnection[Any], request: RoundTrip | Offload) -> Any:
        if isinstance(request, Offload):
            return request.work()
        if request.parts and not request.statements:
            return await afollow(request.parts(), lambda part: self._ainside(connection, part))
        cursors = []
        async with connection.pipeline() if connection.pgconn.pipeline_status else nullcontext():
            for statement in request.sent():
                cursors.append(_acursor(connection))
                await cursors[-1].execute(statement.sql, statement.values(), prepare=False)
        return request.reply([await cursor.fetchall() if _has_rows(cursor) else [] for cursor in cursors])

    async def _asend_parts(self, connection: AsyncConnection[Any], parts: Callable[[], Parts], atomic: bool) -> Any:
        session = self._sessions.of(connection)
        if session.own_pipelines:
            assert isinstance(connection, TimedAsyncConnection)
            try:
                return await afollow(session.send_parts(connection.pgconn, parts, atomic), connection.complete)
            except BaseException:
                if connection.pgconn.pipeline_status:
                    await connection.close()
                raise

        async def sent(part: RoundTrip) -> Any:
            async with connection.pipeline():
                return await self._ainside(connection, part)

        async with connection.transaction() if atomic else nullcontext():
            for setting in self._sessions.settings_of_parts(session, atomic):
                await _acursor(connection).execute(setting, prepare=False)
            return await afollow(parts(), sent)

    # Shared by sync and async

    def _reset_batching(self) -> None:
        self._worker_batching = WorkerBatching(self._send)
        self._loop_batchings: dict[asyncio.AbstractEventLoop, LoopBatching] = {}

    def _loop_batching(self) -> LoopBatching:
        loop = asyncio.get_running_loop()
        found = self._loop_batchings.get(loop)
        if found is None:
            for other in list(self._loop_batchings):  # Other OS threads change it concurrently.
                if other.is_closed():
                    self._loop_batchings.pop(other, None)
            found = self._loop_batchings[loop] = LoopBatching(self._asend)
        return found

    def _is_batchable(self, batchable: Batchable | None) -> TypeGuard[Batchable]:
        """Whether a round trip can be batched with others; never on a caller's single connection."""
        return batchable is not None and batchable.size <= BATCH_BYTES and self._connections.replaceable

    def _check_open(self) -> None:
        if self._closed:
            raise closed()

    def _check_reads(self, op: Operation[Any]) -> None:
        """Raise an error for a write with a saver that only reads."""
        if self._read_only and op.access not in READS:
            raise is_read_only(op.name)

    def _rechecks(self, op: Operation[Any]) -> bool:
        """Whether to check the tables again after an operation has failed to find the ones that it needs."""
        return op is not self._check and op.access != "migrate" and self._connections.replaceable

    def _pause(self, failed: int, started: float) -> float | None:
        """Return the seconds until the next attempt, or None to give up."""
        if not self._connections.replaceable:
            return None
        return self._retry.pause(failed, time.monotonic() - started)

    async def _offload(self, request: Offload) -> Any:
        # Two: the work holds the GIL for most of its time.
        return await aside(self._executor(2), request.work)

    async def _on_worker(self, call: Callable[[], T]) -> T:
        # As many as there may be connections, and some for calls of which others wait for a batch.
        return await finished_aside(self._executor(32), call, CANCEL_TIMEOUT)

    def _executor(self, workers: int) -> ThreadPoolExecutor:
        self._check_open()
        found = self._workers.get(workers)
        return found or self._workers.setdefault(workers, ThreadPoolExecutor(workers, "checkpoint-work"))

    def _stop_workers(self) -> None:
        for executor in self._workers.values():
            executor.shutdown()

    def _wrapped(
        self, error: Exception, connection: AnyConnection | None, operation: str, statements: Sequence[Statement]
    ) -> CheckpointError:
        """Return the error of this package for one of psycopg or its pool."""
        if isinstance(error, (PoolClosed, PoolTimeout)):
            statement = statements[0].name if len(statements) == 1 else None
            return pool_error(error, operation, statement, own=self._connections.own)
        assert isinstance(error, psycopg.Error)
        citus = connection is not None and self._sessions.has(connection) and self._sessions.of(connection).citus
        found = server_error(error, operation, statements, connection, citus=citus)
        if isinstance(found, SchemaMissing):
            self._ready = False  # The tables were deleted or changed in the meantime: check again.
        return found


def _result(op: Operation[T], result: T, unanswered: bool) -> T:
    """Return the result of an attempt; True if an earlier attempt without a reply may have changed something."""
    return True if unanswered and op.reports_change else result  # type: ignore[return-value]  # Then it is a bool.


def _note_unanswered(op: Operation[Any], error: CheckpointError, unanswered: bool) -> None:
    """Note in an error that an earlier attempt without a reply may have succeeded."""
    if isinstance(error, ConnectionLost):
        error.unanswered = unanswered
    elif unanswered and op.access in ("write", "exclusive"):
        words = f"{op.name} was retried because no answer came; an earlier attempt may have succeeded. Then: {error}"
        error.args = (words,)


def _timeout_for(op: Operation[Any], connection: AnyConnection) -> AbstractContextManager[None]:
    """Turn the answer timeout off for a migration, which may take long."""
    return no_timeout(connection) if op.access == "migrate" else nullcontext()


@contextmanager
def _atomic(connection: Connection[Any]) -> Iterator[None]:
    """Make everything that is sent atomic: in a transaction of its own, or as part of a caller's transaction."""
    if not _begins_implicitly(connection):
        with connection.transaction():
            yield
        return
    try:
        yield
    except BaseException:
        with suppress(psycopg.Error):
            connection.rollback()
        raise


@asynccontextmanager
async def _aatomic(connection: AsyncConnection[Any]) -> AsyncIterator[None]:
    if not _begins_implicitly(connection):
        async with connection.transaction():
            yield
        return
    try:
        yield
    except BaseException:
        with suppress(psycopg.Error):
            await connection.rollback()
        raise


def _begins_implicitly(connection: AnyConnection) -> bool:
    """Whether the next statement begins a transaction that the caller ends; `transaction()` would end it too early."""
    return not connection.autocommit and connection.pgconn.transaction_status == pq.TransactionStatus.IDLE


def _interruption(error: BaseException) -> BaseException | None:
    """Return what interrupted a wait, such as a signal handler's timeout, if psycopg's error hides it."""
    context = error.__context__
    while isinstance(context, psycopg.Error):
        context = context.__context__
    return context


def _cursor(connection: Connection[Any]) -> Cursor[Row]:
    """Create a cursor with our settings, whatever kind a caller's connection creates."""
    cursor = Cursor(connection, row_factory=tuple_row)
    cursor.format = pq.Format.BINARY
    return cursor


def _acursor(connection: AsyncConnection[Any]) -> AsyncCursor[Row]:
    cursor = AsyncCursor(connection, row_factory=tuple_row)
    cursor.format = pq.Format.BINARY
    return cursor


def _has_rows(cursor: Cursor[Any] | AsyncCursor[Any]) -> bool:
    """Whether a statement returns rows, even zero; `description` would create an object for each column."""
    return cursor.pgresult is not None and cursor.pgresult.status == pq.ExecStatus.TUPLES_OK
