"""How long an event loop is blocked while a state of 10 MB is saved and loaded on it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable
from itertools import islice

from benchmarks.cases import Arena, case
from benchmarks.contestants import Contestant
from benchmarks.measuring import Figures
from benchmarks.states import Put, Script, prose


async def longest_pause(work: Awaitable[object]) -> float:
    """The longest time in which nothing else could run on the loop, in seconds."""
    longest = 0.0

    async def watch() -> None:
        nonlocal longest
        last = time.perf_counter()
        while True:
            await asyncio.sleep(0.0005)
            now = time.perf_counter()
            longest = max(longest, now - last - 0.0005)
            last = now

    watcher = asyncio.create_task(watch())
    await asyncio.sleep(0.002)
    await work
    await asyncio.sleep(0.002)
    watcher.cancel()
    return longest


def large(number: int) -> list[Put]:
    """Checkpoints of 10 MB each, in four channels that all change."""
    script = Script()
    return [
        script.put({f"channel {n}": [{"id": n, "text": prose(2400)} for n in range(1000)] for n in range(4)})
        for _ in range(number)
    ]


async def lag(arena: Arena, name: str) -> None:
    """Pauses while saving, and while loading."""
    laps = arena.size(5, 2)
    puts = large(laps)
    saving = [Figures(saver.name, saver.role) for saver in arena.entrants.savers]
    loading = [Figures(saver.name, saver.role) for saver in arena.entrants.savers]
    for put in islice(puts, laps):
        for saver, saved, loaded in zip(arena.entrants.savers, saving, loading, strict=True):
            await lap(saver, put, arena.thread(name, saver.name), saved, loaded)
    arena.record(f"{name}, saving", saving)
    arena.record(f"{name}, loading", loading)


async def lap(saver: Contestant, put: Put, thread: str, saved: Figures, loaded: Figures) -> None:
    """Save and load once."""
    try:
        saved.samples.append(await longest_pause(saver.put(thread, put)))
        loaded.samples.append(await longest_pause(saver.get(thread)))
        found = await saver.get(thread)
        assert found.checkpoint["channel_values"] == put.checkpoint["channel_values"], "other values came back"
    except Exception as error:
        saved.fail(error)
        loaded.fail(error)


CASES = [case("loop lag, 10 MB", lag, apis=["async"])]
