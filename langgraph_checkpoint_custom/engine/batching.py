"""Which calls are sent together: calls that arrive while others are in flight wait, and form the next batch.

Must not know: databases, event loops, OS threads, the clock.

A call is sent immediately and alone if fewer than `BATCHES` of its kind are in flight, none of them with its key. So no
call waits for a batch to fill up: a batch consists of the calls that arrived while others were in flight.

Which requests can be batched at all is decided where they get a `Batchable`, in `sql/postgres_dialect.py`.
"""

from __future__ import annotations

import weakref
from collections import defaultdict
from collections.abc import Collection, Hashable, Sequence
from typing import Generic, Protocol, TypeVar

from langgraph_checkpoint_custom.engine.operation import Batchable

# Batches of one kind in flight at once. With four, 64 OS threads made twice as many round trips as with two, which took
# a tenth more time and half as much again of the server's CPU. With one they were no faster, and one slow batch would
# stop all calls.
BATCHES = 2
# Maximum number of calls in a batch.
CALLS = 64
# Maximum number of bytes that a batch sends; a call with more is sent alone.
BATCH_BYTES = 262_144


class Waiter(Protocol):
    """A waiting call."""

    @property
    def batchable(self) -> Batchable: ...
    @property
    def cancelled(self) -> bool: ...


M = TypeVar("M", bound=Waiter)


class Batch(Generic[M]):
    """Calls in flight together; a call that is sent alone is a batch without waiters.

    Only the caller or task that makes the round trip has a strong reference. So a batch that an interrupt has dropped
    at an unexpected moment no longer counts as in flight.
    """

    def __init__(self, keys: Collection[Hashable], waiters: Sequence[M] = ()) -> None:
        self.keys = keys
        self.waiters = waiters


class _Queue(Generic[M]):
    """The calls of one kind."""

    def __init__(self) -> None:
        self._refs: list[weakref.ref[Batch[M]]] = []
        self.waiting: list[M] = []

    @property
    def in_flight(self) -> list[Batch[M]]:
        """The batches in flight."""
        return [batch for ref in self._refs if (batch := ref())]

    def begin(self, batch: Batch[M]) -> Batch[M]:
        self._refs.append(weakref.ref(batch))
        return batch

    @property
    def is_empty(self) -> bool:
        """Whether no call waits and, as of the last `end`, no batch is in flight."""
        return not self._refs and not self.waiting

    def end(self, back: Batch[M]) -> None:
        self._refs = [ref for ref in self._refs if ref() not in (None, back)]

    def take(self) -> Batch[M] | None:
        """Remove and return the next batch, or None.

        Calls are taken in the order of arrival. A call waits for earlier calls with the same key to return.
        """
        waiters: list[M] = []
        left: list[M] = []
        keys = {key for batch in self.in_flight for key in batch.keys}
        size = 0
        for waiter in self.waiting:
            if waiter.cancelled:
                continue
            batchable = waiter.batchable
            if len(waiters) == CALLS or batchable.key in keys or (waiters and size + batchable.size > BATCH_BYTES):
                left.append(waiter)
            else:
                waiters.append(waiter)
                size += batchable.size
            if batchable.key is not None:
                keys.add(batchable.key)
        self.waiting = left
        return self.begin(Batch({waiter.batchable.key for waiter in waiters} - {None}, waiters)) if waiters else None


class BatchQueue(Generic[M]):
    """The calls in flight and the waiting calls, by kind."""

    def __init__(self) -> None:
        self._queues: defaultdict[Hashable, _Queue[M]] = defaultdict(_Queue)

    def enter(self, kind: Hashable, batchable: Batchable) -> Batch[M] | None:
        """Mark the call as in flight until `leave`, or return None if it has to wait."""
        queue = self._queues.get(kind)
        if queue is None:
            queue = self._queues[kind] = _Queue()
        elif (in_flight := queue.in_flight) and (
            len(in_flight) == BATCHES or any(batchable.key in batch.keys for batch in in_flight)
        ):
            return None
        return queue.begin(Batch(() if batchable.key is None else (batchable.key,)))

    def wait(self, kind: Hashable, waiter: M) -> None:
        """Add a call that waits for one in flight to return."""
        self._queues[kind].waiting.append(waiter)

    def give_up(self, kind: Hashable, waiter: M) -> bool:
        """Stop waiting; returns False if a batch has already taken the call."""
        if kind not in self._queues or waiter not in self._queues[kind].waiting:
            return False
        self._queues[kind].waiting.remove(waiter)
        return True

    def leave(self, kind: Hashable, batch: Batch[M]) -> Batch[M] | None:
        """Mark a batch as returned; returns the next one, which is then in flight, if calls wait."""
        queue = self._queues[kind]
        queue.end(batch)
        following = queue.take() if queue.waiting else None
        if queue.is_empty:
            del self._queues[kind]
        return following
