"""What differs between two states; messages with ids and lines of texts are in tests/cli/test_states.py."""

from __future__ import annotations

from typing import Any

from langchain_core.messages import HumanMessage

from langgraph_checkpoint_custom.tools.changes import Change, PathChange, changes
from langgraph_checkpoint_custom.tools.chats import chat_of
from langgraph_checkpoint_custom.tools.states import Channel
from tests.ui.test_chats import raw


def channel(name: str, value: Any) -> Channel:
    stored = raw(value)
    return Channel(name, stored, chat_of(stored))


def compared(before: dict[str, Any], after: dict[str, Any]) -> tuple[list[Change], list[str]]:
    sides = ([channel(name, value) for name, value in values.items()] for values in (before, after))
    return changes(*sides)


def test_messages_without_ids_are_matched_by_text() -> None:
    before = [{"role": "user", "content": "a"}]
    ((change,), _) = compared({"m": before}, {"m": [*before, {"role": "assistant", "content": "b"}]})
    assert [(one.sign, one.message.text) for one in change.messages] == [("+", "b")]
    assert compared({"m": before}, {"m": before}) == ([], ["m"])


def test_a_chat_that_begins_or_ends() -> None:
    ((change,), _) = compared({}, {"m": [HumanMessage("a", id="1")]})
    assert (change.what, [one.sign for one in change.messages]) == ("added", ["+"])
    ((change,), _) = compared({"m": [HumanMessage("a", id="1")]}, {"m": []})
    assert (change.what, [one.sign for one in change.messages]) == ("changed", ["-"])


def test_other_values_are_compared_by_path() -> None:
    ((change,), _) = compared({"d": {"a": [1, 2], "b": 1}}, {"d": {"a": [1, 3], "c": 1}})
    assert change.paths == [PathChange("a[1]", "2", "3"), PathChange("b", "1", None), PathChange("c", None, "1")]
    ((gone, new), _) = compared({"x": 1}, {"y": None})
    assert (gone.what, gone.paths) == ("removed", [PathChange("", "1", None)])
    assert (new.what, new.paths) == ("added", [PathChange("", None, "None")])
    ((many,), _) = compared({"d": list(range(500))}, {"d": [0.5] * 500})
    assert len(many.paths) == 200
    assert many.more


def test_what_cannot_be_read_is_not_compared() -> None:
    unreadable = Channel("secret", readable=False, note="it is encrypted")
    ((change,), _) = changes([unreadable], [unreadable])
    assert (change.what, change.note) == ("unknown", "it is encrypted")
    assert changes([Channel("branch:to:x")], []) == ([], [])
