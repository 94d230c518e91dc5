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

import pickle
from collections.abc import Sequence
from contextlib import suppress
from secrets import randbits
from typing import Any, Literal

import ormsgpack
from langgraph.checkpoint.serde._msgpack import SAFE_MSGPACK_METHODS, SAFE_MSGPACK_TYPES
from langgraph.checkpoint.serde.base import SerializerProtocol
from langgraph.checkpoint.serde.event_hooks import emit_serde_event
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from langgraph.checkpoint.serde.types import _DeltaSnapshot

from langgraph_checkpoint_custom.core.messages import made
from langgraph_checkpoint_custom.core.objects import (
    DELTA,
    METHOD,
    NUMPY,
    PYDANTIC_2,
    SINGLE,
    UnreadableValue,
    UnstorableValue,
    array,
    changed,
    find,
    make,
    pack,
)
from langgraph_checkpoint_custom.errors import ConfigError

MSGPACK = "msgpack"
_READ = ormsgpack.OPT_NON_STR_KEYS


OnUnreadable = Literal["raise", "raw"]
Allowed = type | tuple[str, str]


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
        self._revive = self._object  # Made once: a value may have thousands of objects.

    # Writing

    def dumps_typed(self, obj: Any) -> tuple[str, bytes]:
        """Encode a value.

        Raises: UnstorableValue, or what ormsgpack raises, if it would come back as another one.
        """
        if obj is None or isinstance(obj, (bytes, bytearray)):
            return self._serde.dumps_typed(obj)
        try:
            return MSGPACK, pack(obj)
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
        if kind == MSGPACK:
            try:
                return ormsgpack.unpackb(stored, ext_hook=self._revive, option=_READ)
            except ValueError as error:
                raise _Telling(self._serde).failure_of(stored) or error from None
        strict = self._serde._allowed_msgpack_modules is not True
        if kind == "json" and strict and not self._serde._allowed_json_modules:
            raise UnreadableValue(
                "it was stored as 'json', which can name any constructor; pass a serde with allowed_json_modules"
            )
        return self._serde.loads_typed(data)

    def loads_many(self, stored: Sequence[bytes]) -> list[Any]:
        """Decode many values of the type msgpack as one, which takes half of the time.

        A number that no value can know stands behind each, so that none takes for its own what is another's.

        Raises: UnreadableValue, or what ormsgpack raises, if any of them cannot be what it was.
        """
        number = randbits(63) | 1 << 63
        behind = b"\xcf" + number.to_bytes(8, "big")
        together = b"\xdd" + (2 * len(stored)).to_bytes(4, "big") + behind.join([*stored, b""])
        values = ormsgpack.unpackb(together, ext_hook=self._revive, option=_READ)
        if values[1::2] != [number] * len(stored):
            raise UnreadableValue("one of many values has another length than its bytes")
        found: list[Any] = values[::2]
        return found

    def _object(self, code: int, data: bytes) -> Any:
        """An object from the extension that it was stored as."""
        if code not in (DELTA, NUMPY) and not SINGLE <= code <= PYDANTIC_2:
            found = self._serde._unpack_ext_hook(code, data)
            if found is None:
                raise UnreadableValue(f"msgpack extension {code} is unknown to this version of langgraph-checkpoint")
            return found
        content = ormsgpack.unpackb(data, ext_hook=self._revive, option=_READ)
        if code == DELTA:
            return _DeltaSnapshot(content)
        if code == NUMPY:
            return array(*content)
        module, name, stored, *method = content
        if code == PYDANTIC_2 and (message := made(module, name, stored)) is not None:
            return message
        if code == METHOD:
            if (module, name, *method) not in SAFE_MSGPACK_METHODS:
                raise UnreadableValue(f"calling {module}.{name}.{method[0]} is never allowed")
        else:
            self._check_allowed(module, name)
        target = find(module, name)
        try:
            return make(code, target, stored, *method)
        except UnreadableValue:
            raise
        except Exception as error:
            raise changed(f"{module}.{name}", f"{type(error).__name__}: {error}") from error

    def _check_allowed(self, module: str, name: str) -> None:
        if (module, name) in SAFE_MSGPACK_TYPES:
            return
        allowed = self._serde._allowed_msgpack_modules
        if allowed is True:
            emit_serde_event({"kind": "msgpack_unregistered_allowed", "module": module, "name": name})
        elif not allowed or (module, name) not in allowed:
            emit_serde_event({"kind": "msgpack_blocked", "module": module, "name": name})
            raise UnreadableValue(
                f"{module}.{name} is not allowed to be read; if it should be, pass allow=[({module!r}, {name!r})] "
                f"with strict=True, or allowed_msgpack_modules=[({module!r}, {name!r})] to your JsonPlusSerializer"
            )


class _Telling(Faithful):
    """Reads a value once more for what was wrong inside an extension, since ormsgpack drops that."""

    def __init__(self, serde: JsonPlusSerializer) -> None:
        super().__init__(serde)
        self._failure: UnreadableValue | None = None
        self._revive = self._watched

    def failure_of(self, stored: bytes) -> UnreadableValue | None:
        """What was wrong, if it was that."""
        with suppress(ValueError):
            ormsgpack.unpackb(stored, ext_hook=self._revive, option=_READ)
        return self._failure

    def _watched(self, code: int, data: bytes) -> Any:
        try:
            return self._object(code, data)
        except UnreadableValue as error:
            self._failure = error
            raise
