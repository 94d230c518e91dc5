"""Threads with `DeltaChannel`s, made as LangGraph makes them, for any saver."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any
from uuid import uuid4

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import BaseCheckpointSaver, CheckpointMetadata, DeltaChannelHistory
from langgraph.checkpoint.base.id import uuid6
from langgraph.checkpoint.conformance.test_utils import generate_checkpoint, generate_config, generate_metadata
from ulid import ULID

Saver = BaseCheckpointSaver[str]
History = Mapping[str, DeltaChannelHistory]


class Ids:
    """Checkpoint ids of one type, each greater than the previous one."""

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self._milliseconds = 1_700_000_000_000

    def next(self) -> str:
        if self.kind == "uuid6":
            return str(uuid6(clock_seq=0))
        self._milliseconds += 1
        return str(ULID.from_timestamp(self._milliseconds))


ID_TYPES = ("uuid6", "ulid")

# Values below and above each limit at which a saver may store them differently.
SMALL: tuple[Any, ...] = (True, 7, 2**62, -0.5, float("inf"), "text", "a\0b", "ä" * 256, b"bytes", b"\0" * 256)
LARGE: tuple[Any, ...] = ("ä" * 257, b"\0" * 257, "x" * 100_000, ["a", {"b": None}], {"key": [1, 2]}, {1, 2})
EMPTY: tuple[Any, ...] = ("", b"", 0, 0.0, False, [], {}, set())


class Thread:
    """A namespace of a thread whose `channels` are `DeltaChannel`s, built step by step."""

    def __init__(
        self,
        saver: Saver,
        ids: Ids,
        channels: Sequence[str] = ("log",),
        *,
        thread_id: str | None = None,
        checkpoint_ns: str = "",
        counted: bool = True,
    ) -> None:
        self.saver = saver
        self.ids = ids
        self.channels = channels
        self.thread_id = thread_id or str(uuid4())
        self.checkpoint_ns = checkpoint_ns
        self.last: str | None = None
        self._counted = counted
        self._versions: dict[str | None, dict[str, str]] = {None: {}}

    def config(self, checkpoint_id: str | None) -> RunnableConfig:
        return generate_config(self.thread_id, checkpoint_ns=self.checkpoint_ns, checkpoint_id=checkpoint_id)

    async def step(
        self,
        *writes: tuple[str, Any],
        values: Mapping[str, Any] | None = None,
        unchanged: Collection[str] = (),
        checkpoint_id: str | None = None,
    ) -> str:
        """Store a checkpoint after the last one, and what a task wrote in it."""
        parent, self.last = self.last, checkpoint_id or self.ids.next()
        await self.put(self.last, parent, values=values, unchanged=unchanged)
        if writes:
            await self.write(self.last, *writes)
        return self.last

    async def put(
        self,
        checkpoint_id: str,
        parent: str | None,
        *,
        values: Mapping[str, Any] | None = None,
        unchanged: Collection[str] = (),
    ) -> None:
        """A checkpoint in which every channel but the unchanged ones has a new version, some with a value."""
        values = dict(values or {})
        versions = dict(self._versions.get(parent, {}))
        new_versions: dict[str, Any] = {
            channel: self.saver.get_next_version(versions.get(channel), None)
            for channel in self.channels
            if channel not in unchanged
        }
        versions |= new_versions
        self._versions[checkpoint_id] = versions
        metadata = generate_metadata()
        counters = {channel: (1, 1) for channel in self.channels if channel not in values}
        if counters and self._counted:
            metadata = CheckpointMetadata(**metadata, counters_since_delta_snapshot=counters)
        checkpoint = generate_checkpoint(
            checkpoint_id=checkpoint_id, channel_values=values, channel_versions=dict(versions)
        )
        await self.saver.aput(self.config(parent), checkpoint, metadata, new_versions)

    async def write(
        self, checkpoint_id: str, *writes: tuple[str, Any], task_id: str = "task", task_path: str = ""
    ) -> None:
        await self.saver.aput_writes(self.config(checkpoint_id), writes, task_id, task_path)

    async def history(
        self, checkpoint_id: str | None, channels: Sequence[str] | None = None, *, ends: bool = True
    ) -> History:
        """The history at a checkpoint, the same as LangGraph's default walk finds, if that one `ends`."""
        asked = self.channels if channels is None else channels
        config = self.config(checkpoint_id)
        found = await self.saver.aget_delta_channel_history(config=config, channels=asked)
        if ends:
            default = await BaseCheckpointSaver.aget_delta_channel_history(self.saver, config=config, channels=asked)
            assert found == default
            assert repr(dict(found)) == repr(dict(default)), "1 is not True, and a snapshot is not a tuple"
        return found


def written(history: History, channel: str = "log") -> list[Any]:
    """The values of a channel's writes."""
    assert {name for _, name, _ in history[channel]["writes"]} <= {channel}
    return [value for _, _, value in history[channel]["writes"]]
