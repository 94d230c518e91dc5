"""Erasing a person: deletes all threads of which a checkpoint has some metadata, and says what was deleted where.

It reads the metadata of all checkpoints, page by page, and deletes each thread in a transaction of its own. You can
stop it and start it again at any time: what is deleted is not found again.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping
from dataclasses import dataclass, field
from typing import Any

from langgraph_checkpoint_custom.encoding.values import Values
from langgraph_checkpoint_custom.engine.operation import Operation
from langgraph_checkpoint_custom.errors import ConfigError
from langgraph_checkpoint_custom.model.filter import wanted
from langgraph_checkpoint_custom.model.keys import Page, flag
from langgraph_checkpoint_custom.operations.erase import (
    FIRST,
    ErasedThread,
    Found,
    erase_thread,
    look_at_erased,
    matching_page,
)
from langgraph_checkpoint_custom.operations.free_pages import give_back_pages
from langgraph_checkpoint_custom.operations.list_threads import dialects_of_tenants
from langgraph_checkpoint_custom.sql.dialect import SqlDialect


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
    d: SqlDialect, codec: Values, filter: Mapping[str, Any], *, dry_run: bool, tenants: bool
) -> Generator[Operation[Any], Any, Erased]:
    """The operations that erase, one after the other; the caller runs each and sends its result back."""
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
                    erased.threads.append((yield (look_at_erased if dry_run else erase_thread)(own, thread_id)))
            unreadable.update(found.unreadable)
            page = found.after
        erased.unreadable += [(own.tenant, thread_id) for thread_id in sorted(unreadable - seen)]
    while not dry_run and (yield give_back_pages(d)):
        pass
    return erased
