"""The dry run of an operation, and an operation with the sizes of its thread before and after it.

Must not know: SQL, connections, what the operation does.
"""

from __future__ import annotations

from typing import Any

from langgraph_checkpoint_custom.engine.operation import Operation, Steps, operation
from langgraph_checkpoint_custom.operations.sizes import ThreadSize, sizes_of_threads
from langgraph_checkpoint_custom.sql.dialect import SqlDialect


@operation("exclusive", locks=["thread_id"])
def counted_change(d: SqlDialect, thread_id: str, op: Operation[Any]) -> Steps[tuple[ThreadSize, ThreadSize]]:
    """Run a write, and return the sizes of a thread before and after it. No other operation has changed it in between.

    Round trips: those of the write, and 2.
    Idempotent: as the write is. If the answer to an attempt was lost, the sizes are those before and after the next.
    """
    return (yield from _before_and_after(d, thread_id, op))


class DryRunResult(Exception):  # Not an error: an exception is what rolls a dry run back.
    """The sizes of a thread before and after an operation that was rolled back."""

    def __init__(self, before: ThreadSize, after: ThreadSize) -> None:
        super().__init__("nothing was changed")
        self.before = before
        self.after = after


@operation("dry_run")
def dry_run_of(d: SqlDialect, thread_id: str, op: Operation[Any]) -> Steps[None]:
    """Run a write, count the rows of a thread before and after it, and roll it back. It takes the locks of the write.

    Round trips: those of the write, and 2.
    Raises: DryRunResult, or what the write raises.
    """
    raise DryRunResult(*(yield from _before_and_after(d, thread_id, op)))


def _before_and_after(d: SqlDialect, thread_id: str, op: Operation[Any]) -> Steps[tuple[ThreadSize, ThreadSize]]:
    before = yield from sizes_of_threads(d, [thread_id]).start()
    yield from op.start()
    after = yield from sizes_of_threads(d, [thread_id]).start()
    return before[thread_id].size, after[thread_id].size
