"""Values by namespace and key, with the methods of the TypeScript package `deepagentsdk`'s `KeyValueStore`.

Each value is the document of a thread. The thread's name begins with the length of the namespace. So a namespace and a
slash as a prefix find the keys of that namespace, and not those of longer namespaces.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from langgraph.checkpoint.base import CheckpointTuple

from langgraph_checkpoint_custom.adapters.documents import Documents, json_copy, misshapen, next_version
from langgraph_checkpoint_custom.engine.operation import Operations
from langgraph_checkpoint_custom.errors import ConfigError
from langgraph_checkpoint_custom.model.keys import name_of, thread_of
from langgraph_checkpoint_custom.model.records import RECORDS
from langgraph_checkpoint_custom.operations.export_rows import next_threads
from langgraph_checkpoint_custom.pairs import shared_docstrings
from langgraph_checkpoint_custom.saver import CheckpointSaver

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
        self._documents = Documents(saver)

    def get(self, namespace: Sequence[str], key: str) -> dict[str, Any] | None:
        """Return the value of a key; None if there is none."""
        found = self._documents.read(_thread_id(namespace, key))
        return found and _value(found)

    async def aget(self, namespace: Sequence[str], key: str) -> dict[str, Any] | None:
        """Async version of `get`."""
        found = await self._documents.aread(_thread_id(namespace, key))
        return found and _value(found)

    def put(self, namespace: Sequence[str], key: str, value: Mapping[str, Any]) -> None:
        """Store the value of a key."""
        thread_id, changed = _thread_id(namespace, key), {_VALUE: _plain(value)}
        self._documents.put(next_version(thread_id, self._documents.newest(thread_id), changed))

    async def aput(self, namespace: Sequence[str], key: str, value: Mapping[str, Any]) -> None:
        """Async version of `put`."""
        thread_id, changed = _thread_id(namespace, key), {_VALUE: _plain(value)}
        await self._documents.aput(next_version(thread_id, await self._documents.anewest(thread_id), changed))

    def delete(self, namespace: Sequence[str], key: str) -> None:
        """Delete a key, with its value and all earlier values."""
        self._saver.delete_thread(_thread_id(namespace, key))

    async def adelete(self, namespace: Sequence[str], key: str) -> None:
        """Async version of `delete`."""
        await self._saver.adelete_thread(_thread_id(namespace, key))

    def list(self, namespace: Sequence[str]) -> Sequence[Item]:
        """Return the keys of a namespace with their values, ordered by key; longer namespaces are not included."""
        threads = self._saver._run(self._threads(_thread_id(namespace, "")))
        found = [(key, self._documents.read(thread_id)) for key, thread_id in threads]
        return [Item(key, _value(one)) for key, one in found if one]

    async def alist(self, namespace: Sequence[str]) -> Sequence[Item]:
        """Async version of `list`."""
        threads = await self._saver._arun(self._threads(_thread_id(namespace, "")))
        found = [(key, await self._documents.aread(thread_id)) for key, thread_id in threads]
        return [Item(key, _value(one)) for key, one in found if one]

    def _threads(self, prefix: str) -> Operations[Sequence[tuple[str, str]]]:
        """Return the keys below a prefix, in their order, each with its thread; the empty one may not exist.

        They are read in the order of the ids, where a key that is put meanwhile stays in its place.
        """
        dialect = self._saver.backend.dialect
        found = [prefix]
        while True:
            following: Sequence[str] = yield next_threads(dialect, found[-1], RECORDS)
            own = [thread_id for thread_id in following if thread_id.startswith(prefix)]
            found += own
            if len(own) < RECORDS:
                return sorted((name_of(thread_id)[-1], thread_id) for thread_id in found)


def _thread_id(namespace: Sequence[str], key: str) -> str:
    if isinstance(namespace, str):
        raise ConfigError(f"a namespace must be a sequence of names, not one text; write ({namespace!r},)")
    return thread_of(_KIND, str(len(namespace)), *namespace, key)


def _plain(value: Mapping[str, Any]) -> Any:
    if not isinstance(value, dict):
        raise ConfigError(f"a value must be a dict, not a {type(value).__name__}")
    return json_copy("the value of a key", value)


def _value(found: CheckpointTuple) -> dict[str, Any]:
    try:
        value = found.checkpoint["channel_values"][_VALUE]
        if not isinstance(value, dict):
            raise TypeError(f"a {type(value).__name__}")
    except (KeyError, TypeError) as error:
        raise misshapen(found.config, _VALUE, error) from error
    return value
