"""What is stored comes back equal and of the same type, whatever it is made of and wherever it is put."""

from __future__ import annotations

import asyncio
import dataclasses
import math
from collections import deque
from datetime import date, datetime, time, timedelta, timezone
from decimal import Decimal
from enum import Enum, IntEnum
from typing import Any, NamedTuple
from zoneinfo import ZoneInfo

import numpy as np
import pydantic.v1
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as np_st
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from langgraph.checkpoint.serde.types import INTERRUPT, _DeltaSnapshot
from langgraph.types import Command, Interrupt, Send
from pydantic import BaseModel, ConfigDict, Field, RootModel, computed_field, model_serializer, model_validator

from langgraph_checkpoint_custom import CheckpointEncodeError, open_saver
from tests.behaviour.helpers import Database, get, metadata, next_uuid, put
from tests.stores import Face, Store


class Colour(Enum):
    RED = "red"
    BLUE = ("b", 1)


class Word(str, Enum):
    YES = "yes"


class Number(IntEnum):
    ONE = 1


@dataclasses.dataclass
class Point:
    x: Any
    y: Any = None


@dataclasses.dataclass(frozen=True)
class Normalised:
    """One whose initialisation would change what was stored."""

    name: str
    calls: int = 0
    made: str = dataclasses.field(init=False, default="")

    def __post_init__(self) -> None:
        object.__setattr__(self, "calls", self.calls + 1)
        object.__setattr__(self, "made", self.name.upper())


@dataclasses.dataclass
class FromMore:
    """One that is made from more than its fields."""

    total: int = dataclasses.field(init=False)
    parts: dataclasses.InitVar[list[int]]

    def __post_init__(self, parts: list[int]) -> None:
        self.total = sum(parts)


class Pair(NamedTuple):
    left: Any
    right: Any


class Inner(BaseModel):
    number: int


class Model(BaseModel):
    name: str
    inner: list[Inner] = []
    colour: Colour = Colour.RED
    when: datetime | None = None


class Aliased(BaseModel):
    """One whose constructor wants other names than its dump has."""

    value: int = Field(alias="theValue")
    inner: Inner = Field(alias="theInner")

    @computed_field  # type: ignore[prop-decorator]  # mypy knows no decorated property.
    @property
    def double(self) -> int:
        return self.value * 2


class Numbers(RootModel[list[int]]):
    """One whose dump is no dict."""


class Named(RootModel[dict[str, Inner]]):
    """One whose dump is a dict of anything."""


class Shortened(BaseModel):
    """One that decides itself what its dump looks like."""

    text: str

    @model_serializer
    def shorten(self) -> dict[str, str]:
        return {"t": self.text}

    @model_validator(mode="before")
    @classmethod
    def lengthen(cls, given: Any) -> Any:
        return {"text": given["t"]} if "t" in given else given


class Open(BaseModel):
    model_config = ConfigDict(extra="allow")


class Old(pydantic.v1.BaseModel):
    name: str
    numbers: list[int] = []


def same(one: Any, two: Any) -> bool:
    """Equal in type and value all the way down, NaN and the sign of a zero included."""
    if type(one) is not type(two):
        return False
    if isinstance(one, float):
        return repr(one) == repr(two)
    if isinstance(one, datetime) and one.tzinfo:
        # One that no clock shows, in the hour that is left out in spring, equals none of another zone.
        return bool(one.utcoffset() == two.utcoffset() and one.replace(tzinfo=None) == two.replace(tzinfo=None))
    if isinstance(one, Decimal):
        return str(one) == str(two)
    if isinstance(one, np.ndarray):
        return bool(
            one.dtype == two.dtype and one.shape == two.shape and one.tobytes() == two.tobytes() and two.flags.writeable
        )
    if isinstance(one, dict):
        return same(list(one), list(two)) and same(list(one.values()), list(two.values()))
    if isinstance(one, (list, tuple, deque)):
        return len(one) == len(two) and all(map(same, one, two))
    if isinstance(one, (set, frozenset)):
        return bool(one == two) and {type(item) for item in one} == {type(item) for item in two}
    if dataclasses.is_dataclass(one):
        return all(same(getattr(one, f.name), getattr(two, f.name)) for f in dataclasses.fields(one))
    if isinstance(one, BaseModel):
        return same([one.__dict__, one.model_extra], [two.__dict__, two.model_extra])
    if isinstance(one, Send):
        return bool(one.node == two.node) and same(one.arg, two.arg)
    return bool(one == two)


zones = st.sampled_from([None, timezone.utc, timezone(timedelta(hours=-3, minutes=-30)), ZoneInfo("Europe/Berlin")])
text = st.text(st.characters(exclude_categories=["Cs"]), max_size=20) | st.sampled_from(
    ["nul\0nul", "a\r\nb", "🙂", "x" * 300]
)
hashable = st.one_of(
    st.none(),
    st.integers(-(2**63), 2**64 - 1),
    text,
    st.binary(max_size=9),
    st.uuids(),
    st.sampled_from([*Colour, *Word, *Number]),
)
scalars = st.one_of(
    hashable,
    st.booleans(),
    st.floats(),
    st.sampled_from([math.nan, math.inf, -math.inf, -0.0, 1e22, 1e16, 5e-324]),
    st.datetimes(timezones=zones),
    st.dates(),
    st.times(),
    st.timedeltas(),
    st.decimals(),
    st.frozensets(hashable | st.tuples(hashable, hashable), max_size=3),
    st.sets(hashable | st.tuples(hashable, st.tuples(hashable)), max_size=3),
    np_st.arrays(st.sampled_from(["i1", "<i8", ">f4", "f8", "?", "c16", "U3"]), np_st.array_shapes(max_dims=2)),
    st.builds(Model, name=text, inner=st.lists(st.builds(Inner, number=st.integers(0, 9)), max_size=2)),
    st.builds(lambda number: Aliased(theValue=number, theInner=Inner(number=number)), st.integers(0, 9)),
    st.builds(Numbers, st.lists(st.integers(0, 9), max_size=2)),
    st.builds(lambda name: Named({name: Inner(number=1)}), text),
    st.builds(Shortened, text=text),
    st.builds(lambda number: Open.model_validate({"anything": number}), st.integers(0, 9)),
    st.builds(Old, name=text, numbers=st.lists(st.integers(0, 9), max_size=2)),
    st.builds(Normalised, name=text),
    st.builds(lambda parts: FromMore(parts=parts), st.lists(st.integers(0, 9), max_size=3)),
    st.builds(HumanMessage, content=text, id=text),
    st.builds(
        lambda args: AIMessage("", tool_calls=[{"name": "f", "args": args, "id": "1"}]),
        st.dictionaries(text, st.integers(-(2**63), 2**64 - 1) | st.floats(allow_nan=False), max_size=2),
    ),
    st.builds(ToolMessage, content=text, tool_call_id=st.just("1")),
)
values = st.recursive(
    scalars,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.dictionaries(text | st.integers(0, 9), inner, max_size=3),
        st.builds(deque, st.lists(inner, max_size=3)),
        st.builds(Point, inner, inner),
        st.builds(Pair, inner, inner),
        st.builds(Send, st.just("node"), inner),
        st.builds(lambda value: Interrupt(value=value, id="1"), inner),
        st.builds(lambda value: Command(update={"a": value}, resume=value, goto="next"), inner),
        st.builds(_DeltaSnapshot, inner),
    ),
    max_leaves=8,
)


@pytest.mark.parametrize("colour", ["sync", "async"])
def test_as_a_value_as_a_write_in_an_interrupt_and_in_the_metadata(store: Store, colour: str) -> None:
    options = {"synchronous": "OFF"} if store.kind == "sqlite" else {}
    loop = asyncio.new_event_loop()
    saver = open_saver(store.url, **options)
    face = Face(saver, colour)

    async def check(value: Any) -> None:
        where = await put(face, next_uuid(), {"a": value}, meta=metadata(0, mine=value, nested={"list": [value]}))
        await face.put_writes(where, [("a", value), (INTERRUPT, [Interrupt(value=value, id="1")])], "task")
        found = await get(face, where)
        assert same(value, found.checkpoint["channel_values"]["a"])
        assert same(value, found.metadata["mine"])  # type: ignore[typeddict-item]
        assert same([value], found.metadata["nested"]["list"])  # type: ignore[typeddict-item]
        interrupt, write = found.pending_writes or []
        assert same(value, write[2])
        assert same(value, interrupt[2][0].value)

    @settings(max_examples=120, deadline=None, suppress_health_check=list(HealthCheck))
    @given(values)
    def round_trip(value: Any) -> None:
        loop.run_until_complete(check(value))

    try:
        round_trip()
    finally:
        loop.run_until_complete(saver.aclose())
        loop.close()


def local_class() -> Any:
    @dataclasses.dataclass
    class Local:
        x: int

    return Local(1)


class Outer:
    @dataclasses.dataclass
    class Nested:
        x: int


class FakeDatetime(datetime):
    """As libraries have that extend datetime."""


CHANGED: dict[str, Any] = {
    "half a character": "a\ud800",
    "half a character in a key": {"\udfff": 1},
    "half a character in an object": Point("\ud800"),
    "an int of more than 64 bits": 2**64,
    "a class inside a function": local_class(),
    "a class inside a class": Outer.Nested(1),
    "a kind of datetime": FakeDatetime(2024, 1, 1),
    "an array of objects": np.array([object()]),
    "an array with named fields": np.array([(1, 2.0)], dtype=[("a", "i4"), ("b", "f8")]),
    "a kind of array": np.ma.array([1, 2], mask=[False, True]),
    "something else": object(),
}


@pytest.mark.parametrize("name", CHANGED)
async def test_what_would_come_back_as_something_else_is_refused(face: Face, database: Database, name: str) -> None:
    where = await put(face, "1")
    before = sorted(database.cells())
    for value in (CHANGED[name], [CHANGED[name]], {"deep": Point(CHANGED[name])}):
        with pytest.raises(CheckpointEncodeError, match="nothing was stored"):
            await put(face, "2", {"fine": ["x"], "a": value})
        with pytest.raises(CheckpointEncodeError, match="nothing was stored"):
            await face.put_writes(where, [("fine", 1), ("a", value)], "task")
        with pytest.raises(CheckpointEncodeError, match=r"metadata.*nothing was stored"):
            await put(face, "2", {"fine": ["x"]}, meta=metadata(0, mine=value))
    assert sorted(database.cells()) == before


async def test_an_error_of_a_task_is_its_text(face: Face) -> None:
    """LangGraph stores exceptions so that people can read them, not to raise them again."""
    where = await put(face, "1")
    await face.put_writes(where, [("__error__", ValueError("no"))], "task")
    assert (await get(face, where)).pending_writes == [("task", "__error__", "ValueError('no')")]


def test_the_comparison_of_this_file_tells_values_apart() -> None:
    pairs = [
        (0.0, -0.0),
        (1, True),
        ([1], (1,)),
        ({1}, {True}),
        (date(2024, 1, 1), datetime(2024, 1, 1)),
        (time(1), time(2)),
        (Point(0.0), Point(-0.0)),
        (np.array([1]), np.array([1.0])),
        (Interrupt(value=1, id="1"), Interrupt(value=1.0, id="1")),
    ]
    assert not any(same(one, two) for one, two in pairs)
