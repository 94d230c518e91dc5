"""Deleting, pruning and copying whole parts of the store.

Must not know: SQL, connections, serializers: nothing here reads a value.

Deleting is the same everywhere: rows are chosen and marked `doomed`; those that a remaining checkpoint still needs (a
`DeltaChannel` back to its seed, a checkpoint older than format 4 its parent's sends) become `hidden` instead; the rest
goes with its writes and with the blobs that no remaining checkpoint names. All of it is one transaction, so nobody ever
sees a doomed row or a hole.
"""

from __future__ import annotations

from collections.abc import Sequence

from langgraph_checkpoint_custom.core.dialect import SqlDialect
from langgraph_checkpoint_custom.core.operation import Steps, operation
from langgraph_checkpoint_custom.errors import ThreadExists


@operation("write")
def delete_thread(d: SqlDialect, thread_id: str) -> Steps[None]:
    """Delete a thread.

    Trips: 1.
    Idempotent: yes.
    Source: BaseCheckpointSaver.delete_thread.
    """
    yield d.delete_thread(thread_id)


@operation("write")
def delete_for_runs(d: SqlDialect, run_ids: Sequence[str]) -> Steps[None]:
    """Delete the checkpoints and writes of runs, in all threads and namespaces, thread by thread.

    Trips: 1, or 0 if `run_ids` is empty, and one for each thread.
    Idempotent: yes.
    Source: BaseCheckpointSaver.delete_for_runs.
    """
    if run_ids:
        (rows,) = yield d.threads_of_runs(run_ids)
        for (stored,) in rows:
            yield d.delete_runs(d.shown_thread(stored), run_ids)


@operation("write")
def prune_thread(d: SqlDialect, thread_id: str, keep: int = 1) -> Steps[None]:
    """Keep the newest checkpoints of each namespace, `keep` of them, those with a label, and what they need.

    Trips: 1; one more where more than the newest stays.
    Idempotent: yes.
    Source: BaseCheckpointSaver.prune.
    """
    if keep == 1:
        reply = yield d.erase_superseded(thread_id)
        if reply[-1]:
            return
    yield d.delete_superseded(thread_id, keep)


@operation("write")
def copy_thread(d: SqlDialect, source: str, target: str) -> Steps[None]:
    """Copy a thread inside the database.

    Trips: 1.
    Idempotent: yes; a target with checkpoints or writes that the source does not have, or has in another form, is
        refused: a fork begins with one of them, which is no copy of the thread, and a question that was answered in the
        source since is still open there.
    Raises: ThreadExists.
    Source: BaseCheckpointSaver.copy_thread.
    """
    reply = yield d.copy_thread(source, target)
    if reply[0]:
        raise ThreadExists(
            f"thread {target!r} has checkpoints or writes of its own, such as {reply[0][0][0]!r}; nothing was copied. "
            "Choose another target, or delete that thread first"
        )
