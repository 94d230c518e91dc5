"""Graphs as nodes of graphs: called without a memory, or with their own."""

from __future__ import annotations

from typing import Any

from langgraph.types import Command, StateSnapshot

from tests.graphs.running import Thread, scenario
from tests.graphs.scenarios.interrupts import asks, questions
from tests.graphs.scenarios.nodes import Log, Node, chain, parallel, says


def counts(name: str) -> Node:
    """A node that counts its calls in the state of its graph."""

    def node(state: Any) -> dict[str, Any]:
        last = (state.get("last") or 0) + 1
        return {"last": last, "log": [f"{name} {last}"]}

    return node


class Outer(Log, total=False):
    """A state that shares `log` with that of the subgraphs, but not `last`."""

    other: Any


def inside(graph: Any, name: str) -> Node:
    """A node that passes an empty log to a subgraph, and adds the returned log to its own."""

    def node(state: Any) -> dict[str, Any]:
        found = graph.invoke({"log": [name]})
        return {"log": found["log"]}

    return node


def inner_state(state: StateSnapshot) -> StateSnapshot:
    """The state of the subgraph that the only task of a state calls."""
    (task,) = state.tasks
    assert isinstance(task.state, StateSnapshot)
    return task.state


@scenario
async def a_subgraph_with_its_own_memory_remembers(thread: Thread) -> None:
    inner = chain(Log, count=counts("count"), more=counts("more")).compile(checkpointer=True)
    graph = thread.graph(chain(Outer, before=says("before"), inner=inside(inner, "call"), after=says("after")))
    for turn in ("one", "two", "three"):
        state = await graph.invoke({"log": [turn]})
        await thread.pause()
    assert state.values["log"][-3:] == ["count 5", "more 6", "after"]


@scenario
async def a_question_two_levels_down_waits_there(thread: Thread) -> None:
    lowest = chain(Log, low=says("low"), ask=asks("deep"), more=says("more")).compile()
    middle = chain(Log, mid=says("mid"), lowest=lowest, up=says("up")).compile()
    graph = thread.graph(chain(Outer, top=says("top"), middle=middle, end=says("end")))
    state = await graph.invoke({"log": []})
    assert inner_state(inner_state(state)).next == ("ask",)
    await thread.pause()
    state = await graph.invoke(Command(resume=42))
    assert state.values["log"][-4:] == ["deep: 42", "more", "up", "end"]


@scenario
async def a_memory_inside_a_call_is_deleted_with_the_call(thread: Thread) -> None:
    lowest = chain(Log, count=counts("count"), ask=asks("deep")).compile(checkpointer=True)
    middle = chain(Log, lowest=lowest, again=says("again")).compile()
    graph = thread.graph(chain(Outer, middle=middle, end=says("end")))
    for answer in (1, 2):
        await graph.invoke({"log": []})
        await thread.pause()
        state = await graph.invoke(Command(resume=answer))
        await thread.pause()
    assert state.values["log"][-3:] == ["deep: 2", "again", "end"]


@scenario
async def parallel_subgraphs_have_separate_interrupts(thread: Thread) -> None:
    calls: list[str] = []
    first = chain(Log, one=says("one", calls), ask=asks("first"), more=says("more first")).compile()
    second = chain(Log, two=says("two", calls), ask=asks("second"), more=says("more second")).compile()
    builder = parallel(Outer, first=inside(first, "a"), second=inside(second, "b"), third=says("third", calls))
    graph = thread.graph(builder)
    state = await graph.invoke({"log": ["in"]})
    ids = questions(state)
    assert list(ids) == ["first", "second"]
    await thread.pause()
    state = await graph.invoke(Command(resume={ids["second"]: 2}))
    assert list(questions(state)) == ["first"]
    await thread.pause()
    state = await graph.invoke(Command(resume={ids["first"]: 1}))
    assert state.values["log"] == [
        *("in", "a", "one", "first: 1", "more first", "b", "two", "second: 2", "more second", "third"),
    ]
    assert sorted(calls) == ["one", "third", "two"]


@scenario
async def one_node_calls_two_subgraphs(thread: Thread) -> None:
    first = chain(Log, one=says("one"), ask=asks("first")).compile()
    second = chain(Log, two=says("two"), ask=asks("second")).compile()

    def calls(state: Any) -> dict[str, Any]:
        return {"log": first.invoke({"log": ["a"]})["log"] + second.invoke({"log": ["b"]})["log"]}

    graph = thread.graph(chain(Outer, calls=calls, after=says("after")))
    await graph.invoke({"log": ["in"]})
    await thread.pause()
    state = await graph.invoke(Command(resume=1))
    assert list(questions(state)) == ["second"]
    await thread.pause()
    state = await graph.invoke(Command(resume=2))
    # At the end of a run LangGraph stores a subgraph only if it has not finished, so the first one would start empty.
    if thread.durability != "exit":
        assert state.values["log"] == ["in", "a", "one", "first: 1", "b", "two", "second: 2", "after"]
