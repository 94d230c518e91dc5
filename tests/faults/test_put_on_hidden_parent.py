"""A checkpoint that continues from a hidden one is complete or refused, also if the thread is pruned meanwhile.

Its `DeltaChannel`s need ancestors that no visible checkpoint may need.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.serde.types import _DeltaSnapshot

from langgraph_checkpoint_custom import CheckpointNotFound, Contention, PostgresSaver, SqliteSaver
from langgraph_checkpoint_custom.engine.operation import Operation, Steps, T, through
from tests.behaviour.helpers import config, metadata, next_uuid, put
from tests.conftest import APIS
from tests.drivers.test_maintenance_meets_runs import ConcurrentCall
from tests.faults.test_locked_operations import SESSIONS, opened
from tests.stores import Client

BOTH = ["often", "seldom"]
COUNTED = metadata(counters_since_delta_snapshot={"often": [1, 1], "seldom": [1, 1]})
VERSIONS = {"often": "child", "seldom": "child"}


async def step(client: Client, number: int, parent: RunnableConfig | None, *snapshots: str) -> RunnableConfig:
    """A checkpoint with snapshots of some channels and a write of each, which its children need."""
    values = {channel: _DeltaSnapshot([number]) for channel in snapshots}
    versions = dict.fromkeys(BOTH, str(number))
    stored = await put(client, next_uuid(), values, parent=parent, versions=versions, meta=COUNTED)
    await client.put_writes(stored, [(channel, number) for channel in BOTH], "task")
    return stored


async def chain_without_a_newer_snapshot(client: Client) -> Sequence[RunnableConfig]:
    """The ancestors of the newest checkpoint are hidden: the first has the seed of `often`, the second of `seldom`."""
    chain = [await step(client, 0, None, "often")]
    for number, snapshots in enumerate([["seldom"], [], []], 1):
        chain.append(await step(client, number, chain[-1], *snapshots))
    await client.prune(["thread"])
    return chain


async def go_on(client: Client, parent: RunnableConfig) -> None:
    """Store a snapshot of `often`; then nothing visible needs the first checkpoint of the chain."""
    await step(client, 5, await step(client, 4, parent, "often"))


class Interposed:
    """A driver that calls `meanwhile` after the history of a parent was read."""

    def __init__(self, driver: Any, meanwhile: Callable[[], None]) -> None:
        self._driver = driver
        self._meanwhile = meanwhile

    def __getattr__(self, name: str) -> Any:
        return getattr(self._driver, name)

    def run(self, op: Operation[T]) -> T:
        return self._driver.run(self._interrupted(op))  # type: ignore[no-any-return]

    async def arun(self, op: Operation[T]) -> T:
        return await self._driver.arun(self._interrupted(op))  # type: ignore[no-any-return]

    def _interrupted(self, op: Operation[T]) -> Operation[T]:
        def answer(request: Any) -> Steps[Any]:
            reply = yield request
            if any(each.name == "select_delta_history" for each in getattr(request, "statements", ())):
                self._meanwhile()
            return reply

        return replace(op, start=lambda: through(op.start(), answer))


@asynccontextmanager
async def opened_at(session: str, request: pytest.FixtureRequest, api: str) -> AsyncIterator[tuple[Client, Client]]:
    """A saver in a kind of session, and another one for the same store."""
    if session == "SQLite":
        path: Path = request.getfixturevalue("tmp_path") / "checkpoints.db"
        async with SqliteSaver(path) as saver, SqliteSaver(path, busy_timeout=0.01) as other:
            yield Client(saver, api), Client(other, "sync")
    else:
        url = request.getfixturevalue("postgres_url")
        async with opened(session, url, api) as client, PostgresSaver(url) as other:
            yield client, Client(other, "sync")


@pytest.mark.parametrize("large", [False, True])
@pytest.mark.parametrize("session", [*SESSIONS, "SQLite"])
@pytest.mark.parametrize("api", APIS)
async def test_a_prune_waits_until_it_is_stored(
    request: pytest.FixtureRequest, session: str, api: str, large: bool
) -> None:
    async with opened_at(session, request, api) as (client, other):
        chain = await chain_without_a_newer_snapshot(client)
        await go_on(client, chain[-1])
        waiting: list[ConcurrentCall] = []

        def meanwhile() -> None:
            pruned: Any = other.saver
            if session == "SQLite":
                with pytest.raises(Contention):
                    pruned.prune(["thread"])
                return
            waiting.append(ConcurrentCall(lambda: pruned.prune(["thread"])))
            waiting[-1].wait_until_blocked(request.getfixturevalue("postgres_url"))

        saver: Any = client.saver
        saver._driver, driver = Interposed(saver._driver, meanwhile), saver._driver
        try:
            values = {"large": ["text " * 5_000]} if large else {}
            versions = VERSIONS | dict.fromkeys(values, "1")
            child = await put(client, next_uuid(), values, parent=chain[2], versions=versions, meta=COUNTED)
        finally:
            saver._driver = driver
            for call in waiting:
                call.join()
        assert len(waiting) == (session != "SQLite")
        for _ in range(2):
            found = await client.history(child, BOTH)
            assert found["often"]["seed"] == _DeltaSnapshot([0])
            assert [value for _, _, value in found["often"]["writes"]] == [0, 1, 2]
            assert found["seldom"]["seed"] == _DeltaSnapshot([1])
            assert [value for _, _, value in found["seldom"]["writes"]] == [1, 2]
            await client.prune(["thread"])


@pytest.mark.parametrize("session", [*SESSIONS, "SQLite"])
@pytest.mark.parametrize("api", APIS)
async def test_it_is_refused_after_a_prune(request: pytest.FixtureRequest, session: str, api: str) -> None:
    async with opened_at(session, request, api) as (client, other):
        chain = await chain_without_a_newer_snapshot(client)
        await go_on(client, chain[-1])
        await other.prune(["thread"])
        before = await client.all(config())
        with pytest.raises(CheckpointNotFound, match=r"'often' cannot be rebuilt.*nothing was stored"):
            await put(client, next_uuid(), parent=chain[2], versions=VERSIONS, meta=COUNTED)
        assert await client.all(config()) == before
        child = await put(
            client, next_uuid(), {"often": _DeltaSnapshot([9])}, parent=chain[2], versions=VERSIONS, meta=COUNTED
        )
        assert (await client.history(child, ["seldom"]))["seldom"]["seed"] == _DeltaSnapshot([1])
