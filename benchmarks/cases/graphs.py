"""A real graph: what a superstep costs more than in memory, and what it costs to continue a long thread."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from functools import partial
from itertools import chain, count
from typing import Annotated, Any, TypedDict

from langchain_core.messages import AIMessage, AnyMessage, HumanMessage
from langchain_core.runnables import RunnableConfig, RunnableLambda
from langgraph.channels import DeltaChannel
from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, StateGraph
from langgraph.graph.message import add_messages
from langgraph.types import Command, Durability, interrupt

from benchmarks.cases import Arena, case
from benchmarks.contestants import Contestant
from benchmarks.measuring import Entry, Figures, Lap, race
from benchmarks.states import prose


class State(TypedDict, total=False):
    """A conversation to which each step adds a message."""

    messages: Annotated[list[AnyMessage], add_messages]
    count: Annotated[int, operator.add]


def _longer(messages: list[AnyMessage], new: Sequence[list[AnyMessage]]) -> list[AnyMessage]:
    return [*messages, *chain.from_iterable(new)]


class DeltaState(TypedDict, total=False):
    """The same, but most steps store only what is added."""

    messages: Annotated[list[AnyMessage], DeltaChannel(_longer)]
    count: Annotated[int, operator.add]


def build(saver: BaseCheckpointSaver[Any], steps: int, schema: type = State) -> Any:
    """A graph that takes `steps` steps and then asks, again and again."""

    def work(state: Any) -> State:  # Of either schema.
        return {"messages": [AIMessage(prose(200))], "count": 1}

    async def awork(state: Any) -> State:
        return work(state)

    def ask(state: Any) -> State:
        answer = interrupt("go on?")
        return {"messages": [AIMessage(answer)], "count": 1}

    builder: StateGraph[Any, Any, Any, Any] = StateGraph(schema)
    # It runs on the event loop of the graph; a plain function would run on an OS thread there.
    builder.add_node("work", RunnableLambda(work, awork))
    builder.add_node("ask", ask)
    builder.add_edge(START, "work")
    builder.add_conditional_edges("work", lambda state: "ask" if state["count"] >= steps else "work", ["work", "ask"])
    builder.add_edge("ask", "ask")
    return builder.compile(checkpointer=saver)


def config(thread_id: str) -> RunnableConfig:
    """The config of a thread, for a run of any length."""
    return {"configurable": {"thread_id": thread_id}, "recursion_limit": 100_000}


def begin() -> Any:
    """The first input of a thread."""
    return {"messages": [HumanMessage("begin")], "count": 0}


async def invoke(saver: Contestant, graph: Any, input: Any, thread: str, durability: Durability) -> None:
    """Run it up to the interrupt."""
    if saver.api == "async":
        await graph.ainvoke(input, config(thread), durability=durability)
    else:
        graph.invoke(input, config(thread), durability=durability)


async def watched(saver: Contestant, graph: Any, input: Any, thread: str, durability: Durability) -> None:
    """The same, but given up if it hangs; it is short."""
    with saver.watched():
        await invoke(saver, graph, input, thread, durability)


async def superstep(arena: Arena, name: str, *, durability: Durability, schema: type = State) -> None:
    """A run on a new thread, minus its time in memory, per superstep."""
    steps = arena.size(30, 12)
    numbers = count()

    def lap_of(saver: Contestant) -> Lap:
        graph = build(saver.saver, steps, schema)

        def lap(_: int) -> Any:
            thread = f"{arena.thread(name, saver.name)}, {next(numbers)}"
            return watched(saver, graph, begin(), thread, durability)

        return lap

    memory = Contestant("memory", "floor", arena.api, InMemorySaver())
    savers = arena.savers(straight=True)
    entries = [Entry(saver.name, saver.role, lap_of(saver)) for saver in (*savers, memory)]
    *figures, floor = await race(entries, laps=arena.size(20, 12), seconds=1.6 if arena.quick else 6, warm=2)

    async def checks(saver: Contestant, each: Figures) -> None:
        thread = f"{arena.thread(name, saver.name)}, last"
        await lap_checked(saver, thread)

    async def lap_checked(saver: Contestant, thread: str) -> None:
        graph = build(saver.saver, steps, schema)
        await invoke(saver, graph, begin(), thread, durability)
        of = graph.aget_state(config(thread)) if saver.api == "async" else graph.get_state(config(thread))
        values = (await of if saver.api == "async" else of).values
        assert (len(values["messages"]), values["count"]) == (steps + 1, steps), "the run is not as it was"

    await arena.check(figures, checks)
    for each in figures:
        each.samples = [(mine - least) / steps for mine, least in zip(each.samples, floor.samples, strict=False)]
    in_memory = (floor.median or 0) / steps * 1000
    arena.record(name, figures, note=f"{steps} supersteps; in memory {in_memory:.2f} ms each")


async def resume(arena: Arena, name: str, *, steps: int) -> None:
    """Answer the interrupt of a thread with `steps` supersteps, up to the next one."""
    if name not in arena.location.filled:
        async with arena.location.fillers() as fillers:
            for filler in fillers:
                await invoke(filler, build(filler.saver, steps), begin(), name, "sync")
        arena.location.filled[name] = True

    def lap_of(saver: Contestant) -> Lap:
        graph = build(saver.saver, steps)
        return lambda number: watched(saver, graph, Command(resume=f"{saver.name} {number}"), name, "sync")

    figures = await arena.race(lap_of, laps=arena.size(20, 8), seconds=4, warm=2)

    async def checks(saver: Contestant, each: Figures) -> None:
        values = (await saver.get(name)).checkpoint["channel_values"]
        found = {message.text for message in values["messages"]}
        assert {f"{saver.name} {number}" for number in range(len(each.samples))} <= found, "answers are missing"
        assert values["count"] == len(values["messages"]) - 1

    await arena.check(figures, checks)
    arena.record(name, figures)


DURABILITIES: list[Durability] = ["sync", "async", "exit"]

CASES = [
    *(
        case(f"superstep, durability {durability}", partial(superstep, durability=durability))
        for durability in DURABILITIES
    ),
    *(
        case(f"superstep, delta, durability {durability}", partial(superstep, durability=durability, schema=DeltaState))
        for durability in DURABILITIES
    ),
    *(
        case(f"resume {steps:,} supersteps", partial(resume, steps=steps), quick=steps < 1000)
        for steps in (10, 250, 1000)
    ),
]
