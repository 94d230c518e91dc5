"""Each operation on threads works for the threads of each framework, or raises a clear error: a table of both.

Each framework has a thread of three steps, which it sees as a list with one item for each step. After each
operation, that list must be what the table says, and the framework must be able to continue the thread.
"""

# ruff: noqa: E402 (what is imported last may be missing)

from __future__ import annotations

import operator
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
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


async def rollback(client: Client, framework: Framework) -> None:
    await client.do("rollback", framework.thread("t"), framework.points("t")[1])


async def fork(client: Client, framework: Framework) -> None:
    await client.do(
        "fork_thread", framework.thread("t"), framework.thread("new"), checkpoint_id=framework.points("t")[1]
    )


async def fork_the_newest(client: Client, framework: Framework) -> None:
    await client.do("fork_thread", framework.thread("t"), framework.thread("new"))


async def delete_newest(client: Client, framework: Framework) -> None:
    point: Any = {"thread_id": framework.thread("t"), "checkpoint_ns": "", "checkpoint_id": framework.points("t")[2]}
    await client.do("delete_checkpoint", {"configurable": point})


async def delete_first(client: Client, framework: Framework) -> None:
    point: Any = {"thread_id": framework.thread("t"), "checkpoint_ns": "", "checkpoint_id": framework.points("t")[0]}
    await client.do("delete_checkpoint", {"configurable": point})


async def delete_thread(client: Client, framework: Framework) -> None:
    await client.delete_thread(framework.thread("t"))


async def delete_for_runs(client: Client, framework: Framework) -> None:
    await client.delete_for_runs(["an unknown run"])


async def prune(client: Client, framework: Framework) -> None:
    await client.prune([framework.thread("t")])


async def prune_all(client: Client, framework: Framework) -> None:
    await client.prune([framework.thread("t")], strategy="delete")


async def sweep(client: Client, framework: Framework) -> None:
    await client.do("sweep", Retention(keep_last=1))


async def sweep_all(client: Client, framework: Framework) -> None:
    await client.do("sweep", Retention(max_bytes=0))


async def copy(client: Client, framework: Framework) -> None:
    await client.copy_thread(framework.thread("t"), framework.thread("new"))


async def label_and_prune(client: Client, framework: Framework) -> None:
    point: Any = {"thread_id": framework.thread("t"), "checkpoint_ns": "", "checkpoint_id": framework.points("t")[0]}
    await client.do("label", {"configurable": point}, "first")
    await client.prune([framework.thread("t")])
    assert list(framework.saver.labels(framework.thread("t"))) == ["first"]


async def label_and_unlabel(client: Client, framework: Framework) -> None:
    await client.do("label", {"configurable": {"thread_id": framework.thread("t"), "checkpoint_ns": ""}}, "newest")
    assert await client.do("unlabel", framework.thread("t"), "newest")


async def reencrypt(client: Client, framework: Framework) -> None:
    await client.do("reencrypt", dry_run=True)


Operation = Callable[[Client, Framework], Any]
# The remaining items: for all frameworks, and for those that differ. A checkpoint of pydantic-deep is an item.
TABLE: dict[Operation, tuple[Any, dict[type[Framework], Any]]] = {
    rollback: (["1", "2"], {}),
    fork: (["1", "2"], {PydanticDeep: ["2"]}),
    fork_the_newest: (ALL, {PydanticDeep: ["3"]}),
    # LangGraph continues from the parent, which already has the input.
    delete_newest: (["1", "2"], {LangGraph: ALL}),
    delete_first: (ALL, {PydanticDeep: ["2", "3"]}),
    delete_thread: ([], {}),
    delete_for_runs: (ALL, {}),
    prune: (ALL, {PydanticDeep: ["3"]}),
    prune_all: ([], {}),
    sweep: (ALL, {PydanticDeep: ["3"]}),
    sweep_all: ([], {}),
    copy: (ALL, {}),
    label_and_prune: (ALL, {PydanticDeep: ["1", "3"]}),
    label_and_unlabel: (ALL, {}),
    reencrypt: (ALL, {}),
}
NEW = {fork, fork_the_newest, copy}


@pytest.mark.parametrize("change", TABLE, ids=lambda change: change.__name__)
@pytest.mark.parametrize("make", FRAMEWORKS, ids=lambda make: make.__name__)
async def test_each_operation_on_threads_does_what_the_table_says(
    client: Client, make: type[Framework], change: Operation
) -> None:
    saver = client.saver
    assert isinstance(saver, CheckpointSaver)
    framework = make(saver)
    for item in ALL:
        await framework.add("t", item)
    default, others = TABLE[change]
    expected = others.get(make, default)
    await change(client, framework)
    left = {"t": ALL, "new": expected} if change in NEW else {"t": expected}
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
