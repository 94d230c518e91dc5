"""The connections to a SQLite file: one for writes, others for reads. They are opened on first use.

The first connection creates and migrates the file. In WAL mode each read borrows a connection of its own, so reads
neither wait for the writer nor for each other. In the other modes a read would block commits, so there is one
connection for everything. The same is true of `:memory:`, where it may be the caller's.

Must not know: the write queue, workers.
"""

from __future__ import annotations

import gc
import itertools
import math
import os
import sqlite3
import threading
import time
import weakref
from collections.abc import Callable, Container
from contextlib import closing, suppress
from typing import Any, TypeVar, cast
from urllib.parse import quote

from langgraph_checkpoint_custom.drivers.sqlite_callers import CallersConnection
from langgraph_checkpoint_custom.drivers.sqlite_errors import (
    BUSY,
    NO_SHARED_MEMORY,
    OTHER_TABLES,
    UNSETTLED,
    code_of,
    may_lack_shared_memory,
    storage_error,
)
from langgraph_checkpoint_custom.drivers.workers import warn_unclosed
from langgraph_checkpoint_custom.engine.operation import Offload, Operation, RoundTrip, Row, drive
from langgraph_checkpoint_custom.errors import (
    CheckpointError,
    ConfigError,
    Contention,
    SchemaError,
    SchemaMissing,
    SchemaOutdated,
    StorageError,
    closed,
)

T = TypeVar("T")

# Seconds. SQLite counts them in milliseconds with 31 bits, and does not wait at all for more than that.
LONGEST_WAIT = 2_147_483.0
OLDEST = (3, 38, 0)  # 3.37 introduced STRICT tables, 3.38 the operator ->>.
SYNCHRONOUS = ("OFF", "NORMAL", "FULL", "EXTRA")
# Seconds that a fork waits for running reads; those that have not ended by then fail.
FORK_WAITS = 5.0
# Maximum number of idle connections for reads; each has two open files.
IDLE = 32
# How often opening is tried after the errors in `UNSETTLED`: half a second in all, because a broken disk stays broken.
OPENINGS = 10


class SqliteConnections:
    """All connections to one file.

    Args:
        path: The file, or ":memory:".
        check: The operation that checks whether the tables are current.
        setup: The operation that creates or migrates the tables; it runs in the first transaction on the file, if
            needed.
        busy_timeout: Seconds to wait for the end of another process's write.
        synchronous: SQLite's setting of that name, for every connection.
        journal_mode: SQLite's setting of that name. A file in another mode is converted.
        read_only: Whether to open the file for reading only, and to create and migrate nothing.
        given: The caller's connection to `path`. For ":memory:" it is the only connection.

    Attributes:
        lock: Guards the writer, and opening and closing.
        shared: Whether one connection is used for everything.
        given: The caller's connection, if it is that one.
        held: The open connections.
    """

    def __init__(
        self,
        path: str,
        *,
        check: Operation[None],
        setup: Operation[None],
        busy_timeout: float,
        synchronous: str,
        journal_mode: str = "WAL",
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
        self._in_memory = path == ":memory:"
        self._journal_mode = journal_mode.upper()
        self.shared = self._in_memory or self._journal_mode != "WAL"
        with suppress(OSError):  # The process may have changed its directory when the file is opened.
            if not self._in_memory and not os.path.isabs(path):
                self.path = os.path.join(os.getcwd(), path)
        self.given = given if self._in_memory else None
        self.lock = threading.Lock()
        self.held = Held()
        self.read_only = read_only
        self._of_caller = given is not None
        self._of_parent = False  # Whether this process was forked from the one with the caller's connection.
        self._check = check
        self._setup = setup
        self._busy_timeout = min(float(busy_timeout), LONGEST_WAIT)
        self._current_timeout = self._busy_timeout  # The writer's current `busy_timeout`.
        self._synchronous = synchronous.upper()
        if (self._journal_mode, self._synchronous) == ("DELETE", "FULL"):
            # Deleting the journal is the commit. With FULL, a power cut could bring the journal back.
            self._synchronous = "EXTRA"
        self._finalizer = weakref.finalize(self, _close_in_the_end, self.held, self.lock)
        if not self.given:  # The caller closes what the caller has opened.
            weakref.finalize(self, _warn_if_open, self.held, self.path).atexit = False  # Called before the other one.

    def before_fork(self) -> None:
        """Close the file: SQLite's locks belong to a process and do not survive a fork. The caller holds the lock."""
        if self._in_memory:
            return
        deadline = time.monotonic() + FORK_WAITS
        # Without a writer, new reads wait for the lock. The ones that still run are polled: a condition that each read
        # would have to notify would cost every read something, and forks are rare.
        writer, self.held.writer = self.held.writer, None
        self.held.close_idle()
        while self.held.readers and time.monotonic() < deadline:
            time.sleep(0.001)  # Polled, see above; a small read takes less.
            self.held.close_idle()
            gc.collect()  # Finds reads that were interrupted before they could close.
        self.held.close_readers()
        if writer is not None:
            writer.close()

    def after_fork(self) -> None:
        """Start over in the child, which opens the file again when it is needed."""
        self.held.readers.clear()
        if self._of_caller:  # That connection is open in the child, too, which can use neither it nor its file.
            self.held.writer = None
            self._of_parent = True

    def writer(self, operation: str) -> sqlite3.Connection:
        """Return the writer connection, with current tables; the caller holds the lock."""
        if self.held.writer is None:
            if self.held.closed:
                raise closed()
            self.check_location(operation)  # A fork has closed it; no new file is created in its place.
            try:
                self.held.writer = self._retry(self._open, UNSETTLED, OPENINGS)
            except sqlite3.Error as error:
                raise self.wrapped(error, operation) from error
            self.held.location = _location(self.path)
            self._current_timeout = self._busy_timeout
        return self.held.writer

    def wait_at_most(self, waited: float) -> None:
        """Let the writer wait for other processes for the rest of `busy_timeout` after `waited` seconds."""
        timeout = self._busy_timeout
        if waited > timeout / 10:
            timeout = max(timeout - waited, 0)
        if timeout != self._current_timeout and self.held.writer is not None:
            self.held.writer.execute(f"PRAGMA busy_timeout = {round(timeout * 1000)}")
            self._current_timeout = timeout

    def lend(self, operation: str) -> sqlite3.Connection | None:
        """Lend a read connection, which no other call uses until `take_back`; None if `writer` has to open the file."""
        self.check_location(operation)
        try:
            connection: sqlite3.Connection | None = self.held.idle.pop()
        except IndexError:
            connection = self._new_reader(operation)
        if connection is not None and self.held.writer is None:
            self.held.drop(connection)  # A fork holds the lock and waits until no reader is left.
            return None
        return connection

    def _new_reader(self, operation: str) -> sqlite3.Connection | None:
        opening = _Opening()
        self.held.readers.add(opening)
        try:
            if self.held.writer is None:
                return None
            connection = self.connect(read_only=True)
            self.held.readers.add(connection)
        except sqlite3.Error as error:
            raise self.wrapped(error, operation) from error
        finally:
            self.held.readers.discard(opening)  # An error may keep this frame alive for long.
        return connection

    def take_back(self, connection: sqlite3.Connection) -> None:
        """Take a read connection back."""
        if len(self.held.idle) < IDLE:
            self.held.idle.append(connection)
        else:
            self.held.drop(connection)
        if self.held.closed:
            self.held.close_idle()

    def check_location(self, operation: str) -> None:
        """Raise a StorageError if the open file is no longer at its path: nobody would find what is stored in it."""
        opened = self.held.location
        if opened is None or self._in_memory or opened == _location(self.path):
            return
        raise StorageError(
            f"{operation}: {self.path} was moved, deleted or replaced while it was open; nothing was stored. Put it "
            "back, or close the saver and open a new one",
            operation=operation,
        )

    def connect(self, *, read_only: bool = False, alone: bool = False) -> sqlite3.Connection:
        """Open a connection that is not retained; with `alone`, it locks the file."""
        if self._of_parent:
            raise ConfigError(
                "this process was forked from one that gave the saver a connection; create a new saver in this "
                "process, on a new connection"
            )
        if self.given:
            return cast("sqlite3.Connection", self.given)  # It has the methods that are used here.
        # Reading creates no file: it may have been moved or deleted.
        existing = (read_only or self.read_only) and not self._in_memory
        mode = "ro" if self.read_only else "rw"
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
            if alone:
                connection.execute("PRAGMA locking_mode = EXCLUSIVE")
            connection.execute(f"PRAGMA synchronous = {self._synchronous}")
            if read_only:
                connection.execute("PRAGMA query_only = 1")
        except BaseException:
            connection.close()
            raise
        return connection

    def _open(self) -> sqlite3.Connection:
        """Open the first connection: create the file and migrate it."""
        if self.read_only:
            return self._open_to_read()
        if not self._in_memory:
            # Only this user may read the conversations; the WAL files get the same mode. For a bad path, SQLite has the
            # better error message.
            with suppress(OSError):
                os.close(os.open(self.path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
        try:
            return self._set_up(self.connect())
        except sqlite3.OperationalError as error:
            if self._journal_mode == "WAL" or not may_lack_shared_memory(error):
                raise
        # The file may be in WAL mode. Without shared memory, a connection can open it if it locks the file.
        connection = self._set_up(self.connect(alone=True))
        connection.execute("PRAGMA locking_mode = NORMAL")
        connection.execute("PRAGMA user_version").fetchall()  # A read releases the lock.
        return connection

    def _set_up(self, connection: sqlite3.Connection) -> sqlite3.Connection:
        """Migrate the file. Its journal mode is set after that, because the file may be another program's."""
        try:
            if not self._is_current(connection):
                connection.execute("BEGIN IMMEDIATE")
                drive(self._setup, lambda request: reply(connection, request))
                connection.execute("COMMIT")
            if not self._in_memory:
                self._set_journal_mode(connection)
        except BaseException:
            connection.close()
            raise
        return connection

    def _set_journal_mode(self, connection: sqlite3.Connection) -> None:
        """Convert the file to the mode, if it has another one.

        Raises:
            StorageError: Another connection has the file open in WAL mode, or the file system has no shared memory.
        """

        def pragma(statement: str) -> str:
            ((mode,),) = connection.execute(f"PRAGMA {statement}").fetchall()
            return str(mode).upper()

        mode = pragma("journal_mode")
        if mode == self._journal_mode:
            return
        try:  # This statement does not wait for other processes.
            left = self._retry(lambda: pragma(f"journal_mode = {self._journal_mode}"), BUSY)
        except sqlite3.OperationalError as error:
            if code_of(error) not in BUSY:
                raise
            raise Contention(
                f"setup: {self.path} has the journal mode {mode}, and cannot get {self._journal_mode} while another "
                "connection is open; close it, and give all that open the file the same journal_mode",
                operation="setup",
                sqlstate=getattr(error, "sqlite_errorname", None),
            ) from error
        if left != self._journal_mode:
            raise StorageError(f"setup: {self.path} stays in the mode {left}; {NO_SHARED_MEMORY}", operation="setup")

    def _open_to_read(self) -> sqlite3.Connection:
        """Open the first connection of a saver that only reads."""
        connection = self.connect()
        try:
            connection.execute("BEGIN")  # One read snapshot for the check.
            drive(self._check, lambda request: reply(connection, request))
            connection.execute("ROLLBACK")
        except BaseException:
            connection.close()
            raise
        return connection

    def _is_current(self, connection: sqlite3.Connection) -> bool:
        """Whether no setup is needed; this check takes no lock, so the first read waits for no other process."""
        if self._in_memory:
            return False
        connection.execute("BEGIN")  # One read snapshot for the check.
        try:
            drive(self._check, lambda request: reply(connection, request))
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
                if code_of(error) not in codes or elapsed > self._busy_timeout or failed >= most:
                    raise
            time.sleep(min(0.01 * failed, 0.25))  # SQLite does not say when the other process is done.
        raise AssertionError

    def changed(self) -> SchemaError | None:
        """Return what is wrong with the tables, if they have changed since the file was opened."""
        if self._in_memory or self.held.writer is None:
            return None
        try:
            with suppress(sqlite3.Error), closing(self.connect(read_only=True)) as connection:
                drive(self._check, lambda request: reply(connection, request))
        except SchemaError as changed:
            return changed
        return None

    def wrapped(self, error: sqlite3.Error, operation: str, statement: str | None = None) -> CheckpointError:
        """Return the error of this package for one of SQLite."""
        if str(error) != "malformed JSON" and code_of(error) in OTHER_TABLES and (changed := self.changed()):
            return changed
        return storage_error(error, operation, statement, self.path, self._busy_timeout)


class _Connection(sqlite3.Connection):
    """A connection that can have weak references."""


class _Opening:
    """A reader that is being opened."""


class Held:
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


def _warn_if_open(held: Held, path: str) -> None:
    if held.writer is not None or held.idle:
        warn_unclosed(path)


def _close_in_the_end(held: Held, lock: threading.Lock) -> None:
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


def reply(connection: sqlite3.Connection, request: RoundTrip | Offload) -> Any:
    """Send the statements of a round trip, or do the work that is requested; returns the reply."""
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
