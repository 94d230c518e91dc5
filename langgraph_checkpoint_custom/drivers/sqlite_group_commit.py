"""Async writes on an OS thread of a saver: those that come while it is busy run together next.

No call waits for others to join.

Must not know: SQLite.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from typing import Any, Generic, TypeVar

from langgraph_checkpoint_custom.drivers.workers import refuse

T = TypeVar("T")

# Maximum number of calls that run together. A step of a small state takes 324 µs with 8, 245 with 32, 238 with 64.
MOST = 64


class Call(Generic[T]):
    """An async call: what it does with the connection that has the transaction, and its outcome."""

    __slots__ = ("error", "future", "operation", "result", "since", "work")

    def __init__(self, operation: str, work: Callable[[Any], T]) -> None:
        self.operation = operation
        self.work = work
        self.since = time.monotonic()
        self.future: Future[T] = Future()
        self.error: BaseException | None = None
        self.result: Any = None


class CallQueue:
    """The calls that wait for the OS thread. `perform` makes some of them and sets the result of each."""

    def __init__(self, perform: Callable[[Sequence[Call[Any]]], None]) -> None:
        self.workers = ThreadPoolExecutor(1, "checkpoint-write")
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
        return await asyncio.wrap_future(call.future)

    def _work(self) -> None:
        self._coming = False  # Before it looks at the queue: who comes later sends for another worker.
        while calls := self._take():
            try:
                self._perform(calls)
            except BaseException as error:
                for call in calls:
                    call.error = error
            for call in calls:
                if call.error is None:
                    call.future.set_result(call.result)
                else:
                    call.future.set_exception(call.error)

    def _take(self) -> list[Call[Any]]:
        calls: list[Call[Any]] = []
        with suppress(IndexError):  # It is empty.
            while len(calls) < MOST:
                call = self._waiting.popleft()
                if call.future.set_running_or_notify_cancel():  # False if it was cancelled.
                    calls.append(call)
        return calls
