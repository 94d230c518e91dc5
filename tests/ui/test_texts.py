"""Unseen characters of stored text are shown; all others stay as they are."""

from __future__ import annotations

import sys
import unicodedata
from collections import OrderedDict
from datetime import datetime, timedelta, timezone
from typing import Any

import pytest
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from langgraph.checkpoint.serde.types import _DeltaSnapshot

from langgraph_checkpoint_custom.encoding.raw import RawReader
from langgraph_checkpoint_custom.encoding.serde import ExactSerializer
from langgraph_checkpoint_custom.tools.display import brief, duration, json_of
from langgraph_checkpoint_custom.ui.values import age, line, marked, namespace, tree

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


@pytest.mark.parametrize(
    ("value", "kind", "note", "keys", "in_short", "in_json"),
    [
        (
            datetime(2026, 1, 2, tzinfo=timezone.utc),
            *("text", "datetime.datetime", []),
            "datetime.datetime.fromisoformat('2026-01-02T00:00:00+00:00')",
            {"class": "datetime.datetime", "value": "2026-01-02T00:00:00+00:00"},
        ),
        (
            OrderedDict(b=1, a=2),
            *("object", "collections.OrderedDict", ["b", "a"]),
            "collections.OrderedDict({'b': 1, 'a': 2})",
            {"class": "collections.OrderedDict", "value": {"b": 1, "a": 2}},
        ),
        (
            {3, 4},
            *("object", "builtins.set", [None]),
            "builtins.set([3, 4])",
            {"class": "builtins.set", "value": [3, 4]},
        ),
        (_DeltaSnapshot([1]), "object", "snapshot", [None], "snapshot([1])", {"snapshot": [1]}),
        ((1, 2), "list", "2 elements", ["0", "1"], "(1, 2)", [1, 2]),
    ],
)
def test_an_object_is_shown_by_its_class_and_what_is_in_it(
    value: Any, kind: str, note: str, keys: list[str | None], in_short: str, in_json: Any
) -> None:
    raw = RawReader().loads_typed(ExactSerializer(JsonPlusSerializer()).dumps_typed([value]))[0]
    node = tree(raw)
    assert (node.kind, node.note, [key for key, _ in node.children]) == (kind, note, keys)
    assert (brief(raw, 100), json_of(raw)) == (in_short, in_json)
