"""The blocks of a `.sql` file, and how round trips are made of them.

Must not know: connections, results other than rows of `TupleRow`'s shape.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from copy import copy
from functools import cache
from importlib.resources import files
from itertools import repeat
from types import MappingProxyType
from typing import Any, ClassVar

from typing_extensions import Self

from langgraph_checkpoint_custom.engine.operation import Batchable, RoundTrip, Row, Statement
from langgraph_checkpoint_custom.migrations import Migration
from langgraph_checkpoint_custom.model.keys import ABOVE_THREADS, TENANT_MARK, Range, TupleRow

_NAME = re.compile(r"^-- name: (\w+)$", re.MULTILINE)

# Parameters that are thread ids.
_THREADS = frozenset({"thread_id", "thread_below", "source", "target"})

# The reads that are made of several blocks, in this order.
_READS = {
    "select_delta_history": ("delta_runs", "delta_ancestors"),
    "select_delta_values": ("delta_runs", "delta_values"),
    "threads_matching": ("thread_heads", "heads_page"),
    "threads_counted": ("thread_heads", "heads_count"),
    "threads_recent": ("recent_candidates", "candidate_heads", "recent_page"),
    "threads_searched": ("searched_candidates", "candidate_heads", "heads_page"),
    "threads_searched_counted": ("searched_candidates", "candidate_heads", "heads_count"),
    **{f"records_of_{kind}": (f"page_of_{kind}", "rows_record") for kind in ("namespace", "thread", "store")},
}


# The files of each database, in order; those of one name have the same blocks, but for those that say why they differ.
FILES = (
    "schema", "transactions", "checkpoints", "history", "deletion", "copies", "threads", "claims", "maintenance",
    "export",
)  # fmt: skip


def read_files(database: str) -> Mapping[str, str]:
    """Return the text of each `.sql` file of a database, by name."""
    folder = files("langgraph_checkpoint_custom.sql").joinpath(database)
    found = {name: folder.joinpath(f"{name}.sql") for name in FILES}
    return {name: path.read_text("utf-8") for name, path in found.items() if path.is_file()}


@cache
def load_blocks(database: str) -> Mapping[str, str]:
    """Return the named blocks of a database's `.sql` files, without comments."""
    blocks = {}
    for text in read_files(database).values():
        parts = _NAME.split(text)
        for block, body in zip(parts[1::2], parts[2::2], strict=True):
            lines = [line for line in body.splitlines() if line.strip() and not line.lstrip().startswith("--")]
            blocks[block] = "\n".join(lines)
    return MappingProxyType(blocks)


class Statements(ABC):
    """The blocks of one database's `.sql` file, and the round trips that are made of them.

    Args:
        blocks: The text of each statement, by name.
        migrations: The migrations that create the tables, in order.
        location: Where the tables are, for messages.
        schema: The schema of the tables.
    """

    system: ClassVar[str]
    """OpenTelemetry's name of the database."""
    compresses: ClassVar[bool]
    """Whether compressing large values takes less time than storing and reading them as they are."""
    filter_contains: ClassVar[bool]
    """Whether a dict or list in a filter matches values that contain it, as in LangGraph's saver of the database."""
    negative_limit: ClassVar[int | None]
    """What a limit below zero means, as in LangGraph's saver of the database; None means all."""
    replaces: ClassVar[bool]
    """Whether `insert_checkpoint` replaces a checkpoint that exists, and checks whether a needed parent exists."""
    _percent: ClassVar[str] = "%"
    """A percent sign as it is written in a statement."""

    def __init__(
        self, blocks: Mapping[str, str], migrations: Sequence[Migration], *, location: str, schema: str
    ) -> None:
        self._blocks = blocks
        self.migrations = migrations
        self.location = location
        self._schema = schema
        self.tenant = ""
        self._enter: Sequence[Statement] = ()
        self._leave: Sequence[Statement] = ()
        self._reads = {name: self._read_of(name) for name in blocks if name.startswith("page_")}
        self._reads |= {name: "\n".join(blocks[part] for part in parts) for name, parts in _READS.items()}

    # Thread ids and lists

    def for_tenant(self, tenant: str) -> Self:
        """Return the same statements for a tenant's rows only."""
        clone = copy(self)
        clone.tenant = tenant
        return clone

    def stored_thread(self, thread_id: str) -> str:
        """Return a thread id as the tables have it: with a prefix for the tenant, if there is one."""
        return f"{TENANT_MARK}{self.tenant}{TENANT_MARK}{thread_id}" if self.tenant else thread_id

    def own_thread_id(self, stored: str) -> str:
        """Return a stored thread id as the caller knows it."""
        return stored.removeprefix(self.stored_thread(""))

    def rows(self, reply: Sequence[Row]) -> list[TupleRow]:
        """Return the rows of a reply, with thread ids as the caller knows them."""
        rows = map(tuple.__new__, repeat(TupleRow), reply)  # The same as `_make`, but in C.
        if not self.tenant:
            return list(rows)
        return [row._replace(thread_id=row.thread_id and self.own_thread_id(row.thread_id)) for row in rows]

    @staticmethod
    @abstractmethod
    def array(values: Sequence[Any]) -> Any:
        """A list of texts as a parameter."""

    @staticmethod
    @abstractmethod
    def names(value: Any) -> list[str]:
        """A list of texts from the column of a row."""

    # Statements and round trips

    def statement(self, name: str, /, **params: Any) -> Statement:
        """Return the named statement with its parameters."""
        return Statement(name, self._blocks[name], self._confined(params))

    def _confined(self, params: dict[str, Any]) -> dict[str, Any]:
        """Add the tenant to the parameters, and replace thread ids by those that the tables have."""
        params["tenant"] = self.tenant
        if self.tenant:
            for name in _THREADS & params.keys():
                if params[name] is not None:
                    params[name] = self.stored_thread(params[name])
        return params

    def _send(
        self, *statements: Statement, locks: Sequence[Statement] = (), batchable: Batchable | None = None
    ) -> RoundTrip:
        return RoundTrip(statements, (*self._enter, *locks) if locks else self._enter, self._leave, batchable)

    def _lock(self, thread_id: str) -> Sequence[Statement]:
        """Return what locks a thread alone until the transaction ends; see postgres/transactions.sql."""
        return self._locks("lock_thread", thread_id)

    def _share(self, thread_id: str) -> Sequence[Statement]:
        """Return what shares the lock of a thread until the transaction ends, so that no other one holds it alone."""
        return self._locks("share_thread", thread_id)

    def _locks(self, name: str, thread_id: str) -> Sequence[Statement]:
        return [self.statement(name, thread_id=thread_id, schema=self._schema)] if name in self._blocks else []

    def ranges(self, prefix: str = "") -> Sequence[Range]:
        """Return the ranges of the stored thread ids of this tenant that begin with `prefix`."""
        bottom = self.stored_thread(prefix)
        if bottom:
            return [Range(bottom, bottom + ABOVE_THREADS)]
        return [Range("", TENANT_MARK), Range(chr(ord(TENANT_MARK) + 1), ABOVE_THREADS)]

    def _within(self, ranges: Sequence[Range]) -> dict[str, Any]:
        return {
            "bottoms": self.array([each.bottom for each in ranges]),
            "tops": self.array([each.top for each in ranges]),
        }

    def _round_trip(self, *groups: str, locks: Sequence[Statement] = (), **params: Any) -> RoundTrip:
        """Send the statements of these groups: those named `group`, or `group_` and more, in the order of the file."""
        return self._send(*(statement for group in groups for statement in self._group(group, **params)), locks=locks)

    def _group(self, group: str, **params: Any) -> list[Statement]:
        return [
            self.statement(name, **params) for name in self._blocks if name == group or name.startswith(f"{group}_")
        ]

    def _read_of(self, name: str) -> str:
        """Return the text of a read: a `page_` block, which selects checkpoints, and what is read of these."""
        blobs = "blobs_of_page" if name.startswith("page_of_") else "blobs_of_one"
        rows = ("rows_checkpoint", "rows_blobs", "rows_chunks", "rows_writes", "rows_sends")
        return f"{self._blocks[name]}{self._blocks[blobs]}\n" + "\nUNION ALL\n".join(self._blocks[row] for row in rows)

    def _read(self, name: str, params: dict[str, Any]) -> Statement:
        return Statement(name, self._reads[name], self._confined(params))
