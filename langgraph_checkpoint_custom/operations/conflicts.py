"""Where runs begin, to tell one that lost a race from one that forks on purpose.

Must not know: databases, OS threads, event loops.

With `concurrent_writers="reject"` the rule is: what a run stores goes on from the newest checkpoint of its namespace.
The one exception is a run that was told to begin at a checkpoint by its id when that was no longer the newest: what it
stores directly behind that one, or as a copy beside it, is a fork on purpose. After its first checkpoint such a run is
the newest like any other, and has to stay so.

What was read is kept in the context (`contextvars`) of the call that read it. LangGraph stores a run's checkpoints in
copies of that context, on OS threads and in tasks, and each run reads before it writes. Where nothing was read, as by a
program that stores checkpoints by itself, nothing is known about a race, and nothing is refused.

A stream may be asked for each of its steps in another copy of the context, in which the first step's reading is not
known; the Agent Server does that. So what a run with an id has read is kept with that id, too.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from contextvars import ContextVar
from typing import Literal

ConcurrentWriters = Literal["allow", "reject"]
Location = tuple[int, str, str]
"""The number of a saver and its copies, a thread and a namespace."""

Start = tuple[str | None, ...]
"""The parents that a fork on purpose may go on from although they are not the newest."""

_FORKS: ContextVar[Mapping[Location, Start]] = ContextVar("langgraph_checkpoint_custom.forks")
_OF_RUNS: OrderedDict[tuple[Location, str], Start] = OrderedDict()
# Runs of which that is kept, about 5 MB of them; nobody has as many at work at once in one process.
RUNS = 10_000
# Places of which that is kept in a context; a worker may go from thread to thread in the same one for ever.
PLACES = 250


def note_read(
    location: Location, run_id: str | None, checkpoint_id: str | None, parent_id: str | None, *, older: bool
) -> None:
    """Note that a checkpoint was read, by which run if it has an id, and whether it was an older one."""
    forks = dict(_FORKS.get({}))  # Other contexts have the same one.
    start = _start(forks.pop(location, None), checkpoint_id, parent_id, older=older)
    while len(forks) >= PLACES:
        del forks[next(iter(forks))]
    forks[location] = start
    _FORKS.set(forks)
    if run_id is not None:
        _OF_RUNS[location, run_id] = _start(
            _OF_RUNS.pop((location, run_id), None), checkpoint_id, parent_id, older=older
        )
        if len(_OF_RUNS) > RUNS:
            _OF_RUNS.popitem(last=False)


def must_be_newest(location: Location, run_id: str | None, parent_id: str | None) -> bool:
    """Whether a checkpoint may be stored only if its parent is the newest."""
    start = None if run_id is None else _OF_RUNS.get((location, run_id))
    if start is None:
        start = _FORKS.get({}).get(location)
    return start is not None and parent_id not in start


def _start(known: Start | None, checkpoint_id: str | None, parent_id: str | None, *, older: bool) -> Start:
    """Where a run begins, once it has read another checkpoint.

    The newest may be read after an older one: LangGraph does that when it travels back. So that forgets an older one
    only if it is the same.
    """
    if older:
        return checkpoint_id, parent_id
    return () if known is None or checkpoint_id in known[:1] else known
