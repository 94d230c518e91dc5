"""From the bytes of rows to LangGraph's objects, and what is wrong with bytes that are none.

Must not know: SQL, connections.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, NoReturn, Protocol

from langgraph.checkpoint.base import PendingWrite
from pydantic import ValidationError

from langgraph_checkpoint_custom.encoding.chunks import Known
from langgraph_checkpoint_custom.encoding.known import KnownValues, unmade
from langgraph_checkpoint_custom.encoding.objects import UnreadableValue, pack, said_by
from langgraph_checkpoint_custom.encoding.serde import MSGPACK, forget_interruption, interruption
from langgraph_checkpoint_custom.encoding.values import Stored, Values
from langgraph_checkpoint_custom.errors import CorruptCheckpoint
from langgraph_checkpoint_custom.model.keys import (
    Location,
    TupleRow,
    location_of_blob,
    location_of_checkpoint,
    location_of_metadata,
    location_of_write,
)

# What the bytes of small values were called in documents that were written before these had the values themselves.
EARLIER = "small_values"


class StoredBlob(Protocol):
    """A row of a channel's blob, see `TupleRow`."""

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
    """Turns stored bytes of one checkpoint into values, and says where they came from when that fails.

    With `learns`, what the next checkpoint should know of the values is in `known`.
    """

    def __init__(
        self, codec: Values, thread_id: str, checkpoint_ns: str, checkpoint_id: str, *, learns: bool = False
    ) -> None:
        self._codec = codec
        self._location = (thread_id, checkpoint_ns, checkpoint_id)
        self._learns = learns
        self._large: dict[str, Known] = {}
        self._document = b""
        self._is_whole = True

    @property
    def known(self) -> KnownValues:
        """What is known of the values that were read."""
        return KnownValues(self._document, self._large, is_whole=self._is_whole)

    def blob(self, row: StoredBlob, find: Callable[[str, str], StoredBlob | None]) -> Any:
        """The value of a channel; `find` gives a part of it, by channel and name."""
        self._is_whole = False
        channel, version = row.name or "", row.key or ""
        location = location_of_blob(self._location[1], channel, version)
        if row.path is None:
            if row.type is None or row.value is None:
                raise self._without_bytes(channel, row.type)
            try:
                value, known = self._codec.loads_blob(row.type, row.value, location)
            except Exception as error:
                again = partial(self._codec.loads_blob, row.type, row.value, location)
                self._fail(error, channel, row.type, row.value, again)
            if known:
                self._large[channel] = known
            return value
        names = row.path
        whole = self._stored(channel, row)
        # Parts that are alike have one name.
        chunks = [(name, self._stored(channel, find(channel, name))) for name in self._names(channel, names)]
        try:
            together = self._codec.loads_chunks(whole, names, chunks, location)
        except Exception as error:
            self._fail(error, channel, *whole, partial(self._codec.loads_chunks, whole, names, chunks, location))
        if self._learns:
            self._large[channel] = together.chunked(version, names)
        return together.value

    def _names(self, channel: str, names: str) -> list[str]:
        """The names of the parts of a value."""
        try:
            found = json.loads(names)
        except ValueError:
            found = None
        if not isinstance(found, list) or not all(isinstance(name, str) for name in found):
            raise self.corrupt("what should name the parts of the stored value is no list of names", channel)
        return found

    def write(self, row: TupleRow, checkpoint_id: str | None = None) -> Any:
        """The value of a write, which may be another checkpoint's."""
        _, checkpoint_ns, own = self._location
        channel = row.name or ""
        location = checkpoint_ns, checkpoint_id or own, row.key or "", row.idx or 0, channel
        return self._value(channel, row.type, row.value, location_of_write, *location)

    def writes(self, rows: Sequence[TupleRow]) -> list[PendingWrite]:
        """The pending writes in rows of this checkpoint's."""
        plain = self._codec.plain
        try:
            if plain and {row.type for row in rows} == {MSGPACK}:  # As nearly all are.
                return [(row.key, row.name, plain(row.value)) for row in rows]  # type: ignore[misc, arg-type]
        except Exception as error:  # Whatever it is: the same again, which says where, or that it was none of theirs.
            interrupted = interruption(error)
            for row in rows:
                self.write(row)
            forget_interruption()
            raise interrupted from None
        return [(row.key or "", row.name or "", self.write(row)) for row in rows]

    def _stored(self, channel: str, row: StoredBlob | None) -> Stored:
        if row is None or row.type is None or row.value is None:
            raise self.corrupt("a part of the stored value is gone", channel)
        return Stored(row.type, row.value)

    def _value(
        self, channel: str, type_: str | None, data: bytes | None, location: Callable[..., Location], *args: Any
    ) -> Any:
        """The value of bytes, which are bound to a place if they are encrypted."""
        if type_ is None or data is None:
            raise self._without_bytes(channel, type_)
        try:
            if type_ == MSGPACK and (plain := self._codec.plain):  # As nearly all are.
                return plain(data)
            return self._codec.loads(type_, data, location(*args))
        except Exception as error:  # Whatever a serializer says.
            self._fail(error, channel, type_, data, partial(self._codec.loads, type_, data, location(*args)))

    def _without_bytes(self, channel: str, type_: str | None) -> CorruptCheckpoint:
        return self.corrupt("a stored value is missing its bytes", channel, type_)

    def _fail(self, error: Exception, channel: str, type_: str, data: bytes, again: Callable[[], object]) -> NoReturn:
        """Raise what is wrong with a stored value, or what has interrupted the reading, if it can be read again."""
        interrupted: BaseException | None = interruption(error)
        try:
            again()
        except Exception:
            interrupted = None
        finally:
            forget_interruption()
        if interrupted is not None:
            raise interrupted
        if type_ == MSGPACK:
            error = self._codec.reason(data, error)
        ours = isinstance(error, UnreadableValue)
        said = f"a stored value cannot be read: {error}"
        if not ours:
            said = f"a stored value cannot be read ({said_by(error)}); use the serde that wrote it"
        corrupt = self.corrupt(said, channel, type_)
        if ours or self._codec.packs or isinstance(error, ValidationError):  # The last one quotes values.
            raise corrupt from error
        if hasattr(error, "add_note"):  # Since Python 3.11.
            error.add_note(str(corrupt))
        raise error  # As with LangGraph: whoever made the serializer knows it.

    def document(self, type_: str | None, data: bytes | None) -> dict[str, Any]:
        """The checkpoint document, with the values that are part of it."""
        if type_ is None or data is None:
            raise self._without_bytes("checkpoint", type_)
        try:
            if type_ == MSGPACK and (plain := self._codec.plain):  # As nearly all are.
                stored, document = data, plain(data)
            else:
                own, stored = self._unsealed(type_, data)
                document = self._codec.loads_unsealed(own, stored)
                stored = stored if own == MSGPACK and self._codec.packs else b""
        except Exception as error:  # Whatever a serializer says.
            again = partial(self._codec.loads, type_, data, location_of_checkpoint(*self._location[1:]))
            self._fail(*self._culprit(error, type_, data), again)
        if not isinstance(document, dict) or not isinstance(document.get("channel_values"), dict):
            raise self._misshapen(document, type_)
        if EARLIER in document:
            self._add_earlier(document)
        else:
            self._document = stored
        return document

    def _add_earlier(self, document: dict[str, Any]) -> None:
        """Put small values, of which a document had the bytes once, where they are now."""
        for channel, stored in document.pop(EARLIER).items():
            try:
                document["channel_values"][channel] = self._codec.unpack(stored)
            except Exception as error:  # Whatever a serializer says.
                self._fail(error, channel, MSGPACK, stored, partial(self._codec.unpack, stored))

    def outline(self, type_: str | None, data: bytes | None) -> dict[str, Any]:
        """The checkpoint document, without making objects of the values that are part of it: `made` does."""
        if type_ is None or data is None:
            raise self._without_bytes("checkpoint", type_)

        def read() -> Any:
            own, stored = self._unsealed(type_, data)
            return unmade(stored) if own == MSGPACK and self._codec.packs else self._codec.loads_unsealed(own, stored)

        try:
            document = read()
        except Exception as error:  # Whatever a serializer says.
            self._fail(error, "checkpoint", type_, data, read)
        if not isinstance(document, dict) or not isinstance(document.get("channel_values"), dict):
            raise self._misshapen(document, type_)
        for channel, part in document.pop(EARLIER, {}).items():
            document["channel_values"][channel] = unmade(part)
        return document

    def made(self, channel: str, value: Any) -> Any:
        """The value of a channel, of what an outline has of it."""
        if not self._codec.packs:
            return value
        stored = pack(value)
        try:
            return self._codec.unpack(stored)
        except Exception as error:  # Whatever a serializer says.
            self._fail(error, channel, MSGPACK, stored, partial(self._codec.unpack, stored))

    def _unsealed(self, type_: str, data: bytes) -> tuple[str, bytes]:
        """The serializer's own type and bytes of the document."""
        return self._codec.unsealed(type_, data, location_of_checkpoint(*self._location[1:]))

    def _culprit(self, error: Exception, type_: str, data: bytes) -> tuple[Exception, str, str, bytes]:
        """What in a document cannot be read: one of its values, as a rule."""
        with suppress(Exception):  # Then it is the document itself.
            for channel, value in unmade(self._unsealed(type_, data)[1])["channel_values"].items():
                stored = pack(value)
                try:
                    self._codec.unpack(stored)
                except Exception as reason:  # Whatever a serializer says.
                    return reason, channel, MSGPACK, stored
        return error, "checkpoint", type_, data

    def _misshapen(self, document: Any, type_: str) -> CorruptCheckpoint:
        if not isinstance(document, dict):
            kind = type(document).__name__
            return self.corrupt(f"the stored checkpoint is a {kind}, not a dict", "checkpoint", type_)
        return self.corrupt("the stored checkpoint has no channel_values", "checkpoint", type_)

    def metadata(self, type_: str | None, data: bytes | None) -> dict[str, Any]:
        """The metadata, naming the thread it is read from."""
        metadata = self._value("metadata", type_, data, location_of_metadata, *self._location[1:])
        if not isinstance(metadata, dict):
            raise self.corrupt(f"the stored metadata is a {type(metadata).__name__}, not a dict", "metadata", type_)
        if "thread_id" in metadata:
            held = metadata["thread_id"]
            metadata["thread_id"] = self._location[0] if held is None else held[0]
        return metadata

    def corrupt(self, reason: str, channel: str, type_: str | None = None) -> CorruptCheckpoint:
        """The error for this checkpoint."""
        location = dict(zip(("thread_id", "checkpoint_ns", "checkpoint_id"), self._location, strict=True))
        return CorruptCheckpoint(reason, **location, channel=channel, type=type_)
