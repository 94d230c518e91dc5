"""A thread in one line: the open question, the last message, or the state.

Must not know: SQL, connections, terminals, pages.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from langgraph_checkpoint_custom.encoding.extensions import Extension
from langgraph_checkpoint_custom.encoding.raw import object_of, plain
from langgraph_checkpoint_custom.model.records import Question
from langgraph_checkpoint_custom.tools.chats import chat_of
from langgraph_checkpoint_custom.tools.display import brief
from langgraph_checkpoint_custom.tools.states import Channel

# The keys under which a dict that asks has its question.
_ASKING = ("question", "message", "text", "prompt", "query")


def question_of(interrupt: Any) -> Question:
    """Return the id and the question of an interrupt that was read raw; the id is empty if it has none."""
    if isinstance(interrupt, Question):
        return interrupt
    if isinstance(interrupt, dict) and interrupt.keys() == {"id", "value"}:  # How a `Question` is stored.
        return Question(**interrupt)
    stored = object_of(interrupt) if isinstance(interrupt, Extension) else None
    content = stored.content if stored and isinstance(stored.content, dict) else {"value": interrupt}
    return Question(str(content.get("id") or ""), content.get("value"))


def line_of(
    channels: Sequence[Channel], questions: Sequence[Question], errors: Sequence[str], limit: int
) -> tuple[str, str]:
    """Return what a person looks for in a list of threads: who says something last, and what; or the state.

    Args:
        channels: The channels of the newest checkpoint.
        questions: Its open questions.
        errors: The errors of its tasks.
        limit: Characters.
    """
    for error in errors:
        return "failed", _cut(error, limit)
    for question in questions:
        return "asks", text_of(question.value, limit)
    for channel in channels:
        if channel.chat:
            last = channel.chat[-1]
            return last.name or last.role, _cut(last.text, limit)
    shown = [each for each in channels if each.readable and not each.inner and each.value is not None]
    return "", _cut(", ".join(f"{each.name}: {text_of(each.value, 60)}" for each in shown), limit)


def text_of(value: Any, limit: int) -> str:
    """Return what a value says in one line: a text itself, the question of a dict that asks, anything else briefly."""
    value = plain(value)
    chat = chat_of(value)
    if chat:
        return _cut(f"{chat[-1].name or chat[-1].role}: {chat[-1].text}", limit)
    if isinstance(value, dict):
        value = next((value[key] for key in _ASKING if isinstance(value.get(key), str)), value)
    return _cut(value, limit) if isinstance(value, str) else brief(value, limit)


def _cut(text: str, limit: int) -> str:
    text = " ".join(text[: 4 * limit].split())
    return text if len(text) <= limit else text[: limit - 1] + "…"
