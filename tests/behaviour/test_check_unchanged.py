"""With `check_unchanged=True`, a value that was changed in place without a new version raises an error at the next put.

For development: an application finds in its tests what it changes and does not return.
"""

from __future__ import annotations

import asyncio
import pickle
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, TypedDict

import pytest
from langchain_core.messages import HumanMessage
from langgraph.checkpoint.serde.encrypted import EncryptedSerializer
from langgraph.checkpoint.serde.types import _DeltaSnapshot
from langgraph.graph import START, StateGraph

from langgraph_checkpoint_custom import ChangedInPlace, CheckpointEncodeError, CheckpointSaver
from tests.behaviour.helpers import Database, checkpoint, config, get, metadata, new_versions, put, run_graph
from tests.behaviour.test_encryption import Wrapper
from tests.stores import Client, Store

ENCRYPTED = EncryptedSerializer.from_pycryptodome_aes(key=b"0123456789abcdef")


@pytest.fixture
def saver(store: Store) -> Iterator[CheckpointSaver]:
    with store.open(check_unchanged=True) as opened:
        yield opened


def messages(count: int) -> list[Any]:
    return [HumanMessage(f"{number} " * 300, id=str(number), additional_kwargs={"n": [1]}) for number in range(count)]


@dataclass
class Plan:
    steps: list[Any] = field(default_factory=list)


def change_last(value: Any) -> None:
    value[-1].additional_kwargs["n"].append(2)


CHANGES: Mapping[str, tuple[Callable[[], Any], Callable[[Any], object]]] = {
    "short": (lambda: ["short"], lambda value: value.append("changed")),
    "long": (lambda: ["long " * 2_400], lambda value: value.append("changed")),
    "shortened": (lambda: ["long " * 2_400, "short"], lambda value: value.pop(0)),
    "messages": (lambda: messages(3), change_last),
    "messages in chunks": (lambda: messages(100), change_last),
    "a field": (lambda: Plan(["a"]), lambda value: value.steps.append("b")),
    "a set": (lambda: set(range(1_000)), lambda value: value.add("changed")),
    "bytes": (lambda: bytearray(b"x" * 2_000), lambda value: value.append(1)),
    "a snapshot": (lambda: _DeltaSnapshot(["a"]), lambda value: value.value.append("b")),
}


async def grown(client: Client, value: Any) -> Any:
    """Store a value in three checkpoints, of which each has a new version, so that a large one is in chunks."""
    where = None
    for step in range(3):
        held = value[: len(value) - 2 + step] if isinstance(value, list) and len(value) > 50 else value
        where = await put(client, str(step), {"list": held, "other": [1]}, parent=where)
    return where, (await get(client, config())).checkpoint["channel_versions"]


@pytest.mark.parametrize("serde", [None, ENCRYPTED], ids=["plain", "encrypted"])
@pytest.mark.parametrize("has_read", [True, False])
async def test_a_change_in_place_is_an_error_and_nothing_is_stored(
    store: Store, api: str, database: Database, has_read: bool, serde: Any
) -> None:
    for name, (make, change) in CHANGES.items():
        value = make()
        async with store.open(check_unchanged=True, serde=serde, compress=True) as saver:
            saver.setup()
            client = Client(saver, api)
            parent, versions = await grown(client, value)
        async with store.open(check_unchanged=True, serde=serde) as saver:
            client = Client(saver, api)
            if has_read:
                value = (await get(client, parent)).checkpoint["channel_values"]["list"]
            if name == "messages in chunks":
                assert len(database.run("SELECT 1 FROM blobs WHERE chunks IS NOT NULL")) == 2
            # Without a change nothing is raised.
            same = await put(client, "3", {"list": value, "other": [1]}, parent=parent, versions=versions, new={})
            change(value)
            before = database.counts()
            with pytest.raises(
                ChangedInPlace, match=r"'list': .* checkpoint '3' of thread 'thread', namespace ''"
            ) as raised:
                await put(client, "4", {"list": value, "other": [1]}, parent=same, versions=versions, new={})
            assert database.counts() == before
            await client.delete_thread("thread")
    error = pickle.loads(pickle.dumps(raised.value))
    assert (error.thread_id, error.checkpoint_ns, error.parent_id) == ("thread", "", "3")
    assert error.channels == ("list",)


async def test_a_small_value_that_cannot_be_encoded_after_a_change_is_an_error_of_its_own(
    store: Store, api: str, database: Database
) -> None:
    """The document has it as it is."""
    async with store.open(check_unchanged=True) as saver:
        saver.setup()
        client = Client(saver, api)
        versions = new_versions(["list"])
        where = await put(client, "1", {"list": ["short"]}, versions=versions)
        with pytest.raises(CheckpointEncodeError, match="channel 'list'"):
            await put(client, "2", {"list": ["short", lambda: None]}, parent=where, versions=versions, new={})
    assert database.count("checkpoints") == 1


def odd(cls: type) -> Any:
    """Many small sets; in a copy, about a third of them have another order."""
    return [cls({f"{number} {part}" for part in range(4)}) for number in range(50)]


@pytest.mark.parametrize(
    ("value", "copied"),
    [
        (odd(set), odd(set)),
        ({"plans": [Plan(odd(frozenset))]}, {"plans": [Plan([frozenset(list(each)) for each in odd(set)])]}),
        (_DeltaSnapshot(["a"]), ["a"]),
        (["a"], _DeltaSnapshot(["a"])),
        (float("nan"), float("nan")),
    ],
    ids=["sets", "sets in an object", "from a snapshot", "to a snapshot", "NaN"],
)
async def test_another_form_of_the_same_value_is_no_change(
    store: Store, client: Client, value: Any, copied: Any
) -> None:
    versions = new_versions(["list"])
    where = await put(client, "1", {"list": value}, versions=versions)
    async with store.open(check_unchanged=True) as other:
        its = Client(other, client.api)
        read = (await get(its, where)).checkpoint["channel_values"]["list"]
        for number, same in enumerate((read, copied)):
            await put(its, f"2 {number}", {"list": same}, versions=versions, new={}, parent=where)


async def test_a_new_version_may_have_a_new_value(client: Client) -> None:
    value = ["a"]
    where = await put(client, "1", {"list": value, "other": value})
    value.append("b")
    await put(client, "2", {"list": value, "other": value}, parent=where)
    # The version is new, though `new_versions` does not name it.
    value.append("c")
    where = await put(client, "3", {"list": value}, parent=where, new={})
    assert (await get(client, where)).checkpoint["channel_values"] == {"list": ["a", "b", "c"]}


async def test_all_channels_are_named_in_the_namespace(client: Client) -> None:
    values: dict[str, Any] = {"a": [1], "b": [2], "c": [3]}
    versions = new_versions(values)
    where = await put(client, "1", values, versions=versions, ns="sub|x:1")
    values["a"].append(2)
    values["c"].append(4)
    with pytest.raises(ChangedInPlace, match=r"^'a', 'c': .*namespace 'sub\|x:1'"):
        await put(client, "2", values, versions=versions, new={}, parent=where, ns="sub|x:1")


async def test_without_a_parent_there_is_nothing_to_compare(client: Client) -> None:
    versions = new_versions(["list"])
    await put(client, "1", {"list": [1]}, versions=versions)
    await put(client, "2", {"list": [2]}, versions=versions, new={})
    await put(client, "3", {"list": [3]}, versions=versions, new={}, parent=config(checkpoint_id="0"))
    assert len(await client.all(config())) == 3


async def test_a_tenants_parent_is_compared(client: Client) -> None:
    tenant = Client(client.saver.for_tenant("acme"), client.api)  # type: ignore[attr-defined]
    versions = new_versions(["list"])
    where = await put(tenant, "1", {"list": [1]}, versions=versions)
    with pytest.raises(ChangedInPlace):
        await put(tenant, "2", {"list": [2]}, versions=versions, new={}, parent=where)


async def test_async_compares_the_objects_as_they_were_when_put_was_called(saver: CheckpointSaver) -> None:
    value, versions = ["a"], new_versions(["list"])
    where = await saver.aput(config(), checkpoint("1", {"list": value}, versions), metadata(), versions)
    task = asyncio.create_task(saver.aput(where, checkpoint("2", {"list": value}, versions), metadata(), {}))
    await asyncio.sleep(0)
    value.append("b")
    where = await task
    assert (await get(Client(saver, "async"), where)).checkpoint["channel_values"] == {"list": ["a"]}


async def test_values_are_compared_if_the_bytes_of_a_serializer_tell_nothing(store: Store, api: str) -> None:
    async with store.open(check_unchanged=True, serde=Wrapper()) as saver:
        saver.setup()
        client = Client(saver, api)
        versions = new_versions(["list"])
        where = await put(client, "1", {"list": [1]}, versions=versions)
        where = await put(client, "2", {"list": [1]}, versions=versions, new={}, parent=where)
        with pytest.raises(ChangedInPlace):
            await put(client, "3", {"list": [2]}, versions=versions, new={}, parent=where)


class State(TypedDict, total=False):
    items: list[Any]
    count: int


@pytest.mark.parametrize("items", [["short"], ["long " * 2_400]], ids=["short", "long"])
async def test_a_graph_with_a_node_that_does_not_return_what_it_changes_raises(
    client: Client, items: list[Any]
) -> None:
    def adds(state: State) -> State:
        state["items"].append("changed")
        return {"count": 1}

    builder = StateGraph(State)
    builder.add_node("adds", adds)
    builder.add_edge(START, "adds")
    graph = builder.compile(checkpointer=client.saver)
    with pytest.raises(ChangedInPlace, match=r"^'items'"):
        await run_graph(client, graph, {"items": items}, config(), durability="sync")
