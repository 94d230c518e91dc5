"""Copying and deleting threads of 1,000 checkpoints; if an official saver cannot, by list and put, one by one."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from itertools import islice

from benchmarks.cases import Arena, case, do
from benchmarks.contestants import Contestant
from benchmarks.floors import Floor
from benchmarks.measuring import Figures, Lap
from benchmarks.states import Put, long_thread

Work = Callable[[Contestant, str], Awaitable[None]]
RUNS = 100


async def maintain(arena: Arena, name: str, *, work: Work, left: Callable[[int], int], result: str = "{}") -> None:
    """Do it to a new thread in each lap; `left` returns how many checkpoints the thread `result` has then."""
    length, laps = arena.size(1000, 250), arena.size(3, 1)
    calls = list(islice(long_thread(), length))
    async with arena.location.fillers() as fillers:
        ours, official = fillers
        for saver in arena.entrants.savers:
            for number in range(laps):
                thread = f"{arena.thread(name, saver.name)}, {number}"
                await do(official if saver.role == "official" else ours, thread, calls)
    for floor in (arena.entrants.floor, arena.entrants.serde):
        for number in range(laps):
            rows = [(f"{n:06}", call.least) for n, call in enumerate(calls)]
            await floor.store_all(f"{arena.thread(name, 'floor')}, {number}", rows)

    def savers(saver: Contestant) -> Lap:
        return lambda number: work(saver, f"{arena.thread(name, saver.name)}, {number}")

    def floors(floor: Floor) -> Lap:
        def lap(number: int) -> Awaitable[None]:
            thread = f"{arena.thread(name, 'floor')}, {number}"
            return floor.copy(thread, result.format(thread)) if result != "{}" else floor.delete(thread)

        return lap

    figures = await arena.race(savers, floors, laps=laps, warm=0, fewest=1)
    figures = [each for each in figures if each.role != "serde"]

    async def checks(saver: Contestant, each: Figures) -> None:
        thread = result.format(f"{arena.thread(name, saver.name)}, 0")
        found = [one async for one in saver.tuples(thread)]
        assert len(found) == left(length), f"{len(found)} checkpoints are left, not {left(length)}"
        if found:
            last = calls[-1]
            assert isinstance(last, Put)
            assert found[0].checkpoint["channel_values"] == last.checkpoint["channel_values"], "other values came back"

    await arena.check(figures, checks)
    arena.record(name, figures, note=f"{length:,} checkpoints")


CASES = [
    case(
        "copy_thread",
        partial(maintain, work=lambda saver, at: saver.copy_thread(at, f"copy of {at}"), left=int, result="copy of {}"),
    ),
    case("prune", partial(maintain, work=lambda saver, at: saver.prune(at), left=lambda _: 1)),
    case("delete_thread", partial(maintain, work=lambda saver, at: saver.delete_thread(at), left=lambda _: 0)),
]


async def delete_runs(arena: Arena, name: str) -> None:
    """Delete a hundred runs of a thread in which each checkpoint has its own run."""
    length, laps = arena.size(1000, 250), arena.size(3, 1)
    made = {}
    async with arena.location.fillers() as fillers:
        ours, official = fillers
        for saver in arena.entrants.savers:
            for number in range(laps):
                # Runs are looked for in all threads, so each thread has its own.
                thread = f"{arena.thread(name, saver.name)}, {number}"
                made[thread] = list(islice(long_thread(f"{thread}, run"), length))
                await do(official if saver.role == "official" else ours, thread, made[thread])

    def savers(saver: Contestant) -> Lap:
        def lap(number: int) -> Awaitable[None]:
            thread = f"{arena.thread(name, saver.name)}, {number}"
            return saver.delete_for_runs([f"{thread}, run {n}" for n in range(50, 50 + RUNS)], thread)

        return lap

    figures = await arena.race(savers, laps=laps, warm=0, fewest=1)

    async def checks(saver: Contestant, each: Figures) -> None:
        thread = f"{arena.thread(name, saver.name)}, 0"
        found = [one.checkpoint async for one in saver.tuples(thread)]
        wanted = [call.checkpoint for call in made[thread]]
        wanted = [*wanted[:50], *wanted[50 + RUNS :]][::-1]
        assert [each["id"] for each in found] == [each["id"] for each in wanted], "others are left"
        assert found[-1]["channel_values"] == wanted[-1]["channel_values"], "other values came back"

    await arena.check(figures, checks)
    arena.record(name, figures, note=f"{RUNS} runs of {length:,}")


CASES.append(case("delete_for_runs", delete_runs))
