"""SQLite over the standard library: how operations run on the connections of `sqlite_connections.py`.

A statement that is a whole operation runs in autocommit, under the lock of the writer. `send` also reads there if the
lock is free: a second connection would have to read changed pages again. Any other operation is one transaction,
`BEGIN` … `COMMIT` around all that it requests, and so is a form that reads with several statements: one read snapshot.
In WAL mode reads never wait for the writer; in other modes they use its connection.

An async call encodes where it is called, switches to a worker once and runs there to its end. Async writes that wait
for the worker share a transaction, in which each has a savepoint.
"""

from __future__ import annotations

import sqlite3
import time
import weakref
from collections.abc import Callable, Sequence
from contextlib import closing
from functools import partial
from typing import Any, TypeVar

from langgraph_checkpoint_custom.drivers.sqlite_connections import SqliteConnections, send_trip
from langgraph_checkpoint_custom.drivers.sqlite_errors import BUSY, code_of
from langgraph_checkpoint_custom.drivers.sqlite_workers import Call, Workers
from langgraph_checkpoint_custom.drivers.workers import close_aside
from langgraph_checkpoint_custom.engine.operation import (
    READS,
    Form,
    Offload,
    Operation,
    RoundTrip,
    Row,
    drive,
)
from langgraph_checkpoint_custom.errors import read_only_error
from langgraph_checkpoint_custom.forks import Forked, register_for_forks

T = TypeVar("T")

# OS threads for async reads. SQLite's reads hold the GIL for most of their time, so more do not help.
READERS = 4


class SqliteDriver(Forked):
    """Runs operations on one SQLite file; all copies of a saver share it."""

    def __init__(self, connections: SqliteConnections) -> None:
        self._connections = connections
        self._read_only = connections.read_only
        self.after_fork()
        weakref.finalize(self, connections.close_in_the_end)
        weakref.finalize(self, connections.warn_if_open).atexit = False  # Called before the other one.
        register_for_forks(self, connections)

    def after_fork(self) -> None:
        """Start without workers: those of the parent are not in a forked process."""
        self._writers = Workers("checkpoint-write", perform=self._store)
        self._readers = Workers("checkpoint-read", 1 if self._connections.shared else READERS)

    @property
    def path(self) -> str:
        """The path of the file."""
        return self._connections.path

    def setup(self, op: Operation[None]) -> None:
        """Create or migrate the tables now, as the first operation does; if they are current, nothing is locked."""
        if self._read_only:
            raise read_only_error(op.name)
        self._connections.writing(op.name, time.monotonic(), self._connections.migrate)

    async def asetup(self, op: Operation[None]) -> None:
        """Async version of `setup`."""
        await self._readers.run(self.setup, op)

    def send(self, form: Form, params: Sequence[Any]) -> list[Row]:
        """Send one statement and return its rows."""
        if form.access in READS:
            return self._connections.reading_at_once(form.operation, time.monotonic(), self._fetch, form, params)
        if self._read_only:
            raise read_only_error(form.operation)
        return self._connections.writing(form.operation, time.monotonic(), self._fetch, form, params)

    async def asend(self, form: Form, params: Sequence[Any]) -> list[Row]:
        """Async version of `send`."""
        if form.access in READS or self._read_only:
            return await self._readers.run(self.send, form, params)
        return await self._writers.run(self._fetch, form, params)

    def run(self, op: Operation[T]) -> T:
        """Run an operation and return its result."""
        use = self._connections.reading if op.access in READS else self._connections.writing
        if self._read_only and op.access not in READS:
            raise read_only_error(op.name)
        result: T = use(op.name, time.monotonic(), self._transaction, op)
        return result

    async def arun(self, op: Operation[T]) -> T:
        """Run an operation on a worker."""
        work: Callable[..., Any] = self._run_steps
        workers = self._writers
        if op.access in READS or self._read_only:
            work, workers = self.run, self._readers
        result: T = await workers.run(work, op)
        return result

    def look(self, op: Operation[T]) -> T:
        """Run a read without creating or migrating tables."""
        try:
            with closing(self._connections.connect(read_only=True)) as connection:
                return drive(op, partial(send_trip, connection))
        except sqlite3.Error as error:
            raise self._connections.wrap(error, op.name) from error

    async def aoffload(self, request: Offload) -> Any:
        """Run work on a worker and return its result."""
        return await self._readers.run(request.work)

    def vacuum(self) -> None:
        """Rewrite the file without free pages. From then on, it can give them back in steps."""
        self._connections.writing("vacuum", time.monotonic(), self._vacuum)

    def close(self) -> None:
        """Wait for running operations and close every connection."""
        self._connections.check_not_within()
        self._connections.closed = True
        for workers in (self._writers, self._readers):
            workers.shut_down()
        self._connections.close()

    async def aclose(self) -> None:
        """Async version of `close`."""
        await close_aside(self.close)

    def stats(self) -> dict[str, int]:
        """Return the number of connections that read, and of idle connections for reads."""
        return {"reading": len(self._connections.reads), "idle": len(self._connections.idle)}

    def _fetch(self, connection: sqlite3.Connection, form: Form, params: Sequence[Any]) -> list[Row]:
        try:
            if form.is_whole:  # Of most checkpoints. A transaction would take a tenth of the time of a small read.
                rows = connection.execute(form.sql, params).fetchall()
                if form.is_whole(rows):
                    return rows
            elif form.each:
                return _execute_each(connection, form, params)
            if form.read is None:
                return connection.execute(form.sql, params).fetchall()
            connection.execute("BEGIN")
            rows = form.read(connection.execute, form.sql, params)
            connection.execute("COMMIT")
            return rows
        except (sqlite3.Error, OverflowError) as error:
            if code_of(error) in BUSY:
                raise  # `writing` tries again.
            raise self._connections.wrap(error, form.operation, form.name) from error

    def _vacuum(self, connection: sqlite3.Connection) -> None:
        connection.execute("PRAGMA auto_vacuum = INCREMENTAL")
        connection.execute("VACUUM")
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()  # Until then, the WAL file has the pages, too.

    def _run_steps(self, connection: sqlite3.Connection, op: Operation[T]) -> T:
        """Run an operation in a transaction that has begun."""

        def perform(request: RoundTrip) -> Any:
            try:
                return send_trip(connection, request)
            except (sqlite3.Error, OverflowError) as error:
                names = {statement.name for statement in request.statements}
                raise self._connections.wrap(error, op.name, *names if len(names) == 1 else ()) from error

        return drive(op, perform)

    def _transaction(self, connection: sqlite3.Connection, op: Operation[T]) -> T:
        """Run an operation as a transaction."""
        connection.execute("BEGIN" if op.access in READS else "BEGIN IMMEDIATE")
        result = self._run_steps(connection, op)
        connection.execute("COMMIT")
        return result

    # Async writes

    def _store(self, calls: Sequence[Call]) -> None:
        """Run writes in one transaction; if it cannot be committed, each in one of its own."""
        if len(calls) > 1:
            try:
                self._connections.writing("commit", max(call.since for call in calls), self._together, calls)
                return
            except BaseException:  # Each call gets its own error, if any.
                pass
        for call in calls:
            what, call.error = call.args[0], None
            name, work = (what.operation, self._fetch) if type(what) is Form else (what.name, self._transaction)
            try:
                call.result = self._connections.writing(name, call.since, work, *call.args)
            except BaseException as error:
                call.error = error

    def _together(self, connection: sqlite3.Connection, calls: Sequence[Call]) -> None:
        connection.execute("BEGIN IMMEDIATE")
        for call in calls:
            _run_in_savepoint(connection, call)
        connection.execute("COMMIT")


def _execute_each(connection: sqlite3.Connection, form: Form, params: Sequence[Any]) -> list[Row]:
    """Execute the statements of a form in one transaction, which may have begun."""
    *own, rows_of_each = params
    begins = not connection.in_transaction
    if begins:
        connection.execute("BEGIN IMMEDIATE")
    rows = connection.execute(form.sql, own).fetchall()
    if rows and rows_of_each:
        connection.executemany(form.each, rows_of_each)
    if begins:
        connection.execute("COMMIT")
    return rows


def _run_in_savepoint(connection: sqlite3.Connection, call: Call) -> None:
    call.error = None
    connection.execute("SAVEPOINT one_write")
    try:
        call.result = call.work(connection, *call.args)
    except Exception as error:
        if code_of(error) in BUSY:
            raise  # All of them begin again.
        call.error = error
        connection.execute("ROLLBACK TO one_write")  # Fails if everything is rolled back, as with a full disk.
    connection.execute("RELEASE one_write")
