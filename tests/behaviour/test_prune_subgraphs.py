"""Namespaces of finished subgraph calls are deleted with the root checkpoint that started them."""

from __future__ import annotations

from langchain_core.runnables import RunnableConfig

from tests.behaviour.helpers import Database, NextId, anywhere, config, get, id_of, metadata, next_uuid, put
from tests.stores import Client


async def put_call(client: Client, next_id: NextId, ns: str, root: RunnableConfig, length: int = 2) -> list[str]:
    """The checkpoints of a subgraph call that a root checkpoint started, each with a blob and a write."""
    ids = []
    parent = None
    for step in range(length):
        meta = metadata(step, parents={"": id_of(root)})
        parent = await put(client, next_id(), {"a": [step]}, ns=ns, parent=parent, meta=meta)
        await client.put_writes(parent, [("a", step)], "task")
        ids.append(id_of(parent))
    return ids


async def namespaces(client: Client) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for each in await client.all(anywhere()):
        found.setdefault(each.config["configurable"]["checkpoint_ns"], []).append(id_of(each))
    return found


async def test_a_finished_call_is_deleted_with_its_root_checkpoint(
    client: Client, database: Database, next_id: NextId
) -> None:
    first = await put(client, next_id())
    await put_call(client, next_id, "sub:task-1", first)
    await put_call(client, next_id, "sub:task-1|inner:task-2", first)
    await put_call(client, next_id, "agent|sub:task-3", first)
    second = await put(client, next_id(), parent=first)
    await client.prune(["thread"])
    assert await namespaces(client) == {"": [id_of(second)]}
    assert database.counts() == {"checkpoints": 1, "writes": 0, "blobs": 0}


async def test_an_interrupted_call_of_the_newest_root_checkpoint_stays(client: Client, next_id: NextId) -> None:
    first = await put(client, next_id())
    await put_call(client, next_id, "sub:task-1", first)
    second = await put(client, next_id(), parent=first)
    interrupted = await put_call(client, next_id, "sub:task-2", second)
    inner = await put_call(client, next_id, "sub:task-2|inner:task-3", second)
    before = await get(client, config(ns="sub:task-2"))
    await client.prune(["thread"])
    assert await namespaces(client) == {
        "": [id_of(second)],
        "sub:task-2": interrupted[-1:],
        "sub:task-2|inner:task-3": inner[-1:],
    }
    assert await get(client, config(ns="sub:task-2")) == before._replace(parent_config=None)


async def test_a_subgraph_with_its_own_memory_keeps_its_newest_checkpoint(client: Client, next_id: NextId) -> None:
    """`checkpointer=True`: its namespace has no task id, and its next call continues from there."""
    first = await put(client, next_id())
    remembered = await put_call(client, next_id, "agent", first)
    deeper = await put_call(client, next_id, "agent|deeper", first)
    second = await put(client, next_id(), parent=first)
    await client.prune(["thread"])
    assert await namespaces(client) == {"": [id_of(second)], "agent": remembered[-1:], "agent|deeper": deeper[-1:]}


async def test_a_call_whose_root_checkpoint_is_not_stored_yet_stays(client: Client) -> None:
    """LangGraph saves in the background, and a subgraph may be faster than its parent."""
    await put(client, next_uuid())
    coming = next_uuid()
    call = await put_call(client, next_uuid, "sub:task-1", config(checkpoint_id=coming))
    await client.prune(["thread"])
    assert (await namespaces(client))["sub:task-1"] == call[-1:]
    await put(client, coming)
    await client.prune(["thread"])
    assert await namespaces(client) == {"": [coming], "sub:task-1": call[-1:]}
    newest = await put(client, next_uuid())
    await client.prune(["thread"])
    assert await namespaces(client) == {"": [id_of(newest)]}


async def test_invalid_parents_in_the_metadata_do_not_fail_a_superstep(client: Client) -> None:
    odd: list[object] = [None, "text", [], {"": 5}, {"": None}, {"": {"a": 1}}, {"sub": "1"}]
    for number, parents in enumerate(odd):
        where = await put(client, "1", ns=f"sub:{number}", meta=metadata(parents=parents))
        assert (await get(client, where)).metadata == metadata(parents=parents)
    await client.prune(["thread"])
    assert len(await namespaces(client)) == len(odd)
