"""Writing: checkpoints of several states, and outputs of tasks."""

from __future__ import annotations

from collections.abc import Awaitable
from functools import partial
from itertools import islice

from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer

from benchmarks.cases import Arena, case, do
from benchmarks.contestants import Contestant
from benchmarks.floors import Floor
from benchmarks.measuring import WARM, Entry, Figures, Lap
from benchmarks.states import Script, State, chat, files, small, wide, wide_text
from langgraph_checkpoint_custom.encoding.values import ValueCodec

grown: State = partial(chat, 0)


async def put(
    arena: Arena, name: str, *, state: State, laps: int, quick: int, quick_state: State | None = None
) -> None:
    """Step after step of one thread."""
    laps, straight = arena.size(laps, quick), state is small
    source = quick_state if arena.quick and quick_state else state
    puts = list(islice(source(), laps + WARM + 1))
    await arena.prepare(lambda saver: saver.put(arena.thread(name, saver.name), puts[0]), straight=straight)

    def savers(saver: Contestant) -> Lap:
        thread = arena.thread(name, saver.name)
        return lambda number: saver.put(thread, puts[number + 1])

    def floors(floor: Floor) -> Lap:
        thread = arena.thread(name, "floor")
        return lambda number: floor.store(thread, puts[number + 1].checkpoint["id"], puts[number + 1].least)

    codec = ValueCodec(JsonPlusSerializer(), on_inexact="store")

    def encoded(number: int) -> Awaitable[None]:
        put = puts[number + 1]

        async def encode_and_store() -> None:
            codec.encode(put.checkpoint)
            await arena.entrants.floor.store(arena.thread(name, "encoding"), put.checkpoint["id"], put.least)

        return encode_and_store()

    chats = [Entry("all encoded, what is new stored", "straight", encoded)] if state is grown else []
    figures = await arena.race(savers, floors, laps=laps, seconds=60, straight=straight, more=chats)

    async def checks(saver: Contestant, each: Figures) -> None:
        last = puts[len(each.samples) + WARM]
        found = await saver.get(arena.thread(name, saver.name))
        assert found.checkpoint["id"] == last.checkpoint["id"], "the last checkpoint is not the newest"
        assert found.checkpoint["channel_values"] == last.checkpoint["channel_values"], "other values came back"
        assert found.metadata["step"] == last.metadata["step"], "other metadata came back"

    await arena.check(figures, checks)
    arena.record(name, figures, note="the middle of the growth" if source is quick_state else "")


async def put_writes(arena: Arena, name: str, *, number: int) -> None:
    """The outputs of task after task, each at its own checkpoint."""
    laps = arena.size(150, 25)
    script = Script()
    calls = [(script.put({"count": step}), script.writes(number)) for step in range(laps + WARM)]
    puts = [step for step, _ in calls]
    await arena.prepare(lambda saver: do(saver, arena.thread(name, saver.name), puts), straight=True)

    def savers(saver: Contestant) -> Lap:
        thread = arena.thread(name, saver.name)
        return lambda lap: saver.put_writes(thread, calls[lap][1])

    def floors(floor: Floor) -> Lap:
        thread = arena.thread(name, "floor")

        def lap(lap: int) -> object:
            writes = calls[lap][1]
            rows = [(f"{writes.checkpoint_id} {n}", value) for n, (_, value) in enumerate(writes.writes)]
            return floor.store_all(thread, rows)

        return lap  # type: ignore[return-value]

    figures = await arena.race(savers, floors, laps=laps, seconds=5, straight=True)

    async def checks(saver: Contestant, each: Figures) -> None:
        writes = calls[len(each.samples) + WARM - 1][1]
        found = await saver.get(arena.thread(name, saver.name), writes.checkpoint_id)
        assert [(channel, value) for _, channel, value in found.pending_writes or ()] == writes.writes

    await arena.check(figures, checks)
    arena.record(name, figures)


CASES = [
    case("put small", partial(put, state=small, laps=300, quick=60)),
    case(
        "put chat to 200 messages",
        partial(put, state=grown, quick_state=partial(chat, 70), laps=100 - WARM, quick=20),
    ),
    case(
        "put chat to 1,000 messages",
        partial(put, state=grown, quick_state=partial(chat, 470), laps=500 - WARM, quick=20),
    ),
    case("put wide, dicts", partial(put, state=wide, laps=60, quick=10)),
    case("put wide, text", partial(put, state=wide_text, laps=60, quick=10)),
    case("put files", partial(put, state=files, laps=60, quick=10)),
    *(case(f"put_writes {number}", partial(put_writes, number=number)) for number in (1, 5, 50)),
]
