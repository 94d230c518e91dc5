"""Unseen characters of stored text are shown; all others stay as they are."""

from __future__ import annotations

import sys
import unicodedata
from datetime import datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from langgraph_checkpoint_custom.tools.display import duration
from langgraph_checkpoint_custom.ui.values import age, line, marked, namespace

# Characters of these categories that are shown as they are: newline, tab, the joiners that emoji and scripts need, and
# signs that are seen although they are format characters.
KEPT = {"\n", "\t", "\u200c", "\u200d"}
SEEN = {chr(each) for each in (*range(0x600, 0x606), 0x6DD, 0x70F, 0x890, 0x891, 0x8E2, 0x110BD, 0x110CD)}
SEEN |= {chr(each) for each in range(0x13430, 0x13460)}


def test_every_control_and_format_character_is_marked() -> None:
    for number in range(sys.maxunicode + 1):
        char = chr(number)
        if unicodedata.category(char) in ("Cc", "Cf", "Cs", "Zl", "Zp") and char not in KEPT | SEEN:
            assert marked(char) == f"⟨U+{number:04X}⟩", hex(number)


@given(st.text())
def test_texts_lose_nothing_and_hide_nothing(text: str) -> None:
    assert (
        marked(text).isprintable()
        or set(marked(text)) & {"\n", "\t", "\u200c", "\u200d"}
        or any(not char.isprintable() for char in text)
    )
    marked(text).encode()
    line(text).encode()


def test_other_scripts_stay_as_they_are() -> None:
    for text in ("Grüße", "שלום", "مرحبا", "नमस्ते", "日本語", "👩‍👩‍👧", "a\u00a0b", "می‌خواهم"):
        assert marked(text) == text
    assert marked("a\u202e<") == "a⟨U+202E⟩<"
    assert marked("one\r\ntwo\rthree") == "one\ntwo⟨U+000D⟩three"


def test_a_line_is_short() -> None:
    assert line("a  b\n c") == "a b c"
    assert line("x" * 500, 10) == "x" * 9 + "…"
    assert len(line("\u202e" * 500, 40)) == 40


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (-60, "in the future"),
        (3, "just now"),
        (45, "45 s ago"),
        (125, "2 min ago"),
        (7_300, "2 h ago"),
        (9e5, "10 d ago"),
    ],
)
def test_ages(seconds: float, text: str) -> None:
    now = datetime(2026, 1, 2, tzinfo=timezone.utc)
    assert age(now - timedelta(seconds=seconds), now) == text
    assert age((now - timedelta(seconds=seconds)).replace(tzinfo=None), now) == text


def test_durations() -> None:
    assert [duration(each) for each in (0.00042, 0.25, 6.18, 150, 9_000)] == [
        "0.4 ms",
        "250.0 ms",
        "6.2 s",
        "2.5 min",
        "2.5 h",
    ]


def test_namespaces() -> None:
    assert namespace("read:0344a2bc-70f0|inner:1") == "read (0344a2bc) / inner (1)"
    assert namespace("memory") == "memory"
    assert namespace("") == ""
