"""Counting rows and bytes, also before and after a change or its dry run.

Must not know: SQL, connections, serializers: nothing here reads a value.

The database counts the rows of each kind and channel of a thread. Everything else is summed up here.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from heapq import nsmallest
from typing import Any, NamedTuple, TypeVar

from langgraph_checkpoint_custom.engine.operation import Operation, Steps, operation
from langgraph_checkpoint_custom.model.keys import Range, right_above
from langgraph_checkpoint_custom.sql.dialect import SqlDialect

# Rows of a table that a list counts of each thread, so that a long thread takes no longer than some tens of
# milliseconds.
MOST = 10_000
ALL = 2**62
# Checkpoints in the threads of a page. More checkpoints: fewer statements. Fewer: a statement ends sooner.
PAGE = 2_000
TABLES = ("checkpoints", "blobs", "writes")
_TABLES = {"checkpoint": "checkpoints", "hidden": "checkpoints", "value": "blobs", "chunk": "blobs", "write": "writes"}

K = TypeVar("K", bound="str | tuple[str, str]")


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
    """One of the largest threads; `tenant` is "" without one."""

    tenant: str
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


class SizeRow(NamedTuple):
    """The rows of a kind and channel in a namespace of a thread.

    The kind is "checkpoint", "hidden" (a checkpoint that is), "value", "chunk" or "write". Checkpoints have no channel,
    and the others no first and last id.
    """

    thread_id: str
    checkpoint_ns: str
    kind: str
    channel: str | None
    rows: int
    bytes: int
    first_id: str | None
    last_id: str | None


class Total:
    """The sum of some `SizeRow`s."""

    def __init__(self, rows: Iterable[SizeRow] = ()) -> None:
        self.rows = defaultdict[str, int](int)
        self.bytes = 0
        self.first_id: str | None = None
        self.last_id: str | None = None
        for row in rows:
            self.add(row)

    def add(self, row: SizeRow) -> None:
        """Add a row."""
        self.rows[row.kind] += row.rows
        self.bytes += row.bytes
        if row.first_id is not None and row.last_id is not None:
            self.first_id = min(row.first_id, self.first_id or row.first_id)
            self.last_id = max(row.last_id, self.last_id or row.last_id)

    def of_checkpoints(self) -> tuple[int, int, int, str | None, str | None]:
        """Return the number of visible checkpoints and of all rows, the bytes, and the first and last checkpoint id."""
        return self.rows["checkpoint"], sum(self.rows.values()), self.bytes, self.first_id, self.last_id

    def of_channel(self) -> tuple[int, int, int, int]:
        """Return the numbers of values, chunks and writes, and the bytes."""
        return self.rows["value"], self.rows["chunk"], self.rows["write"], self.bytes


def _largest(totals: Mapping[K, Total], limit: int) -> list[tuple[K, Total]]:
    """Return those with most bytes, the largest first."""
    return nsmallest(limit, totals.items(), key=lambda item: (-item[1].bytes, item[0]))


@operation("read")
def sizes_of_threads(d: SqlDialect, thread_ids: Sequence[str], most: int = ALL) -> Steps[dict[str, Counted]]:
    """Return the sizes of these threads, by thread id; of a long thread, `most` rows of each table are counted.

    Round trips: 1, with a statement for each thread; 0 for no thread.
    Rows: up to `most` and one of each table for each thread.
    """
    replies = (
        (yield d.ask_each("sizes", (d.only(each)._asdict() for each in thread_ids), most=most + 1))
        if thread_ids
        else ()
    )
    found = {}
    for thread_id, reply in zip(thread_ids, replies, strict=True):
        total = Total(map(SizeRow._make, reply))
        rows = total.rows
        size = ThreadSize(
            thread_id, rows["checkpoint"], rows["hidden"], rows["write"], rows["value"] + rows["chunk"], total.bytes
        )
        found[thread_id] = Counted(size, max(size.checkpoints + size.hidden, size.writes, size.blobs) <= most)
    return found


@operation("read")
def sizes_of_thread(d: SqlDialect, thread_id: str, limit: int) -> Steps[Thread]:
    """Return the largest namespaces and channels of a thread.

    Round trips: 1.
    Rows: all rows of the thread are counted.
    """
    (rows,) = yield d.ask("sizes", **d.only(thread_id)._asdict(), most=ALL)
    namespaces = defaultdict[str, Total](Total)
    channels = defaultdict[tuple[str, str], Total](Total)
    for row in map(SizeRow._make, rows):
        namespaces[row.checkpoint_ns].add(row)
        if row.channel is not None:
            channels[row.checkpoint_ns, row.channel].add(row)
    return Thread(
        [NamespaceSize(ns, *total.of_checkpoints()) for ns, total in _largest(namespaces, limit)],
        [ChannelSize(*where, *total.of_channel()) for where, total in _largest(channels, limit)],
    )


@operation("read")
def sizes_of_store(d: SqlDialect, limit: int, tenants: Iterable[str] = ()) -> Steps[Store]:
    """Return the sizes of the tables, and the largest threads and channels; with the threads of some tenants, too.

    Round trips: 2 for each page of threads.
    Rows: all rows are counted; values are not read.
    """
    tables, channels = defaultdict[str, Total](Total), defaultdict[str, Total](Total)
    threads = defaultdict[tuple[str, str], Total](Total)
    for own in (d, *map(d.for_tenant, tenants)):
        for within in own.ranges():
            page: Range | None = within
            while page is not None:
                page, following = yield from page_of_threads(own, page)
                (rows,) = yield own.ask("sizes", **page._asdict(), most=ALL)
                for row in map(SizeRow._make, rows):
                    tables[_TABLES[row.kind]].add(row)
                    threads[own.tenant, own.own_thread_id(row.thread_id)].add(row)
                    if row.channel is not None:
                        channels[row.channel].add(row)
                threads = defaultdict(Total, _largest(threads, limit))
                page = following
    return Store(
        [TableSize(table, sum(tables[table].rows.values()), tables[table].bytes) for table in TABLES],
        [LargeThread(tenant, name, *total.of_checkpoints()) for (tenant, name), total in _largest(threads, limit)],
        [ChannelSize(None, channel, *total.of_channel()) for channel, total in _largest(channels, limit)],
    )


def page_of_threads(d: SqlDialect, within: Range, checkpoints: int = PAGE) -> Steps[tuple[Range, Range | None]]:
    """Return the first page of a range of threads, and what remains of the range; None if nothing does.

    The page ends with the thread that has the checkpoint after this number of others.

    Round trips: 1.
    """
    (rows,) = yield d.ask("thread_at", **within._asdict(), rows=checkpoints)
    if not rows:
        return within, None
    end = right_above(rows[0][0])
    return within._replace(top=end), within._replace(bottom=end)


@operation("transaction")
def counted_change(d: SqlDialect, thread_id: str, op: Operation[Any]) -> Steps[tuple[ThreadSize, ThreadSize]]:
    """Run a write, and return the sizes of a thread before and after it. No other operation has changed it in between.

    Round trips: those of the write, and 2.
    Idempotent: as the write is. If the answer to an attempt was lost, the sizes are those before and after the next.
    """
    yield d.ask(lock="exclusive", thread_id=thread_id)
    return (yield from _before_and_after(d, thread_id, op))


class DryRunResult(Exception):  # Not an error: an exception is what rolls a dry run back.
    """The sizes of a thread before and after an operation that was rolled back."""

    def __init__(self, before: ThreadSize, after: ThreadSize) -> None:
        super().__init__("nothing was changed")
        self.before = before
        self.after = after


@operation("transaction")
def dry_run_of(d: SqlDialect, thread_id: str, op: Operation[Any]) -> Steps[None]:
    """Run a write, count the rows of a thread before and after it, and roll it back. It takes the locks of the write.

    Round trips: those of the write, and 2.
    Raises: DryRunResult, or what the write raises.
    """
    raise DryRunResult(*(yield from _before_and_after(d, thread_id, op)))


def _before_and_after(d: SqlDialect, thread_id: str, op: Operation[Any]) -> Steps[tuple[ThreadSize, ThreadSize]]:
    before = yield from sizes_of_threads(d, [thread_id]).start()
    yield from op.start()
    after = yield from sizes_of_threads(d, [thread_id]).start()
    return before[thread_id].size, after[thread_id].size
