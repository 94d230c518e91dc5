"""The values of a checkpoint that was read or stored, so that the next one can reuse what is stored already.

Must not know: SQL, connections, encryption.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, NamedTuple

import ormsgpack

from langgraph_checkpoint_custom.encoding.chunks import Known
from langgraph_checkpoint_custom.encoding.objects import Extension

# Bytes that count as one piece, see `ChunkedValue.pieces`.
PIECE = 300


def unmade(data: bytes) -> Any:
    """Decode msgpack without creating objects; packing the result gives the same bytes."""
    return ormsgpack.unpackb(data, ext_hook=Extension, option=ormsgpack.OPT_NON_STR_KEYS)


class Held(NamedTuple):
    """The inline values of a checkpoint as they were stored, without their objects, and all channel versions."""

    values: Mapping[str, Any]
    versions: Mapping[str, Any]

    def has(self, channel: str, version: object) -> bool:
        """Whether it has the value of this channel version."""
        held = self.versions.get(channel)
        return channel in self.values and type(held) is type(version) and held == version


class KnownValues(NamedTuple):
    """The known values of one checkpoint.

    Attributes:
        document: The document in msgpack with the inline values; empty if it has another format.
        large: The chunks or samples of large values, by channel.
        all_inline: Whether all values are in the document and none is in a blob.
        packed: The versions and bytes of some inline values, by channel, to compare them without decoding the document.
    """

    document: bytes
    large: Mapping[str, Known]
    all_inline: bool
    packed: Mapping[str, tuple[object, bytes]] = {}

    def is_still(self, channel: str, version: object, packed: bytes) -> bool:
        """Whether `packed` are known to be the bytes of this channel version."""
        found = self.packed.get(channel)
        return found is not None and found[1] == packed and found[0] == version and type(found[0]) is type(version)

    @property
    def held(self) -> Held | None:
        """The inline values, if they are known."""
        if not self.document:
            return None
        document = unmade(self.document)
        return Held(document["channel_values"], document.get("channel_versions") or {})

    @property
    def size(self) -> int:
        """The bytes that it keeps in memory."""
        size = len(self.document)
        if self.packed:
            size += sum([len(packed) for _, packed in self.packed.values()])
        return size + sum([value.size for value in self.large.values()]) if self.large else size

    @property
    def pieces(self) -> int:
        """Its weight in a cache without objects, see `ChunkedValue.pieces`."""
        return len(self.document) // PIECE + sum([value.pieces for value in self.large.values()])

    def without_objects(self) -> KnownValues:
        """The same values without what can be found out again: chunks' objects, and bytes that the document has."""
        return self._replace(
            packed={}, large={channel: value.without_objects() for channel, value in self.large.items()}
        )

    def without(self, channels: Collection[str]) -> KnownValues:
        """The same values without the large ones of these channels, because they were deleted."""
        return self._replace(large={channel: value for channel, value in self.large.items() if channel not in channels})


NOTHING_KNOWN = KnownValues(b"", {}, all_inline=False)
