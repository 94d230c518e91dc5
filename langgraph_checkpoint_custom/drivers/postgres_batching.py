"""How calls beyond the few that are underway in an event loop are sent together.

`engine/batching.py` decides which calls form a batch. A batch is a task of its own, so that cancelling one call does
not affect the others. It waits for a connection like any call, and then takes all that have gathered. If it is
one, or the server refuses them, or there is no connection, each of them is sent alone, so that each fails, succeeds and
is retried separately.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from itertools import zip_longest
from typing import Any

from langgraph_checkpoint_custom.drivers.postgres_pools import LoopSource
from langgraph_checkpoint_custom.engine.batching import Call, Queue
from langgraph_checkpoint_custom.engine.operation import Batching, RoundTrip, Row

# Makes the round trip that a function returns when there is a connection; none is made for None.
Exchange = Callable[[Callable[[], RoundTrip | None]], Awaitable[Sequence[Any]]]


async def send_together(
    source: LoopSource,
    exchange: Exchange,
    batching: Batching,
    params: Sequence[Any],
    alone: Callable[[], Awaitable[list[Row]]],
) -> list[Row]:
    """Send a call together with others and return its rows; `alone` sends it by itself.

    That is done if few calls are underway and no call waits that it would overtake, or after the batch has failed.
    """
    key = batching.key(params) if batching.key else None
    queue = source.queues.get(batching)
    if source.users < source.alone and (queue is None or not queue.holds(key)):
        return await alone()
    if queue is None:
        queue = source.queues[batching] = Queue()
    call: Call[Any] = Call(params, key, asyncio.get_running_loop().create_future())
    queue.waiting.append(call)
    _begin_next(source, exchange, batching, queue)
    try:
        rows: list[Row] | None = await call.answer
        return await alone() if rows is None else rows
    finally:
        if not call.answer.cancelled() and call.answer.result() is None:
            queue.leave([call])  # Until now, no later call with its key was sent.
            _begin_next(source, exchange, batching, queue)


def _begin_next(source: LoopSource, exchange: Exchange, batching: Batching, queue: Queue[Any]) -> None:
    """Begin the next batch if calls wait, unless one waits for a connection already."""
    if queue.waiting and not queue.is_awaited:
        queue.is_awaited = True
        task = asyncio.get_running_loop().create_task(_send_batch(source, exchange, batching, queue))
        source.batches.add(task)
        task.add_done_callback(source.batches.discard)
    elif queue.is_empty and source.queues.get(batching) is queue:
        del source.queues[batching]


async def _send_batch(source: LoopSource, exchange: Exchange, batching: Batching, queue: Queue[Any]) -> None:
    batch: list[Call[Any]] | None = None
    answers: Sequence[list[Row]] = ()

    def take() -> RoundTrip | None:
        nonlocal batch
        batch = _take(queue)
        return batching.merge([call.params for call in batch]) if len(batch) > 1 else None

    try:
        if rows := await exchange(take):
            answers = batching.split(rows, [call.params for call in batch or ()])
    except Exception:  # Each call finds out why when it is sent alone.
        pass
    finally:
        batch = _take(queue) if batch is None else batch
        queue.leave([call for call in batch if answers or call.answer.cancelled()])
        for call, rows in zip_longest(batch, answers):
            if not call.answer.cancelled():
                call.answer.set_result(rows)
        _begin_next(source, exchange, batching, queue)


def _take(queue: Queue[Any]) -> list[Call[Any]]:
    queue.is_awaited = False
    queue.waiting = [call for call in queue.waiting if not call.answer.cancelled()]
    return queue.take()
