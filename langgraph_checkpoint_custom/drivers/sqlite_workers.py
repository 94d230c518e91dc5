"""Async calls on OS threads of a saver, which end with it. The results of calls that ran together are sent together.

An executor of the standard library would make two futures of each call, one for OS threads and one for the event loop,
and connect them: twice as many functions as here.

Must not know: SQLite.
"""

from __future__ import annotations

import asyncio
import threading
import time
import weakref
from collections.abc import Callable, Sequence
from contextlib import suppress
from queue import SimpleQueue
from typing import Any, TypeVar

from langgraph_checkpoint_custom.drivers.workers import refuse
from langgraph_checkpoint_custom.errors import closed_error

T = TypeVar("T")

# Maximum number of writes that run together. A step of a small state takes 324 µs with 8, 245 with 32, 238 with 64.
MOST = 64


class Call:
    """A call of a task, and its outcome."""

    __slots__ = ("args", "error", "future", "loop", "result", "since", "work", "workers")

    def __init__(self, workers: Workers, work: Callable[..., Any], args: Sequence[Any]) -> None:
        self.workers = workers
        self.work = work
        self.args = args
        self.since = time.monotonic()
        self.loop = asyncio.get_running_loop()
        self.future: asyncio.Future[Any] = self.loop.create_future()
        self.result: Any = None
        self.error: BaseException | None = None


class Workers:
    """OS threads that make calls.

    Args:
        name: The name of the OS threads.
        threads: The largest number of OS threads. One starts when a call would have to wait for another one.
        perform: Makes calls and sets the outcome of each. With it there is one OS thread, which makes all calls that
            came while it was busy together; no call waits for others to join.
    """

    def __init__(self, name: str, threads: int = 1, perform: Callable[[Sequence[Call]], None] | None = None) -> None:
        self.perform = perform
        self._name = name
        self._most = threads
        self._calls: SimpleQueue[Call | None] = SimpleQueue()  # None ends the OS threads.
        self._idle: list[None] = []  # One for each OS thread that no call is meant for.
        self._threads: list[threading.Thread] = []
        self._closed = False
        self._lock = threading.Lock()  # After None, no call comes.
        weakref.finalize(self, self._calls.put, None).atexit = False  # At exit, the driver is closed.

    async def run(self, work: Callable[..., T], *args: Any) -> T:
        """Make a call and return its result; a cancelled call is not made, unless it was begun."""
        call = Call(self, work, args)
        with self._lock:
            if self._closed:
                raise closed_error()
            if self._idle:
                self._idle.pop()
            elif len(self._threads) < self._most:
                self._start()
            self._calls.put(call)
        result: T = await call.future
        return result

    def _start(self) -> None:
        # They keep no process alive.
        thread = threading.Thread(target=_serve, args=(self._calls, self._idle), name=self._name, daemon=True)
        self._threads.append(thread)  # First: a signal may interrupt the wait for its start.
        try:
            thread.start()
        except BaseException as error:
            if thread.ident is None:
                self._threads.remove(thread)
            if not isinstance(error, RuntimeError):
                raise
            if not self._threads:
                refuse(error)

    def shut_down(self) -> None:
        """Make the calls that wait, and end the OS threads."""
        with self._lock:
            self._closed = True
            self._calls.put(None)
        for thread in self._threads:
            thread.join()


def _serve(calls: SimpleQueue[Call | None], idle: list[None]) -> None:
    """Make calls until None comes. While it waits, nothing here keeps the saver alive."""
    while call := calls.get():
        perform = call.workers.perform
        if perform is None:
            batch = [] if call.future.cancelled() else [call]
            _make(batch)
        else:
            batch = _batch(call, calls)
            try:
                perform(batch)
            except BaseException as error:
                for call in batch:
                    call.error = error
        idle.append(None)  # First, so that the next call of the task is for this OS thread.
        _report(batch)
        del call, batch, perform
    calls.put(None)  # For the next OS thread.


def _batch(call: Call | None, calls: SimpleQueue[Call | None]) -> list[Call]:
    """The calls that wait, without those that were cancelled."""
    batch = []
    while call:
        if not call.future.cancelled():
            batch.append(call)
        if len(batch) == MOST or calls.empty():
            return batch
        call = calls.get()
    calls.put(None)  # It ends the OS thread after the batch.
    return batch


def _make(calls: Sequence[Call]) -> None:
    for call in calls:
        try:
            call.result = call.work(*call.args)
        except BaseException as error:
            call.error = error


def _report(calls: Sequence[Call]) -> None:
    """Wake each event loop once."""
    for loop in {call.loop for call in calls}:
        with suppress(RuntimeError):  # It is closed.
            loop.call_soon_threadsafe(_settle, [call for call in calls if call.loop is loop])


def _settle(calls: Sequence[Call]) -> None:
    for call in calls:
        if not call.future.done():  # It may have been cancelled.
            if call.error is None:
                call.future.set_result(call.result)
            elif isinstance(call.error, StopIteration):  # No future takes it.
                call.future.set_exception(RuntimeError("a call raised StopIteration"))
            else:
                call.future.set_exception(call.error)
        call.error = None  # Its traceback refers to the call.
