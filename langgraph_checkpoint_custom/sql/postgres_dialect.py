"""The dialect of PostgreSQL: lists are arrays, and many rows are inserted as one array for each column.

Arrays are sent as text. A put with 14 arrays took 10 µs for them. With psycopg's dumpers, one for each element and one
for the list, it took 150 µs. Binary arrays of our own took nearly as long, because psycopg looks up the type of each.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from copy import copy
from functools import lru_cache, partial
from types import MappingProxyType
from typing import Any, ClassVar
from uuid import uuid4
from weakref import ref

from typing_extensions import Self

from langgraph_checkpoint_custom.encoding.rows import Encoded
from langgraph_checkpoint_custom.engine.operation import Form, RoundTrip, Row, Statement, Together
from langgraph_checkpoint_custom.migrations import Migration, load_migrations, load_shipped
from langgraph_checkpoint_custom.model.keys import SURELY_FIT, CheckpointRow, Key, WriteRow
from langgraph_checkpoint_custom.sql.dialect import SqlDialect
from langgraph_checkpoint_custom.sql.files import load_statements, with_rows

DEFAULT_SCHEMA = "langgraph_checkpoint"


# Writes of a task that are sent as rows of VALUES at most; more are sent as arrays. A node seldom has more.
FEW = 16
# Keys of rows in one statement. It finds them in a hash table, which for 10,000 keys of three parts takes about 1 MB.
# PostgreSQL makes none that may not fit into work_mem, by default 4 MB, and would search the list for each row.
KEYS = 10_000
_KEY_ARRAYS = {2: ("namespaces", "checkpoint_ids"), 3: ("namespaces", "channels", "versions")}
_EMPTY = "{}", "{}", "{}"
# What belongs to row-level security.
ROW_SECURITY = re.compile("ROW LEVEL SECURITY|policy |CREATE POLICY|tenant_roles|current_tenant")


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
        self.is_known = False  # Whether the tables have been found to have it.
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
    sent_for: ClassVar[Mapping[str, Sequence[str]]] = MappingProxyType(
        {
            "delete_checkpoints": ("delete_writes", "delete_checkpoints", "cut_from_deleted"),
            "searchable_make": ("searchable_drop", "searchable_make", "searchable_make_view"),
        }
    )
    _percent = "%%"

    def __init__(self, schema: str) -> None:
        super().__init__(*_texts_in(schema, self.layout), location=f"schema {schema!r}", schema=schema)
        self._family = _Family(self.layout)
        self._family.add(self)
        self._set_around()
        self._make_forms()

    def _make_forms(self) -> None:
        """Make the forms of the present statements."""
        texts = self._texts

        def together(name: str, key: Any, merge: Any, split: Any) -> Together | None:
            return Together(key, merge, split) if name in texts else None  # Citus has none of them.

        puts = together("insert_checkpoints", _first_three, self._put_together, _no_rows)
        self.put_form = Form("put", "write", "insert_checkpoint", texts["insert_checkpoint"], puts)
        latest = together("page_of_latest", None, partial(self._read_together, "page_of_latest"), _rows_of_each)
        self.latest_form = Form("get_tuple", "read", "page_latest", texts["page_latest"], latest)
        exact = together("page_of_exact", None, partial(self._read_together, "page_of_exact"), _rows_of_each)
        self.exact_form = Form("get_tuple", "read", "page_exact", texts["page_exact"], exact)
        writes = together("insert_writes_of_many", _first_four, self._writes_together, _no_rows)
        few = texts["insert_few_writes"]
        self._writes = {
            size: Form("put_writes", "write", "insert_few_writes", with_rows(few, size), writes)
            for size in range(1, FEW + 1)
        }

    def learn_layout(self, layout: str | None) -> None:
        """Make this and all copies a dialect for tables of this layout.

        A saver finds out when it checks the tables, before its first operation.
        """
        self._family.layout, self._family.is_known = layout, True
        for each in self._family.members():
            each._follow_family()

    def _follow_family(self) -> None:
        if self.layout != self._family.layout:
            self._become(self._family.layout)
        self._set_around()

    def _become(self, layout: str | None) -> None:
        from langgraph_checkpoint_custom.sql.citus_dialect import CitusDialect  # It imports this module.

        self._texts, _ = _texts_in(self._schema, layout)
        self.__class__ = PostgresDialect if layout is None else CitusDialect
        self._make_forms()

    def distributed(self, layout: str) -> PostgresDialect:
        """Return the same dialect, which creates new tables in this layout."""
        first, *later = self.migrations
        clone = copy(self)
        statements = tuple(sql for sql in first.statements if not ROW_SECURITY.search(sql))
        clone.migrations = [first._replace(statements=statements), *later]
        clone._become(layout)
        self._family.add(clone)
        return clone

    def for_tenant(self, tenant: str) -> Self:
        """Return the same statements for a tenant's rows only: by their keys, and by row-level security as well."""
        clone = super().for_tenant(tenant)
        self._family.add(clone)
        clone._follow_family()  # Another OS thread may have changed the layout while this was copied.
        return clone

    def _set_around(self) -> None:
        self._enter, self._leave = self._around()
        self.sends_forms = self._family.is_known and not self._enter

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

    def put_params(self, row: CheckpointRow) -> tuple[Any, ...]:
        """The parameters of `put_form`."""
        thread_id = self.stored_thread(row.thread_id) if self.tenant else row.thread_id
        lists = map(_texts, row[7:11]) if row.delta_channels or row.blob_channels else (_texts(row[7]), *_EMPTY)
        return thread_id, *row[1:7], *lists, *row[11:], self.tenant

    def _put_together(self, calls: Sequence[Sequence[Any]]) -> RoundTrip:
        rows = sorted(calls, key=_first_three)  # All batches insert in the same order, to avoid deadlocks.
        columns = list(zip(*rows, strict=True))
        names = ("thread_ids", "namespaces", "checkpoint_ids", "parent_ids", "root_ids", "run_ids")
        statement = self.statement(
            "insert_checkpoints",
            **{name: _texts(column) for name, column in zip(names, columns, strict=False)},
            formats=_numbers(columns[6]),
            inline_channels=_texts(columns[7]),
            delta_channels=_texts(columns[8]),
            checkpoint_types=_texts(columns[11]),
            checkpoints=list(columns[12]),
            metadata_types=_texts(columns[13]),
            metadata=list(columns[14]),
            metadata_filters=_texts(columns[15]),
        )
        return self._send(statement, locks=[self.statement("limit_waiting")])

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

    def store_checked(self, encoded: Encoded, optional: Collection[str]) -> RoundTrip | None:
        """Return None: `put_checkpoint` checks and stores in one statement."""
        return None

    def writes_form(self, key: Key, rows: Sequence[WriteRow]) -> Form | None:
        """What stores up to 16 writes of a task, unless the keys of their values have to be tried first."""
        form = self._writes.get(len(rows))
        return None if form is None or self.try_blobs(key, rows) else form

    def try_blobs(self, key: Key, rows: Sequence[WriteRow]) -> RoundTrip | None:
        """Insert blobs with the keys of the channels' values and delete them again; None if all keys are short.

        The server compresses names of more than about 500 bytes, so only an insert shows what fits into the index.
        """
        location = self.stored_thread(key.thread_id) + key.checkpoint_ns
        longest = max([len(row.channel) for row in rows])
        if 4 * (len(location) + longest) <= SURELY_FIT:  # A character has up to 4 bytes.
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

    def writes_params(self, key: Key, rows: Sequence[WriteRow]) -> tuple[Any, ...]:
        """The parameters of `writes_form`."""
        location = (self.stored_thread(key.thread_id), *key[1:], *rows[0][1:4])
        return tuple([cell for row in rows for cell in (*location, row.idx, row.channel, row.type, row.value)])

    def _writes_together(self, calls: Sequence[Sequence[Any]]) -> RoundTrip:
        rows = [call[at : at + 10] for call in sorted(calls, key=_first_four) for at in range(0, len(call), 10)]
        columns = list(zip(*rows, strict=True))
        statement = self.statement(
            "insert_writes_of_many",
            thread_ids=_texts(columns[0]),
            namespaces=_texts(columns[1]),
            checkpoint_ids=_texts(columns[2]),
            task_ids=_texts(columns[3]),
            task_paths=_texts(columns[4]),
            run_ids=_texts(columns[5]),
            idxs=_numbers(columns[6]),
            channels=_texts(columns[7]),
            types=_texts(columns[8]),
            values=list(columns[9]),
        )
        # A write that replaces a row waits if that is being deleted. The limit ends the wait for the other calls.
        return self._send(statement, locks=[self.statement("limit_waiting")])

    def insert_writes(self, key: Key, rows: Sequence[WriteRow], claim: str | None) -> RoundTrip:
        """Store the writes of a task in one statement."""
        statement = self.statement("insert_writes", **_with_writes(key, rows, claim))
        if claim is None:
            return self._send(statement)
        lost = self.statement("select_lost_claim", thread_id=key.thread_id, claim=claim)
        return self._send(statement, lost, locks=self._share(key.thread_id))

    def _of_keys(
        self, name: str, thread_id: str, keys: Collection[tuple[str, ...]], /, **params: Any
    ) -> Sequence[Statement]:
        """Return the statements for each `KEYS` keys, with an array for each of their parts."""
        ordered = sorted(keys)  # So that a statement reads a part of an index, and no other statement that part.
        statements: list[Statement] = []
        for at in range(0, len(ordered), KEYS):
            some = ordered[at : at + KEYS]
            arrays = dict(zip(_KEY_ARRAYS[len(some[0])], map(_texts, zip(*some, strict=True)), strict=True))
            statements += self._statements(name, thread_id=thread_id, count=len(some), **arrays, **params)
        return statements

    def _read_together(self, name: str, calls: Sequence[Sequence[Any]]) -> RoundTrip:
        columns = zip(*dict.fromkeys(calls), strict=True)
        names = ("thread_ids", "namespaces", "checkpoint_ids")
        params = {each: _texts(column) for each, column in zip(names, columns, strict=False)}
        return self._send(self.statement(name, **params))


def _first_three(params: Sequence[Any]) -> tuple[Any, ...]:
    """The key of a checkpoint, given the parameters of a put."""
    return tuple(params[:3])


def _first_four(params: Sequence[Any]) -> tuple[Any, ...]:
    """The key of a task, given the parameters of its writes."""
    return tuple(params[:4])


def _no_rows(_: Sequence[Any], calls: Sequence[Sequence[Any]]) -> Sequence[list[Row]]:
    return [[] for _ in calls]


def _rows_of_each(reply: Sequence[Any], calls: Sequence[Sequence[Any]]) -> Sequence[list[Row]]:
    """The rows for each call, out of those of all checkpoints."""
    found: defaultdict[tuple[str, str], list[Row]] = defaultdict(list)
    for row in reply[0]:
        found[row[1], row[2]].append(row)
    # The row of a blob has no checkpoint id, because several checkpoints may share the blob.
    return [
        [row for row in found[thread_id, checkpoint_ns] if not exact or row[3] in (*exact, None)]
        for thread_id, checkpoint_ns, *exact in calls
    ]


def _with_writes(key: Key, rows: Sequence[WriteRow], claim: str | None) -> dict[str, Any]:
    """The parameters for the writes of a task, as arrays."""
    return key._asdict() | {
        "task_id": rows[0].task_id,
        "task_path": rows[0].task_path,
        "run_id": rows[0].run_id,
        "idxs": _numbers([row.idx for row in rows]),
        "channels": _texts([row.channel for row in rows]),
        "types": _texts([row.type for row in rows]),
        "values": [row.value for row in rows],
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
        "values": [blob.value for blob in encoded.blobs],
        "chunks": _texts([blob.chunks for blob in encoded.blobs]),
    }
