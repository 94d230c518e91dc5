"""Models of pydantic that have something which is easily lost, and objects of them."""

from __future__ import annotations

import dataclasses
from collections import Counter, OrderedDict, defaultdict, deque
from datetime import datetime
from enum import Enum
from functools import cached_property
from typing import Any, Generic, TypeVar
from uuid import UUID

import pydantic.v1
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
    computed_field,
    field_serializer,
    field_validator,
    model_serializer,
    model_validator,
)
from pydantic.alias_generators import to_camel
from pydantic.dataclasses import dataclass as pydantic_dataclass

from tests.core.objects import Color, Location, changed_after, with_slowly

T = TypeVar("T")


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


@pydantic_dataclass
class Checked:
    number: int = Field(0, alias="theNumber")

    @field_validator("number", mode="before")
    @classmethod
    def double(cls, given: int) -> int:
        return given * 2


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


MODELS: dict[str, Any] = {
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
    "pydantic dataclass": Checked(theNumber=4),
}
