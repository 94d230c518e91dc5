"""Making a thread from another one: a copy of the complete thread, or a fork that starts from one checkpoint.

Must not know: SQL, connections.

A fork copies the checkpoint inside the database. It also copies the ancestors that the `DeltaChannel`s are rebuilt
from, as hidden checkpoints, and the checkpoints of subgraphs with which a run from this checkpoint continues. Only the
metadata of the checkpoint is read here and stored again, because it names the thread that the fork comes from.

If the checkpoint is the newest one, its pending writes are copied: partial results and open interrupts. If it has a
descendant, they are not copied: the descendant was made of them, and in the new thread the tasks run again.
"""

from __future__ import annotations

from typing import Any

from langchain_core.runnables import RunnableConfig

from langgraph_checkpoint_custom.encoding.decode import Decoder
from langgraph_checkpoint_custom.encoding.values import Values
from langgraph_checkpoint_custom.engine.operation import Steps, offload, operation
from langgraph_checkpoint_custom.errors import CheckpointNotFound, Contention, ThreadExists
from langgraph_checkpoint_custom.model.filter import project
from langgraph_checkpoint_custom.model.keys import Key, config_of, location_of_metadata
from langgraph_checkpoint_custom.operations.labels import checkpoint_not_found
from langgraph_checkpoint_custom.sql.dialect import SqlDialect
from langgraph_checkpoint_custom.sql.thread_statements import Fork

# Metadata keys of the checkpoint that a forked thread starts from.
FROM_THREAD = "forked_from_thread"
FROM_CHECKPOINT = "forked_from_checkpoint"


@operation("write", checks_first=True)
def fork_thread(
    d: SqlDialect, codec: Values, source: str, target: str, checkpoint_id: str | None, run_id: str | None
) -> Steps[RunnableConfig]:
    """Start a thread from a checkpoint, from the last one of a run, or from the newest; returns its config.

    Round trips: 2, or 1 if an earlier attempt has made the fork; on SQLite, where they do not cross a network, one more
        to store it. The second one is one transaction, and one read snapshot of the source. Two more each time that
        another checkpoint becomes the newest between them, or another caller creates the target.
    Rows: the checkpoint and what it needs; of the source's other rows, index entries and the names of delta channels.
    Idempotent: yes, as long as no run has continued in the target.
    Raises: ThreadExists, CheckpointNotFound, CorruptCheckpoint.
    """
    config = None
    while config is None:
        config = yield from _fork(d, codec, source, target, checkpoint_id, run_id)
    return config


def _fork(
    d: SqlDialect, codec: Values, source: str, target: str, checkpoint_id: str | None, run_id: str | None
) -> Steps[RunnableConfig | None]:
    """Try once; None if another checkpoint became the newest, or the target was created, maybe by the same fork."""
    (rows,) = yield d.select_fork_point(source, target, checkpoint_id, run_id)
    found = {row[0]: row[1:] for row in rows}
    if "point" not in found:
        if run_id is not None:
            raise CheckpointNotFound(
                f"run {run_id!r} has no checkpoint in thread {source!r}, or it was pruned; runs() lists the others"
            )
        raise checkpoint_not_found(Key(source, "", checkpoint_id))
    point, type_, data = found["point"]
    if "target" in found:
        there, there_type, there_data = found["target"]
        if there == point:
            metadata = Decoder(codec, target, "", point).metadata(there_type, there_data)
            if (metadata.get(FROM_THREAD), metadata.get(FROM_CHECKPOINT)) == (source, point):
                return config_of(target, "", point)
        raise _exists(target)

    def encoded() -> dict[str, Any]:
        metadata = Decoder(codec, source, "", point).metadata(type_, data)
        metadata |= {FROM_THREAD: source, FROM_CHECKPOINT: point}
        stored, searched = dict(metadata), dict(metadata)
        if "thread_id" in metadata:  # As `encode_checkpoint` stores it.
            own = metadata["thread_id"] == source
            stored["thread_id"] = None if own else [metadata["thread_id"]]
            searched["thread_id"] = target if own else metadata["thread_id"]
        new = codec.dumps(stored, location_of_metadata("", point))
        return {
            "metadata_type": new.type,
            "metadata": new.value,
            "metadata_filter": project(searched, codec.plaintext_keys),
        }

    params = yield from offload(len(data), encoded)
    fork = Fork(source, target, point, params, checkpoint_id is not None, run_id)
    refusal, *newest = yield d.fork_thread(fork)
    if refusal:
        return None
    if rest := d.store_fork(fork):
        *_, newest_now = yield rest
        if newest and newest[0] != newest_now and newest[0][0][0] == point:  # On Citus only.
            raise Contention(f"fork_thread: checkpoint {point!r} got a successor meanwhile", operation="fork_thread")
    return config_of(target, "", point)


def _exists(target: str) -> ThreadExists:
    return ThreadExists(
        f"thread {target!r} has checkpoints of its own; nothing was forked. Choose another target, or delete that "
        "thread first"
    )


@operation("write", checks_first=True)
def copy_thread(d: SqlDialect, source: str, target: str) -> Steps[None]:
    """Copy a thread inside the database.

    Round trips: 1.
    Idempotent: yes. A target with checkpoints or writes that the source does not have, or has in another form, is
        refused. Otherwise a fork, which starts with one of the source's checkpoints, would be taken for a copy. So
        would an earlier copy with an interrupt that is open there and was answered in the source since.
    Raises: ThreadExists.
    Source: BaseCheckpointSaver.copy_thread.
    """
    reply = yield d.copy_thread(source, target)
    if reply[0]:
        raise ThreadExists(
            f"thread {target!r} has checkpoints or writes of its own, such as {reply[0][0][0]!r}; nothing was copied. "
            "Choose another target, or delete that thread first"
        )
    if rest := d.store_copy(source, target):
        yield rest
