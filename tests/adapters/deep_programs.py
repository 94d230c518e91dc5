"""Programs of processes that share sessions of pydantic-deep."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from multiprocessing.connection import Connection
from typing import Any

from pydantic_ai.messages import (
    ModelMessage,
    ModelRequest,
    ModelResponse,
    TextPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)
from pydantic_ai.models.function import AgentInfo, FunctionModel
from pydantic_deep import create_deep_agent
from pydantic_deep.deps import DeepAgentDeps
from pydantic_deep.features.checkpointing import RewindRequested
from pydantic_deep.features.checkpointing.store import _make_checkpoint

from langgraph_checkpoint_custom.adapters.pydantic_deep import DeepCheckpointStore
from tests.stores import Store


def messages(number: int = 2, size: int = 10) -> list[ModelMessage]:
    """A conversation of `number` messages."""
    return [
        ModelResponse(parts=[TextPart(f"{n} {'x' * size}")])
        if n % 2
        else ModelRequest(parts=[UserPromptPart(f"{n} {'x' * size}")])
        for n in range(number)
    ]


def checkpoint(label: str = "turn-1", number: int = 2, **metadata: Any) -> Any:
    """A checkpoint as the middleware makes it."""
    return _make_checkpoint(label, 1, messages(number), metadata)


class Turn:
    """What the middleware reads of a model request."""

    def __init__(self) -> None:
        self.messages = messages()


class Context:
    """What the middleware reads of a run context."""

    deps = None


def serve(connection: Connection) -> None:
    """Run programs, each in its own event loop, and send what they return."""
    while True:
        name, arguments = connection.recv()
        connection.send(asyncio.run(globals()[name](*arguments)))


def agent_with(session: DeepCheckpointStore, model: Callable[[list[ModelMessage], AgentInfo], ModelResponse]) -> Any:
    """A real agent with a scripted model."""
    return create_deep_agent(
        model=FunctionModel(model),
        include_subagents=False,
        include_skills=False,
        cost_tracking=False,
        context_manager=False,
        include_checkpoints=True,
        checkpoint_store=session,
    )


def call(tool: str, **arguments: Any) -> ModelResponse:
    return ModelResponse(parts=[ToolCallPart(tool, arguments)])


def returned(messages: Sequence[ModelMessage]) -> list[tuple[str, Any]]:
    """The results of tools, with their names."""
    return [
        (part.tool_name, part.content)
        for message in messages
        for part in message.parts
        if isinstance(part, ToolReturnPart)
    ]


async def work(store: Store, session_id: str) -> str:
    """Do something, label it, do something wrong."""
    todo = {"content": "a thing", "status": "pending", "active_form": "doing a thing"}
    script = [
        call("write_todos", todos=[todo]),
        call("save_checkpoint", label="good"),
        call("write_todos", todos=[]),
        ModelResponse(parts=[TextPart("wrong")]),
    ]

    def model(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        return script[len(returned(messages))]

    async with store.open() as saver:
        agent = agent_with(DeepCheckpointStore(saver, session_id), model)
        return str((await agent.run("begin", deps=DeepAgentDeps())).output)


async def rewind(store: Store, session_id: str) -> tuple[str, str, list[str], str]:
    """Let the agent find the label, rewind to it, and continue from there.

    Returns the label, the tool results up to there, and the result of the run that continued.
    """

    def model(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        if "go on" in str(messages[-1]):
            return ModelResponse(parts=[TextPart(f"after {len(returned(messages))}")])
        tool, content = returned(messages)[-1] if returned(messages) else ("", "")
        if tool != "list_checkpoints":
            return call("list_checkpoints")
        found = re.search(r"\*\*good\*\* \(id: `([^`]+)`", content)
        assert found, content
        return call("rewind_to", checkpoint_id=found[1])

    async with store.open() as saver:
        agent = agent_with(DeepCheckpointStore(saver, session_id), model)
        try:
            await agent.run("go back", deps=DeepAgentDeps())
        except RewindRequested as request:
            tools = [tool for tool, _ in returned(request.messages)]
            result = await agent.run("go on", deps=DeepAgentDeps(), message_history=request.messages)
            return request.checkpoint_id, request.label, tools, str(result.output)
    raise AssertionError("the agent was not asked to go back")


async def save_again(store: Store, session_id: str, checkpoint_id: str, times: int) -> None:
    """Save one checkpoint several times."""
    async with store.open() as saver:
        for number in range(times):
            saved = replace(checkpoint(f"turn-{number}"), id=checkpoint_id)
            await DeepCheckpointStore(saver, session_id).save(saved)
