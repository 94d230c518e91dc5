"""Prunes, copies and deletions against runs on the same threads, thousands of calls: nothing goes that was to stay.

Each thread has one writer, and most have one kind of maintenance, so that it is known what must be there. After every
step the writer finds its newest checkpoint whole; in the end all that was to stay is there, and the tables are sound.
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
KEPT = "kept"


class Counted(Client):
    """Counts the calls that write or delete."""

    calls = 0

    async def _call(self, name: str, *args: Any, **kwargs: Any) -> Any:
        self.calls += name != "get_tuple"
        return await super()._call(name, *args, **kwargs)


class Run:
    """A writer of one thread: what it has begun to store, what was acknowledged, and what that is."""

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

    async def step(self, number: int, run_id: str = KEPT) -> None:
        """Store a checkpoint and a write, and find both."""
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
        """The newest checkpoint is there, whole, with its writes and its history."""
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

    async def there(self) -> list[str]:
        """The ids in the thread, oldest first; all of them can be read."""
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
    """Make a call until it is over; says how often."""
    for times in count(1):
        await call()
        await asyncio.sleep(0)
        if over.is_set():
            return times
    raise AssertionError


async def test_maintenance_takes_nothing_from_runs_that_was_to_stay(store: Store, client: Client) -> None:
    client = Counted(client.saver, client.api)
    over = asyncio.Event()
    dice = random.Random(7)
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
    gone: set[str] = set()  # and those that were.
    since_deletion: dict[str, int] = dict.fromkeys((each.thread_id for each in deleted), 0)
    copies: Iterator[int] = count()

    def run_of(run: Run, number: int) -> str:
        """Of four steps, two are of a run that is deleted; the last step of all is kept."""
        return KEPT if number % 4 < 2 or number > STEPS - 3 else f"run {number // 4} of {run.thread_id}"

    async def write(run: Run, *, with_runs: bool = False, find: bool = True) -> None:
        for number in range(STEPS):
            run_id = run_of(run, number) if with_runs else KEPT
            await run.step(number, run_id)
            # No other step can be deleted before the next one.
            if find and run_id == KEPT:
                await run.find(number)
            if with_runs and number % 4 == 0 and number:
                finished.add(run_of(run, number - 1))

    async def prune() -> None:
        threads = [each.thread_id for each in [*pruned, *mixed]]
        dice.shuffle(threads)
        await client.prune(threads)

    async def clean() -> None:
        runs = sorted(finished - gone - {KEPT})
        dice.shuffle(runs)
        await client.delete_for_runs(runs)
        gone.update(runs)

    async def copy() -> None:
        """A copy has all that was stored when it began, and nothing that came after its end."""
        run = dice.choice([*copied, *mixed])
        stored = len(run.stored)
        target = Run(client, f"copy {next(copies)}")
        await client.copy_thread(run.thread_id, target.thread_id)
        begun = len(run.begun)
        there = await target.there()
        if run in copied:
            assert run.begun[:stored] == there[:stored]
            assert there == run.begun[: len(there)]
            assert len(there) <= begun
        elif stored:
            assert there
        await client.delete_thread(target.thread_id)
        assert await target.there() == []

    async def delete() -> None:
        run = dice.choice(deleted)
        await client.delete_thread(run.thread_id)
        since_deletion[run.thread_id] = len(run.begun)

    async def read() -> None:
        for run in [*pruned, *cleaned, *copied, *deleted, *mixed]:
            await run.there()

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
        assert await run.there() == run.stored
    for run in pruned:
        assert (await run.there())[-1:] == run.stored[-1:]
        await run.find(STEPS - 1)
    for run in mixed:
        assert (await run.there())[-1:] == run.stored[-1:]
    assert len(gone) > 10
    for run in cleaned:
        assert await run.there() == [each for each in run.stored if run.run_ids[each] not in gone]
        await run.find(STEPS - 1)
    for run in deleted:
        there = await run.there()
        expected = run.stored[since_deletion[run.thread_id] :]
        assert there[len(there) - len(expected) :] == expected
    # Writes may come after their checkpoint has gone.
    late = {(run.thread_id, "", each) for run in deleted for each in run.begun}
    tables = check_invariants(store, early_writes=late)

    # When nobody writes, a prune leaves one checkpoint, and a deletion nothing.
    for run in [*pruned, *mixed, *cleaned]:
        await client.prune([run.thread_id])
        assert await run.there() == run.stored[-1:]
    for run in deleted:
        await client.delete_thread(run.thread_id)
        assert await run.there() == []
    assert len(check_invariants(store).checkpoints) < len(tables.checkpoints)
