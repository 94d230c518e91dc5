"""Making a thread from another one: a copy of the complete thread, or a fork that starts from one checkpoint.

Must not know: SQL, connections.

Both are one transaction that holds the lock of the target alone and shares that of the source, and copy rows inside the
database: a copy all of them, a fork those that the outline of the source names (`model/outline.py`). Of a fork, only
the metadata of its checkpoint is read here and stored again, because it names the thread that the fork comes from.

A run may go on in the source meanwhile. If it stores a checkpoint after the first statement, the copied writes may
belong to a later state than the checkpoints. Then the transaction is rolled back and tried again.
"""

from __future__ import annotations

from typing import Any

from langchain_core.runnables import RunnableConfig

from langgraph_checkpoint_custom.encoding.decode import Decoder
from langgraph_checkpoint_custom.encoding.values import ValueCodec
from langgraph_checkpoint_custom.engine.operation import Steps, offload, operation
from langgraph_checkpoint_custom.errors import CheckpointNotFound, Contention, ThreadExists
from langgraph_checkpoint_custom.model.filter import project
from langgraph_checkpoint_custom.model.keys import Key, config_of, location_of_metadata
from langgraph_checkpoint_custom.model.outline import Copies, Outline, branch
from langgraph_checkpoint_custom.operations.delete import DECISION_BYTES, chunks_of, sends_for
from langgraph_checkpoint_custom.operations.labels import checkpoint_not_found
from langgraph_checkpoint_custom.sql.dialect import SqlDialect

# Metadata keys of the checkpoint that a forked thread starts from.
FROM_THREAD = "forked_from_thread"
FROM_CHECKPOINT = "forked_from_checkpoint"


@operation("exclusive")
def copy_thread(d: SqlDialect, source: str, target: str) -> Steps[None]:
    """Copy a thread inside the database, but not writes to checkpoints that were never stored.

    Round trips: 3, with the end of the transaction; 2 if the source is empty.
    Idempotent: yes. A target with checkpoints or writes that the source does not have, or has in another form, is
        refused. Otherwise a fork, which starts with one of the source's checkpoints, would be taken for a copy. So
        would an earlier copy with an interrupt that is open there and was answered in the source since.
    Raises: ThreadExists, Contention.
    Source: BaseCheckpointSaver.copy_thread.
    """
    others, ((count,),) = yield d.select_for_copy(source, target)
    if others:
        raise _thread_exists(target, others[0][0], "copied")
    if count:
        *_, ((now,),) = yield d.copy_thread(source, target)
        _refuse_new("copy_thread", source, count, now)


@operation("exclusive")
def fork_thread(
    d: SqlDialect, codec: ValueCodec, source: str, target: str, checkpoint_id: str | None, run_id: str | None
) -> Steps[RunnableConfig]:
    """Start a thread from a checkpoint, from the last one of a run, or from the newest; returns its config.

    Round trips: 4, with the end of the transaction. One more for each of these: to find the chunks of values; for
        checkpoints older than format 4. 3 if an earlier attempt has made the fork.
    Rows: all checkpoints of the source without values, and what is copied.
    Idempotent: yes, as long as no run has continued in the target. A target without
        checkpoints and with writes that the source does not have is refused: a run has begun there.
    Raises: ThreadExists, CheckpointNotFound, CorruptCheckpoint, Contention.
    """
    outlined, there, others = yield d.select_outlines(source, target)
    sends = yield from sends_for(d, source, outlined)
    outline = yield from offload(len(outlined) * DECISION_BYTES, Outline, outlined, None, sends)
    point = outline.root(checkpoint_id, run_id)
    if point is None:
        if run_id is not None:
            raise CheckpointNotFound(
                f"run {run_id!r} has no checkpoint in thread {source!r}, or it was pruned; runs() lists the others"
            )
        raise checkpoint_not_found(Key(source, "", checkpoint_id))
    if there and Outline(there).root() == point and (yield from _is_fork(d, codec, source, target, point)):
        return config_of(target, "", point)
    if there or others:
        other = min(each for _, each in Outline(there).rows) if there else others[0][0]
        raise _thread_exists(target, other, "forked")
    (((type_, data),),) = yield d.ask("select_metadata", **Key(source, "", point)._asdict())

    def decide() -> tuple[dict[str, Any], Copies]:
        metadata = Decoder(codec, source, "", point).metadata(type_, data)
        metadata |= {FROM_THREAD: source, FROM_CHECKPOINT: point}
        stored, searched = dict(metadata), dict(metadata)
        if "thread_id" in metadata:  # As `encode_checkpoint` stores it.
            own = metadata["thread_id"] == source
            stored["thread_id"] = None if own else [metadata["thread_id"]]
            searched["thread_id"] = target if own else metadata["thread_id"]
        new_type, new = codec.dumps(stored, location_of_metadata("", point))
        columns = {
            "checkpoint_id": point,
            "metadata_type": new_type,
            "metadata": new,
            "metadata_filter": project(searched, codec.plaintext_keys),
        }
        return columns, branch(outline, point)

    start, copies = yield from offload(len(data) + len(outlined) * DECISION_BYTES, decide)
    blobs = copies.blobs | (yield from chunks_of(d, source, copies.blobs))
    *_, ((now,),) = yield d.store_fork(source, target, copies, blobs, start)
    if copies.is_open:
        _refuse_new("fork_thread", source, len(outlined), now)
    return config_of(target, "", point)


def _thread_exists(target: str, checkpoint_id: str, done: str) -> ThreadExists:
    return ThreadExists(
        f"thread {target!r} has checkpoints or writes of its own, such as {checkpoint_id!r}; nothing was {done}. "
        "Choose another target, or delete that thread first"
    )


def _is_fork(d: SqlDialect, codec: ValueCodec, source: str, target: str, point: str) -> Steps[bool]:
    """Return whether a checkpoint of the target says that it was forked from that of the source.

    Round trips: 1.
    """
    (((type_, data),),) = yield d.ask("select_metadata", **Key(target, "", point)._asdict())
    metadata = Decoder(codec, target, "", point).metadata(type_, data)
    return (metadata.get(FROM_THREAD), metadata.get(FROM_CHECKPOINT)) == (source, point)


def _refuse_new(name: str, source: str, before: int, now: int) -> None:
    if now != before:
        raise Contention(
            f"{name}: a run stored checkpoints in thread {source!r} during each attempt; nothing was copied. Try again "
            "when the run has ended",
            operation=name,
        )
