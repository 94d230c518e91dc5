"""Conversations: messages that are added, replaced and removed."""

from __future__ import annotations

from typing import Annotated, Any, TypedDict

from langchain_core.messages import AIMessage, AnyMessage, HumanMessage, RemoveMessage, ToolMessage
from langgraph.graph import START, StateGraph
from langgraph.graph.message import REMOVE_ALL_MESSAGES, add_messages

from tests.graphs.running import Thread, scenario
from tests.graphs.scenarios.nodes import AnyGraph


class Chat(TypedDict, total=False):
    """Messages, and a summary of earlier ones."""

    messages: Annotated[list[AnyMessage], add_messages]
    summary: str


def answer(state: Any) -> dict[str, Any]:
    """An agent that calls a tool if it is asked for the weather, and answers when it has the result."""
    last = state["messages"][-1]
    if isinstance(last, HumanMessage) and "weather" in last.text:
        call = {"name": "look", "args": {"place": "Zürich"}, "id": f"call {len(state['messages'])}"}
        return {"messages": [AIMessage("", tool_calls=[call], usage_metadata=None)]}
    return {"messages": [AIMessage(f"You said: {last.text}", response_metadata={"model": "none"})]}


def look(state: Any) -> dict[str, Any]:
    """The tool."""
    asked = state["messages"][-1]
    assert isinstance(asked, AIMessage)
    return {"messages": [ToolMessage("sunny", tool_call_id=call["id"], name="look") for call in asked.tool_calls]}


def wants_tool(state: Any) -> str:
    """Whether the agent called the tool."""
    last = state["messages"][-1]
    return "look" if isinstance(last, AIMessage) and last.tool_calls else "__end__"


def agent(schema: type) -> AnyGraph:
    """An agent with a tool."""
    builder: AnyGraph = StateGraph(schema)
    builder.add_node("answer", answer)
    builder.add_node("look", look)
    builder.add_edge(START, "answer")
    builder.add_conditional_edges("answer", wants_tool, ["look", "__end__"])
    builder.add_edge("look", "answer")
    return builder


@scenario
async def a_chat_has_one_message_for_each_id(thread: Thread) -> None:
    graph = thread.graph(agent(Chat))
    state = await graph.invoke({"messages": "hello"})
    first = state.values["messages"]
    assert [message.type for message in first] == ["human", "ai"]
    await thread.pause()
    state = await graph.step_through({"messages": [("user", "how is the weather?")]})
    messages = state.values["messages"]
    assert messages[:2] == first
    assert [message.type for message in messages[2:]] == ["human", "ai", "tool", "ai"]
    await graph.update_state({"messages": [HumanMessage("hello?", id=messages[0].id)]}, "answer")
    await thread.pause()
    state = await graph.invoke({"messages": [HumanMessage("and now?", id="mine")]})
    assert [message.id for message in state.values["messages"]][:7] == [*(m.id for m in messages), "mine"]
    assert state.values["messages"][0].text == "hello?"


@scenario
async def a_chat_forgets_what_was_removed(thread: Thread) -> None:
    def forget(state: Any) -> dict[str, Any]:
        old = state["messages"][:-1]
        removed = [RemoveMessage(id=str(message.id)) for message in old]
        return {"messages": removed, "summary": f"{state.get('summary', '')}{len(removed)} "}

    builder = agent(Chat)
    builder.add_node("forget", forget)
    builder.add_edge("answer", "forget")
    graph = thread.graph(builder)
    await graph.invoke({"messages": ["one", "two"]})
    await thread.pause()
    state = await graph.step_through({"messages": "three"})
    assert [message.text for message in state.values["messages"]] == ["You said: three"]
    assert state.values["summary"] == "2 2 "
    await graph.update_state({"messages": [RemoveMessage(id=REMOVE_ALL_MESSAGES), HumanMessage("new")]}, "forget")
    await thread.pause()
    state = await graph.invoke({"messages": "newer"})
    assert [message.text for message in state.values["messages"]] == ["You said: newer"]
