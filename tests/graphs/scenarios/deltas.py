"""Channels that store what was written to them, and replay it: `DeltaChannel`."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Annotated, Any, TypedDict

from langgraph.channels import DeltaChannel
from langgraph.graph import START, StateGraph
from langgraph.types import Command, Overwrite, Send, StateSnapshot, StateUpdate, interrupt

from tests.graphs.running import Thread, past_scenario, scenario
from tests.graphs.scenarios.interrupts import asks, questions
from tests.graphs.scenarios.nodes import AnyGraph, chain, parallel, says, sync_and_async
from tests.graphs.scenarios.subgraphs import Outer


def extend(state: list[str], writes: Sequence[list[str]]) -> list[str]:
    """Append lists to a list."""
    return [*state, *(item for write in writes for item in write)]


def merge(state: dict[str, Any], writes: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Merge dicts into a dict."""
    return {key: value for each in (state, *writes) for key, value in each.items()}


class Deltas(TypedDict, total=False):
    """A log with a snapshot at every third write, a channel with few snapshots, one with many, and a plain one."""

    log: Annotated[list[str], DeltaChannel(extend, snapshot_frequency=3)]
    seldom: Annotated[list[str], DeltaChannel(extend, snapshot_frequency=100)]
    often: Annotated[dict[str, Any], DeltaChannel(merge, snapshot_frequency=1)]
    last: Any


def writes(word: str, *, seldom: bool = False, often: bool = False) -> Any:
    """A node that writes a word to the log, and to the other channels on request."""

    def node(state: Any) -> dict[str, Any]:
        found: dict[str, Any] = {"log": [word]}
        if seldom:
            found["seldom"] = [f"{word} {len(state['log'])}"]
        if often:
            found["often"] = {word: len(state["log"])}
        return found

    return sync_and_async(node)


@scenario
async def a_delta_channel_grows_turn_after_turn(thread: Thread) -> None:
    builder = chain(Deltas, one=writes("one", seldom=True), two=writes("two", often=True), three=writes("three"))
    graph = thread.graph(builder)
    for turn in range(3):
        state = await graph.invoke({"log": [f"turn {turn}"]})
        await thread.pause()
    assert state.values["log"] == [word for turn in range(3) for word in (f"turn {turn}", "one", "two", "three")]
    assert state.values["seldom"] == ["one 1", "one 5", "one 9"]
    assert state.values["often"] == {"two": 10}


@scenario
async def an_interrupt_waits_next_to_writers_of_a_delta_channel(thread: Thread) -> None:
    builder = parallel(Deltas, a=writes("a", seldom=True), ask=asks("name"), other=asks("age"), z=writes("z"))
    graph = thread.graph(builder)
    for turn in range(2):
        state = await graph.invoke({"log": [f"turn {turn}"]})
        ids = questions(state)
        await thread.pause()
        await graph.invoke(Command(resume={ids["age"]: turn}))
        await thread.pause()
        state = await graph.invoke(Command(resume="Ada", update={"seldom": ["with the answer"]}))
        assert state.values["log"][-5:] == [f"turn {turn}", "a", "name: Ada", f"age: {turn}", "z"]
        await thread.pause()
    assert state.values["seldom"].count("with the answer") == 2


@scenario
async def a_delta_channel_is_changed_by_hand(thread: Thread) -> None:
    graph = thread.graph(chain(Deltas, one=writes("one", seldom=True), two=writes("two")))
    await graph.update_state({"log": ["first"]}, "__input__")
    await thread.pause()
    await graph.invoke(None)
    for word in ("by hand", "by hand again", "and again"):
        await thread.pause()
        await graph.update_state({"log": [word], "often": {word: 1}}, "one")
    await thread.pause()
    await graph.bulk_update_state(
        [
            [StateUpdate({"log": ["bulk"]}, "one"), StateUpdate({"log": ["side"], "seldom": ["bulk"]}, "two")],
            [StateUpdate({"log": Overwrite(["over"])}, "two")],
            [StateUpdate({"log": ["last"]}, "one")],
        ]
    )
    await thread.pause()
    state = await graph.invoke(None)
    assert state.values["log"] == ["over", "last", "two"]
    assert state.values["seldom"] == ["one 1", "bulk"]
    assert list(state.values["often"]) == ["by hand", "by hand again", "and again"]


def before(history: list[StateSnapshot], node: str) -> StateSnapshot:
    """The state before the first time that a node ran."""
    return [state for state in history if state.next == (node,)][-1]


@past_scenario
async def a_delta_channel_forks_into_branches_that_do_not_mix(thread: Thread) -> None:
    graph = thread.graph(chain(Deltas, one=writes("one", seldom=True), two=writes("two"), three=writes("three")))
    for turn in ("first", "second"):
        await graph.invoke({"log": [turn]}, interrupt_before=["two"])
        await graph.invoke(None)
    past = before(await graph.history(), "two")
    await thread.pause(past_needed=True)
    old = await graph.state()
    fork = await graph.update_state({"log": ["fork"]}, "one", at=thread.at(past))
    await thread.pause(past_needed=True)
    state = await graph.invoke(None, at=thread.at(fork))
    assert state.values["log"] == ["first", "one", "fork", "two", "three"]
    await thread.pause(past_needed=True)
    # The old branch continues for a step, and then the fork does.
    await graph.update_state({"log": ["left"]}, "two", at=thread.at(old))
    state = await graph.invoke(None)
    assert state.values["log"] == [*old.values["log"], "left", "three"]
    await thread.pause(past_needed=True)
    state = await graph.invoke(None, at=thread.at(fork))
    assert state.values["log"] == ["first", "one", "fork", "two", "three"]
    await thread.pause()
    state = await graph.step_through({"log": ["end"]})
    assert state.values["log"] == ["first", "one", "fork", "two", "three", "end", "one", "two", "three"]
    assert state.values["seldom"] == ["one 1", "one 6"]


@past_scenario
async def a_delta_channel_is_replayed_from_the_past(thread: Thread) -> None:
    graph = thread.graph(chain(Deltas, one=writes("one", seldom=True), two=writes("two"), three=writes("three")))
    for turn in ("first", "second"):
        await graph.invoke({"log": [turn]}, interrupt_before=["two"])
        await graph.invoke(None)
    for _ in range(2):
        past = before(await graph.history(), "two")
        await thread.pause(past_needed=True)
        state = await graph.invoke(None, at=thread.at(past))
        assert state.values["log"] == ["first", "one", "two", "three"]
        await thread.pause(past_needed=True)
    copied = await graph.update_state(None, "__copy__", at=thread.at(past))
    await thread.pause()
    assert (await graph.state(thread.at(copied))).values["log"] == ["first", "one"]
    state = await graph.step_through(None)
    state = await graph.invoke({"log": ["second"]})
    assert state.values["log"] == ["first", "one", "two", "three", "second", "one", "two", "three"]


@scenario
async def a_delta_channel_in_a_subgraph_with_a_memory_grows(thread: Thread) -> None:
    inner = chain(Deltas, one=writes("one", seldom=True), ask=asks("name"), two=writes("two")).compile(
        checkpointer=True
    )

    def calls(state: Any) -> dict[str, Any]:
        return {"last": inner.invoke({"log": ["call"]})["log"]}

    graph = thread.graph(chain(Outer, before=says("before"), inner=calls, after=says("after")))
    for turn in range(2):
        await graph.invoke({"log": [f"turn {turn}"]})
        await thread.pause()
        state = await graph.invoke(Command(resume=turn))
        await thread.pause()
    assert state.values["last"] == [w for turn in range(2) for w in ("call", "one", f"name: {turn}", "two")]


class Plain(TypedDict, total=False):
    """The channels of `Log`, before they become delta channels and after."""

    log: Annotated[list[str], operator.add]
    seldom: Annotated[list[str], operator.add]


class Changed(TypedDict, total=False):
    """The same channels as delta channels."""

    log: Annotated[list[str], DeltaChannel(extend, snapshot_frequency=3)]
    seldom: Annotated[list[str], DeltaChannel(extend, snapshot_frequency=100)]


@scenario
async def a_channel_becomes_a_delta_channel_and_a_plain_one_again(thread: Thread) -> None:
    steps = {"one": writes("one", seldom=True), "two": writes("two")}
    plain, changed = (thread.graph(chain(schema, **steps)) for schema in (Plain, Changed))
    for graph in (plain, changed, changed, plain, changed):
        await graph.invoke({"log": ["in"]}, interrupt_before=["two"])
        state = await graph.invoke(None)
        await thread.pause()
    assert state.values["log"] == ["in", "one", "two"] * 5
    # Our saver stores the value of a channel that became a plain one at once, the one in memory at the next write.
    thread.leave_out("checkpoints")
    assert state.values["seldom"] == [f"one {1 + 3 * turn}" for turn in range(5)]


@scenario
async def a_sent_task_with_an_interrupt_writes_to_a_delta_channel(thread: Thread) -> None:
    def work(state: Any) -> dict[str, Any]:
        name = state["name"]
        return {"log": [f"{name}: {interrupt(name)}"] if name != "y" else [name], "seldom": [name]}

    builder: AnyGraph = StateGraph(Deltas)
    builder.add_node("work", work)
    builder.add_node("join", writes("join"))
    builder.add_conditional_edges(START, lambda state: [Send("work", {"name": name}) for name in "zyx"], ["work"])
    builder.add_edge("work", "join")
    graph = thread.graph(builder)
    for turn in range(2):
        ids = questions(await graph.invoke({"log": [f"turn {turn}"]}))
        await thread.pause()
        await graph.invoke(Command(resume={ids["x"]: 1}))
        await thread.pause()
        state = await graph.invoke(Command(resume={ids["z"]: 2}))
        await thread.pause()
        assert state.values["log"][-5:] == [f"turn {turn}", "z: 2", "y", "x: 1", "join"]
    assert state.values["seldom"] == ["z", "y", "x"] * 2
