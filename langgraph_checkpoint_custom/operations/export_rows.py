"""Threads as lines of text that both databases can import: the rows as they are stored, with bytes as base64.

Must not know: SQL, connections, files.

A line is a JSON object with one key, the kind of the row. Its value has the columns of the row by name. Compressed and
encrypted values stay as they are: no value is decoded, so neither export nor import needs an encryption key.
"""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from collections.abc import Callable, Iterator, Mapping, Sequence
from hashlib import sha256
from typing import Any, NamedTuple

from langgraph_checkpoint_custom.engine.operation import Row, Steps, one_trip, operation, together
from langgraph_checkpoint_custom.errors import StorageError, ThreadExists
from langgraph_checkpoint_custom.model.keys import Range, right_above
from langgraph_checkpoint_custom.operations.read import checkpoints_of_threads
from langgraph_checkpoint_custom.operations.rows import FIRST, KINDS, Kind, rows_after
from langgraph_checkpoint_custom.operations.writers import take_claim
from langgraph_checkpoint_custom.sql.dialect import SqlDialect

# Rows of a round trip at first, of each kind. Their values are in memory at the same time.
PAGE = 50
# Bytes, as base64, after which no more rows are added to the page that is imported.
PAGE_BYTES = 4_000_000

_DUMP = json.JSONEncoder(separators=(",", ":"), sort_keys=True).encode


_KINDS = {kind.name: kind for kind in KINDS}
_LISTS = frozenset({"inline_channels", "delta_channels", "blob_channels", "blob_versions"})
_BYTES = frozenset({"checkpoint", "metadata", "value"})
_NUMBERS = frozenset({"format", "idx"})
_MAY_BE_NULL = frozenset({"parent_id", "root_id", "run_id", "chunks"})
# The numbers that a column can hold in both databases.
_INTEGERS = range(-(2**31), 2**31)


@operation("read")
def next_threads(d: SqlDialect, after: str, threads: int) -> Steps[list[str]]:
    """Return the first threads whose ids are greater, in their order.

    Round trips: 1.
    Rows: two of each thread.
    """
    replies = yield d.ask_each("thread_ids", map(Range._asdict, d.ranges_after(after)), threads=threads)
    return [d.own_thread_id(stored) for rows in replies for (stored,) in rows][:threads]


class ExportStart(NamedTuple):
    """Where a page of threads begins: at the first thread of a range, with that many rows of each kind at most."""

    within: Range
    rows: Sequence[int] = (FIRST,) * len(KINDS)


class ExportPage(NamedTuple):
    """A page of threads, and where the next page begins, if there is one.

    Each thread comes with all its lines, or with None if `export_thread` has to read them.
    """

    threads: Sequence[tuple[str, Sequence[str] | None]]
    after: ExportStart | None


@operation("snapshot", joins=False)
def export_page(d: SqlDialect, start: ExportStart) -> Steps[ExportPage]:
    """Return all lines of the threads whose rows fit into a page, as `export_thread` does.

    With Citus, only a thread alone can be read at one point in time: so each is.

    Round trips: 1.
    Rows: up to 400 of each kind. Those of the thread at the end of the page are read again with the next one.
    """
    within = start.within
    if d.layout == "citus":
        (ids,) = yield d.ask("thread_ids", **within._asdict(), threads=PAGE)
        after = ExportStart(within._replace(bottom=right_above(ids[-1][0]))) if ids else None
        return ExportPage([(d.own_thread_id(stored), None) for (stored,) in ids], after)
    pages = list(zip(KINDS, start.rows, strict=True))
    first = d.own_thread_id(within.bottom)
    asked = [d.stored_rows(kind.name, {"thread_id": first, **kind.key}, most) for kind, most in pages]
    replies = yield one_trip(asked)
    full = [rows[-1][0] for rows, most in zip(replies, start.rows, strict=True) if len(rows) == most]
    end = min(full, default=within.top)  # Of the threads below, all rows were read.
    lines: dict[str, list[str]] = {row[0]: [] for row in replies[0] if row[0] < end}
    for kind, rows in zip(KINDS, replies, strict=True):
        for row in rows:
            if row[0] in lines:
                lines[row[0]].append(_line(d, kind, row))
    threads = [(d.own_thread_id(stored), each) for stored, each in lines.items()]
    if not replies[0] or not full:
        return ExportPage(threads, None)
    if not threads:
        stored = replies[0][0][0]
        return ExportPage([(d.own_thread_id(stored), None)], ExportStart(within._replace(bottom=right_above(stored))))
    size = sum(_size(kind, row) for kind, rows in zip(KINDS, replies, strict=True) for row in rows)
    most = rows_after(max(start.rows), size)
    used = [sum(row[0] in lines for row in rows) for rows in replies]
    # So that the pages of all kinds end at about the same thread.
    following = [min(most, most * number // max(used) + FIRST) for number in used]
    return ExportPage(threads, ExportStart(within._replace(bottom=end), following))


@operation("snapshot", joins=False)
def export_thread(d: SqlDialect, thread_id: str, begin: Callable[[], Callable[[str], None]]) -> Steps[None]:
    """Pass all lines of a thread, always in the same order, to the function that `begin` returns.

    `begin` is called at the start, and again at each retry.

    Round trips: 1, and one more for each further page of a kind of rows.
    """
    write_line = begin()
    replies = yield d.export_rows(thread_id, [(kind.name, kind.key) for kind in KINDS], PAGE)
    for kind, rows in zip(KINDS, replies, strict=True):
        most, size = PAGE, 0
        while True:
            for row in rows:
                line = _line(d, kind, row)
                size += len(line)
                write_line(line)
            if len(rows) < most:
                break
            most, size = rows_after(most, size), 0
            after = dict(zip(kind.key, rows[-1][1:], strict=False))
            (rows,) = yield d.export_rows(thread_id, [(kind.name, after)], most)


class Digest(NamedTuple):
    """The number of rows of a thread, and the SHA-256 of their lines, which are the same in any database."""

    rows: int
    text: str


@operation("snapshot", joins=False)
def digest_thread(d: SqlDialect, thread_id: str) -> Steps[Digest]:
    """Return a digest of all rows of a thread, to compare it with the digest of the same thread in another database.

    Round trips: those of `export_thread`.
    Rows: all of the thread.
    """
    number, found = 0, sha256()

    def write_line(line: str) -> None:
        nonlocal number
        number += 1
        found.update(line.encode() + b"\n")

    yield from export_thread(d, thread_id, lambda: write_line).start()
    return Digest(number, found.hexdigest())


class ImportedRow(NamedTuple):
    """A row that was read from a line: its kind, and its columns by name, not decoded."""

    kind: str
    cells: Mapping[str, Any]

    @property
    def checkpoint(self) -> tuple[str, str] | None:
        """The namespace and the id if this is the row of a checkpoint."""
        return (self.cells["checkpoint_ns"], self.cells["checkpoint_id"]) if self.kind == "checkpoint" else None


def read_row(line: bytes) -> ImportedRow:
    """Return the row in a line; raises ValueError, which says what is wrong, if it is not a row of an export."""
    ((name, cells),) = _object("the line", json.loads(line), 1).items()
    kind = _KINDS.get(name)
    if kind is None:
        raise ValueError(f"{name!r} is not a kind of row")
    columns = {*kind.key, *kind.columns}
    if _object(f"the {name}", cells, len(columns)).keys() != columns:
        raise ValueError(f"the {name} does not have the columns {', '.join(sorted(columns))}")
    for column, cell in cells.items():
        if not _fits(column, cell):
            raise ValueError(f"the column {column} of the {name} has an invalid value")
    return ImportedRow(name, cells)


def _object(what: str, found: Any, size: int) -> dict[str, Any]:
    if not isinstance(found, dict) or len(found) != size:
        raise ValueError(f"{what} is not an object with {size} members")
    return found


def _fits(column: str, cell: Any) -> bool:
    if column in _NUMBERS:
        return type(cell) is int and cell in _INTEGERS
    if column == "hidden":
        return isinstance(cell, bool)
    if column == "metadata_filter":
        return isinstance(cell, dict) and all(text is None or _is_text(text) for text in cell.values())
    if column in _LISTS:
        return isinstance(cell, list) and all(map(_is_text, cell))
    if column in _MAY_BE_NULL and cell is None:
        return True
    if not _is_text(cell):
        return False
    if column in _BYTES:
        b64decode(cell, validate=True)
    elif column == "chunks":
        return _fits("inline_channels", json.loads(cell))
    return True


def _is_text(cell: Any) -> bool:
    return isinstance(cell, str) and "\0" not in cell and bool(cell.encode() or True)


class ImportedThread(NamedTuple):
    """A thread of an import.

    Attributes:
        thread_id: The thread.
        digest: The SHA-256 of the lines of its rows.
        rows: Returns an iterator over its rows, from the first one.
    """

    thread_id: str
    digest: str
    rows: Callable[[], Iterator[ImportedRow]]


@operation("transaction")
def import_threads(d: SqlDialect, threads: Sequence[ImportedThread], replace: bool) -> Steps[Sequence[bool] | None]:
    """Store threads as they were exported, all of them or none. One that exists already with these rows stays.

    Returns whether each was stored; None if each has to be stored alone. With Citus, this transaction would be one of
    several nodes. For the lock of one thread it waits. If it waited for one of several, the threads whose locks it has
    already would wait as well. So it fails, which gives these back, also in a caller's transaction.

    Args:
        d: The dialect.
        threads: The threads.
        replace: Whether to replace a thread that has rows already. All its checkpoints have to be in the import.

    Round trips: for a new thread, 4, and on PostgreSQL one more for its lock; one for each page that is stored, and
        one for each further page of 50 rows of a kind that is read again at the end. For several, as for the longest.
    Idempotent: yes.
    Raises: ThreadExists, ThreadBusy; StorageError if another transaction holds the lock of one of several threads.
    """
    if len(threads) == 1:
        yield d.ask(lock="exclusive", thread_id=threads[0].thread_id)
    elif d.layout == "citus":
        return None
    elif any((yield d.ask_each("try_lock_thread", [{"thread_id": each[0]} for each in threads]))):
        raise StorageError("another transaction holds the lock of a thread", operation="import_threads")
    return (yield from together([_import_locked(d, thread, replace) for thread in threads]))


def _import_locked(d: SqlDialect, thread: ImportedThread, replace: bool) -> Steps[bool]:
    """Store a thread whose lock is held alone."""
    thread_id, digest, rows = thread
    there = yield from digest_thread(d, thread_id).start()
    if there.text == digest:
        return False
    token = "import"  # No other transaction sees it: this transaction also deletes it.
    yield from take_claim(d, thread_id, token, token, 1).start()
    if there.rows:
        (locations,) = yield from checkpoints_of_threads(d, [thread_id]).start()
        if {(row[0], row[1]) for row in locations}.difference(row.checkpoint for row in rows()):
            raise ThreadExists(f"thread {thread_id!r} was not imported: it has checkpoints of its own")
        if not replace:
            raise ThreadExists(f"thread {thread_id!r} differs from the file, since it existed before")
        yield d.ask("delete_thread", lock="exclusive", thread_id=thread_id, checkpoints=None)
    for page in _pages(rows()):
        yield d.import_rows(thread_id, [(row.kind, _params(d, row.cells)) for row in page])
    yield d.ask("release_claim", thread_id=thread_id, claim=token)
    if (yield from digest_thread(d, thread_id).start()).text != digest:
        raise ThreadExists(
            f"thread {thread_id!r} differs from the file, since it was written to during the import, or the file was "
            "not made by export; nothing was stored"
        )
    return True


def _pages(rows: Iterator[ImportedRow]) -> Iterator[list[ImportedRow]]:
    """Split rows into pages, one for each round trip, of up to `PAGE` rows and about `PAGE_BYTES` bytes."""
    page: list[ImportedRow] = []
    size = 0
    for row in rows:
        page.append(row)
        size += sum(len(cell) for name, cell in row.cells.items() if name in _BYTES)
        if len(page) == PAGE or size >= PAGE_BYTES:
            yield page
            page, size = [], 0
    if page:
        yield page


def _line(d: SqlDialect, kind: Kind, row: Row) -> str:
    cells: dict[str, Any] = dict(zip((*kind.key, *kind.columns), row[1:], strict=True))
    for name, cell in cells.items():
        if name in _BYTES:
            cells[name] = b64encode(cell).decode()
        elif name in _LISTS:
            cells[name] = d.names(cell)
        elif name == "metadata_filter":
            cells[name] = json.loads(cell)
        elif name == "hidden":
            cells[name] = bool(cell)
    return _DUMP({kind.name: cells})


def _size(kind: Kind, row: Row) -> int:
    return sum(len(cell) for name, cell in zip((*kind.key, *kind.columns), row[1:], strict=True) if name in _BYTES)


def _params(d: SqlDialect, cells: Mapping[str, Any]) -> dict[str, Any]:
    params = dict(cells)
    for name, cell in cells.items():
        if name in _BYTES:
            params[name] = b64decode(cell)
        elif name in _LISTS:
            params[name] = d.array(cell)
        elif name == "metadata_filter":
            params[name] = json.dumps(cell, separators=(",", ":"))
    return params
