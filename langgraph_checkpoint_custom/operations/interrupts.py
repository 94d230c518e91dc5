"""Finding open interrupts: of one thread, and of all threads.

Must not know: databases.
"""

from __future__ import annotations

from collections.abc import Sequence

from langgraph.checkpoint.base import WRITES_IDX_MAP, CheckpointTuple, PendingWrite
from langgraph.checkpoint.serde.types import INTERRUPT

from langgraph_checkpoint_custom.encoding.decode import Decoder
from langgraph_checkpoint_custom.encoding.values import Values
from langgraph_checkpoint_custom.engine.operation import Row, Steps, offload, operation
from langgraph_checkpoint_custom.errors import StaleInterrupt
from langgraph_checkpoint_custom.model.keys import Range, TupleRow, right_above
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

    Round trips: one for each thousand threads that have a stored interrupt, open or not.
    Rows: two of each such thread; the document and writes of the newest checkpoint if this has an interrupt.
    Snapshot: one read snapshot for each thousand threads. Each thread is in one of them.
    Raises: CorruptCheckpoint.
    """
    found: list[WaitingThread] = []
    ranges = d.ranges(prefix)
    while ranges:
        (rows,) = yield d.select_interrupts(ranges, PAGE)
        ranges = [Range(right_above(row[1]), row[2]) for row in rows if row[0] == "more"]
        size = sum(len(row[8] or b"") for row in rows)
        found += yield from offload(size, _waiting, d, codec, rows)
    return sorted(found, key=lambda waiting: (waiting.checkpoint_id, waiting.thread_id))


def _waiting(d: SqlDialect, codec: Values, rows: Sequence[Row]) -> list[WaitingThread]:
    heads: list[Row] = []
    writes: dict[str, list[TupleRow]] = {}  # By thread.
    for row in rows:
        kind, thread_id, checkpoint_id, channel, task_id, path, idx, type_, value = row
        if kind == "checkpoint":
            heads.append(row)
        elif kind == "write":
            write = TupleRow(
                kind, thread_id, "", checkpoint_id, channel, task_id, path, idx, type_, value, None, None, None, None
            )
            writes.setdefault(thread_id, []).append(write)
    found = []
    for _, stored, checkpoint_id, *_, type_, data in heads:
        thread_id = d.own_thread_id(stored)
        decoder = Decoder(codec, thread_id, "", checkpoint_id)
        interrupts = open_among(
            [
                (row.key or "", row.name or "", decoder.write(row) if row.name == INTERRUPT else None)
                for row in in_order(writes.get(stored, []))
            ]
        )
        if interrupts:
            since = time_from(decoder.outline(type_, data).get("ts"))
            found.append(WaitingThread(thread_id, checkpoint_id, since, tuple(interrupts)))
    return found


def check_open(found: CheckpointTuple | None, interrupt_id: str) -> None:
    """Raise `StaleInterrupt` unless a checkpoint has this open interrupt."""
    waiting = open_interrupts(found)
    if interrupt_id not in waiting:
        raise StaleInterrupt(
            f"interrupt {interrupt_id!r} is no longer open: "
            + (f"now {', '.join(map(repr, waiting))} is" if waiting else "the thread is not waiting for an answer")
            + "; show the open question again before you resume"
        )
