"""`check_interrupt` detects that an interrupt is no longer open, before it answers another one."""

from __future__ import annotations

from typing import Any

import pytest
from langgraph.types import Command, interrupt

from langgraph_checkpoint_custom import StaleInterrupt
from tests.behaviour.helpers import config, put, run_graph
from tests.graphs.scenarios.nodes import Log, chain, says
from tests.stores import Client

THREAD: Any = {"configurable": {"thread_id": "thread"}}


def ask_twice(state: Log) -> dict[str, Any]:
    return {"log": [interrupt("first?"), interrupt("second?")]}


def ask(state: Log) -> dict[str, Any]:
    return {"log": [interrupt("inner?")]}


async def check(client: Client, where: Any, interrupt_id: str) -> None:
    await client.do("check_interrupt", where, interrupt_id)


async def invoke(client: Client, graph: Any, given: Any) -> dict[str, str]:
    """Run the graph, and return the ids of the open interrupts by their questions."""
    result = await run_graph(client, graph, given, THREAD)
    return {one.value: one.id for one in result.get("__interrupt__", ())}


async def test_only_the_open_interrupt_may_be_answered(client: Client) -> None:
    inner = chain(Log, ask=ask).compile()
    builder = chain(Log, one=says("one"), inner=inner)
    builder.add_node("twice", ask_twice)
    builder.add_edge("one", "twice")
    graph = builder.compile(checkpointer=client.saver)
    first = await invoke(client, graph, {"log": ["in"]})
    assert first.keys() == {"inner?", "first?"}
    for interrupt_id in first.values():
        await check(client, THREAD, interrupt_id)
    second = await invoke(client, graph, Command(resume={first["first?"]: 1}))
    await check(client, THREAD, second["second?"])
    await check(client, THREAD, second["inner?"])
    with pytest.raises(StaleInterrupt, match=second["second?"]):
        await check(client, THREAD, first["first?"])
    third = await invoke(client, graph, Command(resume={second["inner?"]: 2}))
    assert third.keys() == {"second?"}
    with pytest.raises(StaleInterrupt):
        await check(client, THREAD, second["inner?"])
    await check(client, THREAD, third["second?"])
    assert await invoke(client, graph, Command(resume=3)) == {}
    with pytest.raises(StaleInterrupt, match="is not waiting for an answer"):
        await check(client, THREAD, third["second?"])


async def test_an_older_checkpoint_in_the_config_changes_nothing(client: Client) -> None:
    graph = chain(Log, ask=ask, two=says("two")).compile(checkpointer=client.saver)
    (interrupt_id,) = (await invoke(client, graph, {"log": ["in"]})).values()
    waiting = (await client.all(THREAD))[0].config
    await check(client, waiting, interrupt_id)
    await invoke(client, graph, Command(resume=1))
    with pytest.raises(StaleInterrupt):
        await check(client, waiting, interrupt_id)


async def test_a_thread_without_interrupts_raises_stale_interrupt(client: Client) -> None:
    with pytest.raises(StaleInterrupt, match="not waiting for an answer"):
        await check(client, THREAD, "x")
    await put(client, "1")
    with pytest.raises(StaleInterrupt, match="not waiting for an answer"):
        await check(client, config(), "x")
