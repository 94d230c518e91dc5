"""A checkpoint ready to be stored. The larger values of a large one are blobs, to which later ones refer by version.

Must not know: SQL, connections.

A small value is part of the document, as it is when `put` is called. A larger one is a blob. An unchanged value is not
stored again: what the parent's row names as a blob at the channel's version is what this checkpoint refers to, whatever
the object is now. So the values depend on the graph and on what is stored already, never on what a saver happens to
remember (only whether a value is in chunks does): if nothing is known of the parent, all values are encoded, and its
row is read before they are stored.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, NamedTuple

from langgraph.checkpoint.base import ChannelVersions, Checkpoint

from langgraph_checkpoint_custom.encoding.chunks import KnownBlobs, KnownValue, cut
from langgraph_checkpoint_custom.encoding.extensions import unpack_plain
from langgraph_checkpoint_custom.encoding.langgraph_private import DeltaSnapshot
from langgraph_checkpoint_custom.encoding.objects import is_unicode
from langgraph_checkpoint_custom.encoding.rows import PlacedRow, deltas_of, fail, row_of, seal_rows, version_key
from langgraph_checkpoint_custom.encoding.serde import MSGPACK
from langgraph_checkpoint_custom.encoding.values import CHUNKED, TypedBytes, ValueCodec
from langgraph_checkpoint_custom.engine.operation import Offload
from langgraph_checkpoint_custom.model.keys import (
    MAX_ID,
    BlobRef,
    BlobRow,
    CheckpointRow,
    Key,
    channel_text,
    location_of_blob,
    location_of_checkpoint,
    text,
)

try:
    from ormsgpack import Fragment
except ImportError:  # Python 3.10 has an older ormsgpack, which packs the parts again: to the same bytes.
    Fragment = unpack_plain  # type: ignore[assignment, misc]

# Bytes of the largest encoded value in the document of a large checkpoint. Such a value is stored again with every
# superstep.
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


class Encoded(NamedTuple):
    """A checkpoint ready to be stored.

    Attributes:
        row: The row of the checkpoint.
        claim: The token of the claim that must be held, if any.
        replayed: The `DeltaChannel`s that are rebuilt from the parent and its ancestors.
        references: The stored blobs that the checkpoint refers to or shares chunks with; see `BlobRef`.
        blobs: The values that are not in the document, and their new chunks. A blob that is stored already stays.
        known: The blobs of a large checkpoint, for the next one; None if all values are in the document.
        large: What makes the rows of a large checkpoint again, if blobs in `references` are missing.
        needs_parent: Whether `large` has to make them first, given the parent's blobs.
    """

    row: CheckpointRow
    claim: str | None = None
    replayed: Sequence[str] = ()
    references: Sequence[BlobRef] = ()
    blobs: Sequence[BlobRow] = ()
    known: KnownBlobs | None = None
    large: LargeCheckpoint | None = None
    needs_parent: bool = False

    @property
    def is_one_row(self) -> bool:
        """Whether it is one row that needs no other row, except the parent if it has `replayed`."""
        return not (self.blobs or self.references or self.claim or self.needs_parent)

    @property
    def needs_no_row(self) -> bool:
        """Whether it is one row that needs no other row."""
        return self.is_one_row and not self.replayed

    def row_naming(self, optional: Collection[str]) -> CheckpointRow:
        """The row with the blobs of those `references` that may be missing and were found, for these channels."""
        found = [ref for ref in self.references if ref.channel in optional and not ref.required]
        return self.row._replace(
            blob_channels=[*self.row.blob_channels, *(ref.channel for ref in found)],
            blob_versions=[*self.row.blob_versions, *(ref.version for ref in found)],
        )


class LargeCheckpoint:
    """The values of a checkpoint whose document does not have them all, and the rows that are made of them.

    The document and the new values are encoded at once. Later, the graph may have changed them.
    """

    def __init__(
        self,
        codec: ValueCodec,
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
        self._versions: dict[str, str] = {}  # Of the values that may be blobs.
        self._inline: dict[str, Any] = {}
        self._encoded: dict[str, TypedBytes] = {}
        versions = checkpoint.get("channel_versions") or {}
        stored = before.versions if before else {}
        for channel, value in self._values.items():
            channel_text(channel)
            if is_short(value):
                self._inline[channel] = value
            elif channel not in versions:  # Without a version it cannot be a blob.
                self._inline[channel] = self._part(value)
            else:
                version = self._versions[channel] = version_key(versions[channel])
                if channel in self._new or stored.get(channel) != version:
                    self._encoded[channel] = self._encode(channel)
        delta, self._replayed, self._snapshots = deltas_of(parent, checkpoint, metadata, new_versions)
        snapshots = [channel for channel, value in self._values.items() if type(value) is DeltaSnapshot]
        self._head = {key: self._part(value) for key, value in checkpoint.items() if key != "channel_values"}
        # The document of LangGraph's own serializer is packed from its encoded parts, once it is known which they are.
        document = (MSGPACK, b"") if codec.packs else self._document(self._inline)
        self._row = row_of(codec, parent, checkpoint, metadata, document, (), sorted({*delta, *snapshots}))
        self._stored: Mapping[str, str] = stored
        self._lost: set[str] = set()

    def encoded(self) -> Encoded | Offload:
        """Return the checkpoint; without its blobs if the parent is not known, whose row decides about them."""
        has_unchanged = not self._versions.keys() <= self._new
        if self._before is None and self._row.parent_id is not None and has_unchanged:
            return Encoded(self._row, self._claim, large=self, needs_parent=True)
        return self.finish(self._stored)

    def without(self, lost: Collection[str]) -> Encoded | Offload:
        """Return the checkpoint with the complete values of these channels, because their blobs are missing.

        A value with a new version is stored as it was when `put` was called. One without is encoded now, because its
        blob was deleted since.
        """
        self._lost.update(lost)
        return self.finish(self._stored)

    def finish(self, stored: Mapping[str, str]) -> Encoded | Offload:
        """Return the checkpoint, given the versions of the parent's blobs by channel.

        If sealing the blobs takes long, it returns an `Offload` that does it.
        """
        codec, self._stored = self._codec, stored
        references, inline = list(self._snapshots), dict(self._inline)
        named: dict[str, str] = {}
        large: dict[str, KnownValue] = {}
        blobs: list[PlacedRow[BlobRow]] = []
        for channel, version in self._versions.items():
            is_new, is_lost = channel in self._new, channel in self._lost
            known = self._before.large.get(channel) if self._before and not is_lost else None
            if not is_new and not is_lost and stored.get(channel) == version:
                named[channel] = version
                references.append(BlobRef(channel, version, required=True))
                if known and known.version == version:
                    large[channel] = known
                continue
            type_, data = self._encoded.get(channel) or self._encode(channel)
            if len(data) <= SMALL_VALUE and self._may_be_inline(channel, type_):
                inline[channel] = Fragment(data)
                continue
            named[channel] = version
            is_large = is_new and codec.is_large(type_, data)
            if chunked := cut(data, version, known) if is_large and known else None:
                large[channel] = chunked.value
                blobs += [self._placed(BlobRow(channel, name, MSGPACK, piece)) for name, piece in chunked.new]
                blobs.append(self._placed(BlobRow(channel, version, MSGPACK, chunked.own_row, chunked.value.names)))
                if known and known.chunks:
                    references.append(BlobRef(channel, known.version, required=True, begins=known.begins))
                continue
            blobs.append(self._placed(BlobRow(channel, version, type_, data)))
            if is_large:
                large[channel] = KnownValue(version, whole=data)
        row = self._row._replace(
            inline_channels=list(inline), blob_channels=list(named), blob_versions=list(named.values())
        )
        if codec.packs:
            type_, document = self._document(inline)
            row = row._replace(checkpoint_type=type_, checkpoint=document)

        def complete(rows: Sequence[BlobRow]) -> Encoded:
            return Encoded(row, self._claim, self._replayed, references, rows, KnownBlobs(named, large), self)

        return seal_rows(codec, blobs, complete)

    def _may_be_inline(self, channel: str, type_: str) -> bool:
        """Whether a small value is part of the document."""
        return type_ == MSGPACK and self._codec.packs and not is_always_blob(channel, self._values[channel])

    def _placed(self, row: BlobRow) -> PlacedRow[BlobRow]:
        """A row and its location; the names of chunks are part of it."""
        location = location_of_blob(self._namespace, row.channel, row.version)
        return (row, location, "") if row.chunks is None else (row, (*location, row.chunks), CHUNKED)

    def _encode(self, channel: str) -> TypedBytes:
        try:
            return self._codec.encode(self._values[channel])
        except Exception as error:
            fail(location_of_blob(self._namespace, channel, self._versions[channel]), error)

    def _part(self, value: Any) -> Any:
        """Return a part of the document, encoded if the document is encoded later."""
        if not self._codec.packs:
            return value
        try:
            return Fragment(self._codec.pack(value))
        except Exception as error:
            fail(self._location, error)

    def _document(self, inline: Mapping[str, Any]) -> TypedBytes:
        """Encode and seal the document."""
        try:
            return self._codec.dumps({**self._head, "channel_values": inline}, self._location)
        except Exception as error:
            fail(self._location, error)
