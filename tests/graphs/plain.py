"""Results of graphs in a form that can be compared: without times, and with random ids replaced by numbered labels.

The labels are given in the order of first appearance in one note, so the same ids have the same label there.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from langchain_core.messages import BaseMessage
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import CheckpointTuple
from langgraph.types import Interrupt, StateSnapshot

# The ids of checkpoints, tasks and messages are UUIDs, those of interrupts 32 hexadecimal digits.
_RANDOM = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}|\b[0-9a-f]{32}\b")
_KEYS = ("checkpoint_ns", "checkpoint_id", "checkpoint_map")


class _Labels:
    """Converts values to plain ones, with labels for the random ids in them."""

    def __init__(self) -> None:
        self._labels: dict[str, str] = {}

    def text(self, value: str) -> str:
        return _RANDOM.sub(lambda match: self._labels.setdefault(match[0], f"<{len(self._labels)}>"), value)

    def plain(self, value: Any) -> Any:
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, Mapping):
            # In the order of the keys without their ids, since savers do not promise one.
            pairs = sorted(value.items(), key=lambda pair: _RANDOM.sub("", str(pair[0])))
            return {
                self.plain(key): self._interrupts(item) if key == "__interrupt__" else self.plain(item)
                for key, item in pairs
            }
        if isinstance(value, tuple) and type(value) is not tuple:
            return (type(value).__name__, *map(self.plain, value))
        if isinstance(value, (list, tuple)):  # With LangGraph's savers, a tuple comes back as a list.
            return [self.plain(item) for item in value]
        if isinstance(value, set):  # A join waits for a set of names.
            return ("set", *sorted(map(self.plain, value), key=repr))
        if isinstance(value, Interrupt):
            return ("Interrupt", self.plain(value.value), self.text(value.id))
        if isinstance(value, BaseMessage):
            return ("Message", self.plain(value.model_dump()))
        if isinstance(value, BaseException):
            return (type(value).__name__, str(value))
        return value

    def _interrupts(self, value: Any) -> Any:
        """The interrupts of a result, in the order in which the nodes happened to finish."""
        return [self.plain(item) for item in sorted(value, key=lambda item: repr(item.value))]

    def config(self, config: RunnableConfig | None) -> Any:
        """The keys of a config that name a checkpoint; the thread may differ."""
        location = (config or {}).get("configurable") or {}
        return {key: self.plain(location[key]) for key in _KEYS if location.get(key)}

    def state(self, state: StateSnapshot, *, full: bool) -> dict[str, Any]:
        found = {
            "values": self.plain(state.values),
            "next": state.next,
            "metadata": self.plain(state.metadata),
            "interrupts": self.plain(state.interrupts),
            "tasks": [
                {
                    "name": task.name,
                    "path": self.plain(task.path),
                    "error": self.plain(task.error),
                    "interrupts": self.plain(task.interrupts),
                    "result": self.plain(task.result),
                    "state": self.state(task.state, full=full)
                    if isinstance(task.state, StateSnapshot)
                    else self.config(task.state),
                }
                for task in state.tasks
            ],
        }
        if full:
            found |= {"config": self.config(state.config), "parent": self.config(state.parent_config)}
        return found

    def checkpoint(self, found: CheckpointTuple) -> dict[str, Any]:
        checkpoint = found.checkpoint
        return {
            "config": self.config(found.config),
            "parent": self.config(found.parent_config),
            "metadata": self.plain(found.metadata),
            "values": self.plain(checkpoint["channel_values"]),
            "versions": {name: _number(version) for name, version in sorted(checkpoint["channel_versions"].items())},
            "seen": {
                node: {name: _number(version) for name, version in sorted(seen.items())}
                for node, seen in sorted(checkpoint["versions_seen"].items())
            },
            "updated": checkpoint.get("updated_channels"),
            "writes": [self.plain(write) for write in found.pending_writes or ()],
        }


def plain(value: Any) -> Any:
    """A value that a graph returned."""
    return _Labels().plain(value)


def plain_state(state: StateSnapshot, *, full: bool) -> dict[str, Any]:
    """A state; with `full`, also its checkpoint and that checkpoint's parent."""
    return _Labels().state(state, full=full)


def plain_checkpoints(found: Iterable[CheckpointTuple]) -> list[Any]:
    """The checkpoints of a thread, oldest first, namespace by namespace.

    Namespaces that differ only in ids, because the same node called a subgraph several times, are sorted by their
    contents.
    """
    namespaces: dict[str, list[CheckpointTuple]] = {}
    for one in sorted(found, key=lambda one: one.checkpoint["id"]):
        namespaces.setdefault(one.config["configurable"]["checkpoint_ns"], []).append(one)
    labels = _Labels()

    def alone(checkpoint_ns: str) -> str:
        own = _Labels()
        return repr([own.checkpoint(one) for one in namespaces[checkpoint_ns]])

    order = sorted(namespaces, key=lambda checkpoint_ns: (_RANDOM.sub("", checkpoint_ns), alone(checkpoint_ns)))
    return [labels.checkpoint(one) for checkpoint_ns in order for one in namespaces[checkpoint_ns]]


def _number(version: Any) -> int:
    """The number of a channel version without its random end."""
    return int(str(version).partition(".")[0])
