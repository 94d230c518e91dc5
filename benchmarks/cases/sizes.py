"""The size of a thread on disk, and the bytes that are written for it."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from functools import partial
from itertools import islice
from typing import NamedTuple

import psutil

from benchmarks.cases import Arena, case
from benchmarks.contestants import Contestant, Location, contestants
from benchmarks.measuring import Figures
from benchmarks.states import Put, State, chat, wide


class Size(NamedTuple):
    """What a run has taken so far."""

    disk: int
    written: int
    server_cpu: float


def size(location: Location, whose: str) -> Size:
    """Of the database of ours, the official savers or the floor; bytes written are those of WAL on PostgreSQL."""
    if location.database == "postgres":
        server = location.server
        server.query("SELECT pg_stat_force_next_flush()", location.name(whose))
        return Size(server.size(location.name(whose)), server.wal(), server.cpu())
    written = psutil.Process().io_counters().write_chars
    # As on PostgreSQL, what is left of the WAL is not part of the database.
    with closing(sqlite3.connect(location.where / f"{whose}.db")) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    return Size(sum(file.stat().st_size for file in location.where.glob(f"{whose}.db*")), written, 0)


async def steps(arena: Arena, name: str, *, state: State, steps: int, quick: int = 0) -> None:
    """The given number of steps of one thread, in a database that has nothing else."""
    steps = arena.size(steps, quick)
    where = arena.location.where / name.replace(" ", "_").replace(",", "")
    where.mkdir()
    location = Location(
        arena.location.database, where, arena.location.server if arena.location.database == "postgres" else None
    )
    location.make()
    disk: list[Figures] = []
    written: list[Figures] = []
    cpu: list[Figures] = []
    try:
        async with contestants(location, "sync") as field:
            calls: Callable[[], Iterator[Put]] = lambda: islice(state(), steps)  # noqa: E731
            for saver in (field.savers[0], next(each for each in field.savers if each.role == "official")):
                whose = "ours" if saver.role == "ours" else "official"
                found = [Figures(whose, saver.role) for _ in range(3)]
                for kind, each in zip((disk, written, cpu), found, strict=True):
                    kind.append(each)
                try:
                    taken = await run(saver, location, whose, calls)
                except Exception as error:
                    for each in found:
                        each.fail(error)
                else:
                    for each, sample in zip(found, taken, strict=True):
                        each.samples.append(sample)
            before = size(location, "floor")
            for number, put in enumerate(calls()):
                await field.floor.store("thread", str(number), put.least)
            after = size(location, "floor")
            on_disk, bytes_written, seconds = _less(after, before)
            samples = (on_disk, bytes_written, seconds / steps)
            for kind, sample in zip((disk, written, cpu), samples, strict=True):
                kind.append(Figures("floor", "floor", [sample]))
    finally:
        location.drop()
    note = f"{steps:,} steps"
    arena.record(f"{name}, on disk", disk, unit="B", note=note)
    arena.record(f"{name}, written", written, unit="B", note=note)
    if location.database == "postgres":
        arena.record(f"{name}, server CPU", cpu, unit="s", note=note)


async def run(
    saver: Contestant, location: Location, whose: str, calls: Callable[[], Iterator[Put]]
) -> tuple[float, ...]:
    """Do the steps; returns what they took, the server's CPU for each step."""
    before = size(location, whose)
    puts = list(calls())
    for put in puts:
        await saver.put("thread", put)
    after = size(location, whose)
    found = await saver.get("thread")
    assert found.checkpoint["channel_values"] == puts[-1].checkpoint["channel_values"], "other values came back"
    disk, written, cpu = _less(after, before)
    return disk, written, cpu / len(puts)


def _less(after: Size, before: Size) -> tuple[float, float, float]:
    return after.disk - before.disk, after.written - before.written, after.server_cpu - before.server_cpu


CASES = [
    case("200 chat steps", partial(steps, state=partial(chat, 1, 1), steps=200, quick=200), apis=["sync"]),
    case("1,000 chat steps", partial(steps, state=partial(chat, 1, 1), steps=1000), apis=["sync"], quick=False),
    case("200 wide steps", partial(steps, state=wide, steps=200, quick=60), apis=["sync"]),
]
