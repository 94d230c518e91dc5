"""Runs that are interrupted and continue: with each durability, with retries, from another process."""

import operator
from typing import Annotated, Any, Literal, TypedDict, get_args

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.postgres.aio import AsyncPostgresSaver
from langgraph.func import task
from langgraph.graph import START, StateGraph
from langgraph.types import Durability, RetryPolicy, Send

calls: list[str] = []
failing: list[str] = []


class State(TypedDict, total=False):
    urls: list[str]
    results: Annotated[list[str], operator.add]


class Page(TypedDict):
    url: str


@task
async def report_task(number: int) -> str:
    calls.append("report")
    return f"a report on {number}"


async def plan(state: State) -> dict[str, Any]:
    calls.append("plan")
    return {"results": ["planned"]}


def each(state: State) -> list[Send]:
    return [Send("read", {"url": url}) for url in state["urls"]]


async def read(state: Page) -> dict[str, Any]:
    url = state["url"]
    calls.append(f"read {url}")
    if url in failing:
        failing.remove(url)
        raise ConnectionError(url)
    return {"results": [f"content of {url}"]}


async def finish(state: State) -> dict[str, Any]:
    done = len(state["results"])
    report = await report_task(done)
    if "finish" in failing:
        failing.remove("finish")
        raise ConnectionError("finish")
    return {"results": [report]}


def built(retry: RetryPolicy | None) -> StateGraph[State]:
    builder = StateGraph(State)
    builder.add_node(plan)
    builder.add_node("read", read)
    builder.add_node(finish, retry_policy=retry)
    builder.add_edge(START, "plan")
    builder.add_conditional_edges("plan", each, ["read"])
    builder.add_edge("read", "finish")
    return builder


async def main(where: str) -> None:
    modes: tuple[Literal["sync", "async", "exit"], ...] = get_args(Durability)
    for mode in modes:
        # One after the other, so that the last one fails when the others are done.
        config: RunnableConfig = {"configurable": {"thread_id": mode}, "max_concurrency": 1}
        failing[:] = ["c", "finish"]
        for attempt in range(3):
            calls.clear()
            async with AsyncPostgresSaver.from_conn_string(where) as checkpointer:
                await checkpointer.setup()
                graph = built(None).compile(checkpointer=checkpointer)
                given: State | None = {"urls": ["a", "b", "c"]} if attempt == 0 else None
                try:
                    print(mode, await graph.ainvoke(given, config, durability=mode))
                except ConnectionError as error:
                    print(mode, "ended by", error)
                print(calls, (await graph.aget_state(config)).next)
        async with AsyncPostgresSaver.from_conn_string(where) as checkpointer:
            graph = built(None).compile(checkpointer=checkpointer)
            print(mode, len([state async for state in graph.aget_state_history(config)]))

    failing[:] = ["finish"]
    async with AsyncPostgresSaver.from_conn_string(where) as checkpointer:
        graph = built(RetryPolicy(max_attempts=2, initial_interval=0.01)).compile(checkpointer=checkpointer)
        print(await graph.ainvoke({"urls": ["a"]}, {"configurable": {"thread_id": "retried"}}))
