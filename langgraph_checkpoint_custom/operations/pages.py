"""Pages of lists: the first page of a call, the page after another one, and which checkpoints are read for a page.

Must not know: SQL, connections.

The checkpoints of a namespace, and those of all threads, are read in the order of an index, from the newest one down.
Two lists are not in the order of an index, or may find little. Of these, a page is a piece of the store, which has an
end:

- All namespaces of a thread. First the keys of the newest checkpoints are read, which are in an index, and then the
  rows of these. The keys that one page leaves over are for the next one. With a filter, all rows of the thread are
  searched at once for the keys that match, unless the newest `NEAR` checkpoints are enough.
- A filter over all threads. A statement searches `REACH` checkpoints, and the next one goes on below them.
"""

from __future__ import annotations

from collections.abc import Sequence
from heapq import nlargest
from typing import NamedTuple, TypeVar

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import CheckpointTuple

from langgraph_checkpoint_custom.engine.operation import Operation, Steps, one_trip
from langgraph_checkpoint_custom.model.keys import AFTER_ALL, Ahead, Page, before_id, key_of, right_above
from langgraph_checkpoint_custom.model.records import ThreadPage
from langgraph_checkpoint_custom.sql.dialect import SqlDialect

AnyPage = TypeVar("AnyPage", ThreadPage, Page)
T = TypeVar("T")

# Keys of a thread that are read at once, if it has no more: for each row that is asked for, and at most. 1,000 keys are
# on about 20 pages of the index.
FOR_A_ROW, SMALL = 20, 1_000
# Namespaces of a larger thread whose newest keys are read one after the other. To find the place of each in the index
# takes three or four pages. Those of more namespaces are found by reading all keys of the thread: 60 on a page.
SPACES = 10
# Keys that are chosen at once: at first as many as a page needs, then `FARTHER` times as many each time, up to `KEYS`.
FARTHER, KEYS = 10, 2_000
# The newest checkpoints of a large thread that are searched with a filter before all.
NEAR = 25
# Keys that a search of a thread finds at once.
MATCHES = 10_000
# Checkpoints that a statement searches with a filter, in a few hundredths of a second.
REACH = 5_000
# Below all ids.
LOWEST = right_above("")


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
        thread_id, checkpoint_ns, exact = key_of(config)
        if config["configurable"].get("checkpoint_ns") is None:
            checkpoint_ns = None  # All namespaces.
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


def page_below(
    page: Page, found: Sequence[CheckpointTuple], limit: int | None, most: int
) -> tuple[Page | None, int | None]:
    """As `next_page`, after a page of a namespace without a filter."""
    if len(found) < page.limit or len(found) == limit:
        return None, limit
    last = key_of(found[-1].config).checkpoint_id or ""
    return next_page(page._replace(before=last), len(found), limit, most)


# Which checkpoints are read for a page


def at_one_time(op: Operation[T], page: Page) -> Operation[T]:
    """Have an operation read its page from one snapshot, also if that takes keys first, and then their rows.

    Without it, a checkpoint that is deleted in between would be missing, and the one that was stored before that, too.
    """
    if page.thread_id is not None and page.checkpoint_ns is None:
        op.access = "snapshot"
    return op


class Piece(NamedTuple):
    """What is read for a page, and the page to go on with if that has fewer rows than were asked for."""

    page: Page
    rest: Page | None

    def after(self, found: Sequence[tuple[str, str, str]]) -> Page | None:
        """Return the next page, given the id, thread and namespace of each row that was found; None at the end."""
        if len(found) < self.page.limit:
            return self.rest
        return below(self.page, *min(found))


def below(page: Page, checkpoint_id: str, thread_id: str, checkpoint_ns: str) -> Page:
    """Return the page below a row."""
    ahead = page.ahead
    if ahead:
        ahead = ahead._replace(keys=[key for key in ahead.keys if key < (checkpoint_id, checkpoint_ns)])
    return page._replace(before=checkpoint_id, thread_below=thread_id, ns_below=checkpoint_ns, ahead=ahead)


def piece_of(d: SqlDialect, page: Page) -> Steps[Piece | None]:
    """Return what to read for a page; None if there is nothing.

    Round trips: none for the checkpoints of a namespace, and for those of all threads without a filter. With a filter
        over all threads, one for each 5,000 checkpoints. For a thread one, and one for each 2,000 checkpoints if it has
        more than 1,000, or more than 20 for each row that is asked for; with a filter, 2 to 4, and one more for each
        10,000 matches.
    """
    if page.thread_id is not None and page.checkpoint_ns is None:
        return (yield from _of_thread(d, page))
    if page.thread_id is None and page.filter:
        return (yield from _of_store(d, page))
    return Piece(page, None)


def _of_store(d: SqlDialect, page: Page) -> Steps[Piece]:
    if not page.floor:
        # Of the id itself, rows are left only below a thread. Otherwise the piece might be empty, and all after it.
        before = right_above(page.before) if page.thread_below else page.before
        (found,) = yield d.ask("select_id_below", before=before, reach=REACH)
        page = page._replace(floor=found[0][0] if found else LOWEST)
    # The rows of the lowest id belong to the piece, however many threads have that id.
    rest = page._replace(before=page.floor, thread_below="", ns_below="", floor="")
    return Piece(page, None if page.floor == LOWEST else rest)


def _of_thread(d: SqlDialect, page: Page) -> Steps[Piece | None]:
    ahead = page.ahead
    if ahead is None:
        ahead = yield from _first_keys(d, page)
        if ahead.spaces is not None and len(ahead.spaces) == 1:
            return Piece(page._replace(checkpoint_ns=ahead.spaces[0]), None)
    if not ahead.keys and ahead.following:
        ahead = yield from _more_keys(d, page, ahead)
    if not ahead.keys:
        return None
    page = page._replace(ahead=ahead)
    checkpoint_id, checkpoint_ns = page.keys[-1]
    is_last = len(page.keys) == len(ahead.keys) and not ahead.following
    return Piece(page, None if is_last else below(page, checkpoint_id, page.thread_id or "", checkpoint_ns))


def _first_keys(d: SqlDialect, page: Page) -> Steps[Ahead]:
    """Read all keys of a small thread, or the namespaces of a larger one if they are few."""
    thread_id, small = page.thread_id or "", SMALL if page.filter else min(FOR_A_ROW * page.limit, SMALL)
    asked_keys = d.ask("select_keys", thread_id=thread_id, limit=small + 1)
    asked_spaces = d.ask("select_namespaces", thread_id=thread_id, limit=SPACES + 1)
    keys, found = yield one_trip([asked_keys, asked_spaces])
    if len(keys) <= small:
        if page.filter and len({checkpoint_ns for _, checkpoint_ns in keys}) > 1:
            return (yield from _matching_keys(d, page))
        asked = [
            (checkpoint_id, checkpoint_ns)
            for checkpoint_id, checkpoint_ns in keys
            if page.floor <= checkpoint_id and (checkpoint_id, checkpoint_ns) < (page.before, page.ns_below)
        ]
        spaces = list({checkpoint_ns for _, checkpoint_ns in keys})
        return Ahead(sorted(asked, reverse=True), spaces, following=0)
    following = NEAR if page.filter else page.limit
    return Ahead([], [row[0] for row in found] if len(found) <= SPACES else None, following)


def _more_keys(d: SqlDialect, page: Page, ahead: Ahead) -> Steps[Ahead]:
    """Choose the next keys of a large thread."""
    if page.filter and (ahead.matching or ahead.following > NEAR):
        return (yield from _matching_keys(d, page))
    replies = yield d.select_newest_keys(page, ahead.spaces, ahead.following)
    keys = nlargest(ahead.following, ((row[0], row[1]) for rows in replies for row in rows))
    following = min(KEYS, FARTHER * ahead.following) if len(keys) == ahead.following else 0
    return ahead._replace(keys=keys, following=following)


def _matching_keys(d: SqlDialect, page: Page) -> Steps[Ahead]:
    """Choose the keys that match a filter."""
    (found,) = yield d.select_matching_keys(page, MATCHES)
    keys = [(checkpoint_id, checkpoint_ns) for checkpoint_id, checkpoint_ns in found]
    return Ahead(keys, None, MATCHES if len(keys) == MATCHES else 0, matching=True)
