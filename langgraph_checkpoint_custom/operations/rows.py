"""The rows of threads as they are stored: how those of each table are named, and the walk over them, page by page.

Must not know: SQL, connections, what values mean.

A walk goes from row to row in the order of the keys. That of one thread (`export_rows.py`) is complete, with labels.
That of all threads is about the stored values: `reencrypt.py` seals them anew, and the command `types` lists classes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from langgraph_checkpoint_custom.engine.operation import Steps
from langgraph_checkpoint_custom.model.keys import (
    Location,
    location_of_blob,
    location_of_checkpoint,
    location_of_metadata,
    location_of_write,
)
from langgraph_checkpoint_custom.sql.dialect import SqlDialect

Row = Mapping[str, Any]
"""The cells of a row, by column."""


class Kind(NamedTuple):
    """A kind of row: its name, the columns of its key inside a thread, in order, and the other columns."""

    name: str
    key: Mapping[str, Any]
    """By column, a value that sorts before that of every row."""
    columns: Sequence[str]


CHECKPOINTS = Kind(
    "checkpoint",
    {"checkpoint_ns": "", "checkpoint_id": ""},
    (
        *("parent_id", "root_id", "run_id", "format", "hidden"),
        *("inline_channels", "delta_channels", "blob_channels", "blob_versions"),
        *("checkpoint_type", "checkpoint", "metadata_type", "metadata", "metadata_filter"),
    ),
)
BLOBS = Kind("blob", {"checkpoint_ns": "", "channel": "", "version": ""}, ("type", "value", "chunks"))
WRITES = Kind(
    "write",
    {"checkpoint_ns": "", "checkpoint_id": "", "task_id": "", "idx": -(2**31)},
    ("task_path", "run_id", "channel", "type", "value"),
)
LABELS = Kind("label", {"name": ""}, ("checkpoint_ns", "checkpoint_id"))
KINDS = (CHECKPOINTS, BLOBS, WRITES, LABELS)
WITH_VALUES = (CHECKPOINTS, BLOBS, WRITES)


class Value(NamedTuple):
    """A stored value of a row: the columns of its type and of its bytes, and its location."""

    type: str
    bytes: str
    location: Location


def values_of(kind: Kind, row: Row) -> Sequence[Value]:
    """Return the stored values of a row."""
    key = [row[column] for column in kind.key]
    if kind is CHECKPOINTS:
        return (
            Value("checkpoint_type", "checkpoint", location_of_checkpoint(*key)),
            Value("metadata_type", "metadata", location_of_metadata(*key)),
        )
    if kind is WRITES:
        return [Value("type", "value", location_of_write(*[*key, row["channel"]]))]
    location, chunks = location_of_blob(*key), row["chunks"]
    return [Value("type", "value", location if chunks is None else (*location, chunks))]


# Rows of the first page with values. The next ones may have twice as many each time, up to `MOST`, as long as their
# bytes are not more than `BYTES`: a row may have 100 MB.
FIRST, MOST, BYTES = 25, 400, 4_000_000


def rows_after(rows: int, size: int) -> int:
    """Return how many rows the next page with values may have, after a page of `rows` rows with `size` bytes."""
    return max(1, min(2 * rows, MOST, BYTES * rows // max(size, 1)))


class Start(NamedTuple):
    """Where a page of the rows of all threads starts: after a key; and the number of its rows."""

    key: Row
    rows: int


class RowPage(NamedTuple):
    """A page of rows, the bytes of their values, and where the next page starts; None if this was the last one."""

    rows: Sequence[Row]
    bytes: int
    after: Start | None


def starts(d: SqlDialect, kind: Kind) -> list[Start]:
    """Return where the rows of a tenant start, for each range of their thread ids."""
    return [Start({"thread_id": d.own_thread_id(each.bottom), **kind.key}, FIRST) for each in d.ranges()]


def page_of_rows(d: SqlDialect, kind: Kind, start: Start) -> Steps[RowPage]:
    """Read a page of the rows of all threads.

    Round trips: 1.
    """
    (found,) = yield d.stored_rows(kind.name, start.key, start.rows)
    names = ("thread_id", *kind.key, *kind.columns)
    rows = [{**dict(zip(names, row, strict=True)), "thread_id": d.own_thread_id(row[0])} for row in found]
    size = sum(len(row[value.bytes]) for row in rows for value in values_of(kind, row))
    if len(rows) < start.rows:
        return RowPage(rows, size, None)
    return RowPage(rows, size, Start({name: rows[-1][name] for name in start.key}, rows_after(len(rows), size)))
