"""Reads values without their classes, to move them from one store to another.

Must not know: SQL, connections, checkpoints.

Everything that msgpack cannot represent is an extension, and stays one here. So no class is imported and no object is
created or validated, and it does not matter whether a class has moved. Writing such a value again gives the same bytes.
A value for which that is not so stays bytes.
"""

from __future__ import annotations

import json
from copy import copy
from typing import Any, NamedTuple, TypeVar

import ormsgpack
from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.checkpoint.serde.base import SerializerProtocol
from langgraph.checkpoint.serde.encrypted import EncryptedSerializer
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer

from langgraph_checkpoint_custom.encoding.extensions import (
    DELTA,
    NUMPY,
    PYDANTIC_2,
    SINGLE,
    TUPLE,
    Extension,
    UnreadableValue,
    stored_data,
)
from langgraph_checkpoint_custom.encoding.langgraph_private import DeltaSnapshot
from langgraph_checkpoint_custom.encoding.objects import pack
from langgraph_checkpoint_custom.encoding.serde import MSGPACK, ExactSerializer
from langgraph_checkpoint_custom.errors import ConfigError

S = TypeVar("S", bound=BaseCheckpointSaver[Any])

# The types that the serializer reads without creating an object of a class.
_PLAIN = ("null", "bytes", "bytearray", MSGPACK)


class Raw(NamedTuple):
    """A value that is not decoded: the serializer's own type and bytes."""

    type: str
    data: bytes


class RawReader(ExactSerializer):
    """Reads and writes LangGraph's msgpack, and leaves extensions as they are."""

    def __init__(self) -> None:
        super().__init__(JsonPlusSerializer())

    def dumps_typed(self, obj: Any) -> tuple[str, bytes]:
        """Encode a value."""
        return (obj.type, obj.data) if type(obj) is Raw else super().dumps_typed(obj)

    def loads_typed(self, data: tuple[str, bytes]) -> Any:
        """Decode a value into plain types and extensions, or into a `Raw`."""
        kind, stored = data
        if kind in _PLAIN:
            return super().loads_typed(data)
        if "+" in kind:
            raise UnreadableValue("it is encrypted; pass the EncryptedSerializer that has its key as serde")
        return Raw(kind, bytes(stored))

    def unpack(self, stored: bytes) -> Any:
        """Decode a value into plain types and extensions, or into a `Raw` if packing these gives other bytes."""
        value = unpacked(stored)
        return value if pack(value) == stored else Raw(MSGPACK, bytes(stored))


def unpacked(data: bytes) -> Any:
    """Decode msgpack into plain types and extensions."""
    return ormsgpack.unpackb(data, ext_hook=_extension, option=ormsgpack.OPT_NON_STR_KEYS)


def _extension(code: int, data: bytes) -> Any:
    # A delta snapshot is decoded, because the rows of a checkpoint depend on which channels have one. A tuple is no
    # object of a class.
    if code == SINGLE and data.startswith(TUPLE):
        return tuple(unpacked(data[len(TUPLE) :]))
    return DeltaSnapshot(unpacked(data)) if code == DELTA else Extension(code, data)


def raw_reader(serde: SerializerProtocol) -> SerializerProtocol:
    """Return a serializer for the same bytes that creates no objects.

    Raises:
        ConfigError: The format of the serializer is not known.
    """
    if isinstance(serde, EncryptedSerializer):
        return EncryptedSerializer(serde.cipher, raw_reader(serde.serde))
    if isinstance(serde, (JsonPlusSerializer, RawReader)):
        return RawReader()
    raise ConfigError(
        f"values stored by a {type(serde).__name__} cannot be copied as they are; open the other store with its own "
        "saver and use copy_from"
    )


def without_classes(saver: S) -> S:
    """Return a copy of a saver that reads values without importing classes or making objects.

    Raises:
        ConfigError: The format of its serializer is not known.
    """
    clone = copy(saver)
    clone.serde = raw_reader(saver.serde)
    return clone


class Object(NamedTuple):
    """A stored object that is not created.

    Attributes:
        module: The module of its class.
        name: The name of its class.
        code: The code of the msgpack extension, which says how to create it.
        content: What to create it from.
        method: The classmethod that creates it, if one does.
    """

    module: str
    name: str
    code: int
    content: Any
    method: str = ""

    @property
    def path(self) -> str:
        """The module and name of the class."""
        return f"{self.module}.{self.name}"


def object_of(extension: Extension) -> Object | None:
    """Return the object that an extension stores; None if the form is unknown."""
    code, data = extension.code, extension.data
    try:
        content = unpacked(data)
        if code == NUMPY:
            dtype, shape, _, values = content
            return Object("numpy", "ndarray", code, {"dtype": dtype, "shape": shape, "bytes": len(values)})
        if SINGLE <= code <= PYDANTIC_2:
            module, name, _, *method = content
            if isinstance(module, str) and isinstance(name, str):
                return Object(module, name, code, stored_data(*content), str(method[0]) if method else "")
    except (ValueError, TypeError):
        pass
    return None


def plain(value: Any) -> Any:
    """Decode a value that `raw_reader` left as bytes; return it unchanged if it cannot be decoded."""
    if type(value) is Raw:
        try:
            if value.type == MSGPACK:
                return unpacked(value.data)
            if value.type == "json":
                return json.loads(value.data)
        except ValueError:
            pass
    return value
