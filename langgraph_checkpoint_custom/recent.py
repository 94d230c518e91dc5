"""What is known of large values that were read or stored last, so that the next version can share their parts.

What is not known here is stored whole: that is always right. What is known but gone is noticed by `put`.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Mapping

from langgraph.checkpoint.serde.base import CipherProtocol

from langgraph_checkpoint_custom.core.model import Key
from langgraph_checkpoint_custom.core.parts import Divided
from langgraph_checkpoint_custom.forks import tell_of_forks

# Parts with their names alone take about 300 bytes each, and so do values of which no parts are known.
PARTS = 100_000
# Bytes of the values whose objects are held, to see whether they have changed; the graph that goes on has them anyway.
OBJECTS = 64_000_000
LEAST = 1_000  # What a value without known parts counts for.


_Entry = tuple[CipherProtocol | None, Mapping[str, Divided]]


class Recent:
    """Large values, by checkpoint and channel; shared by all copies of a saver."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._whole = _Newest(OBJECTS)
        self._names = _Newest(PARTS)
        tell_of_forks(self)

    def before_fork(self) -> None:
        """Let nobody else be inside."""
        self._lock.acquire()

    def after_fork(self, *, child: bool) -> None:
        """Go on."""
        self._lock.release()

    def of(self, key: Key, cipher: CipherProtocol | None) -> Mapping[str, Divided]:
        """The large values of a checkpoint, as far as they are known, if the same cipher has stored them."""
        with self._lock:
            found = self._whole.get(key) or self._names.get(key)
        return found[1] if found and found[0] is cipher else {}

    def note(
        self, key: Key, cipher: CipherProtocol | None, values: Mapping[str, Divided], parent: Key | None = None
    ) -> None:
        """Keep in mind the large values of a checkpoint, in place of its parent's."""
        with self._lock:
            for newest in (self._whole, self._names):
                newest.forget(key)
                if parent:
                    newest.forget(parent)
            if values:
                size = sum(max(value.size, LEAST) for value in values.values())
                for old, (its, large) in self._whole.add(key, (cipher, values), size):
                    named = {channel: value.without_objects() for channel, value in large.items()}
                    self._names.add(old, (its, named), sum(len(value.parts) or 1 for value in large.values()))


class _Newest:
    """Entries up to a sum of their weights; the oldest ones go first."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._sum = 0
        self._entries: OrderedDict[Key, tuple[int, _Entry]] = OrderedDict()

    def get(self, key: Key) -> _Entry | None:
        found = self._entries.get(key)
        return found[1] if found else None

    def add(self, key: Key, entry: _Entry, weight: int) -> list[tuple[Key, _Entry]]:
        """Add an entry; returns those that had to go, perhaps the new one."""
        self._entries[key] = weight, entry
        self._sum += weight
        gone = []
        while self._sum > self._limit:
            old, (its, left) = self._entries.popitem(last=False)
            self._sum -= its
            gone.append((old, left))
        return gone

    def forget(self, key: Key) -> None:
        found = self._entries.pop(key, None)
        if found:
            self._sum -= found[0]
