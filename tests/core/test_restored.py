"""Objects are restored as copy and pickle do it: with the fields as they were, and without running a constructor."""

from __future__ import annotations

import copy
import dataclasses
import math
import sys
import traceback
from collections import Counter, OrderedDict, defaultdict, deque, namedtuple
from datetime import date, datetime, time, timedelta, timezone
from decimal import Decimal
from enum import Enum, Flag
from functools import cached_property
from types import ModuleType
from typing import Any, Generic, Literal, NamedTuple, TypeVar
from uuid import UUID
from zoneinfo import ZoneInfo

import numpy as np
import pydantic.v1
import pytest
from langchain_core.documents import Document
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from langchain_core.prompts import ChatPromptTemplate
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from langgraph.store.base import Item, SearchItem
from langgraph.types import Command, Interrupt, Send
from pydantic import (
    AliasChoices,
    AliasPath,
    BaseModel,
    ConfigDict,
    Field,
    PrivateAttr,
    RootModel,
    SecretStr,
    SerializeAsAny,
    TypeAdapter,
    computed_field,
    field_serializer,
    field_validator,
    model_serializer,
    model_validator,
)
from pydantic.alias_generators import to_camel
from pydantic.dataclasses import dataclass as pydantic_dataclass

from langgraph_checkpoint_custom.encoding.allowlist import strict_serde
from langgraph_checkpoint_custom.encoding.extensions import UnreadableValue, UnstorableValue
from langgraph_checkpoint_custom.encoding.serde import exact_serializer
from tests.exactly import same

OURS = exact_serializer(JsonPlusSerializer(), on_inexact="raise", encrypted=True)
T = TypeVar("T")


class Color(Enum):
    RED = "red"
    PAIR = ("b", 1)
    NOT = math.nan
    ALSO = (1, math.nan)
    LISTED = ["a"]  # noqa: RUF012 - a value that is not hashable
    TWICE = ["b", 1]  # noqa: RUF012 - the same, as a list


class Rights(Flag):
    READ = 1
    WRITE = 2


class Inner(BaseModel):
    number: int = 0


class More(Inner):
    more: str = ""


class Aliased(BaseModel):
    plain: int = Field(0, alias="thePlain")
    validated: int = Field(0, validation_alias="theValidated")
    chosen: int = Field(0, validation_alias=AliasChoices("one", AliasPath("two", 0)))
    serialised: int = Field(0, serialization_alias="theSerialised")
    inner: Inner = Field(default_factory=lambda: Inner(), alias="theInner")


class Camel(BaseModel):
    model_config = ConfigDict(alias_generator=to_camel, serialize_by_alias=True)
    first_name: str = ""
    aliased: Aliased = Field(default_factory=lambda: new(Aliased))


class Strict(BaseModel):
    model_config = ConfigDict(strict=True, frozen=True)
    pair: tuple[int, tuple[str, ...]]
    numbers: frozenset[int]


class Written(BaseModel):
    """A model whose fields have their own form in a dump."""

    when: datetime
    number: int

    @field_serializer("when")
    def year(self, when: datetime) -> str:
        return f"year {when.year}"

    @model_validator(mode="before")
    @classmethod
    def check(cls, given: Any) -> Any:
        if not isinstance(given.get("number"), int) or given["number"] > 9:
            raise ValueError("no")
        return {**given, "number": given["number"] * 2}


class Doubling(BaseModel):
    """A model that does something each time it is made."""

    number: int
    _made: list[int] = PrivateAttr(default_factory=list)
    _unset: int = PrivateAttr()

    @field_validator("number", mode="before")
    @classmethod
    def double(cls, given: int) -> int:
        return given * 2

    def model_post_init(self, context: Any) -> None:
        self.number += 1
        self._made.append(self.number)


class Shown(BaseModel):
    model_config = ConfigDict(extra="allow", arbitrary_types_allowed=True)
    seen: int = 1
    hidden: str = Field("", exclude=True)
    counts: Counter[str] = Field(default_factory=Counter)
    ordered: OrderedDict[str, int] = Field(default_factory=OrderedDict)
    lists: defaultdict[str, list[int]] = defaultdict(list)
    by_id: dict[UUID, int] = {}
    by_pair: dict[tuple[int, str], Any] = {}
    by_color: dict[Color, dict[int, str]] = {}
    raw: bytearray = bytearray()
    secret: SecretStr = SecretStr("")
    last: deque[int] = deque(maxlen=2)

    @computed_field  # type: ignore[prop-decorator]
    @property
    def twice(self) -> int:
        return self.seen * 2

    @computed_field  # type: ignore[prop-decorator]
    @cached_property
    def slowly(self) -> int:
        return self.seen * 3


class Holding(BaseModel):
    one: Inner
    several: list[Inner] = []
    named: dict[str, SerializeAsAny[Inner]] = {}
    anything: Any = None


class Numbers(RootModel[list[int]]):
    pass


class Tree(RootModel[dict[str, "Tree"]]):
    pass


class Rewritten(BaseModel):
    text: str

    @model_serializer
    def shorten(self) -> dict[str, str]:
        return {"t": self.text}


class Box(BaseModel, Generic[T]):
    item: T


class Boxes(BaseModel):
    boxes: list[Box[int]]
    other: Box[Inner]


class Old(pydantic.v1.BaseModel):
    class Config:
        extra = "allow"
        underscore_attrs_are_private = True

    number: int = pydantic.v1.Field(0, alias="theNumber")
    pair: tuple[int, int] = (0, 0)
    _private: int = pydantic.v1.PrivateAttr(1)

    @pydantic.v1.validator("number", pre=True)
    def double(cls, given: int) -> int:
        return given * 2


@dataclasses.dataclass(frozen=True)
class Normalised:
    name: str
    calls: int = 0
    made: str = dataclasses.field(init=False, default="")
    never: int = dataclasses.field(init=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "calls", self.calls + 1)
        object.__setattr__(self, "made", self.name.upper())
        object.__setattr__(self, "_index", {self.name: (1, 2)})

    @cached_property
    def slowly(self) -> object:
        return object()


@dataclasses.dataclass(slots=True, kw_only=True)
class Slotted:
    pair: tuple[int, ...] = ()
    inner: Any = None
    given: dataclasses.InitVar[int]

    def __post_init__(self, given: int) -> None:
        self.pair = (*self.pair, given)


@dataclasses.dataclass
class Base:
    __slots__ = ("a",)
    a: Any


class WithSlots(Base):
    """A class with attributes that are not fields and exist only in slots."""

    __slots__ = ("__own", "hidden", "unset")

    def __init__(self, a: Any, hidden: Any) -> None:
        super().__init__(a)
        self.hidden = hidden
        self.__own = hidden


class WithBoth(WithSlots):
    pass


@pydantic_dataclass
class Checked:
    number: int = Field(0, alias="theNumber")

    @field_validator("number", mode="before")
    @classmethod
    def double(cls, given: int) -> int:
        return given * 2


@dataclasses.dataclass
class Location:
    x: Any
    y: Any = None


class Handed(Send):
    """A message to a node with more than LangGraph knows of."""

    def __init__(self, node: str, arg: Any, note: str = "") -> None:
        super().__init__(node, arg)
        self.note = note


class Pair(NamedTuple):
    left: Any
    right: Any = 2


class Sorted(namedtuple("Sorted", "one two")):
    def __new__(cls, one: int, two: int) -> Sorted:
        return super().__new__(cls, *sorted((one, two), reverse=True))


class InEuros(Pair):
    @property
    def left(self) -> Any:
        return self[0] / 100


class Positive:
    """A descriptor that keeps its value in the instance, under its own name."""

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    def __get__(self, instance: Any, owner: type) -> Any:
        return self if instance is None else vars(instance)[self.name]

    def __set__(self, instance: Any, value: Any) -> None:
        assert value
        vars(instance)[self.name] = value


class Ordered:
    """A class whose attributes are those of descriptors."""

    amount = Positive()

    def __init__(self, amount: Any, at: str) -> None:
        self.amount = amount
        self.at = at

    @property
    def at(self) -> str:
        return str(vars(self)["at"])

    @at.setter
    def at(self, value: str) -> None:
        vars(self)["at"] = value

    @cached_property
    def slowly(self) -> object:
        return object()

    def cost(self) -> int:
        return 1


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


class Table(BaseModel):
    a: int

    @classmethod
    def model_validate(cls, obj: Any, *, strict: bool | None = None) -> Table:  # type: ignore[override]
        return super().model_validate(obj, strict=strict)


class Moment(datetime):
    """A class as pandas' Timestamp."""


class Outer:
    class Page(BaseModel, Generic[T]):
        items: list[T]

    class Nested(BaseModel):
        x: int = 0

        class Deeper(Enum):
            A = 1

    @dataclasses.dataclass
    class Held:
        x: int = 0


def generic_in_generic() -> Any:
    """At the top level of a module, pydantic would give each of these classes a name there."""
    return Box[Box[bytes]](item=Box[bytes](item=b"a"))


def new(cls: Any, *args: Any, **values: Any) -> Any:
    """For pydantic's aliases, which mypy supports only partly."""
    return cls(*args, **values)


def changed_after(model: Any, **values: Any) -> Any:
    for name, value in values.items():
        setattr(model, name, value)
    return model


def with_slowly(made: Any) -> Any:
    assert made.slowly
    return made


BERLIN = ZoneInfo("Europe/Berlin")
WHEN = datetime(2024, 5, 6, tzinfo=timezone.utc)
OBJECTS: dict[str, Any] = {
    "aliases": new(Aliased, thePlain=1, theValidated=2, one=3, serialised=4, theInner=Inner(number=5)),
    "generated aliases": new(Camel, firstName="Ann", aliased=new(Aliased, thePlain=1)),
    "not valid": Inner.model_construct(number="no number"),
    "not whole": Holding.model_construct(several=3, _fields_set={"several", "x"}),
    "changed to what is not valid": changed_after(Inner(number=1), number=[(1, 2)]),
    "strict, with tuples": Strict(pair=(1, ("a", "b")), numbers=frozenset({1})),
    "serialised otherwise": Written(when=datetime(2024, 5, 6), number=9),
    "made with effects": Doubling(number=4),
    "of many kinds": new(
        Shown,
        seen=2,
        hidden="h",
        counts=Counter("aab"),
        ordered=OrderedDict(b=1, a=2),
        lists=defaultdict(list, a=[1]),
        by_id={UUID(int=1): 1},
        by_pair={(1, "a"): {(2,): (3,)}},
        by_color={Color.RED: {1: "a"}},
        raw=bytearray(b"a"),
        secret=SecretStr("s"),
        last=deque([1, 2], maxlen=2),
        extra=(1, 2),
    ),
    "subclasses": Holding(
        one=More(number=1, more="m"),
        several=[More(more="n"), Inner()],
        named={"a": More()},
        anything=[More(), Location(1)],
    ),
    "root": Numbers([1, 2]),
    "tree": Tree({"a": Tree({"b": Tree({})})}),
    "model serializer": Rewritten(text="t"),
    "generic": Boxes(boxes=[Box[int](item=1)], other=Box[Inner](item=More(number=2))),
    "generic alone": [Box(item=1), Box[str](item="a"), Box[Location](item=Location(1)), Box[bytes](item=b"a")],
    "generic in a generic": [generic_in_generic(), Outer.Page[int](items=[1])],
    "old": new(Old, theNumber=4, pair=(1, 2), extra=(3,)),
    "computed and cached": with_slowly(new(Shown, seen=2)),
    "frozen dataclass": Normalised("a"),
    "dataclass with a cached property": with_slowly(Normalised("a")),
    "slots": Slotted(pair=(1,), inner={(1, 2): Location((3,))}, given=4),
    "slots that are no fields": [WithSlots(1, (2, 3)), changed_after(WithBoth(1, 2), more=[WithSlots(1, 2)])],
    "pydantic dataclass": Checked(theNumber=4),
    "what descriptors keep": with_slowly(Ordered((1, 2), "noon")),
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
    module.models = sys.modules[__name__]
    monkeypatch.setitem(sys.modules, "another", module)
    exec("of_decimals = models.Box[models.Decimal]", vars(module))
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
    for value in (Money("1", "EUR"), changed_after(Money("1"), note="n"), changed_after(LastTwo(), note="n")):
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
