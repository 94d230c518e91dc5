"""How calls share trips: their waiting, sync and async; `engine/batching.py` decides who goes with whom.

A call that finds nobody on the way makes its trip itself, and so do those whose trip together was refused: each then
fails or succeeds by itself, whatever its neighbours do. That no answer came counts as refused: one of them may have
waited for a lock that is nothing to the others. If the connection was lost, or there was none, each is told so and
tries again by its own count.

In an event loop a group is a task of its own, so that whoever is cancelled takes nobody along. Calls that come back
together come again one after the other, within one pass of the loop, so the first of them waits for the end of that
pass: 64 tasks then send a third of the statements. Among OS threads, for which there is no such thing, the first of a
group makes the trip for all and wakes the others.
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

# Seconds to wait for others: more than any trip takes, unless it waits for a lock. That may be none of one's own.
PATIENCE = 1.0

# Makes a trip; the operation and the statements are those that an error names.
Perform = Callable[[str, Sequence[Statement], RoundTrip], Any]
APerform = Callable[[str, Sequence[Statement], RoundTrip], Awaitable[Any]]

_ALONE = object()  # An answer: make your trip yourself.


class _Waiter:
    """A call that waits."""

    def __init__(self, round_trip: RoundTrip, batchable: Batchable) -> None:
        self.round_trip = round_trip
        self.batchable = batchable

    @property
    def gone(self) -> bool:
        """Whether nobody waits for the answer any more."""
        return False


class LoopBatching:
    """The calls of an event loop."""

    def __init__(self, perform: APerform) -> None:
        self._perform = perform
        self._queue: BatchQueue[_LoopWaiter] = BatchQueue()
        self._tasks: set[asyncio.Task[None]] = set()
        self._crowded = False  # Whether the last group had company.

    async def send(self, name: str, round_trip: RoundTrip, batchable: Batchable) -> Any:
        """Make a trip, perhaps with others."""
        kind = name, batchable.kind
        loop = asyncio.get_running_loop()
        # In a crowd it takes the room of a group only, and its key when that goes.
        if alone := self._queue.enter(kind, batchable._replace(key=None) if self._crowded else batchable):
            if not self._crowded:
                try:
                    return await self._perform(name, round_trip.statements, round_trip)
                finally:
                    self._next(name, kind, alone)
            loop.call_soon(self._next, name, kind, alone)
        waiter = _LoopWaiter(round_trip, batchable)
        self._queue.wait(kind, waiter)
        timer = loop.call_later(PATIENCE, self._time_out, kind, waiter)
        try:
            answer = await waiter.answer
        finally:
            timer.cancel()
        return await self._perform(name, round_trip.statements, round_trip) if answer is _ALONE else _told(answer)

    def _time_out(self, kind: Hashable, waiter: _LoopWaiter) -> None:
        if self._queue.give_up(kind, waiter):
            waiter.tell(_ALONE)

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
            merged = waiters[0].batchable.merge([waiter.batchable.part for waiter in waiters])
            answers = merged.split(await self._perform(name, waiters[0].round_trip.statements, merged.round_trip))
        except Exception as error:
            answers = _failed(waiters, error)
        finally:
            self._next(name, kind, batch)
            for waiter, answer in zip(waiters, answers, strict=True):
                waiter.tell(answer)


class _LoopWaiter(_Waiter):
    def __init__(self, round_trip: RoundTrip, batchable: Batchable) -> None:
        super().__init__(round_trip, batchable)
        self.answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

    @property
    def gone(self) -> bool:
        return self.answer.cancelled()

    def tell(self, answer: Any) -> None:
        if not self.gone:
            self.answer.set_result(answer)


_LoopBatch = Batch[_LoopWaiter]


class WorkerBatching:
    """The calls of all OS threads.

    An interrupt may come between any two lines, and whoever was to wake others wakes nobody then. So nobody waits
    longer than `PATIENCE` without looking whether somebody still holds the group that he is in.
    """

    def __init__(self, perform: Perform) -> None:
        self._perform = perform
        self._queue: BatchQueue[_WorkerWaiter] = BatchQueue()
        self._mutex = threading.Lock()

    def send(self, name: str, round_trip: RoundTrip, batchable: Batchable) -> Any:
        """Make a trip, perhaps with others."""
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
        return self._perform(name, round_trip.statements, round_trip) if answer is _ALONE else _told(answer)

    def _wait(self, kind: Hashable, waiter: _WorkerWaiter) -> None:
        try:
            while not waiter.ready.acquire(timeout=PATIENCE):
                with self._mutex:
                    self._queue.give_up(kind, waiter)
                    if not waiter.is_led():
                        return
        except BaseException:  # Such as a KeyboardInterrupt.
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
                batch.waiters = others  # The first one holds the group, which so ends with it.
                for waiter in others:
                    waiter.is_led = weakref.ref(batch)
                first.led = batch
        if batch:
            first.ready.release()

    def _lead(self, name: str, kind: Hashable, first: _WorkerWaiter, batch: _WorkerBatch) -> Any:
        waiters = [first, *batch.waiters]
        answers: Sequence[Any] = [_ALONE] * len(waiters)
        try:
            merged = first.batchable.merge([waiter.batchable.part for waiter in waiters])
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
        self.led: _WorkerBatch | None = None  # The group that it makes the trip for.
        self.is_led: Callable[[], _WorkerBatch | None] = lambda: None  # Gives the group that it goes with.
        self.answer: Any = _ALONE


_WorkerBatch = Batch[_WorkerWaiter]


def _failed(batch: Sequence[_Waiter], error: Exception) -> Sequence[Any]:
    """What each is told when their trip together was for nothing."""
    if isinstance(error.__cause__, NoAnswer) and len(batch) > 1:
        return [_ALONE] * len(batch)
    if isinstance(error, (ConnectionLost, ClosedError)) or isinstance(error.__cause__, PoolTimeout):
        return [_twin(error) for _ in batch]
    return [_ALONE] * len(batch)


def _twin(error: Exception) -> Exception:
    """The same error, for another caller to raise."""
    twin = type(error).__new__(type(error), *error.args)
    twin.__dict__.update(error.__dict__)
    twin.__cause__ = error.__cause__
    return twin


def _told(answer: Any) -> Any:
    """An answer as a result, or raised."""
    if isinstance(answer, Exception):
        raise answer
    return answer
