"""Messages are recognised in raw values, and delta channels rebuilt, as LangChain and LangGraph do with objects."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from langchain_core.messages import (
    AIMessage,
    BaseMessage,
    ChatMessage,
    HumanMessage,
    RemoveMessage,
    SystemMessage,
    ToolMessage,
)
from langgraph.channels.delta import DeltaChannel
from langgraph.checkpoint.serde.types import _DeltaSnapshot
from langgraph.graph.message import _messages_delta_reducer
from langgraph.types import Overwrite

from langgraph_checkpoint_custom.encoding.objects import pack
from langgraph_checkpoint_custom.encoding.raw import unpacked
from langgraph_checkpoint_custom.tools.chats import REMOVE_ALL, chat_of, message_of, rebuilt


def raw(value: Any) -> Any:
    """A value as a raw reader returns it after it was stored."""
    return unpacked(pack(value))


@pytest.mark.parametrize(
    ("message", "role", "text"),
    [
        (HumanMessage("hello", name="ada"), "human", "hello"),
        (AIMessage("yes"), "ai", "yes"),
        (SystemMessage("be kind"), "system", "be kind"),
        (ToolMessage("42", tool_call_id="1"), "tool", "42"),
        (ChatMessage(content="hm", role="critic"), "other", "hm"),
        (RemoveMessage(id="1"), "remove", ""),
        ({"role": "user", "content": "hello"}, "human", "hello"),
        ({"role": "assistant", "content": None, "tool_calls": []}, "ai", ""),
        ({"type": "human", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]}, "human", "a\nb"),
    ],
)
def test_what_is_a_message(message: Any, role: str, text: str) -> None:
    found = message_of(raw(message))
    assert found is not None
    assert (found.role, found.text) == (role, text)


@pytest.mark.parametrize(
    "value",
    [None, 7, "text", [], {}, {"role": "user"}, {"content": "x"}, {"role": 7, "content": "x"}, [HumanMessage("a"), 1]],
)
def test_what_is_none(value: Any) -> None:
    assert chat_of(raw(value)) is None


def test_calls_of_tools_in_all_forms() -> None:
    call: Any = {"name": "look", "args": {"a": 1}, "id": "1", "type": "tool_call"}
    for message in (
        AIMessage("", tool_calls=[call]),
        {
            "role": "assistant",
            "content": "",
            "tool_calls": [{"id": "1", "function": {"name": "look", "arguments": '{"a": 1}'}}],
        },
    ):
        found = message_of(raw(message))
        assert found is not None
        assert [(one.id, one.name, one.args) for one in found.calls] == [("1", "look", {"a": 1})]
        assert found.text == "calls look"


@pytest.mark.parametrize(
    ("part", "text"),
    [
        ({"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}, "image/png, 3 bytes"),
        ({"type": "image_url", "image_url": "https://pictures.example/a.png"}, "at https://pictures.example/a.png"),
        (
            {"type": "image", "source": {"type": "base64", "media_type": "image/gif", "data": "AAAA"}},
            "image/gif, 3 bytes",
        ),
        ({"type": "image", "base64": "AAAA", "mime_type": "image/jpeg"}, "image/jpeg, 3 bytes"),
        ({"type": "file", "data": "!"}, "of an unknown type, 0 bytes"),
        ({"type": "image_url", "image_url": 7}, "of an unknown form"),
    ],
)
def test_pictures_by_type_and_size(part: Any, text: str) -> None:
    found = message_of(raw({"role": "user", "content": [part]}))
    assert found is not None
    assert found.parts[0].text == text


REDUCER: Any = _messages_delta_reducer
MESSAGES = st.builds(
    lambda kind, number, text: kind(id=f"m{number}") if kind is RemoveMessage else kind(text, id=f"m{number}"),
    st.sampled_from([HumanMessage, AIMessage, RemoveMessage]),
    st.integers(0, 4),
    st.text("ab", max_size=3),
) | st.sampled_from([HumanMessage("no id"), RemoveMessage(id=REMOVE_ALL)])
KEPT = st.lists(st.integers(0, 6), unique=True).map(lambda ids: [HumanMessage(f"kept {n}", id=f"m{n}") for n in ids])
WRITES = st.lists(st.lists(MESSAGES, max_size=4) | MESSAGES | KEPT.map(Overwrite), max_size=6)


@given(st.none() | KEPT | KEPT.map(_DeltaSnapshot), WRITES)
def test_a_delta_channel_is_rebuilt_as_langgraph_does(seed: Any, writes: list[Any]) -> None:
    channel: Any = DeltaChannel(REDUCER, list).from_checkpoint(seed)
    channel.replay_writes([("task", "messages", write) for write in writes])
    expected: list[BaseMessage] = channel.get()
    found = rebuilt(None if seed is None else raw(seed), [raw(write) for write in writes])
    if found is None:
        assert expected == []
    else:
        messages = chat_of(found) or []
        assert [(one.id, one.text) for one in messages] == [(one.id, str(one.content)) for one in expected]


def test_other_delta_channels_are_not_rebuilt() -> None:
    assert rebuilt(None, [["line"]]) is None
    assert rebuilt(raw(_DeltaSnapshot([HumanMessage("a")])), [raw("text")]) is None
