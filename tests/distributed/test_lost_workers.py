"""Runs go on while workers are restarted: nothing is lost, and no error but a retryable one after the last attempt.

What was acknowledged may be seen only after Citus has recovered it (docs/postgres.md, "Lost servers").

Each worker's sessions are ended again and again. CHECKPOINT_CITUS_RESTART may have a command that restarts the worker
at the port that is its last argument, and CHECKPOINT_CITUS_SECONDS how long to go on.
"""

from __future__ import annotations

import os
import random
import shlex
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import psycopg
import pytest

from langgraph_checkpoint_custom import CheckpointSaver, PostgresSaver, RetryableError
from langgraph_checkpoint_custom.cli import main
from tests.behaviour.helpers import checkpoint, config, metadata
from tests.invariants import check_invariants
from tests.stores import Store

RUNS = 64
SECONDS = float(os.environ.get("CHECKPOINT_CITUS_SECONDS", "10"))
RESTART = os.environ.get("CHECKPOINT_CITUS_RESTART")
LARGE = "x" * 20_000


def restart(url: str) -> None:
    """Restart a worker, or at least end all of its sessions."""
    if RESTART:
        port = str(psycopg.conninfo.conninfo_to_dict(url)["port"])
        subprocess.run([*shlex.split(RESTART), port], check=True)
        return
    with suppress(psycopg.OperationalError), psycopg.connect(url, autocommit=True) as server:
        server.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database()"
            " AND pid <> pg_backend_pid() AND backend_type = 'client backend'"
        )


def recover(url: str) -> None:
    """Do what Citus does once a minute: commit on the workers what was acknowledged before their sessions ended."""
    for _ in range(100):  # Its sessions with the workers are ended, too.
        with suppress(psycopg.Error), psycopg.connect(url, autocommit=True) as server:
            server.execute("SELECT recover_prepared_transactions()")
            return
    raise AssertionError("no recovery came to its end")


def run(saver: CheckpointSaver, url: str, number: int, done: threading.Event, errors: Counter[str]) -> int:
    """Store checkpoints one after the other until the end; returns how many."""
    thread_id, step = f"run {number}", 0
    while not done.is_set():
        where = config(thread_id, f"{step:06}" if step else None)
        values = {"step": step + 1, "value": LARGE if step % 2 else "small"}
        versions = {"step": f"{step + 1:06}", "value": f"{step + 1:06}"}
        document = checkpoint(f"{step + 1:06}", values, versions)
        try:
            stored = saver.put(where, document, metadata(step), document["channel_versions"])
            saver.put_writes(stored, [("step", step), ("value", "written")], f"task {step}")
            found = saver.get_tuple(config(thread_id))
            if found is None or found.config != stored or len(found.pending_writes or ()) < 2:
                recover(url)
                found = saver.get_tuple(config(thread_id))
        except RetryableError as error:
            errors[f"{type(error).__name__} {error.sqlstate}"] += 1  # The step is stored again, as a run would.
            continue
        assert found is not None
        assert found.checkpoint["channel_values"] == values
        assert [write[1:] for write in found.pending_writes or ()] == [("step", step), ("value", "written")]
        step += 1
    return step


def maintain(saver: CheckpointSaver, done: threading.Event, errors: Counter[str]) -> None:
    """Copy, list, count and delete threads until the end."""
    number = 0
    while not done.is_set():
        number += 1
        try:
            copied = f"copy {number}"
            saver.copy_thread(f"run {number % RUNS}", copied)
            saver.threads(limit=5)
            saver.prune([copied])
            saver.delete_thread(copied)
        except RetryableError as error:
            errors[f"{type(error).__name__} {error.sqlstate} of maintenance"] += 1


@pytest.mark.timeout(SECONDS + 300)
def test_runs_go_on_while_workers_are_restarted(urls: Sequence[str]) -> None:
    done = threading.Event()
    errors: Counter[str] = Counter()
    restarts = 0
    with PostgresSaver(urls[0], max_size=RUNS + 2) as saver, ThreadPoolExecutor(RUNS + 1) as workers:
        runs = [workers.submit(run, saver, urls[0], number, done, errors) for number in range(RUNS)]
        maintenance = workers.submit(maintain, saver, done, errors)
        ends = time.monotonic() + SECONDS
        while time.monotonic() < ends:
            time.sleep(random.uniform(0.5, 3.0))  # Runs go on in between; the moments are random.
            restart(random.choice(urls[1:]))
            restarts += 1
        done.set()
        steps = [each.result() for each in runs]
        maintenance.result()
        recover(urls[0])
        for number, count in enumerate(steps):
            assert len(list(saver.history(config(f"run {number}")))) >= count
            found = list(saver.list(config(f"run {number}")))
            assert {each.checkpoint["id"] for each in found} >= {f"{step + 1:06}" for step in range(count)}
    print(f"{sum(steps)} steps, {restarts} restarts, errors after the last attempt: {dict(errors)}")
    assert sum(steps)
    check_invariants(Store("postgres", urls[0]))
    assert main(["doctor", "--url", urls[0]]) == 0
