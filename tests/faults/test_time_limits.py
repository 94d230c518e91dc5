"""An exception from a signal handler, such as a task queue's time limit, ends a waiting call and is not lost."""

from __future__ import annotations

import subprocess
import sys

import pytest

SCRIPT = """
import os, signal, sys, threading
import psycopg
from langgraph.checkpoint.conformance.test_utils import generate_checkpoint, generate_config
from langgraph_checkpoint_custom import PostgresSaver

class Limit(Exception):
    pass

def late(*_):
    raise Limit

url, when = sys.argv[1:]
signal.signal(signal.SIGUSR1, late)
saver = PostgresSaver(url)
large = generate_checkpoint(channel_values={"a": ["large " * 4000]}, channel_versions={"a": "1"})

def put(thread_id):
    return saver.put(generate_config(thread_id), large, {}, {"a": "1"})

put("source")
# Each on a thread of its own, with that name.
calls = {
    "put": lambda: put("put"),
    "prune": lambda: saver.prune(["prune"]),
    "delete_thread": lambda: saver.delete_thread("delete_thread"),
    "delete_for_runs": lambda: saver.delete_for_runs(["run"]),
    "label": lambda: saver.label(generate_config("label"), "name"),
    "copy_thread": lambda: saver.copy_thread("source", "copy_thread"),
    "claim": lambda: saver.claim("claim").__enter__(),
}
for name in ("put", "prune", "delete_thread", "label"):
    saver.put(put(name), generate_checkpoint(), {}, {})
saver.put(put("delete_for_runs"), generate_checkpoint(), {"run_id": "run"}, {})
execute = psycopg.Cursor.execute
with psycopg.connect(url) as other, psycopg.connect(url, autocommit=True) as watcher:

    def interrupt():
        waiting = "SELECT FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
        while not watcher.execute(waiting).fetchall():
            pass
        os.kill(os.getpid(), signal.SIGUSR1)

    def interrupted(self, sql, *args, **kwargs):
        found = execute(self, sql, *args, **kwargs)
        if isinstance(sql, bytes) and b"advisory" in sql:
            execute(self, b"SELECT")  # Sends the statement before.
            interrupt()
        return found

    for name, call in calls.items():
        lock = "SELECT pg_advisory_xact_lock(hashtextextended(%s, hashtextextended('langgraph_checkpoint', 0)))"
        other.execute(lock, [name])
        if when == "while it waits":
            threading.Thread(target=interrupt).start()
        else:
            psycopg.Cursor.execute = interrupted
        try:
            print(name, "returned", call())
        except Limit:
            print(name, "ended")
        finally:
            psycopg.Cursor.execute = execute
        other.rollback()
saver.delete_thread("source")
saver.close()
"""


NAMES = ("put", "prune", "delete_thread", "delete_for_runs", "label", "copy_thread", "claim")


@pytest.mark.parametrize("when", ["while it waits", "while it sends"])
def test_a_time_limit_ends_a_call_that_waits(postgres_url: str, when: str) -> None:
    """Each call of a saver that goes on."""
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, postgres_url, when], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout.split("\n")) == (0, [*(f"{name} ended" for name in NAMES), ""]), done.stderr
