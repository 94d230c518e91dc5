"""Async statements on OS threads of a saver: those that come while one is busy run together next.

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


class Call(Generic[T]):
    """An async call: what it does with the connection that has the transaction, and its outcome; a read gets None."""

    __slots__ = ("error", "future", "operation", "result", "since", "work")

    def __init__(self, operation: str, work: Callable[[Any], T]) -> None:
        self.operation = operation
        self.work = work
        self.since = time.monotonic()
        self.future: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self.error: BaseException | None = None
        self.result: Any = None

    def settle(self) -> None:
        """Pass the outcome to the task."""
        if self.future.done():  # Cancelled.
            return
        if self.error is None:
            self.future.set_result(self.result)
        else:
            self.future.set_exception(self.error)


class CallQueue:
    """The calls that wait for an OS thread, of which there are `size`; `perform` gives each of some its outcome."""

    def __init__(self, size: int, name: str, perform: Callable[[Sequence[Call[Any]]], None]) -> None:
        self.workers = ThreadPoolExecutor(size, name)
        self._perform = perform
        self._waiting: deque[Call[Any]] = deque()
        self._coming = False  # Whether a worker was sent for and has not started yet.

    async def run(self, operation: str, work: Callable[[Any], T]) -> T:
        """Run a call and return its result."""
        call = Call(operation, work)
        self._waiting.append(call)
        try:
            if not self._coming:
                self._coming = True
                self.workers.submit(self._work)
        except BaseException as error:
            self._coming = False
            if not isinstance(error, RuntimeError):
                raise
            with suppress(ValueError):  # The workers are shut down, but the last one may have taken the call.
                self._waiting.remove(call)
                refuse(error)
        return await call.future

    def _work(self) -> None:
        self._coming = False  # Before it looks at the queue: who comes later sends for another worker.
        while calls := self._take():
            try:
                self._perform(calls)
            except BaseException as error:
                for call in calls:
                    call.error = error
            by_loop: dict[asyncio.AbstractEventLoop, list[Call[Any]]] = defaultdict(list)
            for call in calls:
                by_loop[call.future.get_loop()].append(call)
            for loop, own in by_loop.items():
                with suppress(RuntimeError):  # It was closed in the meantime.
                    loop.call_soon_threadsafe(_settle, own)

    def _take(self) -> list[Call[Any]]:
        calls: list[Call[Any]] = []
        with suppress(IndexError):  # It is empty.
            while len(calls) < MOST:
                call = self._waiting.popleft()
                if not call.future.cancelled():
                    calls.append(call)
        return calls


def _settle(calls: Sequence[Call[Any]]) -> None:
    for call in calls:
        call.settle()
