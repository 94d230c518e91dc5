"""Interrupts: to approve, to edit, until the answer is valid, two at the same time, from a tool, and static ones."""

import operator
from typing import Annotated, Any, Literal, TypedDict

from langchain_core.messages import AIMessage, HumanMessage
from langchain_core.runnables import RunnableConfig
from langchain_core.tools import tool
from langgraph.checkpoint.postgres.aio import AsyncPostgresSaver
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode
from langgraph.types import Command, interrupt


class State(TypedDict, total=False):
    text: str
    age: int
    done: Annotated[list[str], operator.add]


async def approval(state: State) -> Command[Literal["edit", "cancelled"]]:
    if interrupt({"question": "go on?", "text": state["text"]}):
        return Command(goto="edit", update={"done": ["approved"]})
    return Command(goto="cancelled")


async def cancelled(state: State) -> dict[str, Any]:
    return {"done": ["cancelled"]}


async def edit(state: State) -> dict[str, Any]:
    return {"text": interrupt({"edit": state["text"]})["text"], "done": ["edited"]}


async def left(state: State) -> dict[str, Any]:
    return {"done": [f"left {interrupt('left?')}"]}


async def right(state: State) -> dict[str, Any]:
    return {"done": [f"right {interrupt('right?')}"]}


async def ask_age(state: State) -> dict[str, Any]:
    prompt = "how old are you?"
    while True:
        answer = interrupt(prompt)
        if isinstance(answer, int) and answer > 0:
            return {"age": answer}
        prompt = f"{answer!r} is no age. How old are you?"


@tool
async def book(hotel: str) -> str:
    """Book a hotel."""
    answer = interrupt({"book": hotel})
    return f"booked {answer['hotel'] if answer['type'] == 'edit' else hotel}"


async def caller(state: MessagesState) -> dict[str, Any]:
    call = {"name": "book", "args": {"hotel": "Ritz"}, "id": "call-1", "type": "tool_call"}
    return {"messages": [AIMessage("", id="calling", tool_calls=[call])]}


async def main(where: str) -> None:
    builder = StateGraph(State)
    builder.add_node(approval)
    builder.add_node(cancelled)
    builder.add_node(edit)
    builder.add_node(left)
    builder.add_node(right)
    builder.add_node(ask_age)
    builder.add_edge(START, "approval")
    builder.add_edge("edit", "left")
    builder.add_edge("edit", "right")
    builder.add_edge(["left", "right"], "ask_age")

    booking = StateGraph(MessagesState)
    booking.add_node(caller)
    booking.add_node("tools", ToolNode([book]))
    booking.add_edge(START, "caller")
    booking.add_edge("caller", "tools")
    booking.add_edge("tools", END)

    async with AsyncPostgresSaver.from_conn_string(where) as checkpointer:
        await checkpointer.setup()
        graph = builder.compile(checkpointer=checkpointer)

        refused: RunnableConfig = {"configurable": {"thread_id": "refused"}}
        found = await graph.ainvoke({"text": "draft"}, refused)
        print([asked.value for asked in found["__interrupt__"]])
        print(await graph.ainvoke(Command(resume=False), refused))

        config: RunnableConfig = {"configurable": {"thread_id": "approved"}}
        await graph.ainvoke({"text": "draft"}, config)
        found = await graph.ainvoke(Command(resume=True), config)
        print([asked.value for asked in found["__interrupt__"]])
        found = await graph.ainvoke(Command(resume={"text": "better"}), config)
        print(sorted(asked.value for asked in found["__interrupt__"]))
        # Each answer is for the interrupt with that id.
        state = await graph.aget_state(config)
        answers = {asked.id: f"answer to {asked.value}" for asked in state.interrupts}
        found = await graph.ainvoke(Command(resume=answers), config)
        print([asked.value for asked in found["__interrupt__"]])
        found = await graph.ainvoke(Command(resume="old"), config)
        print([asked.value for asked in found["__interrupt__"]])
        print(await graph.ainvoke(Command(resume=99), config))

        agent = booking.compile(checkpointer=checkpointer)
        booked: RunnableConfig = {"configurable": {"thread_id": "booked"}}
        found = await agent.ainvoke({"messages": [HumanMessage("a bed!", id="bed")]}, booked)
        print([asked.value for asked in found["__interrupt__"]])
        found = await agent.ainvoke(Command(resume={"type": "edit", "hotel": "Plaza"}), booked)
        print([message.content for message in found["messages"]])

        # Before and after all nodes.
        stopping = builder.compile(checkpointer=checkpointer, interrupt_before=["cancelled"])
        static: RunnableConfig = {"configurable": {"thread_id": "static"}}
        await stopping.ainvoke({"text": "draft"}, static)
        await stopping.ainvoke(Command(resume=False), static)
        print((await stopping.aget_state(static)).next)
        print(await stopping.ainvoke(None, static))
