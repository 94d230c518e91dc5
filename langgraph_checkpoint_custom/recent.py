"""What is known of the values of checkpoints that were read or stored last.

The next version of a large value shares its parts, and a small one that did not change is stored by the same bytes.
What is not known here is stored from the objects: whole, and as they are then. What is known but gone is noticed by
`put`.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Mapping

from langgraph.checkpoint.serde.base import CipherProtocol

from langgraph_checkpoint_custom.core.model import Key
from langgraph_checkpoint_custom.core.parts import Known
from langgraph_checkpoint_custom.forks import tell_of_forks

# Parts with their names alone take about 300 bytes each, which is what samples are counted in.
PARTS = 100_000
# Bytes of the values whose objects are held, to see whether they have changed; the graph that goes on has them anyway.
OBJECTS = 64_000_000
# Bytes that an entry takes besides.
ENTRY = 600


_Entry = tuple[CipherProtocol | None, Mapping[str, Known]]


class Recent:
    """Values by checkpoint and channel; shared by all copies of a saver."""

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

    def of(self, key: Key, cipher: CipherProtocol | None) -> Mapping[str, Known] | None:
        """What is known of the values of a checkpoint if the same cipher has stored them, or None."""
        with self._lock:
            found = self._whole.get(key) or self._names.get(key)
        return found[1] if found and found[0] is cipher else None

    def note(
        self, key: Key, cipher: CipherProtocol | None, values: Mapping[str, Known], parent: Key | None = None
    ) -> None:
        """Keep in mind the values of a checkpoint, in place of its parent's."""
        with self._lock:
            left = self._whole.get(parent) or self._names.get(parent) if parent else None
            for newest in (self._whole, self._names):
                newest.forget(key)
                if parent:
                    newest.forget(parent)
            if parent and left:  # Another run may go on from there, whose small values are nowhere else by version.
                named = {channel: value.without_objects() for channel, value in left[1].items()}
                self._names.add(parent, (left[0], named), 2 + sum([value.pieces for value in named.values()]))
            size = ENTRY + sum([value.size for value in values.values()])
            for old, (its, known) in self._whole.add(key, (cipher, values), size):
                named = {channel: value.without_objects() for channel, value in known.items()}
                self._names.add(old, (its, named), 2 + sum([value.pieces for value in known.values()]))


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
