"""Pages of lists: the first page of a call, and the page after another one; and how large pages of values are.

Must not know: SQL, connections.
"""

from __future__ import annotations

from typing import TypeVar

from langchain_core.runnables import RunnableConfig

from langgraph_checkpoint_custom.model.keys import AFTER_ALL, Page, before_id, key_of, namespace_of, right_above
from langgraph_checkpoint_custom.model.records import ThreadPage

AnyPage = TypeVar("AnyPage", ThreadPage, Page)

# Rows of the first page with values. The next ones may have twice as many each time, up to `MOST`, as long as their
# bytes are not more than `BYTES`: a row may have 100 MB.
FIRST, MOST, BYTES = 25, 400, 4_000_000


def rows_after(rows: int, size: int) -> int:
    """Return how many rows the next page with values may have, after a page of `rows` rows with `size` bytes."""
    return max(1, min(2 * rows, MOST, BYTES * rows // max(size, 1)))


def first_page(
    thread_id: str | None,
    checkpoint_ns: str | None,
    exact: str | None,
    before: str | None,
    limit: int,
) -> Page:
    """Return the first page of a list; of checkpoint `exact` only, if that is given."""
    ceiling = AFTER_ALL if before is None else before
    if exact is not None:
        ceiling = min(ceiling, right_above(exact))
    return Page(thread_id, checkpoint_ns, exact or "", ceiling, "", "", (), limit)


def asked_page(
    config: RunnableConfig | None,
    before: RunnableConfig | None,
    limit: int | None,
    most: int,
) -> Page | None:
    """Return the first page of a list, given LangGraph's arguments; of `most` rows at most. None if `limit` is 0."""
    thread_id = checkpoint_ns = exact = None
    if config:
        thread_id, _, exact = key_of(config)
        checkpoint_ns = namespace_of(config)
    if limit == 0:
        return None
    return first_page(thread_id, checkpoint_ns, exact, before_id(before), most if limit is None else min(limit, most))


def next_page(after: AnyPage | None, found: int, limit: int | None, most: int) -> tuple[AnyPage | None, int | None]:
    """Return the page to read next, of `most` rows at most, and what remains of the limit.

    Args:
        after: The page after the one that was read, as large as that one; None if that was the last one.
        found: The number of matches on the page that was read.
        limit: What remained of the limit before that page; None means no limit.
        most: The largest number of rows.
    """
    if limit is not None:
        limit -= found
    if after is None or (limit is not None and limit <= 0):
        return None, limit
    # If the database cannot evaluate a filter, a page may hold fewer matches than requested; then ask for a full page.
    return after._replace(limit=min(limit, most) if limit is not None and found == after.limit else most), limit
