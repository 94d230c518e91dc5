"""Checkpoints of pydantic-deep. Those of one session are the checkpoints of one thread.

The messages are a channel value. A large value shares chunks with that of the checkpoint stored before. Everything else
is in the metadata, so operations that only count or choose checkpoints read no messages. Operations that change a
session hold the lock of its thread.
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
from langgraph_checkpoint_custom.model.filter import Condition, wanted
from langgraph_checkpoint_custom.model.keys import MAX_ID, Key, Page, key_of, text
from langgraph_checkpoint_custom.model.namespaced_ids import thread_of
from langgraph_checkpoint_custom.model.pages import first_page
from langgraph_checkpoint_custom.model.records import RECORDS
from langgraph_checkpoint_custom.operations.delete import delete_checkpoint
from langgraph_checkpoint_custom.operations.labels import label, labels_of_thread, unlabel
from langgraph_checkpoint_custom.operations.list_threads import history_page
from langgraph_checkpoint_custom.operations.read import list_page
from langgraph_checkpoint_custom.saver import PAGE, CheckpointSaver
from langgraph_checkpoint_custom.sql.dialect import SqlDialect

try:
    from pydantic_ai.messages import ModelMessage, ModelMessagesTypeAdapter
    from pydantic_deep.features.checkpointing import Checkpoint
except ImportError as error:
    raise ConfigError("pydantic-deep is missing: install langgraph-checkpoint-custom[pydantic-deep]") from error

_KIND = "pydantic-deep"
_MESSAGES = "messages"


class _Record(NamedTuple):
    """A checkpoint without its messages: its key and what its metadata contain.

    Attributes:
        key: The key of the stored checkpoint; each save of the same id has a new one.
        id: pydantic-deep's id, the same for each save.
        first: The checkpoint id of the first save of this id. It grows with the time of that save.
        pinned: Whether the id was saved again with another label.
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
    def pin(self) -> str:
        """The label of the saver that protects a pinned checkpoint from a retention and from a prune."""
        return f"pin {self.first}"

    @property
    def sort_key(self) -> tuple[datetime, str]:
        """What checkpoints are sorted by; the oldest comes first."""
        return self.created_at.replace(tzinfo=self.created_at.tzinfo or timezone.utc), self.first


_NAMES = _Record._fields[1:]


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
        self._runner = OperationRunner(saver)
        self._thread_id = thread_of(_KIND, session_id)
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
        record = plain("a checkpoint", record)
        await self._runner.arun(
            put_deep_checkpoint,
            attempt(),
            self._thread_id,
            record,
            _encoded(checkpoint.messages),
            pin=self._pin_labels,
        )

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
            remove_deep_checkpoint, attempt(), self._thread_id, (), pin=self._pin_labels, at_least=self._forget_count()
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

    async def delete(self, session_id: str) -> None:
        """Delete a session with all its checkpoints, this one or another. Not in the protocol."""
        self._forget_count()
        await self._saver.adelete_thread(thread_of(_KIND, session_id))

    async def _read(self, **filter: str) -> list[Checkpoint]:
        return await self._runner.arun(read_deep_checkpoints, self._thread_id, wanted(filter))

    def _forget_count(self) -> int:
        task = asyncio.current_task()
        return self._counted.pop(task, 0) if task else 0


@operation("exclusive", locks=["thread_id"])
def put_deep_checkpoint(
    d: SqlDialect,
    codec: Values,
    change: Attempt[None],
    thread_id: str,
    record: Mapping[str, Any],
    messages: list[str],
    *,
    pin: bool = False,
) -> Steps[None]:
    """Store a checkpoint; it replaces one with the same id. With `pin`, one that is pinned gets a label of the saver.

    Round trips: 4. If there is one with the same id 6, and 2 for each of its labels. With a new pin one more.
    """

    def steps() -> Steps[None]:
        before = yield from replaced_document(d, codec, thread_id)
        earlier = yield from tell_deep_checkpoints(d, codec, thread_id, wanted({"id": record["id"]})).start()
        first, pinned = change.checkpoint_id, False
        for one in earlier:
            first, pinned = one.first, one.pinned or one.label != record["label"]
        new = {**record, "first": first, "pinned": pinned}
        key = yield from store_document(d, codec, change, (thread_id, ""), before, {_MESSAGES: messages}, new)
        for one in earlier:
            names = yield from _labels(d, one.key)
            for name in names:  # Labels move to the new checkpoint with this id.
                yield from unlabel(d, thread_id, name).start()
                yield from label(d, key, name).start()
            if pin and pinned and one.pin not in names:
                yield from label(d, key, one.pin).start()
            yield from delete_checkpoint(d, one.key).start()

    yield from once(d, change, steps())


@operation("exclusive", locks=["thread_id"])
def remove_deep_checkpoint(
    d: SqlDialect,
    codec: Values,
    change: Attempt[Key],
    thread_id: str,
    filter: Sequence[Condition],
    *,
    pin: bool = False,
    at_least: int = 0,
) -> Steps[bool]:
    """Remove the oldest checkpoint that matches, if at least `at_least` match; return whether one was removed.

    Without a filter, only checkpoints that may be evicted match.

    Round trips: 2, or 3 if one is removed; without a filter one more, and for a pinned one another.
    """
    found = yield from tell_deep_checkpoints(d, codec, thread_id, filter).start()
    if change.result and change.result not in [one.key for one in found]:
        return True  # An earlier attempt removed it.
    if not filter:
        found = list((yield from _evictable(d, thread_id, found, pin=pin)))
    if len(found) < max(at_least, 1):
        return False
    change.result = found[0].key
    if found[0].pinned:
        yield from unlabel(d, thread_id, found[0].pin).start()
    return (yield from delete_checkpoint(d, found[0].key).start())


@operation("snapshot")
def count_deep_checkpoints(d: SqlDialect, codec: Values, thread_id: str, *, pin: bool) -> Steps[int]:
    """Return the number of checkpoints that may be evicted.

    Round trips: 2 for 200 checkpoints.
    """
    found = yield from tell_deep_checkpoints(d, codec, thread_id).start()
    return len((yield from _evictable(d, thread_id, found, pin=pin)))


def _evictable(d: SqlDialect, thread_id: str, found: Sequence[_Record], *, pin: bool) -> Steps[Sequence[_Record]]:
    """Return the checkpoints without a label of the saver and, with `pin`, without those that are pinned."""
    labels = yield from labels_of_thread(d, thread_id).start()
    pins = {one.pin for one in found}
    labelled = {key_of(config) for name, config in labels.items() if name not in pins}
    return [one for one in found if one.key not in labelled and not (pin and one.pinned)]


def _labels(d: SqlDialect, key: Key) -> Steps[Sequence[str]]:
    labels = yield from labels_of_thread(d, key.thread_id).start()
    return [name for name, config in labels.items() if key_of(config) == key]


@operation("snapshot")
def tell_deep_checkpoints(
    d: SqlDialect, codec: Values, thread_id: str, filter: Sequence[Condition] = ()
) -> Steps[list[_Record]]:
    """Return the checkpoints that match, oldest first, without reading messages.

    Round trips: 1 for 200 checkpoints.
    """
    found: list[_Record] = []
    page: Page | None = first_page(thread_id, "", None, None, RECORDS)
    while page is not None:
        reply = yield from history_page(d, codec, page, filter).start()
        found += (_record(key_of(record.config), record.metadata) for record in reply.records)
        page = reply.after
    return sorted(found, key=lambda one: one.sort_key)


@operation("snapshot")
def read_deep_checkpoints(
    d: SqlDialect, codec: Values, thread_id: str, filter: Sequence[Condition]
) -> Steps[list[Checkpoint]]:
    """Return the checkpoints that match, oldest first, with their messages.

    Round trips: 1 for 50 checkpoints.

    Raises:
        CorruptCheckpoint: A stored value cannot be read.
    """
    found: list[tuple[_Record, Checkpoint]] = []
    page: Page | None = first_page(thread_id, "", None, None, PAGE)
    while page is not None:
        reply = yield from list_page(d, codec, no_version, page, filter).start()
        for one in reply.tuples:
            record = _record(key_of(one.config), one.metadata)
            found.append((record, _checkpoint(record, one.checkpoint["channel_values"])))
        page = reply.after
    return [checkpoint for _, checkpoint in sorted(found, key=lambda pair: pair[0].sort_key)]


def _record(key: Key, metadata: Mapping[str, Any]) -> _Record:
    try:
        created_at = datetime.fromisoformat(metadata["created_at"])
        return _Record(key, **{name: metadata[name] for name in _NAMES} | {"created_at": created_at})
    except (KeyError, TypeError, ValueError) as error:
        raise misshapen(key, "metadata", error) from error


def _encoded(messages: Iterable[ModelMessage]) -> list[str]:
    """Encode each message as JSON text; msgpack cannot store all integers that JSON can."""
    try:
        return [ModelMessagesTypeAdapter.dump_json([message])[1:-1].decode() for message in messages]
    except ValueError as error:
        raise ConfigError(f"the messages of a checkpoint cannot be stored: {error}") from error


def _checkpoint(record: _Record, values: Mapping[str, Any]) -> Checkpoint:
    try:
        messages = ModelMessagesTypeAdapter.validate_json(f"[{','.join(values[_MESSAGES])}]")
    except (KeyError, TypeError, ValueError) as error:
        raise misshapen(record.key, _MESSAGES, error) from error
    return Checkpoint(
        record.id, record.label, record.turn, messages, record.message_count, record.created_at, record.metadata
    )
