"""`SqliteSaver`: the embedded default, over the standard library."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

from langgraph.checkpoint.serde.base import SerializerProtocol

from langgraph_checkpoint_custom.core.migrate import check_schema, setup
from langgraph_checkpoint_custom.core.serde import Allowed, OnUnreadable
from langgraph_checkpoint_custom.core.starts import ConcurrentWriters
from langgraph_checkpoint_custom.dialects.sqlite import SqliteDialect
from langgraph_checkpoint_custom.drivers.sqlite import SqliteDriver
from langgraph_checkpoint_custom.saver import CheckpointSaver


class SqliteSaver(CheckpointSaver):
    """Checkpoints in a SQLite file; the tables are made on first use.

    Args:
        path: The file, or ":memory:" for a store that ends with the saver.
        serde: How values become bytes; LangGraph's `JsonPlusSerializer` by default.
        strict: Read only objects of types that are known to be safe, and of those in `allow`. Otherwise whoever can
            write to the database can have any constructor called with any arguments.
        allow: Further types, as classes or as pairs `("module", "Name")`; `with_allowlist` adds more.
        on_unreadable: "raise" if a stored object cannot be what it was, since its class has changed or is not allowed;
            "raw" gives what is left of it, a dict as a rule.
        concurrent_writers: "reject" lets one of two runs that are on a thread at the same time win: the next checkpoint
            of the other raises `CheckpointConflict`. A run that is told to begin at an older checkpoint still forks.
            With "allow", as with LangGraph's savers, both succeed and one result is not seen again.
        busy_timeout: Seconds to wait while another process writes.
        synchronous: "FULL" survives a power cut with every acknowledged step; "NORMAL" is faster and may lose the last
            ones then, but never breaks the file.

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
        serde: SerializerProtocol | None = None,
        strict: bool = False,
        allow: Sequence[Allowed] = (),
        on_unreadable: OnUnreadable = "raise",
        concurrent_writers: ConcurrentWriters = "allow",
        busy_timeout: float = 30.0,
        synchronous: str = "FULL",
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
        super().__init__(
            dialect,
            driver,
            serde=serde,
            strict=strict,
            allow=allow,
            on_unreadable=on_unreadable,
            concurrent_writers=concurrent_writers,
        )

    @classmethod
    def from_conn_string(cls, conn_string: str, **options: Any) -> SqliteSaver:
        """A saver for a path or ":memory:"; takes the options of the class and opens nothing yet."""
        return cls(conn_string, **options)
