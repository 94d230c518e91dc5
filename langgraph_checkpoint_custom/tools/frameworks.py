"""What the adapters for other frameworks have stored, for people: chats, as `tools/chats.py` has them.

Must not know: SQL, connections, terminals, pages, the frameworks' packages: what is stored is JSON.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from langgraph_checkpoint_custom.encoding.raw import plain
from langgraph_checkpoint_custom.tools.chats import Message, chat_of, message_of

# The channel that has the messages of all of them.
_MESSAGES = "messages"


def chat_of_framework(kind: str | None, values: Mapping[str, Any]) -> list[Message] | None:
    """Return the chat of another framework's thread; None if it has none, or if its form is not known.

    Args:
        kind: The kind of the thread.
        values: The channel values of its newest checkpoint.
    """
    stored = plain(values.get(_MESSAGES))
    if kind == "session":
        return chat_of(stored)
    entries = stored if isinstance(stored, list) else []
    if kind == "cubeloop":
        raw = [_json(each.get("message")) for each in map(plain, entries) if isinstance(each, dict)]
        found = [message_of(_cubeloop(each)) for each in raw if isinstance(each, dict)]
    elif kind == "pydantic-deep":
        raw = [_json(each) for each in entries]
        found = [message_of(made) for each in raw if isinstance(each, dict) for made in _pydantic_ai(each)]
    else:
        return None
    messages = [each for each in found if each is not None]
    return messages if messages and len(messages) == len(found) else None


def _json(text: Any) -> Any:
    try:
        return json.loads(text) if isinstance(text, str) else None
    except ValueError:
        return None


def _cubeloop(message: Mapping[str, Any]) -> dict[str, Any]:
    """Return a message of CubeLoop in the form of a model's API: its calls are in a list of their own."""
    content = message.get("content")
    parts = [each for each in content if isinstance(each, dict)] if isinstance(content, list) else []
    calls = [each for each in parts if each.get("type") == "tool_call"]
    return {
        "role": {"tool_result": "tool"}.get(str(message.get("role")), message.get("role")),
        "content": [_thought(each) for each in parts if each.get("type") != "tool_call"],
        "tool_calls": [
            {"id": each.get("id"), "name": each.get("name"), "args": each.get("arguments")} for each in calls
        ],
        "tool_call_id": message.get("tool_call_id"),
        "status": "error" if message.get("is_error") else None,
    }


def _thought(part: Mapping[str, Any]) -> Any:
    return {"type": "text", "text": part["thinking"]} if isinstance(part.get("thinking"), str) else part


_ROLES = {"system-prompt": "system", "user-prompt": "human", "tool-return": "tool", "retry-prompt": "tool"}


def _pydantic_ai(message: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return a message of pydantic-ai as messages of a model's API: a request has a part for each of them."""
    parts = [each for each in message.get("parts") or () if isinstance(each, dict)]
    if message.get("kind") == "response":
        calls = [each for each in parts if each.get("part_kind") == "tool-call"]
        texts = [str(each["content"]) for each in parts if each.get("part_kind") in ("text", "thinking")]
        return [
            {
                "role": "ai",
                "content": "\n".join(texts),
                "tool_calls": [
                    {"id": each.get("tool_call_id"), "name": each.get("tool_name"), "args": each.get("args")}
                    for each in calls
                ],
            }
        ]
    return [
        {
            "role": _ROLES.get(str(each.get("part_kind")), "other"),
            "content": _content(each.get("content")),
            "name": each.get("tool_name"),
            "tool_call_id": each.get("tool_call_id"),
        }
        for each in parts
    ]


def _content(content: Any) -> Any:
    """Return content as a text or as parts; a result of a tool may be anything."""
    if isinstance(content, list):
        return [each if isinstance(each, (str, dict)) else json.dumps(each) for each in content]
    return content if isinstance(content, str) or content is None else json.dumps(content)
