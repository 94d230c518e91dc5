"""Many concurrent threads: a step is `put`, `put_writes` and, in every fifth step, `get_tuple`."""

from __future__ import annotations

import asyncio
import gc
import random
import time
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from functools import partial
from itertools import islice
from typing import Any

from benchmarks.cases import Arena, case
from benchmarks.contestants import DATABASES, Contestant, Field, contestants
from benchmarks.floors import Floor
from benchmarks.measuring import CPU, Figures, run_here
from benchmarks.states import Put, Writes, prose, small
from benchmarks.stores import delayed

Steps = Callable[[str, list[float]], Coroutine[Any, Any, None]]
Script = list[tuple[Put, Writes]]


def script(steps: int) -> Script:
    """The calls of each task, on its own thread."""
    return [
        (put, Writes(put.checkpoint["id"], [("count", 1), ("log", {"text": prose(200)})], f"task {number}"))
        for number, put in enumerate(islice(small(), steps))
    ]


def of_saver(saver: Contestant, calls: Script) -> Steps:
    """The steps of a saver."""

    async def steps(thread: str, taken: list[float]) -> None:
        for number, (put, writes) in enumerate(calls):
            started = time.perf_counter()
            await saver.put(thread, put)
            await saver.put_writes(thread, writes)
            if number % 5 == 4:
                found = await saver.get(thread)
                assert found.checkpoint["channel_values"] == put.checkpoint["channel_values"], "other values came back"
            taken.append(time.perf_counter() - started)

    return steps


def of_floor(floor: Floor, calls: Script) -> Steps:
    """The same steps of the floor."""

    async def steps(thread: str, taken: list[float]) -> None:
        for number, (put, writes) in enumerate(calls):
            started = time.perf_counter()
            rows = [(f"{number} {channel}", value) for channel, value in writes.writes]
            await floor.store_all(thread, rows)
            await floor.store(thread, str(number), put.least)
            if number % 5 == 4:
                await floor.load(thread, str(number))
            taken.append(time.perf_counter() - started)

    return steps


async def concurrently(steps: Steps, api: str, number: int, thread: str) -> list[float]:
    """Do the steps on `number` threads concurrently; returns how long each took."""
    taken: list[float] = []
    if api == "async":
        await asyncio.gather(*(steps(f"{thread}, {each}", taken) for each in range(number)))
    else:
        with ThreadPoolExecutor(number) as workers:
            list(workers.map(lambda each: run_here(steps(f"{thread}, {each}", taken)), range(number)))
    return taken


async def concurrent(arena: Arena, name: str, *, number: int, delay: float = 0) -> None:
    """Steps on `number` concurrent threads, over a network that takes `delay` milliseconds more."""
    if not delay:
        return await measure(arena, name, arena.entrants, number, delay)
    with ExitStack() as stack:
        server, location = arena.location.server, arena.location
        urls = {whose: stack.enter_context(delayed(server.of(location.name(whose)), delay)) for whose in DATABASES}
        async with contestants(location, arena.api, through=urls) as far:
            await measure(arena, name, far, number, delay)


async def measure(arena: Arena, name: str, field: Field, number: int, delay: float) -> None:
    """Rounds of all contestants."""
    if arena.quick:
        steps = max(5, 100 // number) if not delay else 5
    else:
        steps = max(10, 400 // number) if not delay else max(5, 100 // number)
    calls = script(steps)
    entries: list[tuple[Figures, Steps]] = [
        (Figures(saver.name, saver.role), of_saver(saver, calls)) for saver in (*field.savers, *field.straight)
    ]
    entries.append((Figures("floor", "floor"), of_floor(field.floor, calls)))
    latencies: dict[str, list[float]] = {each.name: [] for each, _ in entries}
    used: dict[str, list[tuple[float, float]]] = {each.name: [] for each, _ in entries}
    server = arena.location.server if arena.location.database == "postgres" else None
    # The first round opens connections and does not count.
    for turn in range(1 + arena.size(3, 1 if delay else 2)):
        random.shuffle(entries)
        for mine, work in entries:
            if mine.error:
                continue
            gc.collect()  # A full collection takes 0.1 s, and would burden whichever contestant runs when it is due.
            cpu, server_cpu, started = time.process_time(), server.cpu() if server else 0, time.perf_counter()
            try:
                taken = await concurrently(work, arena.api, number, f"{arena.thread(name, mine.name)}, {turn}")
            except Exception as error:
                mine.fail(error)
                continue
            elapsed = time.perf_counter() - started
            if turn:
                mine.samples.append(elapsed / len(taken))
                latencies[mine.name] += taken
                used_now = (time.process_time() - cpu, (server.cpu() if server else 0) - server_cpu)
                used[mine.name].append((used_now[0] / len(taken), used_now[1] / len(taken)))
    for mine, _ in entries:
        if mine.median:
            all_taken = sorted(latencies[mine.name])
            mine.extras = {
                "steps/s": 1 / mine.median,
                "p50 ms": all_taken[len(all_taken) // 2] * 1000,
                "p99 ms": all_taken[int(len(all_taken) * 0.99)] * 1000,
                CPU: sum(client for client, _ in used[mine.name]) / len(used[mine.name]) * 1000,
                "server CPU ms": sum(cpu for _, cpu in used[mine.name]) / len(used[mine.name]) * 1000,
            }
    order = ["ours", "same", "official", "straight", "promises", "floor"]
    figures = sorted((each for each, _ in entries), key=lambda each: order.index(each.role))
    arena.record(name, figures, unit="s", note=f"{steps} steps on each thread")


CASES = [
    *(
        case(f"{number} at a time", partial(concurrent, number=number), quick=number in (1, 64))
        for number in (1, 8, 32, 64)
    ),
    *(
        case(
            f"{number} at a time, 2 ms away",
            partial(concurrent, number=number, delay=2),
            quick=number == 64,
            databases=["postgres"],
        )
        for number in (1, 8, 32, 64)
    ),
]
