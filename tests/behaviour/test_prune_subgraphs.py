"""Namespaces of finished subgraph calls go with the root checkpoint that started them."""

from __future__ import annotations

from langchain_core.runnables import RunnableConfig

from tests.behaviour.helpers import Database, NextId, anywhere, config, get, id_of, ids_of, metadata, next_uuid, put
from tests.stores import Face


async def put_call(face: Face, next_id: NextId, ns: str, root: RunnableConfig, length: int = 2) -> list[str]:
    """The checkpoints of a subgraph call that a root checkpoint started, each with a blob and a write."""
    ids = []
    parent = None
    for step in range(length):
        meta = metadata(step, parents={"": id_of(root)})
        parent = await put(face, next_id(), {"a": [step]}, ns=ns, parent=parent, meta=meta)
        await face.put_writes(parent, [("a", step)], "task")
        ids.append(id_of(parent))
    return ids


async def namespaces(face: Face) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for each in await face.all(anywhere()):
        found.setdefault(each.config["configurable"]["checkpoint_ns"], []).append(id_of(each))
    return found


async def test_a_finished_call_goes_with_its_root_checkpoint(face: Face, database: Database, next_id: NextId) -> None:
    first = await put(face, next_id())
    await put_call(face, next_id, "sub:task-1", first)
    await put_call(face, next_id, "sub:task-1|inner:task-2", first)
    await put_call(face, next_id, "agent|sub:task-3", first)
    second = await put(face, next_id(), parent=first)
    await face.prune(["thread"])
    assert await namespaces(face) == {"": [id_of(second)]}
    assert database.counts() == {"checkpoints": 1, "writes": 0, "blobs": 0}


async def test_an_interrupted_call_of_the_newest_root_checkpoint_stays(face: Face, next_id: NextId) -> None:
    first = await put(face, next_id())
    await put_call(face, next_id, "sub:task-1", first)
    second = await put(face, next_id(), parent=first)
    interrupted = await put_call(face, next_id, "sub:task-2", second)
    inner = await put_call(face, next_id, "sub:task-2|inner:task-3", second)
    before = await get(face, config(ns="sub:task-2"))
    await face.prune(["thread"])
    assert await namespaces(face) == {
        "": [id_of(second)],
        "sub:task-2": interrupted[-1:],
        "sub:task-2|inner:task-3": inner[-1:],
    }
    assert await get(face, config(ns="sub:task-2")) == before._replace(parent_config=None)


async def test_a_subgraph_with_a_memory_of_its_own_keeps_its_newest(face: Face, next_id: NextId) -> None:
    """`checkpointer=True`: its namespace has no task id, and its next call goes on from there."""
    first = await put(face, next_id())
    remembered = await put_call(face, next_id, "agent", first)
    deeper = await put_call(face, next_id, "agent|deeper", first)
    second = await put(face, next_id(), parent=first)
    await face.prune(["thread"])
    assert await namespaces(face) == {"": [id_of(second)], "agent": remembered[-1:], "agent|deeper": deeper[-1:]}


async def test_a_call_whose_root_checkpoint_is_still_to_come_stays(face: Face) -> None:
    """LangGraph saves in the background, and a subgraph may be faster than its parent."""
    await put(face, next_uuid())
    coming = next_uuid()
    call = await put_call(face, next_uuid, "sub:task-1", config(checkpoint_id=coming))
    await face.prune(["thread"])
    assert (await namespaces(face))["sub:task-1"] == call[-1:]
    await put(face, coming)
    await face.prune(["thread"])
    assert await namespaces(face) == {"": [coming], "sub:task-1": call[-1:]}
    newest = await put(face, next_uuid())
    await face.prune(["thread"])
    assert await namespaces(face) == {"": [id_of(newest)]}


async def test_a_call_without_a_word_of_its_root_stays(face: Face) -> None:
    await put(face, next_uuid())
    (only,) = ids_of([await put(face, next_uuid(), ns="sub:task-1")])
    newest = await put(face, next_uuid())
    await face.prune(["thread"])
    assert await namespaces(face) == {"sub:task-1": [only], "": [id_of(newest)]}


async def test_calls_of_another_thread_are_its_own(face: Face) -> None:
    first = await put(face, next_uuid())
    await put(face, id_of(first), thread_id="other")
    meta = metadata(parents={"": id_of(first)})
    for thread_id in ("thread", "other"):
        await put(face, next_uuid(), thread_id=thread_id, ns="sub:task-1", meta=meta)
    await put(face, next_uuid())
    await face.prune(["thread", "other"])
    assert "sub:task-1" not in await namespaces(face)
    assert len(await face.all(anywhere("other"))) == 2


async def test_odd_parents_fail_no_superstep(face: Face) -> None:
    odd: list[object] = [None, "text", [], {"": 5}, {"": None}, {"": {"a": 1}}, {"sub": "1"}]
    for number, parents in enumerate(odd):
        where = await put(face, "1", ns=f"sub:{number}", meta=metadata(parents=parents))
        assert (await get(face, where)).metadata == metadata(parents=parents)
    await face.prune(["thread"])
    assert len(await namespaces(face)) == len(odd)
