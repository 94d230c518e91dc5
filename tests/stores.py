"""Empty stores for tests, and one way to call sync and async methods."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import (
    BaseCheckpointSaver,
    ChannelVersions,
    Checkpoint,
    CheckpointMetadata,
    CheckpointTuple,
    DeltaChannelHistory,
)

from langgraph_checkpoint_custom import CheckpointSaver, open_saver


@dataclass(frozen=True)
class Store:
    """A separate, empty database for a test."""

    kind: str
    url: str
    options: tuple[tuple[str, Any], ...] = ()

    def open(self, **options: Any) -> CheckpointSaver:
        """A saver on it, with its own options and these. On PostgreSQL, call `setup()` once."""
        return open_saver(self.url, **{**dict(self.options), **options})


class Client:
    """A saver's methods as coroutines, which call its async methods, or its sync methods on an OS thread.

    Works for any saver, so that `InMemorySaver` can be called the same way.
    """

    def __init__(self, saver: BaseCheckpointSaver[str], api: str) -> None:
        self.saver = saver
        self.api = api

    async def _call(self, name: str, *args: Any, **kwargs: Any) -> Any:
        if self.api == "async":
            return await getattr(self.saver, f"a{name}")(*args, **kwargs)
        return await asyncio.to_thread(getattr(self.saver, name), *args, **kwargs)

    async def do(self, name: str, *args: Any, **kwargs: Any) -> Any:
        """Call a method that only this package's savers have."""
        return await self._call(name, *args, **kwargs)

    async def collect(self, name: str, *args: Any, **kwargs: Any) -> Sequence[Any]:
        """All elements of an iterator."""
        if self.api == "async":
            return [found async for found in getattr(self.saver, f"a{name}")(*args, **kwargs)]
        return await asyncio.to_thread(lambda: list(getattr(self.saver, name)(*args, **kwargs)))

    async def put(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        return await self._call("put", config, checkpoint, metadata, new_versions)  # type: ignore[no-any-return]

    async def put_writes(
        self, config: RunnableConfig, writes: Sequence[tuple[str, Any]], task_id: str, task_path: str = ""
    ) -> None:
        await self._call("put_writes", config, writes, task_id, task_path)

    async def get_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        return await self._call("get_tuple", config)  # type: ignore[no-any-return]

    async def list(self, config: RunnableConfig | None, **kwargs: Any) -> AsyncIterator[CheckpointTuple]:
        if self.api == "async":
            async for found in self.saver.alist(config, **kwargs):
                yield found
        else:
            for found in self.saver.list(config, **kwargs):
                yield found

    async def all(self, config: RunnableConfig | None, **kwargs: Any) -> Sequence[CheckpointTuple]:
        return await self.collect("list", config, **kwargs)

    async def history(self, config: RunnableConfig, channels: Sequence[str]) -> Mapping[str, DeltaChannelHistory]:
        return await self._call(  # type: ignore[no-any-return]
            "get_delta_channel_history", config=config, channels=channels
        )

    async def delete_thread(self, thread_id: str) -> None:
        await self._call("delete_thread", thread_id)

    async def delete_for_runs(self, run_ids: Sequence[str]) -> None:
        await self._call("delete_for_runs", run_ids)

    async def copy_thread(self, source_thread_id: str, target_thread_id: str) -> None:
        await self._call("copy_thread", source_thread_id, target_thread_id)

    async def prune(self, thread_ids: Sequence[str], *, strategy: str = "keep_latest") -> None:
        await self._call("prune", thread_ids, strategy=strategy)
