"""Who may write to a thread: runs that lost a race are refused, and a claim has one owner at a time.

Must not know: SQL, connections, the clock, OS threads, event loops; the database's clock says what has expired.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping
from contextvars import ContextVar
from datetime import datetime, timezone
from typing import Literal

from langgraph_checkpoint_custom.engine.operation import Steps, operation
from langgraph_checkpoint_custom.errors import ClaimLost, ThreadBusy
from langgraph_checkpoint_custom.sql.dialect import SqlDialect

# Runs that lost a race
#
# With `concurrent_writers="reject"`, the parent of each checkpoint that a run stores must be the newest checkpoint of
# its namespace. There is one exception: the caller started the run from a checkpoint id, and that checkpoint was no
# longer the newest. Then a child of that checkpoint, or a copy of it with the same parent, is a fork on purpose. The
# first checkpoint of such a run becomes the newest one. From then on, the rule holds for this run as well.
#
# What a call has read is stored in its context (`contextvars`). LangGraph stores the checkpoints of a run in copies of
# that context, on OS threads and in tasks, and each run reads before it writes. If nothing was read in a context, as in
# a program that stores checkpoints without a graph, nothing is known about a race, and nothing is refused.
#
# A caller may ask for each step of a stream in another copy of the context, as the Agent Server does. What the first
# step has read is not in that copy. So what a run with an id has read is stored under that id as well.

ConcurrentWriters = Literal["allow", "reject"]
Scope = tuple[int, str, str]
"""The number that a saver shares with its copies, a thread id and a namespace."""

Start = tuple[str | None, ...]
"""The parents that a fork on purpose may have although they are not the newest checkpoint."""

_FORKS: ContextVar[Mapping[Scope, Start]] = ContextVar("langgraph_checkpoint_custom.forks")
_OF_RUNS: OrderedDict[tuple[Scope, str], Start] = OrderedDict()
# Entries in `_OF_RUNS` at most. They take about 5 MB, and no process has as many runs at the same time.
RUNS = 10_000
# Entries in one context at most. A worker may use one context for thread after thread, without an end.
SCOPES = 250


def note_read(
    scope: Scope, run_id: str | None, checkpoint_id: str | None, parent_id: str | None, *, older: bool
) -> None:
    """Note that a checkpoint was read, by which run if that has an id, and whether a newer one existed (`older`)."""
    forks = dict(_FORKS.get({}))  # A copy, since other contexts share the dict.
    start = _start(forks.pop(scope, None), checkpoint_id, parent_id, older=older)
    while len(forks) >= SCOPES:
        del forks[next(iter(forks))]
    forks[scope] = start
    _FORKS.set(forks)
    if run_id is not None:
        _OF_RUNS[scope, run_id] = _start(_OF_RUNS.pop((scope, run_id), None), checkpoint_id, parent_id, older=older)
        if len(_OF_RUNS) > RUNS:
            _OF_RUNS.popitem(last=False)


def must_be_newest(scope: Scope, run_id: str | None, parent_id: str | None) -> bool:
    """Return whether a checkpoint may be stored only if its parent is the newest."""
    start = None if run_id is None else _OF_RUNS.get((scope, run_id))
    if start is None:
        start = _FORKS.get({}).get(scope)
    return start is not None and parent_id not in start


def _start(known: Start | None, checkpoint_id: str | None, parent_id: str | None, *, older: bool) -> Start:
    """Return the parents that a run may have, after it has read one more checkpoint.

    LangGraph reads the newest checkpoint after an older one when a run starts from the older one. So reading the newest
    one removes the entry only if it names the same checkpoint.
    """
    if older:
        return checkpoint_id, parent_id
    return () if known is None or checkpoint_id in known[:1] else known


# Claims
#
# A claim is a row with a token. A `put` or `put_writes` with a token looks for the row in the transaction in which it
# stores. On PostgreSQL it shares the thread's lock until the end of that transaction, and `take_claim` holds the lock
# alone. So another owner takes the claim over before or after a write, and never during it. A token that was deleted
# never comes back: the writes of an owner that did not renew in time are refused from then on.


@operation("write", joins=False)
def take_claim(
    d: SqlDialect,
    thread_id: str,
    token: str,
    owner: str,
    ttl_seconds: float,
    stopped: Callable[[], bool] = lambda: False,
) -> Steps[None]:
    """Claim a thread that has no claim, or whose claim has expired; release it if the owner has `stopped` meanwhile.

    Round trips: 1, or 2 if the owner has stopped.
    Idempotent: by token.
    Raises: ThreadBusy.
    """
    params = {"thread_id": thread_id, "claim": token, "owner": owner, "ttl_seconds": ttl_seconds}
    *_, ((held, holder, expires),) = yield d.ask(
        "claim_expire", "claim_take", "claim_holder", lock="exclusive", **params
    )
    if held != token:
        raise ThreadBusy(thread_id, holder, datetime.fromtimestamp(expires, timezone.utc))
    if stopped():  # The task was cancelled and has sent the release; on a worker, its call has gone on.
        yield d.ask("release_claim", thread_id=thread_id, claim=token)


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
