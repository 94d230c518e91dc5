"""Encodes values in msgpack, and objects in it as LangGraph's extensions.

Must not know: which classes may be read, checkpoints.

An extension starts as LangGraph's does: the module, the name, and the data from which LangGraph rebuilds the object.
If the fields of the object are stored as they are, two more elements follow, which LangGraph's serializer ignores: the
names of the fields that were given, or the method to call; and a dict with further state (`restored.py` reads it). So
LangGraph's serializer reads these extensions as well as its own.

Tuples and the dict-like classes of `collections` keep their types, and so do bytearrays and dict keys of any type
inside an object, a tuple or such a dict. A tuple takes 1 µs more than a list, and 18 bytes. Elsewhere, keys and
bytearrays become what LangGraph makes of them, text and bytes.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from contextvars import ContextVar
from functools import partial
from typing import Any, TypeVar

import ormsgpack
import pydantic
from ormsgpack import Ext, MsgpackEncodeError, packb

from langgraph_checkpoint_custom.encoding.classes import BY_CONSTRUCTOR, PLAIN, Kind, is_attribute, kind_of, no_form_of
from langgraph_checkpoint_custom.encoding.extensions import (
    DELTA,
    METHOD,
    NUMPY,
    POSITIONAL,
    PYDANTIC_1,
    PYDANTIC_2,
    SINGLE,
    TUPLE,
    Extension,
    SecretInClear,
    UnreadableValue,
    UnstorableValue,
    unpack_plain,
)
from langgraph_checkpoint_custom.encoding.langgraph_private import DeltaSnapshot, extension_of
from langgraph_checkpoint_custom.encoding.leaves import CODEC, Leaf, add_codec
from langgraph_checkpoint_custom.encoding.restored import can_be_hashed, make
from langgraph_checkpoint_custom.errors import ConfigError

T = TypeVar("T")

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
_OUTSIDE = _INSIDE | ormsgpack.OPT_NON_STR_KEYS
# The types of dict keys that msgpack supports, besides text.
_KEYS = frozenset({int, float, bool, type(None), bytes})
# How a text with lone surrogates becomes bytes.
_TEXT = ("utf-8", "surrogatepass")


class Packer:
    """Encodes values in msgpack.

    Args:
        exact: Whether to raise for an object that would not come back as it was. Otherwise it is stored as LangGraph's
            serializer stores it, and the log reports that once for each class.
        secrets: Whether to encode secrets, because what is encoded is encrypted or is not stored.
    """

    def __init__(self, *, exact: bool, secrets: bool) -> None:
        self._exact = exact
        self._secrets = secrets
        # Bound once: a value may have thousands of objects.
        self._default = self._object
        self._storable = self.storable
        # Encodes a value in msgpack; if it fails, `pack` may still be able to.
        self.pack_at_once: Callable[[Any], bytes] = partial(packb, default=self._default, option=_OUTSIDE)

    def pack(self, obj: Any) -> bytes:
        """Encode a value in msgpack."""
        try:
            return self.pack_at_once(obj)
        except MsgpackEncodeError:
            converted, other = self._converted(obj)
            if not other:
                raise
            return self.pack_at_once(converted)

    def _object(self, obj: Any) -> Any:
        try:
            cls = type(obj)
            if cls is tuple:
                return Ext(SINGLE, TUPLE + self._inside(cls, list(obj)))
            kind = _KINDS.get(cls)
            if kind is None:
                return self._other(obj, cls)
            parts = kind.parts(obj, self._storable)
            try:
                return Ext(kind.code, self._inside(cls, [kind.module, kind.name, *parts]))
            except MsgpackEncodeError as error:
                problem = cause_of(error)
                if kind.code not in (PYDANTIC_1, PYDANTIC_2) or _IN_DUMP.get():
                    raise
                final = UnstorableValue if self._exact else SecretInClear
                if isinstance(problem, final) or str(problem) == _TOO_DEEP:
                    raise
            return self._dump(obj, kind, parts, problem)
        except Exception as error:
            if not str(error).startswith(_DROPPED):
                kind_of_error = type(error) if isinstance(error, UnstorableValue) else TypeError
                _FAILURE.set((kind_of_error, error_text(error)))
            raise

    def _dump(self, obj: Any, kind: Kind, parts: Sequence[Any], problem: TypeError) -> Any:
        """Encode the model's own dump, which may replace a field that cannot be stored.

        If it does not, packing the dump raises for the same field. Models inside the dump are not dumped again: they
        may hold as much as this one, and so on.
        """
        state = BY_CONSTRUCTOR | {key: each for key, each in dict(*parts[2:]).items() if key == "args"}
        before = _IN_DUMP.set(True)
        try:
            data = self._inside(type(obj), [kind.module, kind.name, kind.payload(obj), None, state])
        finally:
            _IN_DUMP.reset(before)
        self._report_loss(type(obj), f"a field cannot be stored as it is ({problem})")
        return Ext(kind.code, data)

    def _other(self, obj: Any, cls: type) -> Any:
        """Encode an object of a class that was not seen before, or that is not stored as an extension of its parts."""
        if cls is Extension:
            return Ext(obj.code, obj.data)
        if cls is DeltaSnapshot:  # It holds the value of a channel, which is not inside an object.
            return Ext(DELTA, self.pack(obj.value))
        kind = _OTHER_KINDS.get(cls) or kind_of(obj, cls)
        if kind is None:  # An exception, a type that only a newer langgraph-checkpoint knows, or an unknown type.
            with suppress(TypeError):
                return extension_of(obj)
            raise UnstorableValue(no_form_of(obj))
        if kind.secret and not self._secrets and not is_empty(obj):
            raise secret_in_clear(cls)
        if kind.lost and kind.code != PLAIN:  # The class may be found by its name later.
            self._report_loss(cls, kind.lost)
            return kind.payload(obj)
        kinds = _KINDS if kind.is_direct else _OTHER_KINDS
        if len(kinds) >= _MOST_KINDS:
            kinds.clear()
        kinds[cls] = kind
        if kind.is_direct:
            return self._object(obj)
        payload, *more = kind.parts(obj, self._storable)
        if kind.code == PLAIN:
            # Of a dict or list, only that is lost that it can be in a set.
            if kind.lost and (not isinstance(obj, (dict, list)) or can_be_hashed(obj)):
                self._report_loss(cls, kind.lost)
            return payload
        if kind.code == NUMPY:
            return Ext(NUMPY, self._inside(cls, payload))
        made = _made(kind.code, cls, payload, *more)
        if made is None and more:  # A deque whose constructor knows its length.
            more, made = [], _made(kind.code, cls, payload)
        if made is None:
            self._report_loss(cls, "its constructor cannot rebuild it from what LangGraph stores")
            return payload
        if not _has_attributes_of(obj, made):
            self._report_loss(cls, "its attributes become those that its constructor sets")
        return Ext(kind.code, self._inside(cls, [kind.module, kind.name, payload, *more]))

    def _inside(self, cls: type, content: list[Any]) -> bytes:
        """Pack the content of an extension, and convert it before if msgpack cannot represent it.

        For the classes in `_CONVERTED`, that is known. Otherwise what is inside would be packed twice, and what is
        inside of that four times.
        """
        if cls in _CONVERTED:
            converted, _ = self._converted(content)
        else:
            try:
                data = packb(content, self._default, _INSIDE)
            except MsgpackEncodeError:
                converted, other = self._converted(content)
                if not other:
                    raise
            else:  # ormsgpack packs a bytearray or memoryview as bytes.
                # Bytes begin with one of these codes, which text may contain, too.
                if not ((0xC4 in data or 0xC5 in data or 0xC6 in data) and _has_buffer(content)):
                    return data
                converted, _ = self._converted(content)
            if cls is not tuple:  # What is in one says nothing of the next one.
                _CONVERTED.add(cls)
        return packb(converted, self._default, _OUTSIDE)

    def _converted(self, value: Any) -> tuple[Any, bool]:
        """Replace what msgpack cannot represent: lone surrogates, bytearrays, and dicts with keys of other types.

        Each becomes an extension; a memoryview becomes bytes.

        Returns:
            The value, and whether something was replaced or a dict has a key that is not text.
        """
        kind = type(value)
        if kind is str:
            if value.isascii() or is_unicode(value):
                return value, False
            return Ext(POSITIONAL, packb(["builtins", "str", [value.encode(*_TEXT), *_TEXT]])), True
        if kind is bytearray:
            return Ext(SINGLE, packb(["builtins", "bytearray", bytes(value)])), True
        if kind is memoryview:
            self._report_loss(memoryview, "only its bytes")
            return bytes(value), True
        if kind is list:
            found = [self._converted(each) for each in value]
            return [each for each, _ in found], any(other for _, other in found)
        if kind is not dict:
            if isinstance(value, (str, list, dict)):
                how = _OTHER_KINDS.get(kind) or kind_of(value, kind)
                if how is not None and how.code == PLAIN:  # It is stored as one of its base class.
                    return self._converted(self._other(value, kind))
            return value, False
        pairs = [(*self._converted(key), *self._converted(each)) for key, each in value.items()]
        if all(type(key) is str or (type(key) in _KEYS and not _is_large(key)) for key, *_ in pairs):
            other = any(other or type(key) is not str for key, _, _, other in pairs)
            return {key: each for key, _, each, _ in pairs}, other
        content = ["builtins", "dict", [[key, each] for key, _, each, _ in pairs]]
        return Ext(SINGLE, packb(content, self._default, _OUTSIDE)), True

    def storable(self, cls: type, attributes: Mapping[str, Any]) -> dict[str, Any]:
        """Return the attributes of an object that can be stored; it can be restored without the others."""
        found = {}
        for name, value in attributes.items():
            try:
                stored = self._inside(cls, [value])
            except MsgpackEncodeError as error:
                self._report_loss(cls, f"its {name!r} cannot be stored ({cause_of(error)})")
                continue
            # As packed extensions, so that the objects inside are not tried again: they may have such attributes, too.
            (found[name],) = unpack_plain(stored)
        return found

    def _report_loss(self, cls: type, lost: str) -> None:
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


# How the objects of the classes that were seen are stored: as the extension of their parts, or in another way.
_KINDS: dict[type, Kind] = {}
_OTHER_KINDS: dict[type, Kind] = {}
_CONVERTED: set[type] = set()
_MOST_KINDS = 1000  # A program may create classes without end.


def _made(code: int, cls: type, *stored: Any) -> Any:
    """The object that a class creates from what LangGraph stores; None if it does not create one."""
    try:
        made = make(code, cls, *stored)
    except Exception:  # The class's own constructor may raise anything.
        return None
    return made if type(made) is cls else None


def _has_attributes_of(obj: Any, made: Any) -> bool:
    """Whether two objects of a class have the same attributes, as far as that can be told."""
    one, two = (
        {name: each for name, each in getattr(o, "__dict__", {}).items() if is_attribute(type(o), name)}
        for o in (obj, made)
    )
    try:
        return bool(one == two)
    except Exception:  # Any class may define what is equal.
        return False


pack = Packer(exact=True, secrets=True).pack
"""Encodes a value to compare it with what is stored, not to store it."""
_WARNED: set[tuple[str, str]] = set()
_MOST_WARNED = 1000  # A program may create classes without end.


# The text of ormsgpack's error when its `default` function has failed; ormsgpack drops the error of that function.
_DROPPED = "Type is not msgpack serializable"
_IN_DUMP: ContextVar[bool] = ContextVar("in_dump", default=False)
# The class and text of that error, and not the error itself, which would hold on to the values.
_FAILURE: ContextVar[tuple[type[TypeError], str]] = ContextVar("failure", default=(TypeError, _DROPPED))


def cause_of(error: TypeError) -> TypeError:
    """Return why ormsgpack has just raised an error, without the values that may be in its text."""
    if str(error).startswith(_DROPPED):
        kind, said = _FAILURE.get()
        return kind(said)
    return (type(error) if isinstance(error, UnstorableValue) else TypeError)(error_text(error))


def is_empty(secret: Any) -> bool:
    """Whether a secret has nothing to hide: it is the usual default of a field."""
    return hasattr(secret, "__len__") and len(secret) == 0


def secret_in_clear(cls: type) -> SecretInClear:
    """The error for an object of a class whose content would be readable in the database."""
    return SecretInClear(
        f"a {cls.__module__}.{cls.__qualname__} would be readable in the database; pass an EncryptedSerializer as "
        f"serde, or call register_codec({cls.__name__}, to_bytes, from_bytes) with functions that hide it"
    )


def error_text(error: BaseException) -> str:
    """Return a text of an error that shows no values: those of pydantic and of other classes may quote them."""
    if isinstance(error, pydantic.ValidationError):
        wrong = {f"{'.'.join(map(str, each['loc'][:1]))}: {each['type']}" for each in error.errors(include_input=False)}
        return f"{type(error).__name__}: {', '.join(sorted(wrong))}"
    if isinstance(error, RecursionError) or str(error) == "Recursion limit reached":
        return _TOO_DEEP
    is_safe = isinstance(error, (UnstorableValue, UnreadableValue)) or str(error).startswith(_VALUE_FREE)
    return str(error) if is_safe else type(error).__name__


_TOO_DEEP = "it is nested too deeply, or contains itself; store the inner values apart, and ids in place of objects"
_VALUE_FREE = ("Object of type ", "Integer exceeds 64-bit range", "Dict key must ", _TOO_DEEP)


def _is_large(number: Any) -> bool:
    """Whether something is an int of more than 64 bits."""
    return type(number) is int and not -(2**63) <= number < 2**64


def _has_buffer(values: Iterable[Any]) -> bool:
    for value in values:
        kind = type(value)
        if kind is bytearray or kind is memoryview:
            return True
        if (isinstance(value, dict) and _has_buffer(value.values())) or (
            isinstance(value, list) and _has_buffer(value)
        ):
            return True
    return False


def is_unicode(text: str) -> bool:
    """Whether a text has no lone surrogates, which each serializer treats differently."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


# Codecs that an application registers for types of its own, or of packages that this one does not know

# What msgpack has a form for never asks how it is stored.
_STORED_AS_THEY_ARE = (type(None), bool, int, float, str, bytes, bytearray, memoryview, list, tuple, dict)


def register_codec(cls: type[T], to_bytes: Callable[[T], bytes], from_bytes: Callable[[bytes], T]) -> None:
    """Store the objects of a type as bytes, in every saver of this process.

    Objects of exactly this type are stored with the codec, wherever they are in a value, and not objects of its
    subclasses. Register a codec in each process before it stores or reads such objects: reading one without its codec
    raises `CorruptCheckpoint`, which names the type. `strict=True` allows types with a codec. If you register another
    codec for a type, it has to read the bytes of the earlier one.

    With LangGraph's own serializer, such an object comes back as its bytes.

    Args:
        cls: The type, with a name by which you can find it again: its module and name are stored.
        to_bytes: Returns the bytes of an object.
        from_bytes: Returns an object for such bytes. It may be called in an event loop or on any OS thread.

    Raises:
        ConfigError: The type is one of those that msgpack stores as they are, such as `str` or `dict`, or an argument
            is not a type or a function.
    """
    if not isinstance(cls, type) or cls in _STORED_AS_THEY_ARE:
        raise ConfigError(f"register_codec needs a class that is not stored as it is anyway, not {cls!r}")
    if not (callable(to_bytes) and callable(from_bytes)):
        raise ConfigError("register_codec needs two functions, to_bytes and from_bytes")

    def parts(o: Any) -> bytes:
        try:
            data = to_bytes(o)
        except Exception as error:
            problem = f"raised {type(error).__name__}"
        else:
            if type(data) is bytes:
                return data
            problem = f"returned a {type(data).__name__}, not bytes"
        raise UnstorableValue(f"the to_bytes that is registered for {cls.__module__}.{cls.__qualname__} {problem}")

    add_codec(Leaf(cls, METHOD, cls.__module__, cls.__qualname__, parts, from_bytes, CODEC))
    _KINDS.pop(cls, None)
    _OTHER_KINDS.pop(cls, None)
