"""What an operation asks of a database's SQL; `dialects/` answers it for each.

Must not know: connections, results other than rows of `TupleRow`'s shape.

Each method makes one trip. Where the text is the same for both databases but for the way a list is written, it is made
by `SqlDialect` from the blocks of a `.sql` file.
"""

from __future__ import annotations

import json
import re
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from copy import copy
from functools import cache
from importlib.resources import files
from types import MappingProxyType
from typing import Any, ClassVar

from typing_extensions import Self

from langgraph_checkpoint_custom.core.codec import Encoded
from langgraph_checkpoint_custom.core.filter import canonical
from langgraph_checkpoint_custom.core.model import (
    ABOVE_KINDS,
    ABOVE_THREADS,
    AFTER_ALL,
    KIND_MARK,
    TENANT_MARK,
    Key,
    Page,
    TupleRow,
    WriteRow,
)
from langgraph_checkpoint_custom.core.operation import Row, Statement, Trip
from langgraph_checkpoint_custom.core.records import ThreadPage
from langgraph_checkpoint_custom.core.searchable import about, index_of
from langgraph_checkpoint_custom.migrations import Migration

_NAME = re.compile(r"^-- name: (\w+)$", re.MULTILINE)

# Parameters that are thread ids.
_THREADS = frozenset({"thread_id", "thread_below", "source", "target"})

# The sweep_ blocks in two parts: what is needed is spared, and the rest goes.
_SPARE = "sweep_lock_blobs", "sweep_labels", "sweep_spare_needed"
_REMOVE = "sweep_writes", "sweep_parents", "sweep_parts", "sweep_blobs", "sweep_checkpoints"

# The reads that are made of several blocks, one behind the other.
_READS = {
    "select_delta_history": ("delta_runs", "delta_lineage"),
    "select_delta_values": ("delta_runs", "delta_values"),
    "threads_matching": ("thread_heads", "heads_page"),
    "threads_counted": ("thread_heads", "heads_count"),
    "threads_recent": ("recent_candidates", "candidate_heads", "recent_page"),
    "threads_searched": ("searched_candidates", "candidate_heads", "heads_page"),
    "threads_searched_counted": ("searched_candidates", "candidate_heads", "heads_count"),
    **{f"records_of_{kind}": (f"page_of_{kind}", "rows_record") for kind in ("namespace", "thread", "store")},
}


@cache
def load_blocks(name: str) -> Mapping[str, str]:
    """The named blocks of a file in `dialects/`, comments left out."""
    parts = _NAME.split(files("langgraph_checkpoint_custom.dialects").joinpath(name).read_text("utf-8"))
    blocks = {
        block: "\n".join(line for line in body.splitlines() if line.strip() and not line.lstrip().startswith("--"))
        for block, body in zip(parts[1::2], parts[2::2], strict=True)
    }
    return MappingProxyType(blocks)


class SqlDialect(ABC):
    """The statements of one database.

    Args:
        blocks: The text of each statement, by name.
        migrations: What makes the tables, in order.
        place: Where the tables are, for messages.
        schema: The schema they are in.
    """

    system: ClassVar[str]
    """The database, by OpenTelemetry's name for it."""
    compresses: ClassVar[bool]
    """Whether it takes less time to compress large values than to store and read them as they are."""
    _percent: ClassVar[str] = "%"
    """How a percent sign is written in a statement."""

    def __init__(self, blocks: Mapping[str, str], migrations: Sequence[Migration], *, place: str, schema: str) -> None:
        self._blocks = blocks
        self.migrations = migrations
        self.place = place
        self._schema = schema
        self._tenant = ""
        self._around: tuple[Statement, Statement] | None = None
        self._reads = {name: self._read_of(name) for name in blocks if name.startswith("page_")}
        self._reads |= {name: "\n".join(blocks[part] for part in parts) for name, parts in _READS.items()}

    # What threads and lists are called

    def for_tenant(self, tenant: str) -> Self:
        """The same statements, confined to a tenant's rows."""
        clone = copy(self)
        clone._tenant = tenant
        return clone

    def stored_thread(self, thread_id: str) -> str:
        """A thread id as the tables have it: a tenant's begins with its name."""
        return f"{TENANT_MARK}{self._tenant}{TENANT_MARK}{thread_id}" if self._tenant else thread_id

    def shown_thread(self, stored: str) -> str:
        """A thread id as the caller knows it."""
        return stored.removeprefix(self.stored_thread(""))

    def rows(self, reply: Sequence[Row]) -> list[TupleRow]:
        """The rows of a reply, with the thread ids that the caller knows."""
        rows = map(TupleRow._make, reply)
        if not self._tenant:
            return list(rows)
        return [row._replace(thread_id=row.thread_id and self.shown_thread(row.thread_id)) for row in rows]

    @staticmethod
    @abstractmethod
    def array(values: Sequence[Any]) -> Any:
        """A list of texts as a parameter."""

    @staticmethod
    @abstractmethod
    def names(value: Any) -> list[str]:
        """A list of texts as it comes back in a row."""

    # Storing

    @abstractmethod
    def insert_checkpoint(self, encoded: Encoded) -> Trip | None:
        """Store a new checkpoint whose parent has what it needs, and its blobs; the last statement's row says so.

        None if `put_checkpoint` would not take longer.
        """

    @abstractmethod
    def put_checkpoint(self, encoded: Encoded, *, only_newest: bool, even_if_hidden: bool) -> Trip:
        """Store a checkpoint and its blobs, unless something it needs is gone; with `store_checked` if there is such.

        The last statement's rows say what is in the way: ("value", channel) for a kept blob, ("parent", None) if
        the parent is needed and gone, ("hidden parent", None) if it is hidden, which `even_if_hidden` accepts,
        ("claim", None) if the claim that it comes with is lost, and with `only_newest` ("newer", checkpoint_id) if the
        parent is not the newest. If there are any, nothing was stored.
        """

    @abstractmethod
    def store_checked(self, encoded: Encoded) -> Trip | None:
        """What is left to do after a `put_checkpoint` that found nothing in the way; None if that has stored it."""

    @abstractmethod
    def insert_writes(self, key: Key, rows: Sequence[WriteRow], claim: str | None) -> Trip:
        """Store writes: a regular one keeps the first value for its place, a special one (`idx` < 0) the last.

        With a claim, the last statement has a row if that is lost, and nothing was stored.
        """

    # Tables

    def schema_lock(self) -> Trip:
        """Wait until no other process migrates, and make others wait until the transaction ends."""
        return self._send(self.statement("schema_lock", schema=self._schema))

    def schema_state(self) -> Trip:
        """One row: is the schema there, is the table of migrations, and a table that has a name of ours."""
        return self._send(self.statement("schema_state", schema=self._schema))

    def schema_numbers(self) -> Trip:
        """The numbers of the migrations that were applied, a row each."""
        return self._send(self.statement("schema_numbers"))

    def schema_partitions(self) -> Trip:
        """One row: the number of partitions of `checkpoints`."""
        return self._send(self.statement("schema_partitions", schema=self._schema))

    def schema_create(self, *, whole: bool) -> Trip:
        """Make the table of migrations, and the schema for it if that is missing (`whole`)."""
        names = ("schema_create", "schema_create_table") if whole else ("schema_create_table",)
        return self._send(*map(self.statement, names))

    def schema_apply(self, migration: Migration) -> Trip:
        """Apply a migration and note that it was."""
        return self._send(
            *(Statement(migration.name, sql, {}) for sql in migration.statements),
            self.statement("schema_applied", number=migration.number, name=migration.name),
        )

    @abstractmethod
    def shipped(self) -> Sequence[str]:
        """What all migrations together make, in the words of `catalog_lines`."""

    def catalog_lines(self) -> Trip:
        """A row with a line for each thing that is there."""
        return self._send(self.statement("catalog_lines", schema=self._schema))

    def catalog_privileges(self) -> Trip | None:
        """What this role may do, a row for each table and privilege; None where there is no such thing."""
        if "catalog_privileges" not in self._blocks:
            return None
        return self._send(self.statement("catalog_privileges", schema=self._schema))

    # Looking around

    def sizes_of_threads(self, thread_ids: Sequence[str]) -> Trip:
        """A row for each thread: its id, visible and hidden checkpoints, writes, blobs, bytes."""
        return self._send(
            self.statement("sizes_of_threads", thread_ids=self.array(list(map(self.stored_thread, thread_ids))))
        )

    def sizes_of_thread(self, thread_id: str, limit: int) -> Trip:
        """The largest namespaces of a thread, and its largest channels."""
        return self._send(
            self.statement("sizes_of_namespaces", thread_id=thread_id, limit=limit),
            self.statement("sizes_of_channels", thread_id=thread_id, limit=limit),
        )

    def sizes_of_store(self, limit: int) -> Trip:
        """The tables, the largest threads, the largest channels."""
        return self._send(
            self.statement("sizes_of_tables"),
            self.statement("sizes_of_largest", limit=limit),
            self.statement("sizes_of_all_channels", limit=limit),
        )

    def doctor_page(self, table: str, after: Mapping[str, Any], limit: int) -> Trip:
        """What is wrong in a page of a table behind a key, see `doctor`."""
        return self._send(self.statement(f"doctor_{table}", **after, limit=limit))

    def doctor_bloat(self) -> Trip:
        """A row for each thing that has room in it: its name, what is used, what is not."""
        return self._send(self.statement("doctor_bloat", schema=self._schema))

    def mend(self, keys: str, labels: str) -> Trip:
        """Delete blobs and labels that are nobody's, of these; the last three statements' rows are those that went."""
        return self._trip("mend", keys=keys, labels=labels)

    # Reading

    def select_newest_id(self, key: Key) -> Trip:
        """The id of the newest checkpoint of a namespace."""
        return self._send(self.statement("select_newest_id", thread_id=key.thread_id, checkpoint_ns=key.checkpoint_ns))

    def select_checkpoint(self, key: Key) -> Trip:
        """The rows of one checkpoint: `TupleRow`."""
        if key.checkpoint_id is None:
            params: dict[str, Any] = {"thread_id": key.thread_id, "checkpoint_ns": key.checkpoint_ns}
            return self._send(self._read("page_latest", params))
        params = key._asdict()
        return self._send(self._read("page_exact", params))

    def select_page(self, page: Page) -> Trip:
        """The rows of one page of a list: `TupleRow`."""
        return self._page("page", page)

    def select_records(self, page: Page) -> Trip:
        """The rows of one page of a list: what a `CheckpointRecord` is made of."""
        return self._page("records", page)

    def _page(self, what: str, page: Page) -> Trip:
        params = page._asdict()
        params["filter"] = json.dumps(page.filter)
        if page.thread_id is None:
            kind = "store"
            params |= {"kinds": self.stored_thread(KIND_MARK), "above_kinds": self.stored_thread(ABOVE_KINDS)}
        elif page.checkpoint_ns is None:
            kind = "thread"
        else:
            kind = "namespace"
        return self._send(self._read(f"{what}_of_{kind}", params))

    # Moving

    def select_places(self, thread_id: str) -> Trip:
        """A row for each checkpoint of a thread: its namespace, its id, the number of its writes."""
        return self._send(self.statement("select_places", thread_id=thread_id))

    def select_next_thread(self, after: str) -> Trip:
        """The stored id of the first thread behind one; of more than one row, the first is meant."""
        # Threads without a tenant are on both sides of those with one.
        behind = chr(ord(TENANT_MARK) + 1)
        end = f"{TENANT_MARK}{self._tenant}{behind}"
        ranges = [("", end)] if self._tenant else [("", TENANT_MARK), (behind, AFTER_ALL)]
        bottom = self.stored_thread(after)
        return self._send(
            *(
                self.statement("select_next_thread", after=bottom, bottom=low, top=high)
                for low, high in ranges
                if bottom < high
            )
        )

    def export_rows(self, kind: str, thread_id: str, after: Mapping[str, Any], limit: int) -> Trip:
        """A page of the rows of a thread behind a key: the columns of the key, and then the others, see `exchange`."""
        return self._send(self.statement(f"export_{kind}s", **after, thread_id=thread_id, limit=limit))

    def import_rows(self, thread_id: str, rows: Sequence[tuple[str, Mapping[str, Any]]]) -> Trip:
        """Store rows of a thread by their kinds, unless there are such with the same keys."""
        return self._send(
            *self._group("import_lock", thread_id=thread_id),
            *(self.statement(f"import_{kind}s", **row, thread_id=thread_id) for kind, row in rows),
        )

    # Delta histories

    def select_delta_history(self, key: Key, channels: Sequence[str]) -> Trip:
        """The ancestors of a checkpoint as far as the channels need them: `TupleRow`, see `history.lineage`."""
        return self._send(self._delta("select_delta_history", key, channels))

    def select_delta_values(self, key: Key, channels: Sequence[str]) -> Trip:
        """The same with their writes and values: `HistoryRow`."""
        return self._send(self._delta("select_delta_values", key, channels))

    def _delta(self, name: str, key: Key, channels: Sequence[str]) -> Statement:
        return self._read(name, key._asdict() | {"asked": self.array(channels)})

    # Deleting and copying

    def lock_threads(self, thread_ids: Sequence[str]) -> Trip | None:
        """Let nobody else store or delete in these threads until the transaction ends; None if nobody can anyway."""
        locks = self._locks(thread_ids)
        return self._send(*locks) if locks else None

    def _locks(self, thread_ids: Sequence[str]) -> list[Statement]:
        # In one order, so that no two wait for one another.
        stored = sorted({self.stored_thread(thread_id) for thread_id in thread_ids})
        return self._group("lock_threads", thread_ids=self.array(stored))

    def delete_thread(self, thread_id: str) -> Trip:
        """Delete every row of a thread."""
        return self._trip("delete_thread", thread_id=thread_id)

    def delete_superseded(self, thread_id: str, keep: int) -> Trip:
        """Delete what is older than the newest checkpoints of each namespace, or hide it where those still need it."""
        return self._trip("doom_superseded", "sweep", thread_id=thread_id, keep=keep)

    @abstractmethod
    def erase_superseded(self, thread_id: str) -> Trip:
        """Delete all but the newest checkpoint of each namespace, if nothing else is needed.

        The last statement's row says that it is so. It takes a third of the time of `delete_superseded`.
        """

    def delete_idle(self, thread_id: str, newest: str) -> Trip:
        """Delete a thread, unless it has a label or a newer checkpoint than the one that was seen."""
        return self._trip("doom_idle", "sweep", thread_id=thread_id, newest=newest)

    def select_kept_places(self, thread_id: str) -> Trip:
        """A row for each checkpoint of a thread that is not hidden: its namespace, its id, whether it has a label."""
        return self._send(self.statement("select_kept_places", thread_id=thread_id))

    def select_document(self, key: Key) -> Trip:
        """The document of a checkpoint, without the values beside it."""
        return self._send(self.statement("select_document", **key._asdict()))

    def delete_runs(self, run_ids: Sequence[str]) -> Trip:
        """Delete the checkpoints and writes of runs, or hide the ones that a descendant still needs."""
        return self._trip("doom_runs", "sweep", "erase_run_writes", run_ids=self.array(run_ids), thread_id=None)

    def copy_thread(self, source: str, target: str) -> Trip:
        """Copy a thread, unless the target has checkpoints of its own; the first statement's rows are those."""
        return self._trip(
            "copy",
            source=source,
            target=target,
            source_json=canonical(source),
            target_json=canonical(target),
        )

    # Claims

    def take_claim(self, thread_id: str, token: str, owner: str, ttl_seconds: float) -> Trip:
        """Claim a thread if it is free; the last statement's row is the token, owner and end of whoever has it."""
        return self._trip("claim", thread_id=thread_id, claim=token, owner=owner, ttl_seconds=ttl_seconds)

    def renew_claim(self, thread_id: str, token: str, ttl_seconds: float) -> Trip:
        """Put off the end of a claim; no row if it is lost."""
        return self._trip("renew_claim", thread_id=thread_id, claim=token, ttl_seconds=ttl_seconds)

    def release_claim(self, thread_id: str, token: str) -> Trip:
        """End a claim; no row if it was lost."""
        return self._trip("release_claim", thread_id=thread_id, claim=token)

    # Storing anew

    def stored_rows(self, table: str, after: Mapping[str, Any], limit: int) -> Trip:
        """A page of the rows of a table, with their keys first, behind a key."""
        return self._send(self.statement(f"stored_{table}s", **after, limit=limit))

    def renew_rows(self, table: str, changes: Sequence[Mapping[str, Any]]) -> Trip:
        """Replace the values of rows, each unless it has changed."""
        return self._send(*(self.statement(f"renew_stored_{table}", **change) for change in changes))

    # Threads and runs

    def select_threads(self, page: ThreadPage) -> Trip:
        """The rows of one page of threads: what the records of their newest checkpoints are made of."""
        params = page._asdict() | {"filter": json.dumps(page.filter)}
        return self._send(self._read("threads_matching", params | self._ranges(page.prefix)))

    def select_newest_threads(self, page: ThreadPage, reach: int) -> Trip:
        """As `select_threads` without a filter, of the threads that so many newest checkpoints are of."""
        return self._send(self.statement("threads_newest", **page._asdict(), reach=reach))

    def select_recent_threads(self, page: ThreadPage, reach: int) -> Trip:
        """As `select_threads`, of the threads that so many newest checkpoints are of; and `select_searchable`.

        After the rows comes one without a thread if there are as many checkpoints.
        """
        params = page._asdict() | {"filter": json.dumps(page.filter), "reach": reach}
        return self._send(self._read("threads_recent", params), self._searchable_there(page.filter))

    def select_searched_threads(self, page: ThreadPage, key: str) -> Trip:
        """As `select_threads`, of the threads that an index finds by a key of the filter."""
        return self._send(self._searched("threads_searched", key, page._asdict()))

    def count_threads(self, prefix: str, filter: Mapping[str, str]) -> Trip:
        """A row with the number of threads that match, and a row for each that the database cannot decide on."""
        return self._send(self._read("threads_counted", {"filter": json.dumps(filter)} | self._ranges(prefix)))

    def count_searched_threads(self, filter: Mapping[str, str], key: str) -> Trip:
        """As `count_threads`, of the threads that an index finds by a key of the filter."""
        return self._send(self._searched("threads_searched_counted", key, {"filter": filter}))

    def select_searchable(self, keys: Iterable[str]) -> Trip:
        """A row for each of the keys that has an index: its name, whether it is whole, whether this role can use it."""
        return self._send(self._searchable_there(keys))

    def _searchable_there(self, keys: Iterable[str]) -> Statement:
        return self.statement("searchable_there", schema=self._schema, names=self.array(list(map(index_of, keys))))

    def lock_searchable(self) -> Trip:
        """Wait until nobody makes an index."""
        return self._trip("searchable_lock")

    def drop_searchable(self, key: str) -> Trip:
        """Drop the index of a key."""
        return self._send(*(self._about(statement, key) for statement in self._group("searchable_drop")))

    def make_searchable(self, key: str) -> Trip:
        """Make the index of a key, unless it is there, and what has to be there to use it."""
        return self._send(*(self._about(statement, key) for statement in self._group("searchable_make")))

    def _about(self, statement: Statement, key: str) -> Statement:
        return statement._replace(sql=about(statement.sql, key, key.replace("%", self._percent)))

    def _searched(self, name: str, key: str, params: dict[str, Any]) -> Statement:
        filter = params["filter"]
        found = self._read(name, params | {"filter": json.dumps(filter), "shown": filter[key]})
        return self._about(found, key)

    def thread_exists(self, thread_id: str) -> Trip:
        """A row if there is a checkpoint."""
        return self._trip("thread_exists", thread_id=thread_id)

    def select_runs(self, thread_id: str) -> Trip:
        """A row for each run and its last checkpoint, and one for each value of that which has to be looked at."""
        return self._trip("select_runs", thread_id=thread_id)

    # Labels, going back, and forks

    def label_checkpoint(self, key: Key, name: str) -> Trip:
        """Label a checkpoint unless the name is taken; its id if so, and whose the name is otherwise."""
        return self._trip("label_checkpoint", **key._asdict(), name=name)

    def delete_label(self, thread_id: str, name: str) -> Trip:
        """Delete a label; no row if there is none."""
        return self._trip("delete_label", thread_id=thread_id, name=name)

    def select_labels(self, thread_id: str) -> Trip:
        """The labels of a thread."""
        return self._trip("select_labels", thread_id=thread_id)

    def delete_checkpoint(self, key: Key) -> Trip:
        """Delete or hide a checkpoint; the second statement's row says that it is there, the third's what refuses."""
        groups = "doom_checkpoint", "find_checkpoint", "refuse_labelled", *_SPARE, "erase_open_writes", *_REMOVE
        return self._trip(*groups, **key._asdict())

    def delete_later(self, key: Key) -> Trip:
        """Delete what is behind a checkpoint; the replies are as those of `delete_checkpoint`."""
        erase = "erase_later_writes", "erase_open_writes"
        groups = "doom_later", "find_checkpoint", "refuse_labelled", *_SPARE, *erase, *_REMOVE
        return self._trip(*groups, **key._asdict())

    def select_fork_point(self, source: str, target: str, checkpoint_id: str | None, run_id: str | None) -> Trip:
        """The metadata of the checkpoint to fork from, and of the target's newest one."""
        return self._trip("select_fork_point", source=source, target=target, checkpoint_id=checkpoint_id, run_id=run_id)

    def fork_thread(self, source: str, target: str, checkpoint_id: str, metadata: Mapping[str, Any]) -> Trip:
        """Copy a checkpoint, with other metadata, and what it needs; the first rows say what is in the way."""
        return self._trip(
            "fork_thread",
            *_SPARE,
            *_REMOVE,
            source=source,
            target=target,
            thread_id=target,
            checkpoint_id=checkpoint_id,
            source_json=canonical(source),
            target_json=canonical(target),
            **metadata,
        )

    # Questions to a human

    def select_interrupts(self, prefix: str) -> Trip:
        """The newest checkpoints with interrupts beside them, of threads whose ids begin so, and their writes."""
        return self._trip("select_interrupts", **self._ranges(prefix))

    def select_write_places(self, key: Key) -> Trip:
        """Of the writes beside a checkpoint what they are ordered by: path, task and index."""
        return self._trip("select_write_places", **key._asdict())

    # What trips are made of

    def statement(self, name: str, /, **params: Any) -> Statement:
        """The named statement with its parameters."""
        return Statement(name, self._blocks[name], self._confined(params))

    def _confined(self, params: dict[str, Any]) -> dict[str, Any]:
        """Parameters with the tenant, and with thread ids as the tables have them."""
        params["tenant"] = self._tenant
        if self._tenant:
            for name in _THREADS & params.keys():
                if params[name] is not None:
                    params[name] = self.stored_thread(params[name])
        return params

    def _send(self, *statements: Statement) -> Trip:
        return Trip(statements, self._around)

    def _ranges(self, prefix: str = "") -> dict[str, Any]:
        """The ranges of stored thread ids that begin so and are this tenant's, from `bottoms` up to below `tops`."""
        bottom = self.stored_thread(prefix)
        if bottom:
            return {"bottoms": self.array([bottom]), "tops": self.array([bottom + ABOVE_THREADS])}
        return {
            "bottoms": self.array(["", chr(ord(TENANT_MARK) + 1)]),
            "tops": self.array([TENANT_MARK, ABOVE_THREADS]),
        }

    def _trip(self, *groups: str, **params: Any) -> Trip:
        """Every statement whose name is a group's or starts with it and `_`, in the order of the file."""
        return self._send(*(statement for group in groups for statement in self._group(group, **params)))

    def _group(self, group: str, **params: Any) -> list[Statement]:
        return [
            self.statement(name, **params) for name in self._blocks if name == group or name.startswith(f"{group}_")
        ]

    def _read_of(self, name: str) -> str:
        """The text of a read: which checkpoints, and then what is read of them."""
        blobs = "blobs_of_page" if name.startswith("page_of_") else "blobs_of_one"
        rows = ("rows_checkpoint", "rows_blobs", "rows_parts", "rows_writes", "rows_sends")
        return f"{self._blocks[name]}{self._blocks[blobs]}\n" + "\nUNION ALL\n".join(self._blocks[row] for row in rows)

    def _read(self, name: str, params: dict[str, Any]) -> Statement:
        return Statement(name, self._reads[name], self._confined(params))


def first_page(
    thread_id: str | None,
    checkpoint_ns: str | None,
    exact: str | None,
    before: str | None,
    filter: Mapping[str, str],
    limit: int,
) -> Page:
    """The first page of a list, of checkpoint `exact` alone if that is given."""
    ceiling = before or AFTER_ALL
    if exact is not None:
        ceiling = min(ceiling, f"{exact}\x01")  # Right above `exact`, since no id contains NUL.
    return Page(thread_id, checkpoint_ns, exact or "", ceiling, "", "", filter, limit)
