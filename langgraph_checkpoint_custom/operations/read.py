"""Reading checkpoints: one, or a page of a list.

Must not know: SQL, connections.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from operator import itemgetter
from typing import Any, NamedTuple

from langgraph.checkpoint.base import CheckpointTuple, PendingWrite
from langgraph.checkpoint.serde.types import TASKS

from langgraph_checkpoint_custom.encoding.apart import version_key
from langgraph_checkpoint_custom.encoding.chunks import KnownBlobs, KnownValue
from langgraph_checkpoint_custom.encoding.decode import Decoder
from langgraph_checkpoint_custom.encoding.serde import MSGPACK, NULL
from langgraph_checkpoint_custom.encoding.values import Values
from langgraph_checkpoint_custom.engine.operation import RoundTrip, Row, Steps, offload, one_trip, operation
from langgraph_checkpoint_custom.model.filter import Condition, matches, narrowing
from langgraph_checkpoint_custom.model.keys import Key, Page, TupleRow, config_of
from langgraph_checkpoint_custom.model.outline import FORMAT_WITH_SENDS
from langgraph_checkpoint_custom.operations.pieces import Piece, piece_of
from langgraph_checkpoint_custom.sql.dialect import SqlDialect

_PATH_TASK_IDX = itemgetter(6, 5, 7)

NextVersion = Callable[[None, None], str]
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


def size_of(rows: Iterable[TupleRow]) -> int:
    """Return the number of bytes in rows that are to be decoded."""
    return sum([len(row.value or b"") + len(row.value2 or b"") for row in rows])


def in_order(rows: list[TupleRow]) -> list[TupleRow]:
    """Sort writes in place as LangGraph applies them, by its `writes_sort_key`, and return them."""
    if len(rows) > 1:
        rows.sort(key=_PATH_TASK_IDX)
    return rows


def rows_of(d: SqlDialect, request: RoundTrip) -> Steps[list[TupleRow]]:
    """Return the rows of checkpoints, with their writes and blobs.

    Round trips: 1; on SQLite 2 if there are chunks, or sends of an old format.
    """
    (rows,) = yield request
    return (yield from complete(d, rows))


def complete(d: SqlDialect, rows: list[Row]) -> Steps[list[TupleRow]]:
    """Return the rows of a reply with the rest of their checkpoints."""
    if rest := d.select_rest(rows):
        rows += [row for reply in (yield rest) for row in reply]
    return d.rows(rows)


@operation("read")
def get_tuple(
    d: SqlDialect, codec: Values, next_version: NextVersion, remember: Remember | None, key: Key
) -> Steps[CheckpointTuple | None]:
    """Return the checkpoint of a key with its pending writes, or None.

    Round trips: 1.
    Snapshot: one read snapshot over checkpoint, blobs and writes.
    Raises: CorruptCheckpoint.
    Source: BaseCheckpointSaver.get_tuple.
    """
    rows = yield from rows_of(d, d.select_checkpoint(key))
    return (yield from offload(size_of(rows), build_tuple, d, codec, next_version, remember, rows))


@operation("read")
def get_with_writes(
    d: SqlDialect, codec: Values, next_version: NextVersion, keys: Sequence[Key]
) -> Steps[Sequence[tuple[CheckpointTuple, Sequence[TupleRow]]]]:
    """Return the checkpoints of keys that exist, each with the rows of its writes, in the order of `pending_writes`.

    Round trips: 1.
    Raises: CorruptCheckpoint.
    """
    replies = yield one_trip([d.select_checkpoint(key) for key in keys])
    tuples = []
    for reply in replies:
        rows = yield from complete(d, reply)
        one = yield from offload(size_of(rows), build_tuple, d, codec, next_version, None, rows)
        if one:
            tuples.append((one, in_order([row for row in rows if row.kind == "write"])))
    return tuples


@operation("read")
def get_tuple_to_write(
    d: SqlDialect, codec: Values, next_version: NextVersion, remember: Remember | None, key: Key
) -> Steps[Reading]:
    """Return what `get_tuple` returns, and whether a newer checkpoint exists.

    Round trips: 1, or 2 for a checkpoint by its id. The newest id is read first. So a checkpoint that another run
        stores between the two is a conflict, and the caller's run is not taken for a fork.
    Raises: CorruptCheckpoint.
    """
    newest: list[Any] = []
    if key.checkpoint_id is not None:
        (newest,) = yield d.ask("select_newest_id", **key._asdict())
    rows = yield from rows_of(d, d.select_checkpoint(key))
    found = yield from offload(size_of(rows), build_tuple, d, codec, next_version, remember, rows)
    return Reading(found, bool(newest) and newest[0][0] != key.checkpoint_id)


@operation("read")
def list_page(
    d: SqlDialect, codec: Values, next_version: NextVersion, page: Page, wanted: Sequence[Condition]
) -> Steps[PageReply]:
    """Return one page of checkpoints, newest first. A page may have fewer tuples than rows were read, even none.

    Round trips: 1, and those of `piece_of`.
    Snapshot: one read snapshot over the page.
    Raises: CorruptCheckpoint.
    Source: BaseCheckpointSaver.list.
    """
    piece = yield from piece_of(d, page._replace(filter=narrowing(wanted, contains=d.filter_contains)))
    if piece is None:
        return PageReply([], None)
    rows = yield from rows_of(d, d.select_page(piece.page))
    tuples = yield from offload(size_of(rows), build_tuples, d, codec, next_version, rows, wanted)
    return PageReply(tuples, piece.after(_page_places(rows)))


def build_page(d: SqlDialect, codec: Values, next_version: NextVersion, page: Page, rows: list[TupleRow]) -> PageReply:
    """Build the reply from the rows of a page of a namespace without a filter."""
    tuples = build_tuples(d, codec, next_version, rows, ())
    return PageReply(tuples, Piece(page, None).after(_page_places(rows)))


def _page_places(rows: Sequence[TupleRow]) -> Sequence[tuple[str, str, str]]:
    """The id, thread and namespace of each checkpoint, as `Piece.after` takes them."""
    return [(row.checkpoint_id, row.thread_id, row.checkpoint_ns) for row in rows if row.kind == "checkpoint"]


@operation("read")
def checkpoints_of_threads(d: SqlDialect, thread_ids: Sequence[str]) -> Steps[Sequence[Sequence[Row]]]:
    """Return for each thread a row for each checkpoint, including hidden ones.

    It has the namespace, the id, the number of writes, and that of the writes that a later one may replace.

    Round trips: 1.
    """
    found = yield d.ask_each("select_checkpoint_ids", [{"thread_id": each} for each in thread_ids])
    return found  # type: ignore[no-any-return]  # The reply of a round trip is not typed.


def build_tuple(
    d: SqlDialect, codec: Values, next_version: NextVersion, remember: Remember | None, rows: Sequence[TupleRow]
) -> CheckpointTuple | None:
    """Build the checkpoint of a reply about one checkpoint; None if it does not exist."""
    if not rows or rows[0].kind == "write":  # Writes can be stored before their checkpoint.
        return None
    head, others = rows[0], rows[1:]
    one = _CheckpointRows(head, others, {})
    if head.channels:
        one = _CheckpointRows(head, [row for row in others if row.kind != "blob"], _by_name(others))
    try:
        if found := one.build_ordinary(d, codec):
            if remember:
                remember(*head[1:4], one.known(d, codec) if head.channels else None)
            return found
    except Exception:  # Any error that an object raises: reading it in the other way raises one with its location.
        _build_any(d, codec, next_version, remember, one)
        raise
    return _build_any(d, codec, next_version, remember, one)


def _build_any(
    d: SqlDialect, codec: Values, next_version: NextVersion, remember: Remember | None, one: _CheckpointRows
) -> CheckpointTuple:
    """Build any checkpoint."""
    thread_id, checkpoint_ns, checkpoint_id = one.head[1:4]
    decoder = Decoder(codec, thread_id, checkpoint_ns, checkpoint_id)
    found = one.build(d, decoder, next_version, decoder.metadata(one.head.type2, one.head.value2))
    if remember:
        remember(thread_id, checkpoint_ns, checkpoint_id, decoder.known)
    return found


def build_tuples(
    d: SqlDialect,
    codec: Values,
    next_version: NextVersion,
    rows: Sequence[TupleRow],
    wanted: Sequence[Condition],
) -> list[CheckpointTuple]:
    """Build the checkpoints of a page that match, newest first. They share no objects."""
    heads: list[TupleRow] = []
    others: dict[tuple[str, ...], list[TupleRow]] = {}
    for row in rows:
        if row.kind == "checkpoint":
            heads.append(row)
        else:
            others.setdefault(row[1:3] if row.kind == "blob" else row[1:4], []).append(row)
    # Several checkpoints of a namespace may share a blob.
    blobs = {location: _by_name(found) for location, found in others.items() if len(location) == 2}
    heads.sort(key=itemgetter(3, 1, 2), reverse=True)
    tuples = []
    for head in heads:
        one = _CheckpointRows(head, others.get(head[1:4], ()), blobs.get(head[1:3], {}))
        error = None
        try:
            if found := one.build_ordinary(d, codec):
                if not wanted or matches(found.metadata, wanted, contains=d.filter_contains):
                    tuples.append(found)
                continue
        except Exception as raised:  # Reading it in the other way raises an error with its location, if it matches.
            error = raised
        decoder = Decoder(codec, *head[1:4])
        metadata = decoder.metadata(head.type2, head.value2)
        if matches(metadata, wanted, contains=d.filter_contains):
            tuples.append(one.build(d, decoder, next_version, metadata))
            if error:  # It came from outside, such as a signal handler.
                raise error
    return tuples


def _by_name(rows: Iterable[TupleRow]) -> dict[tuple[str | None, str | None], TupleRow]:
    """Return values and chunks, by channel and version (of a value) or name (of a chunk)."""
    return {(row.name, row.key): row for row in rows if row.kind == "blob"}


class _CheckpointRows(NamedTuple):
    """The row of one checkpoint, its writes and sends, and the blobs of its namespace."""

    head: TupleRow
    others: Sequence[TupleRow]
    blobs: Mapping[tuple[str | None, str | None], TupleRow]

    def build_ordinary(self, d: SqlDialect, codec: Values) -> CheckpointTuple | None:
        """Build a checkpoint from bytes in clear, as nearly all are; None if there is more to do."""
        head, writes, blobs = self
        _, thread_id, checkpoint_ns, checkpoint_id, parent_id, *_ = head
        plain: Any = codec.plain  # If bytes are missing, it raises an error.
        if not head.type == head.type2 == MSGPACK or plain is None:
            return None
        pending: Any = []
        for kind, _, _, _, channel, task_id, _, _, type_, data, *_ in in_order([*writes]) if writes else ():
            if kind != "write" or type_ not in (MSGPACK, NULL):
                return None
            pending.append((task_id, channel, None if type_ == NULL else plain(data)))
        checkpoint, found = plain(head.value), plain(head.value2)
        if type(checkpoint) is not dict or type(checkpoint.get("channel_values")) is not dict:
            return None
        if type(found) is not dict or "thread_id" in found:
            return None
        for channel, version in self.references(d) if head.channels else ():
            blob = blobs.get((channel, version))
            if not blob or blob.type != MSGPACK or blob.path or checkpoint["channel_versions"].get(channel) != version:
                return None
            checkpoint["channel_values"][channel] = plain(blob.value)
        own = config_of(thread_id, checkpoint_ns, checkpoint_id)
        parent = config_of(thread_id, checkpoint_ns, parent_id) if parent_id else None
        return CheckpointTuple(own, checkpoint, found, parent, pending)  # type: ignore[arg-type]

    def references(self, d: SqlDialect) -> Iterable[tuple[str, str]]:
        """The channel and version of each blob that belongs to the checkpoint."""
        return zip(d.names(self.head.channels), d.names(self.head.versions), strict=True)

    def known(self, d: SqlDialect, codec: Values) -> KnownBlobs:
        """What is known of the blobs of an ordinary checkpoint."""
        versions = dict(self.references(d))
        found = {channel: self.blobs[channel, version].value or b"" for channel, version in versions.items()}
        large = {
            channel: KnownValue(versions[channel], whole=data)
            for channel, data in found.items()
            if codec.is_large(MSGPACK, data)
        }
        return KnownBlobs(versions, large)

    def build(self, d: SqlDialect, decoder: Decoder, next_version: NextVersion, metadata: Any) -> CheckpointTuple:
        """Build the checkpoint."""
        head, others, _ = self
        _, thread_id, checkpoint_ns, checkpoint_id, parent_id, *_ = head
        document: Any = decoder.document(head.type, head.value)
        pending: list[PendingWrite] = []
        if others or head.channels:
            if head.channels:
                self._add_blobs(d, decoder, document)
            if document.get("v", FORMAT_WITH_SENDS) < FORMAT_WITH_SENDS:
                self._add_sends(decoder, next_version, document)
            pending = decoder.writes(in_order([row for row in others if row.kind == "write"]))
        return CheckpointTuple(
            config_of(thread_id, checkpoint_ns, checkpoint_id),
            document,
            metadata,
            config_of(thread_id, checkpoint_ns, parent_id) if parent_id else None,
            pending,
        )

    def _add_blobs(self, d: SqlDialect, decoder: Decoder, document: Any) -> None:
        """Put the values of blobs into the document."""
        blobs = self.blobs
        values, stated = document["channel_values"], document.get("channel_versions", {})
        for channel, version in self.references(d):
            if stated.get(channel) != version and version_key(stated.get(channel)) != version:
                raise decoder.corrupt(f"the row has version {version!r}, but the checkpoint names another", channel)
            blob = blobs.get((channel, version))
            if blob is None:
                raise decoder.corrupt(f"the stored value of version {version!r} is missing", channel)
            values[channel] = decoder.blob(blob, lambda channel, name: blobs.get((channel, name)))

    def _add_sends(self, decoder: Decoder, next_version: NextVersion, document: Any) -> None:
        """Put the pending sends of a checkpoint in an old format, which are writes of its parent, into the document."""
        if sends := in_order([row for row in self.others if row.kind == "send"]):
            document["channel_values"][TASKS] = [decoder.write(row, self.head.name) for row in sends]
            versions = document.setdefault("channel_versions", {})
            versions[TASKS] = max(versions.values()) if versions else next_version(None, None)
