"""Other classes that have something which is easily lost."""

from __future__ import annotations

import dataclasses
import math
from collections import namedtuple
from enum import Enum, Flag
from functools import cached_property
from typing import Any, NamedTuple

from langgraph.types import Send


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


def changed_after(model: Any, **values: Any) -> Any:
    for name, value in values.items():
        setattr(model, name, value)
    return model


def with_slowly(made: Any) -> Any:
    assert made.slowly
    return made
