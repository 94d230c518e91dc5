"""Reading checkpoints: one, or a page of a list.

Must not know: SQL, connections.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

from langgraph.checkpoint.base import CheckpointTuple, PendingWrite, writes_sort_key
from langgraph.checkpoint.serde.base import CipherProtocol
from langgraph.checkpoint.serde.types import TASKS

from langgraph_checkpoint_custom.core.codec import Decoder, version_key
from langgraph_checkpoint_custom.core.dialect import SqlDialect
from langgraph_checkpoint_custom.core.filter import matches, narrowing
from langgraph_checkpoint_custom.core.model import Key, Page, TupleRow, config_of
from langgraph_checkpoint_custom.core.operation import Row, Steps, offload, operation
from langgraph_checkpoint_custom.core.parts import Known
from langgraph_checkpoint_custom.core.values import Values

# The newest format of LangGraph's checkpoints; older ones keep their pending sends on the parent's writes.
FORMAT_WITH_SENDS = 4

NextVersion = Callable[[None, None], str]
Note = Callable[[Key, CipherProtocol | None, Mapping[str, Known]], None]


class PageReply(NamedTuple):
    """The tuples of a page that match, and the page after it, or None if this was the last."""

    tuples: list[CheckpointTuple]
    after: Page | None


class Reading(NamedTuple):
    """A checkpoint that a run may go on from, and whether there was a newer one."""

    found: CheckpointTuple | None
    is_older: bool


def size_of(rows: Iterable[TupleRow]) -> int:
    """The bytes that rows bring to be decoded."""
    return sum([len(row.value or b"") + len(row.value2 or b"") for row in rows])


def in_order(rows: Iterable[TupleRow]) -> list[TupleRow]:
    """Writes in the order in which LangGraph applies them."""
    rows = list(rows)
    if len(rows) > 1:
        rows.sort(key=lambda row: writes_sort_key(row.path or "", row.key or "", row.idx or 0))
    return rows


@operation("read")
def get_tuple(
    d: SqlDialect, codec: Values, next_version: NextVersion, note: Note | None, key: Key
) -> Steps[CheckpointTuple | None]:
    """The checkpoint of a key with its pending writes, or None.

    Trips: 1.
    Snapshot: one read snapshot over checkpoint, blobs and writes.
    Raises: CorruptCheckpoint.
    Source: BaseCheckpointSaver.get_tuple.
    """
    (rows,) = yield d.select_checkpoint(key)
    rows = d.rows(rows)
    tuples = yield from offload(size_of(rows), build_tuples, d, codec, next_version, rows, {}, note)
    return tuples[0] if tuples else None


@operation("read")
def get_tuple_to_write(
    d: SqlDialect, codec: Values, next_version: NextVersion, note: Note | None, key: Key
) -> Steps[Reading]:
    """As `get_tuple`, and whether there is a newer checkpoint.

    Trips: 1, or 2 for a checkpoint by its id. The newest is looked up first: a run that comes in between makes a
        conflict, and not a fork.
    Raises: CorruptCheckpoint.
    """
    newest: list[Any] = []
    if key.checkpoint_id is not None:
        (newest,) = yield d.select_newest_id(key)
    (rows,) = yield d.select_checkpoint(key)
    rows = d.rows(rows)
    tuples = yield from offload(size_of(rows), build_tuples, d, codec, next_version, rows, {}, note)
    return Reading(tuples[0] if tuples else None, bool(newest) and newest[0][0] != key.checkpoint_id)


@operation("read")
def list_page(
    d: SqlDialect, codec: Values, next_version: NextVersion, page: Page, wanted: Mapping[str, str]
) -> Steps[PageReply]:
    """One page of a list, newest first; a page can hold fewer tuples than rows were read, even none.

    Trips: 1.
    Snapshot: one read snapshot over the page.
    Raises: CorruptCheckpoint.
    Source: BaseCheckpointSaver.list.
    """
    (rows,) = yield d.select_page(page._replace(filter=narrowing(wanted, contains=d.filter_contains)))
    rows = d.rows(rows)
    places = sorted(
        ((row.checkpoint_id, row.thread_id, row.checkpoint_ns) for row in rows if row.kind == "checkpoint"),
        reverse=True,
    )
    after = None
    if len(places) == page.limit:
        before, thread_below, ns_below = places[-1]
        after = page._replace(before=before, thread_below=thread_below, ns_below=ns_below)
    tuples = yield from offload(size_of(rows), build_tuples, d, codec, next_version, rows, wanted)
    return PageReply(tuples, after)


@operation("read")
def threads_places(d: SqlDialect, thread_ids: Sequence[str]) -> Steps[Sequence[Sequence[Row]]]:
    """Of each of these threads, the namespace, id and number of writes of each checkpoint, hidden ones too.

    Trips: 1.
    """
    found = yield d.select_places(thread_ids)
    return found  # type: ignore[no-any-return]  # What a trip answers is not typed.


def _part(
    blobs: Mapping[tuple[str, ...], TupleRow], thread_id: str, checkpoint_ns: str, channel: str, name: str
) -> TupleRow | None:
    return blobs.get((thread_id, checkpoint_ns, channel, name))


def build_tuples(
    d: SqlDialect,
    codec: Values,
    next_version: NextVersion,
    rows: Sequence[TupleRow],
    wanted: Mapping[str, str],
    note: Note | None = None,
) -> list[CheckpointTuple]:
    """The checkpoints of a reply that match a filter, newest first; each has objects of its own.

    `note` is told what is known of their large values.
    """
    heads: list[TupleRow] = []
    blobs: dict[tuple[str, ...], TupleRow] = {}
    writes: dict[tuple[Any, ...], list[TupleRow]] = {}  # By kind and checkpoint.
    for row in rows:
        if row.kind == "checkpoint":
            heads.append(row)
        elif row.kind == "blob":
            blobs[row.thread_id, row.checkpoint_ns, row.name or "", row.key or ""] = row
        else:
            writes.setdefault(row[:4], []).append(row)
    heads.sort(key=lambda row: (row.checkpoint_id, row.thread_id, row.checkpoint_ns), reverse=True)

    tuples = []
    for head in heads:
        thread_id, checkpoint_ns, checkpoint_id = place = head[1:4]
        known: dict[str, Known] | None = {} if note else None
        decoder = Decoder(codec, *place, known)
        metadata: Any = decoder.metadata(head.type2, head.value2)
        if wanted and not matches(metadata, wanted, contains=d.filter_contains):
            continue
        document: Any = decoder.document(head.type, head.value)
        values = document["channel_values"]
        stated = document.get("channel_versions", {})
        names = zip(d.names(head.channels), d.names(head.versions), strict=True) if head.channels else ()
        for channel, version in names:
            if stated.get(channel) != version and version_key(stated.get(channel)) != version:
                raise decoder.corrupt(f"the row names version {version!r}, the checkpoint another", channel)
            blob = blobs.get((thread_id, checkpoint_ns, channel, version))
            if blob is None:
                raise decoder.corrupt(f"the stored value of version {version!r} is gone", channel)
            values[channel] = decoder.blob(blob, partial(_part, blobs, thread_id, checkpoint_ns))
        if document.get("v", FORMAT_WITH_SENDS) < FORMAT_WITH_SENDS and (sends := writes.get(("send", *place))):
            values[TASKS] = [decoder.write(row, head.name) for row in in_order(sends)]
            versions = document.setdefault("channel_versions", {})
            versions[TASKS] = max(versions.values()) if versions else next_version(None, None)
        pending: list[PendingWrite] = [
            (row.key or "", row.name or "", decoder.write(row)) for row in in_order(writes.get(("write", *place), ()))
        ]
        if note and known is not None:
            note(Key(d.stored_thread(thread_id), checkpoint_ns, checkpoint_id), codec.cipher, known)
        tuples.append(
            CheckpointTuple(
                config_of(*place),
                document,
                metadata,
                config_of(thread_id, checkpoint_ns, head.name) if head.name else None,
                pending,
            )
        )
    return tuples
