"""Each operation on threads works for the threads of each framework, or raises a clear error: a table of both.

Each framework has a thread of three steps, which it sees as a list with one item for each step. After each
operation, that list must be what the table says, and the framework must be able to continue the thread.
"""

# ruff: noqa: E402 (what is imported last may be missing)

from __future__ import annotations

import operator
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime, timezone
from importlib.util import find_spec
from typing import Annotated, Any, TypedDict

import pytest
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, StateGraph

from tests.needs import need

need(find_spec("cubeloop"), "the extra cubeloop")
need(find_spec("pydantic_deep"), "the extra pydantic-deep")

from cubeloop.providers.base import TextContent, UserMessage
from pydantic_deep.features.checkpointing import Checkpoint as DeepCheckpoint

from langgraph_checkpoint_custom import CheckpointSaver, ConfigError, Retention
from langgraph_checkpoint_custom.adapters.cubeloop import CubeLoopCheckpointer
from langgraph_checkpoint_custom.adapters.key_values import KeyValueStore
from langgraph_checkpoint_custom.adapters.pydantic_deep import DeepCheckpointStore
from langgraph_checkpoint_custom.adapters.sessions import SessionCheckpoint, SessionStore
from langgraph_checkpoint_custom.model.keys import thread_of
from tests.stores import Client

Items = Sequence[str]


class Framework(ABC):
    """A framework, and how its users see a thread."""

    def __init__(self, saver: CheckpointSaver) -> None:
        self.saver = saver

    @abstractmethod
    def thread(self, name: str) -> str:
        """The stored id."""

    @abstractmethod
    async def add(self, name: str, item: str) -> None: ...

    @abstractmethod
    async def items(self, name: str) -> Items: ...

    @property
    def old(self) -> str:
        """The stored id of the thread that has something."""
        return self.thread("t")

    @property
    def new(self) -> str:
        """The stored id of another one."""
        return self.thread("new")

    def point(self, number: int) -> Any:
        """The config of the checkpoint after a step."""
        location = {"thread_id": self.old, "checkpoint_ns": "", "checkpoint_id": self.points("t")[number]}
        return {"configurable": location}

    def points(self, name: str) -> list[str]:
        """The checkpoint after each step, the oldest first."""
        config: Any = {"configurable": {"thread_id": self.thread(name), "checkpoint_ns": ""}}
        return [found.checkpoint_id for found in self.saver.history(config)][::-1]


class State(TypedDict):
    said: Annotated[list[str], operator.add]


class LangGraph(Framework):
    def thread(self, name: str) -> str:
        return name

    def graph(self) -> Any:
        builder = StateGraph(State)
        builder.add_node("nothing", lambda state: {})
        builder.add_edge(START, "nothing")
        return builder.compile(checkpointer=self.saver)

    async def add(self, name: str, item: str) -> None:
        self.graph().invoke({"said": [item]}, {"configurable": {"thread_id": name}})

    async def items(self, name: str) -> Items:
        return list(self.graph().get_state({"configurable": {"thread_id": name}}).values.get("said", ()))

    def points(self, name: str) -> list[str]:
        return super().points(name)[2::3]  # The last one of each run.


class CubeLoop(Framework):
    def thread(self, name: str) -> str:
        return thread_of("cubeloop", name)

    async def add(self, name: str, item: str) -> None:
        await CubeLoopCheckpointer(self.saver).append(name, [UserMessage(content=[TextContent(text=item)])])

    async def items(self, name: str) -> Items:
        found = await CubeLoopCheckpointer(self.saver).load(name)
        blocks = [message.content[0] for message in found.messages] if found else []
        return [block.text for block in blocks if isinstance(block, TextContent)]


class PydanticDeep(Framework):
    def thread(self, name: str) -> str:
        return thread_of("pydantic-deep", name)

    async def add(self, name: str, item: str) -> None:
        one = DeepCheckpoint(item, item, 1, [], 0, datetime.now(timezone.utc))
        await DeepCheckpointStore(self.saver, name).save(one)

    async def items(self, name: str) -> Items:
        return [found.label for found in await DeepCheckpointStore(self.saver, name).list_all()]


class Sessions(Framework):
    def thread(self, name: str) -> str:
        return thread_of("session", "default", name)

    async def add(self, name: str, item: str) -> None:
        messages = [{"content": text} for text in (*await self.items(name), item)]
        await SessionStore(self.saver).asave(SessionCheckpoint(name, len(messages), messages))

    async def items(self, name: str) -> Items:
        found = await SessionStore(self.saver).aload(name)
        return [message["content"] for message in found.messages] if found else []


class KeyValues(Framework):
    def thread(self, name: str) -> str:
        return thread_of("key-value", "1", "location", name)

    async def add(self, name: str, item: str) -> None:
        await KeyValueStore(self.saver).aput(["location"], name, {"items": [*await self.items(name), item]})

    async def items(self, name: str) -> Items:
        found = await KeyValueStore(self.saver).aget(["location"], name)
        return found["items"] if found else []


FRAMEWORKS = (LangGraph, CubeLoop, PydanticDeep, Sessions, KeyValues)
ALL = ["1", "2", "3"]


Call = Callable[[Client], Awaitable[Any]]


def call(name: str, *args: Any, **kwargs: Any) -> Call:
    return lambda client: client.do(name, *args, **kwargs)


# The calls of each operation, and the items that remain: for all frameworks, and for those that differ. A checkpoint of
# pydantic-deep is an item.
TABLE: dict[str, tuple[Callable[[Framework], Sequence[Call]], Items, dict[type[Framework], Items]]] = {
    "rollback": (lambda it: [call("rollback", it.old, it.points("t")[1])], ["1", "2"], {}),
    "fork": (
        lambda it: [call("fork_thread", it.old, it.new, checkpoint_id=it.points("t")[1])],
        ["1", "2"],
        {PydanticDeep: ["2"]},
    ),
    "fork of the newest": (lambda it: [call("fork_thread", it.old, it.new)], ALL, {PydanticDeep: ["3"]}),
    # LangGraph continues from the parent, which already has the input.
    "newest deleted": (lambda it: [call("delete_checkpoint", it.point(2))], ["1", "2"], {LangGraph: ALL}),
    "first deleted": (lambda it: [call("delete_checkpoint", it.point(0))], ALL, {PydanticDeep: ["2", "3"]}),
    "thread deleted": (lambda it: [call("delete_thread", it.old)], [], {}),
    "unknown run deleted": (lambda it: [call("delete_for_runs", ["an unknown run"])], ALL, {}),
    "prune": (lambda it: [call("prune", [it.old])], ALL, {PydanticDeep: ["3"]}),
    "prune of everything": (lambda it: [call("prune", [it.old], strategy="delete")], [], {}),
    "sweep": (lambda it: [call("sweep", Retention(keep_last=1))], ALL, {PydanticDeep: ["3"]}),
    "sweep of everything": (lambda it: [call("sweep", Retention(max_bytes=0))], [], {}),
    "copy": (lambda it: [call("copy_thread", it.old, it.new)], ALL, {}),
    "label": (
        lambda it: [call("label", it.point(0), "first"), call("prune", [it.old])],
        ALL,
        {PydanticDeep: ["1", "3"]},
    ),
    "unlabel": (lambda it: [call("label", it.point(2), "newest"), call("unlabel", it.old, "newest")], ALL, {}),
    "reencrypt": (lambda it: [call("reencrypt", dry_run=True)], ALL, {}),
}
NEW = {"fork", "fork of the newest", "copy"}


@pytest.mark.parametrize("operation", TABLE)
@pytest.mark.parametrize("make", FRAMEWORKS, ids=lambda make: make.__name__)
async def test_each_operation_on_threads_does_what_the_table_says(
    client: Client, make: type[Framework], operation: str
) -> None:
    saver = client.saver
    assert isinstance(saver, CheckpointSaver)
    framework = make(saver)
    for item in ALL:
        await framework.add("t", item)
    calls, default, others = TABLE[operation]
    expected = others.get(make, default)
    for each in calls(framework):
        await each(client)
    assert list(saver.labels(framework.old)) == (["first"] if operation == "label" else [])
    left = {"t": ALL, "new": expected} if operation in NEW else {"t": expected}
    for name, items in left.items():
        assert await framework.items(name) == items
        for more in ("more", "and more"):
            await framework.add(name, more)
        assert await framework.items(name) == [*items, "more", "and more"]


@pytest.mark.parametrize("make", FRAMEWORKS[1:], ids=lambda make: make.__name__)
async def test_a_copy_or_fork_to_another_framework_is_refused(client: Client, make: type[Framework]) -> None:
    assert isinstance(client.saver, CheckpointSaver)
    other, graph = make(client.saver), LangGraph(client.saver)
    await graph.add("t", "1")
    await other.add("t", "1")
    for source, target in ((graph.thread("t"), other.thread("new")), (other.thread("t"), graph.thread("new"))):
        for name in ("copy_thread", "fork_thread"):
            with pytest.raises(ConfigError, match="of the framework"):
                await client.do(name, source, target)
    assert not await client.do("thread_exists", other.thread("new"))
    assert not await client.do("thread_exists", graph.thread("new"))


@pytest.mark.parametrize("given", [None, "sqlite:///checkpoints.db", InMemorySaver()], ids=["None", "URL", "other"])
def test_an_adapter_refuses_what_is_not_a_saver(given: Any) -> None:
    for make in (CubeLoopCheckpointer, KeyValueStore, SessionStore, lambda saver: DeepCheckpointStore(saver, "a")):
        with pytest.raises(
            ConfigError, match=f"needs a saver of langgraph_checkpoint_custom, not a {type(given).__name__}"
        ):
            make(given)
