"""Threads that real graphs have stored, for the inspector to show: `python -m tests.ui.stories URL` makes a store."""

from __future__ import annotations

import operator
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from typing import Annotated, Any
from uuid import UUID

from langchain_core.messages import AIMessage, AnyMessage, HumanMessage, RemoveMessage, SystemMessage, ToolMessage
from langchain_core.runnables import RunnableConfig
from langgraph.channels.delta import DeltaChannel
from langgraph.checkpoint.base import copy_checkpoint
from langgraph.checkpoint.base.id import uuid6
from langgraph.graph import END, START, StateGraph, add_messages
from langgraph.graph.message import _messages_delta_reducer
from langgraph.types import Command, Send, interrupt
from typing_extensions import TypedDict

from langgraph_checkpoint_custom import CheckpointSaver, open_saver
from langgraph_checkpoint_custom.operations.inspector import thread_counts

# What stored text must not do to a page or a terminal: tags, scripts, escapes, marks of direction, invisible letters.
SCRIPT = "<script>document.title = 'owned'</script>"
HOSTILE = (
    f"{SCRIPT}<img src=x onerror=\"document.title='owned'\"> \" ' & {{{{ 77 * 77777 }}}} {{% raw %}}\n"
    "\x1b[31mred\x07 \u202eright to left\u2066 \U000e0041 zero\u200bwidth\u2028new\r"
)
HOSTILE_ID = "<b>bold</b>/../\"'\u202e?#%2F&thread=x"


def tool_calls(*calls: tuple[str, dict[str, Any]], number: int = 1) -> AIMessage:
    """A message of a model that calls tools."""
    made: Any = [
        {"name": name, "args": args, "id": f"call-{number}-{index}", "type": "tool_call"}
        for index, (name, args) in enumerate(calls)
    ]
    return AIMessage("", id=f"ai-{number}", tool_calls=made)


class Chat(TypedDict):
    messages: Annotated[list[AnyMessage], add_messages]
    budget: int


def support(state: Chat) -> Any:
    """A model that looks up an order, asks before it pays money back, and answers."""
    last = state["messages"][-1]
    if isinstance(last, ToolMessage) and last.name == "refund":
        return {"messages": [AIMessage("Done: **129.00 €** are on their way to your card.", id="ai-3")]}
    if isinstance(last, ToolMessage):
        return {"messages": [tool_calls(("refund", {"order": "A-1042", "amount": 129.0}), number=2)]}
    if "again" in str(last.content):
        return {"messages": [AIMessage("Your refund is already on its way.", id="ai-4")]}
    look_up = "look_up", {"order": "A-1042", "fields": ["status", "total"], "history": True}
    return {"messages": [tool_calls(look_up, ("weather", {"city": "Lisbon"}))]}


def tools(state: Chat) -> Any:
    """Runs the tools; the refund asks a human first."""
    results = []
    for call in state["messages"][-1].tool_calls:  # type: ignore[union-attr]
        text = '{"order": "A-1042", "status": "delivered damaged", "total": 129.0}'
        if call["name"] == "refund":
            said = interrupt({"question": "Pay 129.00 € back for order A-1042?", "options": ["yes", "no"]})
            text = f"The human said {said!r}."
        elif call["name"] == "weather":
            text = "Sunny, 24 °C"
        results.append(ToolMessage(text, name=call["name"], tool_call_id=call["id"], id=f"tool-{call['id']}"))
    return {"messages": results, "budget": state.get("budget", 1000) - 129 * len(results)}


def chat_graph(saver: CheckpointSaver) -> Any:
    """A chat with tools."""
    builder = StateGraph(Chat)
    builder.add_node("support", support)
    builder.add_node("tools", tools)
    builder.add_edge(START, "support")
    builder.add_conditional_edges("support", lambda state: "tools" if state["messages"][-1].tool_calls else END)
    builder.add_edge("tools", "support")
    return builder.compile(checkpointer=saver)


def config_of(thread_id: str, run: int = 1, **more: Any) -> RunnableConfig:
    """The config of a run."""
    return {"configurable": {"thread_id": thread_id, "run_id": str(UUID(int=run))}, "metadata": more}


def _again(config: Any, run: int) -> RunnableConfig:
    """The config of a run from a checkpoint."""
    return {"configurable": {**config["configurable"], "run_id": str(UUID(int=run))}}


# One pixel.
PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
PICTURE = f"data:image/png;base64,{PIXEL}"


def chat(saver: CheckpointSaver, thread_id: str = "support-1042", *, answered: bool = True) -> Any:
    """A chat that asked a human; answered, it goes on to its end."""
    graph = chat_graph(saver)
    question: list[Any] = [
        SystemMessage("You help customers of a shop for lamps.", id="system-1"),
        HumanMessage(
            [
                {"type": "text", "text": "My lamp arrived broken. Can I have my money back?"},
                {"type": "image_url", "image_url": {"url": PICTURE}},
            ],
            id="human-1",
        ),
    ]
    graph.invoke({"messages": question, "budget": 1000}, config_of(thread_id, 1, user="ada", topic="refund"))
    if answered:
        graph.invoke(Command(resume="yes"), config_of(thread_id, 2, user="ada", topic="refund"))
    return graph


def forked(saver: CheckpointSaver, thread_id: str = "support-fork") -> None:
    """A chat, with two other ways that it could have gone on, one of which was labelled."""
    graph = chat(saver, thread_id)
    states = list(graph.get_state_history(config_of(thread_id)))
    asked = next(state for state in states if state.interrupts)
    graph.invoke(Command(resume="no, send a new one"), _again(asked.config, 3))
    other: Any = {"messages": [HumanMessage("It is the wrong colour.", id="human-1")]}
    changed = graph.update_state(states[-2].config, other)
    graph.invoke(None, _again(changed, 4))
    saver.label(states[0].config, "the refund that was paid")
    saver.label(asked.config, "before the answer")
    more = {"messages": [HumanMessage("Can you pay it again?", id="human-2")]}
    graph.invoke(more, _again(states[0].config, 5))


class Report(TypedDict):
    topics: list[str]
    notes: Annotated[list[str], operator.add]
    text: str


class Note(TypedDict):
    topic: str
    found: str


def research(saver: CheckpointSaver, thread_id: str = "report") -> None:
    """A graph that sends topics to a subgraph, which asks a human inside."""
    inner = StateGraph(Note)
    inner.add_node("search", lambda state: {"found": f"three sources on {state['topic']}"})

    def check(state: Note) -> Any:
        if state["topic"] == "moths":
            return {"found": state["found"] + ", " + interrupt(f"May we quote the source on {state['topic']}?")}
        return {}

    inner.add_node("check", check)
    inner.add_edge(START, "search")
    inner.add_edge("search", "check")
    subgraph = inner.compile()

    def read(state: Note) -> Any:
        return {"notes": [subgraph.invoke(state)["found"]]}

    builder = StateGraph(Report)
    builder.add_node("plan", lambda state: {"topics": ["lamps", "moths"]})
    builder.add_node("read", read)
    builder.add_node("write", lambda state: {"text": "\n".join(state["notes"])})
    builder.add_edge(START, "plan")
    builder.add_conditional_edges(
        "plan", lambda state: [Send("read", {"topic": topic, "found": ""}) for topic in state["topics"]], ["read"]
    )
    builder.add_edge("read", "write")
    graph = builder.compile(checkpointer=saver)
    graph.invoke({"topics": [], "notes": [], "text": ""}, config_of(thread_id, 1, user="grace"))
    if not thread_id.endswith("waits"):
        graph.invoke(Command(resume="quoted by permission"), config_of(thread_id, 2, user="grace"))


class Log(TypedDict):
    messages: Annotated[Sequence[AnyMessage], DeltaChannel(_messages_delta_reducer, snapshot_frequency=7)]
    lines: Annotated[Sequence[str], DeltaChannel(lambda old, new: [*old, *(x for each in new for x in each)])]
    turns: int


def deltas(saver: CheckpointSaver, thread_id: str = "delta-chat", turns: int = 5) -> Any:
    """A chat in `DeltaChannel`s, in which a message was changed and one removed."""

    def answer(state: Log) -> Any:
        turn = state.get("turns", 0) + 1
        said: list[Any] = [AIMessage(f"Answer {turn}", id=f"a{turn}")]
        if turn == 3:
            said += [HumanMessage("Question 1, put better", id="q1"), RemoveMessage(id="a1")]
        return {"messages": said, "lines": [f"turn {turn}"], "turns": turn}

    builder = StateGraph(Log)
    builder.add_node("answer", answer)
    builder.add_edge(START, "answer")
    graph = builder.compile(checkpointer=saver)
    for turn in range(1, turns + 1):
        asked: Any = {"messages": [HumanMessage(f"Question {turn}", id=f"q{turn}")]}
        graph.invoke(asked, config_of(thread_id, turn))
    return graph


class Steps(TypedDict):
    number: int
    log: str


def failing(saver: CheckpointSaver, thread_id: str = "broken") -> None:
    """A run whose second step failed, and one that was killed in the middle of a superstep."""

    def second(state: Steps) -> Any:
        raise ZeroDivisionError("the price list is empty")

    builder = StateGraph(Steps)
    builder.add_node("first", lambda state: {"number": 1})
    builder.add_node("second", second)
    builder.add_edge(START, "first")
    builder.add_edge("first", "second")
    with suppress(ZeroDivisionError):
        builder.compile(checkpointer=saver).invoke({"number": 0, "log": ""}, config_of(thread_id, 1))


def killed(saver: CheckpointSaver, thread_id: str = "killed") -> None:
    """A run that was killed after one of two tasks of a superstep was done, and was resumed by another run."""
    alive = False

    def right(state: Steps) -> Any:
        if not alive:
            while not getattr(saver.get_tuple(config_of(thread_id)), "pending_writes", None):
                time.sleep(0.01)  # Until the other task is stored.
            raise KeyboardInterrupt
        return {"log": "right"}

    builder = StateGraph(Steps)
    builder.add_node("plan", lambda state: {"number": 1})
    builder.add_node("left", lambda state: {"number": 2})
    builder.add_node("right", right)
    builder.add_edge(START, "plan")
    builder.add_edge("plan", "left")
    builder.add_edge("plan", "right")
    graph = builder.compile(checkpointer=saver)
    with suppress(KeyboardInterrupt):
        graph.invoke({"number": 0, "log": ""}, config_of(thread_id, 1), durability="sync")
    alive = True
    graph.invoke(None, config_of(thread_id, 2), durability="sync")


def long(saver: CheckpointSaver, thread_id: str = "counter", steps: int = 5_000) -> None:
    """Many steps."""
    builder = StateGraph(Steps)
    builder.add_node("count", lambda state: {"number": state["number"] + 1})
    builder.add_edge(START, "count")
    builder.add_conditional_edges("count", lambda state: "count" if state["number"] < steps - 2 else END)
    graph = builder.compile(checkpointer=saver)
    graph.invoke({"number": 0, "log": "x" * 40}, {**config_of(thread_id, 1), "recursion_limit": steps + 10})


def grown(saver: CheckpointSaver, thread_id: str, to: int) -> None:
    """Goes on with a thread until it has so many checkpoints: with copies of its last step, which takes seconds."""
    config: RunnableConfig = {"configurable": {"thread_id": thread_id, "checkpoint_ns": ""}}
    found = saver.get_tuple(config)
    assert found is not None
    for step in range(saver.backend.driver.run(thread_counts(saver.backend.dialect, thread_id)).checkpoints, to):
        version = saver.get_next_version(found.checkpoint["channel_versions"]["number"], None)  # type: ignore[arg-type]
        checkpoint: Any = copy_checkpoint(found.checkpoint) | {"id": str(uuid6(clock_seq=step))}
        checkpoint["channel_versions"] = {**checkpoint["channel_versions"], "number": version}
        metadata: Any = {**found.metadata, "step": step - 1}
        saver.put(config, checkpoint, metadata, {"number": version})
        config = {"configurable": {"thread_id": thread_id, "checkpoint_ns": "", "checkpoint_id": checkpoint["id"]}}


def hostile(saver: CheckpointSaver) -> None:
    """A thread in which everything that a user can name is hostile."""

    class State(TypedDict):
        text: str
        messages: Annotated[list[AnyMessage], add_messages]
        data: Any

    def node(state: State) -> Any:
        interrupt({HOSTILE: [HOSTILE]})

    builder = StateGraph(State)
    builder.add_node("<i>node</i>", node)
    builder.add_edge(START, "<i>node</i>")
    graph = builder.compile(checkpointer=saver)
    messages = [HumanMessage(HOSTILE, name=HOSTILE, id=HOSTILE), tool_calls((HOSTILE, {HOSTILE: HOSTILE}), number=9)]
    values: Any = {"text": HOSTILE, "messages": messages, "data": {HOSTILE: [HOSTILE, {"__proto__": HOSTILE}]}}
    graph.invoke(values, config_of(HOSTILE_ID, 1, note=HOSTILE))
    saver.label({"configurable": {"thread_id": HOSTILE_ID}}, HOSTILE[:60])


def all_stories(saver: CheckpointSaver, *, steps: int = 5_000) -> None:
    """Make all of them, in the order in which they have ended."""
    long(saver, steps=min(steps, 100))
    grown(saver, "counter", steps)
    deltas(saver, "pruned-chat", turns=4)
    saver.prune(["pruned-chat"])
    failing(saver)
    killed(saver)
    deltas(saver)
    research(saver)
    research(saver, "report-that-waits")
    chat(saver)
    hostile(saver)
    forked(saver)
    chat(saver, "support-1043", answered=False)
    chat(saver.for_tenant("acme"), "support-of-acme")


if __name__ == "__main__":
    with open_saver(sys.argv[1]) as opened:
        opened.setup()
        all_stories(opened, steps=int(sys.argv[2]) if len(sys.argv) > 2 else 5_000)
