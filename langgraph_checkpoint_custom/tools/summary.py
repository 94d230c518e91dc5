"""A thread in one line: the open question, the last message, or the state.

Must not know: SQL, connections, terminals, pages.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from langgraph.checkpoint.base import CheckpointTuple

from langgraph_checkpoint_custom.encoding.extensions import Extension
from langgraph_checkpoint_custom.model.records import Question
from langgraph_checkpoint_custom.operations.interrupts import open_among
from langgraph_checkpoint_custom.tools.chats import Message, chat_of
from langgraph_checkpoint_custom.tools.display import brief, json_of, object_of, plain

# Channels of LangGraph's own, which say what runs next.
_INNER = ("branch:", "join:", "__")
# The keys under which a dict that asks has its question.
_ASKING = ("question", "message", "text", "prompt", "query")


def question_of(interrupt: Any) -> tuple[str | None, Any]:
    """Return the id of an interrupt that was read raw, and its question."""
    if isinstance(interrupt, Question):
        return interrupt
    if isinstance(interrupt, dict) and interrupt.keys() == {"id", "value"}:  # How a `Question` is stored.
        return interrupt["id"], interrupt["value"]
    made = object_of(interrupt) if isinstance(interrupt, Extension) else None
    content = made.content if made and isinstance(made.content, dict) else {"value": interrupt}
    return content.get("id"), content.get("value")


def line_of(found: CheckpointTuple, chats: Mapping[str, Sequence[Message]], limit: int) -> str:
    """Return what a person looks for in a list of threads.

    Args:
        found: The newest checkpoint of the thread, read raw.
        chats: Its chats, also rebuilt ones and those of other frameworks; where a value is a chat, it may be left out.
        limit: Characters.
    """
    for interrupt in open_among(found.pending_writes or []):
        return "asks: " + text_of(question_of(interrupt)[1], limit)
    values = found.checkpoint["channel_values"]
    for chat in (*chats.values(), *map(chat_of, values.values())):
        if chat:
            last = chat[-1]
            return _cut(f"{last.name or last.role}: {last.text}", limit)
    shown = {name: value for name, value in values.items() if not name.startswith(_INNER) and value is not None}
    return _cut(", ".join(f"{name}: {text_of(value, 60)}" for name, value in shown.items()), limit)


def json_of_question(interrupt: Any) -> Any:
    """Convert an interrupt that was read raw for JSON."""
    return json_of(interrupt._asdict() if isinstance(interrupt, Question) else interrupt)


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
