"""Finding open interrupts: of one thread, and of all threads.

Must not know: databases.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from langgraph.checkpoint.base import WRITES_IDX_MAP, CheckpointTuple, PendingWrite
from langgraph.checkpoint.serde.types import INTERRUPT

from langgraph_checkpoint_custom.encoding.decode import Decoder
from langgraph_checkpoint_custom.encoding.values import Values
from langgraph_checkpoint_custom.engine.operation import Row, Steps, offload, operation
from langgraph_checkpoint_custom.errors import StaleInterrupt
from langgraph_checkpoint_custom.model.keys import Key, TupleRow, right_above
from langgraph_checkpoint_custom.model.records import Interrupt, Question, WaitingThread, time_from
from langgraph_checkpoint_custom.operations.read import in_order
from langgraph_checkpoint_custom.sql.dialect import SqlDialect

# Threads for one statement, of those that have a stored interrupt, open or not.
PAGE = 1_000


def open_interrupts(found: CheckpointTuple | None) -> dict[str, object]:
    """Return the values of the open interrupts of a checkpoint, by their ids.

    The interrupt of a task stays stored after it was answered, until the superstep is over. A task that has written
    anything else is done.
    """
    return {interrupt.id: interrupt.value for interrupt in open_among((found.pending_writes if found else None) or [])}


def open_among(writes: Sequence[PendingWrite]) -> list[Interrupt]:
    """Return the open interrupts among the writes of a checkpoint. It looks at the values of interrupts only."""
    done = {task_id for task_id, channel, _ in writes if channel not in WRITES_IDX_MAP}
    return [
        interrupt
        for task_id, channel, interrupts in writes
        if channel == INTERRUPT and task_id not in done
        # Other frameworks' questions are stored as dicts.
        for interrupt in (Question(**each) if isinstance(each, dict) else each for each in interrupts)
    ]


@operation("read")
def waiting_threads(d: SqlDialect, codec: Values, prefix: str) -> Steps[list[WaitingThread]]:
    """Return the threads whose newest root checkpoint has an open interrupt; the one that waits longest is first.

    Round trips: two for each thousand threads that have a stored interrupt, open or not; one more if any is open.
    Rows: the stored interrupts of these threads, and the writes to their newest checkpoint.
    Snapshot: one read snapshot for each thread.
    Raises: CorruptCheckpoint.
    """
    found: list[WaitingThread] = []
    ranges = [*d.ranges(prefix)]
    while ranges:
        within, *ranges = ranges
        (stored,) = yield d.select_interrupting(within, PAGE)
        thread_ids = [d.own_thread_id(row[0]) for row in stored]
        if len(stored) == PAGE:
            ranges.insert(0, within._replace(bottom=right_above(stored[-1][0])))
        replies = (yield d.select_newest_writes(thread_ids)) if thread_ids else ()
        size = sum(len(row[6] or b"") for rows in replies for row in rows)
        waiting = yield from offload(size, _waiting, codec, zip(thread_ids, replies, strict=True))
        documents = (
            (yield d.select_documents(Key(one.thread_id, "", one.checkpoint_id) for one in waiting)) if waiting else ()
        )
        found += [_since(codec, one, rows) for one, rows in zip(waiting, documents, strict=True)]
    return sorted(found, key=lambda waiting: (waiting.checkpoint_id, waiting.thread_id))


def _waiting(codec: Values, replies: Iterable[tuple[str, Sequence[Row]]]) -> list[WaitingThread]:
    """Return the threads with an open interrupt among the writes to their newest checkpoint."""
    found = []
    for thread_id, rows in replies:
        writes = in_order([TupleRow._make(("write", thread_id, "", *row, None, None, None, None)) for row in rows])
        decoder = Decoder(codec, thread_id, "", rows[0][0] if rows else "")
        interrupts = open_among(
            [(row.key or "", row.name or "", decoder.write(row) if row.name == INTERRUPT else None) for row in writes]
        )
        if interrupts:
            found.append(WaitingThread(thread_id, rows[0][0], None, tuple(interrupts)))
    return found


def _since(codec: Values, waiting: WaitingThread, rows: Sequence[Row]) -> WaitingThread:
    """Add the time of the checkpoint, given its document."""
    for type_, data in rows:
        document = Decoder(codec, waiting.thread_id, "", waiting.checkpoint_id).outline(type_, data)
        return waiting._replace(since=time_from(document.get("ts")))
    return waiting  # The checkpoint was deleted in the meantime.


def check_open(found: CheckpointTuple | None, interrupt_id: str) -> None:
    """Raise `StaleInterrupt` unless a checkpoint has this open interrupt."""
    waiting = open_interrupts(found)
    if interrupt_id not in waiting:
        raise StaleInterrupt(
            f"interrupt {interrupt_id!r} is no longer open: "
            + (f"now {', '.join(map(repr, waiting))} is" if waiting else "the thread is not waiting for an answer")
            + "; show the open question again before you resume"
        )
