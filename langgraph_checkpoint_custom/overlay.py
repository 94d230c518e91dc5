"""`overlay(saver)`, for runs that read from a saver and write to memory.

It works over any LangGraph saver and only reads from it. Everything that is written lives as long as the overlay and
its copies. The overlay stores each checkpoint complete, encoded by the saver's serializer, so that later changes by the
graph do not affect it.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from copy import copy
from operator import itemgetter
from typing import Any, NamedTuple, cast

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import (
    WRITES_IDX_MAP,
    BaseCheckpointSaver,
    ChannelVersions,
    Checkpoint,
    CheckpointMetadata,
    CheckpointTuple,
    DeltaChannelHistory,
    PendingWrite,
    writes_sort_key,
)
from typing_extensions import Self

from langgraph_checkpoint_custom.encoding.metadata import merge_metadata
from langgraph_checkpoint_custom.errors import ConfigError
from langgraph_checkpoint_custom.model.filter import matches, wanted
from langgraph_checkpoint_custom.model.keys import Key, before_id, config_of, key_of, limit_number, namespace_of
from langgraph_checkpoint_custom.sql.dialect import SqlDialect

Typed = tuple[str, bytes]
_Position = tuple[str, str, int]
"""Path, task and index of a write."""


class _Held(NamedTuple):
    """A checkpoint in memory."""

    checkpoint: Typed
    metadata: Typed
    parent_id: str | None


class _Write(NamedTuple):
    """A write in memory."""

    task_id: str
    idx: int
    task_path: str
    channel: str
    value: Typed


def overlay(saver: BaseCheckpointSaver[Any]) -> OverlaySaver:
    """Return a saver that reads from another saver and writes to memory, to try a run without storing it.

    Args:
        saver: The saver to read from. The overlay never writes to it.

    Raises:
        ConfigError: The argument is not a saver.
    """
    if not isinstance(saver, BaseCheckpointSaver):
        raise ConfigError(f"overlay takes a saver, not a {type(saver).__name__}")
    return OverlaySaver(saver)


class OverlaySaver(BaseCheckpointSaver[Any]):
    """Reads what was written to it, then what another saver has; `overlay` creates it.

    Deleting a thread hides what the other saver has of it. If the history of a `DeltaChannel` starts in memory, the
    overlay reads its ancestors one by one. Copies share what was written, because LangGraph requires this of its
    clones.
    """

    def __init__(self, saver: BaseCheckpointSaver[Any]) -> None:
        super().__init__(serde=saver.serde)
        self._base = saver
        self._lock = threading.Lock()  # Guards the following.
        self._held: dict[Key, _Held] = {}
        self._writes: dict[Key, dict[tuple[str, int], _Write]] = {}
        self._deleted: set[str] = set()

    def with_allowlist(self, extra_allowlist: Any) -> Self:
        """Return a copy, over a copy of the other saver, that may read further types.

        Args:
            extra_allowlist: The types.
        """
        clone = copy(self)
        clone.serde = super().with_allowlist(extra_allowlist).serde
        clone._base = self._base.with_allowlist(extra_allowlist)
        return clone

    @property
    def config_specs(self) -> list[Any]:
        """The config specs of the other saver."""
        return self._base.config_specs

    def get_next_version(self, current: Any, channel: None) -> Any:
        """Return the channel version after `current`, as the other saver makes it."""
        return self._base.get_next_version(current, channel)

    # Writing

    def put(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        """Store a checkpoint in memory; return the config that names it."""
        thread_id, checkpoint_ns, parent_id = key_of(config)
        held = _Held(
            self.serde.dumps_typed(checkpoint), self.serde.dumps_typed(merge_metadata(config, metadata)), parent_id
        )
        with self._lock:
            self._held[Key(thread_id, checkpoint_ns, checkpoint["id"])] = held
        return config_of(thread_id, checkpoint_ns, checkpoint["id"])

    async def aput(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        """Async version of `put`."""
        return self.put(config, checkpoint, metadata, new_versions)

    def put_writes(
        self, config: RunnableConfig, writes: Sequence[tuple[str, Any]], task_id: str, task_path: str = ""
    ) -> None:
        """Store the outputs of a task in memory, for a checkpoint in memory or of the other saver.

        Raises:
            ConfigError: The config has no checkpoint id.
        """
        key = key_of(config)
        if key.checkpoint_id is None:
            raise ConfigError("put_writes needs the checkpoint_id that the writes belong to in its config")
        rows = [
            _Write(task_id, WRITES_IDX_MAP.get(channel, position), task_path, channel, self.serde.dumps_typed(value))
            for position, (channel, value) in enumerate(writes)
        ]
        with self._lock:
            there = self._writes.setdefault(key, {})
            for row in rows:
                if row.idx < 0 or (row.task_id, row.idx) not in there:
                    there[row.task_id, row.idx] = row

    async def aput_writes(
        self, config: RunnableConfig, writes: Sequence[tuple[str, Any]], task_id: str, task_path: str = ""
    ) -> None:
        """Async version of `put_writes`."""
        self.put_writes(config, writes, task_id, task_path)

    def delete_thread(self, thread_id: str) -> None:
        """Delete a thread from memory, and hide what the other saver has of it."""
        thread_id = key_of({"configurable": {"thread_id": thread_id}}).thread_id
        with self._lock:
            self._deleted.add(thread_id)
            for rows in (self._held, self._writes):
                for key in [key for key in rows if key.thread_id == thread_id]:
                    del rows[key]

    async def adelete_thread(self, thread_id: str) -> None:
        """Async version of `delete_thread`."""
        self.delete_thread(thread_id)

    # Reading

    def get_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        """Return a checkpoint with its pending writes, from memory or from the other saver.

        Args:
            config: The thread; the namespace, by default the root graph's; the checkpoint id, by default the newest.

        Returns:
            The checkpoint, or None if there is none.
        """
        key = key_of(config)
        mine = self._mine(key)
        if (mine is not None and key.checkpoint_id is not None) or key.thread_id in self._deleted:
            return mine
        theirs = self._base.get_tuple(config)
        if theirs is None or _is_newer(mine, theirs):
            return mine
        return self._with_writes(theirs, self._positions_below(theirs.config))

    async def aget_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        """Async version of `get_tuple`."""
        key = key_of(config)
        mine = self._mine(key)
        if (mine is not None and key.checkpoint_id is not None) or key.thread_id in self._deleted:
            return mine
        theirs = await self._base.aget_tuple(config)
        if theirs is None or _is_newer(mine, theirs):
            return mine
        return self._with_writes(theirs, await self._apositions_below(theirs.config))

    def get_delta_channel_history(
        self, *, config: RunnableConfig, channels: Sequence[str]
    ) -> Mapping[str, DeltaChannelHistory]:
        """Return what `DeltaChannel`s are rebuilt from: the writes of a checkpoint's ancestors.

        Args:
            config: The checkpoint.
            channels: The names of the channels.

        Returns:
            For each channel, the writes of the ancestors, oldest first, back to the nearest stored value, which is the
            `seed`.
        """
        if self._is_theirs(config):
            return self._base.get_delta_channel_history(config=config, channels=channels)
        return super().get_delta_channel_history(config=config, channels=channels)

    async def aget_delta_channel_history(
        self, *, config: RunnableConfig, channels: Sequence[str]
    ) -> Mapping[str, DeltaChannelHistory]:
        """Async version of `get_delta_channel_history`."""
        if self._is_theirs(config):
            return await self._base.aget_delta_channel_history(config=config, channels=channels)
        return await super().aget_delta_channel_history(config=config, channels=channels)

    # Shared by the sync and async methods

    def _is_theirs(self, config: RunnableConfig) -> bool:
        """Whether nothing in the namespace of a config was written to memory."""
        namespace = key_of(config)[:2]
        with self._lock:
            return namespace[0] not in self._deleted and not any(
                key[:2] == namespace for written in (self._held, self._writes) for key in written
            )

    def _mine(self, key: Key) -> CheckpointTuple | None:
        """A checkpoint in memory."""
        with self._lock:
            if key.checkpoint_id is None:
                ids = [held.checkpoint_id or "" for held in self._held if held[:2] == key[:2]]
                key = key._replace(checkpoint_id=max(ids, default=""))
            held = self._held.get(key)
            writes = list(self._writes.get(key, {}).values())
        return self._tuple(key, held, writes) if held else None

    def _tuple(self, key: Key, held: _Held, writes: Sequence[_Write]) -> CheckpointTuple:
        thread_id, checkpoint_ns, checkpoint_id = key
        return CheckpointTuple(
            config_of(thread_id, checkpoint_ns, checkpoint_id or ""),
            cast("Checkpoint", self.serde.loads_typed(held.checkpoint)),
            cast("CheckpointMetadata", self.serde.loads_typed(held.metadata)),
            config_of(thread_id, checkpoint_ns, held.parent_id) if held.parent_id else None,
            self._pending((), writes, []),
        )

    def _with_writes(self, theirs: CheckpointTuple, positions: Sequence[_Position] | None) -> CheckpointTuple:
        """A checkpoint of the other saver, with the writes that memory has for it."""
        with self._lock:
            writes = list(self._writes.get(key_of(theirs.config), {}).values())
        if not writes:
            return theirs
        return theirs._replace(pending_writes=self._pending(theirs.pending_writes or (), writes, positions))

    def _pending(
        self, theirs: Sequence[PendingWrite], writes: Sequence[_Write], positions: Sequence[_Position] | None
    ) -> list[PendingWrite]:
        """The writes of both savers, in order: an existing regular write stays, an existing special one is replaced.

        If the path, task and index of the other saver's writes are not known, these come first, and each counts as the
        next one of its task.
        """
        own = {(write.task_path, write.task_id, write.idx): write for write in writes}
        if positions is None or len(positions) != len(theirs):
            counted: dict[str, int] = {}
            positions = []
            for task_id, channel, _ in theirs:
                regular = channel not in WRITES_IDX_MAP
                idx = counted.get(task_id, 0) if regular else WRITES_IDX_MAP[channel]
                counted[task_id] = counted.get(task_id, 0) + regular
                positions.append(("", task_id, idx))
            ordered = False
        else:
            ordered = True
        replaced = {position[1:] for position in own if position[2] < 0}
        there = {position[1:] for position in positions}
        remaining = [
            (writes_sort_key(*position), pending)
            for position, pending in zip(positions, theirs, strict=True)
            if position[1:] not in replaced
        ]
        added = [
            (writes_sort_key(*position), (write.task_id, write.channel, self.serde.loads_typed(write.value)))
            for position, write in own.items()
            if write.idx < 0 or position[1:] not in there
        ]
        by_position = itemgetter(0)
        merged = (
            sorted([*remaining, *added], key=by_position) if ordered else [*remaining, *sorted(added, key=by_position)]
        )
        return [pending for _, pending in merged]

    def _positions_below(self, config: RunnableConfig) -> Sequence[_Position] | None:
        """Path, task and index of the other saver's writes, if memory has writes too and that saver knows them."""
        ask = getattr(self._base, "_write_positions", None)
        return ask(config) if ask is not None and key_of(config) in self._writes else None

    async def _apositions_below(self, config: RunnableConfig) -> Sequence[_Position] | None:
        """Async version of `_positions_below`."""
        ask = getattr(self._base, "_awrite_positions", None)
        return await ask(config) if ask is not None and key_of(config) in self._writes else None

    def _write_positions(self, config: RunnableConfig) -> Sequence[_Position] | None:
        """Path, task and index of each write of a checkpoint, for an overlay over this one."""
        key = key_of(config)
        if key in self._held or key.thread_id in self._deleted:
            return self._merged_positions(key, [])
        ask = getattr(self._base, "_write_positions", None)
        return None if ask is None else self._merged_positions(key, ask(config))

    async def _awrite_positions(self, config: RunnableConfig) -> Sequence[_Position] | None:
        """Async version of `_write_positions`."""
        key = key_of(config)
        if key in self._held or key.thread_id in self._deleted:
            return self._merged_positions(key, [])
        ask = getattr(self._base, "_awrite_positions", None)
        return None if ask is None else self._merged_positions(key, await ask(config))

    def _merged_positions(self, key: Key, theirs: Sequence[_Position] | None) -> Sequence[_Position] | None:
        if theirs is None:
            return None
        with self._lock:
            own = {position: write.task_path for position, write in self._writes.get(key, {}).items()}
        there = {position[1:]: position[0] for position in theirs}
        merged = there | {position: path for position, path in own.items() if position[1] < 0 or position not in there}
        return sorted(
            ((path, *position) for position, path in merged.items()), key=lambda position: writes_sort_key(*position)
        )

    # Last, since it hides the type of that name.

    def list(
        self,
        config: RunnableConfig | None,
        *,
        filter: dict[str, Any] | None = None,
        before: RunnableConfig | None = None,
        limit: int | None = None,
    ) -> Iterator[CheckpointTuple]:
        """Iterate over the checkpoints of both savers, newest first.

        Args:
            config: The thread, and its namespace and checkpoint id if the config has them. None means all threads.
            filter: Metadata keys and the values that they must have, as in `CheckpointSaver.list`. The overlay itself
                checks conditions with operators if the other saver is of another package.
            before: The config of a checkpoint; only checkpoints with lower ids are returned.
            limit: The largest number of checkpoints; None means all.
        """
        merge = _Merge(self, config, filter, before, limit)
        for found in self._base.list(config, filter=merge.their_filter, before=before):
            yield from merge.newer_than(found)
            if merge.takes(found):
                yield self._with_writes(found, self._positions_below(found.config))
            if merge.is_full:
                return
        yield from merge.rest()

    async def alist(
        self,
        config: RunnableConfig | None,
        *,
        filter: dict[str, Any] | None = None,
        before: RunnableConfig | None = None,
        limit: int | None = None,
    ) -> AsyncIterator[CheckpointTuple]:
        """Async version of `list`."""
        merge = _Merge(self, config, filter, before, limit)
        async for found in self._base.alist(config, filter=merge.their_filter, before=before):
            for each in merge.newer_than(found):
                yield each
            if merge.takes(found):
                yield self._with_writes(found, await self._apositions_below(found.config))
            if merge.is_full:
                return
        for each in merge.rest():
            yield each


def _order(found: CheckpointTuple) -> tuple[str, str, str]:
    """The key by which lists are sorted."""
    thread_id, checkpoint_ns, checkpoint_id = key_of(found.config)
    return checkpoint_id or "", thread_id, checkpoint_ns


def _is_newer(mine: CheckpointTuple | None, theirs: CheckpointTuple) -> bool:
    """Whether a checkpoint in memory takes precedence over one of the other saver."""
    return mine is not None and _order(mine) >= _order(theirs)


class _Merge:
    """The checkpoints in memory that belong in a list, to be merged with those of the other saver."""

    def __init__(
        self,
        saver: OverlaySaver,
        config: RunnableConfig | None,
        filter: dict[str, Any] | None,
        before: RunnableConfig | None,
        limit: int | None,
    ) -> None:
        conditions, ceiling = wanted(filter), before_id(before)
        dialect: SqlDialect | None = getattr(saver._base, "_dialect", None)  # Savers of other packages have none.
        self._checked = [] if dialect else [each for each in conditions if each.operator]
        checked = {each.key for each in self._checked}
        self.their_filter = {key: value for key, value in (filter or {}).items() if key not in checked}
        contains, negative = (dialect.filter_contains, dialect.negative_limit) if dialect else (False, 0)
        thread_id, _, exact = key_of(config) if config else (None, None, None)
        checkpoint_ns = namespace_of(config) if config else None
        with saver._lock:
            self._deleted = set(saver._deleted)
            self._held = set(saver._held)
            keys = [
                key
                for key in self._held
                if thread_id in (None, key.thread_id)
                and checkpoint_ns in (None, key.checkpoint_ns)
                and exact in (None, key.checkpoint_id)
                and (ceiling is None or (key.checkpoint_id or "") < ceiling)
            ]
        found = [
            each for key in keys if (each := saver._mine(key)) and matches(each.metadata, conditions, contains=contains)
        ]
        self._mine = deque(sorted(found, key=_order, reverse=True))
        self._saver = saver
        self._left = limit_number(limit, negative)

    @property
    def is_full(self) -> bool:
        """Whether the limit was reached."""
        return self._left is not None and self._left <= 0

    def newer_than(self, theirs: CheckpointTuple) -> Iterator[CheckpointTuple]:
        """The checkpoints in memory that come before one of the other saver."""
        while self._mine and not self.is_full and _order(self._mine[0]) > _order(theirs):
            self._count()
            yield self._mine.popleft()

    def takes(self, theirs: CheckpointTuple) -> bool:
        """Whether a checkpoint of the other saver belongs in the list; if so, counts it."""
        key = key_of(theirs.config)
        if self.is_full or key in self._held or key.thread_id in self._deleted:
            return False
        if not matches(theirs.metadata, self._checked, contains=False):
            return False
        self._count()
        return True

    def rest(self) -> Iterator[CheckpointTuple]:
        """The remaining checkpoints in memory."""
        while self._mine and not self.is_full:
            self._count()
            yield self._mine.popleft()

    def _count(self) -> None:
        if self._left is not None:
            self._left -= 1
