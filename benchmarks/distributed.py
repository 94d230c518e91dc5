"""What a Citus cluster adds to each call: `python -m benchmarks.distributed`.

The same calls on distributed tables, through the coordinator and through each worker, and on tables in a database
without Citus on the coordinator's server. In each round every contestant does every call once, in turn, each with
threads of its own. A ratio is the median of the ratios of all rounds. Needs CHECKPOINT_CITUS_DSN, as
`python -m pytest --citus` does. Not part of `python -m benchmarks`.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

import psycopg
from langgraph.checkpoint.base import empty_checkpoint
from langgraph.checkpoint.base.id import uuid6
from psycopg import sql

from langgraph_checkpoint_custom import PostgresSaver
from tests import citus

# Characters of a large value, which is a blob.
LARGE = 5_000
# Checkpoints of the threads that are read.
STEPS = 20
# Calls before the first that counts, so that statements are prepared.
WARM_UP = 20


class Contestant:
    """A saver, and what it does once in each round."""

    def __init__(self, saver: PostgresSaver) -> None:
        self._saver = saver
        self._count = 0
        self._last: dict[str, Any] = {}
        name = uuid.uuid4().hex
        # Threads of both kinds on different servers, so that each is local to some of the clients and not to others.
        self._small = [f"{name} small {number}" for number in range(8)]
        self._large = [f"{name} large {number}" for number in range(8)]
        for thread_id in (*self._small, *self._large):
            for _ in range(STEPS):
                self._put(thread_id, large=thread_id in self._large)
                self._saver.put_writes(self._last[thread_id], [("a", 1), ("log", self._count)], "task")

    @property
    def calls(self) -> dict[str, Callable[[], object]]:
        """The calls, by the name that is printed."""
        saver = self._saver
        return {
            "put, small state": lambda: self._put(self._next(self._small), large=False),
            "put, new value of 5 KB": lambda: self._put(self._next(self._large), large=True),
            "put_writes of 2": lambda: saver.put_writes(
                self._last[self._next(self._small)], [("a", 1), ("log", 2)], str(self._count)
            ),
            "get_tuple, small state": lambda: saver.get_tuple(self._config(self._small)),
            "get_tuple, value of 5 KB": lambda: saver.get_tuple(self._config(self._large)),
            "get_tuple by id": lambda: saver.get_tuple(self._last[self._next(self._small)]),
            "list of 20": lambda: list(saver.list(self._config(self._small), limit=20)),
            "delta history of 20": lambda: saver.get_delta_channel_history(
                config=self._last[self._next(self._small)], channels=["log"]
            ),
        }

    def _next(self, threads: Sequence[str]) -> str:
        self._count += 1
        return threads[self._count % len(threads)]

    def _config(self, threads: Sequence[str]) -> Any:
        return {"configurable": {"thread_id": self._next(threads), "checkpoint_ns": ""}}

    def _put(self, thread_id: str, *, large: bool) -> None:
        self._count += 1
        document = empty_checkpoint()
        document["v"], document["id"] = 4, str(uuid6())
        values = {"a": self._count, "b": f"{self._count} {'x' * (LARGE if large else 50)}"}
        versions: dict[str, Any] = dict.fromkeys(values, self._saver.get_next_version(None, None))
        document["channel_values"], document["channel_versions"] = values, versions
        where = self._last.get(thread_id, {"configurable": {"thread_id": thread_id, "checkpoint_ns": ""}})
        self._last[thread_id] = self._saver.put(where, document, {"source": "loop", "step": self._count}, versions)


@contextmanager
def plain_database(dsn: str) -> Iterator[str]:
    """A database without Citus on the server of the coordinator, with the tables."""
    name = f"plain_{uuid.uuid4().hex[:12]}"
    with psycopg.connect(dsn, autocommit=True) as server:
        server.execute("SET citus.enable_create_database_propagation = off")
        server.execute(sql.SQL("CREATE DATABASE {} TEMPLATE template0").format(sql.Identifier(name)))
        url = citus.as_url(dsn, dbname=name)
        try:
            with PostgresSaver(url) as saver:
                saver.setup()
            yield url
        finally:
            server.execute(sql.SQL("DROP DATABASE {} WITH (FORCE)").format(sql.Identifier(name)))


def measured(contestants: Sequence[Contestant], rounds: int) -> dict[str, list[list[float]]]:
    """For each call and each contestant the seconds of all rounds."""
    found: dict[str, list[list[float]]] = {name: [[] for _ in contestants] for name in contestants[0].calls}
    for number in range(WARM_UP + rounds):
        for name, times in found.items():
            for contestant, seconds in zip(contestants, times, strict=True):
                call = contestant.calls[name]
                begun = time.perf_counter()
                call()
                if number >= WARM_UP:
                    seconds.append(time.perf_counter() - begun)
    return found


def main() -> int:
    """Print a table of medians and ratios."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=300)
    arguments = parser.parse_args()
    dsn = citus.given_dsn()
    if dsn is None:
        print(f"NOT MEASURED: set {citus.DSN} to the address of a coordinator", file=sys.stderr)
        return 1
    with ExitStack() as stack:
        urls = stack.enter_context(citus.made_cluster_database(dsn))
        with PostgresSaver(urls[0]) as saver:
            saver.setup(distribute="citus")
        plain = stack.enter_context(plain_database(dsn))
        savers = [stack.enter_context(PostgresSaver(url)) for url in (plain, *urls)]
        contestants = [Contestant(saver) for saver in savers]
        found = measured(contestants, arguments.rounds)
    print("| | one server | through the coordinator | through a worker |\n|---|---|---|---|")
    for name, (alone, coordinator, *workers) in found.items():
        through = [
            statistics.median(there / here for here, there in zip(alone, times, strict=True))
            for times in (coordinator, *workers)
        ]
        by_worker = statistics.mean(through[1:])
        print(f"| {name} | {statistics.median(alone) * 1_000:.2f} ms | {through[0]:.1f} | {by_worker:.1f} |")
    return 0


if __name__ == "__main__":
    sys.exit(main())
