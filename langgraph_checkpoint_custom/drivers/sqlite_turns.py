"""How calls share what is dear on SQLite: writes a transaction, async calls the way to a worker and back.

Nobody waits for company. Who finds nobody at work goes at once; what comes meanwhile goes together next.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any, Generic, TypeVar

from langgraph_checkpoint_custom.core.operation import Operation

T = TypeVar("T")

# Writes in a transaction. A step of a small state takes 324 µs with 8, 245 with 32 and 238 with 64.
MOST = 64
# Seconds after which nothing more is begun together: others wait for the file, or for their answer. 64 small reads take
# 7 ms, 64 small writes 4.
LONGEST = 0.01


class Call(Generic[T]):
    """An operation and what came of it."""

    __slots__ = ("error", "op", "result")

    def __init__(self, op: Operation[T]) -> None:
        self.op = op
        self.result: T
        self.error: BaseException | None = None

    def outcome(self) -> T:
        """The result; raises the error."""
        error, self.error = self.error, None
        if error is None:
            return self.result
        try:
            raise error
        finally:
            del error  # It has this frame in its traceback.


Perform = Callable[[Sequence[Call[Any]]], None]


class Line:
    """OS threads in line: the first does its own calls and those of all that wait, then the next one leads."""

    def __init__(self) -> None:
        self._gate = threading.Lock()
        self._waiting: deque[_Turn] = deque()
        self._leader: _Turn | None = None  # Only with one is anybody waiting.

    def run(self, calls: Sequence[Call[Any]], perform: Perform) -> None:
        """Have calls done, here or by another thread in line, once those before are."""
        turn = _Turn(calls)
        try:
            with self._gate:
                self._waiting.append(turn)
                if self._leader is None:
                    self._leader = turn
                else:
                    turn.awake.acquire()
            turn.awake.acquire()  # Waits, unless it leads; woken when it is done or is to lead.
            if not turn.done:
                self._lead(turn, perform)
        except BaseException:
            with self._gate, suppress(ValueError):  # Interrupted; if another thread has its calls, they may be done.
                self._waiting.remove(turn)
            raise
        finally:
            if self._leader is turn:
                self._pass_on()

    def _lead(self, turn: _Turn, perform: Perform) -> None:
        with self._gate:
            group = [self._waiting.popleft()]
            size = len(turn.calls)
            while self._waiting and size + len(self._waiting[0].calls) <= MOST:
                size += len(self._waiting[0].calls)
                group.append(self._waiting.popleft())
        try:
            perform([call for each in group for call in each.calls])
        except BaseException:
            with self._gate:
                self._waiting.extendleft(reversed(group[1:]))
            raise
        for each in group:
            each.done = True
        for each in group[1:]:
            each.awake.release()

    def _pass_on(self) -> None:
        with self._gate:
            heir = self._leader = self._waiting[0] if self._waiting else None
        if heir is not None:
            heir.awake.release()


class _Turn:
    """A thread's place in line."""

    __slots__ = ("awake", "calls", "done")

    def __init__(self, calls: Sequence[Call[Any]]) -> None:
        self.calls = calls
        self.done = False
        self.awake = threading.Lock()


class Hops:
    """Workers for async calls; those that come while a worker is on its way share its way there and back.

    Args:
        size: OS threads.
        name: What their names begin with.
        most: Calls that are done together.
        seconds: How long a worker goes on with what waits before it answers.
    """

    def __init__(self, size: int, name: str, *, most: int, seconds: float) -> None:
        self.executor = ThreadPoolExecutor(size, name)
        self._most = most
        self._seconds = seconds
        self._waiting: deque[_Awaited[Any]] = deque()
        self._gate = threading.Lock()
        self._coming = False  # Whether a worker is on its way to what waits.

    async def run(self, op: Operation[T], perform: Perform) -> T:
        """Have an operation done by a worker."""
        call = _Awaited(op)
        self._waiting.append(call)
        self._send_for_worker(perform)
        return await call.future

    def _send_for_worker(self, perform: Perform) -> None:
        if not self._coming:
            with self._gate:
                self.executor.submit(self._work, perform)
                self._coming = True

    def _work(self, perform: Perform) -> None:
        with self._gate:
            self._coming = False
        while self._waiting:
            done: list[_Awaited[Any]] = []
            ends = time.monotonic() + self._seconds
            while calls := self._take():
                try:
                    perform(calls)
                except BaseException as error:
                    for call in calls:
                        call.error = error
                done += calls
                if time.monotonic() >= ends:
                    break
            if self._waiting:
                with suppress(RuntimeError):  # They are being closed, and this one goes on.
                    self._send_for_worker(perform)
            _answer(done)

    def _take(self) -> list[_Awaited[Any]]:
        calls: list[_Awaited[Any]] = []
        with suppress(IndexError):  # Another worker may have come to the last one.
            while len(calls) < self._most:
                call = self._waiting.popleft()
                if not call.future.cancelled():
                    calls.append(call)
        return calls


class _Awaited(Call[T]):
    """A call that a task waits for."""

    __slots__ = ("future",)

    def __init__(self, op: Operation[T]) -> None:
        super().__init__(op)
        self.future: asyncio.Future[T] = asyncio.get_running_loop().create_future()


def _answer(calls: Iterable[_Awaited[Any]]) -> None:
    """Answer calls, with a word to each of their loops."""
    of_loops: dict[asyncio.AbstractEventLoop, list[_Awaited[Any]]] = {}
    for call in calls:
        of_loops.setdefault(call.future.get_loop(), []).append(call)
    for loop, own in of_loops.items():
        with suppress(RuntimeError):  # It was closed meanwhile.
            loop.call_soon_threadsafe(_settle, own)


def _settle(calls: Iterable[_Awaited[Any]]) -> None:
    for call in calls:
        if call.future.done():  # Cancelled.
            continue
        if call.error is None:
            call.future.set_result(call.result)
        else:
            call.future.set_exception(call.error)
