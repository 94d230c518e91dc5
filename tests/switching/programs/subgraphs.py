"""Subgraphs: with a shared state, with their own, with a memory, and read from outside."""

import operator
from typing import Annotated, Any, TypedDict

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.postgres.aio import AsyncPostgresSaver
from langgraph.graph import START, StateGraph
from langgraph.types import Command, StateSnapshot, interrupt


class Shared(TypedDict, total=False):
    foo: str
    log: Annotated[list[str], operator.add]


class Own(TypedDict, total=False):
    bar: str
    count: Annotated[int, operator.add]


async def first(state: Shared) -> dict[str, Any]:
    return {"foo": f"{state['foo']}!", "log": ["first"]}


async def second(state: Shared) -> dict[str, Any]:
    return {"foo": f"{state['foo']} {interrupt('second?')}"}


async def third(state: Own) -> dict[str, Any]:
    return {"bar": f"{state['bar']} third", "count": 1}


def as_data(state: StateSnapshot) -> Any:
    inner = [as_data(task.state) for task in state.tasks if isinstance(task.state, StateSnapshot)]
    return state.next, state.values, [asked.value for asked in state.interrupts], inner


async def main(where: str) -> None:
    asking = StateGraph(Shared)
    asking.add_node(first)
    asking.add_node(second)
    asking.add_edge(START, "first")
    asking.add_edge("first", "second")

    counting = StateGraph(Own)
    counting.add_node(third)
    counting.add_edge(START, "third")
    remembering = counting.compile(checkpointer=True)
    forgetting = counting.compile()

    async def call(state: Shared) -> dict[str, Any]:
        forgotten = await forgetting.ainvoke({"bar": state["foo"]})
        return {"log": [f"forgetting has counted {forgotten['count']}: {forgotten['bar']}"]}

    async def remember(state: Shared) -> dict[str, Any]:
        remembered = await remembering.ainvoke({"bar": state["foo"]})
        return {"log": [f"remembering has counted {remembered['count']}"]}

    builder = StateGraph(Shared)
    builder.add_node("asking", asking.compile())
    builder.add_node(call)
    builder.add_node(remember)
    builder.add_edge(START, "asking")
    builder.add_edge("asking", "call")
    builder.add_edge("call", "remember")

    async with AsyncPostgresSaver.from_conn_string(where) as checkpointer:
        await checkpointer.setup()
        graph = builder.compile(checkpointer=checkpointer)
        config: RunnableConfig = {"configurable": {"thread_id": "1"}}
        for turn in ("one", "two"):
            async for chunk in graph.astream({"foo": turn}, config, subgraphs=True, stream_mode="updates"):
                namespace, update = chunk
                print(len(namespace), sorted(update))
            print(as_data(await graph.aget_state(config, subgraphs=True)))
            print(await graph.ainvoke(Command(resume=f"answer {turn}"), config))

        # A state inside is changed while its interrupt is open.
        await graph.ainvoke({"foo": "three"}, config)
        state = await graph.aget_state(config, subgraphs=True)
        inner = state.tasks[0].state
        if isinstance(inner, StateSnapshot):
            await graph.aupdate_state(inner.config, {"foo": "changed inside"})
        print(as_data(await graph.aget_state(config, subgraphs=True)))
        print(await graph.ainvoke(Command(resume="last"), config))

        roots = [found async for found in checkpointer.alist({"configurable": {"thread_id": "1", "checkpoint_ns": ""}})]
        found = [state async for state in checkpointer.alist(config)]
        names = {state.config["configurable"]["checkpoint_ns"].split(":")[0] for state in found}
        print(len(roots), len(found), sorted(names))
