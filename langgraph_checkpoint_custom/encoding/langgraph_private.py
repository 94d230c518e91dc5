"""The private names of LangGraph that this package uses, and what replaces each if it goes.

No other module uses one; `tests/test_architecture.py` checks that.

Must not know: the rest of this package.
"""

from __future__ import annotations

from collections.abc import Callable, Set
from typing import Any, Literal, TypeGuard

from langgraph.checkpoint.serde import jsonplus
from langgraph.checkpoint.serde._msgpack import SAFE_MSGPACK_METHODS, SAFE_MSGPACK_TYPES
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer

# What a `DeltaChannel` stores to be rebuilt from. If it goes: the class of what `DeltaChannel.checkpoint` returns.
from langgraph.checkpoint.serde.types import _DeltaSnapshot as DeltaSnapshot

__all__ = ["DeltaSnapshot"]  # What is not defined here.

SAFE_TYPES: Set[tuple[str, ...]] = SAFE_MSGPACK_TYPES
"""The classes that every allowlist allows. If it goes: a copy of the set."""

SAFE_METHODS: Set[tuple[str, str, str]] = SAFE_MSGPACK_METHODS
"""The methods that reading may call. If it goes: a copy of the set."""

extension_of: Callable[[Any], Any] = jsonplus._msgpack_default
"""Makes the msgpack extension of an object. If it goes: what `JsonPlusSerializer.dumps_typed` makes of the object."""

PACKING: int = jsonplus._option
"""The options with which LangGraph packs msgpack. If it goes: the options themselves, which the format depends on."""

NO_TASK = "00000000-0000-0000-0000-000000000000"
"""The task of writes that come from outside. If it goes: answered questions stay open until their node is done."""


def allowed_classes(serde: JsonPlusSerializer) -> Set[tuple[str, ...]] | Literal[True] | None:
    """The classes that a serializer may read in msgpack, or True. If it goes: an option of our own savers."""
    return serde._allowed_msgpack_modules  # pyright: ignore[reportReturnType]  # Its bool is never False.


def allowed_json(serde: JsonPlusSerializer) -> Set[tuple[str, ...]] | Literal[True] | None:
    """The constructors that a serializer may call for JSON, or True. If it goes: JSON is refused with `strict`."""
    return serde._allowed_json_modules


def is_langgraphs(serde: object) -> TypeGuard[JsonPlusSerializer]:
    """Whether a serializer is LangGraph's own, which no function of the application helps to read extensions.

    If it goes: nobody can give it such a function.
    """
    return type(serde) is JsonPlusSerializer and not serde._custom_unpack_ext_hook


def restored(serde: JsonPlusSerializer, code: int, data: bytes) -> Any:
    """Return what a serializer makes of an extension. If it goes: `loads_typed` of the packed extension."""
    return serde._unpack_ext_hook(code, data)


def interrupt_id(checkpoint_ns: str, answered: int) -> str | None:
    """Return the id of a task's interrupt after a number of answers; None without LangGraph.

    If it goes: answered questions stay open until their node is done.
    """
    try:
        from langgraph.types import _interrupt_id  # Here, because a store can be read without all of `langgraph`.
    except ImportError:  # Of an older version, too, in which all questions of a task had one id.
        return None
    return _interrupt_id(checkpoint_ns, answered)
