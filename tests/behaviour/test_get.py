"""`get_tuple` returns the newest checkpoint, or exactly the requested one."""

from __future__ import annotations

import pytest
from langgraph.checkpoint.base import CheckpointTuple

from tests.behaviour.helpers import LONG, NextId, checkpoint, config, get, id_of, metadata, next_uuid, put, put_chain
from tests.stores import Client

pytestmark = pytest.mark.usefixtures("changing_values_in_blobs")


async def test_ids_are_compared_by_their_bytes(client: Client) -> None:
    for checkpoint_id in ("a", "Z", "é", "z", "_", "\U0001f642", "\ufffd"):
        await put(client, checkpoint_id)
    assert id_of(await get(client, config())) == "\U0001f642"


async def test_an_unknown_checkpoint_is_none(client: Client, next_id: NextId) -> None:
    unknown = next_id()
    (known,) = await put_chain(client, next_id, 1)
    for where in (
        config("missing"),
        config(ns="nowhere"),
        config(checkpoint_id=unknown),
        config("missing", id_of(known)),
        config("thread", id_of(known), "nowhere"),
        config(checkpoint_id=id_of(known)[:-1]),
        config(checkpoint_id=id_of(known).swapcase() + "x"),
    ):
        assert await client.get_tuple(where) is None, where


async def test_a_missing_namespace_means_the_root_graph(client: Client) -> None:
    await put(client, "1")
    await put(client, "2", ns="sub")
    assert id_of(await get(client, {"configurable": {"thread_id": "thread"}})) == "1"
    assert id_of(await get(client, {"configurable": {"thread_id": "thread", "checkpoint_ns": None}})) == "1"
    await client.put({"configurable": {"thread_id": "thread"}}, checkpoint("3"), metadata(), {})
    assert id_of(await get(client, config(ns=""))) == "3"


async def test_a_checkpoint_id_of_none_means_the_newest(client: Client) -> None:
    await put(client, "1")
    await put(client, "2")
    for nothing in (None, ""):
        where = config()
        where["configurable"]["checkpoint_id"] = nothing
        assert id_of(await get(client, where)) == "2"


async def test_returned_configs_have_the_three_keys_only(client: Client) -> None:
    first, second = await put_chain(client, next_uuid, 2, ns="sub")
    for asked in (config(ns="sub"), second):
        given = {**asked, "tags": ["mine"], "configurable": {**asked["configurable"], "user": "me"}}
        found = await client.get_tuple(given)  # type: ignore[arg-type]
        assert found is not None
        assert found.config == second
        assert found.parent_config == first


async def test_two_reads_share_no_object(client: Client) -> None:
    """A graph may change its state in place."""
    values = {"list": [LONG, {"a": []}], "small": "x"}
    where = await put(client, "1", values, meta=metadata(nested={"a": [1]}))
    await client.put_writes(where, [("a", [1])], "task")

    def spoil(found: CheckpointTuple) -> None:
        found.checkpoint["channel_values"]["list"].append("spoilt")
        found.checkpoint["channel_versions"].clear()
        found.metadata["nested"]["a"].append("spoilt")  # type: ignore[typeddict-item]
        found.config["configurable"].clear()
        (found.pending_writes or [])[0][2].append("spoilt")

    before = await get(client, where)
    for found in (await get(client, where), *(await client.all(config())), await get(client, config())):
        assert found == before
        spoil(found)
    assert await get(client, where) == before


async def test_listed_checkpoints_share_no_object_either(client: Client) -> None:
    """Not even where one row holds a value of several checkpoints."""
    versions = {"list": "1"}
    first = await put(client, "1", {"list": [LONG]}, versions=versions)
    await put(client, "2", {"list": [LONG]}, parent=first, versions=versions, new={})
    newer, older = await client.all(config())
    newer.checkpoint["channel_values"]["list"].append("spoilt")
    assert older.checkpoint["channel_values"]["list"] == [LONG]
