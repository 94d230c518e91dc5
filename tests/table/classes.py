"""Classes for values, as applications have them, as far as no other test has one of the type."""

from __future__ import annotations

import dataclasses
import math
from collections import UserDict, deque
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal
from enum import Enum, IntEnum, IntFlag
from typing import Annotated, Any, Generic, Literal, NamedTuple, TypeVar

import pydantic.v1
from langchain_core.messages import AIMessage
from pydantic import BaseModel, ConfigDict, Field, HttpUrl, SecretBytes, SecretStr, ValidationInfo, field_validator
from typing_extensions import TypedDict

T = TypeVar("T")


class Text(str):
    __slots__ = ()


class Number(int):
    pass


class Real(float):
    pass


class Names(list[str]):
    pass


class Settings(dict[str, Any]):
    pass


class Tags(set[str]):
    pass


class Pair(NamedTuple):
    left: Any
    right: Any = None


class Defaults(UserDict[str, int]):
    pass


class Movie(TypedDict, total=False):
    title: str
    year: int
    cast: tuple[str, ...]


class Colour(Enum):
    RED = "red"
    BLUE = ("b", 1)
    GREY = ["g"]  # noqa: RUF012 - a value that is not hashable
    NONE = math.nan


class Word(str, Enum):
    YES = "yes"


class Level(IntEnum):
    LOW = 1


class Ratio(float, Enum):
    HALF = 0.5


class Mode(IntFlag):
    READ = 4
    WRITE = 2


class Refused(ValueError):
    def __init__(self, code: int) -> None:
        super().__init__(f"code {code}")
        self.code = code


class Plain:
    def __init__(self, x: int) -> None:
        self.x = x


class Slots:
    __slots__ = ("x",)

    def __init__(self, x: int) -> None:
        self.x = x


class Reduced:
    """A class that defines how pickle stores it."""

    def __init__(self, x: int) -> None:
        self.x = x

    def __reduce__(self) -> Any:
        return Reduced, (self.x,)


def function() -> None:
    """A function that can be found by its name."""


# Dataclasses


@dataclass
class Point:
    x: Any
    y: Any = None


@dataclass
class Point3(Point):
    z: Any = None


@dataclass(frozen=True, slots=True)
class Fixed:
    x: int
    tags: tuple[str, ...] = ()


@dataclass
class Counted:
    name: str
    calls: int = 0

    def __post_init__(self) -> None:
        self.calls += 1


@dataclass
class Computed:
    x: int
    square: int = dataclasses.field(init=False)

    def __post_init__(self) -> None:
        self.square = self.x * self.x


@dataclass
class Given:
    total: int = dataclasses.field(init=False)
    parts: dataclasses.InitVar[list[int]]

    def __post_init__(self, parts: list[int]) -> None:
        self.total = sum(parts)


@dataclass
class Held:
    """A dataclass with all types of containers."""

    by_pair: dict[tuple[int, int], str] = dataclasses.field(default_factory=dict)
    seen: set[tuple[int, str]] = dataclasses.field(default_factory=set)
    last: deque[int] = dataclasses.field(default_factory=lambda: deque(maxlen=2))
    children: list[Held] = dataclasses.field(default_factory=list)


@dataclass
class Sealed(Generic[T]):
    item: T


@dataclass
class Failure(Exception):
    """An exception that is a dataclass."""

    code: int


class Outside:
    @dataclass
    class Place:
        x: int

    class Model(BaseModel):
        x: int

    class Colour(Enum):
        RED = "red"


# Models


class Model(BaseModel):
    name: str
    numbers: list[int] = []


class More(Model):
    more: str = ""


class Nested(BaseModel):
    one: Model
    several: list[Model] = []
    named: dict[str, Model] = {}
    anything: Any = None


class Doubling(BaseModel):
    number: int

    @field_validator("number", mode="before")
    @classmethod
    def double(cls, given: int) -> int:
        return given * 2


class InContext(BaseModel):
    """A model whose validation needs a context."""

    name: str

    @field_validator("name")
    @classmethod
    def known(cls, given: str, info: ValidationInfo) -> str:
        if given not in (info.context or ()):
            raise ValueError("not known")
        return given


class Started(BaseModel):
    number: int

    def model_post_init(self, context: Any) -> None:
        self.number += 1


class Loose(BaseModel):
    model_config = ConfigDict(extra="allow", arbitrary_types_allowed=True)
    plain: Plain | None = None


class Cat(BaseModel):
    kind: Literal["cat"] = "cat"
    lives: int = 9


class Dog(BaseModel):
    kind: Literal["dog"] = "dog"
    good: bool = True


class Owner(BaseModel):
    pet: Annotated[Cat | Dog, Field(discriminator="kind")]
    # Without a tag: validated again, it becomes the first class that fits.
    either: Model | More | None = None


class Typed(BaseModel):
    url: HttpUrl
    price: Decimal
    at: datetime | date
    color: Colour = Colour.RED
    password: SecretStr = SecretStr("")
    key: SecretBytes = SecretBytes(b"")
    raw: bytes = b""


class Tree(BaseModel):
    name: str
    children: list[Tree] = []


class Old(pydantic.v1.BaseModel):
    name: str
    numbers: list[int] = []


class OldOuter(pydantic.v1.BaseModel):
    inner: Old
    pair: tuple[int, int] = (1, 2)


class Reply(AIMessage):
    """An application's own type of message."""

    score: float = 0.0
