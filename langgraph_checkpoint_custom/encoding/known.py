"""What is known of the values of a checkpoint that was read or stored: what the next one need not store again.

Must not know: SQL, connections, encryption.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, NamedTuple

import ormsgpack

from langgraph_checkpoint_custom.encoding.chunks import Known
from langgraph_checkpoint_custom.encoding.objects import Extension

# Bytes that count as one of the pieces of `Known`.
PIECE = 300


def unmade(data: bytes) -> Any:
    """A value from its msgpack, without making objects: to be packed again, which gives the same bytes."""
    return ormsgpack.unpackb(data, ext_hook=Extension, option=ormsgpack.OPT_NON_STR_KEYS)


class Held(NamedTuple):
    """The small values of a checkpoint as they were stored, without their objects, and the versions of all channels."""

    values: Mapping[str, Any]
    versions: Mapping[str, Any]

    def has(self, channel: str, version: object) -> bool:
        """Whether it has the value of this version."""
        held = self.versions.get(channel)
        return channel in self.values and type(held) is type(version) and held == version


class KnownValues(NamedTuple):
    """What is known of the values of one checkpoint.

    Attributes:
        document: The document in msgpack, with the small values in it; empty if it is in another form.
        large: Of values with rows of their own, by channel.
        is_whole: Whether no value has a row of its own.
    """

    document: bytes
    large: Mapping[str, Known]
    is_whole: bool

    @property
    def held(self) -> Held | None:
        """The small values, if they are known."""
        if not self.document:
            return None
        document = unmade(self.document)
        return Held(document["channel_values"], document.get("channel_versions") or {})

    @property
    def size(self) -> int:
        """The bytes that are held."""
        if not self.large:
            return len(self.document)
        return len(self.document) + sum([value.size for value in self.large.values()])

    @property
    def pieces(self) -> int:
        """As `Known` has it."""
        return len(self.document) // PIECE + sum([value.pieces for value in self.large.values()])

    def without_objects(self) -> KnownValues:
        """The same, but to find a part of a large value it has to be encoded."""
        return self._replace(large={channel: value.without_objects() for channel, value in self.large.items()})

    def without(self, channels: Collection[str]) -> KnownValues:
        """The same, without large values that are not there any more."""
        return self._replace(large={channel: value for channel, value in self.large.items() if channel not in channels})


NOTHING_KNOWN = KnownValues(b"", {}, is_whole=False)
