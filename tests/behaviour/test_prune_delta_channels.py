"""A thread with a `DeltaChannel` is pruned like any other. Ancestors that are still needed stay, but hidden."""

from __future__ import annotations

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


@pytest.mark.leaves_values("a checkpoint that is stored again with other versions leaves its old values")
async def test_a_hidden_checkpoint_that_is_stored_again_is_no_longer_hidden(client: Client) -> None:
    chain = await put_delta_chain(client, next_uuid, 3, {0})
    await client.prune(["thread"])
    await put(client, id_of(chain[1]), parent=chain[0], versions={"delta": "again"}, meta=COUNTED)
    assert ids_of(await client.all(config())) == ids_of([chain[2], chain[1]])
