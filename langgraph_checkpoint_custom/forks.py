"""What happens to connections when the process is forked: none of them is used by two processes.

SQLite's locks are those of a process, and what the library remembers of them goes wrong in a child even for a new
connection; so its files are closed before the fork, and opened again when they are needed. PostgreSQL's connections
stay the parent's: the child forgets them, without a word to the server, and makes its own.
"""

from __future__ import annotations

import _thread
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
_ONE_AT_A_TIME = threading.Lock()  # Guards both.


def tell_of_forks(what: Forked) -> None:
    """Call its methods at every fork from now on."""
    with _ONE_AT_A_TIME:
        _ALL.add(what)


def _before() -> None:
    """Tell all of them on an OS thread of its own, where no signal comes: each has to be told to its end.

    What interrupts the wait for that is raised then, which Python prints: it lets no hook keep a fork from going on.
    """
    interrupt: BaseException | None = None
    begun, done = threading.Lock(), threading.Event()
    while not done.is_set():
        try:
            if not begun.locked():
                _thread.start_new_thread(_tell, (begun, done))
            done.wait()
        except RuntimeError:  # The interpreter ends and makes no threads any more.
            _tell(begun, done)
        except BaseException as error:
            interrupt = error
    if interrupt:
        raise interrupt


def _tell(begun: threading.Lock, done: threading.Event) -> None:
    if not begun.acquire(blocking=False):  # Whoever starts this may be interrupted, and starts it again.
        return
    _ONE_AT_A_TIME.acquire()
    failed: Exception | None = None
    for what in list(_ALL):
        _FORKING.append(what)  # First, so that its lock is released even if something fails.
        try:
            what.before_fork()
        except Exception as error:
            failed = error
    done.set()
    if failed:
        raise failed


def _after(*, child: bool) -> None:
    while _FORKING:
        _FORKING.pop().after_fork(child=child)
    _ONE_AT_A_TIME.release()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=_before, after_in_parent=lambda: _after(child=False), after_in_child=lambda: _after(child=True)
    )
