"""Plays a scenario on a thread of some saver, with one api and durability, and notes the results.

A scenario is a coroutine over a `Thread`: it makes graphs, runs them, and says where a process could end and another
one continue (`pause`). The types of threads differ in what they do at a pause: the one in memory does nothing, those
on a store continue with a new saver, or after they pruned or copied the thread. Their notes must equal those of the
one in memory.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from typing import Any, ClassVar, Literal, NamedTuple, Protocol
from uuid import uuid4

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import BaseCheckpointSaver, CheckpointTuple, DeltaChannelHistory
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.serde.types import _DeltaSnapshot
from langgraph.pregel import Pregel
from langgraph.types import StateSnapshot, StateUpdate
from typing_extensions import Self

from langgraph_checkpoint_custom import CheckpointSaver
from tests.behaviour.helpers import default_walk, states_of
from tests.graphs.plain import plain, plain_checkpoints, plain_state
from tests.stores import Client, Store

Durability = Literal["sync", "async", "exit"]


class Location(NamedTuple):
    """Where a checkpoint is in its thread."""

    checkpoint_ns: str
    checkpoint_id: str


class Builder(Protocol):
    """A graph that is not compiled yet."""

    def compile(self, checkpointer: Any = None) -> Any: ...


class Thread:
    """A thread in memory, with LangGraph's own saver; a pause does nothing."""

    # The types of notes that cannot be compared with those of the thread in memory.
    incomparable: ClassVar[frozenset[str]] = frozenset()
    # Whether something is done between the steps of a run, which is a stream then.
    streams: ClassVar[bool] = False

    def __init__(self, saver: BaseCheckpointSaver[str], api: str, durability: Durability) -> None:
        self.saver = saver
        self.api = api
        self.durability = durability
        self.thread_id = "thread"
        self.notes: list[tuple[str, Any]] = []
        self._graphs: list[Graph] = []
        self._left_out: set[str] = set()

    @property
    def client(self) -> Client:
        """The saver's methods in the api of this thread."""
        return Client(self.saver, self.api)

    @property
    def config(self) -> RunnableConfig:
        """The config of this thread's newest checkpoint."""
        return {"configurable": {"thread_id": self.thread_id}}

    def at(self, checkpoint: StateSnapshot | RunnableConfig) -> RunnableConfig:
        """The config of a checkpoint on this thread, also where it was read before the thread was copied."""
        found = (checkpoint.config if isinstance(checkpoint, StateSnapshot) else checkpoint)["configurable"]
        retained = ("checkpoint_ns", "checkpoint_id", "checkpoint_map")
        return {
            "configurable": {"thread_id": self.thread_id} | {key: found[key] for key in retained if key in found},
        }

    def graph(self, builder: Builder) -> Graph:
        """A graph on this thread."""
        self._graphs.append(Graph(self, builder))
        return self._graphs[-1]

    def note(self, kind: str, value: Any) -> None:
        """Note something that the thread in memory must note as well."""
        if kind not in self._left_out:
            self.notes.append((kind, value))

    def leave_out(self, *types: str) -> None:
        """Stop noting these types of things."""
        self._left_out.update(types)

    async def pause(self, *, past_needed: bool = False, ends: bool = True) -> None:
        """A point where a process could end. With `past_needed`, the scenario continues from an old checkpoint.

        With `ends=False`, the process cannot end here, but other work may happen between two steps.
        """

    async def between_steps(self) -> None:
        """Called during a run, between two steps."""

    async def finish(self) -> None:
        """Note the complete history."""
        for graph in self._graphs:
            await graph.history()
        self.note("checkpoints", plain_checkpoints(await self.client.all(self.config)))

    async def shut(self) -> None:
        """Close what is open."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.shut()


def in_memory(api: str, durability: Durability) -> Thread:
    """A thread on LangGraph's own saver."""
    return Thread(InMemorySaver(), api, durability)


class Stored(Thread):
    """A thread on one of our stores, which may have threads of other tests."""

    saver: CheckpointSaver

    def __init__(self, store: Store, api: str, durability: Durability) -> None:
        super().__init__(store.open(), api, durability)
        self._store = store
        self.thread_id = f"thread {uuid4()}"

    async def shut(self) -> None:
        if self.api == "async":
            await self.saver.aclose()
        else:
            await asyncio.to_thread(self.saver.close)

    async def reopen(self) -> None:
        """Continue with a new saver, as another process does."""
        await self.shut()
        self.saver = self._store.open()


class Pruned(Stored):
    """A thread that is pruned at each pause, so that its past is deleted."""

    incomparable = frozenset({"history", "checkpoints"})

    async def pause(self, *, past_needed: bool = False, ends: bool = True) -> None:
        if not past_needed:
            await self.prune()

    async def finish(self) -> None:
        await check_walks(self.client, await self.client.all(self.config))
        await self.prune()
        await super().finish()

    async def prune(self) -> None:
        """Prune. The newest checkpoint of each namespace that a later step can still read remains."""
        retained = live(await self.client.all(self.config))
        replayed = await walks(self.client, retained, replayed_only=True)
        await self.client.prune([self.thread_id])
        after = await self.client.all(self.config)
        assert sorted(map(location_of, after)) == sorted(map(location_of, retained))
        assert await walks(self.client, after, replayed_only=True) == replayed
        await check_walks(self.client, after)


class PrunedWhileRunning(Pruned):
    """A thread that is pruned at each pause, and at each update during a run."""

    incomparable = Pruned.incomparable | {"result"}
    streams = True

    async def between_steps(self) -> None:
        await self.client.prune([self.thread_id])


class Copied(Stored):
    """A thread that is copied at each pause and continues as the copy in another process; the source is deleted."""

    async def pause(self, *, past_needed: bool = False, ends: bool = True) -> None:
        if ends:
            await self.reopen()
        await self.copy()

    async def finish(self) -> None:
        before = await self.client.all(self.config)
        walked = await walks(self.client, before)
        await self.copy()
        after = await self.client.all(self.config)
        assert plain_checkpoints(after) == plain_checkpoints(before)
        assert await walks(self.client, after) == walked
        await check_walks(self.client, after)
        await super().finish()

    async def copy(self) -> None:
        source, self.thread_id = self.thread_id, f"{self.thread_id}+"
        await self.client.copy_thread(source, self.thread_id)
        await self.client.delete_thread(source)


class Graph:
    """A graph on a thread, compiled again for each saver. Its methods hide the api, and note their results."""

    def __init__(self, thread: Thread, builder: Builder) -> None:
        self.thread = thread
        self._builder = builder
        self._compiled: tuple[object, Any] = (None, None)

    @property
    def runnable(self) -> Pregel[Any, Any, Any, Any]:
        """The graph, compiled with the current saver of the thread."""
        if self._compiled[0] is not self.thread.saver:
            self._compiled = (self.thread.saver, self._builder.compile(checkpointer=self.thread.saver))
        runnable: Pregel[Any, Any, Any, Any] = self._compiled[1]
        return runnable

    async def invoke(
        self,
        input: Any,
        *,
        at: RunnableConfig | None = None,
        metadata: Mapping[str, Any] | None = None,
        **options: Any,
    ) -> StateSnapshot:
        """Run the graph; returns the state after it."""
        config: RunnableConfig = {**(at or self.thread.config), "metadata": dict(metadata or {})}
        options |= {"durability": self.thread.durability}
        if self.thread.streams:
            await self._stream(input, config, options)
        else:
            self.thread.note("result", plain(await self._call("invoke", input, config, **options)))
        return await self.state()

    async def step_through(self, input: Any) -> StateSnapshot:
        """Run the graph with a pause after each superstep, up to an interrupt or the end."""
        state = await self.invoke(input, interrupt_after="*")
        while state.next and not state.interrupts:
            await self.thread.pause(ends=False)
            state = await self.invoke(None, interrupt_after="*")
        await self.thread.pause()
        return state

    async def state(self, at: RunnableConfig | None = None) -> StateSnapshot:
        """A state with the states of its subgraphs."""
        found: StateSnapshot = await self._call("get_state", at or self.thread.config, subgraphs=True)
        self.thread.note("state", plain_state(found, full=False))
        return found

    async def update_state(
        self, values: Any, as_node: str | None = None, *, at: RunnableConfig | None = None
    ) -> RunnableConfig:
        """Change the state; returns the config of the new checkpoint."""
        config: RunnableConfig = await self._call("update_state", at or self.thread.config, values, as_node)
        await self.state()
        return config

    async def bulk_update_state(
        self, supersteps: Sequence[Sequence[StateUpdate]], *, at: RunnableConfig | None = None
    ) -> RunnableConfig:
        """Change the state several times; returns the config of the newest checkpoint."""
        config: RunnableConfig = await self._call("bulk_update_state", at or self.thread.config, supersteps)
        await self.state()
        return config

    async def history(self) -> list[StateSnapshot]:
        """The states of the thread, newest first."""
        found = await states_of(self.thread.client, self.runnable, self.thread.config)
        self.thread.note("history", [plain_state(state, full=True) for state in found])
        return found

    async def _stream(self, input: Any, config: RunnableConfig, options: Mapping[str, Any]) -> None:
        options = {**options, "stream_mode": "updates", "subgraphs": True}
        if self.thread.api == "async":
            async for _ in self.runnable.astream(input, config, **options):
                await self.thread.between_steps()
            return
        loop = asyncio.get_running_loop()

        def run() -> None:
            for _ in self.runnable.stream(input, config, **options):
                asyncio.run_coroutine_threadsafe(self.thread.between_steps(), loop).result()

        await asyncio.to_thread(run)

    async def _call(self, name: str, *args: Any, **kwargs: Any) -> Any:
        if self.thread.api == "async":
            return await getattr(self.runnable, f"a{name}")(*args, **kwargs)
        return await asyncio.to_thread(getattr(self.runnable, name), *args, **kwargs)


Scenario = Callable[[Thread], Coroutine[Any, Any, None]]

# All scenarios, and those that go back to old checkpoints.
SCENARIOS: list[Scenario] = []
PAST_SCENARIOS: list[Scenario] = []


def scenario(function: Scenario) -> Scenario:
    """Register a scenario; its name says what must hold."""
    SCENARIOS.append(function)
    return function


def past_scenario(function: Scenario) -> Scenario:
    """Register a scenario that goes back to old checkpoints, so that it cannot be pruned at any time."""
    PAST_SCENARIOS.append(function)
    return scenario(function)


async def play(scenario: Scenario, thread: Thread) -> list[tuple[str, Any]]:
    """Play a scenario to its end; returns the notes."""
    async with thread:
        await scenario(thread)
        await thread.finish()
    return thread.notes


_IN_MEMORY: dict[tuple[Scenario, str, Durability], list[tuple[str, Any]]] = {}


async def agrees_with_memory(
    scenario: Scenario, kind: type[Stored], store: Store, api: str, durability: Durability
) -> None:
    """Play a scenario in memory, once for all tests of this process, and on a store; both notes must be equal."""
    way = scenario, api, durability
    if way not in _IN_MEMORY:
        _IN_MEMORY[way] = await play(scenario, in_memory(api, durability))
    expected = _IN_MEMORY[way]
    found = await play(scenario, kind(store, api, durability))
    assert _comparable(found, kind) == _comparable(expected, kind)


def _comparable(notes: Iterable[tuple[str, Any]], kind: type[Thread]) -> list[tuple[str, Any]]:
    return [note for note in notes if note[0] not in kind.incomparable]


def location_of(found: CheckpointTuple) -> Location:
    """The location of a checkpoint in its thread."""
    location = found.config["configurable"]
    return Location(location["checkpoint_ns"], location["checkpoint_id"])


def live(found: Iterable[CheckpointTuple]) -> list[CheckpointTuple]:
    """The newest checkpoint of each namespace that a later step can still read.

    The namespace of a subgraph call has a task id in it. It is needed as long as the step that calls it is
    the newest one of the root.
    """
    heads: dict[str, CheckpointTuple] = {}
    for one in sorted(found, key=location_of):
        heads[location_of(one).checkpoint_ns] = one
    root = location_of(heads[""]).checkpoint_id
    return [
        head
        for checkpoint_ns, head in heads.items()
        if ":" not in checkpoint_ns or head.metadata["parents"][""] == root
    ]


Walks = Mapping[Location, Mapping[str, DeltaChannelHistory]]


async def walks(client: Client, found: Iterable[CheckpointTuple], *, replayed_only: bool = False) -> Walks:
    """The histories of the delta channels of some checkpoints.

    With `replayed_only`, only of the channels without a value in the checkpoint, which depend on its ancestors.
    """
    result = {}
    for one in found:
        values = one.checkpoint["channel_values"]
        channels = [name for name in delta_channels(one) if not (replayed_only and name in values)]
        if channels:
            result[location_of(one)] = await client.history(one.config, channels)
    return result


async def check_walks(client: Client, found: Iterable[CheckpointTuple]) -> None:
    """The history of each checkpoint's delta channels is what LangGraph's own walk over our saver finds."""
    for one in found:
        if channels := delta_channels(one):
            history = await client.history(one.config, channels)
            assert history == await default_walk(client, one.config, channels)


def delta_channels(found: CheckpointTuple) -> list[str]:
    """The delta channels of a checkpoint: those with a snapshot in it, and those that count the steps since one."""
    values = found.checkpoint["channel_values"]
    counted = found.metadata.get("counters_since_delta_snapshot") or {}
    return sorted({name for name, value in values.items() if isinstance(value, _DeltaSnapshot)}.union(counted))
