"""Encrypting stored rows again during live traffic: with another key, or for the first time.

Must not know: SQL, connections. No objects are made of stored values: only the bytes are decrypted and encrypted.

Each page of rows is read, and a row is replaced if it still has the bytes that were read. Rows that runs store
concurrently have the new key anyway. Rows of a copy or a fork have the bytes of their source, and may be inserted
before the current page. So all rows are read again until a pass changes none. A row that cannot be decrypted stays as
it is and is reported.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Generator, Mapping, Sequence
from typing import Any, NamedTuple

from langgraph_checkpoint_custom.encoding.extensions import UnreadableValue
from langgraph_checkpoint_custom.encoding.values import ValueCodec
from langgraph_checkpoint_custom.engine.operation import Operation, Row, Steps, offload, operation
from langgraph_checkpoint_custom.errors import CorruptCheckpoint
from langgraph_checkpoint_custom.model.filter import hide
from langgraph_checkpoint_custom.model.keys import (
    Location,
    flag,
    location_of_blob,
    location_of_checkpoint,
    location_of_metadata,
    location_of_write,
)
from langgraph_checkpoint_custom.model.pages import FIRST, rows_after
from langgraph_checkpoint_custom.operations.list_threads import dialects_of_tenants
from langgraph_checkpoint_custom.sql.dialect import SqlDialect

# Passes over all rows at most. While another process stores rows with the old key, each pass would find some.
PASSES = 10

# Unreadable rows that are reported at most.
UNREADABLE = 100

Key = Mapping[str, Any]


class Start(NamedTuple):
    """Where a page starts: after a key; and the number of its rows, whose values are in memory twice."""

    key: Key
    rows: int

    def after(self, key: Key, rows: int, size: int) -> Start | None:
        """Return where the next page starts, given the last key of this page, its rows and bytes; None at the end."""
        return Start(key, rows_after(rows, size)) if rows == self.rows else None


class Renewal(NamedTuple):
    """The result of `reencrypt`: how many rows it read and stored again, and those that no key decrypts.

    Attributes:
        rows: Rows that were read.
        renewed: Rows that were stored again, or that a dry run would store again.
        unreadable: Errors for up to 100 rows that no key decrypts.
    """

    rows: int
    renewed: int
    unreadable: Sequence[CorruptCheckpoint]


class PageDone(NamedTuple):
    """What was done with a page, and where the next page starts; None if it was the last page."""

    renewal: Renewal
    after: Start | None


Cell = tuple[str, bytes, Location]
"""A stored value: its type, its bytes and its location."""


class Table(NamedTuple):
    """How the rows of a table are read.

    Attributes:
        name: Its name in the statements.
        first: A key that sorts before the key of every row.
        cells: Returns the stored values of a row.
        channel: Returns the name of a row in an error.
    """

    name: str
    first: Key
    cells: Callable[[Row], Sequence[Cell]]
    channel: Callable[[Row], str]

    def starts(self, d: SqlDialect) -> list[Start]:
        """Return where the rows of a tenant start, for each range of their thread ids."""
        return [Start({**self.first, "thread_id": d.own_thread_id(each.bottom)}, FIRST) for each in d.ranges()]


def _checkpoint(row: Row) -> Sequence[Cell]:
    _, *place, type_, document, type2, metadata, _ = row
    return (type_, document, location_of_checkpoint(*place)), (type2, metadata, location_of_metadata(*place))


def _blob(row: Row) -> Sequence[Cell]:
    _, *name, type_, value, chunks = row
    location = location_of_blob(*name)
    return [(type_, value, location if chunks is None else (*location, chunks))]


def _write(row: Row) -> Sequence[Cell]:
    _, *name, type_, value = row
    return [(type_, value, location_of_write(*name))]


_CHECKPOINT = {"thread_id": "", "checkpoint_ns": "", "checkpoint_id": ""}
TABLES = (
    Table("checkpoint", _CHECKPOINT, _checkpoint, lambda row: "checkpoint"),
    Table("blob", {"thread_id": "", "checkpoint_ns": "", "channel": "", "version": ""}, _blob, lambda row: str(row[2])),
    Table("write", {**_CHECKPOINT, "task_id": "", "idx": -(2**31)}, _write, lambda row: str(row[5])),
)


@operation("write")
def reencrypt_page(d: SqlDialect, codec: ValueCodec, table: Table, start: Start, dry_run: bool) -> Steps[PageDone]:
    """Encrypt those rows of a page again that are not stored as they would be now; with `dry_run`, only count them.

    Round trips: 2, or 1 if there are no such rows, or with `dry_run`.
    Idempotent: yes.
    """
    (rows,) = yield d.stored_rows(table.name, *start)
    size = size_of(rows)
    changes, unreadable = yield from offload(size, _changes, d, codec, table, rows)
    if changes and not dry_run:
        yield d.ask_each(f"renew_stored_{table.name}", changes)
    after = start.after(key_of_row(d, table, rows[-1]), len(rows), size) if rows else None
    return PageDone(Renewal(len(rows), len(changes), unreadable), after)


def size_of(rows: Sequence[Row]) -> int:
    """Return the number of bytes of the values in rows."""
    return sum(len(cell) for row in rows for cell in row if isinstance(cell, (bytes, memoryview)))


def reencryption(
    d: SqlDialect, codec: ValueCodec, *, dry_run: bool, progress: Callable[[int], None], tenants: bool
) -> Generator[Operation[Any], Any, Renewal]:
    """Yield the operations of `reencrypt`, page after page. The caller runs each one and sends its result back."""
    flag("dry_run", dry_run)
    done = Renewal(0, 0, [])
    for each in (yield from dialects_of_tenants(d, tenants)):
        before = done.rows
        found = yield from _reencryption(each, codec, dry_run, progress, before)
        unreadable = [*done.unreadable, *found.unreadable][:UNREADABLE]
        done = Renewal(before + found.rows, done.renewed + found.renewed, unreadable)
    return done


def _reencryption(
    d: SqlDialect, codec: ValueCodec, dry_run: bool, progress: Callable[[int], None], before: int
) -> Generator[Operation[PageDone], PageDone, Renewal]:
    """Yield the operations for the rows of one tenant, or for the rows without a tenant."""
    seen = renewed = 0
    for _ in range(PASSES):
        rows, at_first = 0, renewed
        unreadable: list[CorruptCheckpoint] = []
        for table in TABLES:
            for start in table.starts(d):
                after: Start | None = start
                while after is not None:
                    page, after = yield reencrypt_page(d, codec, table, after, dry_run)
                    rows, renewed = rows + page.rows, renewed + page.renewed
                    unreadable += page.unreadable[: UNREADABLE - len(unreadable)]
                    seen = max(seen, rows)  # Further passes read the same rows, which were reported already.
                    progress(before + seen)
        if dry_run or renewed == at_first:
            break
    return Renewal(rows, renewed, unreadable)


def _changes(
    d: SqlDialect, codec: ValueCodec, table: Table, rows: Sequence[Row]
) -> tuple[Sequence[Mapping[str, Any]], Sequence[CorruptCheckpoint]]:
    """Return the parameters of each row that has to be replaced, and the errors of rows that cannot be decrypted."""
    changes, unreadable = [], []
    for row in rows:
        key = key_of_row(d, table, row)
        try:
            changed = _changed(codec, table, row)
        except UnreadableValue as error:
            unreadable.append(
                CorruptCheckpoint(
                    f"a stored value{f' of tenant {d.tenant!r}' if d.tenant else ''} cannot be read: {error}",
                    thread_id=key["thread_id"],
                    checkpoint_ns=key["checkpoint_ns"],
                    checkpoint_id=key.get("checkpoint_id", ""),
                    channel=table.channel(row),
                    type=None,
                )
            )
            continue
        if changed:
            changes.append({**key, **changed})
    return changes, unreadable


def _changed(codec: ValueCodec, table: Table, row: Row) -> Mapping[str, Any]:
    """Return the new and the old values of a row; empty if it does not change."""
    cells = table.cells(row)
    renewed = [codec.renewed(type_, bytes(value), location) for type_, value, location in cells]
    changed: dict[str, Any] = {}
    if table.name == "checkpoint":
        shown = json.loads(row[-1])
        hidden = shown if codec.plaintext_keys is None else hide(shown, codec.plaintext_keys)
        if hidden == shown and not any(renewed):
            return {}
        changed["metadata_filter"] = json.dumps(hidden, separators=(",", ":"))
    elif not any(renewed):
        return {}
    for number, ((type_, value, _), new) in enumerate(zip(cells, renewed, strict=True), 1):
        changed[f"type{number}"], changed[f"value{number}"] = new or (type_, value)
        changed[f"old{number}"] = value
    return changed


def key_of_row(d: SqlDialect, table: Table, row: Row) -> Key:
    """Return the key of a row of `stored_rows`."""
    key = dict(zip(table.first, row, strict=False))
    return {**key, "thread_id": d.own_thread_id(key["thread_id"])}
