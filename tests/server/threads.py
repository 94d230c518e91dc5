"""What the tests do with a server's threads, in one line each."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from langgraph_sdk.client import LangGraphClient
from langgraph_sdk.schema import StreamPart

from tests.server.processes import LOOK, TIMEOUT

State = Mapping[str, Any]


class Threads:
    """The threads of a server."""

    def __init__(self, client: LangGraphClient) -> None:
        self.client = client

    async def new(self, graph: str, thread_id: str | None = None) -> Thread:
        """A new thread for a graph; or one that this server does not know, but perhaps the database."""
        made = await self.client.threads.create(thread_id=thread_id, graph_id=graph, if_exists="do_nothing")
        return self.known(graph, made["thread_id"])

    def known(self, graph: str, thread_id: str) -> Thread:
        """A thread that this server knows."""
        return Thread(self.client, graph, thread_id)


class Thread:
    """A thread of a server, and the graph that runs on it."""

    def __init__(self, client: LangGraphClient, graph: str, thread_id: str) -> None:
        self.client = client
        self.graph = graph
        self.thread_id = thread_id

    async def wait(self, input: Any = None, **options: Any) -> Any:
        """Run the graph and wait for its end; an error of the run is raised here."""
        return await self.client.runs.wait(self.thread_id, self.graph, input=input, **options)

    def stream(self, input: Any, **options: Any) -> AsyncIterator[StreamPart]:
        """Run the graph, and stream its updates."""
        return self.client.runs.stream(self.thread_id, self.graph, input=input, **options)

    async def begin(self, input: Any = None, **options: Any) -> str:
        """Begin a run in the background; returns its id."""
        run = await self.client.runs.create(self.thread_id, self.graph, input=input, **options)
        return run["run_id"]

    async def join(self, run_id: str) -> Any:
        """Wait for the end of a run in the background; returns the state."""
        return await self.client.runs.join(self.thread_id, run_id)

    async def status(self, run_id: str) -> str:
        """The status of a run."""
        return (await self.client.runs.get(self.thread_id, run_id))["status"]

    async def runs(self) -> Sequence[str]:
        """The ids of the runs that the server knows."""
        return [run["run_id"] for run in await self.client.runs.list(self.thread_id)]

    async def state(self, checkpoint_id: str | None = None, **options: Any) -> State:
        """The state, or that at a checkpoint."""
        return dict(await self.client.threads.get_state(self.thread_id, checkpoint_id=checkpoint_id, **options))

    async def history(self, **options: Any) -> Sequence[State]:
        """The states, newest first."""
        return [dict(each) for each in await self.client.threads.get_history(self.thread_id, **options)]

    async def update(self, values: Any, **options: Any) -> None:
        """Change the state by hand."""
        await self.client.threads.update_state(self.thread_id, values, **options)

    async def copied(self) -> Thread:
        """A copy of the thread."""
        copy: Any = self.client.threads.copy  # Its annotation says None.
        made = await copy(self.thread_id)
        return Thread(self.client, self.graph, made["thread_id"])


class Gate:
    """What the node `second` waits for: a file that the test creates, once another file says that the run is there."""

    def __init__(self, folder: Path, name: str = "gate") -> None:
        self.path = folder / name

    async def reached(self) -> None:
        """Wait until a run waits here."""
        deadline = time.monotonic() + TIMEOUT
        while not self.path.with_name(f"{self.path.name}.reached").exists():
            assert time.monotonic() < deadline, "no run has come to the gate"
            await asyncio.sleep(LOOK)

    def open(self) -> None:
        """Let the run continue."""
        self.path.touch()

    def input(self) -> dict[str, Any]:
        """The input that sends a run here."""
        return {"done": [], "gate": str(self.path)}


NO_GATE = {"done": [], "gate": ""}
ALL = ["first", "second", "third"]
