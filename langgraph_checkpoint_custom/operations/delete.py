"""Deleting: a thread, runs, what a prune removes, one checkpoint, or everything after a checkpoint.

Must not know: SQL, connections, serializers: nothing here reads a value.

Every deletion but that of a complete thread has the same steps, in one transaction that holds the thread's lock: read
the outline of the thread, decide by it (`model/outline.py`), and change the rows by their keys. A row that is stored
meanwhile, without the lock, has none of these keys and stays.

`delete_checkpoint` and `rollback` also delete writes of the checkpoint that becomes the newest: the outputs of its
tasks. If they remained, LangGraph would take them for the outputs of an open superstep and not run the tasks again.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence, Set
from functools import partial
from itertools import chain
from types import MappingProxyType
from typing import Any

from langchain_core.runnables import RunnableConfig

from langgraph_checkpoint_custom.engine.operation import (
    RoundTrip,
    Row,
    Statement,
    Steps,
    offload,
    one_trip,
    operation,
)
from langgraph_checkpoint_custom.errors import CheckpointLabelled
from langgraph_checkpoint_custom.model.keys import Key, config_of
from langgraph_checkpoint_custom.model.outline import (
    FORMAT_WITH_SENDS,
    BlobPlace,
    Outline,
    OutlineRow,
    Place,
    Removal,
    later,
    of_checkpoint,
    of_runs,
    reading_names,
    superseded,
)
from langgraph_checkpoint_custom.operations.labels import checkpoint_not_found
from langgraph_checkpoint_custom.operations.sizes import ALL
from langgraph_checkpoint_custom.sql.dialect import SqlDialect

# Of this number of pages of a SQLite file, one may stay free: what is stored next uses it.
KEEPS_FREE = 10
# Pages of a step. SQLite looks for a page among all free ones: 0.25 ms a page if these take a gigabyte.
STEP = 100
# Deciding about a checkpoint takes about as long as decoding this number of bytes.
DECISION_BYTES = 1_000
_FORMAT = OutlineRow._fields.index("format")


@operation("write")
def delete_thread(d: SqlDialect, thread_id: str) -> Steps[None]:
    """Delete all rows of a thread.

    Round trips: 1.
    Idempotent: yes.
    Source: BaseCheckpointSaver.delete_thread.
    """
    yield d.ask("delete_thread", lock="exclusive", thread_id=thread_id, checkpoints=None)


@operation("write")
def threads_of_runs(d: SqlDialect, run_ids: Sequence[str]) -> Steps[list[str]]:
    """Return the threads in which runs have stored something, to delete that. A saver that only reads refuses it.

    Round trips: 1, or 0 if `run_ids` is empty.
    """
    if not run_ids:
        return []
    (rows,) = yield d.ask("threads_of_runs", run_ids=d.array(run_ids))
    return [d.own_thread_id(stored) for (stored,) in rows]


@operation("transaction")
def delete_for_runs(d: SqlDialect, thread_id: str, run_ids: Sequence[str]) -> Steps[None]:
    """Delete the checkpoints of runs in a thread, and what they wrote to checkpoints of other runs.

    The latter is for example the answer to an interrupt. Writes of a hidden checkpoint, and those that a child is
    rebuilt from, remain for good.

    Round trips: as `prune_thread`.
    Idempotent: yes.
    Source: BaseCheckpointSaver.delete_for_runs.
    """
    removal, written = yield from _lock_and_decide(d, thread_id, partial(of_runs, run_ids=set(run_ids)), run_ids)
    yield from remove(d, thread_id, removal, removal.still_open(written), run_ids)


@operation("transaction")
def prune_thread(d: SqlDialect, thread_id: str, keep: int = 1) -> Steps[None]:
    """Delete all but the `keep` newest checkpoints of each namespace, those with a label, and what these need.

    Round trips: 2, with the end of the transaction, if nothing is superseded; otherwise 3. Two more if values with
        chunks go, and one more for checkpoints older than format 4.
    Rows: all checkpoints of the thread, without values.
    Idempotent: yes.
    Source: BaseCheckpointSaver.prune.
    """
    removal, _ = yield from _lock_and_decide(d, thread_id, partial(superseded, keep=keep))
    yield from remove(d, thread_id, removal)


@operation("transaction", reports_change=True)
def delete_checkpoint(d: SqlDialect, key: Key) -> Steps[bool]:
    """Delete a checkpoint with the subgraph calls that it started, or hide it if a descendant needs it.

    The result is whether there was such a checkpoint.

    Round trips: as `prune_thread`.
    Idempotent: yes; False if it does not exist or is hidden already.
    Raises: CheckpointLabelled.
    """
    place = key.checkpoint_ns, key.checkpoint_id or ""
    removal, _ = yield from _lock_and_decide(d, key.thread_id, partial(of_checkpoint, place=place))
    _refuse_labels(removal, f"checkpoint {key.checkpoint_id!r} of thread {key.thread_id!r} was not deleted")
    yield from remove(d, key.thread_id, removal, removal.reopened())
    return removal.was_visible(place)


@operation("transaction")
def rollback(d: SqlDialect, key: Key) -> Steps[RunnableConfig]:
    """Delete everything after a checkpoint of the root graph, in all namespaces; returns the checkpoint's config.

    Round trips: as `prune_thread`.
    Idempotent: yes.
    Raises: CheckpointNotFound, also for a checkpoint that a prune has hidden; CheckpointLabelled.
    """
    if key.checkpoint_id is None:
        raise checkpoint_not_found(key)
    removal, _ = yield from _lock_and_decide(d, key.thread_id, partial(later, checkpoint_id=key.checkpoint_id))
    if not removal.was_visible((key.checkpoint_ns, key.checkpoint_id)):
        raise checkpoint_not_found(key)
    _refuse_labels(removal, f"thread {key.thread_id!r} was not changed")
    thread_id, _, checkpoint_id = key
    early = d.ask("delete_early_writes", thread_id=thread_id, checkpoint_id=checkpoint_id).statements
    yield from remove(d, thread_id, removal, removal.reopened(), more=early if removal.deletes_visible() else ())
    return config_of(key.thread_id, key.checkpoint_ns, key.checkpoint_id)


def _lock_and_decide(
    d: SqlDialect, thread_id: str, choose: Callable[[Outline], Set[Place]], run_ids: Sequence[str] = ()
) -> Steps[tuple[Removal, Sequence[Place]]]:
    """Take the thread's lock and decide what becomes of it; also returns the places to which runs wrote.

    Round trips: 1, or 2 if there are checkpoints older than format 4.
    """
    names = ["select_outline", "select_labels", *(["select_written"] if run_ids else [])]
    params: dict[str, Any] = {"thread_id": thread_id, "limit": ALL, "run_ids": d.array(run_ids)}
    rows, labels, *written = yield d.ask(*names, lock="exclusive", **params)
    removal = yield from _removal(d, thread_id, choose, rows, labels)
    return removal, [(checkpoint_ns, checkpoint_id) for checkpoint_ns, checkpoint_id in chain(*written)]


def decide(
    d: SqlDialect, thread_id: str, choose: Callable[[Outline], Set[Place]], most: int = ALL - 1
) -> Steps[Removal | None]:
    """Decide what becomes of a thread, without a lock, or with one that is held already.

    Returns None if it has more than `most` checkpoints, or none at all.

    Round trips: 1, or 2 if there are checkpoints older than format 4.
    """
    rows, labels = yield d.ask("select_outline", "select_labels", thread_id=thread_id, limit=most + 1)
    if not 0 < len(rows) <= most:
        return None
    return (yield from _removal(d, thread_id, choose, rows, labels))


def _removal(
    d: SqlDialect,
    thread_id: str,
    choose: Callable[[Outline], Set[Place]],
    rows: Sequence[Row],
    labels: Sequence[Row],
) -> Steps[Removal]:
    """Decide what becomes of a thread by its outline and labels.

    Round trips: 0, or 1 if there are checkpoints older than format 4.
    """
    sends = yield from sends_for(d, thread_id, rows)

    def work() -> Removal:
        places = {name: (checkpoint_ns, checkpoint_id) for name, checkpoint_ns, checkpoint_id in labels}
        outline = Outline(rows, places, sends)
        with reading_names(thread_id):
            return Removal(outline, choose(outline))

    return (yield from offload(len(rows) * DECISION_BYTES, work))


def sends_for(d: SqlDialect, thread_id: str, rows: Sequence[Row]) -> Steps[set[Place]]:
    """Return the checkpoints of an outline's thread that have sends, if any checkpoint needs them.

    Round trips: 1 if there are checkpoints older than format 4, otherwise 0.
    """
    if all(row[_FORMAT] >= FORMAT_WITH_SENDS for row in rows):
        return set()
    (found,) = yield d.ask("select_sends", thread_id=thread_id)
    return {(checkpoint_ns, checkpoint_id) for checkpoint_ns, checkpoint_id in found}


def remove(
    d: SqlDialect,
    thread_id: str,
    removal: Removal,
    emptied: Mapping[Place, Collection[str]] = MappingProxyType({}),
    run_ids: Sequence[str] | None = None,
    *,
    first: Sequence[Statement] = (),
    more: Sequence[Statement] = (),
) -> Steps[Sequence[Sequence[Row]]]:
    """Change the rows, and delete the writes of `emptied` checkpoints but those to some channels, maybe only of runs.

    Returns the replies to the statements that are sent `first` and last, as `more`; none if nothing changes.

    Round trips: 1, or 0 if nothing changes; 2 more if values with chunks go, of which remaining ones may share some.
    """
    blobs, change = d.delete_blobs(thread_id, removal.blobs), changes(d, thread_id, removal, emptied, run_ids)
    if not (blobs.statements or change.statements):
        return ()
    replies = yield change._replace(statements=[*first, *blobs.statements, *change.statements, *more])
    chunks = _blob_places(chain(*replies[len(first) :][: len(blobs.statements)]))
    if chunks:
        chunks -= yield from chunks_of(d, thread_id, removal.remaining_blobs({chunk[:2] for chunk in chunks}))
    if chunks:
        yield d.delete_blobs(thread_id, chunks)
    return [*replies[: len(first)], *replies[len(replies) - len(more) :]]


def changes(
    d: SqlDialect,
    thread_id: str,
    removal: Removal,
    emptied: Mapping[Place, Collection[str]],
    run_ids: Sequence[str] | None,
) -> RoundTrip:
    """Return what changes the rows, but for blobs. If no checkpoint remains, neither does the row in `threads`."""
    runs = None if run_ids is None else d.array(run_ids)
    trips = [
        d.ask_keys("hide_checkpoints", thread_id, removal.hidden),
        d.ask_keys("cut_parents", thread_id, removal.cut),
        d.ask_keys("delete_checkpoints", thread_id, removal.gone),
        d.ask_each("delete_label", [{"name": name} for name in removal.labels], thread_id=thread_id),
    ]
    for (checkpoint_ns, checkpoint_id), channels in emptied.items():
        key, kept = Key(thread_id, checkpoint_ns, checkpoint_id), d.array(sorted(channels))
        trips.append(d.ask("delete_writes_but", **key._asdict(), kept=kept, run_ids=runs))
    if removal.gone and removal.empties():
        trips.append(d.ask("drop_thread", thread_id=thread_id))
    return one_trip(trips)


def chunks_of(d: SqlDialect, thread_id: str, blobs: Collection[BlobPlace]) -> Steps[set[BlobPlace]]:
    """Return the chunks of blobs.

    Round trips: 1, or 0 if there are no blobs.
    """
    return _blob_places(chain(*(yield d.select_chunks(thread_id, blobs)))) if blobs else set()


def _blob_places(rows: Iterable[Row]) -> set[BlobPlace]:
    return {(checkpoint_ns, channel, name) for checkpoint_ns, channel, name in rows}


def _refuse_labels(removal: Removal, what: str) -> None:
    if removal.labels:
        names = ", ".join(map(repr, removal.labels))
        raise CheckpointLabelled(
            f"{what}: a checkpoint that would be deleted has the label {names}; unlabel() it first"
        )


@operation("write")
def give_back_pages(d: SqlDialect) -> Steps[bool]:
    """Give some free pages of a SQLite file back to the file system; returns whether there are more to give back.

    A step stops other writes for milliseconds. A file that this package has not created does not give any back, and
    PostgreSQL has autovacuum.

    Round trips: 2, or 1 if there are none; 0 on PostgreSQL.
    Idempotent: yes.
    """
    if not d.has("free_pages"):
        return False
    (rows,) = yield d.ask("free_pages")
    for pages, free in rows:
        if free * KEEPS_FREE > pages:
            yield d.ask_each("give_back_page", [{}] * min(free, STEP))
            return True
    return False
