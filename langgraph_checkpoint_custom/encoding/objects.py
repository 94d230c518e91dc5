"""Encodes objects as LangGraph's msgpack extensions: how each class is stored.

Must not know: which classes may be read, checkpoints.

An extension starts as LangGraph's does: the module, the name, and the data from which LangGraph rebuilds the object.
If the fields of the object are stored as they are, two more elements follow, which LangGraph's serializer ignores: the
names of the fields that were given, or the method to call; and a dict with further state (`restored.py` reads it). So
LangGraph's serializer reads these extensions as well as its own.

Inside an object, tuples, the dict-like classes of `collections` and dict keys of any type keep their types, because no
validation would restore them. Outside of objects they become what LangGraph makes of them: a list, a dict, text.
"""

from __future__ import annotations

import dataclasses
import logging
import pathlib
import re
import sys
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable, Collection, Iterable, Mapping, Set
from contextlib import suppress
from contextvars import ContextVar
from datetime import date, datetime, time, timedelta, timezone
from decimal import Decimal
from enum import Enum
from inspect import getattr_static
from ipaddress import IPv4Address, IPv4Interface, IPv4Network, IPv6Address, IPv6Interface, IPv6Network
from types import MemberDescriptorType
from typing import Any, NamedTuple, get_origin
from uuid import UUID, SafeUUID
from weakref import WeakKeyDictionary
from zoneinfo import ZoneInfo

import ormsgpack
import pydantic
from langgraph.checkpoint.serde import jsonplus
from langgraph.checkpoint.serde._msgpack import SAFE_MSGPACK_METHODS, SAFE_MSGPACK_TYPES
from langgraph.checkpoint.serde.types import SendProtocol, _DeltaSnapshot
from langgraph.store.base import Item
from pydantic_core import PydanticUndefined

_LOG = logging.getLogger("langgraph_checkpoint_custom")

# Without OPT_REPLACE_SURROGATES, which turns lone surrogates into question marks.
_INSIDE = (
    ormsgpack.OPT_PASSTHROUGH_BIG_INT
    | ormsgpack.OPT_PASSTHROUGH_DATACLASS
    | ormsgpack.OPT_PASSTHROUGH_DATETIME
    | ormsgpack.OPT_PASSTHROUGH_ENUM
    | ormsgpack.OPT_PASSTHROUGH_SUBCLASS
    | ormsgpack.OPT_PASSTHROUGH_TUPLE
    | ormsgpack.OPT_PASSTHROUGH_UUID
)
_OUTSIDE = (
    _INSIDE & ~ormsgpack.OPT_PASSTHROUGH_TUPLE & ~ormsgpack.OPT_PASSTHROUGH_SUBCLASS
) | ormsgpack.OPT_NON_STR_KEYS
_ADDRESSES = (IPv4Address, IPv4Interface, IPv4Network, IPv6Address, IPv6Interface, IPv6Network)
# The types of dict keys that msgpack supports, besides text.
_KEYS = frozenset({int, float, bool, type(None), bytes})
FACTORIES = {each.__name__: each for each in (list, dict, set, frozenset, tuple, str, int, float, bool)}

SINGLE = jsonplus.EXT_CONSTRUCTOR_SINGLE_ARG
POSITIONAL = jsonplus.EXT_CONSTRUCTOR_POS_ARGS
KEYWORDS = jsonplus.EXT_CONSTRUCTOR_KW_ARGS
METHOD = jsonplus.EXT_METHOD_SINGLE_ARG
PYDANTIC_1 = jsonplus.EXT_PYDANTIC_V1
PYDANTIC_2 = jsonplus.EXT_PYDANTIC_V2
NUMPY = jsonplus.EXT_NUMPY_ARRAY
DELTA = jsonplus.EXT_DELTA_SNAPSHOT
_PLAIN = -1  # No extension: msgpack can represent it.


class UnstorableValue(TypeError):
    """A value that would come back as a different one."""


class UnreadableValue(ValueError):
    """A stored object that cannot be restored; the message names its class and says what to do."""


@dataclasses.dataclass(frozen=True)
class Extension:
    """An extension as it is stored, without creating its object."""

    code: int
    data: bytes


def held(_: str, __: str, stored: Any, method: Any = None, state: Any = None) -> Any:
    """Return the stored data of an object from the content of its extension, without creating the object."""
    if isinstance(stored, dict) and isinstance(state, dict):
        return {**stored, **state.get("other", {}), **state.get("extra", {}), **state.get("private", {})}
    return stored


class Packer:
    """Encodes values in msgpack.

    Args:
        exact: Whether to raise for an object that would not come back as it was. Otherwise it is stored as LangGraph's
            serializer stores it, and the log reports that once for each class.
    """

    def __init__(self, *, exact: bool) -> None:
        self._exact = exact

    def pack(self, obj: Any) -> bytes:
        """Encode a value in msgpack."""
        try:
            return ormsgpack.packb(obj, default=self._object, option=_OUTSIDE)
        except ormsgpack.MsgpackEncodeError:
            converted, other = _with_extensions(obj)
            if not other:
                raise
            return ormsgpack.packb(converted, default=self._object, option=_OUTSIDE)

    def _object(self, obj: Any) -> Any:
        try:
            cls = type(obj)
            kind = _KINDS.get(cls)
            if kind is None or kind.fields is None:
                return self._extension(obj, cls, kind)
            fields, given, state = kind.fields(obj, self)
            content = (
                [kind.module, kind.name, fields, given, state] if state else [kind.module, kind.name, fields, given]
            )
            try:
                return ormsgpack.Ext(kind.code, self._inside(cls, content))
            except ormsgpack.MsgpackEncodeError as error:
                problem = cause_of(error)
                if kind.code not in (PYDANTIC_1, PYDANTIC_2) or _IN_DUMP.get():
                    raise
                if (self._exact and isinstance(problem, UnstorableValue)) or str(problem) == _TOO_DEEP:
                    raise
            # The model's own dump may replace the field by something that can be stored. If not, packing the dump
            # raises for the same field. Models inside the dump are not dumped again: they may hold as much as this one,
            # and so on.
            by_constructor = _BY_CONSTRUCTOR | {key: state[key] for key in state if key == "args"}
            before = _IN_DUMP.set(True)
            try:
                content = [kind.module, kind.name, kind.payload(obj), None, by_constructor]
                stored = ormsgpack.Ext(kind.code, self._inside(cls, content))
            finally:
                _IN_DUMP.reset(before)
            self.inexact(cls, f"a field cannot be stored as it is ({problem})")
            return stored
        except Exception as error:
            if not str(error).startswith(_DROPPED):
                _FAILURE.set((UnstorableValue if isinstance(error, UnstorableValue) else TypeError, said_by(error)))
            raise

    def _extension(self, obj: Any, cls: type, kind: Kind | None) -> Any:
        """Encode an object without stored fields, or one of a class that was not seen before."""
        if kind is None:
            if cls is Extension:
                return ormsgpack.Ext(obj.code, obj.data)
            if cls is _BuiltinExtension:
                return ormsgpack.Ext(obj.code, self._inside(cls, ["builtins", obj.name, obj.payload]))
            if cls is _View:
                self.inexact(memoryview, "only its bytes")
                return bytes(obj.data)
            if cls is _DeltaSnapshot:  # It holds the value of a channel, which is not inside an object.
                return ormsgpack.Ext(DELTA, self.pack(obj.value))
            kind = _kind_of(obj, cls)
            if kind is None:  # An exception, a type that only a newer langgraph-checkpoint knows, or an unknown type.
                return jsonplus._msgpack_default(obj)
            if kind.lost:
                self.inexact(cls, kind.lost)
                return kind.payload(obj)
            _KINDS[cls] = kind
            if kind.fields is not None:
                return self._object(obj)
        content = kind.payload(obj)
        if kind.code == _PLAIN:
            return content
        if kind.code == NUMPY:
            return ormsgpack.Ext(NUMPY, self._inside(cls, content))
        if kind.checked and not _can_be_made(kind.code, cls, content):
            self.inexact(cls, "its constructor cannot rebuild it from what LangGraph stores")
            return content
        tail = kind.tail(obj, self) if kind.tail else ()
        return ormsgpack.Ext(kind.code, self._inside(cls, [kind.module, kind.name, content, *tail]))

    def _inside(self, cls: type, content: list[Any]) -> bytes:
        """Pack the content of an extension.

        `_NEED_EXTENSIONS` collects the classes whose content msgpack cannot represent; it is converted before packing.
        """
        if cls in _NEED_EXTENSIONS:
            converted, _ = _with_extensions(content)
        else:
            try:
                data = ormsgpack.packb(content, default=self._object, option=_INSIDE)
            except ormsgpack.MsgpackEncodeError:
                converted, other = _with_extensions(content)
                if not other:
                    raise
            else:  # ormsgpack packs a bytearray or memoryview as bytes.
                if not (may_have_bytes(data) and _has_buffer(content)):
                    return data
                converted, _ = _with_extensions(content)
            _NEED_EXTENSIONS.add(cls)
        return ormsgpack.packb(converted, default=self._object, option=_INSIDE | ormsgpack.OPT_NON_STR_KEYS)

    def storable(self, cls: type, held: Mapping[str, Any]) -> dict[str, Any]:
        """Return the attributes of an object that can be stored; it can be restored without the others."""
        found = {}
        for name, value in held.items():
            try:
                stored = self._inside(cls, [value])
            except ormsgpack.MsgpackEncodeError as error:
                self.inexact(cls, f"its {name!r} cannot be stored ({cause_of(error)})")
                continue
            # As packed extensions, so that the objects inside are not tried again: they may have such attributes, too.
            (found[name],) = ormsgpack.unpackb(stored, ext_hook=Extension, option=ormsgpack.OPT_NON_STR_KEYS)
        return found

    def inexact(self, cls: type, lost: str) -> None:
        """Raise, or log once for each class, because objects of this class would lose something."""
        full_name = (cls.__module__, cls.__qualname__)
        if self._exact:
            raise UnstorableValue(f"{'.'.join(full_name)} would come back as something else: {lost}")
        if full_name not in _WARNED and len(_WARNED) < _MOST_WARNED:
            _WARNED.add(full_name)
            _LOG.warning(
                "%s.%s is stored as LangGraph's serializer stores it, and comes back as something else: %s. This is "
                "logged once for each class; on_inexact='raise' makes it an error",
                *full_name,
                lost,
            )


EXACT = Packer(exact=True)
AS_LANGGRAPH = Packer(exact=False)
pack = EXACT.pack
_WARNED: set[tuple[str, str]] = set()
_MOST_WARNED = 1000  # A program may create classes without end.


# The text of ormsgpack's error when its `default` function has failed; ormsgpack drops the error of that function.
_DROPPED = "Type is not msgpack serializable"
_IN_DUMP: ContextVar[bool] = ContextVar("in_dump", default=False)
# The class and text of that error, and not the error itself, which would hold on to the values.
_FAILURE: ContextVar[tuple[type[TypeError], str]] = ContextVar("failure", default=(TypeError, _DROPPED))


def cause_of(error: TypeError) -> TypeError:
    """Return why ormsgpack has just raised an error, without the values that may be in its text."""
    kind, said = _FAILURE.get() if str(error).startswith(_DROPPED) else (TypeError, said_by(error))
    return kind(said)


def said_by(error: BaseException) -> str:
    """Return a text of an error that shows no values: those of pydantic and of other classes may quote them."""
    if isinstance(error, pydantic.ValidationError):
        wrong = {f"{'.'.join(map(str, each['loc'][:1]))}: {each['type']}" for each in error.errors(include_input=False)}
        return f"{type(error).__name__}: {', '.join(sorted(wrong))}"
    if isinstance(error, RecursionError) or str(error) == "Recursion limit reached":
        return _TOO_DEEP
    is_safe = isinstance(error, (UnstorableValue, UnreadableValue)) or str(error).startswith(_VALUE_FREE)
    return str(error) if is_safe else type(error).__name__


_TOO_DEEP = "it is nested too deeply, or contains itself"
_VALUE_FREE = ("Object of type ", "Integer exceeds 64-bit range", "Dict key must ", _TOO_DEEP)


# Values that msgpack cannot represent


class _BuiltinExtension(NamedTuple):
    """A text, bytearray or dict that is stored as an extension."""

    code: int
    name: str
    payload: Any


class _View(NamedTuple):
    """A memoryview inside an object."""

    data: memoryview


_TEXT = ("utf-8", "surrogatepass")


def _with_extensions(value: Any) -> tuple[Any, bool]:
    """Replace what msgpack cannot represent: lone surrogates, bytearrays, and dicts with keys of other types.

    Each becomes an object that `Packer` writes as an extension; a memoryview becomes one that it writes as bytes.

    Returns:
        The value, and whether something was replaced or a dict has a key that is not text.
    """
    kind = type(value)
    if kind is str:
        if value.isascii() or is_unicode(value):
            return value, False
        return _BuiltinExtension(POSITIONAL, "str", [value.encode(*_TEXT), *_TEXT]), True
    if kind is bytearray:
        return _BuiltinExtension(SINGLE, "bytearray", bytes(value)), True
    if kind is memoryview:
        return _View(value), True
    if kind is list:
        found = [_with_extensions(each) for each in value]
        return [each for each, _ in found], any(other for _, other in found)
    if kind is not dict:
        return value, False
    pairs = [(*_with_extensions(key), *_with_extensions(each)) for key, each in value.items()]
    if all(type(key) is str or type(key) in _KEYS for key, *_ in pairs):
        other = any(other or type(key) is not str for key, _, _, other in pairs)
        return {key: each for key, _, each, _ in pairs}, other
    return _BuiltinExtension(SINGLE, "dict", [[key, each] for key, _, each, _ in pairs]), True


def may_have_bytes(data: bytes) -> bool:
    """Whether a value in msgpack may contain bytes: they start with one of these codes, which text may contain too."""
    return 0xC4 in data or 0xC5 in data or 0xC6 in data


def _has_buffer(values: Iterable[Any]) -> bool:
    for value in values:
        kind = type(value)
        if kind is bytearray or kind is memoryview:
            return True
        if (kind is dict and _has_buffer(value.values())) or (kind is list and _has_buffer(value)):
            return True
    return False


def is_unicode(text: str) -> bool:
    """Whether a text has no lone surrogates, which each serializer treats differently."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


# How a class is stored: found out once, because that takes longer than encoding


Fields = Callable[[Any, Packer], tuple[Any, list[str] | None, dict[str, Any]]]
_BY_CONSTRUCTOR = {"anew": True}


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


_KINDS: WeakKeyDictionary[type, Kind] = WeakKeyDictionary()
_NEED_EXTENSIONS: set[type] = set()


def _kind_of(obj: Any, cls: type) -> Kind | None:
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
        return Kind(_PLAIN, "", "", float, lost="only its number, as a float")
    # Any other subclass is stored as its base class, as it is outside of objects.
    bases: dict[type, Callable[[Any], Any]] = {dict: dict, list: list, str: str.__str__, int: int}
    base = next((base for base in bases if issubclass(cls, base)), None)
    return Kind(_PLAIN, "", "", bases[base]) if base else None


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
    from langgraph_checkpoint_custom.encoding.restored import type_of_array  # It imports this module.

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
    return _BY_CONSTRUCTOR | {key: state[key] for key in state if key == "args"} if by_constructor else state


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


def _can_be_made(code: int, cls: type, payload: Any) -> bool:
    from langgraph_checkpoint_custom.encoding.restored import make  # It imports this module.

    try:
        return type(make(code, cls, payload)) is cls
    except Exception:
        return False


def _is_bare(cls: type) -> bool:
    """Whether `object.__new__` can create an instance; it cannot for an exception, for example."""
    try:
        object.__new__(cls)
    except TypeError:
        return False
    return True
