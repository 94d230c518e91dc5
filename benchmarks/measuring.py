"""Interleaved rounds and their evaluation.

In each round, every contestant does the same once, and a different one begins in each round. So other load of the
machine affects all of them, and a ratio between two of them is the median of the ratios of their rounds.
"""

from __future__ import annotations

import asyncio
import gc
import statistics
import time
import traceback
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

# `same` is our saver with the setting of the official saver, if that is not our default. `straight` is the simplest
# program that does the work: straight.py has that of an ordinary call, cases/puts.py that of a chat. `promises` does
# what is promised beyond that, too: promises.py.
Role = Literal["ours", "same", "official", "straight", "promises", "floor", "serde"]
Lap = Callable[[int], Awaitable[Any]]

# Rounds that are not counted: psycopg and PostgreSQL settle on a plan after five executions.
WARM = 6
# A further figure: the CPU time of this process, of all its OS threads.
CPU = "client CPU ms"
# A median of fewer says nothing.
FEWEST = 5


@dataclass
class Figures:
    """The measurements of one contestant in one case, in seconds unless the result says otherwise."""

    name: str
    role: Role
    samples: list[float] = field(default_factory=list)
    # Further figures, by name and unit: "steps/s".
    extras: dict[str, float] = field(default_factory=dict)
    error: str | None = None

    @property
    def median(self) -> float | None:
        """The median, or None if the contestant failed."""
        return statistics.median(self.samples) if self.samples and not self.error else None

    @property
    def p99(self) -> float | None:
        """The 99th percentile, which is the largest of up to a hundred."""
        if not self.samples or self.error:
            return None
        return sorted(self.samples)[min(len(self.samples) - 1, int(len(self.samples) * 0.99))]

    def fail(self, error: Exception) -> None:
        """Note that the contestant has failed, or returned something wrong."""
        self.error = "".join(traceback.format_exception_only(error)).strip()[:300]


@dataclass
class Result:
    """A case on one database with one api."""

    case: str
    database: str
    api: str
    unit: str
    figures: list[Figures]
    note: str = ""

    def of(self, role: Role) -> list[Figures]:
        """The contestants of a role that succeeded, the best first."""
        found = [(each.median, each) for each in self.figures if each.role == role]
        return [each for _, each in sorted(((m, each) for m, each in found if m is not None), key=lambda pair: pair[0])]

    def best(self, role: Role) -> Figures | None:
        """The best of a role."""
        return next(iter(self.of(role)), None)

    @property
    def simplest(self) -> Figures | None:
        """The simplest program that does the work, if one took part."""
        return self.best("promises") or self.best("straight")

    def ratio(self, role: Role, of: str | None = None, *, whose: Role = "ours") -> float | None:
        """The time of ours, or whose it is, relative to the best of a role; `of` names one of the further figures."""
        if of is not None:
            mine = [each.extras[of] for each in self.of(whose) if of in each.extras]
            theirs = [each.extras[of] for each in self.of(role) if of in each.extras]
            return mine[0] / min(theirs) if mine and theirs else None
        ours, other = self.best(whose), self.best(role)
        if ours is None or other is None:
            return None
        if len(ours.samples) == len(other.samples):
            pairs = [a / b for a, b in zip(ours.samples, other.samples, strict=True) if b > 0]
            return statistics.median(pairs) if pairs else None
        return ours.median / other.median if ours.median is not None and other.median else None


class Entry(NamedTuple):
    """A contestant in a race; `lap` prepares what is measured, and returns it to be awaited.

    What `before` returns is awaited before, and is not measured.
    """

    name: str
    role: Role
    lap: Lap
    before: Lap | None = None


async def race(
    entries: Sequence[Entry], *, laps: int, seconds: float, warm: int = WARM, first: int = 0, fewest: int = FEWEST
) -> list[Figures]:
    """Let all do their laps in turn, until `laps` or `seconds` are over."""
    figures = {entry.name: Figures(entry.name, entry.role) for entry in entries}
    used: dict[str, list[float]] = {entry.name: [] for entry in entries}
    gc.collect()
    ends = time.perf_counter() + seconds
    for number in range(laps + warm):
        turn = number % len(entries)
        for entry in (*entries[turn:], *entries[:turn]):
            mine = figures[entry.name]
            if mine.error:
                continue
            try:
                if entry.before:
                    await entry.before(first + number)
                work = entry.lap(first + number)
                cpu, started = time.process_time(), time.perf_counter()
                await work
                taken, cpu = time.perf_counter() - started, time.process_time() - cpu
            except Exception as error:
                mine.fail(error)
                continue
            if number >= warm:
                mine.samples.append(taken)
                used[entry.name].append(cpu)
        await asyncio.sleep(0)  # Pools and the loop have work of their own, which belongs to no lap.
        if time.perf_counter() > ends and number + 1 >= warm + fewest:
            break
    for mine in figures.values():
        if mine.samples and not mine.error:
            mine.extras[CPU] = statistics.median(used[mine.name]) * 1000
    return list(figures.values())


async def check(figures: Iterable[Figures], checks: Callable[[Figures], Awaitable[None]]) -> None:
    """Check whether each contestant has really done it."""
    for each in figures:
        if not each.error:
            try:
                await checks(each)
            except Exception as error:
                each.fail(error)


def run_here(work: Awaitable[Any]) -> Any:
    """Run a coroutine that never waits, as those of sync contestants, on this OS thread."""
    steps = work.__await__()
    try:
        next(steps)
    except StopIteration as done:
        return done.value
    raise RuntimeError("a sync contestant has waited for an event loop")
