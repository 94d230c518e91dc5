"""Any value is read as it was stored with a serializer that may use pickle, and however deep it is nested."""

from __future__ import annotations

from dataclasses import dataclass, make_dataclass
from typing import Any

import pytest
from langgraph.checkpoint.serde.encrypted import EncryptedSerializer
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer

from langgraph_checkpoint_custom import open_saver
from tests.behaviour.helpers import LONG, config, get, metadata, put
from tests.core.test_restored import OBJECTS
from tests.exactly import same
from tests.stores import Client, Store


@dataclass
class Point:
    x: float


class Way(tuple):  # type: ignore[type-arg]
    """A class whose objects come back as a tuple if pickle does not store them."""

    __slots__ = ()


class Reduced:
    """A class that says how pickle stores it."""

    def __reduce__(self) -> Any:
        return Reduced, ()


# Only pickle can store these, if the serializer may use it.
PICKLED: dict[str, Any] = {"reduced": Reduced(), "in a list": [1 + 2j, Reduced()]}


@pytest.mark.parametrize("kind", ["pickling", "encrypting"])
async def test_any_value_works_with_another_serializer(store: Store, api: str, kind: str) -> None:
    pickling = JsonPlusSerializer(pickle_fallback=True)
    serde: Any = pickling
    values = {name: value for name, value in OBJECTS.items() if name != "of many kinds"} | PICKLED
    if kind == "encrypting":
        serde = EncryptedSerializer.from_pycryptodome_aes(pickling, key=b"0123456789abcdef")
        values = OBJECTS | PICKLED  # One has a secret, which is not stored in clear.
    with open_saver(store.url, serde=serde) as saver:
        client = Client(saver, api)
        where = await put(client, "1", values, meta=metadata(0, **{"odd": PICKLED}))
        await client.put_writes(where, list(values.items()), "task")
        found = await get(client, where)
    written = {channel: value for _, channel, value in found.pending_writes or []}
    for name, value in values.items():
        assert same(found.checkpoint["channel_values"][name], value), name
        assert same(written[name], value), name
    assert same(found.metadata["odd"], PICKLED)  # type: ignore[typeddict-item]


async def test_a_document_that_only_pickle_can_store_has_its_small_values(store: Store, api: str) -> None:
    """A value without a version is part of the document, and small lists are there too."""
    values = {"odd": PICKLED, "list": [1, {"a": 2}]}
    with open_saver(store.url, serde=JsonPlusSerializer(pickle_fallback=True)) as saver:
        client = Client(saver, api)
        first = await put(client, "1", values, versions={"list": "1"})
        second = await put(client, "2", values, parent=first, versions={"list": "1"}, new={})
        for where in (first, second):
            there = (await get(client, where)).checkpoint["channel_values"]
            assert all(same(there[name], value) for name, value in values.items())


async def test_a_small_value_is_pickled_although_one_beside_it_cannot_be(store: Store, api: str) -> None:
    """Of many small values, several are measured together."""
    lost = make_dataclass("Local", ["x"])(1)  # It has no name in this module, neither for pickle.
    texts = {f"text {number}": "a" * 100 for number in range(16)}
    with open_saver(store.url, serde=JsonPlusSerializer(pickle_fallback=True)) as saver:
        client = Client(saver, api)
        where = await put(
            client, "1", {**texts, "way": Way("ab"), "lost": lost, **{str(n): n for n in range(3)}, "large": [LONG] * 9}
        )
        there = (await get(client, where)).checkpoint["channel_values"]
    assert same([there["way"], there["lost"]], [Way("ab"), {"x": 1}])


async def test_storing_a_small_value_creates_no_object(store: Store, api: str) -> None:
    """The serializer of a writer may not be allowed to create the object, and a reader may be."""
    blind = JsonPlusSerializer(pickle_fallback=True, allowed_msgpack_modules=[("a", "b")])
    with open_saver(store.url, serde=blind) as saver:
        await put(Client(saver, api), "1", {"point": Point(3.0), "blob": [LONG]})
    with store.open() as saver:
        assert (await get(Client(saver, api), config())).checkpoint["channel_values"]["point"] == Point(3.0)


@pytest.mark.parametrize("depth", [100, 253, 254, 255])
async def test_a_deeply_nested_value_is_stored_however_often_it_changes(client: Client, depth: int) -> None:
    """The largest depth that ormsgpack encodes is 255. In the document, a value is two levels deeper."""
    where = None
    for step in range(1, 5):
        value: Any = [LONG, step]
        for _ in range(depth - 1):
            value = [value]
        where = await put(client, str(step), {"deep": value}, parent=where)
        assert (await get(client, where)).checkpoint["channel_values"] == {"deep": value}
