"""Objects in LangGraph's msgpack extensions: how each class is written.

Must not know: which classes may be read, checkpoints.

An extension begins as LangGraph's does: module, name and what it rebuilds the object from. Where the fields of the
object are kept as they are, two elements follow, which LangGraph's serializer passes over: the method that is called,
if any, and what else there is to know, by name (`restored.py` reads it). So anybody who has LangGraph's serializer can
read what is written here, as well as that one does.

Inside an object tuples, the dict-like classes of `collections` and keys of any kind are kept, since nothing validates
them into what they were. Outside of objects they become what LangGraph makes of them: a list, a dict, text.
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

# Without OPT_REPLACE_SURROGATES, which turns half characters into question marks.
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
# What msgpack has keys of, besides text.
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
_PLAIN = -1  # No extension: what msgpack has a word for.


class UnstorableValue(TypeError):
    """A value that would come back as another one."""


class UnreadableValue(ValueError):
    """A stored object that cannot be made again; the message names its class and the way out."""


@dataclasses.dataclass(frozen=True)
class Extension:
    """An extension that nobody has made an object of."""

    code: int
    data: bytes


def held(_: str, __: str, stored: Any, method: Any = None, state: Any = None) -> Any:
    """What the content of an extension holds of an object, for those who make none of it."""
    if isinstance(stored, dict) and isinstance(state, dict):
        return {**stored, **state.get("other", {}), **state.get("extra", {}), **state.get("private", {})}
    return stored


class Packer:
    """Writes values in msgpack.

    Args:
        exact: Whether an object that would not come back as it was is an error. Otherwise it is stored as LangGraph's
            serializer stores it, and the log says so once for each class.
    """

    def __init__(self, *, exact: bool) -> None:
        self._exact = exact

    def pack(self, obj: Any) -> bytes:
        """A value in msgpack."""
        try:
            return ormsgpack.packb(obj, default=self._object, option=_OUTSIDE)
        except ormsgpack.MsgpackEncodeError:
            worded, other = _worded(obj)
            if not other:
                raise
            return ormsgpack.packb(worded, default=self._object, option=_OUTSIDE)

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
                if kind.code not in (PYDANTIC_1, PYDANTIC_2) or _IN_OWN_WORDS.get():
                    raise
                if (self._exact and isinstance(problem, UnstorableValue)) or str(problem) == _TOO_DEEP:
                    raise
            # A model may have words of its own for it; if not, this raises what it says about the same. Not again for
            # what is in these words, which may be all that the model has, and so on.
            anew = _ANEW | {key: state[key] for key in state if key == "args"}
            before = _IN_OWN_WORDS.set(True)
            try:
                content = [kind.module, kind.name, kind.payload(obj), None, anew]
                stored = ormsgpack.Ext(kind.code, self._inside(cls, content))
            finally:
                _IN_OWN_WORDS.reset(before)
            self.inexact(cls, f"a field cannot be stored as it is ({problem})")
            return stored
        except Exception as error:
            if not str(error).startswith(_DROPPED):
                _FAILURE.set((UnstorableValue if isinstance(error, UnstorableValue) else TypeError, said_by(error)))
            raise

    def _extension(self, obj: Any, cls: type, kind: Kind | None) -> Any:
        """What has no fields, or is of a class that is new here."""
        if kind is None:
            if cls is Extension:
                return ormsgpack.Ext(obj.code, obj.data)
            if cls is _Worded:
                return ormsgpack.Ext(obj.code, self._inside(cls, ["builtins", obj.name, obj.payload]))
            if cls is _Viewed:
                self.inexact(memoryview, "only its bytes")
                return bytes(obj.data)
            if cls is _DeltaSnapshot:  # Its value is one of a channel.
                return ormsgpack.Ext(DELTA, self.pack(obj.value))
            kind = _kind_of(obj, cls)
            if kind is None:  # A type that only a newer langgraph-checkpoint knows, an exception, or none.
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
            self.inexact(cls, "its constructor does not make it of what LangGraph stores of it")
            return content
        tail = kind.tail(obj, self) if kind.tail else ()
        return ormsgpack.Ext(kind.code, self._inside(cls, [kind.module, kind.name, content, *tail]))

    def _inside(self, cls: type, content: list[Any]) -> bytes:
        """What is in an extension; `_WORDED` has the classes of which it is known that msgpack has no word for all."""
        if cls in _WORDED:
            worded, _ = _worded(content)
        else:
            try:
                data = ormsgpack.packb(content, default=self._object, option=_INSIDE)
            except ormsgpack.MsgpackEncodeError:
                worded, other = _worded(content)
                if not other:
                    raise
            else:  # A bytearray or memoryview is written as bytes.
                if not (may_have_bytes(data) and _has_buffer(content)):
                    return data
                worded, _ = _worded(content)
            _WORDED.add(cls)
        return ormsgpack.packb(worded, default=self._object, option=_INSIDE | ormsgpack.OPT_NON_STR_KEYS)

    def storable(self, cls: type, held: Mapping[str, Any]) -> dict[str, Any]:
        """Those attributes of an object that can be stored; it can be made without the others."""
        found = {}
        for name, value in held.items():
            try:
                stored = self._inside(cls, [value])
            except ormsgpack.MsgpackEncodeError as error:
                self.inexact(cls, f"its {name!r} cannot be stored ({cause_of(error)})")
                continue
            # What is in it is not asked again: it may have attributes of its own, and so on.
            (found[name],) = ormsgpack.unpackb(stored, ext_hook=Extension, option=ormsgpack.OPT_NON_STR_KEYS)
        return found

    def inexact(self, cls: type, lost: str) -> None:
        """Objects of a class lose something."""
        location = (cls.__module__, cls.__qualname__)
        if self._exact:
            raise UnstorableValue(f"{'.'.join(location)} would come back as something else: {lost}")
        if location not in _WARNED and len(_WARNED) < _MOST_WARNED:
            _WARNED.add(location)
            _LOG.warning(
                "%s.%s is stored as LangGraph's serializer stores it, and comes back as something else: %s. This is "
                "said once for each class; on_inexact='raise' makes it an error",
                *location,
                lost,
            )


EXACT = Packer(exact=True)
AS_LANGGRAPH = Packer(exact=False)
pack = EXACT.pack
_WARNED: set[tuple[str, str]] = set()
_MOST_WARNED = 1000  # Classes may be made without end.


# What ormsgpack says where the function that it calls has failed, and drops the error itself.
_DROPPED = "Type is not msgpack serializable"
_IN_OWN_WORDS: ContextVar[bool] = ContextVar("in_own_words", default=False)
# Its kind and text, since an error holds the values that it was raised for.
_FAILURE: ContextVar[tuple[type[TypeError], str]] = ContextVar("failure", default=(TypeError, _DROPPED))


def cause_of(error: TypeError) -> TypeError:
    """What was wrong when ormsgpack raised an error just now, without the values that may be in its text."""
    kind, said = _FAILURE.get() if str(error).startswith(_DROPPED) else (TypeError, said_by(error))
    return kind(said)


def said_by(error: BaseException) -> str:
    """What may be shown of an error: nothing of values, which are in the texts of pydantic and of other classes."""
    if isinstance(error, pydantic.ValidationError):
        wrong = {f"{'.'.join(map(str, each['loc'][:1]))}: {each['type']}" for each in error.errors(include_input=False)}
        return f"{type(error).__name__}: {', '.join(sorted(wrong))}"
    if isinstance(error, RecursionError) or str(error) == "Recursion limit reached":
        return _TOO_DEEP
    shown = isinstance(error, (UnstorableValue, UnreadableValue)) or str(error).startswith(_SAYS)
    return str(error) if shown else type(error).__name__


_TOO_DEEP = "it is nested too deeply, or holds itself"
_SAYS = ("Object of type ", "Integer exceeds 64-bit range", "Dict key must ", _TOO_DEEP)


# What msgpack has no word for


class _Worded(NamedTuple):
    """A text, bytearray or dict in an extension."""

    code: int
    name: str
    payload: Any


class _Viewed(NamedTuple):
    """A memoryview in an extension."""

    data: memoryview


_TEXT = ("utf-8", "surrogatepass")


def _worded(value: Any) -> tuple[Any, bool]:
    """A value in which half characters, bytearrays and dicts with keys that msgpack has not are extensions.

    A memoryview is left to `Packer`.

    Also whether there was any, or a key that is no text.
    """
    kind = type(value)
    if kind is str:
        if value.isascii() or is_unicode(value):
            return value, False
        return _Worded(POSITIONAL, "str", [value.encode(*_TEXT), *_TEXT]), True
    if kind is bytearray:
        return _Worded(SINGLE, "bytearray", bytes(value)), True
    if kind is memoryview:
        return _Viewed(value), True
    if kind is list:
        found = [_worded(each) for each in value]
        return [each for each, _ in found], any(other for _, other in found)
    if kind is not dict:
        return value, False
    pairs = [(*_worded(key), *_worded(each)) for key, each in value.items()]
    if all(type(key) is str or type(key) in _KEYS for key, *_ in pairs):
        other = any(other or type(key) is not str for key, _, _, other in pairs)
        return {key: each for key, _, each, _ in pairs}, other
    return _Worded(SINGLE, "dict", [[key, each] for key, _, each, _ in pairs]), True


def may_have_bytes(data: bytes) -> bool:
    """Whether there may be bytes in a value in msgpack: they begin with one of these, as many a text has inside."""
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
    """Whether a text has no half characters, which serializers treat in ways of their own."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


# By class, since the questions take longer than the answer


Fields = Callable[[Any, Packer], tuple[Any, list[str] | None, dict[str, Any]]]
_ANEW = {"anew": True}


class Kind(NamedTuple):
    """How the objects of a class are stored.

    Attributes:
        code: The extension.
        module: That of the class.
        name: By which it will be found there.
        payload: What LangGraph rebuilds an object from.
        lost: What would not come back; the payload is stored then, without a class.
        checked: Whether the constructor may want something else; it is asked for each object.
        tail: What follows the payload, if anything does.
        fields: Where the fields are kept as they are: they, the names of those that were given if that is known and
            not all, and what else there is to know.
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
_WORDED: set[type] = set()


def _kind_of(obj: Any, cls: type) -> Kind | None:
    """How objects of a class are stored; the order of the questions is LangGraph's."""
    location = (cls.__module__, _name_of(cls) or cls.__name__)
    lost = "" if _name_of(cls) else "it cannot be found by its name in its module; define it there"

    def kind(code: int, payload: Callable[[Any], Any], **more: Any) -> Kind:
        checked = location not in SAFE_MSGPACK_TYPES and not issubclass(cls, Enum)
        return Kind(code, *location, payload, lost, checked, **more)

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
        if (*location, "fromisoformat") not in SAFE_MSGPACK_METHODS:
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
    """The name by which a class will be found in its module again, its path there if it is in another class."""
    generic = getattr(cls, "__pydantic_generic_metadata__", None)
    if generic and generic["args"]:  # Of such classes pydantic itself makes one, where there is none yet.
        parts = (generic["origin"], *generic["args"])
        return cls.__name__ if all(_is_class(part) and _name_of(part) for part in parts) else None
    for name in (cls.__name__, cls.__qualname__):
        found: Any = sys.modules.get(cls.__module__)
        for part in name.split("."):
            found = getattr(found, part, None)
        # By qualified name: a class that was defined again, in a notebook say, is the same one to the reader.
        if isinstance(found, type) and found.__qualname__ == cls.__qualname__:
            return name
    return None


def _is_class(part: Any) -> bool:
    return isinstance(part, type) and get_origin(part) is None  # list[int] is a type on Python 3.10.


def _kind_of_container(cls: type) -> Kind | None:
    if cls is int:  # Of more than 64 bits.
        return Kind(POSITIONAL, "builtins", "int", lambda o: [hex(o), 16])
    if cls is tuple:
        return Kind(SINGLE, "builtins", "tuple", list)
    if cls is OrderedDict:
        return Kind(SINGLE, "collections", "OrderedDict", _pairs)
    if cls is Counter:
        return Kind(SINGLE, "collections", "Counter", dict)
    if cls is defaultdict:
        return Kind(SINGLE, "collections", "defaultdict", _pairs, tail=_of_defaultdict)
    if issubclass(cls, float):  # LangGraph's serializer knows none, but its PostgreSQL saver makes JSON of it.
        return Kind(_PLAIN, "", "", float, lost="only its number, as a float")
    # Another subclass is that what it extends, as it is outside of objects.
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
        raise UnstorableValue("a ZoneInfo that was read from a file has no key by which it could be found again")
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
    """The names and types of a structured array, if it is one."""
    from langgraph_checkpoint_custom.encoding.restored import type_of_array  # It reads what is written here.

    if kind.kind != "V" and not kind.hasobject:
        return []
    with suppress(ValueError):  # Fields that overlap cannot be told so.
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


# Fields as they are


def _fields_of_model(cls: type[pydantic.BaseModel]) -> Fields:
    known = cls.model_fields
    spared = {name for name, field in known.items() if field.exclude}  # LangGraph does not store them.
    first = {name: each.default for name, each in cls.__private_attributes__.items()}
    generic = cls.__pydantic_generic_metadata__["args"]
    args = [[each.__module__, _name_of(each)] for each in generic]
    names = known.keys()

    def fields(o: Any, packer: Packer) -> tuple[Any, list[str] | None, dict[str, Any]]:
        held, extra, private = o.__dict__, o.__pydantic_extra__, o.__pydantic_private__
        state: dict[str, Any] = {}
        if held.keys() != names:
            held = {name: held[name] for name in held if name in known}
            state = _beside(o, held, known)
        given = _given(o.__pydantic_fields_set__, held)
        if extra:
            state["extra"] = extra
        if private:
            private = {name: each for name, each in private.items() if each is not first.get(name, PydanticUndefined)}
            if private:
                state["private"] = private
        if args:
            state["args"] = args
        if not spared and (not state or state.keys().isdisjoint(_BESIDE)):
            return held, given, state
        stored = packer.storable(cls, {name: held[name] for name in spared & held.keys()})
        rest = {name: stored.get(name, held[name]) for name in held if name in stored or name not in spared}
        return rest, given, _storable(cls, state, packer, anew=len(rest) < len(held))

    return fields


def _fields_of_old_model(cls: Any) -> Fields:
    known = cls.__fields__

    def fields(o: Any, packer: Packer) -> tuple[Any, list[str] | None, dict[str, Any]]:
        held = {name: o.__dict__[name] for name in o.__dict__ if name in known}
        state = _beside(o, held, known)
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
        return held, None, _storable(cls, _beside(o, held, known, slots), packer)

    return fields


def _fields_of_named_tuple(cls: Any) -> Fields:
    def fields(o: Any, packer: Packer) -> tuple[Any, list[str] | None, dict[str, Any]]:
        held = dict(zip(cls._fields, o, strict=True))
        return held, None, _storable(cls, _beside(o, held, cls._fields), packer)

    return fields


# What a class can do without where it cannot be stored; its constructor makes it then.
_BESIDE = frozenset({"other", "private"})


def _beside(o: Any, held: Collection[str], known: Collection[str], slots: Iterable[str] = ()) -> dict[str, Any]:
    """What there is to know of an object besides the fields that it holds: other attributes, fields without a value.

    What the class makes itself, a cached property say, is made again.
    """
    own = getattr(o, "__dict__", {}) | {name: getattr(o, name) for name in slots if hasattr(o, name)}
    state: dict[str, Any] = {}
    if others := {name: own[name] for name in own if name not in known and is_attribute(type(o), name)}:
        state["other"] = others
    if absent := [name for name in known if name not in held]:
        state["absent"] = absent
    return state


def _storable(cls: type, state: dict[str, Any], packer: Packer, *, anew: bool = False) -> dict[str, Any]:
    """What there is to know of an object; if not all of it can be stored, that it is to be made anew of its fields."""
    for part in _BESIDE & state.keys():
        stored = packer.storable(cls, state[part])
        anew = anew or len(stored) < len(state[part])
        state[part] = stored
    return _ANEW | {key: state[key] for key in state if key == "args"} if anew else state


def is_attribute(cls: type, name: str) -> bool:
    """Whether a name is that of an attribute of objects, and not of a method, a property or such of the class."""
    found = getattr_static(cls, name, None)
    return not name.startswith("__") and (_is_slot(found) or not hasattr(found, "__get__"))


def _is_slot(found: Any) -> bool:
    return isinstance(found, MemberDescriptorType)


def _given(names: Set[str], held: Mapping[str, Any]) -> list[str] | None:
    """Which fields were given, in an order that does not depend on the process, so that it is the same bytes."""
    found = [name for name in held if name in names]
    if len(found) != len(names):
        return found + sorted(names - held.keys())
    return None if len(found) == len(held) else found


def _can_be_made(code: int, cls: type, payload: Any) -> bool:
    from langgraph_checkpoint_custom.encoding.restored import make  # It reads what is written here.

    try:
        return type(make(code, cls, payload)) is cls
    except Exception:
        return False


def _is_bare(cls: type) -> bool:
    """Whether an object can be made without its class having a hand in it; an exception, say, cannot."""
    try:
        object.__new__(cls)
    except TypeError:
        return False
    return True
