"""Interrupts and signal handlers: at whatever moment they come, no call hangs, and the next one works."""

from __future__ import annotations

import gc
import itertools
import sqlite3
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager, suppress
from copy import copy
from fractions import Fraction
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
from langchain_core.messages import HumanMessage
from langgraph.checkpoint.serde.encrypted import EncryptedSerializer

from langgraph_checkpoint_custom import CheckpointError, ConfigError, SqliteSaver
from langgraph_checkpoint_custom.encoding.chunks import NAME_MARK, SPLIT_FROM
from langgraph_checkpoint_custom.engine.operation import Access, RoundTrip, Statement, Steps
from tests.behaviour.helpers import checkpoint, config, metadata, noise
from tests.drivers.group_commits import Op, claimed, insert, put, stored


class Interrupted(BaseException):
    """Ctrl-C."""


class TimeLimit(Exception):
    """What the signal handler of a task queue raises."""


def interrupt() -> None:
    raise Interrupted


def limit() -> None:
    raise TimeLimit


@contextmanager
def signal_at(number: int, handler: Callable[[], None]) -> Iterator[None]:
    """Call a handler at one of the points where Python looks for signals, such as after a call.

    Not inside of pycryptodome and its ctypes: interrupted in its constructors, it frees memory that it does not have.
    """
    points = itertools.count(1)

    def profile(frame: FrameType, event: str, arg: Any) -> None:
        is_point = event in ("call", "c_return") and not frame.f_globals["__name__"].startswith(("Crypto.", "ctypes"))
        if is_point and next(points) == number:
            sys.setprofile(None)
            handler()

    gc.disable()  # It would run finalizers of other tests here.
    sys.setprofile(profile)
    try:
        yield
    finally:
        sys.setprofile(None)
        gc.enable()


def put_as(saver: SqliteSaver, thread_id: str) -> None:
    saver.put(*put(thread_id).args)


def both(saver: SqliteSaver, thread_id: str, access: Access = "write") -> None:
    """Store two rows, or none."""

    def steps() -> Steps[None]:
        yield insert(f"{thread_id} 1")
        yield insert(f"{thread_id} 2")

    saver.backend.driver.run(Op(steps, access).op)


CALLS: dict[str, Callable[[SqliteSaver, str], object]] = {
    "put": put_as,
    "write": both,
    "transaction": lambda saver, thread_id: both(saver, thread_id, "transaction"),
    "get": lambda saver, _: saver.get_tuple(config("first")),
    "get objects": lambda saver, _: saver.get_tuple(config("objects")),
    "get chunks, encrypted": lambda saver, _: saver.get_tuple(config("chunks")),
    "list": lambda saver, _: list(saver.list(config("first"))),
}
SERDES = {"get chunks, encrypted": EncryptedSerializer.from_pycryptodome_aes(key=b"0123456789abcdef")}

# While an object is restored, an exception of a signal handler may count as the object's.
LIMITED = {"get objects": (TimeLimit, CheckpointError)}


@pytest.mark.filterwarnings("ignore:unclosed database:ResourceWarning")  # Python 3.13 warns about an interrupted read.
@pytest.mark.parametrize("call", CALLS)
def test_wherever_a_call_is_interrupted_it_has_stored_all_or_nothing_and_the_next_call_works(
    saver: SqliteSaver, path: Path, call: str
) -> None:
    """Also on other OS threads, and while the error references the interrupted frames."""
    called = copy(saver)
    called.serde = SERDES.get(call, saver.serde)
    put("first").run_here(saver)
    acknowledged = {"first"}
    objects = checkpoint("1", {"a": [HumanMessage("hi"), Fraction(1, 2)]})  # Their decoding calls back from C.
    saver.put(config("objects"), objects, metadata(), objects["channel_versions"])
    where = config("chunks")
    for step in (1, 2):  # The second version of a large value is stored in chunks.
        large = checkpoint(f"{step}", {"a": [noise(SPLIT_FROM), step]})
        where = called.put(where, large, metadata(), large["channel_versions"])
    with closing(sqlite3.connect(path)) as file:
        assert any(version.startswith(NAME_MARK) for (version,) in file.execute("SELECT version FROM blobs"))
    came: list[int] = []

    def come() -> None:
        came.append(point)
        (limit if call in LIMITED else interrupt)()

    with ThreadPoolExecutor(1) as another:
        for point in itertools.count(1):
            try:
                with signal_at(point, come):
                    CALLS[call](called, f"{point}")
                break
            except (Interrupted, *LIMITED.get(call, ())):
                assert isinstance(another.submit(put(f"{point} there").run_here, saver).result(), dict)
                assert isinstance(put(f"{point} here").run_here(saver), dict)
                acknowledged |= {f"{point} here", f"{point} there"}
    assert point > 20
    assert came == list(range(1, point))  # All of them have ended the call.
    saver.delete_thread("chunks")  # It may be encrypted.
    assert acknowledged <= stored(saver)
    rows = claimed(path)
    assert all((f"{number} 1" in rows) == (f"{number} 2" in rows) for number in range(1, point + 1))
    assert call not in ("write", "transaction") or f"{point} 1" in rows


@pytest.mark.parametrize("call", CALLS)
def test_a_signal_handler_may_call_the_saver_at_any_moment_of_a_call(saver: SqliteSaver, path: Path, call: str) -> None:
    """It works or raises a ConfigError, and is no part of the interrupted call."""
    put("first").run_here(saver)
    outcomes: list[Any] = []

    def handler() -> None:
        assert saver.get_tuple(config("first")) is not None  # A read has a connection of its own.
        outcomes.append(put(f"within {len(outcomes)}").run_here(saver))

    for point in itertools.count(1):
        before = len(outcomes)
        with signal_at(point, handler):
            CALLS[call](saver, f"{point}")
        if len(outcomes) == before:
            break
    assert set(map(type, outcomes)) == {dict, ConfigError}
    worked = {f"within {number}" for number, each in enumerate(outcomes) if isinstance(each, dict)}
    assert worked == {name for name in stored(saver) if name.startswith("within")}
    if call in ("write", "transaction"):
        assert len(claimed(path)) == 2 * (len(outcomes) + 1)


def within(saver: SqliteSaver, call: Callable[[], Any]) -> Any:
    """The result of a call inside another one in the same OS thread, like that of a signal handler."""
    found: list[Any] = []

    def steps() -> Steps[str]:
        yield insert("outer")
        try:
            found.append(call())
        except Exception as error:
            found.append(error)
        return "done"

    assert Op(steps).run_here(saver) == "done"
    return found[0]


@pytest.mark.parametrize("where", ["file", "memory"])
@pytest.mark.parametrize("what", ["put", "run", "setup", "close", "get"])
def test_a_call_inside_another_one_raises_instead_of_waiting_for_itself(path: Path, what: str, where: str) -> None:
    with SqliteSaver(path if where == "file" else ":memory:") as saver:
        first = put("first").run_here(saver)
        calls: dict[str, Callable[[], Any]] = {
            "put": lambda: put("inner").run_here(saver),
            "run": lambda: both(saver, "inner"),
            "get": lambda: saver.get_tuple(first),
            "setup": saver.setup,
            "close": saver.close,
        }
        found = within(saver, calls[what])
        if (what, where) == ("get", "file"):
            assert found is not None
        else:
            assert isinstance(found, ConfigError)
            assert "during another call" in str(found)
        with ThreadPoolExecutor(1) as another:
            assert another.submit(put("there").run_here, saver).result()
        assert isinstance(put("here").run_here(saver), dict)
        assert stored(saver) == {"first", "there", "here"}


def test_a_read_does_not_wait_for_a_writer_whenever_that_takes_the_lock(saver: SqliteSaver) -> None:
    first = put("first").run_here(saver)
    with ThreadPoolExecutor(2) as others:
        for point in itertools.count(1):
            came, has_lock, done = threading.Event(), threading.Event(), threading.Event()

            def write(has_lock: threading.Event = has_lock, done: threading.Event = done) -> Steps[None]:
                yield RoundTrip([Statement("one", "SELECT 1", {})])
                has_lock.set()
                done.wait()

            def come(came: threading.Event = came, has_lock: threading.Event = has_lock, write: Any = write) -> None:
                came.set()
                others.submit(Op(write).run_here, saver)
                has_lock.wait(0.1)  # If the read has the lock, the writer comes after it.

            def read(point: int = point, come: Callable[[], None] = come) -> object:
                with signal_at(point, come):
                    return saver.get_tuple(first)

            try:
                assert others.submit(read).result(150) is not None
            finally:
                done.set()
            if not came.is_set():
                break
    assert point > 20


@pytest.mark.parametrize("begun", [False, True])
@pytest.mark.parametrize("call", ["put", "write", "get"])
def test_a_callers_connection_works_wherever_an_interrupt_arrives(call: str, begun: bool) -> None:
    """Also in a transaction of the caller, which stays open."""
    with closing(sqlite3.connect(":memory:", check_same_thread=False, isolation_level=None)) as conn:
        saver = SqliteSaver(conn)
        put("first").run_here(saver)
        if begun:
            conn.execute("BEGIN")
        for point in itertools.count(1):
            interrupted = True
            with suppress(Interrupted), signal_at(point, interrupt):
                CALLS[call](saver, f"{point}")
                interrupted = False
            assert isinstance(put(f"{point} later").run_here(saver), dict), point
            assert conn.in_transaction is begun, point
            if not interrupted:
                break
        assert {f"{number} later" for number in range(1, point + 1)} <= stored(saver)
        saver.close()


def test_a_read_does_not_take_an_error_of_a_signal_handler_for_one_of_its_file(saver: SqliteSaver) -> None:
    """Such as that of a handler that stores something in a file of its own, which is locked."""
    put("first").run_here(saver)
    came: set[int] = set()

    def fail(point: int) -> None:
        came.add(point)
        raise sqlite3.OperationalError("database is locked")

    for point in itertools.count(1):
        put(f"{point}").run_here(saver)  # The writer has been looked at.
        returned = False
        with suppress(sqlite3.OperationalError, CheckpointError):
            with signal_at(point, partial(fail, point)):
                saver.get_tuple(config("first"))
            returned = True
        assert returned is (point not in came), point
        if returned:
            break
    assert point > 20
