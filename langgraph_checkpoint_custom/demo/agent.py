"""The demo's agent: a real compiled graph, whose model is a stand-in that decides from the state alone."""

from __future__ import annotations

import operator
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, TypeAlias

from langchain_core.messages import AIMessage, AnyMessage, HumanMessage, ToolMessage
from langchain_core.messages.tool import ToolCall as Call
from langchain_core.messages.tool import tool_call
from langchain_core.runnables import RunnableConfig
from langgraph.channels.delta import DeltaChannel
from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.graph import END, START, StateGraph
from langgraph.graph.state import CompiledStateGraph
from langgraph.types import Send, interrupt
from typing_extensions import TypedDict

KILOS = 20
PRICES = {"Aroma": 14, "Barista": 13, "Crema": 12, "Doppio": 15}
# The cheapest supplier: without its result, the agent would order from another one.
SLOW = "Crema"


def extend(messages: list[AnyMessage], updates: Sequence[list[AnyMessage]]) -> list[AnyMessage]:
    """Append what the tasks of a superstep wrote, in order; this is the reducer of the messages."""
    return [*messages, *(message for update in updates for message in update)]


class State(TypedDict, total=False):
    """The state of the agent: three channels of different kinds."""

    messages: Annotated[list[AnyMessage], DeltaChannel(extend, snapshot_frequency=3)]
    prices: Annotated[dict[str, int], operator.or_]
    approved: bool


# The messages have fixed ids, so that the state of each run is the same.
TASK: State = {"messages": [HumanMessage(f"Buy {KILOS} kg of coffee where it is cheapest.", id="task")]}

Graph: TypeAlias = "CompiledStateGraph[State, None, State, State]"


@dataclass(frozen=True)
class Tools:
    """The tools of the agent.

    Attributes:
        journal: A file to which each call appends a line.
        stuck_on: A supplier that does not answer while the demo's parent process exists.
    """

    journal: Path | None = None
    stuck_on: str | None = None

    def run(self, call: Call) -> State:
        """Run a tool; the node of one tool call."""
        argument = call["args"]["name"]
        if self.journal is not None:
            with self.journal.open("a", encoding="utf-8") as journal:
                journal.write(f"{argument}\n")
        if argument == self.stuck_on:
            print("stuck", flush=True)
            sys.stdin.read()  # Returns only when the parent process has ended, so no child process stays.
            os._exit(1)
        if call["name"] == "find_suppliers":
            return {"messages": [_result(call, ", ".join(PRICES))]}
        price = PRICES[argument]
        return {"messages": [_result(call, f"{argument}: {price} EUR")], "prices": {argument: price}}


def _result(call: Call, content: str) -> AnyMessage:
    return ToolMessage(content, tool_call_id=call["id"], name=call["name"], id=f"result of {call['id']}")


def _call(name: str, argument: str) -> Call:
    return tool_call(name=name, args={"name": argument}, id=f"{name} {argument}")


def agent(state: State) -> State:
    """Ask for suppliers, then for prices, then for approval; the node of the model, which is a stand-in."""
    last = state["messages"][-1]
    prices = state["prices"]
    calls: list[Call] = []
    if prices:
        best = min(prices, key=prices.__getitem__)
        offer = f"{KILOS} kg from {best} for {KILOS * prices[best]} EUR"
        if isinstance(last, ToolMessage):
            text = f"May I order {offer}?"
        else:
            text = f"Ordered {offer}." if state["approved"] else "Nothing was ordered."
    elif isinstance(last, HumanMessage):
        text = "Who sells coffee?"
        calls = [_call("find_suppliers", "coffee")]
    else:
        text = "What does it cost?"
        calls = [_call("get_price", supplier) for supplier in str(last.content).split(", ")]
    return {"messages": [AIMessage(text, tool_calls=calls, id=f"answer {len(state['messages'])}")]}


def approve(state: State) -> State:
    """Interrupt the graph until a person answers; the node of the approval."""
    answer = interrupt(state["messages"][-1].content)
    return {"messages": [HumanMessage(answer, id="approval")], "approved": answer == "yes"}


def route(state: State) -> list[Send] | str:
    """Return what comes after the agent: its tool calls in parallel, the approval, or the end."""
    last = state["messages"][-1]
    if isinstance(last, AIMessage) and last.tool_calls:
        return [Send("tool", call) for call in last.tool_calls]
    return "approve" if "approved" not in state else END


def build_graph(saver: BaseCheckpointSaver[Any], tools: Tools | None = None) -> Graph:
    """Compile the agent's graph with a saver."""
    builder = StateGraph(State)
    builder.add_node("agent", agent)
    # A `Send` may have any argument, but the type of `add_node` demands a state.
    builder.add_node("tool", (tools or Tools()).run)  # type: ignore[arg-type]
    builder.add_node("approve", approve)
    builder.add_edge(START, "agent")
    builder.add_conditional_edges("agent", route, ["tool", "approve", END])
    builder.add_edge("tool", "agent")
    builder.add_edge("approve", "agent")
    return builder.compile(checkpointer=saver)


def of_thread(thread_id: str) -> RunnableConfig:
    """Return the config of a thread."""
    return {"configurable": {"thread_id": thread_id}}
