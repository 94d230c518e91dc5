"""Connections that a caller gives to `SqliteSaver`.

For a file, only its path is taken from the connection: the driver opens connections of its own. A database in memory
exists only on the connection that created it, so all calls use that one, one after the other.
"""

from __future__ import annotations

import asyncio
import os
import sqlite3
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import TYPE_CHECKING, Any, TypeAlias, TypeGuard, TypeVar

from langgraph_checkpoint_custom.engine.operation import Row
from langgraph_checkpoint_custom.errors import ConfigError

if TYPE_CHECKING:
    import aiosqlite

    Given: TypeAlias = sqlite3.Connection | aiosqlite.Connection

T = TypeVar("T")

_SAVEPOINT = "langgraph_checkpoint"


def is_connection(given: object) -> TypeGuard[Given]:
    """Whether an object is a connection of `sqlite3` or of `aiosqlite`, which need not be installed."""
    module = sys.modules.get("aiosqlite")
    return isinstance(given, sqlite3.Connection) or (module is not None and isinstance(given, module.Connection))


class CallersConnection:
    """A caller's connection, with the part of `sqlite3.Connection` that the driver uses.

    A transaction of ours is a savepoint. If the caller has begun a transaction, the savepoint is in it, and the caller
    commits it. A statement outside of our transactions is one of its own, whatever the connection's mode. The caller's
    row factory does not matter.
    """

    def __init__(self, given: Given) -> None:
        self._given = given
        self.in_transaction = False  # Whether there is a transaction of ours.
        try:
            paths = {name: path for _, name, path in self._send("PRAGMA database_list")}
            if "main" not in paths:
                raise ConfigError(
                    "the connection returns text as something other than str; leave its text_factory unchanged, or "
                    "pass the path of the file"
                )
            path = paths["main"]
            # What `deserialize` has read, and a database of SQLite's VFS "memdb", has a name, but is in memory.
            self.path = path if os.path.isabs(path) and os.path.exists(path) else ""
            if not self.path and isinstance(given, sqlite3.Connection):
                _on_another_thread(given.cursor)
        except sqlite3.ProgrammingError as error:
            raise ConfigError(
                f"the connection cannot be used: {error}; a graph calls its saver from several OS threads, so open the "
                "connection with check_same_thread=False, or pass the path of the file"
            ) from None

    def execute(self, sql: str, parameters: Any = ()) -> _Rows:
        """Run a statement and return its rows."""
        if sql.startswith("BEGIN"):
            self.in_transaction = True  # First, since an interrupt may come.
            self._send(f"SAVEPOINT {_SAVEPOINT}")
        elif sql == "COMMIT":
            self._send(f"RELEASE {_SAVEPOINT}")
            self.in_transaction = False
        else:
            return self._send(sql, parameters) if self.in_transaction else self._send_alone(sql, parameters)
        return _Rows()

    def _send_alone(self, sql: str, parameters: Any) -> _Rows:
        self.execute("BEGIN")
        try:
            rows = self._send(sql, parameters)
            self.execute("COMMIT")
        finally:
            if self.in_transaction:
                self.rollback()
        return rows

    def executemany(self, sql: str, parameters: Sequence[Any]) -> None:
        """Run a statement once with each of the parameters."""
        self._send(sql, parameters, many=True)

    def rollback(self) -> None:
        """Roll back our transaction; the caller's remains."""
        # There is none if an interrupt came right before or after it, or if the caller has closed the connection.
        with suppress(sqlite3.OperationalError, sqlite3.ProgrammingError):
            self._send(f"ROLLBACK TO {_SAVEPOINT}")
            self._send(f"RELEASE {_SAVEPOINT}")
        self.in_transaction = False

    def close(self) -> None:
        """Do nothing: the caller closes the connection."""

    def _send(self, sql: str, parameters: Any = (), *, many: bool = False) -> _Rows:
        if isinstance(self._given, sqlite3.Connection):
            cursor = self._given.cursor()
            cursor.row_factory = None
            (cursor.executemany if many else cursor.execute)(sql, parameters)
            return _Rows(cursor.fetchall())
        try:
            return _on_another_thread(lambda: asyncio.run(_on_its_thread(self._given, sql, parameters, many)))
        except (ValueError, RuntimeError) as error:  # aiosqlite raises them if it is closed.
            raise sqlite3.ProgrammingError(str(error)) from None


class _Rows(list[Row]):
    """The rows that a statement has returned."""

    def fetchall(self) -> list[Row]:
        return self


def _on_another_thread(work: Callable[[], T]) -> T:
    """Run work on another OS thread, since an event loop may run on this one."""
    with ThreadPoolExecutor(1) as worker:
        return worker.submit(work).result()


async def _on_its_thread(given: Any, sql: str, parameters: Any, many: bool) -> _Rows:
    """Run a statement on the OS thread of an aiosqlite connection, which replies to any event loop."""
    try:
        cursor = await given.cursor()
    except ValueError:  # It was not awaited yet; if it is closed, the next line fails as well.
        cursor = await (await given).cursor()
    cursor.row_factory = None
    await (cursor.executemany if many else cursor.execute)(sql, parameters)
    return _Rows(await cursor.fetchall())
