"""Random graphs with long names have the same history as with LangGraph's own savers.

The graphs nest, join many nodes, send tasks to subgraphs, stop in them, and have nodes with any name that LangGraph
accepts. PostgreSQL can hold all of these names: they are short, or repeat themselves.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Annotated, Any, Literal, NamedTuple, TypedDict

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.graph import START, StateGraph
from langgraph.types import Send

from tests.graphs.plain import plain_checkpoints
from tests.graphs.running import Durability, Stored, Thread, in_memory, play
from tests.graphs.scenarios.nodes import AnyGraph, says
from tests.stores import Store

Shape = Literal["chain", "parallel", "join", "send"]


class Recipe(NamedTuple):
    """A graph: the names of its nodes, and the graph that the first of them is, if any.

    `memory` is whether that graph has a memory of its own if it can, `stops` whether it stops before each of its nodes.
    """

    shape: Shape
    names: Sequence[str]
    inner: Recipe | None
    memory: bool
    stops: bool


# Not the two characters that LangGraph reserves, and not NUL, which no database stores in a key.
CHARACTERS = st.characters(exclude_categories=["Cs"], exclude_characters="|:\0")
NAMES = st.builds(
    lambda text, times: text * times,
    st.text(CHARACTERS, min_size=1, max_size=12) | st.text("node_", min_size=1, max_size=24),
    st.sampled_from([1, 1, 2, 30, 100]),
).filter(lambda name: name != "log" and not name.startswith("__"))


@st.composite
def recipes(draw: st.DrawFn) -> Recipe:
    shapes: Sequence[Shape] = ["chain", "chain", "parallel", "join", "join", "send"]
    found: Recipe | None = None
    for _ in range(draw(st.sampled_from([1, 2, 3, 4, 6]))):
        names = draw(st.lists(NAMES, min_size=1, max_size=6, unique=True))
        found = Recipe(draw(st.sampled_from(shapes)), names, found, draw(st.booleans()), draw(st.booleans()))
    assert found
    return found


class Short(TypedDict):
    """A state that stays short: each subgraph returns what it was given, and more."""

    log: Annotated[list[str], lambda before, new: [*before, *new][-5:]]


def built(recipe: Recipe, *, once: bool = True) -> AnyGraph:
    """The graph of a recipe; `once` if it does not run in parallel with itself, where both would share a memory."""
    once = once and recipe.shape != "send"
    builder: AnyGraph = StateGraph(Short)
    for number, name in enumerate(recipe.names):
        node: Any = says(name)
        if recipe.inner and number == 0:
            stops: Any = {"interrupt_before": "*"} if recipe.stops else {}
            node = built(recipe.inner, once=once).compile(checkpointer=(once and recipe.memory) or None, **stops)
        builder.add_node(name, node)
    *others, last = recipe.names
    if recipe.shape == "send":
        sends = [Send(name, {"log": [f"{n}"]}) for n, name in enumerate([*recipe.names, recipe.names[0]])]
        builder.add_conditional_edges(START, lambda state: sends, list(recipe.names))
    elif recipe.shape == "join" and others:
        for name in others:
            builder.add_edge(START, name)
        builder.add_edge(others, last)
    else:
        for before, name in zip([START, *others], recipe.names, strict=True):
            builder.add_edge(before if recipe.shape == "chain" else START, name)
    return builder


@given(recipes(), st.sampled_from(["sync", "async", "exit"]))
@settings(max_examples=10, deadline=None, suppress_health_check=list(HealthCheck))
@pytest.mark.parametrize("api", ["sync", "async"])
def test_a_random_graph_has_the_same_history_as_with_the_official_savers(
    store: Store, api: str, recipe: Recipe, durability: Durability
) -> None:
    async def scenario(thread: Thread) -> None:
        thread.leave_out("checkpoints")  # Calls of one subgraph cannot be told apart, if their states are the same.
        graph = thread.graph(built(recipe))
        for turn in ("one", "two"):
            await graph.step_through({"log": [turn]})
        each = [repr(plain_checkpoints([one])) for one in await thread.client.all(thread.config)]
        thread.note("each checkpoint", sorted(each))

    async def compare() -> None:
        found = await play(scenario, Stored(store, api, durability))
        assert found == await play(scenario, in_memory(api, durability))
        if durability == "sync":  # Otherwise, LangGraph changes the set of a join before that saver stores it.
            with SqliteSaver.from_conn_string(":memory:") as saver:
                assert found == await play(scenario, Thread(saver, "sync", durability))

    asyncio.run(compare())
