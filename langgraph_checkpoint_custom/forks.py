"""What happens to connections when the process is forked: none of them is used by two processes.

SQLite's locks are those of a process, and what the library remembers of them goes wrong in a child even for a new
connection; so its files are closed before the fork, and opened again when they are needed. PostgreSQL's connections
stay the parent's: the child forgets them, without a word to the server, and makes its own.
"""

from __future__ import annotations

import os
import threading
import weakref
from typing import Protocol


class Forked(Protocol):
    """What has something that a fork must not share."""

    def before_fork(self) -> None: ...
    def after_fork(self, *, child: bool) -> None: ...


_ALL: weakref.WeakSet[Forked] = weakref.WeakSet()
_FORKING: list[Forked] = []  # Those that were told of the fork that goes on.
_ONE_AT_A_TIME = threading.Lock()


def tell_of_forks(what: Forked) -> None:
    """Call its methods at every fork from now on."""
    _ALL.add(what)


def _before() -> None:
    _ONE_AT_A_TIME.acquire()
    for what in list(_ALL):
        _FORKING.append(what)  # First, so that its lock is released even if something fails.
        what.before_fork()


def _after(*, child: bool) -> None:
    while _FORKING:
        _FORKING.pop().after_fork(child=child)
    _ONE_AT_A_TIME.release()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=_before, after_in_parent=lambda: _after(child=False), after_in_child=lambda: _after(child=True)
    )
