"""What was moved from or to a store of LangGraph's own savers; it remains when a thread is deleted.

Must not know: SQL, connections, what the bytes mean.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from langgraph_checkpoint_custom.encoding.encoded import Encoded
from langgraph_checkpoint_custom.engine.operation import RoundTrip, Steps, one_trip, operation
from langgraph_checkpoint_custom.model.keys import Range
from langgraph_checkpoint_custom.operations.list_threads import thread_exists
from langgraph_checkpoint_custom.operations.write import put
from langgraph_checkpoint_custom.sql.dialect import SqlDialect

# Threads in a page.
PAGE = 100


@operation("read")
def moves_of_threads(d: SqlDialect, store: str, thread_ids: Sequence[str]) -> Steps[Sequence[bytes]]:
    """Return for each thread what was moved of it; empty if nothing was.

    Round trips: 1.
    """
    replies = yield d.ask_each("select_move", [{"thread_id": each} for each in thread_ids], store=store)
    return [bytes(rows[0][0]) if rows else b"" for rows in replies]


@operation("read")
def moved_threads(d: SqlDialect, store: str, after: str) -> Steps[Sequence[str]]:
    """Return the page of the moved threads with greater ids; empty after the last one.

    Round trips: 1.
    """
    replies = yield d.ask_each("select_moves", map(Range._asdict, d.ranges_after(after)), store=store, limit=PAGE)
    return [d.own_thread_id(row[0]) for row in next(filter(None, replies), [])]


@operation("write")
def store_move(d: SqlDialect, store: str, thread_id: str, checkpoints: bytes) -> Steps[None]:
    """Store what was moved of a thread.

    Round trips: 1.
    Idempotent: by (store, thread_id).
    """
    yield d.ask("store_move", store=store, thread_id=thread_id, checkpoints=checkpoints)


@operation("exclusive", locks=["thread_id"])
def store_part(
    d: SqlDialect,
    thread_id: str,
    checkpoints: Sequence[Callable[[], Encoded]],
    remember: Callable[[Encoded], None],
    rest: Sequence[RoundTrip],
    *,
    follows: bool,
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

    Round trips: on PostgreSQL one for the lock; one if it follows; one, and those of `put` for each checkpoint that is
        more than one row.
    Idempotent: yes.
    """
    if follows and not (yield from thread_exists(d, thread_id).start()):
        return False
    trips: list[RoundTrip] = []
    for encode in checkpoints:
        encoded = encode()
        if encoded.is_one_row and not encoded.replayed:
            trips.append(d.insert_checkpoint(encoded.row))
            continue
        if trips:
            yield one_trip(trips)
            trips = []
        remember((yield from put(d, encoded).start()))
    if trips := [*trips, *rest]:
        yield one_trip(trips)
    return True


@operation("write")
def forget_moves(d: SqlDialect, store: str) -> Steps[None]:
    """Forget what was moved from or to a store.

    Round trips: 1.
    """
    yield d.ask_each("forget_moves", map(Range._asdict, d.ranges()), store=store)
