"""Documents, of which the adapters consist, stored with the methods that every saver has.

A document is the channel values of the newest checkpoint of a thread of another framework; see
`model/namespaced_ids.py`. The older checkpoints are its earlier versions; a prune deletes them.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from datetime import datetime, timezone
from typing import Any, NamedTuple
from uuid import UUID

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import Checkpoint, CheckpointMetadata, CheckpointTuple
from langgraph.checkpoint.base.id import uuid6
from langgraph.checkpoint.serde.types import INTERRUPT

from langgraph_checkpoint_custom.encoding.objects import error_text
from langgraph_checkpoint_custom.errors import ConfigError, CorruptCheckpoint
from langgraph_checkpoint_custom.model.keys import config_of, key_of
from langgraph_checkpoint_custom.model.outline import FORMAT_WITH_SENDS
from langgraph_checkpoint_custom.model.records import Question
from langgraph_checkpoint_custom.operations.writers import ConcurrentWriters
from langgraph_checkpoint_custom.saver import CheckpointSaver


class Before(NamedTuple):
    """The version that the next one follows.

    Attributes:
        checkpoint_id: Its id; None if there is no version yet.
        metadata: Its metadata.
        values: The values that the next version takes over, by channel.
        versions: The channel versions of these values.
    """

    checkpoint_id: str | None = None
    metadata: Mapping[str, Any] = {}
    values: Mapping[str, Any] = {}
    versions: Mapping[str, Any] = {}


class Version(NamedTuple):
    """A version of a document that is to be stored: the arguments of `put`."""

    config: RunnableConfig
    checkpoint: Checkpoint
    metadata: CheckpointMetadata
    new_versions: dict[str, str | int | float]

    @property
    def own_config(self) -> RunnableConfig:
        """The config that names it."""
        return config_of(self.config["configurable"]["thread_id"], "", self.checkpoint["id"])


def next_version(
    thread_id: str, before: Before, changed: Mapping[str, Any], metadata: Mapping[str, Any] | None = None
) -> Version:
    """Return the version of a document in which some values are changed.

    Its id sorts after that of the version before, also if the clock of another machine is ahead, and is new.

    Args:
        thread_id: The thread.
        before: The version before.
        changed: The new values by channel.
        metadata: The adapter's metadata.
    """
    checkpoint_id = str(uuid6())
    if before.checkpoint_id is not None and before.checkpoint_id >= checkpoint_id:
        checkpoint_id = str(UUID(int=UUID(before.checkpoint_id).int + 1 + secrets.randbits(32)))
    new: dict[str, str | int | float] = dict.fromkeys(changed, checkpoint_id)  # No channel had this version before.
    checkpoint = Checkpoint(
        v=FORMAT_WITH_SENDS,
        id=checkpoint_id,
        ts=datetime.now(timezone.utc).isoformat(),
        channel_values={**before.values, **changed},
        channel_versions={**before.versions, **new},
        versions_seen={},
        updated_channels=sorted(new),
    )
    complete: dict[str, Any] = {**(metadata or {}), "source": "update", "step": before.metadata.get("step", -1) + 1}
    # The type of LangGraph's metadata does not list the adapter's keys.
    return Version(_config(thread_id, before.checkpoint_id), checkpoint, CheckpointMetadata(**complete), new)  # type: ignore[typeddict-item]


class Documents:
    """Reads and stores documents; every method has a sync and an async version.

    Args:
        saver: The saver to store with; the caller closes it.
        concurrent_writers: With "reject", a version is refused if what was read before it is not the newest any more.
    """

    def __init__(self, saver: CheckpointSaver, concurrent_writers: ConcurrentWriters = "allow") -> None:
        if not isinstance(saver, CheckpointSaver):
            raise ConfigError(
                f"an adapter needs a saver of langgraph_checkpoint_custom, not a {type(saver).__name__}; make one with "
                "open_saver(url)"
            )
        self._saver = saver._with_concurrent_writers(concurrent_writers)

    def read(self, thread_id: str, version: str | None = None) -> CheckpointTuple | None:
        """Return the newest version of a document, or another one; None if there is none."""
        return self._saver.get_tuple(_config(thread_id, version))

    async def aread(self, thread_id: str, version: str | None = None) -> CheckpointTuple | None:
        """Async version of `read`."""
        return await self._saver.aget_tuple(_config(thread_id, version))

    def newest(self, thread_id: str) -> Before:
        """Return the newest version of a document without its values, also if it cannot be read."""
        try:
            for found in self._saver.history(_config(thread_id), limit=1):
                return Before(found.checkpoint_id, found.metadata)
        except CorruptCheckpoint as error:
            return Before(error.checkpoint_id)
        return Before()

    async def anewest(self, thread_id: str) -> Before:
        """Async version of `newest`."""
        try:
            async for found in self._saver.ahistory(_config(thread_id), limit=1):
                return Before(found.checkpoint_id, found.metadata)
        except CorruptCheckpoint as error:
            return Before(error.checkpoint_id)
        return Before()

    def put(self, version: Version) -> None:
        """Store a version."""
        self._saver.put(*version)

    async def aput(self, version: Version) -> None:
        """Async version of `put`."""
        await self._saver.aput(*version)

    def ask(self, version: Version, question: Question) -> None:
        """Store what waits for a human as of a version, as an interrupt of LangGraph's: `interrupts()` lists it."""
        self._saver.put_writes(version.own_config, [(INTERRUPT, [question._asdict()])], "question")

    async def aask(self, version: Version, question: Question) -> None:
        """Async version of `ask`."""
        await self._saver.aput_writes(version.own_config, [(INTERRUPT, [question._asdict()])], "question")


def misshapen(config: RunnableConfig, channel: str, error: Exception) -> CorruptCheckpoint:
    """Return the error for a value that can be decoded, but does not have the form that the adapter stores."""
    thread_id, checkpoint_ns, checkpoint_id = key_of(config)
    return CorruptCheckpoint(
        f"the stored value does not have the expected form ({error_text(error)})",
        thread_id=thread_id,
        checkpoint_ns=checkpoint_ns,
        checkpoint_id=checkpoint_id or "",
        channel=channel,
        type=None,
    )


def _config(thread_id: str, checkpoint_id: str | None = None) -> RunnableConfig:
    config: RunnableConfig = {"configurable": {"thread_id": thread_id, "checkpoint_ns": ""}}
    if checkpoint_id is not None:
        config["configurable"]["checkpoint_id"] = checkpoint_id
    return config
