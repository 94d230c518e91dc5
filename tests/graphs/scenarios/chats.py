"""Conversations: messages that are added, replaced and removed."""

from __future__ import annotations

from typing import Annotated, Any, TypedDict

from langchain_core.messages import AIMessage, AnyMessage, HumanMessage, ToolMessage
from langgraph.graph import START, StateGraph
from langgraph.graph.message import add_messages

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
