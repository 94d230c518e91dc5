"""After a rollback, the newest state is that of the checkpoint, in all namespaces. Later checkpoints never return."""

from __future__ import annotations

from typing import Annotated, Any, TypedDict

import pytest
from langgraph.channels import DeltaChannel
from langgraph.types import Command, StateSnapshot

from langgraph_checkpoint_custom import CheckpointLabelled, CheckpointNotFound, ConfigError
from tests.behaviour.helpers import (
    Database,
    NextId,
    anywhere,
    config,
    delta_history,
    get,
    id_of,
    ids_of,
    put,
    put_chain,
    put_delta_chain,
    run_graph,
    state_of,
    states_of,
)
from tests.graphs.scenarios.interrupts import asks
from tests.graphs.scenarios.nodes import Log, chain, parallel, says
from tests.graphs.scenarios.subgraphs import Outer, counts
from tests.stores import Client

pytestmark = pytest.mark.usefixtures("changing_values_in_blobs")


def extend(old: list[str], new: list[list[str]]) -> list[str]:
    return [*old, *(word for one in new for word in one)]


class Notes(TypedDict, total=False):
    """A list that is stored with every fourth update only."""

    log: Annotated[list[str], DeltaChannel(extend, snapshot_frequency=4)]


def seen(state: StateSnapshot) -> Any:
    """What can be read of a state, whether it is the newest or named by its id."""
    return state.values, state.next, state.metadata


@pytest.mark.parametrize("schema", [Log, Notes], ids=["plain", "delta"])
async def test_a_thread_can_be_rolled_back_to_any_point(client: Client, schema: type) -> None:
    calls: list[str] = []
    graph = chain(schema, one=says("one", calls), two=says("two", calls)).compile(checkpointer=client.saver)
    for turn in range(3):
        await run_graph(client, graph, {"log": [f"turn {turn}"]}, anywhere())
    states = await states_of(client, graph, anywhere())
    assert len(states) == 12
    for number, state in list(enumerate(states))[1::2]:
        returned = await client.do("rollback", "thread", id_of(state.config))
        assert returned == state.config
        assert seen(await state_of(client, graph, anywhere())) == seen(state)
        assert [seen(each) for each in await states_of(client, graph, anywhere())] == [
            seen(each) for each in states[number:]
        ]
        assert (await get(client, anywhere())).pending_writes == []
    # The last one is from before the first node, so both run again.
    calls.clear()
    await run_graph(client, graph, None, anywhere())
    assert calls == ["one", "two"]
    assert (await state_of(client, graph, anywhere())).values["log"] == ["turn 0", "one", "two"]


async def test_tasks_run_again_and_their_old_outputs_are_deleted(client: Client) -> None:
    calls: list[str] = []
    builder = parallel(Log, left=says("left", calls), right=says("right", calls))
    graph = builder.compile(checkpointer=client.saver)
    await run_graph(client, graph, {"log": []}, anywhere())
    (_, before, _) = await states_of(client, graph, anywhere())
    assert len((await get(client, before.config)).pending_writes or []) == 2
    await client.do("rollback", "thread", id_of(before.config))
    assert (await state_of(client, graph, anywhere())).next == ("left", "right")
    calls.clear()
    await run_graph(client, graph, None, anywhere())
    assert sorted(calls) == ["left", "right"]


async def test_subgraphs_are_rolled_back_too(client: Client) -> None:
    calls: list[str] = []
    memory = chain(Log, count=counts("count")).compile(checkpointer=True)
    call = chain(Log, low=says("low", calls), ask=asks("name")).compile()
    builder = chain(Outer, memory=memory, call=call, end=says("end"))
    graph = builder.compile(checkpointer=client.saver)
    for name in ("Ada", "Bo"):
        await run_graph(client, graph, {"log": [name]}, anywhere())
        await run_graph(client, graph, Command(resume=name), anywhere())
    (point,) = [state for state in await states_of(client, graph, anywhere()) if state.next == ("call",)][1:]
    await client.do("rollback", "thread", id_of(point.config))
    left = await client.all(anywhere())
    assert {found.config["configurable"]["checkpoint_ns"] for found in left} == {"", "memory"}
    assert (await get(client, config(ns="memory"))).checkpoint["channel_values"]["last"] == 1
    assert (await state_of(client, graph, anywhere())).interrupts == ()
    calls.clear()
    await run_graph(client, graph, None, anywhere())  # It raises the interrupt again.
    (question,) = (await state_of(client, graph, anywhere())).interrupts
    assert calls == ["low"]
    await run_graph(client, graph, Command(resume={question.id: "Cy"}), anywhere())
    values = (await state_of(client, graph, anywhere())).values
    assert "name: Cy" in values["log"]
    assert "name: Ada" not in values["log"]
    # The memory continues from where it was.
    await run_graph(client, graph, {"log": []}, anywhere())
    assert (await get(client, config(ns="memory"))).checkpoint["channel_values"]["last"] == 2


async def test_an_open_interrupt_stays_open(client: Client) -> None:
    """No checkpoint came after it, or only one on another branch."""
    graph = chain(Log, ask=asks("name"), end=says("end")).compile(checkpointer=client.saver)
    await run_graph(client, graph, {"log": []}, anywhere())
    asking = await state_of(client, graph, anywhere())
    start = (await states_of(client, graph, anywhere()))[-1]
    await client.do("rollback", "thread", id_of(asking.config))
    assert (await state_of(client, graph, anywhere())).interrupts == asking.interrupts
    await run_graph(client, graph, {"log": ["other"]}, start.config)
    assert (await state_of(client, graph, anywhere())).config != asking.config
    await client.do("rollback", "thread", id_of(asking.config))
    assert (await state_of(client, graph, anywhere())).interrupts == asking.interrupts
    await run_graph(client, graph, Command(resume="Ada"), anywhere())
    assert (await state_of(client, graph, anywhere())).values["log"] == ["name: Ada", "end"]
    # An answer is deleted with its results.
    await client.do("rollback", "thread", id_of(asking.config))
    state = await state_of(client, graph, anywhere())
    assert (state.next, state.interrupts) == (("ask",), ())


async def test_a_rollback_to_a_hidden_or_missing_checkpoint_is_refused(
    client: Client, database: Database, next_id: NextId
) -> None:
    configs = await put_delta_chain(client, next_id, 6, {1})
    await client.do("label", configs[3], "labelled")
    await client.prune(["thread"])
    before = sorted(database.cells())
    for thread_id, checkpoint_id in (
        ("thread", id_of(configs[2])),
        ("thread", "nothing"),
        ("missing", id_of(configs[3])),
    ):
        with pytest.raises(CheckpointNotFound, match=f"'{thread_id}' has no checkpoint '{checkpoint_id}'"):
            await client.do("rollback", thread_id, checkpoint_id)
    with pytest.raises(ConfigError, match="checkpoint_id"):
        await client.do("rollback", "thread", None)
    assert sorted(database.cells()) == before
    await client.do("rollback", "thread", id_of(configs[3]))
    assert ids_of(await client.all(anywhere())) == ids_of([configs[3]])
    assert await client.history(configs[3], ["delta"]) == {"delta": delta_history(1, 3)}
    # Its writes led to checkpoints that were pruned before.
    assert (await get(client, config())).pending_writes == []


async def test_a_rollback_over_a_labelled_checkpoint_is_refused(
    client: Client, database: Database, next_id: NextId
) -> None:
    configs = await put_chain(client, next_id, 4, values={"v": [1]})
    await client.put_writes(configs[0], [("v", 1)], "task")
    inner = await put(client, next_id(), ns="sub")
    await client.do("label", configs[2], "keep")
    await client.do("label", inner, "inside")
    before = sorted(database.cells())
    with pytest.raises(CheckpointLabelled, match=r"was not changed.*'inside', 'keep'.*unlabel"):
        await client.do("rollback", "thread", id_of(configs[0]))
    assert sorted(database.cells()) == before
    await client.do("unlabel", "thread", "inside")
    assert await client.do("rollback", "thread", id_of(configs[2])) == configs[2]
    assert await client.do("labels", "thread") == {"keep": configs[2]}
