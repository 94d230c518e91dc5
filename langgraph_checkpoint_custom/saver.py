"""LangGraph's methods in sync/async pairs, one line each; no SQL and no connection is known here.

What the caller's objects hold is read in the first line of each method, before the first await or hop to a worker: the
graph goes on and may change them meanwhile.
"""

from __future__ import annotations

import secrets
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from types import TracebackType
from typing import Any, Protocol, TypeVar

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import (
    BaseCheckpointSaver,
    ChannelVersions,
    Checkpoint,
    CheckpointMetadata,
    CheckpointTuple,
    DeltaChannelHistory,
)
from langgraph.checkpoint.serde.base import SerializerProtocol
from typing_extensions import Self

from langgraph_checkpoint_custom.core.codec import Encoded, encode_checkpoint, encode_writes
from langgraph_checkpoint_custom.core.dialect import SqlDialect, first_page
from langgraph_checkpoint_custom.core.filter import wanted
from langgraph_checkpoint_custom.core.history import get_delta_channel_history
from langgraph_checkpoint_custom.core.interrupts import check_open
from langgraph_checkpoint_custom.core.maintain import copy_thread, delete_for_runs, delete_thread, prune_thread
from langgraph_checkpoint_custom.core.model import (
    MAX_CHANNEL,
    MAX_ID,
    MAX_THREAD_ID,
    CheckpointRow,
    Key,
    Page,
    before_id,
    config_of,
    key_of,
    namespace_of,
    newest,
    texts,
    thread_text,
)
from langgraph_checkpoint_custom.core.operation import Operation
from langgraph_checkpoint_custom.core.read import (
    NextVersion,
    PageReply,
    Reading,
    get_tuple,
    get_tuple_to_write,
    list_page,
)
from langgraph_checkpoint_custom.core.serde import Allowed, AsIs, OnUnreadable, strict_serde
from langgraph_checkpoint_custom.core.starts import ConcurrentWriters, Place, must_be_newest, note_read
from langgraph_checkpoint_custom.core.write import put, put_writes
from langgraph_checkpoint_custom.errors import ConfigError

T = TypeVar("T")

# Checkpoints that a list holds in memory at a time.
PAGE = 50


class Driver(Protocol):
    """What runs operations, in both colours."""

    def run(self, op: Operation[T]) -> T: ...
    async def arun(self, op: Operation[T]) -> T: ...
    def setup(self) -> None: ...
    async def asetup(self) -> None: ...
    def close(self) -> None: ...
    async def aclose(self) -> None: ...


class CheckpointSaver(BaseCheckpointSaver[str]):
    """A checkpoint saver over a dialect and a driver; use `SqliteSaver` or `PostgresSaver`.

    Every method works sync and async, from any OS thread and any event loop. Shallow copies share the driver with its
    connections and differ in `serde` at most, which is how LangGraph clones a saver.
    """

    def __init__(
        self,
        dialect: SqlDialect,
        driver: Driver,
        *,
        serde: SerializerProtocol | None,
        strict: bool,
        allow: Sequence[Allowed],
        on_unreadable: OnUnreadable,
        concurrent_writers: ConcurrentWriters,
    ) -> None:
        if concurrent_writers not in ("allow", "reject"):
            raise ConfigError(f"concurrent_writers is 'allow' or 'reject', not {concurrent_writers!r}")
        if on_unreadable not in ("raise", "raw"):
            raise ConfigError(f"on_unreadable is 'raise' or 'raw', not {on_unreadable!r}")
        if allow and not strict:
            raise ConfigError("everything is allowed without strict=True; allow=[…] goes with that")
        super().__init__(serde=strict_serde(serde, allow) if strict else serde)
        self._dialect = dialect
        self._driver = driver
        self._on_unreadable = on_unreadable
        self._concurrent_writers = concurrent_writers

    # Life

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    def setup(self) -> None:
        """Create or migrate the tables; does nothing if they are current. Any number of processes may call it."""
        self._driver.setup()

    async def asetup(self) -> None:
        """Create or migrate the tables; does nothing if they are current. Any number of processes may call it."""
        await self._driver.asetup()

    def close(self) -> None:
        """Close what this saver opened; it cannot be used after that."""
        self._driver.close()

    async def aclose(self) -> None:
        """Close what this saver opened; it cannot be used after that."""
        await self._driver.aclose()

    # Writing

    def put(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        """Store a checkpoint; returns the config that names it."""
        encoded = encode_checkpoint(self.serde, config, checkpoint, metadata, new_versions)
        self._driver.run(put(self._dialect, encoded, only_newest=self._must_be_newest(encoded)))
        return config_of(*encoded.row[:3])

    async def aput(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        """Store a checkpoint; returns the config that names it."""
        encoded = encode_checkpoint(self.serde, config, checkpoint, metadata, new_versions)
        await self._driver.arun(put(self._dialect, encoded, only_newest=self._must_be_newest(encoded)))
        return config_of(*encoded.row[:3])

    def put_writes(
        self, config: RunnableConfig, writes: Sequence[tuple[str, Any]], task_id: str, task_path: str = ""
    ) -> None:
        """Store the outputs of a task."""
        self._driver.run(put_writes(self._dialect, *encode_writes(self.serde, config, writes, task_id, task_path)))

    async def aput_writes(
        self, config: RunnableConfig, writes: Sequence[tuple[str, Any]], task_id: str, task_path: str = ""
    ) -> None:
        """Store the outputs of a task."""
        op = put_writes(self._dialect, *encode_writes(self.serde, config, writes, task_id, task_path))
        await self._driver.arun(op)

    # Reading

    def get_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        """The checkpoint that a config names, or the newest of its namespace; None if there is none."""
        if self._concurrent_writers == "reject":
            return self._note(config, self._driver.run(get_tuple_to_write(*self._asked(config))))
        return self._driver.run(get_tuple(*self._asked(config)))

    async def aget_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        """The checkpoint that a config names, or the newest of its namespace; None if there is none."""
        if self._concurrent_writers == "reject":
            return self._note(config, await self._driver.arun(get_tuple_to_write(*self._asked(config))))
        return await self._driver.arun(get_tuple(*self._asked(config)))

    def list(
        self,
        config: RunnableConfig | None,
        *,
        filter: dict[str, Any] | None = None,
        before: RunnableConfig | None = None,
        limit: int | None = None,
    ) -> Iterator[CheckpointTuple]:
        """Checkpoints, newest first; nothing is held between two of them, so the loop may read and write."""
        texts = wanted(filter)
        page = self._first_page(config, texts, before, limit)
        while page is not None:
            reply = self._driver.run(self._list_page(page, texts))
            yield from reply.tuples[:limit]
            page, limit = _next_page(page, reply, limit)

    async def alist(
        self,
        config: RunnableConfig | None,
        *,
        filter: dict[str, Any] | None = None,
        before: RunnableConfig | None = None,
        limit: int | None = None,
    ) -> AsyncIterator[CheckpointTuple]:
        """Checkpoints, newest first; nothing is held between two of them, so the loop may read and write."""
        texts = wanted(filter)
        page = self._first_page(config, texts, before, limit)
        while page is not None:
            reply = await self._driver.arun(self._list_page(page, texts))
            for found in reply.tuples[:limit]:
                yield found
            page, limit = _next_page(page, reply, limit)

    def get_delta_channel_history(
        self, *, config: RunnableConfig, channels: Sequence[str]
    ) -> Mapping[str, DeltaChannelHistory]:
        """For each channel the ancestors' writes, oldest first, back to the nearest stored value."""
        return self._driver.run(self._history(config, channels))

    async def aget_delta_channel_history(
        self, *, config: RunnableConfig, channels: Sequence[str]
    ) -> Mapping[str, DeltaChannelHistory]:
        """For each channel the ancestors' writes, oldest first, back to the nearest stored value."""
        return await self._driver.arun(self._history(config, channels))

    def check_interrupt(self, config: RunnableConfig, interrupt_id: str) -> None:
        """Raise `StaleInterrupt` unless this interrupt waits in the newest checkpoint of a thread.

        To be called before `Command(resume=…)`, which answers whatever question waits by then.
        """
        check_open(self.get_tuple(newest(config)), interrupt_id)

    async def acheck_interrupt(self, config: RunnableConfig, interrupt_id: str) -> None:
        """Raise `StaleInterrupt` unless this interrupt waits in the newest checkpoint of a thread.

        To be called before `Command(resume=…)`, which answers whatever question waits by then.
        """
        check_open(await self.aget_tuple(newest(config)), interrupt_id)

    # Deleting and copying

    def delete_thread(self, thread_id: str) -> None:
        """Delete everything of a thread."""
        self._driver.run(delete_thread(self._dialect, thread_text(thread_id)))

    async def adelete_thread(self, thread_id: str) -> None:
        """Delete everything of a thread."""
        await self._driver.arun(delete_thread(self._dialect, thread_text(thread_id)))

    def delete_for_runs(self, run_ids: Sequence[str]) -> None:
        """Delete what runs stored, in all threads; what a later checkpoint still needs is hidden instead."""
        self._driver.run(delete_for_runs(self._dialect, texts("run_id", run_ids, MAX_ID)))

    async def adelete_for_runs(self, run_ids: Sequence[str]) -> None:
        """Delete what runs stored, in all threads; what a later checkpoint still needs is hidden instead."""
        await self._driver.arun(delete_for_runs(self._dialect, texts("run_id", run_ids, MAX_ID)))

    def copy_thread(self, source_thread_id: str, target_thread_id: str) -> None:
        """Copy a thread to an id that has no checkpoints of its own."""
        self._driver.run(copy_thread(self._dialect, thread_text(source_thread_id), thread_text(target_thread_id)))

    async def acopy_thread(self, source_thread_id: str, target_thread_id: str) -> None:
        """Copy a thread to an id that has no checkpoints of its own."""
        op = copy_thread(self._dialect, thread_text(source_thread_id), thread_text(target_thread_id))
        await self._driver.arun(op)

    def prune(self, thread_ids: Sequence[str], *, strategy: str = "keep_latest") -> None:
        """Keep the newest checkpoint of each namespace with what it needs, or ("delete") nothing."""
        for op in self._prunes(thread_ids, strategy):
            self._driver.run(op)

    async def aprune(self, thread_ids: Sequence[str], *, strategy: str = "keep_latest") -> None:
        """Keep the newest checkpoint of each namespace with what it needs, or ("delete") nothing."""
        for op in self._prunes(thread_ids, strategy):
            await self._driver.arun(op)

    # Versions

    def get_next_version(self, current: str | None, channel: None) -> str:
        """The version after `current`: greater as text, and with a random end that no other branch has."""
        number = 0 if current is None else int(str(current).partition(".")[0])
        return f"{number + 1:032d}.{secrets.randbelow(10**16):016d}"

    # What both colours share

    @property
    def _reader(self) -> SerializerProtocol:
        """The serializer to read with."""
        return AsIs(self.serde) if self._on_unreadable == "raw" else self.serde

    def _asked(self, config: RunnableConfig) -> tuple[SqlDialect, SerializerProtocol, NextVersion, Key]:
        return self._dialect, self._reader, self.get_next_version, key_of(config)

    def _note(self, config: RunnableConfig, reading: Reading) -> CheckpointTuple | None:
        """Remember where a run may begin."""
        found = reading.found
        here = key_of(found.config) if found else key_of(config)
        parent_id = key_of(found.parent_config).checkpoint_id if found and found.parent_config else None
        note_read(self._place(here), here.checkpoint_id, parent_id, older=reading.is_older)
        return found

    def _must_be_newest(self, encoded: Encoded) -> bool:
        """Whether the parent of a checkpoint has to be the newest of its namespace."""
        return self._concurrent_writers == "reject" and must_be_newest(self._place(encoded.row), encoded.row.parent_id)

    def _place(self, key: Key | CheckpointRow) -> Place:
        return id(self._driver), key.thread_id, key.checkpoint_ns

    def _history(self, config: RunnableConfig, channels: Sequence[str]) -> Operation[Mapping[str, DeltaChannelHistory]]:
        names = texts("channel", channels, MAX_CHANNEL)
        return get_delta_channel_history(self._dialect, self._reader, key_of(config), names)

    def _first_page(
        self, config: RunnableConfig | None, filter: Mapping[str, str], before: RunnableConfig | None, limit: int | None
    ) -> Page | None:
        thread_id = checkpoint_ns = exact = None
        if config:
            thread_id, _, exact = key_of(config)
            checkpoint_ns = namespace_of(config)
        if limit is not None and limit <= 0:
            return None
        size = PAGE if limit is None else min(limit, PAGE)
        return first_page(thread_id, checkpoint_ns, exact, before_id(before), filter, size)

    def _list_page(self, page: Page, filter: Mapping[str, str]) -> Operation[PageReply]:
        return list_page(self._dialect, self._reader, self.get_next_version, page, filter)

    def _prunes(self, thread_ids: Sequence[str], strategy: str) -> Sequence[Operation[None]]:
        """An operation, and so a transaction, a thread."""
        ids = texts("thread_id", thread_ids, MAX_THREAD_ID)
        if strategy == "keep_latest":
            return [prune_thread(self._dialect, thread_id) for thread_id in ids]
        if strategy in ("delete", "delete_all"):
            return [delete_thread(self._dialect, thread_id) for thread_id in ids]
        raise ConfigError(f"unknown prune strategy {strategy!r}; use 'keep_latest' or 'delete'")


def _next_page(page: Page, reply: PageReply, limit: int | None) -> tuple[Page | None, int | None]:
    """The page to ask for after a reply, and what is left of the limit."""
    if limit is not None:
        limit -= len(reply.tuples)
        if limit <= 0:
            return None, limit
    if reply.after is None:
        return None, limit
    # Where the database cannot decide a filter, a page holds fewer than were asked for, and the next one is a full one.
    decided = len(reply.tuples) == page.limit
    return reply.after._replace(limit=min(limit, PAGE) if limit is not None and decided else PAGE), limit
