"""Values of every type, and a check whether one was read unchanged. Servers import this module, with its classes."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import date, datetime, time, timedelta, timezone
from decimal import Decimal
from enum import Enum
from typing import Any, NamedTuple
from uuid import UUID

import numpy
from langchain_core.documents import Document
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from pydantic import BaseModel


class Colour(Enum):
    RED = "red"


@dataclass
class Point:
    x: float
    y: float = 0.0
    tags: set[str] = field(default_factory=set)


class Pair(NamedTuple):
    left: int
    right: str


class Order(BaseModel):
    name: str
    points: list[Point]
    api: Colour = Colour.RED


VALUES: dict[str, Any] = {
    "nothing": None,
    "truth": True,
    "a large number": 2**63 + 1,
    "a small number": -0.0,
    "no number": math.nan,
    "no end": -math.inf,
    "a text": "NUL \x00, a smile 😀 and a line\u2028end",
    "a long text": "word " * 5_000,
    "bytes": b"\x00\xff" * 10,
    "a list": [1, [2, {"three": [4.5]}]],
    "a set": {1, 2, 3},
    "a frozen set": frozenset({("a", 1), ("b", 2)}),
    "a queue": deque([1, 2]),
    "an enum": Colour.RED,
    "an object": Point(1.5, tags={"a"}),
    "a pair": Pair(1, "r"),
    "a model": Order(name="first", points=[Point(1.0), Point(2.0)]),
    "a moment": datetime(2024, 2, 29, 12, 30, 1, 999_999, tzinfo=timezone(timedelta(hours=5, minutes=45))),
    "a day": date(2024, 2, 29),
    "an hour": time(12, 30, 1, 5),
    "a while": timedelta(days=1, microseconds=3),
    "a decimal": Decimal("1.10"),
    "an id": UUID(int=7),
    "an array": numpy.arange(6, dtype="float32").reshape(2, 3),
    "a document": Document(page_content="text", metadata={"page": 3}),
    "a chat": [
        HumanMessage("What?", id="1"),
        AIMessage("", id="2", tool_calls=[{"name": "look", "args": {"at": [1]}, "id": "call"}]),
        ToolMessage("That.", id="3", tool_call_id="call"),
    ],
    "many": [{"number": number, "text": f"item {number} " * 20} for number in range(300)],
}


def differences(found: Mapping[str, Any]) -> list[str]:
    """The names of the values that have changed, with their current values."""
    return [f"{name}: {found.get(name)!r:.200}" for name, value in VALUES.items() if not _same(value, found.get(name))]


def _same(one: Any, other: Any) -> bool:
    if type(one) is not type(other):
        return False
    if isinstance(one, numpy.ndarray):
        return one.dtype == other.dtype and one.shape == other.shape and bool((one == other).all())
    # The text distinguishes -0.0 from 0.0, and makes NaN equal to NaN.
    return (one == other or one != one) and (isinstance(one, (set, frozenset, Point)) or repr(one) == repr(other))
