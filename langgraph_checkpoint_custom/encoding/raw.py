"""Values as they are stored, without their classes: for moving them from one store to another.

Must not know: SQL, connections, checkpoints.

What msgpack has no word for is an extension, and stays one here. So nothing is imported, made or validated, a class
that has moved does no harm, and what is written again is the same bytes; values that would not be are kept as bytes.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import ormsgpack
from langgraph.checkpoint.serde.base import SerializerProtocol
from langgraph.checkpoint.serde.encrypted import EncryptedSerializer
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from langgraph.checkpoint.serde.types import _DeltaSnapshot

from langgraph_checkpoint_custom.encoding.objects import DELTA, Extension, UnreadableValue, pack
from langgraph_checkpoint_custom.encoding.serde import MSGPACK, ExactSerializer
from langgraph_checkpoint_custom.errors import ConfigError

# What the serializer reads without making an object of a class.
_PLAIN = ("null", "bytes", "bytearray", MSGPACK)


class Raw(NamedTuple):
    """A value that is not taken apart: a serializer's own type and bytes."""

    type: str
    data: bytes


class RawReader(ExactSerializer):
    """Reads and writes LangGraph's msgpack, leaving extensions as they are."""

    def __init__(self) -> None:
        super().__init__(JsonPlusSerializer())
        self.unpack = self._plain_or_raw

    def dumps_typed(self, obj: Any) -> tuple[str, bytes]:
        """The bytes of a value."""
        return (obj.type, obj.data) if type(obj) is Raw else super().dumps_typed(obj)

    def loads_typed(self, data: tuple[str, bytes]) -> Any:
        """A value of plain types and extensions, or a `Raw`."""
        kind, stored = data
        if kind in _PLAIN:
            return super().loads_typed(data)
        if "+" in kind:
            raise UnreadableValue("it is encrypted; pass the EncryptedSerializer that has its key as serde")
        return Raw(kind, bytes(stored))

    def reason(self, stored: bytes) -> None:
        """Nothing, since no object was made."""

    def _plain_or_raw(self, stored: bytes) -> Any:
        """A value of plain types and extensions, or a `Raw` if that would be other bytes."""
        value = unpacked(stored)
        return value if pack(value) == stored else Raw(MSGPACK, bytes(stored))


def unpacked(data: bytes) -> Any:
    """A value of plain types and extensions."""
    return ormsgpack.unpackb(data, ext_hook=_extension, option=ormsgpack.OPT_NON_STR_KEYS)


def _extension(code: int, data: bytes) -> Any:
    # A snapshot says something about its channel.
    return _DeltaSnapshot(unpacked(data)) if code == DELTA else Extension(code, data)


def raw_reader(serde: SerializerProtocol) -> SerializerProtocol:
    """A serializer for the same bytes that makes no objects of them.

    Raises: ConfigError for a serializer of a kind that says nothing about its bytes.
    """
    if isinstance(serde, EncryptedSerializer):
        return EncryptedSerializer(serde.cipher, raw_reader(serde.serde))
    if isinstance(serde, (JsonPlusSerializer, RawReader)):
        return RawReader()
    raise ConfigError(
        f"what a {type(serde).__name__} stores cannot be moved as it is; open the other store with its own saver and "
        "use copy_from"
    )
