"""Checkpoints of pydantic-deep. Those of one session are the checkpoints of one thread.

The messages are a channel value. A large value shares chunks with that of the checkpoint stored before. Everything else
is in the metadata, so what only counts or chooses checkpoints reads no messages. Of several stored checkpoints with one
id, only the newest counts: the others are deleted right after it was stored.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import datetime, timezone
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import CheckpointTuple
from langgraph.checkpoint.base.id import uuid6

from langgraph_checkpoint_custom.adapters.documents import Before, Documents, json_copy, misshapen, next_version
from langgraph_checkpoint_custom.errors import CheckpointConflict, CheckpointLabelled, ConfigError
from langgraph_checkpoint_custom.model.keys import MAX_ID, config_of, key_of, text, thread_of
from langgraph_checkpoint_custom.operations.labels import moved_labels
from langgraph_checkpoint_custom.saver import CheckpointSaver

try:
    from pydantic_ai.messages import ModelMessage, ModelMessagesTypeAdapter
    from pydantic_deep.features.checkpointing import Checkpoint
except ImportError as error:
    raise ConfigError("pydantic-deep is missing: install langgraph-checkpoint-custom[pydantic-deep]") from error

_KIND = "pydantic-deep"
_MESSAGES = "messages"


class _Record(NamedTuple):
    """A checkpoint without its messages: its config and what its metadata contain.

    Attributes:
        config: The stored checkpoint; each save of the same id has a new one.
        id: pydantic-deep's id, the same for each save.
        first: The checkpoint id of the first save of this id. It grows with the time of that save.
        pinned: Whether the id was saved again with another label.
        step: The number of checkpoints that were saved before it.
    """

    config: RunnableConfig
    id: str
    label: str
    turn: int
    message_count: int
    created_at: datetime
    metadata: dict[str, Any]
    first: str
    pinned: bool
    step: int

    @property
    def pin(self) -> str:
        """The label of the saver that protects a pinned checkpoint from a retention and from a prune."""
        return _pin(self.first)

    @property
    def sort_key(self) -> tuple[datetime, str]:
        """What checkpoints are sorted by; the oldest comes first."""
        return self.created_at.replace(tzinfo=self.created_at.tzinfo or timezone.utc), self.first


_NAMES = _Record._fields[1:]


def _pin(first: str) -> str:
    return f"pin {first}"


class DeepCheckpointStore:
    """pydantic-deep's `CheckpointStore` for one session, for any number of workers.

    `create_deep_agent(include_checkpoints=True, checkpoint_store=DeepCheckpointStore(saver, session_id))`.

    Checkpoints are ordered by `created_at`; if it is equal, by when their ids were first saved. For a retention, each
    is one checkpoint of the session's thread: `keep_last` should not be below the middleware's limit. A checkpoint with
    a label of the saver is neither counted nor evicted, and `remove` raises `CheckpointLabelled` for it.

    Args:
        saver: The saver to store with; it stays yours to close.
        session_id: The owner of the checkpoints. Other sessions cannot read or remove them.
        pin_labels: Whether `remove_oldest`, and so the middleware's limit, leaves checkpoints alone that were saved
            again with another label, as the tool `save_checkpoint` does. `count` then counts only the others: the limit
            applies to automatic checkpoints, and the loop that enforces it ends. A retention spares them, too: each
            has a label of the saver, which `remove` removes with it.
    """

    def __init__(self, saver: CheckpointSaver, session_id: str, *, pin_labels: bool = False) -> None:
        self._saver = saver
        self._documents = Documents(saver, only_newest=True)
        self._thread_id = thread_of(_KIND, session_id)
        self._config = config_of(self._thread_id, "", "")
        self._pin_labels = pin_labels
        # By task, the last result of `count`. The middleware counts, then removes. Without this, several middlewares
        # that counted the same excess checkpoint would each remove one.
        self._counted: WeakKeyDictionary[asyncio.Task[Any], int] = WeakKeyDictionary()

    async def save(self, checkpoint: Checkpoint) -> None:
        """Save a checkpoint; one with the same id is replaced and keeps its place in the order."""
        record = {
            "id": text("the id of a checkpoint", checkpoint.id, MAX_ID),
            "label": checkpoint.label,
            "turn": checkpoint.turn,
            "message_count": checkpoint.message_count,
            "created_at": checkpoint.created_at.isoformat(),
            "metadata": checkpoint.metadata,
        }
        record, messages = json_copy("a checkpoint", record), {_MESSAGES: _encoded(checkpoint.messages)}
        earlier = None
        while earlier is None:
            with suppress(CheckpointConflict):  # Another worker has saved or removed a checkpoint since: look again.
                earlier = await self._put(record, messages, await self._stored())
        for one in earlier:
            with suppress(CheckpointLabelled):  # Since it was replaced.
                await self._saver.adelete_checkpoint(one.config)

    async def _put(
        self, record: Mapping[str, Any], messages: Mapping[str, Any], stored: Sequence[_Record]
    ) -> list[_Record]:
        """Store a checkpoint after those that are stored, which are all; return those that it replaces."""
        earlier = [one for one in stored if one.id == record["id"]]
        first = earlier[0].first if earlier else str(uuid6())
        is_pinned = any(one.pinned or one.label != record["label"] for one in earlier)
        before = Before(key_of(stored[0].config).checkpoint_id, {"step": stored[0].step}) if stored else Before()
        new = next_version(self._thread_id, before, messages, {**record, "first": first, "pinned": is_pinned})
        dialect, own, labels = self._saver.backend.dialect, key_of(new.own_config), []
        if earlier:  # Labels move to the new checkpoint with this id.
            labels.append(moved_labels(dialect, [key_of(one.config) for one in earlier], own))
        if self._pin_labels and is_pinned:
            labels.append(dialect.ask("label_checkpoint", **own._asdict(), name=_pin(first)))
        await self._documents.aput(new, more=labels)
        return earlier

    async def get(self, checkpoint_id: str) -> Checkpoint | None:
        """Return the checkpoint with an id, or None."""
        return await self._first([one for one in _current(await self._stored()) if one.id == checkpoint_id])

    async def get_by_label(self, label: str) -> Checkpoint | None:
        """Return the oldest checkpoint with a label, or None."""
        return await self._first([one for one in _current(await self._stored()) if one.label == label])

    async def list_all(self) -> list[Checkpoint]:
        """Return all checkpoints, oldest first."""
        found = {key_of(one.config): one async for one in self._saver.alist(self._config)}
        records = _current([_record(one.config, one.metadata) for one in found.values()])
        return [_checkpoint(record, found[key_of(record.config)]) for record in records]

    async def remove(self, checkpoint_id: str) -> bool:
        """Remove a checkpoint; return whether it existed. Of several callers at once, one gets True."""
        self._forget_count()
        return await self._remove([one for one in await self._stored() if one.id == checkpoint_id])

    async def remove_oldest(self) -> bool:
        """Remove the oldest checkpoint; return whether one was removed.

        None is removed if others have removed some since this task counted them. So a loop that counts and removes
        never removes more than it has counted.
        """
        at_least, stored = self._forget_count(), await self._stored()
        evictable = await self._evictable(stored)
        if len(evictable) < max(at_least, 1):
            return False
        return await self._remove([one for one in stored if one.id == evictable[0].id])

    async def count(self) -> int:
        """Return the number of checkpoints that may be evicted."""
        number = len(await self._evictable(await self._stored()))
        if task := asyncio.current_task():
            self._counted[task] = number
        return number

    async def clear(self) -> None:
        """Remove all checkpoints, pinned ones too."""
        self._forget_count()
        await self._saver.adelete_thread(self._thread_id)

    async def delete(self, session_id: str) -> None:
        """Delete a session with all its checkpoints, this one or another. Not in the protocol."""
        self._forget_count()
        await self._saver.adelete_thread(thread_of(_KIND, session_id))

    async def _stored(self) -> list[_Record]:
        """Return all stored checkpoints, the newest first, without reading messages."""
        return [_record(one.config, one.metadata) async for one in self._saver.ahistory(self._config)]

    async def _first(self, records: Sequence[_Record]) -> Checkpoint | None:
        for record in records:
            if found := await self._documents.aread(self._thread_id, key_of(record.config).checkpoint_id):
                return _checkpoint(record, found)
        return None

    async def _remove(self, records: Sequence[_Record]) -> bool:
        """Delete what is stored of one checkpoint, the newest last; return whether it existed."""
        removed = []
        for one in reversed(records):
            if one.pinned and await self._labels_of(one) == [one.pin]:
                await self._saver.aunlabel(self._thread_id, one.pin)
            removed.append(await self._saver.adelete_checkpoint(one.config))
        return any(removed)

    async def _evictable(self, stored: Sequence[_Record]) -> list[_Record]:
        """Return the checkpoints without a label of the saver and, with `pin_labels`, without those that are pinned."""
        pins = {one.pin for one in stored}
        labels = await self._saver.alabels(self._thread_id)
        labelled = {key_of(config) for name, config in labels.items() if name not in pins}
        spared = {one.id for one in stored if key_of(one.config) in labelled or (self._pin_labels and one.pinned)}
        return [one for one in _current(stored) if one.id not in spared]

    async def _labels_of(self, one: _Record) -> list[str]:
        labels = await self._saver.alabels(self._thread_id)
        return [name for name, config in labels.items() if key_of(config) == key_of(one.config)]

    def _forget_count(self) -> int:
        task = asyncio.current_task()
        return self._counted.pop(task, 0) if task else 0


def _current(stored: Iterable[_Record]) -> list[_Record]:
    """Return the newest of those with each id, the oldest first; they are given newest first."""
    newest: dict[str, _Record] = {}
    for one in stored:
        newest.setdefault(one.id, one)
    return sorted(newest.values(), key=lambda one: one.sort_key)


def _record(config: RunnableConfig, metadata: Mapping[str, Any]) -> _Record:
    try:
        created_at = datetime.fromisoformat(metadata["created_at"])
        return _Record(config, **{name: metadata[name] for name in _NAMES} | {"created_at": created_at})
    except (KeyError, TypeError, ValueError) as error:
        raise misshapen(config, "metadata", error) from error


def _encoded(messages: Iterable[ModelMessage]) -> list[str]:
    """Encode each message as JSON text; msgpack cannot store all integers that JSON can."""
    try:
        return [ModelMessagesTypeAdapter.dump_json([message])[1:-1].decode() for message in messages]
    except ValueError as error:
        raise ConfigError(f"the messages of a checkpoint cannot be stored: {error}") from error


def _checkpoint(record: _Record, found: CheckpointTuple) -> Checkpoint:
    try:
        messages = ModelMessagesTypeAdapter.validate_json(
            f"[{','.join(found.checkpoint['channel_values'][_MESSAGES])}]"
        )
    except (KeyError, TypeError, ValueError) as error:
        raise misshapen(record.config, _MESSAGES, error) from error
    return Checkpoint(
        record.id, record.label, record.turn, messages, record.message_count, record.created_at, record.metadata
    )
