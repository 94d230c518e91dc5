"""A store of a million threads compared with one of a thousand: does more grow than the depth of indexes?

The threads are multiplied inside the database from one that each saver has stored itself: every row again, with other
ids. Column names say which values are ids, so this code does not depend on any saver's tables. PostgreSQL analyses its
tables automatically; SQLite never does, so ANALYZE is not run here.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Awaitable, Callable
from contextlib import closing
from itertools import islice
from typing import Any

import psycopg

from benchmarks.cases import Arena, case, do
from benchmarks.contestants import Contestant, Location, contestants
from benchmarks.measuring import Entry, Figures, Result, race
from benchmarks.states import Deltas, Put, Writes, small

SEED = "seed"
STEPS = 10
# Ids that must differ from thread to thread, as those of LangGraph do.
IDS = ("checkpoint_id", "parent_checkpoint_id", "parent_id", "root_id", "run_id")


def seed() -> list[Put | Writes]:
    """The thread that is multiplied: small steps, each with a write, all of one run."""
    calls: list[Put | Writes] = []
    for number, put in enumerate(islice(small(), STEPS)):
        metadata: Any = {**put.metadata, "run_id": "run"}
        calls += [put._replace(metadata=metadata), Writes(put.checkpoint["id"], [("count", 1)], f"task {number}")]
    return calls


def multiply(location: Location, whose: str, threads: int) -> None:
    """Make `threads` threads of the seed, called "thread 1" and so on."""
    if location.database == "sqlite":
        series = (
            f"(WITH RECURSIVE s(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM s WHERE n < {threads}) SELECT n FROM s)"
        )
        with closing(sqlite3.connect(location.path(whose), isolation_level=None)) as file:
            file.execute("PRAGMA synchronous = OFF")
            names = file.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall()
            for (table,) in names:
                columns = [(row[1], "") for row in file.execute(f"PRAGMA table_info({table})")]
                if text := _insert(table, columns, f"{series} AS s"):
                    file.execute(text)
        return
    with psycopg.connect(location.server.of(location.name(whose)), autocommit=True) as server:
        tables: dict[str, list[tuple[str, str]]] = {}
        for schema, name, column in server.execute(
            "SELECT table_schema, table_name, column_name FROM information_schema.columns"
            " WHERE table_schema NOT IN ('pg_catalog', 'information_schema') ORDER BY ordinal_position"
        ):
            tables.setdefault(f"{schema}.{name}", []).append((column, ""))
        for table, columns in tables.items():
            if text := _insert(table, columns, f"generate_series(1, {threads}) AS s(n)"):
                server.execute(text.encode())
        server.execute("VACUUM ANALYZE")
        server.execute("CHECKPOINT")


def _insert(table: str, columns: list[tuple[str, str]], series: str) -> str | None:
    names = [name for name, _ in columns]
    if "thread_id" not in names:
        return None

    def value(column: str) -> str:
        if column == "thread_id":
            return "'thread ' || s.n"
        return f"t.{column} || '-' || s.n" if column in IDS else f"t.{column}"

    values = ", ".join(map(value, names))
    source = f"FROM {table} AS t, {series} WHERE t.thread_id = '{SEED}'"
    return f"INSERT INTO {table} ({', '.join(names)}) SELECT {values} {source}"


async def measure(arena: Arena, threads: int) -> dict[str, list[Figures]]:
    """What operations take in a store with `threads` threads."""
    where = arena.location.where / f"threads_{threads}_{arena.api}"
    where.mkdir()
    location = Location(
        arena.location.database, where, arena.location.server if arena.location.database == "postgres" else None
    )
    location.make()
    found: dict[str, list[Figures]] = {}
    deltas = Deltas(100)
    calls = list(islice(small(), 200))
    try:
        async with location.fillers() as fillers:
            for filler in fillers:
                await do(filler, SEED, seed())
                multiply(location, filler.name, threads)
                await do(filler, "deltas", deltas.calls)
        async with contestants(location, arena.api) as field:
            # The pool is the official form that is measured: one is enough to see what grows.
            savers = [field.savers[0], field.savers[-1]]

            def thread(number: int) -> str:
                return f"thread {1 + number * 7919 % threads}"

            def run(saver: Contestant, number: int) -> str:
                # Only in our tables is the run a column, and so another one in each thread.
                return f"run-{1 + number}" if saver.role == "ours" else "run"

            async def first_page(saver: Contestant) -> None:
                assert await saver.count(None, limit=10) == 10

            works: dict[str, Callable[[Contestant, int], Awaitable[object]]] = {
                "put": lambda saver, number: saver.put(f"new {saver.name}", calls[number]),
                "get": lambda saver, number: saver.get(thread(number)),
                "list page": lambda saver, number: saver.count(thread(number), limit=10),
                "history": lambda saver, _: saver.history("deltas", deltas.ids[-1], deltas.channel),
                "list all threads": lambda saver, _: first_page(saver),
                "delete_for_runs": lambda saver, number: saver.delete_for_runs(
                    [run(saver, number)], f"thread {1 + number}"
                ),
            }
            for what, work in works.items():
                entries = [
                    Entry(saver.name, saver.role, lambda number, saver=saver, work=work: work(saver, number))  # type: ignore[misc]
                    for saver in savers
                ]
                found[what] = await race(entries, laps=60, seconds=10)
            for saver in savers:
                assert await saver.count("thread 1") == 0, "the run is still there"
                assert (await saver.get(f"thread {threads}")).metadata["step"] == STEPS - 2
    finally:
        location.drop()
        for file in where.glob("*"):
            file.unlink()
    return found


async def scale(arena: Arena, name: str) -> None:
    """Large against small."""
    few, many = arena.options["few"], arena.options["threads"]
    at_few, at_many = await measure(arena, few), await measure(arena, many)
    note = f"{many:,} threads of {STEPS} checkpoints against {few:,}"
    for what, figures in at_many.items():
        for one, other in zip(figures, at_few[what], strict=True):
            if one.median and other.median:
                one.extras = {"ms": one.median * 1000, f"ms with {few:,}": other.median * 1000}
                one.samples = [one.median / other.median]
        arena.results.append(Result(f"{name}, {what}", arena.location.database, arena.api, "×", figures, note))


CASES = [case("scale", scale, quick=False)]
