"""The dialect of PostgreSQL: lists are arrays, and many rows are inserted as one array for each column.

Arrays are sent as text. A put with 14 arrays took 10 µs for them. With psycopg's dumpers, one for each element and one
for the list, it took 150 µs. Binary arrays of our own took nearly as long, because psycopg looks up the type of each.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from copy import copy
from functools import lru_cache
from types import MappingProxyType
from typing import Any, ClassVar
from uuid import uuid4
from weakref import ref

from typing_extensions import Self

from langgraph_checkpoint_custom.encoding.encode import Encoded
from langgraph_checkpoint_custom.engine.operation import Batchable, Combined, Later, RoundTrip, Row, Statement
from langgraph_checkpoint_custom.errors import ConfigError
from langgraph_checkpoint_custom.migrations import Migration, load_migrations, load_shipped
from langgraph_checkpoint_custom.model.keys import SURELY_FIT, CheckpointRow, Key, ManyBytes, WriteRow
from langgraph_checkpoint_custom.sql.dialect import SqlDialect
from langgraph_checkpoint_custom.sql.files import load_statements, with_rows

DEFAULT_SCHEMA = "langgraph_checkpoint"


# Writes of a task that are sent as rows of VALUES at most; more are sent as arrays. A node seldom has more.
FEW = 4
# What belongs to row-level security.
ROW_SECURITY = re.compile("ROW LEVEL SECURITY|policy |CREATE POLICY|tenant_roles|current_tenant")
# Tables with at least one row for each superstep.
_GROWING = ("checkpoints", "blobs", "writes")


def _partitioned(sql: str, partitions: int) -> list[str]:
    """Return the statements that create a table in partitions by thread, given the one that creates it without.

    A partition has row-level security and no policy. So a role that may read all tables sees the rows of a partition
    only through the partitioned table.
    """
    made = re.match(r"CREATE TABLE (.+?)\.(\w+) \(", sql)
    if made is None or made[2] not in _GROWING:
        return [sql]
    schema, table = made.groups()
    statements = [f"{sql} PARTITION BY HASH (thread_id)"]
    for number in range(partitions):
        part = f"{schema}.{table}_{number}"
        bounds = f"WITH (MODULUS {partitions}, REMAINDER {number})"
        statements += [
            f"CREATE TABLE {part} PARTITION OF {schema}.{table} FOR VALUES {bounds}",
            f"ALTER TABLE {part} ENABLE ROW LEVEL SECURITY",
        ]
    return statements


def in_schema(sql: str, schema: str) -> str:
    """Return SQL for tables in another schema, given SQL for the schema `langgraph_checkpoint`."""
    quoted = '"' + schema.replace('"', '""') + '"'
    return re.sub(rf"\b{DEFAULT_SCHEMA}\b", lambda _: quoted, sql)


@lru_cache(maxsize=16)  # Most processes use one schema. Reading all texts takes 5 ms.
def _texts_in(schema: str, layout: str | None) -> tuple[Mapping[str, str], Sequence[Migration]]:
    """Return the statements for a schema, and its migrations."""
    escaped = schema.replace("%", "%%")  # For psycopg, a single percent sign starts a parameter.
    texts = {name: in_schema(text, escaped) for name, text in load_statements("postgres", layout).items()}
    migrations = [
        migration._replace(statements=tuple(in_schema(sql, escaped) for sql in migration.statements))
        for migration in load_migrations("postgres")
    ]
    return MappingProxyType(texts), migrations


class _Family:
    """A dialect and its copies, such as those for tenants, which all have the same layout of the tables."""

    def __init__(self, layout: str | None) -> None:
        self.layout = layout
        self._members: dict[int, ref[PostgresDialect]] = {}

    def add(self, dialect: PostgresDialect) -> None:
        """Add a dialect for as long as it is in use."""
        number, members = id(dialect), self._members
        members[number] = ref(dialect, lambda gone: members.pop(number) if members.get(number) is gone else None)

    def members(self) -> list[PostgresDialect]:
        """Return all that are in use."""
        return [dialect for found in list(self._members.values()) if (dialect := found()) is not None]


class PostgresDialect(SqlDialect):
    """The statements of `postgres/`, in a schema."""

    system = "postgresql"
    compresses = True
    hashes = True
    filter_contains = True
    negative_limit = 0
    replaces = False
    sent_for: ClassVar[Mapping[str, Sequence[str]]] = MappingProxyType(
        {"searchable_make": ("searchable_make", "searchable_make_view")}
    )
    _percent = "%%"

    def __init__(self, schema: str) -> None:
        super().__init__(*_texts_in(schema, self.layout), location=f"schema {schema!r}", schema=schema)
        few = self._texts["insert_few_writes"]
        self._insert_few = {size: with_rows(few, size) for size in range(1, FEW + 1)}
        self._family = _Family(self.layout)
        self._family.add(self)

    def learn_layout(self, layout: str | None) -> None:
        """Make this and all copies a dialect for tables of this layout.

        A saver finds out when it checks the tables, before its first operation.
        """
        self._family.layout = layout
        for each in self._family.members():
            each._follow_family()

    def _follow_family(self) -> None:
        if self.layout != self._family.layout:
            self._become(self._family.layout)

    def _become(self, layout: str | None) -> None:
        from langgraph_checkpoint_custom.sql.citus_dialect import CitusDialect  # It imports this module.

        self._texts, _ = _texts_in(self._schema, layout)
        self.__class__ = PostgresDialect if layout is None else CitusDialect
        self._enter, self._leave = self._around()

    def laid_out(self, partitions: int | None, distribute: str | None = None) -> PostgresDialect:
        """Return the same dialect, which creates new tables in partitions, or distributed ones."""
        if partitions is None and distribute is None:
            return self
        if partitions is not None and not 1 <= partitions <= 1024:
            raise ConfigError(f"partitions must be from 1 to 1,024, not {partitions!r}")
        first, *later = self.migrations
        statements = first.statements
        if partitions is not None:
            statements = tuple(made for sql in statements for made in _partitioned(sql, partitions))
        if distribute is not None:
            statements = tuple(sql for sql in statements if not ROW_SECURITY.search(sql))
        clone = copy(self)
        clone.migrations = [first._replace(statements=statements), *later]
        if distribute is not None:
            clone._become(distribute)
        self._family.add(clone)
        return clone

    def for_tenant(self, tenant: str) -> Self:
        """Return the same statements for a tenant's rows only: by their keys, and by row-level security as well."""
        clone = super().for_tenant(tenant)
        clone._enter, clone._leave = clone._around()
        self._family.add(clone)
        clone._follow_family()  # Another OS thread may have changed the layout while this was copied.
        return clone

    def _around(self) -> tuple[Sequence[Statement], Sequence[Statement]]:
        """Return what is sent before and after the statements of each round trip, for row-level security."""
        if not self.tenant:
            return (), ()
        return [self.statement("enter_tenant")], [self.statement("leave_tenant")]

    def shipped(self) -> Sequence[str]:
        """The lines of `shipped.txt`."""
        return load_shipped("postgres")

    @staticmethod
    def array(values: Sequence[str]) -> str:
        """A list of texts as the text of an array."""
        return _texts(values)

    @staticmethod
    def names(value: Any) -> list[str]:
        """A list of texts from an array, which psycopg has made a list already."""
        return value or []

    def schema_state(self) -> RoundTrip:
        """Read the state of the schema; concurrent calls are one batch."""
        return _same_reply(super().schema_state())

    def schema_numbers(self) -> RoundTrip:
        """Read the numbers of the applied migrations; concurrent calls are one batch."""
        return _same_reply(super().schema_numbers())

    def insert_checkpoint(self, encoded: Encoded) -> RoundTrip:
        """Store a checkpoint that is one row, in one statement; it can be part of a batch if it needs no parent."""
        row = encoded.row
        if encoded.replayed:
            statement = self._later("insert_checkpoint_on_parent", lambda: columns(row))
            return self._send(statement, locks=self._share(row.thread_id))
        statement = self._later("insert_checkpoint", lambda: columns(row))
        batchable = Batchable(
            ("insert_checkpoints", self.tenant),
            row[:3],
            len(row.checkpoint) + len(row.metadata),
            row,
            self._insert_checkpoints,
        )
        return self._send(statement, batchable=batchable)

    def _insert_checkpoints(self, batch: Sequence[CheckpointRow]) -> Combined:
        # All batches insert in the same order, to avoid deadlocks.
        rows = sorted(batch, key=lambda row: row[:3])
        statement = self.statement(
            "insert_checkpoints",
            **self._keys([Key(*row[:3]) for row in rows]),
            parent_ids=_texts([row.parent_id for row in rows]),
            root_ids=_texts([row.root_id for row in rows]),
            run_ids=_texts([row.run_id for row in rows]),
            formats=_numbers([row.format for row in rows]),
            inline_channels=_texts([_texts(row.inline_channels) for row in rows]),
            delta_channels=_texts([_texts(row.delta_channels) for row in rows]),
            checkpoint_types=_texts([row.checkpoint_type for row in rows]),
            checkpoints=ManyBytes(row.checkpoint for row in rows),
            metadata_types=_texts([row.metadata_type for row in rows]),
            metadata=ManyBytes(row.metadata for row in rows),
            metadata_filters=_texts([row.metadata_filter for row in rows]),
        )

        def split(reply: Sequence[Any]) -> Sequence[Any]:
            stored = {tuple(row) for row in reply[0]}
            return [[[(True,)] if (self.stored_thread(row.thread_id), *row[1:3]) in stored else []] for row in batch]

        return Combined(self._send(statement, locks=[self.statement("limit_waiting")]), split)

    def put_checkpoint(self, encoded: Encoded, *, only_newest: bool, even_if_hidden: bool) -> RoundTrip:
        """Store a checkpoint and its blobs in one statement, after taking the thread's lock."""
        thread_id = encoded.row.thread_id
        params = {
            **columns(encoded.row),
            **_blobs(encoded),
            "needs_parent": bool(encoded.replayed),
            "needs_whole_parent": bool(encoded.replayed) and not even_if_hidden,
            "only_newest": only_newest,
            "claim": encoded.claim,
        }
        # With `only_newest`, the second of two concurrent puts has to see the first, so each holds the lock alone.
        locks = self._lock(thread_id) if only_newest else self._share(thread_id)
        return self._send(self.statement("put_checkpoint", **params), locks=locks)

    def store_checked(self, encoded: Encoded, optional: Collection[str]) -> None:
        """Return None: `put_checkpoint` checks and stores in one statement."""

    def insert_writes(self, key: Key, rows: Sequence[WriteRow], claim: str | None) -> RoundTrip:
        """Store the writes of a task in one statement; without a claim, it can be part of a batch."""
        few = self._insert_few.get(len(rows)) if claim is None else None
        if few:
            statement = Statement("insert_few_writes", few, Later(lambda: self._confined(_few_writes(key, rows))))
        else:
            statement = self._later("insert_writes", lambda: _with_writes(key, rows, claim))
        if claim is not None:
            lost = self.statement("select_lost_claim", thread_id=key.thread_id, claim=claim)
            return self._send(statement, lost, locks=self._share(key.thread_id))
        batchable = Batchable(
            ("insert_writes", self.tenant),
            (*key, rows[0].task_id),
            sum(len(row.value) for row in rows),
            (key, rows),
            self._insert_writes_of_many,
        )
        return self._send(statement, batchable=batchable)

    def try_blobs(self, key: Key, rows: Sequence[WriteRow]) -> RoundTrip | None:
        """Insert blobs with the keys of the channels' values and delete them again; None if all keys are short.

        The server compresses names of more than about 500 bytes, so only an insert shows what fits into the index.
        """
        location = self.stored_thread(key.thread_id) + key.checkpoint_ns
        if (
            4 * (len(location) + max([len(row.channel) for row in rows])) <= SURELY_FIT
        ):  # A character has up to 4 bytes.
            return None
        # LangGraph writes None to start a node. It is part of the document, so its key is not needed.
        channels = {row.channel for row in rows if not row.type.startswith("null")}
        long = [channel for channel in channels if len((location + channel).encode()) > SURELY_FIT]
        if not long:
            return None
        # As long as a version of LangGraph's; no other row has it.
        where = {"thread_id": key.thread_id, "checkpoint_ns": key.checkpoint_ns, "version": f"#?{uuid4().hex:0>47}"}
        blob = {"type": "", "value": b"", "chunks": None}
        tried = [self.statement("import_blobs", **where, **blob, channel=channel) for channel in long]
        return self._send(*tried, self.statement("delete_tried_blobs", **where, channels=_texts(long)))

    def _insert_writes_of_many(self, batch: Sequence[tuple[Key, Sequence[WriteRow]]]) -> Combined:
        # All batches insert in the same order, to avoid deadlocks.
        flat = [
            (key, row) for key, rows in sorted(batch, key=lambda call: (call[0], call[1][0].task_id)) for row in rows
        ]
        statement = self.statement(
            "insert_writes_of_many",
            **self._keys([key for key, _ in flat]),
            task_ids=_texts([row.task_id for _, row in flat]),
            idxs=_numbers([row.idx for _, row in flat]),
            task_paths=_texts([row.task_path for _, row in flat]),
            run_ids=_texts([row.run_id for _, row in flat]),
            channels=_texts([row.channel for _, row in flat]),
            types=_texts([row.type for _, row in flat]),
            values=ManyBytes(row.value for _, row in flat),
        )
        # A write that replaces a row waits if that is being deleted. The limit ends the wait for the other calls.
        limit = [self.statement("limit_waiting")]
        return Combined(self._send(statement, locks=limit), lambda _: [[[]]] * len(batch))

    def select_checkpoint(self, key: Key) -> RoundTrip:
        """Read the rows of a checkpoint in one statement that can be part of a batch."""
        statement = self._read_one(key)
        batchable = Batchable((statement.name, self.tenant), None, 0, key, self._select_checkpoints)
        return self._send(statement, batchable=batchable)

    def _select_checkpoints(self, keys: Sequence[Key]) -> Combined:
        name = "page_of_latest" if keys[0].checkpoint_id is None else "page_of_exact"

        def split(reply: Sequence[Any]) -> Sequence[Any]:
            found: defaultdict[tuple[str, str], list[Row]] = defaultdict(list)
            for row in reply[0]:
                found[row[1], row[2]].append(row)
            return [
                # The row of a blob has no checkpoint id, because several checkpoints may share the blob.
                [[row for row in found[self.stored_thread(thread), ns] if exact is None or row[3] in (exact, None)]]
                for thread, ns, exact in keys
            ]

        return Combined(self._send(self.statement(name, **self._keys(list(dict.fromkeys(keys))))), split)

    def _later(self, name: str, params: Callable[[], dict[str, Any]]) -> Statement:
        return Statement(name, self._texts[name], Later(lambda: self._confined(params())))

    def _keys(self, keys: Sequence[Key]) -> dict[str, Any]:
        """The parameters for many keys, one array for each column."""
        return {
            "thread_ids": _texts([self.stored_thread(key.thread_id) for key in keys]),
            "namespaces": _texts([key.checkpoint_ns for key in keys]),
            "checkpoint_ids": _texts([key.checkpoint_id for key in keys]),
        }


def _same_reply(round_trip: RoundTrip) -> RoundTrip:
    """Return a read that can be part of a batch in which all calls get the same reply."""

    def merge(batch: Sequence[None]) -> Combined:
        return Combined(round_trip, lambda reply: [reply] * len(batch))

    return round_trip._replace(batchable=Batchable(round_trip.statements[0].name, None, 0, None, merge))


def _few_writes(key: Key, rows: Sequence[WriteRow]) -> dict[str, Any]:
    """The parameters for a few writes of a task, one by one."""
    first = rows[0]
    params = key._asdict() | {"task_id": first.task_id, "task_path": first.task_path, "run_id": first.run_id}
    for number, row in enumerate(rows):
        params[f"idx{number}"] = row.idx
        params[f"channel{number}"] = row.channel
        params[f"type{number}"] = row.type
        params[f"value{number}"] = row.value
    return params


def _with_writes(key: Key, rows: Sequence[WriteRow], claim: str | None) -> dict[str, Any]:
    """The parameters for the writes of a task, as arrays."""
    return key._asdict() | {
        "task_id": rows[0].task_id,
        "task_path": rows[0].task_path,
        "run_id": rows[0].run_id,
        "idxs": _numbers([row.idx for row in rows]),
        "channels": _texts([row.channel for row in rows]),
        "types": _texts([row.type for row in rows]),
        "values": ManyBytes(row.value for row in rows),
        "claim": claim,
    }


def _texts(texts: Sequence[Any]) -> str:
    """Return an array of texts as text; None becomes NULL."""
    if not texts:
        return "{}"
    if None in texts:
        return "{" + ",".join("NULL" if text is None else _texts([text])[1:-1] for text in texts) + "}"
    inner = '","'.join(texts)
    if "\\" in inner or inner.count('"') > 2 * len(texts) - 2:
        inner = '","'.join([text.replace("\\", r"\\").replace('"', r"\"") for text in texts])
    return f'{{"{inner}"}}'


def _numbers(numbers: Sequence[int]) -> str:
    """Return an array of numbers as text."""
    return "{" + ",".join(map(str, numbers)) + "}"


def columns(row: CheckpointRow) -> dict[str, Any]:
    """The parameters for the columns of a checkpoint."""
    return row._asdict() | {
        "inline_channels": _texts(row.inline_channels),
        "delta_channels": _texts(row.delta_channels),
        "blob_channels": _texts(row.blob_channels),
        "blob_versions": _texts(row.blob_versions),
    }


def _blobs(encoded: Encoded) -> dict[str, Any]:
    """The parameters for the blobs that a checkpoint refers to, and for its new blobs, as arrays."""
    return {
        "ref_channels": _texts([ref.channel for ref in encoded.references]),
        "ref_versions": _texts([ref.version for ref in encoded.references]),
        "ref_begins": _texts([ref.begins for ref in encoded.references]),
        "ref_required": _texts(["t" if ref.required else "f" for ref in encoded.references]),
        "channels": _texts([blob.channel for blob in encoded.blobs]),
        "versions": _texts([blob.version for blob in encoded.blobs]),
        "types": _texts([blob.type for blob in encoded.blobs]),
        "values": ManyBytes(blob.value for blob in encoded.blobs),
        "chunks": _texts([blob.chunks for blob in encoded.blobs]),
    }
