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
from typing import Any, NamedTuple
from weakref import WeakSet

from langgraph.checkpoint.serde.types import TASKS

from langgraph_checkpoint_custom.encoding.decode import Decoder
from langgraph_checkpoint_custom.encoding.values import Values
from langgraph_checkpoint_custom.engine.operation import Operation, Row, Steps, offload, operation
from langgraph_checkpoint_custom.model.filter import Condition, equal_texts, matches, narrowing
from langgraph_checkpoint_custom.model.keys import TENANT_MARK, Page, flag
from langgraph_checkpoint_custom.model.records import CheckpointRecord, RunRecord, ThreadPage, ThreadRecord
from langgraph_checkpoint_custom.sql.dialect import SqlDialect
from langgraph_checkpoint_custom.sql.searchable import first_searchable

# A page of threads is searched for among the newest checkpoints. The first statement searches `NEAR` of them, and takes
# about ten milliseconds if they are of too few threads. The second one searches `RECENT`, each in a thirtieth of the
# time. Each further one searches `FARTHER` times as many.
NEAR = 1_000
RECENT = 50_000
FARTHER = 20
# With a filter, checkpoints that are searched before all threads are.
FILTERED = 5_000

_LOG = logging.getLogger("langgraph_checkpoint_custom")
_WARNED: WeakSet[SqlDialect] = WeakSet()  # Dialects for which a warning about hidden tenants was logged.

_START = "__start__"
_BRANCH = "branch:"
_JOIN = "join:"


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


class _Last(NamedTuple):
    """A row of `select_runs`.

    Without a `name`, it is a run and its last checkpoint. With a `name`, it is a value of that checkpoint: of the
    channel `name`, or, if `name` is empty, the document.
    """

    last_id: str
    run_id: str | None
    first_id: str
    checkpoints: int
    sends: bool
    inline_channels: Any
    blob_channels: Any
    name: str | None
    key: str | None
    type: str | None
    value: bytes | None
    path: str | None


@operation("read")
def threads_page(
    d: SqlDialect,
    codec: Values,
    page: ThreadPage,
    wanted: Sequence[Condition],
    *,
    even_unreadable: bool = False,
    reach: int | None = None,
) -> Steps[ThreadsReply]:
    """Return one page of threads; the one with the newest checkpoint is first. With a filter, a page may be empty.

    `even_unreadable` returns threads whose metadata cannot be read as if they had none. They match no filter.
    With `reach` and a filter, and if no index finds the rest, only that number of the newest checkpoints is searched.

    Round trips: 1. Without a filter, one more for the last page, or if the newest 1,000 checkpoints are of too few
        threads; then one more each time that 20 times as many checkpoints are not enough. With a filter, 2 if too few
        of the newest 5,000 checkpoints match.
    Rows: Without a filter, the checkpoints between the first and the last one of the page. With a filter, the newest
        5,000 checkpoints; if these are not enough, those with the value of a searchable key; if there is no such key,
        two or three of each thread.
    Snapshot: one read snapshot over the page.
    Raises: CorruptCheckpoint, unless `even_unreadable`.
    """
    asked = page._replace(filter=narrowing(wanted, contains=d.filter_contains))
    complete = True
    if asked.prefix:
        (rows,) = yield d.select_threads(asked)
    elif asked.filter:
        indexable = _indexable(d, codec, wanted)
        rows, searchable = yield d.select_recent_threads(asked, reach or FILTERED, indexable)
        rows, are_all = _recent(rows)
        if len(rows) < page.limit and not are_all:
            key = first_searchable(indexable, searchable)
            if key is None and reach is not None:
                complete = False
            else:
                (rows,) = yield (
                    d.select_threads(asked) if key is None else d.select_searched_threads(asked, key, indexable[key])
                )
    else:
        (rows,) = yield d.select_newest_threads(asked, NEAR)
        reach, are_all = RECENT, False
        while len(rows) < page.limit and not are_all:
            rows, _ = yield d.select_recent_threads(asked, reach, ())
            rows, are_all = _recent(rows)
            reach *= FARTHER
    after = None
    if len(rows) == page.limit:
        last = rows[-1]
        after = page._replace(before=last[2], thread_below=d.own_thread_id(last[0]))
    decode = partial(_records, d, codec, rows, wanted, even_unreadable=even_unreadable)
    records = yield from offload(_size(rows), decode)
    return ThreadsReply([ThreadRecord(record.thread_id, record) for record in records], after, complete)


def _recent(rows: Sequence[Row]) -> tuple[Sequence[Row], bool]:
    """Return the rows of `select_recent_threads`, and whether these come from all checkpoints that there are."""
    return (rows[:-1], False) if rows and rows[-1][0] is None else (rows, True)


@operation("read")
def tenants(d: SqlDialect) -> Steps[list[str]]:
    """Return the tenants that have threads and that the database role can see, by name; logs if it cannot see all.

    Round trips: one for each tenant, and one; one more on PostgreSQL, unless a tenant's saver asks.
    """
    if asked := d.hides_tenants():
        (((hides,),),) = yield asked
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
def count_threads(d: SqlDialect, codec: Values, prefix: str, wanted: Sequence[Condition]) -> Steps[int]:
    """Return the number of threads that match a filter and whose ids begin with `prefix`.

    Round trips: 1. Without a prefix 2, if an index could find a value of the filter.
    Rows: two or three of each thread, or those with the value of a searchable key. Metadata is read only if the
        projection does not decide.
    Snapshot: one read snapshot.
    Raises: CorruptCheckpoint.
    """
    filter = narrowing(wanted, contains=d.filter_contains)
    indexable = _indexable(d, codec, wanted)
    key: str | None = None
    if indexable and not prefix:
        (searchable,) = yield d.select_searchable(indexable)
        key = first_searchable(indexable, searchable)
    (rows,) = yield (
        d.count_threads(prefix, filter) if key is None else d.count_searched_threads(filter, key, indexable[key])
    )
    sure: int = sum(row[0] for row in rows if row[0] is not None)
    unsure = [(*row[1:4], None, None, *row[4:]) for row in rows if row[0] is None]
    records = yield from offload(_size(unsure), _records, d, codec, unsure, wanted)
    return sure + len(records)


@operation("read")
def thread_exists(d: SqlDialect, thread_id: str) -> Steps[bool]:
    """Return whether a thread has a checkpoint.

    Round trips: 1.
    """
    (rows,) = yield d.thread_exists(thread_id)
    return bool(rows)


@operation("read")
def history_page(d: SqlDialect, codec: Values, page: Page, wanted: Sequence[Condition]) -> Steps[HistoryReply]:
    """Return one page of checkpoints, newest first, as `list_page` does, but without documents, values and writes.

    Round trips: 1.
    Snapshot: one read snapshot over the page.
    Raises: CorruptCheckpoint.
    """
    (rows,) = yield d.select_records(page._replace(filter=narrowing(wanted, contains=d.filter_contains)))
    after = None
    if len(rows) == page.limit:
        thread_id, checkpoint_ns, checkpoint_id = min(rows, key=lambda row: (row[2], row[0], row[1]))[:3]
        after = page._replace(before=checkpoint_id, thread_below=d.own_thread_id(thread_id), ns_below=checkpoint_ns)
    records = yield from offload(_size(rows), _records, d, codec, rows, wanted)
    return HistoryReply(records, after)


@operation("read")
def runs_of_thread(d: SqlDialect, codec: Values, thread_id: str) -> Steps[list[RunRecord]]:
    """Return the runs of a thread; the one that began last is first.

    Round trips: 1.
    Rows: the checkpoints of the root graph; for the last one of each run, what shows whether it is finished.
    Snapshot: one read snapshot.
    Raises: CorruptCheckpoint.
    """
    (rows,) = yield d.select_runs(thread_id)
    lasts = [_Last._make(row) for row in rows]
    size = sum(len(row.value or b"") for row in lasts)
    runs = yield from offload(size, _runs, d, codec, thread_id, lasts)
    return sorted(runs, key=lambda run: run.first_id, reverse=True)


def _indexable(d: SqlDialect, codec: Values, wanted: Sequence[Condition]) -> dict[str, Collection[str]]:
    """Return what an index can find: keys in the plaintext metadata projection, each with the texts of its values."""
    shown = [each for each in wanted if codec.plaintext_keys is None or each.key in codec.plaintext_keys]
    return equal_texts(shown, contains=d.filter_contains)


def _size(rows: Sequence[Row]) -> int:
    return sum(len(row[6]) for row in rows)


def _records(
    d: SqlDialect, codec: Values, rows: Sequence[Row], wanted: Sequence[Condition], *, even_unreadable: bool = False
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


def _runs(d: SqlDialect, codec: Values, thread_id: str, rows: Sequence[_Last]) -> list[RunRecord]:
    values = [row for row in rows if row.name is not None]
    waiting = {row.last_id for row in values if _waits(Decoder(codec, thread_id, "", row.last_id), row)}
    return [
        RunRecord(
            row.run_id,
            row.first_id,
            row.last_id,
            row.checkpoints,
            not row.sends
            and row.last_id not in waiting
            and not any(
                channel == _START or channel.startswith(_BRANCH)
                for channel in (*d.names(row.inline_channels), *d.names(row.blob_channels))
            ),
        )
        for row in rows
        if row.name is None
    ]


def _waits(decoder: Decoder, row: _Last) -> bool:
    """Return whether a value shows that a task is still to be started."""
    if row.path is not None:
        return True
    if row.name:
        return _starts(row.name, decoder.blob(row, lambda *_: None))
    return any(_starts(*each) for each in decoder.document(row.type, row.value)["channel_values"].items())


def _starts(channel: str, value: Any) -> bool:
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
