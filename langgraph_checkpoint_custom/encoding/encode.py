"""Encodes LangGraph's checkpoints and writes as rows.

Must not know: SQL, connections.

A small value is part of the checkpoint document. A larger one is a blob, whose key has the channel and the channel
version. So most checkpoints are one row that needs no other row, and a put does not store a large unchanged value
again. A value that changes with every superstep is part of the document until it is large enough for chunks. A value
whose version has not changed is stored as it was at that version: one in the parent's document as it is there, if that
is known (`recent.py`). So if a node changes a list in place, later checkpoints do not get the change.

The common case is `_one_row`: all values are inline. `_Rows` handles everything that `_one_row` does not, and its
errors name the value. Where both can encode a checkpoint, they store the same.

The `thread_id` key of the metadata is stored as None if it names the checkpoint's own thread, and otherwise as a list
with one item. So a thread that was copied inside the database names its new thread when it is read.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar
from uuid import UUID

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import (
    WRITES_IDX_MAP,
    ChannelVersions,
    Checkpoint,
    CheckpointMetadata,
)
from langgraph.checkpoint.serde.types import _DeltaSnapshot
from pydantic import ValidationError

from langgraph_checkpoint_custom.encoding.chunks import NAME_MARK, ChunkedValue, Known, is_still
from langgraph_checkpoint_custom.encoding.extensions import UnstorableValue
from langgraph_checkpoint_custom.encoding.inline import Room
from langgraph_checkpoint_custom.encoding.inserts import inserted, number_for
from langgraph_checkpoint_custom.encoding.known import INLINE_BYTES, KnownValues, Packed, is_short
from langgraph_checkpoint_custom.encoding.metadata import merge_metadata
from langgraph_checkpoint_custom.encoding.objects import pack, said_by
from langgraph_checkpoint_custom.encoding.serde import MSGPACK
from langgraph_checkpoint_custom.encoding.values import Large, Stored, Values
from langgraph_checkpoint_custom.engine.operation import OFFLOAD_BYTES, Offload, done
from langgraph_checkpoint_custom.errors import CheckpointEncodeError, ConfigError
from langgraph_checkpoint_custom.model.filter import project
from langgraph_checkpoint_custom.model.keys import (
    MAX_ID,
    MAX_NAME,
    BlobRef,
    BlobRow,
    CheckpointRow,
    Key,
    Location,
    WriteRow,
    channel_text,
    claim_of,
    location_of_blob,
    location_of_checkpoint,
    location_of_metadata,
    location_of_write,
    own_key_of,
    text,
)

# Types that a graph cannot change in place.
_SCALARS = frozenset({int, float, bool, type(None)})
_NUMBERS = frozenset({int, float})
# Types that are encoded alone. LangGraph leaves out a delta snapshot until the next one, so it is found by its version.
# A bytearray inside the document would come back as bytes.
_BY_ITSELF = frozenset({_DeltaSnapshot, bytearray})

T = TypeVar("T")


class Encoded(NamedTuple):
    """A checkpoint ready to be stored.

    Attributes:
        row: The row of the checkpoint.
        blobs: The new values, and their new chunks.
        references: The stored blobs that the checkpoint refers to or shares chunks with; see `BlobRef`.
        replayed: The `DeltaChannel`s that are rebuilt from the parent and its ancestors.
        spare: Encodes the values of channels again whose blobs in `references` turn out to be missing.
        claim: The token of the claim that must be held, if any.
        known: The values of this checkpoint, for the next one to reuse.
    """

    row: CheckpointRow
    blobs: Sequence[BlobRow]
    references: Sequence[BlobRef]
    replayed: Sequence[str]
    spare: Callable[[Iterable[str]], list[BlobRow]]
    claim: str | None
    known: KnownValues

    @property
    def is_one_row(self) -> bool:
        """Whether it is one row that needs no other row, except the parent if it has `replayed`."""
        return not (self.blobs or self.references or self.claim)

    def row_with(self, optional: Collection[str]) -> CheckpointRow:
        """The row with the blobs of those `references` that may be missing and were found, for these channels."""
        found = [ref for ref in self.references if ref.channel in optional and not ref.required]
        return self.row._replace(
            blob_channels=[*self.row.blob_channels, *(ref.channel for ref in found)],
            blob_versions=[*self.row.blob_versions, *(ref.version for ref in found)],
        )

    def without(self, lost: Sequence[str]) -> Encoded:
        """The same checkpoint with the complete values of these channels, because their `references` are missing."""
        return self._replace(
            blobs=[*(blob for blob in self.blobs if blob.channel not in lost), *self.spare(lost)],
            references=[ref for ref in self.references if ref.channel not in lost],
            known=self.known.without(lost),
        )


def encode_checkpoint(
    codec: Values,
    parent: Key,
    config: RunnableConfig,
    checkpoint: Checkpoint,
    metadata: CheckpointMetadata,
    new_versions: ChannelVersions,
    before: KnownValues | None = None,
) -> Encoded | Offload:
    """Encode a checkpoint, with the values of the channels in `new_versions`.

    Args:
        codec: Encodes the values.
        parent: The key that the config names: thread, namespace and the id of the parent.
        config: The config that the checkpoint is put with.
        checkpoint: The checkpoint.
        metadata: Its metadata.
        new_versions: The channels whose values have changed since the parent, with their new versions.
        before: The parent's values, or None if nothing is known of them. Large values reuse its chunks.

    Returns:
        The rows. If sealing the bytes takes long, an `Offload` that does it and returns the rows; it no longer needs
        the caller's objects.
    """
    head = _Head(codec, parent, checkpoint, merge_metadata(config, metadata, codec), claim_of(config))
    inline = before.inline if before else {}
    found = _one_row(head, new_versions, before, inline) if codec.packs else None
    return found or _Rows(head, new_versions, before, inline).encoded()


class _Head(NamedTuple):
    """A checkpoint apart from its values."""

    codec: Values
    parent: Key
    checkpoint: Checkpoint
    metadata: Mapping[str, Any]
    claim: str | None

    def row(
        self,
        inline: Sequence[str],
        delta: Sequence[str],
        document: Stored,
        channels: Sequence[str] = (),
        versions: Sequence[str] = (),
    ) -> CheckpointRow:
        """Return the row of the checkpoint; `document` is unsealed."""
        codec, (thread_id, checkpoint_ns, parent_id), checkpoint, metadata, _ = self
        checkpoint_id = text("checkpoint id", checkpoint["id"], MAX_ID)
        form = checkpoint.get("v", 1)
        if type(form) is not int or not 0 <= form < 2**31:
            raise ConfigError("the checkpoint's v, the number of LangGraph's format, must be an int of 0 or more")
        root_id = None
        if checkpoint_ns:
            parents = metadata.get("parents")
            root_id = _id_or_none(parents.get("")) if isinstance(parents, Mapping) else None
        stored_metadata = metadata
        if "thread_id" in stored_metadata:
            own = stored_metadata["thread_id"]
            stored_metadata = {**stored_metadata, "thread_id": None if own == thread_id else [own]}
        if codec.is_unsealed(document):
            location = location_of_checkpoint(checkpoint_ns, checkpoint_id)
            document = _encoded(location, codec.seal, document, location)
        location = location_of_metadata(checkpoint_ns, checkpoint_id)
        return CheckpointRow(
            thread_id,
            checkpoint_ns,
            checkpoint_id,
            parent_id,
            root_id,
            run_of(metadata),
            form,
            inline,
            delta,
            channels,
            versions,
            *document,
            *_encoded(location, codec.dumps, stored_metadata, location),
            project(metadata, codec.plaintext_keys),
        )

    def delta(self) -> set[str]:
        """Return the `DeltaChannel`s that LangGraph names in the metadata."""
        counters = self.metadata.get("counters_since_delta_snapshot")
        if not counters or not isinstance(counters, Mapping):
            return set()
        return set(map(channel_text, set(counters).intersection(self.checkpoint.get("channel_versions") or {})))


def _one_row(
    head: _Head, new_versions: ChannelVersions, before: KnownValues | None, inline: Mapping[str, Packed]
) -> Encoded | None:
    """Encode a checkpoint whose values are all in the document; return None for any other."""
    codec, (_, _, parent_id), checkpoint, metadata, claim = head
    values = checkpoint.get("channel_values") or {}
    versions = checkpoint.get("channel_versions") or {}
    if (before and not before.all_inline) or not _are_plain(versions.values()):
        return None
    room = Room(new_versions, before)
    stored: dict[str, Any] = {**values}
    packed: dict[str, Packed] = {}
    for channel, value in values.items():
        kind = type(value)
        if kind in _SCALARS or ((kind is str or kind is bytes) and len(value) <= INLINE_BYTES):
            continue
        if kind in _BY_ITSELF or kind is bytes:
            return None
        found = inline.get(channel)
        if before and channel not in new_versions and channel in versions:
            if found is None or not _is_same(found.version, versions[channel]):
                return None
        else:
            if found and room.is_too_large(channel, len(found.data)):
                return None  # The new value will hardly be smaller.
            data = _packed(codec, value)
            if data is None:
                return None
            found = Packed(versions.get(channel), data)
        if not room.takes(channel, len(found.data)):
            return None
        stored[channel] = number_for(len(packed))
        packed[channel] = found
    references = []
    delta = sorted(head.delta()) if "counters_since_delta_snapshot" in metadata else []
    for channel in delta:
        if channel not in values and channel not in new_versions:
            if channel in inline:
                return None
            references.append(BlobRef(channel, version_key(versions[channel]), required=False))
    try:
        type_, document = codec.dumps_unsealed({**checkpoint, "channel_values": stored})
    except Exception:  # `_Rows` raises it again, and names the value.
        return None
    if type_ != MSGPACK:
        return None
    document = inserted(document, [each.data for each in packed.values()])
    row = head.row(list(map(channel_text, values)), delta, Stored(MSGPACK, document))
    replayed = [channel for channel in delta if channel not in values] if parent_id else ()
    known = KnownValues(b"", {}, all_inline=not references, packed=packed, changes=room.changes)
    return Encoded(row, (), references, replayed, _nothing, claim, known)


def _is_same(version: object, other: object) -> bool:
    return version == other and type(version) is type(other)


def _are_plain(versions: Collection[Any]) -> bool:
    """Whether all versions are numbers, or all are ASCII text without NUL, and so need no check one by one."""
    try:
        together = "".join(versions)
    except TypeError:
        return _NUMBERS.issuperset(map(type, versions))
    return together.isascii() and "\0" not in together


def _packed(codec: Values, value: Any) -> bytes | None:
    """Return the bytes of a value, or None if it cannot be packed."""
    try:
        type_, data = codec.dumps_unsealed(value)
    except Exception:  # `_Rows` raises it again, and names the value.
        return None
    return data if type_ == MSGPACK else None


def _nothing(_: Iterable[str]) -> list[BlobRow]:
    return []


class _Unsealed(NamedTuple):
    """An unsealed row: its number, and the location to bind it to; `names` if the row joins the chunks of a value."""

    number: int
    location: Location
    names: str | None = None


class _Rows:
    """Builds the rows of a checkpoint, and decides for each value between document, blob and chunks."""

    def __init__(
        self, head: _Head, new_versions: ChannelVersions, before: KnownValues | None, inline: Mapping[str, Packed]
    ) -> None:
        self._head = head
        self._codec = head.codec
        self._namespace = head.parent.checkpoint_ns
        # Copies, because `_spare` may need the values after the graph has replaced them.
        self._values = dict(head.checkpoint.get("channel_values") or {})
        self._versions = dict(head.checkpoint.get("channel_versions") or {})
        self._new = new_versions
        self._before = before
        self._inline = inline
        self._delta = head.delta()
        self._room = Room(new_versions, before)
        self._short: dict[str, Any] = {}
        self._packed: dict[str, Packed] = {}
        self._large: dict[str, Known] = {}
        self._references: list[BlobRef] = []

    def encoded(self) -> Encoded | Offload:
        """Return the rows, or an `Offload` that seals them and returns them if that takes long."""
        head, values = self._head, self._values
        blobs: list[BlobRow] = []
        unsealed: list[_Unsealed] = []
        for channel, value in values.items():
            if channel not in self._versions:  # Without a version it cannot be a blob.
                self._short[channel_text(channel)] = value
            elif is_short(value):
                self._short[channel] = value
        for channel, version in self._versions.items():
            channel_text(channel)
            version_key(version)
        for channel in sorted(self._versions):
            if channel not in self._short:
                self._add(blobs, unsealed, channel)
        location = location_of_checkpoint(self._namespace, text("checkpoint id", head.checkpoint["id"], MAX_ID))
        document = _encoded(location, self._document)
        replayed = sorted(self._delta.difference(values)) if head.parent.checkpoint_id else []
        delta = self._delta.union([name for name, value in values.items() if isinstance(value, _DeltaSnapshot)])
        named = [blob[:2] for blob in blobs if not blob.version.startswith(NAME_MARK)]
        named += [ref[:2] for ref in self._references if ref.required and not ref.begins]
        channels, versions = zip(*named, strict=True) if named else ((), ())
        row = head.row([*self._short, *self._packed], sorted(delta), document, channels, versions)
        all_inline = not (blobs or self._references)
        changes = self._room.changes
        known = KnownValues(b"", self._large, all_inline=all_inline, packed=self._packed, changes=changes)

        def complete(rows: list[BlobRow]) -> Encoded:
            return Encoded(row, rows, self._references, replayed, self._spare, head.claim, known)

        return _sealed(self._codec, blobs, unsealed, complete)

    def _document(self) -> Stored:
        """Encode the document without sealing it."""
        codec, checkpoint = self._codec, self._head.checkpoint
        numbers = {channel: number_for(position) for position, channel in enumerate(self._packed)}
        type_, document = stored = codec.dumps_unsealed({**checkpoint, "channel_values": {**self._short, **numbers}})
        if not numbers:
            return stored
        if type_ == MSGPACK:
            return Stored(MSGPACK, inserted(document, [each.data for each in self._packed.values()]))
        made = {  # The serializer has pickled the document.
            channel: codec.unpack(each.data) if each is self._inline.get(channel) else self._values[channel]
            for channel, each in self._packed.items()
        }
        return codec.dumps_unsealed({**checkpoint, "channel_values": {**self._short, **made}})

    def _add(self, blobs: list[BlobRow], unsealed: list[_Unsealed], channel: str) -> None:
        """Decide where the value of a channel is stored, and add its rows if they are new."""
        values, version = self._values, self._versions[channel]
        shared = self._before.large.get(channel) if self._before else None
        if channel in self._new:
            if channel in values:
                self._store(blobs, unsealed, channel, self._encode(channel, shared))
                if isinstance(shared, ChunkedValue) and isinstance(self._large.get(channel), ChunkedValue):
                    self._references.append(BlobRef(channel, shared.version, required=True, begins=shared.begins))
        elif (known := self._inline.get(channel)) and _is_same(known.version, version):
            if channel in values or channel in self._delta:
                self._store(blobs, unsealed, channel, Stored(MSGPACK, known.data), known)
        elif self._before is None and self._codec.packs and channel in values and self._is_small(channel):
            return  # It may be in a blob already, but it is small now.
        elif channel in values or channel in self._delta:
            self._references.append(BlobRef(channel, version_key(version), required=channel in values))
            if shared and shared.version == self._references[-1].version:
                self._large[channel] = shared

    def _encode(self, channel: str, shared: Known | None = None) -> Stored | Large:
        location = location_of_blob(self._namespace, channel, version_key(self._versions[channel]))
        return _encoded(location, self._codec.dumps_blob, self._values[channel], location, shared)

    def _is_small(self, channel: str) -> bool:
        return self._takes(channel, self._encode(channel))

    def _takes(self, channel: str, found: Stored | Large, known: Packed | None = None) -> bool:
        """Add a value to the document if that has room for it; returns whether it has. `known` is an unchanged one."""
        if isinstance(found, Large) or found.type != MSGPACK or not self._codec.packs:
            return False
        if isinstance(self._values.get(channel), _DeltaSnapshot):  # Later checkpoints omit it and find it by version.
            return False
        if not self._room.takes(channel, len(found.value)):
            return False
        self._packed[channel] = known or Packed(self._versions[channel], found.value)
        return True

    def _store(
        self,
        blobs: list[BlobRow],
        unsealed: list[_Unsealed],
        channel: str,
        found: Stored | Large,
        known: Packed | None = None,
    ) -> None:
        """Add a value to the document, or rows for it; `known` is an unchanged one from the parent's document."""
        if not self._takes(channel, found, known):
            self._store_apart(blobs, unsealed, channel, found)

    def _store_apart(
        self, blobs: list[BlobRow], unsealed: list[_Unsealed], channel: str, found: Stored | Large
    ) -> None:
        version = version_key(self._versions[channel])
        location = location_of_blob(self._namespace, channel, version)
        stored = found if isinstance(found, Stored) else found.own_row
        names = None
        if isinstance(found, Large):
            self._large[channel] = found.known
            names = found.names
            for name, chunk in found.new.items():
                if self._codec.is_unsealed(chunk):
                    unsealed.append(_Unsealed(len(blobs), (*location[:-1], name)))
                blobs.append(BlobRow(channel, name, *chunk))
        if names or self._codec.is_unsealed(stored):
            unsealed.append(_Unsealed(len(blobs), location, names))
        blobs.append(BlobRow(channel, version, *stored, names))

    def _spare(self, channels: Iterable[str]) -> list[BlobRow]:
        """Encode the values of channels whose blobs in `references` are missing."""
        blobs: list[BlobRow] = []
        unsealed: list[_Unsealed] = []
        for channel in channels:
            known, value = self._large.get(channel), self._values[channel]
            location = location_of_blob(self._namespace, channel, version_key(self._versions[channel]))
            is_chunked = channel in self._new and isinstance(known, ChunkedValue)
            if is_chunked and not _encoded(location, is_still, known, value, pack):
                raise CheckpointEncodeError(
                    f"channel {channel!r} was changed in place while it was being stored, and the chunks it shares "
                    "with the previous checkpoint were deleted concurrently; nothing was stored"
                )
            self._store_apart(blobs, unsealed, channel, self._encode(channel))
        return done(_sealed(self._codec, blobs, unsealed, lambda blobs: blobs))


Rows = TypeVar("Rows", list[BlobRow], list[WriteRow])


def _sealed(codec: Values, rows: Rows, unsealed: Sequence[_Unsealed], then: Callable[[Rows], T]) -> T | Offload:
    """Seal the rows that need it and return what `then` makes of all rows; if sealing takes long, return an `Offload`.

    `unsealed` names the rows to seal.
    """
    if not unsealed:
        return then(rows)

    def seal() -> T:
        sealed = rows.copy()
        for number, location, names in unsealed:
            row = rows[number]
            type_, value = _encoded(location, codec.seal, Stored(row.type, row.value), location, names)
            sealed[number] = row._replace(type=type_, value=value)
        return then(sealed)

    size = sum(len(rows[each.number].value) for each in unsealed)
    return seal() if size < OFFLOAD_BYTES else Offload(size, seal)


def _thing_at(location: Location) -> str:
    """Describe what is stored at a location, for an error."""
    if location[0] == "blob":
        return f"the value of channel {location[2]!r}"
    return f"the write to channel {location[5]!r}" if location[0] == "write" else f"the {location[0]}"


def _id_or_none(value: object) -> str | None:
    """An id from metadata, or None if it cannot be part of a key: metadata must not make a superstep fail."""
    try:
        return text("id", value, MAX_ID) if value else None
    except ConfigError:
        return None


def run_of(metadata: Mapping[str, Any]) -> str | None:
    """The run that metadata names."""
    run_id = metadata.get("run_id")
    return _id_or_none(str(run_id) if isinstance(run_id, UUID) else run_id)


def _run_of_config(config: RunnableConfig) -> str | None:
    """The run that the metadata of a checkpoint put with this config would name."""
    for part in (config.get("metadata"), config.get("configurable")):
        run_id = part.get("run_id") if part else None
        if isinstance(run_id, (str, int, float)):
            return run_of({"run_id": run_id})
    return None


class EncodedWrites(NamedTuple):
    """The outputs of a task ready to be stored, and the token of the claim that must be held, if any."""

    key: Key
    rows: Sequence[WriteRow]
    claim: str | None


def encode_writes(
    codec: Values, config: RunnableConfig, writes: Sequence[tuple[str, Any]], task_id: str, task_path: str
) -> EncodedWrites | Offload:
    """Encode the outputs of a task; returns an `Offload` if sealing takes long, as `encode_checkpoint` does."""
    key = own_key_of(config)
    if key.checkpoint_id is None:
        raise ConfigError("put_writes needs the checkpoint_id that the writes belong to in its config")
    task_id = text("task_id", task_id, MAX_ID)
    task_path = text("task_path", task_path, MAX_NAME)
    return encode_rows(codec, key, writes, task_id, task_path, _run_of_config(config), claim_of(config))


def encode_rows(
    codec: Values,
    key: Key,
    writes: Sequence[tuple[str, Any]],
    task_id: str,
    task_path: str,
    run_id: str | None,
    claim: str | None = None,
) -> EncodedWrites | Offload:
    """Encode writes; of several special writes to one channel, the last one is stored."""
    rows: dict[int, WriteRow] = {}
    locations: dict[int, Location] = {}  # Of the rows to seal.
    for position, (channel, value) in enumerate(writes):
        idx = WRITES_IDX_MAP.get(channel, position)
        channel = channel_text(channel)
        location = location_of_write(key.checkpoint_ns, key.checkpoint_id or "", task_id, idx, channel)
        stored = _encoded(location, codec.dumps_unsealed, value)
        rows[idx] = WriteRow(channel, task_id, task_path, run_id, idx, *stored)
        if codec.is_unsealed(stored):
            locations[idx] = location
        elif locations:
            locations.pop(idx, None)
    unsealed = (
        [_Unsealed(number, locations[idx]) for number, idx in enumerate(rows) if idx in locations] if locations else []
    )
    return _sealed(codec, list(rows.values()), unsealed, lambda rows: EncodedWrites(key, rows, claim))


def version_key(version: object) -> str:
    """A channel version as text; different versions have different texts."""
    if type(version) is str and not version.startswith("#"):
        return text("channel version", version, MAX_NAME)
    try:
        number = json.dumps(version)
    except (TypeError, ValueError):
        raise ConfigError(f"channel version must be text or a number, not {type(version).__name__}") from None
    return text("channel version", f"#{number}", MAX_NAME)


def _encoded(location: Location, dumps: Callable[..., T], *args: Any) -> T:
    try:
        return dumps(*args)
    except UnstorableValue as error:
        raise CheckpointEncodeError(f"{_thing_at(location)} cannot be stored: {error}; nothing was stored") from error
    except Exception as error:
        # Errors of msgpack, and of pydantic, whose text quotes the value.
        if type(error) in (TypeError, RecursionError) or isinstance(error, ValidationError):
            raise CheckpointEncodeError(
                f"{_thing_at(location)} cannot be serialised ({said_by(error)}); nothing was stored. Make the value "
                "serialisable or pass a serde that knows it"
            ) from error
        if hasattr(error, "add_note"):  # Since Python 3.11.
            error.add_note(f"{_thing_at(location)} cannot be serialised; nothing was stored")
        raise  # As LangGraph does: the author of the serializer or of the class knows its errors.
