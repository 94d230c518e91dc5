"""Storing checkpoints and writes.

Must not know: SQL, connections, serializers (rows come encoded).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Literal

from langgraph_checkpoint_custom.encoding.encoded import Encoded
from langgraph_checkpoint_custom.engine.operation import Offload, RoundTrip, Steps, one_trip, operation
from langgraph_checkpoint_custom.errors import CheckpointConflict, CheckpointNotFound
from langgraph_checkpoint_custom.model.keys import CheckpointRow, Key, WriteRow
from langgraph_checkpoint_custom.operations.delta_history import HistoryRow, ancestor_rows
from langgraph_checkpoint_custom.operations.list_threads import thread_exists
from langgraph_checkpoint_custom.operations.writers import claim_lost
from langgraph_checkpoint_custom.sql.dialect import SqlDialect


@operation("write", checks_first=True)
def put(
    d: SqlDialect, encoded: Encoded, *, only_newest: bool = False, even_if_hidden: bool = False
) -> Steps[Encoded | None]:
    """Store a checkpoint with its new values; returns it as it was stored.

    If a `DeltaChannel` needs the parent and that is hidden, nothing is stored and the result is None, unless
    `even_if_hidden`: `put_on_hidden` stores it.

    Round trips: 1; on SQLite, where they do not cross a network, 2 if it refers to blobs or to its parent, has a claim
        or must be the newest. One more if a blob that it refers to was deleted, because the thread was pruned or
        deleted while the run continued; the value is then stored again from the checkpoint itself. One more if a large
        checkpoint needs the parent's row first.
    Rows: one checkpoint, one blob for each new value that is not inline; `value` in bytes, no upper bound.
    Idempotent: by (thread_id, checkpoint_ns, checkpoint_id); a repeat replaces the checkpoint.
    Raises: ClaimLost if it has a claim that is not held any more; CheckpointConflict with `only_newest` if the parent
        is not the newest checkpoint of its namespace; CheckpointNotFound if a `DeltaChannel` needs the parent, and
        that was pruned or deleted.
    Source: BaseCheckpointSaver.put.
    """
    if encoded.is_unfinished:
        (rows,) = yield d.ask("select_blobs_of", **_parent(encoded.row)._asdict())
        names = [d.names(name) for name in rows[0]] if rows else ((), ())
        finished = encoded.on_parent(dict(zip(*names, strict=True)))
        whole: Encoded = (yield finished) if isinstance(finished, Offload) else finished
        encoded = whole
    if encoded.needs_no_row and not only_newest:
        yield d.insert_checkpoint(encoded.row)
        return encoded
    while problems := (yield from _store(d, encoded, only_newest=only_newest, even_if_hidden=even_if_hidden)):
        if newer := problems.get("newer"):
            raise _conflict(encoded.row, newer[0])
        if "claim" in problems:
            raise claim_lost(encoded.row.thread_id)
        if "parent" in problems:
            raise _pruned(encoded.row, encoded.replayed)
        if "hidden parent" in problems:
            return None
        again = encoded.without(problems["value"])
        encoded = (yield again) if isinstance(again, Offload) else again
    return encoded


def _store(
    d: SqlDialect, encoded: Encoded, *, only_newest: bool, even_if_hidden: bool
) -> Steps[Mapping[str, Sequence[str]]]:
    """Store a checkpoint and its blobs; if there are problems, return their names by kind, see `find_problems`."""
    problems: dict[str, list[str]] = {}
    if d.finds_and_stores or encoded.references or encoded.replayed or encoded.claim or only_newest:
        (rows,) = yield d.find_problems(encoded, only_newest=only_newest, even_if_hidden=even_if_hidden)
        for kind, name in rows:
            problems.setdefault(kind, []).append(name)
    optional = problems.pop("optional", ())
    if not (problems or d.finds_and_stores):
        yield d.store_checked(encoded, optional)
    return problems


@operation("transaction")
def put_on_hidden(d: SqlDialect, encoded: Encoded, *, only_newest: bool = False) -> Steps[Encoded]:
    """Store a checkpoint whose parent is hidden, with its new values; returns it as it was stored.

    It may need ancestors that no visible checkpoint needs. One transaction holds the thread's lock from when they are
    read until the checkpoint is stored, because a prune in between could delete them.

    Round trips: 3, with the end of the transaction; and as `put` for blobs and for the parent's row.
    Rows: as `put`, and what is read for the history of the parent.
    Idempotent: as `put`.
    Raises: as `put`; CheckpointNotFound also if an ancestor of the parent is needed and was pruned or deleted.
    """
    lock: Literal["exclusive", "shared"] = "exclusive" if only_newest else "shared"  # What `put` takes as well.
    parent = _parent(encoded.row)._asdict()
    (rows,) = yield d.ask("select_delta_history", lock=lock, **parent, asked=d.array(encoded.replayed))
    _, lost = ancestor_rows(d, encoded.replayed, [HistoryRow._make(row) for row in rows if row[0]])
    if lost:
        raise _pruned(encoded.row, lost)
    stored = yield from put(d, encoded, only_newest=only_newest, even_if_hidden=True).start()
    assert stored is not None
    return stored


def _conflict(row: CheckpointRow, newest: str) -> CheckpointConflict:
    return CheckpointConflict(
        f"checkpoint {row.checkpoint_id!r} of thread {row.thread_id!r}, namespace {row.checkpoint_ns!r}, continues "
        f"from {row.parent_id!r}, but another run has since stored {newest!r}; nothing was stored. Run again from that"
    )


def _parent(row: CheckpointRow) -> Key:
    return Key(row.thread_id, row.checkpoint_ns, row.parent_id)


def _pruned(row: CheckpointRow, channels: Sequence[str]) -> CheckpointNotFound:
    return CheckpointNotFound(
        f"checkpoint {row.checkpoint_id!r} continues from {row.parent_id!r}, whose channels "
        f"{', '.join(map(repr, channels))} cannot be rebuilt, because it or one of its ancestors was pruned or deleted "
        f"concurrently; nothing was stored. Start again from the newest checkpoint of thread {row.thread_id!r}"
    )


@operation("write", checks_first=True)
def put_writes(d: SqlDialect, key: Key, rows: Sequence[WriteRow], claim: str | None) -> Steps[None]:
    """Store the outputs of a task.

    Round trips: 1, or 0 if `rows` is empty.
    Rows: one WriteRow per write; `value` in bytes, no upper bound.
    Idempotent: by (thread_id, checkpoint_ns, checkpoint_id, task_id, idx); regular writes keep the first value,
        special ones the last.
    Raises: ClaimLost if they have a claim that is not held any more; NameTooLong from PostgreSQL.
    Source: BaseCheckpointSaver.put_writes; WRITES_IDX_MAP; writes_sort_key.
    """
    if rows:
        reply = yield d.insert_writes(key, rows, claim)
        if claim is not None and reply[-1]:
            raise claim_lost(key.thread_id)


@operation("transaction")
def store_part(
    d: SqlDialect,
    thread_id: str,
    checkpoints: Sequence[Callable[[], Encoded]],
    remember: Callable[[Encoded], object],
    rest: Sequence[RoundTrip],
    *,
    follows: bool,
    only_newest: bool = False,
) -> Steps[bool]:
    """Store checkpoints of a thread and other rows of it; return whether they were stored.

    Args:
        d: The dialect.
        thread_id: The thread.
        checkpoints: Functions that encode the checkpoints: each one after the one before was stored.
        remember: Called with each stored checkpoint that is more than one row.
        rest: What stores the other rows.
        follows: Whether the thread has to exist, because a part of it was stored before. If somebody has deleted it
            since, nothing is stored.
        only_newest: As for `put`.

    Round trips: on PostgreSQL one for the lock; one if it follows; one, and those of `put` for each checkpoint that is
        more than one row.
    Idempotent: yes.
    Raises: as `put`.
    """
    yield d.ask(lock="exclusive", thread_id=thread_id)
    if follows and not (yield from thread_exists(d, thread_id).start()):
        return False
    trips: list[RoundTrip] = []
    for encode in checkpoints:
        encoded = encode()
        if encoded.needs_no_row and not only_newest:
            trips.append(d.insert_checkpoint(encoded.row))
            continue
        if trips:
            yield one_trip(trips)
            trips = []
        stored = yield from put(d, encoded, only_newest=only_newest).start()
        remember(stored or (yield from put_on_hidden(d, encoded, only_newest=only_newest).start()))
    if trips := [*trips, *rest]:
        yield one_trip(trips)
    return True
