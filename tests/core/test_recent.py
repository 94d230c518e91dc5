"""What a saver remembers of the last checkpoints stays consistent when signals interrupt it, and below its limit."""

from __future__ import annotations

import os
import tracemalloc
from collections.abc import Callable, Mapping
from typing import Any, cast

import pytest

from langgraph_checkpoint_custom.encoding.chunks import NAME, NO_BLOBS, Chunk, KnownBlobs, KnownValue
from langgraph_checkpoint_custom.model.keys import Key
from langgraph_checkpoint_custom.recent import ENTRY, Recent

KEY = Key("thread", "", "1")
NEXT = Key("thread", "", "2")
LIMIT = 1_000_000


class Calling(dict[str, Any]):
    """Values that run a signal handler when they are looked at."""

    def values(self) -> Any:
        self["found"] = self["recent"].of(KEY, None)
        self["recent"].remember(KEY, None, NO_BLOBS)
        return ()


def test_a_signal_handler_may_use_the_cache_while_its_os_thread_uses_it() -> None:
    recent = Recent(LIMIT)
    recent.remember(KEY, None, NO_BLOBS)
    large = Calling(recent=recent)
    recent.remember(NEXT, None, KnownBlobs({}, cast("Mapping[str, Any]", large)))
    assert large["found"] == NO_BLOBS
    assert recent.of(KEY, None) is NO_BLOBS
    assert recent.of(NEXT, None) is not None


def test_interrupts_between_removing_an_entry_and_subtracting_its_size_do_not_add_up() -> None:
    recent = Recent(LIMIT)
    large = KnownBlobs({}, {"list": KnownValue("1", whole=b"x" * (LIMIT - ENTRY))})
    for _ in range(3):
        recent.remember(KEY, None, large)
        recent.entries.clear()  # The state after an interrupt that comes when the entry is removed.
    recent.remember(KEY, None, large)
    assert recent.of(KEY, None) is None  # It counts the earlier ones once more, and then no longer.
    recent.remember(KEY, None, large)
    assert recent.of(KEY, None) is large


def test_what_is_known_of_many_checkpoints_takes_no_more_than_the_limit() -> None:
    recent = Recent(LIMIT)
    for number in range(1_000):
        versions = {f"channel {position}": f"{position}.{number}" for position in range(30)}
        recent.remember(Key("thread", "", f"{number}"), None, KnownBlobs(versions, {}))
    assert len(recent.entries) == LIMIT // (ENTRY + 30 * NAME)
    assert recent.of(Key("thread", "", "999"), None) is not None


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
    recent = Recent(LIMIT)
    tracemalloc.start()
    try:
        for number in range(1_000):
            recent.remember(Key(f"thread {number:030}", "", f"{number:036}"), None, known(number))
        held, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert LIMIT / 2 < held < LIMIT * 1.15  # Names and versions are counted as of their usual length.
