"""Writes and reads LangGraph's msgpack format without silent changes.

Must not know: SQL, connections, checkpoints.

The format and the types that may be read are those of LangGraph's `JsonPlusSerializer`: it reads what this serializer
writes, and the other way round. They differ if an object cannot be rebuilt, because its class was moved, renamed or
changed, or because `strict` does not allow it. `JsonPlusSerializer` then returns the dict or list that is stored for
the object; this serializer raises an error that names the class. (A class that LangGraph's own allowlists reject comes
back as its stored data with both.) They also differ if an object would not come back as it was: `JsonPlusSerializer`
stores something similar; this serializer raises, or does the same and logs it. Serializers other than
`JsonPlusSerializer` are used as they are.

`JsonPlusSerializer` reads what this serializer writes as far as it can: a tuple and an object of `leaves.py` that its
class creates from its parts come back as they were. If its allowlist forbids that, they come back as their parts, such
as a list for a tuple. Of other objects of `leaves.py` it always returns the parts.

These come back as the closest type, as in LangGraph: a subclass of dict, list, str, int or float as that type; outside
of objects, a bytearray inside a value and a dict key that is an enum, a UUID or a datetime; any memoryview; an
exception as its text. To find these keys and bytearrays, each value would have to be searched before msgpack
encodes it.
"""

from __future__ import annotations

import dataclasses
import logging
import pickle
from collections.abc import Callable, Mapping, Sequence, Set
from contextlib import suppress
from contextvars import ContextVar
from enum import Enum
from functools import cached_property, partial
from io import BytesIO
from secrets import randbits
from typing import Any, Literal, get_args, get_type_hints

import ormsgpack
from langgraph.checkpoint.serde.base import CipherProtocol, SerializerProtocol
from langgraph.checkpoint.serde.encrypted import EncryptedSerializer
from langgraph.checkpoint.serde.event_hooks import emit_serde_event
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from pydantic import BaseModel

from langgraph_checkpoint_custom.encoding.classes import NAMED, is_secret
from langgraph_checkpoint_custom.encoding.extensions import (
    DELTA,
    METHOD,
    NUMPY,
    PYDANTIC_1,
    PYDANTIC_2,
    REFERENCE,
    SINGLE,
    TUPLE,
    SecretInClear,
    UnreadableValue,
    held,
)
from langgraph_checkpoint_custom.encoding.langgraph_private import (
    SAFE_METHODS,
    SAFE_TYPES,
    DeltaSnapshot,
    allowed_classes,
    allowed_json,
    has_own_hook,
    restored,
)
from langgraph_checkpoint_custom.encoding.leaves import CODEC, PARTS, Leaf, codec_named, codec_of, is_leaf, leaf_named
from langgraph_checkpoint_custom.encoding.objects import Packer, cause_of, is_empty, said_by, secret_in_clear
from langgraph_checkpoint_custom.encoding.restored import changed, find, make
from langgraph_checkpoint_custom.encoding.restored_messages import made
from langgraph_checkpoint_custom.errors import CheckpointError, ConfigError

MSGPACK = "msgpack"
NULL = "null"
_READ = ormsgpack.OPT_NON_STR_KEYS
# LangGraph's own messages, to its own logger, once for each class.
_LOG = logging.getLogger("langgraph.checkpoint.serde.jsonplus")
_SAID: set[tuple[str, str, str]] = set()
_UNREGISTERED = (
    "Deserializing unregistered type %s.%s from checkpoint. This will be blocked in a future version. Set "
    "LANGGRAPH_STRICT_MSGPACK=true to block now, or add to allowed_msgpack_modules to allow explicitly: [(%r, %r)]"
)
_BLOCKED = (
    "Blocked deserialization of %s.%s - not in allowed_msgpack_modules. Add to allowed_msgpack_modules to allow: "
    "[(%r, %r)]"
)
# The attribute that marks a serializer made for `strict=True`: with it, a type that is not allowed is an error.
_REFUSES = "_refuses_what_is_not_allowed"
# Types that are allowed besides LangGraph's: their constructors only hold what they are given.
_CONTAINERS = {
    "builtins": ("tuple", "dict", "str", "int", "bytearray"),
    "collections": ("OrderedDict", "Counter", "defaultdict"),
    "numpy.ma": ("MaskedArray",),
    "numpy.ma.core": ("MaskedArray",),
}
_ALWAYS_ALLOWED = SAFE_TYPES | {(module, name) for module, names in _CONTAINERS.items() for name in names}


OnUnreadable = Literal["raise", "raw"]
OnInexact = Literal["store", "raise"]
Allowed = type | tuple[str, str]
# By the full name of a class when it was stored: the class to restore instead, or a function of the stored data.
OnLoad = Mapping[str, type | Callable[[Any], Any]]


def always_allowed(module: str, name: str) -> bool:
    """Whether objects of a class are read whatever is allowed."""
    return (module, name) in _ALWAYS_ALLOWED or is_leaf(module, name)


def exact_serializer(
    serde: SerializerProtocol,
    *,
    on_inexact: OnInexact = "raise",
    raw: bool = False,
    on_load: OnLoad | None = None,
    encrypted: bool = False,
) -> SerializerProtocol:
    """Return a serializer for the same types that raises where `serde` would return something different.

    This is possible for a plain `JsonPlusSerializer`; any other serializer is returned as it is.

    Raises:
        ConfigError: The serializer would never use `on_load`.
    """
    if type(serde) is JsonPlusSerializer and not has_own_hook(serde):
        return ExactSerializer(serde, on_inexact=on_inexact, raw=raw, on_load=on_load, encrypted=encrypted)
    if on_load and not isinstance(serde, ExactSerializer):
        raise ConfigError(
            "on_load works with LangGraph's JsonPlusSerializer, alone or inside an EncryptedSerializer; a "
            f"{type(serde).__name__} creates its objects itself, so change them there"
        )
    return serde


def cipher_and_inner(serde: SerializerProtocol) -> tuple[CipherProtocol | None, SerializerProtocol]:
    """The cipher and the inner serializer of an `EncryptedSerializer`; for others, None and the serializer itself."""
    kind = type(serde)
    if (
        getattr(kind, "dumps_typed", None) is EncryptedSerializer.dumps_typed
        and getattr(kind, "loads_typed", None) is EncryptedSerializer.loads_typed
        and isinstance(serde, EncryptedSerializer)  # Last, because for a subclass of a protocol this takes 3 µs.
    ):
        return serde.cipher, serde.serde
    return None, serde


def strict_serde(serde: SerializerProtocol | None, allow: Sequence[Allowed]) -> SerializerProtocol:
    """Return a serializer like `serde` that reads only objects of types that are safe and of those in `allow`.

    Raises:
        ConfigError: The serializer cannot be restricted, or an element of `allow` is not a type.
    """
    for item in allow:
        if not isinstance(item, type) and not (isinstance(item, tuple) and list(map(type, item)) == [str, str]):
            raise ConfigError(f"allow must contain classes or pairs ('module', 'Name'), not {item!r}")
    cipher, inner = (
        (None, JsonPlusSerializer(allowed_msgpack_modules=None)) if serde is None else cipher_and_inner(serde)
    )
    if type(inner) is not JsonPlusSerializer or has_own_hook(inner):
        raise ConfigError(
            "strict=True works with LangGraph's JsonPlusSerializer, alone or inside an EncryptedSerializer; a "
            f"{type(inner).__name__} creates its objects itself, so restrict them there"
        )
    if inner.pickle_fallback or allowed_json(inner) is True:
        raise ConfigError(
            "strict=True cannot be combined with pickle_fallback=True or allowed_json_modules=True, which let stored "
            "values call anything"
        )
    own = allowed_classes(inner)
    allowed = tuple(allow) if own is True else (*(own or ()), *allow)
    made = JsonPlusSerializer(allowed_msgpack_modules=allowed or None, allowed_json_modules=allowed_json(inner) or None)
    setattr(made, _REFUSES, True)  # LangGraph's copies of it, which allow further types, have the attribute too.
    return made if cipher is None else EncryptedSerializer(cipher, made)


# The last exception while an object was restored; ormsgpack drops it. Its cause may be the object, or something outside
# such as a signal handler.
_RAISED: ContextVar[BaseException | None] = ContextVar("raised", default=None)
DROPPED = "ext_hook failed"


def interruption(error: Exception) -> BaseException:
    """Return the exception that interrupted the reading of a value.

    Call it if reading failed with `error`, and succeeds when it is repeated.
    """
    if not isinstance(error, UnreadableValue) and str(error) != DROPPED:
        return error
    return (
        _RAISED.get()
        or error.__cause__
        or CheckpointError(
            "an exception from outside, such as a time limit, interrupted the reading of a stored value, and was lost; "
            "the value can be read"
        )
    )


def forget_interruption() -> None:
    """Drop the last exception: its cause was the value, or the caller has taken it."""
    _RAISED.set(None)


class _WithoutSecrets(pickle.Pickler):
    """Pickles everything but secrets, which would be readable."""

    def reducer_override(self, obj: Any) -> Any:
        """Refuse a secret, and leave other objects to pickle."""
        if is_secret(type(obj)) and not is_empty(obj):
            raise secret_in_clear(type(obj))
        return NotImplemented


def _pickled(obj: Any, *, secrets: bool) -> bytes:
    if secrets:
        return pickle.dumps(obj)
    data = BytesIO()
    _WithoutSecrets(data).dump(obj)
    return data.getvalue()


# Their extensions are never those of leaves.
_OF_MODELS = (PYDANTIC_1, PYDANTIC_2)


class _Blocked(Exception):
    """LangGraph's allowlist forbids the class: the stored data replaces the object, as in LangGraph."""


class ExactSerializer(SerializerProtocol):
    """Writes and reads what a `JsonPlusSerializer` does, but raises instead of returning something different.

    Args:
        serde: The serializer.
        on_inexact: Whether to store an object that would not come back as it was as `serde` stores it, or to raise.
        raw: Whether to return the stored data of an object that cannot be restored.
        on_load: Replacements for stored objects, by the full name of their class.
        encrypted: Whether the bytes are encrypted before they are stored, so that they may have secrets.
    """

    def __init__(
        self,
        serde: JsonPlusSerializer,
        *,
        on_inexact: OnInexact = "raise",
        raw: bool = False,
        on_load: OnLoad | None = None,
        encrypted: bool = False,
    ) -> None:
        self._serde = serde
        self._raw = raw
        self._on_load = on_load or {}
        self._stores = on_inexact == "store"
        self._encrypted = encrypted
        # With `pickle_fallback`, pickle is tried before the inexact form, because it stores the object as it is.
        exactly, as_langgraph = Packer(exact=True, secrets=encrypted), Packer(exact=False, secrets=encrypted)
        self.pack_exactly = exactly.pack
        """Encode a value in msgpack, or raise if it would come back as a different one."""
        self._pack_as_langgraph = as_langgraph.pack
        packer = as_langgraph if self._stores and not serde.pickle_fallback else exactly
        self.pack = packer.pack
        self._pack_at_once = packer.pack_at_once
        self._revive = self._object  # Bound once: a value may have thousands of objects.
        self.unpack: Callable[[bytes], Any] = partial(ormsgpack.unpackb, ext_hook=self._revive, option=_READ)
        """Decode a value of the type msgpack; if it fails, `reason` returns a better error."""

    # Writing

    def dumps_typed(self, obj: Any) -> tuple[str, bytes]:
        """Encode a value.

        Raises:
            UnstorableValue: The value would come back as a different one. Errors of ormsgpack pass through.
        """
        if obj is None or type(obj) in (bytes, bytearray):
            kind, data = self._serde.dumps_typed(obj)
            return kind, bytes(data)
        try:
            return MSGPACK, self._pack_at_once(obj)
        except ormsgpack.MsgpackEncodeError:
            pass
        try:
            return MSGPACK, self.pack(obj)
        except ormsgpack.MsgpackEncodeError as error:
            problem = cause_of(error)
        if self._serde.pickle_fallback and not isinstance(problem, SecretInClear):
            try:
                return "pickle", _pickled(obj, secrets=self._encrypted)
            except SecretInClear as error:
                problem = error
            except Exception as error:
                problem = TypeError(said_by(error))
            if self._stores:
                with suppress(ormsgpack.MsgpackEncodeError):
                    return MSGPACK, self._pack_as_langgraph(obj)
        raise problem  # Outside of the handler, because the original error has values in its text.

    # Reading

    def loads_typed(self, data: tuple[str, bytes]) -> Any:
        """Decode a value.

        Raises:
            UnreadableValue: It cannot be restored as it was.
        """
        kind, stored = data
        if kind == MSGPACK:
            try:
                return self.unpack(stored)
            except ValueError as error:
                raise self.reason(stored) or error from None
        strict = allowed_classes(self._serde) is not True
        if kind == "json" and strict and not allowed_json(self._serde):
            raise UnreadableValue(
                "it was stored as 'json', which can name any constructor; pass a serde with allowed_json_modules"
            )
        return self._serde.loads_typed(data)

    def reason(self, stored: bytes) -> UnreadableValue | None:
        """Return why `unpack` failed, if the cause is inside an extension."""
        return _Diagnosis(self._serde, on_load=self._on_load).failure_of(stored)

    def loads_many(self, stored: Sequence[bytes]) -> list[Any]:
        """Decode many values of the type msgpack as one, which takes half of the time.

        A random number follows each value. No value can guess it, so a value whose bytes are too short or too long
        cannot take bytes of another one unnoticed.

        Raises:
            UnreadableValue: One of them cannot be restored as it was. Errors of ormsgpack pass through.
        """
        number = randbits(63) | 1 << 63
        separator = b"\xcf" + number.to_bytes(8, "big")
        together = b"\xdd" + (2 * len(stored)).to_bytes(4, "big") + separator.join([*stored, b""])
        values = ormsgpack.unpackb(together, ext_hook=self._revive, option=_READ)
        if values[1::2] != [number] * len(stored):
            raise UnreadableValue("one of many values does not end where its bytes end")
        found: list[Any] = values[::2]
        return found

    def _object(self, code: int, data: bytes) -> Any:
        """Restore an object from its extension."""
        try:
            if code == PYDANTIC_2:
                content = ormsgpack.unpackb(data, ext_hook=self._revive, option=_READ)
                message = None if self._on_load and self._load_of(*content) else made(*content)
                return self._object_or_raw(code, content) if message is None else message
            if code > DELTA or code < SINGLE:
                found = restored(self._serde, code, data)
                if found is None and not self._raw:
                    raise UnreadableValue(f"msgpack extension {code} is unknown to this langgraph-checkpoint")
                return found
            if code == SINGLE and data.startswith(TUPLE):
                return tuple(ormsgpack.unpackb(data[len(TUPLE) :], ext_hook=self._revive, option=_READ))
            content = ormsgpack.unpackb(data, ext_hook=self._revive, option=_READ)
            if code == DELTA:
                return DeltaSnapshot(content)
            if code == NUMPY:
                content = ["numpy", "ndarray", content]
            return self._object_or_raw(code, content)
        except BaseException as error:
            if not isinstance(error, UnreadableValue) and str(error) != DROPPED:
                _RAISED.set(error)
            raise

    def _object_or_raw(self, code: int, content: Any) -> Any:
        try:
            return self._made(code, *content)
        except _Blocked:
            return held(*content)
        except UnreadableValue:
            if self._raw:
                return held(*content)
            raise

    def _made(self, code: int, module: str, name: str, stored: Any, method: Any = "", state: Any = None) -> Any:
        args = state["args"] if state and "args" in state else ()
        load = self._load_of(module, name) if self._on_load else None
        if load is not None and not isinstance(load, type):
            return _loaded(load, f"{module}.{name}", held(module, name, stored, method, state))
        leaf = None if code in _OF_MODELS else self._leaf(code, module, name, method, load)
        if leaf is not None:
            return _of_leaf(leaf, f"{module}.{name}", stored)
        if load is not None:
            target: Any = load
        elif code == METHOD:
            target = find(module, name)
        elif (module, name) == REFERENCE:
            return self._named(stored)
        else:
            target = self._class(module, name, name.partition("[")[0] if args else name)
        try:
            # The type arguments of a generic class are checked like other classes; they are not called.
            cls = target[tuple(map(self._argument, args))] if args else target
            return make(code, cls, stored, method, state)
        except UnreadableValue as error:
            if load is None:
                raise
            raise UnreadableValue(f"{module}.{name} cannot become the class that on_load names: {error}") from None
        except Exception as error:
            if self._can_be_made(code, target, args, stored, method, state):
                raise  # The cause was outside, such as a signal handler.
            problem = said_by(error)
        raise changed(f"{module}.{name}", problem)  # Outside of the handler: the original error has data in its text.

    def _leaf(self, code: int, module: str, name: str, method: Any, load: type | None) -> Leaf | None:
        """The leaf with which an object was stored, if any; an error if it names a method that is never called."""
        if code != METHOD:
            is_known = load is not None or (module, name) in _ALWAYS_ALLOWED
            return None if is_known else leaf_named(code, module, name)
        if method == CODEC:
            if load is None:
                return codec_named(module, name)
            if leaf := codec_of(load):
                return leaf
            raise UnreadableValue(f"on_load names {load.__name__} for {module}.{name}, which has no registered codec")
        leaf = leaf_named(code, module, name) if method == PARTS and load is None else None
        if leaf is None and (module, name, method) not in SAFE_METHODS:
            raise UnreadableValue(f"calling {module}.{name}.{method} is never allowed")
        return leaf

    def _named(self, path: str) -> Any:
        """The class or function that was stored by its name."""
        module, _, name = path.partition(":")
        load = self._load_of(module, name)
        if load is not None:
            return load if isinstance(load, type) else _loaded(load, f"{module}.{name}", path)
        found = find(module, name) if module == "builtins" else None
        if not isinstance(found, type):
            found = self._class(module, name)
        if not isinstance(found, NAMED):
            raise changed(f"{module}.{name}", "it is neither a class nor a function")
        return found

    def _can_be_made(self, code: int, target: Any, args: Any, *content: Any) -> bool:
        with suppress(Exception):
            make(code, target[tuple(map(self._argument, args))] if args else target, *content)
            return True
        return False

    def _load_of(self, module: str, name: str, *_: Any) -> type | Callable[[Any], Any] | None:
        """The replacement of a class in `on_load`; for a generic model, its type arguments do not matter."""
        return self._on_load.get(f"{module}.{name.partition('[')[0]}")

    def _argument(self, full_name: tuple[str, str]) -> Any:
        """The class of a generic model's type argument."""
        load = self._load_of(*full_name)
        if isinstance(load, type):
            return load
        return find(*full_name) if full_name[0] == "builtins" else self._class(*full_name)

    def _class(self, module: str, name: str, found_as: str = "") -> Any:
        """Find a class, after a check that it may be read."""
        if (module, name) not in _ALWAYS_ALLOWED:
            self._check_allowed(module, name)
        return find(module, found_as or name)

    def _check_allowed(self, module: str, name: str) -> None:
        allowed = allowed_classes(self._serde)
        if allowed is True:
            emit_serde_event({"kind": "msgpack_unregistered_allowed", "module": module, "name": name})
            _warn_once(_UNREGISTERED, module, name)
            return
        # An allowlist names a nested class without its path, and a generic model with or without its type arguments.
        own = name.rpartition(".")[2]
        names = {(module, name), (module, own), (module, own.partition("[")[0])}
        if names & (allowed or set()) or names & self._implied:
            return
        emit_serde_event({"kind": "msgpack_blocked", "module": module, "name": name})
        if hasattr(self._serde, _REFUSES):
            raise UnreadableValue(
                f"{module}.{name} is not allowed to be read; if it should be, pass allow=[({module!r}, {name!r})]"
            )
        _warn_once(_BLOCKED, module, name)
        raise _Blocked

    @cached_property
    def _implied(self) -> Set[tuple[str, str]]:
        """The declared types of the fields of allowed classes: their constructors would create these, too."""
        found: set[tuple[str, str]] = set()
        allowed: Any = allowed_classes(self._serde)
        for full_name in allowed or ():
            with suppress(UnreadableValue):
                _collect(find(*full_name), found)
        return found


def _of_leaf(leaf: Leaf, name: str, stored: Any) -> Any:
    """Restore an object that was stored in one piece."""
    try:
        return leaf.make(stored)
    except UnreadableValue:
        raise
    except Exception as error:
        if _succeeds(leaf.make, stored):
            raise  # The cause was outside, such as a signal handler.
        problem = said_by(error)
    raise changed(name, problem)


def _succeeds(function: Callable[[Any], Any], argument: Any) -> bool:
    with suppress(Exception):
        function(argument)
        return True
    return False


def _loaded(load: Callable[[Any], Any], name: str, stored: Any) -> Any:
    """Call the application's function for the stored data of an object."""
    try:
        return load(stored)
    except Exception as error:
        inside = error.__traceback__ and error.__traceback__.tb_next
        line = f" on line {inside.tb_lineno}" if inside else ""
        problem = said_by(error)
    function = getattr(load, "__name__", type(load).__name__)
    raise UnreadableValue(f"{name} could not be created by {function}, which on_load names for it ({problem}{line})")


def _collect(declared: Any, found: set[tuple[str, str]]) -> None:
    """Collect the models, dataclasses, named tuples and enums in an annotation, and in their own annotations."""
    for part in get_args(declared):
        _collect(part, found)
    if not isinstance(declared, type):
        return
    is_tuple = issubclass(declared, tuple) and hasattr(declared, "_fields")
    if not (issubclass(declared, (BaseModel, Enum)) or dataclasses.is_dataclass(declared) or is_tuple):
        return
    if (full_name := (declared.__module__, declared.__name__)) not in found:
        found.add(full_name)
        with suppress(Exception):  # An annotation can name something that does not exist at run time.
            if issubclass(declared, BaseModel):
                hints = [field.annotation for field in declared.model_fields.values()]
                hints += declared.__pydantic_generic_metadata__["args"]
            else:
                hints = [*get_type_hints(declared).values()]
            for hint in hints:
                _collect(hint, found)


def _warn_once(message: str, module: str, name: str) -> None:
    if (message, module, name) not in _SAID and len(_SAID) < 1000:  # LangGraph's limit.
        _SAID.add((message, module, name))
        _LOG.warning(message, module, name, module, name)


class _Diagnosis(ExactSerializer):
    """Reads a value again to find the error inside an extension, because ormsgpack drops it."""

    def __init__(self, serde: JsonPlusSerializer, *, on_load: OnLoad) -> None:
        super().__init__(serde, on_load=on_load)
        self._failure: UnreadableValue | None = None
        self._revive = self._recorded

    def failure_of(self, stored: bytes) -> UnreadableValue | None:
        """The error inside an extension, if there is one."""
        with suppress(ValueError):
            ormsgpack.unpackb(stored, ext_hook=self._revive, option=_READ)
        return self._failure

    def _recorded(self, code: int, data: bytes) -> Any:
        try:
            return self._object(code, data)
        except UnreadableValue as error:
            self._failure = error
            raise
