"""The part of the oracle that stores and reads. `oracle.py` lists the intended differences to `InMemorySaver`."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple, cast

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import (
    EXCLUDED_METADATA_KEYS,
    BaseCheckpointSaver,
    ChannelVersions,
    Checkpoint,
    CheckpointMetadata,
    CheckpointTuple,
    DeltaChannelHistory,
)
from langgraph.checkpoint.conformance.test_utils import generate_config
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.serde.types import TASKS, _DeltaSnapshot

from langgraph_checkpoint_custom import CheckpointNotFound


class Key(NamedTuple):
    """The location of a checkpoint."""

    thread_id: str
    checkpoint_ns: str
    checkpoint_id: str

    @property
    def config(self) -> RunnableConfig:
        return generate_config(self.thread_id, checkpoint_ns=self.checkpoint_ns, checkpoint_id=self.checkpoint_id)


def is_small(value: Any) -> bool:
    if type(value) in (str, bytes):
        return len(value) <= 256
    return value is None or type(value) in (bool, int, float)


def as_json(value: Any) -> str:
    """A text that is equal for values that are the same JSON; JSON has one type of number."""
    return json.dumps(_numbers_as_json(value), sort_keys=True)


def _numbers_as_json(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _numbers_as_json(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_numbers_as_json(item) for item in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value


class StoringOracle(InMemorySaver):
    """What is stored and read: `InMemorySaver` with the differences of `oracle.py`, by their numbers."""

    def __init__(self) -> None:
        super().__init__()
        self.own: dict[Key, tuple[str, bytes]] = {}
        """Values that stay with a checkpoint."""
        self.populated_channels: dict[Key, frozenset[str]] = {}
        """The channels of a checkpoint whose value is stored by version."""
        self.hidden: set[Key] = set()
        self.wrote: dict[tuple[tuple[str, str, str], tuple[str, int]], str | None] = {}
        """The run that each write comes from."""
        self.named: dict[tuple[str, str], Key] = {}
        """The labelled checkpoints, by thread and name."""
        self.strategies: dict[str, str] = {}
        """What is done with the threads that have a time to live."""
        self.ever: dict[Any, tuple[str, bytes]] = {}
        """The values of all versions that were ever stored."""

    # What is stored

    def keys(self, thread_id: str | None = None) -> set[Key]:
        return {
            Key(thread, checkpoint_ns, checkpoint_id)
            for thread, spaces in self.storage.items()
            for checkpoint_ns, checkpoints in spaces.items()
            for checkpoint_id in checkpoints
            if thread_id in (None, thread)
        }

    def visible(self, thread_id: str | None = None) -> set[Key]:
        return self.keys(thread_id) - self.hidden

    def newest(self, thread_id: str) -> set[Key]:
        """The newest visible checkpoint of each namespace."""
        newest: dict[str, Key] = {}
        for key in sorted(self.visible(thread_id)):
            newest[key.checkpoint_ns] = key
        return set(newest.values())

    def document(self, key: Key) -> Checkpoint:
        return cast("Checkpoint", self.serde.loads_typed(self.storage[key[0]][key[1]][key[2]][0]))

    def metadata(self, key: Key) -> dict[str, Any]:
        return cast("dict[str, Any]", self.serde.loads_typed(self.storage[key[0]][key[1]][key[2]][1]))

    def parent(self, key: Key) -> Key | None:
        parent_id = self.storage[key[0]][key[1]][key[2]][2]
        return key._replace(checkpoint_id=parent_id) if parent_id else None

    def populated(self, key: Key) -> frozenset[str]:
        return self.populated_channels[key] | frozenset(self.serde.loads_typed(self.own[key]))

    def has_sends(self, key: Key | None) -> bool:
        return key is not None and any(channel == TASKS for _, channel, _, _ in self.writes.get(key, {}).values())

    # Writing

    def put(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        thread_id, checkpoint_ns = config["configurable"]["thread_id"], config["configurable"]["checkpoint_ns"]
        key = Key(thread_id, checkpoint_ns, checkpoint["id"])
        values, versions = checkpoint["channel_values"], checkpoint["channel_versions"]
        if self.refuses(config, checkpoint, metadata, new_versions):  # 12
            raise CheckpointNotFound
        own = {channel: held for channel, held in values.items() if is_small(held) or channel not in versions}  # 1, 3
        retained = self._already_stored(key, checkpoint, new_versions)
        delta = set(metadata.get("counters_since_delta_snapshot", {}))  # 6
        populated_channels = set(values) | (retained & delta)
        stored = {channel for channel in versions if channel not in own and channel in populated_channels}
        self.populated_channels[key] = frozenset(stored)  # 7
        self.own[key] = self.serde.dumps_typed(own)
        for channel in (stored & set(values)) - set(new_versions):
            blob = (thread_id, checkpoint_ns, channel, versions[channel])
            self.blobs.setdefault(blob, self.serde.dumps_typed(values[channel]))  # 2
        self.hidden.discard(key)
        only_new = {channel: version for channel, version in new_versions.items() if channel in stored}
        returned = super().put(config, checkpoint, metadata, only_new)
        self.ever |= self.blobs
        document, _, parent_id = self.storage[thread_id][checkpoint_ns][key.checkpoint_id]
        merged = self.serde.dumps_typed(self._merged(config, metadata))  # 8
        self.storage[thread_id][checkpoint_ns][key.checkpoint_id] = (document, merged, parent_id)
        return returned

    def refuses(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> bool | None:
        """Whether a checkpoint cannot be rebuilt, since an ancestor was deleted; None if both results are correct."""
        location = (config["configurable"]["thread_id"], config["configurable"]["checkpoint_ns"])
        key = Key(*location, checkpoint["id"])
        parent_id = config["configurable"].get("checkpoint_id")
        delta = set(metadata.get("counters_since_delta_snapshot", {})) & set(checkpoint["channel_versions"])
        open_channels = delta - set(checkpoint["channel_values"])
        there = {other.checkpoint_id for other in self.keys(key.thread_id) if other[:2] == location}
        if not open_channels or not parent_id:
            return False
        if parent_id in there:
            if not self._is_cut(key._replace(checkpoint_id=parent_id), open_channels):
                return False
        elif not there - {key.checkpoint_id}:
            return False
        elif all(self.has_lost_its_parent(Key(*location, other)) for other in there - {key.checkpoint_id}):
            return None  # The others may have been stored at the same time.
        if key.checkpoint_id in there or open_channels <= self._already_stored(key, checkpoint, new_versions):
            return None
        return True

    def has_lost_its_parent(self, key: Key) -> bool:
        """Whether a checkpoint is stored whose parent is not."""
        there = self.keys(key.thread_id)
        return key in there and self.parent(key) not in {None, *there}

    def adopt(self, key: Key, found: CheckpointTuple) -> None:
        """Take over the values that a saver remembered when it stored a checkpoint."""  # 6
        versions = self.document(key)["channel_versions"]
        for channel, value in found.checkpoint["channel_values"].items():
            # Pending sends are a channel here, and come from the writes of the parent.
            if channel in versions and channel not in self.populated(key):
                blob = (key.thread_id, key.checkpoint_ns, channel, versions[channel])
                assert self.serde.dumps_typed(value) == self.ever[blob]
                self.blobs[blob] = self.ever[blob]
                self.populated_channels[key] |= {channel}

    def _is_cut(self, key: Key, channels: set[str]) -> bool:
        """Whether one of the channels needs an ancestor that was deleted before a hidden checkpoint."""
        parent: Key | None = key
        while parent is not None:
            if parent not in self.keys(key.thread_id):
                return bool(channels & (self._delta_channels(key) | self._snapshots(key))) and key in self.hidden
            key = parent
            channels = channels - self.populated(key)
            parent = self.parent(key) if channels else None
        return False

    def _already_stored(self, key: Key, checkpoint: Checkpoint, new_versions: ChannelVersions) -> set[str]:
        """The channels whose version is stored already."""
        return {
            channel
            for channel, version in checkpoint["channel_versions"].items()
            if channel not in new_versions and (key.thread_id, key.checkpoint_ns, channel, version) in self.blobs
        }

    def _merged(self, config: RunnableConfig, metadata: CheckpointMetadata) -> dict[str, Any]:
        merged = dict(metadata)
        for given in (config.get("metadata") or {}, config["configurable"]):
            for name, value in given.items():
                request_scoped = name.startswith("langgraph_auth_") or name == "langgraph_request_id"
                excluded = name in EXCLUDED_METADATA_KEYS or name.startswith("__")
                if not request_scoped and not excluded and isinstance(value, (str, int, float)):
                    merged.setdefault(name, value)
        return merged

    def put_writes(
        self, config: RunnableConfig, writes: Sequence[tuple[str, Any]], task_id: str, task_path: str = ""
    ) -> None:
        configurable = config["configurable"]
        location = (configurable["thread_id"], configurable["checkpoint_ns"], configurable["checkpoint_id"])
        before = dict(self.writes.get(location, {}))
        super().put_writes(config, writes, task_id, task_path)
        run_id = (config.get("metadata") or configurable).get("run_id")
        for slot, written in self.writes[location].items():
            if before.get(slot) is not written and not (slot in before and before[slot][2] == written[2]):
                self.wrote[location, slot] = run_id

    # Reading

    def get_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        thread_id, checkpoint_ns = config["configurable"]["thread_id"], config["configurable"].get("checkpoint_ns", "")
        checkpoint_id = config["configurable"].get("checkpoint_id")
        if checkpoint_id is None:
            ids = [key.checkpoint_id for key in self.visible(thread_id) if key.checkpoint_ns == checkpoint_ns]  # 11
            checkpoint_id = max(ids, default="")
        key = Key(thread_id, checkpoint_ns, checkpoint_id)
        found = super().get_tuple(key.config) if key in self.keys(thread_id) else None
        return self._as_wanted(found) if found else None

    def list(
        self,
        config: RunnableConfig | None,
        *,
        filter: dict[str, Any] | None = None,
        before: RunnableConfig | None = None,
        limit: int | None = None,
    ) -> Iterator[CheckpointTuple]:
        found = [
            self._as_wanted(each)
            for each in super().list(config, before=before)
            if key_of(each) not in self.hidden  # 11
            and all(as_json(each.metadata.get(name)) == as_json(wanted) for name, wanted in (filter or {}).items())  # 5
        ]
        found.sort(key=lambda each: (key_of(each).checkpoint_id, *key_of(each)), reverse=True)  # 9
        yield from found[:limit]

    def _as_wanted(self, found: CheckpointTuple) -> CheckpointTuple:
        key = key_of(found)
        checkpoint = found.checkpoint
        by_version = {
            channel: v for channel, v in checkpoint["channel_values"].items() if channel in self.populated_channels[key]
        }
        checkpoint["channel_values"] = by_version | self.serde.loads_typed(self.own[key])  # 1, 2, 3, 6, 7
        parent = self.parent(key)
        if checkpoint["v"] < 4 and parent is not None and self.has_sends(parent):  # 10
            checkpoint["channel_values"][TASKS] = [
                self.serde.loads_typed(value)
                for _, channel, value, _ in self._ordered_writes(*parent)
                if channel == TASKS
            ]
            checkpoint["channel_versions"][TASKS] = max(cast("dict[str, str]", checkpoint["channel_versions"]).values())
        return found._replace(config=key.config)  # 4

    def get_delta_channel_history(
        self, *, config: RunnableConfig, channels: Sequence[str]
    ) -> Mapping[str, DeltaChannelHistory]:
        return BaseCheckpointSaver.get_delta_channel_history(self, config=config, channels=channels)  # 14

    def _delta_channels(self, key: Key) -> set[str]:
        counters = self.metadata(key).get("counters_since_delta_snapshot", {})
        return set(counters) & set(self.document(key)["channel_versions"])

    def _snapshots(self, key: Key) -> set[str]:
        values = self._as_wanted(cast("CheckpointTuple", super().get_tuple(key.config))).checkpoint["channel_values"]
        return {channel for channel, value in values.items() if isinstance(value, _DeltaSnapshot)}


def key_of(found: CheckpointTuple) -> Key:
    location = found.config["configurable"]
    return Key(location["thread_id"], location["checkpoint_ns"], location["checkpoint_id"])


def exact(anything: Any) -> Any:
    """A form in which only values of the same type are equal: 1 is not True, a snapshot is not a tuple."""
    if isinstance(anything, Mapping):
        return type(anything).__name__, {key: exact(item) for key, item in anything.items()}
    if isinstance(anything, (list, tuple)):
        name = "list" if type(anything) is tuple else type(anything).__name__  # InMemorySaver returns lists.
        return name, [exact(item) for item in anything]
    return type(anything).__name__, repr(anything) if isinstance(anything, float) else anything
