"""Where runs begin, to tell one that lost a race from one that forks on purpose.

Must not know: databases, OS threads, event loops.

With `concurrent_writers="reject"` the rule is: what a run stores goes on from the newest checkpoint of its namespace.
The one exception is a run that was told to begin at a checkpoint by its id when that was no longer the newest: what it
stores directly behind that one, or as a copy beside it, is a fork on purpose. After its first checkpoint such a run is
the newest like any other, and has to stay so.

What was read is kept in the context (`contextvars`) of the call that read it. LangGraph stores a run's checkpoints in
copies of that context, on OS threads and in tasks, and each run reads before it writes. Where nothing was read, as by a
program that stores checkpoints by itself, nothing is known about a race, and nothing is refused.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextvars import ContextVar
from typing import Literal

ConcurrentWriters = Literal["allow", "reject"]
Place = tuple[int, str, str]
"""A store, a thread and a namespace."""

_FORKS: ContextVar[Mapping[Place, tuple[str | None, ...]]] = ContextVar("langgraph_checkpoint_custom.forks")


def note_read(place: Place, checkpoint_id: str | None, parent_id: str | None, *, older: bool) -> None:
    """Note that a checkpoint was read, and whether it was an older one.

    The newest may be read after an older one: LangGraph does that when it travels back. So that forgets an older one
    only if it is the same.
    """
    known = _FORKS.get({})
    if older:
        _FORKS.set({**known, place: (checkpoint_id, parent_id)})
    elif place not in known or checkpoint_id in known[place][:1]:
        _FORKS.set({**known, place: ()})


def must_be_newest(place: Place, parent_id: str | None) -> bool:
    """Whether a checkpoint may be stored only if its parent is the newest."""
    known = _FORKS.get({})
    return place in known and parent_id not in known[place]
