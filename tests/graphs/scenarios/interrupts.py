"""Runs that wait for an answer."""

from __future__ import annotations

from typing import Any

from langgraph.types import Command, StateSnapshot, interrupt

from tests.graphs.running import Thread, scenario
from tests.graphs.scenarios.nodes import Log, Node, chain, says


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
