"""Values by namespace and key, with the methods of the TypeScript package `deepagentsdk`'s `KeyValueStore`.

Each value is the document of a thread. The thread's name begins with the length of the namespace. So a namespace and a
slash as a prefix find the keys of that namespace, and not those of longer namespaces.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from langgraph.checkpoint.base import CheckpointTuple

from langgraph_checkpoint_custom.adapters.documents import Documents, json_copy, misshapen, next_version
from langgraph_checkpoint_custom.errors import ConfigError
from langgraph_checkpoint_custom.model.keys import thread_of
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
        reply = self._saver._run(self._documents.threads(_thread_id(namespace, "")))
        found = [(each.name[-1], self._documents.read(each.thread_id)) for each in reply.threads]
        return sorted(Item(key, _value(one)) for key, one in found if one)

    async def alist(self, namespace: Sequence[str]) -> Sequence[Item]:
        """Async version of `list`."""
        reply = await self._saver._arun(self._documents.threads(_thread_id(namespace, "")))
        found = [(each.name[-1], await self._documents.aread(each.thread_id)) for each in reply.threads]
        return sorted(Item(key, _value(one)) for key, one in found if one)


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
