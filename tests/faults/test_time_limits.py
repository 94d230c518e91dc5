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

url, name, when = sys.argv[1:]
signal.signal(signal.SIGUSR1, late)
saver = PostgresSaver(url)
large = generate_checkpoint(channel_values={"a": ["large " * 1000]}, channel_versions={"a": "1"})

def put(thread_id):
    return saver.put(generate_config(thread_id), large, {}, {"a": "1"})

where = put("t")
put("source")
calls = {
    "put": lambda: put("t"),
    "prune": lambda: saver.prune(["t"]),
    "delete_thread": lambda: saver.delete_thread("t"),
    "delete_for_runs": lambda: saver.delete_for_runs(["run"]),
    "label": lambda: saver.label(where, "name"),
    "copy_thread": lambda: saver.copy_thread("source", "t"),
    "claim": lambda: saver.claim("t").__enter__(),
}
saver.put(where, generate_checkpoint(), {"run_id": "run"}, {})
with psycopg.connect(url) as other, psycopg.connect(url, autocommit=True) as watcher:
    other.execute(
        "SELECT pg_advisory_xact_lock(hashtextextended('t', hashtextextended('langgraph_checkpoint', 0)))"
    )

    def interrupt():
        waiting = "SELECT FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
        while not watcher.execute(waiting).fetchall():
            pass
        os.kill(os.getpid(), signal.SIGUSR1)

    if when == "while it waits":
        threading.Thread(target=interrupt).start()
    else:
        execute = psycopg.Cursor.execute

        def interrupted(self, sql, *args, **kwargs):
            found = execute(self, sql, *args, **kwargs)
            if isinstance(sql, bytes) and b"advisory" in sql:
                execute(self, b"SELECT")  # Sends the statement before.
                interrupt()
            return found

        psycopg.Cursor.execute = interrupted
    try:
        print("returned", calls[name]())
    except Limit:
        print("ended")
    finally:
        if when != "while it waits":
            psycopg.Cursor.execute = execute
saver.delete_thread("t")
saver.close()
"""


@pytest.mark.parametrize("when", ["while it waits", "while it sends"])
@pytest.mark.parametrize("name", ["put", "prune", "delete_thread", "delete_for_runs", "label", "copy_thread", "claim"])
def test_a_time_limit_ends_a_call_that_waits(postgres_url: str, name: str, when: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, postgres_url, name, when], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (0, "ended\n"), done.stderr
