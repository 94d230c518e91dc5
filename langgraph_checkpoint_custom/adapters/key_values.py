"""Values by namespace and key, with the methods of the TypeScript package `deepagentsdk`'s `KeyValueStore`.

Each value is the document of a thread. The thread's name begins with the length of the namespace. So a namespace and a
slash as a prefix find the keys of that namespace, and not those of longer namespaces.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from langgraph_checkpoint_custom.adapters.documents import (
    Attempt,
    Document,
    misshapen,
    once,
    read_document,
    replaced_document,
    store_document,
    threads_under,
)
from langgraph_checkpoint_custom.adapters.json_values import plain
from langgraph_checkpoint_custom.adapters.runner import OperationRunner, attempt
from langgraph_checkpoint_custom.encoding.values import Values
from langgraph_checkpoint_custom.engine.operation import Steps, operation
from langgraph_checkpoint_custom.errors import ConfigError
from langgraph_checkpoint_custom.model.namespaced_ids import thread_of
from langgraph_checkpoint_custom.pairs import shared_docstrings
from langgraph_checkpoint_custom.saver import CheckpointSaver
from langgraph_checkpoint_custom.sql.dialect import SqlDialect

_KIND = "key-value"
_VALUE = "value"


class Item(NamedTuple):
    """A key of a namespace, with its value."""

    key: str
    value: dict[str, Any]


@shared_docstrings
class KeyValueStore:
    """Stores dicts by namespace and key; every put is a new version.

    Older versions stay until the thread is pruned, for example by the saver's retention. Every method has a sync and an
    async version.

    Args:
        saver: The saver to store with; it stays yours to close.
    """

    def __init__(self, saver: CheckpointSaver) -> None:
        self._saver = saver
        self._runner = OperationRunner(saver)

    def get(self, namespace: Sequence[str], key: str) -> dict[str, Any] | None:
        """Return the value of a key; None if there is none."""
        found = self._runner.run(read_value, _thread_id(namespace, key))
        return found and _value(found)

    async def aget(self, namespace: Sequence[str], key: str) -> dict[str, Any] | None:
        """Async version of `get`."""
        found = await self._runner.arun(read_value, _thread_id(namespace, key))
        return found and _value(found)

    def put(self, namespace: Sequence[str], key: str, value: Mapping[str, Any]) -> None:
        """Store the value of a key."""
        self._runner.run(put_value, attempt(), _thread_id(namespace, key), _plain(value))

    async def aput(self, namespace: Sequence[str], key: str, value: Mapping[str, Any]) -> None:
        """Async version of `put`."""
        await self._runner.arun(put_value, attempt(), _thread_id(namespace, key), _plain(value))

    def delete(self, namespace: Sequence[str], key: str) -> None:
        """Delete a key, with its value and all earlier values."""
        self._saver.delete_thread(_thread_id(namespace, key))

    async def adelete(self, namespace: Sequence[str], key: str) -> None:
        """Async version of `delete`."""
        await self._saver.adelete_thread(_thread_id(namespace, key))

    def list(self, namespace: Sequence[str]) -> Sequence[Item]:
        """Return the keys of a namespace with their values, ordered by key; longer namespaces are not included."""
        return self._runner.run(list_values, _thread_id(namespace, ""))

    async def alist(self, namespace: Sequence[str]) -> Sequence[Item]:
        """Async version of `list`."""
        return await self._runner.arun(list_values, _thread_id(namespace, ""))


read_value = operation("read")(read_document)


@operation("exclusive", locks=["thread_id"])
def put_value(
    d: SqlDialect, codec: Values, change: Attempt[None], thread_id: str, value: Mapping[str, Any]
) -> Steps[None]:
    """Store the value of a key as a new version.

    Round trips: 3.
    """

    def steps() -> Steps[None]:
        before = yield from replaced_document(d, codec, thread_id)
        yield from store_document(d, codec, change, (thread_id, ""), before, {_VALUE: value})

    yield from once(d, change, steps())


@operation("snapshot")
def list_values(d: SqlDialect, codec: Values, prefix: str) -> Steps[list[Item]]:
    """Return the keys and values of a namespace, as of one point in time.

    Round trips: 1 for 200 keys, and 1 for each key.

    Raises:
        CorruptCheckpoint: A stored value cannot be read.
    """
    items = []
    for thread in (yield from threads_under(d, codec, prefix).start()):
        found = yield from read_document(d, codec, thread.thread_id)
        if found:
            items.append(Item(thread.name[-1], _value(found)))
    return sorted(items, key=lambda item: item.key)


def _thread_id(namespace: Sequence[str], key: str) -> str:
    if isinstance(namespace, str):
        raise ConfigError(f"a namespace must be a sequence of names, not one text; write ({namespace!r},)")
    return thread_of(_KIND, str(len(namespace)), *namespace, key)


def _plain(value: Mapping[str, Any]) -> Any:
    if not isinstance(value, dict):
        raise ConfigError(f"a value must be a dict, not a {type(value).__name__}")
    return plain("the value of a key", value)


def _value(found: Document) -> dict[str, Any]:
    try:
        value = found.values[_VALUE]
        if not isinstance(value, dict):
            raise TypeError(f"a {type(value).__name__}")
    except (KeyError, TypeError) as error:
        raise misshapen(found.key, _VALUE, error) from error
    return value
