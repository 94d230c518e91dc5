"""Values that cannot be restored exactly are stored and read as with LangGraph's savers, and the log says so once."""

from __future__ import annotations

import logging
import threading
from dataclasses import dataclass, make_dataclass
from datetime import datetime, timedelta, tzinfo
from enum import Enum
from pathlib import PurePosixPath
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
import pydantic.v1
import pytest
from langchain_core.prompts import ChatPromptTemplate, MessagesPlaceholder
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from langgraph.types import Command
from pydantic import BaseModel, Field, PrivateAttr, create_model, field_serializer

from langgraph_checkpoint_custom import CheckpointEncodeError, open_saver
from langgraph_checkpoint_custom.encoding import objects
from tests.behaviour.graph_in_a_function import local_graph
from tests.behaviour.helpers import Database, get, metadata, put
from tests.exactly import same
from tests.stores import Client, Store

LANGGRAPH = JsonPlusSerializer()


class FakeDatetime(datetime):
    """A class as in libraries that extend datetime, such as pandas' Timestamp."""


class Zone(tzinfo):
    """A class as in libraries such as pytz."""

    def utcoffset(self, when: datetime | None) -> timedelta:
        return timedelta(hours=1)

    def dst(self, when: datetime | None) -> timedelta:
        return timedelta(0)

    def tzname(self, when: datetime | None) -> str:
        return "there"


class FakeTimedelta(timedelta):
    """A class as in pandas."""

    def __new__(cls, text: str) -> FakeTimedelta:
        return super().__new__(cls, seconds=float(text))


class Locked(BaseModel):
    """A model with a private attribute that cannot be stored and that its constructor makes."""

    name: str = Field("", alias="theName")
    _lock: Any = PrivateAttr()

    def model_post_init(self, context: Any) -> None:
        self._lock = threading.Lock()


KINDS: dict[str, Any] = {"sizes": MappingProxyType({}).keys()}


class Typed(BaseModel):
    """A model with its own form for what cannot be stored."""

    kind: Any

    @field_serializer("kind")
    def name_of(self, kind: Any) -> str:
        return next(name for name, each in KINDS.items() if each is kind)

    @classmethod
    def model_validate(cls, obj: Any, **_: Any) -> Any:
        return cls(kind=KINDS[obj["kind"]])


@dataclass
class Indexed:
    """A dataclass that computes something from its fields that cannot be stored."""

    name: str

    def __post_init__(self) -> None:
        self.lock = threading.Lock()


class Sizes(np.ndarray[Any, Any]):
    """A class of arrays, as in libraries such as astropy."""


class Row:
    """A class as SQLAlchemy's rows: pickle needs a function for it, and LangGraph stores what `_asdict` returns."""

    def __init__(self, names: Any, values: Any) -> None:
        self.names, self.values = names, values

    def _asdict(self) -> dict[str, Any]:
        return dict(zip(self.names, self.values, strict=True))

    def __reduce__(self) -> Any:
        return Row, (self.names, self.values)


class Real(float):
    """A class of floats."""


class Fixed(dict):  # type: ignore[type-arg]
    """A class of dicts that can be in a set."""

    def __hash__(self) -> int:  # type: ignore[override]
        return hash(tuple(self))


@dataclass
class Holder:
    value: Any


def of_local_classes() -> dict[str, Any]:
    class Model(BaseModel):
        name: str
        pair: tuple[int, int] = (1, 2)

    class Outer(BaseModel):
        inner: Model

    class Old(pydantic.v1.BaseModel):
        name: str

    class Colour(Enum):
        RED = "red"

    class Pair(NamedTuple):
        left: int
        right: Any

    class Names(set):  # type: ignore[type-arg]
        pass

    class Location(PurePosixPath):
        pass

    class Reply:
        def dict(self) -> dict[str, int]:
            return {"a": 1}

    @dataclass(frozen=True)
    class Frozen:
        name: str

    made = create_model("Made", name=(str, ...))
    return {
        "model": Model(name="a"),
        "model in a model": Outer(inner=Model(name="a")),
        "old model": Old(name="a"),
        "dataclass": make_dataclass("Local", [("value", Any)])({"deep": Model(name="b")}),
        "enum": Colour.RED,
        "named tuple": Pair(1, Colour.RED),
        "set": Names({1}),
        "in a set": {Frozen("a")},
        "in a set in a set": {frozenset({(1, Frozen("a"))})},
        "create_model": made(name="a"),
        "plain, with the method dict": Reply(),
        "in what can be found": [Holder(Colour.RED)],
    }


LOCAL = of_local_classes()
INEXACT: dict[str, Any] = {
    **LOCAL,
    "a kind of datetime": FakeDatetime(2024, 1, 1),
    "a kind of timedelta": FakeTimedelta("1"),
    "a kind of zone": datetime(2024, 1, 1, tzinfo=Zone()),
    "a memoryview in an object": Holder([memoryview(b"a")]),
    "a dict in a set": {Fixed(a=1)},
    "a dict in a frozen set in a list": [frozenset({Fixed(a=1)})],
    "a row": Row(["a", "b"], [1, [2]]),
    "a kind of array": np.array([1, 2]).view(Sizes),
}
BY_CONSTRUCTOR: dict[str, Any] = {
    "a private attribute": Locked(theName="a"),
    "another attribute": Indexed("a"),
    "a field with a form of its own": Typed(kind=KINDS["sizes"]),
    "excluded fields": ChatPromptTemplate.from_messages([("system", "you are {name}"), MessagesPlaceholder("chat")]),
}


@pytest.fixture(autouse=True)
def log(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    monkeypatch.setattr(objects, "_WARNED", set())
    caplog.set_level(logging.WARNING, "langgraph_checkpoint_custom")
    return caplog


def said(log: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in log.records if record.name == "langgraph_checkpoint_custom"]


def through(value: Any) -> Any:
    return LANGGRAPH.loads_typed(LANGGRAPH.dumps_typed(value))


def listed(value: Any) -> Any:
    """A value with its tuples as lists, as LangGraph returns them."""
    if isinstance(value, dict):
        return {key: listed(each) for key, each in value.items()}
    return [listed(each) for each in value] if type(value) in (list, tuple) else value


async def test_an_inexact_value_is_what_langgraph_makes_of_it(client: Client, log: pytest.LogCaptureFixture) -> None:
    for name, value in INEXACT.items():
        log.clear()
        objects._WARNED.clear()
        for each in (value, [value], {"a": [value]}):
            where = await put(client, "1", {"a": each}, meta=metadata(0, mine=each))
            await client.put_writes(where, [("a", each)], "task")
            found = await get(client, where)
            for stored in (
                found.checkpoint["channel_values"]["a"],
                (found.pending_writes or [])[0][2],
                found.metadata["mine"],  # type: ignore[typeddict-item]
            ):
                assert (type(stored), repr(listed(stored))) == (type(through(each)), repr(through(each))), name
            await client.delete_thread("thread")
        lines = said(log)
        assert lines, f"nothing was logged about {name}"
        assert len(lines) == len(set(lines)) <= 2, "it was said again"
        assert all("on_inexact='raise'" in line for line in lines)


@pytest.mark.parametrize("name", BY_CONSTRUCTOR)
async def test_some_objects_are_made_by_their_constructor_again(
    client: Client, log: pytest.LogCaptureFixture, name: str
) -> None:
    value = BY_CONSTRUCTOR[name]
    where = await put(client, "1", {"a": [value]})
    (found,) = (await get(client, where)).checkpoint["channel_values"]["a"]
    assert type(found) is type(value)
    if name == "another attribute":
        assert found.name == "a"
        assert found.lock is not value.lock
    elif name == "a private attribute":
        assert (found.name, type(found._lock)) == ("a", type(value._lock))
    else:
        assert found == value
    assert len(said(log)) == 1 if name != "excluded fields" else said(log)


async def test_a_subclass_of_float_is_read_as_float(client: Client, log: pytest.LogCaptureFixture) -> None:
    """LangGraph's PostgreSQL saver reads it as a float, and its serializer refuses it."""
    for each in (Real(0.5), [Real(0.5)], {"a": Holder(Real(0.5))}):
        where = await put(client, "1", {"a": each})
        found = (await get(client, where)).checkpoint["channel_values"]["a"]
        assert same(found, {"a": Holder(0.5)} if isinstance(each, dict) else [0.5] if isinstance(each, list) else 0.5)
        await client.delete_thread("thread")
    (line,) = said(log)
    assert "Real is stored as LangGraph's" in line


async def test_an_inexact_value_raises_with_on_inexact_raise(store: Store, api: str, database: Database) -> None:
    with store.open(on_inexact="raise") as saver:
        client = Client(saver, api)
        where = await put(client, "1")
        before = sorted(database.cells())
        for value in (*INEXACT.values(), *BY_CONSTRUCTOR.values(), Real(0.5)):
            for each in (value, [value], {"a": Holder(value)}):
                with pytest.raises(CheckpointEncodeError, match=r"(something else: |no form ).*; nothing was stored"):
                    await put(client, "2", {"fine": ["x"], "a": each})
                with pytest.raises(CheckpointEncodeError, match="nothing was stored"):
                    await client.put_writes(where, [("fine", 1), ("a", each)], "task")
        assert sorted(database.cells()) == before


async def test_the_class_that_cannot_be_found_is_named(store: Store, api: str) -> None:
    with store.open(on_inexact="raise") as saver, pytest.raises(CheckpointEncodeError) as raised:
        await put(Client(saver, api), "1", {"a": [Holder({"b": Holder(LOCAL["enum"])})]})
    assert "of_local_classes.<locals>.Colour" in str(raised.value)
    assert "Holder" not in str(raised.value)


async def test_a_graph_whose_state_is_defined_in_a_function(store: Store, api: str) -> None:
    """The final state is the same as with LangGraph's own saver, except for tuples, which stay tuples."""
    run: Any = {"configurable": {"thread_id": "1"}}
    ends = []
    savers: list[Any] = [open_saver(store.url), InMemorySaver()]
    for saver in savers:
        async with saver:
            graph, state = local_graph(saver)
            each: Any
            for each in (state(steps=[{"name": "first", "at": (0, 1)}]), Command(resume="yes")):
                result = await graph.ainvoke(each, run) if api == "async" else graph.invoke(each, run)
            found = await graph.aget_state(run) if api == "async" else graph.get_state(run)
            history = [each async for each in graph.aget_state_history(run)]
            ends.append([repr(listed(each)) for each in (result, found.values, [each.values for each in history])])
    assert ends[0] == ends[1]
