"""A refund service, written for LangGraph's official savers. Its test changes one line of it.

One pool serves the threads and the store. The state's classes are created in a function. Expensive refunds wait for a
human, whose answer arrives with a later request.
"""

import operator
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Annotated, Any

from fastapi import FastAPI, Request
from langchain_core.messages import AIMessage, AnyMessage, HumanMessage
from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.checkpoint.postgres.aio import AsyncPostgresSaver
from langgraph.graph import END, START, StateGraph
from langgraph.graph.message import add_messages
from langgraph.graph.state import CompiledStateGraph
from langgraph.runtime import Runtime
from langgraph.store.base import BaseStore
from langgraph.store.postgres.aio import AsyncPostgresStore
from langgraph.types import Command, interrupt
from psycopg import AsyncConnection
from psycopg.rows import DictRow, dict_row
from psycopg_pool import AsyncConnectionPool
from pydantic import BaseModel, Field


def service(saver: BaseCheckpointSaver[Any], store: BaseStore) -> CompiledStateGraph[Any]:
    """The graph; its classes exist only here."""

    class Refund(BaseModel):
        """A customer's claim."""

        order: str
        euros: float
        approved_by: str | None = None

    class State(BaseModel):
        """A customer's case."""

        class Note(BaseModel):
            """A note of the service."""

            text: str

        messages: Annotated[list[AnyMessage], add_messages] = Field(default_factory=list)
        notes: Annotated[list[Note], operator.add] = Field(default_factory=list)
        refund: Refund | None = None

    async def read(state: Any, runtime: Runtime[None]) -> dict[str, Any]:
        said = str(state.messages[-1].content)
        order, euros = said.split()
        await runtime.store.aput(("orders",), order, {"euros": float(euros)})  # type: ignore[union-attr]
        return {"refund": Refund(order=order, euros=float(euros)), "notes": [State.Note(text=f"read {order}")]}

    async def approve(state: Any) -> dict[str, Any]:
        answer = interrupt({"refund": state.refund.model_dump(), "limit": 50})
        approved = state.refund.model_copy(update={"approved_by": answer["by"]})
        return {"refund": approved, "notes": [State.Note(text=f"{answer['by']} approved")]}

    async def pay(state: Any, runtime: Runtime[None]) -> dict[str, Any]:
        orders = await runtime.store.asearch(("orders",))  # type: ignore[union-attr]
        text = f"paid {state.refund.euros} for {state.refund.order}, {len(orders)} orders so far"
        return {"messages": [AIMessage(text, id=f"paid-{len(state.messages)}")]}

    builder = StateGraph(State)
    builder.add_node("read", read)
    builder.add_node("approve", approve)
    builder.add_node("pay", pay)
    builder.add_edge(START, "read")
    builder.add_conditional_edges("read", lambda state: "approve" if state.refund.euros > 50 else "pay")
    builder.add_edge("approve", "pay")
    builder.add_edge("pay", END)
    return builder.compile(checkpointer=saver, store=store)


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[None]:
    async with AsyncConnectionPool(
        os.environ["DATABASE_URL"],
        connection_class=AsyncConnection[DictRow],
        max_size=5,
        kwargs={"autocommit": True, "row_factory": dict_row},
        open=False,
    ) as pool:
        saver = AsyncPostgresSaver(pool)
        store = AsyncPostgresStore(pool)
        await saver.setup()
        await store.setup()
        app.state.saver = saver
        app.state.graph = service(saver, store)
        yield


app = FastAPI(lifespan=lifespan)


def as_json(values: dict[str, Any]) -> dict[str, Any]:
    """A state as JSON."""
    return {
        "messages": [f"{message.type}: {message.content}" for message in values.get("messages", [])],
        "notes": values.get("notes", []),
        "refund": values["refund"] if values.get("refund") else None,
        "asked": [asked.value for asked in values.get("__interrupt__", [])],
    }


@app.post("/cases/{case}/say")
async def say(case: str, text: str, request: Request) -> dict[str, Any]:
    given = {"messages": [HumanMessage(text, id=f"said-{text}")]}
    return as_json(await request.app.state.graph.ainvoke(given, {"configurable": {"thread_id": case}}))


@app.post("/cases/{case}/answer")
async def answer(case: str, by: str, request: Request) -> dict[str, Any]:
    answered: Command[Any] = Command(resume={"by": by})
    return as_json(await request.app.state.graph.ainvoke(answered, {"configurable": {"thread_id": case}}))


@app.get("/cases/{case}")
async def case(case: str, request: Request) -> dict[str, Any]:
    state = await request.app.state.graph.aget_state({"configurable": {"thread_id": case}})
    return {"next": state.next, "asked": [asked.value for asked in state.interrupts], **as_json(state.values)}


@app.get("/cases/{case}/history")
async def history(case: str, request: Request) -> list[dict[str, Any]]:
    states = request.app.state.graph.aget_state_history({"configurable": {"thread_id": case}})
    return [{"step": state.metadata["step"], "next": state.next, **as_json(state.values)} async for state in states]


@app.get("/steps")
async def steps(source: str, request: Request) -> list[str]:
    found = request.app.state.saver.alist(None, filter={"source": source}, limit=10)
    return [checkpoint.config["configurable"]["thread_id"] async for checkpoint in found]


@app.delete("/cases/{case}")
async def forget(case: str, request: Request) -> None:
    await request.app.state.saver.adelete_thread(case)
