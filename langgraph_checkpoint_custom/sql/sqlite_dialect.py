"""The dialect of SQLite: lists are JSON, and many rows are inserted row by row."""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from functools import cache
from json.encoder import encode_basestring
from types import MappingProxyType
from typing import Any

from langgraph_checkpoint_custom.encoding.encoded import Encoded
from langgraph_checkpoint_custom.engine.operation import Execute, Form, RoundTrip, Row, Statement
from langgraph_checkpoint_custom.migrations import load_migrations, load_shipped
from langgraph_checkpoint_custom.model.keys import CheckpointRow, Key, Page, TupleRow, WriteRow
from langgraph_checkpoint_custom.model.outline import FORMAT_WITH_SENDS, BlobPlace
from langgraph_checkpoint_custom.sql.dialect import ON_PARENT, WITH_BLOBS, Layout, SharedLayout, SqlDialect, names_text
from langgraph_checkpoint_custom.sql.files import load_statements, with_rows

# json.dumps would make an encoder with each call.
_ENCODE = json.JSONEncoder(ensure_ascii=False).encode
_DECODE = json.JSONDecoder().raw_decode  # json.loads first checks the type of its argument.

_EMPTY = "[]", "[]", "[]"
_PARENT, _FORMAT, _CHANNELS = map(TupleRow._fields.index, ("name", "idx", "channels"))

_KEY_COLUMNS = {2: ("checkpoint_ns", "checkpoint_id"), 3: ("checkpoint_ns", "channel", "version")}

# Writes that one statement inserts. A single statement needs no transaction around it: 50 take 0.84 of the CPU time of
# four statements. SQLite prepares each size once, which takes as long as two such calls.
WRITES = 64


class SqliteDialect(SqlDialect):
    """The statements of `sqlite/`."""

    system = "sqlite"
    compresses = False
    filter_contains = False
    one_writer = True
    negative_limit = None
    first_put_is_complete = False
    sent_for = MappingProxyType(
        {
            "delete_thread": (
                "delete_thread",
                *("delete_thread_writes", "delete_thread_blobs", "delete_thread_labels", "drop_thread"),
            ),
            "delete_checkpoints": ("delete_writes", "delete_checkpoints"),
            # A transaction holds the one write lock from its start.
            "schema_lock": (),
            "lock_thread": (),
            "try_lock_thread": (),
            "share_thread": (),
            "searchable_lock": (),
        }
    )

    def __init__(self, path: str) -> None:
        super().__init__(SharedLayout(_layout(), is_certain=True), location=path, schema="main")

    # The layout is known, and nothing is sent around a form. A property would be one more call for each of a run's.
    sends_forms = True  # pyright: ignore[reportAssignmentType]

    def shipped(self) -> Sequence[str]:
        """The lines of `shipped.txt`."""
        return load_shipped("sqlite")

    @staticmethod
    def array(values: Sequence[Any]) -> str:
        """A list as JSON."""
        try:
            return f"[{','.join(map(encode_basestring, values))}]"  # For texts: a fifth of the time of `_ENCODE`.
        except TypeError:
            return _ENCODE(list(values))

    @staticmethod
    def names(value: Any) -> list[str]:
        """A list from its JSON text."""
        return [] if value is None or value == "[]" else _DECODE(value)[0]

    def put_form(self, row: CheckpointRow) -> tuple[Form, tuple[Any, ...]]:
        """What stores a checkpoint that is one row, and its parameters."""
        thread_id = self.stored_thread(row.thread_id) if self.tenant else row.thread_id
        names = names_text(self.array, tuple(row[7]))
        lists = map(self.array, row[8:11]) if row.delta_channels or row.blob_channels else _EMPTY
        return self._shared.layout.put, (thread_id, *row[1:7], names, *lists, *row[11:])

    def put_on_parent_form(self, encoded: Encoded) -> tuple[Form, tuple[Any, ...]] | None:
        """What stores a checkpoint on its parent, whose key comes first."""
        row, layout = encoded.row, self._shared.layout
        thread_id, *rest = self.put_form(row)[1]
        parent = thread_id, row.checkpoint_ns, row.parent_id
        if not (encoded.references or encoded.blobs):
            return layout.put_on_parent, (*parent, *rest)
        if not all(ref.required for ref in encoded.references):
            return None
        names: tuple[str | None, str | None] = None, None
        if encoded.references and encoded.parent:
            versions = encoded.parent.versions
            names = self.array(list(versions)), self.array(list(versions.values()))
        begins = _ENCODE([ref for ref in encoded.references if ref.begins])
        blobs = [parent[:2] + blob for blob in encoded.blobs]
        return layout.put_with_blobs, (*parent, *names, begins, *rest, blobs)

    def find_problems(self, encoded: Encoded, *, only_newest: bool, even_if_hidden: bool) -> RoundTrip:
        """Find the problems. No other transaction writes between this and `store_checked`."""
        row = encoded.row
        params = {
            "thread_id": row.thread_id,
            "checkpoint_ns": row.checkpoint_ns,
            "checkpoint_id": row.checkpoint_id,
            "parent_id": row.parent_id,
            "refs": _ENCODE(encoded.references),
            "needs_parent": bool(encoded.replayed),
            "needs_whole_parent": bool(encoded.replayed) and not even_if_hidden,
            "only_newest": only_newest,
            "claim": encoded.claim,
        }
        return self._trip(self.statement("put_problems", **params))

    def store_checked(self, encoded: Encoded, optional: Collection[str]) -> RoundTrip:
        """Store the blobs and the checkpoint."""
        row = encoded.row_naming(optional) if optional else encoded.row
        location = self.stored_thread(row.thread_id), row.checkpoint_ns
        blobs = [location + blob for blob in encoded.blobs]
        put = [Statement("put_blobs", self._texts["put_blobs"], blobs)] if blobs else []
        form, params = self.put_form(row)
        return self._trip(*put, form.with_params(params), *self._arming(row))

    def select_checkpoint(self, key: Key) -> RoundTrip:
        """Read the rows of one checkpoint by its form."""
        form, params = self.read_form(key)
        return self._trip(form.with_params(params))._replace(read=form.read)

    def select_page(self, page: Page) -> RoundTrip:
        """Read the rows of one page of a list."""
        return super().select_page(page)._replace(read=_read)

    def read_form(self, key: Key) -> tuple[Form, tuple[str, ...]]:
        """What reads one checkpoint and its writes, and its parameters."""
        thread_id, checkpoint_ns, checkpoint_id = key
        if self.tenant:
            thread_id = self.stored_thread(thread_id)
        if checkpoint_id is None:
            return self._shared.layout.latest, (thread_id, checkpoint_ns) * 3
        return self._shared.layout.exact, (thread_id, checkpoint_ns, checkpoint_id) * 2

    def select_chunks(self, thread_id: str, blobs: Collection[BlobPlace]) -> RoundTrip:
        """Read the places of the chunks of blobs, whose keys are one list."""
        return self.ask("select_chunks", thread_id=thread_id, keys=_ENCODE(list(blobs)))

    def ask_keys(self, name: str, thread_id: str, keys: Collection[tuple[str, ...]], /, **params: Any) -> RoundTrip:
        """Send the statements, each of which runs once for each key."""
        shared = self._confined({"thread_id": thread_id, **params})
        rows = [shared | dict(zip(_KEY_COLUMNS[len(key)], key, strict=True)) for key in sorted(keys)]
        names = self.sent_for.get(name, (name,)) if rows else ()
        return self._trip(*(Statement(each, self._texts[each], rows) for each in names))

    def insert_writes(self, key: Key, rows: Sequence[WriteRow], claim: str | None) -> RoundTrip:
        """Store the writes of a task, with one statement for each 64 of them."""
        statements = []
        for at in range(0, len(rows), WRITES):
            some = rows[at : at + WRITES]
            form = self._shared.layout.writes[len(some)]
            statements.append(form.with_params(self.writes_params(key, some)))
        if claim:
            statements.append(self.statement("select_lost_claim", thread_id=key.thread_id, claim=claim))
        return self._trip(*statements)


def _is_whole(rows: Sequence[Row]) -> bool:
    """Whether the rows of a checkpoint are all: it has no blobs, and no sends, as only those in an old format have."""
    if not rows or rows[0][0] != "checkpoint":
        return True
    head = rows[0]
    return not head[_CHANNELS] and (head[_FORMAT] >= FORMAT_WITH_SENDS or not head[_PARENT])


def _read(execute: Execute, sql: str, params: Any) -> list[Row]:
    """Read checkpoints with their writes, which `sql` finds, and their blobs and sends, each once."""
    rows: list[Row] = execute(sql, params).fetchall()
    lists: dict[Row, dict[Row, None]] = {}  # The channels and versions of blobs, by thread and namespace.
    sends: list[Row] = []
    for row in rows:
        if row[0] != "checkpoint":
            break  # Writes are the last rows.
        if row[_CHANNELS]:  # Of a page, many checkpoints name the same blobs.
            lists.setdefault(row[1:3], {})[row[_CHANNELS:]] = None
        if row[_PARENT] and row[_FORMAT] < FORMAT_WITH_SENDS:
            sends.append((*row[1:4], row[_PARENT]))
    for place, found in lists.items():
        wanted: Collection[Row] = found
        if len(found) > 1:
            wanted = _as_lists({pair: None for each in found for pair in zip(*map(_names, each), strict=False)})
        for channels, versions in wanted:
            rows += _read_values(execute, place, channels, versions)
    if sends:
        rows += execute(_layout().texts["select_sends_of"], (_ENCODE(sends),)).fetchall()
    return rows


def _read_values(execute: Execute, place: Row, channels: str, versions: str) -> list[Row]:
    """Read blobs of a thread and namespace, and their chunks, which are blobs, too, by their names."""
    sql = _layout().texts["select_values_of"]
    found = execute(sql, (channels, versions, channels, *place, versions)).fetchall()
    chunks = {(channel, name): None for channel, _, names, *_ in found if names for name in _names(names)}
    for channels, versions in _as_lists(chunks):
        found += execute(sql, (channels, versions, channels, *place, versions)).fetchall()
    return [("blob", *place, None, *blob[:3], None, *blob[3:], None, None, None, None) for blob in found]


def _names(text: str) -> Sequence[str]:
    """A list from its JSON text. Empty if it is damaged: whoever decodes the row raises an error that names it."""
    try:
        found = SqliteDialect.names(text)
    except ValueError:
        return ()
    return found if isinstance(found, list) and all(isinstance(name, str) for name in found) else ()


def _as_lists(pairs: Collection[tuple[str, str]]) -> Sequence[tuple[str, str]]:
    """Return channels and versions or names as two JSON lists, or nothing if there are none."""
    if not pairs:
        return ()
    channels, names = zip(*pairs, strict=True)
    return [(SqliteDialect.array(channels), SqliteDialect.array(names))]


@cache
def _layout() -> Layout:
    texts = load_statements("sqlite")
    insert = texts["insert_few_writes"]
    put = Form("put", "write", "insert_checkpoint", texts["insert_checkpoint"])
    return Layout(
        None,
        texts,
        load_migrations("sqlite"),
        put=put,
        first_put=put,
        put_on_parent=Form("put", "write", ON_PARENT, texts[ON_PARENT], confirms=True),
        put_with_blobs=Form("put", "write", WITH_BLOBS, texts[WITH_BLOBS], confirms=True, each=texts["put_blobs"]),
        latest=Form("get_tuple", "read", "rows_of_latest", texts["rows_of_latest"], read=_read, is_whole=_is_whole),
        exact=Form("get_tuple", "read", "rows_of_exact", texts["rows_of_exact"], read=_read, is_whole=_is_whole),
        newest=Form("list_page", "read", "rows_of_latest", texts["rows_of_latest"], read=_read),
        page=Form("list_page", "read", "page_unfiltered", texts["page_unfiltered"], read=_read),
        writes={
            size: Form("put_writes", "write", "insert_few_writes", with_rows(insert, size))
            for size in range(1, WRITES + 1)
        },
    )
