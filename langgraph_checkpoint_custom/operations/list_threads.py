"""Lists of threads, their runs and their checkpoints, without channel values.

Must not know: SQL, connections.

A thread's newest checkpoint is that of its root graph, or of its first namespace if only subgraphs have stored
something. Metadata is decoded, because only the metadata itself decides whether a filter matches.

The last checkpoint of a run shows whether the run is finished. For each task that is still to be started, LangGraph
leaves a value in a channel: `branch:to:…` for a node, `__start__` for the input, `__pregel_tasks` for sends, `join:…`
for a node whose predecessors are all done. Only values of the last two kinds are read. A graph that is made of `Pregel`
itself, with channels of other names, always looks finished.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Generator, Sequence
from functools import partial
from heapq import nlargest
from itertools import chain
from typing import Any, NamedTuple
from weakref import WeakSet

from langgraph.checkpoint.serde.types import TASKS

from langgraph_checkpoint_custom.encoding.decode import Decoder
from langgraph_checkpoint_custom.encoding.values import ValueCodec
from langgraph_checkpoint_custom.engine.operation import Operation, Row, Steps, offload, operation
from langgraph_checkpoint_custom.model.filter import Condition, equal_texts, matches, narrowing
from langgraph_checkpoint_custom.model.keys import AFTER_ALL, TENANT_MARK, Key, Page, Range, flag, right_above
from langgraph_checkpoint_custom.model.outline import FORMAT_WITH_SENDS
from langgraph_checkpoint_custom.model.records import CheckpointRecord, RunRecord, ThreadPage, ThreadRecord
from langgraph_checkpoint_custom.operations.pieces import piece_of
from langgraph_checkpoint_custom.operations.read import get_tuple
from langgraph_checkpoint_custom.sql.dialect import SqlDialect
from langgraph_checkpoint_custom.sql.searchable import first_searchable

# A page of threads is searched for among the newest checkpoints: first `NEAR` times as many as threads are asked for,
# then `FARTHER` times as many of the next ones, and so on, up to `FARTHEST` in a statement.
NEAR, FARTHER, FARTHEST = 5, 10, 50_000
# With a filter, checkpoints at most whose threads are looked up before it is compared. Further down, it is compared
# first.
FILTERED = 1_000
# Rows that a search with a filter finds at once.
MATCHES = 1_000
# Threads that a statement reads, if all are.
THREADS = 10_000

_LOG = logging.getLogger("langgraph_checkpoint_custom")
_WARNED: WeakSet[SqlDialect] = WeakSet()  # Dialects for which a warning about hidden tenants was logged.

_START = "__start__"
_BRANCH = "branch:"
_JOIN = "join:"


class _Last(NamedTuple):
    """A row of `select_runs`: a run, and what the row of its last checkpoint says."""

    run_id: str | None
    first_id: str
    last_id: str
    checkpoints: int
    format: int
    inline_channels: Any
    blob_channels: Any


class ThreadsReply(NamedTuple):
    """The threads of a page that match, and the next page, or None if this was the last one.

    It is not `complete` if more threads may match: those that a search with `reach` has not come to.
    """

    threads: Sequence[ThreadRecord]
    after: ThreadPage | None
    complete: bool = True


class HistoryReply(NamedTuple):
    """The records of a page that match, and the next page, or None if this was the last one."""

    records: Sequence[CheckpointRecord]
    after: Page | None


@operation("read")
def threads_page(
    d: SqlDialect,
    codec: ValueCodec,
    page: ThreadPage,
    wanted: Sequence[Condition],
    *,
    even_unreadable: bool = False,
    reach: int | None = None,
) -> Steps[ThreadsReply]:
    """Return one page of threads; the one with the newest checkpoint is first. With a filter, a page may be empty.

    `even_unreadable` returns threads whose metadata cannot be read as if they had none. They match no filter.
    With `reach` and a filter, and if no index finds the rest, only that number of the newest checkpoints is searched.

    Round trips: 1, and one more each time that the checkpoints searched so far are of too few threads. With a filter
        and too few matches among the next 1,000 checkpoints, one more if an index finds the others, else two for each
        5,000 checkpoints, and two for each 1,000 that match. With a prefix, one for each 10,000 threads. For
        `marked` threads, 1.
    Rows: The checkpoints between the first and the last one of the page, or five times as many as threads are asked
        for, and three of each of their threads. With a filter, those with the value of a searchable key, or all down
        to the last one of the page. With a prefix, three of each thread.
    Snapshot: one for each round trip.
    Raises: CorruptCheckpoint, unless `even_unreadable`.
    """
    asked = page._replace(filter=narrowing(wanted, contains=d.filter_contains))
    rows: list[Row] = []
    others: ThreadPage | None = asked
    if asked.marked:
        replies = yield d.select_marked_threads(asked)
        rows, others = nlargest(asked.limit, chain.from_iterable(replies), key=_age), None
    elif not asked.prefix:
        others = yield from _newest(
            d, asked, rows, (reach or min(FILTERED, NEAR * asked.limit)) if asked.filter else None
        )
    complete = True
    if others is not None and len(rows) < page.limit:
        key, texts = (None, ()) if asked.prefix else (yield from _searchable(d, codec, wanted))
        if key is not None:
            (found,) = yield d.select_searched_threads(others, key, texts)
            rows += found
        elif asked.prefix:
            rows += yield from _by_id(d, others)
        elif reach is None:
            rows += yield from _searched(d, others)
        else:
            complete = False
    rows = [row for row in rows if row[2] >= page.floor]
    if len(rows) == page.limit:
        checkpoint_id, last = min(map(_age, rows))
        after = page.clipped(checkpoint_id, d.own_thread_id(last))
    else:  # A row below the floor may be one of the next range.
        after = page.next_range()
    decode = partial(_records, d, codec, rows, wanted, even_unreadable=even_unreadable)
    records = yield from offload(_size(rows), decode)
    if page.period:
        since, until = page.period
        records = [one for one in records if one.time and since <= one.time < until]
    return ThreadsReply([ThreadRecord(record.thread_id, record) for record in records], after, complete)


def _newest(d: SqlDialect, asked: ThreadPage, rows: list[Row], most: int | None) -> Steps[ThreadPage | None]:
    """Search the newest checkpoints for the rows of a page, and add them to `rows`; `most` checkpoints at most.

    Returns the page of the threads that it has not come to; None if there are none.
    """
    searched, reach = 0, NEAR * asked.limit
    while asked.limit > 0 and (most is None or searched < most):
        reach = min(reach, FARTHEST, reach if most is None else most - searched)
        (found,) = yield d.select_newest_threads(asked, reach)
        end = next((row for row in found if row[1] is None), None)
        if end is None:
            rows += found
            return None
        # A thread whose newest checkpoint is older than the end is found again later. This one is a subgraph's.
        new = [row for row in found if row[1] is not None and _age(row) >= _age(end)]
        rows += new
        if end[2] < asked.floor:
            return None
        asked = asked._replace(before=end[2], thread_below=d.own_thread_id(end[0]), limit=asked.limit - len(new))
        searched, reach = searched + reach, reach * FARTHER
    return asked


def _searched(d: SqlDialect, asked: ThreadPage) -> Steps[list[Row]]:
    """Return the rows of a page with a filter, of which few checkpoints match.

    The threads of those that do are looked up, to see whether it is their newest one.
    """
    rows: list[Row] = []
    page: Page | None = Page(None, None, "", asked.before, asked.thread_below, "", asked.filter, MATCHES)
    while page is not None and len(rows) < asked.limit and page.before >= asked.floor:
        piece = yield from piece_of(d, page)
        assert piece is not None
        (found,) = yield d.select_records(piece.page, all_kinds=True)
        page = piece.after([(row[2], d.own_thread_id(row[0]), row[1]) for row in found])
        thread_ids = {row[0] for row in found}
        owns = [{"thread_id": d.own_thread_id(each)} for each in thread_ids]
        newest = (yield d.ask_each("newest_of_thread", owns)) if owns else []
        places = {
            (thread_id, *row) for thread_id, of_thread in zip(thread_ids, newest, strict=True) for row in of_thread
        }
        rows += [row for row in found if tuple(row[:3]) in places]
    return nlargest(asked.limit, rows, key=_age)


def _by_id(d: SqlDialect, asked: ThreadPage) -> Steps[list[Row]]:
    """Return the rows of a page of all threads with its prefix."""
    rows: list[Row] = []
    ranges = [*d.ranges(asked.prefix)]
    while ranges:
        found, ranges = yield from _some_by_id(d, asked, ranges)
        rows = nlargest(asked.limit, rows + found, key=_age)
    return rows


def _some_by_id(d: SqlDialect, asked: ThreadPage, ranges: list[Range]) -> Steps[tuple[list[Row], list[Range]]]:
    """Return the rows of a page of the first threads in some ranges, and the ranges that remain."""
    within, *others = ranges
    (found,) = yield d.select_threads_by_id(asked, within, THREADS)
    rest = [within._replace(bottom=right_above(row[0])) for row in found if row[1] is None]
    return [row for row in found if row[1] is not None], rest + others


def _age(row: Row) -> tuple[str, str]:
    """Return the checkpoint id and the stored thread id, by which threads are ordered."""
    return row[2], row[0]


def _searchable(
    d: SqlDialect, codec: ValueCodec, wanted: Sequence[Condition]
) -> Steps[tuple[str | None, Collection[str]]]:
    """Return a key with an index that finds what a filter wants, and the texts that it finds; None if there is none.

    Round trips: 1, or 0 if no index could find it.
    """
    # Keys in the plaintext metadata projection.
    shown = [each for each in wanted if codec.plaintext_keys is None or each.key in codec.plaintext_keys]
    texts = equal_texts(shown, contains=d.filter_contains)
    if not texts:
        return None, ()
    (searchable,) = yield d.select_searchable(texts)
    key = first_searchable(texts, searchable)
    return key, texts.get(key or "", ())


@operation("read")
def tenants(d: SqlDialect) -> Steps[list[str]]:
    """Return the tenants that have threads and that the database role can see, by name; logs if it cannot see all.

    Round trips: one for each tenant, and one; one more on PostgreSQL, unless a tenant's saver asks.
    """
    if d.has("hides_tenants") and not d.tenant:
        (((hides,),),) = yield d.ask("hides_tenants")
        if hides:
            _say_that_tenants_are_hidden(d)
    found: list[str] = []
    while True:
        (rows,) = yield d.select_next_tenant(found[-1] if found else "")
        if not rows:
            return found
        found.append(rows[0][0].split(TENANT_MARK)[1])


def _say_that_tenants_are_hidden(d: SqlDialect) -> None:
    if d in _WARNED:
        return
    _WARNED.add(d)
    _LOG.warning(
        "row-level security hides the threads of tenants from this role, so only those without a tenant are included; "
        "use the role that owns the tables, or for_tenant() for each tenant"
    )


def dialects_of_tenants(d: SqlDialect, tenants_too: bool) -> Generator[Operation[Any], Any, list[SqlDialect]]:
    """Return a dialect for each owner of threads: one for those without a tenant, and, if asked, one for each tenant.

    For a tenant's saver, it is only that tenant's.
    """
    if not flag("tenants", tenants_too) or d.tenant:
        return [d]
    names = yield tenants(d)
    return [d, *map(d.for_tenant, names)]


@operation("read")
def count_threads(d: SqlDialect, codec: ValueCodec, prefix: str, wanted: Sequence[Condition]) -> Steps[int]:
    """Return the number of threads that match a filter and whose ids begin with `prefix`.

    Round trips: one for each 10,000 threads. With a filter and without a prefix, one more if an index could find a
        value of the filter; if it does, only one more after that.
    Rows: one of each thread, with a filter three, or those with the value of a searchable key.
    Snapshot: one for each round trip.
    Raises: CorruptCheckpoint.
    """
    page = ThreadPage(AFTER_ALL, "", narrowing(wanted, contains=d.filter_contains), THREADS, prefix)
    key, texts = (None, ()) if prefix else (yield from _searchable(d, codec, wanted))
    if key is not None:
        (rows,) = yield d.select_searched_threads(page, key, texts)
        if len(rows) < THREADS:
            return len((yield from offload(_size(rows), _records, d, codec, rows, wanted)))
    count = 0
    ranges = [*d.ranges(prefix)]
    while ranges:
        if wanted:
            rows, ranges = yield from _some_by_id(d, page, ranges)
            count += len((yield from offload(_size(rows), _records, d, codec, rows, wanted)))
        else:
            within, *ranges = ranges
            (((number, last),),) = yield d.ask("threads_counted", **within._asdict(), threads=THREADS)
            if number == THREADS:
                ranges.insert(0, within._replace(bottom=right_above(last)))
            count += number
    return count


@operation("read")
def thread_exists(d: SqlDialect, thread_id: str) -> Steps[bool]:
    """Return whether a thread has a checkpoint.

    Round trips: 1.
    """
    (rows,) = yield d.ask("select_keys", thread_id=thread_id, limit=1)
    return bool(rows)


@operation("read")
def history_page(d: SqlDialect, codec: ValueCodec, page: Page, wanted: Sequence[Condition]) -> Steps[HistoryReply]:
    """Return one page of checkpoints, newest first, as `list_page` does, but without documents, values and writes.

    Round trips: 1, and those of `piece_of`.
    Snapshot: one read snapshot over the page.
    Raises: CorruptCheckpoint.
    """
    piece = yield from piece_of(d, page._replace(filter=narrowing(wanted, contains=d.filter_contains)))
    if piece is None:
        return HistoryReply((), None)
    (rows,) = yield d.select_records(piece.page)
    records = yield from offload(_size(rows), _records, d, codec, rows, wanted)
    return HistoryReply(records, piece.after([(row[2], d.own_thread_id(row[0]), row[1]) for row in rows]))


@operation("snapshot")
def runs_of_thread(d: SqlDialect, codec: ValueCodec, thread_id: str) -> Steps[list[RunRecord]]:
    """Return the runs of a thread; the one that began last is first.

    Round trips: 1, and one more if values show whether a run is finished; one more for each last checkpoint with such a
        value in a blob, or older than format 4.
    Rows: the checkpoints of the root graph, and the last one of each run.
    Snapshot: one read snapshot.
    Raises: CorruptCheckpoint.
    """
    (rows,) = yield d.ask("select_runs", thread_id=thread_id)
    lasts = [_Last._make(row) for row in rows]
    waiting, in_documents, anywhere = set(), [], []
    for last in lasts:
        inline, blobs = d.names(last.inline_channels), d.names(last.blob_channels)
        key = Key(thread_id, "", last.last_id)
        if any(channel == _START or channel.startswith(_BRANCH) for channel in (*inline, *blobs)):
            waiting.add(last.last_id)
        elif last.format < FORMAT_WITH_SENDS or any(map(_decides, blobs)):
            anywhere.append(key)
        elif any(map(_decides, inline)):
            in_documents.append(key)
    documents = (yield d.ask_each("select_document", map(Key._asdict, in_documents))) if in_documents else []
    for key, ((type_, data),) in zip(in_documents, documents, strict=True):
        decoder = Decoder(codec, thread_id, "", key.checkpoint_id or "")
        document = yield from offload(len(data), decoder.document, type_, data)
        if any(starts(*each) for each in document["channel_values"].items()):
            waiting.add(key.checkpoint_id or "")
    for key in anywhere:
        found = yield from get_tuple(d, codec, _no_version, None, key).start()
        if found and any(starts(*each) for each in found.checkpoint["channel_values"].items()):
            waiting.add(key.checkpoint_id or "")
    runs = [RunRecord(*last[:4], last.last_id not in waiting) for last in lasts]
    return sorted(runs, key=lambda run: run.first_id, reverse=True)


def _size(rows: Sequence[Row]) -> int:
    return sum(len(row[6]) for row in rows)


def _records(
    d: SqlDialect, codec: ValueCodec, rows: Sequence[Row], wanted: Sequence[Condition], *, even_unreadable: bool = False
) -> Sequence[CheckpointRecord]:
    """Return the records that match a filter, newest first."""
    found = []
    for stored, checkpoint_ns, checkpoint_id, parent_id, run_id, type_, data in rows:
        location = d.own_thread_id(stored), checkpoint_ns, checkpoint_id
        try:
            metadata = Decoder(codec, *location).metadata(type_, data)
        except Exception:  # CorruptCheckpoint, or any error of the user's serializer.
            if not even_unreadable:
                raise
            if wanted:
                continue
            metadata = {}
        if matches(metadata, wanted, contains=d.filter_contains):
            found.append(CheckpointRecord(*location, parent_id, run_id, metadata))
    return sorted(found, key=lambda one: (one.checkpoint_id, one.thread_id, one.checkpoint_ns), reverse=True)


def _decides(channel: str) -> bool:
    """Whether the value of a channel shows if a task is still to be started."""
    return channel == TASKS or channel.startswith(_JOIN)


def _no_version(*_: None) -> str:
    """Return a version for sends that are read from a parent's writes; nobody looks at it."""
    return "1"


def starts(channel: str, value: Any) -> bool:
    """Return whether the value of a channel for sends or predecessors shows that a task is still to be started."""
    if channel == TASKS:
        return bool(value)
    # The value of `join:a+b:c` lists the predecessors that are done. Once all are, their joined names are as long as
    # `a+b`.
    names = channel.removeprefix(_JOIN).rpartition(":")[0] if channel.startswith(_JOIN) else None
    return (
        names is not None
        and isinstance(value, (set, frozenset, list, tuple))
        and len("+".join(map(str, value))) == len(names)
    )
