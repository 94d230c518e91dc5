"""A label names one checkpoint of a thread, and protects it from pruning until the label is removed."""

from __future__ import annotations

from typing import Annotated, Any, TypedDict

import pytest
from langgraph.channels import DeltaChannel
from langgraph.types import Command

from langgraph_checkpoint_custom import CheckpointNotFound, ConfigError, LabelExists
from tests.behaviour.helpers import (
    Database,
    NextId,
    anywhere,
    config,
    ids_of,
    metadata,
    put,
    put_chain,
    put_delta_chain,
    run_graph,
    state_of,
    states_of,
)
from tests.graphs.scenarios.interrupts import asks
from tests.graphs.scenarios.nodes import Log, chain, says, sync_and_async
from tests.graphs.scenarios.subgraphs import counts
from tests.stores import Client


async def test_a_label_names_one_checkpoint(client: Client, next_id: NextId) -> None:
    first, second, third = await put_chain(client, next_id, 3)
    sub = await put(client, next_id(), ns="sub")
    assert await client.do("label", first, "before") == first
    assert await client.do("label", config(), "newest") == third
    assert await client.do("label", config(ns="sub"), "Größe") == sub
    assert await client.do("labels", "thread") == {"Größe": sub, "before": first, "newest": third}
    # Again, as after a lost reply.
    assert await client.do("label", first, "before") == first
    assert await client.do("label", config(), "newest") == third
    with pytest.raises(LabelExists, match=r"'before' belongs to checkpoint .*unlabel"):
        await client.do("label", second, "before")
    with pytest.raises(LabelExists):
        await client.do("label", config(ns="sub"), "before")
    assert await client.do("unlabel", "thread", "before") is True
    assert await client.do("unlabel", "thread", "before") is False
    assert await client.do("label", second, "before") == second
    assert await client.do("labels", "other") == {}


async def test_a_missing_checkpoint_cannot_be_labelled(client: Client, database: Database, next_id: NextId) -> None:
    configs = await put_delta_chain(client, next_id, 4, {1})
    await client.prune(["thread"])
    for where in (config("missing"), config(checkpoint_id="nothing"), config(ns="sub"), configs[0], configs[2]):
        with pytest.raises(CheckpointNotFound, match="thread '"):
            await client.do("label", where, "name")
    for name in ("", "a\0b", "x" * 201, None):
        with pytest.raises(ConfigError, match="label"):
            await client.do("label", configs[3], name)
    assert await client.do("labels", "thread") == {}


class Notes(TypedDict, total=False):
    """A list that is stored only now and then."""

    log: Annotated[list[str], DeltaChannel(lambda old, new: [*old, *(word for one in new for word in one)])]


async def test_a_graph_continues_from_a_label_after_a_prune(client: Client) -> None:
    memory = chain(Log, count=counts("count")).compile(checkpointer=True)

    def call(state: Any) -> dict[str, Any]:
        return {"log": memory.invoke({"log": []})["log"][-1:]}

    async def acall(state: Any) -> dict[str, Any]:
        return {"log": (await memory.ainvoke({"log": []}))["log"][-1:]}

    builder = chain(Notes, one=says("one"), inner=sync_and_async(call), two=says("two"))
    builder.nodes["inner"].runnable.afunc = acall  # type: ignore[union-attr]
    graph = builder.compile(checkpointer=client.saver)
    for turn in range(3):
        await run_graph(client, graph, {"log": [f"turn {turn}"]}, anywhere())
        if turn == 1:
            (before_inner,) = (
                state for state in (await states_of(client, graph, anywhere()))[:4] if "inner" in state.next
            )
            await client.do("label", before_inner.config, "second call")
    await client.prune(["thread"])
    where = (await client.do("labels", "thread"))["second call"]
    assert (await state_of(client, graph, where)).values == before_inner.values
    # The subgraph's memory is that of the label, although it has counted to 3 since.
    await run_graph(client, graph, None, where)
    newest = await state_of(client, graph, anywhere())
    assert newest.values["log"] == ["turn 0", "one", "count 1", "two", "turn 1", "one", "count 2", "two"]


async def test_deleting_a_run_or_a_thread_deletes_its_labels(client: Client, next_id: NextId) -> None:
    first = await put(client, next_id(), meta=metadata(run_id="one"))
    second = await put(client, next_id(), parent=first, meta=metadata(run_id="two"))
    await client.do("label", first, "first")
    await client.do("label", second, "second")
    await client.delete_for_runs(["one"])
    assert await client.do("labels", "thread") == {"second": second}
    assert ids_of(await client.all(anywhere())) == ids_of([second])
    await client.delete_thread("thread")
    assert await client.do("labels", "thread") == {}


async def test_a_subgraph_that_waits_at_a_label_continues_after_a_prune(client: Client) -> None:
    calls: list[str] = []
    call = chain(Log, low=says("low", calls), ask=asks("name")).compile()
    graph = chain(Log, call=call).compile(checkpointer=client.saver)
    await run_graph(client, graph, {"log": []}, anywhere())
    where = await client.do("label", (await state_of(client, graph, anywhere())).config, "asked")
    await run_graph(client, graph, {"log": ["other"]}, anywhere())
    await client.prune(["thread"])
    calls.clear()
    await run_graph(client, graph, Command(resume="Ada"), where)
    assert calls == []
    assert (await state_of(client, graph, anywhere())).values["log"][-1] == "name: Ada"
