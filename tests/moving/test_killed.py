"""A killed move continues where it was, and nothing is stored twice or incompletely."""

from __future__ import annotations

import signal
import subprocess
import sys

from langgraph_checkpoint_custom.tools.migration import READ, MoveReport, migrate
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


AGAIN = """
import signal
import sys
from langgraph_checkpoint_custom import open_saver
from langgraph_checkpoint_custom.tools.migration import migrate
from langgraph_checkpoint_custom.tools.own import OwnThreads
store = OwnThreads.store
def store_and_wait(own, part):
    store(own, part)
    print("stored", flush=True)
    signal.pause()  # Until it is killed.
OwnThreads.store = store_and_wait
with open_saver(sys.argv[2]) as saver:
    migrate(sys.argv[1], saver, threads=["t"])
"""


def kill_one(official: Official, store: Store) -> None:
    """Begin to move the thread again, in a process that is killed after the first part."""
    command = [sys.executable, "-c", AGAIN, official.url, store.url]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == "stored\n"
        child.kill()
    assert child.wait() == -signal.SIGKILL


def test_a_killed_move_of_a_named_thread_is_completed_if_a_part_was_there(official: Official, store: Store) -> None:
    """All of it was moved once, and a prune has left its newest checkpoint here."""
    with official.open() as source, store.open() as target:
        location = None
        for number in range(2 * READ + 1):
            location = step(source, "t", location, a=[number])
            source.put_writes(location, [("a", number)], "task")
        migrate(official.url, target)
        target.prune(["t"])
        kill_one(official, store)
        assert len(list(target.list(config("t")))) == READ + 1
        assert migrate(official.url, target) == MoveReport(threads=1, checkpoints=READ + 1, writes=READ)
        assert [found._asdict() for found in everything(target)] == [found._asdict() for found in everything(source)]
        assert migrate(official.url, target) == MoveReport(threads=1)
        target.prune(
            ["t"]
        )  # What is deleted after that does not return; nor does a thread that is deleted after a kill.
        assert migrate(official.url, target) == MoveReport(threads=1)
        assert len(list(target.list(config("t")))) == 1
        kill_one(official, store)
        target.delete_thread("t")
        assert migrate(official.url, target) == MoveReport(threads=1, deleted=1)
