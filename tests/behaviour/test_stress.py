"""Prunes, copies and deletions during runs on the same threads, thousands of calls: nothing is deleted that must stay.

Each thread has one writer, and most have one type of maintenance, so that the test knows what must exist. After every
step, the writer finds its newest checkpoint complete. At the end, everything that must stay exists in sound tables.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Iterator, Sequence
from itertools import count
from typing import Any

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.serde.types import _DeltaSnapshot

from tests.behaviour.helpers import LONG, config, get, id_of, metadata, new_versions, next_uuid, put
from tests.invariants import check_invariants
from tests.stores import Client, Store

STEPS = 60
AT_LEAST = 2_000
SNAPSHOT_EVERY = 9
RETAINED = "retained"


class Counted(Client):
    """Counts the calls that write or delete."""

    calls = 0

    async def _call(self, name: str, *args: Any, **kwargs: Any) -> Any:
        self.calls += name != "get_tuple"
        return await super()._call(name, *args, **kwargs)


class Run:
    """A writer of one thread: what it has begun to store, what was acknowledged, and its values."""

    def __init__(self, client: Client, thread_id: str, *, delta: bool = False) -> None:
        self.client = client
        self.thread_id = thread_id
        self.begun: list[str] = []
        self.stored: list[str] = []
        self.run_ids: dict[str, str] = {}
        self._delta = delta
        self._where: RunnableConfig | None = None
        self._versions: dict[str, Any] = new_versions(["big"])
        self._since = 0

    async def step(self, number: int, run_id: str = RETAINED) -> None:
        """Store a checkpoint and a write, and read both."""
        changed = [f"small {number % 3}", *(["delta"] if self._delta else [])]
        self._versions |= new_versions(changed)
        meta = metadata(number, run_id=run_id)
        values = self._values(number)
        if self._delta and number % SNAPSHOT_EVERY == 0:
            values["delta"] = _DeltaSnapshot(number)
            self._since = number
        elif self._delta:
            meta = metadata(number, run_id=run_id, counters_since_delta_snapshot={"delta": [1, 1]})
        new = self._versions if self._where is None else {name: self._versions[name] for name in changed}
        name = next_uuid()
        self.begun.append(name)
        self.run_ids[name] = run_id
        options: dict[str, Any] = {"versions": self._versions, "new": new, "meta": meta}
        self._where = await put(self.client, name, values, parent=self._where, thread_id=self.thread_id, **options)
        self.stored.append(name)
        await self.client.put_writes(self._where, [("delta", number), ("other", [LONG])], "task")

    async def find(self, number: int) -> None:
        """The newest checkpoint exists, complete, with its writes and its history."""
        assert self._where is not None
        found = await get(self.client, config(self.thread_id))
        assert found.config == self._where
        values = dict(found.checkpoint["channel_values"])
        assert values.pop("delta", None) == (_DeltaSnapshot(number) if self._delta and number == self._since else None)
        assert values == self._values(number)
        assert found.pending_writes == [("task", "delta", number), ("task", "other", [LONG])]
        if self._delta and number != self._since:
            history = await self.client.history(self._where, ["delta"])
            writes = [("task", "delta", each) for each in range(self._since, number)]
            assert history == {"delta": {"writes": writes, "seed": _DeltaSnapshot(self._since)}}

    async def stored_ids(self) -> list[str]:
        """The ids in the thread, oldest first; each of them can be read."""
        found = await self.client.all(config(self.thread_id))
        for each in found:
            number = each.metadata["step"]
            values = {name: each.checkpoint["channel_values"][name] for name in self._values(number)}
            assert values == self._values(number)
        return [id_of(each) for each in reversed(found)]

    def _values(self, number: int) -> dict[str, Any]:
        """A value that never changes, and three of which one changes at each step."""
        small = {f"small {each % 3}": [each] for each in range(max(0, number - 2), number + 1)}
        return {"big": [LONG], **small}


async def again_and_again(call: Callable[[], Awaitable[object]], over: asyncio.Event) -> int:
    """Repeat a call until the event is set; returns how often."""
    for times in count(1):
        await call()
        await asyncio.sleep(0)
        if over.is_set():
            return times
    raise AssertionError


async def test_maintenance_deletes_nothing_of_runs_that_must_stay(store: Store, client: Client) -> None:
    client = Counted(client.saver, client.api)
    over = asyncio.Event()
    randomly = random.Random(7)
    bystander = Run(client, "bystander", delta=True)
    for number in range(20):
        await bystander.step(number)
    before = [each async for each in client.list(config("bystander"))]

    pruned = [Run(client, f"pruned {number}", delta=number % 2 == 1) for number in range(4)]
    cleaned = [Run(client, f"cleaned {number}") for number in range(4)]
    copied = [Run(client, f"copied {number}") for number in range(2)]
    deleted = [Run(client, f"deleted {number}") for number in range(3)]
    mixed = [Run(client, f"mixed {number}") for number in range(3)]

    finished: set[str] = set()  # Runs that may be deleted,
    deleted_runs: set[str] = set()  # and deleted ones.
    since_deletion: dict[str, int] = dict.fromkeys((each.thread_id for each in deleted), 0)
    copies: Iterator[int] = count()

    def run_of(run: Run, number: int) -> str:
        """Of four steps, two belong to a run that is deleted; the last step of all is retained."""
        return RETAINED if number % 4 < 2 or number > STEPS - 3 else f"run {number // 4} of {run.thread_id}"

    async def write(run: Run, *, with_runs: bool = False, find: bool = True) -> None:
        for number in range(STEPS):
            run_id = run_of(run, number) if with_runs else RETAINED
            await run.step(number, run_id)
            # No other step can be deleted before the next one.
            if find and run_id == RETAINED:
                await run.find(number)
            if with_runs and number % 4 == 0 and number:
                finished.add(run_of(run, number - 1))

    async def prune() -> None:
        threads = [each.thread_id for each in [*pruned, *mixed]]
        randomly.shuffle(threads)
        await client.prune(threads)

    async def clean() -> None:
        runs = sorted(finished - deleted_runs - {RETAINED})
        randomly.shuffle(runs)
        await client.delete_for_runs(runs)
        deleted_runs.update(runs)

    async def copy() -> None:
        """A copy has everything that was stored when it began, and nothing that was stored after its end."""
        run = randomly.choice([*copied, *mixed])
        stored = len(run.stored)
        target = Run(client, f"copy {next(copies)}")
        await client.copy_thread(run.thread_id, target.thread_id)
        begun = len(run.begun)
        stored_ids = await target.stored_ids()
        if run in copied:
            assert run.begun[:stored] == stored_ids[:stored]
            assert stored_ids == run.begun[: len(stored_ids)]
            assert len(stored_ids) <= begun
        elif stored:
            assert stored_ids
        await client.delete_thread(target.thread_id)
        assert await target.stored_ids() == []

    async def delete() -> None:
        run = randomly.choice(deleted)
        await client.delete_thread(run.thread_id)
        since_deletion[run.thread_id] = len(run.begun)

    async def read() -> None:
        for run in [*pruned, *cleaned, *copied, *deleted, *mixed]:
            await run.stored_ids()

    maintenance = [
        asyncio.ensure_future(again_and_again(call, over)) for call in (prune, prune, clean, copy, copy, delete, read)
    ]
    try:
        await asyncio.gather(
            *(write(run) for run in [*pruned, *copied]),
            *(write(run, with_runs=True) for run in [*cleaned, *mixed]),
            *(write(run, find=False) for run in deleted),
        )
    finally:
        over.set()
        times: Sequence[int] = await asyncio.gather(*maintenance)
    assert min(times) > 3
    assert client.calls >= AT_LEAST

    assert [each async for each in client.list(config("bystander"))] == before
    for run in copied:
        assert await run.stored_ids() == run.stored
    for run in pruned:
        assert (await run.stored_ids())[-1:] == run.stored[-1:]
        await run.find(STEPS - 1)
    for run in mixed:
        assert (await run.stored_ids())[-1:] == run.stored[-1:]
    assert len(deleted_runs) > 10
    for run in cleaned:
        assert await run.stored_ids() == [each for each in run.stored if run.run_ids[each] not in deleted_runs]
        await run.find(STEPS - 1)
    for run in deleted:
        stored_ids = await run.stored_ids()
        expected = run.stored[since_deletion[run.thread_id] :]
        assert stored_ids[len(stored_ids) - len(expected) :] == expected
    # Writes may arrive after their checkpoint was deleted.
    late = {(run.thread_id, "", each) for run in deleted for each in run.begun}
    tables = check_invariants(store, early_writes=late)

    # Without writers, a prune leaves one checkpoint, and a deletion nothing.
    for run in [*pruned, *mixed, *cleaned]:
        await client.prune([run.thread_id])
        assert await run.stored_ids() == run.stored[-1:]
    for run in deleted:
        await client.delete_thread(run.thread_id)
        assert await run.stored_ids() == []
    assert len(check_invariants(store).checkpoints) < len(tables.checkpoints)
