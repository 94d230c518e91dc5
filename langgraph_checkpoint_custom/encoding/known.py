"""What is known of the blobs of a stored checkpoint, so that the next one need not encode what is stored already.

Must not know: SQL, connections, encryption.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, NamedTuple

import ormsgpack
from langchain_core.messages import BaseMessage

from langgraph_checkpoint_custom.encoding.chunks import KnownValue
from langgraph_checkpoint_custom.encoding.extensions import Extension
from langgraph_checkpoint_custom.encoding.objects import is_unicode

# The largest text or bytes that are part of the document with any serializer, in characters or bytes.
INLINE_BYTES = 256
# Bytes of the version of a channel, with its place in a dict.
NAME = 200
# Bytes of the names of a message's class and fields, at least.
NAME_OF_MESSAGE = 50


def unpack_plain(data: bytes) -> Any:
    """Decode msgpack without creating objects; packing the result gives the same bytes."""
    return ormsgpack.unpackb(data, ext_hook=Extension, option=ormsgpack.OPT_NON_STR_KEYS)


def is_short(value: Any) -> bool:
    """Whether a value is part of the document with any serializer. No such value can be changed in place."""
    kind = type(value)
    if kind is str:
        return len(value) <= INLINE_BYTES and (value.isascii() or is_unicode(value))
    if kind is int:
        return bool(-(2**63) <= value < 2**64)  # Not every serializer can encode larger ones.
    return value is None or kind is bool or kind is float or (kind is bytes and len(value) <= INLINE_BYTES)


def exceeds(values: Collection[Any], limit: int) -> bool:
    """Whether values are certain to take more than `limit` bytes in msgpack, by what can be seen without encoding them.

    False means that only encoding them can tell.
    """
    left = limit
    todo = list(values)
    while todo:
        if len(todo) > left:  # Each takes one byte at least.
            return True
        value = todo.pop()
        left -= 1
        kind = type(value)
        if kind is str or kind is bytes:
            left -= len(value)
        elif kind is list:
            todo += value[: left + 1]
        elif kind is dict:
            left -= len(value)
            todo += value.values()
        elif isinstance(value, BaseMessage):
            left -= NAME_OF_MESSAGE
            todo.append(value.content)
    return left < 0


class KnownBlobs(NamedTuple):
    """The blobs of one stored checkpoint.

    Attributes:
        versions: The version of each channel whose value is a blob, as the checkpoint's row names them.
        large: The large values, by channel.
    """

    versions: Mapping[str, str]
    large: Mapping[str, KnownValue]

    @property
    def size(self) -> int:
        """The bytes that it keeps in memory."""
        return NAME * len(self.versions) + sum([value.memory for value in self.large.values()])

    def without(self, channels: Collection[str]) -> KnownBlobs:
        """The same without what is known of the large values of these channels, because they were deleted."""
        return self._replace(large={channel: value for channel, value in self.large.items() if channel not in channels})


NO_BLOBS = KnownBlobs({}, {})
