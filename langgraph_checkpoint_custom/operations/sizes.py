"""Counting rows and bytes.

Must not know: SQL, connections, serializers: nothing here reads a value.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from langgraph_checkpoint_custom.engine.operation import Steps, operation
from langgraph_checkpoint_custom.sql.dialect import SqlDialect

# Rows of a table that a list counts of each thread, so that a long thread takes no longer than some tens of
# milliseconds.
MOST = 10_000


class ThreadSize(NamedTuple):
    """The number of rows of a thread; `bytes` is the size of its values as they are stored."""

    thread_id: str
    checkpoints: int
    hidden: int
    writes: int
    blobs: int
    bytes: int


class Counted(NamedTuple):
    """The size of a thread of which a number of rows was counted; it has more unless it is `complete`."""

    size: ThreadSize
    complete: bool


class NamespaceSize(NamedTuple):
    """The rows of a namespace in a thread; `first_id` and `last_id` are checkpoint ids."""

    checkpoint_ns: str
    checkpoints: int
    rows: int
    bytes: int
    first_id: str | None
    last_id: str | None


class ChannelSize(NamedTuple):
    """The rows of a channel: values, chunks of large values, and writes. `checkpoint_ns` is None for all threads."""

    checkpoint_ns: str | None
    channel: str
    versions: int
    chunks: int
    writes: int
    bytes: int


class LargeThread(NamedTuple):
    """One of the largest threads."""

    thread_id: str
    checkpoints: int
    rows: int
    bytes: int
    first_id: str | None
    last_id: str | None


class TableSize(NamedTuple):
    """The rows of a table."""

    table: str
    rows: int
    bytes: int


class Thread(NamedTuple):
    """What `stats` reports about one thread."""

    namespaces: Sequence[NamespaceSize]
    channels: Sequence[ChannelSize]


class Store(NamedTuple):
    """What `stats` reports about all threads."""

    tables: Sequence[TableSize]
    threads: Sequence[LargeThread]
    channels: Sequence[ChannelSize]


@operation("read")
def sizes_of_threads(d: SqlDialect, thread_ids: Sequence[str]) -> Steps[dict[str, ThreadSize]]:
    """Return the sizes of these threads, by thread id.

    Round trips: 1.
    Rows: all rows of these threads are counted.
    """
    (rows,) = yield d.sizes_of_threads(thread_ids)
    found = {thread_id: ThreadSize(thread_id, 0, 0, 0, 0, 0) for thread_id in thread_ids}
    return found | {size.thread_id: size for size in (ThreadSize(d.own_thread_id(row[0]), *row[1:]) for row in rows)}


@operation("read")
def sizes_up_to(d: SqlDialect, thread_ids: Sequence[str], most: int) -> Steps[dict[str, Counted]]:
    """Return the sizes of these threads, by thread id, for a list: of a long thread, `most` rows of each table.

    Round trips: 1, with a statement for each thread; 0 for no thread.
    Rows: `most` and one of each table for each thread.
    """
    replies = (yield d.sizes_up_to(thread_ids, most + 1)) if thread_ids else ()
    found = {}
    for thread_id, ((checkpoints, hidden, writes, blobs, size),) in zip(thread_ids, replies, strict=True):
        complete = max(checkpoints + hidden, writes, blobs) <= most
        found[thread_id] = Counted(ThreadSize(thread_id, checkpoints, hidden, writes, blobs, int(size)), complete)
    return found


@operation("read")
def sizes_of_thread(d: SqlDialect, thread_id: str, limit: int) -> Steps[Thread]:
    """Return the largest namespaces and channels of a thread.

    Round trips: 1.
    """
    namespaces, channels = yield d.sizes_of_thread(thread_id, limit)
    return Thread([NamespaceSize(*row) for row in namespaces], [ChannelSize(*row) for row in channels])


@operation("read")
def sizes_of_store(d: SqlDialect, limit: int) -> Steps[Store]:
    """Return the sizes of the tables, and the largest threads and channels.

    Round trips: 1.
    Rows: all rows are counted; values are not read.
    """
    tables, threads, channels = yield d.sizes_of_store(limit)
    sizes = dict.fromkeys(("checkpoints", "blobs", "writes"), (0, 0)) | {row[0]: row[1:] for row in tables}
    return Store(
        [TableSize(table, *size) for table, size in sizes.items()],
        [LargeThread(d.own_thread_id(row[0]), *row[1:]) for row in threads],
        [ChannelSize(*row) for row in channels],
    )
