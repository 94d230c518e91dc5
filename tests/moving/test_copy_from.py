"""What any saver returns can be stored here, sync and async."""

from __future__ import annotations

import asyncio
import tracemalloc
from collections.abc import Sequence
from dataclasses import dataclass
from typing import cast

import pytest
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import Checkpoint, empty_checkpoint
from langgraph.checkpoint.memory import InMemorySaver

from langgraph_checkpoint_custom import CheckpointSaver, SqliteSaver
from langgraph_checkpoint_custom.tools.migration import MoveReport, acopy_from, copy_from
from tests.moving.official import everything, play, step


def copied(
    api: str, source: InMemorySaver, target: CheckpointSaver, threads: Sequence[str] | None = None
) -> MoveReport:
    if api == "sync":
        return copy_from(source, target, threads)
    return asyncio.run(acopy_from(source, target, threads))


@pytest.mark.parametrize("api", ["sync", "async"])
def test_everything_that_graphs_stored_in_memory_is_copied_unchanged(saver: CheckpointSaver, api: str) -> None:
    source = InMemorySaver()
    threads = play(source, every=2)
    moved = copied(api, source, saver)
    theirs, ours = everything(source), everything(saver)
    assert (moved.threads, moved.checkpoints, moved.problems) == (len(threads), len(theirs), {})
    assert moved.writes == sum(len(found.pending_writes or ()) for found in theirs)
    assert [found.config for found in ours] == [found.config for found in theirs]
    assert [found.metadata for found in ours] == [found.metadata for found in theirs]
    assert [found.parent_config for found in ours] == [found.parent_config for found in theirs]
    assert [found.checkpoint for found in ours] == [found.checkpoint for found in theirs]
    for found, expected in zip(ours, theirs, strict=True):
        assert found.pending_writes == expected.pending_writes
        channels = list(expected.metadata.get("counters_since_delta_snapshot") or ())
        theirs_history = source.get_delta_channel_history(config=expected.config, channels=channels)
        assert saver.get_delta_channel_history(config=found.config, channels=channels) == theirs_history


@pytest.mark.parametrize("api", ["sync", "async"])
def test_only_the_named_threads_are_copied(saver: CheckpointSaver, api: str) -> None:
    source = InMemorySaver()
    threads = play(source, every=9)[:2]
    assert copied(api, source, saver, threads).threads == 2
    assert {found.config["configurable"]["thread_id"] for found in saver.list(None)} == set(threads)


@dataclass
class Order:
    sku: str


@dataclass
class Purchase:
    sku: str


def test_a_source_with_on_load_stores_the_new_objects_in_the_target(saver: CheckpointSaver) -> None:
    thread: RunnableConfig = {"configurable": {"thread_id": "1", "checkpoint_ns": ""}}
    checkpoint = {**empty_checkpoint(), "channel_values": {"order": Order("tea")}, "channel_versions": {"order": "1"}}
    on_load = {f"{__name__}.Order": Purchase}
    with SqliteSaver(":memory:", on_load=on_load) as source:
        source.put(thread, cast("Checkpoint", checkpoint), {"source": "loop", "step": 0}, {"order": "1"})
        assert copy_from(source, saver).checkpoints == 1
    found = saver.get_tuple(thread)  # This saver has no `on_load`.
    assert found
    assert found.checkpoint["channel_values"] == {"order": Purchase("tea")}


@pytest.mark.parametrize("api", ["sync", "async"])
def test_a_store_is_not_held_in_memory(api: str) -> None:
    """Of 500 threads of 60 KB, a page of 50 is."""
    with SqliteSaver(":memory:") as source, SqliteSaver(":memory:") as target:
        for number in range(500):
            step(source, f"{number}", None, a=[f"{number:03}" * 20_000])
        tracemalloc.start()
        moved = copy_from(source, target) if api == "sync" else asyncio.run(acopy_from(source, target))
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    assert moved.threads == 500
    assert peak < 20_000_000
