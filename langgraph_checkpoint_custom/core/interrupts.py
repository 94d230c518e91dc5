"""Which questions of a thread are open.

Must not know: databases, serializers.
"""

from __future__ import annotations

from langgraph.checkpoint.base import WRITES_IDX_MAP, CheckpointTuple
from langgraph.checkpoint.serde.types import INTERRUPT

from langgraph_checkpoint_custom.errors import StaleInterrupt


def open_interrupts(found: CheckpointTuple | None) -> dict[str, object]:
    """The values of the interrupts that wait in a checkpoint, by their ids.

    The interrupt of a task stays stored after it was answered, until the superstep is over; a task that has written
    anything else is done.
    """
    writes = (found.pending_writes if found else None) or []
    done = {task_id for task_id, channel, _ in writes if channel not in WRITES_IDX_MAP}
    return {
        interrupt.id: interrupt.value
        for task_id, channel, interrupts in writes
        if channel == INTERRUPT and task_id not in done
        for interrupt in interrupts
    }


def check_open(found: CheckpointTuple | None, interrupt_id: str) -> None:
    """Raise `StaleInterrupt` unless an interrupt waits in a checkpoint."""
    waiting = open_interrupts(found)
    if interrupt_id not in waiting:
        raise StaleInterrupt(
            f"interrupt {interrupt_id!r} is not open any more: "
            + (f"now {', '.join(map(repr, waiting))} is" if waiting else "the thread waits for no answer")
            + "; show the open question again before you resume"
        )
