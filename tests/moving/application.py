"""An application in a process of its own, with LangGraph's saver or with ours: `python -m tests.moving.application`.

The arguments are the kind of saver, its URL, and what to do: `serve` threads, those that follow or all, until the
process is killed, or start (`hold`) or answer (`answer`) a run that does not end. It prints a line after each turn, or
when the run holds.
"""

from __future__ import annotations

import operator
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count
from typing import Annotated, Any

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.graph import START, StateGraph
from langgraph.types import Command, interrupt
from typing_extensions import TypedDict

from langgraph_checkpoint_custom import open_saver
from tests.moving.official import Official, config

THREADS = [f"user {number:02}" for number in range(4)]
Holding = Callable[[str, str], None]


class State(TypedDict):
    """What a thread remembers."""

    log: Annotated[list[str], operator.add]


def graph_of(saver: BaseCheckpointSaver[Any], hold: Holding = lambda thread_id, channel: None) -> Any:
    """A graph of two nodes that run at the same time; one of them asks a human if it is told "ask".

    `hold` is called with a thread and a channel to which something was written since the last checkpoint.
    """

    def quick(state: State) -> dict[str, Any]:
        return {"log": [f"quick: {state['log'][-1]}"]}

    def slow(state: State, config: RunnableConfig) -> dict[str, Any]:
        text = state["log"][-1]
        if text == "ask":
            text = interrupt("really?")
            hold(config["configurable"]["thread_id"], "__resume__")
        elif text == "flight":
            hold(config["configurable"]["thread_id"], "log")
        return {"log": [f"slow: {text}"]}

    builder = StateGraph(State)
    for node in (quick, slow):
        builder.add_node(node.__name__, node)
        builder.add_edge(START, node.__name__)
    return builder.compile(checkpointer=saver)


def say(graph: Any, thread_id: str, text: str) -> list[str]:
    """A turn of a thread; returns its log."""
    return list(graph.invoke({"log": [text]}, config(thread_id))["log"])


@contextmanager
def _opened(kind: str, url: str) -> Iterator[BaseCheckpointSaver[Any]]:
    if kind == "ours":
        with open_saver(url) as ours:
            yield ours
    else:
        with Official("sqlite" if url.startswith("sqlite") else "postgres", url).open() as official:
            yield official


def main(kind: str, url: str, what: str, *threads: str) -> None:
    with _opened(kind, url) as saver:

        def hold(thread_id: str, channel: str) -> None:
            while True:  # Until the write is stored, and then until the process is killed.
                found = saver.get_tuple(config(thread_id))
                written = [name for _, name, _ in (found and found.pending_writes) or ()]
                # The checkpoint of the input has writes to the same channel.
                if found and found.metadata["source"] == "loop" and channel in written:
                    print("holds", flush=True)
                    time.sleep(3600)  # The test kills the process.
                time.sleep(0.01)  # Nothing announces that a write is stored.

        if what == "serve":
            graph = graph_of(saver)
            for number in count():
                for thread_id in threads or THREADS:
                    say(graph, thread_id, f"{kind} {number}")
                print(number, flush=True)
                time.sleep(1)  # An application that is used now and then: the test moves its threads between the turns.
        elif what == "hold":
            say(graph_of(saver, hold), "in flight", "flight")
        else:
            graph_of(saver, hold).invoke(Command(resume="yes"), config("asked"))


if __name__ == "__main__":
    main(*sys.argv[1:])
