"""SQLite over the standard library: one writer connection, readers beside it, workers for the async side.

A write holds the writer and `BEGIN IMMEDIATE` for its trips; those that come at once share it, see `sqlite_turns.py`. A
read is one statement, so it is a read snapshot by itself and needs no transaction; readers never wait for the writer,
since the file is in WAL mode. An async call encodes where it is called, hops once to a worker and runs there to its
end. `:memory:` has one connection for everything.
"""

from __future__ import annotations

import asyncio
import os
import sqlite3
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, closing, contextmanager, suppress
from typing import Any, TypeVar

from langgraph_checkpoint_custom.core.operation import Access, Offload, Operation, Row, Statement, Trip, drive
from langgraph_checkpoint_custom.drivers.sqlite_turns import LONGEST, MOST, Call, Hops, Line
from langgraph_checkpoint_custom.errors import (
    ClosedError,
    ConfigError,
    Contention,
    SchemaMissing,
    SchemaOutdated,
    StorageError,
)
from langgraph_checkpoint_custom.forks import tell_of_forks

T = TypeVar("T")

OLDEST = (3, 38, 0)  # STRICT tables came with 3.37, the operator ->> with 3.38.
SYNCHRONOUS = ("OFF", "NORMAL", "FULL", "EXTRA")
# OS threads for async reads; SQLite's reads hold the GIL for most of their time, so more do not help.
READERS = 4
# What stands in line at the writer.
_IN_LINE = frozenset({"write", "exclusive", "migrate"})
# What gives its connection back before it decodes; the others' trips are one transaction.
_LETS_GO = frozenset({"read", "write"})
# Primary result codes: https://www.sqlite.org/rescode.html
_BUSY = {5: "SQLITE_BUSY", 6: "SQLITE_LOCKED"}
_WAY_OUT = {
    8: "the file or its folder is not writable for this user",
    10: "the disk reported an error",
    11: "the file is damaged; restore it from a backup, or rescue it with the `.recover` command of the sqlite3 shell",
    13: "the disk is full; nothing of this operation was stored, free some space and go on",
    14: "the file cannot be opened; does its folder exist, and may this user write there?",
    26: "the file is not a SQLite database",
}


class SqliteDriver:
    """Connections to one file, shared by every copy of a saver.

    Args:
        path: The file, or ":memory:".
        check: The operation that looks whether the tables are current.
        setup: The operation that makes them so; run in the first transaction on the file, if needed.
        busy_timeout: Seconds to wait for another process's write to end.
        synchronous: SQLite's setting of that name, for every connection.
    """

    def __init__(
        self, path: str, *, check: Operation[None], setup: Operation[None], busy_timeout: float, synchronous: str
    ) -> None:
        if sqlite3.sqlite_version_info < OLDEST:
            raise ConfigError(
                f"SQLite {sqlite3.sqlite_version} is too old, 3.38 is needed; use a Python built with a newer one"
            )
        if not path:
            raise ConfigError('the path of the SQLite file is empty; for a store in memory it is ":memory:"')
        if synchronous.upper() not in SYNCHRONOUS:
            raise ConfigError(f"synchronous must be one of {', '.join(SYNCHRONOUS)}, not {synchronous!r}")
        if not busy_timeout >= 0:
            raise ConfigError(f"busy_timeout must be 0 or more seconds, not {busy_timeout!r}")
        self.path = path
        self._check = check
        self._setup = setup
        self._busy_timeout = float(busy_timeout)
        self._synchronous = synchronous.upper()
        self._lock = threading.Lock()  # Guards the writer, and opening and closing.
        self._held = _Held()
        self._workers: dict[Access, Hops] = {}
        self._line = Line()
        self._finalizer = weakref.finalize(self, self._held.close)
        tell_of_forks(self)

    def before_fork(self) -> None:
        """Close the file: SQLite's locks are those of a process, and do not survive a fork."""
        self._lock.acquire()
        if self._shared:
            return
        deadline = time.monotonic() + self._busy_timeout
        # New readers wait for the lock. Those that go on are polled, since a condition that each read would have to
        # notify costs every read something, and forks are rare.
        while self._held.lent and time.monotonic() < deadline:
            self._held.close_connections()
            time.sleep(0.001)  # A small read takes less.
        self._held.close_connections()

    def after_fork(self, *, child: bool) -> None:
        """Go on; the file is opened again when it is needed. In the child there are no workers."""
        if child:
            self._workers = {}
            self._line = Line()
            self._held.lent.clear()
        self._lock.release()

    @property
    def _shared(self) -> bool:
        return self.path == ":memory:"

    def setup(self) -> None:
        """Create or migrate the tables now; otherwise the first operation does."""
        with self._writer("setup"):
            pass

    async def asetup(self) -> None:
        """Create or migrate the tables now; otherwise the first operation does."""
        await asyncio.get_running_loop().run_in_executor(self._worker("write").executor, self.setup)

    def run(self, op: Operation[T]) -> T:
        """Run an operation here."""
        if op.access not in _IN_LINE:
            return self._alone(op)
        call = Call(op)
        self._store([call])
        return call.outcome()

    def look(self, op: Operation[T]) -> T:
        """Run a read, whatever the tables are: none is made or migrated."""
        try:
            with closing(self._connect(read_only=True)) as connection:
                return drive(op, lambda request: _reply(connection, request))
        except sqlite3.Error as error:
            raise self._wrapped(error, op.name, None) from error

    async def arun(self, op: Operation[T]) -> T:
        """Run an operation on a worker."""
        return await self._worker(op.access).run(op, self._store if op.access in _IN_LINE else self._each)

    async def aoffload(self, request: Offload) -> Any:
        """Do work on a worker."""
        return await asyncio.get_running_loop().run_in_executor(self._worker("read").executor, request.work)

    def close(self) -> None:
        """Wait for what is running and close every connection."""
        self._held.closed = True
        for worker in list(self._workers.values()):
            worker.executor.shutdown()
        self._line.run((), self._write)
        with self._lock:
            self._held.close()

    async def aclose(self) -> None:
        """Wait for what is running and close every connection."""
        await asyncio.to_thread(self.close)

    def stats(self) -> dict[str, int]:
        """Connections that read, and those that wait to."""
        return {"reading": len(self._held.lent), "idle": len(self._held.idle)}

    def _worker(self, access: Access) -> Hops:
        if self._held.closed:
            raise closed()
        access = "write" if access in _IN_LINE else "read"
        worker = self._workers.get(access)
        if worker is None:
            if access == "write":
                made = Hops(1, "checkpoint-write", most=MOST, seconds=0)
            else:
                made = Hops(1 if self._shared else READERS, "checkpoint-read", most=1, seconds=LONGEST)
            # setdefault is atomic: of two threads that come here at once both use the same one.
            worker = self._workers.setdefault(access, made)
        return worker

    def _alone(self, op: Operation[T], *, in_line: bool = False) -> T:
        with _Session(self, op, in_line=in_line) as session:
            return drive(op, session.perform)

    def _each(self, calls: Iterable[Call[Any]], *, in_line: bool = False) -> None:
        """Run operations one by one."""
        for call in calls:
            call.error = None
            try:
                call.result = self._alone(call.op, in_line=in_line)
            except Exception as error:
                call.error = error

    def _store(self, calls: Sequence[Call[Any]]) -> None:
        """Run writes together with those of others, and then by themselves those that had to leave the line."""
        self._line.run(calls, self._write)
        self._each([call for call in calls if isinstance(call.error, _Leaves)])

    def _write(self, calls: Sequence[Call[Any]]) -> None:
        """Run writes in as few transactions as can be."""
        left = deque(calls)
        while left:
            self._each(self._together(left) if len(left) > 1 else [left.popleft()], in_line=True)

    def _together(self, left: deque[Call[Any]]) -> Sequence[Call[Any]]:
        """Take writes and run them in one transaction; returns them if it fails and each has to have its own."""
        with self._lock:
            connection = self._held.writer
            if connection is None:
                return [left.popleft()]  # It opens the file.
            try:
                connection.execute("BEGIN IMMEDIATE")
            except sqlite3.Error as error:  # All of them have waited for busy_timeout.
                while left:
                    call = left.popleft()
                    call.error = self._wrapped(error, call.op.name, None)
                    call.error.__cause__ = error
                return []
            taken: list[Call[Any]] = []
            try:
                ends = time.monotonic() + LONGEST
                while left and (not taken or time.monotonic() < ends):
                    taken.append(left.popleft())
                    self._member(connection, taken[-1])
                connection.execute("COMMIT")
            except sqlite3.Error:
                return taken
            finally:
                if connection.in_transaction:
                    connection.rollback()
        return []

    def _member(self, connection: sqlite3.Connection, call: Call[Any]) -> None:
        def perform(request: Trip | Offload) -> Any:
            if not isinstance(request, Offload):
                return self._send(connection, call.op.name, request)
            if call.op.access in _LETS_GO:
                raise _Leaves
            return request.work()

        call.error = None
        connection.execute("SAVEPOINT member")
        try:
            call.result = drive(call.op, perform)
        except Exception as error:
            call.error = error
            connection.execute("ROLLBACK TO member")  # Fails if all is rolled back, as with a full disk.
        connection.execute("RELEASE member")

    def _send(self, connection: sqlite3.Connection, operation: str, trip: Trip) -> Any:
        try:
            return _reply(connection, trip)
        except sqlite3.Error as error:
            names = {statement.name for statement in trip.statements}
            raise self._wrapped(error, operation, names.pop() if len(names) == 1 else None) from error

    @contextmanager
    def _writer(self, operation: str) -> Iterator[sqlite3.Connection]:
        """The writer connection, with the tables in place."""
        with self._lock:
            if self._held.writer is None:
                if self._held.closed:
                    raise closed()
                try:
                    self._held.writer = self._open(operation)
                except sqlite3.Error as error:
                    raise self._wrapped(error, operation, None) from error
            yield self._held.writer

    def _lend(self, reader: object, operation: str) -> sqlite3.Connection:
        """A reader connection that nobody else has until it is taken back."""
        while True:
            self._held.lent.add(reader)
            if self._held.writer is not None:
                break
            self._held.lent.discard(reader)  # A fork waits for those that are lent, with the lock.
            with self._writer(operation):
                pass
        try:
            return self._held.idle.pop()
        except IndexError:
            pass
        try:
            return self._connect(read_only=True)
        except BaseException as error:
            self._held.lent.discard(reader)
            if isinstance(error, sqlite3.Error):
                raise self._wrapped(error, operation, None) from error
            raise

    def _take_back(self, reader: object, connection: sqlite3.Connection) -> None:
        self._held.idle.append(connection)
        if self._held.closed:
            self._held.close_idle()
        self._held.lent.discard(reader)

    def _connect(self, *, read_only: bool = False) -> sqlite3.Connection:
        connection = sqlite3.connect(
            self.path, timeout=self._busy_timeout, isolation_level=None, check_same_thread=False, cached_statements=256
        )
        try:
            connection.execute(f"PRAGMA synchronous = {self._synchronous}")
            if read_only:
                connection.execute("PRAGMA query_only = 1")
        except BaseException:
            connection.close()
            raise
        return connection

    def _open(self, operation: str) -> sqlite3.Connection:
        """The first connection: makes the file, migrates, and then sets WAL mode, since the file may be another's."""
        if not self._shared:
            # Readers are opened later, and the process may work in another folder by then. Conversations are nobody
            # else's business; the WAL files take over the mode. What is wrong with the path SQLite says better.
            with suppress(OSError):
                if not os.path.isabs(self.path):
                    self.path = os.path.join(os.getcwd(), self.path)
                os.close(os.open(self.path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
        connection = self._connect()
        try:
            if self._is_current(connection):
                return connection
            connection.execute("BEGIN IMMEDIATE")
            drive(self._setup, lambda request: _reply(connection, request))
            connection.execute("COMMIT")
            self._patiently(lambda: connection.execute("PRAGMA journal_mode = WAL").fetchall())
        except BaseException:
            connection.close()
            raise
        return connection

    def _is_current(self, connection: sqlite3.Connection) -> bool:
        """Whether there is nothing to set up: to see that takes no lock, so the first read waits for nobody."""
        if self._shared or connection.execute("PRAGMA journal_mode").fetchone() != ("wal",):
            return False
        connection.execute("BEGIN")  # One read snapshot for all of it.
        try:
            drive(self._check, lambda request: _reply(connection, request))
        except (SchemaMissing, SchemaOutdated):
            return False
        finally:
            connection.execute("ROLLBACK")
        return True

    def _patiently(self, attempt: Callable[[], Any]) -> None:
        """Switching to WAL mode does not wait for other processes by itself, so wait here."""
        started = time.monotonic()
        failed = 0
        while True:
            try:
                attempt()
                return
            except sqlite3.OperationalError as error:
                failed += 1
                elapsed = time.monotonic() - started
                if _code(error) not in _BUSY or elapsed > self._busy_timeout:
                    raise
            time.sleep(min(0.01 * failed, 0.25))

    def _wrapped(self, error: sqlite3.Error, operation: str, statement: str | None) -> StorageError:
        code = _code(error)
        name = getattr(error, "sqlite_errorname", None)
        if code in _BUSY:
            return Contention(
                f"{operation}: another process has been writing to {self.path} for longer than busy_timeout "
                f"({self._busy_timeout:g} s); nothing was stored. Raise busy_timeout, or find out who holds the lock",
                operation=operation,
                statement=statement,
                sqlstate=name,
            )
        way_out = _WAY_OUT.get(code or 0, str(error))
        return StorageError(
            f"{operation}: SQLite failed on {self.path}: {way_out}",
            operation=operation,
            statement=statement,
            sqlstate=name,
        )


class _Held:
    """What has to be closed; apart from the driver, so that a finalizer can hold it."""

    def __init__(self) -> None:
        self.closed = False
        self.writer: sqlite3.Connection | None = None
        self.idle: list[sqlite3.Connection] = []
        self.lent: set[object] = set()  # One for each read that goes on.

    def close_idle(self) -> None:
        with suppress(IndexError):  # Two OS threads may come to the last one at once.
            while True:
                self.idle.pop().close()

    def close(self) -> None:
        self.closed = True
        self.close_connections()

    def close_connections(self) -> None:
        self.close_idle()
        # The last one to close folds the WAL into the file.
        if self.writer is not None:
            self.writer.close()
            self.writer = None


class _Leaves(Exception):
    """A write has something to do that others in line should not wait for, nor other processes with the lock."""


class _Session:
    """One operation's turn: a connection from its first trip on, given back before results are decoded."""

    def __init__(self, driver: SqliteDriver, op: Operation[Any], *, in_line: bool) -> None:
        self._driver = driver
        self._op = op
        self._in_line = in_line
        self._connection: sqlite3.Connection | None = None
        self._turn: AbstractContextManager[sqlite3.Connection] | None = None  # At the writer.

    def __enter__(self) -> _Session:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        self._end(commit=error is None)

    def perform(self, request: Trip | Offload) -> Any:
        """Send a trip's statements, or do the work that needs no connection."""
        if isinstance(request, Offload):
            if self._op.access in _LETS_GO:
                if self._in_line:
                    raise _Leaves
                self._end(commit=True)
            return request.work()
        return self._driver._send(self._connection or self._begin(), self._op.name, request)

    def _begin(self) -> sqlite3.Connection:
        driver, name = self._driver, self._op.name
        writes = self._op.access in _IN_LINE or self._op.access == "rehearsal"
        if writes or driver._shared:
            self._turn = driver._writer(name)
            self._connection = connection = self._turn.__enter__()
        else:
            self._connection = connection = driver._lend(self, name)
        if writes:
            self._word(connection, "BEGIN IMMEDIATE")
        elif self._op.access == "snapshot":
            self._word(connection, "BEGIN")
        return connection

    def _end(self, *, commit: bool) -> None:
        connection, self._connection = self._connection, None
        if connection is None:
            return
        try:
            if connection.in_transaction:
                if commit:
                    self._word(connection, "COMMIT")
                else:
                    connection.rollback()
        finally:
            if connection.in_transaction:  # The commit failed: a full disk, say.
                connection.rollback()
            if self._turn is None:
                self._driver._take_back(self, connection)
            else:
                self._turn.__exit__(None, None, None)

    def _word(self, connection: sqlite3.Connection, sql: str) -> None:
        try:
            connection.execute(sql)
        except sqlite3.Error as error:
            raise self._driver._wrapped(error, self._op.name, None) from error


def _reply(connection: sqlite3.Connection, request: Trip | Offload) -> Any:
    if isinstance(request, Offload):
        return request.work()
    return [_execute(connection, statement) for statement in request.statements]


def _execute(connection: sqlite3.Connection, statement: Statement) -> list[Row]:
    if isinstance(statement.params, list):
        connection.executemany(statement.sql, statement.params)
        return []
    return connection.execute(statement.sql, statement.params).fetchall()


def _code(error: sqlite3.Error) -> int | None:
    """The primary result code; Python 3.10 does not tell it, so nothing is known about such an error there."""
    code: int | None = getattr(error, "sqlite_errorcode", None)
    return None if code is None else code & 0xFF


def closed() -> ClosedError:
    """The error for a saver that was closed."""
    return ClosedError("this saver was closed; open a new one")
