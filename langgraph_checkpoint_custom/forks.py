"""What happens to connections when the process forks (`os.fork`): no connection is used by two processes.

SQLite's locks belong to a process, and what the SQLite library remembers about them is wrong in a child, even for a new
connection. So files are closed before the fork, and opened again when they are needed. PostgreSQL's connections remain
the parent's: the child forgets them, sends nothing to the server, and makes its own.
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
    """An object with something that a fork must not share."""

    def before_fork(self) -> None:
        """Close it before the fork; use `hold` for a lock that must stay taken until the fork is over."""

    def after_fork(self) -> None:
        """Start over in the child; this may be called twice."""


_ALL: weakref.WeakSet[Forked] = weakref.WeakSet()
_ONE_AT_A_TIME = threading.Lock()  # Guards `_ALL`; held during a fork.
_HELD: list[Generator[None, None, None]] = []  # Each holds a lock until the fork is over.
_INTERRUPTED: list[int] = []  # SIGINT if it came during `_before`; it is raised after the fork.


def register_for_forks(what: Forked) -> None:
    """Call the methods of an object at every fork from now on."""
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
    """Call `before_fork` of all objects, on a new OS thread, which signals do not interrupt: each call has to complete.

    No hook can prevent a fork: Python only prints what the hook raises. Ctrl-C is raised after the fork instead.
    """
    interrupt: BaseException | None = None
    begun, done = threading.Lock(), threading.Event()
    while not done.is_set():
        try:
            if not begun.locked():
                _thread.start_new_thread(_call_before_fork, (begun, done))
            done.wait()
        except RuntimeError:  # The interpreter is shutting down and starts no threads.
            _call_before_fork(begun, done)
        except KeyboardInterrupt:
            _INTERRUPTED[:] = [signal.SIGINT]
        except BaseException as error:  # The handler of another signal has raised it.
            interrupt = error
    if interrupt:
        raise interrupt


def _call_before_fork(begun: threading.Lock, done: threading.Event) -> None:
    if not begun.acquire(blocking=False):  # An interrupted caller starts this again.
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
    # Interrupts come only in Python code. So built-in functions do what follows a fork: one closes the generators that
    # hold the locks, and one calls another to raise the signal, whose handler then runs where `os.fork` was called.
    os.register_at_fork(before=_before, after_in_parent=_HELD.clear, after_in_child=_HELD.clear)
    os.register_at_fork(after_in_parent=partial(_INTERRUPTED.sort, key=_thread.interrupt_main))
    os.register_at_fork(after_in_parent=_INTERRUPTED.clear, after_in_child=_INTERRUPTED.clear)
    os.register_at_fork(after_in_child=_in_child)
    os.register_at_fork(after_in_child=_in_child)  # Again: an interrupt may have ended the first one.
