"""The checkpoints that runs start from. They separate a run that lost a race from one that forks on purpose.

Must not know: databases, OS threads, event loops.

With `concurrent_writers="reject"`, the parent of each checkpoint that a run stores must be the newest checkpoint of its
namespace. There is one exception: the caller started the run from a checkpoint id, and that checkpoint was no longer
the newest. Then a child of that checkpoint, or a copy of it with the same parent, is a fork on purpose. The first
checkpoint of such a run becomes the newest one. From then on, the rule holds for this run as well.

What a call has read is stored in its context (`contextvars`). LangGraph stores the checkpoints of a run in copies of
that context, on OS threads and in tasks, and each run reads before it writes. If nothing was read in a context, as in a
program that stores checkpoints without a graph, nothing is known about a race, and nothing is refused.

A caller may ask for each step of a stream in another copy of the context, as the Agent Server does. What the first step
has read is not in that copy. So what a run with an id has read is stored under that id as well.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from contextvars import ContextVar
from typing import Literal

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
