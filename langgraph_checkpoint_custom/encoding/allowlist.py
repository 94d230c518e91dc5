"""Which classes may be read: always, by LangGraph's allowlists, and with `strict`.

Must not know: how objects are stored and restored, checkpoints.
"""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Sequence, Set
from contextlib import suppress
from enum import Enum
from functools import cached_property, lru_cache
from typing import Any, NoReturn, get_args, get_type_hints

from langgraph.checkpoint.serde.base import CipherProtocol, SerializerProtocol
from langgraph.checkpoint.serde.encrypted import EncryptedSerializer
from langgraph.checkpoint.serde.event_hooks import emit_serde_event
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from pydantic import BaseModel

from langgraph_checkpoint_custom.encoding.extensions import UnreadableValue
from langgraph_checkpoint_custom.encoding.langgraph_private import (
    SAFE_TYPES,
    allowed_classes,
    allowed_json,
    is_langgraphs,
)
from langgraph_checkpoint_custom.encoding.leaves import is_leaf
from langgraph_checkpoint_custom.encoding.restored import find
from langgraph_checkpoint_custom.errors import ConfigError

Allowed = type | tuple[str, str]

# LangGraph's own messages, to its own logger, once for each class.
_LOG = logging.getLogger("langgraph.checkpoint.serde.jsonplus")
_LOGGED: set[tuple[str, str, str]] = set()
_UNREGISTERED = (
    "Deserializing unregistered type %s.%s from checkpoint. This will be blocked in a future version. Set "
    "LANGGRAPH_STRICT_MSGPACK=true to block now, or add to allowed_msgpack_modules to allow explicitly: [(%r, %r)]"
)
_BLOCKED = (
    "Blocked deserialization of %s.%s - not in allowed_msgpack_modules. Add to allowed_msgpack_modules to allow: "
    "[(%r, %r)]"
)
_BLOCKED_METHOD = "%s.%s is read as the text that was stored for it: LangGraph's serializer calls no method of (%r, %r)"
# The attribute that marks a serializer made for `strict=True`: with it, a type that is not allowed is an error.
_REFUSES = "_refuses_what_is_not_allowed"
# Types that are allowed besides LangGraph's: their constructors only hold what they are given.
_CONTAINERS = {
    "builtins": ("tuple", "dict", "str", "int", "bytearray"),
    "collections": ("OrderedDict", "Counter", "defaultdict"),
    "numpy.ma": ("MaskedArray",),
    "numpy.ma.core": ("MaskedArray",),
}
ALWAYS_ALLOWED = SAFE_TYPES | {(module, name) for module, names in _CONTAINERS.items() for name in names}


def always_allowed(module: str, name: str) -> bool:
    """Whether objects of a class are read whatever is allowed."""
    return (module, name) in ALWAYS_ALLOWED or is_leaf(module, name)


@lru_cache(maxsize=1000)
def safe_model(module: str, name: str) -> type[BaseModel] | None:
    """The pydantic model of this name if LangGraph reads its objects whatever is allowed, such as a message."""
    found = find(module, name) if (module, name) in SAFE_TYPES else None
    return found if isinstance(found, type) and issubclass(found, BaseModel) else None


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


def strict_serde(serde: SerializerProtocol, allow: Sequence[Allowed]) -> SerializerProtocol:
    """Return a serializer like `serde` that reads only objects of types that are safe and of those in `allow`.

    Raises:
        ConfigError: The serializer cannot be restricted, or an element of `allow` is not a type.
    """
    for item in allow:
        if not isinstance(item, type) and not (isinstance(item, tuple) and list(map(type, item)) == [str, str]):
            raise ConfigError(f"allow must contain classes or pairs ('module', 'Name'), not {item!r}")
    cipher, inner = cipher_and_inner(serde)
    if not is_langgraphs(inner):
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
    strict = JsonPlusSerializer(
        allowed_msgpack_modules=allowed or None, allowed_json_modules=allowed_json(inner) or None
    )
    setattr(strict, _REFUSES, True)  # LangGraph's copies of it, which allow further types, have the attribute too.
    return strict if cipher is None else EncryptedSerializer(cipher, strict)


class Blocked(Exception):
    """LangGraph's allowlist forbids the class: the stored data replaces the object, as in LangGraph."""


class Allowlist:
    """The classes whose objects a `JsonPlusSerializer` may read."""

    def __init__(self, serde: JsonPlusSerializer) -> None:
        self._serde = serde

    def find(self, module: str, name: str, found_as: str = "") -> Any:
        """Find a class, after a check that it may be read.

        Args:
            module: The module of the class.
            name: The name by which it is allowed.
            found_as: The name by which it is found, if that is another one.

        Raises:
            Blocked: LangGraph's allowlist forbids it.
            UnreadableValue: `strict` forbids it, or it cannot be found.
        """
        if (module, name) not in ALWAYS_ALLOWED:
            self._check(module, name)
        return find(module, found_as or name)

    def refuse_method(self, module: str, name: str, method: str) -> NoReturn:
        """Refuse to call a method that LangGraph does not call either, such as that of a subclass of datetime.

        Raises:
            Blocked: LangGraph returns the stored data.
            UnreadableValue: `strict` forbids it, or no method of LangGraph's is named.
        """
        if hasattr(self._serde, _REFUSES) or method != "fromisoformat":
            raise UnreadableValue(f"calling {module}.{name}.{method} is never allowed")
        _warn_once(_BLOCKED_METHOD, module, name)
        raise Blocked

    def _check(self, module: str, name: str) -> None:
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
        raise Blocked

    @cached_property
    def _implied(self) -> Set[tuple[str, str]]:
        """The declared types of the fields of allowed classes: their constructors would create these, too."""
        names: set[tuple[str, str]] = set()
        allowed: Any = allowed_classes(self._serde)
        for full_name in allowed or ():
            with suppress(UnreadableValue):
                _collect(find(*full_name), names)
        return names


def _collect(declared: Any, names: set[tuple[str, str]]) -> None:
    """Collect the models, dataclasses, named tuples and enums in an annotation, and in their own annotations."""
    for part in get_args(declared):
        _collect(part, names)
    if not isinstance(declared, type):
        return
    is_tuple = issubclass(declared, tuple) and hasattr(declared, "_fields")
    if not (issubclass(declared, (BaseModel, Enum)) or dataclasses.is_dataclass(declared) or is_tuple):
        return
    if (full_name := (declared.__module__, declared.__name__)) not in names:
        names.add(full_name)
        with suppress(Exception):  # An annotation can name something that does not exist at run time.
            if issubclass(declared, BaseModel):
                hints = [field.annotation for field in declared.model_fields.values()]
                hints += declared.__pydantic_generic_metadata__["args"]
                _collect(declared.__pydantic_generic_metadata__["origin"], names)
            else:
                hints = [*get_type_hints(declared).values()]
            for hint in hints:
                _collect(hint, names)


def _warn_once(message: str, module: str, name: str) -> None:
    if (message, module, name) not in _LOGGED and len(_LOGGED) < 1000:  # LangGraph's limit.
        _LOGGED.add((message, module, name))
        _LOG.warning(message, module, name, module, name)
