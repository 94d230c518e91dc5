"""A checkpoint ready to be stored. The larger values of a large one are blobs, to which later ones refer by version.

Must not know: SQL, connections.

A small value is part of the document, as it is when `put` is called. A larger one is a blob. An unchanged value is not
stored again: what the parent's row names as a blob at the channel's version is what this checkpoint refers to, whatever
the object is now. So the values depend on the graph and on what is stored already, never on what a saver happens to
remember (only whether a value is in chunks does): if nothing is known of the parent, all values are encoded, and its
row is read before they are stored.

`encode_large` encodes everything: the values that are too large for the document, and the document. From that,
`LargeCheckpoint.on_parent` makes the rows: at once if the parent is known, and again if blobs of it are missing.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, NamedTuple

from langgraph.checkpoint.base import ChannelVersions, Checkpoint

from langgraph_checkpoint_custom.encoding.chunks import NO_BLOBS, KnownBlobs, KnownValue, cut
from langgraph_checkpoint_custom.encoding.langgraph_private import DeltaSnapshot
from langgraph_checkpoint_custom.encoding.objects import is_unicode
from langgraph_checkpoint_custom.encoding.raw import Raw
from langgraph_checkpoint_custom.encoding.rows import PlacedRow, deltas_of, fail, row_of, seal_rows, version_keys
from langgraph_checkpoint_custom.encoding.serde import MSGPACK, PICKLE
from langgraph_checkpoint_custom.encoding.values import CHUNKED, TypedBytes, ValueCodec
from langgraph_checkpoint_custom.engine.operation import Offload
from langgraph_checkpoint_custom.model.keys import (
    MAX_ID,
    BlobRef,
    BlobRow,
    CheckpointRow,
    Key,
    channel_texts,
    location_of_blob,
    location_of_checkpoint,
    text,
)

# Bytes of the largest encoded value in the document of a large checkpoint. Such a value is stored again with every
# superstep.
SMALL_VALUE = 1_024
# The number of values that are encoded one by one before several are measured together: one call for each would take
# longer than encoding small ones. A large value among them is encoded twice.
FEW = 16
# The largest text or bytes that are part of the document with any serializer, in characters or bytes.
INLINE_BYTES = 256
# Types of values that may be a blob in a small document, too; see `is_always_blob`.
SPECIAL = frozenset({DeltaSnapshot, Raw, bytearray, set, tuple})


def is_short(value: Any) -> bool:
    """Whether a value is part of the document with any serializer. No such value can be changed in place."""
    kind = type(value)
    if kind is str:
        return len(value) <= INLINE_BYTES and (value.isascii() or is_unicode(value))
    if kind is int:
        return bool(-(2**63) <= value < 2**64)  # Not every serializer can encode larger ones.
    return value is None or kind is bool or kind is float or (kind is bytes and len(value) <= INLINE_BYTES)


def is_always_blob(channel: str, value: Any) -> bool:
    """Whether a value is never in a document.

    LangGraph leaves a delta snapshot out of later checkpoints, so it is found by its version. It changes the set of a
    join in place, and may do so before it calls `put` for the step that came before. A bytearray would come back as
    bytes. A value that was not decoded has a type of its own, such as pickle.
    """
    kind = type(value)
    if kind is set or kind is tuple:
        return type(channel) is str and channel.startswith("join:")
    return kind in SPECIAL


class Encoded(NamedTuple):
    """A checkpoint ready to be stored.

    Attributes:
        row: The row of the checkpoint.
        claim: The token of the claim that must be held, if any.
        replayed: The `DeltaChannel`s that are rebuilt from the parent and its ancestors.
        references: The stored blobs that the checkpoint refers to or shares chunks with; see `BlobRef`.
        blobs: The values that are not in the document, and their new chunks. A blob that is stored already stays.
        known: The blobs of a large checkpoint, for the next one; None if all values are in the document.
        large: What the rows of a large checkpoint are made of.
        parent: The parent's blobs that the rows were made for; None if they have to be read, and the rows made, first.
    """

    row: CheckpointRow
    claim: str | None = None
    replayed: Sequence[str] = ()
    references: Sequence[BlobRef] = ()
    blobs: Sequence[BlobRow] = ()
    known: KnownBlobs | None = None
    large: LargeCheckpoint | None = None
    parent: KnownBlobs | None = NO_BLOBS

    @property
    def is_unfinished(self) -> bool:
        """Whether `on_parent` has to make the rows before they are stored."""
        return self.parent is None

    @property
    def needs_no_row(self) -> bool:
        """Whether it is one row that needs no other row."""
        return not (self.blobs or self.references or self.claim or self.replayed or self.parent is None)

    def row_naming(self, optional: Collection[str]) -> CheckpointRow:
        """The row with the blobs of those `references` that may be missing and were found, for these channels."""
        found = [ref for ref in self.references if ref.channel in optional and not ref.required]
        return self.row._replace(
            blob_channels=[*self.row.blob_channels, *(ref.channel for ref in found)],
            blob_versions=[*self.row.blob_versions, *(ref.version for ref in found)],
        )

    def on_parent(self, blobs: Mapping[str, str]) -> Encoded | Offload:
        """Return the checkpoint, given the versions of its parent's blobs by channel."""
        assert self.large is not None
        return self.large.on_parent(KnownBlobs(blobs, {}))

    def without(self, lost: Collection[str]) -> Encoded | Offload:
        """Return the checkpoint with the complete values of these channels, because their blobs are missing."""
        assert self.large is not None  # Only a large checkpoint refers to blobs.
        return self.large.on_parent((self.parent or NO_BLOBS).without(lost))


class LargeCheckpoint(NamedTuple):
    """A checkpoint whose document does not have all values, encoded. Its rows depend on the blobs of its parent.

    Attributes:
        codec: What has encoded it.
        row: Its row, without the names of blobs. The channels that it names are those of the document.
        claim: As in `Encoded`.
        replayed: As in `Encoded`.
        snapshots: The references to delta snapshots that may be stored already.
        versions: The versions of the values that may be blobs, by channel.
        new: Those of these channels that have a new version.
        encoded: The values that are neither in the document nor in `unchanged`.
        unchanged: The objects of the values that a known parent names as blobs of these versions.
    """

    codec: ValueCodec
    row: CheckpointRow
    claim: str | None
    replayed: Sequence[str]
    snapshots: Sequence[BlobRef]
    versions: Mapping[str, str]
    new: Collection[str]
    encoded: Mapping[str, TypedBytes]
    unchanged: Mapping[str, Any]

    def on_parent(self, parent: KnownBlobs) -> Encoded | Offload:
        """Return the checkpoint, given the blobs of its parent that exist.

        All values are stored as they were when `put` was called, except those of `unchanged` whose blobs turn out to be
        missing: they are encoded now.

        If sealing the blobs takes long, it returns an `Offload` that does it.
        """
        stored = {
            channel: version
            for channel, version in self.versions.items()
            if channel not in self.new and parent.versions.get(channel) == version
        }
        named = dict(stored)
        references = [*self.snapshots, *(BlobRef(*each, required=True) for each in stored.items())]
        large = {channel: known for channel, known in parent.large.items() if stored.get(channel) == known.version}
        blobs: list[BlobRow] = []
        for channel in (*self.encoded, *self.unchanged):
            if channel in stored:
                continue
            version = named[channel] = self.versions[channel]
            type_, data = self.encoded.get(channel) or self._encode_now(channel)
            if channel not in self.new or not self.codec.is_splittable(type_, data):
                blobs.append(BlobRow(channel, version, type_, data))
            elif (before := parent.large.get(channel)) and (chunked := cut(data, version, before)):
                blobs += [BlobRow(channel, name, MSGPACK, piece) for name, piece in chunked.new]
                blobs.append(BlobRow(channel, version, MSGPACK, chunked.own_row, chunked.value.names))
                large[channel] = chunked.value
                if before.chunks:
                    references.append(BlobRef(channel, before.version, required=True, begins=before.begins))
            else:
                blobs.append(BlobRow(channel, version, type_, data))
                large[channel] = KnownValue(version, whole=data)
        row = self.row
        if named:
            inline = [channel for channel in row.inline_channels if channel not in named]
            row = row._replace(inline_channels=inline, blob_channels=list(named), blob_versions=list(named.values()))

        def complete(rows: Sequence[BlobRow]) -> Encoded:
            known = KnownBlobs(named, large)
            return Encoded(row, self.claim, self.replayed, references, rows, known, self, parent)

        return seal_rows(self.codec, [_placed(row.checkpoint_ns, blob) for blob in blobs], complete)

    def _encode_now(self, channel: str) -> TypedBytes:
        return _encode(self.codec, self.row.checkpoint_ns, channel, self.versions[channel], self.unchanged[channel])


def encode_large(
    codec: ValueCodec,
    parent: Key,
    checkpoint: Checkpoint,
    metadata: Mapping[str, Any],
    new_versions: ChannelVersions,
    before: KnownBlobs | None,
    claim: str | None,
) -> Encoded | Offload:
    """Encode a checkpoint whose document does not have all values.

    The arguments and the result are those of `encode_checkpoint`, with the merged metadata and the token of the claim.
    """
    location = location_of_checkpoint(parent.checkpoint_ns, text("checkpoint id", checkpoint["id"], MAX_ID))
    values, versions = checkpoint["channel_values"], version_keys(checkpoint.get("channel_versions") or {})
    channel_texts(tuple(values))

    def may_be_stored(channel: str) -> bool:
        return channel not in new_versions and not is_short(values[channel])

    unchanged = {
        channel: values[channel]
        for channel, version in (before.versions if before else {}).items()
        if channel in values and versions.get(channel) == version and may_be_stored(channel)
    }
    # A value without a version cannot be a blob.
    movable = {channel: value for channel, value in values.items() if channel in versions and channel not in unchanged}

    def encode(channel: str) -> TypedBytes:
        return _encode(codec, parent.checkpoint_ns, channel, versions[channel], movable[channel])

    encoded = _too_large(codec, movable, encode)
    while True:
        inline = _without(values, unchanged.keys() | encoded.keys())
        try:
            document = codec.dumps({**checkpoint, "channel_values": inline}, location)
            break
        except Exception as error:
            if not codec.packs or len(encoded) == len(movable):
                fail(location, error)
            # Alone, a value may be nested more deeply, and an error names its channel.
            encoded = {channel: encode(channel) for channel in movable}
    delta, replayed, snapshots = deltas_of(parent, checkpoint, metadata, new_versions)
    blobs_of_deltas = [channel for channel in (*unchanged, *encoded) if type(values[channel]) is DeltaSnapshot]
    row = row_of(codec, parent, checkpoint, metadata, document, tuple(inline), sorted({*delta, *blobs_of_deltas}))
    is_unknown = before is None and parent.checkpoint_id is not None
    asked = list(filter(may_be_stored, movable)) if is_unknown else []
    of_blobs = {channel: versions[channel] for channel in (*unchanged, *encoded, *asked)}
    new = of_blobs.keys() & new_versions.keys()
    large = LargeCheckpoint(codec, row, claim, replayed, snapshots, of_blobs, new, encoded, unchanged)
    return Encoded(row, claim, replayed, large=large, parent=None) if asked else large.on_parent(before or NO_BLOBS)


def _without(values: Mapping[str, Any], channels: Collection[str]) -> dict[str, Any]:
    found = dict(values)
    for channel in channels:
        del found[channel]
    return found


def _too_large(
    codec: ValueCodec, values: Mapping[str, Any], encode: Callable[[str], TypedBytes]
) -> Mapping[str, TypedBytes]:
    """Encode values, and return those that are not for the document: the larger ones, and those that are always blobs.

    With LangGraph's serializer, small values are encoded to see that they are small, many of them at once.
    """
    if not codec.packs:
        return {channel: encode(channel) for channel, value in values.items() if not is_short(value)}
    found: dict[str, TypedBytes] = {}
    channels, objects = list(values), list(values.values())
    at = size = 0
    while at < len(channels):
        # As many as would fill half of the limit if they are like those before.
        number = max(SMALL_VALUE // 2 * at // max(size, 1), 1) if at >= FEW else 1
        together = _size_of(codec, objects[at : at + number]) if number > 1 else math.inf
        if together <= SMALL_VALUE:
            size += int(together)
        else:
            for channel in channels[at : at + number]:
                type_, data = encode(channel)
                size += len(data)
                is_large = len(data) > SMALL_VALUE and not is_short(values[channel])
                if is_large or type_ == PICKLE or is_always_blob(channel, values[channel]):
                    found[channel] = type_, data
        at += number
    return found


def _size_of(codec: ValueCodec, values: Sequence[Any]) -> float:
    """The bytes of several values in msgpack; infinity if each of them has to be looked at."""
    if not SPECIAL.isdisjoint(map(type, values)):
        return math.inf
    try:
        return len(codec.pack(values))  # Not `encode`: if one cannot be pickled, none would be.
    except Exception:  # Encoding each of them raises an error with its channel.
        return math.inf


def _encode(codec: ValueCodec, checkpoint_ns: str, channel: str, version: str, value: Any) -> TypedBytes:
    try:
        return codec.encode(value)
    except Exception as error:
        fail(location_of_blob(checkpoint_ns, channel, version), error)


def _placed(checkpoint_ns: str, row: BlobRow) -> PlacedRow[BlobRow]:
    """A row and its location; the names of chunks are part of it."""
    location = location_of_blob(checkpoint_ns, row.channel, row.version)
    return (row, location, "") if row.chunks is None else (row, (*location, row.chunks), CHUNKED)
