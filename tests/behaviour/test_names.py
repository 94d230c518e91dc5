"""LangGraph makes names of channels and namespaces from the names of nodes. Only the database limits their length."""

from __future__ import annotations

from typing import Any

import pytest
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, StateGraph

from tests.behaviour.helpers import (
    LONG,
    Database,
    anywhere,
    config,
    get,
    ids_of,
    metadata,
    noise,
    put,
    run_graph,
    state_of,
    states_of,
)
from tests.graphs.plain import plain_state
from tests.graphs.scenarios.nodes import AnyGraph, Log, chain, says
from tests.stores import Client

pytestmark = pytest.mark.usefixtures("changing_values_in_blobs")


def longest(database: Database, seed: str) -> str:
    """A name as long as graphs can make it: 20,000 bytes that compress on PostgreSQL, 100,000 that do not on SQLite."""
    return seed + noise(100_000) if database.kind == "sqlite" else seed + "name" * 5_000


def wide_join() -> AnyGraph:
    """20 nodes with names of 20 characters, and one that waits for all of them: a channel of 432 bytes."""
    builder: AnyGraph = StateGraph(Log)
    names = [f"{number:02}_looks_at_the_case" for number in range(20)]
    for name in names:
        builder.add_node(name, says(name[:2]))
        builder.add_edge(START, name)
    builder.add_node("collect", says("collect"))
    builder.add_edge(names, "collect")
    return builder


def deep_nest() -> AnyGraph:
    """15 levels of subgraphs in nodes with names of 38 bytes: namespaces of up to 1,138 bytes."""
    builder = chain(Log, innermost=says("innermost"))
    for level in range(15):
        builder = chain(Log, **{f"the_subgraph_that_{level:02}_other_ones_are_in": builder.compile()})
    return builder


@pytest.mark.parametrize("make", [wide_join, deep_nest])
async def test_what_the_official_savers_run_is_run(client: Client, make: Any) -> None:
    memory = Client(InMemorySaver(), client.api)
    found = []
    for each in (client, memory):
        graph = make().compile(checkpointer=each.saver)
        await run_graph(each, graph, {"log": []}, anywhere(), interrupt_after="*")
        stopped = await state_of(each, graph, anywhere(), subgraphs=True)
        await run_graph(each, graph, None, anywhere())
        found.append([plain_state(state, full=True) for state in [stopped, *await states_of(each, graph, anywhere())]])
    assert found[0] == found[1]
    stored = await client.all(anywhere())
    channel = max(len(name) for one in stored for name in one.checkpoint["channel_versions"])
    ns = max(len(one.config["configurable"]["checkpoint_ns"]) for one in stored)
    assert (channel, ns) == ((432, 0) if make is wide_join else (len("branch:to:") + 38, 1_139))


async def test_long_names_work_in_every_method(client: Client, database: Database) -> None:
    ns, channel = longest(database, "n"), longest(database, "c")
    first = await put(client, "1", {channel: [LONG, 1]}, ns=ns, meta=metadata(run_id="one"))
    second = await put(client, "2", {channel: [LONG, 2], "b": [2]}, ns=ns, parent=first, meta=metadata(run_id="two"))
    await put(client, "2", ns=ns + "|other")
    await client.put_writes(second, [(channel, [LONG]), (channel, 1)], "task", ns)
    for where in (second, config(ns=ns)):
        found = await get(client, where)
        assert (found.config, found.parent_config) == (second, first)
        assert found.checkpoint["channel_values"] == {channel: [LONG, 2], "b": [2]}
        assert found.pending_writes == [("task", channel, [LONG]), ("task", channel, 1)]
    assert ids_of(await client.all(config(ns=ns), limit=1)) == ["2"]
    assert ids_of(await client.all(config(ns=ns), before=second)) == ["1"]
    assert sorted(ids_of(await client.all(anywhere()))) == ["1", "2", "2"]
    assert sorted(ids_of(await client.all(None))) == ["1", "2", "2"]
    records = await client.collect("history", anywhere())
    assert sorted((one.checkpoint_ns, one.checkpoint_id) for one in records) == [
        (ns, "1"),
        (ns, "2"),
        (ns + "|other", "2"),
    ]
    assert await client.do("label", first, "begun") == first
    assert await client.do("labels", "thread") == {"begun": first}
    await client.copy_thread("thread", "copy")
    assert (await get(client, config("copy", ns=ns))).pending_writes == found.pending_writes
    await client.prune(["thread"])
    assert ids_of(await client.all(config(ns=ns))) == ["2", "1"]  # The first one has a label.
    await client.delete_for_runs(["two"])
    assert ids_of(await client.all(config(ns=ns))) == ids_of(await client.all(config("copy", ns=ns))) == ["1"]
    await client.delete_thread("thread")
    assert await client.all(anywhere()) == []
