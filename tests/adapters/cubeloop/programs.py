"""Programs of processes that use CubeLoop: they call a checkpointer, directly or through an agent."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from multiprocessing.connection import Connection
from typing import Any

from cubeloop.agent.agent import Agent
from cubeloop.agent.types import AgentTool, AgentToolResult
from cubeloop.checkpointer.exceptions import CheckpointerError
from cubeloop.hitl import ApprovalPolicyMiddleware, ApproveAnswer, AskUser, CheckpointedChannel
from cubeloop.providers.base import AssistantMessage, Message, TextContent
from cubeloop.providers.faux import FauxProvider, faux_assistant_message, faux_tool_call
from pydantic import BaseModel

from langgraph_checkpoint_custom.adapters.cubeloop import CubeLoopCheckpointer
from tests.stores import Store

CALLS_ADD = faux_assistant_message(faux_tool_call("add", {"a": 2, "b": 3}, id="call"), stop_reason="tool_use")


def talk(connection: Connection, store: Store, prompts: Sequence[tuple[str, str]]) -> None:
    """Let an agent with a tool answer; sends the roles and texts of all messages, or the name of an error."""

    async def work() -> Any:
        async with store.open() as saver:
            agent = make_agent(CubeLoopCheckpointer(saver), [CALLS_ADD, faux_assistant_message("it is 5")])
            try:
                for text, run_id in prompts:
                    await agent.prompt(text, run_id=run_id)
            except CheckpointerError as error:
                return type(error).__name__
            return said(agent.state.messages)

    connection.send(asyncio.run(work()))


def ask(connection: Connection, store: Store) -> None:
    """Let an agent ask for approval of its tool, and wait for the answer forever."""

    async def work() -> None:
        async with store.open() as saver:
            checkpointer = CubeLoopCheckpointer(saver)
            channel = CheckpointedChannel(checkpointer=checkpointer, thread_id="thread", run_id="run")
            agent = make_agent(checkpointer, [CALLS_ADD], channel)
            running = asyncio.create_task(agent.prompt("add", run_id="run"))
            async for request in channel.subscribe():
                connection.send(request.question_id)
            await running

    asyncio.run(work())


def approve(connection: Connection, store: Store) -> None:
    """Answer the question of another process's agent, and continue from there; sends its messages."""

    async def work() -> Any:
        async with store.open() as saver:
            checkpointer = CubeLoopCheckpointer(saver)
            found = await checkpointer.load_pending("thread")
            assert found is not None
            request, run_id = found
            channel = CheckpointedChannel(checkpointer=checkpointer, thread_id="thread", run_id=run_id)
            agent = make_agent(checkpointer, [faux_assistant_message("it is 5")], channel)
            await agent.respond(question_id=request.question_id, answer=ApproveAnswer(decision="approve"))
            return said(agent.state.messages)

    connection.send(asyncio.run(work()))


class Numbers(BaseModel):
    """The tool's arguments."""

    a: int
    b: int


async def add(call_id: str, numbers: Numbers, **_: Any) -> AgentToolResult:
    return AgentToolResult(content=[TextContent(text=f"{numbers.a + numbers.b} by {os.getpid()}")])


def make_agent(
    checkpointer: CubeLoopCheckpointer, answers: list[AssistantMessage], channel: CheckpointedChannel | None = None
) -> Agent[Any]:
    """An agent with a tool; if it has a channel, it asks before it uses the tool."""
    provider = FauxProvider(provider_id="faux")
    provider.set_responses(list(answers))
    return Agent(
        model=provider.model("faux"),
        tools=[AgentTool(name="add", description="adds", parameters=Numbers, execute=add)],
        middleware=[ApprovalPolicyMiddleware(channel, policy=lambda call: AskUser())] if channel else [],
        channel=channel,
        checkpointer=checkpointer,
        thread_id="thread",
    )


def said(messages: Sequence[Message]) -> list[tuple[str, str, str | None]]:
    """Role, text and run of each message."""
    return [
        (each.role, "".join(block.text for block in each.content if isinstance(block, TextContent)), each.run_id)
        for each in messages
    ]
