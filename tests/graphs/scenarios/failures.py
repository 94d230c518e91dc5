"""Nodes that fail; a task that has finished does not run again."""

from __future__ import annotations

import threading
from typing import Any

from langgraph.types import Command

from tests.graphs.running import Thread, scenario
from tests.graphs.scenarios.interrupts import asks, questions
from tests.graphs.scenarios.nodes import Log, Node, parallel, says
from tests.graphs.scenarios.steps import TIMEOUT


class Broken(Exception):
    """The error with which nodes of these tests fail."""


class Gate:
    """Lets a node fail after the output of the others was seen, since a failure stops those that still run."""

    def __init__(self, *others: str) -> None:
        self._missing = set(others)
        self._open = threading.Event()

    def see(self, update: dict[str, Any]) -> None:
        """Look at an update of the run."""
        self._missing -= set(update)
        if not self._missing:
            self._open.set()

    def wait(self) -> None:
        """Wait until all the others were seen."""
        assert self._open.wait(TIMEOUT)


def breaks(name: str, times: int, calls: list[str], gate: Gate | None = None) -> Node:
    """A node that fails `times` times before it adds its name to the log."""
    left = [times]

    def node(state: Any) -> dict[str, Any]:
        calls.append(name)
        if gate is not None:
            gate.wait()
        left[0] -= 1
        if left[0] >= 0:
            raise Broken(name)
        return {"log": [name]}

    return node


@scenario
async def a_finished_node_does_not_run_again_after_another_failed(thread: Thread) -> None:
    calls: list[str] = []
    gate = Gate("a", "c")
    builder = parallel(Log, a=says("a", calls), b=breaks("b", 2, calls, gate), c=says("c", calls))
    graph = thread.graph(builder)
    state = await graph.stream({"log": ["in"]}, gate.see, raises=Broken)
    assert state.next == ("b",)
    await thread.pause()
    state = await graph.invoke(None, raises=Broken)
    assert [task.name for task in state.tasks if task.error] == ["b"]
    await thread.pause()
    state = await graph.invoke(None)
    assert state.values["log"] == ["in", "a", "b", "c"]
    assert sorted(calls) == ["a", "b", "b", "b", "c"]


@scenario
async def a_failure_next_to_an_interrupt_retains_the_interrupt(thread: Thread) -> None:
    calls: list[str] = []
    gate = Gate("a", "__interrupt__")
    builder = parallel(Log, a=says("a", calls), ask=asks("name", calls=calls), b=breaks("b", 1, calls, gate))
    graph = thread.graph(builder)
    await graph.stream({"log": ["in"]}, gate.see, raises=Broken)
    await thread.pause()
    state = await graph.invoke(None)
    assert list(questions(state)) == ["name"]
    await thread.pause()
    state = await graph.invoke(Command(resume="Ada"))
    assert state.values["log"] == ["in", "a", "name: Ada", "b"]
    assert calls.count("a") == 1
