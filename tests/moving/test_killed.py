"""A killed move continues where it was, and nothing is stored twice or incompletely."""

from __future__ import annotations

import signal
import subprocess
import sys

from tests.moving.official import Official, config, everything, step
from tests.stores import Store

SCRIPT = """
import signal
import sys
from langgraph_checkpoint_custom import open_saver
from langgraph_checkpoint_custom.tools.migration import migrate
def progress(number):
    print(number, flush=True)
    if number == int(sys.argv[3]):
        signal.pause()  # Until it is killed.
with open_saver(sys.argv[2]) as saver:
    moved = migrate(sys.argv[1], saver, progress=progress)
    print("problems", moved.problems, flush=True)
"""
THREADS = 30


def test_a_killed_move_is_completed_by_the_next_ones(official: Official, store: Store) -> None:
    with official.open() as source:
        for number in range(THREADS):
            location = None
            for turn in range(4):
                location = step(source, f"{number:02}", location, a=list(range(turn)), text="x" * 500)
                source.put_writes(location, [("a", turn)], "task")
        for kills_after in (3, 12, 27):
            command = [sys.executable, "-c", SCRIPT, official.url, store.url, f"{kills_after}"]
            with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as child:
                assert child.stdout is not None
                for line in child.stdout:
                    if line == f"{kills_after}\n":
                        child.kill()
            assert child.wait() == -signal.SIGKILL
        last = subprocess.run(
            [sys.executable, "-c", SCRIPT, official.url, store.url, "0"],
            stdout=subprocess.PIPE,
            text=True,
            check=True,
        )
        assert last.stdout.endswith("problems {}\n")
        with store.open() as target:
            assert [found._asdict() for found in everything(target)] == [
                found._asdict() for found in everything(source)
            ]
            assert target.get_tuple(config("00")) is not None
