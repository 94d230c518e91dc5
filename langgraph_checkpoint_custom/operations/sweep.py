"""What a sweep reads of a thread, what it decides about it, and what it does.

Must not know: SQL, connections, the clock: times come as seconds since 1970.

`due.py` says which threads a sweep visits; `retention.py` has the sweep itself, and its dry run.
"""

from __future__ import annotations

import json
from collections.abc import Sequence, Set
from datetime import timezone
from hashlib import sha256
from typing import NamedTuple
from zlib import crc32

from langgraph_checkpoint_custom.encoding.decode import Decoder
from langgraph_checkpoint_custom.encoding.values import ValueCodec
from langgraph_checkpoint_custom.engine.operation import Row, Steps, offload, one_trip, operation
from langgraph_checkpoint_custom.model.filter import Condition, matches
from langgraph_checkpoint_custom.model.keys import Key
from langgraph_checkpoint_custom.model.outline import Outline, Place, Removal, superseded
from langgraph_checkpoint_custom.model.records import time_from
from langgraph_checkpoint_custom.operations.delete import DECISION_BYTES, remove, sends_for
from langgraph_checkpoint_custom.operations.due import WEEK
from langgraph_checkpoint_custom.operations.interrupts import waiting
from langgraph_checkpoint_custom.operations.sizes import ALL, SizeRow, Total
from langgraph_checkpoint_custom.sql.dialect import SqlDialect


class Policy(NamedTuple):
    """What is kept.

    Attributes:
        older_than: Seconds after which a thread in which nothing was stored is deleted.
        keep_last: The number of checkpoints of each namespace that are kept.
        wanted: The threads that are swept.
        keep_waiting: Whether a thread that waits for a human is kept after its time to live.
    """

    older_than: float | None
    keep_last: int | None
    wanted: Sequence[Condition]
    keep_waiting: bool

    def digest(self) -> str:
        """Return a text that another policy does not have, and that is the same in each process."""
        conditions = sorted((each.key, each.operator, sorted(each.texts)) for each in self.wanted)
        limits = self.older_than, self.keep_last, self.keep_waiting
        return sha256(json.dumps([limits, conditions]).encode()).hexdigest()[:32]


class Thread(NamedTuple):
    """What decides about a thread.

    Attributes:
        is_wanted: Whether the filter of the policy matches.
        is_labelled: Whether a checkpoint has a label.
        age: Seconds since LangGraph made its newest checkpoint; None if that cannot be read.
        ttl: Its own time to live in seconds, if it has one.
        strategy: "delete" or "keep_latest", when that is over.
        is_waiting: Whether a human is asked.
    """

    is_wanted: bool
    is_labelled: bool
    age: float | None
    ttl: float | None = None
    strategy: str | None = None
    is_waiting: bool = False


def fate(policy: Policy, thread: Thread, wait: float) -> tuple[int | None, float]:
    """Return how many checkpoints of each namespace remain, and in how many seconds to visit it again, at most `wait`.

    None means all checkpoints, 0 none.
    """
    keep = policy.keep_last if thread.is_wanted else None
    limit = policy.older_than if thread.ttl is None else thread.ttl
    if limit is None or thread.age is None:
        return keep, wait
    if thread.ttl is None and not thread.is_wanted:  # A run may store metadata that the filter matches.
        return keep, min(wait, limit)
    if thread.age <= limit:
        return keep, min(wait, limit - thread.age)
    if thread.ttl is None:
        keep = 1 if thread.is_labelled else 0
    elif not (thread.is_waiting and policy.keep_waiting):
        keep = 1 if thread.strategy == "keep_latest" else 0
    return keep, min(wait, limit)


class Outcome(NamedTuple):
    """What was done to a thread, or would be: the first columns of `Swept`.

    Attributes:
        examined: Whether the policy applies to it.
        deleted: Whether it was deleted.
        checkpoints: The number of checkpoints that were deleted, or are now hidden.
        freed: The bytes of the values that were deleted.
    """

    examined: bool = False
    deleted: bool = False
    checkpoints: int = 0
    freed: int = 0


@operation("exclusive")
def sweep_thread(d: SqlDialect, codec: ValueCodec, thread_id: str, policy: Policy, now: float) -> Steps[Outcome]:
    """Delete what a policy does not keep of a thread, and say when to visit it again.

    Round trips: 3, with the end of the transaction, for a thread that stays as it is; one more if its time decides, and
        one more if its metadata does. If something is deleted, one more than that, and then as `prune_thread`.
    Rows: all checkpoints of the thread, without values.
    Idempotent: yes.
    """
    rows, labels, arming = yield d.select_for_sweep(thread_id)
    seen = arming[0][0] if arming else None
    found = yield from _decide(d, codec, thread_id, policy, now, rows, labels, arming)
    if found is None:
        yield d.drop_thread(thread_id)
        return Outcome()
    outline, thread, keep, wait = found
    removal, removed = yield from offload(len(rows) * DECISION_BYTES, _removal, outline, keep)
    if not (removal.gone or removal.hidden):
        yield d.rearm_thread(thread_id, now + wait, seen)
        return Outcome(_applies(thread))
    sizes = d.ask("sizes", **d.only(thread_id)._asdict(), most=ALL).statements
    more = d.ask("delete_all_writes", thread_id=thread_id).statements if keep == 0 else ()
    (before,) = yield from remove(d, thread_id, removal, first=sizes, more=more)
    again = d.rearm_thread(thread_id, now + wait, seen)
    *_, after = yield again._replace(statements=[*(again.statements if keep else ()), *sizes])
    # If a run has stored its next checkpoint meanwhile, the thread stays, and is visited again.
    return Outcome(_applies(thread), not after, removed, max(0, _bytes(before) - _bytes(after)))


@operation("read")
def look_at_thread(d: SqlDialect, codec: ValueCodec, thread_id: str, policy: Policy, now: float) -> Steps[Outcome]:
    """Return what `sweep_thread` would do. Only the bytes of threads that it would delete are counted.

    Round trips: 1; one more if its time or its metadata decides, and one more if it would be deleted.
    Rows: all checkpoints of the thread, without values.
    """
    rows, labels, arming = yield d.read_for_sweep(thread_id)
    found = yield from _decide(d, codec, thread_id, policy, now, rows, labels, arming)
    if found is None:
        return Outcome()
    outline, thread, keep, _ = found
    _, removed = yield from offload(len(rows) * DECISION_BYTES, _removal, outline, keep)
    freed = 0
    if keep == 0:
        (sizes,) = yield d.ask("sizes", **d.only(thread_id)._asdict(), most=ALL)
        freed = _bytes(sizes)
    return Outcome(_applies(thread), keep == 0, removed, freed)


def _applies(thread: Thread) -> bool:
    return thread.is_wanted or thread.ttl is not None


def _decide(
    d: SqlDialect,
    codec: ValueCodec,
    thread_id: str,
    policy: Policy,
    now: float,
    rows: Sequence[Row],
    labels: Sequence[Row],
    arming: Sequence[Row],
) -> Steps[tuple[Outline, Thread, int | None, float] | None]:
    """Return the outline of a thread, what decides about it, and its `fate`; None if it has no checkpoint."""
    sends = yield from sends_for(d, thread_id, rows)
    places = {name: (checkpoint_ns, checkpoint_id) for name, checkpoint_ns, checkpoint_id in labels}
    outline = yield from offload(len(rows) * DECISION_BYTES, Outline, rows, places, sends)
    namespaces = {name: ids for name in sorted(outline.namespaces) if (ids := outline.visible(name))}
    if not namespaces:
        return None
    _, ttl, strategy = arming[0] if arming else (0.0, None, None)
    age = None
    if ttl is not None or policy.older_than is not None:
        newest = max(((ids[-1], name) for name, ids in namespaces.items()))
        time = yield from _time_of(d, codec, Key(thread_id, newest[1], newest[0]))
        age = None if time is None else max(0.0, now - time)
    is_wanted = True
    if policy.wanted:
        first = min(namespaces)
        is_wanted = yield from _matches(d, codec, Key(thread_id, first, namespaces[first][-1]), policy.wanted)
    is_waiting = False
    if policy.keep_waiting and ttl is not None and age is not None and age > ttl and "" in namespaces:
        is_waiting = yield from _waits(d, codec, Key(thread_id, "", namespaces[""][-1]))
    thread = Thread(is_wanted, bool(labels), age, ttl, strategy, is_waiting)
    wait = WEEK * (1 - crc32(thread_id.encode()) / 2**33)  # Not all threads in the same hour.
    return outline, thread, *fate(policy, thread, wait)


def _removal(outline: Outline, keep: int | None) -> tuple[Removal, int]:
    """Return what goes if a number of checkpoints is kept, and how many of the checkpoints that are not hidden."""
    chosen: Set[Place] = set()
    if keep is not None:
        chosen = superseded(outline, keep) if keep else outline.rows.keys()
    return Removal(outline, chosen), sum(not outline.rows[place].hidden for place in chosen)


def _time_of(d: SqlDialect, codec: ValueCodec, key: Key) -> Steps[float | None]:
    """Return when LangGraph made a checkpoint; None if its document has no time, or cannot be read.

    Round trips: 1.
    """
    (rows,) = yield d.select_document(key)
    try:
        ((type_, data),) = rows
        decoder = Decoder(codec, key.thread_id, key.checkpoint_ns, key.checkpoint_id or "")
        time = time_from(decoder.document_without_objects(type_, data).get("ts"))
    except Exception:  # The document cannot be read, for any reason.
        return None
    if time is None:
        return None
    return (time if time.tzinfo else time.replace(tzinfo=timezone.utc)).timestamp()


def _waits(d: SqlDialect, codec: ValueCodec, key: Key) -> Steps[bool]:
    """Return whether a checkpoint has an open interrupt, or one that cannot be read: then nobody knows.

    Round trips: 1.
    """
    writes, document = yield one_trip([d.ask("select_questions", **key._asdict()), d.select_document(key)])
    try:
        return bool(waiting(codec, [(key.checkpoint_id or "", key.thread_id)], [writes], [document]))
    except Exception:  # CorruptCheckpoint, or any error of the user's serializer.
        return True


def _matches(d: SqlDialect, codec: ValueCodec, key: Key, wanted: Sequence[Condition]) -> Steps[bool]:
    """Return whether the metadata of a checkpoint matches a filter; metadata that cannot be read does not.

    Round trips: 1.
    """
    (rows,) = yield d.select_metadata(key)
    try:
        ((type_, data),) = rows
        metadata = Decoder(codec, key.thread_id, key.checkpoint_ns, key.checkpoint_id or "").metadata(type_, data)
    except Exception:  # CorruptCheckpoint, or any error of the user's serializer.
        return False
    return matches(metadata, wanted, contains=d.filter_contains)


def _bytes(sizes: Sequence[Row]) -> int:
    return Total(map(SizeRow._make, sizes)).bytes


# Threads that max_bytes may delete


class Prospect(NamedTuple):
    """A thread that `max_bytes` may delete.

    Attributes:
        newest: The id of its newest checkpoint of all namespaces.
        checkpoints: The number of checkpoints that are not hidden.
        labelled: Whether any has a label.
    """

    newest: str
    checkpoints: int
    labelled: bool


@operation("read")
def prospect(d: SqlDialect, thread_id: str) -> Steps[Prospect | None]:
    """Return what decides whether a thread can be deleted; None if it has no checkpoint.

    Round trips: 1.
    Rows: all checkpoints of the thread, without values.
    """
    rows, labels = yield d.read_outline(thread_id)

    def look() -> Prospect | None:
        outline = Outline(rows, {})
        ids = [row.checkpoint_id for row in outline.rows.values() if not row.hidden]
        return Prospect(max(ids), len(ids), bool(labels)) if ids else None

    return (yield from offload(len(rows) * DECISION_BYTES, look))
