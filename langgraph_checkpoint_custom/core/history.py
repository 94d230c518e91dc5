"""The history of `DeltaChannel`s: the writes of a checkpoint's ancestors back to a stored value.

Must not know: SQL, connections, reducers.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

from langgraph.checkpoint.base import DeltaChannelHistory, PendingWrite

from langgraph_checkpoint_custom.core.codec import Decoder
from langgraph_checkpoint_custom.core.dialect import SqlDialect
from langgraph_checkpoint_custom.core.model import Key, TupleRow
from langgraph_checkpoint_custom.core.operation import Offload, Steps, operation
from langgraph_checkpoint_custom.core.read import in_order, size_of
from langgraph_checkpoint_custom.core.values import Values
from langgraph_checkpoint_custom.errors import CheckpointNotFound


@operation("read")
def get_delta_channel_history(
    d: SqlDialect, codec: Values, key: Key, channels: Sequence[str]
) -> Steps[Mapping[str, DeltaChannelHistory]]:
    """For each channel, the writes of the ancestors oldest first, and the nearest stored value as the seed.

    Trips: 1, or 0 if `channels` is empty.
    Rows: the writes, blobs and, for values inside them, documents between the checkpoint and the farthest seed.
    Snapshot: one read snapshot.
    Raises: CheckpointNotFound if a channel goes back to what was pruned; CorruptCheckpoint.
    Source: BaseCheckpointSaver.get_delta_channel_history.
    """
    if not channels:
        return {}
    asked = sorted(set(channels))
    (rows,) = yield d.select_delta_history(key, asked)
    rows = d.rows(rows)
    histories: dict[str, DeltaChannelHistory] = yield Offload(
        size_of(rows), lambda: _collect(d, codec, key, asked, rows)
    )
    return {channel: histories[channel] for channel in channels}


def lineage(d: SqlDialect, asked: Sequence[str], rows: Sequence[TupleRow]) -> tuple[Sequence[TupleRow], Sequence[str]]:
    """The ancestors back to the farthest seed, nearest first, and the channels that go back to what is gone.

    In `channels`, the target has all channels that have a value there, an ancestor those that have their seed there. In
    `versions`, both have their delta channels if they are hidden. A channel with a value in the target is not missed.
    In a chain that loops, an ancestor comes twice, the second time with fewer channels.
    """
    by_id: dict[str, TupleRow] = {}
    last: TupleRow | None = None
    for row in rows:
        if row.kind == "target":
            last = row
        elif row.kind == "checkpoint":
            twin = by_id.get(row.checkpoint_id)
            if twin is None or len(d.names(twin.channels)) < len(d.names(row.channels)):
                by_id[row.checkpoint_id] = row
    if last is None:
        return [], []
    has = d.names(last.channels)
    found: list[TupleRow] = []
    remaining, seen = set(asked), {last.checkpoint_id}
    while remaining and last.name is not None and last.name not in seen:
        if last.name not in by_id:
            return found, sorted(remaining.intersection(d.names(last.versions)).difference(has))
        last = by_id[last.name]
        seen.add(last.checkpoint_id)
        found.append(last)
        remaining.difference_update(d.names(last.channels))
    return found, []


def _collect(
    d: SqlDialect, codec: Values, key: Key, asked: Sequence[str], rows: Sequence[TupleRow]
) -> dict[str, DeltaChannelHistory]:
    """Decode what the ancestors have of each channel."""
    ancestors, gone = lineage(d, asked, rows)
    if gone:
        raise CheckpointNotFound(
            f"channels {', '.join(map(repr, gone))} of checkpoint {key.checkpoint_id!r} in thread {key.thread_id!r}, "
            f"namespace {key.checkpoint_ns!r}, cannot be rebuilt: what they go back to was pruned or deleted. Go on "
            "from the newest checkpoint"
        )
    blobs: dict[tuple[str, str], TupleRow] = {}
    writes: defaultdict[str, dict[tuple[str | None, int | None], TupleRow]] = defaultdict(dict)
    for row in rows:
        if row.kind == "blob":
            blobs[row.checkpoint_id, row.name or ""] = row
        elif row.kind == "write":  # In a chain that loops it may come twice.
            writes[row.checkpoint_id][row.key, row.idx] = row

    collected: dict[str, list[PendingWrite]] = {channel: [] for channel in asked}
    seeds: dict[str, Any] = {}
    remaining = set(asked)
    for ancestor in ancestors:
        place = ancestor.checkpoint_id
        decoder = Decoder(codec, key.thread_id, key.checkpoint_ns, place)
        for row in reversed(in_order(writes[place].values())):
            channel = row.name or ""
            if channel in remaining:
                collected[channel].append((row.key or "", channel, decoder.write(row)))
        inline: Mapping[str, Any] = {}
        for channel in remaining.intersection(d.names(ancestor.channels)):
            blob = blobs.get((place, channel))
            if blob is not None:
                seeds[channel] = decoder.blob(channel, blob.key or "", blob.type, blob.value)
            else:
                if ancestor.value is None:
                    raise decoder.corrupt("the stored value is gone", channel)
                inline = inline or decoder.document(ancestor.type, ancestor.value)["channel_values"]
                if channel not in inline:
                    raise decoder.corrupt("the stored value is gone", channel)
                seeds[channel] = inline[channel]
            remaining.discard(channel)

    histories: dict[str, DeltaChannelHistory] = {}
    for channel in asked:
        histories[channel] = {"writes": collected[channel][::-1]}
        if channel in seeds:
            histories[channel]["seed"] = seeds[channel]
    return histories
