"""LangGraph's own conformance suite, with the sync methods, too.

It calls only async methods of a saver. `SyncSide` lets it test the sync ones.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

from langgraph.checkpoint.base import BaseCheckpointSaver, CheckpointTuple

from tests.stores import Client

_CALLED = "put put_writes get_tuple get_delta_channel_history delete_thread delete_for_runs copy_thread prune"


class SyncSide(BaseCheckpointSaver[str]):
    """The async methods of a saver, which call its sync ones on an OS thread."""

    def __init__(self, saver: BaseCheckpointSaver[str]) -> None:
        super().__init__(serde=saver.serde)
        self.client = Client(saver, "sync")
        self.get_next_version = saver.get_next_version  # type: ignore[method-assign]

    async def alist(self, *args: Any, **kwargs: Any) -> AsyncIterator[CheckpointTuple]:
        for found in await self.client.all(*args, **kwargs):
            yield found


def _called(name: str) -> Callable[..., Awaitable[Any]]:
    async def call(self: SyncSide, *args: Any, **kwargs: Any) -> Any:
        return await self.client.do(name, *args, **kwargs)

    return call


for each in _CALLED.split():
    setattr(SyncSide, f"a{each}", _called(each))


def side(saver: BaseCheckpointSaver[str], api: str) -> BaseCheckpointSaver[str]:
    """A saver whose async methods call the given saver's methods of one API."""
    return saver if api == "async" else SyncSide(saver)
