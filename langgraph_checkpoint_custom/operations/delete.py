"""Deleting: a thread, runs, what a prune removes, one checkpoint, or everything after a checkpoint.

Must not know: SQL, connections, serializers: nothing here reads a value.

Every deletion has the same steps, in one transaction:

1. Checkpoints are chosen and marked for deletion (the column `deleting`). Each operation here chooses other ones.
2. Checkpoints that a remaining one needs become `hidden` instead. A `DeltaChannel` needs the ancestors back to its
   seed, and a checkpoint older than format 4 needs the sends of its parent.
3. The others are deleted, with their writes and with the blobs that no remaining checkpoint names.

So no other transaction sees a marked row or a gap.

`delete_checkpoint` and `rollback` also delete writes of the checkpoint that becomes the newest: the outputs of its
tasks. If they remained, LangGraph would take them for the outputs of an open superstep and not run the tasks again.
"""

from __future__ import annotations

from collections.abc import Sequence

from langchain_core.runnables import RunnableConfig

from langgraph_checkpoint_custom.engine.operation import Row, Steps, operation
from langgraph_checkpoint_custom.errors import CheckpointLabelled
from langgraph_checkpoint_custom.model.keys import Key, config_of
from langgraph_checkpoint_custom.operations.labels import checkpoint_not_found
from langgraph_checkpoint_custom.sql.dialect import SqlDialect


@operation("write")
def delete_thread(d: SqlDialect, thread_id: str) -> Steps[None]:
    """Delete all rows of a thread.

    Round trips: 1.
    Idempotent: yes.
    Source: BaseCheckpointSaver.delete_thread.
    """
    yield d.delete_thread(thread_id)


@operation("write")
def delete_for_runs(d: SqlDialect, run_ids: Sequence[str]) -> Steps[None]:
    """Delete the checkpoints and writes of runs, in all threads and namespaces, one thread after the other.

    Round trips: 1, and one for each thread; 0 if `run_ids` is empty.
    Idempotent: yes.
    Source: BaseCheckpointSaver.delete_for_runs.
    """
    if run_ids:
        (rows,) = yield d.threads_of_runs(run_ids)
        for (stored,) in rows:
            yield d.delete_runs(d.own_thread_id(stored), run_ids)


@operation("write")
def prune_thread(d: SqlDialect, thread_id: str, keep: int = 1) -> Steps[None]:
    """Delete all but the `keep` newest checkpoints of each namespace, those with a label, and what these need.

    Round trips: 1. On PostgreSQL with `keep=1`, one more if anything but the newest checkpoints has to remain.
    Idempotent: yes.
    Source: BaseCheckpointSaver.prune.
    """
    if keep == 1 and (quick := d.delete_all_but_newest(thread_id)):
        (done,) = yield quick
        if done:
            return
    yield d.delete_superseded(thread_id, keep)


@operation("write", reports_change=True)
def delete_checkpoint(d: SqlDialect, key: Key) -> Steps[bool]:
    """Delete a checkpoint with the subgraph calls that it started, or hide it if a descendant needs it.

    The result is whether there was such a checkpoint.

    Round trips: 1.
    Idempotent: yes; False if it does not exist or is hidden already.
    Raises: CheckpointLabelled.
    """
    found, labels, *_ = yield d.delete_checkpoint(key)
    if labels:
        raise _labelled(labels, f"checkpoint {key.checkpoint_id!r} of thread {key.thread_id!r} was not deleted")
    return bool(found)


@operation("write")
def rollback(d: SqlDialect, key: Key) -> Steps[RunnableConfig]:
    """Delete everything after a checkpoint of the root graph, in all namespaces; returns the checkpoint's config.

    Round trips: 1.
    Rows: all checkpoints of the thread are read.
    Idempotent: yes.
    Raises: CheckpointNotFound, also for a checkpoint that a prune has hidden; CheckpointLabelled.
    """
    found, labels, *_ = yield d.delete_later(key)
    if not found or key.checkpoint_id is None:
        raise checkpoint_not_found(key)
    if labels:
        raise _labelled(labels, f"thread {key.thread_id!r} was not changed")
    return config_of(key.thread_id, key.checkpoint_ns, key.checkpoint_id)


def _labelled(labels: Sequence[Row], what: str) -> CheckpointLabelled:
    names = ", ".join(repr(name) for (name,) in labels)
    return CheckpointLabelled(f"{what}: a checkpoint that would be deleted has the label {names}; unlabel() it first")
