"""The graphs of the tests' servers. They are small, and wait for files that a test creates."""

from __future__ import annotations

import asyncio
import operator
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, TypedDict

from langchain_core.runnables import RunnableConfig
from langgraph.channels import DeltaChannel
from langgraph.graph import END, START, StateGraph
from langgraph.types import Send, interrupt

from tests.exactly import difference
from tests.golden.content import VALUES

# Seconds between two checks for a file.
LOOK = 0.02


class Log(TypedDict, total=False):
    """What was done, in order, and inputs of a test."""

    done: Annotated[list[str], operator.add]
    gate: str
    """A file that the node `second` waits for, after it has made one with `.reached` at its end."""


async def pass_gate(gate: str) -> None:
    """Signal that a gate was reached and wait until it opens; a test that ends without opening it cancels the run."""
    Path(f"{gate}.reached").touch()
    while not Path(gate).exists():
        await asyncio.sleep(LOOK)


def first(state: Log) -> Log:
    return {"done": ["first"]}


async def second(state: Log) -> Log:
    if gate := state.get("gate"):
        await pass_gate(gate)
    return {"done": ["second"]}


def third(state: Log) -> Log:
    return {"done": ["third"]}


_steps = StateGraph(Log)
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


class Answers(TypedDict, total=False):
    """The answers of people."""

    said: Annotated[list[str], operator.add]


def asks(question: str) -> Any:
    def node(state: Answers) -> Answers:
        return {"said": [f"{question} {interrupt(question)}"]}

    return node


_questions = StateGraph(Answers)
for name in ("age", "name", "town"):
    _questions.add_node(name, asks(name))
    _questions.add_edge(START, name)
questions = _questions.compile()


_child = StateGraph(Answers)
_child.add_node("ask", asks("child"))
_child.add_node("thank", lambda state: {"said": ["thanks"]})
_child.add_edge(START, "ask")
_child.add_edge("ask", "thank")

_family = StateGraph(Answers)
_family.add_node("child", _child.compile())
_family.add_node("parent", lambda state: {"said": [f"parent heard {len(state['said'])}"]})
_family.add_edge(START, "child")
_family.add_edge("child", "parent")
family = _family.compile()


def extend(state: list[str], writes: Sequence[list[str]]) -> list[str]:
    """Append lists to a list."""
    return [*state, *(item for write in writes for item in write)]


class Deltas(TypedDict, total=False):
    """A log with a snapshot at every third write, one without a snapshot for a long time, and a plain channel."""

    log: Annotated[list[str], DeltaChannel(extend, snapshot_frequency=3)]
    seldom: Annotated[list[str], DeltaChannel(extend, snapshot_frequency=100)]
    turns: Annotated[int, operator.add]


_deltas = StateGraph(Deltas)
_deltas.add_node("one", lambda state: {"log": [f"one {len(state['log'])}"]})
_deltas.add_node("two", lambda state: {"log": ["two"], "seldom": [f"two {len(state['log'])}"], "turns": 1})
_deltas.add_edge(START, "one")
_deltas.add_edge("one", "two")
deltas = _deltas.compile()


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
