"""How calls beyond the few that are underway in an event loop are sent together.

A queue has the calls of one kind. Calls with one key change one row. They are never in one batch, because a statement
cannot change a row twice, and they are taken in their order: a later one waits until the earlier one has returned.

A batch is a task of its own, so that cancelling one call does not affect the others. It waits for a connection like any
call, and then takes all that have gathered. If it is one, or the batch fails, each of them is sent alone, so that each
fails, succeeds and is retried separately. It learns of what the batch failed: a lost connection is a failed attempt.

Must not know: connections, statements.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Hashable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import zip_longest
from typing import Any

from langgraph_checkpoint_custom.engine.operation import Batching, RoundTrip, Row

# Maximum number of calls in a batch.
CALLS = 64
# Maximum number of bytes that a batch sends; a call with more is sent alone.
BATCH_BYTES = 262_144

# Makes the round trip that a function returns when there is a connection; none is made for None.
Exchange = Callable[[Callable[[], RoundTrip | None]], Awaitable[Sequence[Any]]]


@dataclass(eq=False, slots=True)
class _Call:
    """A call that waits.

    Attributes:
        params: What it sends.
        key: The row that it changes; None if it changes none.
        answer: Its rows; None if it has to be sent alone.
        failure: Why its batch failed, if it did.
    """

    params: Sequence[Any]
    key: Hashable
    answer: asyncio.Future[list[Row] | None]
    failure: Exception | None = None


class _Queue:
    """The calls of one kind that wait, and the keys of those in flight."""

    def __init__(self) -> None:
        self.waiting: list[_Call] = []
        self.next: asyncio.Task[None] | None = None  # The next batch, which waits for a connection.
        self._keys: set[Hashable] = set()

    @property
    def is_empty(self) -> bool:
        """Whether no call waits and none is in flight that others have to wait for."""
        return not (self.waiting or self._keys)

    @property
    def may_begin(self) -> bool:
        """Whether the next batch would take a call: one waits, and not for an earlier one with its key."""
        return self.next is None and any(call.key not in self._keys for call in self.waiting)

    def holds(self, key: Hashable) -> bool:
        """Whether a call with this key has to wait for earlier ones."""
        return bool(self.waiting) or key in self._keys

    def take(self) -> list[_Call]:
        """Remove and return the next batch, perhaps an empty one, in the order of arrival."""
        self.next = None
        batch: list[_Call] = []
        left: list[_Call] = []
        keys = self._keys.copy()
        size = 0
        for call in self.waiting:
            if call.answer.cancelled():
                continue
            bytes_ = sum([len(each) for each in call.params if isinstance(each, (str, bytes))])
            if len(batch) == CALLS or call.key in keys or (batch and size + bytes_ > BATCH_BYTES):
                left.append(call)
            else:
                batch.append(call)
                size += bytes_
            if call.key is not None:
                keys.add(call.key)
        self.waiting = left
        self._keys |= {call.key for call in batch if call.key is not None}
        return batch

    def leave(self, calls: Sequence[_Call]) -> None:
        """Mark calls as returned, so that later ones with their keys may follow."""
        self._keys -= {call.key for call in calls}


class Batches:
    """The calls of an event loop that wait for a batch, and the batches that are underway."""

    def __init__(self) -> None:
        self.queues: dict[Batching, _Queue] = {}
        self._tasks: set[asyncio.Task[None]] = set()  # A loop references its tasks only weakly.

    async def send_together(
        self,
        exchange: Exchange,
        batching: Batching,
        params: Sequence[Any],
        alone: Callable[[Exception | None], Awaitable[list[Row]]],
        *,
        may_be_alone: bool,
    ) -> list[Row]:
        """Send a call together with others and return its rows; `alone` sends it by itself, given why a batch failed.

        That is done if it `may_be_alone`, since few calls are underway, and no call waits that it would overtake, or
        after the batch has failed.
        """
        key = batching.key(params) if batching.key else None
        queue = self.queues.get(batching)
        if may_be_alone and (queue is None or not queue.holds(key)):
            return await alone(None)
        if queue is None:
            queue = self.queues[batching] = _Queue()
        call = _Call(params, key, asyncio.get_running_loop().create_future())
        queue.waiting.append(call)
        self._begin_next(exchange, batching, queue)
        try:
            rows = await call.answer
            return await alone(call.failure) if rows is None else rows
        finally:
            if not call.answer.cancelled() and call.answer.result() is None:
                queue.leave([call])  # Until now, no later call with its key was sent.
                self._begin_next(exchange, batching, queue)

    def _begin_next(self, exchange: Exchange, batching: Batching, queue: _Queue) -> None:
        """Begin the next batch if it would take a call, unless one waits for a connection already."""
        if queue.may_begin:
            task = asyncio.get_running_loop().create_task(self._send_batch(exchange, batching, queue))
            queue.next = task
            self._tasks.add(task)
            task.add_done_callback(partial(self._end, exchange, batching, queue))
        elif queue.is_empty and self.queues.get(batching) is queue:
            del self.queues[batching]

    def _end(self, exchange: Exchange, batching: Batching, queue: _Queue, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if queue.next is task:  # It was cancelled before it began, as when all tasks of a loop are.
            for call in queue.take():
                call.answer.set_result(None)
            self._begin_next(exchange, batching, queue)

    async def _send_batch(self, exchange: Exchange, batching: Batching, queue: _Queue) -> None:
        batch: list[_Call] | None = None
        answers: Sequence[list[Row]] = ()
        failure: Exception | None = None

        def take() -> RoundTrip | None:
            nonlocal batch
            batch = queue.take()
            return batching.merge([call.params for call in batch]) if len(batch) > 1 else None

        try:
            if rows := await exchange(take):
                answers = batching.split(rows, [call.params for call in batch or ()])
        except Exception as error:
            failure = error
        finally:
            batch = queue.take() if batch is None else batch
            queue.leave([call for call in batch if answers or call.answer.cancelled()])
            for call, rows in zip_longest(batch, answers):
                if not call.answer.cancelled():
                    call.failure = failure
                    call.answer.set_result(rows)
            self._begin_next(exchange, batching, queue)
