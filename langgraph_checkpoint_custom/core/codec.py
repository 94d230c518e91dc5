"""Between LangGraph's objects and rows.

Must not know: SQL, connections.

A small value is part of the checkpoint document, a larger one is a blob named by channel and channel version. So most
checkpoints are one row that refers to nothing, and a large value that did not change costs nothing at a put. A value
that did not change is stored as it was at its version: a small one by the bytes that the parent has, as long as they
are known (`recent.py`). So a list that a node changed in place does not slip into a later checkpoint.

The `thread_id` key of metadata is stored as None where it is the checkpoint's own thread, and in a list of one where it
is anything else, so that a thread copied inside the database names its new thread when it is read.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, NoReturn, Protocol, TypeVar
from uuid import UUID

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import (
    EXCLUDED_METADATA_KEYS,
    WRITES_IDX_MAP,
    ChannelVersions,
    Checkpoint,
    CheckpointMetadata,
)
from langgraph.checkpoint.serde.types import _DeltaSnapshot
from pydantic import ValidationError

from langgraph_checkpoint_custom.core.filter import project
from langgraph_checkpoint_custom.core.model import (
    MAX_CHANNEL,
    MAX_ID,
    BlobRef,
    BlobRow,
    CheckpointRow,
    Key,
    Place,
    TupleRow,
    WriteRow,
    channel_text,
    claim_of,
    own_key_of,
    place_of_blob,
    place_of_checkpoint,
    place_of_metadata,
    place_of_write,
    text,
)
from langgraph_checkpoint_custom.core.objects import UnreadableValue, UnstorableValue, pack, said_by
from langgraph_checkpoint_custom.core.operation import OFFLOAD_BYTES, Offload, done
from langgraph_checkpoint_custom.core.parts import NAME_MARK, Divided, Known, Small, is_still
from langgraph_checkpoint_custom.core.serde import MSGPACK
from langgraph_checkpoint_custom.core.values import Large, Stored, Values
from langgraph_checkpoint_custom.errors import CheckpointEncodeError, ConfigError, CorruptCheckpoint

# Characters or bytes of a scalar, which is encoded with the document.
INLINE_BYTES = 256
# Bytes of an encoded value that is part of the document, and of all of them together: each is stored again with every
# superstep. With four values of 1,000 bytes, of which one is new, a put takes 0.7 of the time that it takes with rows
# of their own on PostgreSQL and 0.8 on SQLite, a get 0.9, and a checkpoint 2.6 times the bytes; of larger ones, more
# bytes and on SQLite no less time.
SMALL_VALUE = 1_024
SMALL_VALUES = 4_096
# What they are called in the document.
SMALL = "small_values"

T = TypeVar("T")


class Encoded(NamedTuple):
    """A checkpoint ready to be stored.

    `blobs` are the values that are new, `kept` those that may be there from earlier checkpoints, `replayed` the
    `DeltaChannel`s that are rebuilt from the parent on, and `spare` encodes those of `kept` that turn out to be gone,
    by channel. `claim` is the token without which nothing may be stored. `large` is what is known of large values, new
    or kept.
    """

    row: CheckpointRow
    blobs: Sequence[BlobRow]
    kept: Sequence[BlobRef]
    replayed: Sequence[str]
    spare: Callable[[Iterable[str]], list[BlobRow]]
    claim: str | None
    large: Mapping[str, Known]

    @property
    def is_whole(self) -> bool:
        """Whether it is one row that refers to nothing."""
        return not (self.blobs or self.kept or self.replayed or self.claim)

    def without(self, lost: Sequence[str]) -> Encoded:
        """The same, storing these channels whole, since what it would share or keep of them is gone."""
        return self._replace(
            blobs=[*(blob for blob in self.blobs if blob.channel not in lost), *self.spare(lost)],
            kept=[ref for ref in self.kept if ref.channel not in lost],
            large={channel: value for channel, value in self.large.items() if channel not in lost},
        )


def version_key(version: object) -> str:
    """A channel version as text; versions that differ have different texts."""
    if type(version) is str and not version.startswith("#"):
        return text("channel version", version, MAX_ID)
    return text("channel version", f"#{json.dumps(version)}", MAX_ID)


def _is_inline(value: Any) -> bool:
    kind = type(value)
    if kind is str:
        return len(value) <= INLINE_BYTES and (value.isascii() or _is_unicode(value))
    if kind is int:
        return bool(-(2**63) <= value < 2**64)  # Larger ones are not for every serializer.
    return value is None or kind is bool or kind is float or (kind is bytes and len(value) <= INLINE_BYTES)


def _is_unicode(value: str) -> bool:
    """Whether text has no half characters, which serializers treat in ways of their own."""
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def _encoded(place: Place, dumps: Callable[..., T], *args: Any) -> T:
    try:
        return dumps(*args)
    except UnstorableValue as error:
        raise CheckpointEncodeError(f"{_thing_at(place)} cannot be stored: {error}; nothing was stored") from error
    except Exception as error:
        # As msgpack says it; and pydantic, which quotes the value.
        if type(error) in (TypeError, RecursionError) or isinstance(error, ValidationError):
            raise CheckpointEncodeError(
                f"{_thing_at(place)} cannot be serialised ({said_by(error)}); nothing was stored. Make the value "
                "serialisable or pass a serde that knows it"
            ) from error
        if hasattr(error, "add_note"):  # Since Python 3.11.
            error.add_note(f"{_thing_at(place)} cannot be serialised; nothing was stored")
        raise  # As with LangGraph: whoever made the serializer, or the class, knows it.


class _Open(NamedTuple):
    """A row, by its number, whose bytes are still to be closed for a place; `names` if they put a value together."""

    number: int
    place: Place
    names: str | None = None


Rows = TypeVar("Rows", list[BlobRow], list[WriteRow])


def _closed(codec: Values, rows: Rows, opened: Sequence[_Open], then: Callable[[Rows], T]) -> T | Offload:
    """What is made of rows whose bytes are all closed, or, where that takes a while, what there is to do for it."""
    if not opened:
        return then(rows)

    def close() -> T:
        closed = rows.copy()
        for number, place, names in opened:
            row = rows[number]
            type_, value = _encoded(place, codec.close, Stored(row.type, row.value), place, names)
            closed[number] = row._replace(type=type_, value=value)
        return then(closed)

    size = sum(len(rows[each.number].value) for each in opened)
    return close() if size < OFFLOAD_BYTES else Offload(size, close)


def _thing_at(place: Place) -> str:
    """What is stored at a place, for an error."""
    if place[0] == "blob":
        return f"the value of channel {place[2]!r}"
    return f"the write to channel {place[5]!r}" if place[0] == "write" else f"the {place[0]}"


def _id_or_none(value: object) -> str | None:
    """An id that metadata may hold; what cannot be a key is none, and never a reason to fail a superstep."""
    try:
        return text("id", value, MAX_ID) if value else None
    except ConfigError:
        return None


def merge_metadata(config: RunnableConfig, metadata: CheckpointMetadata) -> dict[str, Any]:
    """The metadata to store: LangGraph's, and what it merges from the config, without request-scoped keys.

    Source: `get_checkpoint_metadata`; unlike it, NUL characters are kept, since they can be.
    """
    merged: dict[str, Any] = dict(metadata)
    for part in (config.get("metadata"), config.get("configurable")):
        for key, value in (part or {}).items():
            if (
                key not in merged
                and isinstance(value, (str, int, float))
                and key not in EXCLUDED_METADATA_KEYS
                and not key.startswith(("__", "langgraph_auth_"))
                and key != "langgraph_request_id"
            ):
                merged[key] = value
    return merged


def run_of(metadata: Mapping[str, Any]) -> str | None:
    """The run that metadata names."""
    run_id = metadata.get("run_id")
    return _id_or_none(str(run_id) if isinstance(run_id, UUID) else run_id)


def encode_checkpoint(
    codec: Values,
    parent: Key,
    config: RunnableConfig,
    checkpoint: Checkpoint,
    metadata: CheckpointMetadata,
    new_versions: ChannelVersions,
    before: Mapping[str, Known] | None = None,
) -> Encoded | Offload:
    """Encode a checkpoint, put with a config that names its parent, with the values of the channels in `new_versions`.

    `before` is what is known of the parent's values, or None if that is nothing: large ones share what they have in
    common with it. If it takes a while to compress or encrypt them, that is left to do: it needs the caller's objects
    no more.
    """
    thread_id, checkpoint_ns, parent_id = parent
    checkpoint_id = text("checkpoint id", checkpoint["id"], MAX_ID)
    values = dict(checkpoint.get("channel_values") or {})  # `spare` may need them when the graph has dropped them.
    versions = dict(checkpoint.get("channel_versions") or {})
    whole = merge_metadata(config, metadata)

    room = SMALL_VALUES if codec.packs else 0

    def is_small(channel: str, found: Stored | Large) -> bool:
        nonlocal room
        if isinstance(found, Large) or found.type != MSGPACK or len(found.value) > min(SMALL_VALUE, room):
            return False
        if isinstance(values.get(channel), _DeltaSnapshot):  # LangGraph leaves it out until the next: found by version.
            return False
        small[channel] = found.value
        large[channel] = Small(versions[channel], found.value)
        room -= len(found.value)
        return True

    def encoded(channel: str, shared: Known | None = None) -> Stored | Large:
        place = place_of_blob(checkpoint_ns, channel, version_key(versions[channel]))
        return _encoded(place, codec.dumps_blob, values[channel], place, shared)

    def add(blobs: list[BlobRow], opened: list[_Open], channel: str, found: Stored | Large) -> None:
        version = version_key(versions[channel])
        place = place_of_blob(checkpoint_ns, channel, version)
        stored = found if isinstance(found, Stored) else found.whole
        names = None
        if isinstance(found, Large):
            large[channel] = found.known
            names = found.names
            for name, part in found.new.items():
                if codec.is_open(part):
                    opened.append(_Open(len(blobs), (*place[:-1], name)))
                blobs.append(BlobRow(channel, name, *part))
        if names or codec.is_open(stored):
            opened.append(_Open(len(blobs), place, names))
        blobs.append(BlobRow(channel, version, *stored, names))

    def spare(channels: Iterable[str]) -> list[BlobRow]:
        blobs: list[BlobRow] = []
        opened: list[_Open] = []
        for channel in channels:
            known, value = large.get(channel), values[channel]
            place = place_of_blob(checkpoint_ns, channel, version_key(versions[channel]))
            in_parts = channel in new_versions and isinstance(known, Divided)
            if in_parts and not _encoded(place, is_still, known, value, pack):
                raise CheckpointEncodeError(
                    f"channel {channel!r} was changed in place while it was being stored, and what it shared with the "
                    "checkpoint before has been deleted meanwhile; nothing was stored"
                )
            add(blobs, opened, channel, encoded(channel))
        return done(_closed(codec, blobs, opened, lambda blobs: blobs))

    large: dict[str, Known] = {}
    inline: dict[str, Any] = {}
    small: dict[str, bytes] = {}
    blobs: list[BlobRow] = []
    opened: list[_Open] = []
    kept: list[BlobRef] = []
    for channel, value in values.items():
        if channel not in versions:  # It cannot be found by a version later, so it stays with its checkpoint.
            inline[channel_text(channel)] = value
        elif _is_inline(value):
            inline[channel] = value
    counters = whole.get("counters_since_delta_snapshot")
    delta = set(counters).intersection(versions) if counters and isinstance(counters, Mapping) else set()
    for channel in sorted(versions):
        channel_text(channel)
        if channel in inline:
            continue
        shared = before.get(channel) if before else None
        if channel in new_versions:
            if channel in values:
                found = encoded(channel, shared)
                if not is_small(channel, found):
                    add(blobs, opened, channel, found)
                if isinstance(shared, Divided) and isinstance(large.get(channel), Divided):
                    kept.append(BlobRef(channel, shared.version, required=True, begins=shared.begins))
        elif isinstance(shared, Small) and shared.is_of(versions[channel]):
            if channel in values or channel in delta:
                found = Stored(MSGPACK, shared.data)
                if not is_small(channel, found):
                    add(blobs, opened, channel, found)
        elif before is None and room and channel in values and is_small(channel, encoded(channel)):
            pass  # Nobody knows whether it is a blob: as it is now, it need not be.
        elif channel in values or channel in delta:
            kept.append(BlobRef(channel, version_key(versions[channel]), required=channel in values))
            if shared and not isinstance(shared, Small) and shared.version == kept[-1].version:
                large[channel] = shared

    replayed = sorted(delta.difference(values)) if parent_id else []
    delta.update([channel for channel, value in values.items() if isinstance(value, _DeltaSnapshot)])

    parents = whole.get("parents")
    root_id = parents.get("") if checkpoint_ns and isinstance(parents, Mapping) else None
    named: list[tuple[str, str]] = []
    if blobs or kept:
        named += [blob[:2] for blob in blobs if not blob.version.startswith(NAME_MARK)]
        named += [ref[:2] for ref in kept if ref.required and not ref.begins]
    channels, names = zip(*named, strict=True) if named else ((), ())
    document = {**checkpoint, "channel_values": inline, **({SMALL: small} if small else {})}
    stored = dict(whole)
    if "thread_id" in stored:
        stored["thread_id"] = None if stored["thread_id"] == thread_id else [stored["thread_id"]]
    document_place = place_of_checkpoint(checkpoint_ns, checkpoint_id)
    metadata_place = place_of_metadata(checkpoint_ns, checkpoint_id)
    claim = claim_of(config)
    row = CheckpointRow(
        thread_id,
        checkpoint_ns,
        checkpoint_id,
        parent_id,
        _id_or_none(root_id),
        run_of(whole),
        int(checkpoint.get("v", 1)),
        [*inline, *small],
        sorted(delta),
        channels,
        names,
        *_encoded(document_place, codec.dumps, document, document_place),
        *_encoded(metadata_place, codec.dumps, stored, metadata_place),
        project(whole, codec.shown),
    )

    return _closed(codec, blobs, opened, lambda blobs: Encoded(row, blobs, kept, replayed, spare, claim, large))


class EncodedWrites(NamedTuple):
    """The outputs of a task ready to be stored, with their claim."""

    key: Key
    rows: Sequence[WriteRow]
    claim: str | None


def encode_writes(
    codec: Values, config: RunnableConfig, writes: Sequence[tuple[str, Any]], task_id: str, task_path: str
) -> EncodedWrites | Offload:
    """Encode the outputs of a task; what is large is left to do as in `encode_checkpoint`."""
    key = own_key_of(config)
    if key.checkpoint_id is None:
        raise ConfigError("put_writes needs the checkpoint_id that the writes belong to in its config")
    task_id = text("task_id", task_id, MAX_ID)
    task_path = text("task_path", task_path, 100_000)
    run_id = run_of(merge_metadata(config, {}))
    return encode_rows(codec, key, writes, task_id, task_path, run_id, claim_of(config))


def encode_rows(
    codec: Values,
    key: Key,
    writes: Sequence[tuple[str, Any]],
    task_id: str,
    task_path: str,
    run_id: str | None,
    claim: str | None = None,
) -> EncodedWrites | Offload:
    """Encode writes; of several special ones to one channel the last one stays."""
    rows: dict[int, WriteRow] = {}
    places: dict[int, Place] = {}  # Of those that are still to be closed.
    for position, (channel, value) in enumerate(writes):
        idx = WRITES_IDX_MAP.get(channel, position)
        channel = text("channel", channel, MAX_CHANNEL)
        place = place_of_write(key.checkpoint_ns, key.checkpoint_id or "", task_id, idx, channel)
        stored = _encoded(place, codec.dumps_open, value)
        rows[idx] = WriteRow(channel, task_id, task_path, run_id, idx, *stored)
        if codec.is_open(stored):
            places[idx] = place
        elif places:
            places.pop(idx, None)
    opened = [_Open(number, places[idx]) for number, idx in enumerate(rows) if idx in places] if places else []
    return _closed(codec, list(rows.values()), opened, lambda rows: EncodedWrites(key, rows, claim))


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

    What is known of the values, by channel, goes to `known` if that is given.
    """

    def __init__(
        self,
        codec: Values,
        thread_id: str,
        checkpoint_ns: str,
        checkpoint_id: str,
        known: dict[str, Known] | None = None,
    ) -> None:
        self._codec = codec
        self._place = (thread_id, checkpoint_ns, checkpoint_id)
        self._known = known

    def blob(self, row: StoredBlob, find: Callable[[str, str], StoredBlob | None]) -> Any:
        """The value of a channel; `find` gives a part of it, by channel and name."""
        channel, version = row.name or "", row.key or ""
        place = place_of_blob(self._place[1], channel, version)
        if row.path is None:
            if row.type is None or row.value is None:
                raise self._without_bytes(channel, row.type)
            try:
                value, known = self._codec.loads_blob(row.type, row.value, place)
            except Exception as error:
                self._fail(error, channel, row.type, row.value)
            if known and self._known is not None:
                self._known[channel] = known
            return value
        names = row.path
        whole = self._stored(channel, row)
        # Parts that are alike have one name.
        parts = [(name, self._stored(channel, find(channel, name))) for name in self._names(channel, names)]
        try:
            together = self._codec.loads_parts(whole, names, parts, place)
        except Exception as error:
            self._fail(error, channel, *whole)
        if self._known is not None:
            self._known[channel] = together.divided(version, names)
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
        _, checkpoint_ns, own = self._place
        channel = row.name or ""
        place = checkpoint_ns, checkpoint_id or own, row.key or "", row.idx or 0, channel
        return self._value(channel, row.type, row.value, place_of_write, *place)

    def _stored(self, channel: str, row: StoredBlob | None) -> Stored:
        if row is None or row.type is None or row.value is None:
            raise self.corrupt("a part of the stored value is gone", channel)
        return Stored(row.type, row.value)

    def _value(
        self, channel: str, type_: str | None, data: bytes | None, place: Callable[..., Place], *args: Any
    ) -> Any:
        """The value of bytes, which are bound to a place if they are encrypted."""
        if type_ is None or data is None:
            raise self._without_bytes(channel, type_)
        try:
            if type_ == MSGPACK and (plain := self._codec.plain):  # As nearly all are.
                return plain(data)
            return self._codec.loads(type_, data, place(*args))
        except Exception as error:  # Whatever a serializer says.
            self._fail(error, channel, type_, data)

    def _without_bytes(self, channel: str, type_: str | None) -> CorruptCheckpoint:
        return self.corrupt("a stored value is missing its bytes", channel, type_)

    def _fail(self, error: Exception, channel: str, type_: str, data: bytes) -> NoReturn:
        """Raise what is wrong with a stored value."""
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
        document = self.outline(type_, data)
        small = document.pop(SMALL, None)
        if small:
            values, versions = document["channel_values"], document.get("channel_versions", {})
            unpack = self._codec.unpack
            try:
                for channel, stored in small.items():
                    values[channel] = unpack(stored)
            except Exception as error:
                self._fail(error, channel, MSGPACK, stored)
            if self._known is not None:
                for channel, stored in small.items():
                    self._known[channel] = Small(versions.get(channel), stored)
        return document

    def small(self, channel: str, stored: bytes) -> Any:
        """The value of a channel that is part of the document."""
        try:
            return self._codec.unpack(stored)
        except Exception as error:  # Whatever a serializer says.
            self._fail(error, channel, MSGPACK, stored)

    def outline(self, type_: str | None, data: bytes | None) -> dict[str, Any]:
        """The checkpoint document, in which small values are still bytes."""
        document = self._mapping("checkpoint", type_, data, place_of_checkpoint)
        if not isinstance(document.get("channel_values"), dict):
            raise self.corrupt("the stored checkpoint has no channel_values", "checkpoint", type_)
        return document

    def metadata(self, type_: str | None, data: bytes | None) -> dict[str, Any]:
        """The metadata, naming the thread it is read from."""
        metadata = self._mapping("metadata", type_, data, place_of_metadata)
        if "thread_id" in metadata:
            held = metadata["thread_id"]
            metadata["thread_id"] = self._place[0] if held is None else held[0]
        return metadata

    def corrupt(self, reason: str, channel: str, type_: str | None = None) -> CorruptCheckpoint:
        """The error for this checkpoint."""
        place = dict(zip(("thread_id", "checkpoint_ns", "checkpoint_id"), self._place, strict=True))
        return CorruptCheckpoint(reason, **place, channel=channel, type=type_)

    def _mapping(
        self, what: str, type_: str | None, data: bytes | None, place: Callable[[str, str], Place]
    ) -> dict[str, Any]:
        value = self._value(what, type_, data, place, *self._place[1:])
        if not isinstance(value, dict):
            raise self.corrupt(f"the stored {what} is a {type(value).__name__}, not a dict", what, type_)
        return value
