"""`SqliteSaver`: the embedded default, over the standard library; `AsyncSqliteSaver`, as LangGraph calls it."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING

from langgraph.checkpoint.serde.base import SerializerProtocol
from typing_extensions import Self, Unpack

from langgraph_checkpoint_custom.drivers.sqlite import SqliteDriver
from langgraph_checkpoint_custom.drivers.sqlite_callers import CallersConnection, is_connection
from langgraph_checkpoint_custom.errors import ConfigError
from langgraph_checkpoint_custom.operations.schema import check_schema, setup
from langgraph_checkpoint_custom.options import SaverOptions, SqliteOptions, Synchronous, check_options
from langgraph_checkpoint_custom.saver import CheckpointSaver
from langgraph_checkpoint_custom.sql.sqlite import SqliteDialect

if TYPE_CHECKING:
    from langgraph_checkpoint_custom.drivers.sqlite_callers import Given


class SqliteSaver(CheckpointSaver):
    """Checkpoints in a SQLite file; the tables are made on first use.

    Args:
        conn: The path of the file, or ":memory:" for a store that ends with the saver. Or a connection of `sqlite3` or
            `aiosqlite`, which stays yours: of a file its path is taken, and what is in memory is on that connection.
        busy_timeout: Seconds to wait while another process writes.
        synchronous: "FULL" survives a power cut with every acknowledged step; "NORMAL" is faster and may lose the last
            ones then, but never breaks the file.
        serde: How values become bytes.
        options: Those of every saver; see `CheckpointSaver`.

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
        serde: SerializerProtocol | None = None,
        **options: Unpack[SaverOptions],
    ) -> None:
        own = {"busy_timeout": busy_timeout, "synchronous": synchronous, "serde": serde}
        check_options("SqliteSaver", {**own, **options})
        given = None
        if is_connection(conn):
            given = CallersConnection(conn)
            path = given.path or ":memory:"
        elif isinstance(conn, (str, os.PathLike)):
            path = os.fsdecode(conn)
            if scheme := re.match(r"[\w+.-]+(?=://)", path):  # The rest is not shown: a password may be in it.
                raise ConfigError(f"SqliteSaver takes the path of a file, not a URL ({scheme[0]}://); open_saver does")
        else:
            raise ConfigError(
                "SqliteSaver takes the path of a file, or a connection of sqlite3 or aiosqlite, not a "
                f"{type(conn).__name__}"
            )
        dialect = SqliteDialect(path)
        driver = SqliteDriver(
            path,
            check=check_schema(dialect),
            setup=setup(dialect),
            busy_timeout=busy_timeout,
            synchronous=synchronous,
            given=given,
        )
        super().__init__(dialect, driver, serde=serde, **options)
        self._given = given and conn

    @classmethod
    def from_conn_string(cls, conn_string: str, **options: Unpack[SqliteOptions]) -> Self:
        """A saver for a path or ":memory:"; takes the options of the class and opens nothing yet."""
        return cls(conn_string, **options)


class AsyncSqliteSaver(SqliteSaver):
    """`SqliteSaver` with LangGraph's other name for it: `setup()` is to be awaited. Sync methods work, too."""

    setup = SqliteSaver.asetup  # type: ignore[assignment]
