"""Deleting one checkpoint, or all that came behind one.

Must not know: SQL, connections, serializers: nothing here reads a value.

Only the victims are chosen here; how they go is told at the head of `maintain.py`. With them go the outputs that tasks
have written beside the checkpoint that is the newest then: if they stayed, LangGraph would take them for those of a
superstep that is still open, and not run its tasks again.
"""

from __future__ import annotations

from collections.abc import Sequence

from langchain_core.runnables import RunnableConfig

from langgraph_checkpoint_custom.core.dialect import SqlDialect
from langgraph_checkpoint_custom.core.labels import checkpoint_not_found
from langgraph_checkpoint_custom.core.model import Key, config_of
from langgraph_checkpoint_custom.core.operation import Row, Steps, operation
from langgraph_checkpoint_custom.errors import CheckpointLabelled


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
