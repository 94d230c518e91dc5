"""Any value is read as it was stored, with a few exceptions, which are read as LangGraph's serializer returns them."""

from __future__ import annotations

import ipaddress
import math
import re
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta, timezone
from decimal import Decimal
from enum import Enum, IntEnum
from pathlib import Path
from typing import Any, NamedTuple
from uuid import UUID
from zoneinfo import ZoneInfo

import pytest
from langchain_core.documents import Document
from langchain_core.messages import AIMessage, HumanMessage, SystemMessage, ToolMessage
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from langgraph.checkpoint.serde.types import _DeltaSnapshot
from langgraph.store.base import Item
from langgraph.types import Command, Interrupt, Send
from pydantic import BaseModel

from langgraph_checkpoint_custom import open_saver
from tests.behaviour.helpers import LONG, config, get, metadata, put
from tests.stores import Client, Store


class Colour(Enum):
    RED = "red"


class Text(str, Enum):
    A = "a"


class Number(IntEnum):
    ONE = 1


@dataclass
class Point:
    x: float
    y: Any = None


class Pair(NamedTuple):
    left: Any
    right: Any


class Model(BaseModel):
    name: str
    inner: list[Point] = []
    color: Colour = Colour.RED


class StrSubclass(str):
    pass


class Reduced:
    """A class that says how pickle stores it."""

    def __reduce__(self) -> Any:
        return Reduced, ()

    def __eq__(self, other: object) -> bool:
        return type(other) is Reduced

    def __hash__(self) -> int:
        return 0


WHEN = datetime(2024, 2, 29, 12, 30, 1, 999_999)
VALUES: dict[str, Any] = {
    "none": None,
    "true": True,
    "false": False,
    "zero": 0,
    "int": 123456789,
    "negative": -1,
    "2**63": 2**63,
    "2**64-1": 2**64 - 1,
    "-2**63": -(2**63),
    "float": 0.1 + 0.2,
    "1.0": 1.0,
    "-0.0": -0.0,
    "1e22": 1e22,
    "1e308": 1e308,
    "tiny": 5e-324,
    "nan": float("nan"),
    "inf": float("inf"),
    "-inf": -float("inf"),
    "empty text": "",
    "nul": "a\0b",
    "only nul": "\0",
    "text": "naïve 🙂 \u2028 \x7f",
    "quotes": "'\"\\%s :x {} $1",
    "json": '{"a": 1}',
    "256 characters": "é" * 256,
    "257 characters": "é" * 257,
    "long text": "x\0" * 50_000,
    "empty bytes": b"",
    "bytes": bytes(range(256)),
    "long bytes": bytes(range(256)) * 100,
    "bytearray": bytearray(b"\0\xff"),
    "empty list": [],
    "list": [1, "a", None, [True, [b"\0"]]],
    "tuple": (1, (2, {"a": ()})),
    "ordered": OrderedDict(b=1, a=(2,)),
    "counter": Counter("aab"),
    "defaultdict": defaultdict(list, a=[1]),
    "empty dict": {},
    "dict": {"b": 1, "a": {"": None}},
    "odd keys": {1: "int", None: "none", 1.5: "float", False: "bool", b"b": "bytes", "nul\0": 1},
    "set": {1, 2},
    "frozenset": frozenset({1, 2}),
    "deque": deque([1, 2]),
    "enum": Colour.RED,
    "text enum": Text.A,
    "int enum": Number.ONE,
    "text subclass": StrSubclass("a"),
    "dataclass": Point(1.5, Point(-0.0)),
    "named tuple": Pair(1, Pair("a", None)),
    "model": Model(name="a", inner=[Point(1.0)]),
    "datetime": WHEN,
    "utc": WHEN.replace(tzinfo=timezone.utc),
    "zone": WHEN.replace(tzinfo=timezone(timedelta(hours=5, minutes=30))),
    "zone info": ZoneInfo("UTC"),
    "date": WHEN.date(),
    "time": WHEN.time(),
    "timedelta": timedelta(days=-1, microseconds=1),
    "uuid": UUID("12345678-1234-5678-1234-567812345678"),
    "decimal": Decimal("1.10"),
    "decimal nan": Decimal("NaN"),
    "path": Path("/a/b"),
    "pattern": re.compile(r"a+", re.IGNORECASE),
    "address": ipaddress.ip_address("::1"),
    "network": ipaddress.ip_network("10.0.0.0/8"),
    "exception": ValueError("no"),
    "human": HumanMessage("hi\0", id="1", additional_kwargs={"a": [1]}),
    "ai": AIMessage("", tool_calls=[{"name": "f", "args": {"x": 1}, "id": "1"}], usage_metadata=None),
    "tool": ToolMessage("done", tool_call_id="1", artifact={"x": b"\0"}),
    "messages": [SystemMessage("s"), HumanMessage([{"type": "text", "text": "t"}])],
    "document": Document(page_content="p", metadata={"a": 1}),
    "send": Send("node", {"x": [1]}),
    "interrupt": Interrupt(value={"q": "?"}, id="1"),
    "command": Command(update={"a": 1}, goto="b", resume=[1]),
    "item": Item(value={"a": 1}, key="k", namespace=("n",), created_at=WHEN, updated_at=WHEN),
    "delta snapshot": _DeltaSnapshot([1, {"a": (2,)}]),
    "empty delta snapshot": _DeltaSnapshot(None),
}
# What these become.
BECOMES: dict[str, Any] = {"text subclass": "a", "exception": "ValueError('no')"}
# Only pickle can store these, if the serializer may use it.
PICKLED: dict[str, Any] = {"reduced": Reduced(), "in a list": [1 + 2j, Reduced()]}


def same(one: Any, two: Any) -> bool:
    """Equal in type and value, including NaN and the sign of zero."""
    if type(one) is not type(two):
        return False
    if isinstance(one, float):
        return (math.isnan(one) and math.isnan(two)) or (one == two and math.copysign(1, one) == math.copysign(1, two))
    if isinstance(one, dict):
        return list(map(repr, one)) == list(map(repr, two)) and all(map(same, one.values(), two.values()))
    if isinstance(one, (list, tuple, deque)):
        return len(one) == len(two) and all(map(same, one, two))
    if isinstance(one, Decimal):
        return str(one) == str(two)
    if isinstance(one, Point):
        return same([one.x, one.y], [two.x, two.y])
    return bool(one == two)


def alone(value: Any) -> Any:
    return value


def nested(value: Any) -> Any:
    return {"list": [value, {"deep": [value]}], "other": "x"}


def expected(values: dict[str, Any], shape: Callable[[Any], Any]) -> dict[str, Any]:
    """What comes back instead of these values."""
    inside = {} if shape is alone else {"bytearray": bytes(values["bytearray"])} if "bytearray" in values else {}
    return {name: shape((BECOMES | inside).get(name, value)) for name, value in values.items()}


def differing(found: dict[str, Any], expected: dict[str, Any]) -> dict[str, Any]:
    assert found.keys() == expected.keys()
    return {name: (found[name], expected[name]) for name in expected if not same(found[name], expected[name])}


@pytest.mark.parametrize("shape", [alone, nested])
async def test_any_value_works_as_a_channel_value(client: Client, shape: Any) -> None:
    values = {name: shape(value) for name, value in VALUES.items()}
    expect = expected(VALUES, shape)
    first = await put(client, "1", values)
    versions = (await get(client, first)).checkpoint["channel_versions"]
    second = await put(client, "2", values, parent=first, versions=versions, new={})
    for where in (first, second):
        assert differing((await get(client, where)).checkpoint["channel_values"], expect) == {}
    for listed in await client.all(config()):
        assert differing(listed.checkpoint["channel_values"], expect) == {}
    history = await client.history(second, list(VALUES))
    assert differing({name: found["seed"] for name, found in history.items()}, expect) == {}


@pytest.mark.parametrize("shape", [alone, nested])
async def test_any_value_works_as_a_write(client: Client, shape: Any) -> None:
    first = await put(client, "1")
    second = await put(client, "2", parent=first)
    for where in (first, second):
        await client.put_writes(where, [(name, shape(value)) for name, value in VALUES.items()], "task")
    expect = expected(VALUES, shape)
    for where in (first, second):
        pending = (await get(client, where)).pending_writes or []
        assert differing({channel: value for _, channel, value in pending}, expect) == {}
    history = await client.history(second, list(VALUES))
    assert differing({name: found["writes"][0][2] for name, found in history.items()}, expect) == {}


async def test_any_value_works_in_the_metadata(client: Client) -> None:
    meta: Any = {name: value for name, value in VALUES.items() if name != "bytearray"}
    expect = {**metadata(), "nested": nested(expected(meta, alone)), **expected(meta, alone)}
    where = await put(client, "1", meta=metadata(0, nested=nested(meta), **meta))
    found: Any = (await get(client, where)).metadata
    assert differing(found, expect) == {}
    (listed,) = await client.all(config(), filter={"text": VALUES["text"]})
    assert differing(dict(listed.metadata), expect) == {}


@pytest.mark.parametrize("kind", ["pickling", "encrypting"])
async def test_any_value_works_with_another_serializer(store: Store, api: str, kind: str) -> None:
    from langgraph.checkpoint.serde.encrypted import EncryptedSerializer

    pickling = JsonPlusSerializer(pickle_fallback=True)
    serde: Any = pickling
    if kind == "encrypting":
        serde = EncryptedSerializer.from_pycryptodome_aes(pickling, key=b"0123456789abcdef")
    values = VALUES | PICKLED
    expect = expected(values, alone)
    with open_saver(store.url, serde=serde) as saver:
        client = Client(saver, api)
        where = await put(client, "1", values, meta=metadata(0, **{"odd": PICKLED}))
        await client.put_writes(where, list(values.items()), "task")
        found = await get(client, where)
    assert differing(found.checkpoint["channel_values"], expect) == {}
    assert differing({channel: value for _, channel, value in found.pending_writes or []}, expect) == {}
    assert differing(found.metadata["odd"], PICKLED) == {}  # type: ignore[typeddict-item]


async def test_a_document_that_only_pickle_can_store_has_its_small_values(store: Store, api: str) -> None:
    """A value without a version is part of the document, and small lists are there too."""
    values = {"odd": PICKLED, "list": [1, {"a": 2}]}
    with open_saver(store.url, serde=JsonPlusSerializer(pickle_fallback=True)) as saver:
        client = Client(saver, api)
        first = await put(client, "1", values, versions={"list": "1"})
        second = await put(client, "2", values, parent=first, versions={"list": "1"}, new={})
        for where in (first, second):
            assert differing((await get(client, where)).checkpoint["channel_values"], values) == {}


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


def test_the_comparison_of_this_file_distinguishes_values() -> None:
    pairs = [(0.0, -0.0), (1, 1.0), (1, True), ([1], (1,)), (Point(0.0), Point(-0.0)), ({"a": 1}, {"a": 1.0})]
    assert not any(same(one, two) for one, two in pairs)
    assert all(same(value, value) for value in VALUES.values())
    assert differing({"a": math.nan}, {"a": math.nan}) == {}
    assert differing({"d": date(2024, 1, 1)}, {"d": date(2024, 1, 2)}) != {}
    assert not same(time(1), time(2))
