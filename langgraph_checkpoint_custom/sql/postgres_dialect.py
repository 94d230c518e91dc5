"""The dialect of PostgreSQL: lists are arrays, and many rows are inserted as one array for each column.

Arrays are sent as text. A put with 14 arrays took 10 µs for them. With psycopg's dumpers, one for each element and one
for the list, it took 150 µs. Binary arrays of our own took nearly as long, because psycopg looks up the type of each.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache, partial
from types import MappingProxyType
from typing import Any, ClassVar

from langgraph_checkpoint_custom.encoding.encoded import Encoded
from langgraph_checkpoint_custom.engine.operation import Batching, Form, RoundTrip, Row, Statement
from langgraph_checkpoint_custom.migrations import Migration, load_migrations, load_shipped
from langgraph_checkpoint_custom.model.keys import CheckpointRow, Key, Page, WriteRow
from langgraph_checkpoint_custom.sql.dialect import ON_PARENT, WITH_BLOBS, Layout, SharedLayout, SqlDialect, names_text
from langgraph_checkpoint_custom.sql.files import DEFAULT_SCHEMA, load_statements, with_rows

# Writes of a task that are sent as rows of VALUES at most; more are sent as arrays. A node seldom has more.
FEW = 16
# Keys of rows in one statement. It finds them in a hash table, which for 10,000 keys of three parts takes about 1 MB.
# PostgreSQL makes none that may not fit into work_mem, by default 4 MB, and would search the list for each row.
KEYS = 10_000
_KEY_ARRAYS = {2: ("namespaces", "checkpoint_ids"), 3: ("namespaces", "channels", "versions")}
_EMPTY = "{}", "{}", "{}"
_PARAMETER = re.compile(r"%\(\w+\)s")
# What belongs to row-level security.
_SECURED = ", row-level security"
_ROW_SECURITY = re.compile("ROW LEVEL SECURITY|^policy |CREATE POLICY|tenant_roles|current_tenant")


def in_schema(sql: str, schema: str) -> str:
    """Return SQL for tables in another schema, given SQL for the schema `langgraph_checkpoint`."""
    quoted = '"' + schema.replace('"', '""') + '"'
    return re.sub(rf"\b{DEFAULT_SCHEMA}\b", lambda _: quoted, sql)


class PostgresDialect(SqlDialect):
    """The statements of PostgreSQL, in a schema.

    Citus distributes tables by thread over several servers. A statement runs on the server that has the thread if it
    names the thread in each place, as nearly all do; `citus/` has the others. Citus has no statement that inserts into
    two tables. So `put` checks first and stores then, as on SQLite; the operation is one transaction.
    """

    system = "postgresql"
    compresses = True
    filter_contains = True
    one_writer = False
    negative_limit = 0
    first_put_is_complete = True
    sent_for: ClassVar[Mapping[str, Sequence[str]]] = MappingProxyType(
        {
            # A checkpoint that is stored beside the deletion stays, and with it the row of the thread.
            "delete_thread": ("delete_thread", "arm_thread"),
            "drop_thread": ("drop_thread", "arm_thread"),
            "delete_checkpoints": ("delete_writes", "delete_checkpoints", "cut_from_deleted"),
            "searchable_make": ("searchable_drop", "searchable_make", "searchable_make_view"),
        }
    )
    _percent = "%%"

    def __init__(self, schema: str) -> None:
        shared = SharedLayout(_layout(schema, None), is_certain=False)
        super().__init__(shared, location=f"schema {schema!r}", schema=schema)

    @property
    def sends_forms(self) -> bool:
        """Whether a driver may send a form as it is, and several in a batch."""
        return self._shared.is_certain and not (self.tenant or self._shared.layout.name)

    def learn_layout(self, name: str | None) -> None:
        """Learn how the tables are laid out, as `schema_state` has read it."""
        self._shared.layout, self._shared.is_certain = _layout(self._schema, name), True

    def migrations_of(self, layout: str | None) -> Sequence[Migration]:
        """The migrations that create tables in this layout."""
        return _layout(self._schema, layout).migrations

    def shipped(self) -> Sequence[str]:
        """The lines of `shipped.txt`; with distributed tables, those that do not belong to row-level security."""
        lines = load_shipped("postgres")
        if self.layout is None:
            return lines
        return [line for line in (each.removesuffix(_SECURED) for each in lines) if not _ROW_SECURITY.search(line)]

    def _around(self) -> tuple[Sequence[Statement], Sequence[Statement]]:
        """Return what row-level security needs for a tenant; distributed tables do not have it."""
        if not self.tenant or self.layout:
            return (), ()
        return (self.statement("enter_tenant"),), (self.statement("leave_tenant"),)

    @staticmethod
    def array(values: Sequence[str]) -> str:
        """A list of texts as the text of an array."""
        return _text_array(values)

    @staticmethod
    def names(value: Any) -> list[str]:
        """A list of texts from an array, which psycopg has made a list already."""
        return value or []

    def select_page(self, page: Page) -> RoundTrip:
        """Read the rows of one page of a list; with Citus, a page of all threads from one read snapshot a server."""
        found = super().select_page(page)
        if self.layout is None or page.thread_id is not None:
            return found
        return found._replace(before=(*found.before, self.statement("read_by_one_connection")))

    def put_form(self, row: CheckpointRow) -> tuple[Form, tuple[Any, ...]]:
        """What stores a checkpoint that is one row, and its parameters."""
        thread_id = self.stored_thread(row.thread_id) if self.tenant else row.thread_id
        lists = map(_text_array, row[8:11]) if row.delta_channels or row.blob_channels else _EMPTY
        layout = self._shared.layout
        form = layout.put if row.parent_id or row.checkpoint_ns else layout.first_put
        return form, (thread_id, *row[1:7], names_text(_text_array, tuple(row[7])), *lists, *row[11:], self.tenant)

    def put_on_parent_form(self, encoded: Encoded) -> tuple[Form, tuple[Any, ...]] | None:
        """What stores a checkpoint on its parent, with the schema, by which it finds the thread's lock."""
        row, layout = encoded.row, self._shared.layout
        params = self.put_form(row)[1]
        parent = *params[:2], row.parent_id
        if not (encoded.references or encoded.blobs):
            return layout.put_on_parent, (*params, *parent, self._schema)
        if not all(ref.required for ref in encoded.references):
            return None
        ref_channels, ref_versions, _, ref_begins, *blobs = _blob_params(encoded).values()
        refs = ref_channels, ref_versions, ref_begins
        return layout.put_with_blobs, (*parent, self._schema, *refs, *blobs, params[2], *params[4:])

    @property
    def finds_and_stores(self) -> bool:
        """Whether one statement does; not with Citus, which has no such statement."""
        return self.layout is None

    def find_problems(self, encoded: Encoded, *, only_newest: bool, even_if_hidden: bool) -> RoundTrip:
        """Find what keeps a checkpoint from being stored, after taking the thread's lock; store it if there is none."""
        thread_id = encoded.row.thread_id
        params = {
            **_checkpoint_params(encoded.row),
            **_blob_params(encoded),
            "needs_parent": bool(encoded.replayed),
            "needs_whole_parent": bool(encoded.replayed) and not even_if_hidden,
            "only_newest": only_newest,
            "claim": encoded.claim,
        }
        # With `only_newest`, the second of two concurrent puts has to see the first, so each holds the lock alone.
        name = "put_checkpoint" if self.finds_and_stores else "put_problems"
        trip = self._trip(self.statement(name, **params), locks=self._lock(thread_id, alone=only_newest))
        return trip._replace(after=(*self._arming(encoded.row), *trip.after)) if self.finds_and_stores else trip

    def store_checked(self, encoded: Encoded, optional: Collection[str]) -> RoundTrip:
        """Store the blobs and the checkpoint in distributed tables."""
        row = encoded.row_naming(optional) if optional else encoded.row
        location = {"thread_id": row.thread_id, "checkpoint_ns": row.checkpoint_ns}
        blobs = [self.statement("put_blobs", **location, **_blob_params(encoded))] if encoded.blobs else []
        form, params = self.put_form(row)
        return self._trip(
            *blobs, form.with_params(params), *self._arming(row), locks=self._lock(row.thread_id, alone=False)
        )

    def insert_writes(self, key: Key, rows: Sequence[WriteRow], claim: str | None) -> RoundTrip:
        """Store the writes of a task in one statement."""
        form = self._shared.layout.writes.get(len(rows))
        if claim is None and form is not None:
            return self._trip(form.with_params(self.writes_params(key, rows)))
        arrays = _write_arrays([self.writes_params(key, rows)])
        statement = self.statement("insert_writes", **arrays, thread_id=key.thread_id, claim=claim)
        if claim is None:
            return self._trip(statement)
        lost = self.statement("select_lost_claim", thread_id=key.thread_id, claim=claim)
        return self._trip(statement, lost, locks=self._lock(key.thread_id, alone=False))

    def select_checkpoint(self, key: Key) -> RoundTrip:
        """Read the rows of one checkpoint, by name: with Citus, the statement names the key in several places."""
        return self.ask("rows_of_latest" if key.checkpoint_id is None else "rows_of_exact", **key._asdict())

    def select_matching_keys(self, page: Page, limit: int) -> RoundTrip:
        """Read keys that match, in the order of the table, with settings for that."""
        trip = super().select_matching_keys(page, limit)
        before, after = self._statements("read_table_in_order"), self._statements("read_as_before")
        return trip._replace(before=(*trip.before, *before), after=(*after, *trip.after))

    def ask_keys(self, name: str, thread_id: str, keys: Collection[tuple[str, ...]], /, **params: Any) -> RoundTrip:
        """Send the statements for each `KEYS` keys, with an array for each of their parts."""
        ordered = sorted(keys)  # So that a statement reads a part of an index, and no other statement that part.
        statements: list[Statement] = []
        for at in range(0, len(ordered), KEYS):
            some = ordered[at : at + KEYS]
            arrays = dict(zip(_KEY_ARRAYS[len(some[0])], map(_text_array, zip(*some, strict=True)), strict=True))
            statements += self._statements(name, thread_id=thread_id, count=len(some), **arrays, **params)
        return self._trip(*statements)


@lru_cache(maxsize=16)  # Most processes use one schema. Reading all texts takes 5 ms.
def _layout(schema: str, name: str | None) -> Layout:
    escaped = schema.replace("%", "%%")  # For psycopg, a single percent sign starts a parameter.
    texts = {name: in_schema(text, escaped) for name, text in load_statements("postgres", name).items()}
    migrations = [
        migration._replace(
            statements=tuple(
                in_schema(sql, escaped)
                for sql in migration.statements
                if name is None or not _ROW_SECURITY.search(sql)  # Citus refuses policies that contain a query.
            )
        )
        for migration in load_migrations("postgres")
    ]
    put, first_put = (
        Form("put", "write", one, texts[one], Batching(_first_three, partial(_put_together, texts, many), _no_rows))
        for one, many in (
            ("insert_checkpoint", "insert_checkpoints"),
            ("insert_first_checkpoint", "insert_first_checkpoints"),
        )
    )
    latest = _read_form(texts, "rows_of_latest", "rows_of_each_latest")
    writes = Batching(_first_four, partial(_write_together, texts), _no_rows)
    return Layout(
        name,
        MappingProxyType(texts),
        migrations,
        put=put,
        first_put=put if name else first_put,  # Citus has no statement that inserts into two tables.
        put_on_parent=Form("put", "write", ON_PARENT, texts[ON_PARENT], confirms=True),
        put_with_blobs=Form("put", "write", WITH_BLOBS, texts[WITH_BLOBS], confirms=True),
        latest=latest,
        exact=_read_form(texts, "rows_of_exact", "rows_of_each_exact"),
        newest=replace(latest, operation="list_page", batching=None),
        page=Form("list_page", "read", "page_unfiltered", texts["page_unfiltered"]),
        writes={
            size: Form("put_writes", "write", "insert_few_writes", with_rows(texts["insert_few_writes"], size), writes)
            for size in range(1, FEW + 1)
        },
    )


def _read_form(texts: Mapping[str, str], name: str, of_many: str) -> Form:
    """Return what reads one checkpoint, with its parameters by position: each occurs once, in the order of a key."""
    batching = Batching(None, partial(_read_together, of_many, texts[of_many]), _rows_of_each)
    return Form("get_tuple", "read", name, _PARAMETER.sub("%s", texts[name]), batching)


# Batches of the calls of one form. The thread ids are stored ones, and there is no tenant.


def _read_together(name: str, sql: str, calls: Sequence[Sequence[Any]]) -> RoundTrip:
    return RoundTrip([Statement(name, sql, _arrays(_KEYS, dict.fromkeys(calls)))])


def _put_together(texts: Mapping[str, str], name: str, calls: Sequence[Sequence[Any]]) -> RoundTrip:
    rows = sorted(calls, key=_first_three)  # All batches insert in the same order, to avoid deadlocks.
    return _limited(texts, Statement(name, texts[name], _arrays(_CHECKPOINTS, rows) | {"tenant": ""}))


def _write_together(texts: Mapping[str, str], calls: Sequence[Sequence[Any]]) -> RoundTrip:
    params = _write_arrays(sorted(calls, key=_first_four)) | {"thread_id": None, "claim": None}
    # A write that replaces a row waits if that is being deleted. The limit ends the wait for the other calls.
    return _limited(texts, Statement("insert_writes", texts["insert_writes"], params))


def _limited(texts: Mapping[str, str], statement: Statement) -> RoundTrip:
    return RoundTrip([statement], [Statement("limit_waiting", texts["limit_waiting"], {})])


def _write_arrays(calls: Sequence[Sequence[Any]]) -> dict[str, Any]:
    """The parameters of `insert_writes` for those of calls, which have ten for each write."""
    return _arrays(_WRITES, [call[at : at + 10] for call in calls for at in range(0, len(call), 10)])


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


def _text_array(texts: Sequence[Any]) -> str:
    """Return an array of texts as text; None becomes NULL."""
    if not texts:
        return "{}"
    if None in texts:
        return "{" + ",".join("NULL" if text is None else _text_array([text])[1:-1] for text in texts) + "}"
    inner = '","'.join(texts)
    if "\\" in inner or inner.count('"') > 2 * len(texts) - 2:
        inner = '","'.join([text.replace("\\", r"\\").replace('"', r"\"") for text in texts])
    return f'{{"{inner}"}}'


def _checkpoint_params(row: CheckpointRow) -> dict[str, Any]:
    """The parameters for the columns of a checkpoint."""
    return row._asdict() | {
        "inline_channels": _text_array(row.inline_channels),
        "delta_channels": _text_array(row.delta_channels),
        "blob_channels": _text_array(row.blob_channels),
        "blob_versions": _text_array(row.blob_versions),
    }


def _blob_params(encoded: Encoded) -> dict[str, Any]:
    """The parameters for the blobs that a checkpoint refers to, and for its new blobs, as arrays."""
    return _arrays(_REFERENCES, encoded.references) | _arrays(_BLOBS, encoded.blobs)


# The names of arrays, each for a column of rows.
_KEYS = "thread_ids", "namespaces", "checkpoint_ids"
_CHECKPOINTS = (
    *(*_KEYS, "parent_ids", "root_ids", "run_ids", "formats"),
    *("inline_channels", "delta_channels", "blob_channels", "blob_versions"),
    *("checkpoint_types", "checkpoints", "metadata_types", "metadata", "metadata_filters"),
)
_WRITES = (*_KEYS, "task_ids", "task_paths", "run_ids", "idxs", "channels", "types", "values")
_REFERENCES = "ref_channels", "ref_versions", "ref_required", "ref_begins"
_BLOBS = "channels", "versions", "types", "values", "chunks"


def _arrays(names: Sequence[str], rows: Collection[Sequence[Any]]) -> dict[str, Any]:
    """Return an array for each column of rows, by name."""
    columns = zip(*rows, strict=True) if rows else [()] * len(names)
    return {name: _array(name, column) for name, column in zip(names, columns, strict=False)}


def _array(name: str, column: Sequence[Any]) -> Any:
    if name in ("checkpoints", "metadata", "values"):
        return list(column)
    return _text_array([*map(str, column)] if name in ("formats", "idxs", "ref_required") else column)
