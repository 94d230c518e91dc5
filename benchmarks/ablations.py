"""What each optimisation buys: our saver with it and without it, in turn, on the case that it is for.

    python -m benchmarks.ablations            # all of them, in minutes
    python -m benchmarks.ablations batches    # those with this in their name

A ratio is the time, or the size, without the optimisation relative to that with it: more than 1 is what it buys. The
straight line of `straight.py` has none of them; `python -m benchmarks` has it beside the official savers.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, ExitStack, contextmanager
from dataclasses import replace
from functools import cache
from importlib import import_module
from itertools import islice
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

from benchmarks.cases.concurrency import concurrently, of_saver, script
from benchmarks.contestants import CONNECTIONS, Contestant
from benchmarks.measuring import CPU, Entry, Figures, race
from benchmarks.states import Deltas, Put, State, Writes, agent, chat, edited, files, small, summarised, trimmed
from benchmarks.stores import Server, folder, started_server
from langgraph_checkpoint_custom import CheckpointSaver, PostgresSaver, SqliteSaver
from langgraph_checkpoint_custom.drivers.postgres import PostgresDriver
from langgraph_checkpoint_custom.drivers.sqlite import SqliteDriver
from langgraph_checkpoint_custom.drivers.sqlite_connections import SqliteConnections
from langgraph_checkpoint_custom.encoding import chunks
from langgraph_checkpoint_custom.engine.operation import READS, Form, Operation
from langgraph_checkpoint_custom.model.keys import TupleRow

PACKAGE = "langgraph_checkpoint_custom"
Work = Callable[[Contestant, int], Awaitable[Any]]


class Ablation(NamedTuple):
    """An optimisation, and how to do without it.

    Attributes:
        name: What it is, and the case.
        databases: Where it is.
        api: Sync or async.
        work: Returns the work of a round, given the contestant and the number of the round; made anew for each saver.
        options: The options of the saver without it.
        patches: What is replaced while the saver without it is opened and works, by the place below the package.
        laps: The number of rounds.
    """

    name: str
    databases: Sequence[str]
    api: str
    work: Callable[[], Work]
    options: Mapping[str, Any] = {}
    patches: Mapping[str, Any] = {}
    laps: int = 100


def puts(state: State) -> Callable[[], Work]:
    """Step after step of one thread."""

    def made() -> Work:
        steps = state()
        calls: list[Put] = []

        def work(saver: Contestant, number: int) -> Awaitable[Any]:
            calls.extend(islice(steps, number + 1 - len(calls)))
            return saver.put("puts", calls[number])

        return work

    return made


def steps_of(state: State) -> Callable[[], Work]:
    """The same, and a read of what was stored."""

    def made() -> Work:
        put = puts(state)()

        async def work(saver: Contestant, number: int) -> None:
            await put(saver, number)
            await saver.get("puts")

        return work

    return made


def deltas() -> Work:
    """Steps of a thread with a `DeltaChannel`: a put that builds on its parent, and its write."""
    calls = iter(Deltas(200).calls)

    async def work(saver: Contestant, number: int) -> None:
        for call in islice(calls, 2):
            if isinstance(call, Writes):
                await saver.put_writes("deltas", call)
            else:
                await saver.put("deltas", call)

    return work


def reads_of(state: State) -> Callable[[], Work]:
    """Ten reads of a thread of three checkpoints, which the first round stores."""

    def made() -> Work:
        calls = list(islice(state(), 3))

        async def work(saver: Contestant, lap: int) -> None:
            for call in () if lap else calls:
                await saver.put("reads", call)
            for _ in range(10):
                await saver.get("reads")

        return work

    return made


def reads_at_once(number: int) -> Callable[[], Work]:
    """Ten reads of this many tasks at once, each of its own thread, which the first round stores."""

    def made() -> Work:
        put, writes = script(1)[0]

        async def work(saver: Contestant, lap: int) -> None:
            async def one(thread: str) -> None:
                if not lap:
                    await saver.put(thread, put)
                    await saver.put_writes(thread, writes)
                for _ in range(10):
                    await saver.get(thread)

            await asyncio.gather(*(one(f"read by {each}") for each in range(number)))

        return work

    return made


def at_once(number: int) -> Callable[[], Work]:
    """Ten steps of this many tasks at once, each on its own thread."""

    def made() -> Work:
        calls = script(10)

        def work(saver: Contestant, lap: int) -> Awaitable[Any]:
            return concurrently(of_saver(saver, calls), saver.api, number, f"{number} at once, {lap}")

        return work

    return made


_STORE = SqliteDriver._store


def _one_by_one(self: Any, calls: Sequence[Any]) -> None:
    """Run each write of a worker in a transaction of its own."""
    for call in calls:
        _STORE(self, [call])


_ASEND = PostgresDriver.asend


async def _send_reads_alone(
    self: PostgresDriver, form: Form, params: Sequence[Any], *, wait: float | None = None
) -> Any:
    """Send a statement; one that reads waits for a connection of its own."""
    return await _ASEND(self, form, params, wait=30.0 if form.access in READS else wait)


_SEND = PostgresDriver.send


@cache
def _without_blobs(form: Form) -> Form:
    """The form that reads one checkpoint, without the part of its statement that reads blobs and chunks."""
    start, end = (form.sql.index(f"UNION ALL\nSELECT '{kind}'") for kind in ("blob", "write"))
    return replace(form, sql=form.sql[:start] + form.sql[end:])


def _read_in_two(self: PostgresDriver, form: Form, params: Sequence[Any]) -> Any:
    """Read one checkpoint without its blobs, and if it has some, read it again with them."""
    if form.operation != "get_tuple":
        return _SEND(self, form, params)
    rows = _SEND(self, _without_blobs(form), params)
    return _SEND(self, form, params) if rows and rows[0][_CHANNELS] else rows


async def _send_on_thread(self: Any, form: Form, params: Sequence[Any]) -> Any:
    """Send a statement on an OS thread of the event loop, under the lock of the driver."""
    return await asyncio.to_thread(self.send, form, params)


async def _run_on_thread(self: Any, op: Operation[Any]) -> Any:
    """Run an operation on an OS thread of the event loop, under the lock of the driver."""
    return await asyncio.to_thread(self.run, op)


_FOUND = chunks._found


def _only_at_the_start(data: bytes, start: int, known: Sequence[chunks.Chunk]) -> Any:
    """Find chunks only where a value has not changed before them, as if it could only be appended to."""
    found = []
    for part in _FOUND(data, start, known):
        if part.start != start:
            break
        found.append(part)
        start = part.end
    return found


_CHANNELS = TupleRow._fields.index("channels")
_NEVER = property(lambda dialect: False)
_NO_FORMS = {
    "sql.sqlite_dialect.SqliteDialect.sends_forms": _NEVER,
    "sql.postgres_dialect.PostgresDialect.sends_forms": _NEVER,
}
BOTH = ("postgres", "sqlite")
DOCUMENT = "encoding.encode.DOCUMENT"
ABLATIONS = [
    *(
        Ablation(f"one row up to 4 KB: {name}", BOTH, "sync", steps_of(state), patches={DOCUMENT: 0})
        for name, state in (("small", small), ("agent", agent))
    ),
    *(
        Ablation(f"one row up to 16 KB: {name}", BOTH, "sync", steps_of(state), patches={"encoding.encode.CHANGING": 1})
        for name, state in (
            ("chat of 6 KB, trimmed in each step", lambda: trimmed(5)),
            ("chat of 12 KB, trimmed in each step", lambda: trimmed(10)),
        )
    ),
    Ablation(
        "values by version: chat of 100 messages", BOTH, "sync", steps_of(lambda: chat(96)), patches={DOCUMENT: 2**30}
    ),
    *(
        Ablation(f"{what}: {name}", BOTH, "sync", steps_of(state), patches=patches)
        for what, patches in (
            ("chunks", {"encoding.chunks.SPLIT_FROM": 2**30}),
            ("chunks that are found anywhere", {"encoding.chunks._found": _only_at_the_start}),
        )
        for name, state in (
            ("chat of 200 messages", lambda: chat(196)),
            ("chat of 1,000 messages", lambda: chat(996)),
            ("chat trimmed to 200 messages in each step", lambda: trimmed(200)),
            ("chat of 200 messages, summarised to 20", lambda: summarised(200, 20)),
            ("files", files),
            ("list of 500 dicts, edited in the middle", lambda: edited(500)),
        )
    ),
    *(
        Ablation(
            f"chunks of 16 KB, not {size:,} bytes: {name}",
            BOTH,
            "sync",
            steps_of(state),
            patches={"encoding.chunks.CHUNK_BYTES": size},
        )
        for name, state in (("chat of 200 messages", lambda: chat(196)), ("files", files))
        for size in (8_000, 32_000)
    ),
    Ablation(
        "what is remembered for chunks: chat of 200 messages",
        BOTH,
        "sync",
        puts(lambda: chat(196)),
        options={"chunk_cache_bytes": 0},
    ),
    Ablation(
        "no encoding of what exceeds the limit: chat of 200 messages",
        BOTH,
        "sync",
        puts(lambda: chat(196)),
        patches={"encoding.encode._exceeds": lambda values, limit: False},
    ),
    Ablation(
        "compression: chat of 100 messages",
        ("postgres",),
        "sync",
        steps_of(lambda: chat(96)),
        options={"compress": False},
    ),
    Ablation("prepared statements: small", ("postgres",), "sync", steps_of(small), options={"prepare": False}),
    *(
        Ablation(f"a statement without an operation: {name}, {api}", BOTH, api, steps_of(state), patches=_NO_FORMS)
        for name, state in (("small", small), ("agent", agent))
        for api in ("sync", "async")
    ),
    *(
        Ablation(
            f"a read in one statement: {name}",
            ("postgres",),
            "sync",
            reads_of(state),
            patches={"drivers.postgres.PostgresDriver.send": _read_in_two},
        )
        for name, state in (("small", small), ("agent", agent), ("chat of 200 messages", lambda: chat(196)))
    ),
    Ablation(
        "reads with the connection that writes: small",
        ("sqlite",),
        "sync",
        steps_of(small),
        patches={"drivers.sqlite_connections.SqliteConnections.reading_at_once": SqliteConnections.reading},
    ),
    Ablation(
        "a DeltaChannel's put in one statement",
        BOTH,
        "sync",
        deltas,
        patches=_NO_FORMS,
    ),
    *(
        Ablation(
            f"batches: {number} tasks",
            ("postgres",),
            "async",
            at_once(number),
            laps=20,
            patches={"drivers.postgres_pools.ALONE": 2**30},
        )
        for number in (1, 8, 32, 64)
    ),
    *(
        Ablation(
            f"batched reads: {what}, {number} tasks",
            ("postgres",),
            "async",
            work(number),
            laps=20,
            patches={"drivers.postgres.PostgresDriver.asend": _send_reads_alone},
        )
        for what, work in (("steps, a read in every fifth", at_once), ("reads only", reads_at_once))
        for number in (8, 32, 64)
    ),
    *(
        Ablation(
            f"shared commits: {number} tasks",
            ("sqlite",),
            "async",
            at_once(number),
            laps=20,
            patches={"drivers.sqlite.SqliteDriver._store": _one_by_one},
        )
        for number in (1, 8, 64)
    ),
    *(
        Ablation(
            f"OS threads of a saver, not asyncio.to_thread: {number} tasks",
            ("sqlite",),
            "async",
            at_once(number),
            laps=20,
            patches={
                "drivers.sqlite.SqliteDriver.asend": _send_on_thread,
                "drivers.sqlite.SqliteDriver.arun": _run_on_thread,
            },
        )
        for number in (1, 8, 32, 64)
    ),
]


@contextmanager
def patched(patches: Mapping[str, Any]) -> Iterator[None]:
    """Replace attributes of modules and classes of the package."""
    with ExitStack() as stack:
        for place, value in patches.items():
            above, name = f"{PACKAGE}.{place}".rsplit(".", 1)
            module, _, inside = above.rpartition(".")
            owner: Any = getattr(import_module(module), inside) if inside[0].isupper() else import_module(above)
            stack.callback(setattr, owner, name, vars(owner)[name])
            setattr(owner, name, value)
        yield


async def measured(ablation: Ablation, database: str, where: Path, server: Server | None) -> list[Figures]:
    """Race the saver with the optimisation and the one without it, each on a database of its own."""
    async with AsyncExitStack() as stack:

        def opened(name: str, options: Mapping[str, Any]) -> CheckpointSaver:
            if database == "sqlite":
                return SqliteSaver(where / f"{name}.db", **options)
            assert server is not None
            stack.callback(server.drop, f"ablation_{name}")
            return PostgresSaver(server.create(f"ablation_{name}"), max_size=CONNECTIONS, **options)

        async def entry(name: str, options: Mapping[str, Any], patches: Mapping[str, Any]) -> Entry:
            work = ablation.work()
            with patched(patches):
                saver = await stack.enter_async_context(opened(name, options))
                await saver.asetup()
            contestant = Contestant(name, "ours", ablation.api, saver)

            async def lap(number: int) -> None:
                with patched(patches):
                    await work(contestant, number)

            return Entry(name, "ours", lap)

        entries = [await entry("with", {}, {}), await entry("without", ablation.options, ablation.patches)]
        figures = await race(entries, laps=ablation.laps, seconds=5)
        if server and database == "postgres":
            sizes = [server.size(f"ablation_{each.name}") for each in figures]
        else:
            sizes = [sum(file.stat().st_size for file in where.glob(f"{each.name}.db*")) for each in figures]
        for each, size in zip(figures, sizes, strict=True):
            each.extras["MB"] = size / 1e6
    return figures


def line(ablation: Ablation, database: str, figures: Sequence[Figures]) -> str:
    """What the optimisation buys."""
    failed = [f"{each.name} failed: {each.error}" for each in figures if each.error]
    if failed:
        return f"| {ablation.name} | {database} {ablation.api} | {'; '.join(failed)} | | |"
    with_, without = figures
    pairs = [b / a for a, b in zip(with_.samples, without.samples, strict=True)]
    ratios = [median(pairs), *(without.extras[what] / with_.extras[what] for what in (CPU, "MB"))]
    return f"| {ablation.name} | {database} {ablation.api} | {' | '.join(f'{ratio:.2f}' for ratio in ratios)} |"


async def run(asked: Sequence[str], server: Server, where: Path) -> None:
    """Measure those that are asked for, and print a table."""
    print("| optimisation: case | database | time | client CPU | space |\n|---|---|--:|--:|--:|")
    for ablation in ABLATIONS:
        if not asked or any(each in ablation.name for each in asked):
            for database in ablation.databases:
                with tempfile.TemporaryDirectory(dir=where) as name:
                    print(line(ablation, database, await measured(ablation, database, Path(name), server)), flush=True)


def main() -> None:
    """Start a server and run."""
    with folder() as where, started_server(where) as server:
        asyncio.run(run(sys.argv[1:], server, where))


if __name__ == "__main__":
    main()
