"""Consecutive and parallel steps."""

from __future__ import annotations

import operator
import threading
from datetime import datetime, timedelta, timezone
from decimal import Decimal
from typing import Annotated, Any, TypedDict
from uuid import UUID

from langgraph.func import entrypoint, task
from langgraph.graph import END, START, StateGraph
from langgraph.types import Command, Send, interrupt

from tests.graphs.running import Thread, scenario
from tests.graphs.scenarios.nodes import AnyGraph, Log, Node, chain, says

# Seconds; an event that takes longer is a fault of the scenario.
TIMEOUT = 20

VALUES: list[Any] = [
    "x" * 5000,
    None,
    {"bytes": b"\0\xff", "nested": [{"deep": [1, 2.5, True]}], "": "empty key"},
    {"day": datetime(2024, 2, 29, 12, tzinfo=timezone(timedelta(hours=2))), "id": UUID(int=7), "sum": Decimal("1.10")},
    {1, 2, 3},
    "a\0b ⚘ \U0001f600",
    2**63,
    -0.0,
    b"",
]


@scenario
async def a_chain_of_steps_continues_turn_after_turn(thread: Thread) -> None:
    values = iter(VALUES)

    def keeps(state: Any) -> dict[str, Any]:
        return {"last": next(values)}

    graph = thread.graph(chain(Log, one=says("one"), two=keeps, three=keeps, four=says("four"), five=keeps))
    for turn in range(3):
        state = await graph.invoke({"log": [f"turn {turn}"]})
        assert state.values["last"] == VALUES[3 * turn + 2]
        await thread.pause()
    assert state.values["log"] == [word for turn in range(3) for word in (f"turn {turn}", "one", "four")]


@scenario
async def every_step_can_be_the_last_of_a_process(thread: Thread) -> None:
    calls: list[str] = []
    graph = thread.graph(chain(Log, one=says("one", calls), two=says("two", calls), three=says("three", calls)))
    await graph.invoke({"log": ["first"]}, interrupt_after="*")
    for _ in range(2):
        await thread.pause()
        await graph.invoke(None, interrupt_after="*")
    await thread.pause()
    state = await graph.step_through({"log": ["second"]})
    assert state.values["log"] == ["first", "one", "two", "three", "second", "one", "two", "three"]
    assert calls == ["one", "two", "three"] * 2


@scenario
async def parallel_nodes_are_joined_in_the_order_of_the_graph(thread: Thread) -> None:
    names = ["a", "b", "c", "d"]
    finished = {name: threading.Event() for name in names}

    def waits(name: str, other: str | None) -> Node:
        def node(state: Any) -> dict[str, Any]:
            if other:
                assert finished[other].wait(TIMEOUT)
            finished[name].set()
            return {"log": [name]}

        return node

    builder: AnyGraph = StateGraph(Log)
    builder.add_node("join", lambda state: {"log": ["joined"], "last": len(state["log"])})
    for name, other in zip(names, [*names[1:], None], strict=True):
        builder.add_node(name, waits(name, other))
        builder.add_edge(START, name)
        builder.add_edge(name, "join")
    builder.add_edge("join", END)
    graph = thread.graph(builder)
    await graph.step_through({"log": ["first"]})
    state = await graph.invoke({"log": ["second"]})
    assert state.values["log"] == ["first", *names, "joined", "second", *names, "joined"]


@scenario
async def a_join_waits_for_the_longer_branch(thread: Thread) -> None:
    builder: AnyGraph = StateGraph(Log)
    for name in ("a", "b", "bb", "join"):
        builder.add_node(name, says(name))
    builder.add_edge(START, "a")
    builder.add_edge(START, "b")
    builder.add_edge("b", "bb")
    builder.add_edge(["a", "bb"], "join")
    graph = thread.graph(builder)
    state = await graph.step_through({"log": ["first"]})
    state = await graph.invoke({"log": ["second"]})
    assert state.values["log"] == ["first", "a", "b", "bb", "join", "second", "a", "b", "bb", "join"]
    if thread.durability == "async":
        # LangGraph passes on the set of the nodes that a join has seen without copying it, perhaps after the next step
        # has added to it. That happens with every saver that is slower than the steps.
        thread.leave_out("history", "checkpoints")


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


@scenario
async def conditional_edges_loop_until_the_condition_ends(thread: Thread) -> None:
    def count(state: Any) -> dict[str, Any]:
        return {"last": (state.get("last") or 0) + 1, "log": ["count"]}

    def judge(state: Any) -> Command[str]:
        return Command(update={"log": ["judge"]}, goto="count" if state["last"] % 2 else END)

    one_turn = ["count", "judge", "count", "even", "judge"]
    builder: AnyGraph = StateGraph(Log)
    builder.add_node("count", count)
    builder.add_node("even", says("even"))
    builder.add_node("judge", judge, destinations=("count", END))
    builder.add_edge(START, "count")
    builder.add_conditional_edges("count", lambda state: "judge" if state["last"] % 2 else "even", ["judge", "even"])
    builder.add_edge("even", "judge")
    graph = thread.graph(builder)
    state = await graph.invoke({"log": []})
    assert state.values["last"] == 2
    await thread.pause()
    state = await graph.step_through({"log": ["again"]})
    assert state.values["last"] == 4
    assert state.values["log"] == [*one_turn, "again", *one_turn]


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
