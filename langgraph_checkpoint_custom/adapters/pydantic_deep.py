"""Checkpoints of pydantic-deep: those of a session are the checkpoints of one thread.

Each holds the messages, which share what is large with those of the checkpoint that was stored before; everything else
is in its metadata, so that what only counts or chooses reads no message. Whoever changes a session locks its thread.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timezone
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

from langgraph_checkpoint_custom.adapters.documents import (
    Attempt,
    misshapen,
    no_version,
    once,
    replaced_document,
    store_document,
)
from langgraph_checkpoint_custom.adapters.json_values import plain
from langgraph_checkpoint_custom.adapters.runner import OperationRunner, attempt
from langgraph_checkpoint_custom.encoding.values import Values
from langgraph_checkpoint_custom.engine.operation import Steps, operation
from langgraph_checkpoint_custom.errors import ConfigError
from langgraph_checkpoint_custom.model.filter import wanted
from langgraph_checkpoint_custom.model.keys import MAX_ID, Key, Page, key_of, text
from langgraph_checkpoint_custom.model.namespaced_ids import thread_of
from langgraph_checkpoint_custom.model.records import RECORDS
from langgraph_checkpoint_custom.operations.delete import delete_checkpoint
from langgraph_checkpoint_custom.operations.labels import label, labels_of_thread, unlabel
from langgraph_checkpoint_custom.operations.list_threads import history_page
from langgraph_checkpoint_custom.operations.read import list_page
from langgraph_checkpoint_custom.saver import PAGE, CheckpointSaver
from langgraph_checkpoint_custom.sql.dialect import SqlDialect, first_page

try:
    from pydantic_ai.messages import ModelMessage, ModelMessagesTypeAdapter
    from pydantic_deep.features.checkpointing import Checkpoint
except ImportError as error:
    raise ConfigError("pydantic-deep is missing: pip install 'langgraph-checkpoint-custom[pydantic-deep]'") from error

_MESSAGES = "messages"


class _Told(NamedTuple):
    """What the metadata tell of a checkpoint.

    Attributes:
        key: Where it is; another place each time that it is saved.
        id: The same each time.
        first: Grows with the time at which that id was saved first.
        pinned: Whether it was saved again with another label.
    """

    key: Key
    id: str
    label: str
    turn: int
    message_count: int
    created_at: datetime
    metadata: dict[str, Any]
    first: str
    pinned: bool

    @property
    def location(self) -> tuple[datetime, str]:
        """Where it is among the others, of which the oldest is the first."""
        return self.created_at.replace(tzinfo=self.created_at.tzinfo or timezone.utc), self.first


_NAMES = _Told._fields[1:]


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
            applies to automatic checkpoints, and the loop that enforces it ends.
    """

    def __init__(self, saver: CheckpointSaver, session_id: str, *, pin_labels: bool = False) -> None:
        self._saver = saver
        self._runner = OperationRunner(saver)
        self._thread_id = thread_of("pydantic-deep", session_id)
        self._pin_labels = pin_labels
        # The middleware counts and then removes. When several of them have counted one too many, each would remove one.
        self._counted: WeakKeyDictionary[asyncio.Task[Any], int] = WeakKeyDictionary()

    async def save(self, checkpoint: Checkpoint) -> None:
        """Save a checkpoint; one with the same id is replaced and keeps its place in the order."""
        told = {
            "id": text("the id of a checkpoint", checkpoint.id, MAX_ID),
            "label": checkpoint.label,
            "turn": checkpoint.turn,
            "message_count": checkpoint.message_count,
            "created_at": checkpoint.created_at.isoformat(),
            "metadata": checkpoint.metadata,
        }
        told = plain("what is told of a checkpoint", told)
        await self._runner.arun(put_deep_checkpoint, attempt(), self._thread_id, told, _encoded(checkpoint.messages))

    async def get(self, checkpoint_id: str) -> Checkpoint | None:
        """Return the checkpoint with an id, or None."""
        return next(iter(await self._read(id=checkpoint_id)), None)

    async def get_by_label(self, label: str) -> Checkpoint | None:
        """Return the oldest checkpoint with a label, or None."""
        return next(iter(await self._read(label=label)), None)

    async def list_all(self) -> list[Checkpoint]:
        """Return all checkpoints, oldest first."""
        return await self._read()

    async def remove(self, checkpoint_id: str) -> bool:
        """Remove a checkpoint; return whether it existed. Of several callers at once, one gets True."""
        self._forget_count()
        return await self._runner.arun(
            remove_deep_checkpoint, attempt(), self._thread_id, wanted({"id": checkpoint_id})
        )

    async def remove_oldest(self) -> bool:
        """Remove the oldest checkpoint; return whether one was removed.

        None is removed if others have removed some since this task counted them. So a loop that counts and removes
        never removes more than it has counted.
        """
        return await self._runner.arun(
            remove_deep_checkpoint, attempt(), self._thread_id, {}, pin=self._pin_labels, at_least=self._forget_count()
        )

    async def count(self) -> int:
        """Return the number of checkpoints that may be evicted."""
        number = await self._runner.arun(count_deep_checkpoints, self._thread_id, pin=self._pin_labels)
        if task := asyncio.current_task():
            self._counted[task] = number
        return number

    async def clear(self) -> None:
        """Remove all checkpoints, pinned ones too."""
        self._forget_count()
        await self._saver.adelete_thread(self._thread_id)

    async def _read(self, **told: str) -> list[Checkpoint]:
        return await self._runner.arun(read_deep_checkpoints, self._thread_id, wanted(told))

    def _forget_count(self) -> int:
        task = asyncio.current_task()
        return self._counted.pop(task, 0) if task else 0


@operation("exclusive", locks=["thread_id"])
def put_deep_checkpoint(
    d: SqlDialect,
    codec: Values,
    change: Attempt[None],
    thread_id: str,
    told: Mapping[str, Any],
    messages: list[str],
) -> Steps[None]:
    """Store a checkpoint, instead of one with the same id if there is such.

    Trips: 4, or 6 if there is, and 2 for each label of it.
    """

    def steps() -> Steps[None]:
        before = yield from replaced_document(d, codec, thread_id)
        earlier = yield from tell_deep_checkpoints(d, codec, thread_id, wanted({"id": told["id"]})).start()
        first, pinned = change.checkpoint_id, False
        for one in earlier:
            first, pinned = one.first, one.pinned or one.label != told["label"]
        new = {**told, "first": first, "pinned": pinned}
        key = yield from store_document(d, codec, change, (thread_id, ""), before, {_MESSAGES: messages}, new)
        for one in earlier:
            for name in (yield from _labels(d, one.key)):  # They stay with what has the id.
                yield from unlabel(d, thread_id, name).start()
                yield from label(d, key, name).start()
            yield from delete_checkpoint(d, one.key).start()

    yield from once(d, change, steps())


@operation("exclusive", locks=["thread_id"])
def remove_deep_checkpoint(
    d: SqlDialect,
    codec: Values,
    change: Attempt[Key],
    thread_id: str,
    filter: Mapping[str, str],
    *,
    pin: bool = False,
    at_least: int = 0,
) -> Steps[bool]:
    """Remove the oldest checkpoint that matches, unless there are fewer than so many.

    Without a filter, one that stays whatever comes is none of them.

    Trips: 2, or 3 if there is one; without a filter one more.
    """
    found = yield from tell_deep_checkpoints(d, codec, thread_id, filter).start()
    if change.result and change.result not in [one.key for one in found]:
        return True  # By an earlier attempt.
    if not filter:
        found = list((yield from _evictable(d, thread_id, found, pin=pin)))
    if len(found) < max(at_least, 1):
        return False
    change.result = found[0].key
    return (yield from delete_checkpoint(d, found[0].key).start())


@operation("snapshot")
def count_deep_checkpoints(d: SqlDialect, codec: Values, thread_id: str, *, pin: bool) -> Steps[int]:
    """The number of checkpoints that may be evicted.

    Trips: 2 for 200 checkpoints.
    """
    found = yield from tell_deep_checkpoints(d, codec, thread_id).start()
    return len((yield from _evictable(d, thread_id, found, pin=pin)))


def _evictable(d: SqlDialect, thread_id: str, found: Sequence[_Told], *, pin: bool) -> Steps[Sequence[_Told]]:
    """Those that are neither pinned nor labelled: whoever has labelled one in the saver wants to keep it."""
    labels = yield from labels_of_thread(d, thread_id).start()
    labelled = {key_of(config) for config in labels.values()}
    return [one for one in found if one.key not in labelled and not (pin and one.pinned)]


def _labels(d: SqlDialect, key: Key) -> Steps[Sequence[str]]:
    labels = yield from labels_of_thread(d, key.thread_id).start()
    return [name for name, config in labels.items() if key_of(config) == key]


@operation("snapshot")
def tell_deep_checkpoints(
    d: SqlDialect, codec: Values, thread_id: str, filter: Mapping[str, str] | None = None
) -> Steps[list[_Told]]:
    """What is told of the checkpoints that match, the oldest first; no message is read.

    Trips: 1 for 200 checkpoints.
    """
    found: list[_Told] = []
    page: Page | None = first_page(thread_id, "", None, None, {}, RECORDS)
    while page is not None:
        reply = yield from history_page(d, codec, page, filter or {}).start()
        found += (_told(key_of(record.config), record.metadata) for record in reply.records)
        page = reply.after
    return sorted(found, key=lambda one: one.location)


@operation("snapshot")
def read_deep_checkpoints(
    d: SqlDialect, codec: Values, thread_id: str, filter: Mapping[str, str]
) -> Steps[list[Checkpoint]]:
    """The checkpoints that match, the oldest first.

    Trips: 1 for 50 checkpoints.
    Raises: CorruptCheckpoint.
    """
    found: list[tuple[_Told, Checkpoint]] = []
    page: Page | None = first_page(thread_id, "", None, None, {}, PAGE)
    while page is not None:
        reply = yield from list_page(d, codec, no_version, page, filter).start()
        for one in reply.tuples:
            told = _told(key_of(one.config), one.metadata)
            found.append((told, _checkpoint(told, one.checkpoint["channel_values"])))
        page = reply.after
    return [checkpoint for _, checkpoint in sorted(found, key=lambda pair: pair[0].location)]


def _told(key: Key, metadata: Mapping[str, Any]) -> _Told:
    try:
        created_at = datetime.fromisoformat(metadata["created_at"])
        return _Told(key, **{name: metadata[name] for name in _NAMES} | {"created_at": created_at})
    except (KeyError, TypeError, ValueError) as error:
        raise misshapen(key, "metadata", error) from error


def _encoded(messages: Iterable[ModelMessage]) -> list[str]:
    """Each message as JSON: as text, since JSON has integers that msgpack has not."""
    try:
        return [ModelMessagesTypeAdapter.dump_json([message])[1:-1].decode() for message in messages]
    except ValueError as error:
        raise ConfigError(f"the messages of a checkpoint cannot be stored: {error}") from error


def _checkpoint(told: _Told, values: Mapping[str, Any]) -> Checkpoint:
    try:
        messages = ModelMessagesTypeAdapter.validate_json(f"[{','.join(values[_MESSAGES])}]")
    except (KeyError, TypeError, ValueError) as error:
        raise misshapen(told.key, _MESSAGES, error) from error
    return Checkpoint(told.id, told.label, told.turn, messages, told.message_count, told.created_at, told.metadata)
