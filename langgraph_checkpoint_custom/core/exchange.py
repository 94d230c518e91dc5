"""Threads as lines of text, which any database takes: the rows of a thread as they are stored, bytes as base64.

Must not know: SQL, connections, files.

A line is a JSON object with one key, the kind of row, and the row's columns by name. What is compressed or encrypted
stays so: no value is decoded, and a key is needed only by who reads it in the end.
"""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from langgraph_checkpoint_custom.core.dialect import SqlDialect
from langgraph_checkpoint_custom.core.operation import Row, Steps, operation

# Rows a trip; their values are in memory at once.
PAGE = 50

_DUMP = json.JSONEncoder(separators=(",", ":"), sort_keys=True).encode


class Kind(NamedTuple):
    """A kind of row: its name, the columns that tell its rows of a thread apart, in order, and the others."""

    name: str
    key: Mapping[str, Any]
    """By column, a value that comes before every row's."""
    columns: Sequence[str]


KINDS = (
    Kind(
        "checkpoint",
        {"checkpoint_ns": "", "checkpoint_id": ""},
        (
            *("parent_id", "root_id", "run_id", "format", "hidden"),
            *("inline_channels", "delta_channels", "blob_channels", "blob_versions"),
            *("checkpoint_type", "checkpoint", "metadata_type", "metadata", "metadata_filter"),
        ),
    ),
    Kind("blob", {"checkpoint_ns": "", "channel": "", "version": ""}, ("type", "value", "parts")),
    Kind(
        "write",
        {"checkpoint_ns": "", "checkpoint_id": "", "task_id": "", "idx": -(2**31)},
        ("task_path", "run_id", "channel", "type", "value"),
    ),
    Kind("label", {"name": ""}, ("checkpoint_ns", "checkpoint_id")),
)
_LISTS = frozenset({"inline_channels", "delta_channels", "blob_channels", "blob_versions"})
_BYTES = frozenset({"checkpoint", "metadata", "value"})


@operation("read")
def next_thread(d: SqlDialect, after: str) -> Steps[str | None]:
    """The first thread whose id is greater, or None.

    Trips: 1.
    """
    replies = yield d.select_next_thread(after)
    return next((d.shown_thread(rows[0][0]) for rows in replies if rows), None)


@operation("snapshot")
def export_thread(d: SqlDialect, thread_id: str, begin: Callable[[], Callable[[str], None]]) -> Steps[None]:
    """Tell all lines of a thread, in one order: to what `begin` returns, which is called first, and again on a retry.

    Trips: 3 and more, one for each page of rows.
    """
    tell = begin()
    for kind in KINDS:
        after = kind.key
        while True:
            (rows,) = yield d.export_rows(kind.name, thread_id, after, PAGE)
            for row in rows:
                tell(_line(d, kind, row))
            if len(rows) < PAGE:
                break
            after = dict(zip(kind.key, rows[-1], strict=False))


@operation("write")
def import_rows(d: SqlDialect, thread_id: str, lines: Sequence[str]) -> Steps[None]:
    """Store rows of a thread; those that are there stay as they are.

    Trips: 1.
    Idempotent: yes.
    """
    rows = []
    for line in lines:
        ((name, row),) = json.loads(line).items()
        rows.append((name, _params(d, row)))
    yield d.import_rows(thread_id, rows)


def kind_of(line: str) -> str:
    """The kind of row in a line."""
    return line[2 : line.index('"', 2)]


def key_of_checkpoint(line: str) -> tuple[str, str]:
    """The namespace and the id in a line with a checkpoint."""
    row = json.loads(line)["checkpoint"]
    return row["checkpoint_ns"], row["checkpoint_id"]


def _line(d: SqlDialect, kind: Kind, row: Row) -> str:
    cells: dict[str, Any] = dict(zip((*kind.key, *kind.columns), row, strict=True))
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
