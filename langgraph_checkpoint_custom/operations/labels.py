"""Labels: names of checkpoints, unique in their thread. A prune does not delete a checkpoint with a label.

Must not know: SQL, connections, serializers.

A prune retains everything that a labelled checkpoint needs: the ancestors that its `DeltaChannel`s are rebuilt from, as
hidden checkpoints, and the state that subgraphs with a memory of their own had at that time. A label protects from
pruning only. Deleting the thread or the run deletes labelled checkpoints as well, so that nothing is left.
"""

from __future__ import annotations

from collections.abc import Sequence

from langchain_core.runnables import RunnableConfig

from langgraph_checkpoint_custom.engine.operation import RoundTrip, Steps, operation
from langgraph_checkpoint_custom.errors import CheckpointNotFound, LabelExists
from langgraph_checkpoint_custom.model.keys import Key, config_of
from langgraph_checkpoint_custom.sql.dialect import SqlDialect


@operation("write")
def label(d: SqlDialect, key: Key, name: str) -> Steps[RunnableConfig]:
    """Give a checkpoint a name; returns the config that names it by its id.

    Round trips: 1.
    Idempotent: by (thread_id, name), for the same checkpoint.
    Raises: CheckpointNotFound, also for one that a prune has hidden; LabelExists.
    """
    asks_first = ["select_newest_id"] if key.checkpoint_id is None else []
    *before, rows = yield d.ask(*asks_first, "label_checkpoint", lock="shared", **key._asdict(), name=name)
    if not rows:
        raise checkpoint_not_found(key)
    ((checkpoint_ns, checkpoint_id),) = rows
    # On PostgreSQL, a run may store checkpoints meanwhile: the name may be on any that was the newest since.
    is_newest = bool(before) and checkpoint_id >= (before[0][0][0] if before[0] else "")
    if checkpoint_ns != key.checkpoint_ns or not (checkpoint_id == key.checkpoint_id or is_newest):
        raise LabelExists(
            f"in thread {key.thread_id!r} the label {name!r} belongs to checkpoint {checkpoint_id!r}, namespace "
            f"{checkpoint_ns!r}; unlabel() it, or choose another name"
        )
    return config_of(key.thread_id, checkpoint_ns, checkpoint_id)


@operation("write", reports_change=True)
def unlabel(d: SqlDialect, thread_id: str, name: str) -> Steps[bool]:
    """Remove a label; returns whether the thread had a label of this name.

    Round trips: 1.
    Idempotent: yes.
    """
    # In the order of `delete_thread`, which deletes the labels of a thread before its row. A sweep of the thread, which
    # changes its row in the end, waits for the lock: it would hold that and wait for the row, and the caller for it.
    rows, _ = yield d.ask("delete_label", "hasten_thread", lock="shared", thread_id=thread_id, name=name)
    return bool(rows)


def moved_labels(d: SqlDialect, keys: Sequence[Key], key: Key) -> RoundTrip:
    """Return what moves the labels of checkpoints to another checkpoint of their thread and namespace."""
    return d.ask_each("move_labels", map(Key._asdict, keys), new_id=key.checkpoint_id)


@operation("read")
def labels_of_thread(d: SqlDialect, thread_id: str) -> Steps[dict[str, RunnableConfig]]:
    """Return the labels of a thread, each with the config of its checkpoint, in the order of their names.

    Round trips: 1.
    """
    (rows,) = yield d.ask("select_labels", thread_id=thread_id)
    return {name: config_of(thread_id, *location) for name, *location in rows}


def checkpoint_not_found(key: Key) -> CheckpointNotFound:
    """Return the error for a checkpoint that does not exist or is hidden."""
    which = "no checkpoint" if key.checkpoint_id is None else f"no checkpoint {key.checkpoint_id!r}"
    return CheckpointNotFound(
        f"thread {key.thread_id!r} has {which} in namespace {key.checkpoint_ns!r}, or it was pruned; history() lists "
        "those that exist"
    )
