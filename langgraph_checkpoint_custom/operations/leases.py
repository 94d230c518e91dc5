"""Claims: one owner at a time may write to a thread, as long as it renews its claim.

Must not know: the clock, OS threads, event loops; the database's clock says what has expired.

A claim is a row with a token. A `put` or `put_writes` with a token looks for the row in the transaction in which it
stores. On PostgreSQL it shares the thread's lock until the end of that transaction, and `take_claim` holds the lock
alone. So another owner takes the claim over before or after a write, and never during it. A token that was deleted
never comes back: the writes of an owner that did not renew in time are refused from then on.
"""

from __future__ import annotations

from datetime import datetime, timezone

from langgraph_checkpoint_custom.engine.operation import Steps, operation
from langgraph_checkpoint_custom.errors import ClaimLost, ThreadBusy
from langgraph_checkpoint_custom.sql.dialect import SqlDialect


@operation("write")
def take_claim(d: SqlDialect, thread_id: str, token: str, owner: str, ttl_seconds: float) -> Steps[None]:
    """Claim a thread that has no claim, or whose claim has expired.

    Round trips: 1.
    Idempotent: by token.
    Raises: ThreadBusy.
    """
    reply = yield d.take_claim(thread_id, token, owner, ttl_seconds)
    held, holder, expires = reply[-1][0]
    if held != token:
        raise ThreadBusy(thread_id, holder, datetime.fromtimestamp(expires, timezone.utc))


@operation("write")
def renew_claim(d: SqlDialect, thread_id: str, token: str, ttl_seconds: float) -> Steps[None]:
    """Move the expiry time of a claim, also if it has expired and no other owner has taken it over.

    Round trips: 1.
    Idempotent: yes.
    Raises: ClaimLost.
    """
    (rows,) = yield d.ask("renew_claim", thread_id=thread_id, claim=token, ttl_seconds=ttl_seconds)
    if not rows:
        raise claim_lost(thread_id)


@operation("write", reports_change=True)
def release_claim(d: SqlDialect, thread_id: str, token: str) -> Steps[bool]:
    """End a claim; returns whether it was still held.

    Round trips: 1.
    """
    (rows,) = yield d.ask("release_claim", thread_id=thread_id, claim=token)
    return bool(rows)


def claim_lost(thread_id: str) -> ClaimLost:
    """Return the error for an owner that did not renew its claim in time."""
    return ClaimLost(
        f"the claim on thread {thread_id!r} has expired and was taken over or removed; nothing was stored. Claim "
        "the thread again and continue from its newest checkpoint"
    )
