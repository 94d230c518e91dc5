"""Stores of LangGraph's own savers, which tests move."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass
from typing import Any

import psycopg
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import BaseCheckpointSaver, CheckpointTuple, empty_checkpoint
from langgraph.checkpoint.postgres import PostgresSaver
from langgraph.checkpoint.serde.base import SerializerProtocol
from langgraph.checkpoint.serde.types import _DeltaSnapshot
from langgraph.checkpoint.sqlite import SqliteSaver

from tests.behaviour.helpers import config as config
from tests.graphs.running import Thread
from tests.graphs.scenarios import SCENARIOS


@dataclass(frozen=True)
class Official:
    """The database of an official saver."""

    kind: str
    url: str

    @contextmanager
    def open(self, serde: SerializerProtocol | None = None) -> Iterator[BaseCheckpointSaver[Any]]:
        """The official saver on it."""
        opened: AbstractContextManager[Any]
        if self.kind == "sqlite":
            opened = SqliteSaver.from_conn_string(self.url.removeprefix("sqlite:///"))
        else:
            opened = PostgresSaver.from_conn_string(self.url)
        with opened as saver:
            saver.setup()
            if serde is not None:
                saver.serde = serde
            yield saver


def play(saver: BaseCheckpointSaver[Any], *, every: int = 1) -> Sequence[str]:
    """Run the scenarios of real graphs, or every nth of them, each on its own thread; returns their ids.

    A scenario runs as far as this saver can: the official ones store no NUL, for example, and filter differently.
    """
    for scenario in SCENARIOS[::every]:
        thread = Thread(saver, "sync", "sync")
        thread.thread_id = scenario.__name__
        with suppress(AssertionError, psycopg.Error):
            asyncio.run(scenario(thread))
    return sorted({found.config["configurable"]["thread_id"] for found in saver.list(None)})


def step(
    saver: BaseCheckpointSaver[Any], thread_id: str, after: RunnableConfig | None, **values: Any
) -> RunnableConfig:
    """Store a checkpoint with these channel values, all of them new."""
    checkpoint = empty_checkpoint()
    checkpoint["channel_values"] = values
    checkpoint["channel_versions"] = {channel: saver.get_next_version(None, None) for channel in values}
    location = after or config(thread_id)
    return saver.put(location, checkpoint, {"source": "loop", "step": 0, "parents": {}}, checkpoint["channel_versions"])


def everything(saver: BaseCheckpointSaver[Any]) -> list[CheckpointTuple]:
    """Everything that a saver returns, in one order."""
    return sorted(saver.list(None), key=lambda found: [*map(str, found.config["configurable"].values())])


def plain(found: CheckpointTuple) -> dict[str, Any]:
    """A tuple that can be compared; a snapshot and the same value without it are equal, see `tools/foreign.py`."""
    values = {
        channel: value.value if isinstance(value, _DeltaSnapshot) else value
        for channel, value in found.checkpoint["channel_values"].items()
    }
    return {
        **found._asdict(),
        "checkpoint": {**found.checkpoint, "channel_values": values},
        "pending_writes": list(found.pending_writes or ()),
    }
