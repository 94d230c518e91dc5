"""Runs that wait for an answer."""

from __future__ import annotations

from typing import Any

from langgraph.graph import START, StateGraph
from langgraph.types import Command, Send, StateSnapshot, interrupt

from tests.graphs.running import Thread, scenario
from tests.graphs.scenarios.nodes import AnyGraph, Log, Node, chain, parallel, says


def asks(*questions: str, calls: list[str] | None = None) -> Node:
    """A node that asks questions one after the other, and adds the answers to the log."""

    def node(state: Any) -> dict[str, Any]:
        if calls is not None:
            calls.append(questions[0])
        return {"log": [f"{question}: {interrupt(question)}" for question in questions]}

    return node


def questions(state: StateSnapshot) -> dict[str, str]:
    """The ids of the open interrupts of a state, by question."""
    return {waiting.value: waiting.id for waiting in state.interrupts}


@scenario
async def a_question_waits_for_its_answer(thread: Thread) -> None:
    calls: list[str] = []
    graph = thread.graph(chain(Log, before=says("before"), ask=asks("name", calls=calls), after=says("after")))
    state = await graph.invoke({"log": ["in"]})
    assert (state.next, list(questions(state))) == (("ask",), ["name"])
    await thread.pause()
    state = await graph.invoke(Command(resume={"first": "Ada"}))
    assert state.values["log"] == ["in", "before", "name: {'first': 'Ada'}", "after"]
    await thread.pause()
    state = await graph.invoke({"log": ["again"]})
    assert list(questions(state)) == ["name"]
    await thread.pause()
    state = await graph.invoke(Command(resume=0))
    assert state.values["log"][4:] == ["again", "before", "name: 0", "after"]
    assert len(calls) == 4


@scenario
async def several_questions_are_answered_one_by_one(thread: Thread) -> None:
    calls: list[str] = []
    builder = parallel(Log, a=asks("a", "A", calls=calls), b=asks("b", calls=calls), c=says("c", calls))
    graph = thread.graph(builder)
    state = await graph.invoke({"log": ["in"]})
    for question, left in (("b", ["a"]), ("a", ["A"]), ("A", [])):
        await thread.pause()
        state = await graph.invoke(Command(resume={questions(state)[question]: f"for {question}"}))
        assert list(questions(state)) == left
    assert state.values["log"] == ["in", "a: for a", "A: for A", "b: for b", "c"]
    assert calls.count("c") == 1
    await thread.pause()
    assert list(questions(await graph.invoke({"log": ["again"]}))) == ["a", "b"]


@scenario
async def sent_tasks_have_separate_interrupts(thread: Thread) -> None:
    def ask(state: Any) -> dict[str, Any]:
        return {"log": [f"{state['name']}: {interrupt(state['name'])}"]}

    builder: AnyGraph = StateGraph(Log)
    builder.add_node("ask", ask)
    builder.add_node("after", says("after"))
    builder.add_conditional_edges(START, lambda state: [Send("ask", {"name": name}) for name in "xyz"], ["ask"])
    builder.add_edge("ask", "after")
    graph = thread.graph(builder)
    state = await graph.invoke({"log": ["in"]})
    ids = questions(state)
    assert list(ids) == ["x", "y", "z"]
    await thread.pause()
    state = await graph.invoke(Command(resume={ids["y"]: 2}))
    assert list(questions(state)) == ["x", "z"]
    await thread.pause()
    state = await graph.invoke(Command(resume={ids["x"]: 1, ids["z"]: 3}))
    assert state.values["log"] == ["in", "x: 1", "y: 2", "z: 3", "after"]


@scenario
async def a_breakpoint_lets_the_state_be_changed_by_hand(thread: Thread) -> None:
    graph = thread.graph(chain(Log, one=says("one"), two=says("two"), three=says("three")))
    state = await graph.invoke({"log": ["in"]}, interrupt_before=["two"])
    assert state.next == ("two",)
    await thread.pause()
    await graph.update_state({"log": ["by hand"]})
    await thread.pause()
    state = await graph.invoke(None, interrupt_after=["two"])
    assert state.values["log"] == ["in", "one", "by hand", "two"]
    await thread.pause()
    await graph.update_state({"log": ["instead of three"]}, "three")
    await thread.pause()
    state = await graph.invoke(None)
    assert (state.next, state.values["log"]) == ((), ["in", "one", "by hand", "two", "instead of three"])


@scenario
async def an_unanswered_question_is_dropped_by_a_new_input(thread: Thread) -> None:
    graph = thread.graph(parallel(Log, ask=asks("name"), done=says("done")))
    await graph.invoke({"log": ["in"]})
    await thread.pause()
    state = await graph.invoke({"log": ["new"]})
    assert list(questions(state)) == ["name"]
    await thread.pause()
    state = await graph.invoke(Command(resume="Bo"))
    assert state.values["log"][-2:] == ["name: Bo", "done"]
