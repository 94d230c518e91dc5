"""Consecutive and parallel steps."""

from __future__ import annotations

import operator
from typing import Annotated, Any, TypedDict

from langgraph.func import entrypoint, task
from langgraph.graph import START, StateGraph
from langgraph.types import Command, Send, interrupt

from tests.graphs.running import Thread, scenario
from tests.graphs.scenarios.nodes import AnyGraph

# Seconds; an event that takes longer is a fault of the scenario.
TIMEOUT = 150


class Squares(TypedDict, total=False):
    """Work that is sent to several tasks of one node."""

    numbers: list[int]
    squares: Annotated[list[int], operator.add]
    total: int


@scenario
async def results_of_sent_tasks_are_in_order(thread: Thread) -> None:
    def split(state: Any) -> list[Send]:
        return [Send("square", {"number": number}) for number in state["numbers"]]

    def square(state: Any) -> Command[Any]:
        number = state["number"]
        # An even number is sent again, as its half.
        goto = [Send("square", {"number": number // 2})] if number % 2 == 0 else []
        return Command(update={"squares": [number**2]}, goto=goto)

    builder: AnyGraph = StateGraph(Squares)
    builder.add_node("square", square)
    builder.add_node("sum", lambda state: {"total": sum(state["squares"])})
    builder.add_conditional_edges(START, split, ["square"])
    builder.add_edge("square", "sum")
    graph = thread.graph(builder)
    state = await graph.step_through({"numbers": [3, 8, 5]})
    assert state.values["squares"] == [9, 64, 25, 16, 4, 1]
    state = await graph.invoke({"numbers": [6]})
    assert state.values["total"] == sum([9, 64, 25, 16, 4, 1, 36, 9])


class Workflow:
    """An entrypoint of the functional API instead of a builder."""

    def __init__(self, calls: list[str]) -> None:
        @task
        def double(number: int) -> int:
            calls.append(f"double {number}")
            return 2 * number

        def run(numbers: list[int], *, previous: int | None = None) -> Any:
            doubles = [double(number) for number in numbers]
            total = sum(one.result() for one in doubles)
            answer = interrupt(f"add to {total}?")
            return entrypoint.final(value=total + answer, save=(previous or 0) + total)

        self._run = run

    def compile(self, checkpointer: Any = None) -> Any:
        return entrypoint(checkpointer=checkpointer)(self._run)


@scenario
async def a_finished_task_does_not_run_again_with_its_workflow(thread: Thread) -> None:
    calls: list[str] = []
    graph = thread.graph(Workflow(calls))
    await graph.invoke([1, 2])
    await thread.pause()
    await graph.invoke(Command(resume=10))
    await thread.pause()
    await graph.invoke([5])
    await thread.pause()
    state = await graph.invoke(Command(resume=20))
    assert sorted(calls) == ["double 1", "double 2", "double 5"]
    assert state.next == ()
