"""A graph that fans out round after round, and writes to a file outside of its state what ran."""

from __future__ import annotations

import asyncio
import operator
import os
import time
from collections.abc import Callable, Sequence
from functools import wraps
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Annotated, Any, NamedTuple

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import BaseCheckpointSaver, Checkpoint
from langgraph.graph import END, START, StateGraph
from langgraph.types import Durability, Send
from typing_extensions import TypedDict

from langgraph_checkpoint_custom import CheckpointSaver
from tests.behaviour.helpers import anywhere
from tests.stores import Store

ROUNDS = 4
TOOLS = 4


class State(TypedDict):
    """What has run; each entry is named after its superstep."""

    done: Annotated[list[str], operator.add]


def build(saver: BaseCheckpointSaver[str], journal: Path) -> Any:
    """The graph; each of its tasks adds a line to the journal when it starts."""

    def work(name: str, seconds: float) -> State:
        file = os.open(journal, os.O_CREAT | os.O_APPEND | os.O_WRONLY)
        os.write(file, f"{name}\n".encode())
        os.close(file)
        time.sleep(seconds)  # Work takes time, so that a kill can come during it.
        return {"done": [name]}

    def plan(state: State) -> State:
        return work(f"{superstep(state)} plan", 0.001)

    def tool(name: str) -> State:
        # One after the other, so that at a kill some of them are stored.
        return work(name, 0.005 * int(name[-1]))

    def fan_out(state: State) -> list[Send]:
        return [Send("tool", f"{superstep(state)} tool {number}") for number in range(TOOLS)]

    def again(state: State) -> str:
        return "plan" if superstep(state) < 2 * ROUNDS else END

    builder = StateGraph(State)
    builder.add_node("plan", plan)
    builder.add_node("tool", tool)  # type: ignore[arg-type]  # A `Send` may carry anything.
    builder.add_node("join", lambda state: {})
    builder.add_edge(START, "plan")
    builder.add_conditional_edges("plan", fan_out, ["tool"])
    builder.add_edge("tool", "join")
    builder.add_conditional_edges("join", again, ["plan", END])
    return builder.compile(checkpointer=saver)


def superstep(state: State) -> int:
    """The number of the superstep that comes next, without counting joins."""
    rounds, rest = divmod(len(state["done"]), 1 + TOOLS)
    return 2 * rounds + (rest > 0)


class Stored(NamedTuple):
    """What the saver has acknowledged: a checkpoint, or the writes of a task to it."""

    checkpoint_id: str
    done: list[str] | None


def send_acknowledged(saver: CheckpointSaver, send: Callable[[Stored], None]) -> None:
    """From now on, send what the saver acknowledges."""

    def put(config: RunnableConfig, checkpoint: Checkpoint, *rest: Any) -> Stored:
        return Stored(checkpoint["id"], None)

    def put_writes(config: RunnableConfig, writes: Sequence[tuple[str, Any]], *rest: Any) -> Stored:
        done = [name for channel, names in writes if channel == "done" for name in names]
        return Stored(config["configurable"]["checkpoint_id"], done)

    def wrap(name: str, what: Callable[..., Stored]) -> None:
        method, amethod = getattr(saver, name), getattr(saver, f"a{name}")

        @wraps(method)
        def call(*args: Any) -> Any:
            result = method(*args)
            send(what(*args))
            return result

        @wraps(amethod)
        async def acall(*args: Any) -> Any:
            result = await amethod(*args)
            send(what(*args))
            return result

        setattr(saver, name, call)
        setattr(saver, f"a{name}", acall)

    wrap("put", put)
    wrap("put_writes", put_writes)


def finish_run(saver: CheckpointSaver, durability: Durability, thread_id: str, journal: Path) -> list[str]:
    """Run the graph to its end, from its stored state; returns what has run."""
    graph, config = build(saver, journal), anywhere(thread_id)
    begin: State | None = {"done": []} if saver.get_tuple(config) is None else None
    graph.invoke(begin, config, durability=durability)
    return list(graph.get_state(config).values["done"])


async def afinish_run(saver: CheckpointSaver, durability: Durability, thread_id: str, journal: Path) -> list[str]:
    """Async version of `finish_run`."""
    graph, config = build(saver, journal), anywhere(thread_id)
    begin: State | None = {"done": []} if await saver.aget_tuple(config) is None else None
    await graph.ainvoke(begin, config, durability=durability)
    return list((await graph.aget_state(config)).values["done"])


def run(connection: Connection, store: Store, api: str, durability: Durability, thread_id: str, journal: Path) -> None:
    """Finish a run with one of the APIs, and send what is acknowledged."""
    with store.open() as saver:
        send_acknowledged(saver, connection.send)
        connection.send("ready")
        if api == "sync":
            finish_run(saver, durability, thread_id, journal)
        else:
            asyncio.run(afinish_run(saver, durability, thread_id, journal))
