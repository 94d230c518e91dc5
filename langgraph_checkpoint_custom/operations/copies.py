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
from langgraph_checkpoint_custom.errors import CheckpointNotFound, ThreadExists
from langgraph_checkpoint_custom.model.filter import project
from langgraph_checkpoint_custom.model.keys import Key, config_of, location_of_metadata
from langgraph_checkpoint_custom.model.outline import Branch, Outline
from langgraph_checkpoint_custom.operations.delete import BYTES, chunks_of, sends_for
from langgraph_checkpoint_custom.operations.labels import checkpoint_not_found
from langgraph_checkpoint_custom.sql.dialect import SqlDialect

# Metadata keys of the checkpoint that a forked thread starts from.
FROM_THREAD = "forked_from_thread"
FROM_CHECKPOINT = "forked_from_checkpoint"


@operation("exclusive")
def fork_thread(
    d: SqlDialect, codec: Values, source: str, target: str, checkpoint_id: str | None, run_id: str | None
) -> Steps[RunnableConfig]:
    """Start a thread from a checkpoint, from the last one of a run, or from the newest; returns its config.

    Round trips: 3, with the end of the transaction. One more for each of these: to find the chunks of values; for
        checkpoints older than format 4. 2 if an earlier attempt has made the fork. If a run stores a checkpoint in the
        source between them, and the fork is of the newest one, the copies are deleted and made again.
    Rows: all checkpoints of the source without values, and what is copied.
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
    """Try once; None if a run stored a checkpoint meanwhile: the newest one, or one to which copied writes belong."""
    outlined, rows = yield d.select_fork_point(source, target, checkpoint_id, run_id)
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
    if all((row[0], row[1]) != ("", point) for row in outlined):
        return None
    sends = yield from sends_for(d, source, outlined)

    def decide() -> tuple[dict[str, Any], Branch]:
        metadata = Decoder(codec, source, "", point).metadata(type_, data)
        metadata |= {FROM_THREAD: source, FROM_CHECKPOINT: point}
        stored, searched = dict(metadata), dict(metadata)
        if "thread_id" in metadata:  # As `encode_checkpoint` stores it.
            own = metadata["thread_id"] == source
            stored["thread_id"] = None if own else [metadata["thread_id"]]
            searched["thread_id"] = target if own else metadata["thread_id"]
        new = codec.dumps(stored, location_of_metadata("", point))
        columns = {
            "metadata_type": new.type,
            "metadata": new.value,
            "metadata_filter": project(searched, codec.plaintext_keys),
        }
        return columns, Branch(Outline(outlined, sends=sends), point)

    columns, branch = yield from offload(len(data) + len(outlined) * BYTES, decide)
    blobs = branch.blobs | (yield from chunks_of(d, source, branch.blobs))
    *_, ((count,),) = yield d.store_fork(source, target, point, columns, branch, blobs)
    if branch.is_open and count != len(outlined):
        yield d.delete_fork(target, branch, blobs)
        return None
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
