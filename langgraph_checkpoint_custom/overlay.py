"""`overlay(saver, config)`: a copy in memory of what a run of a thread reads, to try the run without storing it.

Must not know: SQL, connections.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer

from langgraph_checkpoint_custom.engine.operation import Operation
from langgraph_checkpoint_custom.errors import ConfigError
from langgraph_checkpoint_custom.model.keys import key_of
from langgraph_checkpoint_custom.operations.read_for_run import Copied, read_for_run
from langgraph_checkpoint_custom.saver import CheckpointSaver


def overlay(saver: CheckpointSaver, config: RunnableConfig) -> InMemorySaver:
    """Copy what a run of a thread reads into memory, to try the run without storing it.

    The copy has the newest checkpoint and the one that the config names, with their pending writes, open subgraph
    calls, the memory of subgraphs, and the ancestors that `DeltaChannel`s need. It does not use `saver` again.

    Args:
        saver: The saver to read from, one of this package.
        config: The thread; also the checkpoint id, if the run is to start from an older checkpoint.

    Returns:
        LangGraph's saver in memory, with the serializer and the options of `saver`. It does not encrypt.

    Raises:
        ConfigError: The first argument is not a saver of this package.
        CheckpointNotFound: The checkpoint does not exist, or a `DeltaChannel` needs one that was pruned or deleted.
    """
    reading = _reading(saver, config)
    return _in_memory(saver, saver.backend.driver.run(reading))


async def aoverlay(saver: CheckpointSaver, config: RunnableConfig) -> InMemorySaver:
    """Async version of `overlay`."""
    reading = _reading(saver, config)
    return _in_memory(saver, await saver.backend.driver.arun(reading))


class _Exact(JsonPlusSerializer):
    """Encodes and decodes as a saver does."""

    def __init__(self, saver: CheckpointSaver) -> None:
        super().__init__()
        self._saver = saver

    def dumps_typed(self, obj: Any) -> tuple[str, bytes]:
        return self._saver.backend.values.encode(obj)

    def loads_typed(self, data: tuple[str, bytes]) -> Any:
        return self._saver.backend.values.loads_unsealed(*data)

    def with_msgpack_allowlist(self, extra_allowlist: Iterable[tuple[str, ...] | type]) -> JsonPlusSerializer:
        saver: Any = self._saver  # The base class does not say that it returns a saver of the same class.
        return _Exact(saver.with_allowlist(extra_allowlist))


def _in_memory(saver: CheckpointSaver, copied: Sequence[Copied]) -> InMemorySaver:
    memory = InMemorySaver(serde=_Exact(saver))
    for found, rows in copied:
        thread_id, ns, checkpoint_id = key_of(found.config)
        values, stated = found.checkpoint["channel_values"], found.checkpoint["channel_versions"]
        versions = {channel: stated[channel] for channel in values if channel in stated}
        parent = found.parent_config or {"configurable": {"thread_id": thread_id, "checkpoint_ns": ns}}
        memory.put(parent, found.checkpoint, found.metadata, versions)
        for (task_id, channel, value), row in zip(found.pending_writes or (), rows, strict=True):
            written = task_id, channel, memory.serde.dumps_typed(value), row.path or ""
            memory.writes[thread_id, ns, checkpoint_id or ""][task_id, row.idx or 0] = written
    return memory


def _reading(saver: CheckpointSaver, config: RunnableConfig) -> Operation[Sequence[Copied]]:
    if not isinstance(saver, CheckpointSaver):
        raise ConfigError(f"overlay takes a saver of this package, not a {type(saver).__name__}")
    ids = set((config["configurable"].get("checkpoint_map") or {}).values())
    return read_for_run(saver.backend.dialect, saver.backend.values, saver.get_next_version, key_of(config), ids)
