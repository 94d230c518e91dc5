"""`SqliteSaver`: the embedded default, over the standard library."""

from __future__ import annotations

import os
from typing import Any

from typing_extensions import Unpack

from langgraph_checkpoint_custom.core.migrate import check_schema, setup
from langgraph_checkpoint_custom.dialects.sqlite import SqliteDialect
from langgraph_checkpoint_custom.drivers.sqlite import SqliteDriver
from langgraph_checkpoint_custom.saver import CheckpointSaver, SaverOptions


class SqliteSaver(CheckpointSaver):
    """Checkpoints in a SQLite file; the tables are made on first use.

    Args:
        path: The file, or ":memory:" for a store that ends with the saver.
        busy_timeout: Seconds to wait while another process writes.
        synchronous: "FULL" survives a power cut with every acknowledged step; "NORMAL" is faster and may lose the last
            ones then, but never breaks the file.
        options: Those of every saver; see `CheckpointSaver`.

    Example:
        ```python
        with SqliteSaver.from_conn_string("checkpoints.db") as saver:
            graph = builder.compile(checkpointer=saver)
        ```
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        busy_timeout: float = 30.0,
        synchronous: str = "FULL",
        **options: Unpack[SaverOptions],
    ) -> None:
        file = os.fspath(path)
        dialect = SqliteDialect(file)
        driver = SqliteDriver(
            file,
            check=check_schema(dialect),
            setup=setup(dialect),
            busy_timeout=busy_timeout,
            synchronous=synchronous,
        )
        super().__init__(dialect, driver, **options)

    @classmethod
    def from_conn_string(cls, conn_string: str, **options: Any) -> SqliteSaver:
        """A saver for a path or ":memory:"; takes the options of the class and opens nothing yet."""
        return cls(conn_string, **options)
