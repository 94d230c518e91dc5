"""The blobs of the checkpoints that were read or stored last.

The next version of a large value shares its chunks. What is remembered here saves work and space, and changes no value:
a checkpoint whose parent is not known here reads its row. If a deletion has taken the parent or its blobs since, `put`
notices.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from typing import NamedTuple

from langgraph.checkpoint.serde.base import CipherProtocol

from langgraph_checkpoint_custom.encoding.chunks import KnownBlobs
from langgraph_checkpoint_custom.forks import Forked, register_for_forks
from langgraph_checkpoint_custom.model.keys import Key

# Bytes that an entry takes in addition to what it holds.
ENTRY = 700


class _Entry(NamedTuple):
    cipher: CipherProtocol | None
    blobs: KnownBlobs
    size: int


class BlobCache(Forked):
    """Blobs by checkpoint, the oldest ones are dropped first; all copies of a saver share it.

    Args:
        limit: Bytes of the values and names that are held.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self.after_fork()
        register_for_forks(self)

    def after_fork(self) -> None:
        """Forget everything: an OS thread that does not exist in the child may have been in the middle of a change."""
        self._lock = threading.RLock()  # A signal handler that calls the saver must not hang.
        self.entries: OrderedDict[Key, _Entry] = OrderedDict()
        self._size = 0

    def of(self, key: Key, cipher: CipherProtocol | None) -> KnownBlobs | None:
        """Return the blobs of a checkpoint that the same cipher has stored, or None if nothing is known."""
        entry = self.entries.get(key)
        return entry.blobs if entry and entry.cipher is cipher else None

    def remember(
        self, key: Key, cipher: CipherProtocol | None, blobs: KnownBlobs | None, parent_id: str | None = None
    ) -> None:
        """Remember the blobs of a checkpoint, and forget those of its parent; None forgets its own, too."""
        entry = self.entries.get(key)
        parent = Key(key.thread_id, key.checkpoint_ns, parent_id) if parent_id else None
        is_known = entry.blobs is blobs and entry.cipher is cipher if entry else blobs is None
        if is_known and (parent is None or parent not in self.entries):
            return  # As with most states: small ones have no blobs, and of larger ones all know the same, `NO_BLOBS`.
        with self._lock:
            self._drop(key)
            if parent:
                self._drop(parent)
            if blobs is None:
                return
            entry = _Entry(cipher, blobs, ENTRY + blobs.size)
            self._size += entry.size  # Before the entry: after an interrupt between them, it holds less, not more.
            self.entries[key] = entry
            while self._size > self._limit and self.entries:
                self._drop(next(iter(self.entries)))
            if not self.entries:
                self._size = 0  # What interrupts have left of it.

    def _drop(self, key: Key) -> None:
        if entry := self.entries.pop(key, None):
            self._size -= entry.size
