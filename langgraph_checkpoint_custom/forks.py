"""What happens to connections when the process forks (`os.fork`): no connection is used by two processes.

SQLite's locks belong to a process, and what the SQLite library remembers about them is wrong in a child, even for a new
connection. So files are closed before the fork, and opened again when they are needed. PostgreSQL's connections remain
the parent's: the child forgets them, sends nothing to the server, and makes its own.
"""

from __future__ import annotations

import os
import time
import weakref
from contextlib import suppress

# Seconds that a fork waits for the calls of an object, and a call for a fork. A small call takes less than a hundredth.
FORK_TIMEOUT = 5.0


class Forked:
    """An object with something that a fork must not share."""

    def before_fork(self) -> None:
        """Close what is open, and note in `UNDERWAY` that nobody may open it again until the fork is over."""

    def after_fork(self) -> None:
        """Start over in the child."""


UNDERWAY: list[Forked] = []
"""What a fork that has not happened yet has closed."""
_ALL: weakref.WeakValueDictionary[int, Forked] = weakref.WeakValueDictionary()


def register_for_forks(*objects: Forked) -> None:
    """Call the methods of these objects at every fork from now on."""
    _ALL.update({id(each): each for each in objects})


def wait_for_fork(what: Forked) -> None:
    """Wait until no fork is underway that has closed this object; the fork waits for what it has not closed yet."""
    ends = time.monotonic() + FORK_TIMEOUT
    while what in UNDERWAY and time.monotonic() < ends:
        time.sleep(0.001)  # Polled: forks are rare, and after one, no code of ours has to run in the parent.
    with suppress(ValueError):
        UNDERWAY.remove(what)  # A fork that takes longer finds that it is in use.


def _before() -> None:
    for reference in _ALL.valuerefs():  # Other OS threads may add to them meanwhile.
        if what := reference():
            what.before_fork()


def _in_child() -> None:
    for what in list(_ALL.values()):
        what.after_fork()


if hasattr(os, "register_at_fork"):
    # A built-in method ends the wait: no interrupt comes in the middle of it.
    os.register_at_fork(before=_before, after_in_parent=UNDERWAY.clear, after_in_child=_in_child)
    os.register_at_fork(after_in_child=UNDERWAY.clear)
