"""`copy_thread` copies everything, in one step, to a thread that has no checkpoints of its own."""

from __future__ import annotations

from typing import Any

import pytest
from langgraph.checkpoint.base import CheckpointTuple
from langgraph.types import Command

from langgraph_checkpoint_custom import ThreadExists
from tests.behaviour.helpers import (
    LONG,
    Database,
    NextId,
    anywhere,
    config,
    get,
    ids_of,
    metadata,
    next_uuid,
    put,
    run_graph,
)
from tests.graphs.scenarios.interrupts import asks
from tests.graphs.scenarios.nodes import Log, chain
from tests.stores import Client

pytestmark = [
    pytest.mark.leaves_writes("they wait for their checkpoint"),
    pytest.mark.usefixtures("changing_values_in_blobs"),
]


async def make_thread(client: Client, next_id: NextId, thread_id: str = "thread") -> list[str]:
    """Two namespaces, shared blobs, writes, and writes whose checkpoint is not stored yet."""
    ids = [next_id() for _ in range(4)]
    versions = {"a": "1"}
    first = await put(
        client, ids[0], {"a": [LONG]}, thread_id=thread_id, versions=versions, meta=metadata(run_id="run")
    )
    second = await put(
        client, ids[1], {"a": [LONG]}, thread_id=thread_id, versions=versions, new={}, parent=first, meta=metadata(1)
    )
    await put(client, ids[2], {"b": "small"}, thread_id=thread_id, ns="sub:1", meta=metadata(parents={"": ids[1]}))
    await client.put_writes(first, [("a", [1]), ("__error__", "no")], "task", "path")
    await client.put_writes(second, [("a", [2])], "task")
    await client.put_writes(config(thread_id, ids[3]), [("a", [3])], "task")
    return ids


def moved(found: CheckpointTuple, thread_id: str) -> CheckpointTuple:
    """The tuple as it would be in another thread."""

    def move(where: Any) -> Any:
        return where and {"configurable": {**where["configurable"], "thread_id": thread_id}}

    return found._replace(config=move(found.config), parent_config=move(found.parent_config))


async def everything(client: Client, thread_id: str) -> list[CheckpointTuple]:
    return list(await client.all(anywhere(thread_id)))


async def test_everything_is_copied_and_the_source_is_unchanged(client: Client, next_id: NextId) -> None:
    ids = await make_thread(client, next_id)
    source = await everything(client, "thread")
    await client.copy_thread("thread", "copy")
    assert await everything(client, "thread") == source
    copy = await everything(client, "copy")
    assert copy == [moved(found, "copy") for found in source]
    assert ids_of(copy) == ids[2::-1]
    await put(client, ids[3], thread_id="copy")
    assert (
        await get(client, config("copy"))
    ).pending_writes == []  # That write was to a checkpoint that did not exist.


async def test_a_target_with_its_own_checkpoints_is_refused(client: Client, database: Database) -> None:
    await make_thread(client, next_uuid)
    await put(client, next_uuid(), {"a": [LONG]}, thread_id="other")
    before = sorted(database.cells())
    with pytest.raises(ThreadExists, match="'other'"):
        await client.copy_thread("thread", "other")
    assert sorted(database.cells()) == before
    with pytest.raises(ThreadExists, match="'other'"):
        await client.copy_thread("missing", "other")
    assert sorted(database.cells()) == before


async def test_a_repeat_changes_nothing(client: Client, database: Database) -> None:
    """As after a lost answer. Nor does a copy onto itself."""
    await make_thread(client, next_uuid)
    await client.copy_thread("thread", "copy")
    before = sorted(database.cells())
    await client.copy_thread("thread", "copy")
    await client.copy_thread("thread", "thread")
    assert sorted(database.cells()) == before


@pytest.mark.parametrize("delta", [False, True])
async def test_a_fork_is_not_taken_for_a_copy(client: Client, next_id: NextId, *, delta: bool) -> None:
    counters: dict[str, Any] = {"counters_since_delta_snapshot": {"d": (1, 1)}} if delta else {}
    location = await put(client, next_id(), versions={"d": "1"}, meta=metadata(**counters))
    await client.put_writes(location, [("d", [1])], "task")
    location = await put(client, next_id(), versions={"d": "2"}, parent=location, meta=metadata(1, **counters))
    await client.do("label", location, "here")
    await client.do("fork_thread", "thread", "fork")
    before = await everything(client, "fork")
    with pytest.raises(ThreadExists, match="checkpoints or writes of its own"):
        await client.copy_thread("thread", "fork")
    assert await everything(client, "fork") == before


async def test_the_thread_id_in_the_metadata_becomes_that_of_the_target(client: Client) -> None:
    await put(client, "1", meta=metadata(thread_id="thread"))
    await put(client, "2", meta=metadata(thread_id="somebody else's"))
    await put(client, "3", meta=metadata(mine="thread"))
    await put(client, "4", meta=metadata(thread_id=None))
    await client.copy_thread("thread", "copy")
    await client.copy_thread("copy", "copy of a copy")
    for thread_id in ("thread", "copy", "copy of a copy"):
        found = {each.checkpoint["id"]: each.metadata for each in await client.all(config(thread_id))}
        assert found == {
            "1": metadata(thread_id=thread_id),
            "2": metadata(thread_id="somebody else's"),
            "3": metadata(mine="thread"),
            "4": metadata(thread_id=None),
        }
        for other in ("thread", "copy", "copy of a copy"):
            matching = ids_of(await client.all(config(thread_id), filter={"thread_id": other}))
            assert matching == (["1"] if other == thread_id else [])
        assert ids_of(await client.all(config(thread_id), filter={"thread_id": "somebody else's"})) == ["2"]


@pytest.mark.parametrize(("source", "target"), [("short", "x" * 999), ("x" * 999, "short"), ("it's", 'a "b" \\ c')])
async def test_a_thread_id_of_any_length_can_be_filtered_after_a_copy(client: Client, source: str, target: str) -> None:
    await put(client, "1", thread_id=source, meta=metadata(thread_id=source))
    await client.copy_thread(source, target)
    assert ids_of(await client.all(config(target), filter={"thread_id": target})) == ["1"]
    assert await client.all(config(target), filter={"thread_id": source}) == []
    assert ids_of(await client.all(config(source), filter={"thread_id": source})) == ["1"]


async def test_an_answered_interrupt_is_not_mixed_with_the_next_one(client: Client, database: Database) -> None:
    graph = chain(Log, ask=asks("name", "town")).compile(checkpointer=client.saver)
    await run_graph(client, graph, {"log": []}, anywhere())
    await client.copy_thread("thread", "copy")
    await run_graph(client, graph, Command(resume="Ada"), anywhere())
    before = sorted(database.cells())
    with pytest.raises(ThreadExists, match="writes of its own"):
        await client.copy_thread("thread", "copy")
    assert sorted(database.cells()) == before
