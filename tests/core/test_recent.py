"""What a saver remembers of the last checkpoints stays consistent when signals interrupt it, and below its limit."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from langgraph_checkpoint_custom.encoding.chunks import NAME, NO_BLOBS, KnownBlobs, KnownValue
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
