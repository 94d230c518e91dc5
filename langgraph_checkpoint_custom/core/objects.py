"""Objects in LangGraph's msgpack extensions: how each class is written, and made again.

Must not know: which classes may be read, checkpoints.
"""

from __future__ import annotations

import dataclasses
import importlib
import pathlib
import re
import sys
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import date, datetime, time, timedelta, timezone
from decimal import Decimal
from enum import Enum
from ipaddress import IPv4Address, IPv4Interface, IPv4Network, IPv6Address, IPv6Interface, IPv6Network
from typing import Any, NamedTuple
from uuid import UUID
from weakref import WeakKeyDictionary
from zoneinfo import ZoneInfo

import ormsgpack
from langgraph.checkpoint.serde import jsonplus
from langgraph.checkpoint.serde._msgpack import SAFE_MSGPACK_METHODS
from langgraph.checkpoint.serde.types import SendProtocol, _DeltaSnapshot
from langgraph.store.base import Item

# Without OPT_REPLACE_SURROGATES, which turns half characters into question marks.
_OPTIONS = (
    ormsgpack.OPT_NON_STR_KEYS
    | ormsgpack.OPT_PASSTHROUGH_DATACLASS
    | ormsgpack.OPT_PASSTHROUGH_DATETIME
    | ormsgpack.OPT_PASSTHROUGH_ENUM
    | ormsgpack.OPT_PASSTHROUGH_UUID
)
_ADDRESSES = (IPv4Address, IPv4Interface, IPv4Network, IPv6Address, IPv6Interface, IPv6Network)

SINGLE = jsonplus.EXT_CONSTRUCTOR_SINGLE_ARG
POSITIONAL = jsonplus.EXT_CONSTRUCTOR_POS_ARGS
KEYWORDS = jsonplus.EXT_CONSTRUCTOR_KW_ARGS
METHOD = jsonplus.EXT_METHOD_SINGLE_ARG
PYDANTIC_1 = jsonplus.EXT_PYDANTIC_V1
PYDANTIC_2 = jsonplus.EXT_PYDANTIC_V2
NUMPY = jsonplus.EXT_NUMPY_ARRAY
DELTA = jsonplus.EXT_DELTA_SNAPSHOT


class UnstorableValue(TypeError):
    """A value that would come back as another one."""


class UnreadableValue(ValueError):
    """A stored object that cannot be made again; the message names its class and the way out."""


# Writing: by class, since the questions take longer than the answer


class Form(NamedTuple):
    """The extension that stands for an object: its code, and what is in it."""

    code: int
    content: Any


@dataclasses.dataclass(frozen=True)
class Extension:
    """An extension that nobody has made an object of."""

    code: int
    data: bytes


_FORMS: WeakKeyDictionary[type, Callable[[Any], Form]] = WeakKeyDictionary()
_FORMS[Extension] = lambda o: Form(o.code, ormsgpack.Fragment(o.data))


def pack(obj: Any) -> bytes:
    """A value in msgpack."""
    return ormsgpack.packb(obj, default=_extension, option=_OPTIONS)


def _extension(obj: Any) -> Any:
    cls = type(obj)
    form = _FORMS.get(cls)
    if form is None:
        if isinstance(obj, BaseException):
            return repr(obj)
        form = _form_of(obj, cls)
        if form is None:  # A type that only a newer langgraph-checkpoint knows, or none.
            return jsonplus._msgpack_default(obj)
        _FORMS[cls] = form
    code, content = form(obj)
    return ormsgpack.Ext(code, pack(content))


def _form_of(obj: Any, cls: type) -> Callable[[Any], Form] | None:
    """How objects of a class are stored; the order of the questions is LangGraph's."""
    if cls is _DeltaSnapshot:
        return lambda o: Form(DELTA, o.value)
    place = (cls.__module__, cls.__name__)

    def single(make: Callable[[Any], Any]) -> Callable[[Any], Form]:
        _check_named(cls)
        return lambda o: Form(SINGLE, (*place, make(o)))

    def positional(make: Callable[[Any], Any]) -> Callable[[Any], Form]:
        _check_named(cls)
        return lambda o: Form(POSITIONAL, (*place, make(o)))

    def keywords(make: Callable[[Any], Any]) -> Callable[[Any], Form]:
        _check_named(cls)
        return lambda o: Form(KEYWORDS, (*place, make(o)))

    if callable(getattr(cls, "model_dump", None)):
        _check_named(cls)
        return lambda o: Form(PYDANTIC_2, (*place, o.model_dump(), "model_validate_json"))
    if callable(getattr(cls, "get_secret_value", None)):
        return single(lambda o: o.get_secret_value())
    if callable(getattr(cls, "dict", None)):
        _check_named(cls)
        return lambda o: Form(PYDANTIC_1, (*place, o.dict()))
    if callable(getattr(cls, "_asdict", None)):
        return keywords(lambda o: o._asdict())
    if issubclass(cls, pathlib.Path):
        return positional(lambda o: o.parts)
    if issubclass(cls, re.Pattern):
        return lambda o: Form(POSITIONAL, ("re", "compile", (o.pattern, o.flags)))
    if issubclass(cls, UUID):
        return single(lambda o: o.hex)
    if issubclass(cls, (Decimal, *_ADDRESSES)):
        return single(str)
    if issubclass(cls, (set, frozenset, deque)):
        return single(tuple)
    if issubclass(cls, datetime):
        if (*place, "fromisoformat") not in SAFE_MSGPACK_METHODS:
            raise UnstorableValue(f"{'.'.join(place)} would come back as text; store a datetime.datetime")
        return lambda o: Form(METHOD, (*place, o.isoformat(), "fromisoformat"))
    if issubclass(cls, timedelta):
        return positional(lambda o: (o.days, o.seconds, o.microseconds))
    if issubclass(cls, date):
        return positional(lambda o: (o.year, o.month, o.day))
    if issubclass(cls, time):
        parts = ("hour", "minute", "second", "microsecond", "tzinfo", "fold")
        return keywords(lambda o: {part: getattr(o, part) for part in parts})
    if issubclass(cls, timezone):
        return positional(lambda o: o.__getinitargs__())
    if issubclass(cls, ZoneInfo):
        return single(lambda o: o.key)
    if issubclass(cls, Enum):
        return single(lambda o: o.value)
    if isinstance(obj, SendProtocol):
        return positional(_of_send)
    if dataclasses.is_dataclass(cls):
        names = [field.name for field in dataclasses.fields(cls)]
        return keywords(lambda o: {name: getattr(o, name) for name in names})
    if issubclass(cls, Item):
        return keywords(lambda o: {name: getattr(o, name) for name in Item.__slots__})
    numpy = sys.modules.get("numpy")
    if numpy is not None and issubclass(cls, numpy.ndarray):
        return _of_array
    return None


def _check_named(cls: type) -> None:
    """Whether a class will be found again by its module and name."""
    found = getattr(sys.modules.get(cls.__module__), cls.__name__, None)
    # By qualified name: a class that was defined again, in a notebook say, is the same one to the reader.
    if not isinstance(found, type) or found.__qualname__ != cls.__qualname__:
        raise UnstorableValue(
            f"{cls.__module__}.{cls.__qualname__} cannot be found as {cls.__name__} in its module, where it is looked "
            "up when it is read; define it there"
        )


def _of_send(send: Any) -> tuple[Any, ...]:
    timeout = getattr(send, "timeout", None)
    return (send.node, send.arg) if timeout is None else (send.node, send.arg, timeout)


def _of_array(array: Any) -> Form:
    if type(array).__name__ != "ndarray" or array.dtype.hasobject or array.dtype.names:
        raise UnstorableValue(f"a numpy {type(array).__name__} of {array.dtype} would come back as another one")
    order = "F" if array.flags.f_contiguous and not array.flags.c_contiguous else "C"
    return Form(NUMPY, (array.dtype.str, array.shape, order, array.tobytes(order="A")))


# Making


def find(module: str, name: str) -> Any:
    """A class, or what is called in its place, by the name that was stored."""
    try:
        return getattr(sys.modules.get(module) or importlib.import_module(module), name)
    except Exception as error:
        raise UnreadableValue(
            f"{module}.{name} is not there ({type(error).__name__}: {error}); bring the class back under that name, or "
            "read what was stored of it with on_unreadable='raw'"
        ) from error


def changed(name: str, how: str) -> UnreadableValue:
    """The error for a class that cannot be made from what was stored."""
    return UnreadableValue(
        f"{name} cannot be made from what was stored of it ({how}); bring the class back to where it could, or read "
        "what was stored with on_unreadable='raw'"
    )


def make(code: int, target: Any, stored: Any, *method: str) -> Any:
    """An object from the content of its extension."""
    if code == SINGLE:
        return _single(target, stored)
    if code == POSITIONAL:
        return _positional(target, stored)
    if code == METHOD:
        return getattr(target, method[0])(stored)
    if code == KEYWORDS:
        return _dataclass(target, stored) if dataclasses.is_dataclass(target) else target(**stored)
    return _pydantic(target, stored)


def _hashable(value: Any) -> Any:
    """An element of a set: what is a list now was a tuple, since it was hashable."""
    return tuple(map(_hashable, value)) if type(value) is list else value


def array(dtype: str, shape: list[int], order: Any, data: bytes) -> Any:
    """A numpy array."""
    import numpy

    # A copy, since what lies in the bytes could not be changed in place, as the original could.
    return numpy.frombuffer(data, dtype=numpy.dtype(dtype)).reshape(shape, order=order).copy(order="K")


def _single(target: Any, stored: Any) -> Any:
    """What takes one argument; an argument that was a tuple comes as a list."""
    if target in (set, frozenset):
        return target(map(_hashable, stored))
    if type(stored) is list and isinstance(target, type) and issubclass(target, Enum):
        with suppress(ValueError):
            return target(_hashable(stored))
    return target(stored)


def _positional(target: Any, stored: list[Any]) -> Any:
    if (target.__module__, target.__name__) == ("langgraph.types", "Send") and len(stored) > 2:
        return target(*stored[:2], timeout=stored[2])
    return target(*stored)


def _dataclass(cls: Any, stored: Mapping[str, Any]) -> Any:
    """A dataclass with the stored values, whatever its initialisation makes of them."""
    fields = {field.name: field for field in dataclasses.fields(cls)}
    if gone := stored.keys() - fields:
        raise changed(f"{cls.__module__}.{cls.__name__}", f"it has no field {', '.join(sorted(gone))}")
    try:
        made = cls(**{name: value for name, value in stored.items() if fields[name].init})
    except TypeError:
        if fields.keys() != stored.keys():
            raise
        made = object.__new__(cls)  # It is initialised from more than its fields.
    for name, value in stored.items():
        if getattr(made, name, dataclasses.MISSING) is not value:
            object.__setattr__(made, name, value)
    return made


def _pydantic(cls: Any, stored: Any) -> Any:
    """A pydantic model from its dump, validated, since that is what makes nested models again."""
    if not isinstance(stored, dict) or getattr(cls, "__pydantic_root_model__", False):
        return cls.model_validate(stored)
    known = _known_fields(cls)
    if known is not None and not stored.keys() <= known:
        gone = ", ".join(sorted(map(str, stored.keys() - known)))
        raise changed(f"{cls.__module__}.{cls.__name__}", f"it has no field {gone}")
    try:
        return cls(**stored)
    except ValueError:
        if not hasattr(cls, "model_validate"):
            raise
        try:  # A dump has the names of fields, where the constructor may want their aliases.
            return cls.model_validate(stored, by_alias=True, by_name=True)
        except TypeError:  # pydantic before 2.11
            return cls.model_validate({_alias(cls, name): value for name, value in stored.items()})


def _alias(cls: Any, name: str) -> str:
    field = cls.model_fields.get(name)
    return field.alias if field is not None and field.alias else name


_KNOWN: WeakKeyDictionary[type, frozenset[str] | None] = WeakKeyDictionary()


def _known_fields(cls: Any) -> frozenset[str] | None:
    """The keys that a dump of a model may have; None if that may be any."""
    try:
        return _KNOWN[cls]
    except KeyError:
        return _KNOWN.setdefault(cls, _ask_known_fields(cls))


def _ask_known_fields(cls: Any) -> frozenset[str] | None:
    if not hasattr(cls, "model_fields"):  # pydantic 1
        config = getattr(cls, "__config__", None)
        any_key = config is None or str(getattr(config, "extra", "")).endswith("allow")
        return None if any_key else frozenset(cls.__fields__)
    if cls.model_config.get("extra") == "allow" or cls.__pydantic_decorators__.model_serializers:
        return None
    names = set(cls.model_fields) | set(cls.model_computed_fields)
    for field in (*cls.model_fields.values(), *cls.model_computed_fields.values()):
        names.update(alias for alias in (field.alias, getattr(field, "serialization_alias", None)) if alias)
    return frozenset(names)
