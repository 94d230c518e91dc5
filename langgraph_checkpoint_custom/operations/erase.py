"""Erasing a person: deletes all threads of which a checkpoint has some metadata, and says what was deleted where.

Must not know: SQL, connections.

It reads the metadata of all checkpoints, page by page, and deletes each thread in a transaction of its own. You can
stop it and start it again at any time: what is deleted is not found again.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from langgraph_checkpoint_custom.encoding.decode import Decoder
from langgraph_checkpoint_custom.encoding.values import ValueCodec
from langgraph_checkpoint_custom.engine.operation import Operation, Row, Steps, offload, operation
from langgraph_checkpoint_custom.errors import ConfigError
from langgraph_checkpoint_custom.model.filter import Condition, matches, narrowing, wanted
from langgraph_checkpoint_custom.model.keys import Page, flag
from langgraph_checkpoint_custom.model.pages import first_page
from langgraph_checkpoint_custom.operations.delete import delete_thread, give_back_pages
from langgraph_checkpoint_custom.operations.list_threads import dialects_of_tenants
from langgraph_checkpoint_custom.operations.pieces import piece_of
from langgraph_checkpoint_custom.operations.sizes import sizes_of_threads
from langgraph_checkpoint_custom.sql.dialect import SqlDialect

# Checkpoints that match, for one statement.
MATCHES = 1_000

FIRST = first_page(None, None, None, None, MATCHES)
"""The first page of all checkpoints."""


class ErasedThread(NamedTuple):
    """A thread that was deleted, or would be, with what it had right before.

    Attributes:
        tenant: Its tenant, or "".
        thread_id: The thread.
        checkpoints: Its checkpoints, with those that a prune has hidden.
        writes: Its pending writes.
        values: Its values and chunks that are stored apart from the checkpoints.
        labels: Its labels.
        bytes: The bytes of all of these, as they were stored.
    """

    tenant: str
    thread_id: str
    checkpoints: int
    writes: int
    values: int
    labels: int
    bytes: int


@dataclass
class Erased:
    """What `erase` has deleted, or would delete.

    Attributes:
        threads: Each thread that was deleted, with what it had.
        unreadable: The tenant and the id of each thread with metadata that cannot be read. These threads stay, unless
            another of their checkpoints matches: whether they are the person's is not known.
    """

    threads: list[ErasedThread] = field(default_factory=list)
    unreadable: list[tuple[str, str]] = field(default_factory=list)


def erase_operations(
    d: SqlDialect, codec: ValueCodec, filter: Mapping[str, Any], *, dry_run: bool, tenants: bool
) -> Generator[Operation[Any], Any, Erased]:
    """Yield the operations that erase, one after the other; the caller runs each and sends its result back."""
    conditions = wanted(filter)
    if not conditions:
        raise ConfigError("erase needs a filter, such as {'user_id': 'ada'}; delete_thread deletes a thread by its id")
    flag("dry_run", dry_run)
    erased = Erased()
    for own in (yield from dialects_of_tenants(d, tenants)):
        seen, unreadable = set[str](), set[str]()
        page: Page | None = FIRST
        while page is not None:
            found: Found = yield matching_page(own, codec, page, conditions)
            for thread_id in found.thread_ids:
                if thread_id not in seen:
                    seen.add(thread_id)
                    one: ErasedThread = yield count_thread(own, thread_id)
                    if not dry_run:
                        yield delete_thread(own, thread_id)
                    if one.checkpoints:  # Else somebody else has deleted it.
                        erased.threads.append(one)
            unreadable.update(found.unreadable)
            page = found.after
        erased.unreadable += [(own.tenant, thread_id) for thread_id in sorted(unreadable - seen)]
    while not dry_run and (yield give_back_pages(d)):
        pass
    return erased


class Found(NamedTuple):
    """The threads of a page: those that match, and those whose metadata cannot be read; and the next page."""

    thread_ids: Sequence[str]
    unreadable: Sequence[str]
    after: Page | None


@operation("read")
def matching_page(d: SqlDialect, codec: ValueCodec, page: Page, asked: Sequence[Condition]) -> Steps[Found]:
    """Return the threads with a checkpoint that matches, on a page of all checkpoints that are not hidden.

    Round trips: 1, and one for each 5,000 checkpoints.
    Rows: up to 1,000 checkpoints that may match, of 5,000.
    """
    piece = yield from piece_of(d, page._replace(filter=narrowing(asked, contains=d.filter_contains)))
    assert piece is not None
    (rows,) = yield d.select_records(piece.page, all_kinds=True)
    matching, unreadable = yield from offload(sum(len(row[6]) for row in rows), _matching, d, codec, rows, asked)
    return Found(matching, unreadable, piece.after([(row[2], d.own_thread_id(row[0]), row[1]) for row in rows]))


def _matching(
    d: SqlDialect, codec: ValueCodec, rows: Sequence[Row], asked: Sequence[Condition]
) -> tuple[list[str], list[str]]:
    matching, unreadable = dict[str, None](), dict[str, None]()
    for stored, checkpoint_ns, checkpoint_id, _, _, type_, data in rows:
        thread_id = d.own_thread_id(stored)
        try:
            metadata = Decoder(codec, thread_id, checkpoint_ns, checkpoint_id).metadata(type_, data)
        except Exception:  # CorruptCheckpoint, or any error of the user's serializer.
            unreadable[thread_id] = None
        else:
            if matches(metadata, asked, contains=d.filter_contains):
                matching[thread_id] = None
    return list(matching), list(unreadable)


@operation("read")
def count_thread(d: SqlDialect, thread_id: str) -> Steps[ErasedThread]:
    """Return what a thread has.

    Round trips: 2.
    Rows: all rows of the thread are counted.
    """
    sizes = yield from sizes_of_threads(d, [thread_id]).start()
    (labels,) = yield d.ask("select_labels", thread_id=thread_id)
    size = sizes[thread_id].size
    checkpoints = size.checkpoints + size.hidden
    return ErasedThread(d.tenant, thread_id, checkpoints, size.writes, size.blobs, len(labels), size.bytes)
