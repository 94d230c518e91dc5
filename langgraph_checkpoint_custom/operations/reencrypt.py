"""Storing old rows anew: with another key, or encrypted for the first time, while runs go on.

Must not know: SQL, connections. No object is made of what is stored: only its bytes are decrypted and encrypted.

Each page is read, and a row is replaced if its bytes are still those that were read. What runs store meanwhile has the
new key anyway; a copy or a fork has what it was made of, and may come where the walk has been. So it goes through all
rows again until there is nothing left to do. A row that cannot be decrypted stays as it is and is reported.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Generator, Mapping, Sequence
from typing import Any, NamedTuple

from langgraph_checkpoint_custom.encoding.objects import UnreadableValue
from langgraph_checkpoint_custom.encoding.values import Stored, Values
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
from langgraph_checkpoint_custom.operations.list_threads import everybody
from langgraph_checkpoint_custom.sql.dialect import SqlDialect

# Rows a page: their values are in memory twice.
PAGE = 50

# Times that all rows are looked at, at most: as long as somebody stores with the old key, there is always one more.
PASSES = 10

# Rows that are reported at most.
UNREADABLE = 100

Key = Mapping[str, Any]


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
    """What was done with a page, and the key to go on behind, or None if it was the last."""

    renewal: Renewal
    after: Key | None


class Table(NamedTuple):
    """How the rows of a table are read and told apart.

    Attributes:
        name: Its name in the statements.
        first: A key that comes before every row's.
        changed: The new parameters of a row, given its values; empty if it need not be stored anew.
        channel: What to call a row in an error.
    """

    name: str
    first: Key
    changed: Callable[[Values, Row], Mapping[str, Any]]
    channel: Callable[[Row], str]


def _checkpoint(codec: Values, row: Row) -> Mapping[str, Any]:
    _, checkpoint_ns, checkpoint_id, type_, document, type2, metadata, projection = row
    stored = _renewed(codec, type_, document, location_of_checkpoint(checkpoint_ns, checkpoint_id))
    stored2 = _renewed(codec, type2, metadata, location_of_metadata(checkpoint_ns, checkpoint_id))
    plaintext_keys = json.loads(projection)
    hidden = plaintext_keys if codec.plaintext_keys is None else hide(plaintext_keys, codec.plaintext_keys)
    if stored is None and stored2 is None and hidden == plaintext_keys:
        return {}
    new, new2 = stored or Stored(type_, document), stored2 or Stored(type2, metadata)
    return {
        "checkpoint_type": new.type,
        "checkpoint": new.value,
        "metadata_type": new2.type,
        "metadata": new2.value,
        "metadata_filter": json.dumps(hidden, separators=(",", ":")),
        "old_checkpoint": document,
        "old_metadata": metadata,
    }


def _blob(codec: Values, row: Row) -> Mapping[str, Any]:
    _, checkpoint_ns, channel, version, type_, value, names = row
    location = location_of_blob(checkpoint_ns, channel, version)
    return _value(codec, type_, value, location if names is None else (*location, names))


def _write(codec: Values, row: Row) -> Mapping[str, Any]:
    _, checkpoint_ns, checkpoint_id, task_id, idx, channel, type_, value = row
    return _value(codec, type_, value, location_of_write(checkpoint_ns, checkpoint_id, task_id, idx, channel))


def _value(codec: Values, type_: str, value: bytes, location: Location) -> Mapping[str, Any]:
    stored = _renewed(codec, type_, value, location)
    return {} if stored is None else {**stored._asdict(), "old_value": value}


def _renewed(codec: Values, type_: str, value: bytes, location: Location) -> Stored | None:
    return codec.renewed(type_, bytes(value), location)


_CHECKPOINT = {"thread_id": "", "checkpoint_ns": "", "checkpoint_id": ""}
TABLES = (
    Table("checkpoint", _CHECKPOINT, _checkpoint, lambda row: "checkpoint"),
    Table("blob", {"thread_id": "", "checkpoint_ns": "", "channel": "", "version": ""}, _blob, lambda row: str(row[2])),
    Table("write", {**_CHECKPOINT, "task_id": "", "idx": -(2**31)}, _write, lambda row: str(row[5])),
)


@operation("write")
def reencrypt_page(d: SqlDialect, codec: Values, table: Table, after: Key, dry_run: bool) -> Steps[PageDone]:
    """Store a page of rows anew that were not stored as they would be now, or only count them.

    Trips: 2, or 1 if there are none, or they are only counted.
    Idempotent: yes.
    """
    (rows,) = yield d.stored_rows(table.name, after, PAGE)
    size = sum(len(cell) for row in rows for cell in row if isinstance(cell, (bytes, memoryview)))
    changes, unreadable = yield from offload(size, _changes, d, codec, table, rows)
    if changes and not dry_run:
        yield d.renew_rows(table.name, changes)
    last = key_of_row(d, table, rows[-1]) if len(rows) == PAGE else None
    return PageDone(Renewal(len(rows), len(changes), unreadable), last)


def reencryption(
    d: SqlDialect, codec: Values, *, dry_run: bool, progress: Callable[[int], None], tenants: bool
) -> Generator[Operation[Any], Any, Renewal]:
    """The operations of `reencrypt`, page after page; each is to be run and answered with its result."""
    flag("dry_run", dry_run)
    done = Renewal(0, 0, [])
    for each in (yield from everybody(d, tenants)):
        before = done.rows
        found = yield from _reencryption(each, codec, dry_run, progress, before)
        unreadable = [*done.unreadable, *found.unreadable][:UNREADABLE]
        done = Renewal(before + found.rows, done.renewed + found.renewed, unreadable)
    return done


def _reencryption(
    d: SqlDialect, codec: Values, dry_run: bool, progress: Callable[[int], None], before: int
) -> Generator[Operation[PageDone], PageDone, Renewal]:
    """The operations for the rows of one tenant, or of none."""
    seen = renewed = 0
    for _ in range(PASSES):
        rows, at_first = 0, renewed
        unreadable: list[CorruptCheckpoint] = []
        for table in TABLES:
            after: Key | None = table.first
            while after is not None:
                page, after = yield reencrypt_page(d, codec, table, after, dry_run)
                rows, renewed = rows + page.rows, renewed + page.renewed
                unreadable += page.unreadable[: UNREADABLE - len(unreadable)]
                seen = max(seen, rows)  # Another pass looks at the same rows: nothing that is to be told again.
                progress(before + seen)
        if dry_run or renewed == at_first:
            break
    return Renewal(rows, renewed, unreadable)


def _changes(
    d: SqlDialect, codec: Values, table: Table, rows: Sequence[Row]
) -> tuple[Sequence[Mapping[str, Any]], Sequence[CorruptCheckpoint]]:
    """The parameters of each row that has to be stored anew, and what cannot be read."""
    changes, unreadable = [], []
    for row in rows:
        key = key_of_row(d, table, row)
        try:
            changed = table.changed(codec, row)
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


def key_of_row(d: SqlDialect, table: Table, row: Row) -> Key:
    """The key of a row of `stored_rows`."""
    key = dict(zip(table.first, row, strict=False))
    return {**key, "thread_id": d.own_thread_id(key["thread_id"])}
