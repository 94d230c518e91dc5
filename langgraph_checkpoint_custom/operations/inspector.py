"""What the inspector shows of a thread and of a checkpoint besides their values.

Must not know: SQL, connections.

Nothing here needs an encryption key: what is read of the metadata is never encrypted, and sizes are lengths of stored
bytes.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from langgraph_checkpoint_custom.engine.operation import RoundTrip, Row, Steps, one_trip, operation
from langgraph_checkpoint_custom.model.keys import AFTER_ALL, Key, Range
from langgraph_checkpoint_custom.operations.sizes import MOST, SizeRow, Total
from langgraph_checkpoint_custom.sql.dialect import SqlDialect

_FAILED, _ASKED, _DONE = 1, 2, 4


class TaskRecord(NamedTuple):
    """A task that wrote to a checkpoint; `path` names its node as LangGraph does, see `node_of`."""

    task_id: str
    path: str
    failed: bool
    asked: bool
    done: bool


class TimelineRecord(NamedTuple):
    """A checkpoint of a timeline, without values. `source` and `step` are from its metadata, None if not there."""

    checkpoint_ns: str
    checkpoint_id: str
    parent_id: str | None
    root_id: str | None
    run_id: str | None
    hidden: bool
    source: Any
    step: Any
    tasks: Sequence[TaskRecord]


class ThreadCounts(NamedTuple):
    """What changes when something is stored in a thread or deleted from it.

    Of a thread with more than `MOST` checkpoints, values or writes, only `MOST` + 1 are counted. What a run stores
    changes the others.

    Attributes:
        checkpoints: The number of its checkpoints.
        writes: The number of its writes.
        bytes: The bytes of what is counted.
        newest: The newest checkpoint of all namespaces; None if there is none.
        tasks: The length of a text that describes the tasks that wrote to the newest checkpoint.
        labels: The number of its labels.
    """

    checkpoints: int
    writes: int
    bytes: int
    newest: str | None
    tasks: int
    labels: int


class ValueSize(NamedTuple):
    """A channel value that has rows of its own.

    Attributes:
        channel: The channel.
        version: Its version.
        type: The type in its row.
        bytes: The stored bytes, with those of its chunks.
        shared: How many of these bytes are also part of the parent's value.
        chunks: The number of its chunks; 0 if it is in one piece.
    """

    channel: str
    version: str
    type: str
    bytes: int
    shared: int
    chunks: int


class WriteSize(NamedTuple):
    """A write of a task to a checkpoint, in the order of `writes_sort_key` in its list."""

    task_id: str
    task_path: str
    idx: int
    channel: str
    type: str
    bytes: int
    run_id: str | None


class CheckpointSize(NamedTuple):
    """What a checkpoint consists of, by stored bytes.

    Attributes:
        parent_id: The id of the parent.
        run_id: The run that stored it.
        type: The type of the document.
        document: The bytes of the document, which has the values of the `inline` channels.
        metadata: The bytes of the metadata.
        hidden: Whether it was pruned, but is still needed.
        inline: The channels whose values are in the document.
        delta: The names of the `DeltaChannel`s.
        values: The other values.
        writes: The writes of tasks.
    """

    parent_id: str | None
    run_id: str | None
    type: str
    document: int
    metadata: int
    hidden: bool
    inline: Sequence[str]
    delta: Sequence[str]
    values: Sequence[ValueSize]
    writes: Sequence[WriteSize]


@operation("read")
def timeline(d: SqlDialect, thread_id: str, before: str, limit: int) -> Steps[list[TimelineRecord]]:
    """Return the newest checkpoints of a thread below an id, newest first, in all namespaces and with hidden ones.

    Round trips: 1.
    Rows: for the order, the key of the newest checkpoint of each namespace, on PostgreSQL `limit` of each; `limit`
        checkpoints, and their writes without values.
    Snapshot: one read snapshot.
    """
    (rows,) = yield d.ask("timeline", thread_id=thread_id, before=before, limit=limit)
    found = []
    for ns, checkpoint_id, parent_id, root_id, run_id, hidden, source, step, tasks in rows:
        shown = _shown(source), _shown(step), _tasks(_shown(tasks) or ())
        found.append(TimelineRecord(ns, checkpoint_id, parent_id, root_id, run_id, bool(hidden), *shown))
    return sorted(found, key=lambda one: (one.checkpoint_id, one.checkpoint_ns), reverse=True)


def _tasks(listed: Sequence[Any]) -> list[TaskRecord]:
    found = [
        TaskRecord(task_id, path or "", bool(what & _FAILED), bool(what & _ASKED), bool(what & _DONE))
        for task_id, path, what in listed
    ]
    if len(found) > 1:
        found.sort(key=lambda task: (task.path, task.task_id))
    return found


def _shown(text: str | None) -> Any:
    """Return what a JSON text says; None without one."""
    return None if text is None else json.loads(text)


def counts_of_thread(d: SqlDialect, thread_id: str, most: int) -> RoundTrip:
    """Read the sizes of a thread, of `most` rows of each table; the newest row of its timeline; and its labels."""
    return one_trip(
        [
            d.ask("sizes", **d.only(thread_id)._asdict(), most=most),
            d.ask("timeline", thread_id=thread_id, before=AFTER_ALL, limit=1),
            d.ask("select_labels", thread_id=thread_id),
        ]
    )


@operation("read")
def thread_counts(d: SqlDialect, thread_id: str) -> Steps[ThreadCounts]:
    """Return what changes when something is stored in a thread or deleted from it, to see whether it has changed.

    Round trips: 1.
    Rows: up to `MOST` of its checkpoints, values and writes; the key of the newest checkpoint of each namespace.
    """
    sizes, timeline, labels = yield counts_of_thread(d, thread_id, MOST + 1)
    total = Total(map(SizeRow._make, sizes))
    checkpoints = total.rows["checkpoint"] + total.rows["hidden"]
    newest, tasks = next(((row[1], len(row[8] or "")) for row in timeline), (None, 0))
    return ThreadCounts(checkpoints, total.rows["write"], total.bytes, newest, tasks, len(labels))


@operation("snapshot")
def sizes_of_checkpoint(d: SqlDialect, key: Key) -> Steps[CheckpointSize | None]:
    """Return what a checkpoint consists of, hidden ones too; None if it does not exist.

    Round trips: 1; one more if it names blobs, and one more if these have chunks.
    Rows: its own, and the blobs of its parent. Values are not read.
    Snapshot: one read snapshot.
    """
    checkpoints, written = yield d.ask("sizes_of_checkpoint", "sizes_of_writes", **key._asdict())
    rows = {row[0]: row for row in checkpoints}
    if key.checkpoint_id not in rows:
        return None
    _, parent_id, run_id, type_, document, metadata, hidden, inline, delta, *lists = rows[key.checkpoint_id]
    versions = _versions(*lists)
    before = _versions(*rows[parent_id][-2:]) if parent_id in rows else {}
    named = [(channel, each[channel]) for each in (versions, before) for channel in each if channel in versions]
    blobs = yield from _blobs(d, key, named)
    own = [blobs[each] for each in versions.items() if each in blobs]
    chunks = yield from _blobs(d, key, [(row[0], name) for row in own for name in _chunks(row)])
    values = [_value(row, blobs.get((row[0], before.get(row[0], ""))), chunks) for row in own]
    writes = [WriteSize(*row) for row in written]
    return CheckpointSize(
        parent_id,
        run_id,
        type_,
        document,
        metadata,
        bool(hidden),
        json.loads(inline),
        json.loads(delta),
        sorted(values),
        sorted(writes, key=lambda write: (write.task_path, write.task_id, write.idx)),
    )


def _versions(channels: str, versions: str) -> dict[str, str]:
    return dict(zip(json.loads(channels), json.loads(versions), strict=True))


def _blobs(d: SqlDialect, key: Key, wanted: Sequence[tuple[str, str]]) -> Steps[dict[tuple[str, str], Row]]:
    """Return for channels and versions, or names of chunks, the rows of `sizes_of_blobs`.

    Round trips: 1, or 0 if nothing is wanted.
    """
    if not wanted:
        return {}
    channels, versions = map(d.array, zip(*dict.fromkeys(wanted), strict=True))
    thread_id, checkpoint_ns, _ = key
    params = {"thread_id": thread_id, "checkpoint_ns": checkpoint_ns, "channels": channels, "versions": versions}
    (rows,) = yield d.ask("sizes_of_blobs", **params)
    return {(row[0], row[1]): row for row in rows}


def _chunks(blob: Row) -> set[str]:
    return set(json.loads(blob[4] or "[]"))


def _value(blob: Row, before: Row | None, chunks: Mapping[tuple[str, str], Row]) -> ValueSize:
    channel, version, type_, own, _ = blob
    sizes = {name: chunks[channel, name][3] for name in _chunks(blob) if (channel, name) in chunks}
    total = own + sum(sizes.values())
    shared = 0
    if before is not None:
        shared = total if before[1] == version else sum(sizes.get(name, 0) for name in _chunks(before))
    return ValueSize(channel, version, type_, total, shared, len(_chunks(blob)))


@operation("read")
def threads_with_label(d: SqlDialect, name: str, after: str, limit: int) -> Steps[list[str]]:
    """Return the ids of the threads above `after` with a label of this name, in the order of the ids.

    Round trips: 1.
    Rows: all labels.
    """
    replies = yield d.ask_each(
        "threads_with_label", map(Range._asdict, d.ranges()), name=name, thread_id=after, limit=limit
    )
    return [d.own_thread_id(stored) for rows in replies for (stored,) in rows][:limit]


# Labels whose names are read for suggestions, a few milliseconds.
SEARCHED = 5_000


@operation("read")
def label_names(d: SqlDialect, limit: int) -> Steps[list[str]]:
    """Return names of labels of the first threads, in their order, each once.

    Round trips: 1.
    Rows: up to 5,000 labels.
    """
    replies = yield d.ask_each("label_names", map(Range._asdict, d.ranges()), limit=limit, reach=SEARCHED)
    return sorted({name for rows in replies for (name,) in rows})[:limit]
