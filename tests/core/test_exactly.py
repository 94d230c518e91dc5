"""The comparison that other tests rely on distinguishes values."""

from __future__ import annotations

import math
from collections import Counter, OrderedDict, defaultdict, deque
from datetime import date, datetime, time, timedelta, timezone
from decimal import Decimal
from typing import Any
from zoneinfo import ZoneInfo

import numpy as np
import pydantic.v1
import pytest
from langgraph.types import Interrupt, Send
from pydantic import BaseModel, PrivateAttr

from tests.exactly import difference, same


class Model(BaseModel):
    x: Any = None
    _y: int = PrivateAttr(0)

    def with_private(self, y: int) -> Model:
        self._y = y
        return self


class Old(pydantic.v1.BaseModel):
    x: Any = None


class Holder:
    def __init__(self, x: Any) -> None:
        self.x = x


DIFFERENT: list[tuple[Any, Any]] = [
    (0.0, -0.0),
    (1, True),
    (1, 1.0),
    ("a", b"a"),
    ([1], (1,)),
    ([1], [1, 2]),
    ({1}, {True}),
    ({(1, 2)}, {(1, 3)}),
    ({"a": 1}, {"a": True}),
    ({"a": 1, "b": 2}, {"b": 2, "a": 1}),
    ({1: "a"}, {"1": "a"}),
    (OrderedDict(a=1), {"a": 1}),
    (Counter("a"), Counter("b")),
    (defaultdict(list), defaultdict(dict)),
    (deque([1]), deque([1], maxlen=1)),
    (date(2024, 1, 1), datetime(2024, 1, 1)),
    (datetime(2024, 1, 1), datetime(2024, 1, 1, fold=1)),
    (datetime(2024, 1, 1, tzinfo=timezone.utc), datetime(2024, 1, 1, tzinfo=ZoneInfo("UTC"))),
    (datetime(2024, 1, 1, tzinfo=timezone.utc), datetime(2024, 1, 1, 1, tzinfo=timezone(timedelta(hours=1)))),
    (time(1), time(2)),
    (Decimal("1.0"), Decimal("1.00")),
    (ValueError("a"), ValueError("b")),
    (Model(), Model(x=None)),
    (Model(x=1), Model(x=1).with_private(1)),
    (Old(), Old(x=None)),
    (Holder([1]), Holder([1.0])),
    (Interrupt(value=1, id="1"), Interrupt(value=1.0, id="1")),
    (Send("a", 1), Send("a", 2)),
    (np.array([1]), np.array([1.0])),
    (np.array([[1, 2], [3, 4]]), np.asfortranarray([[1, 2], [3, 4]])),
    (np.array([1]), np.frombuffer(np.array([1]).tobytes(), dtype=int)),
    (np.array([None]), np.array([0], dtype=object)),
    (np.ma.array([1, 2], mask=[True, False]), np.ma.array([1, 2], mask=[False, True])),
    (np.float64(1), np.float32(1)),
    (int, float),
    (iter([1]), iter([2])),
]


@pytest.mark.parametrize("number", range(len(DIFFERENT)))
def test_different_values_are_distinguished(number: int) -> None:
    one, two = DIFFERENT[number]
    for first, second in ((one, two), ([one], [two]), ({"a": Holder(one)}, {"a": Holder(two)})):
        assert difference(first, second)


def test_nan_is_nan() -> None:
    assert same([math.nan, Decimal("NaN"), np.array([math.nan])], [-math.nan, Decimal("NaN"), np.array([math.nan])])
