"""How concurrent calls are sent together, sync and async; `engine/batching.py` decides which calls form a batch.

A call that does not have to wait makes its round trip itself. If the server refuses a batch, each of its calls
makes a round trip of its own, so that each fails or succeeds separately. A batch without an answer counts as refused:
one of its calls may have waited for a lock that the others do not need. If the connection was lost, or there was none,
each call gets that error and retries by its own count.

In an event loop a batch is a task of its own, so that cancelling one call does not affect the others. Calls that return
together start their next calls one after the other, within one pass of the loop. The first of those therefore waits
until the end of the pass: 64 tasks then send a third of the statements. OS threads have no such passes. There the first
call of a batch makes the round trip for all and wakes the others.
"""

from __future__ import annotations

import asyncio
import threading
import weakref
from collections.abc import Awaitable, Callable, Hashable, Sequence
from typing import Any

from psycopg_pool import PoolTimeout

from langgraph_checkpoint_custom.drivers.postgres_waiting import NoAnswer
from langgraph_checkpoint_custom.engine.batching import Batch, BatchQueue
from langgraph_checkpoint_custom.engine.operation import Batchable, RoundTrip, Statement
from langgraph_checkpoint_custom.errors import CheckpointError, ClosedError, ConnectionLost

# Seconds that a call waits for others. No round trip takes that long unless it waits for a lock, which may be one that
# the waiting call does not need.
MAX_WAIT = 1.0

# Makes a round trip; errors name the operation and the statements that it gets.
Perform = Callable[[str, Sequence[Statement], RoundTrip], Any]
APerform = Callable[[str, Sequence[Statement], RoundTrip], Awaitable[Any]]

_ALONE = object()  # An answer: the call makes its round trip itself.


class _Waiter:
    """A waiting call."""

    def __init__(self, round_trip: RoundTrip, batchable: Batchable) -> None:
        self.round_trip = round_trip
        self.batchable = batchable

    @property
    def cancelled(self) -> bool:
        """Whether the call no longer waits for an answer."""
        return False


class LoopBatching:
    """Batches the calls of one event loop."""

    def __init__(self, perform: APerform) -> None:
        self._perform = perform
        self._queue: BatchQueue[_LoopWaiter] = BatchQueue()
        self._tasks: set[asyncio.Task[None]] = set()
        self._crowded = False  # Whether the last batch had more than one call.

    async def send(self, name: str, round_trip: RoundTrip, batchable: Batchable) -> Any:
        """Make a round trip, perhaps in a batch."""
        kind = name, batchable.kind
        loop = asyncio.get_running_loop()
        # After a batch of several calls, this only reserves the next batch, without a key. The call itself
        # waits for that batch, which includes all calls of this pass of the loop.
        if alone := self._queue.enter(kind, batchable._replace(key=None) if self._crowded else batchable):
            if not self._crowded:
                try:
                    return await self._perform(name, round_trip.statements, round_trip)
                finally:
                    self._next(name, kind, alone)
            loop.call_soon(self._next, name, kind, alone)
        waiter = _LoopWaiter(round_trip, batchable)
        self._queue.wait(kind, waiter)
        timer = loop.call_later(MAX_WAIT, self._time_out, kind, waiter)
        try:
            answer = await waiter.answer
        finally:
            timer.cancel()
        return await self._perform(name, round_trip.statements, round_trip) if answer is _ALONE else _result_of(answer)

    def _time_out(self, kind: Hashable, waiter: _LoopWaiter) -> None:
        if self._queue.give_up(kind, waiter):
            waiter.set_answer(_ALONE)

    def _next(self, name: str, kind: Hashable, back: _LoopBatch) -> None:
        if batch := self._queue.leave(kind, back):
            self._crowded = len(batch.waiters) > 1
            task = asyncio.get_running_loop().create_task(self._go(name, kind, batch))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _go(self, name: str, kind: Hashable, batch: _LoopBatch) -> None:
        waiters = batch.waiters
        answers: Sequence[Any] = [_ALONE] * len(waiters)
        try:
            merged = waiters[0].batchable.merge([waiter.batchable.item for waiter in waiters])
            answers = merged.split(await self._perform(name, waiters[0].round_trip.statements, merged.round_trip))
        except Exception as error:
            answers = _failed(waiters, error)
        finally:
            self._next(name, kind, batch)
            for waiter, answer in zip(waiters, answers, strict=True):
                waiter.set_answer(answer)


class _LoopWaiter(_Waiter):
    def __init__(self, round_trip: RoundTrip, batchable: Batchable) -> None:
        super().__init__(round_trip, batchable)
        self.answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

    @property
    def cancelled(self) -> bool:
        return self.answer.cancelled()

    def set_answer(self, answer: Any) -> None:
        if not self.cancelled:
            self.answer.set_result(answer)


_LoopBatch = Batch[_LoopWaiter]


class WorkerBatching:
    """Batches the calls of all OS threads.

    An interrupt may come between any two lines, and a call that should wake others then does not. So no call waits
    longer than `MAX_WAIT` without checking whether another call still holds its batch.
    """

    def __init__(self, perform: Perform) -> None:
        self._perform = perform
        self._queue: BatchQueue[_WorkerWaiter] = BatchQueue()
        self._mutex = threading.Lock()

    def send(self, name: str, round_trip: RoundTrip, batchable: Batchable) -> Any:
        """Make a round trip, perhaps in a batch."""
        kind = name, batchable.kind
        with self._mutex:
            alone = self._queue.enter(kind, batchable)
            if not alone:
                waiter = _WorkerWaiter(round_trip, batchable)
                self._queue.wait(kind, waiter)
        if alone:
            try:
                return self._perform(name, round_trip.statements, round_trip)
            finally:
                self._next(kind, alone)
        self._wait(kind, waiter)
        answer = self._lead(name, kind, waiter, waiter.led) if waiter.led else waiter.answer
        return self._perform(name, round_trip.statements, round_trip) if answer is _ALONE else _result_of(answer)

    def _wait(self, kind: Hashable, waiter: _WorkerWaiter) -> None:
        try:
            while not waiter.ready.acquire(timeout=MAX_WAIT):
                with self._mutex:
                    self._queue.give_up(kind, waiter)
                    if not waiter.is_led():
                        return
        except BaseException:  # For example a KeyboardInterrupt.
            with self._mutex:
                self._queue.give_up(kind, waiter)
                batch = waiter.led
            if batch:
                self._end(kind, batch, [_ALONE] * len(batch.waiters))
            raise

    def _next(self, kind: Hashable, back: _WorkerBatch) -> None:
        with self._mutex:
            batch = self._queue.leave(kind, back)
            if batch:
                first, *others = batch.waiters
                batch.waiters = others  # The first call holds the batch, which ends with it.
                for waiter in others:
                    waiter.is_led = weakref.ref(batch)
                first.led = batch
        if batch:
            first.ready.release()

    def _lead(self, name: str, kind: Hashable, first: _WorkerWaiter, batch: _WorkerBatch) -> Any:
        waiters = [first, *batch.waiters]
        answers: Sequence[Any] = [_ALONE] * len(waiters)
        try:
            merged = first.batchable.merge([waiter.batchable.item for waiter in waiters])
            answers = merged.split(self._perform(name, first.round_trip.statements, merged.round_trip))
        except Exception as error:
            answers = _failed(waiters, error)
            if not isinstance(error, CheckpointError):  # It has interrupted this OS thread.
                raise
        finally:
            self._end(kind, batch, answers[1:])
        return answers[0]

    def _end(self, kind: Hashable, batch: _WorkerBatch, answers: Sequence[Any]) -> None:
        self._next(kind, batch)
        for waiter, answer in zip(batch.waiters, answers, strict=True):
            waiter.answer = answer
            waiter.ready.release()


class _WorkerWaiter(_Waiter):
    def __init__(self, round_trip: RoundTrip, batchable: Batchable) -> None:
        super().__init__(round_trip, batchable)
        self.ready = threading.Lock()
        self.ready.acquire()
        self.led: _WorkerBatch | None = None  # The batch for which it makes the round trip.
        self.is_led: Callable[[], _WorkerBatch | None] = lambda: None  # Returns the batch that includes it.
        self.answer: Any = _ALONE


_WorkerBatch = Batch[_WorkerWaiter]


def _failed(batch: Sequence[_Waiter], error: Exception) -> Sequence[Any]:
    """Return the answer for each call after their common round trip has failed."""
    if isinstance(error.__cause__, NoAnswer) and len(batch) > 1:
        return [_ALONE] * len(batch)
    if isinstance(error, (ConnectionLost, ClosedError)) or isinstance(error.__cause__, PoolTimeout):
        return [_copy_of(error) for _ in batch]
    return [_ALONE] * len(batch)


def _copy_of(error: Exception) -> Exception:
    """Return the same error, for another caller to raise."""
    copy = type(error).__new__(type(error), *error.args)
    copy.__dict__.update(error.__dict__)
    copy.__cause__ = error.__cause__
    return copy


def _result_of(answer: Any) -> Any:
    """Return an answer, or raise it."""
    if isinstance(answer, Exception):
        raise answer
    return answer
