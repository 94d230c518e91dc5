"""Decodes the bytes of rows into LangGraph's objects, and builds the error if they cannot be decoded.

Must not know: SQL, connections.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, NoReturn, Protocol

from langgraph.checkpoint.base import PendingWrite
from pydantic import ValidationError

from langgraph_checkpoint_custom.encoding.chunks import Chunk, KnownBlobs, KnownValue, join
from langgraph_checkpoint_custom.encoding.extensions import UnreadableValue, unpack_plain
from langgraph_checkpoint_custom.encoding.objects import error_text, pack
from langgraph_checkpoint_custom.encoding.serde import MSGPACK
from langgraph_checkpoint_custom.encoding.values import CHUNKED, TypedBytes, ValueCodec
from langgraph_checkpoint_custom.errors import CorruptCheckpoint
from langgraph_checkpoint_custom.model.keys import (
    Location,
    TupleRow,
    location_of_blob,
    location_of_checkpoint,
    location_of_metadata,
    location_of_write,
)


class StoredBlob(Protocol):
    """The row of a blob, see `TupleRow`."""

    @property
    def name(self) -> str | None: ...
    @property
    def key(self) -> str | None: ...
    @property
    def path(self) -> str | None: ...
    @property
    def type(self) -> str | None: ...
    @property
    def value(self) -> bytes | None: ...


class Decoder:
    """Decodes the stored values of one checkpoint; its errors name the thread, namespace, checkpoint and channel.

    Args:
        codec: Decodes the bytes of one value.
        thread_id: The thread of the checkpoint.
        checkpoint_ns: Its namespace.
        checkpoint_id: Its id.
    """

    def __init__(self, codec: ValueCodec, thread_id: str, checkpoint_ns: str, checkpoint_id: str) -> None:
        self._codec = codec
        self._location = (thread_id, checkpoint_ns, checkpoint_id)
        self._versions: dict[str, str] = {}
        self._large: dict[str, KnownValue] = {}

    @property
    def known(self) -> KnownBlobs | None:
        """The blobs that were read so far, for the next checkpoint; None if there are none."""
        return KnownBlobs(self._versions, self._large) if self._versions else None

    def blob(self, row: StoredBlob, chunks: Mapping[tuple[str | None, str | None], StoredBlob]) -> Any:
        """Decode the blob of a channel; `chunks` has its chunks, by channel and name."""
        channel, version, codec = row.name or "", row.key or "", self._codec
        self._versions[channel] = version
        stored_type, data = self._stored(channel, row.type, row.value)
        pieces = self._chunks(channel, row.path, chunks) if row.path is not None else []
        try:
            if row.path is None:
                type_ = stored_type
                if stored_type != MSGPACK or not codec.plain:  # Of most, these are the serializer's bytes.
                    type_, data = codec.unseal(stored_type, data, location_of_blob(self._location[1], channel, version))
                if codec.is_splittable(type_, data):
                    self._large[channel] = KnownValue(version, whole=data)
            else:
                location = location_of_blob(self._location[1], channel, version)
                type_, own_row = codec.unseal(stored_type, data, (*location, row.path), CHUNKED)
                known = [Chunk(name, codec.unseal(*piece, (*location[:-1], name))[1]) for name, piece in pieces]
                data = join(own_row, known)
                self._large[channel] = KnownValue(version, known)
            return codec.decode((type_, data))
        except Exception as error:  # A serializer may raise anything.
            self._fail(error, channel, stored_type)

    def _chunks(
        self, channel: str, names: str, chunks: Mapping[tuple[str | None, str | None], StoredBlob]
    ) -> list[tuple[str, TypedBytes]]:
        """The names and the stored bytes of a value's chunks; chunks with equal bytes share a name."""
        try:
            found = json.loads(names)
        except ValueError:
            found = None
        if not isinstance(found, list) or not all(isinstance(name, str) for name in found):
            raise self.corrupt("the list of chunks of the stored value is not a list of names", channel)
        pieces = []
        for name in found:
            row = chunks.get((channel, name))
            if row is None or row.type is None or row.value is None:
                raise self.corrupt("a chunk of the stored value is missing", channel)
            pieces.append((name, (row.type, row.value)))
        return pieces

    def write(self, row: TupleRow, checkpoint_id: str | None = None) -> Any:
        """Decode a write of this checkpoint, or of another one in the namespace."""
        _, checkpoint_ns, own = self._location
        channel = row.name or ""
        location = location_of_write(checkpoint_ns, checkpoint_id or own, row.key or "", row.idx or 0, channel)
        return self._value(channel, row.type, row.value, location)

    def writes(self, rows: Sequence[TupleRow]) -> list[PendingWrite]:
        """Decode the pending writes of this checkpoint."""
        return [(row.key or "", row.name or "", self.write(row)) for row in rows]

    def _stored(self, channel: str, type_: str | None, data: bytes | None) -> TypedBytes:
        if type_ is None or data is None:
            raise self.corrupt("a stored value is missing its bytes", channel, type_)
        return type_, data

    def _value(self, channel: str, type_: str | None, data: bytes | None, location: Location) -> Any:
        """Decode bytes; if they are encrypted, they are bound to the location."""
        stored = self._stored(channel, type_, data)
        return self._read(channel, stored[0], partial(self._codec.loads, *stored, location))

    def _read(self, channel: str, type_: str, read: Callable[[], Any]) -> Any:
        """Return what `read` makes of stored bytes of a type, or raise an error that names the channel."""
        try:
            return read()
        except Exception as error:  # A serializer may raise anything.
            self._fail(error, channel, type_)

    def _fail(self, error: Exception, channel: str, type_: str) -> NoReturn:
        """Raise the error for a stored value that could not be read."""
        ours = isinstance(error, UnreadableValue)
        said = f"a stored value cannot be read: {error}"
        if not ours:
            said = f"a stored value cannot be read ({error_text(error)}); use the serde that wrote it"
        corrupt = self.corrupt(said, channel, type_)
        if ours or self._codec.packs or isinstance(error, ValidationError):  # The last one quotes values.
            raise corrupt from error
        if sys.version_info >= (3, 11):
            error.add_note(str(corrupt))
        raise error  # As LangGraph does: the author of a custom serializer knows its errors.

    def document(self, type_: str | None, data: bytes | None) -> dict[str, Any]:
        """Decode the checkpoint document with its inline values."""
        stored = self._stored("checkpoint", type_, data)

        try:
            document = self._codec.loads(*stored, location_of_checkpoint(*self._location[1:]))
        except Exception as error:  # A serializer may raise anything.
            inline = self.document_without_objects(*stored)["channel_values"]
            for channel in inline:  # If one of them cannot be read, the error names it.
                self.create(channel, inline[channel])
            self._fail(error, "checkpoint", stored[0])
        return self._whole(document, stored[0])

    def document_without_objects(self, type_: str | None, data: bytes | None) -> dict[str, Any]:
        """Decode the checkpoint document without creating the objects of its inline values; `create` creates them."""
        stored = self._stored("checkpoint", type_, data)

        def read() -> Any:
            own, plain = self._codec.unseal(*stored, location_of_checkpoint(*self._location[1:]))
            return unpack_plain(plain) if own == MSGPACK and self._codec.packs else self._codec.decode((own, plain))

        return self._whole(self._read("checkpoint", stored[0], read), stored[0])

    def create(self, channel: str, value: Any) -> Any:
        """Create the value of a channel from what `document_without_objects` returned for it."""
        if not self._codec.packs:
            return value
        return self._read(channel, MSGPACK, partial(self._codec.decode, (MSGPACK, pack(value))))

    def _whole(self, document: Any, type_: str) -> dict[str, Any]:
        if not isinstance(document, dict):
            kind = type(document).__name__
            raise self.corrupt(f"the stored checkpoint is a {kind}, not a dict", "checkpoint", type_)
        if not isinstance(document.get("channel_values"), dict):
            raise self.corrupt("the stored checkpoint has no channel_values", "checkpoint", type_)
        return document

    def metadata(self, type_: str | None, data: bytes | None) -> dict[str, Any]:
        """Decode the metadata; its `thread_id` key, if any, names the thread that it is read from."""
        metadata = self._value("metadata", type_, data, location_of_metadata(*self._location[1:]))
        if not isinstance(metadata, dict):
            raise self.corrupt(f"the stored metadata is a {type(metadata).__name__}, not a dict", "metadata", type_)
        if "thread_id" in metadata:
            stored = metadata["thread_id"]
            if stored is not None and not (isinstance(stored, list) and len(stored) == 1):
                raise self.corrupt("the thread_id in the stored metadata is not a list of one", "metadata", type_)
            metadata["thread_id"] = self._location[0] if stored is None else stored[0]
        return metadata

    def corrupt(self, reason: str, channel: str, type_: str | None = None) -> CorruptCheckpoint:
        """Return an error that names this checkpoint."""
        location = dict(zip(("thread_id", "checkpoint_ns", "checkpoint_id"), self._location, strict=True))
        return CorruptCheckpoint(reason, **location, channel=channel, type=type_)
