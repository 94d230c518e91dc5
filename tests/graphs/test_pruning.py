"""What somebody who has the id of an older checkpoint can still read after a prune."""

from __future__ import annotations

from typing import Annotated, Any, TypedDict

from langgraph.channels import DeltaChannel
from langgraph.types import StateSnapshot

from langgraph_checkpoint_custom import CheckpointError
from tests.graphs.plain import plain_state
from tests.graphs.running import Durability, Graph, Pruned, Reopened, Thread, check_walks, in_memory, location_of, walks
from tests.graphs.scenarios.deltas import Deltas, extend, writes
from tests.graphs.scenarios.nodes import Log, chain, says
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


async def test_a_needed_ancestor_is_hidden_and_read_completely_by_its_id(
    store: Store, api: str, durability: Durability
) -> None:
    async with Reopened(store, api, durability) as thread:
        graph = thread.graph(chain(Deltas, **STEPS))
        for turn in range(2):
            await graph.invoke({"log": [f"turn {turn}"], "seldom": [str(turn)]})
        newest, *older = await graph.history()
        before = {location_of(one): one for one in await thread.client.all(thread.config)}
        walked = await walks(thread.client, before.values())
        await thread.client.prune([thread.thread_id])
        await thread.pause()
        assert [state.config for state in await graph.history()] == [newest.config]
        left = await left_of(graph, older)
        # The seldom channel has its only snapshot in the first checkpoint that wrote to it.
        assert left
        for state, now in left:
            assert now.values == state.values
            one = await thread.client.get_tuple(state.config)
            assert one is not None
            assert one.checkpoint == before[location_of(one)].checkpoint
            assert one.pending_writes == before[location_of(one)].pending_writes
            await check_walks(thread.client, [one])
            location = location_of(one)
            assert await walks(thread.client, [one]) == ({location: walked[location]} if location in walked else {})


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


async def test_only_the_named_threads_are_pruned(store: Store, api: str, durability: Durability) -> None:
    async with Reopened(store, api, durability) as thread:
        graph = thread.graph(chain(Log, one=says("one"), two=says("two")))
        histories = {}
        a, b, c, d = (f"{thread.thread_id} {name}" for name in "abcd")
        for name in (a, b, c, d):
            thread.thread_id = name
            for _ in range(2):
                state = await graph.invoke({"log": [name]})
            histories[name] = await graph.history()
        await thread.client.prune([a, b, "unknown"])
        await thread.client.prune([c], strategy="delete")
        await thread.pause()
        for name, left in ((a, 1), (b, 1), (c, 0), (d, len(histories[d]))):
            thread.thread_id = name
            assert [state.values for state in await graph.history()] == [s.values for s in histories[name][:left]]
            state = await graph.invoke({"log": ["on"]})
            turns = 2 if left else 0
            assert state.values["log"] == [name, "one", "two"] * turns + ["on", "one", "two"]
