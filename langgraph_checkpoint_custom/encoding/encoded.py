"""Takes a large checkpoint apart: its larger values are blobs, which later checkpoints refer to by channel and version.

Must not know: SQL, connections.

A small value is part of the document, as it is when `put` is called. A larger one is a blob. An unchanged value is not
stored again: what the parent's row names as a blob at the channel's version is what this checkpoint refers to, whatever
the object is now. So what is stored depends on the values and on what is stored already, never on what a saver happens
to remember: if nothing is known of the parent, all values are encoded, and its row is read before they are stored.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeGuard

from langgraph.checkpoint.base import ChannelVersions, Checkpoint

from langgraph_checkpoint_custom.encoding.chunks import KnownBlobs, KnownValue
from langgraph_checkpoint_custom.encoding.extensions import unpack_plain
from langgraph_checkpoint_custom.encoding.langgraph_private import DeltaSnapshot
from langgraph_checkpoint_custom.encoding.objects import is_unicode
from langgraph_checkpoint_custom.encoding.rows import Encoded, fail, row_of, seal_rows
from langgraph_checkpoint_custom.encoding.serde import MSGPACK
from langgraph_checkpoint_custom.encoding.values import Large, Stored, Values
from langgraph_checkpoint_custom.engine.operation import Offload, work_out
from langgraph_checkpoint_custom.errors import ConfigError
from langgraph_checkpoint_custom.model.keys import (
    MAX_ID,
    MAX_NAME,
    BlobRef,
    BlobRow,
    Key,
    Location,
    channel_text,
    location_of_blob,
    location_of_checkpoint,
    text,
)

try:
    from ormsgpack import Fragment
except ImportError:  # Python 3.10 has an older ormsgpack, which packs the parts again: to the same bytes.
    Fragment = unpack_plain  # type: ignore[assignment, misc]

NO_DOCUMENT = Stored(MSGPACK, b"")
# Bytes of the largest encoded value in the document of a checkpoint that was taken apart. Such a value is stored again
# with every superstep.
SMALL_VALUE = 1_024
# The largest text or bytes that are part of the document with any serializer, in characters or bytes.
INLINE_BYTES = 256
# Types of values that may be a blob in a small document, too; see `is_always_blob`.
SPECIAL = frozenset({DeltaSnapshot, bytearray, set, tuple})


def is_short(value: Any) -> bool:
    """Whether a value is part of the document with any serializer. No such value can be changed in place."""
    kind = type(value)
    if kind is str:
        return len(value) <= INLINE_BYTES and (value.isascii() or is_unicode(value))
    if kind is int:
        return bool(-(2**63) <= value < 2**64)  # Not every serializer can encode larger ones.
    return value is None or kind is bool or kind is float or (kind is bytes and len(value) <= INLINE_BYTES)


def deltas_of(
    parent: Key, checkpoint: Checkpoint, metadata: Mapping[str, Any], new_versions: ChannelVersions
) -> tuple[Sequence[str], Sequence[str], Sequence[BlobRef]]:
    """Return what a checkpoint has to do with `DeltaChannel`s, which LangGraph names in the metadata.

    Returns:
        All of them; those that are rebuilt from the parent and its ancestors; the snapshots that may be stored already.
    """
    counters = metadata.get("counters_since_delta_snapshot")
    if not counters or not isinstance(counters, Mapping):
        return (), (), ()
    versions = checkpoint.get("channel_versions") or {}
    delta = sorted(map(channel_text, set(counters).intersection(versions)))
    absent = [channel for channel in delta if channel not in checkpoint["channel_values"]]
    references = [
        BlobRef(channel, version_key(versions[channel]), required=False)
        for channel in absent
        if channel not in new_versions
    ]
    return delta, absent if parent.checkpoint_id else (), references


_Placed = tuple[BlobRow, Location, str | None]
"""A blob as `seal_rows` takes it."""


class Apart:
    """A checkpoint whose values are not all in the document: its encoded values, and then its rows.

    The document and the values are encoded at once. Later, the graph may have changed them.

    Attributes:
        row: The row, without what depends on the parent.
    """

    def __init__(
        self,
        codec: Values,
        parent: Key,
        checkpoint: Checkpoint,
        metadata: Mapping[str, Any],
        new_versions: ChannelVersions,
        before: KnownBlobs | None,
        claim: str | None,
    ) -> None:
        self._codec = codec
        self._namespace = parent.checkpoint_ns
        self._location = location_of_checkpoint(self._namespace, text("checkpoint id", checkpoint["id"], MAX_ID))
        self._values = dict(checkpoint["channel_values"])
        self._new = set(new_versions)
        self._claim = claim
        self._before = before
        self._parent_id = parent.checkpoint_id
        self._versions: dict[str, str] = {}  # Of the values that may be blobs.
        self._inline: dict[str, Any] = {}
        self._encoded: dict[str, Stored | Large] = {}
        self._large: dict[str, KnownValue] = {}
        versions = checkpoint.get("channel_versions") or {}
        for channel, value in self._values.items():
            channel_text(channel)
            if is_short(value):
                self._inline[channel] = value
            elif channel not in versions:  # Without a version it cannot be a blob.
                self._inline[channel] = self._part(value)
            else:
                self._versions[channel] = version_key(versions[channel])
                if before is None or not self._is_stored(channel, before.versions):
                    self._encoded[channel] = self._encode(channel)
        delta, self._replayed, self._references = deltas_of(parent, checkpoint, metadata, new_versions)
        snapshots = [channel for channel, value in self._values.items() if type(value) is DeltaSnapshot]
        self._head = {key: self._part(value) for key, value in checkpoint.items() if key != "channel_values"}
        document = NO_DOCUMENT if codec.packs else self._document(self._inline)
        self.row = row_of(codec, parent, checkpoint, metadata, document, (), sorted({*delta, *snapshots}))

    def encoded(self) -> Encoded | Apart | Offload:
        """Return all rows, or itself to be finished, if a parent that is not known decides which values are stored."""
        has_unchanged = not self._versions.keys() <= self._new
        if self._before is None and self._parent_id is not None and has_unchanged:
            return self
        return self.finish(self._before.versions if self._before else {})

    def finish(self, stored: Mapping[str, str]) -> Encoded | Offload:
        """Return the rows, given the versions of the parent's blobs by channel; or an `Offload` that seals them."""
        codec, references, inline = self._codec, list(self._references), dict(self._inline)
        blobs: list[_Placed] = []
        named: dict[str, str] = {}
        for channel, version in self._versions.items():
            known = self._known(channel)
            if self._is_stored(channel, stored):
                named[channel] = version
                references.append(BlobRef(channel, version, required=True))
                if known and known.version == version:
                    self._large[channel] = known
                continue
            found = self._encoded[channel]
            if self._is_small(found, channel):
                inline[channel] = Fragment(found.value)
                continue
            named[channel] = version
            blobs += self._blobs(channel, found)
            if known and known.chunks and isinstance(found, Large) and found.cut:
                references.append(BlobRef(channel, known.version, required=True, begins=known.begins))
        row = self.row._replace(
            inline_channels=list(inline), blob_channels=list(named), blob_versions=list(named.values())
        )
        if codec.packs:
            type_, document = self._document(inline)
            row = row._replace(checkpoint_type=type_, checkpoint=document)

        def complete(rows: Sequence[BlobRow]) -> Encoded:
            known = KnownBlobs(named, self._large)
            return Encoded(row, self._claim, self._replayed, references, rows, known, self._spare)

        return seal_rows(codec, blobs, complete)

    def _known(self, channel: str) -> KnownValue | None:
        """What is known of the parent's large value of a channel."""
        return self._before.large.get(channel) if self._before else None

    def _is_stored(self, channel: str, blobs: Mapping[str, str]) -> bool:
        """Whether the value of a channel is unchanged and one of the parent's blobs."""
        return channel not in self._new and blobs.get(channel) == self._versions[channel]

    def _is_small(self, found: Stored | Large, channel: str) -> TypeGuard[Stored]:
        """Whether a value is part of the document."""
        return (
            isinstance(found, Stored)
            and len(found.value) <= SMALL_VALUE
            and found.type == MSGPACK
            and self._codec.packs
            and not is_always_blob(channel, self._values[channel])
        )

    def _encode(self, channel: str) -> Stored | Large:
        """Encode a value; a new one that is large may share chunks with the parent's."""
        version = self._versions[channel]
        try:
            if channel in self._new:
                return self._codec.dumps_blob(self._values[channel], version, self._known(channel))
            return self._codec.dumps_unsealed(self._values[channel])
        except Exception as error:
            fail(location_of_blob(self._namespace, channel, version), error)

    def _part(self, value: Any) -> Any:
        """Return a part of the document, encoded if the document is encoded later."""
        if not self._codec.packs:
            return value
        try:
            return Fragment(self._codec.pack(value))
        except Exception as error:
            fail(self._location, error)

    def _document(self, inline: Mapping[str, Any]) -> Stored:
        """Encode and seal the document."""
        try:
            return self._codec.dumps({**self._head, "channel_values": inline}, self._location)
        except Exception as error:
            fail(self._location, error)

    def _blobs(self, channel: str, found: Stored | Large) -> list[_Placed]:
        """The rows of a value: its new chunks, and its own."""
        version = self._versions[channel]
        location = location_of_blob(self._namespace, channel, version)
        if not isinstance(found, Large):
            return [(BlobRow(channel, version, *found), location, None)]
        self._large[channel] = found.cut.value if found.cut else KnownValue(version, whole=found.whole.value)
        if found.cut is None:
            return [(BlobRow(channel, version, *found.whole), location, None)]
        names = found.cut.value.names
        return [
            *((BlobRow(channel, name, MSGPACK, data), (*location[:-1], name), None) for name, data in found.cut.new),
            (BlobRow(channel, version, MSGPACK, found.cut.own_row, names), location, names),
        ]

    def _spare(self, channels: Iterable[str]) -> list[BlobRow]:
        """The complete values of channels whose blobs in `references` are missing.

        A value with a new version is stored as it was when `put` was called. One without was not encoded then.
        """
        blobs: list[_Placed] = []
        for channel in channels:
            found = self._encoded.get(channel)
            if found is None:
                location = location_of_blob(self._namespace, channel, self._versions[channel])
                try:
                    found = self._codec.dumps_unsealed(self._values[channel])
                except Exception as error:
                    fail(location, error)
            blobs += self._blobs(channel, found.whole if isinstance(found, Large) else found)
        return list(work_out(seal_rows(self._codec, blobs, lambda rows: rows)))


def is_always_blob(channel: str, value: Any) -> bool:
    """Whether a value is never in a document.

    LangGraph leaves a delta snapshot out of later checkpoints, so it is found by its version. It changes the set of a
    join in place, and may do so before it calls `put` for the step that came before. A bytearray would come back as
    bytes.
    """
    kind = type(value)
    if kind is set or kind is tuple:
        return type(channel) is str and channel.startswith("join:")
    return kind in SPECIAL


def version_key(version: object) -> str:
    """A channel version as text; different versions have different texts."""
    if type(version) is str and not version.startswith("#"):
        return text("channel version", version, MAX_NAME)
    try:
        number = json.dumps(version)
    except (TypeError, ValueError):
        raise ConfigError(f"channel version must be text or a number, not {type(version).__name__}") from None
    return text("channel version", f"#{number}", MAX_NAME)
