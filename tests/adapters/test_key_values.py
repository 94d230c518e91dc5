"""Values by namespace and key; a list returns exactly the keys of its namespace."""

from __future__ import annotations

from typing import Any

import pytest

from langgraph_checkpoint_custom import CheckpointSaver, ConfigError, OperationEvent
from langgraph_checkpoint_custom.adapters.key_values import Item, KeyValueStore, _thread_id
from langgraph_checkpoint_custom.errors import CorruptCheckpoint
from tests.adapters.helpers import HOSTILE, Calls, put_document
from tests.behaviour.helpers import Database
from tests.conftest import APIS
from tests.stores import Store


@pytest.fixture(params=APIS)
def values(request: pytest.FixtureRequest, saver: CheckpointSaver) -> Calls:
    return Calls(KeyValueStore(saver), request.param)


async def test_values_are_put_listed_and_deleted(values: Calls) -> None:
    namespace = ("project", "filesystem")
    assert await values.get(namespace, "/a") is None
    assert await values.list(namespace) == []
    await values.put(namespace, "/b", {"content": ["1"]})
    await values.put(namespace, "/a", {})
    await values.put(namespace, "/b", {"content": ["2", None, 1.5]})
    assert await values.get(namespace, "/b") == {"content": ["2", None, 1.5]}
    assert await values.get(namespace, "/a") == {}
    assert await values.list(namespace) == [Item("/a", {}), Item("/b", {"content": ["2", None, 1.5]})]
    await values.delete(namespace, "/b")
    await values.delete(namespace, "/b")
    assert await values.list(list(namespace)) == [Item("/a", {})]


def test_a_list_returns_exactly_the_keys_of_one_namespace(saver: CheckpointSaver) -> None:
    values = KeyValueStore(saver)
    namespaces: list[tuple[str, ...]] = [
        (),
        ("a",),
        ("a", "b"),
        ("a/b",),
        ("a", "b", "c"),
        ("a", ""),
        ("1", "a"),
        ("ab",),
    ]
    for number, namespace in enumerate(namespaces):
        for key in HOSTILE:
            values.put(namespace, key, {"number": number})
    for number, namespace in enumerate(namespaces):
        assert values.list(namespace) == [Item(key, {"number": number}) for key in sorted(HOSTILE)], namespace
        assert all(values.get(namespace, key) == {"number": number} for key in HOSTILE)


@pytest.mark.parametrize("api", APIS)
async def test_a_key_that_is_put_during_a_list_is_in_it(store: Store, saver: CheckpointSaver, api: str) -> None:
    writing, keys = KeyValueStore(saver), ["", *(f"{number:03}" for number in range(210))]
    for key in keys:
        writing.put(("a",), key, {})

    def put_the_oldest(event: OperationEvent) -> None:
        writing.put(("a",), "", {"new": True})

    with store.open(on_operation=put_the_oldest) as other:
        found = await Calls(KeyValueStore(other), api).list(("a",))
    assert [item.key for item in found] == keys


def test_invalid_input_is_refused_before_anything_is_stored(saver: CheckpointSaver) -> None:
    values = KeyValueStore(saver)
    wrong: Any
    for wrong in ([1], None, {1: 2}, {"a": {1}}, {"a": (1,)}, {"a": float("inf")}):
        with pytest.raises(ConfigError):
            values.put(("a",), "key", wrong)
    for namespace in ("a", (5,), ("x" * 2000,)):
        with pytest.raises(ConfigError):
            values.put(namespace, "key", {})  # type: ignore[arg-type]
    assert list(saver.threads()) == []


def test_a_corrupt_value_raises(saver: CheckpointSaver) -> None:
    values = KeyValueStore(saver)
    values.put(("a",), "other", {})
    put_document(saver, _thread_id(("a",), "key"), {"value": [1]}, {})
    with pytest.raises(CorruptCheckpoint, match="key-value/1/a/key"):
        values.get(("a",), "key")
    with pytest.raises(CorruptCheckpoint):
        values.list(("a",))


async def test_a_value_that_cannot_be_read_is_replaced(store: Store, values: Calls) -> None:
    await values.put(("a",), "b", {"n": 1})
    Database(store).run("UPDATE checkpoints SET checkpoint = :none, metadata = :none", none=b"\xc1")
    with pytest.raises(CorruptCheckpoint):
        await values.get(("a",), "b")
    await values.put(("a",), "b", {"n": 2})
    assert await values.get(("a",), "b") == {"n": 2}
    assert await values.list(("a",)) == [Item("b", {"n": 2})]


async def test_a_put_takes_two_round_trips(store: Store) -> None:
    events: list[OperationEvent] = []
    with store.open(on_operation=events.append) as saver:
        saver.setup()
        for name in ("sync", "async"):
            events.clear()
            for number in range(2):
                await Calls(KeyValueStore(saver), name).put(("a",), "b", {"n": number})
            assert [(event.name, event.round_trips) for event in events] == [("history_page", 1), ("put", 1)] * 2
