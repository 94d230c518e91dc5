"""A worker of the soak, with whichever version is first on the path: `worker.py <package> <url> <name> <seed> <api>`.

It runs turns on its threads until it is killed or a line is read. Everything in a thread's state follows from the
number of its last turn, so whoever reads a thread can check all of it. A line of JSON reports each turn that was
acknowledged, and an error that a caller has to expect. The file is started by its path, so that no other version is
imported.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import sys
import threading
from collections.abc import Iterator
from typing import Annotated, Any, TypedDict

from langchain_core.messages import AIMessage, AnyMessage, HumanMessage, ToolMessage
from langgraph.channels import DeltaChannel
from langgraph.graph import START, StateGraph
from langgraph.graph.message import add_messages
from langgraph.types import Command, interrupt

import langgraph_checkpoint_custom
from langgraph_checkpoint_custom import CheckpointNotFound, RetryableError, open_saver

THREADS = 4
# A fork goes on from a thread after so many turns of the worker.
FORK_EVERY = 7


def extend(state: list[str], writes: Any) -> list[str]:
    """Append lists to a list."""
    return [*state, *(item for write in writes for item in write)]


class State(TypedDict, total=False):
    """What the turns have left; `turn` says what everything else has to be."""

    turn: int
    messages: Annotated[list[AnyMessage], add_messages]
    files: dict[str, str]
    log: Annotated[list[str], DeltaChannel(extend, snapshot_frequency=5)]
    inner: list[int]
    approved: list[int]


class Inner(TypedDict, total=False):
    """The memory of the subgraph."""

    calls: int


def question(turn: int) -> str:
    """What a human asks in a turn."""
    return f"question {turn}"


def is_asked(turn: int) -> bool:
    """Whether a turn needs an approval."""
    return turn % 3 == 0


def file_of(turn: int) -> tuple[str, str]:
    """The file that a turn writes; of ten files, one is rewritten."""
    return f"file {turn % 10}.txt", f"line of {turn}\n" * 400


def expected(turn: int) -> dict[str, Any]:
    """The state after a turn: each channel, with messages as their contents."""
    turns = range(1, turn + 1)
    said = [(question(each), f"call {each}", f"result {each}", f"answer {each}") for each in turns]
    return {
        "turn": turn,
        "messages": [content for each in said for content in each],
        "files": dict(file_of(each) for each in turns),
        "log": [f"turn {each}" for each in turns],
        "approved": [each for each in turns if is_asked(each)],
    }


def found_in(state: dict[str, Any]) -> dict[str, Any]:
    """A state in the form of `expected`."""
    messages = [message.content for message in state.get("messages", ())]
    empty: dict[str, Any] = {"turn": 0, "files": {}, "log": [], "inner": [], "approved": []}
    return {**empty, **state, "messages": messages}


def graph_on(saver: Any) -> Any:
    """A chat with a tool, a subgraph with its own memory, and an approval."""
    remembering: Any = StateGraph(Inner)
    remembering.add_node("count", lambda state: {"calls": state.get("calls", 0) + 1})
    remembering.add_edge(START, "count")
    inner = remembering.compile(checkpointer=True)

    def decide(state: State) -> dict[str, Any]:
        turn = state.get("turn", 0) + 1
        call = {"name": "look", "args": {"turn": turn}, "id": f"call {turn}"}
        return {"messages": [AIMessage(f"call {turn}", id=f"call {turn}", tool_calls=[call])]}

    def look(state: State) -> dict[str, Any]:
        turn = state.get("turn", 0) + 1
        name, text = file_of(turn)
        message = ToolMessage(f"result {turn}", id=f"result {turn}", tool_call_id=f"call {turn}")
        return {"messages": [message], "files": {**state.get("files", {}), name: text}}

    def remember(state: State) -> dict[str, Any]:
        return {"inner": [*state.get("inner", []), inner.invoke({})["calls"]]}

    def approve(state: State) -> dict[str, Any]:
        turn = state.get("turn", 0) + 1
        if is_asked(turn):
            assert interrupt(question(turn)) == "yes"
            return {"approved": [*state.get("approved", []), turn]}
        return {}

    def answer(state: State) -> dict[str, Any]:
        turn = state.get("turn", 0) + 1
        return {"turn": turn, "messages": [AIMessage(f"answer {turn}", id=f"answer {turn}")], "log": [f"turn {turn}"]}

    builder: Any = StateGraph(State)
    last = START
    for node in (decide, look, remember, approve, answer):
        builder.add_node(node.__name__, node)
        builder.add_edge(last, node.__name__)
        last = node.__name__
    return builder.compile(checkpointer=saver)


class OnLoop:
    """The async methods of a graph, on an event loop that runs in an OS thread of its own."""

    def __init__(self, graph: Any) -> None:
        self._graph = graph
        self._loop = asyncio.new_event_loop()
        threading.Thread(target=self._loop.run_forever, daemon=True).start()

    def invoke(self, *arguments: Any, **options: Any) -> Any:
        """`ainvoke`; its nodes run in workers, where the subgraph is called with `invoke`."""
        return self._run(self._graph.ainvoke(*arguments, **options))

    def get_state(self, config: Any) -> Any:
        """`aget_state`."""
        return self._run(self._graph.aget_state(config))

    def _run(self, coroutine: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result()


def play(graph: Any, thread_id: str) -> int:
    """Check a thread, finish the turn that a kill has interrupted, or play the next one; returns its number."""
    config = {"configurable": {"thread_id": thread_id}}
    state = graph.get_state(config)
    turn: int = state.values.get("turn", 0)
    if state.tasks:  # Interrupted inside a turn. `next` leaves out a task whose writes are stored.
        answers = any(task.interrupts for task in state.tasks)
        values = graph.invoke(Command(resume="yes") if answers else None, config, durability="sync")
    else:
        check(thread_id, state.values)
        human = HumanMessage(question(turn + 1), id=question(turn + 1))
        values = graph.invoke({"messages": [human]}, config, durability="sync")
    if graph.get_state(config).next:
        values = graph.invoke(Command(resume="yes"), config, durability="sync")
    check(thread_id, values)
    return turn + 1


def check(thread_id: str, state: dict[str, Any]) -> None:
    """Check that a state is what its turn says."""
    found = found_in(state)
    wanted = expected(found["turn"])
    wrong = [channel for channel, value in wanted.items() if found[channel] != value]
    # A call that was interrupted by a kill is repeated, so the memory of the subgraph may have counted it twice. After
    # a kill right before the call, LangGraph resumes the subgraph's last call instead, and it returns the same number.
    wrong += ["inner"] if found["inner"] != sorted(found["inner"]) or len(found["inner"]) != found["turn"] else []
    assert not wrong, f"{thread_id} after turn {found['turn']}: {wrong}: {[found[each] for each in wrong]!r:.500}"


def turns(saver: Any, graph: Any, name: str, chance: random.Random) -> Iterator[tuple[str, Any, Any]]:
    """Play forever: what to report."""
    for number in range(1, sys.maxsize):
        thread_id = f"{name} {chance.randrange(THREADS)}"
        try:
            yield "turn", thread_id, play(graph, thread_id)
            if number % FORK_EVERY == 0:
                target = f"{name} fork"
                saver.delete_thread(target)
                saver.fork_thread(thread_id, target)
                yield "fork", target, play(graph, target)
        except (RetryableError, CheckpointNotFound) as error:
            yield "error", thread_id, type(error).__name__


def main(package: str, url: str, name: str, seed: str, api: str) -> None:
    """Play until a line is read, with the sync or the async methods."""
    assert langgraph_checkpoint_custom.__file__.startswith(package + os.sep), langgraph_checkpoint_custom.__file__
    stop = threading.Event()

    def listen() -> None:
        sys.stdin.readline()
        stop.set()

    threading.Thread(target=listen, daemon=True).start()
    with open_saver(url) as saver:
        graph = graph_on(saver)
        for report in turns(saver, OnLoop(graph) if api == "async" else graph, name, random.Random(seed)):
            print(json.dumps(report), flush=True)
            if stop.is_set():
                break


if __name__ == "__main__":
    main(*sys.argv[1:])
