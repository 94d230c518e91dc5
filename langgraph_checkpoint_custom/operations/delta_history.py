"""The history of `DeltaChannel`s: the writes of a checkpoint's ancestors back to a stored value.

Must not know: SQL, connections, reducers.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Mapping, Sequence
from operator import itemgetter
from typing import Any, NamedTuple

from langgraph.checkpoint.base import DeltaChannelHistory, PendingWrite

from langgraph_checkpoint_custom.encoding.decode import Decoder
from langgraph_checkpoint_custom.encoding.values import ValueCodec
from langgraph_checkpoint_custom.engine.operation import Row, Steps, offload, operation
from langgraph_checkpoint_custom.errors import CheckpointNotFound
from langgraph_checkpoint_custom.model.keys import Key, TupleRow
from langgraph_checkpoint_custom.sql.dialect import SqlDialect


class HistoryRow(NamedTuple):
    """A row of the reply to `select_delta_history`, by `kind`.

    There may be many thousands of writes, so these stay plain rows.

    - `target`, `range`: the checkpoint that is asked for, and an id range, as in `ancestor_rows`. If the document of
      the range's last checkpoint contains a seed, `type` and `value` of a `range` are that document.
    - `ids`: `channels` are the ids of all checkpoints of the id range from `key` down to `checkpoint_id`.
    - `blob`: a seed at the end of an id range; `name` is the channel, `key` its version, `path` names its chunks.
    - `chunk`: one of these chunks, with its name as `key`.
    - None: a write; `name` is the channel, `key` the task, `path` and `idx` its position in the superstep.
    """

    kind: str | None
    checkpoint_id: str
    name: str | None
    key: str | None
    path: str | None
    idx: int | None
    type: str | None
    value: bytes | None
    channels: Any
    versions: Any


# The checkpoint of a write, and its sort key in the order in which LangGraph applies writes; see `writes_sort_key`.
_CHECKPOINT = itemgetter(1)
_ORDER = itemgetter(1, 4, 3, 5)


@operation("read")
def get_delta_channel_history(
    d: SqlDialect, codec: ValueCodec, key: Key, channels: Sequence[str]
) -> Steps[Mapping[str, DeltaChannelHistory]]:
    """Return for each channel the writes of the ancestors, oldest first, and the nearest stored value as the seed.

    Round trips: 1, or 0 if `channels` is empty.
    Rows: the writes and blobs between the checkpoint and the farthest seed, and the documents that contain seeds.
    Snapshot: one read snapshot.
    Raises: CheckpointNotFound if a channel cannot be rebuilt because ancestors were pruned; CorruptCheckpoint.
    Source: BaseCheckpointSaver.get_delta_channel_history.
    """
    if not channels:
        return {}
    asked = sorted(set(channels))
    (rows,) = yield d.ask("select_delta_history", **key._asdict(), asked=d.array(asked))
    size = sum([len(row[7] or b"") for row in rows])
    histories = yield from offload(size, _collect, d, codec, key, asked, rows)
    return {channel: histories[channel] for channel in channels}


def ancestor_rows(
    d: SqlDialect, asked: Sequence[str], rows: Sequence[HistoryRow]
) -> tuple[Sequence[HistoryRow], Sequence[str]]:
    """Return the ancestors back to the farthest seed, and the channels that need a deleted ancestor.

    Each row is an id range, nearest first: all checkpoints from `key` down to `checkpoint_id`, each of which is the
    parent of the next higher one. `name` is the parent of the last one, and `channels` are those with a seed in the
    last one.

    The `channels` of the target are all that have a value there; these are never reported as missing. `versions` of
    the target and of a range are the names of delta channels if the checkpoint is hidden.
    """
    last = next((row for row in rows if row.kind == "target"), None)
    if last is None:
        return [], []
    has = d.names(last.channels)
    id_ranges = {row.key: row for row in rows if row.kind == "range"}
    found: list[HistoryRow] = []
    remaining = set(asked)
    while remaining and last.name is not None:
        if last.name not in id_ranges:
            return found, sorted(remaining.intersection(d.names(last.versions)).difference(has))
        last = id_ranges.pop(last.name)  # So a parent chain that loops, which LangGraph never stores, ends.
        found.append(last)
        remaining.difference_update(d.names(last.channels))
    return found, []


def _collect(
    d: SqlDialect, codec: ValueCodec, key: Key, asked: Sequence[str], rows: Sequence[Row]
) -> dict[str, DeltaChannelHistory]:
    """Decode the writes and the seed of each channel."""
    heads = [HistoryRow._make(row) for row in rows if row[0] is not None]
    id_ranges, lost = ancestor_rows(d, asked, heads)
    if lost:
        raise CheckpointNotFound(
            f"channels {', '.join(map(repr, lost))} of checkpoint {key.checkpoint_id!r} in thread {key.thread_id!r}, "
            f"namespace {key.checkpoint_ns!r}, cannot be rebuilt: what they are rebuilt from was pruned or deleted. "
            "Continue from the newest checkpoint"
        )
    writes = [row for row in rows if row[0] is None]
    has_one_each = len(set(map(_CHECKPOINT, writes))) == len(writes)
    writes.sort(key=_CHECKPOINT if has_one_each else _ORDER)
    checkpoint_ids = [row[1] for row in writes]
    ids_of_ranges = {(row.checkpoint_id, row.key): row.channels for row in heads if row.kind == "ids"}
    # For each id range, nearest first: its writes, and the channels that take them.
    found: list[tuple[Sequence[Row], set[str]]] = []
    remaining = set(asked)
    for id_range in id_ranges:
        ids = set(d.names(ids_of_ranges[id_range.checkpoint_id, id_range.key]))
        positions = slice(
            bisect_left(checkpoint_ids, id_range.checkpoint_id), bisect_right(checkpoint_ids, id_range.key or "")
        )
        inside = writes[positions]
        if not ids.issuperset(checkpoint_ids[positions]):
            inside = [row for row in inside if row[1] in ids]
        found.append((inside, remaining))
        remaining = remaining.difference(d.names(id_range.channels))

    collected: dict[str, list[PendingWrite]] = {channel: [] for channel in asked}
    for rows_of_range, takers in reversed(found):
        _decode(codec, key, rows_of_range, {channel: collected[channel] for channel in takers})
    seeds = _seeds(d, codec, key, id_ranges, heads)
    histories: dict[str, DeltaChannelHistory] = {}
    for channel in asked:
        histories[channel] = {"writes": collected[channel]}
        if channel in seeds:
            histories[channel]["seed"] = seeds[channel]
    return histories


def _decode(codec: ValueCodec, key: Key, rows: Sequence[Row], collected: Mapping[str, list[PendingWrite]]) -> None:
    """Decode writes and append each to the list of its channel."""
    plain = codec.plain
    for row in rows:
        channel, type_ = row[2], row[6]
        if channel not in collected:
            continue
        try:
            value = plain[type_](row[7]) if type_ in plain else _write(codec, key, row)
        except Exception:  # Any error that an object raises: reading it in the other way raises one with its location.
            _write(codec, key, row)
            raise
        collected[channel].append((row[3], channel, value))


def _write(codec: ValueCodec, key: Key, row: Row) -> Any:
    """Decode a write."""
    _, checkpoint_id, channel, task_id, path, idx, type_, data, _, _ = row
    location = (key.thread_id, key.checkpoint_ns, checkpoint_id)
    whole = TupleRow("write", *location, channel, task_id, path, idx, type_, data, None, None, None, None)
    return Decoder(codec, *location).write(whole)


def _seeds(
    d: SqlDialect, codec: ValueCodec, key: Key, id_ranges: Sequence[HistoryRow], heads: Sequence[HistoryRow]
) -> dict[str, Any]:
    """Decode the values at the ends of the id ranges."""
    blobs = {(row.checkpoint_id, row.name): row for row in heads if row.kind == "blob"}
    chunks = {(row.name, row.key): row for row in heads if row.kind == "chunk"}
    seeds: dict[str, Any] = {}
    for id_range in id_ranges:
        decoder = Decoder(codec, key.thread_id, key.checkpoint_ns, id_range.checkpoint_id)
        document: Mapping[str, Any] = {}
        for channel in d.names(id_range.channels):
            blob = blobs.get((id_range.checkpoint_id, channel))
            if blob is not None:
                seeds[channel] = decoder.blob(blob, chunks)
            else:
                if id_range.value is None:
                    raise decoder.corrupt("the stored value is missing", channel)
                document = document or decoder.document_without_objects(id_range.type, id_range.value)
                if channel not in document["channel_values"]:
                    raise decoder.corrupt("the stored value is missing", channel)
                seeds[channel] = decoder.create(channel, document["channel_values"][channel])
    return seeds
