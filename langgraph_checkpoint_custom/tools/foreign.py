"""What passes between the two sides of a move: the parts of a thread, and how they are compared.

Must not know: SQL, connections, where the checkpoints come from.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

import ormsgpack
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import WRITES_IDX_MAP, CheckpointTuple, writes_sort_key
from langgraph.checkpoint.serde.types import TASKS

from langgraph_checkpoint_custom.encoding.extensions import METHOD, Extension
from langgraph_checkpoint_custom.encoding.langgraph_private import PACKING, DeltaSnapshot, extension_of
from langgraph_checkpoint_custom.encoding.objects import pack
from langgraph_checkpoint_custom.encoding.raw import object_of
from langgraph_checkpoint_custom.encoding.values import ValueCodec
from langgraph_checkpoint_custom.model.keys import (
    MAX_ID,
    Key,
    WriteRow,
    channel_text,
    config_of,
    location_of_write,
    text,
)
from langgraph_checkpoint_custom.model.outline import FORMAT_WITH_SENDS

# A namespace and the id of a checkpoint in it.
Place = tuple[str, str]

# Thread ids in a page. With that many, the round trip takes less time than reading the ids of their checkpoints.
PAGE = 100


class ForeignWrite(NamedTuple):
    """A write of the other saver."""

    task_id: str
    task_path: str
    idx: int
    channel: str
    value: Any


class ForeignCheckpoint(NamedTuple):
    """A checkpoint of the other saver, with its values and writes."""

    thread_id: str
    checkpoint_ns: str
    checkpoint_id: str
    parent_id: str | None
    checkpoint: dict[str, Any]
    metadata: dict[str, Any]
    writes: Sequence[ForeignWrite]

    @property
    def key(self) -> Key:
        """The key of the checkpoint."""
        return Key(self.thread_id, self.checkpoint_ns, self.checkpoint_id)

    @property
    def place(self) -> Place:
        """The same without the thread."""
        return self.checkpoint_ns, self.checkpoint_id

    @property
    def pending_writes(self) -> list[tuple[str, str, Any]]:
        """The writes as a saver returns them."""
        writes = sorted(self.writes, key=lambda write: writes_sort_key(write.task_path, write.task_id, write.idx))
        return [(write.task_id, write.channel, write.value) for write in writes]

    @property
    def versions(self) -> dict[str, Any]:
        """The versions of the channels that have a value here."""
        stated = self.checkpoint.get("channel_versions") or {}
        return {channel: stated[channel] for channel in self.checkpoint["channel_values"] if channel in stated}

    @property
    def delta_channels(self) -> Sequence[str]:
        """The `DeltaChannel`s: their values may have to be rebuilt from writes."""
        counted = self.metadata.get("counters_since_delta_snapshot")
        names = set(counted) if isinstance(counted, Mapping) else set()
        values = self.checkpoint["channel_values"].items()
        return sorted(names | {channel for channel, value in values if isinstance(value, DeltaSnapshot)})

    def new_versions(self, parent: Mapping[str, Any] | None) -> dict[str, Any]:
        """Return `new_versions` for `put`: the versions that differ from the parent's.

        The versions of `DeltaChannel`s without a value are included. They tell `put` that the channel has no value in
        this checkpoint; otherwise it would look for a delta snapshot with the same version.

        Args:
            parent: The `versions` of the parent; None if they are unknown or there is no parent.
        """
        stated = self.checkpoint.get("channel_versions") or {}
        new = {channel: stated[channel] for channel in self.delta_channels if channel in stated.keys() - self.versions}
        return new | {
            channel: version
            for channel, version in self.versions.items()
            if parent is None or channel not in parent or parent[channel] != version
        }

    def without_values(self, channels: Collection[str]) -> ForeignCheckpoint:
        """Return the checkpoint without the values of channels."""
        values = {
            channel: value for channel, value in self.checkpoint["channel_values"].items() if channel not in channels
        }
        return self._replace(checkpoint={**self.checkpoint, "channel_values": values})

    def put_arguments(self, parent: Mapping[str, Any] | None) -> tuple[RunnableConfig, Any, Any, Any]:
        """Return the arguments of `put`.

        Args:
            parent: The `versions` of the parent; None if they are unknown or there is no parent.
        """
        config = config_of(self.thread_id, self.checkpoint_ns, self.parent_id or "")
        return config, self.checkpoint, self.metadata, self.new_versions(parent)


class WriteCounts(NamedTuple):
    """The number of a checkpoint's writes, and of those that a later one may replace: interrupts, resumes, errors."""

    writes: int
    replaceable: int


# The checkpoints of a thread.
Locations = Mapping[Place, WriteCounts]


class Part(NamedTuple):
    """A part of a thread, to be stored.

    Attributes:
        thread_id: The thread.
        checkpoints: The checkpoints, older ones first, each with the versions of its parent if they are known.
        writes: The writes of these and of other checkpoints: regular ones keep the first value, special ones the last.
        follows: Whether the thread has to exist already, because this is not all of it.
        mark: What is remembered of the thread as soon as this is stored, in case that the rest is not; see `Moved`.
    """

    thread_id: str
    checkpoints: Sequence[tuple[ForeignCheckpoint, Mapping[str, Any] | None]]
    writes: Sequence[tuple[Key, Sequence[ForeignWrite]]]
    follows: bool
    mark: bytes


def locations_of(thread_ids: Sequence[str], found: Sequence[Sequence[Sequence[Any]]]) -> Mapping[str, Locations]:
    """Return the locations of threads, of each of which these rows were found: namespace, id, counts of writes."""
    return {
        thread_id: {
            (ns, checkpoint_id): WriteCounts(*counts)
            for ns, checkpoint_id, *counts in sorted(rows, key=lambda row: (row[1], row[0]))
        }
        for thread_id, rows in zip(thread_ids, found, strict=True)
        if rows
    }


def foreign_of(found: CheckpointTuple) -> ForeignCheckpoint:
    """Convert what a saver returned.

    A saver does not return the paths of tasks, by which writes are ordered. So this makes up paths that keep the writes
    in the order in which they were returned.
    """
    part = found.config["configurable"]
    parent = (found.parent_config or {}).get("configurable") or {}
    checkpoint: dict[str, Any] = {**found.checkpoint}
    checkpoint["channel_values"] = dict(checkpoint.get("channel_values") or {})
    counts: Counter[str] = Counter()
    writes: list[ForeignWrite] = []
    path = 0
    for task_id, channel, value in found.pending_writes or ():
        idx = WRITES_IDX_MAP.get(channel, counts[task_id])
        counts[task_id] += 1
        if writes and (writes[-1].task_id != task_id or writes[-1].idx >= idx):
            path += 1
        writes.append(ForeignWrite(task_id, f"{path:06d}", idx, channel, value))
    return ForeignCheckpoint(
        str(part["thread_id"]),
        part.get("checkpoint_ns") or "",
        part["checkpoint_id"],
        parent.get("checkpoint_id"),
        checkpoint,
        dict(found.metadata or {}),
        writes,
    )


def encode_foreign_writes(codec: ValueCodec, key: Key, writes: Iterable[ForeignWrite]) -> Iterable[Sequence[WriteRow]]:
    """Encode the writes of a checkpoint; return them by task and path, each with its original index."""
    tasks: dict[tuple[str, str], list[WriteRow]] = {}
    for task_id, task_path, idx, channel, value in writes:
        text("task_id", task_id, MAX_ID)
        channel_text(channel)
        location = location_of_write(key.checkpoint_ns, key.checkpoint_id or "", task_id, idx, channel)
        row = WriteRow(task_id, task_path, None, idx, channel, *codec.dumps(value, location))
        tasks.setdefault((task_id, task_path), []).append(row)
    return tasks.values()


def difference(of: ForeignCheckpoint, other: ForeignCheckpoint) -> str | None:
    """Return how a checkpoint that was moved differs from the original; None if it does not."""
    if other.parent_id != of.parent_id:
        return f"its parent is {other.parent_id!r}, not {of.parent_id!r}"
    if not same(other.metadata, of.metadata):
        return "its metadata differs"
    ours, theirs = _without_sends(other.checkpoint, of.checkpoint), dict(of.checkpoint)
    values, expected = ours.pop("channel_values"), theirs.pop("channel_values")
    if not same(ours, theirs):
        return "its versions, or another part of it except the values, differ"
    if values.keys() != expected.keys():
        return f"it has values of {sorted(values)}, not of {sorted(expected)}"
    for channel, value in expected.items():
        if not same(_without_snapshot(values[channel]), _without_snapshot(value)):
            return f"its value of channel {channel!r} differs"
    if not same(other.pending_writes, of.pending_writes):
        return "its writes differ"
    return None


def same(one: Any, other: Any) -> bool:
    """Return whether two values are stored alike; the order of a dict's keys does not matter, and NaN equals NaN."""
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(same(value, other[key]) for key, value in one.items())
    if pack(one) == pack(other):
        return True
    with suppress(TypeError):
        return _as_langgraph_reads_it(one) == _as_langgraph_reads_it(other)
    return False


def _as_langgraph_reads_it(value: Any) -> bytes:
    """Encode what LangGraph's serializer reads: of an object its class and data, not which fields were set."""

    def packed(part: Any) -> Any:
        if type(part) is not Extension:
            return extension_of(part)
        found = object_of(part)
        if found is None:
            return ormsgpack.Ext(part.code, part.data)
        return (*found[:4], found.method if found.code == METHOD else "")

    return ormsgpack.packb(value, default=packed, option=PACKING)


def _without_snapshot(value: Any) -> Any:
    """Return the value of a channel, taken out of a delta snapshot if it is in one.

    Here all checkpoints with one channel version have one form of the value. The official SQLite saver can have the
    other form, if a channel became a `DeltaChannel` between two runs.
    """
    return value.value if isinstance(value, DeltaSnapshot) else value


def _without_sends(checkpoint: Mapping[str, Any], like: Mapping[str, Any]) -> dict[str, Any]:
    """Remove the sends that reading added to a checkpoint of an old format, unless `like` has them too."""
    found = dict(checkpoint)
    if found.get("v", FORMAT_WITH_SENDS) < FORMAT_WITH_SENDS:
        for part in ("channel_values", "channel_versions"):
            if TASKS in found.get(part, {}) and TASKS not in like.get(part, {}):
                found[part] = {channel: what for channel, what in found[part].items() if channel != TASKS}
    return found
