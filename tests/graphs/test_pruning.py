"""What somebody who has the id of an older checkpoint can still read after a prune."""

from __future__ import annotations

from typing import Annotated, Any, TypedDict

from langgraph.channels import DeltaChannel
from langgraph.types import StateSnapshot

from langgraph_checkpoint_custom import CheckpointError
from tests.graphs.plain import plain_state
from tests.graphs.running import Durability, Graph, Pruned, Reopened, Thread, in_memory
from tests.graphs.scenarios.deltas import Deltas, extend, writes
from tests.graphs.scenarios.nodes import chain
from tests.stores import Store

STEPS = {"one": writes("one", seldom=True), "two": writes("two")}


class Uneven(TypedDict, total=False):
    """Two delta channels with snapshots at different steps."""

    log: Annotated[list[str], DeltaChannel(extend, snapshot_frequency=4)]
    seldom: Annotated[list[str], DeltaChannel(extend, snapshot_frequency=7)]


async def left_of(graph: Graph, states: list[StateSnapshot]) -> list[tuple[StateSnapshot, StateSnapshot]]:
    """The states that can still be read by their ids, each with its current content."""
    found = []
    for state in states:
        try:
            now = await graph.state(state.config)
        except CheckpointError:
            continue
        if now.metadata is not None:
            found.append((state, now))
    return found


async def test_a_state_from_before_a_prune_is_complete_or_deleted(store: Store, api: str) -> None:
    steps = {"one": writes("one", seldom=True)}
    async with Reopened(store, api, "sync") as thread:
        graph = thread.graph(chain(Uneven, **steps))
        for _ in range(6):
            await graph.invoke({"log": ["in"], "seldom": ["in"]})
        _, *older = await graph.history()
        await thread.client.prune([thread.thread_id])
        left = await left_of(graph, older)
        assert left
        assert [now.values for _, now in left] == [state.values for state, _ in left]


async def test_a_fork_from_a_hidden_checkpoint_continues_as_in_memory(
    store: Store, api: str, durability: Durability
) -> None:
    async def go(thread: Thread) -> dict[str, Any]:
        graph = thread.graph(chain(Deltas, **STEPS))
        past = await graph.invoke({"log": ["first"], "seldom": ["first"]}, interrupt_before=["two"])
        await graph.invoke(None)
        await graph.invoke({"log": ["second"]})
        if isinstance(thread, Pruned):
            await thread.prune()
            assert len(await graph.history()) == 1
        await graph.update_state({"log": ["fork"], "seldom": ["fork"]}, "one", at=thread.at(past))
        await thread.pause()
        await graph.invoke(None)
        state = await graph.invoke({"log": ["end"]})
        assert state.values["log"] == ["first", "one", "fork", "two", "end", "one", "two"]
        return plain_state(state, full=False)

    expected = await go(in_memory(api, durability))
    async with Pruned(store, api, durability) as thread:
        assert await go(thread) == expected
