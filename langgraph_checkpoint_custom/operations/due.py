"""Which threads a sweep visits, and what is stored about the sweeps.

Must not know: SQL, connections, the clock: times come as seconds since 1970.

A thread has a row in `threads`, with the time at which a sweep has to visit it again. A sweep that keeps a number of
checkpoints first makes the threads due that have grown, which it finds by the times in checkpoint ids. Whatever a visit
keeps is due again after a week at the latest, and once a week each thread gets a row that has none. So a thread that no
rule has found is late by a week, and never missed.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta, timezone
from typing import NamedTuple

from langgraph_checkpoint_custom.engine.operation import Steps, operation
from langgraph_checkpoint_custom.errors import CheckpointNotFound
from langgraph_checkpoint_custom.model.id_times import IdRange, ids_between
from langgraph_checkpoint_custom.model.keys import Range, right_above
from langgraph_checkpoint_custom.model.records import SweepStatus
from langgraph_checkpoint_custom.sql.dialect import SqlDialect

# Seconds after which each thread is visited again.
WEEK = 7 * 86_400.0
# Seconds: a checkpoint may be committed that long after its id was made, and clocks may differ by that much.
LATE = 3_600.0
# Threads that one statement arms, or lists: on SQLite, it keeps puts waiting.
ARMED = 2_000
# Threads that one statement counts.
COUNTED = 10_000
# Threads that are due, for one statement.
DUE = 200
# New checkpoints, for one statement.
GROWN = 2_000


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
    rows, sweeps = yield d.set_ttl(thread_id, ttl_seconds, strategy)
    if not rows:
        raise CheckpointNotFound(f"thread {thread_id!r} has no checkpoint yet; call set_ttl() after its first run")
    return bool(sweeps)


@operation("read")
def sweep_status(d: SqlDialect, now: float) -> Steps[SweepStatus]:
    """Return what the sweeps of a tenant have done, and what is due.

    Round trips: 1.
    Rows: up to 10,000 threads.
    """
    rows, ((overdue, since),) = yield d.sweep_status(now, COUNTED)
    finished_at = LastSweep._make(rows[0]).finished_at if rows else None
    return SweepStatus(
        None if finished_at is None else datetime.fromtimestamp(finished_at, timezone.utc),
        overdue,
        timedelta(seconds=now - since if overdue else 0),
    )


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
def note_armed(d: SqlDialect, policy: str, armed_at: float, started_at: float) -> Steps[None]:
    """Store when all threads were armed, and since when there may be checkpoints that no sweep has looked for.

    Round trips: 1.
    Idempotent: yes.
    """
    yield d.note_armed(policy, armed_at, started_at)


@operation("write")
def note_swept(d: SqlDialect, policy: str, finished_at: float) -> Steps[None]:
    """Store that a sweep has ended.

    If one with another policy has begun since, that may have found threads that were armed here. Then both begin anew.

    Round trips: 1; 2 after another policy.
    Idempotent: yes.
    """
    (rows,) = yield d.note_swept(policy, finished_at)
    if not rows:
        yield d.begin_policy("")


# Pages: each operation returns the threads that it has found, and where the next page begins; None after the last one.


@operation("write")
def arm_page(d: SqlDialect, within: Range, *, again: bool) -> Steps[tuple[Sequence[str], Range | None]]:
    """Insert the rows of the first threads of a range that have none; with `again`, all of them are then due.

    Returns no threads.

    Round trips: 1.
    Rows: one of each of up to 2,000 threads, twice.
    Idempotent: yes.
    """
    ((number, last),), _ = yield d.arm_threads(within, ARMED, again=again)
    return (), within._replace(bottom=right_above(last)) if number == ARMED else None


@operation("read")
def ids_page(d: SqlDialect, within: Range) -> Steps[tuple[Sequence[str], Range | None]]:
    """Return the first threads of a range.

    Round trips: 1.
    Rows: one of each of up to 2,000 threads.
    """
    (rows,) = yield d.thread_ids(within, ARMED)
    rest = within._replace(bottom=right_above(rows[-1][0])) if len(rows) == ARMED else None
    return [d.own_thread_id(stored) for (stored,) in rows], rest


Due = tuple[float, str]
"""When a thread is due, and the thread."""
BEFORE_ALL: Due = -1.0, ""


@operation("read")
def due_page(d: SqlDialect, now: float, after: Due) -> Steps[tuple[Sequence[str], Due | None]]:
    """Return the threads that are due, after another one.

    Round trips: 1.
    Rows: up to 200 threads.
    """
    (rows,) = yield d.select_due(now, after, DUE)
    ids = [d.own_thread_id(stored) for stored, _ in rows]
    return ids, (rows[-1][1], ids[-1]) if len(rows) == DUE else None


class Grown(NamedTuple):
    """Where new checkpoints are: those of the first range begin after this thread."""

    ranges: Sequence[IdRange]
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
    Rows: up to 2,000 checkpoints of each range.
    """
    return (yield from _grown(d, within))


@operation("write")
def hasten_page(d: SqlDialect, now: float, within: Grown) -> Steps[tuple[Sequence[str], Grown | None]]:
    """Make threads due that have grown, after those that are due already. Returns no threads.

    Round trips: 1, and one more if there are any.
    Rows: up to 2,000 checkpoints of each range.
    Idempotent: yes.
    """
    thread_ids, rest = yield from _grown(d, within)
    if thread_ids:
        yield d.ask_each("hasten_thread", ({"thread_id": each} for each in thread_ids), due_at=now)
    return (), rest


def _grown(d: SqlDialect, within: Grown) -> Steps[tuple[Sequence[str], Grown | None]]:
    replies = yield d.select_grown(within.ranges, within.thread_id, GROWN)
    found: set[str] = set()
    ranges = list(within.ranges)
    for rows in replies:
        found.update(d.own_thread_id(stored) for _, stored in rows)
        if len(rows) == GROWN:
            last_id, last = rows[-1]
            return sorted(found), Grown([ranges[0]._replace(bottom=last_id), *ranges[1:]], d.own_thread_id(last))
        del ranges[0]
    return sorted(found), None
