"""Objects that are stored in one piece: each type that has an exact form, and the codecs of an application."""

from __future__ import annotations

import array
import collections
import functools
import io
import threading
import types
from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from pathlib import PurePosixPath, PureWindowsPath
from typing import Any, NamedTuple

import numpy as np
import ormsgpack
import pydantic
import pytest
from langchain_core.messages import ToolMessage
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from langgraph.types import RetryPolicy
from pydantic import BaseModel, SecretStr
from pydantic_core import MultiHostUrl, Url

from langgraph_checkpoint_custom import ConfigError, register_codec
from langgraph_checkpoint_custom.encoding.allowlist import strict_serde
from langgraph_checkpoint_custom.encoding.extensions import SecretInClear, UnreadableValue, UnstorableValue
from langgraph_checkpoint_custom.encoding.serde import ExactSerializer, exact_serializer
from tests.codecs import forget_codecs
from tests.exactly import same

LANGGRAPH = JsonPlusSerializer()
SERDE = exact_serializer(LANGGRAPH)
STRICT = exact_serializer(strict_serde(JsonPlusSerializer(), ()))
RAW = exact_serializer(strict_serde(JsonPlusSerializer(), ()), raw=True)


@dataclass
class Point:
    x: Any


class Model(BaseModel):
    anything: Any = None
    url: pydantic.AnyUrl | None = None


class Endpoint(pydantic.AnyUrl):
    """A URL of an application, with its own rules."""

    _constraints = pydantic.networks.UrlConstraints(allowed_schemes=["https"])


class Hidden:
    """A class that is not plain, which LangGraph stores by a method."""

    def __init__(self, secret: SecretStr) -> None:
        self.secret = secret

    def _asdict(self) -> dict[str, SecretStr]:
        return {"secret": self.secret}

    def __getstate__(self) -> object:
        return None


class Plain:
    """A class without anything."""

    calls = 0

    def __init__(self, x: Any) -> None:
        type(self).calls += 1
        self.x = x
        self._hidden = [x]

    @functools.cached_property
    def length(self) -> int:
        """Computed when it is asked for."""
        return len(self._hidden)


class Slots(Plain):
    __slots__ = ("y", "z")

    def __init__(self, y: Any) -> None:
        super().__init__((y,))
        self.y = y


class Location(PurePosixPath):
    """A subclass is another type."""


class Reduced:
    def __reduce__(self) -> Any:
        return Reduced, ()


def function() -> None:
    """A function of a module."""


def objects_in(*those: Any) -> Any:
    found = np.empty(len(those), dtype=object)
    for number, each in enumerate(those):
        found[number] = each
    return found


RECORD: Any = np.dtype([("a", "<i4"), ("b", ">f8", (2,)), ("c", [("d", "S2")])])
# These are read whatever is allowed.
SAFE: dict[str, Any] = {
    "range": range(1, 9, 2),
    "slice": slice(1, (2,), None),
    "complex": complex(-0.0, float("inf")),
    "ellipsis": ...,
    "not implemented": NotImplemented,
    "fraction": Fraction(10**30, 3),
    "posix path": PurePosixPath("//a/b/../c"),
    "windows path": PureWindowsPath("c:/a"),
    "mapping proxy": types.MappingProxyType({"a": (1,), 2: 3}),
    "namespace": types.SimpleNamespace(a=(1,), b=types.SimpleNamespace()),
    "generic alias": dict[str, list[int]],
    "array": array.array("f", [0.1, -0.0]),
    "bytes in memory": io.BytesIO(b"abc"),
    "text in memory": io.StringIO("a\r\nb\n"),
    "user string": collections.UserString("a"),
    "a type": int,
    "partial": functools.partial(int, "10", base=2),
    "tuple": (1, ("a", {"b": ()}), [(2,)]),
    "ordered dict": collections.OrderedDict(b=1, a=(2,)),
    "ordered dict with keys of all kinds": collections.OrderedDict({(1, 2): 1, Fraction(1, 2): 2, None: 3}),
    "counter": collections.Counter("aab"),
    "default dict": collections.defaultdict(list, a=[1]),
    "URL": pydantic.AnyUrl("https://exämple.com/a b?q=ä#x"),
    "URL without a path": pydantic.TypeAdapter(
        pydantic.AnyUrl, config={"url_preserve_empty_path": True}
    ).validate_python("https://example.com"),
    "http": pydantic.HttpUrl("http://u:p@example.com:8080"),
    "file": pydantic.FileUrl("file:///a/b"),
    "several hosts": pydantic.PostgresDsn("postgres://u:p@h1:1,h2:2/db"),
    "redis": pydantic.RedisDsn("redis://"),
    "core URL": Url("https://example.com"),
    "core URL of several hosts": MultiHostUrl("a://h1,h2/x"),
    "byte size": pydantic.ByteSize(1000),
    **{
        f"numpy {name}": getattr(np, name)(3)
        for name in ("int8", "uint64", "longlong", "float16", "float32", "float64")
    },
    "numpy nan": np.float32("nan"),
    "numpy -0.0": np.float64(-0.0),
    "numpy complex64": np.complex64(1 + 2j),
    "numpy complex128": np.complex128(complex("nan+infj")),
    "numpy bool": np.bool_(True),
    "numpy str": np.str_("a\0"),
    "numpy bytes": np.bytes_(b"a\0b"),
    "numpy date": np.datetime64("2024-02-29"),
    "numpy time of 25 ns": np.array([3], "M8[25ns]")[0],
    "numpy NaT": np.datetime64("NaT", "s"),
    "numpy delta": np.timedelta64(-3, "M"),
    "numpy delta of no unit": np.array([3]).view("m8")[0],
    "numpy void": np.void(b"abc"),
    "numpy record": np.zeros(2, dtype=RECORD)[0],
    "numpy dtype": np.dtype(">f8"),
    "numpy structured dtype": RECORD,
    "numpy dtype of a time": np.dtype("M8[25s]"),
    "numpy array of lists of one length": objects_in([1, 2], [3, (4,)]),
    "numpy array of values of all kinds": objects_in(Fraction(1, 3), np.int64(1), None, Decimal(1)),
    "numpy structured array with objects": np.array([(1, ("a",)), (2, None)], dtype=[("a", "i4"), ("b", "O")]),
    "numpy recarray": np.array([(1, 0.5)], dtype=[("a", "i4"), ("b", "f8")]).view(np.recarray),
    "numpy matrix": np.array([[1, 2]]).view(np.matrix),
    "keys": {np.int64(3): 1, Fraction(1, 2): 2, range(3): 3},
} | ({"numpy texts": np.array(["a", "bcd"], dtype="T")} if hasattr(getattr(np, "dtypes", None), "StringDType") else {})
# These are read if their classes are allowed.
NAMED: dict[str, Any] = {
    "a class": Plain,
    "a model's class": Model,
    "a function": function,
    "a built-in function": len,
    "a plain object": Plain((1, {"a": (2,)})),
    "an object with slots": Slots(1),
    "an application's URL": Endpoint("https://example.com"),
    "user dict": collections.UserDict(a=(1,)),
    "chain map": collections.ChainMap({"a": 1}, {"b": (2,)}),
    "a partial function": functools.partial(function),
    "default dict of a function": collections.defaultdict(function, a=1),
    "retry policy": RetryPolicy(max_attempts=2),
}
VALUES = SAFE | NAMED


@pytest.fixture(autouse=True)
def _no_codecs() -> Iterator[None]:
    yield
    forget_codecs()


def through(value: Any, reader: Any = SERDE) -> Any:
    return reader.loads_typed(SERDE.dumps_typed(value))


@pytest.mark.parametrize("name", VALUES)
def test_a_value_comes_back_as_it_was_wherever_it_is(name: str) -> None:
    value = VALUES[name]
    calls = Plain.calls, Slots.calls
    for holder in (
        value,
        [value],
        {"a": (value,)},
        Point(value),
        Model(anything={"deep": [value]}),
        ToolMessage("t", tool_call_id="1", artifact=[value]),
    ):
        assert same(through(holder), holder), holder
    assert (Plain.calls, Slots.calls) == calls, "a constructor was called"


@pytest.mark.parametrize("name", SAFE)
def test_strict_reads_it(name: str) -> None:
    assert same(through([SAFE[name]], STRICT), [SAFE[name]])


@pytest.mark.parametrize("name", NAMED)
def test_strict_refuses_what_an_application_has_not_allowed(name: str) -> None:
    with pytest.raises(UnreadableValue, match="is not allowed to be read; if it should be, pass allow="):
        through([NAMED[name]], STRICT)


def test_a_class_and_a_function_can_be_allowed() -> None:
    allowing = exact_serializer(strict_serde(JsonPlusSerializer(), [Plain, (__name__, "function")]))
    assert through([Plain, function], allowing) == [Plain, function]
    assert same(through(Plain(1), allowing), Plain(1))


# What LangGraph's serializer returns for the others.
PARTS: dict[str, Any] = {
    "bytes in memory": [b"abc", 0],
    "text in memory": ["a\r\nb\n", "\n", 0],
    "partial": [int, ("10",), {"base": 2}, {}],
    "default dict": {"a": [1]},
    "numpy record": None,
    "numpy structured dtype": None,
    "numpy array of lists of one length": None,
    "numpy array of values of all kinds": None,
    "numpy structured array with objects": None,
    "numpy recarray": None,
    "numpy texts": None,
    "numpy matrix": np.array([[1, 2]]),
    "URL without a path": pydantic.AnyUrl("https://example.com"),
}


@pytest.mark.filterwarnings("ignore:dtype")
@pytest.mark.parametrize("name", SAFE)
def test_langgraphs_serializer_reads_it_or_its_parts(name: str) -> None:
    found = through({"other": 1, "value": SAFE[name]}, LANGGRAPH)
    assert found["other"] == 1
    if name not in PARTS:
        assert same(found["value"], SAFE[name])
    elif PARTS[name] is not None:
        assert same(found["value"], PARTS[name])


def test_a_tuple_is_a_list_for_a_strict_langgraph() -> None:
    assert through({"a": (1, (2,))}, JsonPlusSerializer(allowed_msgpack_modules=None)) == {"a": [1, [2]]}


# What has no form

REFUSED: dict[str, tuple[Any, str]] = {
    "lambda": (lambda: None, "define it at the top level of a module"),
    "method": (Plain(1).length.bit_length, "define it at the top level"),
    "method of an object": (Point(1).__eq__, "store the object that it belongs to"),
    "generator": ((each for each in [1]), r"store list\(…\) of it"),
    "iterator": (iter([]), r"store list\(…\) of it"),
    "keys": ({}.keys(), r"store list\(…\) of it"),
    "lock": (threading.Lock(), "create it where it is used"),
    "reentrant lock": (threading.RLock(), "create it where it is used"),
    "condition": (threading.Condition(), "create it where it is used"),
    "object": (object(), "create it where it is used"),
    "module": (types, "store its name"),
    "file": (io.TextIOWrapper(io.BytesIO()), "store its path or what it contains"),
    "subclass of a leaf": (Location("a"), r"register_codec\(Location, to_bytes, from_bytes\)"),
    "own way for pickle": (Reduced(), r"register_codec\(Reduced, to_bytes, from_bytes\)"),
    "class in a function": (type("Local", (), {})(), "define it there"),
}


@pytest.mark.parametrize("name", REFUSED)
@pytest.mark.parametrize("on_inexact", ["store", "raise"])
def test_what_has_no_form_is_refused_and_the_error_says_what_to_do(name: str, on_inexact: Any) -> None:
    value, words = REFUSED[name]
    for holder in (value, [value], Point(value)):
        with pytest.raises(TypeError, match=words):
            exact_serializer(LANGGRAPH, on_inexact=on_inexact).dumps_typed(holder)


# Hostile data


def stored(code: int, *content: Any) -> tuple[str, bytes]:
    return "msgpack", ormsgpack.packb(ormsgpack.Ext(code, ormsgpack.packb(content)))


HOSTILE: dict[str, tuple[tuple[str, bytes], str]] = {
    "a text that takes hours": (stored(1, "fractions", "Fraction", ["1e999999999"]), "cannot be created"),
    "parts of a function": (stored(3, "os", "system", "true", "parts"), "never allowed"),
    "a codec of nobody": (
        stored(3, "os", "system", b"true", "codec"),
        r"register_codec\(system, to_bytes, from_bytes\)",
    ),
    "another method": (stored(3, "numpy", "ndarray", [], "tofile"), "never allowed"),
    "a leaf by another code": (stored(2, "builtins", "range", {}), "is not allowed"),
    "a function by its name": (stored(0, "pkgutil", "resolve_name", "os:system"), "is not allowed"),
    "a built-in function": (stored(0, "pkgutil", "resolve_name", "builtins:exec"), "is not allowed"),
    "a frame of no columns": (stored(3, "pandas", "DataFrame", {"data": 1}, "parts"), "cannot be created|installed"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_data_calls_nothing(name: str) -> None:
    data, words = HOSTILE[name]
    with pytest.raises(UnreadableValue, match=words):
        STRICT.loads_typed(data)
    RAW.loads_typed(data)


def test_a_name_is_looked_up_and_not_called() -> None:
    import os

    assert SERDE.loads_typed(stored(0, "pkgutil", "resolve_name", "os:system")) is os.system
    with pytest.raises(UnreadableValue, match="neither a class nor a function"):
        SERDE.loads_typed(stored(0, "pkgutil", "resolve_name", "os:environ"))
    with pytest.raises(UnreadableValue, match="cannot be found"):
        SERDE.loads_typed(stored(0, "pkgutil", "resolve_name", f"{__name__}:Gone"))


# Codecs


class Text(str):
    __slots__ = ()


class Named(NamedTuple):
    a: int


def coded(number: int = 1) -> list[Any]:
    return [Plain(number), Text("a"), Reduced(), Model(anything=1), Named(1), SecretStr("s"), Location("a")]


def register_all() -> None:
    for value in coded():
        register_codec(type(value), lambda o: repr(type(o)).encode(), lambda data: ("restored", data))


def test_a_codec_decides_for_exactly_its_class_wherever_an_object_is() -> None:
    assert same(through(Slots(1)), Slots(1))
    register_all()
    expected: Any
    for value in coded():
        expected = ("restored", repr(type(value)).encode())
        assert through(value) == through(value, STRICT) == expected
        assert through([value]) == [expected]
        assert through(Point(value)) == Point(expected)
        assert through({"a": (value,)}) == {"a": (expected,)}
    assert through({Plain(1): 1}, STRICT) == {("restored", repr(Plain).encode()): 1}
    assert same(through(Slots(1)), Slots(1))
    assert through(Named(1)) != Named(1)


def test_a_codec_that_is_not_registered_is_named_and_raw_returns_the_bytes() -> None:
    register_codec(Plain, lambda o: b"bytes", Plain)
    data = SERDE.dumps_typed({"a": [Plain(1)]})
    forget_codecs()
    with pytest.raises(UnreadableValue, match=r"tests.core.test_leaves.Plain .* call register_codec\(Plain, to_bytes"):
        SERDE.loads_typed(data)
    assert RAW.loads_typed(data) == {"a": [b"bytes"]}
    assert LANGGRAPH.loads_typed(data) == {"a": [b"bytes"]}


def test_a_class_without_and_then_with_a_codec_reads_both() -> None:
    before = SERDE.dumps_typed(Plain(1))
    register_codec(Plain, lambda o: str(o.x).encode(), lambda data: Plain(int(data) * 10))
    after = SERDE.dumps_typed(Plain(1))
    assert [SERDE.loads_typed(each).x for each in (before, after)] == [1, 10]
    register_codec(Plain, lambda o: b"", lambda data: Plain("another"))
    assert SERDE.loads_typed(after).x == "another"


@pytest.mark.parametrize("value", [PurePosixPath("a"), io.BytesIO(b"a")], ids=["path", "bytes in memory"])
def test_a_codec_outranks_the_own_form_of_a_type_and_what_was_stored_in_that_is_read(value: Any) -> None:
    before = SERDE.dumps_typed(value)
    register_codec(type(value), lambda o: b"", lambda data: "of the codec")
    assert through(value, STRICT) == "of the codec"
    assert same(STRICT.loads_typed(before), value)


def test_on_load_can_name_another_class_with_a_codec_or_a_function_of_the_bytes() -> None:
    register_codec(Plain, lambda o: b"1", lambda data: pytest.fail("the old one"))
    data = SERDE.dumps_typed([Plain(1)])
    register_codec(Slots, lambda o: b"", lambda data: Slots(data))
    name = f"{__name__}.Plain"
    found = ExactSerializer(LANGGRAPH, on_load={name: Slots}).loads_typed(data)
    assert same(found, [Slots(b"1")])
    assert ExactSerializer(LANGGRAPH, on_load={name: bytes.decode}).loads_typed(data) == ["1"]
    with pytest.raises(UnreadableValue, match=r"Point for .*Plain, which has no registered codec"):
        ExactSerializer(LANGGRAPH, on_load={name: Point}).loads_typed(data)


@pytest.mark.parametrize(
    ("to_bytes", "words"),
    [(lambda o: 1 / 0, "raised ZeroDivisionError"), (lambda o: "text", "returned a str, not bytes")],
)
def test_an_error_in_a_codec_names_the_class_and_not_the_value(to_bytes: Any, words: str) -> None:
    register_codec(Plain, to_bytes, Plain)
    with pytest.raises(UnstorableValue, match=f"to_bytes that is registered for {__name__}.Plain {words}"):
        SERDE.dumps_typed([Plain("secret")])
    register_codec(Plain, lambda o: b"secret", lambda data: Plain(int(data)))
    with pytest.raises(UnreadableValue, match=r"Plain cannot be created from what was stored \(ValueError\)"):
        through([Plain(1)])


@pytest.mark.parametrize("cls", [str, dict, tuple, type(None), "Plain", Plain(1)])
def test_a_codec_needs_a_class_that_is_not_stored_as_it_is(cls: Any) -> None:
    with pytest.raises(ConfigError, match="register_codec needs a class"):
        register_codec(cls, bytes, bytes)
    with pytest.raises(ConfigError, match="two functions"):
        register_codec(Plain, b"", bytes)  # type: ignore[arg-type]


# Secrets


def test_pickle_does_not_store_a_secret_in_clear_beside_what_only_pickle_can_store() -> None:
    with pytest.raises(SecretInClear):
        exact_serializer(JsonPlusSerializer(pickle_fallback=True)).dumps_typed([Reduced(), SecretStr("hidden")])


def test_a_secret_that_a_method_returns_is_refused_without_encryption() -> None:
    with pytest.raises(SecretInClear):
        SERDE.dumps_typed([Hidden(SecretStr("canary"))])
