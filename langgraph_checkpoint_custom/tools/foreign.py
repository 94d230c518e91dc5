"""Checkpoints on their way from another saver: what is stored of them, and whether it is the same in the end.

Must not know: SQL, connections, where they come from.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any, NamedTuple, cast

import ormsgpack
from langgraph.checkpoint.base import (
    WRITES_IDX_MAP,
    Checkpoint,
    CheckpointMetadata,
    CheckpointTuple,
    writes_sort_key,
)
from langgraph.checkpoint.serde import jsonplus
from langgraph.checkpoint.serde.types import TASKS, _DeltaSnapshot

from langgraph_checkpoint_custom.encoding.objects import Extension, pack
from langgraph_checkpoint_custom.encoding.values import Values
from langgraph_checkpoint_custom.model.keys import (
    MAX_CHANNEL,
    MAX_ID,
    Key,
    WriteRow,
    config_of,
    location_of_write,
    text,
)
from langgraph_checkpoint_custom.operations.read import FORMAT_WITH_SENDS


class HeldWrite(NamedTuple):
    """A write as the other store has it."""

    task_id: str
    task_path: str
    idx: int
    channel: str
    value: Any


class HeldCheckpoint(NamedTuple):
    """A checkpoint as the other store has it, with its values and writes."""

    thread_id: str
    checkpoint_ns: str
    checkpoint_id: str
    parent_id: str | None
    checkpoint: dict[str, Any]
    metadata: dict[str, Any]
    writes: Sequence[HeldWrite]

    @property
    def key(self) -> Key:
        """Where it is."""
        return Key(self.thread_id, self.checkpoint_ns, self.checkpoint_id)

    def as_tuple(self) -> CheckpointTuple:
        """What a saver returns of it."""
        return CheckpointTuple(
            config_of(self.thread_id, self.checkpoint_ns, self.checkpoint_id),
            cast("Checkpoint", self.checkpoint),
            cast("CheckpointMetadata", self.metadata),
            config_of(self.thread_id, self.checkpoint_ns, self.parent_id) if self.parent_id else None,
            [(write.task_id, write.channel, write.value) for write in self._in_order()],
        )

    def _in_order(self) -> Sequence[HeldWrite]:
        return sorted(self.writes, key=lambda write: writes_sort_key(write.task_path, write.task_id, write.idx))

    @property
    def versions(self) -> dict[str, Any]:
        """The versions of the channels that have a value here."""
        stated = self.checkpoint.get("channel_versions") or {}
        return {channel: stated[channel] for channel in self.checkpoint["channel_values"] if channel in stated}

    @property
    def delta_channels(self) -> Sequence[str]:
        """The channels that may have to be rebuilt from writes."""
        counted = self.metadata.get("counters_since_delta_snapshot")
        names = set(counted) if isinstance(counted, Mapping) else set()
        values = self.checkpoint["channel_values"].items()
        return sorted(names | {channel for channel, value in values if isinstance(value, _DeltaSnapshot)})

    def new_versions(self, parent: Mapping[str, Any] | None) -> dict[str, Any]:
        """The versions that are not the parent's, given what `versions` were there.

        And those of `DeltaChannel`s without a value: to `put` they are channels that have none here, where it would
        else look for a snapshot of the same version.
        """
        stated = self.checkpoint.get("channel_versions") or {}
        new = {channel: stated[channel] for channel in self.delta_channels if channel in stated.keys() - self.versions}
        return new | {
            channel: version
            for channel, version in self.versions.items()
            if parent is None or channel not in parent or parent[channel] != version
        }


def held(found: CheckpointTuple) -> HeldCheckpoint:
    """What a saver has returned.

    It does not tell the paths of tasks, which decide in what order writes are applied; so these have paths that put
    them into the order in which they came.
    """
    part = found.config["configurable"]
    parent = (found.parent_config or {}).get("configurable") or {}
    checkpoint: dict[str, Any] = {**found.checkpoint}
    checkpoint["channel_values"] = dict(checkpoint.get("channel_values") or {})
    counts: Counter[str] = Counter()
    writes: list[HeldWrite] = []
    path = 0
    for task_id, channel, value in found.pending_writes or ():
        idx = WRITES_IDX_MAP.get(channel, counts[task_id])
        counts[task_id] += 1
        if writes and (writes[-1].task_id != task_id or writes[-1].idx >= idx):
            path += 1
        writes.append(HeldWrite(task_id, f"{path:06d}", idx, channel, value))
    return HeldCheckpoint(
        str(part["thread_id"]),
        part.get("checkpoint_ns") or "",
        part["checkpoint_id"],
        parent.get("checkpoint_id"),
        checkpoint,
        dict(found.metadata or {}),
        writes,
    )


def encode_held_writes(codec: Values, key: Key, writes: Iterable[HeldWrite]) -> Iterable[Sequence[WriteRow]]:
    """The writes of a checkpoint by task and path, each at the place it had."""
    tasks: dict[tuple[str, str], list[WriteRow]] = {}
    for task_id, task_path, idx, channel, value in writes:
        text("task_id", task_id, MAX_ID)
        text("channel", channel, MAX_CHANNEL)
        location = location_of_write(key.checkpoint_ns, key.checkpoint_id or "", task_id, idx, channel)
        row = WriteRow(channel, task_id, task_path, None, idx, *codec.dumps(value, location))
        tasks.setdefault((task_id, task_path), []).append(row)
    return tasks.values()


def difference(of: HeldCheckpoint, found: CheckpointTuple | None) -> str | None:
    """What is not the same in a checkpoint that was moved, or None."""
    if found is None:
        return "it is missing"
    other = held(found)
    if other.parent_id != of.parent_id:
        return f"its parent is {other.parent_id!r}, not {of.parent_id!r}"
    if not same(other.metadata, of.metadata):
        return "its metadata are others"
    ours, theirs = _without_sends(other.checkpoint, of.checkpoint), dict(of.checkpoint)
    values, expected = ours.pop("channel_values"), theirs.pop("channel_values")
    if not same(ours, theirs):
        return "its versions, or another part of it but the values, are others"
    if values.keys() != expected.keys():
        return f"it has values of {sorted(values)}, not of {sorted(expected)}"
    for channel, value in expected.items():
        if not same(_whole(values[channel]), _whole(value)):
            return f"its value of channel {channel!r} is another"
    if not same(found.pending_writes, of.as_tuple().pending_writes):
        return "its writes are others"
    return None


def same(one: Any, other: Any) -> bool:
    """Whether two values are stored alike; the order of keys does not matter in a dict, nor whether NaN is NaN."""
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(same(value, other[key]) for key, value in one.items())
    if pack(one) == pack(other):
        return True
    with suppress(TypeError):  # LangGraph's serializer does not know which fields of an object were given.
        return _in_langgraphs_words(one) == _in_langgraphs_words(other)
    return False


def _in_langgraphs_words(value: Any) -> bytes:
    def word(part: Any) -> Any:
        return ormsgpack.Ext(part.code, part.data) if type(part) is Extension else jsonplus._msgpack_default(part)

    return ormsgpack.packb(value, default=word, option=jsonplus._option)


def _whole(value: Any) -> Any:
    """The value of a channel, a snapshot or not: one version has one form here.

    The official SQLite saver can have the other one, where a channel has become a `DeltaChannel` between two runs.
    """
    return value.value if isinstance(value, _DeltaSnapshot) else value


def _without_sends(checkpoint: Mapping[str, Any], like: Mapping[str, Any]) -> dict[str, Any]:
    """A checkpoint of an old format without the sends that reading has added to it."""
    found = dict(checkpoint)
    if found.get("v", FORMAT_WITH_SENDS) < FORMAT_WITH_SENDS:
        for part in ("channel_values", "channel_versions"):
            if TASKS in found.get(part, {}) and TASKS not in like.get(part, {}):
                found[part] = {channel: what for channel, what in found[part].items() if channel != TASKS}
    return found
