"""The rows of a checkpoint: the one that every checkpoint has, how rows are sealed, and errors that name the value.

Must not know: SQL, connections, which values are blobs.

The `thread_id` key of the metadata is stored as None if it names the checkpoint's own thread, and otherwise as a list
with one item. So a thread that was copied inside the database names its new thread when it is read.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, NoReturn, TypeVar
from uuid import UUID

from langgraph.checkpoint.base import Checkpoint
from pydantic import ValidationError

from langgraph_checkpoint_custom.encoding.chunks import KnownBlobs
from langgraph_checkpoint_custom.encoding.extensions import UnstorableValue
from langgraph_checkpoint_custom.encoding.objects import error_text
from langgraph_checkpoint_custom.encoding.serde import MSGPACK
from langgraph_checkpoint_custom.encoding.values import Stored, Values
from langgraph_checkpoint_custom.engine.operation import OFFLOAD_BYTES, Offload
from langgraph_checkpoint_custom.errors import CheckpointEncodeError, ConfigError
from langgraph_checkpoint_custom.model.filter import project
from langgraph_checkpoint_custom.model.keys import (
    MAX_ID,
    BlobRef,
    BlobRow,
    CheckpointRow,
    Key,
    Location,
    WriteRow,
    location_of_metadata,
    text,
)

T = TypeVar("T")
AnyRow = TypeVar("AnyRow", BlobRow, WriteRow)


class Encoded(NamedTuple):
    """A checkpoint ready to be stored.

    Attributes:
        row: The row of the checkpoint.
        claim: The token of the claim that must be held, if any.
        replayed: The `DeltaChannel`s that are rebuilt from the parent and its ancestors.
        references: The stored blobs that the checkpoint refers to or shares chunks with; see `BlobRef`.
        blobs: The values that are not in the document, and their new chunks. A blob that is stored already stays.
        known: The blobs of a checkpoint that was taken apart, for the next one; None if all values are in the document.
        spare: Encodes the values of channels whose blobs in `references` turn out to be missing.
    """

    row: CheckpointRow
    claim: str | None
    replayed: Sequence[str] = ()
    references: Sequence[BlobRef] = ()
    blobs: Sequence[BlobRow] = ()
    known: KnownBlobs | None = None
    spare: Callable[[Iterable[str]], list[BlobRow]] | None = None

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

    def without(self, lost: Collection[str]) -> Encoded:
        """The same checkpoint with the complete values of these channels, because their `references` are missing."""
        assert self.spare is not None  # Only a checkpoint that was taken apart has such references.
        return self._replace(
            blobs=[*(blob for blob in self.blobs if blob.channel not in lost), *self.spare(lost)],
            references=[ref for ref in self.references if ref.channel not in lost],
            known=self.known and self.known.without(lost),
        )


def row_of(
    codec: Values,
    parent: Key,
    checkpoint: Checkpoint,
    metadata: Mapping[str, Any],
    document: tuple[str, bytes],
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
        type_, packed = codec.seal(Stored(type_, packed), location_of_metadata(checkpoint_ns, checkpoint_id))
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


def seal_rows(
    codec: Values, placed: Sequence[tuple[AnyRow, Location, str | None]], then: Callable[[list[AnyRow]], T]
) -> T | Offload:
    """Seal the rows that need it, and return what `then` makes of all rows; an `Offload` that does so if it takes long.

    Each row comes with the location to bind it to, and with the names of the chunks if it joins those of a value.
    """
    size = sum([len(row.value) for row, _, names in placed if _is_unsealed(codec, row, names)])

    def seal() -> T:
        return then([_sealed(codec, *each) for each in placed])

    return seal() if size < OFFLOAD_BYTES else Offload(size, seal)


def _is_unsealed(codec: Values, row: BlobRow | WriteRow, names: str | None) -> bool:
    return names is not None or codec.is_unsealed(Stored(row.type, row.value))


def _sealed(codec: Values, row: AnyRow, location: Location, names: str | None) -> AnyRow:
    if not _is_unsealed(codec, row, names):
        return row
    type_, value = codec.seal(Stored(row.type, row.value), location, names)
    return row._replace(type=type_, value=value)


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
