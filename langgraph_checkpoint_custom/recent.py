"""What is known of the values of checkpoints that were read or stored last.

The next version of a large value shares its parts, and a small one that did not change is stored by the same bytes.
What is not known here is stored from the objects: whole, and as they are then. What is known but gone is noticed by
`put`.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Sequence
from typing import NamedTuple

from langgraph.checkpoint.serde.base import CipherProtocol

from langgraph_checkpoint_custom.encoding.known import KnownValues
from langgraph_checkpoint_custom.forks import tell_of_forks
from langgraph_checkpoint_custom.model.keys import Key

# Parts with their names alone take about 300 bytes each, which is what samples are counted in.
PARTS = 100_000
# Bytes of the values whose objects are held, to see whether they have changed; the graph that goes on has them anyway.
OBJECTS = 64_000_000
# Bytes that an entry takes besides.
ENTRY = 600


class _Entry(NamedTuple):
    cipher: CipherProtocol | None
    values: KnownValues
    weight: int


class Recent:
    """Values by checkpoint and channel; shared by all copies of a saver."""

    def __init__(self) -> None:
        self.after_fork()
        tell_of_forks(self)

    def before_fork(self) -> None:
        """Nothing has to be closed."""

    def after_fork(self) -> None:
        """Know nothing: an OS thread that is not in the child may have been inside."""
        self._lock = threading.RLock()  # A signal handler may call the saver while its OS thread is inside.
        self._whole = _Newest(OBJECTS)
        self._names = _Newest(PARTS)

    def of(self, key: Key, cipher: CipherProtocol | None) -> KnownValues | None:
        """What is known of the values of a checkpoint if the same cipher has stored them, or None."""
        with self._lock:
            found = self._whole.get(key) or self._names.get(key)
        return found.values if found and found.cipher is cipher else None

    def note(self, key: Key, cipher: CipherProtocol | None, values: KnownValues, parent: Key | None = None) -> None:
        """Keep in mind the values of a checkpoint; of its parent's only what needs no objects.

        Another run may go on from the parent, whose small values are nowhere else by version.
        """
        entry = _Entry(cipher, values, ENTRY + values.size)
        with self._lock:
            if parent and (left := self._whole.get(parent)) and left.values.large:
                self._whole.take(parent)
                self._forget_objects(parent, left)
            self._names.take(key)
            if gone := self._whole.add(key, entry):
                for old in gone:
                    self._forget_objects(*old)

    def _forget_objects(self, key: Key, entry: _Entry) -> None:
        named = entry.values.without_objects()
        self._names.add(key, _Entry(entry.cipher, named, 2 + named.pieces))


class _Newest:
    """Entries up to a sum of their weights; the oldest ones go first."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._sum = 0
        self._entries: OrderedDict[Key, _Entry] = OrderedDict()
        self.get = self._entries.get

    def add(self, key: Key, entry: _Entry) -> Sequence[tuple[Key, _Entry]]:
        """Add an entry, in place of one with the same key; returns those that had to go, perhaps the new one."""
        if key in self._entries:
            self.take(key)
        if not self._entries:
            self._sum = 0  # An interrupt may have come between an entry and its weight.
        self._entries[key] = entry
        self._sum += entry.weight
        if self._sum <= self._limit:
            return ()
        gone = []
        while self._entries and self._sum > self._limit:
            gone.append(self._entries.popitem(last=False))
            self._sum -= gone[-1][1].weight
        return gone

    def take(self, key: Key) -> _Entry | None:
        """Take an entry out, if it is there."""
        found = self._entries.pop(key, None)
        if found:
            self._sum -= found.weight
        return found
