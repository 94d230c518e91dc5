"""The least that any saver must do: LangGraph's serializer and one bare prepared statement, in one round trip.

A floor stores values by thread and name, in one table with one key. It has no versions, no writes and
no rules, so it is not a saver. It shows the time of the serializer, the driver and the database alone. The
floor `serde` has no database either.
"""

from __future__ import annotations

import asyncio
import queue
import sqlite3
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Protocol, TypeVar

from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from psycopg import AsyncConnection, Connection

T = TypeVar("T")

TABLE = "CREATE TABLE floor (thread text, name text, type text, value {bytes}, PRIMARY KEY (thread, name))"
INSERT = "INSERT INTO floor VALUES (%s, %s, %s, %s)"
INSERT_ALL = "INSERT INTO floor SELECT * FROM unnest(%s::text[], %s::text[], %s::text[], %s::bytea[])"
SELECT = "SELECT type, value FROM floor WHERE thread = %s AND name = %s"
SELECT_ALL = "SELECT type, value FROM floor WHERE thread = %s ORDER BY name DESC LIMIT %s"
COPY = "INSERT INTO floor SELECT %s, name, type, value FROM floor WHERE thread = %s"
DELETE = "DELETE FROM floor WHERE thread = %s"

Row = Sequence[Any]


class Backend(Protocol):
    """Runs one statement in its own transaction."""

    async def run(self, sql: str, params: Sequence[Any]) -> list[Row]: ...
    async def run_all(self, rows: Sequence[Row]) -> None: ...
    async def close(self) -> None: ...


class Floor:
    """A store of values by thread and name."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self._serde = JsonPlusSerializer()

    async def store(self, thread: str, name: str, value: Any) -> None:
        """Store a value."""
        await self._backend.run(INSERT, (thread, name, *self._serde.dumps_typed(value)))

    async def store_all(self, thread: str, values: Sequence[tuple[str, Any]]) -> None:
        """Store several values with one call."""
        await self._backend.run_all([(thread, name, *self._serde.dumps_typed(value)) for name, value in values])

    async def load(self, thread: str, name: str) -> Any:
        """A value."""
        ((type_, data),) = await self._backend.run(SELECT, (thread, name))
        return self._serde.loads_typed((type_, bytes(data)))

    async def load_all(self, thread: str, limit: int = 1_000_000) -> list[Any]:
        """The values of a thread, the last one first."""
        rows = await self._backend.run(SELECT_ALL, (thread, limit))
        return [self._serde.loads_typed((type_, bytes(data))) for type_, data in rows]

    async def copy(self, source: str, target: str) -> None:
        """Copy a thread."""
        await self._backend.run(COPY, (target, source))

    async def delete(self, thread: str) -> None:
        """Delete a thread."""
        await self._backend.run(DELETE, (thread,))

    async def close(self) -> None:
        """Close what is open."""
        await self._backend.close()


class Postgres:
    """Connections that are used in turn."""

    def __init__(self, url: str, size: int) -> None:
        self._idle: queue.Queue[Connection[Any]] = queue.LifoQueue()
        for _ in range(size):
            self._idle.put(Connection.connect(url, autocommit=True, prepare_threshold=0))

    async def run(self, sql: str, params: Sequence[Any]) -> list[Row]:
        connection = self._idle.get()
        try:
            cursor = connection.cursor(binary=True).execute(sql, params)
            return cursor.fetchall() if cursor.description else []
        finally:
            self._idle.put(connection)

    async def run_all(self, rows: Sequence[Row]) -> None:
        await self.run(INSERT_ALL, [list(column) for column in zip(*rows, strict=True)])

    async def close(self) -> None:
        while not self._idle.empty():
            self._idle.get().close()


class AsyncPostgres:
    """The same for tasks."""

    def __init__(self, connections: Sequence[AsyncConnection[Any]]) -> None:
        self._idle: asyncio.Queue[AsyncConnection[Any]] = asyncio.LifoQueue()
        for connection in connections:
            self._idle.put_nowait(connection)

    @classmethod
    async def open(cls, url: str, size: int) -> AsyncPostgres:
        """Connect."""
        return cls([await AsyncConnection.connect(url, autocommit=True, prepare_threshold=0) for _ in range(size)])

    async def run(self, sql: str, params: Sequence[Any]) -> list[Row]:
        connection = await self._idle.get()
        try:
            cursor = await connection.cursor(binary=True).execute(sql, params)
            return await cursor.fetchall() if cursor.description else []
        finally:
            self._idle.put_nowait(connection)

    async def run_all(self, rows: Sequence[Row]) -> None:
        await self.run(INSERT_ALL, [list(column) for column in zip(*rows, strict=True)])

    async def close(self) -> None:
        while not self._idle.empty():
            await self._idle.get_nowait().close()


class Sqlite:
    """One connection, called directly or, for tasks, on one worker."""

    def __init__(self, path: Path, api: str) -> None:
        self._connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False, timeout=60)
        self._connection.execute("PRAGMA journal_mode = WAL")
        self._worker = ThreadPoolExecutor(1) if api == "async" else None
        self._turn: queue.Queue[None] = queue.Queue()
        self._turn.put(None)

    async def run(self, sql: str, params: Sequence[Any]) -> list[Row]:
        statement = sql.replace("%s", "?")
        return await self._call(lambda: self._connection.execute(statement, params).fetchall())

    async def run_all(self, rows: Sequence[Row]) -> None:
        def insert() -> None:
            with self._connection:
                self._connection.execute("BEGIN IMMEDIATE")
                self._connection.executemany(INSERT.replace("%s", "?"), rows)

        await self._call(insert)

    async def close(self) -> None:
        if self._worker:
            self._worker.shutdown()
        self._connection.close()

    async def _call(self, work: Callable[[], T]) -> T:
        if self._worker:
            return await asyncio.get_running_loop().run_in_executor(self._worker, work)
        self._turn.get()
        try:
            return work()
        finally:
            self._turn.put(None)


class Nothing:
    """No database: rows stay as they are."""

    def __init__(self) -> None:
        self._threads: dict[str, dict[str, Row]] = {}

    async def run(self, sql: str, params: Sequence[Any]) -> list[Row]:
        if sql == INSERT:
            await self.run_all([params])
        elif sql == COPY:
            self._threads[params[0]] = dict(self._threads[params[1]])
        elif sql == DELETE:
            self._threads.pop(params[0], None)
        elif sql == SELECT:
            return [self._threads[params[0]][params[1]]]
        elif sql == SELECT_ALL:
            rows = self._threads[params[0]]
            return [rows[name] for name in sorted(rows, reverse=True)[: params[1]]]
        return []

    async def run_all(self, rows: Sequence[Row]) -> None:
        for thread, name, *rest in rows:
            self._threads.setdefault(thread, {})[name] = rest

    async def close(self) -> None:
        self._threads.clear()
