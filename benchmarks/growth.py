"""What operations cost on threads of unusual shape, and in a store of many threads: `python -m benchmarks.growth`.

Prints for each shape and operation the statements, the round trips, the pages that were read (buffers of PostgreSQL,
found in its cache or not; SQLite's reads of the file, beyond its own cache), and the time. What an operation costs for
each checkpoint of its thread should not depend on the shape: the last lines name what costs more than twice the median.

Each shape is a block of checkpoints that a saver stores itself, and that is copied inside the database, with other ids.
Column names say which values are ids, so the code does not depend on any saver's tables. Not part of
`python -m benchmarks`.
"""

from __future__ import annotations

import argparse
import itertools
import os
import sqlite3
import statistics
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, closing, suppress
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import psycopg
from langgraph.checkpoint.base import BaseCheckpointSaver, CheckpointTuple
from langgraph.checkpoint.postgres import PostgresSaver as OfficialPostgresSaver
from langgraph.checkpoint.sqlite import SqliteSaver as OfficialSqliteSaver

from benchmarks.states import prose
from benchmarks.stores import Server, folder, started_server
from langgraph_checkpoint_custom import CheckpointSaver, PostgresSaver, Retention, SqliteSaver

Saver = BaseCheckpointSaver[Any]

BLOCK = 8  # Characters at the start of an id that name its block: "1f", as ids of LangGraph's begin, and six digits.
VERSION = "ver_"  # How each version begins; an id follows.
OF_MODEL = VERSION + "1f000000"
PAGE = 100  # Checkpoints of a page of a list.
PUTS = 20
KNOWN = ("present", "absent", "wrong")


def id_of(step: int, block: int = 0) -> str:
    """The id of a step in a block."""
    return f"1f{block:06}-{step:04}-6000-8000-000000000000"


class Step(NamedTuple):
    """A checkpoint of a block; its parent is the step before in its namespace."""

    new: Mapping[str, Any]
    ns: str = ""
    root: str | None = None
    writes: tuple[tuple[str, Any], ...] = ()
    delta: str | None = None


# Blocks


def long() -> Iterator[Step]:
    """A chat: one namespace; a blob changes every twentieth step."""
    for n in range(100):
        new = {"count": n, "log": prose(60), **({"doc": prose(5_000)} if n % 20 == 0 else {})}
        yield Step(new, writes=(("count", n), ("log", f"entry {n}")))


def spaces() -> Iterator[Step]:
    """A root checkpoint that starts 1,000 subgraph calls of two checkpoints."""
    yield Step({"count": 0})
    for call, step in itertools.product(range(1_000), range(2)):
        yield Step({"x": step}, ns=f"child:{call:04}", root=id_of(0))


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
                yield Step({"x": step, "found": prose(300)}, ns=f"tools:{turn}", root=id_of(root))


def delta() -> Iterator[Step]:
    """Steps of a DeltaChannel without a snapshot."""
    for n in range(100):
        yield Step({}, delta="log", writes=(("log", f"entry {n}"),))


def wide() -> Iterator[Step]:
    """2,000 channels, 20 of which change in each step."""
    names = [f"channel_{n:04}" for n in range(2_000)]
    text = prose(400)
    for n in range(100):
        changed = [names[(n * 20 + k) % 2_000] for k in range(20)] if n else names
        yield Step({name: f"{text}{name}{n}" for name in changed})


def short() -> Iterator[Step]:
    """Four checkpoints: one of many threads."""
    for n in range(4):
        yield Step({"count": n, "text": prose(500)}, writes=(("count", n),))


SHAPES: Mapping[str, tuple[Callable[[], Iterator[Step]], int]] = {
    "long": (long, 500),
    "spaces": (spaces, 20),
    "agent": (agent, 1_000),
    "delta": (delta, 200),
    "wide": (wide, 1),
}
"""The shapes, each a block and how often it is repeated at scale 1."""
AS_STORED = (
    "wide"  # Not repeated: its puts keep most of their values, and a copied document has the versions of its model.
)


class Thread:
    """Puts the steps of a block on a thread of a saver, one after the other."""

    def __init__(self, saver: Saver, thread_id: str) -> None:
        self._saver = saver
        self._thread_id = thread_id
        self._last: dict[str, str] = {}
        self._values: dict[str, dict[str, Any]] = {}
        self._versions: dict[str, dict[str, Any]] = {}

    def go_on(self, checkpoint_id: str, found: CheckpointTuple | None) -> None:
        """Put the next root step after this checkpoint, with its values if it is given."""
        self._last[""] = checkpoint_id
        if found:
            self._values[""] = found.checkpoint["channel_values"]
            self._versions[""] = dict(found.checkpoint["channel_versions"])

    def put(self, step: Step, checkpoint_id: str, run_id: str) -> Mapping[str, Any]:
        """Store a step."""
        ns = step.ns
        new = dict.fromkeys([*step.new, *([step.delta] if step.delta else [])], f"{VERSION}{checkpoint_id}")
        values = self._values[ns] = {**self._values.get(ns, {}), **step.new}
        versions = self._versions[ns] = self._versions.get(ns, {}) | new
        document = {
            "v": 4, "ts": "2026-10-01T00:00:00+00:00", "id": checkpoint_id, "channel_values": dict(values),
            "channel_versions": dict(versions), "versions_seen": {}, "updated_channels": None,
        }  # fmt: skip
        metadata: dict[str, Any] = {"source": "loop", "step": int(checkpoint_id.split("-")[1]), "run_id": run_id}
        metadata["parents"] = {"": step.root} if step.root else {}
        if step.delta:
            metadata["counters_since_delta_snapshot"] = {step.delta: (1, 1)}
        where = {"thread_id": self._thread_id, "checkpoint_ns": ns, "checkpoint_id": self._last.get(ns)}
        if step.root:
            where["checkpoint_map"] = {"": step.root}  # type: ignore[assignment]
        config = self._saver.put({"configurable": where}, document, metadata, new)  # type: ignore[arg-type]
        self._last[ns] = checkpoint_id
        if step.writes:
            self._saver.put_writes(config, step.writes, "task")
        return config


def config_of(thread_id: str, ns: str | None = "") -> Any:
    """The config of a thread, or of all its namespaces."""
    return {"configurable": {"thread_id": thread_id} | ({} if ns is None else {"checkpoint_ns": ns})}


# Copying blocks inside the database


class Database(ABC):
    """A database of a saver, which its rows are copied in."""

    system = ""

    def __init__(self, location: str) -> None:
        self.location = location

    def repeat(self, model: str, last: str, thread: str, blocks: int) -> None:
        """Make a thread of this number of blocks, or as many threads of one block if `thread` ends with a space."""
        label = self.label
        each = thread.endswith(" ")
        for table, columns in self.tables().items():
            if "thread_id" not in columns:
                continue
            before = "NULL" if each else f"CASE WHEN n > 1 AND checkpoint_ns = '' THEN {label('n - 1')} || '{last}' END"
            values = {
                "thread_id": f"'{thread}'" + (f" || {label('n')}" if each else ""),
                "checkpoint_id": f"{label('n')} || substr(checkpoint_id, {BLOCK + 1})",
                "root_id": f"{label('n')} || substr(root_id, {BLOCK + 1})",
                "checkpoint_ns": f"CASE checkpoint_ns WHEN '' THEN '' ELSE checkpoint_ns || {label('n')} END",
                "run_id": f"run_id || '{thread}' || {label('n')}",
                "version": f"replace({self.replaced('version', 'text')}, '#/', '#/' || {label('n')})",
                "chunks": f"replace(chunks, '#/', '#/' || {label('n')})",
                "blob_versions": self.replaced("blob_versions", "text[]"),
                "checkpoint": self.replaced("checkpoint", "jsonb" if self.system == "official postgres" else "bytea"),
            }
            for parent in ("parent_id", "parent_checkpoint_id"):
                values[parent] = f"coalesce({label('n')} || substr({parent}, {BLOCK + 1}), {before})"
            selected = ", ".join(values.get(column, column) for column in columns)
            self.execute(
                f"INSERT INTO {table} ({', '.join(columns)}) SELECT {selected} FROM {table}, {self.series(blocks)}"
                f" WHERE thread_id = '{model}' ON CONFLICT DO NOTHING"
            )

    @abstractmethod
    def label(self, number: str) -> str:
        """The expression of a block's number as a text."""

    @abstractmethod
    def replaced(self, column: str, kind: str) -> str:
        """A column with the versions of this block instead of the model's; they are equally long."""

    @abstractmethod
    def tables(self) -> Mapping[str, list[str]]:
        """The columns of each table."""

    @abstractmethod
    def series(self, most: int) -> str:
        """What yields the numbers of the blocks in a FROM clause."""

    @abstractmethod
    def execute(self, text: str) -> None:
        """Execute a statement."""

    @abstractmethod
    def pages(self) -> int:
        """Pages that were read since the server or process started."""

    def cpu(self) -> float:
        """Seconds of CPU time of this process and of the server's sessions."""
        return time.process_time()


class PostgresDatabase(Database):
    """A database on a server."""

    def __init__(self, location: str, system: str) -> None:
        super().__init__(location)
        self.system = system

    def label(self, number: str) -> str:
        return f"'1f' || lpad(({number})::text, 6, '0')"

    def replaced(self, column: str, kind: str) -> str:
        new = f"'{VERSION}' || {self.label('n')}"
        if kind != "bytea":
            return f"replace({column}::text, '{OF_MODEL}', {new})::{kind}"
        hexes = f"encode({column}, 'hex'), encode('{OF_MODEL}', 'hex'), encode(convert_to({new}, 'UTF8'), 'hex')"
        return f"decode(replace({hexes}), 'hex')"

    def tables(self) -> Mapping[str, list[str]]:
        found: dict[str, list[str]] = {}
        with psycopg.connect(self.location) as connection:
            for table, column in connection.execute(
                "SELECT table_schema || '.' || table_name, column_name FROM information_schema.columns"
                " JOIN information_schema.tables USING (table_schema, table_name)"
                " WHERE table_type = 'BASE TABLE' AND table_schema NOT IN ('pg_catalog', 'information_schema')"
                " ORDER BY ordinal_position"
            ):
                found.setdefault(table, []).append(column)
        return found

    def series(self, most: int) -> str:
        return f"generate_series(1, {most}) AS n"

    def execute(self, text: str) -> None:
        with psycopg.connect(self.location, autocommit=True) as connection:
            connection.execute(text.encode())

    def cpu(self) -> float:
        seconds = super().cpu()
        for connection in _Counted.connections:
            with suppress(OSError):  # It has ended.
                if not connection.closed:
                    found = Path(f"/proc/{connection.info.backend_pid}/schedstat").read_text()
                    seconds += int(found.split()[0]) / 1e9
        return seconds

    def pages(self) -> int:
        for connection in list(_Counted.connections):
            if not connection.closed:  # Otherwise a session reports its numbers after up to ten seconds.
                connection.pgconn.exec_(b"SELECT pg_stat_force_next_flush()")
        with psycopg.connect(self.location) as connection:
            (found,) = connection.execute(
                "SELECT blks_hit + blks_read FROM pg_stat_database WHERE datname = current_database()"
            ).fetchone() or (0,)
        return int(found)


class SqliteDatabase(Database):
    """A file."""

    system = "sqlite"

    def label(self, number: str) -> str:
        return f"printf('1f%06d', {number})"

    def replaced(self, column: str, kind: str) -> str:
        found = f"replace(CAST({column} AS TEXT), '{OF_MODEL}', '{VERSION}' || {self.label('n')})"
        return f"CAST({found} AS BLOB)" if kind == "bytea" else found

    def tables(self) -> Mapping[str, list[str]]:
        with closing(sqlite3.connect(self.location)) as file:
            names = [name for (name,) in file.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
            return {name: [row[1] for row in file.execute(f"PRAGMA table_info({name})")] for name in names}

    def series(self, most: int) -> str:
        return f"(WITH RECURSIVE s (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM s WHERE n < {most}) SELECT n FROM s)"

    def execute(self, text: str) -> None:
        with closing(sqlite3.connect(self.location, isolation_level=None)) as file:
            file.execute("PRAGMA synchronous = OFF")
            file.execute(text)

    def pages(self) -> int:
        with open("/proc/self/io") as file:
            return int(file.readline().split()[1]) // 4096  # rchar


# Counting statements and round trips


class _Counted:
    """What has been sent since the process started."""

    statements = 0
    round_trips = 0
    connections: ClassVar[set[psycopg.Connection[Any]]] = set()


class _SqliteCursor(sqlite3.Cursor):
    def execute(self, sql: str, parameters: Any = (), /) -> Any:
        _Counted.statements += 1
        return super().execute(sql, parameters)

    def executemany(self, sql: str, parameters: Any, /) -> Any:
        rows = list(parameters)
        _Counted.statements += len(rows)
        return super().executemany(sql, rows)


class _SqliteConnection(sqlite3.Connection):
    def cursor(self, factory: Any = _SqliteCursor) -> Any:
        return super().cursor(factory)

    def execute(self, sql: str, parameters: Any = (), /) -> Any:
        return self.cursor().execute(sql, parameters)

    def executemany(self, sql: str, parameters: Any, /) -> Any:
        return self.cursor().executemany(sql, parameters)


def count() -> None:
    """Count what is sent from now on."""
    execute, leave, connect = psycopg.Cursor.execute, psycopg.Pipeline.__exit__, sqlite3.connect

    def counted(self: psycopg.Cursor[Any], *args: Any, **kwargs: Any) -> Any:
        _Counted.connections.add(self.connection)
        _Counted.statements += 1
        _Counted.round_trips += not self.connection.pgconn.pipeline_status
        return execute(self, *args, **kwargs)

    def left(self: psycopg.Pipeline, *args: Any) -> None:
        _Counted.round_trips += 1
        leave(self, *args)

    psycopg.Cursor.execute = counted  # type: ignore[method-assign]
    psycopg.Pipeline.__exit__ = left  # type: ignore[method-assign]
    sqlite3.connect = lambda *args, **kwargs: connect(*args, **{"factory": _SqliteConnection, **kwargs})


# Measuring


class Cost(NamedTuple):
    """What an operation cost."""

    shape: str
    operation: str
    whose: str
    checkpoints: int
    statements: int
    round_trips: int
    pages: int
    cpu: float
    seconds: float


class Measurement:
    """The operations of one saver on one database."""

    def __init__(self, saver: Saver, whose: str, database: Database, given: argparse.Namespace) -> None:
        self._saver = saver
        self._whose = whose
        self._database = database
        self._given = given
        self.costs: list[Cost] = []

    def fill(self) -> None:
        """Store the models, and copy their blocks."""
        postgres = self._database.system != "sqlite"
        if postgres:
            for table, columns in self._database.tables().items():
                if "thread_id" in columns:
                    self._database.execute(f"ALTER TABLE {table} SET (autovacuum_enabled = off)")
        self._model("model short", short)
        self._model("warm", long)
        if self._given.statistics == "wrong":
            self._database.execute("ANALYZE")
        if self._given.threads:
            self._database.repeat("model short", "", "many ", self._given.threads)
        for shape in self._given.shapes:
            block, repeated = SHAPES[shape]
            if shape == AS_STORED:
                self._model(shape, block)
            else:
                last = self._model(f"model {shape}", block)
                self._database.repeat(f"model {shape}", last, shape, max(1, round(repeated * self._given.scale)))
        if self._given.statistics == "present":
            self._database.execute("VACUUM ANALYZE" if postgres else "ANALYZE")
        elif postgres:
            self._database.execute("VACUUM")  # Else the first that reads a row writes its page.
        if postgres:
            self._database.execute("CHECKPOINT")

    def _model(self, name: str, block: Callable[[], Iterator[Step]]) -> str:
        """Store a block as a thread; returns the last root checkpoint's id without the number of its block."""
        thread, last = Thread(self._saver, name), ""
        for number, step in enumerate(block()):
            thread.put(step, id_of(number), f"run {number // 10} ")
            last = last if step.ns else id_of(number)[BLOCK:]
        return last

    def measure(self) -> None:
        """Do everything once; single calls several times."""
        self._shape("warm", "warm")  # Catalogs are read.
        self.costs.clear()
        for shape in self._given.shapes:
            self._shape(shape, shape)
        self._store()

    def _shape(self, shape: str, thread: str) -> None:
        saver, ours = self._saver, isinstance(self._saver, CheckpointSaver)
        (checkpoints,) = self._query(f"SELECT count(*) FROM {self._table()} WHERE thread_id = '{thread}'")
        roots = self._ids(thread)
        delta = "log" if shape == "delta" else None
        head, number = Thread(saver, thread), itertools.count()
        head.go_on(roots[-1], saver.get_tuple(config_of(thread)) if shape == AS_STORED else None)

        def put() -> None:
            step = next(number)
            new = {} if delta else {"count": step, "text": "new"}
            head.put(Step(new, delta=delta), id_of(step, 999_999), "run of puts")

        def do(operation: str, work: Callable[[], object], times: int = 1) -> None:
            self._time(shape, operation, checkpoints, work, times)

        do("get", lambda: saver.get_tuple(config_of(thread)), PUTS)
        do(f"list page of {PAGE}", lambda: list(saver.list(config_of(thread), limit=PAGE)))
        do("list page, all namespaces", lambda: list(saver.list(config_of(thread, None), limit=PAGE)))
        do("put", put, PUTS)
        if delta:
            where = config_of(thread)
            do("delta history", lambda: saver.get_delta_channel_history(config=where, channels=[delta]))
        if ours:
            assert isinstance(saver, CheckpointSaver)
            middle = roots[len(roots) // 2]
            (run,) = self._query(
                f"SELECT run_id FROM {self._table()} WHERE thread_id = '{thread}' AND checkpoint_id = '{middle}'"
            )
            do("delete_for_runs", lambda: saver.delete_for_runs([run]))
            copies = [f"{thread}, copy {n}" for n in range(3)]
            do("copy_thread", lambda: saver.copy_thread(thread, copies[0]))
            for copy in copies[1:]:
                saver.copy_thread(thread, copy)
            do("fork_thread", lambda: saver.fork_thread(thread, f"{thread}, fork"))
            do(
                "fork_thread, older",
                lambda: saver.fork_thread(thread, f"{thread}, old", checkpoint_id=roots[len(roots) // 4]),
            )
            do("rollback to the middle", lambda: saver.rollback(copies[0], roots[len(roots) // 3]))
            do("prune", lambda: saver.prune([copies[1]]))
            do("prune again", lambda: saver.prune([copies[1]]))
            do("delete_thread", lambda: saver.delete_thread(copies[2]))
            for copy in (copies[0], copies[1], f"{thread}, fork", f"{thread}, old"):
                saver.delete_thread(copy)
        elif thread == shape:
            do("delete_thread", lambda: saver.delete_thread(thread))

    def _store(self) -> None:
        """The operations on all threads."""
        saver, shape = self._saver, "store"
        if not isinstance(saver, CheckpointSaver):
            return
        (checkpoints,) = self._query(f"SELECT count(*) FROM {self._table()}")
        (threads,) = self._query(f"SELECT count(DISTINCT thread_id) FROM {self._table()}")
        shape = f"{threads:,} threads"

        def do(operation: str, work: Callable[[], object]) -> None:
            self._time(shape, operation, checkpoints, work, 1)

        do(f"threads page of {PAGE}", lambda: list(saver.threads(limit=PAGE)))
        do("count_threads", saver.count_threads)
        keep = Retention(older_than=timedelta(days=365_000), keep_last=2)
        do("sweep", lambda: saver.sweep(keep))
        do("sweep again", lambda: saver.sweep(keep))

    def _table(self) -> str:
        postgres = self._database.system != "sqlite"
        return "langgraph_checkpoint.checkpoints" if postgres and self._whose == "ours" else "checkpoints"

    def _ids(self, thread: str) -> list[str]:
        found = self._rows(
            f"SELECT checkpoint_id FROM {self._table()} WHERE thread_id = '{thread}' AND checkpoint_ns = ''"
        )
        return sorted(checkpoint_id for (checkpoint_id,) in found)

    def _query(self, text: str) -> Any:
        return self._rows(text)[0]

    def _rows(self, text: str) -> list[Any]:
        if self._database.system == "sqlite":
            with closing(sqlite3.connect(self._database.location)) as file:
                return file.execute(text).fetchall()
        with psycopg.connect(self._database.location) as connection:
            return connection.execute(text.encode()).fetchall()

    def _time(self, shape: str, operation: str, checkpoints: int, work: Callable[[], object], times: int) -> None:
        taken = []
        pages, cpu = self._database.pages(), self._database.cpu()
        statements, round_trips = _Counted.statements, _Counted.round_trips
        for _ in range(times):
            begun = time.perf_counter()
            work()
            taken.append(time.perf_counter() - begun)
        statements, round_trips = _Counted.statements - statements, _Counted.round_trips - round_trips
        cpu, pages = self._database.cpu() - cpu, self._database.pages() - pages
        numbers = statements // times, round_trips // times, pages // times, cpu / times, statistics.median(taken)
        self.costs.append(Cost(shape, operation, self._whose, checkpoints, *numbers))


def measured(database: Database, given: argparse.Namespace, *, official: bool) -> list[Cost]:
    """Fill a database and measure in it."""
    savers: tuple[Any, Any] = SqliteSaver, OfficialSqliteSaver.from_conn_string
    if database.system != "sqlite":
        savers = partial(PostgresSaver, max_size=1), OfficialPostgresSaver.from_conn_string
    whose = "official" if official else "ours"
    with savers[official](database.location) as saver:
        saver.setup()
        begun = time.perf_counter()
        Measurement(saver, whose, database, given).fill()
        print(f"{database.system}, {whose}: filled in {time.perf_counter() - begun:.0f} s", file=sys.stderr)
    with savers[official](database.location) as saver:
        done = Measurement(saver, whose, database, given)
        done.measure()
        return done.costs


# What a row of the second table compares: operations whose work grows with the thread.
OF_THREAD = (
    "copy_thread", "fork_thread", "rollback to the middle", "prune", "delete_for_runs", "delete_thread",
)  # fmt: skip


def report(title: str, ours: list[Cost], official: list[Cost]) -> None:
    """Print all figures, and the CPU time for each checkpoint of a thread, which should not depend on the shape."""
    theirs = {(cost.shape, cost.operation): cost for cost in official}
    print(f"\n## {title}\n")
    print("| shape | operation | checkpoints | statements | round trips | pages | CPU ms | ms |", end="")
    print(" official: pages | CPU ms | ms |\n|---|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|")
    for cost in ours:
        other = theirs.get((cost.shape, cost.operation))
        more = f"{other.pages:,} | {other.cpu * 1000:,.1f} | {other.seconds * 1000:,.1f}" if other else "| |"
        print(
            f"| {cost.shape} | {cost.operation} | {cost.checkpoints:,} | {cost.statements:,} | {cost.round_trips} |"
            f" {cost.pages:,} | {cost.cpu * 1000:,.1f} | {cost.seconds * 1000:,.1f} | {more} |"
        )
    shapes = [shape for shape in SHAPES if shape != AS_STORED and any(cost.shape == shape for cost in ours)]
    print(f"\n| CPU µs for each checkpoint | {' | '.join(shapes)} | most, of the median |")
    print(f"|---|{'--:|' * (len(shapes) + 1)}")
    for operation in OF_THREAD:
        each = [
            cost.cpu / cost.checkpoints * 1e6
            for cost in ours
            if (cost.operation, cost.shape in shapes) == (operation, True)
        ]
        numbers = " | ".join(f"{value:.0f}" for value in each)
        print(f"| {operation} | {numbers} | {max(each) / statistics.median(each):.1f} |")


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.growth", description=__doc__)
    parser.add_argument("--scale", type=float, default=1.0, help="1 makes threads of 11,000 to 50,000 checkpoints")
    parser.add_argument("--threads", type=int, default=1_000, help="threads of four checkpoints besides")
    parser.add_argument("--statistics", choices=KNOWN, default="present", help="wrong: older than the large threads")
    parser.add_argument("--postgres", metavar="URL", help="a superuser's on a server; by default, one is started")
    parser.add_argument("--postgres-only", action="store_true")
    parser.add_argument("--sqlite-only", action="store_true")
    parser.add_argument("--no-official", action="store_true")
    parser.add_argument("--shapes", nargs="+", choices=list(SHAPES), default=list(SHAPES))
    given = parser.parse_args()
    count()
    with folder() as where, ExitStack() as stack:
        if not given.postgres_only:
            found = _both(lambda name: SqliteDatabase(str(Path(where) / f"{name}.db")), given)
            report(f"SQLite {sqlite3.sqlite_version}, statistics {given.statistics}", *found)
        if not given.sqlite_only:
            server = (
                Server(given.postgres, os.getpid()) if given.postgres else stack.enter_context(started_server(where))
            )

            def made(name: str) -> Database:
                server.drop(f"growth_{name}")
                system = "official postgres" if name == "official" else "postgres"
                return PostgresDatabase(server.create(f"growth_{name}"), system)

            found = _both(made, given)
            (version,) = server.query("SHOW server_version")
            report(f"PostgreSQL {version}, statistics {given.statistics}", *found)
            for name in ("ours", "official"):
                server.drop(f"growth_{name}")


def _both(made: Callable[[str], Database], given: argparse.Namespace) -> tuple[list[Cost], list[Cost]]:
    ours = measured(made("ours"), given, official=False)
    return ours, [] if given.no_official else measured(made("official"), given, official=True)


if __name__ == "__main__":
    main()
