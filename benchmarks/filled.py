"""Databases that are filled with many threads or with large ones, and what counts their pages."""

from __future__ import annotations

import os
import sqlite3
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import psycopg
from langgraph.checkpoint.postgres import PostgresSaver as OfficialPostgresSaver
from langgraph.checkpoint.sqlite import SqliteSaver as OfficialSqliteSaver
from psycopg.conninfo import conninfo_to_dict

from benchmarks.shapes import SHAPES, Thread, label, long, relabelled, short
from benchmarks.stores import Server
from langgraph_checkpoint_custom import OperationEvent, PostgresSaver, SqliteSaver

STORES = {"A": (100_000, 20), "B": (1_000_000, 4)}  # Threads, and checkpoints of each.


class Database(ABC):
    """A database of a saver, in which rows are copied."""

    def __init__(self, location: str, *, official: bool) -> None:
        self.location = location
        self.official = official
        self.operations = self.round_trips = 0

    def note(self, event: OperationEvent) -> None:
        """Count an operation of our saver."""
        self.operations += 1
        self.round_trips += event.round_trips

    @abstractmethod
    def opened(self) -> Any:
        """A context manager with the saver, which notes its operations if it is ours."""

    @abstractmethod
    def repeat(self, thread_id: str, block: int, numbers: Sequence[int]) -> None:
        """Copy the rows of a block of a thread, as blocks with these numbers."""

    @abstractmethod
    def settle(self) -> None:
        """Give the planner its statistics, and write what is not yet in the tables."""

    @abstractmethod
    def counters(self) -> tuple[int, int, int]:
        """Pages read and bytes written since the start, and the size in bytes."""


class PostgresDatabase(Database):
    """A database on a server. What is read in the `other` one is not counted."""

    def __init__(self, location: str, other: str, *, official: bool) -> None:
        super().__init__(location, official=official)
        self._other = other

    def opened(self) -> Any:
        if self.official:
            return OfficialPostgresSaver.from_conn_string(self.location)
        return PostgresSaver(self.location, max_size=1, on_operation=self.note)

    def repeat(self, thread_id: str, block: int, numbers: Sequence[int]) -> None:
        text, hexes = label(block).encode(), label(block).encode().hex().encode()
        with psycopg.connect(self.location) as connection:
            tables = connection.execute(
                "SELECT table_schema || '.' || table_name FROM information_schema.columns"
                " JOIN information_schema.tables USING (table_schema, table_name)"
                " WHERE table_type = 'BASE TABLE' AND column_name = 'thread_id'"
            ).fetchall()
            for (table,) in tables:
                with connection.cursor() as cursor:
                    with cursor.copy(f"COPY (SELECT * FROM {table} WHERE thread_id = '{thread_id}') TO STDOUT") as out:
                        rows = [row for row in map(bytes, out) if text in row or hexes in row]
                    with cursor.copy(f"COPY {table} FROM STDIN") as into:
                        for number in numbers:
                            into.write(b"".join(relabelled(row, block, number) for row in rows))

    def settle(self) -> None:
        with psycopg.connect(self.location, autocommit=True) as connection:
            connection.execute("VACUUM ANALYZE")
            connection.execute("CHECKPOINT")

    def counters(self) -> tuple[int, int, int]:
        for connection in _CONNECTIONS:
            if not connection.closed:  # Otherwise a session reports its numbers after up to ten seconds.
                connection.pgconn.exec_(b"SELECT pg_stat_force_next_flush()")
        with psycopg.connect(self._other) as other:
            found = other.execute(
                "SELECT blks_hit + blks_read, pg_current_wal_insert_lsn() - '0/0', pg_database_size(datid)"
                " FROM pg_stat_database WHERE datname = %s",
                [conninfo_to_dict(self.location)["dbname"]],
            ).fetchone()
        pages, written, size = map(int, found or (0, 0, 0))
        return pages, written, size


@contextmanager
def postgres_database(server: Server, *, official: bool) -> Iterator[Database]:
    """A database, for the duration of a block."""
    try:
        yield PostgresDatabase(server.create("growth"), server.url, official=official)
    finally:
        server.drop("growth")


_CONNECTIONS: list[psycopg.Connection[Any]] = []
_on_postgres, _on_sqlite = psycopg.Connection.__init__, sqlite3.connect


def remembered(connection: psycopg.Connection[Any], *args: Any, **kwargs: Any) -> None:
    """Open a connection, of either saver, and remember it."""
    _on_postgres(connection, *args, **kwargs)
    _CONNECTIONS.append(connection)


def without_cache(*args: Any, **kwargs: Any) -> sqlite3.Connection:
    """Open a connection that has hardly any pages in memory, so that what it reads is counted."""
    connection: sqlite3.Connection = _on_sqlite(*args, **kwargs)
    connection.execute("PRAGMA cache_size = 100")
    return connection


class SqliteDatabase(Database):
    """A file."""

    def opened(self) -> Any:
        if self.official:
            return OfficialSqliteSaver.from_conn_string(self.location)
        return SqliteSaver(self.location, on_operation=self.note)

    def repeat(self, thread_id: str, block: int, numbers: Sequence[int]) -> None:
        with closing(sqlite3.connect(self.location)) as file, file:
            for (table,) in file.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall():
                columns = [row[1] for row in file.execute(f"PRAGMA table_info({table})")]
                if "thread_id" not in columns:
                    continue
                found = file.execute(f"SELECT {', '.join(columns)} FROM {table} WHERE thread_id = ?", [thread_id])
                rows = [row for row in found if label(block) in str(row)]
                file.executemany(
                    f"INSERT INTO {table} ({', '.join(columns)}) VALUES ({', '.join('?' * len(columns))})",
                    ([relabelled(cell, block, number) for cell in row] for number in numbers for row in rows),
                )

    def settle(self) -> None:
        with closing(sqlite3.connect(self.location, isolation_level=None)) as file:
            file.execute("ANALYZE")
            file.execute("PRAGMA wal_checkpoint(TRUNCATE)")

    def counters(self) -> tuple[int, int, int]:
        io = dict(line.split(": ") for line in Path("/proc/self/io").read_text().splitlines())
        return int(io["rchar"]) // 4096, int(io["wchar"]), os.path.getsize(self.location)


@contextmanager
def sqlite_database(where: Path, *, official: bool) -> Iterator[Database]:
    """A file, for the duration of a block."""
    try:
        yield SqliteDatabase(str(where / "growth.db"), official=official)
    finally:
        for file in where.glob("growth.db*"):
            file.unlink()


def threads_of(store: str, scale: float) -> int:
    """The number of the many threads of a store."""
    return max(2, round(STORES[store][0] * scale))


def fill(database: Database, store: str, scale: float, shapes: Iterable[str]) -> None:
    """Store the blocks, and copy them."""
    with database.opened() as saver:
        saver.setup()
        Thread(saver, "few").put_block(0, short(4), user="rare")
        Thread(saver, "warm").put_block(0, long())
        if store in STORES:
            _, steps = STORES[store]
            Thread(saver, many(1)).put_block(1, short(steps), user="usual")
            copies = [(many(1), 1, range(2, 1 + threads_of(store, scale)))]
        else:
            copies = []
            for name in shapes:
                block, blocks = SHAPES[name]
                thread = Thread(saver, name)
                for number in (0, 1):
                    thread.put_block(number, block())
                copies.append((name, 1, range(2, round(blocks * scale))))
    for copied in copies:
        database.repeat(*copied)
    database.settle()


def many(number: int) -> str:
    """The id of one of the many threads."""
    return f"many {label(number)}"
