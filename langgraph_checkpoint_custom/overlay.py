"""`overlay(saver, config)`: a copy in memory of what a run of a thread reads, to try the run without storing it.

Must not know: SQL, connections.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Any

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import CheckpointTuple
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer

from langgraph_checkpoint_custom.encoding.values import Values
from langgraph_checkpoint_custom.engine.operation import Operation, Steps, offload, operation
from langgraph_checkpoint_custom.errors import ConfigError
from langgraph_checkpoint_custom.model.keys import AFTER_ALL, Key, Page, TupleRow, key_of
from langgraph_checkpoint_custom.model.pages import first_page
from langgraph_checkpoint_custom.model.records import RECORDS, CheckpointRecord
from langgraph_checkpoint_custom.operations.delta_history import get_delta_channel_history
from langgraph_checkpoint_custom.operations.labels import checkpoint_not_found
from langgraph_checkpoint_custom.operations.list_threads import history_page
from langgraph_checkpoint_custom.operations.read import NextVersion, build_tuple, in_order, rows_of, size_of
from langgraph_checkpoint_custom.saver import CheckpointSaver
from langgraph_checkpoint_custom.sql.dialect import SqlDialect

Copied = tuple[CheckpointTuple, Sequence[TupleRow]]
"""A checkpoint, and the rows of its pending writes in the same order."""


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


@operation("snapshot")
def read_for_run(
    d: SqlDialect, codec: Values, next_version: NextVersion, key: Key, asked: Collection[str]
) -> Steps[Sequence[Copied]]:
    """Return what a run may read that starts from `key` or from the newest checkpoint.

    `asked` has the ids of further checkpoints that the config of the run names. A checkpoint with a `DeltaChannel` that
    has no value there brings its parent, so that its state is complete.

    Round trips: one for each 200 checkpoints of the thread, one or two for each checkpoint that is returned.
    Raises: CheckpointNotFound, CorruptCheckpoint.
    """
    records: list[CheckpointRecord] = []
    page: Page | None = first_page(key.thread_id, None, None, None, RECORDS)
    while page is not None:
        reply = yield from history_page(d, codec, page, ()).start()
        records += reply.records
        page = reply.after
    starts = _starts(records, key, asked)
    copied: dict[Key, Copied] = {}
    following = [*starts]
    for location in following:
        if location in copied:
            continue
        rows = yield from rows_of(d, d.select_checkpoint(location))
        found = yield from offload(size_of(rows), build_tuple, d, codec, next_version, None, rows)
        if found is None:
            if location == key:
                raise checkpoint_not_found(key)
            continue  # It was pruned. No start needs it, as the following shows.
        copied[location] = found, in_order([row for row in rows if row.kind == "write"])
        counted = set(found.metadata.get("counters_since_delta_snapshot") or ())
        without_value = counted.difference(found.checkpoint["channel_values"])
        if without_value and location in starts:  # Raises if what a channel is rebuilt from was deleted.
            yield from get_delta_channel_history(d, codec, location, sorted(without_value)).start()
        if without_value and found.parent_config:
            following.append(key_of(found.parent_config))
    return list(copied.values())


def _starts(records: Sequence[CheckpointRecord], key: Key, asked: Collection[str]) -> set[Key]:
    """Return the checkpoints from which a run and its subgraphs may start, given the records of the thread.

    Besides those of the root graph that the config names, and the newest one: the namespace of a subgraph call has a
    colon, and is needed at the step that made the call. Of a subgraph with a memory, the newest checkpoint is needed,
    and, for a run from a checkpoint by its id, the newest one before that or its parent.
    """
    newest = next((record for record in records if not record.checkpoint_ns), None)
    named = [one for one in records if one is newest or one.checkpoint_id in {key.checkpoint_id, *asked}]
    ids = {one.checkpoint_id for one in named}
    starts = {key} if key.checkpoint_id else set()
    for one in records:
        is_open = ":" in one.checkpoint_ns and (one.metadata.get("parents") or {}).get("") in ids
        if is_open or one.checkpoint_id in ids:
            starts.add(Key(*one[:3]))
    memories = [one for one in reversed(records) if one.checkpoint_ns and ":" not in one.checkpoint_ns]
    for bound in {AFTER_ALL, *ids, *(one.parent_id for one in named if one.parent_id)}:
        starts.update({one.checkpoint_ns: Key(*one[:3]) for one in memories if one.checkpoint_id < bound}.values())
    return starts
