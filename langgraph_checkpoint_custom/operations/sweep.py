"""What a sweep decides about a thread, and does with it.

Must not know: SQL, connections, the clock: times come as seconds since 1970.

`due_threads.py` says which threads a sweep visits. `retention.py` has the sweep itself, and its dry run.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import timezone
from functools import partial
from hashlib import sha256
from math import inf
from typing import Any, Literal, NamedTuple
from zlib import crc32

from langgraph.checkpoint.serde.types import ERROR, RESUME

from langgraph_checkpoint_custom.encoding.decode import Decoder
from langgraph_checkpoint_custom.encoding.values import ValueCodec
from langgraph_checkpoint_custom.engine.operation import Row, Steps, one_trip, operation, together
from langgraph_checkpoint_custom.model.filter import Condition, matches
from langgraph_checkpoint_custom.model.keys import Key
from langgraph_checkpoint_custom.model.outline import superseded
from langgraph_checkpoint_custom.model.records import Swept, time_from
from langgraph_checkpoint_custom.operations.delete import decide, remove
from langgraph_checkpoint_custom.operations.due_threads import WEEK
from langgraph_checkpoint_custom.operations.sizes import ALL, SizeRow, Total
from langgraph_checkpoint_custom.operations.thread_states import waiting
from langgraph_checkpoint_custom.sql.dialect import SqlDialect

# The namespaces and checkpoints of the longest thread that a sweep looks at together with others: all are in memory,
# and a document.
SHORT = 100


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


@operation("transaction")
def sweep_thread(d: SqlDialect, codec: ValueCodec, thread_id: str, policy: Policy, now: float) -> Steps[Swept]:
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
        return Swept()
    sized = d.ask("sizes", **d.only(thread_id)._asdict(), most=ALL)
    removal = (yield from decide(d, thread_id, partial(superseded, keep=found.keep))) if found.keep else None
    if found.keep == 0 or (removal and removal.empties()):  # Or they are all hidden.
        # If a run has stored its next checkpoint since, the thread stays, and is visited again.
        deleted = d.ask("delete_thread", thread_id=thread_id, checkpoints=found.checkpoints)
        counted, others, *_ = yield one_trip([sized, deleted])
        total = Total(map(SizeRow._make, counted))
        return Swept(found.applies) if others else Swept(found.applies, 1, total.rows["checkpoint"], total.bytes)
    seen = inf if found.seen is None else found.seen  # A row that it has got since stays due: no row has this time.
    again = d.ask("rearm_thread", thread_id=thread_id, due_at=found.due_at, seen=seen)
    if removal is None or not removal.changes():
        yield again
        return Swept(found.applies)
    sizes = sized.statements
    last = [*again.statements, *sizes]
    if removal.blobs:  # Their chunks are deleted later.
        (before,) = yield from remove(d, thread_id, removal, first=sizes)
        *_, after = yield again._replace(statements=last)
    else:
        before, *_, after = yield from remove(d, thread_id, removal, first=sizes, more=last)
    return Swept(found.applies, 0, removal.chosen_visible(), max(0, _bytes(before) - _bytes(after)))


@operation("read")
def kept_threads(
    d: SqlDialect, codec: ValueCodec, thread_ids: Sequence[str], policy: Policy, now: float
) -> Steps[Sequence[Verdict]]:
    """Return those of some threads that stay as they are. The others are long, or something of them may go.

    Round trips: 1 for all threads; one more if only an outline tells whether some have superseded checkpoints, and one
        if a time to live is over.
    Rows: the newest checkpoint of each namespace, of up to 100; with a number of checkpoints to keep, that many root
        checkpoints and one, up to 101, and of a thread whose outline is read up to 101, without values.
    """
    found = yield from together([_kept(d, codec, each, policy, now) for each in thread_ids])
    return [each for each in found if each]


def _kept(d: SqlDialect, codec: ValueCodec, thread_id: str, policy: Policy, now: float) -> Steps[Verdict | None]:
    found = yield from _verdict(d, codec, thread_id, policy, now, most=SHORT)
    if found is None or found.seen is None or found.keep == 0:
        return None
    if found.keep is not None and found.exceeds is not False:
        removal = None
        if found.exceeds is None:
            removal = yield from decide(d, thread_id, partial(superseded, keep=found.keep), most=SHORT)
        if removal is None or removal.changes():
            return None
    return found


@operation("write")
def rearm_threads(d: SqlDialect, kept: Sequence[Verdict]) -> Steps[None]:
    """Say when to visit threads again, unless somebody has made them due since they were read, or deleted them.

    Round trips: 1.
    Idempotent: yes.
    """
    ordered = sorted(kept, key=lambda each: each.thread_id)
    due = ({"thread_id": each.thread_id, "due_at": each.due_at, "seen": each.seen} for each in ordered)
    yield d.ask_each("rearm_thread", due)


@operation("write")
def put_off(d: SqlDialect, thread_id: str, due_at: float) -> Steps[None]:
    """Say when to visit a thread again that cannot be read.

    Round trips: 1.
    Idempotent: yes.
    """
    yield d.ask("rearm_thread", thread_id=thread_id, due_at=due_at, seen=None)


@operation("read")
def look_at_thread(d: SqlDialect, codec: ValueCodec, thread_id: str, policy: Policy, now: float) -> Steps[Swept]:
    """Return what `sweep_thread` would do. Only the bytes of threads that it would delete are counted.

    Round trips: 1; one more if something would be deleted, and one for a thread with a time to live that is over.
    Rows: as `sweep_thread`; all rows of a thread that would be deleted are counted.
    """
    found = yield from _verdict(d, codec, thread_id, policy, now)
    if found is None:
        return Swept()
    removal = None
    if found.keep and found.exceeds is not False:
        removal = yield from decide(d, thread_id, partial(superseded, keep=found.keep))
    if found.keep == 0 or (removal and removal.empties()):
        (sizes,) = yield d.ask("sizes", **d.only(thread_id)._asdict(), most=ALL)
        total = Total(map(SizeRow._make, sizes))
        return Swept(found.applies, 1, total.rows["checkpoint"], total.bytes, would_delete=[(d.tenant, thread_id)])
    return Swept(found.applies, 0, removal.chosen_visible() if removal else 0)


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


class Verdict(NamedTuple):
    """What a sweep does with a thread.

    Attributes:
        thread_id: The thread.
        keep: How many checkpoints of each namespace remain; None means all, 0 none.
        exceeds: Whether there are more, so that some are superseded; None if only the outline tells.
        applies: Whether the policy applies to the thread.
        due_at: When to visit it again.
        seen: When it was due, if it has a row.
        checkpoints: How many it has, with hidden ones; they are counted under the lock.
    """

    thread_id: str
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
) -> Steps[Verdict | None]:
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
    ttl = visit.ttl_seconds
    age = None
    if ttl is not None or policy.older_than is not None:
        age = _age(Decoder(codec, thread_id, *visit[:2]), visit.document_type, visit.document, now)
    first = Key(thread_id, visit.first_ns, visit.first_id)
    is_wanted = not policy.wanted or _matches(
        Decoder(codec, thread_id, visit.first_ns, visit.first_id), visit, policy.wanted, contains=d.filter_contains
    )
    is_waiting = False
    if ttl is not None and age is not None and age > ttl and policy.keep_waiting and not visit.first_ns:
        writes, document = yield d.ask("select_questions", "select_document", **first._asdict())
        if not document:
            return None  # Deleted since.
        is_waiting = _waits(codec, (visit.first_id, thread_id), writes, document)
    thread = Thread(is_wanted, visit.label is not None, age, ttl, visit.strategy, is_waiting)
    wait = WEEK * (1 - crc32(thread_id.encode()) / 2**33)  # Not all threads in the same hour.
    keep, wait = fate(policy, thread, wait)
    checkpoints = counted[0][0][0] if counted else 0
    exceeds = _exceeds(visit, keep or 0, asked)
    return Verdict(thread_id, keep, exceeds, is_wanted or ttl is not None, now + wait, visit.due_at, checkpoints)


def _exceeds(visit: _Visit, keep: int, asked: int) -> bool | None:
    """Return whether a thread has superseded checkpoints; None if its newest root checkpoints do not tell."""
    if visit.roots is None or visit.label is not None:  # One that is hidden or has a label may be needed, or not.
        return None
    if visit.roots > keep:
        return True
    return False if visit.roots < asked and visit.namespaces == 1 else None


def _age(decoder: Decoder, type_: str, data: bytes, now: float) -> float | None:
    """Return the seconds since LangGraph made a checkpoint; None if its document has no time, or cannot be read."""
    try:
        time = time_from(decoder.document_without_objects(type_, data).get("ts"))
    except Exception:  # The document cannot be read, for any reason.
        return None
    if time is None:
        return None
    return max(0.0, now - (time if time.tzinfo else time.replace(tzinfo=timezone.utc)).timestamp())


def _waits(codec: ValueCodec, place: tuple[str, str], writes: Sequence[Row], document: Sequence[Row]) -> bool:
    """Return whether a checkpoint has an interrupt whose task is not done, or one that cannot be read: nobody knows.

    `place` is its id and its thread. A run that acts on the answer has stored nothing else yet. After an error, it has
    ended.
    """
    if ERROR not in (row[1] for row in writes):
        writes = [row for row in writes if row[1] != RESUME]
    try:
        return bool(waiting(codec, [place], [writes], [document]))
    except Exception:  # CorruptCheckpoint, or any error of the user's serializer.
        return True


def _matches(decoder: Decoder, visit: _Visit, wanted: Sequence[Condition], *, contains: bool) -> bool:
    """Return whether the metadata of a checkpoint matches a filter; metadata that cannot be read does not."""
    try:
        metadata = decoder.metadata(visit.metadata_type, visit.metadata)
    except Exception:  # CorruptCheckpoint, or any error of the user's serializer.
        return False
    return matches(metadata, wanted, contains=contains)


def _bytes(sizes: Sequence[Row]) -> int:
    return Total(map(SizeRow._make, sizes)).bytes


@operation("transaction")
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
    others, *_ = yield d.ask("delete_thread", thread_id=thread_id, checkpoints=checkpoints)
    return not others
