"""SQLite over the standard library: how operations run on the connections of `sqlite_connections.py`.

A write holds the writer connection, and `BEGIN IMMEDIATE`, for its round trips; concurrent writes share a transaction
(`sqlite_group_commit.py`). An ordinary put that runs alone is one statement, and so its own transaction. A read is one
statement as well, and so one read snapshot. In WAL mode reads never wait for the writer; in other modes they use its
connection. An async call encodes where it is called, switches to a worker once and runs there to its end.
"""

from __future__ import annotations

import asyncio
import sqlite3
import time
from collections import deque
from collections.abc import Iterable, Sequence
from contextlib import closing
from functools import partial
from typing import Any, TypeVar

from langgraph_checkpoint_custom.drivers.sqlite_connections import SqliteConnections, reply
from langgraph_checkpoint_custom.drivers.sqlite_errors import WAY_OUT
from langgraph_checkpoint_custom.drivers.sqlite_group_commit import (
    LONGEST,
    MOST,
    QueuedOperation,
    WorkerBatch,
    WriteQueue,
    calls_of,
    within,
)
from langgraph_checkpoint_custom.drivers.workers import aside
from langgraph_checkpoint_custom.engine.operation import (
    OFFLOAD_BYTES,
    READS,
    Access,
    Form,
    Offload,
    Operation,
    RoundTrip,
    Row,
    Steps,
    drive,
    operation_of,
)
from langgraph_checkpoint_custom.errors import (
    StorageError,
    closed,
    is_read_only,
)
from langgraph_checkpoint_custom.forks import hold, register_for_forks

T = TypeVar("T")

# OS threads for async reads. SQLite's reads hold the GIL for most of their time, so more do not help.
READERS = 4
# Operations that go through the write queue.
_QUEUED = frozenset({"write", "exclusive", "migrate"})
_WRITES = _QUEUED | {"dry_run"}
# Methods that run while this OS thread holds the lock; a signal handler may interrupt any of them.
_LOCKED = ("_transaction", "_together", "_close")
# Operations that return their connection before they decode; the round trips of all others are one transaction.
_RETURNS_CONNECTION = frozenset({"read", "write"})
# Statements that store everything that an operation stores, or nothing.
_ATOMIC = frozenset({"insert_checkpoint", "insert_checkpoint_on_parent", "insert_writes"})


class SqliteDriver:
    """Runs operations on one SQLite file; all copies of a saver share it."""

    def __init__(self, connections: SqliteConnections) -> None:
        self._connections = connections
        self._shared = connections.shared
        self._lock = connections.lock
        self._workers: dict[Access, WorkerBatch] = {}
        self._queue = WriteQueue()
        register_for_forks(self)

    def before_fork(self) -> None:
        """Close the file."""
        hold(self._lock)
        self._connections.before_fork()

    def after_fork(self) -> None:
        """Start over: the child has no workers."""
        self._workers = {}
        self._queue = WriteQueue()
        self._connections.after_fork()

    def setup(self) -> None:
        """Create or migrate the tables now; otherwise the first operation does."""
        if self._connections.read_only:
            raise is_read_only("setup")
        if self._lock.locked():
            self._check_not_within()
        with self._lock:
            self._connections.writer("setup")

    async def asetup(self) -> None:
        """Async version of `setup`."""
        await aside(self._worker("write").executor, self.setup)

    def send(self, form: Form, params: Sequence[Any]) -> list[Row]:
        """Send one statement and return its rows."""
        return self.run(operation_of(form, params))

    async def asend(self, form: Form, params: Sequence[Any]) -> list[Row]:
        """Async version of `send`."""
        return await self.arun(operation_of(form, params))

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
            with closing(self._connections.connect(read_only=True)) as connection:
                return drive(op, lambda request: reply(connection, request))
        except sqlite3.Error as error:
            raise self._connections.wrapped(error, op.name) from error

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
        self._connections.held.closed = True
        for worker in list(self._workers.values()):
            worker.executor.shutdown()
        self._queue.run((), self._write)
        self._close()

    def _close(self) -> None:
        with self._lock:
            self._connections.held.close()

    async def aclose(self) -> None:
        """Async version of `close`."""
        await asyncio.to_thread(self.close)

    def stats(self) -> dict[str, int]:
        """Return the number of connections that read, and of idle connections for reads."""
        return {"reading": self._connections.held.reading, "idle": len(self._connections.held.idle)}

    def _worker(self, access: Access) -> WorkerBatch:
        if self._connections.held.closed:
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
                        request = self._transaction(
                            self._connections.writer(op.name), call, steps, request, queued=queued
                        )
                else:
                    connection = self._lend(op.name)
                    try:
                        request = self._transaction(connection, call, steps, request, queued=queued)
                    except StopIteration:
                        self._connections.take_back(connection)
                        raise
                    except BaseException:
                        self._connections.held.drop(connection)
                        raise
                    self._connections.take_back(connection)
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
            self._connections.held.drop(connection)
            raise
        self._connections.take_back(connection)
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
                    if not connection.in_transaction and (self._connections.given or not _is_atomic(op, asked)):
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
            raise self._connections.wrapped(error, op.name) from error
        finally:
            if connection.in_transaction:  # It failed, or its commit did, for example with a full disk.
                connection.rollback()

    def _prepare(self, op: Operation[Any], connection: sqlite3.Connection, since: float) -> None:
        """Prepare a connection for an operation; a write waits for the rest of `busy_timeout` after `since`."""
        if connection.in_transaction:  # An interrupt has left it open.
            connection.rollback()
        if self._shared or op.access in _WRITES:
            self._connections.check_location(op.name)
            self._connections.wait_at_most(time.monotonic() - since)

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
            connection = self._connections.held.writer
            if connection is None:
                return [left.popleft()]  # It opens the file.
            try:
                self._prepare(left[0].op, connection, max(call.since for call in left))
                self._begin(left[0].op, connection)
            except sqlite3.Error as error:  # All of them have waited for busy_timeout.
                while left:
                    call = left.popleft()
                    call.error = self._connections.wrapped(error, call.op.name, None)
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
            return reply(connection, round_trip)
        except sqlite3.Error as error:
            names = {statement.name for statement in round_trip.statements}
            raise self._connections.wrapped(error, operation, names.pop() if len(names) == 1 else None) from error
        except OverflowError as error:  # Python raises it for values of more than 2 GB.
            raise StorageError(f"{operation}: {WAY_OUT[18]}", operation=operation) from error

    def _lend(self, operation: str) -> sqlite3.Connection:
        """Borrow a read connection, which no other call uses until it is taken back."""
        while (connection := self._connections.lend(operation)) is None:
            if self._lock.locked():
                self._check_not_within()
            with self._lock:  # During a fork, this waits for its end.
                self._connections.writer(operation)
        return connection

    def _check_not_within(self) -> None:
        """Raise a ConfigError if this OS thread has the lock: a signal handler would wait for itself."""
        if calls_of(self, *_LOCKED) or calls_of(self._connections, "writer"):
            raise within()

    def _check_reads(self, op: Operation[Any]) -> None:
        """Raise an error for a write with a saver that only reads."""
        if self._connections.read_only and op.access not in READS:
            raise is_read_only(op.name)


class _LeavesQueue(Exception):
    """A write has to do work that neither other waiting writes nor other processes should wait for."""


def _is_atomic(op: Operation[Any], round_trip: RoundTrip) -> bool:
    """Whether a round trip is one statement that needs no transaction around it."""
    if op.access != "write" or len(round_trip.statements) != 1:
        return False
    (statement,) = round_trip.statements
    return statement.name in _ATOMIC and not isinstance(statement.params, list)


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
