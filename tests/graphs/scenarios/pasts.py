"""Histories, time travel and forks."""

from __future__ import annotations

from langgraph.types import Command, StateSnapshot

from tests.graphs.running import Thread, past_scenario
from tests.graphs.scenarios.interrupts import asks, questions
from tests.graphs.scenarios.nodes import Log, chain, says
from tests.graphs.scenarios.subgraphs import Outer, counts, inner_state, without_id


def before(history: list[StateSnapshot], node: str, nth: int = 0) -> StateSnapshot:
    """The state before a node ran; of several, the nth, newest first."""
    return [state for state in history if state.next == (node,)][nth]


@past_scenario
async def a_fork_continues_differently_and_leaves_the_old_branch(thread: Thread) -> None:
    graph = thread.graph(chain(Log, one=says("one"), two=says("two"), three=says("three")))
    await graph.invoke({"log": ["in"]}, interrupt_before=["two"])
    await graph.invoke(None)
    (newest, *_, past) = [state for state in await graph.history() if state.next in ((), ("two",))]
    await thread.pause(past_needed=True)
    fork = await graph.update_state({"log": ["fork"], "last": ["forked"]}, "one", at=thread.at(past))
    await thread.pause(past_needed=True)
    state = await graph.invoke(None, at=thread.at(fork))
    assert state.values["log"] == ["in", "one", "fork", "two", "three"]
    await thread.pause(past_needed=True)
    assert (await graph.state(thread.at(newest))).values["log"] == ["in", "one", "two", "three"]
    # A fork of the fork, and one more step on the old branch.
    await graph.update_state({"log": ["again"]}, "two", at=thread.at(fork))
    state = await graph.invoke(None)
    assert state.values["log"] == ["in", "one", "fork", "again", "three"]
    await thread.pause(past_needed=True)
    state = await graph.invoke({"log": ["old"]}, at=thread.at(newest))
    await thread.pause()
    state = await graph.invoke({"log": ["new"]})
    assert state.values["log"][:5] == ["in", "one", "two", "three", "old"]


@past_scenario
async def an_answered_question_is_asked_again_after_time_travel(thread: Thread) -> None:
    graph = thread.graph(chain(Log, one=says("one"), ask=asks("name", "age"), after=says("after")))
    await graph.invoke({"log": ["in"]})
    await graph.invoke(Command(resume="Ada"))
    await thread.pause(past_needed=True)
    first = await graph.invoke(Command(resume=36))
    past = before(await graph.history(), "ask")
    await thread.pause(past_needed=True)
    state = await graph.invoke(None, at=thread.at(past))
    assert list(questions(state)) == ["name"]
    await thread.pause(past_needed=True)
    await graph.invoke(Command(resume="Bo"))
    await thread.pause(past_needed=True)
    state = await graph.invoke(Command(resume=7))
    assert state.values["log"] == ["in", "one", "name: Bo", "age: 7", "after"]
    assert (await graph.state(thread.at(first))).values["log"] == ["in", "one", "name: Ada", "age: 36", "after"]
    await thread.pause()
    assert list(questions(await graph.invoke({"log": []}))) == ["name"]


@past_scenario
async def time_travel_reaches_into_a_subgraph(thread: Thread) -> None:
    inner = chain(Log, one=says("one"), ask=asks("name"), more=says("more")).compile()
    graph = thread.graph(chain(Outer, before=says("before"), inner=inner, after=says("after")))
    waiting = await graph.invoke({"log": ["in"]})
    inside = inner_state(waiting)
    states = await graph.history(thread.at(without_id(inside)))
    await thread.pause(past_needed=True)
    await graph.invoke(Command(resume="Ada"))
    await thread.pause(past_needed=True)
    state = await graph.invoke(None, at=thread.at(states[-1]))
    assert list(questions(state)) == ["name"]
    await thread.pause(past_needed=True)
    state = await graph.invoke(Command(resume="Bo"))
    assert state.values["log"][-3:] == ["name: Bo", "more", "after"]


@past_scenario
async def a_subgraph_with_a_memory_goes_back_with_its_graph(thread: Thread) -> None:
    inner = chain(Log, count=counts("count"), more=counts("more")).compile(checkpointer=True)
    graph = thread.graph(chain(Outer, before=says("before"), inner=inner, after=says("after")))
    for turn in ("one", "two", "three"):
        await graph.invoke({"log": [turn]}, interrupt_before=["inner"])
        await graph.invoke(None)
    past = before(await graph.history(), "inner", 1)
    await thread.pause(past_needed=True)
    state = await graph.invoke(None, at=thread.at(past))
    assert "more 4" in state.values["log"]
    assert "more 6" not in state.values["log"]
    await thread.pause()
    state = await graph.invoke({"log": ["four"]})
    assert "more 6" in state.values["log"]
