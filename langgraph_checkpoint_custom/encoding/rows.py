"""The rows of a checkpoint: the one that every checkpoint has, how rows are sealed, and errors that name the value.

Must not know: SQL, connections, which values are blobs.

The `thread_id` key of the metadata is stored as None if it names the checkpoint's own thread, and otherwise as a list
with one item. So a thread that was copied inside the database names its new thread when it is read.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NoReturn, TypeVar, cast
from uuid import UUID

from langgraph.checkpoint.base import ChannelVersions, Checkpoint
from pydantic import ValidationError

from langgraph_checkpoint_custom.encoding.extensions import UnstorableValue
from langgraph_checkpoint_custom.encoding.objects import error_text
from langgraph_checkpoint_custom.encoding.serde import MSGPACK
from langgraph_checkpoint_custom.encoding.values import TypedBytes, ValueCodec
from langgraph_checkpoint_custom.engine.operation import OFFLOAD_BYTES, Offload
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
    location_of_metadata,
    text,
)

T = TypeVar("T")
AnyRow = TypeVar("AnyRow", BlobRow, WriteRow)


PlacedRow = tuple[AnyRow, Location, str]
"""A row, the location to bind its value to, and the value's form: `CHUNKED` if it joins chunks."""


def row_of(
    codec: ValueCodec,
    parent: Key,
    checkpoint: Checkpoint,
    metadata: Mapping[str, Any],
    document: TypedBytes,
    inline: Sequence[str],
    delta: Sequence[str],
) -> CheckpointRow:
    """Return the row of a checkpoint without blobs.

    Args:
        codec: Encodes and seals the metadata.
        parent: The key of the parent.
        checkpoint: The checkpoint.
        metadata: The merged metadata.
        document: The sealed document.
        inline: The channels whose values are in the document.
        delta: The `DeltaChannel`s.
    """
    thread_id, checkpoint_ns, parent_id = parent
    checkpoint_id = text("checkpoint id", checkpoint["id"], MAX_ID)
    form = checkpoint.get("v", 1)
    if type(form) is not int or not 0 <= form < 2**31:
        raise ConfigError("the checkpoint's v, the number of LangGraph's format, must be an int of 0 or more")
    root_id = None
    if checkpoint_ns:
        parents = metadata.get("parents")
        root_id = id_or_none(parents.get("")) if isinstance(parents, Mapping) else None
    stored_metadata = metadata
    if "thread_id" in metadata:
        own = metadata["thread_id"]
        stored_metadata = {**metadata, "thread_id": None if own == thread_id else [own]}
    try:
        type_, packed = codec.encode(stored_metadata)
    except Exception as error:
        fail(location_of_metadata(checkpoint_ns, checkpoint_id), error)
    if len(packed) >= codec.seals_from or type_ != MSGPACK:
        type_, packed = codec.seal(type_, packed, location_of_metadata(checkpoint_ns, checkpoint_id))
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
        (),
        (),
        *document,
        type_,
        packed,
        project(metadata, codec.plaintext_keys),
    )


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


def version_key(version: object) -> str:
    """A channel version as text; different versions have different texts."""
    if type(version) is str and not version.startswith("#"):
        return text("channel version", version, MAX_NAME)
    try:
        number = json.dumps(version)
    except (TypeError, ValueError):
        raise ConfigError(f"channel version must be text or a number, not {type(version).__name__}") from None
    return text("channel version", f"#{number}", MAX_NAME)


def version_keys(versions: ChannelVersions) -> Mapping[str, str]:
    """Channel versions as text, see `version_key`; most are, and one look at all of them finds that out."""
    if {str}.issuperset(map(type, versions.values())):
        texts = cast("Mapping[str, str]", versions)
        together = "".join(texts.values())
        if together.isascii() and len(together) <= MAX_NAME and "\0" not in together and "#" not in together:
            return texts
    return {channel: version_key(version) for channel, version in versions.items()}


def run_of(metadata: Mapping[str, Any]) -> str | None:
    """The run that metadata names."""
    run_id = metadata.get("run_id")
    if run_id is None:
        return None
    return id_or_none(str(run_id) if isinstance(run_id, UUID) else run_id)


def id_or_none(value: object) -> str | None:
    """An id from metadata, or None if it cannot be part of a key: metadata must not make a superstep fail."""
    try:
        return text("id", value, MAX_ID) if value else None
    except ConfigError:
        return None


# Sealing


def seal_rows(codec: ValueCodec, placed: Sequence[PlacedRow[AnyRow]], then: Callable[[list[AnyRow]], T]) -> T | Offload:
    """Seal rows, and return what `then` makes of them; an `Offload` that does so if it takes long."""
    size = sum([len(row.value) for row, *_ in placed if len(row.value) >= codec.seals_from])

    def seal() -> T:
        return then([_sealed(codec, *each) for each in placed])

    return seal() if size < OFFLOAD_BYTES else Offload(size, seal)


def _sealed(codec: ValueCodec, row: AnyRow, location: Location, form: str) -> AnyRow:
    type_, value = codec.seal(row.type, row.value, location, form)
    return row if value is row.value and type_ == row.type else row._replace(type=type_, value=value)


# Errors


def fail(location: Location, error: Exception) -> NoReturn:
    """Raise the error for a value that could not be encoded; it names the value by its location."""
    kind, thing = location[0], f"the {location[0]}"
    if kind == "blob":
        thing = f"the value of channel {location[2]!r}"
    elif kind == "write":
        thing = f"the write to channel {location[5]!r}"
    if isinstance(error, UnstorableValue):
        raise CheckpointEncodeError(f"{thing} cannot be stored: {error}; nothing was stored") from error
    # Errors of msgpack, and of pydantic, whose text quotes the value.
    if type(error) in (TypeError, RecursionError) or isinstance(error, ValidationError):
        raise CheckpointEncodeError(
            f"{thing} cannot be serialised ({error_text(error)}); nothing was stored. Make the value "
            "serialisable or pass a serde that knows it"
        ) from error
    if sys.version_info >= (3, 11):
        error.add_note(f"{thing} cannot be serialised; nothing was stored")
    raise error  # As LangGraph does: the author of the serializer or of the class knows its errors.
