"""Deleting: a thread, runs, what a prune lets go, one checkpoint, or all that came behind one.

Must not know: SQL, connections, serializers: nothing here reads a value.

Deleting is the same everywhere: rows are chosen and marked `doomed`; those that a remaining checkpoint still needs (a
`DeltaChannel` back to its seed, a checkpoint older than format 4 its parent's sends) become `hidden` instead; the rest
goes with its writes and with the blobs that no remaining checkpoint names. All of it is one transaction, so nobody ever
sees a doomed row or a hole. Only the victims are chosen here.

With one checkpoint, or all behind one, go the outputs that tasks have written beside the checkpoint that is the newest
then: if they stayed, LangGraph would take them for those of a superstep that is still open, and not run its tasks
again.
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
            yield d.delete_runs(d.own_thread_id(stored), run_ids)


@operation("write")
def prune_thread(d: SqlDialect, thread_id: str, keep: int = 1) -> Steps[None]:
    """Keep the newest checkpoints of each namespace, `keep` of them, those with a label, and what they need.

    Trips: 1; one more where more than the newest stays.
    Idempotent: yes.
    Source: BaseCheckpointSaver.prune.
    """
    if keep == 1:
        reply = yield d.delete_all_but_newest(thread_id)
        if reply[-1]:
            return
    yield d.delete_superseded(thread_id, keep)


@operation("write", tells=True)
def delete_checkpoint(d: SqlDialect, key: Key) -> Steps[bool]:
    """Delete a checkpoint with the subgraph calls that it started, or hide it if a descendant needs it.

    Trips: 1.
    Idempotent: yes; False if there is none, or it is hidden already.
    Raises: CheckpointLabelled.
    """
    found, labels, *_ = yield d.delete_checkpoint(key)
    if labels:
        raise _labelled(labels, f"checkpoint {key.checkpoint_id!r} of thread {key.thread_id!r} is not deleted")
    return bool(found)


@operation("write")
def rollback(d: SqlDialect, key: Key) -> Steps[RunnableConfig]:
    """Delete all that came behind a checkpoint of the root graph, in all namespaces; returns its config.

    Trips: 1.
    Rows: all of the thread's checkpoints are looked at.
    Idempotent: yes.
    Raises: CheckpointNotFound, also for one that a prune has hidden; CheckpointLabelled.
    """
    found, labels, *_ = yield d.delete_later(key)
    if not found or key.checkpoint_id is None:
        raise checkpoint_not_found(key)
    if labels:
        raise _labelled(labels, f"thread {key.thread_id!r} stays as it is")
    return config_of(key.thread_id, key.checkpoint_ns, key.checkpoint_id)


def _labelled(labels: Sequence[Row], what: str) -> CheckpointLabelled:
    names = ", ".join(repr(name) for (name,) in labels)
    return CheckpointLabelled(f"{what}: a checkpoint that would go has the label {names}; unlabel() it first")
