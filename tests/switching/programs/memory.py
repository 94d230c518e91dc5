"""A chat that remembers: messages are added, trimmed, deleted and summarised."""

from typing import Any

from langchain_core.messages import AIMessage, HumanMessage, RemoveMessage, SystemMessage
from langchain_core.messages.utils import trim_messages
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.postgres.aio import AsyncPostgresSaver
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.graph.message import REMOVE_ALL_MESSAGES


class State(MessagesState):
    summary: str


async def call_model(state: State) -> dict[str, Any]:
    seen = trim_messages(
        state["messages"], strategy="last", token_counter=len, max_tokens=3, start_on="human", end_on=("human", "tool")
    )
    name = next((message.text.split()[-1] for message in state["messages"] if "I am" in message.text), "nobody")
    answer = f"{name}, I see {len(seen)} of {len(state['messages'])}. {state.get('summary', '')}"
    return {"messages": [AIMessage(answer, id=f"answer-{seen[-1].id}", additional_kwargs={"mood": ["calm", None]})]}


async def sum_up(state: State) -> dict[str, Any]:
    old = state["messages"][:-2]
    summary = f"{len(old)} before"
    return {"summary": summary, "messages": [RemoveMessage(id=message.id or "") for message in old]}


async def main(where: str) -> None:
    builder = StateGraph(State)
    builder.add_node(call_model)
    builder.add_node(sum_up)
    builder.add_edge(START, "call_model")
    builder.add_conditional_edges("call_model", lambda state: "sum_up" if len(state["messages"]) > 5 else END)

    config: RunnableConfig = {"configurable": {"thread_id": "1"}}
    for number, said in enumerate(["hi! I am Bob", "what is my name?", "and now?", "still?"]):
        # The chat continues in another process.
        async with AsyncPostgresSaver.from_conn_string(where) as checkpointer:
            await checkpointer.setup()
            graph = builder.compile(checkpointer=checkpointer)
            given: Any = {"messages": [HumanMessage(said, id=f"said-{number}")]}
            async for chunk in graph.astream(given, config, stream_mode="updates"):
                print({node: list(update) for node, update in chunk.items()})
            state = await graph.aget_state(config)
            print([(type(message).__name__, message.id, message.content) for message in state.values["messages"]])
            print(state.values.get("summary"), [message.additional_kwargs for message in state.values["messages"]])

    async with AsyncPostgresSaver.from_conn_string(where) as checkpointer:
        graph = builder.compile(checkpointer=checkpointer)
        fresh = [RemoveMessage(id=REMOVE_ALL_MESSAGES), SystemMessage("begin again", id="new")]
        await graph.aupdate_state(config, {"messages": fresh, "summary": ""})
        state = await graph.aget_state(config)
        print(state.values)
        print(len([found async for found in graph.aget_state_history(config)]))
