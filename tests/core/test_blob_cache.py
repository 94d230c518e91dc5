"""What a saver remembers of the last checkpoints stays consistent when signals interrupt it, and below its limit."""

from __future__ import annotations

import os
import tracemalloc
from collections.abc import Callable

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


@pytest.mark.parametrize("known", [_few_values, _many_values, _a_whole_value, _small_chunks])
def test_the_memory_of_a_process_grows_by_no_more_than_the_limit(known: Callable[[int], KnownBlobs]) -> None:
    """What Python has allocated, for threads of which each is used once."""
    cache = BlobCache(LIMIT)
    tracemalloc.start()
    try:
        for number in range(1_000):
            cache.remember(Key(f"thread {number:030}", "", f"{number:036}"), None, known(number))
        held, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert LIMIT / 2 < held < LIMIT  # Names and versions are counted as of their usual length.
