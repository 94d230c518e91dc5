"""SQLite over the standard library: one writer connection, readers beside it, workers for the async side.

A write holds the writer and `BEGIN IMMEDIATE` for its trips; those that come at once share it, see `sqlite_turns.py`.
An ordinary put by itself is one statement, and so its own transaction. A read is one statement, too, and so a snapshot
by itself; readers never wait for the writer, since the file is in WAL mode. An async call encodes where it is called,
hops once to a worker and runs there to its end. `:memory:` has one connection for everything, which may be a caller's.
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
    no_list_of_names,
)
from langgraph_checkpoint_custom.forks import hold, tell_of_forks

T = TypeVar("T")

# Seconds; SQLite counts them in milliseconds of 31 bits, and does not wait at all for more.
LONGEST_WAIT = 2_147_483.0
OLDEST = (3, 38, 0)  # STRICT tables came with 3.37, the operator ->> with 3.38.
SYNCHRONOUS = ("OFF", "NORMAL", "FULL", "EXTRA")
# OS threads for async reads; SQLite's reads hold the GIL for most of their time, so more do not help.
READERS = 4
# Seconds for which a fork waits for reads that go on; those that have not ended then fail.
FORK_WAITS = 5.0
# Connections for reads that are kept for later; each has two files open.
IDLE = 32
# What stands in line at the writer.
_IN_LINE = frozenset({"write", "exclusive", "migrate"})
_WRITES = _IN_LINE | {"dry_run"}
# The methods that are called by who has the lock; a signal handler may come in any of them.
_LOCKED = ("_writer", "_transaction", "_together", "_close")
# What gives its connection back before it decodes; the others' trips are one transaction.
_LETS_GO = frozenset({"read", "write"})
# Statements that store all that an operation has to, or nothing.
_WHOLE = frozenset({"insert_checkpoint", "insert_writes"})
# Primary result codes: https://www.sqlite.org/rescode.html
_BUSY = {5: "SQLITE_BUSY", 6: "SQLITE_LOCKED"}
# SQLITE_ERROR is all that is told of a table or column that is not there, and Python 3.10 does not tell even that.
_OTHER_TABLES = {1, None}
# Seen, rarely, while other processes opened and closed the same new file: SQLITE_IOERR and SQLITE_PROTOCOL.
_UNSETTLED = {10, 15}
# How often that is tried: half a second in all, for a disk that is broken stays so.
OPENINGS = 10
_WAY_OUT = {
    8: "the file or its folder is not writable for this user",
    10: "the disk reported an error",
    11: "the file is damaged; restore it from a backup, or rescue it with the `.recover` command of the sqlite3 shell",
    13: "the disk is full; nothing of this operation was stored, free some space and go on",
    14: "the file cannot be opened; does it or its folder exist, may this user write there, and has this process too "
    "many files open?",
    18: "a value is larger than SQLite takes, which is 1 GB as a rule; nothing of this operation was stored",
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
        given: The caller's connection, of which this is the path; if that is ":memory:", it is used itself.
    """

    def __init__(
        self,
        path: str,
        *,
        check: Operation[None],
        setup: Operation[None],
        busy_timeout: float,
        synchronous: str,
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
        self.path = path
        self._shared = path == ":memory:"
        with suppress(OSError):  # The process may work in another folder when it is opened.
            if not self._shared and not os.path.isabs(path):
                self.path = os.path.join(os.getcwd(), path)
        self._given = given if self._shared else None
        self._of_caller = given is not None
        self._of_parent = False  # Whether this is a child of the process that was given it.
        self._check = check
        self._setup = setup
        self._busy_timeout = min(float(busy_timeout), LONGEST_WAIT)
        self._synchronous = synchronous.upper()
        self._lock = threading.Lock()  # Guards the writer, and opening and closing.
        self._held = _Held()
        self._workers: dict[Access, WorkerBatch] = {}
        self._queue = WriteQueue()
        self._patience = self._busy_timeout  # The writer's `busy_timeout` at present.
        self._finalizer = weakref.finalize(self, _close_in_the_end, self._held, self._lock)
        if not self._given:  # What the caller has opened is the caller's to close.
            weakref.finalize(self, _warn_if_open, self._held, self.path).atexit = False  # Called before the other one.
        tell_of_forks(self)

    def before_fork(self) -> None:
        """Close the file: SQLite's locks are those of a process, and do not survive a fork."""
        hold(self._lock)
        if self._shared:
            return
        deadline = time.monotonic() + FORK_WAITS
        # Without a writer new readers wait for the lock. Those that go on are polled, since a condition that each read
        # would have to notify costs every read something, and forks are rare.
        writer, self._held.writer = self._held.writer, None
        self._held.close_idle()
        while self._held.readers and time.monotonic() < deadline:
            time.sleep(0.001)  # A small read takes less.
            self._held.close_idle()
            gc.collect()  # What was interrupted before it could close its connection.
        self._held.close_readers()
        if writer is not None:
            writer.close()

    def after_fork(self) -> None:
        """Begin anew: there are no workers in the child, and the file is opened again when it is needed."""
        self._workers = {}
        self._queue = WriteQueue()
        self._held.readers.clear()
        if self._of_caller:  # It is open here, too, so the child can use neither it nor its file.
            self._held.writer = None
            self._of_parent = True

    def setup(self) -> None:
        """Create or migrate the tables now; otherwise the first operation does."""
        if self._lock.locked():
            self._check_outside()
        with self._lock:
            self._writer("setup")

    async def asetup(self) -> None:
        """Create or migrate the tables now; otherwise the first operation does."""
        await aside(self._worker("write").executor, self.setup)

    def run(self, op: Operation[T]) -> T:
        """Run an operation here."""
        if op.access == "read" and not self._shared:
            return drive(op, partial(self._read, op.name, None))
        if self._lock.locked():
            self._check_outside()
        call = QueuedOperation(op)
        if op.access not in _IN_LINE:
            return self._alone(call)
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
        return await aside(self._worker("read").executor, request.work)

    def close(self) -> None:
        """Wait for what is running and close every connection."""
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
        """Wait for what is running and close every connection."""
        await asyncio.to_thread(self.close)

    def stats(self) -> dict[str, int]:
        """Connections that read, and those that wait to."""
        return {"reading": self._held.reading, "idle": len(self._held.idle)}

    def _worker(self, access: Access) -> WorkerBatch:
        if self._held.closed:
            raise closed()
        access = "write" if access in _IN_LINE else "read"
        worker = self._workers.get(access)
        if worker is None:
            if access == "write":
                made = WorkerBatch(1, "checkpoint-write", most=MOST, seconds=0)
            else:
                made = WorkerBatch(1 if self._shared else READERS, "checkpoint-read", most=1, seconds=LONGEST)
            # setdefault is atomic: of two threads that come here at once both use the same one.
            worker = self._workers.setdefault(access, made)
        return worker

    def _alone(self, call: QueuedOperation[T], *, in_line: bool = False) -> T:
        """Run an operation by itself; what has work to do beside the database leaves the line for it."""
        op = call.op
        if op.access == "read" and not self._shared:
            return drive(op, partial(self._read, op.name, call))
        steps = op.start()
        try:
            request = steps.send(None)
            while True:
                if isinstance(request, Offload):
                    if in_line and op.access in _LETS_GO:
                        raise _Leaves
                    request = steps.send(_work(call, request))
                elif self._shared or op.access in _WRITES:
                    # An interrupt may come anywhere: only the lock of a `with` is given back whatever happens.
                    with self._lock:
                        request = self._transaction(self._writer(op.name), call, steps, request, in_line=in_line)
                else:
                    connection = self._lend(op.name)
                    try:
                        request = self._transaction(connection, call, steps, request, in_line=in_line)
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
        """A trip of a read is one statement, which needs no transaction."""
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
        in_line: bool,
    ) -> Offload:
        """Go on with an operation until it has work to do for which it lets the connection go.

        Raises: StopIteration, once all is committed, when the operation has ended.
        """
        op = call.op
        try:
            self._prepare(op, connection, call.since)
            try:
                asked: RoundTrip | Offload = request
                while isinstance(asked, RoundTrip) or op.access not in _LETS_GO:
                    if isinstance(asked, Offload):
                        asked = steps.send(_work(call, asked))
                        continue
                    if not connection.in_transaction and (self._given or not _is_whole(op, asked)):
                        self._begin(op, connection)
                    asked = steps.send(self._send(connection, op.name, asked))
            except StopIteration as ended:
                if connection.in_transaction:
                    committed: list[object] = []
                    call.result, call.done = ended.value, committed
                    _commit(connection, committed)
                raise
            if in_line:
                raise _Leaves
            if connection.in_transaction:
                connection.execute("COMMIT")
            return asked
        except sqlite3.Error as error:
            raise self._wrapped(error, op.name, None) from error
        finally:
            if connection.in_transaction:  # It failed, or its commit did: a full disk, say.
                connection.rollback()

    def _prepare(self, op: Operation[Any], connection: sqlite3.Connection, since: float) -> None:
        """Make a connection ready for an operation; to write, with what is left of `busy_timeout` since then."""
        if connection.in_transaction:  # Left open by an interrupt.
            connection.rollback()
        if op.access in _WRITES:
            self._check_place(op.name)
            patience = self._busy_timeout
            waited = time.monotonic() - since
            if waited > patience / 10:
                patience = max(patience - waited, 0)
            if patience != self._patience:
                connection.execute(f"PRAGMA busy_timeout = {round(patience * 1000)}")
                self._patience = patience

    def _begin(self, op: Operation[Any], connection: sqlite3.Connection) -> None:
        """Begin the transaction that an operation needs."""
        if op.access in _WRITES:
            connection.execute("BEGIN IMMEDIATE")
        elif op.access == "snapshot":
            connection.execute("BEGIN")

    def _each(self, calls: Iterable[QueuedOperation[Any]], *, in_line: bool = False) -> None:
        """Run operations one by one."""
        for call in calls:
            call.error = None
            try:
                call.result = self._alone(call, in_line=in_line)
            except Exception as error:
                call.error = error
            call.done = (True,)

    def _store(self, calls: Sequence[QueuedOperation[Any]]) -> None:
        """Run writes together with those of others, and then by themselves those that had to leave the line."""
        self._queue.run(calls, self._write)
        for call in calls:
            if isinstance(call.error, _Leaves):
                self._each([call])

    def _write(self, calls: Sequence[QueuedOperation[Any]]) -> None:
        """Run writes in as few transactions as can be."""
        if len(calls) == 1:
            self._each(calls, in_line=True)
            return
        left = deque(calls)
        while left:
            self._each(self._together(left), in_line=True)

    def _together(self, left: deque[QueuedOperation[Any]]) -> Sequence[QueuedOperation[Any]]:
        """Take writes and run them in one transaction; returns them if it fails and each has to have its own."""
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
            except StorageError:  # Each has an error of its own.
                return [left.popleft() for _ in range(len(left))]
            taken: list[QueuedOperation[Any]] = []
            committed: list[object] = []
            try:
                ends = time.monotonic() + LONGEST
                while left and (not taken or time.monotonic() < ends):
                    taken.append(left.popleft())
                    self._member(connection, taken[-1])
                    taken[-1].done = committed
                _commit(connection, committed)
            except sqlite3.Error:
                return taken
            finally:
                if connection.in_transaction:
                    connection.rollback()
        return []

    def _member(self, connection: sqlite3.Connection, call: QueuedOperation[Any]) -> None:
        def perform(request: RoundTrip | Offload) -> Any:
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

    def _send(self, connection: sqlite3.Connection, operation: str, round_trip: RoundTrip) -> Any:
        try:
            return _reply(connection, round_trip)
        except sqlite3.Error as error:
            names = {statement.name for statement in round_trip.statements}
            raise self._wrapped(error, operation, names.pop() if len(names) == 1 else None) from error
        except OverflowError as error:  # As Python says of what has more than 2 GB.
            raise StorageError(f"{operation}: {_WAY_OUT[18]}", operation=operation) from error

    def _writer(self, operation: str) -> sqlite3.Connection:
        """The writer connection, with the tables in place; for who has the lock."""
        if self._held.writer is None:
            if self._held.closed:
                raise closed()
            self._check_place(operation)  # It was closed for a fork, and no file is made in its place.
            try:
                self._held.writer = self._patiently(lambda: self._open(operation), _UNSETTLED, OPENINGS)
            except sqlite3.Error as error:
                raise self._wrapped(error, operation, None) from error
            self._held.location = _location(self.path)
            self._patience = self._busy_timeout
        return self._held.writer

    def _lend(self, operation: str) -> sqlite3.Connection:
        """A reader connection that nobody else has until it is taken back."""
        self._check_place(operation)
        while True:
            try:
                connection = self._held.idle.pop()
            except IndexError:
                connection = self._new_reader(operation)
            if self._held.writer is not None:
                return connection
            self._held.drop(connection)  # A fork waits until there is none, with the lock.

    def _new_reader(self, operation: str) -> sqlite3.Connection:
        opening = _Opening()
        try:
            while True:
                self._held.readers.add(opening)
                if self._held.writer is not None:
                    break
                self._held.readers.discard(opening)  # As above.
                if self._lock.locked():
                    self._check_outside()
                with self._lock:
                    self._writer(operation)
            connection = self._connect(read_only=True)
            self._held.readers.add(connection)
        except sqlite3.Error as error:
            raise self._wrapped(error, operation, None) from error
        finally:
            self._held.readers.discard(opening)  # The error that keeps this frame may be kept for long.
        return connection

    def _take_back(self, connection: sqlite3.Connection) -> None:
        if len(self._held.idle) < IDLE:
            self._held.idle.append(connection)
        else:
            self._held.drop(connection)
        if self._held.closed:
            self._held.close_idle()

    def _check_outside(self) -> None:
        """Make sure that it is not this OS thread that has the lock, which a signal handler would wait for."""
        if calls_of(self, *_LOCKED):
            raise within()

    def _check_place(self, operation: str) -> None:
        """Make sure that the file that is open is the one at its path: what is stored in another is not found again."""
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
                "this process was forked from one that gave the saver a connection; make a saver of your own here, on "
                "a new connection"
            )
        if self._given:
            return cast("sqlite3.Connection", self._given)  # It has as much of one as is used here.
        # To read, no file is made: it may have been moved or deleted.
        existing = read_only and not self._shared
        connection = sqlite3.connect(
            f"file:{quote(os.fsencode(self.path))}?mode=rw" if existing else self.path,
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
        """The first connection: makes the file, migrates, and then sets WAL mode, since the file may be another's."""
        if not self._shared:
            # Conversations are nobody else's business; the WAL files take over the mode. What is wrong with the path
            # SQLite says better.
            with suppress(OSError):
                os.close(os.open(self.path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
        connection = self._connect()
        try:
            if self._is_current(connection):
                return connection
            connection.execute("BEGIN IMMEDIATE")
            drive(self._setup, lambda request: _reply(connection, request))
            connection.execute("COMMIT")
            if not self._shared:  # That does not wait for other processes by itself.
                self._patiently(lambda: connection.execute("PRAGMA journal_mode = WAL").fetchall(), _BUSY)
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

    def _patiently(self, attempt: Callable[[], T], codes: Container[int | None], most: float = math.inf) -> T:
        """Try again what others stand in the way of, for `busy_timeout`."""
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
        """What is wrong with the tables, if they have changed since the file was opened."""
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
                f"({self._busy_timeout:g} s); nothing was stored. Raise busy_timeout, or find out who holds the lock: "
                "another process, or a connection of your own with a transaction that is not ended",
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
    """One that can be referred to weakly."""


class _Opening:
    """A reader that is being opened."""


class _Held:
    """What has to be closed; apart from the driver, so that a finalizer can hold it."""

    def __init__(self) -> None:
        self.closed = False
        self.writer: sqlite3.Connection | None = None
        self.location: tuple[int, int] | None = None  # Of the file, once it is open.
        self.idle: list[sqlite3.Connection] = []
        # All readers that are open or being opened.
        self.readers: weakref.WeakSet[object] = weakref.WeakSet()

    @property
    def reading(self) -> int:
        """How many readers are not idle."""
        return len(self.readers) - len(self.idle)

    def close_idle(self) -> None:
        with suppress(IndexError):  # Two OS threads may come to the last one at once.
            while True:
                self.drop(self.idle.pop())

    def close_readers(self) -> None:
        """Close those that still read: they fail. A connection that is open in two processes loses data."""
        if getattr(sqlite3, "threadsafety", None) != 3:  # Otherwise only who uses a connection may close it.
            return
        for reader in list(self.readers):
            if isinstance(reader, sqlite3.Connection):
                self.drop(reader)

    def drop(self, reader: sqlite3.Connection) -> None:
        """Close a reader; what was interrupted may still read an old snapshot."""
        reader.close()
        self.readers.discard(reader)

    def close(self) -> None:
        self.closed = True
        self.close_idle()
        # The last one to close folds the WAL into the file.
        if self.writer is not None:
            self.writer.close()
            self.writer = None


class _Leaves(Exception):
    """A write has something to do that others in line should not wait for, nor other processes with the lock."""


def _is_whole(op: Operation[Any], round_trip: RoundTrip) -> bool:
    """Whether a trip is one statement that needs no transaction around it."""
    if op.access != "write" or len(round_trip.statements) != 1:
        return False
    (statement,) = round_trip.statements
    return statement.name in _WHOLE and not isinstance(statement.params, list)


def _warn_if_open(held: _Held, path: str) -> None:
    if held.writer is not None or held.idle:
        warn_unclosed(path)


def _close_in_the_end(held: _Held, lock: threading.Lock) -> None:
    """Close connections when the driver is gone, or the process ends: OS threads may still be at work then."""
    if lock.acquire(timeout=1):
        try:
            held.close()
        finally:
            lock.release()


def _location(path: str) -> tuple[int, int] | None:
    """What tells a file from others; None if there is none at the path."""
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
    """Commit, and note it in the same call of a built-in function, in which no interrupt comes."""
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
    """The primary result code; Python 3.10 does not tell it, so nothing is known about such an error there."""
    code: int | None = getattr(error, "sqlite_errorcode", None)
    return None if code is None else code & 0xFF
