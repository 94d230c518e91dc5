"""Objects are restored as copy and pickle do it: with the fields as they were, and without running a constructor."""

from __future__ import annotations

import copy
import dataclasses
import sys
import traceback
from abc import ABC
from collections import deque
from datetime import date, datetime, time, timedelta, timezone
from decimal import Decimal
from types import ModuleType
from typing import Any, Generic, Literal, TypeVar
from uuid import UUID
from zoneinfo import ZoneInfo

import numpy as np
import pytest
from langchain_core.documents import Document
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from langchain_core.prompts import ChatPromptTemplate
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from langgraph.store.base import Item, SearchItem
from langgraph.types import Command, Interrupt, Send
from pydantic import BaseModel, SecretStr, TypeAdapter

from langgraph_checkpoint_custom.encoding.allowlist import strict_serde
from langgraph_checkpoint_custom.encoding.extensions import UnreadableValue, UnstorableValue
from langgraph_checkpoint_custom.encoding.serde import exact_serializer
from tests.core import models
from tests.core.models import (
    MODELS,
    Aliased,
    Box,
    Boxes,
    Holding,
    Inner,
    More,
    Outer,
    Shown,
    Strict,
    Tree,
    Written,
    new,
)
from tests.core.objects import (
    Color,
    Handed,
    InEuros,
    Location,
    Normalised,
    Ordered,
    Pair,
    Rights,
    Slotted,
    Sorted,
    WithBoth,
    WithSlots,
    changed_after,
    with_slowly,
)
from tests.exactly import same

OURS = exact_serializer(JsonPlusSerializer(), on_inexact="raise", encrypted=True)
T = TypeVar("T")


class Listed(ABC, Generic[T]):
    """A class whose metaclass has methods of other names than its own attributes."""

    def __init__(self, x: Any, **others: Any) -> None:
        self.__x = x
        vars(self).update(others)


class Named(tuple):  # type: ignore[type-arg]
    _fields = ("x",)


class LastTwo(deque):  # type: ignore[type-arg]
    def __init__(self, items: Any = ()) -> None:
        super().__init__(items, maxlen=2)


class Money(Decimal):
    def __new__(cls, amount: str, currency: str = "USD") -> Money:
        made = super().__new__(cls, amount)
        made.currency = currency
        return made

    currency: str


class Settings(dict):  # type: ignore[type-arg]
    pass


class Names(list):  # type: ignore[type-arg]
    pass


class Text(str):
    __slots__ = ()


class Frozen(dict):  # type: ignore[type-arg]
    def __hash__(self) -> int:  # type: ignore[override]
        return hash(frozenset(self.items()))


class FrozenList(list):  # type: ignore[type-arg]
    def __hash__(self) -> int:  # type: ignore[override]
        return hash(tuple(self))


@dataclasses.dataclass(frozen=True)
class Fixed:
    x: Any


@dataclasses.dataclass(frozen=True, slots=True)
class FixedInSlot:
    x: Any


@dataclasses.dataclass(frozen=True)
class Thawed:
    """A class whose objects cannot be hashed in a later version of the application."""

    x: Any


class Table(BaseModel):
    a: int

    @classmethod
    def model_validate(cls, obj: Any, *, strict: bool | None = None) -> Table:  # type: ignore[override]
        return super().model_validate(obj, strict=strict)


class Moment(datetime):
    """A class as pandas' Timestamp."""


BERLIN = ZoneInfo("Europe/Berlin")
WHEN = datetime(2024, 5, 6, tzinfo=timezone.utc)
OBJECTS: dict[str, Any] = {
    **MODELS,
    "frozen dataclass": Normalised("a"),
    "dataclass with a cached property": with_slowly(Normalised("a")),
    "slots": Slotted(pair=(1,), inner={(1, 2): Location((3,))}, given=4),
    "slots that are no fields": [WithSlots(1, (2, 3)), changed_after(WithBoth(1, 2), more=[WithSlots(1, 2)])],
    "what descriptors keep": with_slowly(Ordered((1, 2), "noon")),
    "attributes of any name": [
        Listed((1,), __x=2, mro=3, register=4),
        changed_after(Location(1), __x=(2,), mro=3),
        changed_after(Inner(), __x=(2,)),
    ],
    "named tuple": Pair((1,), Pair(Color.RED)),
    "named tuple of its own mind": changed_after(Sorted(1, 2), note="n"),
    "named tuple with a property of a field's name": InEuros(500, "EUR"),
    "not a number": [Color.NOT, Color.ALSO, Color.PAIR, Color.LISTED, Color.TWICE, Rights.READ | Rights.WRITE],
    "zones": [
        datetime(2024, 10, 27, 2, 30, tzinfo=BERLIN, fold=1),
        datetime(2024, 3, 31, 2, 30, tzinfo=BERLIN),
        datetime(2024, 5, 6, tzinfo=ZoneInfo("UTC")),
        datetime(2024, 5, 6, tzinfo=timezone(timedelta(hours=1), "there")),
        datetime(2024, 5, 6, tzinfo=timezone.utc),
        datetime(2024, 5, 6, fold=1),
        TypeAdapter(datetime).validate_python("2024-05-06T01:02:03Z"),
        TypeAdapter(datetime).validate_python("2024-05-06T01:02:03-03:30"),
        time(1, tzinfo=BERLIN),
        BERLIN,
        date(2024, 5, 6),
        Decimal("1.10"),
    ],
    "message": HumanMessage("hi"),
    "messages with objects": [
        ToolMessage("t", tool_call_id="1", artifact=Location((1, 2), [More(number=1)])),
        ToolMessage("t", tool_call_id="1", artifact=[Inner(number=2), np.zeros(2)]),
        HumanMessage("h", additional_kwargs={"model": More(more="m"), "pair": (1, 2), "by": {UUID(int=1): 2}}),
        AIMessage("a", response_metadata={"at": datetime(2024, 5, 6, tzinfo=BERLIN)}, unknown=Location(1)),
        Document("d", metadata={"model": Inner(number=3), "place": Location(1)}),
    ],
    "prompt": ChatPromptTemplate.from_messages([("system", "you are {name}"), ("human", "{question}")]),
    "classes in classes": [Outer.Nested(x=1), Outer.Held(2), Outer.Nested.Deeper.A],
    "of LangGraph": [
        Interrupt(value=(1, Location(2)), id="1"),
        Send("node", {"pair": (1, 2)}),
        Command(update={"a": (1,)}, goto=("b",)),
        Item(value={"a": (1,)}, key="k", namespace=("n",), created_at=WHEN, updated_at=WHEN),
        SearchItem(value={}, key="k", namespace=("n",), created_at=WHEN, updated_at=WHEN, score=0.5),
        Handed("node", 1, "note"),
    ],
    "UUIDs": [UUID(int=1), Location({UUID(int=1): 1})],
    "deque": deque([1, 2, 3], maxlen=3),
    "sets in objects": Location({(1, (2,)), frozenset({3})}),
    "half characters": [
        "a\ud800",
        {"\udfff": "\ud800"},
        Location("\ud800"),
        Inner.model_construct(number={"\ud800": 1}),
    ],
    "arrays": Location([np.array([1, 2]), np.zeros(2, np.dtype([("a", "i1"), ("b", ">f8", (2,))], align=True))]),
    "bytearrays": [
        Location(bytearray(b"a")),
        Location([{"a": bytearray(b"a")}]),
        Pair(bytearray(b"")),
        Inner.model_construct(number=bytearray(b"a")),
    ],
    "large ints": [2**64, {"a": -(2**80)}, Location(10**5000)],
}


@pytest.mark.parametrize("name", OBJECTS)
def test_a_restored_object_equals_a_copy(name: str) -> None:
    value = OBJECTS[name]
    for each in (value, [value], {"a": Location(value)}):
        stored = OURS.dumps_typed(each)
        assert same(OURS.loads_typed(stored), each)
        assert OURS.dumps_typed(OURS.loads_typed(stored)) == stored, "it is other bytes the next time"
    if name != "prompt":  # A prompt does not copy itself in this way.
        assert same(copy.deepcopy(value), value)


def test_a_tuple_with_names_that_is_no_named_tuple_is_a_tuple() -> None:
    with pytest.raises(UnstorableValue, match="Named would come back as something else: a tuple"):
        OURS.dumps_typed([Named((1,))])


def test_a_generic_model_is_found_whose_type_arguments_another_module_gives(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pydantic says that the class belongs to that module, which may not have the model itself under its name."""
    module: Any = ModuleType("another")
    module.models, module.Decimal = models, Decimal
    monkeypatch.setitem(sys.modules, "another", module)
    exec("of_decimals = models.Box[Decimal]", vars(module))
    value = module.of_decimals(item=Decimal("1.10"))
    assert same(OURS.loads_typed(OURS.dumps_typed(value)), value)
    assert same(read(value, module.of_decimals), value)


def test_a_generic_model_of_a_union_is_stored_as_langgraph_stores_it() -> None:
    store = exact_serializer(JsonPlusSerializer(), on_inexact="store")
    for cls in (Box[int | None], Box[Literal["a", 1]], Box[list[int]]):
        assert store.loads_typed(
            store.dumps_typed(new(cls, item=1) if cls is not Box[list[int]] else new(cls, item=[1]))
        )


def test_a_deque_whose_constructor_knows_its_length_comes_back() -> None:
    value = LastTwo([1, 2, 3])
    assert same(OURS.loads_typed(OURS.dumps_typed(value)), value)


def test_attributes_that_a_constructor_sets_otherwise_are_reported() -> None:
    for value in (Money("1", "EUR"), changed_after(Money("1"), __note="n"), changed_after(LastTwo(), note="n")):
        with pytest.raises(UnstorableValue, match="its attributes become those that its constructor sets"):
            OURS.dumps_typed([value])
    assert same(OURS.loads_typed(OURS.dumps_typed(Money("1"))), Money("1"))


def test_a_subclass_of_a_container_is_stored_as_that_wherever_it_is() -> None:
    """Also with what msgpack cannot represent by itself, such as other keys, half characters and bytearrays."""
    store = exact_serializer(JsonPlusSerializer(), on_inexact="store")
    for value, base in (
        (Settings({1: "a", (2,): "b"}), {1: "a", (2,): "b"}),
        (Settings({"a": "\ud800"}), {"a": "\ud800"}),
        (Names([{1: Settings({2: "a"})}]), [{1: {2: "a"}}]),
        (Text("\ud800"), "\ud800"),
    ):
        for each, expected in ((value, base), ((value,), (base,)), (Location(value), Location(base))):
            assert same(store.loads_typed(store.dumps_typed(each)), expected)
    found = store.loads_typed(store.dumps_typed(Location(Names([bytearray(b"a")]))))
    assert same(found, Location([bytearray(b"a")]))


@pytest.mark.parametrize(
    ("value", "read"),
    [
        ({Frozen(a=1)}, [{"a": 1}]),
        (frozenset({(1, Frozen(a=1))}), [(1, {"a": 1})]),
        ({Frozen(a=1): 2}, [[{"a": 1}, 2]]),
        ({(1, FrozenList([2])): Frozen(a=1)}, [[(1, [2]), {"a": 1}]]),
        ({Fixed(Frozen(a=1))}, [Fixed({"a": 1})]),
        ({FixedInSlot(Frozen(a=1))}, [FixedInSlot({"a": 1})]),
        ({Pair(Frozen(a=1)): FrozenList([2])}, [[Pair({"a": 1}), [2]]]),
        ({FrozenList([1])}, {(1,)}),
        ({FrozenList([1]): 2}, [[[1], 2]]),
    ],
    ids=str,
)
def test_a_dict_or_list_that_can_be_hashed_is_reported(value: Any, read: Any) -> None:
    """What it becomes cannot be in a set, and is no key."""
    store = exact_serializer(JsonPlusSerializer(), on_inexact="store")
    pickling = exact_serializer(JsonPlusSerializer(pickle_fallback=True), on_inexact="store")
    for each, expected in ((value, read), (Location(value), Location(read))):
        with pytest.raises(UnstorableValue, match=r"Frozen(List)? would come back as something else: a (dict|list), "):
            OURS.dumps_typed(each)
        assert same(store.loads_typed(store.dumps_typed(each)), expected)
        assert same(pickling.loads_typed(pickling.dumps_typed(each)), each)


def test_a_dict_or_list_that_cannot_be_hashed_is_stored_as_that_whatever_its_class_says() -> None:
    """The hash of a Box, for example, raises an error, unless the Box is frozen."""
    for value, base in ((Frozen(a=[1]), {"a": [1]}), (FrozenList([{}]), [{}])):
        assert same(OURS.loads_typed(OURS.dumps_typed([value])), [base])
        with pytest.raises(UnstorableValue, match="would come back as something else"):
            OURS.dumps_typed([value, type(value)()])


@pytest.mark.parametrize(
    "value", [{Color.RED, Thawed(1)}, {Thawed(1): 2}, {(Color.RED, Thawed(1))}], ids=["set", "dict", "pair"]
)
def test_a_set_is_not_read_as_a_list_because_a_class_cannot_be_hashed_any_more(
    value: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    stored = OURS.dumps_typed(value)
    monkeypatch.setattr(Thawed, "__hash__", None)
    with pytest.raises(UnreadableValue, match=r"builtins.(set|dict) cannot be created from what was stored"):
        OURS.loads_typed(stored)


def test_an_object_of_a_generic_class_comes_back_without_its_types() -> None:
    """Typing keeps them in an attribute, with types that may have no name."""
    made = Listed[list[int] | None](1)
    assert same(OURS.loads_typed(OURS.dumps_typed([made])), [Listed(1)])


def test_an_object_with_another_method_than_its_class_is_refused() -> None:
    with pytest.raises(UnstorableValue, match="Ordered would get the cost of its class back"):
        OURS.dumps_typed([changed_after(Ordered(1, ""), cost=len)])


def read(value: Any, *allow: Any) -> Any:
    strict = exact_serializer(strict_serde(JsonPlusSerializer(), allow))
    return strict.loads_typed(OURS.dumps_typed(value))


@pytest.mark.parametrize(
    ("name", "allow"),
    [
        ("aliases", [Aliased]),
        ("of many kinds", [Shown, SecretStr]),
        ("tree", [Tree]),
        ("generic", [Boxes, More]),
        ("generic in a generic", [Box, Outer.Page]),
        ("classes in classes", [Outer.Nested, Outer.Held, Outer.Nested.Deeper]),
        ("zones", []),
        ("half characters", [Location, Inner]),
        ("message", []),
    ],
)
def test_classes_that_the_fields_of_an_allowed_class_declare_are_allowed(name: str, allow: list[Any]) -> None:
    assert same(read(OBJECTS[name], *allow), OBJECTS[name])


def test_other_classes_inside_an_allowed_class_are_not_allowed() -> None:
    for value in (
        Holding(one=More()),
        Holding(one=Inner(), anything=Location(1)),
        ToolMessage("", tool_call_id="", artifact=Location(1)),
    ):
        with pytest.raises(UnreadableValue, match=r"(More|Location) is not allowed to be read"):
            read(value, Holding)
    assert same(read(Holding(one=More()), Holding, More), Holding(one=More()))


@pytest.mark.parametrize(
    "name", ["aliases", "generated aliases", "root", "message", "zones", "UUIDs", "deque", "arrays", "old"]
)
def test_langgraph_reads_what_is_written_here(name: str) -> None:
    """As well as it can: it validates, and has no field for what it does not store itself."""
    found = JsonPlusSerializer().loads_typed(OURS.dumps_typed([OBJECTS[name]]))
    assert type(found[0]) is type(OBJECTS[name])


def test_fields_are_found_by_name_in_what_langgraph_has_written() -> None:
    """Its serializer gives the constructor names that the class does not know, and gets defaults."""
    for name in ("aliases", "generated aliases", "old"):
        stored = JsonPlusSerializer().dumps_typed(OBJECTS[name])
        found, value = OURS.loads_typed(stored), OBJECTS[name]
        if name == "old":  # Its validator runs again.
            assert (found.number, found.pair) == (16, (1, 2))
        else:
            assert found == value


def test_a_model_with_a_validate_of_its_own_is_read_from_what_langgraph_has_written() -> None:
    """As those of SQLModel, which does not take all of pydantic's arguments."""
    value = Table(a=1)
    assert same(OURS.loads_typed(JsonPlusSerializer().dumps_typed(value)), value)


def test_a_subclass_of_datetime_that_langgraph_has_written_is_text() -> None:
    """LangGraph stores the name of a method, which it does not call."""
    stored = JsonPlusSerializer().dumps_typed([Moment(2024, 5, 6)])
    assert OURS.loads_typed(stored) == JsonPlusSerializer().loads_typed(stored) == ["2024-05-06T00:00:00"]
    with pytest.raises(UnreadableValue, match=r"Moment\.fromisoformat is never allowed"):
        exact_serializer(strict_serde(JsonPlusSerializer(), [Moment])).loads_typed(stored)


@pytest.mark.filterwarnings("ignore:Pydantic serializer warnings")
def test_an_error_does_not_contain_values() -> None:
    secret = "a secret"
    made: list[Any] = [
        Written.model_construct(when=datetime(2024, 5, 6), number=secret),
        Strict.model_construct(pair=secret, numbers=secret),
        Location(Inner.model_construct(number=secret)),
    ]
    for value in made:
        with pytest.raises(UnreadableValue) as raised:
            OURS.loads_typed(JsonPlusSerializer().dumps_typed(value))
        error: BaseException | None = raised.value
        assert "cannot be created from what was stored" in str(error)
        while error is not None:
            assert secret not in "".join(traceback.format_exception_only(error))
            error = error.__context__ or error.__cause__


def test_a_reference_cycle_is_an_error_and_deep_nesting_is_stored() -> None:
    location, model = Location(1), Holding(one=Inner())
    location.x = [location]
    model.anything = {"model": [model]}
    for serde in (OURS, exact_serializer(JsonPlusSerializer(), on_inexact="store")):
        for circle in (location, model):
            with pytest.raises(TypeError):
                serde.dumps_typed(circle)
    deep: Any = 1
    for _ in range(50):
        deep = Holding(one=More(), several=[], named={"a": Inner()}, anything={1: [Location(deep)]})
    assert same(OURS.loads_typed(OURS.dumps_typed(deep)), deep)
