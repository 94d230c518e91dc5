"""PostgreSQL over psycopg 3: one round trip a trip, prepared statements where they are safe, bounded retry.

A trip of one statement is sent as it is; several go as `BEGIN` … `COMMIT` in one pipeline, which is one round trip and
one transaction (the implicit transaction of a bare pipeline is not atomic on every engine that speaks this protocol).
On a caller's connection that is in a transaction, or that begins one by itself, trips are savepoints in it.

A prepared statement lives in one server process. A pooler such as PgBouncer lends that process to others, so statements
are prepared only on connections that are known to be direct: the process id that the connection was told at its start
is the one that answers. That is asked once a connection.
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
from psycopg.rows import tuple_row
from psycopg_pool import PoolClosed, PoolTimeout

from langgraph_checkpoint_custom.core.operation import (
    OFFLOAD_BYTES,
    Offload,
    Operation,
    Row,
    Share,
    Statement,
    Trip,
    adrive,
    drive,
)
from langgraph_checkpoint_custom.core.retry import RetryPolicy
from langgraph_checkpoint_custom.core.sharing import GROUP_BYTES
from langgraph_checkpoint_custom.drivers import postgres_arrays  # noqa: F401  # Registers what psycopg is to do.
from langgraph_checkpoint_custom.drivers.postgres_connections import Connections
from langgraph_checkpoint_custom.drivers.postgres_sharing import LoopSharing, WorkerSharing
from langgraph_checkpoint_custom.drivers.postgres_waiting import without_hurry
from langgraph_checkpoint_custom.errors import (
    CheckpointError,
    ClosedError,
    ConnectionLost,
    Contention,
    RetryableError,
    SchemaMissing,
    StorageError,
)
from langgraph_checkpoint_custom.forks import tell_of_forks

T = TypeVar("T")
AnyConnection = Connection[Any] | AsyncConnection[Any]

# Statements that a run sends again and again; the others are planned afresh, knowing their arrays.
HOT = frozenset(
    {
        "insert_checkpoint",
        "insert_checkpoint_with_blobs",
        "extend_checkpoint",
        "put_checkpoint",
        "erase_superseded",
        "insert_writes",
        "page_latest",
        "page_exact",
        "page_of_namespace",
        "page_of_thread",
        "select_delta_values",
    }
)

# Those of many calls are prepared at once: they come when there is much to do, and planning takes longer than running.
MANY = frozenset({"insert_checkpoints", "insert_writes_of_many", "page_of_latest", "page_of_exact"})

# The process that answers, and if that is the expected one, so that the session is ours alone: generic plans, and no
# compiler. Otherwise PostgreSQL plans the put statement anew each time, since it guesses ten rows in each array and so
# finds the generic plan dear; that was 440 of 700 µs. And it compiles what seems dear since rows are guessed: where it
# comes with LLVM, as Debian's does, a history of 200 steps took 70 ms instead of 3, and 1.5 s in partitions.
_WHO = """
SELECT pid, CASE WHEN pid = %(expected)s AND %(own)s THEN
    set_config('plan_cache_mode', 'force_generic_plan', false) || set_config('jit', 'off', false) END
FROM pg_backend_pid() AS pid
"""

# In a session that is not ours alone, no more than a transaction may be changed.
_NO_COMPILER = "SET LOCAL jit = off"

# What nothing would be compiled for; it needs no transaction for that.
_SMALL = (HOT | MANY) - {"select_delta_values"}

# What has all its trips in one transaction.
_TOGETHER = frozenset({"migrate", "rehearsal", "snapshot", "exclusive"})
_SNAPSHOT = "SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY"

# https://www.postgresql.org/docs/current/errcodes-appendix.html
_LOST = ("08", "57P01", "57P02", "57P03", "53300")
_CONTENTION = ("40001", "40P01", "55P03")
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
        self._direct: weakref.WeakKeyDictionary[AnyConnection, bool] = weakref.WeakKeyDictionary()
        self._workers: ThreadPoolExecutor | None = None
        self._share_anew()
        tell_of_forks(self)

    def before_fork(self) -> None:
        """Nothing has to be closed."""

    def after_fork(self, *, child: bool) -> None:
        """Leave the connections to the parent; its workers are not in the child either."""
        if child:
            self._connections.forget()
            self._workers = None
            self._share_anew()

    # Sync

    def setup(self, op: Operation[None] | None = None) -> None:
        """Create or migrate the tables, in the usual way or in another one."""
        self._retrying(op or self._setup)
        self._ready = True

    def run(self, op: Operation[T]) -> T:
        """Run an operation here."""
        if not self._ready:
            self._retrying(self._check)
            self._ready = True
        return self._retrying(op)

    def look(self, op: Operation[T]) -> T:
        """Run a read, whatever the tables are."""
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
        started, failed = time.monotonic(), 0
        while True:
            try:
                if op.access not in _TOGETHER:
                    return drive(op, lambda request: self._perform(op.name, request))
                with self._borrow(op.name, ()) as connection, _patience(op, connection):
                    settings = self._settings(op, connection)
                    with connection.transaction():
                        for setting in settings:
                            connection.execute(setting, prepare=False)
                        return drive(op, lambda request: self._inside(connection, request))
            except RetryableError as error:
                failed += 1
                pause = self._pause(failed, started)
                if pause is None:
                    raise
                if isinstance(error, ConnectionLost):
                    self._connections.distrust()
            time.sleep(pause)

    def _perform(self, name: str, request: Trip | Offload) -> Any:
        if isinstance(request, Offload):
            return request.work()
        if self._shares(request.share):
            return self._worker_sharing.send(name, request, request.share)
        return self._send(name, request.statements, request)

    def _send(self, name: str, statements: Sequence[Statement], trip: Trip) -> Any:
        with self._borrow(name, statements) as connection:
            return self._reply(connection, trip)

    @contextmanager
    def _borrow(self, name: str, statements: Sequence[Statement]) -> Iterator[Connection[Any]]:
        self._check_open()
        try:
            with self._connections.borrow() as connection:
                try:
                    yield connection
                except psycopg.Error as error:
                    # Before the pool sees it: it rolls back, and a broken connection would look like a whole one.
                    raise self._wrapped(error, connection, name, statements) from error
        except (psycopg.Error, PoolTimeout, PoolClosed) as error:
            raise self._wrapped(error, None, name, statements) from error

    def _reply(self, connection: Connection[Any], request: Trip | Offload) -> Any:
        if isinstance(request, Offload):
            return request.work()
        if _in_transaction(connection):
            with connection.transaction():
                return self._inside(connection, request)
        statements = request.sent()
        cursors = [connection.cursor(binary=True, row_factory=tuple_row) for _ in statements]
        prepare = self._may_prepare(connection)
        if prepare is None:
            asked = connection.execute(_WHO, self._expected(connection), prepare=False)
            prepare = self._learn(connection, asked.fetchone())
        opening = self._opening(statements, connection)
        if not opening:
            cursors[0].execute(statements[0].sql, statements[0].values(), prepare=_how(statements[0], prepare))
        else:
            try:
                with connection.pipeline():
                    for word in opening:
                        connection.execute(word, prepare=False)
                    for cursor, statement in zip(cursors, statements, strict=True):
                        cursor.execute(statement.sql, statement.values(), prepare=_how(statement, prepare))
                    connection.execute("COMMIT", prepare=False)
            except BaseException:
                # The server skips what follows a failed statement, COMMIT included; a caller's connection has no pool
                # that ends the transaction.
                with suppress(psycopg.Error):
                    connection.rollback()
                raise
        return request.reply([cursor.fetchall() if _has_rows(cursor) else [] for cursor in cursors])

    def _inside(self, connection: Connection[Any], request: Trip | Offload) -> Any:
        """Send what is a part of a transaction that begins and ends elsewhere."""
        if isinstance(request, Offload):
            return request.work()
        cursors = []
        for statement in request.sent():
            cursors.append(connection.cursor(binary=True, row_factory=tuple_row))
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
        self._check_open()
        return await self._aside(request)

    async def aclose(self) -> None:
        """Close what was opened."""
        self._closed = True
        await self._connections.aclose()
        await asyncio.to_thread(self._stop_workers)

    async def _aretrying(self, op: Operation[T]) -> T:
        started, failed = time.monotonic(), 0
        while True:
            try:
                if op.access not in _TOGETHER:
                    return await adrive(op, lambda request: self._aperform(op.name, request))
                async with self._aborrow(op.name, ()) as connection:
                    with _patience(op, connection):
                        settings = self._settings(op, connection)
                        async with connection.transaction():
                            for setting in settings:
                                await connection.execute(setting, prepare=False)
                            return await adrive(op, lambda request: self._ainside(connection, request))
            except RetryableError as error:
                failed += 1
                pause = self._pause(failed, started)
                if pause is None:
                    raise
                if isinstance(error, ConnectionLost):
                    await self._connections.adistrust()
            await asyncio.sleep(pause)

    async def _aperform(self, name: str, request: Trip | Offload) -> Any:
        if isinstance(request, Offload):
            return request.work() if request.size < OFFLOAD_BYTES else await self._aside(request)
        if self._shares(request.share):
            return await self._loop_sharing().send(name, request, request.share)
        return await self._asend(name, request.statements, request)

    async def _asend(self, name: str, statements: Sequence[Statement], trip: Trip) -> Any:
        async with self._aborrow(name, statements) as connection:
            return await self._areply(connection, trip)

    @asynccontextmanager
    async def _aborrow(self, name: str, statements: Sequence[Statement]) -> AsyncIterator[AsyncConnection[Any]]:
        self._check_open()
        try:
            async with self._connections.aborrow() as connection:
                try:
                    yield connection
                except psycopg.Error as error:
                    raise self._wrapped(error, connection, name, statements) from error
        except (psycopg.Error, PoolTimeout, PoolClosed) as error:
            raise self._wrapped(error, None, name, statements) from error

    async def _areply(self, connection: AsyncConnection[Any], request: Trip | Offload) -> Any:
        if isinstance(request, Offload):
            return request.work()
        if _in_transaction(connection):
            async with connection.transaction():
                return await self._ainside(connection, request)
        statements = request.sent()
        cursors = [connection.cursor(binary=True, row_factory=tuple_row) for _ in statements]
        prepare = self._may_prepare(connection)
        if prepare is None:
            asked = await connection.execute(_WHO, self._expected(connection), prepare=False)
            prepare = self._learn(connection, await asked.fetchone())
        opening = self._opening(statements, connection)
        if not opening:
            await cursors[0].execute(statements[0].sql, statements[0].values(), prepare=_how(statements[0], prepare))
        else:
            try:
                async with connection.pipeline():
                    for word in opening:
                        await connection.execute(word, prepare=False)
                    for cursor, statement in zip(cursors, statements, strict=True):
                        await cursor.execute(statement.sql, statement.values(), prepare=_how(statement, prepare))
                    await connection.execute("COMMIT", prepare=False)
            except BaseException:
                # The server skips what follows a failed statement, COMMIT included; a caller's connection has no pool
                # that ends the transaction.
                with suppress(psycopg.Error):
                    await connection.rollback()
                raise
        return request.reply([await cursor.fetchall() if _has_rows(cursor) else [] for cursor in cursors])

    async def _ainside(self, connection: AsyncConnection[Any], request: Trip | Offload) -> Any:
        if isinstance(request, Offload):
            return request.work()
        cursors = []
        for statement in request.sent():
            cursors.append(connection.cursor(binary=True, row_factory=tuple_row))
            await cursors[-1].execute(statement.sql, statement.values(), prepare=False)
        return request.reply([await cursor.fetchall() if _has_rows(cursor) else [] for cursor in cursors])

    # What both colours share

    def _share_anew(self) -> None:
        self._worker_sharing = WorkerSharing(self._send)
        self._loops_sharing: dict[asyncio.AbstractEventLoop, LoopSharing] = {}

    def _loop_sharing(self) -> LoopSharing:
        loop = asyncio.get_running_loop()
        found = self._loops_sharing.get(loop)
        if found is None:
            for other in list(self._loops_sharing):  # Other OS threads come and go meanwhile.
                if other.is_closed():
                    self._loops_sharing.pop(other, None)
            found = self._loops_sharing[loop] = LoopSharing(self._asend)
        return found

    def _shares(self, share: Share | None) -> TypeGuard[Share]:
        """Whether a trip may be one with others: not on a caller's one connection."""
        return share is not None and share.size <= GROUP_BYTES and self._connections.replaceable

    def _check_open(self) -> None:
        if self._closed:
            raise ClosedError("this saver was closed; open a new one")

    def _pause(self, failed: int, started: float) -> float | None:
        """Seconds until the next attempt, or None if there is none."""
        if not self._connections.replaceable:
            return None
        return self._retry.pause(failed, time.monotonic() - started)

    def _may_prepare(self, connection: AnyConnection) -> bool | None:
        """Whether a connection takes prepared statements; None if it has to be asked."""
        return self._prepare if self._prepare is not None else self._direct.get(connection)

    def _expected(self, connection: AnyConnection) -> dict[str, Any]:
        return {"expected": connection.info.backend_pid, "own": self._connections.own}

    def _learn(self, connection: AnyConnection, answer: Row | None) -> bool:
        """Remember whether the server process that answers is the one that the connection was told of."""
        direct = answer is not None and answer[0] == connection.info.backend_pid
        self._direct[connection] = direct
        return direct

    def _compiles(self, connection: AnyConnection) -> bool:
        """Whether the session may be one in which statements are compiled."""
        return not (self._connections.own and self._direct.get(connection))

    def _opening(self, statements: Sequence[Statement], connection: AnyConnection) -> Sequence[str]:
        """What to send before the statements of a trip; nothing if there is one, which needs no transaction."""
        if self._compiles(connection) and not _SMALL.issuperset(statement.name for statement in statements):
            return ("BEGIN", _NO_COMPILER)
        return ("BEGIN",) if len(statements) > 1 else ()

    def _settings(self, op: Operation[Any], connection: AnyConnection) -> Sequence[str]:
        """What to set in the transaction of an operation; nothing if that is the caller's."""
        if _in_transaction(connection) or op.access == "migrate":
            return ()
        snapshot = [_SNAPSHOT] if op.access == "snapshot" else []
        return [*snapshot, _NO_COMPILER] if self._compiles(connection) else snapshot

    async def _aside(self, request: Offload) -> Any:
        if self._workers is None:
            # Two: the work holds the GIL for most of its time.
            self._workers = ThreadPoolExecutor(2, "checkpoint-work")
        return await asyncio.get_running_loop().run_in_executor(self._workers, request.work)

    def _stop_workers(self) -> None:
        if self._workers is not None:
            self._workers.shutdown()

    def _wrapped(
        self, error: Exception, connection: AnyConnection | None, operation: str, statements: Sequence[Statement]
    ) -> CheckpointError:
        """Our error for psycopg's; its message has the server's words but neither SQL nor a password."""
        statement = statements[0].name if len(statements) == 1 else None
        if isinstance(error, PoolClosed):
            return ClosedError("the connection pool was closed; open a new saver")
        if isinstance(error, PoolTimeout):
            return StorageError(
                f"{operation}: every connection of the pool was busy ({error}); raise max_size or pool_timeout",
                operation=operation,
                statement=statement,
            )
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
            return ConnectionLost(f"{operation}: {what}: {words}", **details)
        if state in _CONTENTION:
            return Contention(f"{operation}: other transactions were in the way: {words}", **details)
        if state in ("42P01", "42703", "3F000"):
            self._ready = False  # The tables went away, or changed, while we ran: look again.
            return SchemaMissing(f"{operation}: {words}; run setup() or `python -m langgraph_checkpoint_custom setup`")
        way_out = f" ({_WAY_OUT[state]})" if state in _WAY_OUT else ""
        return StorageError(f"{operation}: PostgreSQL refused: {words}{way_out}", **details)


def _forget_password(error: psycopg.Error) -> None:
    """Take the password out of what psycopg keeps of a connection that failed; it is our error's cause."""
    kept: Any = error.pgconn
    if dataclasses.is_dataclass(kept):  # Otherwise it is libpq's own, which cannot be read by chance.
        for name, nothing in (("password", b""), ("info", [])):
            if hasattr(kept, name):
                setattr(kept, name, nothing)


def _patience(op: Operation[Any], connection: AnyConnection) -> AbstractContextManager[None]:
    """A migration may take its time."""
    return without_hurry(connection) if op.access == "migrate" else nullcontext()


def _in_transaction(connection: AnyConnection) -> bool:
    """Whether what is sent becomes part of a transaction that somebody else ends."""
    return not connection.autocommit or connection.pgconn.transaction_status != pq.TransactionStatus.IDLE


def _has_rows(cursor: Cursor[Any] | AsyncCursor[Any]) -> bool:
    """Whether a statement gives rows, even none; `description` would make an object for each of their columns."""
    return cursor.pgresult is not None and cursor.pgresult.status == pq.ExecStatus.TUPLES_OK


def _how(statement: Statement, direct: bool) -> bool | None:
    """The `prepare` of psycopg: None prepares what comes often."""
    if not direct:
        return False
    return True if statement.name in MANY else None if statement.name in HOT else False
