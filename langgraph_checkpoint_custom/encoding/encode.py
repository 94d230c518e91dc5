"""Encodes LangGraph's checkpoints and writes.

Must not know: SQL, connections.

A checkpoint is one row if its document, with all values, has at most `DOCUMENT` bytes, or up to `CHANGING` times as
many if most of them have a new version: its values are stored as they are when `put` is called. The larger values of a
larger checkpoint are blobs, see `encoded.py`. So are most values with a serializer other than LangGraph's, which may do
something else for a value alone than for one inside a document.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from langchain_core.messages import BaseMessage
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import WRITES_IDX_MAP, ChannelVersions, Checkpoint, CheckpointMetadata

from langgraph_checkpoint_custom.encoding.chunks import KnownBlobs
from langgraph_checkpoint_custom.encoding.encoded import (
    SPECIAL,
    Encoded,
    encode_large,
    is_always_blob,
)
from langgraph_checkpoint_custom.encoding.metadata import merge_metadata
from langgraph_checkpoint_custom.encoding.rows import PlacedRow, deltas_of, fail, row_of, run_of, seal_rows, version_key
from langgraph_checkpoint_custom.encoding.serde import MSGPACK
from langgraph_checkpoint_custom.encoding.values import TypedBytes, ValueCodec
from langgraph_checkpoint_custom.engine.operation import Offload
from langgraph_checkpoint_custom.errors import ConfigError
from langgraph_checkpoint_custom.model.keys import (
    MAX_ID,
    MAX_NAME,
    Key,
    WriteRow,
    channel_text,
    channel_texts,
    claim_of,
    key_of,
    location_of_checkpoint,
    location_of_write,
    text,
)

# Bytes of the largest document that has all its values, before compression and encryption.
DOCUMENT = 4_096
# Times that it may be larger if its values without a new version take at most `DOCUMENT`: the others are stored anyway.
CHANGING = 4
# Bytes of the names of a message's class and fields, at least.
NAME_OF_MESSAGE = 50


def encode_checkpoint(
    codec: ValueCodec,
    parent: Key,
    config: RunnableConfig,
    checkpoint: Checkpoint,
    metadata: CheckpointMetadata,
    new_versions: ChannelVersions,
    before: KnownBlobs | None = None,
) -> Encoded | Offload:
    """Encode a checkpoint.

    Args:
        codec: Encodes the values.
        parent: The key that the config names: thread, namespace and the id of the parent.
        config: The config that the checkpoint is put with.
        checkpoint: The checkpoint.
        metadata: Its metadata.
        new_versions: The channels whose values have changed since the parent, with their new versions.
        before: The parent's blobs, or None if nothing is known of them.

    Returns:
        The checkpoint, for which no object is encoded later unless its stored blob turns out to be missing; if sealing
        its bytes takes long, an `Offload` that does it.
    """
    merged, claim = merge_metadata(config, metadata, codec), claim_of(config)
    values, versions = checkpoint.get("channel_values"), checkpoint.get("channel_versions")
    if not values:
        values = {}
        checkpoint = {**checkpoint, "channel_values": values}
    together = ""  # The texts of the versions, which the document has.
    if versions:
        try:
            together = "".join(versions.values())  # type: ignore[arg-type]  # Most are text, and a pass over all is short.
        except TypeError:
            together = "#"
        if not together.isascii() or "\0" in together or "#" in together:
            for version in versions.values():
                version_key(version)
    if len(together) <= DOCUMENT * CHANGING and (
        document := _whole_document(codec, checkpoint, values, new_versions, before)
    ):
        type_, data = document
        if len(data) >= codec.seals_from or type_ != MSGPACK:
            checkpoint_id = text("checkpoint id", checkpoint["id"], MAX_ID)
            type_, data = codec.seal(type_, data, location_of_checkpoint(parent.checkpoint_ns, checkpoint_id))
        inline = channel_texts(tuple(values))
        if "counters_since_delta_snapshot" not in merged:
            return Encoded(row_of(codec, parent, checkpoint, merged, (type_, data), inline, ()), claim)
        delta, replayed, references = deltas_of(parent, checkpoint, merged, new_versions)
        row = row_of(codec, parent, checkpoint, merged, (type_, data), inline, delta)
        return Encoded(row, claim, replayed, references)
    return encode_large(codec, parent, checkpoint, merged, new_versions, before, claim)


def _whole_document(
    codec: ValueCodec,
    checkpoint: Checkpoint,
    values: Mapping[str, Any],
    new_versions: ChannelVersions,
    before: KnownBlobs | None,
) -> TypedBytes | None:
    """Encode the document with all values; None if some of them have to be blobs."""
    if not codec.packs or (
        not SPECIAL.isdisjoint(map(type, values.values())) and any(map(is_always_blob, values, values.values()))
    ):
        return None
    old = {channel: value for channel, value in values.items() if channel not in new_versions} if before else {}
    if before and (_exceeds(old.values(), DOCUMENT) or _exceeds(values.values(), DOCUMENT * CHANGING)):
        return None
    try:
        type_, data = codec.encode(checkpoint)
        if len(data) <= DOCUMENT:
            return type_, data
        if len(data) <= DOCUMENT * CHANGING:
            old = {channel: value for channel, value in values.items() if channel not in new_versions}
            if len(codec.encode(old)[1]) <= DOCUMENT:
                return type_, data
    except Exception:  # Outside of a document, a value may be nested more deeply, and the error names the channel.
        pass
    return None


def _exceeds(values: Collection[Any], limit: int) -> bool:
    """Whether values are certain to take more than `limit` bytes in msgpack, by what can be seen without encoding them.

    False means that only encoding them can tell.
    """
    left = limit
    todo = list(values)
    while todo:
        if len(todo) > left:  # Each takes one byte at least.
            return True
        value = todo.pop()
        left -= 1
        kind = type(value)
        if kind is str or kind is bytes:
            left -= len(value)
        elif kind is list:
            todo += value[: left + 1]
        elif kind is dict:
            left -= len(value)
            todo += value.values()
        elif isinstance(value, BaseMessage):
            left -= NAME_OF_MESSAGE
            todo.append(value.content)
    return left < 0


EncodedWrites = tuple[Key, Sequence[WriteRow], str | None]
"""The checkpoint that outputs of a task belong to, their rows, and the token of the claim that must be held, if any."""


def encode_writes(
    codec: ValueCodec, config: RunnableConfig, writes: Sequence[tuple[str, Any]], task_id: str, task_path: str
) -> EncodedWrites | Offload:
    """Encode the outputs of a task; of several special writes to one channel, the last one is stored.

    Returns an `Offload` if sealing takes long, as `encode_checkpoint` does.
    """
    key = key_of(config)
    checkpoint_id = key.checkpoint_id
    if checkpoint_id is None:
        raise ConfigError("put_writes needs the checkpoint_id that the writes belong to in its config")
    task_id = text("task_id", task_id, MAX_ID)
    task_path = text("task_path", task_path, MAX_NAME)
    run_id, claim = _run_of_config(config), claim_of(config)
    rows: dict[int, WriteRow] = {}
    seals = False
    for position, (channel, value) in enumerate(writes):
        idx = WRITES_IDX_MAP.get(channel, position)
        channel = channel_text(channel)
        try:
            type_, data = codec.encode(value)
        except Exception as error:
            fail(location_of_write(key.checkpoint_ns, checkpoint_id, task_id, idx, channel), error)
        seals = seals or len(data) >= codec.seals_from or "|" in type_
        rows[idx] = WriteRow(task_id, task_path, run_id, idx, channel, type_, data)
    found = list(rows.values())
    if not seals:
        return key, found, claim
    placed: list[PlacedRow[WriteRow]] = [
        (row, location_of_write(key.checkpoint_ns, checkpoint_id, task_id, row.idx, row.channel), "") for row in found
    ]
    return seal_rows(codec, placed, lambda rows: (key, rows, claim))


def _run_of_config(config: RunnableConfig) -> str | None:
    """The run that the metadata of a checkpoint put with this config would name."""
    for part in (config.get("metadata"), config.get("configurable")):
        run_id = part.get("run_id") if part else None
        if isinstance(run_id, (str, int, float)):
            return run_of({"run_id": run_id})
    return None
