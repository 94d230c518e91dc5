"""Moving to distributed tables while runs go on, and shards that move to another server while runs go on."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import psycopg

from langgraph_checkpoint_custom import CheckpointSaver, PostgresSaver
from langgraph_checkpoint_custom.tools.exchange import transfer
from tests.behaviour.helpers import checkpoint, config, metadata
from tests.invariants import check_invariants
from tests.stores import Store

THREADS = 4
LARGE = "x" * 5_000


def step(saver: CheckpointSaver, thread_id: str, number: int) -> None:
    """Store the next checkpoint of a thread, with writes, and read it."""
    where = config(thread_id, f"{number - 1:06}" if number > 1 else None)
    values = {"step": number, "value": f"{number} {LARGE if number % 2 else ''}"}
    document = checkpoint(f"{number:06}", values, dict.fromkeys(values, f"{number:06}"))
    stored = saver.put(where, document, metadata(number), document["channel_versions"])
    saver.put_writes(stored, [("step", number), ("value", "written")], f"task {number}")
    found = saver.get_tuple(config(thread_id))
    assert found is not None
    assert found.checkpoint["channel_values"] == values
    assert [write[1:] for write in found.pending_writes or ()] == [("step", number), ("value", "written")]


@contextmanager
def runs(saver: CheckpointSaver, pause: float = 0) -> Iterator[Sequence[int]]:
    """Store steps in some threads for the duration of a block; at the end, how many of each thread.

    Between two steps each pauses for that many seconds.
    """
    done = threading.Event()
    counts: list[int] = []

    def run(thread_id: str) -> int:
        number = 0
        while not done.is_set():
            number += 1
            step(saver, thread_id, number)
            time.sleep(pause)  # Otherwise the threads grow faster than they are copied.
        return number

    with ThreadPoolExecutor(THREADS) as workers:
        running = [workers.submit(run, f"thread {number}") for number in range(THREADS)]
        try:
            yield counts
        finally:
            done.set()
            counts += [each.result() for each in running]


def shown(saver: CheckpointSaver, thread_id: str) -> Sequence[object]:
    return [(each.checkpoint, each.metadata, each.pending_writes) for each in saver.list(config(thread_id))]


def test_threads_are_transferred_while_runs_store_in_them(urls: Sequence[str]) -> None:
    with PostgresSaver(urls[0], schema="old") as old, PostgresSaver(urls[1]) as new:
        old.setup()
        assert (old.backend.dialect.layout, new.count_threads()) == (None, 0)
        with runs(old, pause=0.05):
            for _ in range(3):
                time.sleep(0.2)  # The runs store something in between.
                assert transfer(old, new).problems == {}
        assert new.backend.dialect.layout == "citus"
        found = transfer(old, new)  # What was stored after the last one has begun.
        assert (found.problems, found.threads) == ({}, THREADS)
        for number in range(THREADS):
            assert shown(new, f"thread {number}") == shown(old, f"thread {number}") != []
        step(new, "thread 0", len(shown(new, "thread 0")) + 1)
    check_invariants(Store("postgres", urls[0]))
    with psycopg.connect(urls[0], autocommit=True) as server:
        server.execute("DROP SCHEMA old CASCADE")


def test_runs_go_on_while_shards_move(urls: Sequence[str]) -> None:
    """Each shard moves to the other worker, and back."""
    with PostgresSaver(urls[0]) as saver, psycopg.connect(urls[0], autocommit=True) as server:
        with runs(saver) as counts:
            for _ in range(2):
                placed = server.execute(
                    "SELECT shardid, nodename, nodeport FROM citus_shards"
                    " WHERE table_name = 'langgraph_checkpoint.checkpoints'::regclass"
                ).fetchall()
                workers = server.execute("SELECT * FROM citus_get_active_worker_nodes()").fetchall()
                for shard, *place in placed:
                    (other,) = (worker for worker in workers if [*worker] != place)
                    server.execute(
                        "SELECT citus_move_shard_placement(%s, %s, %s, %s, %s, 'force_logical')",
                        (shard, *place, *other),
                    )
        for number, count in enumerate(counts):
            found = list(saver.list(config(f"thread {number}")))
            assert [each.checkpoint["id"] for each in found] == [f"{step:06}" for step in range(count, 0, -1)]
    check_invariants(Store("postgres", urls[0]))
