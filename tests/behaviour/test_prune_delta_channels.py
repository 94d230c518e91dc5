"""A thread with a `DeltaChannel` is pruned like any other. Ancestors that are still needed stay, but hidden."""

from __future__ import annotations

from typing import Any

import pytest
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.serde.types import _DeltaSnapshot

from langgraph_checkpoint_custom import CheckpointNotFound
from tests.behaviour.helpers import (
    Database,
    NextId,
    anywhere,
    config,
    default_walk,
    delta_history,
    get,
    id_of,
    ids_of,
    metadata,
    next_uuid,
    put,
    put_delta_chain,
)
from tests.stores import Client

pytestmark = pytest.mark.usefixtures("changing_values_in_blobs")

COUNTED = metadata(counters_since_delta_snapshot={"delta": [1, 1]})


async def test_hidden_ancestors_are_neither_listed_nor_the_newest(client: Client, next_id: NextId) -> None:
    chain = await put_delta_chain(client, next_id, 6, {0, 2})
    await client.prune(["thread"])
    for where in (config(), anywhere(), None):
        assert ids_of(await client.all(where)) == [id_of(chain[-1])]
        assert await client.all(where, before=chain[-1]) == []
    assert await client.all(chain[-2]) == []
    assert (await get(client, config())).config == chain[-1]


async def test_hidden_ancestors_are_complete_when_read_by_id(client: Client, next_id: NextId) -> None:
    chain = await put_delta_chain(client, next_id, 6, {0, 2})
    before = [await get(client, where) for where in chain]
    await client.prune(["thread"])
    # The one with the snapshot still names its parent, although no earlier one is needed.
    assert [await client.get_tuple(where) for where in chain] == [None, None, *before[2:]]


async def test_the_history_is_the_same_before_and_after(client: Client, next_id: NextId) -> None:
    cases: list[set[int]] = [{0}, {0, 2}, {0, 4}, {2, 4}, set()]
    for snapshots in cases:
        chain = await put_delta_chain(client, next_id, 6, snapshots, thread_id=str(snapshots))
        expected = {"delta": delta_history(max(snapshots, default=None), 5)}
        for _ in range(3):
            for where in (chain[-1], config(str(snapshots))):
                assert await client.history(where, ["delta"]) == expected
                assert await default_walk(client, where, ["delta"]) == expected
            await client.prune([str(snapshots)])


async def test_hidden_ancestors_have_their_history(client: Client) -> None:
    chain = await put_delta_chain(client, next_uuid, 6, {1})
    await client.prune(["thread"])
    for head in (2, 3, 4, 5):
        expected = {"delta": delta_history(1, head)}
        assert await client.history(chain[head], ["delta"]) == expected
        assert await default_walk(client, chain[head], ["delta"]) == expected


async def test_a_history_of_a_hidden_ancestor_that_reaches_deleted_checkpoints_raises(client: Client) -> None:
    """Never a shorter value: each channel's history is retained as far as the newest checkpoint needs it."""
    counted = metadata(counters_since_delta_snapshot={"often": [1, 1], "seldom": [1, 1]})
    snapshots = [{"seldom", "often"}, {"seldom"}, set(), {"often"}, set()]
    chain: list[RunnableConfig] = []
    for step, channels in enumerate(snapshots):
        values = {channel: _DeltaSnapshot([step]) for channel in channels}
        versions = {"often": str(step), "seldom": str(step)}
        parent = chain[-1] if chain else None
        chain.append(await put(client, next_uuid(), values, parent=parent, versions=versions, meta=counted))
    before = await client.history(chain[4], ["often", "seldom", "unheard of"])
    await client.prune(["thread"])
    assert await client.get_tuple(chain[0]) is None
    assert await client.history(chain[4], ["often", "seldom", "unheard of"]) == before
    for head in (2, 3):
        assert (await client.history(chain[head], ["seldom"]))["seldom"]["seed"] == _DeltaSnapshot([1])
        assert await client.history(chain[head], ["unheard of"]) == {"unheard of": {"writes": []}}
    with pytest.raises(CheckpointNotFound, match=f"'often' of checkpoint '{id_of(chain[2])}'.*pruned"):
        await client.history(chain[2], ["often", "seldom"])
    assert await client.history(chain[3], ["often"]) == {"often": {"writes": []}}  # It has its own value.


async def test_a_run_that_continues_from_a_hidden_ancestor_is_complete_or_refused(
    client: Client, database: Database
) -> None:
    """Deleted checkpoints may be some steps away from where the run continues."""
    counted = metadata(counters_since_delta_snapshot={"often": [1, 1], "seldom": [1, 1]})
    chain = [await put(client, next_uuid(), {"often": _DeltaSnapshot([0])}, versions={"often": "0"})]
    for values in ({"seldom": _DeltaSnapshot([1])}, {}, {"often": _DeltaSnapshot([3])}, {}):
        versions = {"often": str(len(chain)), "seldom": str(len(chain))}
        chain.append(await put(client, next_uuid(), values, parent=chain[-1], versions=versions, meta=counted))
    await client.prune(["thread"])
    before = sorted(database.cells())
    versions = {"often": "x", "seldom": "x"}
    with pytest.raises(CheckpointNotFound, match="'often'"):
        await put(client, next_uuid(), parent=chain[2], versions=versions, meta=counted)
    assert sorted(database.cells()) == before
    for parent, values in ((chain[2], {"often": _DeltaSnapshot([9])}), (chain[3], {})):
        fork = await put(client, next_uuid(), values, parent=parent, versions=versions, meta=counted)
        found = await client.history(fork, ["often", "seldom"])
        assert found["seldom"]["seed"] == _DeltaSnapshot([1])
        assert values or found["often"]["seed"] == _DeltaSnapshot([3])


async def test_a_run_that_continues_after_its_thread_was_deleted_can_be_read_and_pruned(client: Client) -> None:
    """Its first checkpoint names a parent that a deletion removed, not a prune."""
    deleted = await put(client, next_uuid(), versions={"delta": "0"}, meta=COUNTED)
    await client.delete_thread("thread")
    chain = [deleted]
    for step in range(1, 4):
        chain.append(await put(client, next_uuid(), parent=chain[-1], versions={"delta": str(step)}, meta=COUNTED))
        await client.put_writes(chain[-1], [("delta", step)], f"task {step}")
    expected = await client.history(config(), ["delta"])
    assert [value for _, _, value in expected["delta"]["writes"]] == [1, 2]
    for _ in range(2):
        await client.prune(["thread"])
        assert await client.history(config(), ["delta"]) == expected
        chain.append(
            await put(client, next_uuid(), parent=chain[-1], versions={"delta": str(len(chain))}, meta=COUNTED)
        )
        expected = await client.history(config(), ["delta"])


async def test_a_snapshot_in_the_newest_checkpoint_needs_no_ancestor(client: Client, database: Database) -> None:
    await put_delta_chain(client, next_uuid, 6, {0, 5})
    await client.prune(["thread"])
    assert database.counts() == {"checkpoints": 1, "writes": 2, "blobs": 2}


async def test_a_later_prune_deletes_hidden_ancestors_once_a_newer_snapshot_covers_them(
    client: Client, database: Database, next_id: NextId
) -> None:
    chain = await put_delta_chain(client, next_id, 4, {0})
    await client.prune(["thread"])
    assert database.count("checkpoints") == 4
    snapshot = await put(client, next_id(), {"delta": _DeltaSnapshot([0, 1, 2, 3])}, parent=chain[-1])
    await client.put_writes(snapshot, [("delta", 4)], "task 4")
    head = await put(client, next_id(), parent=snapshot, versions={"delta": "5"}, meta=COUNTED)
    expected = await client.history(head, ["delta"])
    await client.prune(["thread"])
    assert database.counts() == {"checkpoints": 2, "writes": 1, "blobs": 1}
    assert [await client.get_tuple(where) for where in chain] == [None] * 4
    assert (await get(client, snapshot)).parent_config == chain[-1]
    assert await client.history(head, ["delta"]) == await default_walk(client, head, ["delta"]) == expected


async def test_a_later_prune_keeps_hidden_ancestors_until_a_snapshot_covers_them(client: Client) -> None:
    chain = await put_delta_chain(client, next_uuid, 4, {1})
    for step in range(4, 7):
        await client.prune(["thread"])
        head = await put(client, next_uuid(), parent=chain[-1], versions={"delta": str(step)}, meta=COUNTED)
        await client.put_writes(head, [("delta", step)], f"task {step}", f"path {step}")
        chain.append(head)
        assert ids_of(await client.all(config())) == ids_of([chain[-1], chain[-2]])
    await client.prune(["thread"])
    assert await client.history(config(), ["delta"]) == {"delta": delta_history(1, 6)}
    assert await default_walk(client, config(), ["delta"]) == {"delta": delta_history(1, 6)}


async def test_each_channel_needs_its_ancestors_back_to_its_own_seed(client: Client) -> None:
    both = metadata(counters_since_delta_snapshot={"x": [1, 1], "y": [1, 1]})
    seeds: list[dict[str, Any]] = [{"x": 0}, {"y": _DeltaSnapshot("y1")}, {"x": _DeltaSnapshot("x2")}, {}, {}]
    chain: list[RunnableConfig] = []
    for step, values in enumerate(seeds):
        versions = {"x": str(step), "y": str(step)}
        parent = chain[-1] if chain else None
        chain.append(await put(client, next_uuid(), values, parent=parent, versions=versions, meta=both))
        await client.put_writes(chain[-1], [("x", step), ("y", step)], f"task {step}")
    before = await client.history(chain[-1], ["x", "y"])
    assert (before["x"]["seed"], before["y"]["seed"]) == (_DeltaSnapshot("x2"), _DeltaSnapshot("y1"))
    await client.prune(["thread"])
    assert await client.history(chain[-1], ["x", "y"]) == await default_walk(client, chain[-1], ["x", "y"]) == before
    assert [await client.get_tuple(where) is not None for where in chain] == [False, True, True, True, True]


async def test_a_plain_value_from_before_the_channel_was_a_delta_channel_is_a_seed(client: Client) -> None:
    for number, seed in enumerate([[0, 1], "small", None, 0]):
        thread_id = str(number)
        old = await put(client, next_uuid(), {"delta": ["too old"]}, thread_id=thread_id)
        migrated = await put(client, next_uuid(), {"delta": seed}, thread_id=thread_id, parent=old)
        await client.put_writes(migrated, [("delta", 2)], "task")
        versions = {"delta": "3"}
        head = await put(client, next_uuid(), thread_id=thread_id, parent=migrated, versions=versions, meta=COUNTED)
        await client.prune([thread_id])
        expected = {"delta": {"writes": [("task", "delta", 2)], "seed": seed}}
        assert await client.history(head, ["delta"]) == await default_walk(client, head, ["delta"]) == expected
        assert await client.get_tuple(old) is None


async def test_only_the_branch_of_the_newest_checkpoint_is_needed(client: Client, next_id: NextId) -> None:
    chain = await put_delta_chain(client, next_id, 4, {0})
    side = await put(client, next_id(), parent=chain[1], versions={"delta": "side"}, meta=COUNTED)
    await client.put_writes(side, [("delta", "side")], "task side")
    head = await put(client, next_id(), parent=chain[3], versions={"delta": "head"}, meta=COUNTED)
    await client.prune(["thread"])
    assert await client.history(head, ["delta"]) == {"delta": delta_history(0, 4)}
    assert await client.get_tuple(side) is None
    assert all([await client.get_tuple(where) for where in chain])


async def test_a_fork_from_a_hidden_checkpoint_is_complete(client: Client, next_id: NextId) -> None:
    chain = await put_delta_chain(client, next_id, 5, {1})
    await client.prune(["thread"])
    fork = await put(client, next_id(), parent=chain[3], versions={"delta": "fork"}, meta=COUNTED)
    for _ in range(2):
        assert await client.history(fork, ["delta"]) == {"delta": delta_history(1, 4)}
        assert await default_walk(client, fork, ["delta"]) == {"delta": delta_history(1, 4)}
        await client.prune(["thread"])
    assert ids_of(await client.all(config())) == [id_of(fork)]
    assert await client.get_tuple(chain[4]) is None


async def test_every_namespace_has_its_own_hidden_ancestors(client: Client) -> None:
    root = await put_delta_chain(client, next_uuid, 4, {0})
    agent = await put_delta_chain(client, next_uuid, 4, {0, 3}, ns="agent")
    other = await put_delta_chain(client, next_uuid, 4, {0}, thread_id="other")
    await client.prune(["thread"])
    assert await client.history(root[-1], ["delta"]) == {"delta": delta_history(0, 3)}
    assert [await client.get_tuple(where) is not None for where in agent] == [False, False, False, True]
    assert ids_of(await client.all(config("other"))) == ids_of(other)[::-1]


async def test_delete_removes_hidden_checkpoints_too(client: Client, database: Database) -> None:
    await put_delta_chain(client, next_uuid, 4, {0})
    await client.prune(["thread"])
    await client.prune(["thread"], strategy="delete")
    assert database.counts() == {"checkpoints": 0, "writes": 0, "blobs": 0}


@pytest.mark.leaves_values("a checkpoint that is stored again with other versions leaves its old values")
async def test_a_hidden_checkpoint_that_is_stored_again_is_no_longer_hidden(client: Client) -> None:
    chain = await put_delta_chain(client, next_uuid, 3, {0})
    await client.prune(["thread"])
    await put(client, id_of(chain[1]), parent=chain[0], versions={"delta": "again"}, meta=COUNTED)
    assert ids_of(await client.all(config())) == ids_of([chain[2], chain[1]])
