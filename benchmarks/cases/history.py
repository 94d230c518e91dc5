"""Delta channels: the writes that a value is rebuilt from."""

from __future__ import annotations

from functools import partial
from typing import Any

from benchmarks.cases import Arena, case
from benchmarks.contestants import Contestant
from benchmarks.floors import Floor
from benchmarks.measuring import Figures, Lap
from benchmarks.states import Deltas


async def history(
    arena: Arena,
    name: str,
    *,
    steps: int,
    length: int,
    quick_length: int,
    snapshots: int | None = None,
    branches: int = 0,
) -> None:
    """The history of `steps` checkpoints, in a thread with `length` of them."""
    length = arena.size(length, quick_length)
    thread = f"{length} steps, snapshots {snapshots}, branches {branches}"
    made: Deltas | None = arena.location.filled.get(f"deltas of {thread}")
    if made is None:
        made = arena.location.filled[f"deltas of {thread}"] = Deltas(length, snapshots=snapshots, branches=branches)
    deltas = made
    await arena.fill(thread, lambda: deltas.calls)
    # The history is that of the ancestors; the first one without a value is the root.
    last = length - 1 if snapshots or branches else steps
    target = deltas.ids[min(last, length - 1)]
    written: list[Any] = deltas.written[: min(last, length - 1)]
    if snapshots:
        written = written[-snapshots:]
    floor_thread = arena.thread(name, "floor")
    for floor in (arena.entrants.floor, arena.entrants.serde):
        await floor.store_all(floor_thread, [(f"{number:06}", value) for number, value in enumerate(written)])

    def savers(saver: Contestant) -> Lap:
        return lambda _: saver.history(thread, target, deltas.channel)

    def floors(floor: Floor) -> Lap:
        return lambda _: floor.load_all(floor_thread)

    figures = await arena.race(savers, floors, laps=arena.size(40, 12), seconds=3)

    async def checks(saver: Contestant, each: Figures) -> None:
        found = await saver.history(thread, target, deltas.channel)
        values = [value for _, _, value in found["writes"]]
        assert values == written, f"{len(values)} other writes came back, not {len(written)}"
        assert ("seed" in found) == bool(snapshots), "the seed is missing, or there should be none"

    await arena.check(figures, checks)
    arena.record(name, figures, note=f"{len(written)} writes in a thread of {length:,}")


CASES = [
    case("history, 100 steps", partial(history, steps=100, length=5001, quick_length=1001)),
    case("history, 1,000 steps", partial(history, steps=1000, length=5001, quick_length=1001)),
    case("history, 5,000 steps", partial(history, steps=5000, length=5001, quick_length=1001), quick=False),
    case("history, snapshot 100 back", partial(history, steps=100, length=5001, quick_length=1001, snapshots=100)),
    case(
        "history, snapshot 1,000 back",
        partial(history, steps=1000, length=5001, quick_length=1001, snapshots=1000),
        quick=False,
    ),
    case("history, 50 branches", partial(history, steps=1000, length=1001, quick_length=301, branches=50)),
]
