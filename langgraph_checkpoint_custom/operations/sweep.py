"""Sweeps: which threads they visit, what they decide about each and do with it, and what is stored about them.

Must not know: SQL, connections, the clock: times come as seconds since 1970.

`retention.py` has the sweep itself, and its dry run.

A thread has a row in `threads`, with the time at which a sweep has to visit it again. A sweep that keeps a number of
checkpoints first makes the threads due that have grown, which it finds by the times in checkpoint ids. Whatever a visit
keeps is due again after a week at the latest, and once a week each thread gets a row that has none. So a thread that no
rule has found is late by a week, and never missed.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import datetime, timedelta, timezone
from functools import partial
from hashlib import sha256
from math import inf
from typing import Any, Literal, NamedTuple
from zlib import crc32

from langgraph.checkpoint.serde.types import ERROR, RESUME

from langgraph_checkpoint_custom.encoding.decode import Decoder
from langgraph_checkpoint_custom.encoding.values import ValueCodec
from langgraph_checkpoint_custom.engine.operation import Row, Steps, one_trip, operation, together
from langgraph_checkpoint_custom.errors import CheckpointNotFound
from langgraph_checkpoint_custom.model.filter import Condition, matches
from langgraph_checkpoint_custom.model.id_times import ids_between
from langgraph_checkpoint_custom.model.keys import Key, Range, right_above
from langgraph_checkpoint_custom.model.outline import superseded
from langgraph_checkpoint_custom.model.records import SweepStatus, time_from
from langgraph_checkpoint_custom.operations.delete import decide, remove
from langgraph_checkpoint_custom.operations.sizes import ALL, SizeRow, Total
from langgraph_checkpoint_custom.operations.thread_states import waiting
from langgraph_checkpoint_custom.sql.dialect import SqlDialect

# Seconds after which each thread is visited again.
WEEK = 7 * 86_400.0
# Seconds for which a sweep at regular intervals leaves all threads to another policy that has made them due.
DAY = 86_400.0
# Seconds: a checkpoint may be committed that long after its id was made, and clocks may differ by that much.
LATE = 3_600.0
# Threads that one statement arms, or lists. On SQLite, it keeps puts waiting for some 5 ms. For a list of 2,000 of
# 200,000 threads, PostgreSQL 15 reads all if its statistics are wrong; for 500 it does not.
ARMED = 500
# Threads that one statement counts.
COUNTED = 10_000
# Threads that are due, for one statement.
DUE = 200
# Threads that a sweep looks at together, and the namespaces and checkpoints of the longest of them: all are in memory,
# and a document.
TOGETHER, SHORT = 50, 100
# New checkpoints, for one statement; the list of their threads is armed.
GROWN = 500


# What is decided about a thread


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

    def name(self) -> str:
        """Return a text that another policy does not have, and that is the same in each process.

        A person can tell the policy by it, but not the values of its filter.
        """
        limits: dict[str, Any] = {
            "older_than": self.older_than,
            "keep_last": self.keep_last,
            "keep_waiting": self.keep_waiting,
        }
        if self.wanted:
            conditions = sorted((each.key, each.operator, sorted(each.texts)) for each in self.wanted)
            limits["filter"] = sha256(json.dumps(conditions).encode()).hexdigest()[:16]
        return json.dumps(limits)


class Thread(NamedTuple):
    """What decides about a thread.

    Attributes:
        is_wanted: Whether the filter of the policy matches.
        is_labelled: Whether a checkpoint has a label.
        age: Seconds since LangGraph made its newest checkpoint; None if that cannot be read.
        ttl: Its own time to live in seconds, if it has one.
        strategy: "delete" or "keep_latest", when that is over.
        is_waiting: Whether a human is asked, or a run acts on the answer.
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

    Round trips: 2 for a thread that is deleted, with the end of the transaction; 3 for one that stays as it is, or one
        less if all its checkpoints are kept. If some are deleted, one more, and then as `prune_thread`. One more for a
        thread with a time to live that is over.
    Rows: the newest checkpoint of each namespace; all of the thread, without values, if some of them are to go.
    Idempotent: yes.
    """
    found = yield from _verdict(d, codec, thread_id, policy, now, lock="exclusive")
    if found is None:
        yield d.ask("drop_thread", thread_id=thread_id)
        return Outcome()
    if found.keep == 0:
        # If a run has stored its next checkpoint since, the thread stays, and is visited again.
        (is_gone, checkpoints, freed) = yield from _delete_counted(d, thread_id, found.checkpoints)
        return Outcome(found.applies, is_gone, checkpoints, freed)
    removal = (yield from decide(d, thread_id, partial(superseded, keep=found.keep))) if found.keep else None
    again = d.ask("rearm_thread", thread_id=thread_id, due_at=found.due_at, seen=found.seen)
    if removal is None or not removal.changes():
        yield again
        return Outcome(found.applies)
    sizes = d.ask("sizes", **d.only(thread_id)._asdict(), most=ALL).statements
    if removal.empties():  # They were all hidden.
        again = d.ask("delete_all_writes", thread_id=thread_id)
    last = [*again.statements, *sizes]
    if removal.blobs:  # Their chunks are deleted later.
        (before,) = yield from remove(d, thread_id, removal, first=sizes)
        *_, after = yield again._replace(statements=last)
    else:
        before, *_, after = yield from remove(d, thread_id, removal, first=sizes, more=last)
    return Outcome(found.applies, not after, removal.chosen_visible(), max(0, _bytes(before) - _bytes(after)))


def _delete_counted(d: SqlDialect, thread_id: str, checkpoints: int) -> Steps[tuple[bool, int, int]]:
    """Delete all rows of a thread, if it has this number of checkpoints. Its lock is held.

    Returns whether it has, how many checkpoints were not hidden, and the bytes of all values.

    Round trips: 1.
    """
    ((reply,), *_) = yield d.ask("delete_counted", thread_id=thread_id, checkpoints=checkpoints)
    is_gone, visible, freed = reply
    return bool(is_gone), visible, int(freed)


class Kept(NamedTuple):
    """A thread that stays as it is.

    Attributes:
        thread_id: The thread.
        applies: Whether the policy applies to it.
        due_at: When to visit it again.
        seen: When it was due, as it was read.
    """

    thread_id: str
    applies: bool
    due_at: float
    seen: float


@operation("read")
def kept_threads(
    d: SqlDialect, codec: ValueCodec, thread_ids: Sequence[str], policy: Policy, now: float
) -> Steps[Sequence[Kept]]:
    """Return those of some threads that stay as they are. The others are long, or something of them may go.

    Round trips: 1 for all threads; one more if only an outline tells whether some have superseded checkpoints, and one
        if a time to live is over.
    Rows: the newest checkpoint of each namespace, of up to 100; with a number of checkpoints to keep, that many root
        checkpoints and one, up to 101, and of a thread whose outline is read up to 101, without values.
    """
    found = yield from together([_kept(d, codec, each, policy, now) for each in thread_ids])
    return [each for each in found if each]


def _kept(d: SqlDialect, codec: ValueCodec, thread_id: str, policy: Policy, now: float) -> Steps[Kept | None]:
    found = yield from _verdict(d, codec, thread_id, policy, now, most=SHORT)
    if found is None or found.seen is None or found.keep == 0:
        return None
    if found.keep is not None and found.exceeds is not False:
        removal = None
        if found.exceeds is None:
            removal = yield from decide(d, thread_id, partial(superseded, keep=found.keep), most=SHORT)
        if removal is None or removal.changes():
            return None
    return Kept(thread_id, found.applies, found.due_at, found.seen)


@operation("write")
def rearm_threads(d: SqlDialect, kept: Sequence[Kept]) -> Steps[None]:
    """Say when to visit threads again, unless somebody has made them due since they were read, or deleted them.

    Round trips: 1.
    Idempotent: yes.
    """
    due = ({"thread_id": each.thread_id, "due_at": each.due_at, "seen": each.seen} for each in sorted(kept))
    yield d.ask_each("rearm_thread", due)


@operation("write")
def put_off(d: SqlDialect, thread_id: str, due_at: float) -> Steps[None]:
    """Say when to visit a thread again that cannot be read.

    Round trips: 2; 1 if it has no row.
    Idempotent: yes.
    """
    (rows,) = yield d.ask("select_arming", thread_id=thread_id)
    if rows:
        yield d.ask("rearm_thread", thread_id=thread_id, due_at=due_at, seen=rows[0][0])


@operation("read")
def look_at_thread(d: SqlDialect, codec: ValueCodec, thread_id: str, policy: Policy, now: float) -> Steps[Outcome]:
    """Return what `sweep_thread` would do. Only the bytes of threads that it would delete are counted.

    Round trips: 1; one more if something would be deleted, and one for a thread with a time to live that is over.
    Rows: as `sweep_thread`; all rows of a thread that would be deleted are counted.
    """
    found = yield from _verdict(d, codec, thread_id, policy, now)
    if found is None:
        return Outcome()
    if found.keep == 0:
        (sizes,) = yield d.ask("sizes", **d.only(thread_id)._asdict(), most=ALL)
        total = Total(map(SizeRow._make, sizes))
        return Outcome(found.applies, True, total.rows["checkpoint"], total.bytes)
    removal = None
    if found.keep and found.exceeds is not False:
        removal = yield from decide(d, thread_id, partial(superseded, keep=found.keep))
    if removal is None:
        return Outcome(found.applies)
    return Outcome(found.applies, removal.empties(), removal.chosen_visible())


class _Visit(NamedTuple):
    """What decides about a thread, of those of its checkpoints that are not hidden; of all if these are.

    Attributes:
        checkpoint_ns: The namespace of the newest checkpoint of all namespaces.
        checkpoint_id: Its id.
        document_type: How its document is stored.
        document: The document.
        first_ns: The first namespace that has a checkpoint.
        first_id: The newest checkpoint there.
        metadata_type: How its metadata is stored.
        metadata: The metadata.
        due_at: When the thread was due, if it has a row.
        ttl_seconds: Its own time to live, if it has one.
        strategy: What is done after that.
        label: One of the names of its labels.
        namespaces: The number of its namespaces.
        roots: The number of its newest root checkpoints, of as many as were asked for; None if there are none, or one
            of these is hidden.
    """

    checkpoint_ns: str
    checkpoint_id: str
    document_type: str
    document: bytes
    first_ns: str
    first_id: str
    metadata_type: str
    metadata: bytes
    due_at: float | None
    ttl_seconds: float | None
    strategy: str | None
    label: str | None
    namespaces: int
    roots: int | None


class _Verdict(NamedTuple):
    """What a sweep does with a thread.

    Attributes:
        keep: How many checkpoints of each namespace remain; None means all, 0 none.
        exceeds: Whether there are more, so that some are superseded; None if only the outline tells.
        applies: Whether the policy applies to the thread.
        due_at: When to visit it again.
        seen: When it was due, if it has a row.
        checkpoints: How many it has, with hidden ones; they are counted under the lock.
    """

    keep: int | None
    exceeds: bool | None
    applies: bool
    due_at: float
    seen: float | None
    checkpoints: int


def _verdict(
    d: SqlDialect,
    codec: ValueCodec,
    thread_id: str,
    policy: Policy,
    now: float,
    *,
    lock: Literal["exclusive"] | None = None,
    most: int = ALL - 1,
) -> Steps[_Verdict | None]:
    """Decide about a thread; None if it has no checkpoint, or more than `most` namespaces.

    Without a lock, it returns None, too, if a checkpoint is deleted meanwhile.

    Round trips: 1; one more if no checkpoint is visible, and one if a time to live is over.
    """
    # They are counted first: one that is stored after that is visited, or makes the number another one.
    names = ("count_checkpoints", "select_visit") if lock else ("select_visit",)
    # With the lock, the outline is read in any case: a thread that comes so far has superseded checkpoints.
    asked = 0 if lock or policy.keep_last is None else min(policy.keep_last, SHORT) + 1
    params: dict[str, Any] = {"thread_id": thread_id, "limit": most + 1, "counted": asked}
    *counted, rows = yield d.ask(*names, lock=lock, **params, even_hidden=False)
    if not rows:
        (rows,) = yield d.ask("select_visit", **params, even_hidden=True)
    if not rows:
        return None
    visit = _Visit(*rows[0])
    if visit.namespaces > most:
        return None
    newest, first = Key(thread_id, *visit[:2]), Key(thread_id, visit.first_ns, visit.first_id)
    ttl = visit.ttl_seconds
    age = None
    if ttl is not None or policy.older_than is not None:
        age = _age(codec, newest, visit.document_type, visit.document, now)
    is_wanted = not policy.wanted or _matches(
        codec, first, visit.metadata_type, visit.metadata, policy.wanted, contains=d.filter_contains
    )
    is_waiting = False
    if ttl is not None and age is not None and age > ttl and policy.keep_waiting and not first.checkpoint_ns:
        writes, document = yield d.ask("select_questions", "select_document", **first._asdict())
        if not document:
            return None  # Deleted since.
        is_waiting = _waits(codec, first, writes, document)
    thread = Thread(is_wanted, visit.label is not None, age, ttl, visit.strategy, is_waiting)
    wait = WEEK * (1 - crc32(thread_id.encode()) / 2**33)  # Not all threads in the same hour.
    keep, wait = fate(policy, thread, wait)
    checkpoints = counted[0][0][0] if counted else 0
    exceeds = _exceeds(visit, keep or 0, asked)
    return _Verdict(keep, exceeds, is_wanted or ttl is not None, now + wait, visit.due_at, checkpoints)


def _exceeds(visit: _Visit, keep: int, asked: int) -> bool | None:
    """Return whether a thread has superseded checkpoints; None if its newest root checkpoints do not tell."""
    if visit.roots is None or visit.label is not None:  # One that is hidden or has a label may be needed, or not.
        return None
    if visit.roots > keep:
        return True
    return False if visit.roots < asked and visit.namespaces == 1 else None


def _age(codec: ValueCodec, key: Key, type_: str, data: bytes, now: float) -> float | None:
    """Return the seconds since LangGraph made a checkpoint; None if its document has no time, or cannot be read."""
    try:
        decoder = Decoder(codec, key.thread_id, key.checkpoint_ns, key.checkpoint_id or "")
        time = time_from(decoder.document_without_objects(type_, data).get("ts"))
    except Exception:  # The document cannot be read, for any reason.
        return None
    if time is None:
        return None
    return max(0.0, now - (time if time.tzinfo else time.replace(tzinfo=timezone.utc)).timestamp())


def _waits(codec: ValueCodec, key: Key, writes: Sequence[Row], document: Sequence[Row]) -> bool:
    """Return whether a checkpoint has an interrupt whose task is not done, or one that cannot be read: nobody knows.

    A run that acts on the answer has stored nothing else yet. After an error, it has ended.
    """
    if ERROR not in (row[1] for row in writes):
        writes = [row for row in writes if row[1] != RESUME]
    try:
        return bool(waiting(codec, [(key.checkpoint_id or "", key.thread_id)], [writes], [document]))
    except Exception:  # CorruptCheckpoint, or any error of the user's serializer.
        return True


def _matches(
    codec: ValueCodec, key: Key, type_: str, data: bytes, wanted: Sequence[Condition], *, contains: bool
) -> bool:
    """Return whether the metadata of a checkpoint matches a filter; metadata that cannot be read does not."""
    try:
        metadata = Decoder(codec, key.thread_id, key.checkpoint_ns, key.checkpoint_id or "").metadata(type_, data)
    except Exception:  # CorruptCheckpoint, or any error of the user's serializer.
        return False
    return matches(metadata, wanted, contains=contains)


def _bytes(sizes: Sequence[Row]) -> int:
    return Total(map(SizeRow._make, sizes)).bytes


@operation("exclusive")
def delete_unless_it_fits(d: SqlDialect, thread_id: str, room: int) -> Steps[bool]:
    """Delete a thread, with writes whose checkpoint was never stored; return whether it is gone.

    It stays if it fits into a number of bytes, or has a label, or if a run stores its next checkpoint meanwhile.

    Round trips: 2, with the end of the transaction.
    Rows: all rows of the thread are counted.
    Idempotent: yes.
    """
    asked = d.ask("count_checkpoints", "select_labels", lock="exclusive", thread_id=thread_id)
    counted, labels, sizes = yield one_trip([asked, d.ask("sizes", **d.only(thread_id)._asdict(), most=ALL)])
    ((checkpoints,),) = counted
    if checkpoints and (labels or _bytes(sizes) <= room):
        return False
    is_gone, *_ = yield from _delete_counted(d, thread_id, checkpoints)
    return is_gone


# What is stored about the sweeps


class LastSweep(NamedTuple):
    """What the sweeps of a tenant have done; `armed_at` is 0 if they have still to arm all threads.

    Checkpoints that were stored since `started_at` have not been looked for.
    """

    policy: str
    armed_at: float
    started_at: float
    finished_at: float | None


@operation("write")
def set_ttl(d: SqlDialect, thread_id: str, ttl_seconds: float | None, strategy: str | None) -> Steps[bool]:
    """Store the time to live of a thread, or that it has none; return whether there was ever a sweep.

    Round trips: 1.
    Idempotent: yes.
    Raises: CheckpointNotFound.
    """
    names = "set_ttl", "select_sweep"
    rows, sweeps = yield d.ask(*names, lock="shared", thread_id=thread_id, ttl_seconds=ttl_seconds, strategy=strategy)
    if not rows:
        raise CheckpointNotFound(f"thread {thread_id!r} has no checkpoint yet; call set_ttl() after its first run")
    return bool(sweeps)


@operation("read")
def sweep_status(d: SqlDialect, now: float) -> Steps[SweepStatus]:
    """Return what the sweeps of a tenant have done, and what is due.

    Those that the last sweep has armed, and a limit kept it from visiting, are not late: only their time tells them.

    Round trips: 2.
    Rows: up to 20,000 threads.
    """
    (rows,) = yield d.ask("select_sweep")
    last = LastSweep._make(rows[0]) if rows else LastSweep("", 0.0, 0.0, None)
    spans = {"above": 0.0, "below": last.armed_at}, {"above": last.armed_at, "below": now}
    ((before,), (after,)) = yield d.ask_each("count_due", spans, limit=COUNTED)
    since = before[1] or after[1]
    return SweepStatus(
        None if last.finished_at is None else datetime.fromtimestamp(last.finished_at, timezone.utc),
        min(before[0] + after[0], COUNTED),
        timedelta(seconds=now - since if since else 0),
    )


@operation("read")
def last_sweep(d: SqlDialect) -> Steps[LastSweep | None]:
    """Return what the sweeps of a tenant have done; None if there was none.

    Round trips: 1.
    """
    (rows,) = yield d.ask("select_sweep")
    return LastSweep._make(rows[0]) if rows else None


@operation("write")
def begin_policy(d: SqlDialect, policy: str) -> Steps[None]:
    """Store what the sweeps keep from now on. All threads have still to be armed.

    Round trips: 1.
    Idempotent: yes.
    """
    yield d.ask("begin_policy", policy=policy)


@operation("write")
def note_sweep(d: SqlDialect, sweep: LastSweep) -> Steps[None]:
    """Store what a sweep has done; without `finished_at`, when the one before has ended is left as it was.

    If one with another policy has begun since, that may have found threads that were armed here. Then both begin anew.

    Round trips: 1; 2 after another policy.
    Idempotent: yes.
    """
    (rows,) = yield d.ask("note_sweep", **sweep._asdict())
    if not rows:
        yield d.ask("begin_policy", policy="")


# Pages: each operation returns the threads that it has found, and where the next page begins; None after the last one.


@operation("read")
def ids_page(d: SqlDialect, within: Range) -> Steps[tuple[Sequence[str], Range | None]]:
    """Return the first threads of a range.

    Round trips: 1.
    Rows: one of each of up to 500 threads.
    """
    (rows,) = yield d.ask("thread_ids", **within._asdict(), threads=ARMED)
    rest = within._replace(bottom=right_above(rows[-1][0])) if len(rows) == ARMED else None
    return [d.own_thread_id(stored) for (stored,) in rows], rest


Due = tuple[float, str]
"""When a thread is due, and the thread."""
BEFORE_ALL: Due = -inf, ""


@operation("read")
def due_page(d: SqlDialect, now: float, after: Due) -> Steps[tuple[Sequence[str], Due | None]]:
    """Return the threads that are due, after another one.

    Round trips: 1.
    Rows: up to 200 threads.
    """
    due_after, thread_id = after
    (rows,) = yield d.ask("select_due", now=now, due_after=due_after, thread_id=thread_id, limit=DUE)
    ids = [d.own_thread_id(stored) for stored, _ in rows]
    return ids, (rows[-1][1], ids[-1]) if len(rows) == DUE else None


class Grown(NamedTuple):
    """Where new checkpoints are: those of the first range begin after this thread."""

    ranges: Sequence[Range]
    thread_id: str = ""


def grown_since(started_at: float, now: float) -> Grown:
    """Return where the checkpoints are that were stored since a sweep began.

    One whose id says a later time, or none, is not among them.
    """
    return Grown(ids_between(started_at - LATE, now + LATE))


@operation("read")
def grown_page(d: SqlDialect, within: Grown) -> Steps[tuple[Sequence[str], Grown | None]]:
    """Return threads that have grown.

    Round trips: 1.
    Rows: up to 500 checkpoints of each range.
    """
    ranges = list(within.ranges)
    starts = [within.thread_id, *[""] * (len(ranges) - 1)]
    asked = ({**each._asdict(), "thread_id": start} for each, start in zip(ranges, starts, strict=True))
    replies = yield d.ask_each("select_grown", asked, limit=GROWN)
    found: set[str] = set()
    for rows in replies:
        found.update(d.own_thread_id(stored) for _, stored in rows)
        if len(rows) == GROWN:
            last_id, last = rows[-1]
            return sorted(found), Grown([ranges[0]._replace(bottom=last_id), *ranges[1:]], d.own_thread_id(last))
        del ranges[0]
    return sorted(found), None


# What is done with the threads of a page.


@operation("write")
def arm_threads(d: SqlDialect, thread_ids: Sequence[str], now: float, *, hasten: bool) -> Steps[Sequence[str]]:
    """Insert the rows of threads that have none; `hasten` makes the others due, too, after those that are due already.

    Returns those that it has left because others hold their rows: while it waited, it would hold the others.

    Round trips: 1, or 0 without threads.
    Idempotent: yes.
    """
    if not thread_ids:
        return []
    stored = d.array([d.stored_thread(each) for each in sorted(thread_ids)])
    names = ("hasten_threads", "select_later") if hasten else ()
    _, *replies = yield d.ask("arm_threads", *names, thread_ids=stored, due_at=now)
    return [d.own_thread_id(left) for rows in replies for (left,) in rows]


@operation("write")
def hasten_thread(d: SqlDialect, thread_id: str) -> Steps[None]:
    """Make a thread due that `arm_threads` has left, unless whoever held its row has deleted it.

    Round trips: 1.
    Idempotent: yes; it stays due.
    """
    yield d.ask("hasten_thread", thread_id=thread_id)
