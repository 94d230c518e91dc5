"""Which calls share a trip: while some are on their way, those that come wait, and go together as the next group.

Must not know: databases, event loops, OS threads, the clock.

Whoever finds nobody on the way goes at once and alone. So nothing ever waits for company: a group is what has come
together while others were away.
"""

from __future__ import annotations

import weakref
from collections import defaultdict
from collections.abc import Collection, Hashable, Sequence
from typing import Generic, Protocol, TypeVar

from langgraph_checkpoint_custom.engine.operation import Batchable

# Groups of one kind on the way at once. With four, 64 OS threads made twice the trips of two, for a tenth more time and
# half as much again of the server's CPU; with one they were no faster, and one that is slow would stop everybody.
BATCHES = 2
# Calls in a group at most.
CALLS = 64
# Bytes that a group sends at most; a call that sends more goes by itself.
BATCH_BYTES = 262_144


class Waiter(Protocol):
    """A call that waits."""

    @property
    def batchable(self) -> Batchable: ...
    @property
    def gone(self) -> bool: ...


M = TypeVar("M", bound=Waiter)


class Batch(Generic[M]):
    """Calls on the way together; a call that goes by itself is one without members.

    Whoever makes their trip holds it, so that one that was dropped, by an interrupt at an odd moment, is no longer on
    its way.
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
    def away(self) -> list[Batch[M]]:
        """The groups on the way."""
        return [batch for ref in self._refs if (batch := ref())]

    def begin(self, batch: Batch[M]) -> Batch[M]:
        self._refs.append(weakref.ref(batch))
        return batch

    @property
    def is_empty(self) -> bool:
        """Whether nobody is on the way, as of the last `end`, or waits."""
        return not self._refs and not self.waiting

    def end(self, back: Batch[M]) -> None:
        self._refs = [ref for ref in self._refs if ref() not in (None, back)]

    def take(self) -> Batch[M] | None:
        """The next group: in the order of arrival, but nobody before one with its key is back."""
        waiters: list[M] = []
        left: list[M] = []
        keys = {key for batch in self.away for key in batch.keys}
        size = 0
        for waiter in self.waiting:
            if waiter.gone:
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
    """Who is on the way and who waits, by kind."""

    def __init__(self) -> None:
        self._queues: defaultdict[Hashable, _Queue[M]] = defaultdict(_Queue)

    def enter(self, kind: Hashable, batchable: Batchable) -> Batch[M] | None:
        """Go at once, until `leave`; None if the call has to wait."""
        queue = self._queues.get(kind)
        if queue is None:
            queue = self._queues[kind] = _Queue()
        elif (away := queue.away) and (len(away) == BATCHES or any(batchable.key in batch.keys for batch in away)):
            return None
        return queue.begin(Batch(() if batchable.key is None else (batchable.key,)))

    def wait(self, kind: Hashable, waiter: M) -> None:
        """Wait for one that is on the way."""
        self._queues[kind].waiting.append(waiter)

    def give_up(self, kind: Hashable, waiter: M) -> bool:
        """No longer wait; false if the member was taken into a group before."""
        if kind not in self._queues or waiter not in self._queues[kind].waiting:
            return False
        self._queues[kind].waiting.remove(waiter)
        return True

    def leave(self, kind: Hashable, batch: Batch[M]) -> Batch[M] | None:
        """Come back from a trip; gives the group that is on the way instead, if somebody waits."""
        queue = self._queues[kind]
        queue.end(batch)
        following = queue.take() if queue.waiting else None
        if queue.is_empty:
            del self._queues[kind]
        return following
