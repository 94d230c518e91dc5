"""Chats in stored values: messages as `raw_reader` returns them, without making objects of their classes.

Must not know: SQL, connections, checkpoints, terminals, pages.

A message is a stored object of one of LangChain's message classes, or a dict as in an API of a model: with a `role` or
`type`, and a `content`. A `DeltaChannel` of messages is rebuilt from its writes by the rules of LangGraph's own reducer
for it, `_messages_delta_reducer`; a test compares the two.
"""

from __future__ import annotations

import json
from base64 import b64decode
from binascii import Error
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

from langgraph_checkpoint_custom.encoding.extensions import Extension
from langgraph_checkpoint_custom.encoding.langgraph_private import DeltaSnapshot
from langgraph_checkpoint_custom.encoding.raw import object_of, plain

# LangGraph's own names.
REMOVE_ALL = "__remove_all__"
OVERWRITE = "__overwrite__"

# Roles by the names that classes and APIs use for them.
_ROLES = {
    "human": "human", "user": "human", "HumanMessage": "human", "HumanMessageChunk": "human",
    "ai": "ai", "assistant": "ai", "model": "ai", "AIMessage": "ai", "AIMessageChunk": "ai",
    "system": "system", "developer": "system", "SystemMessage": "system", "SystemMessageChunk": "system",
    "tool": "tool", "ToolMessage": "tool", "ToolMessageChunk": "tool",
    "function": "tool", "FunctionMessage": "tool", "FunctionMessageChunk": "tool",
    "remove": "remove", "RemoveMessage": "remove", "ChatMessage": "other", "ChatMessageChunk": "other",
}  # fmt: skip
_SHOWN = {"content", "type", "role", "name", "id", "tool_calls", "tool_call_id", "status", "invalid_tool_calls"}
# Fields that are noise where a model set nothing in them.
_EMPTY: tuple[Any, ...] = (None, "", [], {}, False)


class ToolCall(NamedTuple):
    """A call of a tool. `args` are its arguments, or a text that is not JSON."""

    id: str | None
    name: str
    args: Any


class Part(NamedTuple):
    """A part of a message's content.

    `kind` is "text"; or "image" or "file", whose `text` says what it is; or "value" for anything else, in `value`.
    """

    kind: str
    text: str
    value: Any = None


class Message(NamedTuple):
    """A message: its role is "human", "ai", "system", "tool", "remove", or "other"."""

    role: str
    name: str | None
    id: str | None
    parts: Sequence[Part]
    calls: Sequence[ToolCall]
    tool_call_id: str | None
    failed: bool
    more: Mapping[str, Any]

    @property
    def text(self) -> str:
        """All text of the message; for a message without any, what it does instead."""
        found = "\n".join(part.text for part in self.parts if part.kind == "text" and part.text)
        if found:
            return found
        if self.calls:
            return "calls " + ", ".join(call.name for call in self.calls)
        return ", ".join(part.text for part in self.parts if part.text)

    @property
    def tokens(self) -> str:
        """How many tokens a model has read and written for the message; empty if it does not say."""
        usage = plain(self.more.get("usage_metadata"))
        counts = [usage.get(f"{way}put_tokens") for way in ("in", "out")] if isinstance(usage, dict) else []
        if not counts or not all(isinstance(count, int) for count in counts):
            return ""
        return f"{counts[0]:,} tokens in, {counts[1]:,} out"


def message_of(value: Any) -> Message | None:
    """Return the message that a value is; None if it is none."""
    value = plain(value)
    if isinstance(value, Extension):
        stored = object_of(value)
        if stored is None or not stored.module.startswith("langchain") or stored.name not in _ROLES:
            return None
        content = stored.content
        return _message(_ROLES[stored.name], content) if isinstance(content, dict) else None
    if isinstance(value, dict) and ("content" in value or "tool_calls" in value):
        for key in ("role", "type"):
            name = value.get(key)
            if isinstance(name, str) and name in _ROLES:
                return _message(_ROLES[name], value)
    return None


def chat_of(value: Any) -> list[Message] | None:
    """Return the messages of a value that is a list of messages, or a single one; None for any other value."""
    value = plain(value)
    if isinstance(value, DeltaSnapshot):
        return chat_of(value.value)
    if isinstance(value, (list, tuple)):
        found = [message_of(each) for each in value]
        messages = [each for each in found if each is not None]
        return messages if found and len(messages) == len(found) else None
    message = message_of(value)
    return None if message is None else [message]


def results_of(messages: Sequence[Message]) -> Mapping[str, Message]:
    """Return the results of tools in a chat, by the id of the call in the same chat."""
    called = {call.id for message in messages for call in message.calls}
    found = [(one.tool_call_id, one) for one in messages if one.role == "tool"]
    return {name: one for name, one in found if name and name in called}


def _message(role: str, fields: Mapping[Any, Any]) -> Message:
    named = fields.get("role") if role == "other" else fields.get("name")
    calls = [call for each in _list(fields.get("tool_calls")) if (call := _call(each))]
    calls += [call for each in _list(fields.get("invalid_tool_calls")) if (call := _call(each))]
    content = plain(fields.get("content"))
    parts = [_part(each) for each in content] if isinstance(content, (list, tuple)) else [_part(content)]
    more = {str(k): v for k, v in fields.items() if k not in _SHOWN and not any(v is e or v == e for e in _EMPTY)}
    return Message(
        role,
        _text(named),
        _text(fields.get("id")),
        [part for part in parts if part.kind != "text" or part.text],
        calls,
        _text(fields.get("tool_call_id")),
        plain(fields.get("status")) == "error",
        more,
    )


def _list(value: Any) -> Sequence[Any]:
    value = plain(value)
    return value if isinstance(value, (list, tuple)) else ()


def _text(value: Any) -> str | None:
    value = plain(value)
    return None if value is None else value if isinstance(value, str) else str(value)


def _call(value: Any) -> ToolCall | None:
    value = plain(value)
    if isinstance(value, Extension):
        stored = object_of(value)
        value = stored.content if stored else None
    if not isinstance(value, dict):
        return None
    inner = plain(value.get("function"))
    source = inner if isinstance(inner, dict) else value
    args = plain(source.get("args", source.get("arguments")))
    if isinstance(args, str):
        with suppress(ValueError):
            args = json.loads(args)
    return ToolCall(_text(value.get("id")), _text(source.get("name")) or "", args)


def _part(value: Any) -> Part:
    value = plain(value)
    if value is None or isinstance(value, str):
        return Part("text", value or "")
    if isinstance(value, dict):
        kind = value.get("type")
        if isinstance(text := value.get("text"), str) and kind in ("text", "output_text", "input_text", None):
            return Part("text", text)
        if kind in ("image_url", "image", "input_image", "audio", "video", "file", "input_audio", "media"):
            return Part("image" if "image" in kind else "file", _media(value))
    return Part("value", "", value)


def _media(value: Mapping[Any, Any]) -> str:
    """Return what a picture or file is: its type and size, or where it is."""
    inner = value.get("image_url", value.get("source", value))
    inner = {"url": inner} if isinstance(inner, str) else inner
    if not isinstance(inner, dict):
        return "of an unknown form"
    url = next((inner[key] for key in ("url", "data", "base64", "file_id") if isinstance(inner.get(key), str)), "")
    mime = next((inner[key] for key in ("mime_type", "media_type") if isinstance(inner.get(key), str)), "")
    if url.startswith("data:"):
        head, _, url = url.partition(",")
        mime = head[len("data:") :].partition(";")[0] or mime
    elif "://" in url[:20]:
        return f"at {url}"
    try:
        size = f"{len(b64decode(url, validate=False)):,} bytes"
    except (Error, ValueError):
        size = f"{len(url):,} characters"
    return f"{mime or 'of an unknown type'}, {size}"


# Delta channels


def overwrites(value: Any) -> tuple[bool, Any]:
    """Return whether a write replaces the value of its channel, and by what, as LangGraph recognises it."""
    value = plain(value)
    if isinstance(value, Extension):
        stored = object_of(value)
        if stored is not None and stored.path == "langgraph.types.Overwrite" and isinstance(stored.content, dict):
            return True, stored.content.get("value")
    if isinstance(value, dict):
        if len(value) == 1 and OVERWRITE in value:
            return True, value[OVERWRITE]
        if value.get("type") == OVERWRITE and "value" in value:
            return True, value["value"]
    return False, None


def rebuilt(seed: Any, writes: Sequence[Any]) -> list[Any] | None:
    """Rebuild the value of a `DeltaChannel` of messages; None if what was stored and written are not all messages."""
    seed = plain(seed)
    start = seed.value if isinstance(seed, DeltaSnapshot) else seed
    flat: list[Any] = []
    for write in writes:
        replaces, new = overwrites(write)
        if replaces:
            start, flat = new, []
        else:
            write = plain(write)
            flat.extend(write if isinstance(write, list) else [write])
    start = plain(start)
    base = [] if start is None else list(start) if isinstance(start, (list, tuple)) else [start]
    read = [(message_of(each), each) for each in (*base, *flat)]
    if not read or any(message is None for message, _ in read):
        return None
    found: dict[object, Any] = {}
    for key, each in _applied(read, len(base)):
        if each is None:
            found.pop(key, None)
        else:
            found[key] = each
    return list(found.values())


def _applied(read: Sequence[tuple[Message | None, Any]], writes_begin: int) -> Iterator[tuple[object, Any]]:
    """Yield what happens, one message after the other: a key with the message, or with None if it is removed.

    Args:
        read: The messages of the base, and then those of the writes.
        writes_begin: The number of messages in the base. Only a write can remove messages.
    """
    begins = 0
    for number, (message, _) in enumerate(read):
        if number >= writes_begin and message and message.role == "remove" and message.id == REMOVE_ALL:
            begins = number + 1
    for number, (message, each) in enumerate(read[begins:], begins):
        assert message is not None
        key: object = (number,) if message.id is None else message.id
        removes = message.role == "remove" and number >= writes_begin and message.id is not None
        yield key, None if removes else each


# What the adapters for other frameworks have stored: JSON, which needs none of their packages


def chat_of_framework(kind: str | None, values: Mapping[str, Any]) -> list[Message] | None:
    """Return the chat of another framework's thread; None if it has none, or if its form is not known.

    Args:
        kind: The kind of the thread.
        values: The channel values of its newest checkpoint.
    """
    stored = plain(values.get("messages"))
    if kind == "session":
        return chat_of(stored)
    entries = stored if isinstance(stored, list) else []
    if kind == "cubeloop":
        raw = [_from_json(each.get("message")) for each in map(plain, entries) if isinstance(each, dict)]
        found = [message_of(_cubeloop(each)) for each in raw if isinstance(each, dict)]
    elif kind == "pydantic-deep":
        raw = [_from_json(each) for each in entries]
        found = [message_of(made) for each in raw if isinstance(each, dict) for made in _pydantic_ai(each)]
    else:
        return None
    messages = [each for each in found if each is not None]
    return messages if messages and len(messages) == len(found) else None


def _from_json(text: Any) -> Any:
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


_PARTS = {"system-prompt": "system", "user-prompt": "human", "tool-return": "tool", "retry-prompt": "tool"}


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
            "role": _PARTS.get(str(each.get("part_kind")), "other"),
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
