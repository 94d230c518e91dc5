"""LangGraph's msgpack format, written and read without silent changes.

Must not know: SQL, connections, checkpoints.

`JsonPlusSerializer` decides what the bytes look like and which types may be read; anybody who has it can read what is
written here, and the other way round. But where it cannot rebuild an object (its class was moved, renamed or changed,
or is not allowed) it returns the dict or list that the object was stored as, and where it cannot store a value it
stores a similar one. Here both are errors, which name the class. A serializer of another kind is used as it is.

What msgpack itself has no word for comes back as the nearest it has, here as with LangGraph: a tuple as a list, a
subclass of dict, list, str or int as that, a nested bytearray as bytes, a key that is an enum, a UUID or a datetime as
its value or text, an exception as its text.
"""

from __future__ import annotations

import dataclasses
import importlib
import pathlib
import pickle
import re
import sys
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from datetime import date, datetime, time, timedelta, timezone
from decimal import Decimal
from enum import Enum
from ipaddress import IPv4Address, IPv4Interface, IPv4Network, IPv6Address, IPv6Interface, IPv6Network
from typing import Any, Literal, NamedTuple
from uuid import UUID
from weakref import WeakKeyDictionary
from zoneinfo import ZoneInfo

import ormsgpack
from langgraph.checkpoint.serde import jsonplus
from langgraph.checkpoint.serde._msgpack import SAFE_MSGPACK_METHODS, SAFE_MSGPACK_TYPES
from langgraph.checkpoint.serde.base import SerializerProtocol
from langgraph.checkpoint.serde.event_hooks import emit_serde_event
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from langgraph.checkpoint.serde.types import SendProtocol, _DeltaSnapshot
from langgraph.store.base import Item

from langgraph_checkpoint_custom.errors import ConfigError

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


OnUnreadable = Literal["raise", "raw"]
Allowed = type | tuple[str, str]


class UnstorableValue(TypeError):
    """A value that would come back as another one."""


class UnreadableValue(ValueError):
    """A stored object that cannot be made again; the message names its class and the way out."""


def faithful(serde: SerializerProtocol) -> SerializerProtocol:
    """A serializer for the same bytes that raises where `serde` would give something else; `serde` if there is none."""
    if type(serde) is JsonPlusSerializer and not serde._custom_unpack_ext_hook:
        return Faithful(serde)
    return serde


def strict_serde(serde: SerializerProtocol | None, allow: Sequence[Allowed]) -> SerializerProtocol:
    """The default serializer, reading the types that are safe and those in `allow`."""
    if serde is not None:
        raise ConfigError(
            "strict and allow make a serde, so they do not go with one; give the one that you pass "
            "allowed_msgpack_modules, which is what they stand for"
        )
    for item in allow:
        if not isinstance(item, type) and not (isinstance(item, tuple) and list(map(type, item)) == [str, str]):
            raise ConfigError(f"allow has classes or pairs ('module', 'Name'), not {item!r}")
    return JsonPlusSerializer(allowed_msgpack_modules=tuple(allow) or None)


class Faithful(SerializerProtocol):
    """What a `JsonPlusSerializer` writes and reads, or an error."""

    def __init__(self, serde: JsonPlusSerializer) -> None:
        self._serde = serde

    # Writing

    def dumps_typed(self, obj: Any) -> tuple[str, bytes]:
        """Encode a value.

        Raises: UnstorableValue, or what ormsgpack raises, if it would come back as another one.
        """
        if obj is None or isinstance(obj, (bytes, bytearray)):
            return self._serde.dumps_typed(obj)
        try:
            return "msgpack", _pack(obj)
        except ormsgpack.MsgpackEncodeError as error:
            if self._serde.pickle_fallback:
                return "pickle", pickle.dumps(obj)
            cause: BaseException | None = error  # ormsgpack wraps the error of ours in its own, which says nothing.
            while cause is not None and not isinstance(cause, UnstorableValue):
                cause = cause.__cause__
            raise cause or error from None

    # Reading

    def loads_typed(self, data: tuple[str, bytes]) -> Any:
        """Decode a value.

        Raises: UnreadableValue if it cannot be what it was.
        """
        kind, stored = data
        if kind == "msgpack":
            reader = _Reader(self._serde)
            try:
                return reader.unpack(stored)
            except ValueError as error:
                raise reader.failure or error from None
        strict = self._serde._allowed_msgpack_modules is not True
        if kind == "json" and strict and not self._serde._allowed_json_modules:
            raise UnreadableValue(
                "it was stored as 'json', which can name any constructor; pass a serde with allowed_json_modules"
            )
        return self._serde.loads_typed(data)


class _Reader:
    """Reads one value. ormsgpack drops what went wrong inside an extension, so `failure` keeps it."""

    def __init__(self, serde: JsonPlusSerializer) -> None:
        self._serde = serde
        self._allowed = serde._allowed_msgpack_modules
        self.failure: UnreadableValue | None = None

    def unpack(self, data: bytes) -> Any:
        """A value, or a ValueError."""
        return ormsgpack.unpackb(data, ext_hook=self._revive, option=ormsgpack.OPT_NON_STR_KEYS)

    def _revive(self, code: int, data: bytes) -> Any:
        try:
            return self._object(code, data)
        except UnreadableValue as error:
            self.failure = error
            raise

    def _object(self, code: int, data: bytes) -> Any:
        """An object from the extension that it was stored as."""
        if code not in (DELTA, NUMPY) and not SINGLE <= code <= PYDANTIC_2:
            found = self._serde._unpack_ext_hook(code, data)
            if found is None:
                raise UnreadableValue(f"msgpack extension {code} is unknown to this version of langgraph-checkpoint")
            return found
        content = self.unpack(data)
        if code == DELTA:
            return _DeltaSnapshot(content)
        if code == NUMPY:
            return _array(*content)
        module, name, stored, *method = content
        if code == METHOD:
            if (module, name, *method) not in SAFE_MSGPACK_METHODS:
                raise UnreadableValue(f"calling {module}.{name}.{method[0]} is never allowed")
        else:
            self._check_allowed(module, name)
        target = _find(module, name)
        try:
            if code == SINGLE:
                return _single(target, stored)
            if code == POSITIONAL:
                return _positional(target, stored)
            if code == METHOD:
                return getattr(target, method[0])(stored)
            if code == KEYWORDS:
                return _dataclass(target, stored) if dataclasses.is_dataclass(target) else target(**stored)
            return _pydantic(target, stored)
        except UnreadableValue:
            raise
        except Exception as error:
            raise _changed(f"{module}.{name}", f"{type(error).__name__}: {error}") from error

    def _check_allowed(self, module: str, name: str) -> None:
        if (module, name) in SAFE_MSGPACK_TYPES:
            return
        if self._allowed is True:
            emit_serde_event({"kind": "msgpack_unregistered_allowed", "module": module, "name": name})
        elif not self._allowed or (module, name) not in self._allowed:
            emit_serde_event({"kind": "msgpack_blocked", "module": module, "name": name})
            raise UnreadableValue(
                f"{module}.{name} is not allowed to be read; if it should be, pass allow=[({module!r}, {name!r})] "
                f"with strict=True, or allowed_msgpack_modules=[({module!r}, {name!r})] to your JsonPlusSerializer"
            )


# How objects are written: by class, since the questions take longer than the answer


class Form(NamedTuple):
    """The extension that stands for an object: its code, and what is in it."""

    code: int
    content: Any


_FORMS: WeakKeyDictionary[type, Callable[[Any], Form]] = WeakKeyDictionary()


def _pack(obj: Any) -> bytes:
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
    return ormsgpack.Ext(code, _pack(content))


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


# How they are made again


def _find(module: str, name: str) -> Any:
    try:
        return getattr(sys.modules.get(module) or importlib.import_module(module), name)
    except Exception as error:
        raise UnreadableValue(
            f"{module}.{name} is not there ({type(error).__name__}: {error}); bring the class back under that name, or "
            "read what was stored of it with on_unreadable='raw'"
        ) from error


def _changed(name: str, how: str) -> UnreadableValue:
    return UnreadableValue(
        f"{name} cannot be made from what was stored of it ({how}); bring the class back to where it could, or read "
        "what was stored with on_unreadable='raw'"
    )


def _hashable(value: Any) -> Any:
    """An element of a set: what is a list now was a tuple, since it was hashable."""
    return tuple(map(_hashable, value)) if type(value) is list else value


def _array(dtype: str, shape: list[int], order: Any, data: bytes) -> Any:
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
        raise _changed(f"{cls.__module__}.{cls.__name__}", f"it has no field {', '.join(sorted(gone))}")
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
        raise _changed(f"{cls.__module__}.{cls.__name__}", f"it has no field {gone}")
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
