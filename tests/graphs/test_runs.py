"""The state of a thread after some of its runs were deleted."""

from __future__ import annotations

from typing import Any

from langgraph.types import Command, StateSnapshot

from tests.graphs.plain import plain_state
from tests.graphs.running import Durability, Graph, Reopened, Thread, check_walks, in_memory, live, location_of, walks
from tests.graphs.scenarios.deltas import Deltas, writes
from tests.graphs.scenarios.interrupts import asks
from tests.graphs.scenarios.nodes import Log, chain, says
from tests.stores import Store

STEPS = {"one": writes("one", seldom=True), "two": writes("two", often=True)}


async def run(graph: Graph, name: str, input: Any) -> StateSnapshot:
    """A run with an id, in the metadata of its checkpoints, where a server puts it."""
    return await graph.invoke(input, metadata={"run_id": run_id(graph.thread, name)})


def run_id(thread: Thread, name: str) -> str:
    """The id of a run, unique to the thread, since runs are deleted from all threads."""
    return f"{name} on {thread.thread_id}"


async def delete(thread: Thread, *names: str) -> None:
    """Delete runs, and continue in another process."""
    await thread.client.delete_for_runs([run_id(thread, name) for name in names])
    await thread.pause()


async def runs_of(thread: Thread) -> list[str]:
    """The runs that a thread has checkpoints of, newest first."""
    found = [one.metadata["run_id"].partition(" on ")[0] for one in await thread.client.all(thread.config)]
    return list(dict.fromkeys(found))


def shape(state: StateSnapshot) -> dict[str, Any]:
    """A state without the ids of runs and the steps since a snapshot: a run may make an unnecessary snapshot."""
    found = plain_state(state, full=False)
    left_out = ("run_id", "counters_since_delta_snapshot")
    found["metadata"] = {key: value for key, value in (found["metadata"] or {}).items() if key not in left_out}
    return found


async def test_a_run_stays_complete_when_the_previous_run_is_deleted(
    store: Store, api: str, durability: Durability
) -> None:
    memory = in_memory(api, durability)
    twin = memory.graph(chain(Deltas, **STEPS))
    async with Reopened(store, api, durability) as thread:
        graph = thread.graph(chain(Deltas, **STEPS))
        for name in ("first", "second"):
            await run(twin, name, {"log": [name]})
            await run(graph, name, {"log": [name]})
        before = await graph.history(filter={"run_id": run_id(thread, "second")})
        seconds = await thread.client.all(thread.config, filter={"run_id": run_id(thread, "second")})
        walked = await walks(thread.client, seconds, replayed_only=True)
        await delete(thread, "first")
        assert await runs_of(thread) == ["second"]
        after = await graph.history()
        assert list(map(shape, after)) == list(map(shape, before))
        left = await thread.client.all(thread.config)
        assert await walks(thread.client, left, replayed_only=True) == walked
        await check_walks(thread.client, left)
        assert shape(await run(graph, "third", {"log": ["third"]})) == shape(
            await run(twin, "third", {"log": ["third"]})
        )


async def test_deleting_the_last_run_restores_the_earlier_state(store: Store, api: str, durability: Durability) -> None:
    memory = in_memory(api, durability)
    twin = memory.graph(chain(Deltas, **STEPS))
    await run(twin, "first", {"log": ["first"]})
    async with Reopened(store, api, durability) as thread:
        graph = thread.graph(chain(Deltas, **STEPS))
        await run(graph, "first", {"log": ["first"]})
        before = await graph.history()
        await run(graph, "second", {"log": ["second"], "seldom": ["second"]})
        await delete(thread, "second")
        assert await runs_of(thread) == ["first"]
        assert list(map(shape, await graph.history())) == list(map(shape, before))
        for name in ("third", "fourth"):
            state = await run(graph, name, {"log": [name]})
            assert shape(state) == shape(await run(twin, name, {"log": [name]}))
            await thread.pause()
        assert "second" not in state.values["log"]


async def test_a_question_is_open_again_when_the_run_that_answered_it_is_deleted(
    store: Store, api: str, durability: Durability
) -> None:
    steps = {"ask": asks("name"), "two": lambda state: {"last": state["log"]}}
    first = {"log": ["first"], "seldom": ["first"]}
    memory = in_memory(api, durability)
    twin = memory.graph(chain(Deltas, **steps))
    await run(twin, "first", first)
    async with Reopened(store, api, durability) as thread:
        graph = thread.graph(chain(Deltas, **steps))
        waiting = await run(graph, "first", first)
        await run(graph, "wrong", Command(resume="wrong", update={"log": ["wrong"]}))
        await delete(thread, "wrong")
        assert shape(await graph.state()) == shape(waiting)
        answer: Command[Any] = Command(resume="right", update={"seldom": ["right"]})
        await run(twin, "right", answer)
        await run(graph, "right", answer)
        assert shape(await graph.state()) == shape(await twin.state())


async def test_a_call_whose_run_was_deleted_is_pruned_when_it_is_over(store: Store, api: str) -> None:
    inner = chain(Log, one=says("one"), ask=asks("name")).compile()
    async with Reopened(store, api, "sync") as thread:
        graph = thread.graph(chain(Log, inner=inner, two=says("two")))
        await run(graph, "first", {"log": ["first"]})
        await run(graph, "answer", Command(resume=1))
        assert [location_of(one).checkpoint_ns for one in live(await thread.client.all(thread.config))] == [""]
        await delete(thread, "first")
        await thread.client.prune([thread.thread_id])
        assert [location_of(one).checkpoint_ns for one in await thread.client.all(thread.config)] == [""]
