"""How calls share what is dear on SQLite: writes a transaction, async calls the way to a worker and back.

Nobody waits for company. Who finds nobody at work goes at once; what comes meanwhile goes together next. A read that
has much to decode says so before it does: what was read before it is answered, and what waits goes to another worker.
"""

from __future__ import annotations

import asyncio
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from types import FrameType
from typing import Any, Generic, TypeVar

from langgraph_checkpoint_custom.drivers.workers import refuse
from langgraph_checkpoint_custom.engine.operation import Operation
from langgraph_checkpoint_custom.errors import ConfigError

T = TypeVar("T")

# Writes in a transaction. A step of a small state takes 324 µs with 8, 245 with 32 and 238 with 64.
MOST = 64
# Seconds after which nothing more is begun together: others wait for the file, or for their answer. 64 small reads take
# 7 ms, 64 small writes 4.
LONGEST = 0.01
# Seconds after which who waits in line looks by itself: needed only if the one before was interrupted, or if a signal
# handler has stopped it in this OS thread.
PATIENCE = 1.0


class QueuedOperation(Generic[T]):
    """An operation and what came of it; `since` when it waits for the file.

    `done` is not empty once it must not be done again: one list for all that share a transaction, from its commit on.
    """

    __slots__ = ("__weakref__", "done", "error", "op", "result", "since")

    def __init__(self, op: Operation[T]) -> None:
        self.op = op
        self.since = time.monotonic()
        self.result: T
        self.error: BaseException | None = None
        self.done: Sequence[object] = ()

    def takes_long(self) -> None:
        """Say so before it does: nobody else has to wait for it."""

    def outcome(self) -> T:
        """The result; raises the error."""
        error, self.error = self.error, None
        if error is None:
            return self.result
        try:
            raise error
        finally:
            del error  # It has this frame in its traceback.


Perform = Callable[[Sequence[QueuedOperation[Any]]], None]


class WriteQueue:
    """OS threads in line: whoever leads does its own calls and those of all that wait, then the next one leads.

    An interrupt (Ctrl-C) may come at any moment, in a `finally` too. Only the lock of a `with` is released whatever
    happens: who holds that leads. A wake-up may get lost, so who waits looks by itself in the end.
    """

    def __init__(self) -> None:
        self._leads = threading.Lock()
        self._waiting: deque[_Turn] = deque()

    def run(self, calls: Sequence[QueuedOperation[Any]], perform: Perform) -> None:
        """Have calls done, here or by another thread in line, once those before are."""
        if not self._waiting and not self._leads.locked():  # Nobody is at work.
            try:
                with self._leads:
                    perform(calls)
            finally:
                self._wake_next()
            return
        turn = _Turn(calls)
        self._waiting.append(turn)
        try:
            if (
                self._leads.locked()
                and not turn.waits.acquire(timeout=PATIENCE)  # Until it is done, or is to lead.
                and self._leads.locked()
                and calls_of(self, "run") > 1
                and self._leave(turn)
            ):
                raise within()
            if turn.done:
                return
            with self._leads:
                self._lead(turn, perform)
        except BaseException:
            self._leave(turn)
            self._wake_next()
            raise
        self._wake_next()

    def _lead(self, turn: _Turn, perform: Perform) -> None:
        while not turn.done:
            if turn not in self._waiting:  # A leader has had it, and was interrupted.
                self._waiting.appendleft(turn)
            group = self._take()
            calls = [call for each in group for call in each.calls if not call.done]
            try:
                perform(calls)
            except BaseException:
                self._waiting.extendleft(each for each in reversed(group) if each is not turn)
                raise
            for each in group:
                each.done = True
            for each in group:
                if each is not turn:
                    each.wake()

    def _take(self) -> Sequence[_Turn]:
        """Those that come next, as many as go together."""
        group: list[_Turn] = []
        size = 0
        while self._waiting:
            try:
                turn = self._waiting.popleft()
            except IndexError:  # It was interrupted, and does not wait any more.
                break
            size += len(turn.calls)
            if group and size > MOST:
                self._waiting.appendleft(turn)
                break
            group.append(turn)
        return group

    def _leave(self, turn: _Turn) -> bool:
        """Take a turn back; False if another thread has its calls, which may be done."""
        try:
            self._waiting.remove(turn)
        except ValueError:
            return False
        return True

    def _wake_next(self) -> None:
        """Let the first one that waits lead, once nobody does: it may have come before that."""
        if self._waiting:
            with suppress(IndexError):  # It was interrupted.
                self._waiting[0].wake()


def calls_of(what: object, *methods: str) -> int:
    """How many calls of some methods of an object go on in this OS thread."""
    found = 0
    frame: FrameType | None = sys._getframe(1)
    while frame:
        found += frame.f_code.co_name in methods and frame.f_locals.get("self") is what
        frame = frame.f_back
    return found


def within() -> ConfigError:
    """The error of a call that would wait for itself."""
    return ConfigError(
        "the saver was called in the middle of another call of the same OS thread, by a signal handler, say, and would "
        "wait for itself; nothing was done. Let the handler note what to do, and do it after that call"
    )


class _Turn:
    """A thread's place in line."""

    __slots__ = ("calls", "done", "waits")

    def __init__(self, calls: Sequence[QueuedOperation[Any]]) -> None:
        self.calls = calls
        self.done = False
        self.waits = threading.Lock()  # A queue would wait for ever if a signal handler took longer than its timeout.
        self.waits.acquire()

    def wake(self) -> None:
        with suppress(RuntimeError):  # It is awake.
            self.waits.release()


class WorkerBatch:
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
        try:
            self._send_for_worker(perform)
        except RuntimeError as error:  # The workers are shut down; the last one may have taken it all the same.
            with suppress(ValueError):
                self._waiting.remove(call)
                refuse(error)
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

            def let_others_go(done: list[_Awaited[Any]] = done) -> None:
                self._answer(done, perform)
                done.clear()

            ends = time.monotonic() + self._seconds
            while calls := self._take():
                for call in calls:
                    call.let_others_go = let_others_go
                try:
                    perform(calls)
                except BaseException as error:
                    for call in calls:
                        call.error = error
                done += calls
                if time.monotonic() >= ends:
                    break
            self._answer(done, perform)

    def _answer(self, done: Iterable[_Awaited[Any]], perform: Perform) -> None:
        """Send a worker to what waits, and a word to each loop of the calls that are done."""
        if self._waiting:
            with suppress(RuntimeError):  # They are being closed, and this one goes on.
                self._send_for_worker(perform)
        of_loops: dict[asyncio.AbstractEventLoop, list[_Awaited[Any]]] = {}
        for call in done:
            of_loops.setdefault(call.future.get_loop(), []).append(call)
        for loop, own in of_loops.items():
            with suppress(RuntimeError):  # It was closed meanwhile.
                loop.call_soon_threadsafe(_settle, own)

    def _take(self) -> list[_Awaited[Any]]:
        calls: list[_Awaited[Any]] = []
        with suppress(IndexError):  # Another worker may have come to the last one.
            while len(calls) < self._most:
                call = self._waiting.popleft()
                if not call.future.cancelled():
                    calls.append(call)
        return calls


class _Awaited(QueuedOperation[T]):
    """A call that a task waits for."""

    __slots__ = ("future", "let_others_go")

    def __init__(self, op: Operation[T]) -> None:
        super().__init__(op)
        self.future: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self.let_others_go: Callable[[], None]

    def takes_long(self) -> None:
        self.let_others_go()


def _settle(calls: Iterable[_Awaited[Any]]) -> None:
    for call in calls:
        if call.future.done():  # Cancelled.
            continue
        if call.error is None:
            call.future.set_result(call.result)
        else:
            call.future.set_exception(call.error)
