"""Reading: the newest checkpoint, one by its id, and lists."""

from __future__ import annotations

import tracemalloc
from functools import partial
from itertools import islice
from statistics import median
from typing import Any

from benchmarks.cases import Arena, case
from benchmarks.contestants import Contestant
from benchmarks.floors import Floor
from benchmarks.measuring import WARM, Entry, Figures, Lap, race
from benchmarks.states import Put, State, Writes, agent, chat, files, long_thread, prose, small, wide, wide_text


async def get(arena: Arena, name: str, *, state: State, by_id: bool, writes: int = 0) -> None:
    """The newest checkpoint of a thread of three, with `writes` writes of the tasks after it."""
    thread = name.removesuffix(", by id")

    def calls() -> list[Put | Writes]:
        puts = list(islice(state(), 3))
        written = [(f"channel {number}", {"text": prose(200)}) for number in range(writes)]
        return [*puts, *([Writes(puts[-1].checkpoint["id"], written, "task")] if writes else [])]

    straight = state in (small, agent)
    last = [call for call in await arena.fill(thread, calls, straight=straight) if isinstance(call, Put)][-1]
    checkpoint_id = last.checkpoint["id"] if by_id else None
    for floor in (arena.entrants.floor, arena.entrants.serde):
        await floor.store(arena.thread(name, "floor"), "state", [last.checkpoint, last.metadata])

    def savers(saver: Contestant) -> Lap:
        return lambda _: saver.get(thread, checkpoint_id)

    def floors(floor: Floor) -> Lap:
        return lambda _: floor.load(arena.thread(name, "floor"), "state")

    figures = await arena.race(savers, floors, laps=arena.size(100, 30), seconds=2, straight=straight)

    async def checks(saver: Contestant, each: Figures) -> None:
        found = await saver.get(thread, checkpoint_id)
        assert found.checkpoint["channel_values"] == last.checkpoint["channel_values"], "other values came back"
        assert len(found.pending_writes or ()) == writes, "other writes came back"

    await arena.check(figures, checks)
    arena.record(name, figures)


async def get_after_put(arena: Arena, name: str) -> None:
    """The newest checkpoint, which the same saver has just stored."""
    laps = arena.size(100, 30)
    puts = list(islice(small(), laps + WARM))

    def before(saver: Contestant) -> Lap:
        return lambda lap: saver.put(arena.thread(name, saver.name), puts[lap])

    def savers(saver: Contestant) -> Lap:
        return lambda _: saver.get(arena.thread(name, saver.name))

    figures = await arena.race(savers, laps=laps, seconds=5, straight=True, before=before)

    async def checks(saver: Contestant, each: Figures) -> None:
        found = await saver.get(arena.thread(name, saver.name))
        last = puts[len(each.samples) + WARM - 1]
        assert found.checkpoint["channel_values"] == last.checkpoint["channel_values"], "other values came back"

    await arena.check(figures, checks)
    arena.record(name, figures)


async def growth(arena: Arena, name: str) -> None:
    """The time to read the newest checkpoint of a long thread, relative to a short one."""
    long = arena.size(4000, 1000)
    short_thread, long_name = "a thread of 100", f"a thread of {long}"
    await arena.fill(short_thread, lambda: list(islice(small(), 100)))
    await arena.fill(long_name, lambda: list(islice(small(), long)))

    def savers(thread: str, saver: Contestant) -> Lap:
        return lambda _: saver.get(thread)

    # All in one race, since the load of the machine may differ at another time.
    entries = [
        Entry(f"{saver.name}, {thread}", saver.role, arena.lap_of(saver, partial(savers, thread)))
        for thread in (short_thread, long_name)
        for saver in arena.entrants.savers
    ]
    found = await race(entries, laps=arena.size(100, 30), seconds=arena.size(4, 1))
    grown = []
    for saver, short, far in zip(arena.entrants.savers, found, found[len(found) // 2 :], strict=False):
        pairs = [b / a for a, b in zip(short.samples, far.samples, strict=False)]
        samples = [median(pairs)] if pairs else []
        grown.append(Figures(saver.name, saver.role, samples, error=short.error or far.error))
    arena.record(name, grown, unit="×", note=f"{long:,} against 100 checkpoints")


LONG = "a long thread"


def _long(arena: Arena) -> list[Put]:
    return list(islice(long_thread(), arena.size(1000, 400)))


async def list_some(arena: Arena, name: str, *, limit: int | None, filter: dict[str, Any] | None = None) -> None:
    """List checkpoints of a long thread without holding any."""
    straight = not filter
    calls = await arena.fill(LONG, lambda: _long(arena), straight=straight)
    expected = sum(not filter or call.metadata["source"] == filter["source"] for call in calls)
    expected = min(expected, limit or expected)
    thread = arena.thread(name, "floor")
    for floor in (arena.entrants.floor, arena.entrants.serde):
        values = [[call.checkpoint, call.metadata] for call in calls[:expected]]
        await floor.store_all(thread, [(f"{number:06}", value) for number, value in enumerate(values)])

    def savers(saver: Contestant) -> Lap:
        return lambda _: saver.count(LONG, limit=limit, filter=filter)

    def floors(floor: Floor) -> Lap:
        return lambda _: floor.load_all(thread, expected)

    many = expected > 50
    figures = await arena.race(
        savers,
        floors,
        straight=straight,
        laps=arena.size(20 if many else 60, 5 if many else 20),
        seconds=3,
        warm=1 if many else 6,
    )

    async def checks(saver: Contestant, each: Figures) -> None:
        found = [each async for each in saver.tuples(LONG, limit=limit, filter=filter)]
        assert len(found) == expected, f"{len(found)} came back of {expected}"
        wanted = [call for call in reversed(calls) if not filter or call.metadata["source"] == filter["source"]]
        for one, call in zip(found, wanted, strict=False):
            assert one.checkpoint["channel_values"] == call.checkpoint["channel_values"], "other values came back"

    await arena.check(figures, checks)
    arena.record(name, figures, note=f"{expected} of {len(calls)} checkpoints")


async def list_memory(arena: Arena, name: str) -> None:
    """The peak of Python's memory while a long thread is listed."""
    calls = await arena.fill(LONG, lambda: _long(arena))
    figures = []
    for saver in arena.entrants.savers:
        mine = Figures(saver.name, saver.role)
        figures.append(mine)
        try:
            await saver.count(LONG, limit=1)
            tracemalloc.start()
            await saver.count(LONG)
            mine.samples.append(tracemalloc.get_traced_memory()[1])
        except Exception as error:
            mine.fail(error)
        finally:
            tracemalloc.stop()
    arena.record(name, figures, unit="B", note=f"{len(calls)} checkpoints")


STATES: dict[str, State] = {
    "small": small,
    "chat of 200 messages": partial(chat, 196),
    "chat of 1,000 messages": partial(chat, 996),
    "wide, dicts": wide,
    "wide, text": wide_text,
    "files": files,
}

CASES = [
    *(case(f"get {name}", partial(get, state=state, by_id=False)) for name, state in STATES.items()),
    *(
        case(f"get {name}, by id", partial(get, state=state, by_id=True), quick=name == "small")
        for name, state in STATES.items()
    ),
    case("get small, right after a put", get_after_put),
    case("get agent state with writes", partial(get, state=agent, by_id=False, writes=5)),
    case("get latest, growth", growth),
    case("list 1", partial(list_some, limit=1)),
    case("list 10", partial(list_some, limit=10)),
    case("list all", partial(list_some, limit=None)),
    case("list filtered", partial(list_some, limit=None, filter={"source": "input"})),
    case("list all, peak memory", list_memory),
]
