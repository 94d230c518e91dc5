"""PostgreSQL over psycopg 3: one round trip a trip, bounded retry.

A trip of one statement is sent as it is; several go as `BEGIN` … `COMMIT` in one pipeline, which is one round trip and
one transaction (the implicit transaction of a bare pipeline is not atomic on every engine that speaks this protocol).
On a caller's connection that is in a transaction, trips are savepoints in it. Without autocommit the first trip begins
that transaction, as whatever is sent does in psycopg, and the caller ends it.
"""

from __future__ import annotations

import asyncio
import dataclasses
import time
import weakref
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, asynccontextmanager, contextmanager, nullcontext, suppress
from typing import Any, TypeGuard, TypeVar

import psycopg
from psycopg import AsyncConnection, AsyncCursor, Connection, Cursor, pq
from psycopg.errors import InsufficientPrivilege
from psycopg.rows import tuple_row
from psycopg_pool import PoolClosed, PoolTimeout

from langgraph_checkpoint_custom.drivers.postgres_batching import LoopBatching, WorkerBatching
from langgraph_checkpoint_custom.drivers.postgres_connections import Connections
from langgraph_checkpoint_custom.drivers.postgres_pools import PoolSpent
from langgraph_checkpoint_custom.drivers.postgres_prepared import HOT, MANY, Process, Session
from langgraph_checkpoint_custom.drivers.postgres_waiting import no_timeout
from langgraph_checkpoint_custom.drivers.workers import aside, on_loop
from langgraph_checkpoint_custom.engine.batching import BATCH_BYTES
from langgraph_checkpoint_custom.engine.operation import (
    OFFLOAD_BYTES,
    Batchable,
    Offload,
    Operation,
    RoundTrip,
    Row,
    Statement,
    adrive,
    drive,
)
from langgraph_checkpoint_custom.engine.retry import RetryPolicy
from langgraph_checkpoint_custom.errors import (
    CheckpointError,
    ClosedError,
    ConfigError,
    ConnectionLost,
    Contention,
    RetryableError,
    SchemaMissing,
    StorageError,
    closed,
    no_list_of_names,
)
from langgraph_checkpoint_custom.forks import tell_of_forks

T = TypeVar("T")
AnyConnection = Connection[Any] | AsyncConnection[Any]

# The process that answers, and if that is the expected one, so that the session is ours alone: generic plans, by
# index, no compiler, NULL in the text of an array is none, and each statement sees what was committed before it. At a
# higher isolation level, whoever has waited for a lock sees what was there before that. Without generic plans
# PostgreSQL plans the put statement anew each time, since it guesses ten rows in each array and so finds the generic
# plan dear; that was 440 of 700 µs. In a
# generic plan it takes a range of ids for a 200th of a thread, so that to read and sort all of it can seem cheaper
# than to follow the index, which is four times as dear a page by default, and each page of a list would read the
# whole thread. And it compiles what seems dear since rows are guessed: where it comes with LLVM, as Debian's does, a
# history of 200 steps took 70 ms instead of 3, and 1.5 s in partitions.
_WHO = """
SELECT pid, CASE WHEN pid = %(expected)s AND %(own)s THEN
    set_config('plan_cache_mode', 'force_generic_plan', false)
    || set_config('random_page_cost', '1', false)
    || set_config('jit', 'off', false)
    || set_config('array_nulls', 'on', false)
    || set_config('default_transaction_isolation', 'read committed', false) END,
    current_setting('array_nulls'),
    (SELECT (extract(epoch FROM backend_start) * 1000000)::bigint FROM pg_stat_get_activity(pid))
FROM pg_backend_pid() AS pid
"""

# The process of a session that was given up, and no other one that has its pid by now, or has it on another server:
# that has not begun in the same microsecond. A function and not its view, which some servers keep from their users.
_END = """
SELECT pg_terminate_backend(%(pid)s) FROM pg_stat_get_activity(%(pid)s)
WHERE (extract(epoch FROM backend_start) * 1000000)::bigint = %(began)s
"""

# Encodings of a database. In SQL_ASCII, which is none, a text is the bytes that came; a pooler may not tell.
_HOLDS_ALL_TEXT = ("UTF8", "SQL_ASCII", None)

# In a session that is not ours alone, no more than a transaction may be changed.
_BEGIN = "BEGIN ISOLATION LEVEL READ COMMITTED"
_COMMITTED = "SET TRANSACTION ISOLATION LEVEL READ COMMITTED"
_NO_COMPILER = "SET LOCAL jit = off"

# What nothing would be compiled for; it needs no transaction for that.
_SMALL = (HOT | MANY) - {"select_delta_values", "delete_all_but_newest"}

# What has all its trips in one transaction.
_TOGETHER = frozenset({"migrate", "dry_run", "snapshot", "exclusive"})
_SNAPSHOT = "SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY"

# https://www.postgresql.org/docs/current/errcodes-appendix.html
_LOST = ("08", "57P01", "57P02", "57P03", "53300")
_CONTENTION = ("40001", "40P01", "55P03", "22012")  # The last one is copy_thread's.
# A table, column or schema that a statement names is not there.
_OTHER_TABLES = ("42P01", "42703", "3F000")
# Of what is not JSON, and of JSON that is no list.
_NO_JSON_LIST = ("22P02", "22023")
_WAY_OUT = {
    "25006": "the server is read-only; give the address of the primary",
    "42501": "this role may not do that; see the roles in the documentation",
    "53100": "the server's disk is full; nothing of this operation was stored",
    "57014": "the server cancelled the statement (statement_timeout, perhaps)",
}


class PostgresDriver:
    """Connections to one database, shared by every copy of a saver.

    Args:
        connections: Where they come from.
        check: The operation that looks whether the tables are current; run once, before the first other one.
        setup: The operation that makes them so.
        prepare: Whether to prepare statements; None asks each connection whether it is direct.
    """

    def __init__(
        self, connections: Connections, *, check: Operation[None], setup: Operation[None], prepare: bool | None
    ) -> None:
        self._connections = connections
        self._check = check
        self._setup = setup
        self._prepare = prepare
        self._retry = RetryPolicy()
        self._ready = False
        self._closed = False
        self._sessions: weakref.WeakKeyDictionary[AnyConnection, Session] = weakref.WeakKeyDictionary()
        self._given_up: set[Process] = set()  # Still to be ended: they may not have read yet what they were sent.
        self._workers: ThreadPoolExecutor | None = None
        self._reset_batching()
        tell_of_forks(self)

    def before_fork(self) -> None:
        """Nothing has to be closed."""

    def after_fork(self) -> None:
        """Leave the connections to the parent; its workers are not in the child either."""
        self._connections.forget()
        self._workers = None
        self._reset_batching()

    # Sync

    def setup(self, op: Operation[None] | None = None) -> None:
        """Create or migrate the tables, in the usual way or in another one."""
        if self._connections.loop:
            return on_loop(self._connections.loop(), lambda: self.asetup(op))
        self._retrying(op or self._setup)
        self._ready = True

    def run(self, op: Operation[T]) -> T:
        """Run an operation here."""
        if self._connections.loop:
            return on_loop(self._connections.loop(), lambda: self.arun(op))
        if not self._ready:
            self._retrying(self._check)
            self._ready = True
        return self._retrying(op)

    def look(self, op: Operation[T]) -> T:
        """Run a read, whatever the tables are."""
        if self._connections.loop:
            return on_loop(self._connections.loop(), lambda: self._aretrying(op))
        return self._retrying(op)

    def close(self) -> None:
        """Close what was opened."""
        self._closed = True
        self._connections.close()
        self._stop_workers()

    def stats(self) -> Mapping[str, Any]:
        """The pools' figures."""
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
                    _tell(op, error, unanswered)
                    raise
                if isinstance(error, ConnectionLost):
                    self._connections.distrust()
            except SchemaMissing:
                if self._looks_again(op):
                    self._retrying(self._check)
                raise
            except CheckpointError as error:
                _tell(op, error, unanswered)
                raise
            time.sleep(pause)

    def _attempt(self, op: Operation[T]) -> T:
        if op.access not in _TOGETHER:
            return drive(op, lambda request: self._perform(op.name, request))
        with self._borrow(op.name, ()) as connection, _patience(op, connection):
            settings = self._settings(op, connection)
            with _whole(connection):
                for setting in settings:
                    _cursor(connection).execute(setting, prepare=False)
                return drive(op, lambda request: self._inside(connection, request))

    def _perform(self, name: str, request: RoundTrip | Offload) -> Any:
        if isinstance(request, Offload):
            return request.work()
        if self._shares(request.batchable):
            return self._worker_sharing.send(name, request, request.batchable)
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
                    if connection not in self._sessions:
                        asked = _cursor(connection).execute(_WHO, self._expected(connection), prepare=False)
                        self._meet(connection, asked.fetchone())
                    for process in list(self._given_up):
                        with suppress(InsufficientPrivilege):
                            _cursor(connection).execute(_END, process._asdict(), prepare=False)
                        self._given_up.discard(process)
                    yield connection
                except BaseException as error:
                    # Before the pool sees it: it rolls back, and a broken connection would look like a whole one.
                    self._note_given_up(connection)
                    if not isinstance(error, psycopg.Error):
                        raise
                    if (hidden := _hidden(error)) is not None:
                        raise hidden from None
                    raise self._wrapped(error, connection, name, statements) from error
        except (psycopg.Error, PoolTimeout, PoolClosed) as error:
            raise self._wrapped(error, None, name, statements) from error

    def _reply(self, connection: Connection[Any], request: RoundTrip | Offload) -> Any:
        if isinstance(request, Offload):
            return request.work()
        if _in_transaction(connection):
            with _whole(connection):
                return self._inside(connection, request)
        session = self._sessions[connection]
        statements = request.sent()
        if session.sends(statements):
            try:
                return request.reply(connection.wait(session.send(connection.pgconn, statements)))
            except BaseException:
                if connection.pgconn.pipeline_status:
                    connection.close()
                raise
        cursors = [_cursor(connection) for _ in statements]
        opening = _opening(statements, session)
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
                # The server skips what follows a failed statement, COMMIT included; a caller's connection has no pool
                # that ends the transaction. Who is interrupted on the way into the pipeline or out of it stays in it,
                # and the connection would wait for ever for an answer that nobody has asked for.
                try:
                    with suppress(psycopg.Error):
                        connection.rollback()
                finally:
                    if connection.pgconn.pipeline_status:
                        connection.close()
                raise
        return request.reply([cursor.fetchall() if _has_rows(cursor) else [] for cursor in cursors])

    def _inside(self, connection: Connection[Any], request: RoundTrip | Offload) -> Any:
        """Send what is a part of a transaction that begins and ends elsewhere."""
        if isinstance(request, Offload):
            return request.work()
        cursors = []
        with connection.pipeline() if connection.pgconn.pipeline_status else nullcontext():  # Its end sends a sync.
            for statement in request.sent():
                cursors.append(_cursor(connection))
                cursors[-1].execute(statement.sql, statement.values(), prepare=False)
        return request.reply([cursor.fetchall() if _has_rows(cursor) else [] for cursor in cursors])

    # Async, the same

    async def asetup(self, op: Operation[None] | None = None) -> None:
        """Create or migrate the tables, in the usual way or in another one."""
        if self._connections.by_worker:
            return await asyncio.to_thread(self.setup, op)
        await self._aretrying(op or self._setup)
        self._ready = True

    async def arun(self, op: Operation[T]) -> T:
        """Run an operation here."""
        if self._connections.by_worker:
            return await asyncio.to_thread(self.run, op)
        if not self._ready:
            await self._aretrying(self._check)
            self._ready = True
        return await self._aretrying(op)

    async def aoffload(self, request: Offload) -> Any:
        """Do work on a worker."""
        return await self._aside(request)

    async def aclose(self) -> None:
        """Close what was opened."""
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
                    _tell(op, error, unanswered)
                    raise
                if isinstance(error, ConnectionLost):
                    await self._connections.adistrust()
            except SchemaMissing:
                if self._looks_again(op):
                    await self._aretrying(self._check)
                raise
            except CheckpointError as error:
                _tell(op, error, unanswered)
                raise
            await asyncio.sleep(pause)

    async def _aattempt(self, op: Operation[T]) -> T:
        if op.access not in _TOGETHER:
            return await adrive(op, lambda request: self._aperform(op.name, request))
        async with self._aborrow(op.name, ()) as connection:
            with _patience(op, connection):
                settings = self._settings(op, connection)
                async with _awhole(connection):
                    for setting in settings:
                        await _acursor(connection).execute(setting, prepare=False)
                    return await adrive(op, lambda request: self._ainside(connection, request))

    async def _aperform(self, name: str, request: RoundTrip | Offload) -> Any:
        if isinstance(request, Offload):
            return request.work() if request.size < OFFLOAD_BYTES else await self._aside(request)
        if self._shares(request.batchable):
            return await self._loop_sharing().send(name, request, request.batchable)
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
                    if connection not in self._sessions:
                        asked = await _acursor(connection).execute(_WHO, self._expected(connection), prepare=False)
                        self._meet(connection, await asked.fetchone())
                    for process in list(self._given_up):
                        with suppress(InsufficientPrivilege):
                            await _acursor(connection).execute(_END, process._asdict(), prepare=False)
                        self._given_up.discard(process)
                    yield connection
                except BaseException as error:
                    self._note_given_up(connection)
                    if not isinstance(error, psycopg.Error):
                        raise
                    raise self._wrapped(error, connection, name, statements) from error
        except (psycopg.Error, PoolTimeout, PoolClosed) as error:
            raise self._wrapped(error, None, name, statements) from error

    async def _areply(self, connection: AsyncConnection[Any], request: RoundTrip | Offload) -> Any:
        if isinstance(request, Offload):
            return request.work()
        if _in_transaction(connection):
            async with _awhole(connection):
                return await self._ainside(connection, request)
        session = self._sessions[connection]
        statements = request.sent()
        if session.sends(statements):
            try:
                return request.reply(await connection.wait(session.send(connection.pgconn, statements)))
            except BaseException:
                if connection.pgconn.pipeline_status:
                    await connection.close()
                raise
        cursors = [_acursor(connection) for _ in statements]
        opening = _opening(statements, session)
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
                # As in `_reply`; a task may be cancelled there whenever the loop was busy.
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
        cursors = []
        async with connection.pipeline() if connection.pgconn.pipeline_status else nullcontext():
            for statement in request.sent():
                cursors.append(_acursor(connection))
                await cursors[-1].execute(statement.sql, statement.values(), prepare=False)
        return request.reply([await cursor.fetchall() if _has_rows(cursor) else [] for cursor in cursors])

    # What both colours share

    def _reset_batching(self) -> None:
        self._worker_sharing = WorkerBatching(self._send)
        self._loops_sharing: dict[asyncio.AbstractEventLoop, LoopBatching] = {}

    def _loop_sharing(self) -> LoopBatching:
        loop = asyncio.get_running_loop()
        found = self._loops_sharing.get(loop)
        if found is None:
            for other in list(self._loops_sharing):  # Other OS threads come and go meanwhile.
                if other.is_closed():
                    self._loops_sharing.pop(other, None)
            found = self._loops_sharing[loop] = LoopBatching(self._asend)
        return found

    def _shares(self, batchable: Batchable | None) -> TypeGuard[Batchable]:
        """Whether a trip may be one with others: not on a caller's one connection."""
        return batchable is not None and batchable.size <= BATCH_BYTES and self._connections.replaceable

    def _check_open(self) -> None:
        if self._closed:
            raise closed()

    def _looks_again(self, op: Operation[Any]) -> bool:
        """Whether to see what became of the tables, where an operation has found others than it needs."""
        return op is not self._check and op.access != "migrate" and self._connections.replaceable

    def _pause(self, failed: int, started: float) -> float | None:
        """Seconds until the next attempt, or None if there is none."""
        if not self._connections.replaceable:
            return None
        return self._retry.pause(failed, time.monotonic() - started)

    def _expected(self, connection: AnyConnection) -> dict[str, Any]:
        return {"expected": connection.info.backend_pid, "own": self._connections.own}

    def _meet(self, connection: AnyConnection, answer: Row | None) -> None:
        """Remember whether the server process that answers is the one that the connection was told of.

        Raises:
            ConfigError: Texts or lists would not come back as they were.
        """
        assert answer is not None
        pid, _, array_nulls, began = answer
        direct = pid == connection.info.backend_pid
        own = direct and self._connections.own
        stored = connection.info.parameter_status("server_encoding")
        if stored not in _HOLDS_ALL_TEXT:
            raise ConfigError(
                f"the database {connection.info.dbname!r} is in {stored}, which cannot hold every text; take one in "
                "UTF8: CREATE DATABASE … ENCODING 'UTF8' TEMPLATE template0"
            )
        spoken = connection.info.parameter_status("client_encoding")
        if spoken not in ("UTF8", None):
            raise ConfigError(f"client_encoding is {spoken} in this session; connect with client_encoding=UTF8")
        if not own and array_nulls != "on":
            raise ConfigError("array_nulls is off in this session; ALTER ROLE … SET array_nulls = on, and connect anew")
        prepares = direct if self._prepare is None else self._prepare
        process = Process(pid, began) if own and began is not None else None
        self._sessions[connection] = Session(connection, prepares=prepares, own=own, process=process)

    def _note_given_up(self, connection: AnyConnection) -> None:
        """Have a session ended before anything else is done, if its connection was closed while it was at work."""
        session = self._sessions.get(connection)
        if session is not None and session.process is not None and connection.closed:
            self._given_up.add(session.process)

    def _settings(self, op: Operation[Any], connection: AnyConnection) -> Sequence[str]:
        """What to set in the transaction of an operation; nothing if that is the caller's."""
        if _in_transaction(connection) or op.access == "migrate":
            return ()
        level = _SNAPSHOT if op.access == "snapshot" else _COMMITTED
        return [level] if self._sessions[connection].own else [level, _NO_COMPILER]

    async def _aside(self, request: Offload) -> Any:
        self._check_open()
        if self._workers is None:
            # Two: the work holds the GIL for most of its time.
            self._workers = ThreadPoolExecutor(2, "checkpoint-work")
        return await aside(self._workers, request.work)

    def _stop_workers(self) -> None:
        if self._workers is not None:
            self._workers.shutdown()

    def _wrapped(
        self, error: Exception, connection: AnyConnection | None, operation: str, statements: Sequence[Statement]
    ) -> CheckpointError:
        """Our error for psycopg's; its message has the server's words but neither SQL nor a password."""
        statement = statements[0].name if len(statements) == 1 else None
        if isinstance(error, PoolClosed):
            if "not open" in str(error):
                return ClosedError(f"{operation}: your pool is not open yet; open it before its first use")
            return ClosedError("the connection pool was closed; open a new saver")
        if isinstance(error, PoolTimeout):
            said = f"{operation}: every connection of the pool was busy ({error}); raise max_size or pool_timeout"
            if isinstance(error, PoolSpent):
                said = f"{operation}: {error}"
            elif not self._connections.own:
                said = f"{operation}: your pool gave none ({error}): all are busy, or it cannot connect; see its log"
            return StorageError(said, operation=operation, statement=statement)
        assert isinstance(error, psycopg.Error)
        wants_password = error.pgconn is not None and error.pgconn.needs_password
        _forget_password(error)
        state = error.sqlstate
        words = error.diag.message_primary or str(error).strip() or type(error).__name__
        details: dict[str, Any] = {"operation": operation, "statement": statement, "sqlstate": state}
        if wants_password:  # The one thing that libpq tells of a refused log-in without words, which are translated.
            return StorageError(f"{operation}: the server asks for a password, and none was given: {words}", **details)
        broken = connection is not None and connection.closed
        if broken or (state or "").startswith(_LOST) or (state is None and isinstance(error, psycopg.OperationalError)):
            what = "no connection to PostgreSQL" if connection is None else "the connection to PostgreSQL was lost"
            lost = ConnectionLost(f"{operation}: {what}: {words}", **details)
            lost.unanswered = connection is not None
            return lost
        if state in _CONTENTION:
            return Contention(f"{operation}: other transactions were in the way: {words}", **details)
        if state in _OTHER_TABLES:
            self._ready = False  # The tables went away, or changed, while we ran: look again.
            return SchemaMissing(f"{operation}: {words}; the tables changed meanwhile, or are gone: run setup()")
        if state in _NO_JSON_LIST and error.diag.source_file == "jsonfuncs.c":
            return no_list_of_names(operation)
        way_out = f" ({_WAY_OUT[state]})" if state in _WAY_OUT else ""
        return StorageError(f"{operation}: PostgreSQL refused: {words}{way_out}", **details)


def _forget_password(error: psycopg.Error) -> None:
    """Take the password out of what psycopg keeps of a connection that failed; it is our error's cause."""
    kept: Any = error.pgconn
    if dataclasses.is_dataclass(kept):  # Otherwise it is libpq's own, which cannot be read by chance.
        for name, nothing in (("password", b""), ("info", [])):
            if hasattr(kept, name):
                setattr(kept, name, nothing)


def _result(op: Operation[T], result: T, unanswered: bool) -> T:
    """What an attempt gives, where an earlier one may have been done without an answer."""
    return True if unanswered and op.tells else result  # type: ignore[return-value]  # A bool, if it tells.


def _tell(op: Operation[Any], error: CheckpointError, unanswered: bool) -> None:
    """Say in an error that an earlier attempt may have been done without an answer."""
    if isinstance(error, ConnectionLost):
        error.unanswered = unanswered
    elif unanswered and op.access in ("write", "exclusive"):
        words = f"{op.name} was made again, since no answer came, and may have been done the first time; then: {error}"
        error.args = (words,)


def _patience(op: Operation[Any], connection: AnyConnection) -> AbstractContextManager[None]:
    """A migration may take its time."""
    return no_timeout(connection) if op.access == "migrate" else nullcontext()


def _in_transaction(connection: AnyConnection) -> bool:
    """Whether what is sent becomes part of a transaction, or of a pipeline, that somebody else ends."""
    if connection.pgconn.pipeline_status:
        return True
    return not connection.autocommit or connection.pgconn.transaction_status != pq.TransactionStatus.IDLE


@contextmanager
def _whole(connection: Connection[Any]) -> Iterator[None]:
    """Do all that is sent, or nothing: in a transaction of its own, or as part of a caller's."""
    if not _begins_by_itself(connection):
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
async def _awhole(connection: AsyncConnection[Any]) -> AsyncIterator[None]:
    if not _begins_by_itself(connection):
        async with connection.transaction():
            yield
        return
    try:
        yield
    except BaseException:
        with suppress(psycopg.Error):
            await connection.rollback()
        raise


def _begins_by_itself(connection: AnyConnection) -> bool:
    """Whether the next statement begins a transaction, which the caller ends: `transaction()` would end it for him."""
    return not connection.autocommit and connection.pgconn.transaction_status == pq.TransactionStatus.IDLE


def _hidden(error: BaseException) -> BaseException | None:
    """What has interrupted a wait, such as a time limit that a signal handler raises, behind what psycopg says then."""
    context = error.__context__
    while isinstance(context, psycopg.Error):
        context = context.__context__
    return context


def _cursor(connection: Connection[Any]) -> Cursor[Row]:
    """A cursor of ours, whatever a caller's connection makes."""
    cursor = Cursor(connection, row_factory=tuple_row)
    cursor.format = pq.Format.BINARY
    return cursor


def _acursor(connection: AsyncConnection[Any]) -> AsyncCursor[Row]:
    cursor = AsyncCursor(connection, row_factory=tuple_row)
    cursor.format = pq.Format.BINARY
    return cursor


def _has_rows(cursor: Cursor[Any] | AsyncCursor[Any]) -> bool:
    """Whether a statement gives rows, even none; `description` would make an object for each of their columns."""
    return cursor.pgresult is not None and cursor.pgresult.status == pq.ExecStatus.TUPLES_OK


def _opening(statements: Sequence[Statement], session: Session) -> Sequence[str]:
    """What to send before the statements of a trip; nothing if there is one, which needs no transaction."""
    if not session.own and not _SMALL.issuperset(statement.name for statement in statements):
        return (_BEGIN, _NO_COMPILER)
    return (_BEGIN,) if len(statements) > 1 else ()
