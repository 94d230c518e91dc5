"""`get_delta_channel_history` walks random trees as LangGraph's own walk does, and reads no more than it needs."""

from __future__ import annotations

import random
from typing import Any

import pytest
from langchain_core.messages import HumanMessage
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import DeltaChannelHistory
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.serde.types import _DeltaSnapshot

from langgraph_checkpoint_custom import open_saver
from langgraph_checkpoint_custom.encoding.extensions import Extension
from langgraph_checkpoint_custom.encoding.raw import without_classes
from tests.behaviour.helpers import (
    LONG,
    CountingSerializer,
    NextId,
    config,
    default_walk,
    delta_history,
    id_of,
    next_uuid,
    put,
    put_delta_chain,
)
from tests.stores import Client, Store

pytestmark = pytest.mark.usefixtures("changing_values_in_blobs")

# Plain values of a channel that became a `DeltaChannel`, and snapshots: empty ones, and ones below and above the limits
# at which they are stored differently.
SEEDS: list[Any] = [
    *(None, True, 0, -0.5, 2**62, "", "a\0b", "ä" * 300, b"", b"\0" * 300, [], {}, {1, 2}, ["a", {"b": None}], [LONG]),
    *map(_DeltaSnapshot, (None, [], ["a", "b"], {"a": [1]}, LONG)),
]


async def test_a_history_is_what_langgraphs_own_walk_finds(client: Client, next_id: NextId) -> None:
    """On a random tree with some values, deltas and writes."""
    chance = random.Random(11)
    seeds = iter(chance.sample(SEEDS, len(SEEDS)))
    memory = Client(InMemorySaver(), client.api)
    made: list[RunnableConfig] = []
    for step in range(25):
        parent = chance.choice([*made[-3:], None]) if made else None
        values = {channel: next(seeds, [step, channel]) for channel in "abc" if chance.random() < 0.3}
        versions = {channel: f"{step}.{channel}" for channel in "abc"}
        checkpoint_id = next_id()
        for each in (client, memory):
            where = await put(each, checkpoint_id, values, parent=parent, versions=versions)
        writes = [(chance.choice("abcd"), number) for number in range(chance.randrange(4))]
        for task in ("t", "s"):
            for each in (client, memory):
                await each.put_writes(where, writes, f"{task} {step}", task)
        made.append(where)
    for where in made:
        history = await client.history(where, ["a", "b", "c", "d"])
        assert history == await default_walk(client, where, ["a", "b", "c", "d"])
        found_in_memory = await memory.history(where, ["a", "b", "c", "d"])
        assert history == found_in_memory
        assert repr(dict(history)) == repr(dict(found_in_memory)), "1 is not True, and a snapshot is not a tuple"
    assert next(seeds, None) is None, "a value was no seed"


async def test_arguments(client: Client, next_id: NextId) -> None:
    first = await put(client, next_id(), {"a": ["seed"]})
    await client.put_writes(first, [("a", 1), ("b", 2)], "task")
    newest = await put(client, next_id(), parent=first)
    there: dict[str, Any] = {"a": {"writes": [("task", "a", 1)], "seed": ["seed"]}, "b": {"writes": [("task", "b", 2)]}}
    assert await client.history(config(), ["b", "a", "b"]) == there
    assert list(await client.history(newest, ["b", "a", "b"])) == ["b", "a"]
    assert await client.history(newest, []) == {}
    for where in (first, config(checkpoint_id=next_id()), config("another"), config(ns="another")):
        assert await client.history(where, ["a"]) == {"a": {"writes": []}}


async def test_a_long_way_back_with_hundreds_of_channels_of_any_name(client: Client, next_id: NextId) -> None:
    odd = ["Größe", 'quoted "name"', "back\\slash", "{a,b}", "NULL", "%s", ":x", "$1", "\U0001f600", "a\nb", ""]
    channels = [*odd, *(f"channel {number}" for number in range(600))]
    where = await put(client, next_id(), {channel: [channel] for channel in channels})
    for step in range(400):
        if step % 50 == 0:
            await client.put_writes(where, [(channel, step) for channel in channels], "task")
        where = await put(client, next_id(), parent=where)
    history = await client.history(where, channels)
    writes = range(0, 400, 50)
    assert history == {
        channel: {"writes": [("task", channel, step) for step in writes], "seed": [channel]} for channel in channels
    }


async def test_a_chain_of_parents_that_loops_ends(client: Client) -> None:
    """LangGraph stores none, and its own walk would not end."""
    for checkpoint_id, parent_id in ("1", "3"), ("2", "1"), ("3", "2"):
        where = await put(client, checkpoint_id, parent=config(checkpoint_id=parent_id))
        await client.put_writes(where, [("a", checkpoint_id)], "task")
    for checkpoint_id in "123":
        writes = (await client.history(config(checkpoint_id=checkpoint_id), ["a"]))["a"]["writes"]
        assert {value for _, _, value in writes} == {*"123"}


async def test_the_cost_grows_with_the_distance_to_the_seed(store: Store, client: Client) -> None:
    await put_delta_chain(client, next_uuid, 30, {0, 26})
    serde = CountingSerializer()
    with open_saver(store.url, serde=serde) as other:
        assert await Client(other, client.api).history(config(), ["delta"]) == {"delta": delta_history(26, 29)}
    assert serde.loaded == 4  # Three writes and the seed.


async def test_inline_seeds_of_one_checkpoint_cost_one_document(store: Store, client: Client) -> None:
    first = await put(client, "1", {"a": "small", "b": "small"})
    second = await put(client, "2", parent=first)
    serde = CountingSerializer()
    with open_saver(store.url, serde=serde) as other:
        history = await Client(other, client.api).history(second, ["a", "b"])
    assert history == {channel: DeltaChannelHistory(writes=[], seed="small") for channel in "ab"}
    assert serde.loaded == 1
    assert id_of(second) == "2"


async def test_a_raw_reader_makes_no_object_of_a_write(client: Client) -> None:
    """Many writes are decoded together elsewhere; here each stays what was stored."""
    clone = Client(without_classes(client.saver), client.api)
    first = await put(client, "0")
    await client.put_writes(first, [("a", [HumanMessage("hello")]), ("a", 7)], "task")
    second = await put(client, "1", parent=first)
    (message, number) = [value for _, _, value in (await clone.history(second, ["a"]))["a"]["writes"]]
    assert isinstance(message[0], Extension)
    assert number == 7
