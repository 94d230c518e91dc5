"""A suite for `get_delta_channel_history` in the form of `langgraph-checkpoint-conformance`, which (0.0.2) has none.

Each test takes a saver, of which it calls only async methods, and a function that makes checkpoint ids. It uses its own
threads, so that all tests can run on one database. Where LangGraph's default walk ends, its answer is compared, too.

The checkpoints are those that LangGraph stores for `DeltaChannel`s: each superstep that wrote a channel gives it a new
version, mostly without a value, and counts the supersteps in the metadata.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any
from uuid import uuid4

from langgraph.checkpoint.serde.types import _DeltaSnapshot

from tests.conformance.delta_threads import EMPTY, LARGE, SMALL, Ids, Saver, Thread, written

DeltaHistoryTest = Callable[[Saver, Ids], Awaitable[None]]


# Which ancestors count


async def test_writes_come_oldest_first(saver: Saver, ids: Ids) -> None:
    thread = Thread(saver, ids)
    for step in range(12):
        await thread.step(("log", f"{step} a"), ("log", f"{step} b"))
    history = await thread.history(await thread.step())
    assert written(history) == [f"{step} {end}" for step in range(12) for end in "ab"]
    assert history["log"]["writes"][0] == ("task", "log", "0 a")


async def test_the_targets_own_writes_are_left_out(saver: Saver, ids: Ids) -> None:
    thread = Thread(saver, ids)
    await thread.step(("log", "before"))
    target = await thread.step(("log", "pending"))
    await thread.step(("log", "after"))
    assert written(await thread.history(target)) == ["before"]


async def test_the_targets_own_value_is_not_the_seed(saver: Saver, ids: Ids) -> None:
    thread = Thread(saver, ids)
    await thread.step(("log", "a"), values={"log": ["old"]})
    target = await thread.step(values={"log": ["new"]})
    assert await thread.history(target) == {"log": {"writes": [("task", "log", "a")], "seed": ["old"]}}


async def test_the_seed_ancestors_own_writes_are_included(saver: Saver, ids: Ids) -> None:
    thread = Thread(saver, ids)
    await thread.step(("log", "subsumed"))
    await thread.step(("log", "on the seed"), values={"log": _DeltaSnapshot(["subsumed"])})
    await thread.step(("log", "later"))
    history = await thread.history(await thread.step())
    assert written(history) == ["on the seed", "later"]
    assert history["log"]["seed"] == _DeltaSnapshot(["subsumed"])


async def test_the_nearest_value_is_the_seed(saver: Saver, ids: Ids) -> None:
    thread = Thread(saver, ids)
    for step in range(9):
        await thread.step(("log", step), values={"log": _DeltaSnapshot([step])} if step % 3 == 0 else None)
    history = await thread.history(await thread.step())
    assert history["log"].get("seed") == _DeltaSnapshot([6])
    assert written(history) == [6, 7, 8]


async def test_each_channel_has_its_own_seed(saver: Saver, ids: Ids) -> None:
    channels = ("near", "far", "none", "small")
    values: dict[int, dict[str, Any]] = {
        1: {"far": _DeltaSnapshot("far"), "near": ["too far"], "small": "too far"},
        3: {"small": 3},
        5: {"near": ["near"]},
    }
    thread = Thread(saver, ids, channels)
    for step in range(7):
        await thread.step(*((channel, step) for channel in channels), values=values.get(step))
    history = await thread.history(await thread.step())
    assert {channel: history[channel].get("seed", "no seed") for channel in channels} == {
        "near": ["near"],
        "far": _DeltaSnapshot("far"),
        "none": "no seed",
        "small": 3,
    }
    assert {channel: written(history, channel) for channel in channels} == {
        "near": [5, 6],
        "far": [1, 2, 3, 4, 5, 6],
        "none": [0, 1, 2, 3, 4, 5, 6],
        "small": [3, 4, 5, 6],
    }


async def test_seeds_of_several_channels_in_one_ancestor(saver: Saver, ids: Ids) -> None:
    channels = ("inline", "blob", "snapshot", "open")
    thread = Thread(saver, ids, channels)
    values: dict[str, Any] = {"inline": "text", "blob": ["list"], "snapshot": _DeltaSnapshot({"a": 1})}
    await thread.step(("open", 0))
    await thread.step(*((channel, 1) for channel in channels), values=values)
    history = await thread.history(await thread.step())
    assert {channel: entry["seed"] for channel, entry in history.items() if "seed" in entry} == values
    assert {channel: written(history, channel) for channel in channels} == {
        "inline": [1],
        "blob": [1],
        "snapshot": [1],
        "open": [0, 1],
    }


async def test_without_a_stored_value_there_is_no_seed_key(saver: Saver, ids: Ids) -> None:
    thread = Thread(saver, ids)
    await thread.step(("log", "a"))
    await thread.step(("log", "b"))
    history = await thread.history(await thread.step())
    assert history == {"log": {"writes": [("task", "log", "a"), ("task", "log", "b")]}}


async def test_the_root_has_no_history(saver: Saver, ids: Ids) -> None:
    thread = Thread(saver, ids)
    root = await thread.step(("log", "pending"), values={"log": ["own"]})
    assert await thread.history(root) == {"log": {"writes": []}}


async def test_an_emptied_channel_is_not_a_seed(saver: Saver, ids: Ids) -> None:
    thread = Thread(saver, ids)
    await thread.step(("log", 0), values={"log": ["full"]})
    await thread.step(("log", 1))
    history = await thread.history(await thread.step())
    assert history["log"]["seed"] == ["full"]
    assert written(history) == [0, 1]


async def test_an_unchanged_snapshot_is_found_at_the_newest_checkpoint_of_its_version(saver: Saver, ids: Ids) -> None:
    thread = Thread(saver, ids, ("log", "other"))
    await thread.step(("other", 0), values={"log": _DeltaSnapshot(["s"])})
    await thread.step(("log", 1), ("other", 1), unchanged=["log"])
    await thread.step(("log", 2))
    history = await thread.history(await thread.step())
    assert history["log"]["seed"] == _DeltaSnapshot(["s"])
    assert (written(history), written(history, "other")) == ([1, 2], [0, 1])


async def test_only_the_requested_channels_are_returned(saver: Saver, ids: Ids) -> None:
    thread = Thread(saver, ids, ("a", "b", "c"))
    await thread.step(("a", 1), ("b", 2), ("c", 3), values={"b": ["seed"]})
    history = await thread.history(await thread.step(), ["c", "a"])
    assert history == {"c": {"writes": [("task", "c", 3)]}, "a": {"writes": [("task", "a", 1)]}}
    assert list(history) == ["c", "a"]


async def test_a_write_that_was_stored_before_its_checkpoint_counts(saver: Saver, ids: Ids) -> None:
    thread = Thread(saver, ids)
    await thread.step(("log", 0))
    early = ids.next()
    await thread.write(early, ("log", "early"))
    await thread.step(checkpoint_id=early)
    assert written(await thread.history(await thread.step())) == [0, "early"]


# What can be a seed


async def _is_read_as_the_seed(saver: Saver, ids: Ids, value: Any) -> None:
    thread = Thread(saver, ids)
    await thread.step(("log", "subsumed"))
    await thread.step(("log", "seeded"), values={"log": value})
    await thread.step(("log", "later"))
    history = await thread.history(await thread.step())
    assert "seed" in history["log"], value
    seed = history["log"]["seed"]
    assert type(seed) is type(value)
    assert seed == value
    assert written(history) == ["seeded", "later"]


async def test_a_small_plain_value_of_a_migrated_channel_is_a_seed(saver: Saver, ids: Ids) -> None:
    for value in SMALL:
        await _is_read_as_the_seed(saver, ids, value)


async def test_a_large_plain_value_of_a_migrated_channel_is_a_seed(saver: Saver, ids: Ids) -> None:
    for value in LARGE:
        await _is_read_as_the_seed(saver, ids, value)


async def test_an_empty_value_is_a_seed(saver: Saver, ids: Ids) -> None:
    for value in EMPTY:
        await _is_read_as_the_seed(saver, ids, value)


async def test_a_stored_none_is_a_seed(saver: Saver, ids: Ids) -> None:
    await _is_read_as_the_seed(saver, ids, None)


async def test_a_snapshot_is_a_seed(saver: Saver, ids: Ids) -> None:
    for held in (["a", "b"], [], None, "x" * 1000, {"a": [1]}):
        await _is_read_as_the_seed(saver, ids, _DeltaSnapshot(held))


# The direction of the walk


async def test_only_writes_of_the_own_branch_count(saver: Saver, ids: Ids) -> None:
    thread = Thread(saver, ids)
    fork = await thread.step(("log", "common"))
    heads = {}
    for branch in ("left", "right"):
        thread.last = fork
        await thread.step(("log", f"{branch} 1"))
        heads[branch] = await thread.step(("log", f"{branch} pending"))
    for branch, head in heads.items():
        assert written(await thread.history(head)) == ["common", f"{branch} 1"]


async def test_a_seed_on_a_side_branch_is_not_the_seed(saver: Saver, ids: Ids) -> None:
    thread = Thread(saver, ids)
    fork = await thread.step(("log", "common"))
    left = await thread.step(("log", "left"))
    # Its id is between those of `left` and its child, but it is on the other branch.
    await thread.put(ids.next(), fork, values={"log": _DeltaSnapshot(["right"])})
    thread.last = left
    history = await thread.history(await thread.step())
    assert history == {"log": {"writes": [("task", "log", "common"), ("task", "log", "left")]}}


async def test_a_parent_may_have_an_id_above_its_childs(saver: Saver, ids: Ids) -> None:
    thread = Thread(saver, ids)
    order = [ids.next() for _ in range(5)]
    chain = [order[3], order[4], order[0], order[2], order[1]]
    for index, checkpoint_id in enumerate(chain):
        await thread.step(("log", index), checkpoint_id=checkpoint_id, values={"log": ["seed"]} if index == 1 else None)
    history = await thread.history(chain[-1])
    assert written(history) == [1, 2, 3]
    assert history["log"]["seed"] == ["seed"]


async def test_a_missing_parent_ends_the_walk(saver: Saver, ids: Ids) -> None:
    thread = Thread(saver, ids)
    thread.last = ids.next()
    await thread.write(thread.last, ("log", "of a checkpoint that is never stored"))
    await thread.step(("log", 1))
    assert await thread.history(await thread.step()) == {"log": {"writes": [("task", "log", 1)]}}


async def test_namespaces_with_the_same_ids_do_not_mix(saver: Saver, ids: Ids) -> None:
    thread_id = str(uuid4())
    spaces = [Thread(saver, ids, thread_id=thread_id, checkpoint_ns=name) for name in ("", "child", "child|child")]
    shared = [ids.next() for _ in range(3)]
    for space in spaces:
        for index, checkpoint_id in enumerate(shared):
            values = {"log": [space.checkpoint_ns]} if space.checkpoint_ns == "child" and index == 1 else None
            await space.step(("log", space.checkpoint_ns), checkpoint_id=checkpoint_id, values=values)
    outer, child, inner = [await space.history(shared[-1]) for space in spaces]
    assert (written(outer), "seed" in outer["log"]) == (["", ""], False)
    assert (written(child), child["log"]["seed"]) == (["child"], ["child"])
    assert (written(inner), "seed" in inner["log"]) == (["child|child"] * 2, False)


async def test_threads_with_the_same_ids_do_not_mix(saver: Saver, ids: Ids) -> None:
    threads = [Thread(saver, ids) for _ in range(2)]
    shared = [ids.next() for _ in range(3)]
    for thread in threads:
        for checkpoint_id in shared:
            await thread.step(("log", thread.thread_id), checkpoint_id=checkpoint_id)
    for thread in threads:
        assert written(await thread.history(shared[-1])) == [thread.thread_id] * 2


async def test_a_chain_that_loops_through_the_target_ends(saver: Saver, ids: Ids) -> None:
    thread = Thread(saver, ids)
    target, middle, far = (ids.next() for _ in range(3))
    await thread.put(target, middle)
    await thread.put(far, target)
    await thread.put(middle, far)
    for checkpoint_id, value in ((target, "target"), (middle, "middle"), (far, "far")):
        await thread.write(checkpoint_id, ("log", value))
    assert written(await thread.history(target, ends=False)) == ["far", "middle"]


async def test_a_checkpoint_that_is_its_own_parent_ends(saver: Saver, ids: Ids) -> None:
    thread = Thread(saver, ids)
    own = ids.next()
    await thread.put(own, own, values={"log": ["own"]})
    await thread.write(own, ("log", "own"))
    assert await thread.history(own, ends=False) == {"log": {"writes": []}}


async def test_a_chain_that_loops_above_the_target_ends_with_each_write_once(saver: Saver, ids: Ids) -> None:
    thread = Thread(saver, ids)
    low, high, target = (ids.next() for _ in range(3))
    await thread.put(low, high)
    await thread.put(high, low)
    await thread.put(target, high)
    await thread.write(low, ("log", "low"))
    await thread.write(high, ("log", "high"))
    assert written(await thread.history(target, ends=False)) == ["low", "high"]


async def test_a_seed_inside_a_loop_is_found_and_the_other_channel_has_each_write_once(saver: Saver, ids: Ids) -> None:
    channels = ("small", "large", "open")
    thread = Thread(saver, ids, channels)
    low, high, target = (ids.next() for _ in range(3))
    await thread.put(low, high)
    await thread.put(high, low, values={"small": "s", "large": ["l"]})
    await thread.put(target, high)
    for checkpoint_id, value in ((low, "low"), (high, "high")):
        await thread.write(checkpoint_id, *((channel, value) for channel in channels))
    history = await thread.history(target, ends=False)
    assert history == {
        "small": {"writes": [("task", "small", "high")], "seed": "s"},
        "large": {"writes": [("task", "large", "high")], "seed": ["l"]},
        "open": {"writes": [("task", "open", "low"), ("task", "open", "high")]},
    }


# The order within a superstep


async def test_parallel_tasks_are_ordered_by_path_then_task_as_python_compares(saver: Saver, ids: Ids) -> None:
    thread = Thread(saver, ids)
    await thread.step()
    paths = ["", "B", "Z", "a", "b", "zebra", "~__pregel_pull, Node", "~__pregel_pull, node"]
    paths += [
        "Ä",
        "ä",
        "é",
        "e\u0301",
        "ß",
        "ＮＯＤＥ",
        "\uffff",
        "\U0001f600",
        "node 10",
        "node 9",
        "a b",
        "a-b",
        "a_b",
    ]
    tasks = [(path, task) for path in paths for task in ("ü", "b", "A", "a", "B")]
    assert sorted(tasks) != tasks
    for path, task in tasks:
        await thread.write(str(thread.last), ("log", [path, task]), task_id=f"{task} {path}", task_path=path)
    history = await thread.history(await thread.step())
    assert written(history) == [[path, task] for path, task in sorted(tasks)]


async def test_writes_of_one_task_are_ordered_by_number(saver: Saver, ids: Ids) -> None:
    thread = Thread(saver, ids)
    await thread.step(*(("log", number) for number in range(120)))
    assert written(await thread.history(await thread.step())) == list(range(120))


async def test_the_order_holds_on_the_seed_and_across_supersteps(saver: Saver, ids: Ids) -> None:
    thread = Thread(saver, ids)
    expected = []
    for step in range(3):
        await thread.step(values={"log": ["seed"]} if step == 0 else None)
        for task in ("z", "a", "M"):
            writes = [("log", f"{step} {task} {number}") for number in range(2)]
            await thread.write(str(thread.last), *writes, task_id=task, task_path=f"path {task}")
        expected += [f"{step} {task} {number}" for task in ("M", "a", "z") for number in range(2)]
    history = await thread.history(await thread.step())
    assert written(history) == expected
    assert history["log"]["seed"] == ["seed"]


# Large histories


async def test_five_thousand_supersteps_back(saver: Saver, ids: Ids) -> None:
    thread = Thread(saver, ids, ("log", "rare"), counted=False)
    for step in range(5000):
        await thread.step(("log", step), values={"rare": ["seed"]} if step == 2500 else None)
    history = await thread.history(await thread.step())
    assert written(history) == list(range(5000))
    assert "seed" not in history["log"]
    assert written(history, "rare") == []
    assert history["rare"].get("seed") == ["seed"]


async def test_the_history_of_six_hundred_channels(saver: Saver, ids: Ids) -> None:
    channels = [f"channel {number}" for number in range(600)]
    thread = Thread(saver, ids, channels)
    await thread.step(*((channel, "subsumed") for channel in channels))
    await thread.step(
        values={channel: ([channel] if n % 2 else channel) for n, channel in enumerate(channels) if n % 3}
    )
    await thread.step(*((channel, channel) for channel in channels))
    history = await thread.history(await thread.step())
    assert list(history) == channels
    for number, channel in enumerate(channels):
        if number % 3:
            assert history[channel]["seed"] == ([channel] if number % 2 else channel)
            assert written(history, channel) == [channel]
        else:
            assert "seed" not in history[channel]
            assert written(history, channel) == ["subsumed", channel]


# Arguments


async def test_without_a_checkpoint_id_the_newest_is_the_target(saver: Saver, ids: Ids) -> None:
    thread = Thread(saver, ids)
    first, second, newest = (ids.next() for _ in range(3))
    # The newest is the one with the highest id, not the one that was stored last.
    for checkpoint_id in (first, newest, second):
        await thread.step(("log", checkpoint_id), checkpoint_id=checkpoint_id)
    assert written(await thread.history(None)) == [first]
    assert await thread.history(None) == await thread.history(newest)


async def test_an_unknown_checkpoint_has_no_history(saver: Saver, ids: Ids) -> None:
    thread = Thread(saver, ids)
    await thread.step(("log", 0), values={"log": ["seed"]})
    await thread.step(("log", 1))
    assert await thread.history(ids.next()) == {"log": {"writes": []}}
    other = Thread(saver, ids, thread_id=thread.thread_id, checkpoint_ns="unknown")
    assert await other.history(None) == {"log": {"writes": []}}
    assert await other.history(thread.last) == {"log": {"writes": []}}


async def test_an_unknown_thread_has_no_history(saver: Saver, ids: Ids) -> None:
    thread = Thread(saver, ids)
    assert await thread.history(None) == {"log": {"writes": []}}
    assert await thread.history(ids.next()) == {"log": {"writes": []}}


async def test_without_channels_the_history_is_empty(saver: Saver, ids: Ids) -> None:
    thread = Thread(saver, ids)
    await thread.step(("log", 0))
    assert await thread.history(await thread.step(), []) == {}


async def test_a_channel_that_is_requested_twice_is_returned_once(saver: Saver, ids: Ids) -> None:
    thread = Thread(saver, ids, ("log", "other"))
    await thread.step(("log", 0), ("other", 0), values={"log": ["seed"]})
    target = await thread.step()
    asked_twice = await thread.history(target, ["log", "other", "log", "log"])
    assert asked_twice == await thread.history(target)
    assert list(asked_twice) == ["log", "other"]


async def test_a_channel_without_any_write_is_empty(saver: Saver, ids: Ids) -> None:
    thread = Thread(saver, ids)
    await thread.step(("log", 0), values={"log": ["seed"]})
    history = await thread.history(await thread.step(), ["unheard of", "log"])
    assert history["unheard of"] == {"writes": []}
    assert history["log"] == {"writes": [("task", "log", 0)], "seed": ["seed"]}


async def test_any_text_can_be_a_channel(saver: Saver, ids: Ids) -> None:
    channels = [
        "Größe",
        "a b",
        'quoted "name"',
        "it's",
        "back\\slash",
        "{a,b}",
        "[1]",
        "NULL",
        "null",
        "%s",
        "1",
        "$.a",
    ]
    channels += ["", " ", "\n", "branch:to:node", "\U0001f600", "A", "a", ";--", "x" * 300]
    thread = Thread(saver, ids, channels)
    await thread.step(*((channel, "subsumed") for channel in channels))
    await thread.step(
        *((channel, channel) for channel in channels),
        values={channel: ([channel] if number % 2 else channel) for number, channel in enumerate(channels)},
    )
    history = await thread.history(await thread.step())
    for number, channel in enumerate(channels):
        assert history[channel] == {
            "writes": [("task", channel, channel)],
            "seed": [channel] if number % 2 else channel,
        }


ALL_DELTA_HISTORY_TESTS: list[DeltaHistoryTest] = [
    test_writes_come_oldest_first,
    test_the_targets_own_writes_are_left_out,
    test_the_targets_own_value_is_not_the_seed,
    test_the_seed_ancestors_own_writes_are_included,
    test_the_nearest_value_is_the_seed,
    test_each_channel_has_its_own_seed,
    test_seeds_of_several_channels_in_one_ancestor,
    test_without_a_stored_value_there_is_no_seed_key,
    test_the_root_has_no_history,
    test_an_emptied_channel_is_not_a_seed,
    test_an_unchanged_snapshot_is_found_at_the_newest_checkpoint_of_its_version,
    test_only_the_requested_channels_are_returned,
    test_a_write_that_was_stored_before_its_checkpoint_counts,
    test_a_small_plain_value_of_a_migrated_channel_is_a_seed,
    test_a_large_plain_value_of_a_migrated_channel_is_a_seed,
    test_an_empty_value_is_a_seed,
    test_a_stored_none_is_a_seed,
    test_a_snapshot_is_a_seed,
    test_only_writes_of_the_own_branch_count,
    test_a_seed_on_a_side_branch_is_not_the_seed,
    test_a_parent_may_have_an_id_above_its_childs,
    test_a_missing_parent_ends_the_walk,
    test_namespaces_with_the_same_ids_do_not_mix,
    test_threads_with_the_same_ids_do_not_mix,
    test_a_chain_that_loops_through_the_target_ends,
    test_a_checkpoint_that_is_its_own_parent_ends,
    test_a_chain_that_loops_above_the_target_ends_with_each_write_once,
    test_a_seed_inside_a_loop_is_found_and_the_other_channel_has_each_write_once,
    test_parallel_tasks_are_ordered_by_path_then_task_as_python_compares,
    test_writes_of_one_task_are_ordered_by_number,
    test_the_order_holds_on_the_seed_and_across_supersteps,
    test_five_thousand_supersteps_back,
    test_the_history_of_six_hundred_channels,
    test_without_a_checkpoint_id_the_newest_is_the_target,
    test_an_unknown_checkpoint_has_no_history,
    test_an_unknown_thread_has_no_history,
    test_without_channels_the_history_is_empty,
    test_a_channel_that_is_requested_twice_is_returned_once,
    test_a_channel_without_any_write_is_empty,
    test_any_text_can_be_a_channel,
]

# The test is right: `InMemorySaver` and the default walk follow a chain that loops, and do not end.
LOOPS: frozenset[DeltaHistoryTest] = frozenset(
    {
        test_a_chain_that_loops_through_the_target_ends,
        test_a_checkpoint_that_is_its_own_parent_ends,
        test_a_chain_that_loops_above_the_target_ends_with_each_write_once,
        test_a_seed_inside_a_loop_is_found_and_the_other_channel_has_each_write_once,
    }
)
