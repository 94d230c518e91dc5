"""A Hypothesis state machine: random operations on a saver and on LangGraph's `InMemorySaver`, which is the oracle.

After every operation both answer every question alike, and the tables are whole. `Oracle` is `InMemorySaver` with the
operations that it lacks, each in the simplest form that is right, and with the differences that the design wants:

 1. A small scalar (None, bool, int, float, text and bytes of up to 256) is stored with its checkpoint. `InMemorySaver`
    loses it, or gives its version's old value, where its channel is not in `new_versions`.
 2. A larger value whose version has not been stored is stored from the first checkpoint that has it, also where its
    channel is not in `new_versions`. `InMemorySaver` loses it.
 3. A value of a channel without a version stays with its checkpoint. `InMemorySaver` loses it.
 4. A returned config holds the three keys. `InMemorySaver` gives back the caller's config.
 5. A filter compares as JSON: True is not 1, and a tuple is a list. `InMemorySaver` compares as Python.
 6. A checkpoint that comes without a small value that its version once had is read without it: small values belong to
    checkpoints (1), not to versions. `InMemorySaver` shows it in every checkpoint with that version. LangGraph leaves
    out only `DeltaChannel`s, whose history then ends one checkpoint further up, with the same value.
 7. Which channels of a checkpoint have a value is decided when it is stored. `InMemorySaver` decides when it is read.
 8. Metadata keeps NUL characters and takes no request-scoped keys from the config (`langgraph_auth_*`,
    `langgraph_request_id`). `InMemorySaver` drops the former and keeps the latter.
 9. A list is newest first across namespaces and threads, and its limit counts from there. `InMemorySaver` goes through
    them one by one.
10. A checkpoint older than format 4 has its parent's sends as the value of `__pregel_tasks`, as with LangGraph's
    savers for databases. `InMemorySaver` does not know such checkpoints.
11. Pruned checkpoints that a `DeltaChannel` or (10) still needs are hidden: not the newest, not in a list, but there by
    id. What they need themselves may be gone, so only the history of visible checkpoints is compared. A visible
    checkpoint whose parent is deleted has no parent any more.
12. A checkpoint whose parent or further ancestor was pruned, and of which a `DeltaChannel` goes back to it, is refused,
    unless nothing else is left in the namespace. It may be refused, which loses nothing, where it is already there (a
    repeat) and where the channel's snapshot is still stored under its version.
13. `delete_for_runs` deletes what a run wrote beside checkpoints of other runs, too, but not writes of a hidden one,
    nor what a child that stays is rebuilt from.
14. The history of a `DeltaChannel` is LangGraph's default walk, since `InMemorySaver`'s own one reads by version (6).
"""

from __future__ import annotations

import asyncio
import json
import sqlite3
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from copy import deepcopy
from itertools import product
from typing import Any, NamedTuple, cast
from urllib.parse import unquote
from uuid import uuid4

import psycopg
import pytest
from hypothesis import HealthCheck, note, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)
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
from langgraph.checkpoint.base.id import UUID
from langgraph.checkpoint.conformance.test_utils import generate_config
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.serde.types import ERROR, INTERRUPT, RESUME, SCHEDULED, TASKS, _DeltaSnapshot
from psycopg import sql
from ulid import ULID

from langgraph_checkpoint_custom import CheckpointError, CheckpointNotFound, CheckpointSaver, ThreadExists
from tests.conftest import COLOURS
from tests.invariants import check_invariants
from tests.stores import Store

SETTINGS = settings(
    max_examples=40,
    stateful_step_count=20,
    deadline=None,
    derandomize=False,
    print_blob=True,
    suppress_health_check=list(HealthCheck),
)

# Lists turn the page after this many checkpoints, so that threads of a few have several pages.
PAGE = 3


class Key(NamedTuple):
    """Where a checkpoint is."""

    thread_id: str
    checkpoint_ns: str
    checkpoint_id: str

    @property
    def config(self) -> RunnableConfig:
        return generate_config(self.thread_id, checkpoint_ns=self.checkpoint_ns, checkpoint_id=self.checkpoint_id)


# The oracle


def is_small(value: Any) -> bool:
    if type(value) in (str, bytes):
        return len(value) <= 256
    return value is None or type(value) in (bool, int, float)


def as_json(value: Any) -> str:
    """Equal for values that are the same JSON; JSON has one kind of number."""
    return json.dumps(_one_kind_of_number(value), sort_keys=True)


def _one_kind_of_number(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _one_kind_of_number(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_one_kind_of_number(item) for item in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value


class Oracle(InMemorySaver):
    """`InMemorySaver` with the wanted differences, by their numbers."""

    def __init__(self) -> None:
        super().__init__()
        self.own: dict[Key, tuple[str, bytes]] = {}
        """Values that stay with a checkpoint."""
        self.shown: dict[Key, frozenset[str]] = {}
        """The channels of a checkpoint whose value is stored by version."""
        self.hidden: set[Key] = set()
        self.wrote: dict[tuple[tuple[str, str, str], tuple[str, int]], str | None] = {}
        """The run that each write comes from."""

    # What is there

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
        return self.shown[key] | frozenset(self.serde.loads_typed(self.own[key]))

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
        kept = self._kept(key, checkpoint, new_versions)
        stored = {channel for channel in versions if channel not in own and (channel in values or channel in kept)}
        self.shown[key] = frozenset(stored)  # 7
        self.own[key] = self.serde.dumps_typed(own)
        for channel in (stored & set(values)) - set(new_versions):
            blob = (thread_id, checkpoint_ns, channel, versions[channel])
            self.blobs.setdefault(blob, self.serde.dumps_typed(values[channel]))  # 2
        self.hidden.discard(key)
        only_new = {channel: version for channel, version in new_versions.items() if channel in stored}
        returned = super().put(config, checkpoint, metadata, only_new)
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
        """Whether a checkpoint cannot be rebuilt, since an ancestor has gone; None if either answer is right."""
        place = (config["configurable"]["thread_id"], config["configurable"]["checkpoint_ns"])
        key = Key(*place, checkpoint["id"])
        parent_id = config["configurable"].get("checkpoint_id")
        delta = set(metadata.get("counters_since_delta_snapshot", {})) & set(checkpoint["channel_versions"])
        open_channels = delta - set(checkpoint["channel_values"])
        there = {other.checkpoint_id for other in self.keys(key.thread_id) if other[:2] == place}
        if not open_channels or not parent_id:
            return False
        if parent_id in there:
            if not self._is_cut(key._replace(checkpoint_id=parent_id), open_channels):
                return False
        elif not there - {key.checkpoint_id}:
            return False
        if key.checkpoint_id in there or open_channels <= self._kept(key, checkpoint, new_versions):
            return None
        return True

    def _is_cut(self, key: Key, channels: set[str]) -> bool:
        """Whether one of the channels goes back to what was removed behind a hidden checkpoint."""
        parent: Key | None = key
        while parent is not None:
            if parent not in self.keys(key.thread_id):
                return bool(channels & (self._delta_channels(key) | self._snapshots(key))) and key in self.hidden
            key = parent
            channels = channels - self.populated(key)
            parent = self.parent(key) if channels else None
        return False

    def _kept(self, key: Key, checkpoint: Checkpoint, new_versions: ChannelVersions) -> set[str]:
        """The channels whose version is stored already."""
        return {
            channel
            for channel, version in checkpoint["channel_versions"].items()
            if channel not in new_versions and (key.thread_id, key.checkpoint_ns, channel, version) in self.blobs
        }

    def _merged(self, config: RunnableConfig, metadata: CheckpointMetadata) -> dict[str, Any]:
        merged = dict(metadata)
        for part in (config.get("metadata") or {}, config["configurable"]):
            for name, value in part.items():
                request_scoped = name.startswith("langgraph_auth_") or name == "langgraph_request_id"
                excluded = name in EXCLUDED_METADATA_KEYS or name.startswith("__")
                if not request_scoped and not excluded and isinstance(value, (str, int, float)):
                    merged.setdefault(name, value)
        return merged

    def put_writes(
        self, config: RunnableConfig, writes: Sequence[tuple[str, Any]], task_id: str, task_path: str = ""
    ) -> None:
        part = config["configurable"]
        place = (part["thread_id"], part["checkpoint_ns"], part["checkpoint_id"])
        before = dict(self.writes.get(place, {}))
        super().put_writes(config, writes, task_id, task_path)
        run_id = (config.get("metadata") or part).get("run_id")
        for slot, written in self.writes[place].items():
            if before.get(slot) is not written:
                self.wrote[place, slot] = run_id

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
        by_version = {channel: v for channel, v in checkpoint["channel_values"].items() if channel in self.shown[key]}
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

    # Deleting and copying

    def delete_thread(self, thread_id: str) -> None:
        for key in self.keys(thread_id):
            self._forget(key)
        super().delete_thread(thread_id)

    def delete_for_runs(self, run_ids: Sequence[str]) -> None:
        of_runs = {key for key in self.keys() if self.metadata(key).get("run_id") in run_ids}
        places = {key[:2] for key in of_runs}
        self._remove(of_runs | {key for key in self.hidden if key[:2] in places})
        for (place, slot), run_id in self.wrote.items():  # 13
            written = self.writes.get(place, {})
            if run_id in run_ids and slot in written and not self._is_read(Key(*place), written[slot][1]):
                del written[slot]

    def _is_read(self, key: Key, channel: str) -> bool:
        """Whether a write is part of a hidden checkpoint, or of what a child is rebuilt from."""
        children = [child for child in self.keys(key.thread_id) if self.parent(child) == key]
        if channel == TASKS:
            return key in self.hidden or any(self.document(child)["v"] < 4 for child in children)
        replayed = channel in {
            name
            for other in self.keys(key.thread_id)
            if other[:2] == key[:2]
            for name in self._delta_channels(other) | self._snapshots(other)
        }
        return key in self.hidden or (replayed and any(channel not in self.populated(child) for child in children))

    def prune(self, thread_ids: Sequence[str], *, strategy: str = "keep_latest") -> None:
        for thread_id in thread_ids:
            if strategy == "keep_latest":
                kept = {key for key in self.newest(thread_id) if not self._is_finished(key)}
                self._remove(self.keys(thread_id) - kept)
            else:
                self.delete_thread(thread_id)

    def copy_thread(self, source_thread_id: str, target_thread_id: str) -> None:
        copies = {key: key._replace(thread_id=target_thread_id) for key in self.keys(source_thread_id)}
        if self.keys(target_thread_id) - set(copies.values()):
            raise ThreadExists
        for key, copy in copies.items():
            if copy in self.keys(target_thread_id):
                continue
            metadata = self.metadata(key)
            if metadata.get("thread_id") == source_thread_id:
                metadata["thread_id"] = target_thread_id
            document, _, parent_id = self.storage[key[0]][key[1]][key[2]]
            self.storage[copy[0]][copy[1]][copy[2]] = (document, self.serde.dumps_typed(metadata), parent_id)
            self.own[copy], self.shown[copy] = self.own[key], self.shown[key]
            if key in self.hidden:
                self.hidden.add(copy)
        for (thread_id, checkpoint_ns, channel, version), value in list(self.blobs.items()):
            if thread_id == source_thread_id:
                self.blobs.setdefault((target_thread_id, checkpoint_ns, channel, version), value)
        for (thread_id, checkpoint_ns, checkpoint_id), writes in list(self.writes.items()):
            if thread_id == source_thread_id:
                place = (target_thread_id, checkpoint_ns, checkpoint_id)
                there = self.writes.get(place, {})
                self.writes[place] = writes | there
                for slot in writes.keys() - there.keys():
                    self.wrote[place, slot] = self.wrote[(thread_id, checkpoint_ns, checkpoint_id), slot]

    def _is_finished(self, key: Key) -> bool:
        """Whether this is the head of a subgraph call that an older superstep of the root graph made."""
        root_id = self.metadata(key).get("parents", {}).get("")
        if ":" not in key.checkpoint_ns or not root_id:
            return False
        newest = max(
            (root.checkpoint_id for root in self.visible(key.thread_id) if root.checkpoint_ns == ""), default=""
        )
        return root_id < newest or (root_id != newest and Key(key.thread_id, "", root_id) in self.keys(key.thread_id))

    def _remove(self, doomed: Iterable[Key]) -> None:
        """Delete checkpoints, or hide those that a remaining one needs."""
        doomed = set(doomed)
        needed = {ancestor for key in self.keys() - doomed for ancestor in self._needed_by(key)}
        self.hidden |= doomed & needed
        gone = doomed - needed
        for key in gone:
            self._forget(key)
            self.storage[key[0]][key[1]].pop(key[2])
            self.writes.pop(key, None)
        for key in self.keys():
            if self.parent(key) in gone and key not in self.hidden:
                document, metadata, _ = self.storage[key[0]][key[1]][key[2]]
                self.storage[key[0]][key[1]][key[2]] = (document, metadata, None)  # 11
        named = {
            (key.thread_id, key.checkpoint_ns, channel, self.document(key)["channel_versions"][channel])
            for key in self.keys()
            for channel in self.shown[key]
        }
        for blob in set(self.blobs) - named:
            del self.blobs[blob]

    def _needed_by(self, key: Key) -> set[Key]:
        """The ancestors without which a checkpoint could not be read, and those that hold sends for one of them."""
        needed: set[Key] = set()
        open_channels = self._delta_channels(key) - self.populated(key)
        cursor = self.parent(key)
        while open_channels and cursor in self.keys(key.thread_id):
            assert cursor is not None
            needed.add(cursor)
            open_channels -= self.populated(cursor)
            cursor = self.parent(cursor)
        readers = [key, *needed]
        while readers:
            reader = readers.pop()
            parent = self.parent(reader)
            if self.document(reader)["v"] < 4 and parent in self.keys(key.thread_id) and self.has_sends(parent):
                assert parent is not None
                needed.add(parent)
                readers.append(parent)
        return needed

    def _delta_channels(self, key: Key) -> set[str]:
        counters = self.metadata(key).get("counters_since_delta_snapshot", {})
        return set(counters) & set(self.document(key)["channel_versions"])

    def _snapshots(self, key: Key) -> set[str]:
        values = self._as_wanted(cast("CheckpointTuple", super().get_tuple(key.config))).checkpoint["channel_values"]
        return {channel for channel, value in values.items() if isinstance(value, _DeltaSnapshot)}

    def _forget(self, key: Key) -> None:
        del self.own[key], self.shown[key]
        self.hidden.discard(key)


def key_of(found: CheckpointTuple) -> Key:
    part = found.config["configurable"]
    return Key(part["thread_id"], part["checkpoint_ns"], part["checkpoint_id"])


# What is stored

NAMESPACES = ("", "child", "call:1", "call:1|deep:2")
# A graph's delta channels are there from its first checkpoint on.
DELTA = {"": ("log",), "child": ("log", "tally"), "call:1": (), "call:1|deep:2": ("tally",)}
PLAIN = ("alpha", "beta", "Größe")
UNVERSIONED = "loose"
SPECIAL = (ERROR, INTERRUPT, RESUME, SCHEDULED)

small = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-3, 3),
    st.floats(allow_nan=False, width=16),
    st.text(max_size=3),
    st.binary(max_size=3),
    st.sampled_from(["ä" * 256, b"\0" * 256, "a\0b", "", 2**63 - 1]),
)
large = st.one_of(
    st.sampled_from(["ä" * 257, b"\0" * 257]),
    st.lists(small, max_size=3),
    st.dictionaries(st.text(max_size=3), small, max_size=2),
)
value = st.one_of(small, large)
label = st.sampled_from([True, 1, 1.0, "1", None, [1, 2], (1, 2), {"b": [1], "a": None}, "x" * 300, "a\0b"])

FILTERS: Sequence[dict[str, Any]] = (
    {"source": "loop"},
    {"label": True},
    {"label": 1},
    {"label": "1"},
    {"label": None},
    {"label": [1, 2]},
    {"label": {"a": None, "b": [1.0]}},
    {"label": "x" * 300},
    {"label": "a\0b", "source": "input"},
    {"missing": None, "source": "loop"},
    {"missing": False},
    {"tenant": "t"},
    {'odd "key" % * $.a': 1},
    {"langgraph_request_id": None},
)


def checkpoint_id_at(kind: str, moment: int) -> str:
    """An id of a moment; of one kind, a later moment's id is the greater one."""
    if kind == "ulid":
        return str(ULID.from_int((1_700_000_000_000 + moment) << 80))
    timestamp = 0x1EF_0000_0000_0000 + moment
    return str(UUID(int=(timestamp >> 12) << 80 | (timestamp & 0xFFF) << 64, version=6))


def rarely(data: st.DataObject) -> bool:
    return data.draw(st.integers(0, 3)) == 3


def exact(anything: Any) -> Any:
    """A form in which only what is the same in type and value is equal: 1 is not True, a snapshot is not a tuple."""
    if isinstance(anything, Mapping):
        return type(anything).__name__, {key: exact(item) for key, item in anything.items()}
    if isinstance(anything, (list, tuple)):
        return type(anything).__name__, [exact(item) for item in anything]
    return type(anything).__name__, repr(anything) if isinstance(anything, float) else anything


# The machine


class Calls:
    """A saver's methods in one colour, called from sync code."""

    def __init__(self, saver: CheckpointSaver, loop: asyncio.AbstractEventLoop | None) -> None:
        self._saver = saver
        self._loop = loop

    def __call__(self, name: str, *args: Any, **kwargs: Any) -> Any:
        if self._loop is None:
            return getattr(self._saver, name)(*args, **kwargs)
        return self._loop.run_until_complete(getattr(self._saver, f"a{name}")(*args, **kwargs))

    def list(self, config: RunnableConfig | None, **kwargs: Any) -> Sequence[CheckpointTuple]:
        if self._loop is None:
            return list(self._saver.list(config, **kwargs))

        async def collect() -> Sequence[CheckpointTuple]:
            return [found async for found in self._saver.alist(config, **kwargs)]

        return self._loop.run_until_complete(collect())


class PutCall(NamedTuple):
    """The arguments of a put."""

    config: RunnableConfig
    checkpoint: Checkpoint
    metadata: CheckpointMetadata
    new_versions: ChannelVersions


class WritesCall(NamedTuple):
    """The arguments of a put_writes."""

    config: RunnableConfig
    writes: Sequence[tuple[str, Any]]
    task_id: str
    task_path: str


class SaverMachine(RuleBasedStateMachine):
    """The same operations on a saver and on the oracle, on threads of this example's own."""

    def __init__(self, store: Store, calls: Calls, next_version: Callable[[Any, None], str]) -> None:
        super().__init__()
        self.store = store
        self.calls = calls
        self.next_version = next_version
        self.oracle = Oracle()
        self.example = uuid4().hex
        self.threads = [f"{self.example} {name}" for name in ("a", "b", "ü")]
        self.unknown = f"{self.example} unknown"
        self.runs = [f"{self.example} run {number}" for number in range(3)]
        self.kinds: Sequence[str] = ("uuid6",)
        self.moments = {1: 0, -1: 0}
        self.puts: list[PutCall] = []
        self.writes: list[WritesCall] = []
        self.ids: defaultdict[tuple[str, str], list[str]] = defaultdict(list)
        """Every id that was ever used, stored or not."""
        self.agreed = True
        """Whether the last operation left both sides alike."""
        self.touched: set[str] = set()
        self.turn = 0

    @initialize(kinds=st.sampled_from([("uuid6",), ("ulid",), ("ulid", "uuid6")]))
    def choose_ids(self, kinds: Sequence[str]) -> None:
        self.kinds = kinds

    # Operations

    @rule(data=st.data())
    def go_on_from_the_newest(self, data: st.DataObject) -> None:
        thread_id, checkpoint_ns = self._place(data)
        for _ in range(data.draw(st.integers(1, 4))):
            newest = [key for key in self.oracle.newest(thread_id) if key.checkpoint_ns == checkpoint_ns]
            key = self._new_key(data, thread_id, checkpoint_ns)
            self._put(data, key, newest[0].checkpoint_id if newest else None)
            if data.draw(st.booleans()):
                self._put_writes(data, key)

    @rule(data=st.data())
    def fork(self, data: st.DataObject) -> None:
        """From any checkpoint that there is, is hidden, or has gone, or from nothing."""
        thread_id, checkpoint_ns = self._place(data)
        # Only what was stored before, so that no chain loops: `InMemorySaver` would follow it for ever.
        ever_stored = {call.checkpoint["id"] for call in self.puts}
        parents = [each for each in self.ids[thread_id, checkpoint_ns] if each in ever_stored]
        gone = [each for each in parents if Key(thread_id, checkpoint_ns, each) not in self.oracle.keys(thread_id)]
        key = self._new_key(data, thread_id, checkpoint_ns)
        self._put(data, key, data.draw(st.one_of(*(st.sampled_from(each) for each in ([None], parents, gone) if each))))

    @precondition(lambda self: self.puts)
    @rule(data=st.data())
    def repeat_a_put(self, data: st.DataObject) -> None:
        call = data.draw(st.sampled_from(self.puts))
        self._do_put(call)

    @rule(data=st.data())
    def write(self, data: st.DataObject) -> None:
        """To any checkpoint that there is, is hidden, has gone, or is still to come."""
        thread_id, checkpoint_ns = self._place(data)
        ids = self.ids[thread_id, checkpoint_ns]
        if ids and not rarely(data):
            key = Key(thread_id, checkpoint_ns, data.draw(st.sampled_from(ids)))
        else:
            key = self._new_key(data, thread_id, checkpoint_ns)
        self._put_writes(data, key)

    @precondition(lambda self: self.writes)
    @rule(data=st.data())
    def repeat_a_write(self, data: st.DataObject) -> None:
        call = data.draw(st.sampled_from(self.writes))
        self._do("put_writes", *call, touches=[call.config["configurable"]["thread_id"]])

    @precondition(lambda self: self.puts)
    @rule(data=st.data())
    def prune(self, data: st.DataObject) -> None:
        threads = st.lists(st.sampled_from([*self.threads, self.unknown]), min_size=1, max_size=3, unique=True)
        thread_ids = data.draw(threads)
        self._do("prune", thread_ids, strategy="keep_latest", touches=thread_ids)

    @precondition(lambda self: self.puts)
    @rule(data=st.data())
    def delete_for_runs(self, data: st.DataObject) -> None:
        run_ids = data.draw(st.lists(st.sampled_from([*self.runs, self.unknown]), max_size=2))
        self._do("delete_for_runs", run_ids, touches=self.threads)

    @precondition(lambda self: self.puts)
    @rule(data=st.data())
    def copy_or_delete_a_thread(self, data: st.DataObject) -> None:
        thread_id = data.draw(st.sampled_from(self.threads))
        operation = data.draw(st.sampled_from(["copy_thread", "copy_thread", "delete_thread", "delete", "delete_all"]))
        if operation == "copy_thread":
            target = data.draw(st.sampled_from(self.threads))
            for checkpoint_ns in NAMESPACES:
                known = self.ids[target, checkpoint_ns]
                known.extend(each for each in self.ids[thread_id, checkpoint_ns] if each not in known)
            self._do("copy_thread", thread_id, target, touches=[thread_id, target])
        elif operation == "delete_thread":
            self._do("delete_thread", thread_id, touches=[thread_id])
        else:
            self._do("prune", [thread_id], strategy=operation, touches=[thread_id])

    # Questions

    @invariant()
    def every_question_has_the_same_answer(self) -> None:
        if self.agreed:
            return
        self.turn += 1
        while self.touched:
            self._compare_thread(self.touched.pop())
        self._compare_list(None)
        check_invariants(self.store, early_writes=set(self.oracle.writes) - self.oracle.keys())
        self.agreed = True

    @rule(data=st.data())
    def list_with_anything(self, data: st.DataObject) -> None:
        thread_id, checkpoint_ns = self._place(data)
        ids = st.sampled_from([None, *self.ids[thread_id, checkpoint_ns]])
        config: RunnableConfig | None = None
        if not rarely(data):
            config = {"configurable": {"thread_id": thread_id}}
            if data.draw(st.booleans()):
                config["configurable"]["checkpoint_ns"] = checkpoint_ns
            if (checkpoint_id := data.draw(ids)) and data.draw(st.booleans()):
                config["configurable"]["checkpoint_id"] = checkpoint_id
        before = data.draw(ids)
        self._compare_list(
            config,
            before={"configurable": {"checkpoint_id": before}} if before else None,
            limit=data.draw(st.sampled_from([None, 0, 1, PAGE - 1, PAGE, PAGE + 1, 100])),
            filter=data.draw(st.sampled_from([None, *FILTERS])),
        )

    def _compare_thread(self, thread_id: str) -> None:
        visible = self.oracle.visible(thread_id)
        used = [checkpoint_ns for checkpoint_ns in NAMESPACES if self.ids[thread_id, checkpoint_ns]]
        for checkpoint_ns in used:
            for checkpoint_id in [None, *self.ids[thread_id, checkpoint_ns]]:
                config = generate_config(thread_id, checkpoint_ns=checkpoint_ns, checkpoint_id=checkpoint_id)
                self._ask("get_tuple", config)
                if checkpoint_id is None or (thread_id, checkpoint_ns, checkpoint_id) in visible:  # 11
                    self._ask("get_delta_channel_history", config=config, channels=["log", "tally", "alpha"])
        for confined in (None, *used):
            config = {"configurable": {"thread_id": thread_id}}
            if confined is not None:
                config["configurable"]["checkpoint_ns"] = confined
            ids = sorted({key.checkpoint_id for key in visible if confined in (None, key.checkpoint_ns)})
            edges = [None, *ids[self.turn % len(ids) :][:1]] if ids else [None]
            filters = [None, FILTERS[self.turn % len(FILTERS)]]
            for before, limit, filter in product(edges, [None, 1 + self.turn % 4], filters):
                edge: RunnableConfig | None = {"configurable": {"checkpoint_id": before}} if before else None
                self._compare_list(config, before=edge, limit=limit, filter=filter)

    def _compare_list(self, config: RunnableConfig | None, **kwargs: Any) -> None:
        expected = list(self.oracle.list(config, **kwargs))
        assert exact(self.calls.list(config, **kwargs)) == exact(expected)

    def teardown(self) -> None:
        if not self.agreed:
            return  # The step that failed says why.
        for thread_id in self.threads:
            self._compare_thread(thread_id)
            self.calls("delete_thread", thread_id)
        left = check_invariants(self.store)
        assert [len(rows) for rows in left] == [0, 0, 0]

    # Parts

    def _do(self, name: str, *args: Any, touches: Iterable[str], **kwargs: Any) -> None:
        """An operation on both sides, which agree on the answer or on the error."""
        note(f"{name}{args} {kwargs or ''}")
        self.agreed = False
        self.touched.update(touches)
        try:
            expected = getattr(self.oracle, name)(*deepcopy(args), **deepcopy(kwargs))
        except CheckpointError as error:
            with pytest.raises(type(error)):
                self.calls(name, *args, **kwargs)
        else:
            assert exact(self.calls(name, *args, **kwargs)) == exact(expected)

    def _do_put(self, call: PutCall) -> None:
        thread_id = call.config["configurable"]["thread_id"]
        if self.oracle.refuses(*call) is not None:
            self._do("put", *call, touches=[thread_id])
            return
        note(f"put, which may be refused, {tuple(call)}")
        self.agreed = False
        self.touched.add(thread_id)
        with suppress(CheckpointNotFound):
            self.calls("put", *call)
            self.oracle.put(*deepcopy(call))

    def _ask(self, name: str, *args: Any, **kwargs: Any) -> None:
        """A question to both sides."""
        assert exact(self.calls(name, *args, **kwargs)) == exact(getattr(self.oracle, name)(*args, **kwargs))

    def _place(self, data: st.DataObject) -> tuple[str, str]:
        # Most operations in few places, so that much happens there.
        first, *others = self.threads
        thread_id = data.draw(st.sampled_from([*[first] * 3, *others]))
        return thread_id, data.draw(st.sampled_from([*[""] * 3, *["child"] * 3, *NAMESPACES]))

    def _new_key(self, data: st.DataObject, thread_id: str, checkpoint_ns: str) -> Key:
        """A checkpoint that is not stored: above all others, below all, or one that writes came for."""
        ids = self.ids[thread_id, checkpoint_ns]
        ever_stored = {call.checkpoint["id"] for call in self.puts}
        expected = sorted(key[2] for key in self.oracle.writes if key[:2] == (thread_id, checkpoint_ns))
        expected = [checkpoint_id for checkpoint_id in expected if checkpoint_id not in ever_stored]
        if expected and data.draw(st.integers(0, 1)) == 1:
            return Key(thread_id, checkpoint_ns, data.draw(st.sampled_from(expected)))
        direction = data.draw(st.sampled_from([1, 1, 1, -1]))
        self.moments[direction] += direction
        checkpoint_id = checkpoint_id_at(data.draw(st.sampled_from(self.kinds)), self.moments[direction])
        ids.append(checkpoint_id)
        return Key(thread_id, checkpoint_ns, checkpoint_id)

    def _state_at(self, thread_id: str, checkpoint_ns: str, checkpoint_id: str | None) -> tuple[Checkpoint, Any] | None:
        """What a run that goes on from a checkpoint has in memory, also when the checkpoint has gone meanwhile."""
        if checkpoint_id is None:
            return None
        found = self.oracle.get_tuple(Key(thread_id, checkpoint_ns, checkpoint_id).config)
        if found is not None:
            return found.checkpoint, found.metadata
        for call in reversed(self.puts):
            if call.checkpoint["id"] == checkpoint_id and call.config["configurable"]["checkpoint_ns"] == checkpoint_ns:
                return deepcopy((call.checkpoint, call.metadata))
        return None

    def _put(self, data: st.DataObject, key: Key, parent_id: str | None) -> None:
        values: dict[str, Any] = {}
        versions: dict[str, Any] = {}
        counters: dict[str, tuple[int, int]] = {}
        state = self._state_at(key.thread_id, key.checkpoint_ns, parent_id)
        if state is not None:
            values, versions = dict(state[0]["channel_values"]), dict(state[0]["channel_versions"])
            counters = {
                name: (pair[0], pair[1]) for name, pair in state[1].get("counters_since_delta_snapshot", {}).items()
            }
        new: dict[str, Any] = {}

        def bump(channel: str) -> None:
            new[channel] = versions[channel] = self.next_version(versions.get(channel), None)

        for channel in PLAIN:
            action = data.draw(st.sampled_from(["keep", "keep", "set", "set", "empty", "slip", "leave out"]))
            if action == "set":
                bump(channel)
                values[channel] = data.draw(value)
            elif action == "empty":
                bump(channel)
                values.pop(channel, None)
            elif action == "slip":
                values[channel] = data.draw(value)
            elif action == "leave out":
                values.pop(channel, None)
        if rarely(data):
            values[UNVERSIONED] = data.draw(value)
        for channel in DELTA[key.checkpoint_ns]:
            action = data.draw(st.sampled_from(["unchanged", "unchanged", "written", "written", "snapshot", "plain"]))
            values.pop(channel, None)
            if action != "unchanged" or channel not in versions:
                bump(channel)
            if action == "snapshot":
                values[channel] = _DeltaSnapshot(data.draw(value))
                counters.pop(channel, None)
            elif action == "plain":
                values[channel] = data.draw(value)
                counters.pop(channel, None)
            else:
                updates, supersteps = counters.get(channel, (0, 0))
                counters[channel] = (updates + (action == "written"), supersteps + 1)
        if not versions:
            bump("__start__")

        roots = [found.checkpoint_id for found in self.oracle.keys(key.thread_id) if found.checkpoint_ns == ""]
        metadata: dict[str, Any] = {"source": data.draw(st.sampled_from(["input", "loop"])), "step": len(self.puts)}
        metadata["parents"] = {}
        if key.checkpoint_ns and roots and not rarely(data):
            metadata["parents"] = {"": data.draw(st.sampled_from(sorted(roots, reverse=True)))}
        if counters:
            metadata["counters_since_delta_snapshot"] = counters
        if data.draw(st.booleans()):
            metadata["run_id"] = data.draw(st.sampled_from(self.runs))
        if data.draw(st.booleans()):
            metadata["label"] = data.draw(label)
        if rarely(data):
            metadata["thread_id"] = data.draw(st.sampled_from([key.thread_id, "elsewhere"]))
        extras = data.draw(st.sampled_from([{}, {}, EXTRAS]))
        config: RunnableConfig = {
            "configurable": {"thread_id": key.thread_id, "checkpoint_ns": key.checkpoint_ns, **extras},
            "metadata": {'odd "key" % * $.a': 1, "a list": [1]} if extras else {},
        }
        if parent_id is not None:
            config["configurable"]["checkpoint_id"] = parent_id
        checkpoint = Checkpoint(
            v=data.draw(st.sampled_from([4, 4, 4, 1, 3])),
            id=key.checkpoint_id,
            ts="2025-01-01T00:00:00+00:00",
            channel_values=values,
            channel_versions=versions,
            versions_seen={"node": dict(new)},
            updated_channels=sorted(new),
        )
        call = PutCall(config, checkpoint, cast("CheckpointMetadata", metadata), new)
        self.puts.append(deepcopy(call))
        self._do_put(call)

    def _put_writes(self, data: st.DataObject, key: Key) -> None:
        channels = st.sampled_from([*PLAIN, *DELTA[key.checkpoint_ns], "log", *SPECIAL, TASKS])
        writes = data.draw(st.lists(st.tuples(channels, value), min_size=1, max_size=4))
        config = key.config
        run_id = data.draw(st.sampled_from([None, *self.runs]))
        if run_id is not None and data.draw(st.booleans()):
            config["configurable"]["run_id"] = run_id
        elif run_id is not None:
            config["metadata"] = {"run_id": run_id}
        call = WritesCall(
            config,
            data.draw(st.sampled_from([list, tuple, deque]))(writes),
            data.draw(st.sampled_from(["task", "Task", "ü", "\U0001f600", "\uffff"])),
            data.draw(st.sampled_from(["", "~b", "~B", "~é", "~\U0001f600", "~\uffff"])),
        )
        self.writes.append(deepcopy(call))
        self._do("put_writes", *call, touches=[key.thread_id])


EXTRAS = {
    "tenant": "t",
    "a number": 1.5,
    "nul": "a\0b",
    "langgraph_auth_user": "secret",
    "langgraph_request_id": "request",
    "__private": "p",
    "an object": {"not": "taken"},
}


def empty_tables(store: Store) -> None:
    """Delete what an example that failed has left, so that no other example sees it."""
    statements = [f"DELETE FROM {{}}{table}" for table in ("checkpoints", "blobs", "writes")]
    if store.kind == "sqlite":
        with closing(sqlite3.connect(unquote(store.url.removeprefix("sqlite:///")))) as file, file:
            tables = file.execute("SELECT count(*) FROM sqlite_schema").fetchone()
            for statement in statements if tables[0] else []:
                file.execute(statement.format(""))
    else:
        with psycopg.connect(store.url) as server:
            for statement in statements:
                server.execute(sql.SQL(statement).format(sql.SQL("langgraph_checkpoint.")))


@contextmanager
def opened(store: Store, colour: str) -> Iterator[tuple[CheckpointSaver, Calls]]:
    """A saver with its methods in a colour."""
    options = {"synchronous": "OFF"} if store.kind == "sqlite" else {}
    saver = store.open(**options)
    if colour == "sync":
        with saver:
            yield saver, Calls(saver, None)
        return
    loop = asyncio.new_event_loop()
    try:
        yield saver, Calls(saver, loop)
    finally:
        loop.run_until_complete(saver.aclose())
        loop.close()


@pytest.mark.parametrize("colour", COLOURS)
def test_a_saver_answers_as_the_oracle_does(store: Store, colour: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("langgraph_checkpoint_custom.saver.PAGE", PAGE)
    with opened(store, colour) as (saver, calls):

        def machine() -> SaverMachine:
            empty_tables(store)
            return SaverMachine(store, calls, saver.get_next_version)

        run_state_machine_as_test(machine, settings=SETTINGS)  # type: ignore[arg-type]  # It takes any factory.
