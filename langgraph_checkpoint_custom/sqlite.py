"""`SqliteSaver`, for SQLite over the standard library, and `AsyncSqliteSaver`, the name that LangGraph uses."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

from langgraph.checkpoint.serde.base import SerializerProtocol
from typing_extensions import Self, Unpack

from langgraph_checkpoint_custom.drivers.sqlite import SqliteDriver
from langgraph_checkpoint_custom.drivers.sqlite_callers import CallersConnection, is_connection
from langgraph_checkpoint_custom.drivers.sqlite_connections import SqliteConnections
from langgraph_checkpoint_custom.errors import ConfigError
from langgraph_checkpoint_custom.operations.schema import check_schema, setup
from langgraph_checkpoint_custom.options import JournalMode, SaverOptions, SqliteOptions, Synchronous, check_options
from langgraph_checkpoint_custom.saver import CheckpointSaver
from langgraph_checkpoint_custom.sql.sqlite_dialect import SqliteDialect

if TYPE_CHECKING:
    from langgraph_checkpoint_custom.drivers.sqlite_callers import Given


class SqliteSaver(CheckpointSaver):
    """Stores checkpoints in a SQLite file; creates the tables on first use.

    Args:
        conn: The path of the file, or ":memory:" for a store that ends with the saver. Or a connection of `sqlite3` or
            `aiosqlite`, which stays yours to close: if it is open on a file, the saver takes the path and opens
            connections of its own; if it is in memory, the saver uses the connection.
        busy_timeout: Seconds to wait while another process writes.
        synchronous: SQLite's setting. "FULL" keeps every acknowledged step through a power cut. "NORMAL" is faster and
            may lose the last steps then; in WAL mode, it never damages the file.
        journal_mode: SQLite's setting. "WAL" needs shared memory, which some containers do not have. With "DELETE" or
            "TRUNCATE" the saver uses one connection, so reads wait for writes. An existing file is converted when the
            saver opens it.
        read_only: Whether to open the file for reading only (`mode=ro`). The saver then creates no file and no tables,
            and every method that would change something raises `ConfigError`.
        serde: The serializer; LangGraph's `JsonPlusSerializer` by default.
        options: The options of every saver, which `help(CheckpointSaver)` explains: `previous_serdes`,
            `plaintext_metadata`, `exclude_metadata`, `strict`, `allow`, `on_unreadable`, `on_inexact`, `on_load`,
            `concurrent_writers`, `compress`, `chunk_cache_bytes`, `on_operation` and `retention`.

    Example:
        ```python
        with SqliteSaver.from_conn_string("checkpoints.db") as saver:
            graph = builder.compile(checkpointer=saver)
        ```
    """

    def __init__(
        self,
        conn: str | os.PathLike[str] | Given,
        *,
        busy_timeout: float = 30.0,
        synchronous: Synchronous = "FULL",
        journal_mode: JournalMode = "WAL",
        read_only: bool = False,
        serde: SerializerProtocol | None = None,
        **options: Unpack[SaverOptions],
    ) -> None:
        chosen = {"synchronous": synchronous, "journal_mode": journal_mode, "read_only": read_only}
        check_options("SqliteSaver", {**options, **chosen})
        given = None
        if is_connection(conn):
            given = CallersConnection(conn)
            path = given.path or ":memory:"
        elif isinstance(conn, (str, os.PathLike)):
            path = os.fsdecode(conn)
            if scheme := re.match(r"[\w+.-]+(?=://)", path):  # The message omits the rest, which may hold a password.
                raise ConfigError(
                    f"SqliteSaver takes the path of a file, not a URL ({scheme[0]}://); for a URL, use open_saver"
                )
        else:
            raise ConfigError(
                "SqliteSaver takes the path of a file, or a connection of sqlite3 or aiosqlite, not a "
                f"{type(conn).__name__}"
            )
        dialect = SqliteDialect(path)
        connections = SqliteConnections(
            path,
            check=check_schema(dialect),
            setup=setup(dialect),
            busy_timeout=busy_timeout,
            synchronous=synchronous,
            journal_mode=journal_mode,
            read_only=read_only,
            given=given,
        )
        super().__init__(dialect, SqliteDriver(connections), serde=serde, **options)
        self._given = given and conn

    @classmethod
    def from_conn_string(cls, conn_string: str, **options: Unpack[SqliteOptions]) -> Self:
        """Return a saver for a path or ":memory:", without connecting yet.

        Args:
            conn_string: The path of the file, or ":memory:".
            options: The options of the class.
        """
        return cls(conn_string, **options)


class AsyncSqliteSaver(SqliteSaver):
    """`SqliteSaver` under LangGraph's name for async programs: here you await `setup()`.

    All other methods are those of `SqliteSaver`, sync ones included.
    """

    async def setup(self, *, searchable: Sequence[str] = ()) -> None:  # type: ignore[override]
        """Create or migrate the tables, as `asetup` does."""
        await self.asetup(searchable=searchable)
