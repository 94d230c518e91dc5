"""What was moved from or to a store of LangGraph's own savers; it remains when a thread is deleted.

Must not know: SQL, connections, what the bytes mean.
"""

from __future__ import annotations

from collections.abc import Sequence

from langgraph_checkpoint_custom.engine.operation import Steps, operation
from langgraph_checkpoint_custom.model.keys import Range
from langgraph_checkpoint_custom.sql.dialect import SqlDialect

# Threads in a page.
PAGE = 100


@operation("read")
def moves_of_threads(d: SqlDialect, store: str, thread_ids: Sequence[str]) -> Steps[Sequence[bytes]]:
    """Return for each thread what was moved of it; empty if nothing was.

    Round trips: 1.
    """
    replies = yield d.ask_each("select_move", [{"thread_id": each} for each in thread_ids], store=store)
    return [bytes(rows[0][0]) if rows else b"" for rows in replies]


@operation("read")
def moved_threads(d: SqlDialect, store: str, after: str) -> Steps[Sequence[str]]:
    """Return the page of the moved threads with greater ids; empty after the last one.

    Round trips: 1.
    """
    replies = yield d.ask_each("select_moves", map(Range._asdict, d.ranges_after(after)), store=store, limit=PAGE)
    return [d.own_thread_id(row[0]) for row in next(filter(None, replies), [])]


@operation("write")
def store_move(d: SqlDialect, store: str, thread_id: str, checkpoints: bytes) -> Steps[None]:
    """Store what was moved of a thread.

    Round trips: 1.
    Idempotent: by (store, thread_id).
    """
    yield d.ask("store_move", store=store, thread_id=thread_id, checkpoints=checkpoints)


@operation("write")
def forget_moves(d: SqlDialect, store: str) -> Steps[None]:
    """Forget what was moved from or to a store.

    Round trips: 1.
    """
    yield d.ask_each("forget_moves", map(Range._asdict, d.ranges()), store=store)
