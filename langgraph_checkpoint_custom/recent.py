"""What is known about the values of the checkpoints that were read or stored last.

The next version of a large value shares its chunks, and an inline value that did not change is stored with the same
bytes. A value that is not known here is stored from its object, in one piece and as the object is at that moment. If a
value is known here but deleted in the database, `put` notices.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Sequence
from typing import NamedTuple

from langgraph.checkpoint.serde.base import CipherProtocol

from langgraph_checkpoint_custom.encoding.known import KnownValues
from langgraph_checkpoint_custom.forks import register_for_forks
from langgraph_checkpoint_custom.model.keys import Key

# Maximum number of chunks whose names, but not objects, are held: about 300 bytes each. Samples count in that unit.
CHUNK_NAMES = 100_000
# Maximum bytes of the values whose objects are held, to detect changes; the running graph holds them anyway.
OBJECTS = 64_000_000
# Bytes that an entry takes in addition.
ENTRY = 600


class _Entry(NamedTuple):
    cipher: CipherProtocol | None
    values: KnownValues
    weight: int


class Recent:
    """Values by checkpoint and channel; all copies of a saver share it."""

    def __init__(self) -> None:
        self.after_fork()
        register_for_forks(self)

    def before_fork(self) -> None:
        """Do nothing: there is nothing to close."""

    def after_fork(self) -> None:
        """Forget everything: an OS thread that does not exist in the child may have been in the middle of a change."""
        self._lock = threading.RLock()  # A signal handler may call the saver while its OS thread holds it.
        self._with_objects = _Newest(OBJECTS)
        self._names = _Newest(CHUNK_NAMES)

    def of(self, key: Key, cipher: CipherProtocol | None) -> KnownValues | None:
        """Return what is known about the values of a checkpoint that the same cipher has stored, or None."""
        with self._lock:
            found = self._with_objects.get(key) or self._names.get(key)
        return found.values if found and found.cipher is cipher else None

    def note(self, key: Key, cipher: CipherProtocol | None, values: KnownValues, parent: Key | None = None) -> None:
        """Remember the values of a checkpoint, and of its parent only what needs no objects.

        Another run may continue from the parent, whose inline values are not stored by version anywhere else.
        """
        with self._lock:
            if values.document and (stored := self._with_objects.get(key)):  # It was stored here, and now it was read.
                values = values._replace(changes=stored.values.changes)
            entry = _Entry(cipher, values, ENTRY + values.size)
            if parent and (left := self._with_objects.get(parent)) and left.values.large:
                self._with_objects.take(parent)
                self._forget_objects(parent, left)
            self._names.take(key)
            if dropped := self._with_objects.add(key, entry):
                for old in dropped:
                    self._forget_objects(*old)

    def _forget_objects(self, key: Key, entry: _Entry) -> None:
        named = entry.values.without_objects()
        self._names.add(key, _Entry(entry.cipher, named, 2 + named.pieces))


class _Newest:
    """Entries up to a sum of weights; the oldest ones are dropped first."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._sum = 0
        self._entries: OrderedDict[Key, _Entry] = OrderedDict()
        self.get = self._entries.get

    def add(self, key: Key, entry: _Entry) -> Sequence[tuple[Key, _Entry]]:
        """Add or replace an entry; returns the entries that were dropped, perhaps the new one."""
        if key in self._entries:
            self.take(key)
        if not self._entries:
            self._sum = 0  # An interrupt may have come between an entry and its weight.
        self._entries[key] = entry
        self._sum += entry.weight
        if self._sum <= self._limit:
            return ()
        dropped = []
        while self._entries and self._sum > self._limit:
            dropped.append(self._entries.popitem(last=False))
            self._sum -= dropped[-1][1].weight
        return dropped

    def take(self, key: Key) -> _Entry | None:
        """Remove and return an entry, or return None."""
        found = self._entries.pop(key, None)
        if found:
            self._sum -= found.weight
        return found
