"""An overlay has in memory what a run of a thread reads, and writes nothing to the saver."""

from __future__ import annotations

import copy
from collections import OrderedDict
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from typing import Annotated, Any, TypedDict

import pytest
from langchain_core.messages import HumanMessage
from langchain_core.runnables import RunnableConfig
from langgraph.channels import DeltaChannel
from langgraph.checkpoint.serde.encrypted import EncryptedSerializer
from langgraph.checkpoint.serde.types import INTERRUPT, RESUME, TASKS, _DeltaSnapshot
from langgraph.types import Command, StateSnapshot

from langgraph_checkpoint_custom import CheckpointNotFound, aoverlay, overlay
from langgraph_checkpoint_custom.encoding.extensions import UnreadableValue
from tests.behaviour.helpers import (
    LONG,
    Database,
    NextId,
    anywhere,
    checkpoint,
    config,
    default_walk,
    delta_history,
    get,
    id_of,
    ids_of,
    metadata,
    next_uuid,
    noise,
    put,
    put_chain,
    put_delta_chain,
    run_graph,
    state_of,
    states_of,
)
from tests.graphs.scenarios.deltas import extend, writes
from tests.graphs.scenarios.interrupts import asks
from tests.graphs.scenarios.nodes import Log, chain, says
from tests.graphs.scenarios.subgraphs import Outer, counts, inside
from tests.stores import Client, Store

pytestmark = pytest.mark.usefixtures("changing_values_in_blobs")


async def over(client: Client, where: RunnableConfig | None = None) -> Client:
    made = overlay if client.api == "sync" else aoverlay
    found: Any = made(client.saver, where or config())  # type: ignore[arg-type]
    return Client(await found if client.api == "async" else found, client.api)


async def test_an_overlay_has_the_newest_checkpoint_and_writes_nothing_to_the_saver(
    client: Client, database: Database, next_id: NextId
) -> None:
    chained = await put_chain(client, next_id, 3, values={"v": [LONG]})
    await client.put_writes(chained[2], [("v", 1)], "task")
    await put(client, next_id(), {"v": 1}, thread_id="other")
    before = sorted(database.cells())
    trial = await over(client)
    newest = await get(trial, config())
    assert newest == await get(client, config())
    assert ids_of(await trial.all(None)) == ids_of(chained[2:])
    # The copy does not have to write an unchanged value again.
    versions = newest.checkpoint["channel_versions"]
    where = await put(trial, next_id(), {"v": [LONG]}, parent=newest.config, versions=versions, new={})
    await trial.put_writes(where, [("v", 2)], "task")
    await trial.put_writes(chained[2], [("v", 2), ("w", 3)], "task")
    found = await get(trial, config())
    assert (found.config, found.parent_config) == (where, chained[2])
    assert found.checkpoint["channel_values"] == {"v": [LONG]}
    assert found.pending_writes == [("task", "v", 2)]
    # Writes that exist stay.
    assert (await get(trial, chained[2])).pending_writes == [("task", "v", 1), ("task", "w", 3)]
    await trial.delete_thread("thread")
    assert await trial.get_tuple(config()) is None
    assert sorted(database.cells()) == before


async def test_an_overlay_has_values_in_chunks_and_sends_of_an_old_format(client: Client, next_id: NextId) -> None:
    lines = [noise(900) for _ in range(60)]
    parent = await put(client, next_id(), {"log": lines[:-1]})
    where = await put(client, next_id(), {"log": lines}, parent=parent)
    old = await put(client, next_id(), thread_id="old", v=1)
    await client.put_writes(old, [(TASKS, "send")], "task")
    await put(client, next_id(), thread_id="old", parent=old, v=1)
    assert (await get(await over(client), where)).checkpoint["channel_values"] == {"log": lines}
    trial = await over(client, config("old"))
    assert (await get(trial, config("old"))).checkpoint["channel_values"] == {TASKS: ["send"]}


async def test_an_older_checkpoint_is_copied_by_its_id(client: Client, next_id: NextId) -> None:
    chained = await put_chain(client, next_id, 4, values={"v": [LONG]})
    trial = await over(client, chained[1])
    assert await trial.all(anywhere()) == [await get(client, where) for where in (chained[3], chained[1])]
    with pytest.raises(CheckpointNotFound):
        await over(client, config("thread", next_id()))
    assert await (await over(client, config("unknown"))).all(None) == []


@pytest.mark.parametrize(
    ("options", "tenant"),
    [({}, ""), ({}, "acme"), ({"serde": EncryptedSerializer.from_pycryptodome_aes(key=b"k" * 16)}, "")],
    ids=["plain", "tenant", "encrypted"],
)
async def test_an_overlay_returns_exactly_what_the_saver_returns(
    store: Store, api: str, options: dict[str, Any], tenant: str
) -> None:
    value = [(1, 2), {3}, OrderedDict(a=Decimal("1.10")), date(2026, 1, 2), HumanMessage("hi", id="1"), b"\xff", LONG]
    with store.open(**options) as saver:
        client = Client(saver.for_tenant(tenant) if tenant else saver, api)
        where = await put(client, "1", {"v": value}, meta=metadata(extra=[1, None]))
        await client.put_writes(where, [("v", value)], "task")
        trial = await over(client)
        found = await get(trial, where)
        assert found == await get(client, where)
        later = await put(trial, "2", {"w": value}, parent=where)
        stored = (await get(trial, later)).checkpoint["channel_values"]["w"]
        for each in (found.checkpoint["channel_values"]["v"], (found.pending_writes or [])[0][2], stored):
            assert list(map(type, each)) == list(map(type, value))
            assert each == value


async def test_writes_of_a_resumed_run_are_sorted_into_those_that_are_stored(client: Client, next_id: NextId) -> None:
    where = await put(client, next_id())
    await client.put_writes(where, [("a", 1)], "one", "~1")
    await client.put_writes(where, [(INTERRUPT, "first")], "two", "~2")
    await client.put_writes(where, [("a", 3)], "three", "~3")
    trial = await over(client)
    await trial.put_writes(where, [(INTERRUPT, "second"), (RESUME, "yes")], "two", "~2")
    await trial.put_writes(where, [("x", 0), ("a", 2)], "two", "~2")
    assert (await get(trial, where)).pending_writes == [
        ("one", "a", 1), ("two", RESUME, "yes"), ("two", INTERRUPT, "second"), ("two", "x", 0), ("two", "a", 2),
        ("three", "a", 3),
    ]  # fmt: skip
    assert len((await get(client, where)).pending_writes or []) == 3


@pytest.mark.parametrize("pruned", [False, True])
async def test_delta_channels_are_rebuilt_from_copied_ancestors(client: Client, next_id: NextId, pruned: bool) -> None:
    configs = await put_delta_chain(client, next_id, 6, {0, 2})
    if pruned:
        await client.prune(["thread"])
    trial = await over(client)
    assert await trial.history(configs[5], ["delta"]) == {"delta": delta_history(2, 5)}
    assert sorted(ids_of(await trial.all(anywhere()))) == ids_of(configs[2:])
    meta = metadata(6, counters_since_delta_snapshot={"delta": [1, 1]})
    where = await put(trial, next_id(), parent=configs[5], versions={"delta": "9"}, meta=meta)
    expected = {"delta": delta_history(2, 6)}
    assert await trial.history(where, ["delta"]) == expected
    assert await default_walk(trial, where, ["delta"]) == expected


class Uneven(TypedDict, total=False):
    """Two delta channels with snapshots at different steps."""

    log: Annotated[list[str], DeltaChannel(extend, snapshot_frequency=4)]
    seldom: Annotated[list[str], DeltaChannel(extend, snapshot_frequency=7)]


async def test_every_copied_state_is_complete(client: Client) -> None:
    """The channels have their snapshots at different steps, so one needs other ancestors than the other one."""
    graph = chain(Uneven, one=writes("one", seldom=True))
    stored, states = graph.compile(checkpointer=client.saver), {}
    for turn in range(6):
        await run_graph(client, stored, {"log": ["in"], "seldom": [str(turn)]}, config())
    for state in await states_of(client, stored, config()):
        states[id_of(state.config)] = state.values
    trial = graph.compile(checkpointer=(await over(client)).saver)
    copied = {id_of(state.config): state.values for state in await states_of(client, trial, config())}
    assert len(copied) > 2
    assert copied == {checkpoint_id: states[checkpoint_id] for checkpoint_id in copied}


async def test_a_checkpoint_whose_channel_needs_a_deleted_one_is_refused(client: Client) -> None:
    counted = metadata(counters_since_delta_snapshot={"often": [1, 1], "seldom": [1, 1]})
    snapshots = [{"seldom", "often"}, {"seldom"}, set(), {"often"}, set()]
    configs: list[RunnableConfig] = []
    for step, channels in enumerate(snapshots):
        values = {channel: _DeltaSnapshot([step]) for channel in channels}
        versions = {"often": str(step), "seldom": str(step)}
        parent = configs[-1] if configs else None
        configs.append(await put(client, next_uuid(), values, parent=parent, versions=versions, meta=counted))
    await client.prune(["thread"])
    with pytest.raises(CheckpointNotFound, match=f"'often' of checkpoint '{id_of(configs[2])}'.*pruned"):
        await over(client, configs[2])
    trial = await over(client)
    expected = await client.history(configs[4], ["often", "seldom"])
    assert await trial.history(configs[4], ["often", "seldom"]) == expected


async def test_a_run_from_any_checkpoint_of_a_thread_with_subgraphs_is_as_in_the_store(
    client: Client, database: Database
) -> None:
    memory = chain(Log, count=counts("count"), more=counts("more")).compile(checkpointer=True)
    asking = chain(Log, count=counts("count"), ask=asks("name"), more=says("more")).compile()
    builder = chain(Outer, before=says("before"), memory=inside(memory, "call"), asking=asking, after=says("after"))
    graph = builder.compile(checkpointer=client.saver)
    for name in ("Ada", "Bo", "Cy"):
        await run_graph(client, graph, {"log": [name]}, config())
        if name != "Cy":
            await run_graph(client, graph, Command(resume=name), config())
    states = await states_of(client, graph, config())
    assert len(states) == 16
    for number, state in enumerate(states):
        before = sorted(database.cells())
        results = []
        where = {"configurable": {"thread_id": f"copy {number}", "checkpoint_id": id_of(state.config)}}
        trial = builder.compile(checkpointer=(await over(client, state.config)).saver)
        for on, start in ((trial, state.config), (graph, where)):
            if on is graph:
                assert sorted(database.cells()) == before
                await client.copy_thread("thread", where["configurable"]["thread_id"])
            thread = {"configurable": {"thread_id": start["configurable"]["thread_id"]}}
            first = await state_of(client, on, start, subgraphs=True)
            inner = [task.state.values for task in first.tasks if isinstance(task.state, StateSnapshot)]
            found = [first.values, {"inner": inner}]
            found.append(await run_graph(client, on, None, start))
            found.append(await run_graph(client, on, Command(resume="Di"), thread))
            found.append(await run_graph(client, on, {"log": ["next"]}, thread))
            results.append([*found, (await state_of(client, on, thread)).values])
        assert without_interrupts(results[0]) == without_interrupts(results[1]), state.next


def without_interrupts(results: list[Any]) -> list[Any]:
    """Results without the interrupts, whose ids depend on the thread."""
    return [{key: value for key, value in each.items() if key != "__interrupt__"} for each in results]


async def test_an_overlay_stores_copies_of_values(client: Client, next_id: NextId) -> None:
    trial = await over(client)
    value: dict[str, Any] = {"list": [1]}
    where = await put(trial, next_id(), {"v": value})
    value["list"].append(2)
    found = await get(trial, where)
    assert found.checkpoint["channel_values"] == {"v": {"list": [1]}}
    found.checkpoint["channel_values"]["v"]["list"].append(3)
    # A clone, as LangGraph makes it, reads and stores the same.
    clone = Client(copy.copy(trial.saver), client.api)
    assert (await get(clone, where)).checkpoint["channel_values"] == {"v": {"list": [1]}}
    later = await put(clone, next_id(), {"v": 2}, parent=where)
    assert ids_of([await get(trial, config())]) == ids_of([later])


@dataclass
class Plan:
    """A class that `strict` does not allow."""

    step: int


def test_an_overlay_reads_the_classes_that_are_allowed_later(store: Store) -> None:
    with store.open(strict=True) as saver:
        trial = overlay(saver, config())
        stored = checkpoint("1", {"plan": Plan(1)})
        where = trial.put(config(), stored, metadata(), stored["channel_versions"])
        with pytest.raises(UnreadableValue, match="Plan is not allowed"):
            trial.get_tuple(where)
        found = trial.with_allowlist([(__name__, "Plan")]).get_tuple(where)
        assert found is not None
        assert found.checkpoint["channel_values"] == {"plan": Plan(1)}
