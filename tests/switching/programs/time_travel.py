"""Back to an earlier checkpoint: replayed as it was, and forked with another state."""

import operator
from typing import Annotated, Any, TypedDict

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.postgres.aio import AsyncPostgresSaver
from langgraph.graph import START, StateGraph
from langgraph.types import Command, interrupt

runs: list[str] = []


class State(TypedDict, total=False):
    topic: str
    joke: str
    steps: Annotated[list[str], operator.add]


async def choose_topic(state: State) -> dict[str, Any]:
    runs.append("choose_topic")
    return {"topic": "socks", "steps": ["topic"]}


async def ask(state: State) -> dict[str, Any]:
    return {"steps": [f"asked: {interrupt(state['topic'])}"]}


async def write_joke(state: State) -> dict[str, Any]:
    runs.append("write_joke")
    return {"joke": f"a joke about {state['topic']}", "steps": ["joke"]}


async def main(where: str) -> None:
    builder = StateGraph(State)
    builder.add_node(choose_topic)
    builder.add_node(ask)
    builder.add_node(write_joke)
    builder.add_edge(START, "choose_topic")
    builder.add_edge("choose_topic", "ask")
    builder.add_edge("ask", "write_joke")

    async with AsyncPostgresSaver.from_conn_string(where) as checkpointer:
        await checkpointer.setup()
        graph = builder.compile(checkpointer=checkpointer)
        config: RunnableConfig = {"configurable": {"thread_id": "1"}}
        await graph.ainvoke({}, config)
        print(await graph.ainvoke(Command(resume="yes"), config))

        states = [state async for state in graph.aget_state_history(config)]
        for state in states:
            print(state.next, state.values, [task.result for task in state.tasks])
        before_joke = next(state for state in states if state.next == ("write_joke",))
        before_ask = next(state for state in states if state.next == ("ask",))

        # Replayed: earlier nodes do not run again.
        runs.clear()
        print(await graph.ainvoke(None, before_joke.config), runs)

        # Forked: another topic from there, and the joke for that.
        fork = await graph.aupdate_state(before_joke.config, {"topic": "chickens"})
        print(await graph.ainvoke(None, fork))
        print((await graph.aget_state(config)).values)

        # The interrupt is raised again, and answered differently.
        found = await graph.ainvoke(None, before_ask.config)
        print([asked.value for asked in found["__interrupt__"]])
        print(await graph.ainvoke(Command(resume="no"), config))

        # The earlier checkpoints still exist.
        print((await graph.aget_state(states[0].config)).values)
        print(len([state async for state in graph.aget_state_history(config)]))
        kinds = [(state.metadata or {})["source"] async for state in graph.aget_state_history(config)]
        print(kinds)
