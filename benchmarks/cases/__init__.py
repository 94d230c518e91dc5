"""The cases: each is a race of all contestants on one database with one api, and a check of what they have stored."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from benchmarks.contestants import Contestant, Field, Location
from benchmarks.floors import Floor
from benchmarks.measuring import WARM, Entry, Figures, Lap, Result, check, race
from benchmarks.states import Put, Writes

Call = TypeVar("Call", Put, Put | Writes)

DATABASES = ("postgres", "sqlite")
APIS = ("sync", "async")


@dataclass
class Arena:
    """What a case needs: the contestants, how long it may take, and where its results go."""

    location: Location
    api: str
    entrants: Field
    quick: bool
    results: list[Result]
    options: dict[str, int] = field(default_factory=dict)
    lost: dict[str, Exception] = field(default_factory=dict)

    def size(self, full: int, quick: int) -> int:
        """A number that is smaller in a quick run."""
        return quick if self.quick else full

    def thread(self, case: str, name: str) -> str:
        """A contestant's own thread."""
        return f"{case}, {name}, {self.api}"

    async def race(
        self,
        savers: Callable[[Contestant], Lap],
        floors: Callable[[Floor], Lap] | None = None,
        *,
        straight: bool = False,
        before: Callable[[Contestant], Lap] | None = None,
        more: Sequence[Entry] = (),
        laps: int,
        seconds: float = 1e9,
        warm: int = WARM,
        fewest: int = 5,
    ) -> list[Figures]:
        """Race savers and, with the same lap, both floors; a quick run ends a race after half a second.

        With `straight`, the straight line takes part, which can only do what is ordinary; `more` are others. Each saver
        first does the lap of `before`, which is not measured.
        """
        entries = [
            Entry(saver.name, saver.role, self.lap_of(saver, savers), before(saver) if before else None)
            for saver in self.savers(straight)
        ]
        entries += more
        if floors:
            entries += [
                Entry("floor", "floor", floors(self.entrants.floor)),
                Entry("serde", "serde", floors(self.entrants.serde)),
            ]
        return await race(
            entries, laps=laps, seconds=min(seconds, 0.4) if self.quick else seconds, warm=warm, fewest=fewest
        )

    def savers(self, straight: bool) -> list[Contestant]:
        """The savers, and the straight line if it takes part."""
        return [*self.entrants.savers, *(self.entrants.straight if straight else ())]

    async def prepare(self, work: Callable[[Contestant], Awaitable[None]], *, straight: bool = False) -> None:
        """Run what comes before a race with each saver; one that fails has lost the race."""
        for saver in self.savers(straight):
            try:
                await work(saver)
            except Exception as error:
                self.lost[saver.name] = error

    def lap_of(self, saver: Contestant, savers: Callable[[Contestant], Lap]) -> Lap:
        """The lap of a saver, which fails at once if the saver has lost already."""
        if error := self.lost.get(saver.name):

            def fail(_: int) -> Awaitable[None]:
                assert error
                raise error

            return fail
        return savers(saver)

    async def check(self, figures: Sequence[Figures], checks: Callable[[Contestant, Figures], Awaitable[None]]) -> None:
        """Check whether each saver has done it."""
        savers = {saver.name: saver for saver in self.savers(True)}

        async def one(each: Figures) -> None:
            if each.name in savers:
                await checks(savers[each.name], each)

        await check(figures, one)

    def record(self, case: str, figures: Sequence[Figures], *, unit: str = "s", note: str = "") -> None:
        """Record a result."""
        self.results.append(Result(case, self.location.database, self.api, unit, list(figures), note))

    async def fill(
        self, thread_id: str, calls: Callable[[], Sequence[Call]], *, straight: bool = False
    ) -> Sequence[Call]:
        """A thread in the stores of ours and of the official savers, which all cases on this location only read."""
        found: Sequence[Call] | None = self.location.filled.get(thread_id)
        if found is None:
            found = self.location.filled[thread_id] = calls()
            async with self.location.fillers() as fillers:
                for filler in fillers:
                    await do(filler, thread_id, found)
        if straight and not self.location.filled.get(f"{thread_id}, straight"):
            self.location.filled[f"{thread_id}, straight"] = True
            for saver in self.entrants.straight:
                await do(saver, thread_id, found)
        return found


async def do(saver: Contestant, thread_id: str, calls: Sequence[Put | Writes]) -> None:
    """Make these calls."""
    for call in calls:
        if isinstance(call, Put):
            await saver.put(thread_id, call)
        else:
            await saver.put_writes(thread_id, call)


@dataclass(frozen=True)
class Case:
    """A case; `quick` if it is part of a quick run."""

    name: str
    group: str
    run: Callable[[Arena, str], Awaitable[None]]
    quick: bool = True
    databases: Sequence[str] = DATABASES
    apis: Sequence[str] = APIS


def case(name: str, run: Callable[[Arena, str], Awaitable[None]], **options: Any) -> Case:
    """A case, in the group named after its function's module."""
    group = getattr(run, "func", run).__module__.rpartition(".")[2]
    return Case(name, group, run, **options)
