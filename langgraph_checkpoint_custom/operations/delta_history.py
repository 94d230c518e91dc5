"""The history of `DeltaChannel`s: the writes of a checkpoint's ancestors back to a stored value.

Must not know: SQL, connections, reducers.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Mapping, Sequence
from operator import itemgetter
from typing import Any, NamedTuple, TypeVar

from langgraph.checkpoint.base import DeltaChannelHistory, PendingWrite

from langgraph_checkpoint_custom.encoding.decode import Decoder
from langgraph_checkpoint_custom.encoding.serde import DROPPED, MSGPACK, forget_interruption, interruption
from langgraph_checkpoint_custom.encoding.values import Values
from langgraph_checkpoint_custom.engine.operation import Row, Steps, offload, operation
from langgraph_checkpoint_custom.errors import CheckpointNotFound
from langgraph_checkpoint_custom.model.keys import Key, TupleRow, location_of_write
from langgraph_checkpoint_custom.sql.dialect import SqlDialect


class HistoryRow(NamedTuple):
    """A row of a reply with values; of a write there may be many thousands, so these are left as they come.

    - `target`, `run`: as in `lineage`; of a run, `type` and `value` are the document of its last checkpoint if that has
      a seed in it
    - `line`: `channels` are the ids of all checkpoints of the run from `key` down to `checkpoint_id`
    - `blob`: a seed at the end of a run; `name` is the channel, `key` its version, `path` the names of its parts
    - `part`: one of these parts, with its name as `key`
    - None, a write: `name` is the channel, `key` the task, `path` and `idx` its place in the superstep
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


# Writes that are decoded as one value; the bytes of all of them are copied for that.
TOGETHER = 1000

# Of a write: its checkpoint; and its place in the order in which LangGraph applies them, see `writes_sort_key`.
_CHECKPOINT = itemgetter(1)
_PLACE = itemgetter(1, 4, 3, 5)


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
    (rows,) = yield d.select_delta_values(key, asked)
    size = sum(len(row[7] or b"") for row in rows)
    histories = yield from offload(size, _collect, d, codec, key, asked, rows)
    return {channel: histories[channel] for channel in channels}


_Ancestor = TypeVar("_Ancestor", TupleRow, HistoryRow)


def ancestor_rows(
    d: SqlDialect, asked: Sequence[str], rows: Sequence[_Ancestor]
) -> tuple[Sequence[_Ancestor], Sequence[str]]:
    """The runs of ancestors back to the farthest seed, nearest first, and the channels that go back to what is gone.

    A run are all checkpoints from `key` down to `checkpoint_id`, each the parent of the one above it; `name` is the
    parent of the last one, `channels` have their seed there and `idx` is the number of those that had none before. The
    target's `channels` are all that have a value there; one that has is not missed. In `versions`, both have their
    delta channels if they are hidden.
    """
    runs: dict[str | None, _Ancestor] = {}
    last: _Ancestor | None = None
    for row in rows:
        if row.kind == "target":
            last = row
        elif row.kind == "run":
            twin = runs.get(row.key)  # In a chain that loops there is another one, with fewer channels.
            if twin is None or (twin.idx or 0) < (row.idx or 0):
                runs[row.key] = row
    if last is None:
        return [], []
    has = d.names(last.channels)
    found: list[_Ancestor] = []
    remaining, seen = set(asked), {last.checkpoint_id}
    while remaining and last.name is not None:
        if last.name not in runs:
            return found, sorted(remaining.intersection(d.names(last.versions)).difference(has))
        last = runs[last.name]
        if last.checkpoint_id in seen:  # The chain loops, and the run ends where an earlier one did.
            found.append(last._replace(channels=None))
            break
        seen.add(last.checkpoint_id)
        found.append(last)
        remaining.difference_update(d.names(last.channels))
    return found, []


def _collect(
    d: SqlDialect, codec: Values, key: Key, asked: Sequence[str], rows: Sequence[Row]
) -> dict[str, DeltaChannelHistory]:
    """Decode what the ancestors have of each channel."""
    heads = [HistoryRow._make(row) for row in rows if row[0] is not None]
    runs, gone = ancestor_rows(d, asked, heads)
    if gone:
        raise CheckpointNotFound(
            f"channels {', '.join(map(repr, gone))} of checkpoint {key.checkpoint_id!r} in thread {key.thread_id!r}, "
            f"namespace {key.checkpoint_ns!r}, cannot be rebuilt: what they go back to was pruned or deleted. Go on "
            "from the newest checkpoint"
        )
    writes = sorted([row for row in rows if row[0] is None], key=_CHECKPOINT)
    locations = [row[1] for row in writes]
    if len(set(locations)) < len(locations):  # In a chain that loops, a write may come twice.
        by_place = {_PLACE(row): row for row in writes}
        writes = [by_place[location] for location in sorted(by_place)]
        locations = [row[1] for row in writes]

    lines = {(row.checkpoint_id, row.key): row.channels for row in heads if row.kind == "line"}
    taken = [{row.checkpoint_id} for row in heads if row.kind == "target"]
    # Of each run, nearest first, its writes and the channels that take them.
    found: list[tuple[Sequence[Row], set[str]]] = []
    remaining = set(asked)
    for run in runs:
        line = set(d.names(lines[run.checkpoint_id, run.key]))
        if run.channels is None:
            line.difference_update(*taken)
        taken.append(line)
        range_of_run = slice(bisect_left(locations, run.checkpoint_id), bisect_right(locations, run.key or ""))
        inside = writes[range_of_run]
        if not line.issuperset(locations[range_of_run]):
            inside = [row for row in inside if row[1] in line]
        found.append((inside, remaining))
        remaining = remaining.difference(d.names(run.channels))

    collected: dict[str, list[PendingWrite]] = {channel: [] for channel in asked}
    for rows_of_run, takers in reversed(found):
        _decode(codec, key, rows_of_run, {channel: collected[channel] for channel in takers})
    seeds = _seeds(d, codec, key, runs, heads)
    histories: dict[str, DeltaChannelHistory] = {}
    for channel in asked:
        histories[channel] = {"writes": collected[channel]}
        if channel in seeds:
            histories[channel]["seed"] = seeds[channel]
    return histories


def _decode(codec: Values, key: Key, rows: Sequence[Row], collected: Mapping[str, list[PendingWrite]]) -> None:
    """Decode writes and add each to its channel's."""
    rows = [row for row in rows if row[2] in collected]
    for start in range(0, len(rows), TOGETHER):
        some = rows[start : start + TOGETHER]
        for row, value in zip(some, _values(codec, key, some), strict=True):
            channel = row[2]
            collected[channel].append((row[3], channel, value))


def _values(codec: Values, key: Key, rows: Sequence[Row]) -> Iterator[Any]:
    """The values of writes."""
    plain: Iterator[Any] | None
    interrupted = None
    try:
        plain = iter(codec.loads_many([row[7] for row in rows if row[6] == MSGPACK]))
    except Exception as error:  # Whatever it is, of one of many: below, each by itself.
        plain = None
        if str(error) == DROPPED or not isinstance(error, ValueError):  # Else they cannot be read as one.
            interrupted = interruption(error)
    for row in rows:
        _, checkpoint_id, channel, task_id, path, idx, type_, data, _, _ = row
        if plain is not None and type_ == MSGPACK:
            yield next(plain)
            continue
        try:
            value = codec.loads(type_, data, location_of_write(key.checkpoint_ns, checkpoint_id, task_id, idx, channel))
        except Exception as error:  # Whatever it is: the same again, by what says in its error where that was.
            interrupted = interrupted or interruption(error)
            location = (key.thread_id, key.checkpoint_ns, checkpoint_id)
            whole = TupleRow("write", *location, channel, task_id, path, idx, type_, data, None, None, None, None)
            value = Decoder(codec, *location).write(whole)
        yield value
    if interrupted is not None:  # Now that all of them can be read.
        forget_interruption()
        raise interrupted


def _seeds(
    d: SqlDialect, codec: Values, key: Key, runs: Sequence[HistoryRow], heads: Sequence[HistoryRow]
) -> dict[str, Any]:
    """Decode the values at the ends of the runs."""
    blobs = {(row.checkpoint_id, row.name): row for row in heads if row.kind == "blob"}
    parts = {(row.name, row.key): row for row in heads if row.kind == "part"}
    seeds: dict[str, Any] = {}
    for run in runs:
        decoder = Decoder(codec, key.thread_id, key.checkpoint_ns, run.checkpoint_id)
        document: Mapping[str, Any] = {}
        for channel in d.names(run.channels):
            blob = blobs.get((run.checkpoint_id, channel))
            if blob is not None:
                seeds[channel] = decoder.blob(blob, lambda *location: parts.get(location))
            else:
                if run.value is None:
                    raise decoder.corrupt("the stored value is gone", channel)
                document = document or decoder.outline(run.type, run.value)
                if channel not in document["channel_values"]:
                    raise decoder.corrupt("the stored value is gone", channel)
                seeds[channel] = decoder.made(channel, document["channel_values"][channel])
    return seeds
