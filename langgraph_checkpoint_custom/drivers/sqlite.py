"""SQLite over the standard library: one connection for writes, others for reads, workers for async calls.

A write holds the writer connection, and `BEGIN IMMEDIATE`, for its round trips; concurrent writes share a transaction
(`sqlite_group_commit.py`). An ordinary put that runs alone is one statement, and so its own transaction. A read is one
statement as well, and so one read snapshot. Reads never wait for the writer, since the file is in WAL mode. An async
call encodes where it is called, switches to a worker once and runs there to its end. `:memory:` has one connection for
everything, which may be the caller's.
"""

from __future__ import annotations

import asyncio
import gc
import itertools
import math
import os
import sqlite3
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Container, Iterable, Sequence
from contextlib import closing, suppress
from functools import partial
from typing import Any, TypeVar, cast
from urllib.parse import quote

from langgraph_checkpoint_custom.drivers.sqlite_callers import CallersConnection
from langgraph_checkpoint_custom.drivers.sqlite_group_commit import (
    LONGEST,
    MOST,
    QueuedOperation,
    WorkerBatch,
    WriteQueue,
    calls_of,
    within,
)
from langgraph_checkpoint_custom.drivers.workers import aside, warn_unclosed
from langgraph_checkpoint_custom.engine.operation import (
    OFFLOAD_BYTES,
    READS,
    Access,
    Offload,
    Operation,
    RoundTrip,
    Row,
    Steps,
    drive,
)
from langgraph_checkpoint_custom.errors import (
    CheckpointError,
    ConfigError,
    Contention,
    SchemaError,
    SchemaMissing,
    SchemaOutdated,
    StorageError,
    closed,
    is_read_only,
    no_list_of_names,
)
from langgraph_checkpoint_custom.forks import hold, register_for_forks

T = TypeVar("T")

# Seconds. SQLite counts them in milliseconds with 31 bits, and does not wait at all for more than that.
LONGEST_WAIT = 2_147_483.0
OLDEST = (3, 38, 0)  # 3.37 introduced STRICT tables, 3.38 the operator ->>.
SYNCHRONOUS = ("OFF", "NORMAL", "FULL", "EXTRA")
# OS threads for async reads. SQLite's reads hold the GIL for most of their time, so more do not help.
READERS = 4
# Seconds that a fork waits for running reads; those that have not ended by then fail.
FORK_WAITS = 5.0
# Maximum number of idle connections for reads; each has two open files.
IDLE = 32
# Operations that go through the write queue.
_QUEUED = frozenset({"write", "exclusive", "migrate"})
_WRITES = _QUEUED | {"dry_run"}
# Methods that run while this OS thread holds the lock; a signal handler may interrupt any of them.
_LOCKED = ("_writer", "_transaction", "_together", "_close")
# Operations that return their connection before they decode; the round trips of all others are one transaction.
_RETURNS_CONNECTION = frozenset({"read", "write"})
# Statements that store everything that an operation stores, or nothing.
_ATOMIC = frozenset({"insert_checkpoint", "insert_checkpoint_on_parent", "insert_writes"})
# Primary result codes: https://www.sqlite.org/rescode.html
_BUSY = {5: "SQLITE_BUSY", 6: "SQLITE_LOCKED"}
# For a missing table or column SQLite reports only SQLITE_ERROR, and Python 3.10 does not report even that.
_OTHER_TABLES = {1, None}
# SQLITE_IOERR and SQLITE_PROTOCOL: they were seen, rarely, while other processes opened and closed the same new file.
_UNSETTLED = {10, 15}
# How often opening is tried after these errors: half a second in all, because a broken disk stays broken.
OPENINGS = 10
_WAY_OUT = {
    8: "the file or its folder is not writable for this user",
    10: "the disk reported an error",
    11: "the file is damaged; restore it from a backup, or rescue it with the `.recover` command of the sqlite3 shell",
    13: "the disk is full; nothing of this operation was stored, free some space and try again",
    14: "the file cannot be opened; check that it or its folder exists, that this user may write there, and that this "
    "process does not have too many files open",
    18: "a value is larger than SQLite allows, which is usually 1 GB; nothing of this operation was stored",
    26: "the file is not a SQLite database",
}


class SqliteDriver:
    """Runs operations on one SQLite file; all copies of a saver share it.

    Args:
        path: The file, or ":memory:".
        check: The operation that checks whether the tables are current.
        setup: The operation that creates or migrates the tables; it runs in the first transaction on the file, if
            needed.
        busy_timeout: Seconds to wait for the end of another process's write.
        synchronous: SQLite's setting of that name, for every connection.
        read_only: Whether to open the file for reading only, and to create and migrate nothing.
        given: The caller's connection to `path`. For ":memory:" the driver uses this connection itself.
    """

    def __init__(
        self,
        path: str,
        *,
        check: Operation[None],
        setup: Operation[None],
        busy_timeout: float,
        synchronous: str,
        read_only: bool = False,
        given: CallersConnection | None = None,
    ) -> None:
        if sqlite3.sqlite_version_info < OLDEST:
            raise ConfigError(
                f"SQLite {sqlite3.sqlite_version} is too old, 3.38 is needed; use a Python built with a newer one"
            )
        if not path:
            raise ConfigError('the path of the SQLite file is empty; for a store in memory it is ":memory:"')
        if "\0" in path:
            raise ConfigError(f"the path of the SQLite file contains a NUL character: {path!r}")
        if synchronous.upper() not in SYNCHRONOUS:
            raise ConfigError(f"synchronous must be one of {', '.join(SYNCHRONOUS)}, not {synchronous!r}")
        if not busy_timeout >= 0:
            raise ConfigError(f"busy_timeout must be 0 or more seconds, not {busy_timeout!r}")
        if read_only and path == ":memory:":
            raise ConfigError("read_only needs a file: a store in memory is empty at first, and would stay so")
        self.path = path
        self._read_only = read_only
        self._shared = path == ":memory:"
        with suppress(OSError):  # The process may have changed its directory when the file is opened.
            if not self._shared and not os.path.isabs(path):
                self.path = os.path.join(os.getcwd(), path)
        self._given = given if self._shared else None
        self._of_caller = given is not None
        self._of_parent = False  # Whether this process was forked from the one with the caller's connection.
        self._check = check
        self._setup = setup
        self._busy_timeout = min(float(busy_timeout), LONGEST_WAIT)
        self._synchronous = synchronous.upper()
        self._lock = threading.Lock()  # Guards the writer, and opening and closing.
        self._held = _Held()
        self._workers: dict[Access, WorkerBatch] = {}
        self._queue = WriteQueue()
        self._current_timeout = self._busy_timeout  # The writer's current `busy_timeout`.
        self._finalizer = weakref.finalize(self, _close_in_the_end, self._held, self._lock)
        if not self._given:  # The caller closes what the caller has opened.
            weakref.finalize(self, _warn_if_open, self._held, self.path).atexit = False  # Called before the other one.
        register_for_forks(self)

    def before_fork(self) -> None:
        """Close the file: SQLite's locks belong to a process and do not survive a fork."""
        hold(self._lock)
        if self._shared:
            return
        deadline = time.monotonic() + FORK_WAITS
        # Without a writer, new reads wait for the lock. The ones that still run are polled: a condition that each read
        # would have to notify would cost every read something, and forks are rare.
        writer, self._held.writer = self._held.writer, None
        self._held.close_idle()
        while self._held.readers and time.monotonic() < deadline:
            time.sleep(0.001)  # A small read takes less.
            self._held.close_idle()
            gc.collect()  # Finds reads that were interrupted before they could close.
        self._held.close_readers()
        if writer is not None:
            writer.close()

    def after_fork(self) -> None:
        """Start over: the child has no workers, and opens the file again when it is needed."""
        self._workers = {}
        self._queue = WriteQueue()
        self._held.readers.clear()
        if self._of_caller:  # That connection is open in the child, too, which can use neither it nor its file.
            self._held.writer = None
            self._of_parent = True

    def setup(self) -> None:
        """Create or migrate the tables now; otherwise the first operation does."""
        self._check_reads(self._setup)
        if self._lock.locked():
            self._check_not_within()
        with self._lock:
            self._writer("setup")

    async def asetup(self) -> None:
        """Async version of `setup`."""
        await aside(self._worker("write").executor, self.setup)

    def run(self, op: Operation[T]) -> T:
        """Run an operation and return its result."""
        self._check_reads(op)
        if op.access == "read" and not self._shared:
            return drive(op, partial(self._read, op.name, None))
        if self._lock.locked():
            self._check_not_within()
        call = QueuedOperation(op)
        if op.access not in _QUEUED:
            return self._alone(call)
        self._store([call])
        return call.outcome()

    def look(self, op: Operation[T]) -> T:
        """Run a read without creating or migrating tables."""
        try:
            with closing(self._connect(read_only=True)) as connection:
                return drive(op, lambda request: _reply(connection, request))
        except sqlite3.Error as error:
            raise self._wrapped(error, op.name, None) from error

    async def arun(self, op: Operation[T]) -> T:
        """Run an operation on a worker."""
        self._check_reads(op)
        return await self._worker(op.access).run(op, self._store if op.access in _QUEUED else self._each)

    async def aoffload(self, request: Offload) -> Any:
        """Run work on a worker and return its result."""
        return await aside(self._worker("read").executor, request.work)

    def close(self) -> None:
        """Wait for running operations and close every connection."""
        if calls_of(self, "run", "arun", "setup", "close") > 1:
            raise within()
        self._held.closed = True
        for worker in list(self._workers.values()):
            worker.executor.shutdown()
        self._queue.run((), self._write)
        self._close()

    def _close(self) -> None:
        with self._lock:
            self._held.close()

    async def aclose(self) -> None:
        """Async version of `close`."""
        await asyncio.to_thread(self.close)

    def stats(self) -> dict[str, int]:
        """Return the number of connections that read, and of idle connections for reads."""
        return {"reading": self._held.reading, "idle": len(self._held.idle)}

    def _worker(self, access: Access) -> WorkerBatch:
        if self._held.closed:
            raise closed()
        access = "write" if access in _QUEUED else "read"
        worker = self._workers.get(access)
        if worker is None:
            if access == "write":
                made = WorkerBatch(1, "checkpoint-write", most=MOST, seconds=0)
            else:
                made = WorkerBatch(1 if self._shared else READERS, "checkpoint-read", most=1, seconds=LONGEST)
            # setdefault is atomic: if two OS threads come here at once, both use the same worker.
            worker = self._workers.setdefault(access, made)
        return worker

    def _alone(self, call: QueuedOperation[T], *, queued: bool = False) -> T:
        """Run an operation alone.

        Raises:
            _LeavesQueue: It came through the write queue and has to do other work than statements (`Offload`).
        """
        op = call.op
        if op.access == "read" and not self._shared:
            return drive(op, partial(self._read, op.name, call))
        steps = op.start()
        try:
            request = steps.send(None)
            while True:
                if isinstance(request, Offload):
                    if queued and op.access in _RETURNS_CONNECTION:
                        raise _LeavesQueue
                    request = steps.send(_work(call, request))
                elif self._shared or op.access in _WRITES:
                    # An interrupt may come anywhere; only the lock of a `with` is released in every case.
                    with self._lock:
                        request = self._transaction(self._writer(op.name), call, steps, request, queued=queued)
                else:
                    connection = self._lend(op.name)
                    try:
                        request = self._transaction(connection, call, steps, request, queued=queued)
                    except StopIteration:
                        self._take_back(connection)
                        raise
                    except BaseException:
                        self._held.drop(connection)
                        raise
                    self._take_back(connection)
        except StopIteration as done:
            return done.value  # type: ignore[no-any-return]  # StopIteration is not generic.
        finally:
            steps.close()

    def _read(self, operation: str, call: QueuedOperation[Any] | None, request: RoundTrip | Offload) -> Any:
        """Perform a request of a read: one statement, which needs no transaction."""
        if isinstance(request, Offload):
            return _work(call, request) if call else request.work()
        connection = self._lend(operation)
        try:
            reply = self._send(connection, operation, request)
        except BaseException:
            self._held.drop(connection)
            raise
        self._take_back(connection)
        return reply

    def _transaction(
        self,
        connection: sqlite3.Connection,
        call: QueuedOperation[Any],
        steps: Steps[Any],
        request: RoundTrip,
        *,
        queued: bool,
    ) -> Offload:
        """Continue an operation until it requests work for which it returns its connection.

        Raises:
            StopIteration: The operation has ended, and everything is committed.
        """
        op = call.op
        try:
            self._prepare(op, connection, call.since)
            try:
                asked: RoundTrip | Offload = request
                while isinstance(asked, RoundTrip) or op.access not in _RETURNS_CONNECTION:
                    if isinstance(asked, Offload):
                        asked = steps.send(_work(call, asked))
                        continue
                    if not connection.in_transaction and (self._given or not _is_atomic(op, asked)):
                        self._begin(op, connection)
                    asked = steps.send(self._send(connection, op.name, asked))
            except StopIteration as ended:
                if connection.in_transaction:
                    committed: list[object] = []
                    call.result, call.done = ended.value, committed
                    _commit(connection, committed)
                raise
            if queued:
                raise _LeavesQueue
            if connection.in_transaction:
                connection.execute("COMMIT")
            return asked
        except sqlite3.Error as error:
            raise self._wrapped(error, op.name, None) from error
        finally:
            if connection.in_transaction:  # It failed, or its commit did, for example with a full disk.
                connection.rollback()

    def _prepare(self, op: Operation[Any], connection: sqlite3.Connection, since: float) -> None:
        """Prepare a connection for an operation; a write waits for the rest of `busy_timeout` after `since`."""
        if connection.in_transaction:  # An interrupt has left it open.
            connection.rollback()
        if op.access in _WRITES:
            self._check_location(op.name)
            timeout = self._busy_timeout
            waited = time.monotonic() - since
            if waited > timeout / 10:
                timeout = max(timeout - waited, 0)
            if timeout != self._current_timeout:
                connection.execute(f"PRAGMA busy_timeout = {round(timeout * 1000)}")
                self._current_timeout = timeout

    def _begin(self, op: Operation[Any], connection: sqlite3.Connection) -> None:
        """Begin the transaction that an operation needs."""
        if op.access in _WRITES:
            connection.execute("BEGIN IMMEDIATE")
        elif op.access == "snapshot":
            connection.execute("BEGIN")

    def _each(self, calls: Iterable[QueuedOperation[Any]], *, queued: bool = False) -> None:
        """Run operations one after the other, each in its own transaction."""
        for call in calls:
            call.error = None
            try:
                call.result = self._alone(call, queued=queued)
            except Exception as error:
                call.error = error
            call.done = (True,)

    def _store(self, calls: Sequence[QueuedOperation[Any]]) -> None:
        """Run writes together with other waiting writes, and then those alone that had to leave the queue."""
        self._queue.run(calls, self._write)
        for call in calls:
            if isinstance(call.error, _LeavesQueue):
                self._each([call])

    def _write(self, calls: Sequence[QueuedOperation[Any]]) -> None:
        """Run writes in as few transactions as possible."""
        if len(calls) == 1:
            self._each(calls, queued=True)
            return
        left = deque(calls)
        while left:
            self._each(self._together(left), queued=True)

    def _together(self, left: deque[QueuedOperation[Any]]) -> Sequence[QueuedOperation[Any]]:
        """Run writes from the left of the queue in one transaction; if it fails, returns them to be run one by one."""
        with self._lock:
            connection = self._held.writer
            if connection is None:
                return [left.popleft()]  # It opens the file.
            try:
                self._prepare(left[0].op, connection, max(call.since for call in left))
                self._begin(left[0].op, connection)
            except sqlite3.Error as error:  # All of them have waited for busy_timeout.
                while left:
                    call = left.popleft()
                    call.error = self._wrapped(error, call.op.name, None)
                    call.error.__cause__ = error
                return []
            except StorageError:  # Each gets an error of its own.
                return [left.popleft() for _ in range(len(left))]
            taken: list[QueuedOperation[Any]] = []
            committed: list[object] = []
            try:
                ends = time.monotonic() + LONGEST
                while left and (not taken or time.monotonic() < ends):
                    taken.append(left.popleft())
                    self._run_in_savepoint(connection, taken[-1])
                    taken[-1].done = committed
                _commit(connection, committed)
            except sqlite3.Error:
                return taken
            finally:
                if connection.in_transaction:
                    connection.rollback()
        return []

    def _run_in_savepoint(self, connection: sqlite3.Connection, call: QueuedOperation[Any]) -> None:
        def perform(request: RoundTrip | Offload) -> Any:
            if not isinstance(request, Offload):
                return self._send(connection, call.op.name, request)
            if call.op.access in _RETURNS_CONNECTION:
                raise _LeavesQueue
            return request.work()

        call.error = None
        connection.execute("SAVEPOINT one_write")
        try:
            call.result = drive(call.op, perform)
        except Exception as error:
            call.error = error
            connection.execute("ROLLBACK TO one_write")  # Fails if everything is rolled back, as with a full disk.
        connection.execute("RELEASE one_write")

    def _send(self, connection: sqlite3.Connection, operation: str, round_trip: RoundTrip) -> Any:
        try:
            return _reply(connection, round_trip)
        except sqlite3.Error as error:
            names = {statement.name for statement in round_trip.statements}
            raise self._wrapped(error, operation, names.pop() if len(names) == 1 else None) from error
        except OverflowError as error:  # Python raises it for values of more than 2 GB.
            raise StorageError(f"{operation}: {_WAY_OUT[18]}", operation=operation) from error

    def _writer(self, operation: str) -> sqlite3.Connection:
        """Return the writer connection, with current tables; the caller holds the lock."""
        if self._held.writer is None:
            if self._held.closed:
                raise closed()
            self._check_location(operation)  # A fork has closed it; no new file is created in its place.
            try:
                self._held.writer = self._retry(lambda: self._open(operation), _UNSETTLED, OPENINGS)
            except sqlite3.Error as error:
                raise self._wrapped(error, operation, None) from error
            self._held.location = _location(self.path)
            self._current_timeout = self._busy_timeout
        return self._held.writer

    def _lend(self, operation: str) -> sqlite3.Connection:
        """Borrow a read connection, which no other call uses until `_take_back`."""
        self._check_location(operation)
        while True:
            try:
                connection = self._held.idle.pop()
            except IndexError:
                connection = self._new_reader(operation)
            if self._held.writer is not None:
                return connection
            self._held.drop(connection)  # A fork holds the lock and waits until no reader is left.

    def _new_reader(self, operation: str) -> sqlite3.Connection:
        opening = _Opening()
        try:
            while True:
                self._held.readers.add(opening)
                if self._held.writer is not None:
                    break
                self._held.readers.discard(opening)  # As above.
                if self._lock.locked():
                    self._check_not_within()
                with self._lock:
                    self._writer(operation)
            connection = self._connect(read_only=True)
            self._held.readers.add(connection)
        except sqlite3.Error as error:
            raise self._wrapped(error, operation, None) from error
        finally:
            self._held.readers.discard(opening)  # An error may keep this frame alive for long.
        return connection

    def _take_back(self, connection: sqlite3.Connection) -> None:
        if len(self._held.idle) < IDLE:
            self._held.idle.append(connection)
        else:
            self._held.drop(connection)
        if self._held.closed:
            self._held.close_idle()

    def _check_not_within(self) -> None:
        """Raise a ConfigError if this OS thread has the lock: a signal handler would wait for itself."""
        if calls_of(self, *_LOCKED):
            raise within()

    def _check_location(self, operation: str) -> None:
        """Raise a StorageError if the open file is no longer at its path: nobody would find what is stored in it."""
        opened = self._held.location
        if opened is None or self._shared or opened == _location(self.path):
            return
        raise StorageError(
            f"{operation}: {self.path} was moved, deleted or replaced while it was open; nothing was stored. Put it "
            "back, or close the saver and open a new one",
            operation=operation,
        )

    def _connect(self, *, read_only: bool = False) -> sqlite3.Connection:
        if self._of_parent:
            raise ConfigError(
                "this process was forked from one that gave the saver a connection; create a new saver in this "
                "process, on a new connection"
            )
        if self._given:
            return cast("sqlite3.Connection", self._given)  # It has the methods that are used here.
        # Reading creates no file: it may have been moved or deleted.
        existing = (read_only or self._read_only) and not self._shared
        mode = "ro" if self._read_only else "rw"
        connection = sqlite3.connect(
            f"file:{quote(os.fsencode(self.path))}?mode={mode}" if existing else self.path,
            timeout=self._busy_timeout,
            isolation_level=None,
            check_same_thread=False,
            cached_statements=256,
            uri=existing,
            factory=_Connection,
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
        """Open the first connection: create the file and migrate it.

        WAL mode is set after that, because the file may be another program's.
        """
        if self._read_only:
            return self._open_to_read()
        if not self._shared:
            # Only this user may read the conversations; the WAL files get the same mode. For a bad path, SQLite has the
            # better error message.
            with suppress(OSError):
                os.close(os.open(self.path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
        connection = self._connect()
        try:
            if self._is_current(connection):
                return connection
            connection.execute("BEGIN IMMEDIATE")
            drive(self._setup, lambda request: _reply(connection, request))
            connection.execute("COMMIT")
            if not self._shared:  # This statement does not wait for other processes.
                self._retry(lambda: connection.execute("PRAGMA journal_mode = WAL").fetchall(), _BUSY)
        except BaseException:
            connection.close()
            raise
        return connection

    def _open_to_read(self) -> sqlite3.Connection:
        """Open the first connection of a saver that only reads."""
        connection = self._connect()
        try:
            connection.execute("BEGIN")  # One read snapshot for the check.
            drive(self._check, lambda request: _reply(connection, request))
            connection.execute("ROLLBACK")
        except BaseException:
            connection.close()
            raise
        return connection

    def _check_reads(self, op: Operation[Any]) -> None:
        """Raise an error for a write with a saver that only reads."""
        if self._read_only and op.access not in READS:
            raise is_read_only(op.name)

    def _is_current(self, connection: sqlite3.Connection) -> bool:
        """Whether no setup is needed; this check takes no lock, so the first read waits for no other process."""
        if self._shared or connection.execute("PRAGMA journal_mode").fetchone() != ("wal",):
            return False
        connection.execute("BEGIN")  # One read snapshot for the check.
        try:
            drive(self._check, lambda request: _reply(connection, request))
        except (SchemaMissing, SchemaOutdated):
            return False
        finally:
            connection.execute("ROLLBACK")
        return True

    def _retry(self, attempt: Callable[[], T], codes: Container[int | None], most: float = math.inf) -> T:
        """Retry for `busy_timeout` while the attempt fails with one of these result codes."""
        started = time.monotonic()
        for failed in itertools.count(1):
            try:
                return attempt()
            except sqlite3.OperationalError as error:
                elapsed = time.monotonic() - started
                if _code(error) not in codes or elapsed > self._busy_timeout or failed >= most:
                    raise
            time.sleep(min(0.01 * failed, 0.25))
        raise AssertionError

    def _changed(self) -> SchemaError | None:
        """Return what is wrong with the tables, if they have changed since the file was opened."""
        if self._shared or self._held.writer is None:
            return None
        try:
            with suppress(sqlite3.Error), closing(self._connect(read_only=True)) as connection:
                drive(self._check, lambda request: _reply(connection, request))
        except SchemaError as changed:
            return changed
        return None

    def _wrapped(self, error: sqlite3.Error, operation: str, statement: str | None) -> CheckpointError:
        code = _code(error)
        if str(error) == "malformed JSON":
            return no_list_of_names(operation)
        name = getattr(error, "sqlite_errorname", None)
        if code in _OTHER_TABLES and (changed := self._changed()):
            return changed
        if code in _BUSY:
            return Contention(
                f"{operation}: another connection has been writing to {self.path} for longer than busy_timeout "
                f"({self._busy_timeout:g} s); nothing was stored. Raise busy_timeout, or find out what holds the lock: "
                "another process, or a connection of your own with an open transaction",
                operation=operation,
                statement=statement,
                sqlstate=name,
            )
        way_out = f"{_WAY_OUT[code]} ({name})" if code in _WAY_OUT else str(error)
        return StorageError(
            f"{operation}: SQLite failed on {self.path}: {way_out}",
            operation=operation,
            statement=statement,
            sqlstate=name,
        )


class _Connection(sqlite3.Connection):
    """A connection that can have weak references."""


class _Opening:
    """A reader that is being opened."""


class _Held:
    """What has to be closed; separate from the driver, so that a finalizer can hold it."""

    def __init__(self) -> None:
        self.closed = False
        self.writer: sqlite3.Connection | None = None
        self.location: tuple[int, int] | None = None  # Of the file, once it is open.
        self.idle: list[sqlite3.Connection] = []
        # All readers that are open or being opened.
        self.readers: weakref.WeakSet[object] = weakref.WeakSet()

    @property
    def reading(self) -> int:
        """The number of readers that are not idle."""
        return len(self.readers) - len(self.idle)

    def close_idle(self) -> None:
        with suppress(IndexError):  # Two OS threads may reach the last one at once.
            while True:
                self.drop(self.idle.pop())

    def close_readers(self) -> None:
        """Close the readers that still read, which then fail: a connection that is open in two processes loses data."""
        if getattr(sqlite3, "threadsafety", None) != 3:  # Then only the OS thread that uses it may close it.
            return
        for reader in list(self.readers):
            if isinstance(reader, sqlite3.Connection):
                self.drop(reader)

    def drop(self, reader: sqlite3.Connection) -> None:
        """Close a reader; after an interrupt it may still read an old snapshot."""
        reader.close()
        self.readers.discard(reader)

    def close(self) -> None:
        self.closed = True
        self.close_idle()
        # SQLite copies the WAL into the file when the last connection closes.
        if self.writer is not None:
            self.writer.close()
            self.writer = None


class _LeavesQueue(Exception):
    """A write has to do work that neither other waiting writes nor other processes should wait for."""


def _is_atomic(op: Operation[Any], round_trip: RoundTrip) -> bool:
    """Whether a round trip is one statement that needs no transaction around it."""
    if op.access != "write" or len(round_trip.statements) != 1:
        return False
    (statement,) = round_trip.statements
    return statement.name in _ATOMIC and not isinstance(statement.params, list)


def _warn_if_open(held: _Held, path: str) -> None:
    if held.writer is not None or held.idle:
        warn_unclosed(path)


def _close_in_the_end(held: _Held, lock: threading.Lock) -> None:
    """Close the connections when the driver is collected, or the process ends; OS threads may still use them then."""
    if lock.acquire(timeout=1):
        try:
            held.close()
        finally:
            lock.release()


def _location(path: str) -> tuple[int, int] | None:
    """Return what identifies a file, or None if there is none at the path."""
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_dev, found.st_ino


def _work(call: QueuedOperation[Any], request: Offload) -> Any:
    """Do work that needs no connection."""
    if request.size >= OFFLOAD_BYTES:
        call.takes_long()
    reply = request.work()
    call.since = time.monotonic()
    return reply


def _commit(connection: sqlite3.Connection, committed: list[object]) -> None:
    """Commit and note it in one call of a built-in function, during which no interrupt comes."""
    committed.extend(map(connection.execute, ("COMMIT",)))


def _reply(connection: sqlite3.Connection, request: RoundTrip | Offload) -> Any:
    if isinstance(request, Offload):
        return request.work()
    replies: list[list[Row]] = []
    for _, sql, params in request.statements:
        if isinstance(params, list):
            connection.executemany(sql, params)
            replies.append([])
        else:
            replies.append(connection.execute(sql, params).fetchall())
    return replies


def _code(error: sqlite3.Error) -> int | None:
    """Return the primary result code; None on Python 3.10, which does not report it."""
    code: int | None = getattr(error, "sqlite_errorcode", None)
    return None if code is None else code & 0xFF
