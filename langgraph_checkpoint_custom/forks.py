"""What happens to connections when the process is forked: none of them is used by two processes.

SQLite's locks are those of a process, and what the library remembers of them goes wrong in a child even for a new
connection; so its files are closed before the fork, and opened again when they are needed. PostgreSQL's connections
stay the parent's: the child forgets them, without a word to the server, and makes its own.
"""

from __future__ import annotations

import _thread
import os
import signal
import threading
import weakref
from collections.abc import Generator
from functools import partial
from typing import Protocol


class Forked(Protocol):
    """What has something that a fork must not share."""

    def before_fork(self) -> None:
        """Close it; a lock that nobody else may have meanwhile is taken with `hold`."""

    def after_fork(self) -> None:
        """Begin anew, in the child; this may be called twice."""


_ALL: weakref.WeakSet[Forked] = weakref.WeakSet()
_ONE_AT_A_TIME = threading.Lock()  # Guards it; held during a fork.
_HELD: list[Generator[None, None, None]] = []  # Each has a lock until the fork is over.
_INTERRUPTED: list[int] = []  # The signal whose interrupt is for who forks.


def tell_of_forks(what: Forked) -> None:
    """Call its methods at every fork from now on."""
    with _ONE_AT_A_TIME:
        _ALL.add(what)


def hold(lock: threading.Lock) -> None:
    """Take a lock until the fork is over."""

    def held() -> Generator[None, None, None]:
        with lock:
            yield

    holder = held()
    next(holder)
    _HELD.append(holder)


def _before() -> None:
    """Tell all of them on an OS thread of its own, where no signal comes: each has to be told to its end.

    Python lets no hook keep a fork from going on: it prints what one raises. Ctrl-C comes after the fork instead.
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
        except KeyboardInterrupt:
            _INTERRUPTED[:] = [signal.SIGINT]
        except BaseException as error:  # What the handler of another signal raises.
            interrupt = error
    if interrupt:
        raise interrupt


def _tell(begun: threading.Lock, done: threading.Event) -> None:
    if not begun.acquire(blocking=False):  # Whoever starts this may be interrupted, and starts it again.
        return
    hold(_ONE_AT_A_TIME)
    failed: Exception | None = None
    for what in list(_ALL):
        try:
            what.before_fork()
        except Exception as error:
            failed = error
    done.set()
    if failed:
        raise failed


def _in_child() -> None:
    for what in list(_ALL):
        what.after_fork()


if hasattr(os, "register_at_fork"):
    # An interrupt comes in Python code only, so what follows a fork is done by functions that are built in: one closes
    # what has the locks, and one calls another for the signal, whose handler then runs where `os.fork` was called.
    os.register_at_fork(before=_before, after_in_parent=_HELD.clear, after_in_child=_HELD.clear)
    os.register_at_fork(after_in_parent=partial(_INTERRUPTED.sort, key=_thread.interrupt_main))
    os.register_at_fork(after_in_parent=_INTERRUPTED.clear, after_in_child=_INTERRUPTED.clear)
    os.register_at_fork(after_in_child=_in_child)
    os.register_at_fork(after_in_child=_in_child)  # Again, since an interrupt may have ended the first one.
