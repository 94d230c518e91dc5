"""Whether two values are the same: in type and content, with everything that they contain."""

from __future__ import annotations

import pickle
from collections import defaultdict, deque
from collections.abc import Iterable, Iterator
from datetime import datetime, time, timezone
from decimal import Decimal
from enum import Enum
from functools import cached_property
from inspect import getattr_static
from pathlib import PurePath
from types import FunctionType, GenericAlias, ModuleType
from typing import Any
from zoneinfo import ZoneInfo

_NOT_STATE = ("__dict__", "__weakref__")
# Where pydantic stores which fields its constructor was given.
_GIVEN = ("__pydantic_fields_set__", "__fields_set__")
GIVEN = "which fields were given"


def same(one: Any, two: Any) -> bool:
    """Whether two values differ only in that they are two objects."""
    return not difference(one, two)


def difference(one: Any, two: Any) -> str:
    """A difference between two values, in short, or an empty text; `GIVEN` only if there is no other.

    `1` is not `True`, `0.0` not `-0.0`, a tuple not a list; NaN is NaN. Objects have their attributes compared, private
    ones too, and of models also the given fields. Zones are compared by type and name, arrays by type, bytes and order.
    A cached property is not compared: it is computed again.
    """
    given = ""
    for found in _differences(one, two):
        if found != GIVEN:
            return found
        given = found
    return given


def _differences(one: Any, two: Any) -> Iterator[str]:
    kind = type(one)
    if type(two) is not kind:
        yield f"{_name(kind)} → {_name(type(two))}"
    elif one is two:
        pass
    elif isinstance(one, (Enum, type, FunctionType, ModuleType)) and not isinstance(one, GenericAlias):
        yield "another one"
    elif isinstance(one, (set, frozenset)):
        if not _paired(one, two):
            yield "other elements"
    elif kind.__module__.partition(".")[0] in ("numpy", "pandas"):
        yield from _of_arrays(one, two)
    else:
        yield from _of_others(one, two)


def _of_others(one: Any, two: Any) -> Iterator[str]:
    first, second = _without_contents(one), _without_contents(two)
    if first != second:
        yield f"{first} → {second}" if len(f"{first}{second}") < 40 else "another value"
        return
    held, other = _contents(one), _contents(two)
    if not held and first is None and not _equal(one, two):
        yield "another value"
    yield from (f"without {name}" for name in held if name not in other)
    yield from (f"with {name}" for name in other if name not in held)
    for name in (name for name in held if name in other):
        for found in _differences(held[name], other[name]):
            yield GIVEN if name in _GIVEN else found


def _name(kind: type) -> str:
    return kind.__qualname__.rpartition("<locals>.")[2]


def _paired(one: Iterable[Any], two: Iterable[Any]) -> bool:
    left = list(two)
    for each in one:
        match = next((index for index, other in enumerate(left) if same(each, other)), None)
        if match is None:
            return False
        del left[match]
    return not left


def _without_contents(value: Any) -> Any:
    """The value without its contents, to be compared with `==`; None if that is unknown."""
    if isinstance(value, (datetime, time)):
        return value.replace(tzinfo=None, fold=0).isoformat()
    if isinstance(value, (float, complex, Decimal, timezone)):
        return repr(value)
    if isinstance(value, ZoneInfo):
        return value.key
    if isinstance(value, PurePath):
        return str(value)
    if isinstance(value, memoryview):
        return value.tobytes(), value.format, value.shape
    if isinstance(value, str):
        return repr(str.__str__(value))
    for base in (bytes, bytearray, int):
        if isinstance(value, base):
            return base(value)
    return f"length {len(value)}" if isinstance(value, (list, tuple, dict, deque)) else None


def _contents(value: Any) -> dict[Any, Any]:
    """The contents of a value, by attribute, key or index."""
    kind = type(value)
    found: dict[Any, Any] = {}
    if isinstance(value, PurePath):  # Its attributes are caches.
        return found
    if isinstance(value, dict):
        found |= {f"key {n}": key for n, key in enumerate(value)}
        found |= {f"value {n}": each for n, each in enumerate(value.values())}
    if isinstance(value, (list, tuple, deque)):
        found |= {f"element {n}": each for n, each in enumerate(value)}
    if isinstance(value, deque):
        found["maxlen"] = value.maxlen
    if isinstance(value, defaultdict):
        found["default_factory"] = value.default_factory
    if isinstance(value, (datetime, time)):
        found |= {"tzinfo": value.tzinfo, "fold": value.fold}
    if isinstance(value, BaseException):
        found["args"] = value.args
    for name, each in getattr(value, "__dict__", {}).items():
        if not isinstance(getattr_static(kind, name, None), cached_property):
            found[name] = each
    for name in _slots(kind):
        if hasattr(value, name):
            found[name] = getattr(value, name)
    return found


def _slots(kind: type) -> Iterable[str]:
    """Including those where pydantic stores what is not a field."""
    for base in kind.__mro__:
        slots = base.__dict__.get("__slots__", ())
        yield from (name for name in ([slots] if isinstance(slots, str) else slots) if name not in _NOT_STATE)


def _equal(one: Any, two: Any) -> bool:
    if any("__eq__" in vars(base) for base in type(one).__mro__[:-1]):
        return bool(one == two)
    try:
        return pickle.dumps(one) == pickle.dumps(two)
    except Exception:  # Nothing more can be said of it.
        return repr(one) == repr(two)


def _of_arrays(one: Any, two: Any) -> Iterator[str]:
    import numpy as np

    if isinstance(one, np.ma.MaskedArray):
        contents = [[each.data, np.ma.getmask(each), each.fill_value, each.hardmask] for each in (one, two)]
        yield from _differences(*contents)
    elif isinstance(one, (np.ndarray, np.generic)) and one.dtype != two.dtype:
        yield "another dtype"
    elif isinstance(one, np.ndarray):
        if one.flags.writeable and not two.flags.writeable:
            yield "read-only"
        if one.shape != two.shape:
            yield f"{one.shape} → {two.shape}"
        elif one.flags.forc and one.flags.fnc != two.flags.fnc:
            yield "another order in memory"
        elif one.dtype.hasobject or one.dtype.names:  # Between fields there may be padding bytes.
            yield from _differences(one.tolist(), two.tolist())
        elif one.tobytes() != two.tobytes():
            yield "another value"
    elif isinstance(one, np.generic):
        if one.tobytes() != two.tobytes():
            yield "another value"
    elif hasattr(one, "equals") and hasattr(
        one, "columns"
    ):  # Frames of pandas that are equal may be pickled differently.
        if not (one.equals(two) and one.index.identical(two.index) and one.columns.identical(two.columns)):
            yield "another value"
    elif pickle.dumps(one) != pickle.dumps(two):
        yield "another value"
