"""A graph that continues round after round, and its state after each number of rounds.

All threads run the same graph. Each thread's name is in its values, which would reveal values of another thread;
the computation does not depend on it, so one run in memory determines the state of every thread.
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import sha256
from typing import Annotated, Any, TypedDict

from langchain_core.messages import AIMessage, AnyMessage, HumanMessage, RemoveMessage
from langgraph.channels import DeltaChannel
from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import END, START, StateGraph
from langgraph.graph.message import add_messages
from langgraph.types import Command, Send, StateSnapshot, interrupt

from tests.behaviour.helpers import anywhere

TOOLS = 3
# How many rounds are retained, so that the state does not grow.
RETAINED = 10
# A word that is in no name.
NAME = "~somebody~"


def keep_last(state: list[str], writes: Sequence[list[str]]) -> list[str]:
    """Append lists to a list, and keep its end."""
    return [*state, *(item for write in writes for item in write)][-RETAINED * TOOLS :]


class State(TypedDict, total=False):
    """What the last rounds did, and a digest of all rounds."""

    name: str
    round: int
    messages: Annotated[list[AnyMessage], add_messages]
    done: Annotated[list[str], DeltaChannel(keep_last, snapshot_frequency=7)]
    digest: str


class Call(TypedDict):
    """The input of a tool."""

    name: str
    words: str


def build(saver: BaseCheckpointSaver[Any]) -> Any:
    """The graph; every third round ends with an interrupt."""

    def plan(state: State) -> State:
        old: list[AnyMessage | RemoveMessage] = [
            RemoveMessage(str(message.id)) for message in state.get("messages", ())[: -2 * RETAINED]
        ]
        new = HumanMessage(f"{state['name']} {state['round']}", id=f"plan {state['round']}")
        return {"messages": [*old, new]}  # type: ignore[list-item]  # `add_messages` takes them.

    def fan_out(state: State) -> list[Send]:
        name, number = state["name"], state["round"]
        return [Send("tool", {"name": name, "words": f"{number} {tool}"}) for tool in range(TOOLS)]

    def tool(call: Call) -> State:
        return {"done": [f"{call['name']} {call['words']} {'long ' * 100}"]}

    def join(state: State) -> State:
        text = f"{state.get('digest')} {state['done']} {state['messages'][-1].text}".replace(state["name"], "")
        return {"digest": sha256(text.encode()).hexdigest()}

    def ask(state: State) -> State:
        answer = interrupt(f"{state['name']} {state['round']}") if state["round"] % 3 == 0 else "no question"
        return {"messages": [AIMessage(answer, id=f"answer {state['round']}")]}

    builder: StateGraph[Any, Any, Any, Any] = StateGraph(State)
    for node in (plan, join, ask):
        builder.add_node(node)
    builder.add_node("tool", tool)  # type: ignore[arg-type]  # A `Send` may carry anything.
    builder.add_edge(START, "plan")
    builder.add_conditional_edges("plan", fan_out, ["tool"])
    builder.add_edge("tool", "join")
    builder.add_edge("join", "ask")
    builder.add_edge("ask", END)
    return builder.compile(checkpointer=saver)


def next_input(state: StateSnapshot, name: str) -> Any:
    """The input that continues from a state, whatever ended the previous run."""
    if any(task.interrupts and task.result is None for task in state.tasks):
        return Command(resume=f"{name} answers {state.values['round']}")
    if not between_rounds(state):
        return None
    return {"name": name, "round": state.values.get("round", 0) + 1}


def between_rounds(state: StateSnapshot) -> bool:
    """Whether nothing is left to do; `state.next` alone may be empty earlier, since it omits tasks that are stored."""
    return not state.tasks


def plain(state: StateSnapshot, name: str) -> str:
    """The state as text, without the name."""
    return repr(sorted(state.values.items())).replace(name, NAME)


def expected(rounds: int) -> list[str]:
    """The state after each round, in memory."""
    graph = build(InMemorySaver())
    found = [plain(graph.get_state(anywhere()), NAME)]
    while len(found) <= rounds:
        graph.invoke(next_input(graph.get_state(anywhere()), NAME), anywhere())
        state = graph.get_state(anywhere())
        if between_rounds(state):
            found.append(plain(state, NAME))
    return found
