"""Reading checkpoints: one, or a page of a list.

Must not know: SQL, connections.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from operator import itemgetter
from typing import Any, NamedTuple, TypeVar

from langgraph.checkpoint.base import CheckpointTuple, PendingWrite
from langgraph.checkpoint.serde.types import TASKS

from langgraph_checkpoint_custom.encoding.chunks import NO_BLOBS, KnownBlobs
from langgraph_checkpoint_custom.encoding.decode import Decoder
from langgraph_checkpoint_custom.encoding.encode import DOCUMENT
from langgraph_checkpoint_custom.encoding.rows import version_key
from langgraph_checkpoint_custom.encoding.serde import MSGPACK, NULL
from langgraph_checkpoint_custom.encoding.values import ValueCodec
from langgraph_checkpoint_custom.engine.operation import Row, Steps, offload, one_trip, operation
from langgraph_checkpoint_custom.model.filter import Condition, matches, narrowing
from langgraph_checkpoint_custom.model.keys import Key, Page, TupleRow, config_of
from langgraph_checkpoint_custom.model.outline import FORMAT_WITH_SENDS
from langgraph_checkpoint_custom.operations.pages import piece_of
from langgraph_checkpoint_custom.sql.dialect import SqlDialect

_PATH_TASK_IDX = itemgetter(6, 5, 7)
# By channel and version, or by channel and name of a chunk.
Blobs = Mapping[tuple[str | None, str | None], TupleRow]
_CHANNELS = TupleRow._fields.index("channels")
# The version of the pending sends of an old checkpoint that has no other channel.
_FIRST_VERSION = f"{1:032d}.{0:016d}"

AnyRow = TypeVar("AnyRow", Row, TupleRow)
# Takes thread, namespace and id of a checkpoint that was read, and its blobs, or None if it has none.
Remember = Callable[[str, str, str, KnownBlobs | None], None]


class PageReply(NamedTuple):
    """The tuples of a page that match, and the next page, or None if this was the last one."""

    tuples: list[CheckpointTuple]
    after: Page | None


class Reading(NamedTuple):
    """A checkpoint from which a run may continue, and whether a newer one exists."""

    found: CheckpointTuple | None
    is_older: bool


def size_of(rows: Iterable[Row]) -> int:
    """Return the number of bytes in the values of rows that are to be decoded."""
    return sum([len(row[9] or b"") + len(row[11] or b"") for row in rows])


def in_order(rows: Iterable[AnyRow]) -> list[AnyRow]:
    """Return writes as LangGraph applies them, in the order of its `writes_sort_key`."""
    return sorted(rows, key=_PATH_TASK_IDX)


def writes_of(rows: Iterable[Row], kind: str = "write") -> list[TupleRow]:
    """Return the writes among rows, in order."""
    return in_order([TupleRow._make(row) for row in rows if row[0] == kind])


@operation("read")
def get_tuple(d: SqlDialect, codec: ValueCodec, remember: Remember | None, key: Key) -> Steps[CheckpointTuple | None]:
    """Return the checkpoint of a key with its pending writes, or None.

    Round trips: 1.
    Snapshot: one read snapshot over checkpoint, blobs and writes.
    Raises: CorruptCheckpoint.
    Source: BaseCheckpointSaver.get_tuple.
    """
    (rows,) = yield d.select_checkpoint(key)
    return (yield from offload(size_of(rows), build_tuple, d, codec, remember, rows))


@operation("read")
def get_with_writes(
    d: SqlDialect, codec: ValueCodec, keys: Sequence[Key]
) -> Steps[Sequence[tuple[CheckpointTuple, Sequence[TupleRow]]]]:
    """Return the checkpoints of keys that exist, each with the rows of its writes, in the order of `pending_writes`.

    Round trips: 1.
    Raises: CorruptCheckpoint.
    """
    replies = yield one_trip([d.select_checkpoint(key) for key in keys])
    tuples = []
    for rows in replies:
        found = yield from offload(size_of(rows), build_tuple, d, codec, None, rows)
        if found:
            tuples.append((found, writes_of(rows)))
    return tuples


@operation("read")
def get_tuple_to_write(d: SqlDialect, codec: ValueCodec, remember: Remember | None, key: Key) -> Steps[Reading]:
    """Return what `get_tuple` returns, and whether a newer checkpoint exists.

    Round trips: 1, or 2 for a checkpoint by its id. The newest id is read first. So a checkpoint that another run
        stores between the two is a conflict, and the caller's run is not taken for a fork.
    Raises: CorruptCheckpoint.
    """
    newest: list[Any] = []
    if key.checkpoint_id is not None:
        (newest,) = yield d.ask("select_newest_id", **key._asdict())
    found = yield from get_tuple(d, codec, remember, key).start()
    return Reading(found, bool(newest) and newest[0][0] != key.checkpoint_id)


@operation("read")
def list_page(d: SqlDialect, codec: ValueCodec, page: Page, wanted: Sequence[Condition]) -> Steps[PageReply]:
    """Return one page of checkpoints, newest first. A page may have fewer tuples than rows were read, even none.

    Round trips: 1, and those of `piece_of`.
    Snapshot: one read snapshot over the page.
    Raises: CorruptCheckpoint.
    Source: BaseCheckpointSaver.list.
    """
    piece = yield from piece_of(d, page._replace(filter=narrowing(wanted, contains=d.filter_contains)))
    if piece is None:
        return PageReply([], None)
    (rows,) = yield d.select_page(piece.page)
    tuples = yield from offload(size_of(rows), build_tuples, d, codec, rows, wanted)
    places = [(row[3], d.own_thread_id(row[1]), row[2]) for row in rows if row[0] == "checkpoint"]
    return PageReply(tuples, piece.after(places))


@operation("read")
def checkpoints_of_threads(d: SqlDialect, thread_ids: Sequence[str]) -> Steps[Sequence[Sequence[Row]]]:
    """Return for each thread a row for each checkpoint, including hidden ones.

    It has the namespace, the id, the number of writes, and that of the writes that a later one may replace.

    Round trips: 1.
    """
    found = yield d.ask_each("select_checkpoint_ids", [{"thread_id": each} for each in thread_ids])
    return found  # type: ignore[no-any-return]  # The reply of a round trip is not typed.


def build_tuple(
    d: SqlDialect, codec: ValueCodec, remember: Remember | None, rows: Sequence[Row]
) -> CheckpointTuple | None:
    """Build the checkpoint of a reply about one checkpoint; None if it does not exist."""
    if not rows or rows[0][0] != "checkpoint":  # Writes can be stored before it, and a batch reads blobs of others.
        return None
    if d.tenant:
        rows = d.rows(rows)
    head, *others = rows
    blobs: Blobs = {}
    if others:
        if head[_CHANNELS]:
            blobs = _by_name(codec, others)
        others = [row for row in others if row[0] != "blob"]
    error = None
    try:
        if ordinary := _ordinary(d, codec, head, others, blobs):
            found, with_blobs = ordinary
            if remember:
                known = with_blobs and with_blobs.known
                # Of a large document that has all values, too: the next checkpoint may not have all.
                remember(head[1], head[2], head[3], known or (NO_BLOBS if len(head[9]) > DOCUMENT else None))
            return found
    except Exception as raised:  # What is stored raises an error below, which has its location.
        error = raised
    decoder = Decoder(codec, *head[1:4])
    metadata = decoder.metadata(*head[10:12])
    whole = _CheckpointRows(TupleRow._make(head), others, blobs)
    found = whole.build(d, decoder, metadata)
    if error:  # It came from outside, such as a signal handler.
        raise error
    if remember:
        remember(head[1], head[2], head[3], decoder.known)
    return found


def _ordinary(
    d: SqlDialect, codec: ValueCodec, head: Row, others: Sequence[Row], blobs: Blobs
) -> tuple[CheckpointTuple, Decoder | None] | None:
    """Build a checkpoint from bytes in clear, as nearly all are; None if there is more to do.

    Returns:
        The checkpoint, and what has decoded its blobs, or None if it has none.
    """
    _, thread_id, checkpoint_ns, checkpoint_id, parent_id, _, _, _, type_, document, type2, data2, channels, _ = head
    plain = codec.plain  # If bytes are missing, what it has raises an error.
    if type_ not in plain or type2 not in plain:
        return None
    pending: Any = []
    for kind, _, _, _, channel, task_id, _, _, type_of_write, data, *_ in in_order(others) if others else ():
        if kind != "write" or not (type_of_write in plain or type_of_write == NULL):
            return None
        pending.append((task_id, channel, None if type_of_write == NULL else plain[type_of_write](data)))
    checkpoint, found = plain[type_](document), plain[type2](data2)
    if type(checkpoint) is not dict or type(checkpoint.get("channel_values")) is not dict:
        return None
    if type(found) is not dict or "thread_id" in found:
        return None
    decoder = None
    if channels:
        decoder = Decoder(codec, thread_id, checkpoint_ns, checkpoint_id)
        _add_blobs(d, decoder, head, blobs, checkpoint)
    own = config_of(thread_id, checkpoint_ns, checkpoint_id)
    parent = config_of(thread_id, checkpoint_ns, parent_id) if parent_id else None
    return CheckpointTuple(own, checkpoint, found, parent, pending), decoder  # type: ignore[arg-type]


def _add_blobs(d: SqlDialect, decoder: Decoder, head: Row, blobs: Blobs, document: Any) -> None:
    """Put the values of blobs into the document."""
    values, stated = document["channel_values"], document.get("channel_versions", {})
    if not isinstance(stated, dict):
        raise decoder.corrupt("the stored checkpoint has no channel_versions", "checkpoint", head[8])
    try:
        references = list(zip(d.names(head[_CHANNELS]), d.names(head[_CHANNELS + 1]), strict=True))
    except (ValueError, TypeError):
        raise decoder.corrupt("the list of blobs in the row is not a list of names", "checkpoint") from None
    for channel, version in references:
        if stated.get(channel) != version and version_key(stated.get(channel)) != version:
            raise decoder.corrupt(f"the row has version {version!r}, but the checkpoint names another", channel)
        blob = blobs.get((channel, version))
        if blob is None:
            raise decoder.corrupt(f"the stored value of version {version!r} is missing", channel)
        values[channel] = decoder.blob(blob, blobs)


def build_tuples(
    d: SqlDialect,
    codec: ValueCodec,
    rows: Sequence[Row],
    wanted: Sequence[Condition],
) -> list[CheckpointTuple]:
    """Build the checkpoints of a page that match, newest first. They share no objects."""
    heads: list[Row] = []
    others: dict[Any, list[Row]] = {}
    for row in d.rows(rows):
        if row[0] == "checkpoint":
            heads.append(row)
        else:
            others.setdefault(row[1:3] if row[0] == "blob" else row[1:4], []).append(row)
    # Several checkpoints of a namespace may share a blob.
    blobs = {location: _by_name(codec, found) for location, found in others.items() if len(location) == 2}
    heads.sort(key=itemgetter(3, 1, 2), reverse=True)
    tuples = []
    for head in heads:
        writes, values = others.get(head[1:4], ()), blobs.get(head[1:3], {})
        error = None
        try:
            if ordinary := _ordinary(d, codec, head, writes, values):
                found, _ = ordinary
                if not wanted or matches(found.metadata, wanted, contains=d.filter_contains):
                    tuples.append(found)
                continue
        except Exception as raised:  # Reading it in the other way raises an error with its location, if it matches.
            error = raised
        decoder = Decoder(codec, *head[1:4])
        metadata = decoder.metadata(*head[10:12])
        if matches(metadata, wanted, contains=d.filter_contains):
            whole = _CheckpointRows(TupleRow._make(head), writes, values)
            tuples.append(whole.build(d, decoder, metadata))
            if error:  # It came from outside, such as a signal handler.
                raise error
    return tuples


def _by_name(codec: ValueCodec, rows: Iterable[Row]) -> Blobs:
    """Return values and chunks, by channel and version (of a value) or name (of a chunk).

    They are decompressed here, once for all checkpoints that share them.
    """
    blobs = {}
    for row in map(TupleRow._make, rows):
        if row.kind == "blob":
            if row.type != MSGPACK and row.type is not None and row.value is not None:
                type_, value = codec.decompress(row.type, row.value)
                row = row._replace(type=type_, value=value)
            blobs[row.name, row.key] = row
    return blobs


class _CheckpointRows(NamedTuple):
    """The row of one checkpoint, its writes and sends, and the blobs of its namespace."""

    head: TupleRow
    others: Sequence[Row]
    blobs: Blobs

    def build(self, d: SqlDialect, decoder: Decoder, metadata: Any) -> CheckpointTuple:
        """Build the checkpoint."""
        head, others, _ = self
        _, thread_id, checkpoint_ns, checkpoint_id, parent_id, *_ = head
        document: Any = decoder.document(head.type, head.value)
        pending: list[PendingWrite] = []
        if others or head.channels:
            if head.channels:
                _add_blobs(d, decoder, head, self.blobs, document)
            if document.get("v", FORMAT_WITH_SENDS) < FORMAT_WITH_SENDS:
                self._add_sends(decoder, document)
            pending = decoder.writes(writes_of(others))
        return CheckpointTuple(
            config_of(thread_id, checkpoint_ns, checkpoint_id),
            document,
            metadata,
            config_of(thread_id, checkpoint_ns, parent_id) if parent_id else None,
            pending,
        )

    def _add_sends(self, decoder: Decoder, document: Any) -> None:
        """Put the pending sends of a checkpoint in an old format, which are writes of its parent, into the document."""
        if sends := writes_of(self.others, "send"):
            document["channel_values"][TASKS] = [decoder.write(row, self.head.name) for row in sends]
            versions = document.setdefault("channel_versions", {})
            versions[TASKS] = max(versions.values()) if versions else _FIRST_VERSION
