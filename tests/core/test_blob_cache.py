"""What a saver remembers of the last checkpoints stays below its limit, wherever an interrupt comes."""

from __future__ import annotations

import os
import tracemalloc
from collections import OrderedDict
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest

from langgraph_checkpoint_custom.blob_cache import ENTRY, BlobCache
from langgraph_checkpoint_custom.encoding.chunks import NAME, Chunk, KnownBlobs, KnownValue
from langgraph_checkpoint_custom.model.keys import Key

LIMIT = 1_000_000


def test_what_is_known_of_many_checkpoints_takes_no_more_than_the_limit() -> None:
    cache = BlobCache(LIMIT)
    for number in range(1_000):
        versions = {f"channel {position}": f"{position}.{number}" for position in range(30)}
        cache.remember(Key("thread", "", f"{number}"), None, KnownBlobs(versions, {}))
    assert len(cache.entries) == LIMIT // (ENTRY + 30 * NAME)
    assert cache.of(Key("thread", "", "999"), None) is not None


class Interrupting(OrderedDict[Key, Any]):
    """Entries that are interrupted after each change of a kind, before the cache counts the change."""

    kind: str

    def __setitem__(self, key: Key, entry: Any) -> None:
        super().__setitem__(key, entry)
        if self.kind == "added":
            raise KeyboardInterrupt

    def pop(self, key: Key, default: Any = None) -> Any:
        if (entry := super().pop(key, default)) and self.kind == "dropped":
            raise KeyboardInterrupt
        return entry


@pytest.mark.parametrize("kind", ["added", "dropped"])
def test_interrupts_between_an_entry_and_its_size_do_not_add_up(kind: str) -> None:
    cache = BlobCache(LIMIT)
    cache.entries = Interrupting()
    cache.entries.kind = kind
    keys = [Key("thread", "", f"{number}") for number in range(12)]
    blobs = KnownBlobs({}, {"list": KnownValue("1", whole=b"x" * (LIMIT // 3))})  # There is room for two of them.
    for key in keys[:8]:
        with suppress(KeyboardInterrupt):
            cache.remember(key, None, blobs)
    cache.entries.kind = "none"
    for key in keys[8:]:
        cache.remember(key, None, blobs)
        assert sum(entry.size for entry in cache.entries.values()) <= LIMIT
    assert cache.of(keys[-1], None) is blobs


def _few_values(number: int) -> KnownBlobs:
    return KnownBlobs({f"channel {position}": f"{position:032}.{number:016}" for position in range(3)}, {})


def _many_values(number: int) -> KnownBlobs:
    return KnownBlobs({f"channel {position}": f"{position:032}.{number:016}" for position in range(200)}, {})


def _a_whole_value(number: int) -> KnownBlobs:
    version = f"{number:049}"
    return KnownBlobs({"list": version}, {"list": KnownValue(version, whole=os.urandom(20_000))})


def _small_chunks(number: int) -> KnownBlobs:
    version = f"{number:049}"
    chunks = [Chunk(f"#/{number:012}{position}", os.urandom(100)) for position in range(30)]
    return KnownBlobs({"list": version}, {"list": KnownValue(version, chunks)})


@pytest.mark.parametrize(
    ("known", "threads"), [(_few_values, 1_000), (_many_values, 200), (_a_whole_value, 200), (_small_chunks, 500)]
)
def test_the_memory_of_a_process_grows_by_no_more_than_the_limit(
    known: Callable[[int], KnownBlobs], threads: int
) -> None:
    """What Python has allocated, for threads of which each is used once; there is room for a part of them."""
    cache = BlobCache(LIMIT)
    tracemalloc.start()
    try:
        for number in range(threads):
            cache.remember(Key(f"thread {number:030}", "", f"{number:036}"), None, known(number))
        assert len(cache.entries) < threads
        held, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert LIMIT / 2 < held < LIMIT  # Names and versions are counted as of their usual length.
