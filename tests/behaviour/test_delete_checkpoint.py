"""One checkpoint can be deleted. Ancestors that a descendant needs stay, hidden."""

from __future__ import annotations

from typing import Any

import pytest
from langgraph.types import Command

from langgraph_checkpoint_custom import CheckpointLabelled, ConfigError
from tests.behaviour.helpers import (
    LONG,
    Database,
    NextId,
    anywhere,
    config,
    get,
    id_of,
    ids_of,
    metadata,
    put,
    put_chain,
    run_graph,
    state_of,
    states_of,
)
from tests.graphs.scenarios.interrupts import asks
from tests.graphs.scenarios.nodes import Log, chain, says
from tests.graphs.scenarios.subgraphs import Outer
from tests.stores import Client

pytestmark = pytest.mark.usefixtures("changing_values_in_blobs")


async def test_a_checkpoint_is_deleted_with_the_values_that_no_other_uses(
    client: Client, database: Database, next_id: NextId
) -> None:
    configs = await put_chain(client, next_id, 3, values={"v": [LONG]})
    for where in configs:
        await client.put_writes(where, [("v", 1)], "task")
    assert await client.do("delete_checkpoint", configs[1]) is True
    assert database.counts() == {"checkpoints": 2, "writes": 2, "blobs": 2}
    assert await client.get_tuple(configs[1]) is None
    assert ids_of(await client.all(anywhere())) == ids_of([configs[2], configs[0]])
    newest = await get(client, configs[2])
    assert (newest.checkpoint["channel_values"], newest.parent_config) == ({"v": [LONG]}, None)
    assert await client.do("delete_checkpoint", configs[1]) is False
    assert await client.do("delete_checkpoint", config("missing", "nothing")) is False
    assert await client.do("delete_checkpoint", configs[2]) is True
    assert await client.do("delete_checkpoint", configs[0]) is True
    assert set(database.counts().values()) == {0}


async def test_the_newest_checkpoint_is_deleted_only_on_request(client: Client, next_id: NextId) -> None:
    await put(client, next_id())
    with pytest.raises(ConfigError, match="no checkpoint_id"):
        await client.do("delete_checkpoint", config())
    assert len(await client.all(anywhere())) == 1


async def test_deleting_a_labelled_checkpoint_is_refused(client: Client, database: Database, next_id: NextId) -> None:
    root = await put(client, next_id())
    inner = await put(client, next_id(), ns="call:1", meta=metadata(parents={"": id_of(root)}))
    await client.do("label", inner, "inside")
    before = sorted(database.cells())
    for where in (root, inner):
        with pytest.raises(CheckpointLabelled, match=r"was not deleted.*'inside'"):
            await client.do("delete_checkpoint", where)
    assert sorted(database.cells()) == before
    await client.do("unlabel", "thread", "inside")
    assert await client.do("delete_checkpoint", root) is True
    assert await client.all(anywhere()) == []


async def test_the_thread_continues_from_the_parent_of_the_newest(client: Client) -> None:
    calls: list[str] = []
    call = chain(Log, low=says("low", calls), ask=asks("name")).compile()
    graph = chain(Outer, one=says("one", calls), call=call).compile(checkpointer=client.saver)
    await run_graph(client, graph, {"log": []}, anywhere())
    await run_graph(client, graph, Command(resume="Ada"), anywhere())
    newest, before, first, _ = await states_of(client, graph, anywhere())
    assert await client.do("delete_checkpoint", newest.config) is True
    state = await state_of(client, graph, anywhere())
    # Neither the answer nor its result is taken for the task's output.
    assert (state.config, state.next, state.interrupts, state.values) == (before.config, ("call",), (), before.values)
    # The subgraph call of a deleted root checkpoint is deleted too.
    assert await client.do("delete_checkpoint", before.config) is True
    assert {found.config["configurable"]["checkpoint_ns"] for found in await client.all(anywhere())} == {""}
    calls.clear()
    await run_graph(client, graph, None, anywhere())
    await run_graph(client, graph, Command(resume="Bo"), anywhere())
    assert calls == ["one", "low"]
    values = (await state_of(client, graph, anywhere())).values
    assert values["log"][-1] == "name: Bo"
    assert first.values == {"log": []}


async def branch_and_take_it_back(client: Client, graph: Any) -> None:
    """Run a graph that asks, and again from its start; then delete what the second run has stored."""
    await run_graph(client, graph, {"log": []}, anywhere())
    asking = await state_of(client, graph, anywhere())
    start = (await states_of(client, graph, anywhere()))[-1]
    await run_graph(client, graph, {"log": ["other"]}, start.config)
    while (newest := await state_of(client, graph, anywhere())).config != asking.config:
        assert await client.do("delete_checkpoint", newest.config) is True
    assert newest.interrupts == asking.interrupts


async def test_an_interrupt_of_another_branch_stays(client: Client) -> None:
    graph = chain(Log, ask=asks("name")).compile(checkpointer=client.saver)
    await branch_and_take_it_back(client, graph)
    await run_graph(client, graph, Command(resume="Ada"), anywhere())
    assert (await state_of(client, graph, anywhere())).values["log"] == ["name: Ada"]


@pytest.mark.parametrize("memory", [False, True])
async def test_the_subgraph_calls_of_tasks_that_run_again_are_deleted(client: Client, *, memory: bool) -> None:
    """Otherwise an interrupt that a human has answered would count as answered again."""
    calls: list[str] = []
    call = chain(Log, low=says("low", calls), ask=asks("name")).compile(checkpointer=memory or None)
    graph = chain(Outer, one=says("one"), call=call, two=says("two")).compile(checkpointer=client.saver)
    await run_graph(client, graph, {"log": []}, anywhere())
    waiting = await state_of(client, graph, anywhere())
    await run_graph(client, graph, Command(resume="Ada"), anywhere())
    while (newest := await state_of(client, graph, anywhere())).config != waiting.config:
        assert await client.do("delete_checkpoint", newest.config) is True
    calls.clear()
    await run_graph(client, graph, None, anywhere())
    state = await state_of(client, graph, anywhere())
    assert (calls, [each.value for each in state.interrupts]) == (["low"], ["name"])
    await run_graph(client, graph, Command(resume="Bo"), anywhere())
    values = (await state_of(client, graph, anywhere())).values
    assert [word for word in values["log"] if ":" in word] == ["name: Bo"]


async def test_the_calls_of_another_branch_stay(client: Client) -> None:
    calls: list[str] = []
    call = chain(Log, low=says("low", calls), ask=asks("name")).compile()
    graph = chain(Outer, call=call).compile(checkpointer=client.saver)
    await branch_and_take_it_back(client, graph)
    calls.clear()
    await run_graph(client, graph, Command(resume="Ada"), anywhere())
    assert calls == []
    assert (await state_of(client, graph, anywhere())).values["log"][-1] == "name: Ada"
