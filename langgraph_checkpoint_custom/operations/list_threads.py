"""Lists of threads and their checkpoints, without channel values.

Must not know: SQL, connections.

A thread's newest checkpoint is that of its root graph, or of its first namespace if only subgraphs have stored
something. Metadata is decoded, because only the metadata itself decides whether a filter matches.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Sequence
from functools import partial
from heapq import nlargest
from typing import NamedTuple
from weakref import WeakSet

from langgraph_checkpoint_custom.encoding.decode import Decoder
from langgraph_checkpoint_custom.encoding.values import ValueCodec
from langgraph_checkpoint_custom.engine.operation import Operations, Row, Steps, offload, operation
from langgraph_checkpoint_custom.errors import ConfigError
from langgraph_checkpoint_custom.model.filter import Condition, equal_texts, matches, narrowing
from langgraph_checkpoint_custom.model.keys import AFTER_ALL, TENANT_MARK, Page, Range, flag, right_above
from langgraph_checkpoint_custom.model.records import CheckpointRecord, ThreadPage, ThreadRecord
from langgraph_checkpoint_custom.operations.pages import piece_of
from langgraph_checkpoint_custom.sql.dialect import SqlDialect
from langgraph_checkpoint_custom.sql.files import first_searchable

# A page of threads is searched for among the newest checkpoints: first `NEAR` times as many as threads are asked for,
# then `FARTHER` times as many of the next ones, and so on, up to `FARTHEST` in a statement.
NEAR, FARTHER, FARTHEST = 5, 10, 50_000
# With a filter, checkpoints at most whose threads are looked up before it is compared. Further down, it is compared
# first.
FILTERED = 1_000
# Rows that a search with a filter finds at once.
MATCHES = 1_000
# Threads that a statement reads, if all are; and of those that have ever had an error, or an interrupt.
THREADS, MARKED = 10_000, 1_000
# The statements that go from thread to thread by id, by what the threads are marked with.
_NAMES = {"": "threads_by_id", "failed": "threads_failed", "waiting": "threads_waiting"}

_HIDDEN = "row-level security hides the threads of tenants from this role"
_LOG = logging.getLogger("langgraph_checkpoint_custom")
_WARNED: WeakSet[SqlDialect] = WeakSet()  # Dialects for which a warning about hidden tenants was logged.


class ThreadsReply(NamedTuple):
    """The threads of a page that match, and the next page, or None if this was the last one.

    It is not `complete` if more threads may match: those that a search with `reach` has not come to.
    """

    threads: Sequence[ThreadRecord]
    after: ThreadPage | None
    complete: bool = True


class HistoryReply(NamedTuple):
    """The records of a page that match, and the next page, or None if this was the last one.

    `unreadable` are the threads of checkpoints whose metadata cannot be read, if that is no error.
    """

    records: Sequence[CheckpointRecord]
    after: Page | None
    unreadable: Sequence[str] = ()


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
        `marked` threads, one for each 1,000 that have ever had such a write.
    Rows: The checkpoints between the first and the last one of the page, or five times as many as threads are asked
        for, and three of each of their threads. With a filter, those with the value of a searchable key, or all down
        to the last one of the page. With a prefix, three of each thread.
    Snapshot: one for each round trip.
    Raises: CorruptCheckpoint, unless `even_unreadable`.
    """
    asked = page._replace(filter=narrowing(wanted, contains=d.filter_contains))
    rows: list[Row] = []
    complete = True
    if asked.marked or asked.prefix:
        rows = yield from _by_id(d, asked)
    else:
        most = (reach or min(FILTERED, NEAR * asked.limit)) if asked.filter else None
        others = yield from _newest(d, asked, rows, most)
        if others is not None and others.limit > 0:
            key, texts = yield from _searchable(d, codec, wanted)
            if key is not None:
                (found,) = yield d.select_searched_threads(others, key, texts)
                rows += found
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
    decode = partial(_records, d, codec, rows, wanted, [] if even_unreadable else None)
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
        (found,) = yield d.ask("threads_newest", **asked.params(), reach=reach)
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
    """Return the rows of a page of all threads with its prefix, or of those that are `marked`."""
    rows: list[Row] = []
    ranges = d.ranges(asked.prefix)
    while ranges:
        found, ranges = yield from _some_by_id(d, asked, ranges)
        rows = nlargest(asked.limit, rows + found, key=_age)
    return rows


def _some_by_id(d: SqlDialect, asked: ThreadPage, ranges: Sequence[Range]) -> Steps[tuple[list[Row], Sequence[Range]]]:
    """Return the rows of a page of the first threads in some ranges, and the ranges that remain."""
    name, threads = _NAMES[asked.marked], MARKED if asked.marked else THREADS
    replies = yield d.ask_each(name, map(Range._asdict, ranges), **asked.params(), threads=threads)
    rows: list[Row] = []
    rest: list[Range] = []
    for within, found in zip(ranges, replies, strict=True):
        rows += [row for row in found if row[1] is not None]
        rest += [within._replace(bottom=right_above(row[0])) for row in found if row[1] is None]
    return rows, rest


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
def tenants(d: SqlDialect, *, must_be_all: bool = False) -> Steps[list[str]]:
    """Return the tenants that have threads and that the database role can see, by name; logs if it cannot see all.

    Round trips: one for each tenant, and one; one more on PostgreSQL, unless a tenant's saver asks.
    Raises: ConfigError if it cannot see all and they must be all.
    """
    if d.has("hides_tenants") and not d.tenant:
        (((hides,),),) = yield d.ask("hides_tenants")
        if hides and must_be_all:
            raise ConfigError(
                f"{_HIDDEN}: use the role that owns the tables, or leave tenants out (tenants=False, --no-tenants)"
            )
        if hides and d not in _WARNED:
            _WARNED.add(d)
            _LOG.warning(
                "%s, so only those without a tenant are included; use the role that owns the tables, or for_tenant() "
                "for each tenant",
                _HIDDEN,
            )
    found: list[str] = []
    above = chr(ord(TENANT_MARK) + 1)
    (within,) = d.ranges() if d.tenant else (Range(TENANT_MARK, above),)
    while True:
        (rows,) = yield d.ask("thread_ids", **within._asdict(), threads=1)
        if not rows:
            return found
        found.append(rows[0][0].split(TENANT_MARK)[1])
        within = within._replace(bottom=f"{TENANT_MARK}{found[-1]}{above}")


def dialects_of_tenants(d: SqlDialect, tenants_too: bool, *, must_be_all: bool = False) -> Operations[list[SqlDialect]]:
    """Return a dialect for each owner of threads: one for those without a tenant, and, if asked, one for each tenant.

    For a tenant's saver, it is only that tenant's.

    Raises:
        ConfigError: The role cannot see all tenants, which are asked for and `must_be_all`.
    """
    if not flag("tenants", tenants_too) or d.tenant:
        return [d]
    names = yield tenants(d, must_be_all=must_be_all)
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
    ranges = d.ranges(prefix)
    while ranges:
        if wanted:
            rows, ranges = yield from _some_by_id(d, page, ranges)
            count += len((yield from offload(_size(rows), _records, d, codec, rows, wanted)))
        else:
            within, *ranges = ranges
            (((number, last),),) = yield d.ask("threads_counted", **within._asdict(), threads=THREADS)
            if number == THREADS:
                ranges = [within._replace(bottom=right_above(last)), *ranges]
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
def history_page(
    d: SqlDialect, codec: ValueCodec, page: Page, wanted: Sequence[Condition], *, everything: bool = False
) -> Steps[HistoryReply]:
    """Return one page of checkpoints, newest first, as `list_page` does, but without documents, values and writes.

    With `everything`, a page of all threads has those of other frameworks and hidden checkpoints, too, and metadata
    that cannot be read is no error.

    Round trips: 1, and those of `piece_of`.
    Snapshot: one read snapshot over the page.
    Raises: CorruptCheckpoint, unless `everything`.
    """
    piece = yield from piece_of(d, page._replace(filter=narrowing(wanted, contains=d.filter_contains)))
    if piece is None:
        return HistoryReply((), None)
    (rows,) = yield d.select_records(piece.page, all_kinds=everything, with_hidden=everything)
    unreadable: list[str] = []
    decode = partial(_records, d, codec, rows, wanted, unreadable if everything else None)
    records = yield from offload(_size(rows), decode)
    return HistoryReply(records, piece.after([(row[2], d.own_thread_id(row[0]), row[1]) for row in rows]), unreadable)


def _size(rows: Sequence[Row]) -> int:
    return sum(len(row[6]) for row in rows)


def _records(
    d: SqlDialect,
    codec: ValueCodec,
    rows: Sequence[Row],
    wanted: Sequence[Condition],
    unreadable: list[str] | None = None,
) -> Sequence[CheckpointRecord]:
    """Return the records that match a filter, newest first.

    Metadata that cannot be read is an error, or its thread is added to `unreadable`. Then it matches no filter, and is
    empty in a record.
    """
    found = []
    for stored, checkpoint_ns, checkpoint_id, parent_id, run_id, type_, data in rows:
        location = d.own_thread_id(stored), checkpoint_ns, checkpoint_id
        try:
            metadata = Decoder(codec, *location).metadata(type_, data)
        except Exception:  # CorruptCheckpoint, or any error of the user's serializer.
            if unreadable is None:
                raise
            unreadable.append(location[0])
            if wanted:
                continue
            metadata = {}
        if matches(metadata, wanted, contains=d.filter_contains):
            found.append(CheckpointRecord(*location, parent_id, run_id, metadata))
    return sorted(found, key=lambda one: (one.checkpoint_id, one.thread_id, one.checkpoint_ns), reverse=True)
