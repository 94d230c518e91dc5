"""What operations read in large stores, and on threads of unusual shape: `python -m benchmarks.growth`.

There are three stores: A has 100,000 threads of 20 checkpoints, B has 1,000,000 of four, and C has large threads. For
each operation, the table has its operations of the driver (a transaction, or a statement alone), its round trips, the
pages that it reads (buffers of PostgreSQL; on SQLite what it reads of the file, with a cache of 100 pages), what it
writes (WAL of PostgreSQL; to the files), how much the database and the memory of this process grow, and the time; and
the pages, the memory and the time of the official saver.

A thread is a block of checkpoints that a saver stores itself. Its rows are copied with other ids, which are the only
texts that begin with a block's label. So this code does not depend on any saver's tables. Not part of
`python -m benchmarks`.
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
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import psycopg
from langgraph.checkpoint.base import BaseCheckpointSaver, CheckpointTuple, empty_checkpoint
from langgraph.checkpoint.postgres import PostgresSaver as OfficialPostgresSaver
from langgraph.checkpoint.sqlite import SqliteSaver as OfficialSqliteSaver
from psycopg.conninfo import conninfo_to_dict

from benchmarks.states import prose
from benchmarks.stores import Server, folder, started_server
from langgraph_checkpoint_custom import CheckpointSaver, OperationEvent, PostgresSaver, Retention, SqliteSaver
from langgraph_checkpoint_custom.operations.sizes import sizes_of_store
from langgraph_checkpoint_custom.tools.exchange import export_file
from langgraph_checkpoint_custom.tools.types import classes_of

Saver = BaseCheckpointSaver[Any]
Work = tuple[str, Callable[[], object]]
"""An operation and its name."""

PAGE = 100  # Checkpoints or threads of a page of a list.
YEARS = timedelta(days=365_000)
STORES = {"A": (100_000, 20), "B": (1_000_000, 4)}  # Threads, and checkpoints of each.


# Threads


def label(block: int) -> str:
    """What the ids of a block begin with, as those of LangGraph do."""
    return f"1f{block:06}"


class Step(NamedTuple):
    """A checkpoint of a block; its parent is the step before in its namespace. `root` is the step that called it."""

    new: Mapping[str, Any]
    ns: str = ""
    root: int | None = None
    writes: tuple[tuple[str, Any], ...] = ()
    delta: str | None = None


def long() -> Iterator[Step]:
    """A chat: one namespace; a blob changes every twentieth step."""
    for n in range(100):
        new = {"count": n, "log": prose(60), **({"doc": prose(5_000)} if n % 20 == 0 else {})}
        yield Step(new, writes=(("count", n), ("log", f"entry {n}")))


def five() -> Iterator[Step]:
    """A root graph, and four subgraphs that keep their memory."""
    for n in range(100):
        yield Step({"count": n, "log": prose(60)}, f"memory {n % 5}" if n % 5 else "", 5 * (n // 5) if n % 5 else None)


def spaces() -> Iterator[Step]:
    """A root checkpoint that starts 500 subgraph calls of two checkpoints."""
    yield Step({"count": 0})
    for call, step in itertools.product(range(500), range(2)):
        yield Step({"x": step}, f"child:{{}}-{call:04}", 0)


def agent() -> Iterator[Step]:
    """Five root checkpoints, two of which start a subgraph call of three."""
    numbers = itertools.count()
    for turn in range(5):
        root = next(numbers)
        new = {"count": turn} | ({"messages": prose(5_000)} if turn == 0 else {})
        yield Step(new, writes=(("count", turn),))
        if turn in (1, 3):
            for step in range(3):
                next(numbers)
                yield Step({"x": step, "found": prose(300)}, f"tools:{{}}-{turn}", root)


def delta() -> Iterator[Step]:
    """Steps of a DeltaChannel without a snapshot."""
    for n in range(100):
        yield Step({}, delta="log", writes=(("log", f"entry {n}"),))


def wide() -> Iterator[Step]:
    """2,000 channels, 20 of which change in each step."""
    names = [f"channel_{n:04}" for n in range(2_000)]
    text = prose(400)
    for n in range(50):
        changed = [names[(n * 20 + k) % 2_000] for k in range(20)] if n else names
        yield Step({name: f"{text}{name}{n}" for name in changed})


def short(steps: int) -> Iterator[Step]:
    """One of many threads."""
    for n in range(steps):
        yield Step({"count": n, "text": prose(500)}, writes=(("count", n),))


SHAPES: Mapping[str, tuple[Callable[[], Iterator[Step]], int]] = {
    "long": (long, 500),
    "five": (five, 500),
    "spaces": (spaces, 40),
    "agent": (agent, 5_000),
    "delta": (delta, 200),
    "wide": (wide, 0),  # Not repeated: a step has most of the values of all steps before.
}
"""The threads of store C: a block, and its number at scale 1."""


class Thread:
    """Puts the steps of blocks on a thread of a saver, one after the other."""

    def __init__(self, saver: Saver, thread_id: str, found: CheckpointTuple | None = None) -> None:
        self._saver = saver
        self._thread_id = thread_id
        self._last: dict[str, str] = {}
        self._values: dict[str, dict[str, Any]] = {}
        self._versions: dict[str, dict[str, Any]] = {}
        if found:  # It goes on with the root graph.
            self._last[""] = found.config["configurable"]["checkpoint_id"]
            self._values[""] = found.checkpoint["channel_values"]
            self._versions[""] = dict(found.checkpoint["channel_versions"])

    def put_block(self, number: int, steps: Iterable[Step], **more: Any) -> None:
        """Store the steps of a block, with more metadata."""
        for n, step in enumerate(steps):
            self.put(number, n, step, **more)

    def put(self, block: int, number: int, step: Step, **more: Any) -> None:
        """Store a step."""
        ids = f"{label(block)}-{{:04}}-6000-8000-000000000000"
        checkpoint_id, ns = ids.format(number), step.ns.format(label(block))
        new = dict.fromkeys([*step.new, *([step.delta] if step.delta else [])], f"{label(block)}-{number:04}")
        values = self._values[ns] = {**self._values.get(ns, {}), **step.new}
        versions = self._versions[ns] = self._versions.get(ns, {}) | new
        document = {
            **empty_checkpoint(),
            "v": 4,
            "id": checkpoint_id,
            "channel_values": values,
            "channel_versions": versions,
        }
        metadata: dict[str, Any] = {"source": "loop", "step": number, "run_id": f"{label(block)} run {number // 10}"}
        where: dict[str, Any] = {"thread_id": self._thread_id, "checkpoint_ns": ns, "checkpoint_id": self._last.get(ns)}
        if step.root is not None:
            metadata["parents"] = where["checkpoint_map"] = {"": ids.format(step.root)}
        if step.delta:
            metadata["counters_since_delta_snapshot"] = {step.delta: (1, 1)}
        config = self._saver.put({"configurable": where}, document, metadata | more, new)  # type: ignore[arg-type]
        self._last[ns] = checkpoint_id
        if step.writes:
            self._saver.put_writes(config, step.writes, "task")


def relabelled(cell: Any, block: int, number: int) -> Any:
    """A cell of a row of a block, or the row as text, in another block; what names the block before, too."""
    for old, new in ((label(block), label(number)), (label(block - 1), label(number - 1))):
        if isinstance(cell, str):
            cell = cell.replace(old, new)
        elif isinstance(cell, bytes):
            cell = cell.replace(old.encode(), new.encode())
            cell = cell.replace(old.encode().hex().encode(), new.encode().hex().encode())
    return cell


# Databases


class Database(ABC):
    """A database of a saver, in which rows are copied."""

    def __init__(self, location: str, *, official: bool) -> None:
        self.location = location
        self.official = official
        self.operations = self.round_trips = 0

    def note(self, event: OperationEvent) -> None:
        """Count an operation of our saver."""
        self.operations += 1
        self.round_trips += event.round_trips

    @abstractmethod
    def opened(self) -> Any:
        """A context manager with the saver, which notes its operations if it is ours."""

    @abstractmethod
    def repeat(self, thread_id: str, block: int, numbers: Sequence[int]) -> None:
        """Copy the rows of a block of a thread, as blocks with these numbers."""

    @abstractmethod
    def settle(self) -> None:
        """Give the planner its statistics, and write what is not yet in the tables."""

    @abstractmethod
    def counters(self) -> tuple[int, int, int]:
        """Pages read and bytes written since the start, and the size in bytes."""


class PostgresDatabase(Database):
    """A database on a server. What is read in the `other` one is not counted."""

    def __init__(self, location: str, other: str, *, official: bool) -> None:
        super().__init__(location, official=official)
        self._other = other

    def opened(self) -> Any:
        if self.official:
            return OfficialPostgresSaver.from_conn_string(self.location)
        return PostgresSaver(self.location, max_size=1, on_operation=self.note)

    def repeat(self, thread_id: str, block: int, numbers: Sequence[int]) -> None:
        text, hexes = label(block).encode(), label(block).encode().hex().encode()
        with psycopg.connect(self.location) as connection:
            tables = connection.execute(
                "SELECT table_schema || '.' || table_name FROM information_schema.columns"
                " JOIN information_schema.tables USING (table_schema, table_name)"
                " WHERE table_type = 'BASE TABLE' AND column_name = 'thread_id'"
            ).fetchall()
            for (table,) in tables:
                with connection.cursor() as cursor:
                    with cursor.copy(f"COPY (SELECT * FROM {table} WHERE thread_id = '{thread_id}') TO STDOUT") as out:
                        rows = [row for row in map(bytes, out) if text in row or hexes in row]
                    with cursor.copy(f"COPY {table} FROM STDIN") as into:
                        for number in numbers:
                            into.write(b"".join(relabelled(row, block, number) for row in rows))

    def settle(self) -> None:
        with psycopg.connect(self.location, autocommit=True) as connection:
            connection.execute("VACUUM ANALYZE")
            connection.execute("CHECKPOINT")

    def counters(self) -> tuple[int, int, int]:
        for connection in _CONNECTIONS:
            if not connection.closed:  # Otherwise a session reports its numbers after up to ten seconds.
                connection.pgconn.exec_(b"SELECT pg_stat_force_next_flush()")
        with psycopg.connect(self._other) as other:
            found = other.execute(
                "SELECT blks_hit + blks_read, pg_current_wal_insert_lsn() - '0/0', pg_database_size(datid)"
                " FROM pg_stat_database WHERE datname = %s",
                [conninfo_to_dict(self.location)["dbname"]],
            ).fetchone()
        pages, written, size = map(int, found or (0, 0, 0))
        return pages, written, size


@contextmanager
def postgres_database(server: Server, *, official: bool) -> Iterator[Database]:
    """A database, for the duration of a block."""
    try:
        yield PostgresDatabase(server.create("growth"), server.url, official=official)
    finally:
        server.drop("growth")


_CONNECTIONS: list[psycopg.Connection[Any]] = []
_on_postgres, _on_sqlite = psycopg.Connection.__init__, sqlite3.connect


def remembered(connection: psycopg.Connection[Any], *args: Any, **kwargs: Any) -> None:
    """Open a connection, of either saver, and remember it."""
    _on_postgres(connection, *args, **kwargs)
    _CONNECTIONS.append(connection)


def without_cache(*args: Any, **kwargs: Any) -> sqlite3.Connection:
    """Open a connection that has hardly any pages in memory, so that what it reads is counted."""
    connection: sqlite3.Connection = _on_sqlite(*args, **kwargs)
    connection.execute("PRAGMA cache_size = 100")
    return connection


class SqliteDatabase(Database):
    """A file."""

    def opened(self) -> Any:
        if self.official:
            return OfficialSqliteSaver.from_conn_string(self.location)
        return SqliteSaver(self.location, on_operation=self.note)

    def repeat(self, thread_id: str, block: int, numbers: Sequence[int]) -> None:
        with closing(sqlite3.connect(self.location)) as file, file:
            for (table,) in file.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall():
                columns = [row[1] for row in file.execute(f"PRAGMA table_info({table})")]
                if "thread_id" not in columns:
                    continue
                found = file.execute(f"SELECT {', '.join(columns)} FROM {table} WHERE thread_id = ?", [thread_id])
                rows = [row for row in found if label(block) in str(row)]
                file.executemany(
                    f"INSERT INTO {table} ({', '.join(columns)}) VALUES ({', '.join('?' * len(columns))})",
                    ([relabelled(cell, block, number) for cell in row] for number in numbers for row in rows),
                )

    def settle(self) -> None:
        with closing(sqlite3.connect(self.location, isolation_level=None)) as file:
            file.execute("ANALYZE")
            file.execute("PRAGMA wal_checkpoint(TRUNCATE)")

    def counters(self) -> tuple[int, int, int]:
        io = dict(line.split(": ") for line in Path("/proc/self/io").read_text().splitlines())
        return int(io["rchar"]) // 4096, int(io["wchar"]), os.path.getsize(self.location)


@contextmanager
def sqlite_database(where: Path, *, official: bool) -> Iterator[Database]:
    """A file, for the duration of a block."""
    try:
        yield SqliteDatabase(str(where / "growth.db"), official=official)
    finally:
        for file in where.glob("growth.db*"):
            file.unlink()


# Filling


def threads_of(store: str, scale: float) -> int:
    """The number of the many threads of a store."""
    return max(2, round(STORES[store][0] * scale))


def fill(database: Database, store: str, scale: float, shapes: Iterable[str]) -> None:
    """Store the blocks, and copy them."""
    with database.opened() as saver:
        saver.setup()
        Thread(saver, "few").put_block(0, short(4), user="rare")
        Thread(saver, "warm").put_block(0, long())
        if store in STORES:
            _, steps = STORES[store]
            Thread(saver, many(1)).put_block(1, short(steps), user="usual")
            copies = [(many(1), 1, range(2, 1 + threads_of(store, scale)))]
        else:
            copies = []
            for name in shapes:
                block, blocks = SHAPES[name]
                thread = Thread(saver, name)
                for number in (0, 1):
                    thread.put_block(number, block())
                copies.append((name, 1, range(2, round(blocks * scale))))
    for copied in copies:
        database.repeat(*copied)
    database.settle()


# Measuring


def many(number: int) -> str:
    """The id of one of the many threads."""
    return f"many {label(number)}"


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
        print(f"{name}: {found[name][:-1]}", file=sys.stderr)
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
            taken = sorted(cost.puts)
            cells.append(f"{statistics.median(taken):.1f}; {taken[len(taken) * 99 // 100]:.1f}; {taken[-1]:.1f}")
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
