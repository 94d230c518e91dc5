"""`get_tuple` gives the newest checkpoint, or exactly the one that was asked for."""

from __future__ import annotations

import random

from langgraph.checkpoint.base import CheckpointTuple

from tests.behaviour.helpers import LONG, NextId, checkpoint, config, get, id_of, metadata, next_uuid, put, put_chain
from tests.stores import Face


async def test_the_newest_is_the_one_with_the_greatest_id(face: Face, next_id: NextId) -> None:
    """Whatever the order in which they were stored."""
    ids = [next_id() for _ in range(12)]
    for checkpoint_id in random.Random(1).sample(ids, len(ids)):
        await put(face, checkpoint_id)
    assert id_of(await get(face, config())) == ids[-1]


async def test_ids_are_compared_by_their_bytes(face: Face) -> None:
    for checkpoint_id in ("a", "Z", "é", "z", "_", "\U0001f642", "\ufffd"):
        await put(face, checkpoint_id)
    assert id_of(await get(face, config())) == "\U0001f642"


async def test_a_checkpoint_comes_back_by_its_id(face: Face, next_id: NextId) -> None:
    ids = [next_id() for _ in range(5)]
    for number, checkpoint_id in enumerate(ids):
        where = await put(face, checkpoint_id, {"list": [number, LONG], "int": number}, meta=metadata(number))
        await face.put_writes(where, [("a", number)], f"task {number}")
    for number, checkpoint_id in enumerate(ids):
        found = await get(face, config(checkpoint_id=checkpoint_id))
        assert id_of(found) == checkpoint_id
        assert found.checkpoint["channel_values"] == {"list": [number, LONG], "int": number}
        assert found.metadata == metadata(number)
        assert found.pending_writes == [(f"task {number}", "a", number)]


async def test_an_unknown_checkpoint_is_none(face: Face, next_id: NextId) -> None:
    unknown = next_id()
    (known,) = await put_chain(face, next_id, 1)
    for where in (
        config("nobody"),
        config(ns="nowhere"),
        config(checkpoint_id=unknown),
        config("nobody", id_of(known)),
        config("thread", id_of(known), "nowhere"),
        config(checkpoint_id=id_of(known)[:-1]),
        config(checkpoint_id=id_of(known).swapcase() + "x"),
    ):
        assert await face.get_tuple(where) is None, where


async def test_a_missing_namespace_is_that_of_the_root_graph(face: Face) -> None:
    await put(face, "1")
    await put(face, "2", ns="sub")
    assert id_of(await get(face, {"configurable": {"thread_id": "thread"}})) == "1"
    assert id_of(await get(face, {"configurable": {"thread_id": "thread", "checkpoint_ns": None}})) == "1"
    await face.put({"configurable": {"thread_id": "thread"}}, checkpoint("3"), metadata(), {})
    assert id_of(await get(face, config(ns=""))) == "3"


async def test_a_checkpoint_id_of_none_is_the_newest(face: Face) -> None:
    await put(face, "1")
    await put(face, "2")
    for nothing in (None, ""):
        where = config()
        where["configurable"]["checkpoint_id"] = nothing
        assert id_of(await get(face, where)) == "2"


async def test_configs_hold_the_three_keys_and_nothing_of_the_callers(face: Face) -> None:
    first, second = await put_chain(face, next_uuid, 2, ns="sub")
    for asked in (config(ns="sub"), second):
        given = {**asked, "tags": ["mine"], "configurable": {**asked["configurable"], "user": "me"}}
        found = await face.get_tuple(given)  # type: ignore[arg-type]
        assert found is not None
        assert found.config == second
        assert found.parent_config == first


async def test_a_checkpoint_without_a_parent_says_so(face: Face) -> None:
    await put(face, "1")
    assert (await get(face, config())).parent_config is None


async def test_two_reads_share_no_object(face: Face) -> None:
    """A graph may change in place what it was given."""
    values = {"list": [LONG, {"a": []}], "small": "x"}
    where = await put(face, "1", values, meta=metadata(nested={"a": [1]}))
    await face.put_writes(where, [("a", [1])], "task")

    def spoil(found: CheckpointTuple) -> None:
        found.checkpoint["channel_values"]["list"].append("spoilt")
        found.checkpoint["channel_versions"].clear()
        found.metadata["nested"]["a"].append("spoilt")  # type: ignore[typeddict-item]
        found.config["configurable"].clear()
        (found.pending_writes or [])[0][2].append("spoilt")

    before = await get(face, where)
    for found in (await get(face, where), *(await face.all(config())), await get(face, config())):
        assert found == before
        spoil(found)
    assert await get(face, where) == before


async def test_listed_checkpoints_share_no_object_either(face: Face) -> None:
    """Also where the database holds their common value once."""
    versions = {"list": "1"}
    first = await put(face, "1", {"list": [LONG]}, versions=versions)
    await put(face, "2", {"list": [LONG]}, parent=first, versions=versions, new={})
    newer, older = await face.all(config())
    newer.checkpoint["channel_values"]["list"].append("spoilt")
    assert older.checkpoint["channel_values"]["list"] == [LONG]
