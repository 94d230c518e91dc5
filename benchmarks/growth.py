"""What operations read in large stores, and on threads of unusual shape: `python -m benchmarks.growth`.

There are three stores: A has 100,000 threads of 20 checkpoints, B has 1,000,000 of four, and C has large threads. For
each operation, the table has its operations of the driver (a transaction, or a statement alone), its round trips, the
pages that it reads (buffers of PostgreSQL; on SQLite what it reads of the file, with a cache of 100 pages), what it
writes (WAL of PostgreSQL; to the files), how much the database and the memory of this process grow, and the time; and
the pages, the memory and the time of the official saver. Not part of `python -m benchmarks`.
"""

from __future__ import annotations

import argparse
import gc
import itertools
import multiprocessing
import os
import re
import sqlite3
import statistics
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import psycopg

from benchmarks.filled import (
    STORES,
    Database,
    fill,
    many,
    postgres_database,
    remembered,
    sqlite_database,
    threads_of,
    without_cache,
)
from benchmarks.shapes import SHAPES, Saver, Step, Thread, label
from benchmarks.stores import Server, folder, started_server
from langgraph_checkpoint_custom import CheckpointSaver, PostgresSaver, Retention, SqliteSaver
from langgraph_checkpoint_custom.operations.sizes import sizes_of_store
from langgraph_checkpoint_custom.tools.exchange import export_file
from langgraph_checkpoint_custom.tools.types import classes_of

Work = tuple[str, Callable[[], object]]
"""An operation and its name."""

PAGE = 100  # Checkpoints or threads of a page of a list.
YEARS = timedelta(days=365_000)


def of_root(thread_id: str) -> Any:
    """The namespace of the root graph."""
    return {"configurable": {"thread_id": thread_id, "checkpoint_ns": ""}}


def read(found: Iterable[Any]) -> int:
    """The number of items."""
    return sum(1 for _ in found)


def on_thread(saver: Saver, thread_id: str) -> Iterator[Work]:
    """The operations on a thread; each is done before the next one is asked for."""
    root = of_root(thread_id)
    of_all: Any = {"configurable": {"thread_id": thread_id}}
    newest = saver.get_tuple(root)
    reads: dict[str, Callable[[], object]] = {
        "get": lambda: saver.get_tuple(root),
        f"list page of {PAGE}": lambda: read(saver.list(root, limit=PAGE)),
        f"list page of {PAGE}, all namespaces": lambda: read(saver.list(of_all, limit=PAGE)),
        "list, all namespaces": lambda: read(saver.list(of_all)),
        "list, all namespaces, few hits": lambda: read(saver.list(of_all, filter={"step": 4})),
    }
    if isinstance(saver, CheckpointSaver):
        reads["history, all namespaces"] = lambda: read(saver.history(of_all))
        reads["history, all namespaces, few hits"] = lambda: read(saver.history(of_all, filter={"step": 4}))
    for name, work in reads.items():
        work()  # The first time, PostgreSQL plans its statements, and reads the catalog for that.
        yield name, work
    head = Thread(saver, thread_id, newest)
    new = Step({}, delta="log") if thread_id == "delta" else Step({"count": 1, "text": "new"})
    head.put(999_998, 0, new)
    yield "put", lambda: head.put(999_998, 1, new)
    if thread_id == "delta":
        yield "delta history", lambda: saver.get_delta_channel_history(config=root, channels=["log"])
    if isinstance(saver, CheckpointSaver):
        roots = list(saver.history(root))
        old = roots[3 * len(roots) // 4].checkpoint_id
        run = roots[len(roots) // 2].run_id or ""
        yield "delete_for_runs", lambda: saver.delete_for_runs([run])
        yield "copy_thread", lambda: saver.copy_thread(thread_id, "copy")
        yield "fork_thread", lambda: saver.fork_thread(thread_id, "fork")
        yield "fork_thread, older", lambda: saver.fork_thread(thread_id, "old", checkpoint_id=old)
        yield "rollback", lambda: saver.rollback("copy", old)
        saver.copy_thread(thread_id, "pruned")
        yield "prune", lambda: saver.prune(["pruned"])
        yield "prune again", lambda: saver.prune(["pruned"])
        for name in ("copy", "fork", "old", "pruned"):
            saver.delete_thread(name)
    yield "delete_thread", lambda: saver.delete_thread(thread_id)


def on_store(saver: Saver, where: Path, threads: int) -> Iterator[Work]:
    """The operations on all threads, and on one of them; each is done before the next one is asked for."""
    yield "first operation", partial(saver.get_tuple, of_root(many(1)))
    yield "get", partial(saver.get_tuple, of_root(many(2)))
    yield "list of a namespace", lambda: read(saver.list(of_root(many(2))))
    yield "list of a thread", lambda: read(saver.list({"configurable": {"thread_id": many(2)}}))
    yield "delete_thread", partial(saver.delete_thread, many(2))
    yield f"list page of {PAGE}", lambda: read(saver.list(None, limit=PAGE))
    few, no = {"user": "rare"}, {"user": "nobody"}
    yield "list, few hits", lambda: read(saver.list(None, filter=few))
    yield "list, no hits", lambda: read(saver.list(None, filter=no))
    if not isinstance(saver, CheckpointSaver):
        yield "get and put in each thread", partial(run_each, saver, threads)
        return
    yield "history, few hits", lambda: read(saver.history(None, filter=few))
    yield "threads, few hits", lambda: read(saver.threads(filter=few))
    yield f"threads page of {PAGE}", lambda: read(saver.threads(limit=PAGE))
    yield "count_threads", saver.count_threads
    yield "interrupts", lambda: read(saver.interrupts())
    yield "first sweep", lambda: saver.sweep(Retention(older_than=YEARS))
    yield "sweep without a visit", lambda: saver.sweep(Retention(older_than=YEARS))
    yield "sweep after a change", lambda: saver.sweep(Retention(older_than=2 * YEARS))
    yield "stats", lambda: saver.backend.driver.run(sizes_of_store(saver.backend.dialect, 10))
    yield "types", lambda: classes_of([saver])
    yield "reencrypt, dry run", lambda: saver.reencrypt(dry_run=True)
    exported = where / "export"
    yield "export", lambda: export_file(saver, exported)
    exported.unlink(missing_ok=True)
    yield "get and put in each thread", partial(run_each, saver, threads)
    third = {"run_id": {"$lt": label(threads // 3)}}
    yield "sweep, deletes a third", lambda: saver.sweep(Retention(older_than=timedelta.resolution, filter=third))
    yield "sweep, keep_last=2", lambda: saver.sweep(Retention(older_than=2 * YEARS, keep_last=2))


def run_each(saver: Saver, threads: int) -> None:
    """Go on with each of the threads, as a process that serves all of them."""
    for number in range(3, 1 + threads):
        found = saver.get_tuple(of_root(many(number)))
        Thread(saver, many(number), found).put(number, 9_999, Step({"count": 0, "text": "new"}))


class Cost(NamedTuple):
    """What an operation cost. `puts` are the milliseconds of each put of another process meanwhile."""

    operations: int
    round_trips: int
    pages: int
    written: int
    grown: int
    resident: int
    seconds: float
    puts: Sequence[float]


def resident() -> int:
    """The memory of this process, in bytes."""
    gc.collect()
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def measured(database: Database, works: Iterator[Work], *, puts: bool, only: str = "") -> Mapping[str, Cost]:
    """Do each whose name matches a regular expression, and count."""
    found = {}
    for name, work in works:
        if not re.search(only, name):
            continue
        database.operations = database.round_trips = 0
        held, before = resident(), database.counters()
        with Putting(database.location) if puts else ExitStack() as putting:
            begun = time.perf_counter()
            work()
            seconds = time.perf_counter() - begun
        after = database.counters()
        pages, written, grown = (new - old for new, old in zip(after, before, strict=True))
        taken = putting.taken if isinstance(putting, Putting) else []
        done = database.operations, database.round_trips
        found[name] = Cost(*done, pages, written, grown, resident() - held, seconds, taken)
        print(f"{name}: {found[name][:-1]} {spread(taken)}", file=sys.stderr)
    return found


class Putting:
    """Another process, which puts small checkpoints in the meantime."""

    def __init__(self, location: str) -> None:
        context = multiprocessing.get_context("spawn")
        self._ends, other = context.Pipe()
        self._process = context.Process(target=put_until_told, args=(location, other))

    def __enter__(self) -> Putting:
        self._process.start()
        self._ends.recv()
        return self

    def __exit__(self, *_: object) -> None:
        self._ends.send(None)
        self.taken = self._ends.recv()
        self._process.join()


def put_until_told(location: str, ends: Any) -> None:
    """Put checkpoints until the other end says something; say how long each took.

    In short threads: on SQLite, puts wait while a thread is pruned, for seconds if it has many thousand checkpoints.
    """
    taken = []
    with PostgresSaver(location) if "://" in location else SqliteSaver(location) as saver:
        for n in itertools.count():
            if n % 100 == 0:
                thread = Thread(saver, f"beside-{os.getpid()}-{n}")
            begun = time.perf_counter()
            thread.put(900_000 + n // 10_000, n % 10_000, Step({"count": n, "text": "x" * 500}))
            taken.append(1000 * (time.perf_counter() - begun))
            if n == 0:
                ends.send(None)
            if ends.poll():
                break
    ends.send(taken)


def spread(taken: Sequence[float]) -> str:
    """The median, the 99th percentile and the most of what puts took; nothing if there are none."""
    ordered = sorted(taken)
    return (
        f"{statistics.median(ordered):.1f}; {ordered[len(ordered) * 99 // 100]:.1f}; {ordered[-1]:.1f}"
        if ordered
        else ""
    )


def report(title: str, ours: Mapping[str, Cost], official: Mapping[str, Cost]) -> None:
    """Print a table."""
    puts = any(cost.puts for cost in ours.values())
    names = ["operation", "operations", "round trips", "pages", "written MB", "grown MB", "memory MB", "ms"]
    names += ["puts beside: ms, p50; p99; most"] if puts else ["official: pages", "memory MB", "ms"]
    print(f"\n## {title}\n\n| {' | '.join(names)} |\n|---|{'--:|' * (len(names) - 1)}")
    for name, cost in ours.items():
        cells = [
            name,
            *(f"{number:,}" for number in cost[:3]),
            *map(megabytes, cost[3:6]),
            f"{cost.seconds * 1000:,.0f}",
        ]
        if puts:
            cells.append(spread(cost.puts))
        elif other := official.get(name.replace("history", "list")):
            cells += [f"{other.pages:,}", megabytes(other.resident), f"{other.seconds * 1000:,.0f}"]
        else:
            cells += [""] * 3
        print(f"| {' | '.join(cells)} |")


def megabytes(number: int) -> str:
    """A number of bytes, as a table has it."""
    return f"{number / 1e6:,.1f}"


def costs(
    database: Database, store: str, given: argparse.Namespace, where: Path
) -> Iterator[tuple[str, Mapping[str, Cost]]]:
    """Fill a database, and measure: the store, or each of its threads."""
    fill(database, store, given.scale, given.shapes)
    with database.opened() as saver:
        measured(database, on_thread(saver, "warm"), puts=False)
        if store in STORES:
            works = on_store(saver, where, threads_of(store, given.scale))
            yield store, measured(database, works, puts=given.puts, only=given.only)
        for name in given.shapes if store not in STORES else ():
            yield f"{store}, {name}", measured(database, on_thread(saver, name), puts=False, only=given.only)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.growth", description=__doc__)
    parser.add_argument("--stores", nargs="+", choices=[*STORES, "C"], default=[*STORES, "C"])
    parser.add_argument("--scale", type=float, default=0.1, help="1: the full size, of up to 10 GB")
    parser.add_argument("--postgres", metavar="URL", help="a superuser's on a server; by default, one is started")
    parser.add_argument("--postgres-only", action="store_true")
    parser.add_argument("--sqlite-only", action="store_true")
    parser.add_argument("--savers", nargs="+", choices=["ours", "official"], default=["ours", "official"])
    parser.add_argument("--puts", action="store_true", help="A, B: what an operation does to puts of another process")
    parser.add_argument("--only", metavar="REGEX", default="", help="only operations with such a name")
    parser.add_argument("--shapes", nargs="+", choices=list(SHAPES), default=list(SHAPES))
    given = parser.parse_args()
    psycopg.Connection.__init__ = remembered  # type: ignore[assignment,method-assign]
    sqlite3.connect = without_cache  # type: ignore[assignment]
    with folder() as where, ExitStack() as stack:
        systems: dict[str, Callable[..., AbstractContextManager[Database]]] = {}
        if not given.postgres_only:
            systems[f"SQLite {sqlite3.sqlite_version}"] = partial(sqlite_database, where)
        if not given.sqlite_only:
            url = given.postgres
            server = Server(url, os.getpid()) if url else stack.enter_context(started_server(where))
            systems[f"PostgreSQL {server.query('SHOW server_version')[0]}"] = partial(postgres_database, server)
        for store, (system, made) in itertools.product(given.stores, systems.items()):
            found = []
            for saver in given.savers:
                with made(official=saver == "official") as database:
                    found.append(dict(costs(database, store, given, where)))
            for name, ours in found[0].items():
                report(f"{system}, {name}, scale {given.scale}", ours, found[1][name] if found[1:] else {})


if __name__ == "__main__":
    main()
