"""What a sweep reads and does, one thread after the other, and how it knows at which threads to look.

Must not know: SQL, connections, the clock: times come as seconds since 1970.

A thread has a row in `threads`, with the time at which a sweep has to look at it again. A sweep looks at the threads
that are due, and, to keep a number of checkpoints, at those with new checkpoints. Whatever it keeps is due again after
a week at the latest, and once a week each thread gets a row that has none. So a thread that no rule has found is late
by a week, and never missed.

`retention.py` has the sweep itself, and its dry run.
"""

from __future__ import annotations

import json
from collections.abc import Sequence, Set
from datetime import datetime, timedelta, timezone
from hashlib import sha256
from typing import NamedTuple
from zlib import crc32

from langgraph_checkpoint_custom.encoding.decode import Decoder
from langgraph_checkpoint_custom.encoding.values import Values
from langgraph_checkpoint_custom.engine.operation import Row, Steps, offload, operation
from langgraph_checkpoint_custom.errors import CheckpointNotFound
from langgraph_checkpoint_custom.model.filter import Condition, matches
from langgraph_checkpoint_custom.model.keys import AFTER_ALL, Key, Range, right_above
from langgraph_checkpoint_custom.model.outline import Outline, Place, Removal, superseded
from langgraph_checkpoint_custom.model.records import SweepStatus, time_from
from langgraph_checkpoint_custom.operations.delete import BYTES, remove, sends_for
from langgraph_checkpoint_custom.operations.interrupts import open_interrupts
from langgraph_checkpoint_custom.operations.read import get_tuple
from langgraph_checkpoint_custom.operations.sizes import ThreadSize, sizes_of_threads
from langgraph_checkpoint_custom.sql.dialect import SqlDialect

# Seconds after which each thread is looked at again.
WEEK = 7 * 86_400.0
# Seconds: a checkpoint may be committed that long after its id was made, and clocks may differ by that much.
LATE = 3_600.0
# Threads that one statement arms, or lists.
ARMED = 10_000
# Threads that are due, for one statement.
DUE = 200
# New checkpoints, for one statement.
GROWN = 2_000


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


class LastSweep(NamedTuple):
    """What the sweeps of a tenant have done; `armed_at` is 0 if they have still to arm all threads."""

    policy: str
    armed_at: float
    started_at: float
    finished_at: float | None


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
    """Return how many checkpoints of each namespace remain, and in how many seconds to look again, at most `wait`.

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
def sweep_thread(d: SqlDialect, codec: Values, thread_id: str, policy: Policy, now: float) -> Steps[Outcome]:
    """Delete what a policy does not keep of a thread, and say when to look at it again.

    Round trips: 3, with the end of the transaction, for a thread that stays as it is; one more if its time or its
        metadata decides. As `prune_thread` and 2, if something is deleted.
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
    removal, removed = yield from offload(len(rows) * BYTES, _removal, outline, keep)
    if not (removal.gone or removal.hidden):
        yield d.rearm_thread(thread_id, now + wait, seen)
        return Outcome(_applies(thread))
    before = yield from _size(d, thread_id)
    more = d.ask("delete_all_writes", thread_id=thread_id).statements if keep == 0 else ()
    yield from remove(d, thread_id, removal, more=more)
    after = yield from _size(d, thread_id)
    # With a run's next checkpoint it stays, and is looked at again.
    is_gone = not any(after[1:])
    yield d.drop_thread(thread_id) if keep == 0 else d.rearm_thread(thread_id, now + wait, seen)
    return Outcome(_applies(thread), is_gone, removed, max(0, before.bytes - after.bytes))


@operation("read")
def look_at_thread(d: SqlDialect, codec: Values, thread_id: str, policy: Policy, now: float) -> Steps[Outcome]:
    """Return what `sweep_thread` would do. Only the bytes of threads that it would delete are counted.

    Round trips: 1; one more if its time or its metadata decides, and one more if it would be deleted.
    Rows: all checkpoints of the thread, without values.
    """
    rows, labels, arming = yield d.read_for_sweep(thread_id)
    found = yield from _decide(d, codec, thread_id, policy, now, rows, labels, arming)
    if found is None:
        return Outcome()
    outline, thread, keep, _ = found
    _, removed = yield from offload(len(rows) * BYTES, _removal, outline, keep)
    freed = (yield from _size(d, thread_id)).bytes if keep == 0 else 0
    return Outcome(_applies(thread), keep == 0, removed, freed)


def _applies(thread: Thread) -> bool:
    return thread.is_wanted or thread.ttl is not None


def _decide(
    d: SqlDialect,
    codec: Values,
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
    outline = yield from offload(len(rows) * BYTES, Outline, rows, places, sends)
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
    if policy.keep_waiting and ttl is not None and age is not None and age > ttl:
        newest_root = yield from get_tuple(d, codec, _no_version, None, Key(thread_id, "", None)).start()
        is_waiting = bool(open_interrupts(newest_root))
    thread = Thread(is_wanted, bool(labels), age, ttl, strategy, is_waiting)
    wait = WEEK * (1 - crc32(thread_id.encode()) / 2**33)  # Not all threads in the same hour.
    return outline, thread, *fate(policy, thread, wait)


def _no_version(*_: None) -> str:
    """Return a version for sends that are read from a parent's writes; nobody looks at it."""
    return "1"


def _removal(outline: Outline, keep: int | None) -> tuple[Removal, int]:
    """Return what goes if a number of checkpoints is kept, and how many of the checkpoints that are not hidden."""
    chosen: Set[Place] = set()
    if keep is not None:
        chosen = superseded(outline, keep) if keep else outline.rows.keys()
    return Removal(outline, chosen), sum(not outline.rows[place].hidden for place in chosen)


def _time_of(d: SqlDialect, codec: Values, key: Key) -> Steps[float | None]:
    """Return when LangGraph made a checkpoint; None if its document has no time, or cannot be read.

    Round trips: 1.
    """
    (rows,) = yield d.select_document(key)
    try:
        ((type_, data),) = rows
        decoder = Decoder(codec, key.thread_id, key.checkpoint_ns, key.checkpoint_id or "")
        time = time_from(decoder.outline(type_, data).get("ts"))
    except Exception:  # The document cannot be read, for any reason.
        return None
    if time is None:
        return None
    return (time if time.tzinfo else time.replace(tzinfo=timezone.utc)).timestamp()


def _matches(d: SqlDialect, codec: Values, key: Key, wanted: Sequence[Condition]) -> Steps[bool]:
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


def _size(d: SqlDialect, thread_id: str) -> Steps[ThreadSize]:
    sizes = yield from sizes_of_threads(d, [thread_id]).start()
    return sizes[thread_id].size


@operation("write")
def set_ttl(d: SqlDialect, thread_id: str, ttl_seconds: float | None, strategy: str | None) -> Steps[None]:
    """Store the time to live of a thread, or that it has none.

    Round trips: 1.
    Idempotent: yes.
    Raises: CheckpointNotFound.
    """
    (rows,) = yield d.set_ttl(thread_id, ttl_seconds, strategy)
    if not rows:
        raise CheckpointNotFound(f"thread {thread_id!r} has no checkpoint yet; call set_ttl() after its first run")


@operation("read")
def sweep_status(d: SqlDialect, now: float) -> Steps[SweepStatus]:
    """Return what the sweeps of a tenant have done, and what is due.

    Round trips: 1.
    Rows: up to 10,000 threads.
    """
    rows, ((overdue, since),) = yield d.sweep_status(now, ARMED)
    finished_at = LastSweep._make(rows[0]).finished_at if rows else None
    return SweepStatus(
        None if finished_at is None else datetime.fromtimestamp(finished_at, timezone.utc),
        overdue,
        timedelta(seconds=now - since if overdue else 0),
    )


# At which threads to look


@operation("read")
def last_sweep(d: SqlDialect) -> Steps[LastSweep | None]:
    """Return what the sweeps of a tenant have done; None if there was none.

    Round trips: 1.
    """
    (rows,) = yield d.select_sweep()
    return LastSweep._make(rows[0]) if rows else None


@operation("write")
def begin_policy(d: SqlDialect, policy: str) -> Steps[None]:
    """Store what the sweeps keep from now on. All threads have still to be armed.

    Round trips: 1.
    Idempotent: yes.
    """
    yield d.begin_policy(policy)


@operation("write")
def arm_page(d: SqlDialect, within: Range, *, again: bool) -> Steps[tuple[Sequence[str], Range | None]]:
    """Insert the rows of the first threads of a range that have none; with `again`, all of them are then due.

    Returns no thread, and the range that remains; None if nothing does.

    Round trips: 1.
    Rows: one of each of up to 10,000 threads, twice.
    Idempotent: yes.
    """
    ((number, last),), _ = yield d.arm_threads(within, ARMED, again=again)
    return (), within._replace(bottom=right_above(last)) if number == ARMED else None


@operation("write")
def note_armed(d: SqlDialect, policy: str, armed_at: float, started_at: float) -> Steps[None]:
    """Store that all threads are armed, and from when on there may be checkpoints that no sweep has seen.

    Round trips: 1.
    Idempotent: yes.
    """
    yield d.note_armed(policy, armed_at, started_at)


@operation("write")
def note_swept(d: SqlDialect, policy: str, started_at: float, finished_at: float) -> Steps[None]:
    """Store that a sweep has ended.

    If one with another policy has begun since, that may have found threads that were armed here. Then both begin anew.

    Round trips: 1; 2 after another policy.
    Idempotent: yes.
    """
    (rows,) = yield d.note_swept(policy, started_at, finished_at)
    if not rows:
        yield d.begin_policy("")


@operation("read")
def ids_page(d: SqlDialect, within: Range) -> Steps[tuple[Sequence[str], Range | None]]:
    """Return the first threads of a range, and the range that remains; None if nothing does.

    Round trips: 1.
    Rows: one of each of up to 10,000 threads.
    """
    (rows,) = yield d.thread_ids(within, ARMED)
    rest = within._replace(bottom=right_above(rows[-1][0])) if len(rows) == ARMED else None
    return [d.own_thread_id(stored) for (stored,) in rows], rest


Due = tuple[float, str]
"""When a thread is due, and the thread."""
BEFORE_ALL: Due = -1.0, ""


@operation("read")
def due_page(d: SqlDialect, now: float, after: Due) -> Steps[tuple[Sequence[str], Due | None]]:
    """Return the threads that are due, after another one, and the last of them; None if there are no more.

    Round trips: 1.
    Rows: up to 200 threads.
    """
    (rows,) = yield d.select_due(now, after, DUE)
    ids = [d.own_thread_id(stored) for stored, _ in rows]
    return ids, (rows[-1][1], ids[-1]) if len(rows) == DUE else None


# In time, LangGraph has made no id before. A UUIDv6 begins with its time.
_TICKS = 10_000_000  # A second.
_GREGORIAN = 12_219_292_800  # Seconds from 1582-10-15 to 1970.


def _first_id(time: float) -> str:
    """Return what is not above any UUIDv6 that is made from a time on."""
    ticks = int((time + _GREGORIAN) * _TICKS)
    return f"{ticks >> 28:08x}-{ticks >> 12 & 0xFFFF:04x}-6{ticks & 0xFFF:03x}-"


_FIRST_OF_LANGGRAPH = _first_id(1_577_836_800.0)  # 2020; LangGraph is younger.


class IdRange(NamedTuple):
    """The checkpoint ids from `bottom` to below `top`, after those of `bottom` itself up to a thread."""

    bottom: str
    top: str
    thread_id: str = ""


def grown_ranges(started_at: float) -> list[IdRange]:
    """Return where the ids of checkpoints are that were stored since a sweep began.

    Ids that are no UUIDv6 of LangGraph's are always among them, since they do not say when they were made.
    """
    since = max(_FIRST_OF_LANGGRAPH, _first_id(started_at - LATE))
    return [IdRange("", _FIRST_OF_LANGGRAPH), IdRange(since, AFTER_ALL)]


@operation("read")
def grown_page(d: SqlDialect, within: IdRange) -> Steps[tuple[Sequence[str], IdRange | None]]:
    """Return threads with checkpoints in a range, and the range that remains; None if nothing does.

    Round trips: 1.
    Rows: up to 2,000 checkpoints.
    """
    (rows,) = yield d.select_grown(within.bottom, within.top, within.thread_id, GROWN)
    ids = list(dict.fromkeys(d.own_thread_id(stored) for _, stored in rows))
    rest = within._replace(bottom=rows[-1][0], thread_id=d.own_thread_id(rows[-1][1])) if len(rows) == GROWN else None
    return ids, rest


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

    return (yield from offload(len(rows) * BYTES, look))
