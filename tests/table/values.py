"""The values of the table, by type. Each process creates them itself, so they are equal in all processes."""

from __future__ import annotations

import array
import collections
import dataclasses
import functools
import io
import ipaddress
import itertools
import math
import re
import sys
import threading
import types
from collections.abc import Callable
from datetime import datetime, time, timedelta, timezone
from decimal import Decimal
from enum import Enum
from fractions import Fraction
from http import HTTPStatus
from importlib import import_module
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import Any, NamedTuple
from uuid import UUID
from zoneinfo import ZoneInfo

import pydantic.v1
from langchain_core.agents import AgentAction
from langchain_core.documents import Document
from langchain_core.messages import (
    AIMessage,
    AIMessageChunk,
    ChatMessage,
    FunctionMessage,
    HumanMessage,
    HumanMessageChunk,
    RemoveMessage,
    SystemMessage,
    ToolMessage,
    ToolMessageChunk,
)
from langchain_core.outputs import ChatGeneration, LLMResult
from langchain_core.prompt_values import ChatPromptValue, StringPromptValue
from langchain_core.prompts import ChatPromptTemplate, MessagesPlaceholder, PromptTemplate
from langgraph.store.base import Item
from langgraph.types import CachePolicy, Command, Interrupt, Overwrite, RetryPolicy, Send, StateSnapshot
from pydantic import BaseModel, SecretBytes, SecretStr, create_model

from tests.behaviour.test_inexact import BY_CONSTRUCTOR, LOCAL, FakeDatetime, Indexed, Locked, Zone
from tests.core.models import Box, Shown, new
from tests.core.objects import Normalised, Rights, changed_after, with_slowly
from tests.core.test_restored import OBJECTS
from tests.table import classes as c

BERLIN = ZoneInfo("Europe/Berlin")
WHEN = datetime(2024, 2, 29, 12, 30, 1, 999_999)


def deep(levels: int) -> Any:
    found: Any = 1
    for _ in range(levels):
        found = [found]
    return found


def of_itself(value: Any) -> Any:
    if isinstance(value, list):
        value.append(value)
    elif isinstance(value, dict):
        value["itself"] = value
    else:
        value.x = [value]
    return value


def numbers() -> dict[str, Any]:
    return {
        "`None`": None,
        "`True`": True,
        "`0`": 0,
        "`-2**63`": -(2**63),
        "`2**63`": 2**63,
        "`2**64 - 1`": 2**64 - 1,
        "`2**64`": 2**64,
        "`-2**63 - 1`": -(2**63) - 1,
        "`10**100`": 10**100,
        "`0.1 + 0.2`": 0.1 + 0.2,
        "`1.0`": 1.0,
        "`-0.0`": -0.0,
        "`5e-324`": 5e-324,
        "`1e22`": 1e22,
        "`nan`": math.nan,
        "`inf`": math.inf,
        "`[nan, -inf]`": [math.nan, -math.inf],
        "`1 + 2j`": 1 + 2j,
        '`Decimal("1.10")`': Decimal("1.10"),
        '`Decimal("-0")`': Decimal("-0"),
        '`Decimal("NaN")`': Decimal("NaN"),
        '`Decimal("sNaN12")`': Decimal("sNaN12"),
        "`Fraction(1, 3)`": Fraction(1, 3),
        "a subclass of `int`": c.Number(1),
        "a subclass of `float`": c.Real(0.5),
    }


def texts() -> dict[str, Any]:
    return {
        '`""`': "",
        '`"naïve 🙂"`': "naïve 🙂",
        r'`"a\r\n\u2028"`': "a\r\n\u2028",
        r'`"a\0b"`': "a\0b",
        r'`["a\0b"]`': ["a\0b"],
        r'`"\ud800"` (half a character)': "\ud800",
        r'`{"\ud800": "\udfff"}`': {"\ud800": "\udfff"},
        "100,000 characters": "é\n" * 50_000,
        "a subclass of `str`": c.Text("a"),
        "a subclass of `str` in a list": [c.Text("a")],
        "`UserString`": collections.UserString("a"),
        '`b""`': b"",
        r'`b"\0\xff"`': b"\0\xff",
        r'`[b"\0\xff"]`': [b"\0\xff"],
        "100,000 bytes": bytes(range(250)) * 400,
        "`bytearray`": bytearray(b"\0\xff"),
        "`bytearray` in a list": [bytearray(b"\0\xff")],
        "`bytearray` in a dataclass": c.Point(bytearray(b"\0\xff")),
        "`memoryview`": memoryview(b"\0\xff"),
        "`array.array`": array.array("d", [0.5, 1.5]),
        "`io.BytesIO`": io.BytesIO(b"a"),
    }


def containers() -> dict[str, Any]:
    return {
        "`[]`": [],
        "`{}`": {},
        "lists and dicts": {"b": [1, "a", None, {"": [True]}], "a": {}},
        "`(1, 2)`": (1, 2),
        "`[(1, 2)]`": [(1, 2)],
        "a tuple in a dataclass": c.Point((1, (2,))),
        "a named tuple": c.Pair(1, "a"),
        "a named tuple in a list": [c.Pair(1, c.Pair((2,)))],
        "a subclass of a named tuple, with a constructor of its own": OBJECTS["named tuple of its own mind"],
        "`{1, 2}`": {1, 2},
        "`set()`": set(),
        "`{(1, 2)}`": {(1, 2)},
        "`{(1, (2,))}`": {(1, (2,))},
        "`frozenset({1, 2})`": frozenset({1, 2}),
        "`{frozenset({1})}`": {frozenset({1})},
        "`deque([1, 2])`": collections.deque([1, 2]),
        "`deque([1, 2], maxlen=2)`": collections.deque([1, 2], maxlen=2),
        "`deque([(1, 2)])`": collections.deque([(1, 2)]),
        "`defaultdict(list)`": collections.defaultdict(list, a=[1]),
        "`defaultdict(list)` in a dataclass": c.Point(collections.defaultdict(list, a=[1])),
        "`OrderedDict`": collections.OrderedDict(b=1, a=2),
        "`OrderedDict` in a dataclass": c.Point(collections.OrderedDict(b=1, a=2)),
        "`Counter`": collections.Counter("aab"),
        "`Counter` in a dataclass": c.Point(collections.Counter("aab")),
        "`ChainMap`": collections.ChainMap({"a": 1}, {"b": 2}),
        "`UserDict`": c.Defaults(a=1),
        "`MappingProxyType`": types.MappingProxyType({"a": 1}),
        "`SimpleNamespace`": types.SimpleNamespace(a=1),
        "a subclass of `list`": c.Names(["a"]),
        "a subclass of `dict`": c.Settings(a=1),
        "a subclass of `set`": c.Tags({"a"}),
        '`{1: "a", "1": "b"}`': {1: "a", "1": "b"},
        '`{None: 1, 1.5: 2, False: 3, b"b": 4}`': {None: 1, 1.5: 2, False: 3, b"b": 4},
        "keys that are tuples": {(1, 2): "a"},
        "keys that are tuples, in a dataclass": c.Point({(1, 2): "a"}),
        "keys that are frozen sets": {frozenset({1}): "a"},
        "keys that are UUIDs": {UUID(int=1): "a"},
        "keys that are enums": {c.Colour.RED: "a"},
        "keys that are datetimes": {WHEN: "a"},
        "keys that are dates": {WHEN.date(): "a"},
        "keys that are decimals": {Decimal("1.10"): "a"},
        "keys of all these kinds, in a model": OBJECTS["of many kinds"],
        "100 lists in one another": deep(100),
        "2,000 lists in one another": deep(2000),
        "a list that contains itself": of_itself([]),
        "a dict that contains itself": of_itself({}),
        "`{}.keys()`": {"a": 1}.keys(),
        "an iterator": iter([1, 2]),
        "a generator": (each for each in (1, 2)),
        "`itertools.count()`": itertools.count(),
        "`range(3)`": range(3),
        "`slice(1, 2)`": slice(1, 2),
        "a `TypedDict`": c.Movie(title="a", year=1990),
        "a `TypedDict` with a tuple": c.Movie(title="a", cast=("b", "c")),
    }


def times() -> dict[str, Any]:
    return {
        "a date": WHEN.date(),
        "a naive datetime": WHEN,
        "`datetime.min`, `datetime.max`": [datetime.min, datetime.max],
        "UTC": WHEN.replace(tzinfo=timezone.utc),
        "an offset": WHEN.replace(tzinfo=timezone(timedelta(hours=5, minutes=30))),
        "an offset with a name": WHEN.replace(tzinfo=timezone(timedelta(hours=1), "there")),
        "an offset of seconds": WHEN.replace(tzinfo=timezone(timedelta(seconds=3723))),
        '`ZoneInfo("UTC")`': WHEN.replace(tzinfo=ZoneInfo("UTC")),
        '`ZoneInfo("Europe/Berlin")`': WHEN.replace(tzinfo=BERLIN),
        "the second of two 2:30 in Berlin": datetime(2024, 10, 27, 2, 30, tzinfo=BERLIN, fold=1),
        "2:30 in Berlin when there was none": datetime(2024, 3, 31, 2, 30, tzinfo=BERLIN),
        "a naive datetime with `fold=1`": WHEN.replace(fold=1),
        "a zone of another kind of `tzinfo`": WHEN.replace(tzinfo=Zone()),
        "a subclass of `datetime`": FakeDatetime(2024, 1, 1),
        "a time": WHEN.time(),
        "a time with an offset": time(1, tzinfo=timezone(timedelta(hours=-3))),
        "a time in Berlin": time(1, tzinfo=BERLIN),
        "`timedelta`": timedelta(days=-1, microseconds=1),
        "`timezone.utc`": timezone.utc,
        "`ZoneInfo`": BERLIN,
    }


def standard() -> dict[str, Any]:
    return {
        "`UUID`": UUID("12345678-1234-5678-1234-567812345678"),
        "`IPv4Address`": ipaddress.ip_address("10.0.0.1"),
        "`IPv6Address` with a scope": ipaddress.ip_address("fe80::1%eth0"),
        "`IPv4Network`": ipaddress.ip_network("10.0.0.0/8"),
        "`IPv6Interface`": ipaddress.ip_interface("2001:db8::1/64"),
        "`Path`": Path("/a/b"),
        "`PurePosixPath`": PurePosixPath("a/b"),
        "`PureWindowsPath`": PureWindowsPath("c:/a"),
        "`re.compile`": re.compile(r"a+ # b", re.IGNORECASE | re.VERBOSE),
        "`re.compile` of bytes": re.compile(rb"\xff+"),
        "an exception": ValueError("no"),
        "an exception in a list": [KeyError("a")],
        "an exception of a class of one's own": c.Refused(3),
        "a dataclass that is an exception": c.Failure(3),
        "`int` (a type)": int,
        "a class": c.Plain,
        "a function": c.function,
        "a built-in function": len,
        "a lambda": lambda: None,
        "`functools.partial`": functools.partial(c.function),
        "a bound method": [].append,
        "a module": math,
        "`list[int]`": list[int],
        "`...`": ...,
        "`object()`": object(),
        "an object of a plain class": c.Plain(1),
        "an object with `__slots__`": c.Slots(1),
        "an object with `__reduce__`": c.Reduced(1),
        "a lock": threading.Lock(),
    }


def enums() -> dict[str, Any]:
    class Local(Enum):
        RED = "red"

    return {
        "`Enum`": c.Colour.RED,
        "one whose value is a tuple": c.Colour.BLUE,
        "one whose value is a list": c.Colour.GREY,
        "one whose value is NaN": c.Colour.NONE,
        "`class Word(str, Enum)`": c.Word.YES,
        "`class Word(str, Enum)` in a list": [c.Word.YES],
        "`IntEnum`": c.Level.LOW,
        "`IntEnum` in a list": [c.Level.LOW],
        "`class Ratio(float, Enum)`": c.Ratio.HALF,
        "`Flag`, two together": Rights.READ | Rights.WRITE,
        "`Flag`, none": Rights(0),
        "`IntFlag`, two together": c.Mode.READ | c.Mode.WRITE,
        "`http.HTTPStatus.OK`": HTTPStatus.OK,
        "one of a class in a class": c.Outside.Colour.RED,
        "one of a class in a function": Local.RED,
    } | ({"`StrEnum`": _str_enum()} if sys.version_info >= (3, 11) else {})


def _str_enum() -> Any:
    module: Any = import_module("tests.table.strenum")
    return module.Size.BIG


def data_classes() -> dict[str, Any]:
    @dataclasses.dataclass
    class Local:
        x: int

    Shadowed: Any = dataclasses.make_dataclass("Made", ["x"])
    noted: Any = c.Point(1)
    noted.note = "an attribute that is no field"
    half = c.Computed.__new__(c.Computed)
    half.x = 1
    return {
        "plain": c.Point(1, [c.Point("a")]),
        "frozen, with slots and a tuple": c.Fixed(1, ("a",)),
        "that inherits": c.Point3(1, 2, 3),
        "generic": c.Sealed[int](1),
        "`__post_init__` that counts": c.Counted("a"),
        "`__post_init__` of a frozen one": Normalised("a"),
        "a field with `init=False`": c.Computed(3),
        "a field with `init=False` that was changed": changed_after(c.Computed(3), square=10),
        "a field with `init=False` that has no value yet": half,
        "`InitVar`": c.Given(parts=[1, 2]),
        "`InitVar`, slots and keywords": OBJECTS["slots"],
        "sets, deques, tuples and keys that are tuples": c.Held(
            {(1, 2): "a"}, {(1, "b")}, collections.deque([1, 2], maxlen=2), [c.Held()]
        ),
        "another attribute": noted,
        "another attribute that is a lock": Indexed("a"),
        "a cached property that was asked for": with_slowly(Normalised("a")),
        "of pydantic, with an alias and a validator": OBJECTS["pydantic dataclass"],
        "of a class in a class": c.Outside.Place(1),
        "of a class in a function": Local(1),
        "of `make_dataclass`": Shadowed(1),
        "that contains itself": of_itself(c.Point(1)),
    }


def models() -> dict[str, Any]:
    class Local(BaseModel):
        name: str

    return {
        "plain": c.Model(name="a", numbers=[1]),
        "fields that were not given": c.Model(name="a"),
        "in models, lists and dicts": c.Nested(
            one=c.Model(name="a"), several=[c.Model(name="b")], named={"c": c.Model(name="c")}
        ),
        "of a subclass, where a field wants the base": c.Nested(one=c.More(name="a", more="b")),
        "in a field of type `Any`": c.Nested(one=c.Model(name="a"), anything=[c.Model(name="b"), c.Point((1,))]),
        "aliases of all kinds": OBJECTS["aliases"],
        "`alias_generator`": OBJECTS["generated aliases"],
        '`field_validator(mode="before")` that doubles': c.Doubling(number=2),
        '`model_validator(mode="before")` and a serializer': OBJECTS["serialised otherwise"],
        "a validator that wants a context": c.InContext.model_validate({"name": "a"}, context=["a"]),
        "`model_post_init` that counts": c.Started(number=1),
        "private attributes": OBJECTS["made with effects"],
        "a private attribute that is a lock": Locked(theName="a"),
        '`extra="allow"`': c.Loose.model_validate({"a": 1, "b": (2,)}),
        "a field of a plain class": c.Loose(plain=c.Plain(1)),
        "not valid (`model_construct`)": OBJECTS["not valid"],
        "not whole (`model_construct`)": OBJECTS["not whole"],
        "changed to what is not valid": OBJECTS["changed to what is not valid"],
        "strict and frozen, with tuples": OBJECTS["strict, with tuples"],
        "`model_serializer`": OBJECTS["model serializer"],
        "an excluded field": Shown(hidden="h"),
        "`computed_field`": with_slowly(new(Shown, seen=2)),
        "a field with a form of its own": BY_CONSTRUCTOR["a field with a form of its own"],
        "generic": Box[int](item=1),
        "generic, with a model": Box[c.Model](item=c.Model(name="a")),
        "generic, without a type": Box(item=1),
        "generic models in a model": OBJECTS["generic"],
        "`RootModel[list[int]]`": OBJECTS["root"],
        "`RootModel` of a dict of itself": OBJECTS["tree"],
        "a tree": c.Tree(name="a", children=[c.Tree(name="b", children=[c.Tree(name="c")])]),
        "a discriminated union": c.Owner(pet=c.Dog()),
        "a union without a tag": c.Owner(pet=c.Cat(), either=c.More(name="a", more="b")),
        "URL, decimal, secrets, bytes that are no text": new(
            c.Typed,
            url="https://example.com/a",
            price=Decimal("1.10"),
            at=WHEN.replace(tzinfo=BERLIN),
            password="p",
            key=b"\xff",
            raw=b"\xff",
        ),
        "`SecretStr`": SecretStr("s"),
        "`SecretBytes`": SecretBytes(b"\xff"),
        "`HttpUrl`": pydantic.HttpUrl("https://example.com/a"),
        "`ByteSize`": pydantic.TypeAdapter(pydantic.ByteSize).validate_python("1KB"),
        "of a class in a class": c.Outside.Model(x=1),
        "of a class in a function": Local(name="a"),
        "of `create_model`": create_model("Made", name=(str, ...))(name="a"),
        "in a model of a class in a function": LOCAL["model in a model"],
        "pydantic 1: plain": c.Old(name="a", numbers=[1]),
        "pydantic 1: in a model, with a tuple": c.OldOuter(inner=c.Old(name="a")),
        "pydantic 1: alias, validator, private and extra": OBJECTS["old"],
        "pydantic 1: `SecretStr`": pydantic.v1.SecretStr("s"),
        "pydantic 1: of a class in a function": LOCAL["old model"],
    }


def attrs() -> dict[str, Any]:
    a: Any = import_module("tests.table.attrs_classes")
    return {
        "`define`": a.Place(1, [a.Place(2)]),
        "`frozen`": a.Fixed(1),
        "a converter": a.Converted("1"),
        "a private attribute": a.Private(1),
        "of a class in a function": a.local(),
    }


def msgspec() -> dict[str, Any]:
    m: Any = import_module("tests.table.msgspec_classes")
    return {
        "`Struct`": m.Place(1, [m.Place(2)]),
        "`Struct`, frozen and tagged": m.Fixed(1),
        "`msgspec.Raw`": m.raw(),
    }


def messages() -> dict[str, Any]:
    call: Any = {"name": "f", "args": {"x": [1, {"y": None}]}, "id": "1", "type": "tool_call"}
    used: Any = {
        "input_tokens": 1,
        "output_tokens": 2,
        "total_tokens": 3,
        "input_token_details": {"cache_read": 1},
    }
    return {
        "`HumanMessage`": HumanMessage("hi", id="1"),
        "`HumanMessage` without an id": HumanMessage("hi"),
        r"`HumanMessage` with `\0`": HumanMessage("a\0b"),
        "`HumanMessage` with text and an image": HumanMessage(
            [{"type": "text", "text": "t"}, {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA=="}}]
        ),
        "`HumanMessage` with a name": HumanMessage("hi", name="ann", example=True),
        "`AIMessage` with tool calls": AIMessage("", tool_calls=[call], id="2"),
        "`AIMessage` with tool calls that are not valid": AIMessage(
            "", invalid_tool_calls=[{"name": "f", "args": "{", "id": "1", "error": "no", "type": "invalid_tool_call"}]
        ),
        "`AIMessage` with usage metadata": AIMessage("a", usage_metadata=used, response_metadata={"model": "m"}),
        "`AIMessage` with blocks": AIMessage([{"type": "reasoning", "reasoning": "r"}, {"type": "text", "text": "t"}]),
        "`AIMessageChunk`": AIMessageChunk(
            content="a",
            tool_call_chunks=[{"name": "f", "args": '{"x"', "id": "1", "index": 0, "type": "tool_call_chunk"}],
        ),
        "`AIMessageChunk`, two added": AIMessageChunk(content="a", id="1") + AIMessageChunk(content="b", id="1"),
        "`HumanMessageChunk`": HumanMessageChunk(content="a"),
        "`SystemMessage`": SystemMessage("s"),
        "`ToolMessage`": ToolMessage("t", tool_call_id="1", status="error"),
        "`ToolMessage` with bytes as artifact": ToolMessage("t", tool_call_id="1", artifact={"x": b"\0"}),
        "`ToolMessage` with a dataclass as artifact": ToolMessage("t", tool_call_id="1", artifact=c.Point((1,))),
        "`ToolMessage` with a model as artifact": ToolMessage("t", tool_call_id="1", artifact=[c.Model(name="a")]),
        "`ToolMessage` with an object of a plain class as artifact": ToolMessage(
            "t", tool_call_id="1", artifact=c.Plain(1)
        ),
        "`ToolMessageChunk`": ToolMessageChunk(content="t", tool_call_id="1"),
        "`FunctionMessage`": FunctionMessage(content="f", name="n"),
        "`ChatMessage`": ChatMessage(content="c", role="r"),
        "`RemoveMessage`": RemoveMessage(id="1"),
        "a model, a tuple and a UUID in `additional_kwargs`": HumanMessage(
            "h", additional_kwargs={"model": c.Model(name="a"), "pair": (1, 2), "id": UUID(int=1)}
        ),
        "a datetime in Berlin in `response_metadata`": AIMessage(
            "a", response_metadata={"at": WHEN.astimezone(BERLIN)}
        ),
        "a field that the class does not know": AIMessage("a", mine=[1]),
        "a message of a class of one's own": c.Reply(content="a", score=0.5),
        "a list of messages": [SystemMessage("s"), HumanMessage("h"), AIMessage("a", tool_calls=[call])],
        "a tool call": call,
        "`Document`": Document("d", id="1", metadata={"a": 1}),
        "`Document` with a model in its metadata": Document("d", metadata={"model": c.Model(name="a")}),
        "`PromptTemplate`": PromptTemplate.from_template("you are {name}"),
        "`ChatPromptTemplate`": OBJECTS["prompt"],
        "`ChatPromptTemplate` with a placeholder": ChatPromptTemplate.from_messages([MessagesPlaceholder("chat")]),
        "`StringPromptValue`": StringPromptValue(text="a"),
        "`ChatPromptValue`": ChatPromptValue(messages=[HumanMessage("h")]),
        "`AgentAction`": AgentAction(tool="f", tool_input={"x": 1}, log="l"),
        "`LLMResult`": LLMResult(generations=[[ChatGeneration(message=AIMessage("a"))]]),
    }


def langgraph() -> dict[str, Any]:
    return {
        "`Send`": Send("node", {"x": [1]}),
        "`Send` with a tuple and a model": Send("node", {"pair": (1, 2), "model": c.Model(name="a")}),
        "`Command`": Command(update={"a": 1}, goto="b", resume=[1]),
        "`Command` with a `Send` and a tuple": Command(update={"a": (1,)}, goto=[Send("b", (1,))]),
        "`Command(graph=Command.PARENT)`": Command(graph=Command.PARENT, update=[("a", 1)]),
        "`Interrupt`": Interrupt(value={"question": "?"}, id="1"),
        "`Interrupt` with a model and a tuple": Interrupt(value=(c.Model(name="a"), 1), id="1"),
        "`Overwrite`": Overwrite([1]),
        "`RetryPolicy`": RetryPolicy(max_attempts=2),
        "`CachePolicy`": CachePolicy(ttl=1),
        "`StateSnapshot`": StateSnapshot({"a": 1}, (), {"configurable": {}}, None, None, None, (), ()),
        "`Item` of a store": Item(value={"a": 1}, key="k", namespace=("n",), created_at=WHEN, updated_at=WHEN),
    }


def numpy() -> dict[str, Any]:
    import numpy as np

    grid = np.arange(6, dtype="f8").reshape(2, 3)
    read_only = np.arange(3)
    read_only.flags.writeable = False
    objects = np.array([1, "a", None, c.Point(1)], dtype=object)
    record = np.dtype([("a", "<i4"), ("b", ">f8", (2,)), ("c", [("d", "S2")])])
    return {
        "`int64`": np.int64(1),
        "`float64`": np.float64(0.5),
        "`float64` in a list": [np.float64(0.5)],
        "`float32`": np.float32(0.5),
        "`bool_`": np.bool_(True),
        "`str_`": np.str_("a"),
        "`bytes_`": np.bytes_(b"a"),
        "`datetime64`": np.datetime64("2024-02-29"),
        "a dict with `float32` values": {"a": np.float32(0.5)},
        "`int8` array": np.array([1, -1], dtype="i1"),
        "`float64` array of two dimensions": grid,
        "the same in Fortran's order": np.asfortranarray(grid),
        "the same, every other column": grid[:, ::2],
        "the same, transposed and in a list": [grid.T],
        "big-endian array": np.array([1, 2], dtype=">u4"),
        "`bool` array": np.array([True, False]),
        "`complex128` array": np.array([1 + 2j]),
        "array of texts": np.array(["a", "bcd"]),
        "array of bytes": np.array([b"a", b"bcd"]),
        "array of `datetime64`": np.array(["2024-02-29", "NaT"], dtype="M8[us]"),
        "array of no dimension": np.array(1.5),
        "empty array of three dimensions": np.empty((0, 2, 3)),
        "100,000 numbers": np.arange(100_000),
        "read-only array": read_only,
        "array of objects": objects,
        "array of objects of two dimensions": objects.reshape(2, 2),
        "array of arrays": np.array([np.arange(2), np.arange(3)], dtype=object),
        "structured array": np.zeros(2, dtype=record),
        "structured array with objects": np.array([(1, "a")], dtype=[("a", "i4"), ("b", "O")]),
        "masked array": np.ma.array([1, 2, 3], mask=[False, True, False], fill_value=9),
        "`recarray`": np.array([1, 2]).view(np.recarray),
        "`StringDType` array": np.array(["a", "bcd"], dtype=np.dtypes.StringDType())
        if hasattr(np, "dtypes") and hasattr(np.dtypes, "StringDType")
        else None,
        "`dtype`": np.dtype("f8"),
        "a model with an array": new(c.Nested, one=c.Model(name="a"), anything=np.arange(3)),
        "a message with an array as artifact": ToolMessage("t", tool_call_id="1", artifact=np.arange(3)),
    }


def pandas() -> dict[str, Any]:
    pd: Any = import_module("pandas")

    frame = pd.DataFrame({"a": [1, 2], "b": ["x", None]})
    return {
        "`DataFrame`": frame,
        "`DataFrame` in a dict": {"frame": frame},
        "`DataFrame` with a column `dict`": pd.DataFrame({"dict": [1]}),
        "`Series`": pd.Series([1.5, float("nan")], name="s"),
        "`Index`": pd.Index(["a", "b"]),
        "`MultiIndex`": pd.MultiIndex.from_tuples([("a", 1), ("b", 2)]),
        "`Categorical`": pd.Categorical(["a", "b", "a"]),
        "`Timestamp`": pd.Timestamp("2024-02-29T12:30:01.999999999"),
        "`Timestamp` in Berlin": pd.Timestamp("2024-02-29T12:30", tz="Europe/Berlin"),
        "`Timedelta`": pd.Timedelta("1 days 00:00:00.000000001"),
        "`NaT`": pd.NaT,
        "`pd.NA`": pd.NA,
        "`Period`": pd.Period("2024-02", freq="M"),
        "`Interval`": pd.Interval(0, 1),
        "`to_dict()` of a `DataFrame` of numbers": pd.DataFrame({"a": [1, 2]}).to_dict(),
        "`to_numpy()` of a `DataFrame`": frame.to_numpy(),
    }


class Group(NamedTuple):
    """A group of values; `package` is the package that they need, which may be missing."""

    name: str
    make: Callable[[], dict[str, Any]]
    package: str = ""


GROUPS = (
    Group("Numbers", numbers),
    Group("Text and bytes", texts),
    Group("Containers", containers),
    Group("Dates and times", times),
    Group("Enums", enums),
    Group("Standard library and the language", standard),
    Group("Dataclasses", data_classes),
    Group("Models of pydantic", models),
    Group("Messages and what else is LangChain's", messages),
    Group("LangGraph's own types", langgraph),
    Group("numpy", numpy, "numpy"),
    Group("pandas", pandas, "pandas"),
    Group("attrs", attrs, "attrs"),
    Group("msgspec", msgspec, "msgspec"),
)
