"""`get_delta_channel_history` walks the parents back to each channel's nearest stored value."""

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
from langgraph_checkpoint_custom.encoding.objects import Extension
from langgraph_checkpoint_custom.tools.raw import without_classes
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


async def test_the_writes_since_the_seed_come_oldest_first(client: Client, next_id: NextId) -> None:
    chain = await put_delta_chain(client, next_id, 6, {0, 3})
    for head, seed in ((5, 3), (4, 3), (3, 0), (2, 0), (1, 0)):
        assert await client.history(chain[head], ["delta"]) == {"delta": delta_history(seed, head)}
    assert await client.history(config(), ["delta"]) == {"delta": delta_history(3, 5)}


async def test_the_targets_own_writes_and_value_are_left_out(client: Client) -> None:
    chain = await put_delta_chain(client, next_uuid, 1, {0})
    assert await client.history(chain[0], ["delta"]) == {"delta": {"writes": []}}


async def test_no_seed_means_no_key(client: Client) -> None:
    chain = await put_delta_chain(client, next_uuid, 4, set())
    history = await client.history(chain[-1], ["delta", "missing"])
    assert history == {"delta": delta_history(None, 3), "missing": {"writes": []}}


async def test_any_stored_value_is_a_seed(client: Client) -> None:
    """None as well, inline or in a row of its own."""
    for number, seed in enumerate([None, 0, "", [], "small", LONG, [LONG], _DeltaSnapshot(None)]):
        thread_id = str(number)
        await put(client, "0", {"a": ["too old"]}, thread_id=thread_id)
        first = await put(client, "1", {"a": seed}, thread_id=thread_id, parent=config(checkpoint_id="0"))
        await client.put_writes(first, [("a", 1)], "task")
        second = await put(client, "2", thread_id=thread_id, parent=first)
        history = await client.history(second, ["a"])
        assert history == {"a": {"writes": [("task", "a", 1)], "seed": seed}}
        assert type(history["a"]["seed"]) is type(seed)


async def test_side_branches_change_nothing(client: Client, next_id: NextId) -> None:
    chain = await put_delta_chain(client, next_id, 5, {0, 2})
    for parent in chain:
        side = await put(client, next_id(), {"delta": _DeltaSnapshot(["side"])}, parent=parent)
        await client.put_writes(side, [("delta", "side")], "side")
    assert await client.history(chain[-1], ["delta"]) == {"delta": delta_history(2, 4)}


async def test_ids_out_of_order_change_nothing(client: Client, next_id: NextId) -> None:
    """Parents are walked, not ids: a fork of an old checkpoint may have any."""
    ids = [next_id() for _ in range(6)]
    random.Random(3).shuffle(ids)
    chain = await put_delta_chain(client, iter(ids).__next__, 6, {1})
    assert await client.history(chain[-1], ["delta"]) == {"delta": delta_history(1, 5)}
    assert await default_walk(client, chain[-1], ["delta"]) == {"delta": delta_history(1, 5)}


async def test_other_namespaces_and_threads_change_nothing(client: Client) -> None:
    locations: list[dict[str, str]] = [{}, {"ns": "sub"}, {"thread_id": "other"}]
    for number, location in enumerate(locations):
        first = await put(client, "1", {"delta": [number]}, **location)  # type: ignore[arg-type]
        await client.put_writes(first, [("delta", number)], "task")
        await put(client, "2", parent=first, **location)  # type: ignore[arg-type]
    for number, location in enumerate(locations):
        where = config(location.get("thread_id", "thread"), "2", location.get("ns", ""))
        expected = {"delta": {"writes": [("task", "delta", number)], "seed": [number]}}
        assert await client.history(where, ["delta"]) == expected


async def test_several_channels_end_each_at_their_own_seed(client: Client) -> None:
    chain: list[RunnableConfig] = []
    seeds: list[dict[str, Any]] = [{"a": "a0", "b": ["b0"], "c": ["c0"]}, {"b": ["b1"]}, {"a": ["a2"]}, {}, {"d": 1}]
    for step, values in enumerate(seeds):
        chain.append(await put(client, str(step), values, parent=chain[-1] if chain else None))
        await client.put_writes(chain[-1], [(channel, step) for channel in "abc"], f"task {step}")

    def since(channel: str, seed: Any, first: int) -> DeltaChannelHistory:
        return {"writes": [(f"task {step}", channel, step) for step in range(first, 4)], "seed": seed}

    expected: dict[str, DeltaChannelHistory] = {
        "a": since("a", ["a2"], 2),
        "b": since("b", ["b1"], 1),
        "c": since("c", ["c0"], 0),
        "d": {"writes": []},
    }
    for channels in (["a", "b", "c", "d"], ["d", "a"], ["c"], ["b", "c"]):
        history = await client.history(chain[-1], channels)
        assert history == {channel: expected[channel] for channel in channels}
        assert list(history) == channels
        assert await default_walk(client, chain[-1], channels) == history


async def test_it_is_what_langgraphs_own_walk_finds(client: Client, next_id: NextId) -> None:
    """On a random tree with values, deltas and writes here and there."""
    chance = random.Random(11)
    memory = Client(InMemorySaver(), client.api)
    made: list[RunnableConfig] = []
    for step in range(25):
        parent = chance.choice([*made[-3:], None]) if made else None
        values = {channel: [step, channel] for channel in "abc" if chance.random() < 0.25}
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
        assert history == await memory.history(where, ["a", "b", "c", "d"])


async def test_no_channels_are_no_history(client: Client) -> None:
    await put(client, "1")
    assert await client.history(config(), []) == {}


async def test_a_channel_asked_for_twice_is_answered_once(client: Client) -> None:
    await put_delta_chain(client, next_uuid, 3, {0})
    assert await client.history(config(), ["delta", "delta"]) == {"delta": delta_history(0, 2)}


async def test_an_unknown_checkpoint_has_an_empty_history(client: Client) -> None:
    await put(client, "1", {"a": [1]})
    await put(client, "2", parent=config(checkpoint_id="1"))
    for where in (config("missing"), config(ns="nowhere"), config(checkpoint_id="3")):
        assert await client.history(where, ["a"]) == {"a": {"writes": []}}


async def test_a_parent_that_is_not_there_ends_the_walk(client: Client) -> None:
    first = await put(client, "1", parent=config(checkpoint_id="0"))
    await client.put_writes(first, [("a", 1)], "task")
    await put(client, "2", parent=first)
    assert await client.history(config(), ["a"]) == {"a": {"writes": [("task", "a", 1)]}}


async def test_a_chain_that_loops_ends_and_gives_each_write_once(client: Client) -> None:
    for step in ("1", "2", "3"):
        where = await put(client, step, parent=config(checkpoint_id=str(int(step) - 1 or 3)))
        await client.put_writes(where, [("a", step), ("b", step)], "task")
    writes = {channel: {"writes": [("task", channel, "1"), ("task", channel, "2")]} for channel in "ab"}
    assert await client.history(config(checkpoint_id="3"), ["a", "b"]) == writes


async def test_a_chain_that_loops_keeps_its_seeds(client: Client) -> None:
    """The channel `b` has none, so the walk goes round."""
    for step in ("1", "2", "3"):
        values = {"a": ["seed"]} if step == "2" else {}
        where = await put(client, step, values, parent=config(checkpoint_id=str(int(step) - 1 or 3)))
        await client.put_writes(where, [("a", step), ("b", step)], "task")
    target = await put(client, "4", parent=config(checkpoint_id="3"))
    assert await client.history(target, ["a", "b"]) == {
        "a": {"writes": [("task", "a", "2"), ("task", "a", "3")], "seed": ["seed"]},
        "b": {"writes": [("task", "b", "1"), ("task", "b", "2"), ("task", "b", "3")]},
    }


async def test_a_checkpoint_that_is_its_own_parent_has_no_ancestors(client: Client) -> None:
    where = await put(client, "1", {"a": ["own"]}, parent=config(checkpoint_id="1"))
    await client.put_writes(where, [("a", 1)], "task")
    assert await client.history(where, ["a"]) == {"a": {"writes": []}}


async def test_a_chain_that_loops_through_the_target_leaves_out_its_value_and_writes(client: Client) -> None:
    """Ids go down from 4 to 1, so the way back to the target lies among others that follow one another."""
    for step, parent in (("1", "4"), ("2", "1"), ("3", "2"), ("4", "3")):
        where = await put(client, step, {"a": ["own"]} if step == "3" else {}, parent=config(checkpoint_id=parent))
        await client.put_writes(where, [("a", step)], "task")
    expected = [("task", "a", step) for step in ("4", "1", "2")]
    assert await client.history(config(checkpoint_id="3"), ["a"]) == {"a": {"writes": expected}}


@pytest.mark.leaves_writes("of checkpoints that never came")
async def test_writes_without_a_checkpoint_change_nothing(client: Client, next_id: NextId) -> None:
    ids = [next_id() for _ in range(9)]
    chain = await put_delta_chain(client, iter(ids[::2]).__next__, 5, {1})
    for checkpoint_id in ids[1::2]:
        await client.put_writes(config(checkpoint_id=checkpoint_id), [("delta", "never")], "task")
    assert await client.history(chain[-1], ["delta"]) == {"delta": delta_history(1, 4)}


async def test_any_parents_are_walked(client: Client) -> None:
    """Against a walk in Python over random parents, which may be missing, come later by id or make a loop."""
    for seed in range(12):
        chance, thread_id = random.Random(seed), str(seed)
        size = 12
        parents = {n: n - 1 if chance.random() < 0.7 else chance.randrange(-1, size) for n in range(size)}
        held = {n: {channel: [n] for channel in "ab" if chance.random() < 0.15} for n in range(size)}
        for n in range(size):
            parent = config(thread_id, f"{parents[n]:02}")
            where = await put(client, f"{n:02}", held[n], thread_id=thread_id, parent=parent)
            for task in range(chance.randrange(3)):
                await client.put_writes(where, [("a", n), ("b", n)], f"task {task}")
        tasks = {n: (await client.get_tuple(config(thread_id, f"{n:02}"))).pending_writes for n in range(size)}  # type: ignore[union-attr]
        for target in range(size):
            expected: dict[str, Any] = {}
            for channel in "ab":
                entry, seen, here = expected.setdefault(channel, {"writes": []}), {target}, parents[target]
                while here in parents and here not in seen:
                    seen.add(here)
                    entry["writes"][:0] = [write for write in tasks[here] or () if write[1] == channel]
                    if channel in held[here]:
                        entry["seed"] = held[here][channel]
                        break
                    here = parents[here]
            assert await client.history(config(thread_id, f"{target:02}"), ["a", "b"]) == expected, (seed, target)


async def test_its_cost_grows_with_the_distance_to_the_seed(store: Store, client: Client) -> None:
    await put_delta_chain(client, next_uuid, 30, {0, 26})
    serde = CountingSerializer()
    with open_saver(store.url, serde=serde) as other:
        assert await Client(other, client.api).history(config(), ["delta"]) == {"delta": delta_history(26, 29)}
    assert serde.loaded == 4  # Three writes and the seed.


async def test_what_is_stored_inline_beside_the_seed_costs_one_document(store: Store, client: Client) -> None:
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
    clone = Client(without_classes(client.saver), client.api)  # type: ignore[type-var]
    first = await put(client, "0")
    await client.put_writes(first, [("a", [HumanMessage("hello")]), ("a", 7)], "task")
    second = await put(client, "1", parent=first)
    (message, number) = [value for _, _, value in (await clone.history(second, ["a"]))["a"]["writes"]]
    assert isinstance(message[0], Extension)
    assert number == 7
