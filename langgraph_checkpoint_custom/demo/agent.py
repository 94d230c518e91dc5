"""The demo's agent: a real compiled graph, whose model is a stand-in that decides from the state alone."""

from __future__ import annotations

import operator
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, TypeAlias

from langchain_core.runnables import RunnableConfig
from langgraph.channels.delta import DeltaChannel
from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.graph import END, START, StateGraph
from langgraph.graph.state import CompiledStateGraph
from langgraph.types import Send, interrupt
from typing_extensions import TypedDict

Message: TypeAlias = "dict[str, Any]"
Call: TypeAlias = "dict[str, str]"

KILOS = 20
PRICES = {"Aroma": 14, "Barista": 13, "Crema": 12, "Doppio": 15}
# The cheapest supplier: without its result, the agent would order from another one.
SLOW = "Crema"


def extend(messages: list[Message], updates: Sequence[list[Message]]) -> list[Message]:
    """Append what the tasks of a superstep wrote, in order; this is the reducer of the messages."""
    return [*messages, *(message for update in updates for message in update)]


class State(TypedDict, total=False):
    """The state of the agent: three channels of different kinds."""

    messages: Annotated[list[Message], DeltaChannel(extend, snapshot_frequency=3)]
    prices: Annotated[dict[str, int], operator.or_]
    approved: bool


TASK: State = {"messages": [{"by": "user", "text": f"Buy {KILOS} kg of coffee where it is cheapest."}]}

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
        argument = call["argument"]
        if self.journal is not None:
            with self.journal.open("a", encoding="utf-8") as journal:
                journal.write(f"{argument}\n")
        if argument == self.stuck_on:
            print("stuck", flush=True)
            sys.stdin.read()  # Returns only when the parent process has ended, so no child process stays.
            os._exit(1)
        if call["tool"] == "find_suppliers":
            return {"messages": [{"by": "tool", "text": ", ".join(PRICES)}]}
        price = PRICES[argument]
        return {"messages": [{"by": "tool", "text": f"{argument}: {price} EUR"}], "prices": {argument: price}}


def agent(state: State) -> State:
    """Ask for suppliers, then for prices, then for approval; the node of the model, which is a stand-in."""
    last = state["messages"][-1]
    prices = state["prices"]
    calls: list[Call] = []
    if prices:
        best = min(prices, key=prices.__getitem__)
        offer = f"{KILOS} kg from {best} for {KILOS * prices[best]} EUR"
        if last["by"] == "tool":
            text = f"May I order {offer}?"
        else:
            text = f"Ordered {offer}." if state["approved"] else "Nothing was ordered."
    elif last["by"] == "user":
        text = "Who sells coffee?"
        calls = [{"tool": "find_suppliers", "argument": "coffee"}]
    else:
        text = "What does it cost?"
        calls = [{"tool": "get_price", "argument": supplier} for supplier in last["text"].split(", ")]
    return {"messages": [{"by": "agent", "text": text, "calls": calls}]}


def approve(state: State) -> State:
    """Interrupt the graph until a person answers; the node of the approval."""
    answer = interrupt(state["messages"][-1]["text"])
    return {"messages": [{"by": "user", "text": answer}], "approved": answer == "yes"}


def route(state: State) -> list[Send] | str:
    """Return what comes after the agent: its tool calls in parallel, the approval, or the end."""
    last = state["messages"][-1]
    if last["calls"]:
        return [Send("tool", call) for call in last["calls"]]
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
