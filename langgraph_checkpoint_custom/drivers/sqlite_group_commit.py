"""Group commit: concurrent writes share a transaction, and concurrent async calls share a switch to a worker.

No call waits for others to join. If no other call runs, it runs immediately; the calls that arrive in the meantime run
together next. A read that has much to decode announces that before it decodes: the reads before it are answered, and
the waiting ones go to another worker.
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

# Maximum number of writes in a transaction. A step of a small state takes 324 µs with 8, 245 with 32 and 238 with 64.
MOST = 64
# Seconds after which no further call is started before the previous ones are committed and answered: other processes
# wait for the file, and callers for their answers. 64 small reads take 7 ms, 64 small writes 4.
LONGEST = 0.01
# Seconds after which a waiting OS thread checks without a wake-up whether it can lead. That is needed only if the
# previous leader was interrupted, or is this same OS thread, in which a signal handler runs now.
MAX_WAIT = 1.0


class QueuedOperation(Generic[T]):
    """An operation and its outcome; `since` is when it began to wait for the file.

    `done` is not empty once the operation must not run again. All operations of a transaction share one list, which the
    commit fills.
    """

    __slots__ = ("__weakref__", "done", "error", "op", "result", "since")

    def __init__(self, op: Operation[T]) -> None:
        self.op = op
        self.since = time.monotonic()
        self.result: T
        self.error: BaseException | None = None
        self.done: Sequence[object] = ()

    def takes_long(self) -> None:
        """Announce work that takes long, so that no other call waits for it."""

    def outcome(self) -> T:
        """Return the result, or raise the error."""
        error, self.error = self.error, None
        if error is None:
            return self.result
        try:
            raise error
        finally:
            del error  # Its traceback references this frame.


Perform = Callable[[Sequence[QueuedOperation[Any]]], None]


class WriteQueue:
    """A queue of OS threads that write: the leader runs its own calls and all waiting ones, then the next one leads.

    An interrupt (Ctrl-C) may come at any moment, even in a `finally`. Only the lock of a `with` is released in every
    case; the OS thread that holds it leads. A wake-up may get lost, so a waiting thread checks without one in the end.
    """

    def __init__(self) -> None:
        self._leads = threading.Lock()
        self._waiting: deque[_Waiter] = deque()

    def run(self, calls: Sequence[QueuedOperation[Any]], perform: Perform) -> None:
        """Run calls, here or in another OS thread of the queue, after those before them."""
        if not self._waiting and not self._leads.locked():  # No other thread is at work.
            try:
                with self._leads:
                    perform(calls)
            finally:
                self._wake_next()
            return
        waiter = _Waiter(calls)
        self._waiting.append(waiter)
        try:
            if (
                self._leads.locked()
                and not waiter.waits.acquire(timeout=MAX_WAIT)  # Until it is done or has to lead.
                and self._leads.locked()
                and calls_of(self, "run") > 1
                and self._leave(waiter)
            ):
                raise within()
            if waiter.done:
                return
            with self._leads:
                self._lead(waiter, perform)
        except BaseException:
            self._leave(waiter)
            self._wake_next()
            raise
        self._wake_next()

    def _lead(self, waiter: _Waiter, perform: Perform) -> None:
        while not waiter.done:
            if waiter not in self._waiting:  # A leader took it and was interrupted.
                self._waiting.appendleft(waiter)
            group = self._take()
            calls = [call for each in group for call in each.calls if not call.done]
            try:
                perform(calls)
            except BaseException:
                self._waiting.extendleft(each for each in reversed(group) if each is not waiter)
                raise
            for each in group:
                each.done = True
            for each in group:
                if each is not waiter:
                    each.wake()

    def _take(self) -> Sequence[_Waiter]:
        """Remove and return the next waiting threads, as many as run together."""
        group: list[_Waiter] = []
        size = 0
        while self._waiting:
            try:
                waiter = self._waiting.popleft()
            except IndexError:  # That thread was interrupted and no longer waits.
                break
            size += len(waiter.calls)
            if group and size > MOST:
                self._waiting.appendleft(waiter)
                break
            group.append(waiter)
        return group

    def _leave(self, waiter: _Waiter) -> bool:
        """Remove a waiting thread; returns False if another OS thread has its calls, which may have run."""
        try:
            self._waiting.remove(waiter)
        except ValueError:
            return False
        return True

    def _wake_next(self) -> None:
        """Let the first waiting thread lead, if no thread leads; it may have arrived before the leader ended."""
        if self._waiting:
            with suppress(IndexError):  # That thread was interrupted.
                self._waiting[0].wake()


def calls_of(what: object, *methods: str) -> int:
    """Count the running calls of some methods of an object in this OS thread."""
    found = 0
    frame: FrameType | None = sys._getframe(1)
    while frame:
        found += frame.f_code.co_name in methods and frame.f_locals.get("self") is what
        frame = frame.f_back
    return found


def within() -> ConfigError:
    """Return the error for a call that would wait for itself."""
    return ConfigError(
        "the saver was called during another call in the same OS thread, for example by a signal handler, and would "
        "deadlock; nothing was done. Let the handler record what to do, and do it after that call"
    )


class _Waiter:
    """A waiting OS thread, with its calls."""

    __slots__ = ("calls", "done", "waits")

    def __init__(self, calls: Sequence[QueuedOperation[Any]]) -> None:
        self.calls = calls
        self.done = False
        self.waits = threading.Lock()  # A Queue would wait forever if a signal handler took longer than its timeout.
        self.waits.acquire()

    def wake(self) -> None:
        with suppress(RuntimeError):  # It is already awake.
            self.waits.release()


class WorkerBatch:
    """Workers for async calls; those that come before a worker starts on them share the switch to it and back.

    Args:
        size: Number of OS threads.
        name: Prefix of their names.
        most: Maximum number of calls that run together.
        seconds: How long a worker continues with waiting calls before it answers.
    """

    def __init__(self, size: int, name: str, *, most: int, seconds: float) -> None:
        self.executor = ThreadPoolExecutor(size, name)
        self._most = most
        self._seconds = seconds
        self._waiting: deque[_Awaited[Any]] = deque()
        self._gate = threading.Lock()
        self._coming = False  # Whether a worker was sent that has not started yet.

    async def run(self, op: Operation[T], perform: Perform) -> T:
        """Run an operation on a worker."""
        call = _Awaited(op)
        self._waiting.append(call)
        try:
            self._send_for_worker(perform)
        except RuntimeError as error:  # The workers are shut down, but the last one may have taken the call.
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
        """Send a worker to the waiting calls, and one message to each event loop whose calls are done."""
        if self._waiting:
            with suppress(RuntimeError):  # They are being closed; the current one continues.
                self._send_for_worker(perform)
        of_loops: dict[asyncio.AbstractEventLoop, list[_Awaited[Any]]] = {}
        for call in done:
            of_loops.setdefault(call.future.get_loop(), []).append(call)
        for loop, own in of_loops.items():
            with suppress(RuntimeError):  # It was closed in the meantime.
                loop.call_soon_threadsafe(_settle, own)

    def _take(self) -> list[_Awaited[Any]]:
        calls: list[_Awaited[Any]] = []
        with suppress(IndexError):  # Another worker may have taken the last one.
            while len(calls) < self._most:
                call = self._waiting.popleft()
                if not call.future.cancelled():
                    calls.append(call)
        return calls


class _Awaited(QueuedOperation[T]):
    """A call that a task awaits."""

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
