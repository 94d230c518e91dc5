"""SQLite over the standard library: how operations run on the connections of `sqlite_connections.py`.

A statement that is a whole operation runs in autocommit, under the lock of the writer. `send` also reads there if the
lock is free: a second connection would have to read changed pages again. One statement is one read snapshot. All other
operations are `BEGIN` … `COMMIT` around their round trips. In WAL mode reads never wait for the writer; in other modes
they use its connection.

An async call encodes where it is called, switches to a worker once and runs there to its end. Async writes that wait
for the worker share a transaction, in which each has a savepoint.
"""

from __future__ import annotations

import sqlite3
import time
import weakref
from collections.abc import Generator, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, Generic, TypeVar

from langgraph_checkpoint_custom.drivers.sqlite_connections import SqliteConnections, reply
from langgraph_checkpoint_custom.drivers.sqlite_group_commit import LONGEST, Call, CallQueue, run_each
from langgraph_checkpoint_custom.drivers.workers import aside, closing_aside
from langgraph_checkpoint_custom.engine.operation import READS, Form, Offload, Operation, RoundTrip, Row, drive
from langgraph_checkpoint_custom.errors import CheckpointError, is_read_only
from langgraph_checkpoint_custom.forks import register_for_forks

T = TypeVar("T")

# OS threads for async reads. SQLite's reads hold the GIL for most of their time, so more do not help.
READERS = 4
# Operations that give their connection back for the work of an `Offload`.
_PAUSE = frozenset({"read", "write"})
# Operations of which several share a transaction.
_SHARE = frozenset({"write", "exclusive", "migrate"})


class SqliteDriver:
    """Runs operations on one SQLite file; all copies of a saver share it."""

    def __init__(self, connections: SqliteConnections) -> None:
        self._connections = connections
        self._read_only = connections.read_only
        self._start_queues()
        weakref.finalize(self, connections.close_in_the_end)
        weakref.finalize(self, connections.warn_if_open).atexit = False  # Called before the other one.
        register_for_forks(self)

    def _start_queues(self) -> None:
        self._writes = CallQueue(1, "checkpoint-write")
        self._reads = CallQueue(1 if self._connections.shared else READERS, "checkpoint-read")

    def before_fork(self) -> None:
        """Close the file."""
        self._connections.before_fork()

    def after_fork(self) -> None:
        """Start over: the child has no workers."""
        self._start_queues()
        self._connections.after_fork()

    def setup(self) -> None:
        """Create or migrate the tables now; otherwise the first operation does."""
        if self._read_only:
            raise is_read_only("setup")
        self._connections.writing("setup", time.monotonic(), lambda writer: None)

    async def asetup(self) -> None:
        """Async version of `setup`."""
        await aside(self._reads.executor, self.setup)

    def send(self, form: Form, params: Sequence[Any]) -> list[Row]:
        """Send one statement and return its rows."""
        use = self._connections.writing
        if form.access in READS:
            if self._connections.owner:
                use = self._connections.reading
        elif self._read_only:
            raise is_read_only(form.operation)
        return use(form.operation, time.monotonic(), self._fetch, form, params)

    async def asend(self, form: Form, params: Sequence[Any]) -> list[Row]:
        """Async version of `send`."""
        call = Call(form.operation, partial(self.send, form, params), partial(self._fetch, form=form, params=params))
        if form.access in READS:
            return await self._reads.run(call, run_each)
        return await self._writes.run(call, self._store)

    def run(self, op: Operation[T]) -> T:
        """Run an operation and return its result."""
        if self._read_only and op.access not in READS:
            raise is_read_only(op.name)
        use = self._connections.reading if op.access in READS else self._connections.writing
        since = time.monotonic()
        steps = _to_the_end(op)
        try:
            request = next(steps)
            while not isinstance(request, _Result):
                if isinstance(request, Offload):
                    request = steps.send(request.work())
                    since = time.monotonic()
                else:
                    request = use(op.name, since, self._transaction, op, steps, request)
            return request.value
        finally:
            steps.close()

    async def arun(self, op: Operation[T]) -> T:
        """Run an operation on a worker."""
        alone = partial(self.run, op)
        if op.access not in _SHARE or self._read_only:
            return await aside(self._reads.executor, alone)
        return await self._writes.run(Call(op.name, alone, partial(self._share, op=op)), self._store)

    def look(self, op: Operation[T]) -> T:
        """Run a read without creating or migrating tables."""
        try:
            with closing(self._connections.connect(read_only=True)) as connection:
                return drive(op, lambda request: reply(connection, request))
        except sqlite3.Error as error:
            raise self._connections.wrapped(error, op.name) from error

    async def aoffload(self, request: Offload) -> Any:
        """Run work on a worker and return its result."""
        return await aside(self._reads.executor, request.work)

    def close(self) -> None:
        """Wait for running operations and close every connection."""
        self._connections.check_not_within()
        self._connections.closed = True
        for calls in (self._writes, self._reads):
            calls.executor.shutdown()
        self._connections.close()

    async def aclose(self) -> None:
        """Async version of `close`."""
        await closing_aside(self.close)

    def stats(self) -> dict[str, int]:
        """Return the number of connections that read, and of idle connections for reads."""
        return {"reading": len(self._connections.reads), "idle": len(self._connections.idle)}

    def _fetch(self, connection: sqlite3.Connection, form: Form, params: Sequence[Any]) -> list[Row]:
        try:
            return connection.execute(form.sql, params).fetchall()
        except (sqlite3.Error, OverflowError) as error:
            raise self._connections.wrapped(error, form.operation, form.name) from error

    def _reply(self, connection: sqlite3.Connection, operation: str, request: RoundTrip | Offload) -> Any:
        if isinstance(request, Offload):
            return request.work()
        try:
            return reply(connection, request)
        except (sqlite3.Error, OverflowError) as error:
            names = {statement.name for statement in request.statements}
            raise self._connections.wrapped(error, operation, names.pop() if len(names) == 1 else None) from error

    def _transaction(
        self, connection: sqlite3.Connection, op: Operation[T], steps: _Steps[T], request: RoundTrip
    ) -> Offload | _Result[T]:
        """Continue an operation to its end, or until it requests work for which it returns its connection."""
        asked: RoundTrip | Offload | _Result[T] = request
        try:
            connection.execute("BEGIN" if op.access in READS else "BEGIN IMMEDIATE")
            while not isinstance(asked, _Result):
                if isinstance(asked, Offload) and op.access in _PAUSE:
                    break
                asked = steps.send(self._reply(connection, op.name, asked))
            connection.execute("COMMIT")
            return asked
        finally:
            if connection.in_transaction:  # It failed, or its commit did, for example with a full disk.
                connection.rollback()

    # Several writes in one transaction

    def _store(self, calls: Sequence[Call[Any]]) -> None:
        """Run writes in one transaction, as many as begin in time; alone if that is not possible."""
        if len(calls) > 1:
            since = max(call.since for call in calls)
            with suppress(CheckpointError):  # The file cannot be opened; each call gets an error of its own.
                calls = self._connections.writing("write", since, self._together, calls)
        for call in calls:
            call.run()

    def _together(self, connection: sqlite3.Connection, calls: Sequence[Call[Any]]) -> Sequence[Call[Any]]:
        """Run calls in one transaction; returns those that have to run alone."""
        try:
            connection.execute("BEGIN IMMEDIATE")
        except sqlite3.Error as error:  # All of them have waited for busy_timeout.
            for call in calls:
                call.error, call.done = self._connections.wrapped(error, call.operation), True
                call.error.__cause__ = error
            return ()
        ran: list[Call[Any]] = []
        try:
            ends = time.monotonic() + LONGEST
            for call in calls:
                if ran and time.monotonic() >= ends:
                    break
                ran.append(call)
                _run_in_savepoint(connection, call)
            connection.execute("COMMIT")
        except sqlite3.Error:
            return ran
        finally:
            if connection.in_transaction:
                connection.rollback()
        alone = [call for call in ran if isinstance(call.error, _RunsAlone)]
        for call in ran:
            call.done = call not in alone
        return alone

    def _share(self, connection: sqlite3.Connection, op: Operation[T]) -> T:
        """Run an operation in a transaction that it shares with others."""

        def perform(request: RoundTrip | Offload) -> Any:
            if isinstance(request, Offload) and op.access in _PAUSE:
                raise _RunsAlone
            return self._reply(connection, op.name, request)

        return drive(op, perform)


def _run_in_savepoint(connection: sqlite3.Connection, call: Call[Any]) -> None:
    connection.execute("SAVEPOINT one_write")
    try:
        call.result = call.together(connection)
    except Exception as error:
        call.error = error
        connection.execute("ROLLBACK TO one_write")  # Fails if everything is rolled back, as with a full disk.
    connection.execute("RELEASE one_write")


class _RunsAlone(Exception):
    """A write has to do work for which neither other writes nor other processes should wait."""


@dataclass
class _Result(Generic[T]):
    """What an operation returns."""

    value: T


_Steps = Generator[RoundTrip | Offload | _Result[T], Any, None]


def _to_the_end(op: Operation[T]) -> _Steps[T]:
    """The steps of an operation, and its result as the last one."""
    yield _Result((yield from op.start()))
