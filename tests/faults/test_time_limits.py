"""An interrupt, or an exception of a signal handler such as a task queue's time limit, ends a waiting call.

The exception is not lost, and the server ends what it does for the call.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.faults.workload import elsewhere

SCRIPT = """
import os, signal, sys, threading, time
import psycopg
from langgraph.checkpoint.conformance.test_utils import generate_checkpoint, generate_config
from langgraph_checkpoint_custom import PostgresSaver
from tests.faults.workload import WAITING

class Limit(Exception):
    pass

url, when, what = sys.argv[1:]
raised = {"limit": Limit, "interrupt": KeyboardInterrupt}[what]

def late(*_):
    raise raised

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
        while not watcher.execute(WAITING).fetchall():
            pass
        os.kill(os.getpid(), signal.SIGUSR1)

    def interrupted(self, sql, *args, **kwargs):
        found = execute(self, sql, *args, **kwargs)
        if isinstance(sql, bytes) and b"advisory" in sql:
            execute(self, b"SELECT")  # Sends the statement before.
            interrupt()
        return found

    if when == "while it waits":  # One statement, with no lock.
        calls["get_tuple"] = lambda: saver.get_tuple(generate_config("get_tuple"))
    for name, call in calls.items():
        lock = "SELECT pg_advisory_xact_lock(hashtextextended(%s, hashtextextended('langgraph_checkpoint', 0)))"
        other.execute(lock, [name])
        if name == "get_tuple":
            other.execute("LOCK TABLE langgraph_checkpoint.checkpoints IN ACCESS EXCLUSIVE MODE")
        if when == "while it waits":
            threading.Thread(target=interrupt).start()
        else:
            psycopg.Cursor.execute = interrupted
        try:
            print(name, "returned", call())
        except raised:
            print(name, "ended")
        finally:
            psycopg.Cursor.execute = execute
        until = time.monotonic() + 120
        while watcher.execute(WAITING).fetchall():
            assert time.monotonic() < until, f"{name} goes on in the server"
        other.rollback()
saver.delete_thread("source")
saver.close()
"""


NAMES = ("put", "prune", "delete_thread", "delete_for_runs", "label", "copy_thread", "claim")


@pytest.mark.parametrize(("when", "what"), [("while it waits", "limit"), ("while it sends", "interrupt")])
def test_an_interrupt_ends_a_call_that_waits(postgres_url: str, when: str, what: str) -> None:
    """Each call of a saver that goes on. Nobody but the client tells the server that the call was given up."""
    command = [sys.executable, "-c", SCRIPT, elsewhere(postgres_url), when, what]
    done = subprocess.run(command, capture_output=True, text=True, cwd=Path(__file__).parents[2], check=False)
    names = (*NAMES, "get_tuple") if when == "while it waits" else NAMES
    assert (done.returncode, done.stdout.split("\n")) == (0, [*(f"{name} ended" for name in names), ""]), done.stderr
