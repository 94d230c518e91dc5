"""Messages that are restored from their fields equal what their class makes of the same bytes, and what was stored."""

from __future__ import annotations

from typing import Any

import ormsgpack
import pytest
from langchain_core.documents import Document
from langchain_core.messages import (
    AIMessage,
    AIMessageChunk,
    ChatMessage,
    FunctionMessage,
    HumanMessage,
    RemoveMessage,
    SystemMessage,
    ToolMessage,
)
from langchain_core.messages.tool import ToolCall, tool_call_chunk
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer

from langgraph_checkpoint_custom.encoding.extensions import PYDANTIC_2, UnreadableValue
from langgraph_checkpoint_custom.encoding.serde import exact_serializer

OFFICIAL = JsonPlusSerializer(allowed_msgpack_modules=None)
OURS = exact_serializer(OFFICIAL)
CALL = ToolCall(name="add", args={"a": [1, {"b": 2.5}]}, id="call 1", type="tool_call")
USAGE: Any = {"input_tokens": 1, "output_tokens": 2, "total_tokens": 3, "input_token_details": {"cache_read": 1}}

EXAMPLES = [
    HumanMessage("hello", id="1", name="ann"),
    HumanMessage([{"type": "text", "text": "hello"}, "there"], additional_kwargs={"k": [1, [2, 3]]}),
    AIMessage("hi", tool_calls=[CALL], usage_metadata=USAGE, response_metadata={"model": "m", "at": None}),
    AIMessage("", additional_kwargs={"tool_calls": [{"id": "1", "function": {"name": "f", "arguments": "{}"}}]}),
    AIMessage(
        "", invalid_tool_calls=[{"name": "f", "args": "{", "id": "1", "error": "no", "type": "invalid_tool_call"}]
    ),
    AIMessageChunk(
        content="h", tool_call_chunks=[tool_call_chunk(name="f", args='{"a":', id="1", index=0)], chunk_position="last"
    ),
    SystemMessage("be kind"),
    ToolMessage("3", tool_call_id="call 1", artifact={"raw": [b"bytes", {1, 2}]}, status="error"),
    FunctionMessage(content="3", name="add"),
    ChatMessage(content="hello", role="friend"),
    RemoveMessage("1"),
    Document("text", id="1", metadata={"source": "x", "tags": ["a"]}),
]


def fields(made: Any) -> tuple[Any, ...]:
    """Everything that pydantic stores in an object, with the order of its fields."""
    return (
        list(made.__dict__.items()),
        made.__pydantic_fields_set__,
        made.__pydantic_extra__,
        made.__pydantic_private__,
        repr(made),
    )


@pytest.mark.parametrize("message", EXAMPLES, ids=lambda message: type(message).__name__)
def test_a_message_is_read_as_its_class_makes_it_whoever_has_written_it(message: Any) -> None:
    for stored in (OFFICIAL.dumps_typed(message), OURS.dumps_typed(message)):
        theirs, ours = OFFICIAL.loads_typed(stored), OURS.loads_typed(stored)
        assert (type(ours), ours) == (type(theirs), theirs) == (type(message), message)
    assert fields(ours) == fields(message)
    stored = OFFICIAL.dumps_typed(message)
    assert fields(OURS.loads_typed(stored)) == fields(OFFICIAL.loads_typed(stored))


@pytest.mark.parametrize("message", EXAMPLES, ids=lambda message: type(message).__name__)
def test_a_restored_message_can_be_used_and_changed_like_any_other(message: Any) -> None:
    ours = OURS.loads_typed(OURS.dumps_typed([message, message]))
    assert ours[0].model_dump() == message.model_dump()
    assert ours[0].model_copy(deep=True) == message
    with pytest.raises(ValueError, match="validation error"):
        type(message).model_validate({**ours[0].model_dump(), "type": "other"})
    ours[0].id = "other"
    assert "id" in ours[0].__pydantic_fields_set__
    assert ours[1] == message


def test_chunks_can_be_added() -> None:
    first, second = AIMessageChunk(content="a", id="1"), AIMessageChunk(content="b", id="1")
    stored = OURS.loads_typed(OURS.dumps_typed([first, second]))
    assert stored[0] + stored[1] == first + second


def test_fields_that_the_class_would_refuse_or_change_are_read_as_they_were_stored() -> None:
    """A node may put values into a message that validation refuses, drops or converts. They must not be lost."""
    message = AIMessage("text", additional_kwargs={"tool_calls": [{"function": {"name": "f", "arguments": "{}"}}]})
    message.tool_calls = []
    message.response_metadata = None  # type: ignore[assignment]
    assert OURS.loads_typed(OURS.dumps_typed(message)) == message


def test_a_field_that_the_class_did_not_have_gets_its_default_and_one_that_it_has_no_more_is_an_error() -> None:
    message = HumanMessage("x", id="1")
    stored = ["langchain_core.messages.human", "HumanMessage", message.__dict__, ["content", "id"]]
    older = {name: value for name, value in message.__dict__.items() if name != "name"}
    restored = OURS.loads_typed(packed(*stored[:2], older, stored[3]))
    assert fields(restored) == fields(message)
    with pytest.raises(UnreadableValue, match="has no field gone"):
        OURS.loads_typed(packed(*stored[:2], {**message.__dict__, "gone": 1}, stored[3]))


def packed(*content: Any) -> tuple[str, bytes]:
    return "msgpack", ormsgpack.packb(ormsgpack.Ext(PYDANTIC_2, ormsgpack.packb(content)))
