"""The history of `DeltaChannel`s: the writes of a checkpoint's ancestors back to a stored value.

Must not know: SQL, connections, reducers.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

from langgraph.checkpoint.base import DeltaChannelHistory, PendingWrite
from langgraph.checkpoint.serde.base import SerializerProtocol

from langgraph_checkpoint_custom.core.codec import Decoder
from langgraph_checkpoint_custom.core.dialect import SqlDialect
from langgraph_checkpoint_custom.core.model import Key, TupleRow
from langgraph_checkpoint_custom.core.operation import Offload, Steps, operation
from langgraph_checkpoint_custom.core.read import in_order, size_of


@operation("read")
def get_delta_channel_history(
    d: SqlDialect, serde: SerializerProtocol, key: Key, channels: Sequence[str]
) -> Steps[Mapping[str, DeltaChannelHistory]]:
    """For each channel, the writes of the ancestors oldest first, and the nearest stored value as the seed.

    Trips: 1, or 0 if `channels` is empty.
    Rows: the writes, blobs and, for values inside them, documents between the checkpoint and the farthest seed.
    Snapshot: one read snapshot.
    Raises: CorruptCheckpoint.
    Source: BaseCheckpointSaver.get_delta_channel_history.
    """
    if not channels:
        return {}
    asked = sorted(set(channels))
    (rows,) = yield d.select_delta_history(key, asked)
    rows = [TupleRow._make(row) for row in rows]
    histories: dict[str, DeltaChannelHistory] = yield Offload(size_of(rows), lambda: _walk(d, serde, key, asked, rows))
    return {channel: histories[channel] for channel in channels}


def _walk(
    d: SqlDialect, serde: SerializerProtocol, key: Key, asked: Sequence[str], rows: Sequence[TupleRow]
) -> dict[str, DeltaChannelHistory]:
    """Follow the parents from the target; `checkpoint` rows carry the asked channels that are stored in `channels`.

    In a chain that loops, an ancestor comes twice, the second time with fewer channels and writes that came before.
    """
    ancestors: dict[str, TupleRow] = {}
    blobs: dict[tuple[str, str], TupleRow] = {}
    writes: defaultdict[str, dict[tuple[str | None, int | None], TupleRow]] = defaultdict(dict)
    cursor: str | None = None
    seen: set[str] = set()
    for row in rows:
        if row.kind == "target":
            cursor = row.name
            seen.add(row.checkpoint_id)
        elif row.kind == "checkpoint":
            twin = ancestors.get(row.checkpoint_id)
            if twin is None or len(d.names(twin.channels)) < len(d.names(row.channels)):
                ancestors[row.checkpoint_id] = row
        elif row.kind == "blob":
            blobs[row.checkpoint_id, row.name or ""] = row
        else:
            writes[row.checkpoint_id][row.key, row.idx] = row

    collected: dict[str, list[PendingWrite]] = {channel: [] for channel in asked}
    seeds: dict[str, Any] = {}
    remaining = set(asked)
    while remaining and cursor is not None and cursor not in seen and cursor in ancestors:
        seen.add(cursor)
        ancestor = ancestors[cursor]
        decoder = Decoder(serde, key.thread_id, key.checkpoint_ns, cursor)
        for row in reversed(in_order(writes[cursor].values())):
            channel = row.name or ""
            if channel in remaining:
                value = decoder.value(channel, row.type, row.value)
                collected[channel].append((row.key or "", channel, value))
        inline: Mapping[str, Any] = {}
        for channel in remaining.intersection(d.names(ancestor.channels)):
            blob = blobs.get((cursor, channel))
            if blob is not None:
                seeds[channel] = decoder.value(channel, blob.type, blob.value)
            else:
                if ancestor.value is None:
                    raise decoder.corrupt("the stored value is gone", channel)
                inline = inline or decoder.document(ancestor.type, ancestor.value)["channel_values"]
                if channel not in inline:
                    raise decoder.corrupt("the stored value is gone", channel)
                seeds[channel] = inline[channel]
            remaining.discard(channel)
        cursor = ancestor.name

    histories: dict[str, DeltaChannelHistory] = {}
    for channel in asked:
        histories[channel] = {"writes": collected[channel][::-1]}
        if channel in seeds:
            histories[channel]["seed"] = seeds[channel]
    return histories
