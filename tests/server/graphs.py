"""The graphs of the tests' servers. They are small, and wait for files that a test creates."""

from __future__ import annotations

import asyncio
import operator
from pathlib import Path
from typing import Annotated, Any, TypedDict

from langchain_core.runnables import RunnableConfig
from langgraph.graph import END, START, StateGraph
from langgraph.types import Send, interrupt

from tests.exactly import difference
from tests.golden.content import VALUES
from tests.graphs.scenarios.deltas import Deltas, writes
from tests.graphs.scenarios.interrupts import asks
from tests.graphs.scenarios.nodes import Log, chain, parallel, says

# Seconds between two checks for a file.
LOOK = 0.02


class Steps(TypedDict, total=False):
    """What was done, in order, and inputs of a test."""

    done: Annotated[list[str], operator.add]
    gate: str
    """A file that the node `second` waits for, after it has made one with `.reached` at its end."""


async def pass_gate(gate: str) -> None:
    """Signal that a gate was reached and wait until it opens; a test that ends without opening it cancels the run."""
    Path(f"{gate}.reached").touch()
    while not Path(gate).exists():
        await asyncio.sleep(LOOK)


def first(state: Steps) -> Steps:
    return {"done": ["first"]}


async def second(state: Steps) -> Steps:
    if gate := state.get("gate"):
        await pass_gate(gate)
    return {"done": ["second"]}


def third(state: Steps) -> Steps:
    return {"done": ["third"]}


_steps = StateGraph(Steps)
_steps.add_sequence([first, second, third])
_steps.add_edge(START, "first")
steps = _steps.compile()


class Many(TypedDict, total=False):
    """How many branches, and their results."""

    branches: int
    sums: Annotated[int, operator.add]


def spread(state: Many) -> list[Send]:
    return [Send("branch", {"branches": number}) for number in range(state["branches"])]


async def branch(state: Many) -> Many:
    await asyncio.sleep(0)  # Lets the others begin.
    return {"sums": state["branches"]}


_many = StateGraph(Many)
_many.add_node("branch", branch)
_many.add_conditional_edges(START, spread, ["branch"])
many = _many.compile()


questions = parallel(Log, age=asks("age"), name=asks("name"), town=asks("town")).compile()
child = chain(Log, ask=asks("child"), thank=says("thanks")).compile()
family = chain(Log, child=child, parent=says("parent")).compile()
deltas = chain(Deltas, one=writes("one", seldom=True), two=writes("two")).compile()


class Values(TypedDict, total=False):
    """A value of every type, and the names of those that were different when read."""

    values: Any
    each: Annotated[list[Any], operator.add]
    different: list[str]


def make(state: Values) -> Values:
    return {"values": dict(VALUES), "each": list(VALUES.values())}


def look(state: Values) -> Values:
    """Runs after an interrupt, so all its input was read from the database."""
    interrupt({"values": "are stored"})
    both = (state["values"], dict(zip(VALUES, state["each"], strict=True)))
    found = [f"{name}: {difference(value, read.get(name))}" for read in both for name, value in VALUES.items()]
    return {
        "different": [each for each in found if not each.endswith(": ")],
        # The client gets JSON, which cannot represent all of them.
        "values": None,
    }


_values = StateGraph(Values)
_values.add_sequence([make, look])
_values.add_edge(START, "make")
values = _values.compile()


class Failing(TypedDict, total=False):
    """Whether to fail."""

    done: Annotated[list[str], operator.add]


def fails(state: Failing, config: RunnableConfig) -> Failing:
    if config["configurable"].get("fail"):
        raise RuntimeError("it was made to fail")
    return {"done": ["in the end"]}


_failing = StateGraph(Failing)
_failing.add_node("begin", lambda state: {"done": ["begin"]})
_failing.add_node("fails", fails)
_failing.add_edge(START, "begin")
_failing.add_edge("begin", "fails")
_failing.add_edge("fails", END)
failing = _failing.compile()
