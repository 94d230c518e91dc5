"""How the objects of a class are stored: found out once for each class, because that takes longer than encoding.

Must not know: msgpack, which classes may be read, checkpoints.
"""

from __future__ import annotations

import dataclasses
import pathlib
import re
import sys
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable, Collection, Iterable, Mapping, Set
from contextlib import suppress
from datetime import date, datetime, time, timedelta, timezone
from decimal import Decimal
from enum import Enum
from inspect import getattr_static
from ipaddress import IPv4Address, IPv4Interface, IPv4Network, IPv6Address, IPv6Interface, IPv6Network
from types import MemberDescriptorType
from typing import TYPE_CHECKING, Any, NamedTuple, get_origin
from uuid import UUID, SafeUUID
from zoneinfo import ZoneInfo

import pydantic
from langgraph.checkpoint.serde._msgpack import SAFE_MSGPACK_METHODS, SAFE_MSGPACK_TYPES
from langgraph.checkpoint.serde.types import SendProtocol
from langgraph.store.base import Item
from pydantic_core import PydanticUndefined

from langgraph_checkpoint_custom.encoding.extensions import (
    KEYWORDS,
    METHOD,
    NUMPY,
    POSITIONAL,
    PYDANTIC_1,
    PYDANTIC_2,
    SINGLE,
    UnstorableValue,
)

if TYPE_CHECKING:
    from langgraph_checkpoint_custom.encoding.objects import Packer

PLAIN = -1  # No extension: msgpack can represent it.
_ADDRESSES = (IPv4Address, IPv4Interface, IPv4Network, IPv6Address, IPv6Interface, IPv6Network)
FACTORIES = {each.__name__: each for each in (list, dict, set, frozenset, tuple, str, int, float, bool)}

Fields = Callable[[Any, "Packer"], tuple[Any, list[str] | None, dict[str, Any]]]
BY_CONSTRUCTOR = {"anew": True}


class Kind(NamedTuple):
    """How the objects of a class are stored.

    Attributes:
        code: The code of the extension.
        module: The module of the class.
        name: The name of the class in its module.
        payload: Returns the data from which LangGraph rebuilds an object.
        lost: What would not come back. If this is not empty, the payload is stored without its class.
        checked: Whether to call the constructor with the payload of each object, to see whether it accepts it.
        tail: Returns the elements that follow the payload, if any.
        fields: Returns three elements for an object whose fields are stored as they are: the fields; the names of those
            that were given, or None if all were or if it is not known; and a dict with further state.
    """

    code: int
    module: str
    name: str
    payload: Callable[[Any], Any]
    lost: str = ""
    checked: bool = False
    tail: Callable[[Any, Packer], tuple[Any, ...]] | None = None
    fields: Fields | None = None


def kind_of(obj: Any, cls: type) -> Kind | None:
    """Find out how objects of a class are stored; the checks have LangGraph's order."""
    full_name = (cls.__module__, _name_of(cls) or cls.__name__)
    lost = "" if _name_of(cls) else "it cannot be found by its name in its module; define it there"

    def kind(code: int, payload: Callable[[Any], Any], **more: Any) -> Kind:
        checked = full_name not in SAFE_MSGPACK_TYPES and not issubclass(cls, Enum)
        return Kind(code, *full_name, payload, lost, checked, **more)

    if (
        issubclass(cls, (tuple, dict, list, str, int, float))
        and not issubclass(cls, Enum)
        and not hasattr(cls, "_asdict")
    ):
        return _kind_of_container(cls)
    if issubclass(cls, pydantic.BaseModel):
        return kind(PYDANTIC_2, lambda o: o.model_dump(), fields=_fields_of_model(cls))
    if callable(getattr(cls, "model_dump", None)):
        return kind(PYDANTIC_2, lambda o: o.model_dump())
    if callable(getattr(cls, "get_secret_value", None)):
        return kind(SINGLE, lambda o: o.get_secret_value())
    if callable(getattr(cls, "dict", None)):
        old = hasattr(cls, "__fields__") and hasattr(cls, "__private_attributes__")
        return kind(PYDANTIC_1, lambda o: o.dict(), fields=_fields_of_old_model(cls) if old else None)
    if callable(getattr(cls, "_asdict", None)):
        named = issubclass(cls, tuple) and hasattr(cls, "_fields")
        return kind(KEYWORDS, lambda o: dict(o._asdict()), fields=_fields_of_named_tuple(cls) if named else None)
    if issubclass(cls, pathlib.Path):
        return kind(POSITIONAL, lambda o: list(o.parts))
    if issubclass(cls, re.Pattern):
        return Kind(POSITIONAL, "re", "compile", lambda o: [o.pattern, o.flags])
    if issubclass(cls, UUID):
        return kind(SINGLE, lambda o: o.hex, tail=_of_uuid)
    if issubclass(cls, (Decimal, *_ADDRESSES)):
        return kind(SINGLE, str)
    if issubclass(cls, deque):
        return kind(SINGLE, list, tail=lambda o, _: () if o.maxlen is None else (None, {"maxlen": o.maxlen}))
    if issubclass(cls, (set, frozenset)):
        return kind(SINGLE, list)
    if issubclass(cls, datetime):
        if (*full_name, "fromisoformat") not in SAFE_MSGPACK_METHODS:
            lost = "only its text; store a datetime.datetime"
        return kind(METHOD, lambda o: o.isoformat(), tail=_of_datetime)
    if issubclass(cls, timedelta):
        return kind(POSITIONAL, lambda o: [o.days, o.seconds, o.microseconds])
    if issubclass(cls, date):
        return kind(POSITIONAL, lambda o: [o.year, o.month, o.day])
    if issubclass(cls, time):
        parts = ("hour", "minute", "second", "microsecond", "tzinfo", "fold")
        return kind(KEYWORDS, lambda o: {part: getattr(o, part) for part in parts})
    if issubclass(cls, timezone):
        return kind(POSITIONAL, lambda o: list(o.__getinitargs__()))
    if issubclass(cls, ZoneInfo):
        return kind(SINGLE, _key_of_zone)
    if issubclass(cls, Enum):
        return kind(SINGLE, lambda o: o.value)
    if isinstance(obj, SendProtocol):
        return kind(POSITIONAL, _of_send)
    if dataclasses.is_dataclass(cls):
        names = [field.name for field in dataclasses.fields(cls)]
        fields = _fields_of_dataclass(cls) if _is_bare(cls) else None
        return kind(KEYWORDS, lambda o: {name: getattr(o, name) for name in names}, fields=fields)
    if issubclass(cls, Item):
        return kind(KEYWORDS, lambda o: {name: getattr(o, name) for name in Item.__slots__})
    numpy = sys.modules.get("numpy")
    if numpy is not None and issubclass(cls, numpy.ndarray):
        return _kind_of_array(cls, numpy)
    return None


def _name_of(cls: type) -> str | None:
    """The name by which a class can be found in its module, a path for a class inside another; None if it cannot."""
    generic = getattr(cls, "__pydantic_generic_metadata__", None)
    if generic and generic["args"]:  # Found through its origin: pydantic creates such a class if it does not exist yet.
        parts = (generic["origin"], *generic["args"])
        return cls.__name__ if all(_is_class(part) and _name_of(part) for part in parts) else None
    for name in (cls.__name__, cls.__qualname__):
        found: Any = sys.modules.get(cls.__module__)
        for part in name.split("."):
            found = getattr(found, part, None)
        # Compared by qualified name: a class that was defined again, such as in a notebook, is the same to a reader.
        if isinstance(found, type) and found.__qualname__ == cls.__qualname__:
            return name
    return None


def _is_class(part: Any) -> bool:
    return isinstance(part, type) and get_origin(part) is None  # On Python 3.10, list[int] is a type.


def _kind_of_container(cls: type) -> Kind | None:
    if cls is int:  # Has more than 64 bits.
        return Kind(POSITIONAL, "builtins", "int", lambda o: [hex(o), 16])
    if cls is tuple:
        return Kind(SINGLE, "builtins", "tuple", list)
    if cls is OrderedDict:
        return Kind(SINGLE, "collections", "OrderedDict", _pairs)
    if cls is Counter:
        return Kind(SINGLE, "collections", "Counter", dict)
    if cls is defaultdict:
        return Kind(SINGLE, "collections", "defaultdict", _pairs, tail=_of_defaultdict)
    if issubclass(cls, float):  # LangGraph's serializer cannot store it, but its PostgreSQL saver stores it as JSON.
        return Kind(PLAIN, "", "", float, lost="only its number, as a float")
    # Any other subclass is stored as its base class, as it is outside of objects.
    bases: dict[type, Callable[[Any], Any]] = {dict: dict, list: list, str: str.__str__, int: int}
    base = next((base for base in bases if issubclass(cls, base)), None)
    return Kind(PLAIN, "", "", bases[base]) if base else None


def _pairs(those: Mapping[Any, Any]) -> list[list[Any]]:
    return [[key, value] for key, value in those.items()]


def _of_defaultdict(those: defaultdict[Any, Any], packer: Packer) -> tuple[Any, ...]:
    factory = those.default_factory
    if factory is not None and factory not in FACTORIES.values():
        packer.inexact(defaultdict, f"its default_factory {getattr(factory, '__qualname__', factory)!r}")
        factory = None
    return None, {"factory": getattr(factory, "__name__", None)}


def _of_uuid(o: UUID, _: Packer) -> tuple[Any, ...]:
    return () if o.is_safe is SafeUUID.unknown else (None, {"is_safe": o.is_safe.value})


def _of_datetime(when: datetime, packer: Packer) -> tuple[Any, ...]:
    zone = when.tzinfo
    state: dict[str, Any] = {"fold": when.fold} if when.fold else {}
    if zone is not None and (type(zone) is not timezone or len(zone.__getinitargs__()) > 1):  # type: ignore[attr-defined]
        state |= packer.storable(type(zone), {"tzinfo": zone})
    return ("fromisoformat", state) if state else ("fromisoformat",)


def _key_of_zone(zone: ZoneInfo) -> str:
    if zone.key is None:
        raise UnstorableValue("a ZoneInfo that was read from a file has no key to find it by")
    return zone.key


def _of_send(send: Any) -> list[Any]:
    timeout = getattr(send, "timeout", None)
    return [send.node, send.arg] if timeout is None else [send.node, send.arg, timeout]


def _kind_of_array(cls: type, numpy: Any) -> Kind:
    if cls is numpy.ndarray:
        return Kind(NUMPY, "numpy", "ndarray", _of_array)
    if cls is numpy.ma.MaskedArray:
        return Kind(KEYWORDS, cls.__module__, cls.__name__, _of_masked_array)
    return Kind(NUMPY, "numpy", "ndarray", lambda o: o.view(numpy.ndarray), "only its data, as a plain numpy.ndarray")


def _of_array(array: Any) -> list[Any]:
    order = "F" if array.flags.f_contiguous and not array.flags.c_contiguous else "C"
    kind = array.dtype
    found = [kind.str, list(array.shape), order]
    if kind.kind == "O":
        return [*found, array.ravel(order).tolist()]
    return [*found, array.tobytes(order="A"), *_names_of(kind)]


def _names_of(kind: Any) -> list[Any]:
    """The names and types of the fields of a structured array; empty for other arrays."""
    from langgraph_checkpoint_custom.encoding.restored import type_of_array  # It imports this module through `objects`.

    if kind.kind != "V" and not kind.hasobject:
        return []
    with suppress(ValueError):  # `descr` cannot describe overlapping fields.
        names = [[list(each) for each in kind.descr]] if kind.names else []
        if not kind.hasobject and type_of_array(kind.str, *names) == kind:
            return names
    raise UnstorableValue(f"a numpy array of {kind} would come back as another one")


def _of_masked_array(array: Any) -> dict[str, Any]:
    import numpy

    mask = numpy.ma.getmask(array)
    return {
        "data": numpy.asarray(array.data),
        "mask": False if mask is numpy.ma.nomask else mask,
        "fill_value": array._fill_value,
        "hard_mask": bool(array.hardmask),
    }


# Classes whose fields are stored as they are


def _fields_of_model(cls: type[pydantic.BaseModel]) -> Fields:
    known = cls.model_fields
    excluded = {name for name, field in known.items() if field.exclude}  # LangGraph does not store these.
    first = {name: each.default for name, each in cls.__private_attributes__.items()}
    generic = cls.__pydantic_generic_metadata__["args"]
    args = [[each.__module__, _name_of(each)] for each in generic]
    names = known.keys()

    def fields(o: Any, packer: Packer) -> tuple[Any, list[str] | None, dict[str, Any]]:
        held, extra, private = o.__dict__, o.__pydantic_extra__, o.__pydantic_private__
        state: dict[str, Any] = {}
        if held.keys() != names:
            held = {name: held[name] for name in held if name in known}
            state = _further_state(o, held, known)
        given = _given(o.__pydantic_fields_set__, held)
        if extra:
            state["extra"] = extra
        if private:
            private = {name: each for name, each in private.items() if each is not first.get(name, PydanticUndefined)}
            if private:
                state["private"] = private
        if args:
            state["args"] = args
        if not excluded and (not state or state.keys().isdisjoint(_OPTIONAL)):
            return held, given, state
        stored = packer.storable(cls, {name: held[name] for name in excluded & held.keys()})
        rest = {name: stored.get(name, held[name]) for name in held if name in stored or name not in excluded}
        return rest, given, _storable(cls, state, packer, by_constructor=len(rest) < len(held))

    return fields


def _fields_of_old_model(cls: Any) -> Fields:
    known = cls.__fields__

    def fields(o: Any, packer: Packer) -> tuple[Any, list[str] | None, dict[str, Any]]:
        held = {name: o.__dict__[name] for name in o.__dict__ if name in known}
        state = _further_state(o, held, known)
        if private := {name: getattr(o, name) for name in cls.__private_attributes__ if hasattr(o, name)}:
            state["private"] = private
        return held, _given(o.__fields_set__, held), _storable(cls, state, packer)

    return fields


def _fields_of_dataclass(cls: Any) -> Fields:
    known = [field.name for field in dataclasses.fields(cls)]
    slots = [name for base in cls.__mro__ for name in vars(base) if _is_slot(vars(base)[name]) and name not in known]

    def fields(o: Any, packer: Packer) -> tuple[Any, list[str] | None, dict[str, Any]]:
        held = {name: getattr(o, name) for name in known if hasattr(o, name)}
        if len(held) == len(known) and len(getattr(o, "__dict__", ())) <= len(held) and not slots:
            return held, None, {}
        return held, None, _storable(cls, _further_state(o, held, known, slots), packer)

    return fields


def _fields_of_named_tuple(cls: Any) -> Fields:
    def fields(o: Any, packer: Packer) -> tuple[Any, list[str] | None, dict[str, Any]]:
        held = dict(zip(cls._fields, o, strict=True))
        return held, None, _storable(cls, _further_state(o, held, cls._fields), packer)

    return fields


# State that may be left out if it cannot be stored; the constructor then restores the object.
_OPTIONAL = frozenset({"other", "private"})


def _further_state(o: Any, held: Collection[str], known: Collection[str], slots: Iterable[str] = ()) -> dict[str, Any]:
    """The state of an object besides its fields: further attributes, and the names of fields without a value.

    Without what the class itself computes, such as a cached property: it is computed again.
    """
    own = getattr(o, "__dict__", {}) | {name: getattr(o, name) for name in slots if hasattr(o, name)}
    state: dict[str, Any] = {}
    if others := {name: own[name] for name in own if name not in known and is_attribute(type(o), name)}:
        state["other"] = others
    if absent := [name for name in known if name not in held]:
        state["absent"] = absent
    return state


def _storable(cls: type, state: dict[str, Any], packer: Packer, *, by_constructor: bool = False) -> dict[str, Any]:
    """The storable state of an object.

    If something must be left out, it is only the mark that the constructor restores the object, and the arguments of a
    generic model.
    """
    for part in _OPTIONAL & state.keys():
        stored = packer.storable(cls, state[part])
        by_constructor = by_constructor or len(stored) < len(state[part])
        state[part] = stored
    return BY_CONSTRUCTOR | {key: state[key] for key in state if key == "args"} if by_constructor else state


def is_attribute(cls: type, name: str) -> bool:
    """Whether a name can be an attribute of an instance, and is not a method, property or similar of the class."""
    found = getattr_static(cls, name, None)
    return not name.startswith("__") and (_is_slot(found) or not hasattr(found, "__get__"))


def _is_slot(found: Any) -> bool:
    return isinstance(found, MemberDescriptorType)


def _given(names: Set[str], held: Mapping[str, Any]) -> list[str] | None:
    """The names of the fields that were given, or None if all were.

    Their order does not depend on the process, so equal objects have equal bytes.
    """
    found = [name for name in held if name in names]
    if len(found) != len(names):
        return found + sorted(names - held.keys())
    return None if len(found) == len(held) else found


def can_be_made(code: int, cls: type, payload: Any) -> bool:
    """Whether a class creates its object again from the payload that LangGraph stores."""
    from langgraph_checkpoint_custom.encoding.restored import make  # It imports this module through `objects`.

    try:
        return type(make(code, cls, payload)) is cls
    except Exception:  # The class's own constructor may raise anything; the answer is no then.
        return False


def _is_bare(cls: type) -> bool:
    """Whether `object.__new__` can create an instance; it cannot for an exception, for example."""
    try:
        object.__new__(cls)
    except TypeError:
        return False
    return True
