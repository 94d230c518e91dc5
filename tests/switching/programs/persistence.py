"""Threads, their states and history, a change of the state, and what a failed superstep leaves."""

import operator
import time
from typing import Annotated, Any, TypedDict

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.postgres.aio import AsyncPostgresSaver
from langgraph.graph import END, START, StateGraph


class State(TypedDict):
    foo: str
    bar: Annotated[list[str], operator.add]


broken = {"node_b"}


async def node_a(state: State) -> dict[str, Any]:
    return {"foo": "a", "bar": ["a"]}


async def node_b(state: State) -> dict[str, Any]:
    if "node_b" in broken and state["foo"] == "a":
        time.sleep(1)  # noqa: ASYNC251  # On OS threads, node_c is done before.
        raise ValueError("node_b is broken")
    return {"foo": "b", "bar": ["b"]}


async def node_c(state: State) -> dict[str, Any]:
    print("node_c runs")
    return {"bar": ["c"]}


async def main(where: str) -> None:
    builder = StateGraph(State)
    builder.add_node(node_a)
    builder.add_node(node_b)
    builder.add_node(node_c)
    builder.add_edge(START, "node_a")
    builder.add_edge("node_a", "node_b")
    builder.add_edge("node_a", "node_c")
    builder.add_edge("node_b", END)

    async with AsyncPostgresSaver.from_conn_string(where) as checkpointer:
        await checkpointer.setup()
        graph = builder.compile(checkpointer=checkpointer)
        config: RunnableConfig = {"configurable": {"thread_id": "1"}, "metadata": {"user": "Ada"}}

        # node_c's output is stored although node_b fails in the same step, and node_c does not run again.
        try:
            await graph.ainvoke({"foo": "", "bar": []}, config)
        except ValueError as error:
            print(error)
        snapshot = await graph.aget_state(config)
        print(snapshot.values, snapshot.next, sorted(str(task.error) for task in snapshot.tasks))
        broken.clear()
        print(await graph.ainvoke(None, config))

        async for snapshot in graph.aget_state_history(config):
            metadata = snapshot.metadata or {}
            print(metadata["step"], metadata["source"], metadata.get("user"), snapshot.next, snapshot.values)

        # A state is changed through the reducers, and as if a node had written it.
        await graph.aupdate_state(config, {"foo": "changed", "bar": ["changed"]}, as_node="node_a")
        snapshot = await graph.aget_state(config)
        print(snapshot.values, snapshot.next)
        print(await graph.ainvoke(None, config))

        # By id; with a filter; with a limit; before a checkpoint.
        first = [found async for found in graph.aget_state_history(config)][-1]
        print((await graph.aget_state(first.config)).next)
        print(
            [found.metadata["step"] async for found in checkpointer.alist(config, filter={"source": "loop"}, limit=2)]
        )
        print([found.metadata["step"] async for found in checkpointer.alist(config, before=snapshot.config)])

        # Another thread does not have it; a deleted one is empty.
        other: RunnableConfig = {"configurable": {"thread_id": "2"}}
        print((await graph.aget_state(other)).values)
        await checkpointer.adelete_thread("1")
        print((await graph.aget_state(config)).values, await checkpointer.aget_tuple(config))
