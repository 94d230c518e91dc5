"""`put` stores a complete checkpoint, never touches writes, and stores only new values again."""

from __future__ import annotations

import gc
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
from langgraph.checkpoint.base import DeltaChannelHistory
from langgraph.checkpoint.serde.types import _DeltaSnapshot
from pydantic import BaseModel

from langgraph_checkpoint_custom import CheckpointEncodeError, CheckpointNotFound
from tests.behaviour.helpers import LONG, Database, checkpoint, config, get, id_of, metadata, new_versions, put
from tests.stores import Client, Store

pytestmark = pytest.mark.usefixtures("changing_values_in_blobs")

ODD_NAMES = ["", "it's", '"', "a,b", "{a}", "%s", ":x", "\\", "[1]", "null", "naïve 🙂", "\n", "branch:to:b", "x" * 400]


@pytest.mark.leaves_values("a checkpoint that is stored again with other versions leaves its old values")
async def test_a_repeat_replaces_the_checkpoint(client: Client, database: Database) -> None:
    first = await put(client, "1", {"small": 1, "list": [LONG]})
    second = await put(client, "1", {"small": 2, "list": [2]}, parent=config(checkpoint_id="0"), meta=metadata(7))
    found = await get(client, second)
    assert second == first
    assert found.checkpoint["channel_values"] == {"small": 2, "list": [2]}
    assert (found.metadata, found.parent_config) == (metadata(7), config(checkpoint_id="0"))
    assert database.count("checkpoints") == 1


async def test_the_document_is_read_with_its_unknown_keys(client: Client) -> None:
    document: Any = checkpoint("1", {"a": LONG}, {"a": "1", "empty": 7})
    document |= {"versions_seen": {"node": {"a": "1"}}, "updated_channels": ["a"], "pending_sends": [], "new": {"x": 1}}
    await client.put(config(), document, metadata(), document["channel_versions"])
    assert (await get(client, config())).checkpoint == document


@pytest.mark.parametrize("text", ["short", LONG], ids=["small", "large"])
async def test_a_second_child_has_an_unchanged_snapshot_as_the_first_does(
    store: Store, client: Client, text: str
) -> None:
    """LangGraph omits the snapshot of a DeltaChannel while its version stays the same, in any process."""
    versions = new_versions(["log"])
    parent = await put(client, "1", {"log": _DeltaSnapshot([text])}, versions=versions)
    counted = metadata(counters_since_delta_snapshot={"log": [0, 1]})
    async with store.open() as other:
        for checkpoint_id, its in (("2", client), ("3", client), ("4", Client(other, client.api))):
            child = await put(its, checkpoint_id, {}, parent=parent, versions=versions, new={}, meta=counted)
            assert (await get(client, child)).checkpoint["channel_values"] == {"log": _DeltaSnapshot([text])}


async def test_versions_of_different_types_are_different_versions(client: Client) -> None:
    versions = [1, 1.5, "1", "1.5", "#1", '#"1"']
    for number, version in enumerate(versions):
        await put(client, str(number), {"a": [repr(version)]}, versions={"a": version})
    for number, version in enumerate(versions):
        found = await get(client, config(checkpoint_id=str(number)))
        assert found.checkpoint["channel_values"] == {"a": [repr(version)]}
        assert found.checkpoint["channel_versions"] == {"a": version}


async def test_any_text_may_be_a_channel_name(client: Client) -> None:
    values = {name: [name] for name in ODD_NAMES} | {f"{name[:399]}~": name for name in ODD_NAMES}
    first = await put(client, "1", values)
    versions = (await get(client, first)).checkpoint["channel_versions"]
    second = await put(client, "2", values, parent=first, versions=versions, new={})
    await client.put_writes(second, [(name, name) for name in ODD_NAMES], "task")
    found = await get(client, second)
    assert found.checkpoint["channel_values"] == values
    assert found.pending_writes == [("task", name, name) for name in ODD_NAMES]
    history = await client.history(second, ODD_NAMES)
    assert history == {name: DeltaChannelHistory(writes=[], seed=[name]) for name in ODD_NAMES}


async def test_any_text_may_be_the_name_of_a_channel_with_chunks(client: Client) -> None:
    values = {name: ["x" * 1000] * 40 + [name] for name in ODD_NAMES}
    first = await put(client, "1", values)
    values = {name: [*value, name] for name, value in values.items()}
    second = await put(client, "2", values, parent=first)
    assert (await get(client, second)).checkpoint["channel_values"] == values


def deep(depth: int, make: Callable[[Any], Any]) -> Any:
    value: Any = 1
    for _ in range(depth):
        value = make(value)
    return value


def in_a_circle() -> dict[str, Any]:
    circle: dict[str, Any] = {"list": [], "dict": {}, "dataclass": Holder(), "model": Holding()}
    circle["list"].append(circle["list"])
    circle["dict"]["a"] = [circle["dict"]]
    circle["dataclass"].value = [circle["dataclass"]]
    circle["model"].value = {"a": circle["model"]}
    return circle


@dataclass
class Holder:
    value: Any = None


class Holding(BaseModel):
    value: Any = None


DEEP = in_a_circle() | {
    "deep lists": deep(300, lambda value: [value]),
    "deep dicts": deep(3_000, lambda value: {"a": value}),
    "deep dataclasses": deep(3_000, Holder),
    "deep lists in a model": Holding(value=deep(300, lambda value: [value])),
    "deep tuples": deep(3_000, lambda value: (value,)),
}


async def test_the_error_about_a_value_that_is_too_deep_or_contains_itself_says_so(
    client: Client, database: Database
) -> None:
    where = await put(client, "1")
    before = database.counts()
    gc.collect()  # Finalizing what other tests left needs room on the stack.
    for name, value in DEEP.items():
        for write in (
            put(client, "2", {"culprit": value}),
            client.put_writes(where, [("culprit", value)], "task"),
            put(client, "2", meta=metadata(culprit=value)),
        ):
            words = r"nested too deeply, or contains itself.*nothing was stored"
            with pytest.raises(CheckpointEncodeError, match=words):
                pytest.fail(f"{name}: {await write}")
    assert database.counts() == before


COUNTED = metadata(counters_since_delta_snapshot={"delta": (1, 1)})


async def test_a_delta_channel_on_a_deleted_parent_is_refused(client: Client, database: Database) -> None:
    """It could never be rebuilt."""
    await put(client, "1", {"a": [1]})
    before = database.counts()
    lost = config(checkpoint_id="0")
    with pytest.raises(CheckpointNotFound, match=r"'0'.*'delta'"):
        await put(client, "2", {"b": [2]}, parent=lost, versions={"b": 1, "delta": 1}, meta=COUNTED)
    assert database.counts() == before


async def test_the_first_checkpoint_of_a_namespace_may_have_a_parent_that_was_never_stored(client: Client) -> None:
    """This happens when a thread is deleted during a run. A repeat, as after a lost reply, does the same again."""
    lost = config(checkpoint_id="0")
    for _ in range(2):
        where = await put(client, "1", {"b": [2]}, parent=lost, versions={"b": 1, "delta": 1}, meta=COUNTED)
        assert id_of(where) == "1"
        assert (await get(client, where)).checkpoint["channel_values"] == {"b": [2]}
