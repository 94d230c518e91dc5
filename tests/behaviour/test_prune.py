"""`prune` keeps the newest checkpoint of each namespace with its writes, or deletes everything."""

from __future__ import annotations

import pytest

from tests.behaviour.helpers import (
    LONG,
    Database,
    NextId,
    anywhere,
    config,
    get,
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


async def test_a_value_shared_with_a_deleted_checkpoint_stays(client: Client, database: Database) -> None:
    versions = new_versions(["shared", "own"])
    first = await put(client, "1", {"shared": [LONG], "own": [LONG, 1]}, versions=versions)
    versions |= new_versions(["own"])
    new = {"own": versions["own"]}
    await put(client, "2", {"shared": [LONG], "own": [LONG, 2]}, parent=first, versions=versions, new=new)
    await client.prune(["thread"])
    assert (await get(client, config())).checkpoint["channel_values"] == {"shared": [LONG], "own": [LONG, 2]}
    assert database.count("blobs") == 2


@pytest.mark.parametrize("strategy", ["delete", "delete_all"])
async def test_delete_leaves_nothing(client: Client, database: Database, strategy: str) -> None:
    for thread_id in ("thread", "other"):
        for ns in ("", "agent"):
            for where in await put_many(client, next_uuid, 2, thread_id=thread_id, ns=ns, values={"a": [LONG]}):
                await client.put_writes(where, [("a", 1)], "task")
    await client.prune(["thread"], strategy=strategy)
    assert await client.all(anywhere()) == []
    assert database.counts() == {"checkpoints": 4, "writes": 4, "blobs": 4}


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


async def test_invalid_parents_in_the_metadata_do_not_fail_a_superstep(client: Client) -> None:
    """They are of no subgraph call that has ended."""
    odd: list[object] = [None, "text", [], {"": 5}, {"": None}, {"": {"a": 1}}, {"sub": "1"}]
    for number, parents in enumerate(odd):
        where = await put(client, "1", ns=f"sub:{number}", meta=metadata(parents=parents))
        assert (await get(client, where)).metadata == metadata(parents=parents)
    await client.prune(["thread"])
    assert len(await client.all(anywhere())) == len(odd)
