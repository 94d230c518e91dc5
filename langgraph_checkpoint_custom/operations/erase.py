"""Erasing a person: deletes all threads of which a checkpoint has some metadata, and says what was deleted where.

Must not know: SQL, connections.

It reads the metadata of all checkpoints, page by page, and deletes each thread in a transaction of its own. Hidden
checkpoints are read, too: what they have is still part of the thread. You can stop it and start it again at any time:
what is deleted is not found again.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from langgraph_checkpoint_custom.encoding.values import ValueCodec
from langgraph_checkpoint_custom.engine.operation import Operations, Steps, operation
from langgraph_checkpoint_custom.errors import ConfigError
from langgraph_checkpoint_custom.model.filter import wanted
from langgraph_checkpoint_custom.model.keys import Page, flag
from langgraph_checkpoint_custom.operations.delete import delete_thread, give_back_pages
from langgraph_checkpoint_custom.operations.list_threads import HistoryReply, dialects_of_tenants, history_page
from langgraph_checkpoint_custom.operations.pages import first_page
from langgraph_checkpoint_custom.operations.sizes import sizes_of_threads
from langgraph_checkpoint_custom.sql.dialect import SqlDialect

# Checkpoints that match, for one statement.
MATCHES = 1_000


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
) -> Operations[Erased]:
    """Yield the operations that erase, one after the other; the caller runs each and sends its result back."""
    conditions = wanted(filter)
    if not conditions:
        raise ConfigError("erase needs a filter, such as {'user_id': 'ada'}; delete_thread deletes a thread by its id")
    flag("dry_run", dry_run)
    erased = Erased()
    for own in (yield from dialects_of_tenants(d, tenants, must_be_all=True)):
        seen, unreadable = set[str](), set[str]()
        page: Page | None = first_page(None, None, None, None, MATCHES)
        while page is not None:
            found: HistoryReply = yield history_page(own, codec, page, conditions, everything=True)
            for thread_id in dict.fromkeys(record.thread_id for record in found.records):
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
