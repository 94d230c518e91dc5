"""`threads`, `show` and `diff` show chats as chats: stored ones, rebuilt ones, and those of other frameworks."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Annotated, Any

from langchain_core.messages import AIMessage, AnyMessage, HumanMessage, RemoveMessage, ToolMessage
from langgraph.channels.delta import DeltaChannel
from langgraph.graph import START, StateGraph
from langgraph.graph.message import _messages_delta_reducer
from langgraph.types import interrupt
from typing_extensions import TypedDict

from langgraph_checkpoint_custom.adapters.sessions import SessionCheckpoint, SessionStore
from tests.behaviour.helpers import id_of, metadata
from tests.cli.conftest import Cli
from tests.cli.test_reading import put
from tests.needs import need

CALL: Any = {"name": "price", "args": {"of": "Crema", "n": 2}, "id": "c"}
CHAT = [
    HumanMessage("Buy coffee", id="1"),
    AIMessage("", tool_calls=[CALL], id="2"),
    ToolMessage("12 EUR", tool_call_id="c", id="3"),
]


def squeezed(text: str) -> str:
    """A text with single blanks."""
    return " ".join(text.split())


class Chat(TypedDict):
    messages: Annotated[list[AnyMessage], DeltaChannel(_messages_delta_reducer)]
    other: Annotated[list[str], DeltaChannel(lambda old, new: old + [each for one in new for each in one])]


def grow(cli: Cli, thread_id: str, answers: list[Any], *, question: str | None = None) -> None:
    """A run of a graph whose messages are the writes of a `DeltaChannel`."""
    left = list(answers)

    def answer(state: Any) -> Any:
        if question is not None:
            return {"messages": [HumanMessage(interrupt({"question": question}))]}
        return {"messages": [left.pop(0)], "other": ["x"]}

    builder: Any = StateGraph(Chat)
    builder.add_node("answer", answer)
    builder.add_edge(START, "answer")
    with cli.store.open() as saver:
        graph = builder.compile(checkpointer=saver)
        for _ in answers or [None]:
            graph.invoke({"messages": [HumanMessage("hi", id="h")]}, {"configurable": {"thread_id": thread_id}})


def test_a_thread_shows_its_question_its_last_message_or_its_state(cli: Cli) -> None:
    with cli.store.open() as saver:
        put(saver, "state", meta=metadata(1, team="a"), number=5, text="x" * 500, none=None, **{"branch:to:a": None})
        put(saver, "chat", meta=metadata(1, user="ann"), messages=[*CHAT, AIMessage("May I?\n\nReally")], plan=["a"])
        put(saver, "call", messages=CHAT[:2])
    grow(cli, "delta", [AIMessage("hello")])
    grow(cli, "asks", [], question="Really?")
    rows = {line.split()[0]: line for line in cli("threads", "--utc").splitlines() if line.strip()}
    assert squeezed(rows["thread"]) == "thread state newest (UTC) user last message checkpoints size"
    assert "number: 5, text: xxx" in rows["state"]
    assert "branch" not in rows["state"]
    assert " ann " in rows["chat"]
    assert "ai: May I? Really" in rows["chat"]
    assert "ai: calls price" in rows["call"]
    assert "ai: hello" in rows["delta"]
    assert "asks: Really?" in rows["asks"]
    rows = {line.split()[0]: line for line in cli("threads", "--utc", "--columns", "team").splitlines()[1:-1]}
    assert squeezed(rows["thread"]) == "thread state newest (UTC) team last message checkpoints size"
    assert " a " in rows["state"]
    assert {one["thread_id"]: one["last"] for one in cli.json("threads")["threads"]}["delta"] == "ai: hello"


def test_show_prints_a_chat_as_a_chat(cli: Cli) -> None:
    image: Any = [{"type": "text", "text": "look"}, {"type": "image_url", "image_url": "data:image/png;base64,AAAA"}]
    failed = ToolMessage("no such coffee", tool_call_id="c", status="error")
    with cli.store.open() as saver:
        put(saver, "1", messages=[*CHAT, failed, HumanMessage(image, name="ann")], number=1)
        put(saver, "long", messages=[HumanMessage(f"message {n}\n" + "line\n" * 50) for n in range(30)])
    text = cli("show", "1")
    assert "messages: 5 messages\n  human   Buy coffee\n  ai      calls price(of='Crema', n=2)\n" in text
    assert (
        "  tool    12 EUR\n  tool    no such coffee\n  human ann look\n          [image: image/png, 3 bytes]\n" in text
    )
    assert "number   int" in text
    assert "HumanMessage" not in text
    assert "langchain_core.messages.human.HumanMessage" in str(cli.json("show", "1")["state"])
    text = cli("show", "long")
    assert "10 earlier messages; see --full" in text
    assert "44 more lines; see --full" in text
    assert "message 9\n" not in text
    text = cli("show", "long", "--full")
    assert "message 0\n" in text
    assert "--full" not in text


def test_show_and_diff_rebuild_messages_as_langgraph_does(cli: Cli) -> None:
    grow(cli, "1", [AIMessage("one", id="a"), AIMessage("two", id="a"), RemoveMessage(id="h")])
    found = cli.json("show", "1")
    assert found["not_stored_here"] == ["messages", "other"]
    text = cli("show", "1")
    assert (
        "messages: 1 message, rebuilt from nothing and 6 writes of earlier steps, by LangGraph's rule\n  ai      two\n"
        in text
    )
    assert "other: a DeltaChannel: its reducer, which only the application knows" in text
    newest, *_, first = cli.json("history", "1")["checkpoints"]
    text = cli("diff", "--thread", "1", first["checkpoint_id"], newest["checkpoint_id"])
    assert "messages: 1 added\n+ ai      two\n" in text
    assert "other: not compared: a DeltaChannel: " in text
    assert "The states are the same." in cli("diff", "1", "1")


def test_diff_shows_messages_and_lines(cli: Cli) -> None:
    with cli.store.open() as saver:
        first = put(saver, "1", messages=CHAT, plan="one\ntwo\nthree\nfour\nfive\nsix", number=1, same=[1])
        after = [CHAT[0], ToolMessage("13 EUR\nor less", tool_call_id="c", id="3"), AIMessage("May I?", id="4")]
        last = put(
            saver, "1", first, messages=after, plan="one\ntwo\nthree\nfour\n5\nsix", number=2, same=[1], chat=CHAT
        )
        put(saver, "2", messages=[HumanMessage("Buy coffee", id="1", response_metadata={"a": 1}), *CHAT[1:]])
        put(saver, "3", messages=CHAT)
    text = cli("diff", "--thread", "1", id_of(first), id_of(last))
    assert "messages: 1 removed, 1 changed, 1 added\n- ai      calls price(of='Crema', n=2)\n~ tool 3\n" in text
    assert "  -12 EUR\n  +13 EUR\n  +or less\n+ ai      May I?\n" in text
    assert "plan: changed\n  …\n   three\n   four\n  -five\n  +5\n   six\n" in text
    assert "chat: 3 added\n" in text
    assert "  number: 1 is now 2\n" in text
    assert "same" not in text
    assert "more.response_metadata: nothing is now {'a': 1}" in cli("diff", "3", "2")
    assert cli.json("diff", "3", "2")["same"] is False
    assert cli("diff", "3", "3") == "The states are the same.\n"


def test_sessions_are_shown_as_chats(cli: Cli) -> None:
    with cli.store.open() as saver:
        messages: Any = [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "hello"}]
        SessionStore(saver, "acme").save(SessionCheckpoint("chat", 1, messages, {"todos": ["one"]}))
    shown = r"\x1esession/acme/chat"
    assert "messages: 2 messages, the chat of a session thread\n  human   hi\n  ai      hello\n" in cli("show", shown)
    (line,) = (line for line in cli("threads").splitlines() if "acme" in line)
    assert squeezed(line).startswith(rf"{shown} session ")
    assert "ai: hello" in line


def test_cubeloops_messages_are_shown_without_an_option(cli: Cli) -> None:
    need(find_spec("cubeloop"), "the extra cubeloop")
    import asyncio

    from cubeloop.providers.base import AssistantMessage, TextContent, ToolCall, ToolResultMessage, UserMessage

    from langgraph_checkpoint_custom.adapters.cubeloop import CubeLoopCheckpointer

    chat: Any = [
        UserMessage(content=[TextContent(text="Buy coffee")]),
        AssistantMessage(content=[TextContent(text="ok"), ToolCall(id="c", name="price", arguments={"of": "Crema"})]),
        ToolResultMessage(tool_call_id="c", tool_name="price", content=[TextContent(text="12 EUR")]),
    ]
    with cli.store.open() as saver:
        asyncio.run(CubeLoopCheckpointer(saver).append("1", chat))
    text = cli("show", r"\x1ecubeloop/1")
    assert "messages: 3 messages, the chat of a cubeloop thread\n  human   Buy coffee\n" in text
    assert "\n  ai      ok\n          calls price(of='Crema')\n" in text
    assert "  tool    12 EUR\n" in text
    assert "tool: 12 EUR" in cli("threads")


def test_pydantic_deeps_messages_are_shown_without_an_option(cli: Cli) -> None:
    need(find_spec("pydantic_deep"), "the extra pydantic-deep")
    import asyncio
    from datetime import datetime, timezone

    from pydantic_ai.messages import ModelRequest, ModelResponse, TextPart, ToolCallPart, ToolReturnPart, UserPromptPart
    from pydantic_deep.features.checkpointing import Checkpoint

    from langgraph_checkpoint_custom.adapters.pydantic_deep import DeepCheckpointStore

    chat: Any = [
        ModelRequest(parts=[UserPromptPart("Buy coffee")]),
        ModelResponse(parts=[TextPart("ok"), ToolCallPart("price", {"of": "Crema"}, tool_call_id="c")]),
        ModelRequest(parts=[ToolReturnPart("price", {"eur": 12}, tool_call_id="c")]),
    ]
    with cli.store.open() as saver:
        checkpoint = Checkpoint("id", "label", 1, chat, 3, datetime.now(timezone.utc), {})
        asyncio.run(DeepCheckpointStore(saver, "1").save(checkpoint))
    text = cli("show", r"\x1epydantic-deep/1")
    assert "messages: 3 messages, the chat of a pydantic-deep thread\n  human   Buy coffee\n" in text
    assert "\n  ai      ok\n          calls price(of='Crema')\n" in text
    assert '  tool    {"eur": 12}\n' in text
