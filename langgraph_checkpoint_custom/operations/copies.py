"""Making a thread from another one: a copy of the complete thread, or a fork that starts from one checkpoint.

Must not know: SQL, connections.

Both are one transaction that holds the lock of the target alone and shares that of the source, and copy rows inside the
database: a copy all of them, a fork those that the outline of the source names (`model/outline.py`). Of a fork, only
the metadata of its checkpoint is read here and stored again, because it names the thread that the fork comes from.

A run may go on in the source meanwhile. If it stores a checkpoint after the first statement, the copied writes may
belong to a later state than the checkpoints. Then the transaction is rolled back and tried again.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from langchain_core.runnables import RunnableConfig

from langgraph_checkpoint_custom.encoding.decode import Decoder
from langgraph_checkpoint_custom.encoding.values import ValueCodec
from langgraph_checkpoint_custom.engine.operation import RoundTrip, Steps, offload, one_trip, operation
from langgraph_checkpoint_custom.errors import CheckpointNotFound, Contention, ThreadExists
from langgraph_checkpoint_custom.model.filter import canonical, project
from langgraph_checkpoint_custom.model.keys import Key, config_of, location_of_metadata
from langgraph_checkpoint_custom.model.outline import BlobPlace, Copies, Outline, branch, reading_names
from langgraph_checkpoint_custom.operations.delete import DECISION_BYTES, chunks_of, sends_for
from langgraph_checkpoint_custom.operations.labels import checkpoint_not_found
from langgraph_checkpoint_custom.operations.sizes import ALL
from langgraph_checkpoint_custom.sql.dialect import SqlDialect

# Metadata keys of the checkpoint that a forked thread starts from.
FROM_THREAD = "forked_from_thread"
FROM_CHECKPOINT = "forked_from_checkpoint"


@operation("transaction")
def copy_thread(d: SqlDialect, source: str, target: str) -> Steps[None]:
    """Copy a thread inside the database, but not writes to checkpoints that were never stored.

    Round trips: 3, with the end of the transaction; 2 if the source is empty.
    Idempotent: yes. A target with checkpoints or writes that the source does not have, or has in another form, is
        refused. Otherwise a fork, which starts with one of the source's checkpoints, would be taken for a copy. So
        would an earlier copy with an interrupt that is open there and was answered in the source since.
    Raises: ThreadExists, Contention.
    Source: BaseCheckpointSaver.copy_thread.
    """
    names = "select_not_in_source", "count_checkpoints"
    others, ((count,),) = yield d.ask(*names, lock="shared", thread_id=source, target=target)
    if others:
        raise _thread_exists(target, others[0][0], "copied")
    if count:
        *_, ((now,),) = yield copied(d, source, target)
        _refuse_new("copy_thread", source, count, now)


def copied(d: SqlDialect, source: str, target: str) -> RoundTrip:
    """Return what copies all rows of a thread. The last reply is the number of its checkpoints."""
    names = "copy_checkpoints", "copy_blobs", "copy_writes", "copy_labels"
    copy = d.ask(*names, thread_id=source, hidden=False, **_to(source, target))
    return one_trip([copy, *_after(d, source, target)])


def _to(source: str, target: str) -> dict[str, Any]:
    """Return the target, and both ids as they are in the plaintext metadata, where one replaces the other."""
    return {"target": target, "source_json": canonical(source), "target_json": canonical(target)}


def _after(d: SqlDialect, source: str, target: str) -> Sequence[RoundTrip]:
    return d.ask("arm_thread", thread_id=target), d.ask("count_checkpoints", thread_id=source)


@operation("transaction")
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
    both: dict[str, Any] = {"thread_id": source, "target": target}
    asked = d.ask("select_outline", "select_not_in_source", lock="shared", **both, limit=ALL)
    outlined, others, there = yield one_trip([asked, d.ask("select_outline", thread_id=target, limit=ALL)])
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
        with reading_names(source):
            return columns, branch(outline, point)

    start, copies = yield from offload(len(data) + len(outlined) * DECISION_BYTES, decide)
    blobs = copies.blobs | (yield from chunks_of(d, source, copies.blobs))
    *_, ((now,),) = yield forked(d, source, target, copies, blobs, start)
    if copies.is_open:
        _refuse_new("fork_thread", source, len(outlined), now)
    return config_of(target, "", point)


def forked(
    d: SqlDialect, source: str, target: str, copies: Copies, blobs: Collection[BlobPlace], start: Mapping[str, Any]
) -> RoundTrip:
    """Return what stores copies, with these blobs. The last reply is the number of the source's checkpoints.

    `start` has the id of the checkpoint that the fork starts from, and its new metadata.
    """
    shown, to = copies.checkpoints - copies.hidden, _to(source, target)
    return one_trip(
        [
            d.ask_keys("fork_checkpoints", source, shown, hidden=False, **to),
            d.ask_keys("fork_checkpoints", source, copies.hidden, hidden=True, **to),
            d.ask_keys("cut_parents", target, copies.cut),
            d.ask_keys("fork_blobs", source, blobs, target=target),
            d.ask_keys("fork_writes", source, copies.written, target=target),
            d.ask("mark_fork", thread_id=target, **start),
            *_after(d, source, target),
        ]
    )


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
