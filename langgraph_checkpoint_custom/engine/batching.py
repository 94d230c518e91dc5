"""Which calls are sent together: those that have gathered while enough others were underway.

Must not know: databases, event loops, OS threads, the clock.

A queue has the calls of one kind. Calls with one key change one row. They are never in one batch, because a statement
cannot change a row twice, and they are taken in their order: a later one waits until the earlier one has returned.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

# Maximum number of calls in a batch.
CALLS = 64
# Maximum number of bytes that a batch sends; a call with more is sent alone.
BATCH_BYTES = 262_144

A = TypeVar("A")


@dataclass(eq=False, slots=True)
class Call(Generic[A]):
    """A call that waits.

    Attributes:
        params: What it sends.
        key: The row that it changes; None if it changes none.
        answer: How it gets its answer.
    """

    params: Sequence[Any]
    key: Hashable
    answer: A


class Queue(Generic[A]):
    """The calls of one kind that wait, and the keys of those in flight."""

    def __init__(self) -> None:
        self.waiting: list[Call[A]] = []
        self.is_awaited = False  # Whether the next batch waits for a connection.
        self._keys: set[Hashable] = set()

    @property
    def is_empty(self) -> bool:
        """Whether no call waits and none is in flight that others have to wait for."""
        return not (self.waiting or self._keys)

    def holds(self, key: Hashable) -> bool:
        """Whether a call with this key has to wait for earlier ones."""
        return bool(self.waiting) or key in self._keys

    def take(self) -> list[Call[A]]:
        """Remove and return the next batch, perhaps an empty one, in the order of arrival."""
        batch: list[Call[A]] = []
        left: list[Call[A]] = []
        keys = self._keys.copy()
        size = 0
        for call in self.waiting:
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

    def leave(self, calls: Sequence[Call[A]]) -> None:
        """Mark calls as returned, so that later ones with their keys may follow."""
        self._keys -= {call.key for call in calls}
