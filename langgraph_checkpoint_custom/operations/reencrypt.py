"""Encrypting stored rows again during live traffic: with another key, or for the first time.

Must not know: SQL, connections. No objects are made of stored values: only the bytes are decrypted and encrypted.

Each page of rows is read, and a row is replaced if it still has the bytes that were read. Rows that runs store
concurrently have the new key anyway. Rows of a copy or a fork have the bytes of their source, and may be inserted
before the current page. So all rows are read again until a pass changes none. A row that cannot be decrypted stays as
it is and is reported.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from langgraph_checkpoint_custom.encoding.extensions import UnreadableValue
from langgraph_checkpoint_custom.encoding.values import ValueCodec
from langgraph_checkpoint_custom.engine.operation import Operations, Steps, offload, operation
from langgraph_checkpoint_custom.errors import CorruptCheckpoint
from langgraph_checkpoint_custom.model.filter import hide
from langgraph_checkpoint_custom.model.keys import flag
from langgraph_checkpoint_custom.operations.list_threads import dialects_of_tenants
from langgraph_checkpoint_custom.operations.rows import (
    CHECKPOINTS,
    WITH_VALUES,
    Kind,
    Row,
    Start,
    page_of_rows,
    starts,
    values_of,
)
from langgraph_checkpoint_custom.sql.dialect import SqlDialect

# Passes over all rows at most. While another process stores rows with the old key, each pass would find some.
PASSES = 10

# Unreadable rows that are reported at most.
UNREADABLE = 100


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
    """What was found on a page, the parameters of each row to replace, and where the next page starts, if it does."""

    renewal: Renewal
    changes: Sequence[Row]
    after: Start | None


@operation("read")
def reencrypt_page(d: SqlDialect, codec: ValueCodec, kind: Kind, start: Start) -> Steps[PageDone]:
    """Encrypt those rows of a page again that are not stored as they would be now, without storing them.

    On SQLite, a write would keep others waiting for that long.

    Round trips: 1.
    """
    rows, size, after = yield from page_of_rows(d, kind, start)
    changes, unreadable = yield from offload(size, _changes, d, codec, kind, rows)
    return PageDone(Renewal(len(rows), len(changes), unreadable), changes, after)


@operation("write")
def renew_rows(d: SqlDialect, kind: Kind, changes: Sequence[Row]) -> Steps[None]:
    """Replace rows that still have the bytes that were read.

    Round trips: 1.
    Idempotent: yes.
    """
    yield d.ask_each(f"renew_stored_{kind.name}", changes)


def reencryption(
    d: SqlDialect, codec: ValueCodec, *, dry_run: bool, progress: Callable[[int], None], tenants: bool
) -> Operations[Renewal]:
    """Yield the operations of `reencrypt`, page after page. The caller runs each one and sends its result back."""
    flag("dry_run", dry_run)
    before = renewed = 0
    unreadable: list[CorruptCheckpoint] = []
    for own in (yield from dialects_of_tenants(d, tenants, must_be_all=True)):
        seen = 0
        for _ in range(PASSES):
            rows, at_first = 0, renewed
            corrupt: list[CorruptCheckpoint] = []  # Further passes read the same rows.
            for kind in WITH_VALUES:
                for start in starts(own, kind):
                    after: Start | None = start
                    while after is not None:
                        found: PageDone = yield reencrypt_page(own, codec, kind, after)
                        page, after = found.renewal, found.after
                        if found.changes and not dry_run:
                            yield renew_rows(own, kind, found.changes)
                        rows, renewed = rows + page.rows, renewed + page.renewed
                        corrupt += page.unreadable[: UNREADABLE - len(corrupt)]
                        seen = max(seen, rows)
                        progress(before + seen)
            if dry_run or renewed == at_first:
                break
        before += rows
        unreadable = [*unreadable, *corrupt][:UNREADABLE]
    return Renewal(before, renewed, unreadable)


def _changes(
    d: SqlDialect, codec: ValueCodec, kind: Kind, rows: Sequence[Row]
) -> tuple[Sequence[Row], Sequence[CorruptCheckpoint]]:
    """Return the parameters for each row that has to be replaced, and the errors of rows that cannot be decrypted."""
    changes, unreadable = [], []
    for row in rows:
        try:
            changed = _changed(codec, kind, row)
        except UnreadableValue as error:
            unreadable.append(
                CorruptCheckpoint(
                    f"a stored value{f' of tenant {d.tenant!r}' if d.tenant else ''} cannot be read: {error}",
                    thread_id=row["thread_id"],
                    checkpoint_ns=row["checkpoint_ns"],
                    checkpoint_id=row.get("checkpoint_id", ""),
                    channel=row.get("channel", "checkpoint"),
                    type=None,
                )
            )
            continue
        if changed:
            changes.append({"thread_id": row["thread_id"], **{name: row[name] for name in kind.key}, **changed})
    return changes, unreadable


def _changed(codec: ValueCodec, kind: Kind, row: Row) -> Row:
    """Return the new and the old values of a row; empty if it does not change."""
    values = values_of(kind, row)
    renewed = [codec.renewed(row[each.type], bytes(row[each.bytes]), each.location) for each in values]
    changed: dict[str, Any] = {}
    if kind is CHECKPOINTS:
        shown = json.loads(row["metadata_filter"])
        hidden = shown if codec.plaintext_keys is None else hide(shown, codec.plaintext_keys)
        if hidden == shown and not any(renewed):
            return {}
        changed["metadata_filter"] = json.dumps(hidden, separators=(",", ":"))
    elif not any(renewed):
        return {}
    for each, new in zip(values, renewed, strict=True):
        old = row[each.type], row[each.bytes]
        changed[each.type], changed[each.bytes] = new or old
        changed[f"old_{each.bytes}"] = old[1]
    return changed
