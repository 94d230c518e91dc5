"""The connections to a SQLite file: one for writes, others for reads. They are opened on first use.

The first connection creates and migrates the file. One lock guards the writer: it is used by the OS thread that has the
lock. In WAL mode a read borrows a connection, and so waits neither for the writer nor for other reads. In the other
modes a read would block commits, so there is one connection for everything. The same is true of `:memory:`, where it
may be the caller's.

An interrupt (Ctrl-C) may come after any call. Wherever it comes, the lock is released: by a `with`, or by a `finally`
that calls nothing before `release`. A transaction that it left open is ended by the call that takes the lock next.

Must not know: statements, workers.
"""

from __future__ import annotations

import itertools
import math
import os
import sqlite3
import sys
import threading
import time
from collections.abc import Callable, Container
from contextlib import closing, suppress
from functools import partial
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
from langgraph_checkpoint_custom.engine.operation import Operation, RoundTrip, Row, drive
from langgraph_checkpoint_custom.errors import (
    CheckpointError,
    ConfigError,
    Contention,
    SchemaError,
    SchemaMissing,
    SchemaOutdated,
    StorageError,
    closed_error,
)
from langgraph_checkpoint_custom.forks import FORK_TIMEOUT, UNDERWAY, Forked, wait_for_fork

T = TypeVar("T")

# Seconds. SQLite counts them in milliseconds with 31 bits, and does not wait at all for more than that.
LONGEST_WAIT = 2_147_483.0
OLDEST = (3, 40, 0)  # With 3.38, and statistics, some statements read a whole table.
# Maximum number of idle connections for reads; each has two open files.
IDLE = 32
# Milliseconds that SQLite waits for the file before a call looks again. Its pauses grow to 100 ms, so a call would wait
# seconds for a process that writes again and again, such as one that sweeps.
IMPATIENCE = 5
# Seconds between two looks at the path of the open file: a look takes as long as a tenth of a small put.
LOOK = 0.1
# Bytes of the WAL file that stay when SQLite begins it anew. While reads of other calls follow one another, it grows.
KEPT_WAL = 16_000_000
# How often opening is tried after the errors in `UNSETTLED`: half a second in all, because a broken disk stays broken.
OPENINGS = 10
# The parent's connections that a fork could not close. To close them in the child could delete the parent's WAL.
_OF_PARENT: list[object] = []


class SqliteConnections(Forked):
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
        shared: Whether one connection is used for everything.
        owner: The OS thread that has the lock, or 0.
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
                f"SQLite {sqlite3.sqlite_version} is too old, 3.40 is needed; use a Python built with a newer one"
            )
        if not path:
            raise ConfigError('the path of the SQLite file is empty; for a store in memory it is ":memory:"')
        if "\0" in path:
            raise ConfigError(f"the path of the SQLite file contains a NUL character: {path!r}")
        if not busy_timeout >= 0:
            raise ConfigError(f"busy_timeout must be 0 or more seconds, not {busy_timeout!r}")
        if read_only and path == ":memory:":
            raise ConfigError("read_only needs a file: a store in memory is empty at first, and would stay so")
        self.path = path
        self._in_memory = path == ":memory:"
        self._journal_mode = journal_mode
        self.shared = self._in_memory or self._journal_mode != "WAL"
        with suppress(OSError):  # The process may have changed its directory when the file is opened.
            if not self._in_memory and not os.path.isabs(path):
                self.path = os.path.join(os.getcwd(), path)
        self.read_only = read_only
        self._given = given if self._in_memory else None
        self._of_caller = given is not None
        self._of_parent = False  # Whether this process was forked from the one with an open connection.
        self._check = check
        self._setup = setup
        self._synchronous = synchronous
        if (self._journal_mode, self._synchronous) == ("DELETE", "FULL"):
            # Deleting the journal is the commit. With FULL, a power cut could bring the journal back.
            self._synchronous = "EXTRA"
        self._busy_timeout = min(float(busy_timeout), LONGEST_WAIT)
        # Whether SQLite waits for other processes, and not the call: in other modes than WAL, a commit that waits for
        # reads would have to begin again. On Python 3.10, nobody learns why a statement fails.
        self._sqlite_waits = not self._in_memory and (self.shared or sys.version_info < (3, 11))
        self._location: tuple[int, int] | None = None  # Of the file, once it is open.
        self._good_until = -math.inf  # Calls that begin before that use the writer without a look at anything.
        # Guards the writer, and closing. It can only be released by its owner, so an interrupted fork can release it.
        self._lock = threading.RLock()
        self.owner = 0
        self.closed = False
        self.writer: sqlite3.Connection | None = None
        self.idle: list[sqlite3.Connection] = []
        self.reads: set[object] = set()  # One for each call that uses a connection for reads.

    # Using connections

    def writing(self, operation: str, since: float, work: Callable[..., T], *args: Any) -> T:
        """Call `work` with the writer, under the lock; `since` is when the operation began to wait.

        If another process has the file, it is called again, for `busy_timeout` at most from then on, however many calls
        wait. What it has not committed is rolled back, for example with a full disk.
        """
        owner = threading.get_ident()
        if self.owner == owner:
            self.check_not_within()
        with self._lock:
            self.owner = owner
            writer = self.writer
            try:
                if (
                    writer is None
                    or writer.in_transaction
                    or since >= self._good_until
                    or (self._sqlite_waits and time.monotonic() >= since + LOOK)  # It has waited for the lock.
                ):
                    writer = self._writer(operation, since)
                try:
                    return work(writer, *args)
                except sqlite3.OperationalError as error:
                    if code_of(error) not in BUSY or time.monotonic() > since + self._busy_timeout:
                        raise
                return self._retry(partial(_again, writer, work, *args), BUSY, since=since, pause=0)
            except sqlite3.Error as error:
                raise self.wrap(error, operation) from error
            finally:
                self.owner = 0
                if writer is not None and writer.in_transaction:
                    _roll_back(writer)

    def reading_at_once(self, operation: str, since: float, work: Callable[..., T], *args: Any) -> T:
        """Call `work` with the writer if no other call has it, and with a connection for reads otherwise."""
        if not self.owner:
            writer, owner = None, threading.get_ident()
            try:
                if self._lock.acquire(blocking=False):
                    try:
                        self.owner = owner
                        writer = self.writer
                        if writer is not None and not writer.in_transaction and since < self._good_until:
                            return work(writer, *args)
                    finally:
                        self.owner = 0
                        if writer is not None and writer.in_transaction:
                            _roll_back(writer)
                    return self.writing(operation, since, work, *args)
            except sqlite3.OperationalError as error:
                if code_of(error) not in BUSY:  # Of a signal handler: `work` has errors of ours for the rest.
                    raise
                return self.writing(operation, since, work, *args)
            finally:
                try:  # noqa: SIM105  # An interrupt may come when `suppress` is called.
                    self._lock.release()
                except RuntimeError:  # Another OS thread has it.
                    pass
        return self.reading(operation, since, work, *args)

    def reading(self, operation: str, since: float, work: Callable[..., T], *args: Any) -> T:
        """Call `work` with a connection for reads, which no other call uses in the meantime."""
        if self.shared:
            return self.writing(operation, since, work, *args)
        if since >= self._good_until:
            self._check_location(operation)
        this = object()
        try:
            self.reads.add(this)
            while self.writer is None:
                self.reads.discard(this)  # A fork waits until nothing reads.
                self.writing(operation, since, lambda writer: None)  # Opens the file.
                self.reads.add(this)
            connection = self._idle_reader() or self.connect(read_only=True)
            try:
                found = work(connection, *args)
            except BaseException:  # After an interrupt, it may still read an old snapshot.
                connection.close()
                raise
            self._take_back(connection)
            return found
        except sqlite3.Error as error:
            raise self.wrap(error, operation) from error
        finally:
            self.reads.discard(this)

    def check_not_within(self) -> None:
        """Raise a ConfigError if this OS thread has the lock, as in a signal handler: no part of the outer call."""
        if self.owner == threading.get_ident():
            raise ConfigError(
                "the saver was called during another call in the same OS thread, for example by a signal handler, and "
                "would deadlock; nothing was done. Let the handler record what to do, and do it after that call"
            )

    def _writer(self, operation: str, since: float) -> sqlite3.Connection:
        """Return the writer, with current tables and no transaction; the caller has the lock."""
        wait_for_fork(self)
        self._check_location(operation)
        writer = self.writer or self._open_writer(operation)
        if writer.in_transaction:  # An interrupt has left it open.
            writer.rollback()
        if self._sqlite_waits:
            left = max(IMPATIENCE, int((since + self._busy_timeout - time.monotonic()) * 1000))
            writer.execute(f"PRAGMA busy_timeout = {min(left, int(self._busy_timeout * 1000))}")
        self._good_until = since + LOOK
        return writer

    def _check_location(self, operation: str) -> None:
        """Raise a StorageError if the open file is no longer at its path: nobody would find what is stored in it."""
        if self._location and self._location != _location(self.path):
            raise StorageError(
                f"{operation}: {self.path} was moved, deleted or replaced while it was open; nothing was stored. Put "
                "it back, or close the saver and open a new one",
                operation=operation,
            )

    def _idle_reader(self) -> sqlite3.Connection | None:
        try:
            return self.idle.pop()
        except IndexError:
            return None

    def _take_back(self, reader: sqlite3.Connection) -> None:
        if len(self.idle) < IDLE:
            self.idle.append(reader)
        else:
            reader.close()
        if self.closed:
            self._close_idle()

    # Closing

    def close(self) -> None:
        """Close what is not in use."""
        with self._lock:
            self._close()

    def close_in_the_end(self) -> None:
        """Close when the driver is collected, or the process ends; OS threads may still use connections then."""
        self.closed = True
        if self._lock.acquire(timeout=1):
            try:
                self._close()
            finally:
                self._lock.release()

    def warn_if_open(self) -> None:
        """Warn about connections that the saver has opened; the caller closes the caller's."""
        if not self._given and (self.writer is not None or self.idle):
            warn_unclosed(self.path)

    def before_fork(self) -> None:
        """Close the file: SQLite's locks belong to a process and do not survive a fork.

        A store in memory is copied when no call is inside SQLite: nobody would release SQLite's own locks in the child.
        What cannot be closed in time, or because this OS thread is using it, is refused in the child.
        """
        ends, owner = time.monotonic() + FORK_TIMEOUT, threading.get_ident()
        if self._given or self.owner == owner:
            return
        try:
            if self._lock.acquire(timeout=FORK_TIMEOUT):
                self.owner = owner
                UNDERWAY.append(self)  # Who takes the lock now waits for the end of the fork.
                self._good_until = -math.inf
                if self._in_memory:
                    return
                self._close()
                while self.reads and time.monotonic() < ends:
                    time.sleep(0.001)  # Polled: forks are rare, and each read would pay for announcing its end.
                self._close_idle()
        finally:
            if self.owner == owner:
                self.owner = 0
            try:  # noqa: SIM105  # An interrupt may come when `suppress` is called.
                self._lock.release()
            except RuntimeError:  # Another OS thread has it.
                pass

    def after_fork(self) -> None:
        """Start over in the child, which opens the file again when it is needed."""
        is_open = self.writer or self.idle or self.reads
        is_copy = self._in_memory and (self in UNDERWAY or self.owner in (0, threading.get_ident()))
        self._lock = threading.RLock()  # An OS thread that does not exist here may have it.
        self.owner = 0
        if self._of_caller or (is_open and not is_copy):  # The caller's connection is open in the child, too.
            _OF_PARENT.append((self.writer, self.idle))
            self.writer, self.idle = None, []
            self._of_parent = True
        self.reads.clear()

    def _close(self) -> None:
        """Close what is not in use. SQLite copies the WAL into the file when the last connection closes."""
        writer, self.writer = self.writer, None
        self._close_idle()
        if writer is not None:
            writer.close()

    def _close_idle(self) -> None:
        while reader := self._idle_reader():
            reader.close()

    # Opening connections

    def _open_writer(self, operation: str) -> sqlite3.Connection:
        if self.closed:
            raise closed_error()
        self.reads.add(self)  # A fork that goes on without this call finds that the file is open.
        try:
            writer = self._retry(self._open, UNSETTLED, OPENINGS)
            self._location = None if self._in_memory else _location(self.path)
            if not (self.shared or self._sqlite_waits):
                writer.execute(f"PRAGMA busy_timeout = {min(IMPATIENCE, int(self._busy_timeout * 1000))}")
            self.writer = writer
        finally:
            self.reads.discard(self)
        return writer

    def connect(self, *, read_only: bool = False, alone: bool = False) -> sqlite3.Connection:
        """Open a connection that is not retained; with `alone`, it locks the file."""
        if self._of_parent:
            raise ConfigError(
                f"this process was forked while {self.path} was open in its parent, and SQLite would lose what is "
                "stored here; fork before you open connections of your own, and not during a call, or start the "
                "process without a fork, such as with multiprocessing's method spawn"
            )
        if self._given:
            return cast("sqlite3.Connection", self._given)  # It has the methods that are used here.
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
        )
        try:
            if alone:
                connection.execute("PRAGMA locking_mode = EXCLUSIVE")
            connection.execute(f"PRAGMA synchronous = {self._synchronous}")
            connection.execute(f"PRAGMA journal_size_limit = {KEPT_WAL}")
            if read_only:
                connection.execute("PRAGMA query_only = 1")
        except BaseException:
            connection.close()
            raise
        return connection

    def _open(self) -> sqlite3.Connection:
        """Open the first connection: create the file and migrate it, unless the saver only reads."""
        if not self._in_memory and not self.read_only:
            # Only this user may read the conversations; the WAL files get the same mode. For a bad path, SQLite has the
            # better error message.
            with suppress(OSError):
                os.close(os.open(self.path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
        try:
            return self._set_up(self.connect())
        except sqlite3.OperationalError as error:
            if self.read_only or self._journal_mode == "WAL" or not may_lack_shared_memory(error):
                raise
        # The file may be in WAL mode. Without shared memory, a connection can open it if it locks the file.
        connection = self._set_up(self.connect(alone=True))
        connection.execute("PRAGMA locking_mode = NORMAL")
        connection.execute("PRAGMA user_version").fetchall()  # A read releases the lock.
        return connection

    def migrate(self, connection: sqlite3.Connection) -> None:
        """Create or migrate the tables, unless they are current."""
        if not self._is_current(connection):
            if not self._in_memory and not self._of_caller:
                _give_back_pages(connection)
            connection.execute("BEGIN IMMEDIATE")
            drive(self._setup, partial(send_trip, connection))
            connection.execute("COMMIT")

    def _set_up(self, connection: sqlite3.Connection) -> sqlite3.Connection:
        """Migrate the file. Its journal mode is set after that, because the file may be another program's."""
        try:
            self.migrate(connection)
            if not self._in_memory and not self.read_only:
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

    def _is_current(self, connection: sqlite3.Connection) -> bool:
        """Whether no setup is needed; this check takes no lock, so the first read waits for no other process."""
        if self._in_memory:
            return False
        connection.execute("BEGIN")  # One read snapshot for the check.
        try:
            drive(self._check, partial(send_trip, connection))
        except (SchemaMissing, SchemaOutdated):
            if self.read_only:
                raise
            return False
        finally:
            connection.rollback()  # SQLite has already done so after an error of the disk.
        return True

    def _retry(
        self,
        attempt: Callable[[], T],
        codes: Container[int | None],
        most: float = math.inf,
        *,
        since: float | None = None,
        pause: float = 0.01,
    ) -> T:
        """Retry for `busy_timeout`, with growing pauses, while the attempt fails with one of these result codes."""
        started = time.monotonic() if since is None else since
        for failed in itertools.count(1):
            try:
                return attempt()
            except sqlite3.OperationalError as error:
                elapsed = time.monotonic() - started
                if code_of(error) not in codes or elapsed > self._busy_timeout or failed >= most:
                    raise
            time.sleep(min(pause * failed, 0.25))  # SQLite does not say when the other process is done.
        raise AssertionError

    # Errors

    def wrap(self, error: Exception, operation: str, statement: str | None = None) -> CheckpointError:
        """Return the error of this package for one of SQLite."""
        if str(error) != "malformed JSON" and code_of(error) in OTHER_TABLES and (changed := self._schema_error()):
            return changed
        return storage_error(error, operation, statement, self.path, self._busy_timeout)

    def _schema_error(self) -> SchemaError | None:
        """Return what is wrong with the tables, if they have changed since the file was opened."""
        if self._in_memory or self.writer is None:
            return None
        try:
            with suppress(sqlite3.Error), closing(self.connect(read_only=True)) as connection:
                drive(self._check, partial(send_trip, connection))
        except SchemaError as changed:
            return changed
        return None


def _again(writer: sqlite3.Connection, work: Callable[..., T], *args: Any) -> T:
    if writer.in_transaction:
        writer.rollback()
    return work(writer, *args)


def _roll_back(writer: sqlite3.Connection) -> None:
    with suppress(sqlite3.Error):  # The next call tries again.
        writer.rollback()


def _location(path: str) -> tuple[int, int] | None:
    """Return what identifies a file, or None if there is none at the path."""
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_dev, found.st_ino


def _give_back_pages(connection: sqlite3.Connection) -> None:
    """Have a new file give back free pages in steps; a file with data stays as it is."""
    ((pages,),) = connection.execute("PRAGMA page_count").fetchall()
    if not pages:
        connection.execute("PRAGMA auto_vacuum = INCREMENTAL")


def send_trip(connection: sqlite3.Connection, request: RoundTrip) -> Any:
    """Send the statements of a round trip and return the reply; here, no round trip has others `before` or `after`."""
    replies: list[list[Row]] = []
    for _, sql, params in request.statements:
        if isinstance(params, list):
            connection.executemany(sql, params)
            replies.append([])
        elif request.read:
            replies.append(request.read(connection.execute, sql, params))
        else:
            replies.append(connection.execute(sql, params).fetchall())
    return replies
