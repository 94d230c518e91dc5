"""Async calls on OS threads of a saver: the calls that come while one is busy run together next.

No call waits for others to join.

Must not know: SQLite.
"""

from __future__ import annotations

import asyncio
import time
from collections import defaultdict, deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any, Generic, TypeVar

from langgraph_checkpoint_custom.drivers.workers import refuse

T = TypeVar("T")

# Maximum number of calls that run together. A step of a small state takes 324 µs with 8, 245 with 32, 238 with 64.
MOST = 64
# Seconds after which no further call is started before the previous ones are committed and answered: other processes
# wait for the file, and callers for their answers. 64 small reads take 7 ms, 64 small writes 4.
LONGEST = 0.01


class Call(Generic[T]):
    """An async call, which a worker runs alone or together with others."""

    __slots__ = ("alone", "done", "error", "future", "operation", "result", "since", "together")

    def __init__(self, operation: str, alone: Callable[[], T], together: Callable[[Any], T]) -> None:
        self.operation = operation
        self.alone = alone
        self.together = together  # Is given the connection with the transaction.
        self.since = time.monotonic()
        self.future: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self.done = False
        self.error: BaseException | None = None
        self.result: Any = None

    def run(self) -> None:
        """Run it alone."""
        self.error = None
        try:
            self.result = self.alone()
        except Exception as error:
            self.error = error
        self.done = True

    def settle(self) -> None:
        """Pass the outcome to the task."""
        if self.future.done():  # Cancelled.
            return
        if self.error is None:
            self.future.set_result(self.result)
        else:
            self.future.set_exception(self.error)


Perform = Callable[[Sequence[Call[Any]]], None]


def run_each(calls: Sequence[Call[Any]]) -> None:
    """Run calls one after the other, those that can begin in time."""
    ends = time.monotonic() + LONGEST
    for call in calls:
        call.run()
        if time.monotonic() >= ends:
            break


class CallQueue:
    """The calls that wait for an OS thread, of which there are `size`."""

    def __init__(self, size: int, name: str) -> None:
        self.executor = ThreadPoolExecutor(size, name)
        self._waiting: deque[Call[Any]] = deque()
        self._coming = False  # Whether a worker that was sent for has not started yet.

    async def run(self, call: Call[T], perform: Perform) -> T:
        """Run a call; `perform` runs some of the calls that it is given, and the rest wait again."""
        self._waiting.append(call)
        try:
            if not self._coming:
                self._coming = True
                self.executor.submit(self._work, perform)
        except BaseException as error:
            self._coming = False
            if not isinstance(error, RuntimeError):
                raise
            with suppress(ValueError):  # The workers are shut down, but the last one may have taken the call.
                self._waiting.remove(call)
                refuse(error)
        return await call.future

    def _work(self, perform: Perform) -> None:
        self._coming = False  # Before it looks at the queue: who comes later sends for another worker.
        while calls := self._take():
            try:
                perform(calls)
            except BaseException as error:
                for call in calls:
                    call.error, call.done = error, True
            self._waiting.extendleft(call for call in reversed(calls) if not call.done)
            self._answer([call for call in calls if call.done])

    def _take(self) -> list[Call[Any]]:
        calls: list[Call[Any]] = []
        with suppress(IndexError):  # It is empty.
            while len(calls) < MOST:
                call = self._waiting.popleft()
                if not call.future.cancelled():
                    calls.append(call)
        return calls

    def _answer(self, calls: Sequence[Call[Any]]) -> None:
        """Send one message to each event loop."""
        by_loop: dict[asyncio.AbstractEventLoop, list[Call[Any]]] = defaultdict(list)
        for call in calls:
            by_loop[call.future.get_loop()].append(call)
        for loop, own in by_loop.items():
            with suppress(RuntimeError):  # It was closed in the meantime.
                loop.call_soon_threadsafe(_settle, own)


def _settle(calls: Sequence[Call[Any]]) -> None:
    for call in calls:
        call.settle()
