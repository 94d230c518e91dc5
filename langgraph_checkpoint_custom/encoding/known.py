"""The values of a checkpoint that was read or stored, so that the next one can reuse what is stored already.

Must not know: SQL, connections, encryption.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, NamedTuple

import ormsgpack

from langgraph_checkpoint_custom.encoding.chunks import Known
from langgraph_checkpoint_custom.encoding.extensions import Extension
from langgraph_checkpoint_custom.encoding.objects import is_unicode, pack
from langgraph_checkpoint_custom.errors import CheckpointError

# The largest text or bytes that are part of the document with any serializer, in characters or bytes.
INLINE_BYTES = 256
# Bytes that count as one piece, see `ChunkedValue.pieces`; an inline value takes about as much besides its own bytes.
PIECE = 300


def unmade(data: bytes) -> Any:
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


class Packed(NamedTuple):
    """An inline value that is not short: its channel version, and its bytes in msgpack."""

    version: object
    data: bytes


class KnownValues(NamedTuple):
    """The known values of one checkpoint.

    Attributes:
        document: The document of a checkpoint that was read, in msgpack; empty if it has another format.
        large: The chunks or samples of large values, by channel.
        all_inline: Whether all values are in the document and none is in a blob.
        packed: The inline values of a checkpoint that was stored, by channel, without short ones.
        changes: In how many checkpoints one after the other, including this one, a channel had a new version; only of a
            checkpoint that was stored.
    """

    document: bytes
    large: Mapping[str, Known]
    all_inline: bool
    packed: Mapping[str, Packed] = {}
    changes: Mapping[str, int] = {}

    @property
    def inline(self) -> Mapping[str, Packed]:
        """The inline values as they were stored, by channel, without short ones."""
        if not self.document:
            return self.packed
        try:
            document = unmade(self.document)
            versions = document.get("channel_versions") or {}
            return {
                channel: Packed(versions[channel], pack(value))
                for channel, value in document["channel_values"].items()
                if channel in versions and not is_short(value)
            }
        except (TypeError, ValueError) as error:  # It was read before; ormsgpack drops what comes from outside.
            raise CheckpointError(
                "an exception from outside, such as a time limit, interrupted the encoding of the checkpoint, and was "
                "lost; nothing was stored"
            ) from error

    @property
    def size(self) -> int:
        """The bytes that it keeps in memory."""
        size = len(self.document) + sum([PIECE + len(packed.data) for packed in self.packed.values()])
        return size + sum([value.size for value in self.large.values()]) if self.large else size

    @property
    def pieces(self) -> int:
        """Its weight in a cache without objects, see `ChunkedValue.pieces`."""
        inline = len(self.document) + sum([PIECE + len(packed.data) for packed in self.packed.values()])
        return inline // PIECE + sum([value.pieces for value in self.large.values()])

    def without_objects(self) -> KnownValues:
        """The same values without what can be found out again: the objects of chunks."""
        return self._replace(large={channel: value.without_objects() for channel, value in self.large.items()})

    def without(self, channels: Collection[str]) -> KnownValues:
        """The same values without the large ones of these channels, because they were deleted."""
        return self._replace(large={channel: value for channel, value in self.large.items() if channel not in channels})


NOTHING_KNOWN = KnownValues(b"", {}, all_inline=False)
