"""`prune` keeps the newest checkpoint of each namespace with its writes, or deletes everything."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest

from tests.behaviour.helpers import (
    LONG,
    Database,
    NextId,
    anywhere,
    config,
    get,
    metadata,
    next_uuid,
    put,
)
from tests.behaviour.helpers import put_chain as put_many
from tests.stores import Client

pytestmark = pytest.mark.usefixtures("changing_values_in_blobs")


async def test_the_newest_of_each_namespace_stays_with_its_writes(
    client: Client, database: Database, next_id: NextId
) -> None:
    newest = {}
    for ns in ("", "agent", "agent|tool"):
        chain = await put_many(client, next_id, 4, ns=ns, values={"a": [LONG, ns], "b": "small"})
        for where in chain:
            await client.put_writes(where, [("a", 1), ("__error__", "no")], "task")
        newest[ns] = (await get(client, chain[-1]))._replace(parent_config=None)
    await client.prune(["thread"])
    for ns, remaining in newest.items():
        assert await client.all(config(ns=ns)) == [remaining]
        assert await get(client, config(ns=ns)) == remaining
    assert database.counts() == {"checkpoints": 3, "writes": 6, "blobs": 3}


DELETIONS: dict[str, Callable[[Client, str], Awaitable[object]]] = {
    "delete_thread": lambda client, thread_id: client.delete_thread(thread_id),
    "delete": lambda client, thread_id: client.prune([thread_id], strategy="delete"),
    "delete_all": lambda client, thread_id: client.prune([thread_id], strategy="delete_all"),
}


@pytest.mark.parametrize("deletion", DELETIONS.values(), ids=DELETIONS)
async def test_a_deletion_leaves_nothing(
    client: Client, database: Database, deletion: Callable[[Client, str], Awaitable[object]]
) -> None:
    for thread_id in ("thread", "other"):
        for ns in ("", "agent"):
            for where in await put_many(client, next_uuid, 2, thread_id=thread_id, ns=ns, values={"a": [LONG]}):
                await client.put_writes(where, [("a", 1)], "task")
    await client.put_writes(config(checkpoint_id=next_uuid()), [("a", 1)], "task")
    for thread_id in ("thread", "thread", "missing"):
        await deletion(client, thread_id)
    assert await client.all(anywhere()) == []
    assert database.counts() == {"checkpoints": 4, "writes": 4, "blobs": 4}


async def test_invalid_parents_in_the_metadata_do_not_fail_a_superstep(client: Client) -> None:
    """They are of no subgraph call that has ended."""
    odd: list[object] = [None, "text", [], {"": 5}, {"": None}, {"": {"a": 1}}, {"sub": "1"}]
    for number, parents in enumerate(odd):
        where = await put(client, "1", ns=f"sub:{number}", meta=metadata(parents=parents))
        assert (await get(client, where)).metadata == metadata(parents=parents)
    await client.prune(["thread"])
    assert len(await client.all(anywhere())) == len(odd)
