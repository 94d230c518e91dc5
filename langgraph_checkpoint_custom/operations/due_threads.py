"""Which threads a sweep has to visit, and when; and what is stored about the sweeps.

Must not know: SQL, connections, the clock: times come as seconds since 1970.

A thread has a row in `threads`, with the time at which a sweep has to visit it again. A sweep that keeps a number of
checkpoints first makes the threads due that have grown, which it finds by the times in checkpoint ids. Whatever a visit
keeps is due again after a week at the latest, and once a week each thread gets a row that has none. So a thread that no
rule has found is late by a week, and never missed.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta, timezone
from math import inf
from typing import NamedTuple

from langgraph_checkpoint_custom.engine.operation import Steps, operation
from langgraph_checkpoint_custom.errors import CheckpointNotFound
from langgraph_checkpoint_custom.model.id_times import ids_between
from langgraph_checkpoint_custom.model.keys import Range, right_above
from langgraph_checkpoint_custom.model.records import SweepStatus
from langgraph_checkpoint_custom.sql.dialect import SqlDialect

# Seconds after which each thread is visited again.
WEEK = 7 * 86_400.0
# Seconds: a checkpoint may be committed that long after its id was made, and clocks may differ by that much.
LATE = 3_600.0
# Threads that one statement arms, or lists. On SQLite, it keeps puts waiting for some 5 ms. For a list of 2,000 of
# 200,000 threads, PostgreSQL 15 reads all if its statistics are wrong; for 500 it does not.
ARMED = 500
# Threads that one statement counts.
COUNTED = 10_000
# Threads that are due, for one statement.
DUE = 200
# New checkpoints, for one statement; the list of their threads is armed.
GROWN = 500


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


Grown = Sequence[tuple[Range, str]]
"""Where new checkpoints are: in ranges of ids, each of which begins after a thread."""


def grown_since(started_at: float, now: float) -> Grown:
    """Return where the checkpoints are that were stored since a sweep began.

    One whose id says a later time, or none, is not among them.
    """
    return [(each, "") for each in ids_between(started_at - LATE, now + LATE)]


@operation("read")
def grown_page(d: SqlDialect, within: Grown) -> Steps[tuple[Sequence[str], Grown | None]]:
    """Return threads that have grown.

    Round trips: 1.
    Rows: up to 500 checkpoints of each range.
    """
    asked = ({**each._asdict(), "thread_id": start} for each, start in within)
    replies = yield d.ask_each("select_grown", asked, limit=GROWN)
    found = sorted({d.own_thread_id(stored) for rows in replies for _, stored in rows})
    rest = [
        (each._replace(bottom=rows[-1][0]), d.own_thread_id(rows[-1][1]))
        for (each, _), rows in zip(within, replies, strict=True)
        if len(rows) == GROWN
    ]
    return found, rest or None


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
