"""LangGraph's msgpack extensions: their codes, an extension that is not decoded, and the errors of both directions.

Must not know: how a class is stored.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import ormsgpack
from langgraph.checkpoint.serde import jsonplus

from langgraph_checkpoint_custom.errors import CheckpointError

SINGLE = jsonplus.EXT_CONSTRUCTOR_SINGLE_ARG
POSITIONAL = jsonplus.EXT_CONSTRUCTOR_POS_ARGS
KEYWORDS = jsonplus.EXT_CONSTRUCTOR_KW_ARGS
METHOD = jsonplus.EXT_METHOD_SINGLE_ARG
PYDANTIC_1 = jsonplus.EXT_PYDANTIC_V1
PYDANTIC_2 = jsonplus.EXT_PYDANTIC_V2
NUMPY = jsonplus.EXT_NUMPY_ARRAY
DELTA = jsonplus.EXT_DELTA_SNAPSHOT
# How the content of a tuple's extension starts, in msgpack; a list follows.
TUPLE = b"\x93\xa8builtins\xa5tuple"
# The function that finds a class or function by its name. LangGraph's serializer calls it; this package does not.
REFERENCE = ("pkgutil", "resolve_name")


class UnstorableValue(TypeError):
    """A value that would come back as a different one."""


class SecretInClear(UnstorableValue):
    """A secret that would be readable in the database."""


class UnreadableValue(CheckpointError, ValueError):
    """A stored object that cannot be restored; the message names its class and says what to do."""


@dataclass(frozen=True)
class Extension:
    """An extension as it is stored, without creating its object."""

    code: int
    data: bytes


def unpack_plain(data: bytes) -> Any:
    """Decode msgpack without creating objects; packing the result gives the same bytes."""
    return ormsgpack.unpackb(data, ext_hook=Extension, option=ormsgpack.OPT_NON_STR_KEYS)


def stored_data(_: str, __: str, stored: Any, method: Any = None, state: Any = None) -> Any:
    """Return the stored data of an object from the content of its extension, without creating the object."""
    if isinstance(stored, dict) and isinstance(state, dict):
        return {**stored, **state.get("other", {}), **state.get("extra", {}), **state.get("private", {})}
    return stored
