"""A fork leaves no SQLite file open, whatever runs concurrently: a file open in both processes would lose data."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from langgraph.checkpoint.conformance.test_utils import generate_checkpoint, generate_config, generate_metadata

from langgraph_checkpoint_custom import ConfigError, SqliteSaver, StorageError
from langgraph_checkpoint_custom.engine.operation import Operation, RoundTrip, Statement, Steps

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork")

HEAD = """
import os, signal, sqlite3, sys, threading
from langgraph.checkpoint.conformance.test_utils import generate_checkpoint, generate_config
from langgraph_checkpoint_custom import ConfigError, SqliteSaver

path = sys.argv[1]
failed = []
sys.unraisablehook = lambda unraisable: failed.append(repr(unraisable.exc_value))

def put(saver, thread_id):
    saver.put(generate_config(thread_id), generate_checkpoint(), {}, {})

def of_child(pid):
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])

saver = SqliteSaver(path)
put(saver, "before")

"""


DURING_WRITES = """
def work(name):
    for number in range(40):
        put(saver, f"{name} {number}")

threads = [threading.Thread(target=work, args=(name,)) for name in range(8)]
for thread in threads:
    thread.start()
children = []
for child in range(4):
    pid = os.fork()
    if pid == 0:
        work(f"child {child}")
        os._exit(0)
    children.append(pid)
for thread in threads:
    thread.join()
print({of_child(pid) for pid in children}, failed)
saver.close()
"""

UNENDING = """
from langgraph_checkpoint_custom.drivers import sqlite_connections
from langgraph_checkpoint_custom.engine.operation import Operation, RoundTrip, Statement
sqlite_connections.FORK_TIMEOUT = 0.2
begun, go_on = threading.Event(), threading.Event()

def steps():
    yield RoundTrip([Statement("count", "SELECT count(*) FROM checkpoints", {})])
    begun.set()
    go_on.wait()

operation = Operation("test", WHAT, steps)
running = threading.Thread(target=saver.backend.driver.run, args=[operation])
running.start()
begun.wait()
pid = os.fork()
if pid == 0:
    try:
        put(saver, "child")
        failed.append("stored")
    except ConfigError as error:
        assert "this process was forked" in str(error)
    saver.close()
    sys.exit(len(failed))
code = of_child(pid)
go_on.set()
running.join()
for number in range(3):
    put(saver, f"parent {number}")
saver.close()
saver = SqliteSaver(path)
print(code, failed, len(list(saver.list(None))))
"""


def run(script: str, path: Path) -> str:
    done = subprocess.run(
        [sys.executable, "-W", "ignore::DeprecationWarning", "-c", script, str(path)],
        capture_output=True,
        text=True,
        timeout=600,
        cwd=Path(__file__).parents[2],
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout.strip()


def put(saver: SqliteSaver, thread_id: str, size: int = 1) -> None:
    checkpoint = generate_checkpoint(channel_values={"a": os.urandom(size)}, channel_versions={"a": "1"})
    saver.put(generate_config(thread_id), checkpoint, generate_metadata(), {"a": "1"})


def test_a_fork_while_the_parent_is_inside_sqlite_loses_nothing(path: Path) -> None:
    assert run(HEAD + DURING_WRITES, path) == "{0} []"
    with SqliteSaver(path) as saver:
        assert len(list(saver.list(None))) == 1 + 12 * 40


@pytest.mark.parametrize("what", ["write", "read"])
def test_a_fork_does_not_wait_for_a_call_that_does_not_end_and_the_child_refuses_the_file(
    path: Path, what: str
) -> None:
    """Acknowledged rows would be lost: SQLite takes no locks in the child. The child ends as usual."""
    assert run(HEAD + UNENDING.replace("WHAT", repr(what)), path) == "0 [] 4"


ANOTHER_SAVER = """
from langgraph_checkpoint_custom import forks
forks.FORK_TIMEOUT = 1_000
other = SqliteSaver(path + ".other")
connections = saver.backend.driver._connections
close = connections.before_fork

def before_fork():
    close()
    storing = threading.Thread(target=put, args=(other, "meanwhile"), daemon=True)
    storing.start()
    storing.join(150)
    failed.extend(["it waits"] * storing.is_alive())

connections.before_fork = before_fork
pid = os.fork()
if pid == 0:
    put(other, "child")
    other.close()
    os._exit(0)
print(of_child(pid), failed, len(list(other.list(None))))
saver.close()
other.close()
"""


def test_a_saver_that_a_fork_has_not_closed_yet_does_not_wait_for_the_fork(path: Path) -> None:
    """It would have its lock, for which the fork waits: both for five seconds, and then the child refuses the file."""
    assert run(HEAD + ANOTHER_SAVER, path) == "0 [] 2"


MEMORY = """
from langgraph_checkpoint_custom.drivers import sqlite_connections
from langgraph_checkpoint_custom.engine.operation import Operation, RoundTrip, Statement
sqlite_connections.FORK_TIMEOUT = 0.2 if UNENDING else 150
saver.close()
saver = SqliteSaver(":memory:")
put(saver, "before")
begun, go_on = threading.Event(), threading.Event()
many = "WITH RECURSIVE n (x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n WHERE x < 3000000) SELECT count(*) FROM n"

def steps():
    begun.set()
    yield RoundTrip([Statement("count", many, {})])
    while UNENDING and not go_on.wait(1):
        pass

running = threading.Thread(target=saver.backend.driver.run, args=[Operation("test", "write", steps)])
running.start()
begun.wait()
threading.Event().wait(0.05)  # Time for the statement to begin.
pid = os.fork()
if pid == 0:
    signal.alarm(150)  # The end of a child that waits for the lock of an OS thread that it does not have.
    try:
        put(saver, "child")
    except ConfigError as error:
        assert "this process was forked" in str(error)
        os._exit(9)
    os._exit(len(list(saver.list(None))))
code = of_child(pid)
go_on.set()
running.join()
put(saver, "parent")
print(code, failed, len(list(saver.list(None))))
saver.close()
"""


@pytest.mark.parametrize(("unending", "code"), [(False, 2), (True, 9)])
def test_a_child_has_a_copy_of_a_store_in_memory_unless_a_call_does_not_end(
    path: Path, unending: bool, code: int
) -> None:
    """Forked while another OS thread was inside SQLite, the child would wait for a lock of SQLite's for ever."""
    assert run(HEAD + MEMORY.replace("UNENDING", str(unending)), path) == f"{code} [] 2"


CALLERS = """
import aiosqlite, asyncio
mine = MINE
saver = SqliteSaver(mine)
put(saver, "t")
pid = os.fork()
if pid == 0:
    refused = 0
    for call in (lambda: put(saver, "t"), lambda: saver.get_tuple(generate_config("t")), saver.setup):
        try:
            call()
        except ConfigError as error:
            refused += "this process was forked" in str(error)
    saver.close()
    os._exit(refused)
print(of_child(pid), saver.get_tuple(generate_config("t")) is not None)
if isinstance(mine, aiosqlite.Connection):
    asyncio.run(mine.close())
"""


@pytest.mark.parametrize("mine", ['sqlite3.connect(":memory:", check_same_thread=False)', "aiosqlite.connect(path)"])
def test_a_callers_connection_is_refused_in_the_child(path: Path, mine: str) -> None:
    """Also of a file: SQLite's record of its locks is wrong in a connection from before the fork."""
    assert run(HEAD + CALLERS.replace("MINE", mine), path) == "3 True"


def test_a_path_need_not_be_text(tmp_path: Path) -> None:
    name = os.path.join(os.fsencode(tmp_path), b"\xff.db")
    with SqliteSaver(os.fsdecode(name)) as saver:
        put(saver, "t")
        assert saver.get_tuple(generate_config("t")) is not None
    with pytest.raises(ConfigError, match="NUL"):
        SqliteSaver("a\0.db")


def test_the_error_about_a_value_too_large_for_pythons_sqlite3_says_so(path: Path) -> None:
    """The value has 2 GB, which are not touched and so take no memory."""
    large = memoryview(bytes(2**31))

    def steps() -> Steps[None]:
        yield RoundTrip([Statement("insert", "INSERT INTO claims (thread_id) VALUES (?)", (large,))])

    with SqliteSaver(path) as saver:
        with pytest.raises(StorageError, match="larger than SQLite allows, which is usually 1 GB"):
            saver.backend.driver.run(Operation("test", "write", steps))
        put(saver, "t")
