"""What autovacuum's settings do to a store with runs and prunes: `python -m benchmarks.vacuum`.

A store with many threads at rest, and some with runs: each step stores a checkpoint with a list that
grows and a write, and every 20 steps the thread is pruned to its newest checkpoint. Each setting is measured once,
in its own database. The server has its default settings, but checks every five seconds instead of every minute whether
a table needs a vacuum: so a run of minutes shows what would take hours. Not part of `python -m benchmarks`.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import threading
import time
from contextlib import ExitStack
from typing import Any

from langgraph.checkpoint.base import empty_checkpoint
from langgraph.checkpoint.base.id import uuid6

from benchmarks.states import prose
from benchmarks.stores import Server, folder, started_server
from langgraph_checkpoint_custom import PostgresSaver

TABLES = ("checkpoints", "blobs", "writes")
SETTINGS = {
    "default": "",
    "proposed": "autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_threshold = 1000",
}
STEPS_AT_REST = 20
STEPS_TO_PRUNE = 20


class Run:
    """One OS thread that makes steps on graph threads, and prunes each at the end."""

    def __init__(self, saver: PostgresSaver, name: str) -> None:
        self._saver = saver
        self._name = name
        self.puts: list[float] = []
        self.prunes: list[float] = []
        self.pruned = 0

    def step_until(self, end: float, threads: int = 50) -> None:
        """Continue until a time of `time.monotonic`."""
        number = 0
        while time.monotonic() < end:
            thread_id = f"{self._name}-{number % threads}"
            self.steps(thread_id, STEPS_TO_PRUNE, end)
            begun = time.perf_counter()
            self._saver.prune([thread_id])
            self.prunes.append(time.perf_counter() - begun)
            self.pruned += STEPS_TO_PRUNE
            number += 1

    def steps(self, thread_id: str, number: int, end: float = float("inf")) -> None:
        """Make `number` steps of a thread."""
        config: Any = {"configurable": {"thread_id": thread_id, "checkpoint_ns": ""}}
        messages: list[str] = []
        for step in range(number):
            if time.monotonic() >= end:
                return
            messages = [*messages, prose(300)]
            checkpoint = empty_checkpoint()
            checkpoint["id"] = str(uuid6())
            version = self._saver.get_next_version(None, None)
            checkpoint["channel_values"] = {"messages": messages}
            checkpoint["channel_versions"] = {"messages": version}
            begun = time.perf_counter()
            config = self._saver.put(config, checkpoint, {"source": "loop", "step": step}, {"messages": version})
            self.puts.append(time.perf_counter() - begun)
            self._saver.put_writes(config, [("messages", messages[-1])], f"task {step}")


def measured(server: Server, name: str, *, at_rest: int, workers: int, seconds: float) -> dict[str, Any]:
    """The figures of one setting."""
    database = f"vacuum_{name}"
    url = server.create(database)
    with PostgresSaver(url, max_size=workers) as saver:
        saver.setup()
        for table in TABLES:
            if SETTINGS[name]:
                server.execute(f"ALTER TABLE langgraph_checkpoint.{table} SET ({SETTINGS[name]})", database)
        Run(saver, "cold").steps("cold", STEPS_AT_REST)
        for table in TABLES:
            (columns,) = server.query(
                "SELECT string_agg(quote_ident(column_name), ', ') FROM information_schema.columns WHERE"
                f" table_schema = 'langgraph_checkpoint' AND table_name = '{table}' AND column_name <> 'thread_id'",
                database,
            )
            server.execute(
                f"INSERT INTO langgraph_checkpoint.{table} (thread_id, {columns})"
                f" SELECT 'cold-' || i, {columns} FROM langgraph_checkpoint.{table}, generate_series(1, {at_rest}) i",
                database,
            )
        server.execute("VACUUM ANALYZE", database)
        before = figures(server, database)
        runs = [Run(saver, f"hot-{number}") for number in range(workers)]
        end = time.monotonic() + seconds
        began = [threading.Thread(target=run.step_until, args=(end,)) for run in runs]
        for thread in began:
            thread.start()
        peak = 0
        while time.monotonic() < end:
            time.sleep(2)  # Often enough to see tables grow, without loading the server.
            peak = max(peak, figures(server, database)["dead"])
        for thread in began:
            thread.join()
        time.sleep(2)  # The sessions report their statistics after a second.
        after = figures(server, database)
        puts = [took for run in runs for took in run.puts]
        late = [took for run in runs for took in run.puts[-len(run.puts) // 5 :]]
        prunes = [took for run in runs for took in run.prunes]
        late_prunes = [took for run in runs for took in run.prunes[-len(run.prunes) // 5 :]]
    server.drop(database)
    return {
        "server": server.query("SHOW server_version")[0],
        "setting": name,
        "puts": len(puts),
        "pruned_checkpoints": sum(run.pruned for run in runs),
        "put_ms_median": round(1000 * statistics.median(puts), 2),
        "put_ms_median_last_fifth": round(1000 * statistics.median(late), 2),
        "prune_ms_median": round(1000 * statistics.median(prunes), 1),
        "prune_ms_median_last_fifth": round(1000 * statistics.median(late_prunes), 1),
        "peak_dead": peak,
        "before": before,
        "after": after,
    }


def figures(server: Server, database: str) -> dict[str, Any]:
    """Dead rows, vacuums, and megabytes of the tables (including TOAST) and of their indexes."""
    row = server.query(
        """
        SELECT sum(n_dead_tup)::int, sum(autovacuum_count)::int, (sum(pg_table_size(relid)) / 1e6)::int,
               round(sum(pg_indexes_size(relid)) / 1e6, 1)::float
        FROM pg_stat_user_tables
        WHERE schemaname = 'langgraph_checkpoint' AND relname IN ('checkpoints', 'blobs', 'writes')
        """,
        database,
    )
    return dict(zip(("dead", "autovacuums", "table_mb", "index_mb"), row, strict=True))


def main() -> None:
    """Measure each setting and print its figures."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.vacuum", description=__doc__)
    parser.add_argument("--at-rest", type=int, default=5000, help="threads at rest, of 20 checkpoints each")
    parser.add_argument("--workers", type=int, default=4, help="OS threads that write")
    parser.add_argument("--seconds", type=float, default=150)
    parser.add_argument(
        "--url", help="the database postgres of a server whose settings may be changed; else one is made"
    )
    parser.add_argument("--naptime", type=int, default=5, help="seconds between two looks of autovacuum")
    parser.add_argument("--settings", nargs="*", default=list(SETTINGS), choices=list(SETTINGS))
    arguments = parser.parse_args()
    with ExitStack() as stack:
        if arguments.url:
            server = Server(arguments.url, os.getpid())
        else:
            server = stack.enter_context(started_server(stack.enter_context(folder())))
        server.execute(f"ALTER SYSTEM SET autovacuum_naptime = {arguments.naptime}", "postgres")
        server.query("SELECT pg_reload_conf()")
        for name in arguments.settings:
            found = measured(
                server, name, at_rest=arguments.at_rest, workers=arguments.workers, seconds=arguments.seconds
            )
            print(json.dumps(found), flush=True)


if __name__ == "__main__":
    main()
