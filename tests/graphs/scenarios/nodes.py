"""States and nodes that several scenarios use."""

from __future__ import annotations

import operator
from typing import Annotated, Any, Protocol, TypedDict

from langchain_core.runnables import RunnableLambda
from langgraph.graph import END, START, StateGraph


class Log(TypedDict, total=False):
    """A state that remembers who wrote to it, in order, and a value that is replaced."""

    log: Annotated[list[str], operator.add]
    last: Any


class Node(Protocol):
    """A node of a graph."""

    def __call__(self, state: Any) -> Any: ...


AnyGraph = StateGraph[Any, Any, Any, Any]


def sync_and_async(node: Node) -> RunnableLambda[Any, Any]:
    """A node that is awaited on the event loop in async graphs, where plain nodes run on OS threads."""

    async def awaited(state: Any) -> Any:
        return node(state)

    return RunnableLambda(node, awaited)


def says(word: str, calls: list[str] | None = None) -> RunnableLambda[Any, Any]:
    """A node that adds a word to the log, and notes that it was called."""

    def node(state: Any) -> dict[str, Any]:
        if calls is not None:
            calls.append(word)
        return {"log": [word]}

    return sync_and_async(node)


def chain(schema: type, **nodes: Any) -> AnyGraph:
    """A graph of nodes that run one after the other."""
    builder: AnyGraph = StateGraph(schema)
    previous = START
    for name, node in nodes.items():
        builder.add_node(name, node)
        builder.add_edge(previous, name)
        previous = name
    builder.add_edge(previous, END)
    return builder


def parallel(schema: type, **nodes: Any) -> AnyGraph:
    """A graph of nodes that run in parallel in one step."""
    builder: AnyGraph = StateGraph(schema)
    for name, node in nodes.items():
        builder.add_node(name, node)
        builder.add_edge(START, name)
        builder.add_edge(name, END)
    return builder
