"""`prune` keeps the newest checkpoint of each namespace with its writes, or deletes everything."""

from __future__ import annotations

import pytest

from langgraph_checkpoint_custom import ConfigError
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
    new_versions,
    next_uuid,
    put,
)
from tests.behaviour.helpers import put_chain as put_many
from tests.stores import Client

pytestmark = pytest.mark.usefixtures("changing_values_in_blobs")


async def test_the_newest_of_each_namespace_stays_with_its_writes(client: Client, next_id: NextId) -> None:
    newest = {}
    for ns in ("", "agent", "agent|tool"):
        chain = await put_many(client, next_id, 4, ns=ns, values={"a": [ns], "b": "small"})
        for where in chain:
            await client.put_writes(where, [("a", 1), ("__error__", "no")], "task")
        newest[ns] = (await get(client, chain[-1]))._replace(parent_config=None)
    await client.prune(["thread"])
    for ns, remaining in newest.items():
        assert await client.all(config(ns=ns)) == [remaining]
        assert await get(client, config(ns=ns)) == remaining


async def test_a_prune_leaves_no_rows_of_deleted_checkpoints(client: Client, database: Database) -> None:
    chain = await put_many(client, next_uuid, 4, values={"a": [LONG]})
    for where in chain:
        await client.put_writes(where, [("a", 1)], "task")
    await client.prune(["thread"])
    assert database.counts() == {"checkpoints": 1, "writes": 1, "blobs": 1}
    for where in chain[:-1]:
        assert await client.get_tuple(where) is None


async def test_the_newest_checkpoint_has_the_greatest_id_whatever_was_stored_last(client: Client) -> None:
    for checkpoint_id in ("2", "3", "1"):
        await put(client, checkpoint_id)
    await client.prune(["thread"])
    assert ids_of(await client.all(config())) == ["3"]


async def test_a_checkpoint_whose_parent_was_deleted_has_no_parent(client: Client, next_id: NextId) -> None:
    """So a walk through the parents finds no gap."""
    await put_many(client, next_id, 3)
    await client.prune(["thread"])
    assert (await get(client, config())).parent_config is None


async def test_a_value_shared_with_a_deleted_checkpoint_stays(client: Client, database: Database) -> None:
    versions = new_versions(["shared", "own"])
    first = await put(client, "1", {"shared": [LONG], "own": [LONG, 1]}, versions=versions)
    versions |= new_versions(["own"])
    new = {"own": versions["own"]}
    await put(client, "2", {"shared": [LONG], "own": [LONG, 2]}, parent=first, versions=versions, new=new)
    await client.prune(["thread"])
    assert (await get(client, config())).checkpoint["channel_values"] == {"shared": [LONG], "own": [LONG, 2]}
    assert database.count("blobs") == 2


async def test_the_same_version_in_another_namespace_or_thread_is_another_value(client: Client) -> None:
    configs = [config(), config(ns="agent"), config("other")]
    for where in configs:
        location = where["configurable"]
        options = {"thread_id": location["thread_id"], "ns": location["checkpoint_ns"]}
        for checkpoint_id in ("1", "2"):
            await put(
                client, checkpoint_id, {"a": [checkpoint_id, location, LONG]}, versions={"a": checkpoint_id}, **options
            )
    await client.prune(["thread"])
    for where in configs:
        assert (await get(client, where)).checkpoint["channel_values"] == {"a": ["2", where["configurable"], LONG]}
    assert (await get(client, config("other", "1"))).checkpoint["channel_values"]["a"][0] == "1"


async def test_only_the_named_threads_are_pruned(client: Client) -> None:
    for thread_id in ("a", "b", "c", ""):
        await put_many(client, next_uuid, 2, thread_id=thread_id)
    await client.prune(["a", "c", "missing"])
    assert [len(await client.all(config(thread_id))) for thread_id in ("a", "b", "c", "")] == [1, 2, 1, 2]
    await client.prune([])
    assert [len(await client.all(config(thread_id))) for thread_id in ("a", "b", "c", "")] == [1, 2, 1, 2]
    await client.prune(("b", ""))
    assert [len(await client.all(config(thread_id))) for thread_id in ("a", "b", "c", "")] == [1, 1, 1, 1]


async def test_a_repeat_changes_nothing(client: Client, database: Database) -> None:
    await put_many(client, next_uuid, 3, values={"a": [LONG]})
    await client.prune(["thread"])
    before = sorted(database.cells())
    await client.prune(["thread"])
    assert sorted(database.cells()) == before


async def test_a_run_continues_after_a_prune(client: Client, next_id: NextId) -> None:
    chain = await put_many(client, next_id, 3, values={"a": [LONG]})
    await client.prune(["thread"])
    where = await put(client, next_id(), {"a": [LONG, 2]}, parent=chain[-1])
    assert id_of(await get(client, config())) == id_of(where)
    assert (await get(client, where)).parent_config == chain[-1]
    assert len(await client.all(config())) == 2


async def test_writes_whose_checkpoint_is_not_stored_yet_stay(client: Client) -> None:
    await put_many(client, next_uuid, 2)
    coming = next_uuid()
    await client.put_writes(config(checkpoint_id=coming), [("a", 1)], "task")
    await client.prune(["thread"])
    await put(client, coming)
    assert (await get(client, config())).pending_writes == [("task", "a", 1)]


@pytest.mark.parametrize("strategy", ["delete", "delete_all"])
async def test_delete_leaves_nothing(client: Client, database: Database, strategy: str) -> None:
    for thread_id in ("thread", "other"):
        for ns in ("", "agent"):
            for where in await put_many(client, next_uuid, 2, thread_id=thread_id, ns=ns, values={"a": [LONG]}):
                await client.put_writes(where, [("a", 1)], "task")
    await client.prune(["thread"], strategy=strategy)
    assert await client.all(anywhere()) == []
    assert database.counts() == {"checkpoints": 4, "writes": 4, "blobs": 4}


@pytest.mark.parametrize("strategy", ["", "keep", "KEEP_LATEST", None])
async def test_an_unknown_strategy_is_refused(client: Client, database: Database, strategy: str) -> None:
    await put_many(client, next_uuid, 2)
    before = database.cells()
    for thread_ids in (["thread"], []):
        with pytest.raises(ConfigError, match="strategy"):
            await client.prune(thread_ids, strategy=strategy)
    assert database.cells() == before


async def test_delete_thread_leaves_nothing(client: Client, database: Database) -> None:
    for thread_id in ("thread", "other"):
        for where in await put_many(client, next_uuid, 2, thread_id=thread_id, values={"a": [LONG]}):
            await client.put_writes(where, [("a", 1)], "task")
    await client.put_writes(config(checkpoint_id=next_uuid()), [("a", 1)], "task")
    await client.delete_thread("thread")
    await client.delete_thread("thread")
    await client.delete_thread("missing")
    assert await client.all(anywhere()) == []
    assert database.counts() == {"checkpoints": 2, "writes": 2, "blobs": 2}


async def test_a_prune_does_not_change_metadata(client: Client) -> None:
    where = await put(client, next_uuid(), meta=metadata(5, thread_id="thread", run_id="run", parents={"": "x"}))
    before = await get(client, where)
    await client.prune(["thread"])
    assert await get(client, where) == before
