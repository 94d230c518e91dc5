"""Storing checkpoints and writes.

Must not know: SQL, connections, serializers (rows come encoded).
"""

from __future__ import annotations

from collections.abc import Sequence

from langgraph_checkpoint_custom.core.codec import Encoded
from langgraph_checkpoint_custom.core.dialect import SqlDialect
from langgraph_checkpoint_custom.core.model import Key, WriteRow
from langgraph_checkpoint_custom.core.operation import Steps, operation
from langgraph_checkpoint_custom.errors import CheckpointNotFound


@operation("write")
def put(d: SqlDialect, encoded: Encoded) -> Steps[None]:
    """Store a checkpoint with the values that are new in it.

    Trips: 1; one more if a value that earlier checkpoints held is gone, because the thread was pruned or deleted while
        a run went on from there. It is then stored again from the checkpoint itself.
    Rows: one checkpoint, one blob per new value that is not inline; `value` in bytes, no upper bound.
    Idempotent: by (thread_id, checkpoint_ns, checkpoint_id); a repeat replaces.
    Raises: CheckpointNotFound if a `DeltaChannel` needs the parent and a prune has removed it.
    Source: BaseCheckpointSaver.put.
    """
    while True:
        reply = yield d.put_checkpoint(encoded)
        gone = [row[0] for row in reply[-1]]
        if not gone:
            return
        if None in gone:
            row = encoded.row
            raise CheckpointNotFound(
                f"checkpoint {row.checkpoint_id!r} builds on {row.parent_id!r}, which was pruned or deleted meanwhile, "
                f"and channels {', '.join(map(repr, row.delta_channels))} cannot be rebuilt without it; nothing was "
                f"stored. Start again from the newest checkpoint of thread {row.thread_id!r}"
            )
        encoded = encoded._replace(
            blobs=[*encoded.blobs, *encoded.spare(gone)],
            kept=[ref for ref in encoded.kept if ref.channel not in gone],
        )


@operation("write")
def put_writes(d: SqlDialect, key: Key, rows: Sequence[WriteRow]) -> Steps[None]:
    """Store the outputs of a task.

    Trips: 1, or 0 if there are none.
    Rows: one WriteRow per write; `value` in bytes, no upper bound.
    Idempotent: by (thread_id, checkpoint_ns, checkpoint_id, task_id, idx); regular writes keep the first value,
        special ones the last.
    Source: BaseCheckpointSaver.put_writes; WRITES_IDX_MAP; writes_sort_key.
    """
    if rows:
        yield d.insert_writes(key, rows)
