"""The saver's cache of recent values stays consistent when signals interrupt it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from langgraph_checkpoint_custom.encoding.known import NOTHING_KNOWN, KnownValues, Packed
from langgraph_checkpoint_custom.model.keys import Key
from langgraph_checkpoint_custom.recent import ENTRY, OBJECTS, Recent

KEY = Key("thread", "", "1")
NEXT = Key("thread", "", "2")


class Calling(dict[str, Any]):
    """Values that run a signal handler when they are looked at."""

    def __bool__(self) -> bool:
        self["found"] = self["recent"].of(KEY, None)
        self["recent"].note(KEY, None, NOTHING_KNOWN)
        return True

    def values(self) -> Any:
        return ()

    def items(self) -> Any:
        return ()


def test_a_signal_handler_may_use_the_cache_while_its_os_thread_uses_it() -> None:
    recent = Recent()
    large = Calling(recent=recent)
    known = KnownValues(b"", cast("Mapping[str, Any]", large), all_inline=False)
    recent.note(KEY, None, known)
    recent.note(NEXT, None, NOTHING_KNOWN, KEY)
    assert large["found"] is known
    assert recent.of(NEXT, None) is NOTHING_KNOWN


def test_interrupts_between_removing_an_entry_and_subtracting_its_size_do_not_add_up() -> None:
    recent = Recent()
    large = KnownValues(b"x" * (OBJECTS - ENTRY), {}, all_inline=True)
    for _ in range(3):
        recent.note(KEY, None, large)
        recent._with_objects._sum += OBJECTS  # The state after an interrupt that comes when the entry is removed.
        recent._with_objects._entries.clear()
    recent.note(KEY, None, large)
    assert recent.of(KEY, None) is large
    recent.note(NEXT, None, NOTHING_KNOWN)
    assert recent.of(NEXT, None) is NOTHING_KNOWN


def test_many_small_values_are_not_more_than_the_limit() -> None:
    """Each takes about 300 bytes besides its own: a tuple, the heads of objects, and its place in a dict."""
    recent = Recent()
    for number in range(10_000):
        packed = {f"channel {position}": Packed(f"{position}.{number}", b"12345") for position in range(30)}
        recent.note(Key("thread", "", f"{number}"), None, KnownValues(b"", {}, all_inline=True, packed=packed))
    assert len(recent._with_objects._entries) <= OBJECTS / (30 * 300)
    assert recent.of(Key("thread", "", "9999"), None) is not None
