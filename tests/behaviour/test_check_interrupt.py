"""An answer to a question that is no longer open can be told before it answers another one."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from langgraph.types import Command, interrupt

from langgraph_checkpoint_custom import CheckpointSaver, StaleInterrupt
from tests.behaviour.helpers import config, put
from tests.graphs.scenarios.parts import Log, chain, says
from tests.stores import Face

THREAD: Any = {"configurable": {"thread_id": "thread"}}


def ask_twice(state: Log) -> dict[str, Any]:
    return {"log": [interrupt("first?"), interrupt("second?")]}


def ask(state: Log) -> dict[str, Any]:
    return {"log": [interrupt("inner?")]}


async def check(face: Face, where: Any, interrupt_id: str) -> None:
    assert isinstance(face.saver, CheckpointSaver)
    if face.colour == "async":
        await face.saver.acheck_interrupt(where, interrupt_id)
    else:
        await asyncio.to_thread(face.saver.check_interrupt, where, interrupt_id)


async def invoke(face: Face, graph: Any, given: Any) -> dict[str, str]:
    """Run, and return the ids of the open questions by what they ask."""
    if face.colour == "async":
        result = await graph.ainvoke(given, THREAD)
    else:
        result = await asyncio.to_thread(graph.invoke, given, THREAD)
    return {one.value: one.id for one in result.get("__interrupt__", ())}


async def test_only_the_question_that_waits_may_be_answered(face: Face) -> None:
    inner = chain(Log, ask=ask).compile()
    builder = chain(Log, one=says("one"), inner=inner)
    builder.add_node("twice", ask_twice)
    builder.add_edge("one", "twice")
    graph = builder.compile(checkpointer=face.saver)
    first = await invoke(face, graph, {"log": ["in"]})
    assert first.keys() == {"inner?", "first?"}
    for interrupt_id in first.values():
        await check(face, THREAD, interrupt_id)
    second = await invoke(face, graph, Command(resume={first["first?"]: 1}))
    await check(face, THREAD, second["second?"])
    await check(face, THREAD, second["inner?"])
    with pytest.raises(StaleInterrupt, match=second["second?"]):
        await check(face, THREAD, first["first?"])
    third = await invoke(face, graph, Command(resume={second["inner?"]: 2}))
    assert third.keys() == {"second?"}
    with pytest.raises(StaleInterrupt):
        await check(face, THREAD, second["inner?"])
    await check(face, THREAD, third["second?"])
    assert await invoke(face, graph, Command(resume=3)) == {}
    with pytest.raises(StaleInterrupt, match="waits for no answer"):
        await check(face, THREAD, third["second?"])


async def test_an_older_checkpoint_in_the_config_does_not_matter(face: Face) -> None:
    graph = chain(Log, ask=ask, two=says("two")).compile(checkpointer=face.saver)
    (interrupt_id,) = (await invoke(face, graph, {"log": ["in"]})).values()
    waiting = (await face.all(THREAD))[0].config
    await check(face, waiting, interrupt_id)
    await invoke(face, graph, Command(resume=1))
    with pytest.raises(StaleInterrupt):
        await check(face, waiting, interrupt_id)


async def test_a_thread_without_questions(face: Face) -> None:
    with pytest.raises(StaleInterrupt, match="no answer"):
        await check(face, THREAD, "x")
    await put(face, "1")
    with pytest.raises(StaleInterrupt, match="no answer"):
        await check(face, config(), "x")
