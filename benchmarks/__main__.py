"""Run the benchmarks and write their reports."""

from __future__ import annotations

import argparse
import asyncio
import fnmatch
import os
import platform
import signal
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import AsyncExitStack, ExitStack
from importlib.metadata import version
from pathlib import Path
from statistics import median
from typing import Any

import psutil

from benchmarks import reports
from benchmarks.cases import (
    APIS,
    DATABASES,
    Arena,
    Case,
    concurrency,
    graphs,
    history,
    lag,
    maintenance,
    puts,
    reads,
    scale,
    sizes,
)
from benchmarks.contestants import Location, contestants, official_synchronous
from benchmarks.measuring import Result
from benchmarks.reports import amount
from benchmarks.stores import Server, folder, started_server
from benchmarks.targets import count, verdicts

CASES: list[Case] = [
    each for group in (puts, reads, history, concurrency, graphs, maintenance, sizes, lag) for each in group.CASES
]
RESULTS = Path(__file__).parent / "results"


def arguments(argv: Sequence[str] | None = None) -> argparse.Namespace:
    """The command line's options."""
    parser = argparse.ArgumentParser("python -m benchmarks", description="Our savers next to the official ones.")
    parser.add_argument("--quick", action="store_true", help="smaller cases and fewer rounds: three minutes")
    parser.add_argument(
        "--only", action="append", metavar="PATTERN", help="cases whose name has this in it, or fits it"
    )
    parser.add_argument("--postgres-only", action="store_true")
    parser.add_argument("--sqlite-only", action="store_true")
    parser.add_argument("--api", choices=APIS, help="sync or async only")
    parser.add_argument("--scale", action="store_true", help="only the large stores, which take long to make")
    parser.add_argument("--threads", type=int, default=1_000_000, help="threads of the large store, of 10 checkpoints")
    parser.add_argument("--few", type=int, default=1_000, help="threads of the small store")
    parser.add_argument("--results", type=Path, default=RESULTS, help="the folder to write to")
    parser.add_argument("--list", action="store_true", help="name the cases and end")
    return parser.parse_args(argv)


def chosen(options: argparse.Namespace) -> list[Case]:
    """The cases to run."""
    if options.scale:
        return list(scale.CASES)
    found = [each for each in CASES if each.quick or not options.quick]
    if options.only:
        found = [
            each
            for each in found
            if any(pattern in each.name or fnmatch.fnmatch(each.name, pattern) for pattern in options.only)
        ]
    return found


async def run(options: argparse.Namespace, cases: Sequence[Case], where: Path, server: Server | None) -> list[Result]:
    """Run cases, group by group, in fresh databases for each group."""
    results: list[Result] = []
    for database in DATABASES:
        if (database == "postgres" and server is None) or (database == "sqlite" and options.postgres_only):
            continue
        for group in dict.fromkeys(each.group for each in cases):
            mine = [each for each in cases if each.group == group and database in each.databases]
            if mine:
                await run_group(options, mine, Location(database, where / f"{database}_{group}", server), results)
    return results


async def run_group(
    options: argparse.Namespace, cases: Sequence[Case], location: Location, results: list[Result]
) -> None:
    """Run the cases of a group sync and async."""
    location.where.mkdir()
    location.make()
    try:
        for api in APIS:
            mine = [each for each in cases if api in each.apis and options.api in (None, api)]
            if not mine:
                continue
            async with AsyncExitStack() as stack:
                entrants = await stack.enter_async_context(contestants(location, api))
                for case in mine:
                    before, started = len(results), time.monotonic()
                    sizes = {"threads": options.threads, "few": options.few}
                    await case.run(Arena(location, api, entrants, options.quick, results, sizes), case.name)
                    for result in results[before:]:
                        print_result(result, time.monotonic() - started)
                    if any(each.error for result in results[before:] for each in result.figures):
                        # A connection may be in a state that must not affect the next case.
                        await stack.aclose()
                        entrants = await stack.enter_async_context(contestants(location, api))
    finally:
        location.drop()


def print_result(result: Result, seconds: float) -> None:
    """Print a line about a result."""
    medians = [f"{each.name} {amount(each.median, result.unit)}" for each in result.figures]
    said = " ".join("met" if verdict.met else "NOT MET" for verdict in verdicts(result))
    ratio = result.ratio("official") if result.unit != "×" else None
    print(
        f"{result.database:8} {result.api:5} {result.case:32} {'' if ratio is None else f'{ratio:.3f}':>8}"
        f" {said:8} {', '.join(medians)} ({seconds:.1f} s)",
        flush=True,
    )
    for each in result.figures:
        if each.error:
            print(f"    {each.name} failed: {each.error}", flush=True)


def about(options: argparse.Namespace, server: Server | None, where: Path, seconds: float) -> dict[str, Any]:
    """The machine, the versions and the settings."""
    packages = ("langgraph", "langgraph-checkpoint", "langgraph-checkpoint-postgres", "langgraph-checkpoint-sqlite")
    machine = {
        "system": f"{platform.system()} {platform.machine()}",
        "cores": os.cpu_count(),
        "processor": _processor(),
    }
    machine["memory"] = f"{psutil.virtual_memory().total / 2**30:.0f} GiB"
    machine["sync of 4 KB to the disk"] = f"{disk_sync(where) * 1e6:.0f} µs"
    import sqlite3

    found: dict[str, Any] = {
        "machine": machine,
        "versions": {"Python": platform.python_version(), "SQLite": sqlite3.sqlite_version}
        | {name: version(name) for name in (*packages, "langgraph-checkpoint-custom", "psycopg", "psycopg-pool")},
        "run": {"kind": "quick" if options.quick else "full", "seconds": round(seconds), "only": options.only or "all"},
        "SQLite": {
            "ours": "synchronous=FULL",
            "official": f"synchronous={official_synchronous(Location('sqlite', where, None))}",
        },
    }
    if server:
        found["PostgreSQL"] = server.settings()
    return found


# Seconds. No disk syncs in less.
IN_MEMORY = 20e-6


def disk_sync(where: Path) -> float:
    """The median seconds that the disk of a folder takes to sync 4 KB; a folder in memory takes microseconds."""
    taken = []
    with tempfile.TemporaryFile(dir=where) as file:
        for _ in range(100):
            file.write(bytes(4096))
            file.flush()
            began = time.perf_counter()
            os.fsync(file.fileno())
            taken.append(time.perf_counter() - began)
    return median(taken)


def _processor() -> str:
    with open("/proc/cpuinfo") as file:
        names = [line.partition(":")[2].strip() for line in file if line.startswith("model name")]
    return names[0] if names else platform.processor()


def main(argv: Sequence[str] | None = None) -> int:
    """Run the chosen cases; the server is stopped in any case."""
    options = arguments(argv)
    cases = chosen(options)
    if options.list or not cases:
        print("\n".join(each.name for each in (cases or CASES)))
        return 0 if options.list else 2
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    started = time.monotonic()
    with ExitStack() as stack:
        where = stack.enter_context(folder())
        if disk_sync(where) < IN_MEMORY:
            print(f"warning: {where} is in memory, where a commit costs nothing; set TMPDIR to a folder on a disk")
        server = None if options.sqlite_only else stack.enter_context(started_server(where))
        results = asyncio.run(run(options, cases, where, server))
        seconds = time.monotonic() - started
        reports.write(options.results, about(options, server, where, seconds), results)
    judged = [verdict for result in results for verdict in verdicts(result)]
    print(f"{count(judged)}, in {seconds:.0f} s; see {options.results}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
