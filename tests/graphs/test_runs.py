"""A thread whose last run was deleted continues as if that run had never been."""

from __future__ import annotations

from typing import Any

from langgraph.types import Command, StateSnapshot

from tests.graphs.plain import plain_state
from tests.graphs.running import Durability, Graph, Stored, Thread, in_memory
from tests.graphs.scenarios.deltas import Deltas, writes
from tests.graphs.scenarios.interrupts import asks
from tests.graphs.scenarios.nodes import chain
from tests.stores import Store


async def run(graph: Graph, name: str, input: Any) -> StateSnapshot:
    """A run with an id, in the metadata of its checkpoints, where a server puts it."""
    return await graph.invoke(input, metadata={"run_id": run_id(graph.thread, name)})


def run_id(thread: Thread, name: str) -> str:
    """The id of a run, unique to the thread, since runs are deleted from all threads."""
    return f"{name} on {thread.thread_id}"


async def delete(thread: Stored, name: str) -> None:
    """Delete a run, and continue in another process."""
    await thread.client.delete_for_runs([run_id(thread, name)])
    await thread.reopen()


def shape(state: StateSnapshot) -> dict[str, Any]:
    """A state without the ids of runs and the steps since a snapshot: a run may make an unnecessary snapshot."""
    found = plain_state(state, full=False)
    left_out = ("run_id", "counters_since_delta_snapshot")
    found["metadata"] = {key: value for key, value in (found["metadata"] or {}).items() if key not in left_out}
    return found


async def test_the_next_run_continues_alike(store: Store, api: str, durability: Durability) -> None:
    steps = {"one": writes("one", seldom=True), "two": writes("two", often=True)}
    twin = in_memory(api, durability).graph(chain(Deltas, **steps))
    await run(twin, "first", {"log": ["first"]})
    async with Stored(store, api, durability) as thread:
        graph = thread.graph(chain(Deltas, **steps))
        await run(graph, "first", {"log": ["first"]})
        before = await graph.history()
        await run(graph, "second", {"log": ["second"], "seldom": ["second"]})
        await delete(thread, "second")
        assert list(map(shape, await graph.history())) == list(map(shape, before))
        for name in ("third", "fourth"):
            state = await run(graph, name, {"log": [name]})
            assert shape(state) == shape(await run(twin, name, {"log": [name]}))
            await thread.reopen()


async def test_a_question_is_open_again_when_the_run_that_answered_it_is_deleted(
    store: Store, api: str, durability: Durability
) -> None:
    steps = {"ask": asks("name"), "two": lambda state: {"last": state["log"]}}
    first = {"log": ["first"], "seldom": ["first"]}
    twin = in_memory(api, durability).graph(chain(Deltas, **steps))
    await run(twin, "first", first)
    async with Stored(store, api, durability) as thread:
        graph = thread.graph(chain(Deltas, **steps))
        waiting = await run(graph, "first", first)
        await run(graph, "wrong", Command(resume="wrong", update={"log": ["wrong"]}))
        await delete(thread, "wrong")
        assert shape(await graph.state()) == shape(waiting)
        answer: Command[Any] = Command(resume="right", update={"seldom": ["right"]})
        assert shape(await run(graph, "right", answer)) == shape(await run(twin, "right", answer))
