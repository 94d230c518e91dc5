"""Documents, of which the adapters consist: each version is stored in one transaction with what belongs to it.

A document is the channel values of the newest checkpoint of a thread of another framework; see
`model/keys.py`. The older checkpoints are its earlier versions; a prune deletes them.
"""

from __future__ import annotations

import json
import secrets
import sys
from collections.abc import Mapping, Sequence
from datetime import datetime, timezone
from typing import Any, NamedTuple
from uuid import UUID

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import Checkpoint, CheckpointMetadata, CheckpointTuple
from langgraph.checkpoint.base.id import uuid6
from langgraph.checkpoint.serde.types import INTERRUPT

from langgraph_checkpoint_custom.encoding.encode import encode_writes
from langgraph_checkpoint_custom.encoding.encoded import Encoded
from langgraph_checkpoint_custom.encoding.objects import error_text
from langgraph_checkpoint_custom.engine.operation import Offload, Operation, RoundTrip, work_out
from langgraph_checkpoint_custom.errors import CheckpointConflict, ConfigError, CorruptCheckpoint
from langgraph_checkpoint_custom.model.keys import AFTER_ALL, config_of, key_of
from langgraph_checkpoint_custom.model.outline import FORMAT_WITH_SENDS
from langgraph_checkpoint_custom.model.records import Question, ThreadPage
from langgraph_checkpoint_custom.operations.list_threads import ThreadsReply, threads_page
from langgraph_checkpoint_custom.operations.write import put, store_part
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

    @classmethod
    def of(cls, found: CheckpointTuple | None) -> Before:
        """Return the version that was read, with all its values, or that there is none."""
        if found is None:
            return cls()
        checkpoint = found.checkpoint
        return cls(checkpoint["id"], found.metadata, checkpoint["channel_values"], checkpoint["channel_versions"])


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
    config = config_of(thread_id, "", before.checkpoint_id or "")
    # The type of LangGraph's metadata does not list the adapter's keys.
    return Version(config, checkpoint, CheckpointMetadata(**complete), new)  # type: ignore[typeddict-item]


class Documents:
    """Reads and stores documents; every method has a sync and an async version.

    Args:
        saver: The saver to store with; the caller closes it.
        only_newest: Whether a version is refused if what was read before it is not the newest any more.
    """

    def __init__(self, saver: CheckpointSaver, *, only_newest: bool = False) -> None:
        if not isinstance(saver, CheckpointSaver):
            raise ConfigError(
                f"an adapter needs a saver of langgraph_checkpoint_custom, not a {type(saver).__name__}; make one with "
                "open_saver(url)"
            )
        self._saver = saver
        self._only_newest = only_newest

    def read(self, thread_id: str, version: str | None = None) -> CheckpointTuple | None:
        """Return the newest version of a document, or another one; None if there is none."""
        return self._saver.get_tuple(config_of(thread_id, "", version or ""))

    async def aread(self, thread_id: str, version: str | None = None) -> CheckpointTuple | None:
        """Async version of `read`."""
        return await self._saver.aget_tuple(config_of(thread_id, "", version or ""))

    def threads(self, prefix: str) -> Operation[ThreadsReply]:
        """Read all threads below a prefix, the one that was stored last first.

        They are read in the order of the ids, where a thread that is stored meanwhile stays in its place.
        """
        dialect, _, codec = self._saver.backend
        return threads_page(dialect, codec, ThreadPage(AFTER_ALL, "", (), sys.maxsize, prefix), ())

    def newest(self, thread_id: str) -> Before:
        """Return the newest version of a document without its values, also if it cannot be read."""
        try:
            for found in self._saver.history(config_of(thread_id, "", ""), limit=1):
                return Before(found.checkpoint_id, found.metadata)
        except CorruptCheckpoint as error:
            return Before(error.checkpoint_id)
        return Before()

    async def anewest(self, thread_id: str) -> Before:
        """Async version of `newest`."""
        try:
            async for found in self._saver.ahistory(config_of(thread_id, "", ""), limit=1):
                return Before(found.checkpoint_id, found.metadata)
        except CorruptCheckpoint as error:
            return Before(error.checkpoint_id)
        return Before()

    def put(self, version: Version, question: Question | None = None, more: Sequence[RoundTrip] = ()) -> None:
        """Store a version and other rows in one transaction.

        Args:
            version: The version.
            question: What waits for a human as of this version. It is stored as an interrupt of LangGraph's, so
                `interrupts()` lists it until a later version has none.
            more: What stores the other rows.

        Raises:
            CheckpointConflict: With `only_newest`, the version before is not the newest any more; nothing was stored.
        """
        encoded = work_out(self._saver._encode(*version))
        self._finish(version, self._saver.backend.driver.run(self._storing(version, encoded, question, more)))

    async def aput(self, version: Version, question: Question | None = None, more: Sequence[RoundTrip] = ()) -> None:
        """Async version of `put`."""
        encoded, driver = self._saver._encode(*version), self._saver.backend.driver
        if isinstance(encoded, Offload):
            encoded = await driver.aoffload(encoded)
        self._finish(version, await driver.arun(self._storing(version, encoded, question, more)))

    def _storing(
        self, version: Version, encoded: Encoded, question: Question | None, more: Sequence[RoundTrip]
    ) -> Operation[Any]:
        dialect, _, codec = self._saver.backend
        rest = list(more)
        if question is not None:
            writes = [(INTERRUPT, [question._asdict()])]
            rest.append(
                dialect.insert_writes(*work_out(encode_writes(codec, version.own_config, writes, "question", "")))
            )
        if not rest and not self._only_newest:  # Nothing else belongs to it, so the thread need not be locked alone.
            return put(dialect, encoded)
        return store_part(
            dialect,
            encoded.row.thread_id,
            [lambda: encoded],
            self._saver._remember_stored,
            rest,
            follows=self._only_newest and encoded.row.parent_id is not None,
            only_newest=self._only_newest,
        )

    def _finish(self, version: Version, stored: Encoded | bool) -> None:
        if isinstance(stored, Encoded):
            self._saver._remember_stored(stored)
        elif not stored:
            raise CheckpointConflict(
                f"thread {version.own_config['configurable']['thread_id']!r} was deleted since it was read; nothing "
                "was stored. Read it again"
            )


def json_copy(what: str, value: Any) -> Any:
    """Copy a value of JSON types, so that the caller cannot change it later; every serializer restores these unchanged.

    Args:
        what: The name of the value in an error.
        value: The value.

    Raises:
        ConfigError: The value is not JSON, or JSON would change it.
    """
    try:
        copy = json.loads(json.dumps(value, allow_nan=False))
    except (TypeError, ValueError, RecursionError) as error:
        raise ConfigError(f"{what} cannot be stored, since it is not JSON: {error}") from error
    if copy != value:
        raise ConfigError(f"{what} cannot be stored, since JSON has only lists as sequences, and only text as keys")
    return copy


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
