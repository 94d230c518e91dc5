"""Claims: one owner at a time may write to a thread, for as long as its heart beats.

Must not know: the clock, OS threads, event loops; the database's clock says what has expired.

A claim is a token in a row. `put` and `put_writes` that come with a token look for it in the same transaction in which
they store, and on PostgreSQL lock the row meanwhile, so a claim is either taken over before or after them. A token that
is gone never comes back: an owner that slept too long is refused for good.
"""

from __future__ import annotations

from datetime import datetime, timezone

from langgraph_checkpoint_custom.engine.operation import Steps, operation
from langgraph_checkpoint_custom.errors import ClaimLost, ThreadBusy
from langgraph_checkpoint_custom.sql.dialect import SqlDialect


@operation("write")
def take_claim(d: SqlDialect, thread_id: str, token: str, owner: str, ttl_seconds: float) -> Steps[None]:
    """Claim a thread that nobody has claimed, or whose claim has expired.

    Trips: 1.
    Idempotent: by token.
    Raises: ThreadBusy.
    """
    reply = yield d.take_claim(thread_id, token, owner, ttl_seconds)
    held, holder, expires = reply[-1][0]
    if held != token:
        raise ThreadBusy(thread_id, holder, datetime.fromtimestamp(expires, timezone.utc))


@operation("write")
def renew_claim(d: SqlDialect, thread_id: str, token: str, ttl_seconds: float) -> Steps[None]:
    """Put off the end of a claim, also if it has expired and nobody has taken it over.

    Trips: 1.
    Idempotent: yes.
    Raises: ClaimLost.
    """
    (rows,) = yield d.renew_claim(thread_id, token, ttl_seconds)
    if not rows:
        raise claim_lost(thread_id)


@operation("write", tells=True)
def release_claim(d: SqlDialect, thread_id: str, token: str) -> Steps[bool]:
    """End a claim; tells whether it was still held.

    Trips: 1.
    """
    (rows,) = yield d.release_claim(thread_id, token)
    return bool(rows)


def claim_lost(thread_id: str) -> ClaimLost:
    """The error for an owner that was too slow."""
    return ClaimLost(
        f"the claim on thread {thread_id!r} has expired and was taken over or cleared away; nothing was stored. Claim "
        "the thread again and go on from its newest checkpoint"
    )
