"""Concurrent writes to one SQLite file share a transaction, and each has its own result."""

from __future__ import annotations

import asyncio
import itertools
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing, contextmanager, suppress
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
from langchain_core.runnables import RunnableConfig

from langgraph_checkpoint_custom import (
    CheckpointConflict,
    ClaimLost,
    ClosedError,
    ConfigError,
    Contention,
    SqliteSaver,
    StorageError,
)
from langgraph_checkpoint_custom.drivers import sqlite as driver_module
from langgraph_checkpoint_custom.drivers import sqlite_group_commit
from langgraph_checkpoint_custom.drivers.sqlite_group_commit import QueuedOperation, WriteQueue
from langgraph_checkpoint_custom.encoding.encode import encode_checkpoint
from langgraph_checkpoint_custom.engine.operation import (
    OFFLOAD_BYTES,
    Access,
    Offload,
    Operation,
    RoundTrip,
    Statement,
    Steps,
)
from langgraph_checkpoint_custom.model.keys import CLAIM_KEY, CheckpointRow, key_of
from langgraph_checkpoint_custom.operations import write
from tests.behaviour.helpers import checkpoint, config, metadata
from tests.conftest import APIS, needs_error_codes
from tests.drivers.group_commits import (
    Op,
    Work,
    claimed,
    commits,
    insert,
    locked,
    put,
    put_writes,
    queue_of,
    stored,
    together,
    until,
    writer,
)

MANY = 60


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "checkpoints.db"


@pytest.fixture
def saver(path: Path) -> Iterator[SqliteSaver]:
    with SqliteSaver(path, busy_timeout=10) as opened:
        opened.setup()
        yield opened


@pytest.fixture(autouse=True)
def no_time_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """A busy machine must not split a batch into two transactions."""
    monkeypatch.setattr(driver_module, "LONGEST", 60)


@pytest.mark.parametrize("api", APIS)
async def test_waiting_writes_are_one_transaction(saver: SqliteSaver, path: Path, api: str) -> None:
    with commits(saver) as found:
        outcomes = await together(saver, path, api, [put(f"t {number}") for number in range(MANY)])
    assert len(found) == 2  # The first, and the one of all that arrived during it.
    assert [each["configurable"]["thread_id"] for each in outcomes] == [f"t {number}" for number in range(MANY)]
    assert stored(saver) == {"first", *(f"t {number}" for number in range(MANY))}


async def test_sync_and_async_calls_of_all_loops_share_a_transaction(saver: SqliteSaver, path: Path) -> None:
    """Some OS threads with a loop and some without, concurrently."""
    tasks = 8

    def of_thread(number: int) -> None:
        async def of_task(task: int) -> None:
            where = await put(f"t {number} {task}").run(saver)
            await put_writes(where).run(saver)

        async def all_tasks() -> None:
            await asyncio.gather(*(of_task(task) for task in range(tasks)))

        if number % 2:
            asyncio.run(all_tasks())
        else:
            where = put(f"t {number}").run_here(saver)
            assert put_writes(where).run_here(saver) is None

    with commits(saver) as found, ThreadPoolExecutor(32) as workers:
        await asyncio.gather(*(asyncio.wrap_future(workers.submit(of_thread, number)) for number in range(32)))
    everything = list(saver.list(None))
    assert len(everything) == 16 + 16 * tasks
    assert all(each.pending_writes == [("task", "a", 1), ("task", "b", [2])] for each in everything)
    assert len(found) < len(everything)  # There were twice as many calls.


async def test_a_single_write_does_not_wait_for_others(saver: SqliteSaver) -> None:
    with commits(saver) as found:
        for number in range(3):
            await put(f"t {number}").run(saver)
            put(f"s {number}").run_here(saver)
    assert len(found) == 6


async def test_the_size_of_a_batch_is_limited(saver: SqliteSaver, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sqlite_group_commit, "MOST", 20)
    with commits(saver) as found:
        await together(saver, path, "sync", [put(f"t {number}") for number in range(MANY)])
        assert len(found) == 1 + 3
        found.clear()
        monkeypatch.setattr(driver_module, "LONGEST", 1e-9)  # Each transaction is over as soon as it has begun.
        await together(saver, path, "sync", [put(f"t {number}") for number in range(10)])
    assert len(found) == 1 + 10
    assert len(stored(saver)) == MANY + 1


@pytest.mark.parametrize("api", APIS)
async def test_a_failed_write_does_not_fail_the_others(saver: SqliteSaver, path: Path, api: str) -> None:
    put("conflict").run_here(saver)  # It is newer than the parent of the one that follows.
    late = put("conflict", parent="0").args
    encoded = encode_checkpoint(saver._codec, key_of(late[0]), *late)
    assert isinstance(encoded, CheckpointRow)
    lost: RunnableConfig = {"configurable": {**config("lost", "1")["configurable"], CLAIM_KEY: "a token"}}

    def fails() -> Steps[None]:
        yield insert("of one that fails")
        raise LookupError("on purpose")

    def refused() -> Steps[None]:
        yield insert("refused")
        yield insert("refused")

    conflict = Op(write.put(saver._dialect, encoded, only_newest=True).start)
    work: list[Work] = [put("a"), put_writes(lost), put("b"), Op(fails), put("c"), conflict, Op(refused), put("d")]
    with commits(saver) as found:
        outcomes = await together(saver, path, api, work)
    assert len(found) == 2
    assert [type(each) for each in outcomes] == [
        dict, ClaimLost, dict, LookupError, dict, CheckpointConflict, StorageError, dict,
    ]  # fmt: skip
    assert (outcomes[6].operation, outcomes[6].statement) == ("test", "insert")
    assert stored(saver) == {"first", "conflict", "a", "b", "c", "d"}
    assert claimed(path) == set()
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("SELECT count(*) FROM writes").fetchone() == (0,)


@needs_error_codes
@pytest.mark.parametrize("api", APIS)
async def test_the_others_are_stored_if_one_write_fills_the_disk(saver: SqliteSaver, path: Path, api: str) -> None:
    (pages,) = writer(saver).execute("PRAGMA page_count").fetchone()
    writer(saver).execute(f"PRAGMA max_page_count = {pages + 40}")  # What a full disk looks like to SQLite.
    huge = checkpoint("1", {"a": ["".join(map(str, range(300_000)))]})
    work = [put("a"), put("b"), Work("put", config("huge"), huge, metadata(), huge["channel_versions"]), put("c")]
    outcomes = await together(saver, path, api, work)
    assert [type(each) for each in outcomes] == [dict, dict, StorageError, dict]
    assert "disk is full" in str(outcomes[2])
    assert outcomes[2].operation == "put"
    assert stored(saver) == {"first", "a", "b", "c"}


@pytest.mark.parametrize("api", APIS)
async def test_if_the_commit_fails_each_write_is_tried_separately(saver: SqliteSaver, path: Path, api: str) -> None:
    failures = 1 + 3  # The batch, and then the first three separately.

    def authorize(action: int, word: str | None, *_: Any) -> int:
        nonlocal failures
        commit = action == sqlite3.SQLITE_TRANSACTION and word == "COMMIT"
        alone = action == sqlite3.SQLITE_INSERT and not writer(saver).in_transaction  # The statement commits itself.
        if (commit or alone) and failures:
            failures -= 1
            return sqlite3.SQLITE_DENY
        return sqlite3.SQLITE_OK

    def arm() -> Steps[None]:
        writer(saver).set_authorizer(authorize)  # Statements are prepared again, which calls it.
        yield insert("armed")

    work = [Op(arm), *(put(f"t {number}") for number in range(6))]
    outcomes = await together(saver, path, api, work)
    writer(saver).set_authorizer(lambda *_: sqlite3.SQLITE_OK)
    failed = [isinstance(each, StorageError) for each in outcomes]
    assert failed == [True] * 3 + [False] * 4
    assert {each.operation for each in outcomes[:3]} == {"test", "put"}
    assert stored(saver) == {"first", *(f"t {number}" for number in range(2, 6))}
    assert claimed(path) == set()


@needs_error_codes
@pytest.mark.parametrize("api", APIS)
async def test_a_batch_waits_for_another_process_once(path: Path, api: str) -> None:
    with SqliteSaver(path, busy_timeout=0.3) as saver, locked_after_setup(saver, path):
        started = time.monotonic()
        work = [put(f"t {number}") for number in range(20)]
        if api == "async":
            outcomes = await asyncio.gather(*(each.run(saver) for each in work), return_exceptions=True)
        else:
            with ThreadPoolExecutor(20) as workers:
                outcomes = list(workers.map(lambda each: each.run_here(saver), work))
        assert time.monotonic() - started < 20 * 0.3 / 2
        assert {type(each) for each in outcomes} == {Contention}
        assert len(set(map(id, outcomes))) == 20  # Each call has its own error, with its own traceback.


@needs_error_codes
@pytest.mark.parametrize("api", APIS)
async def test_many_batches_wait_for_another_process_once(
    path: Path, api: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The time in the queue counts: after a batch that timed out, no call waits for the full timeout again."""
    for module in (sqlite_group_commit, driver_module):
        monkeypatch.setattr(module, "MOST", 5)
    waits: list[float] = []

    def note(sql: str) -> None:
        if sql.startswith("PRAGMA busy_timeout = "):
            now.append(float(sql.rpartition(" ")[2]))
        elif sql == "BEGIN IMMEDIATE" or (sql.startswith("INSERT") and not writer(saver).in_transaction):
            waits.append(now[-1])

    with SqliteSaver(path, busy_timeout=2) as saver:
        saver.setup()
        now = [2000.0]
        writer(saver).set_trace_callback(note)
        with locked(path):
            work = [put(f"t {number}") for number in range(40)]
            if api == "async":
                outcomes = await asyncio.gather(*(each.run(saver) for each in work), return_exceptions=True)
            else:
                with ThreadPoolExecutor(40) as workers:
                    outcomes = list(workers.map(lambda each: each.run_here(saver), work))
        assert {type(each) for each in outcomes} == {Contention}
        assert waits[0] == 2000
        assert len(waits) >= 8
        assert sum(waits[1:]) < 2000
        await put("later").run(saver)
        assert waits[-1] == 2000


@contextmanager
def locked_after_setup(saver: SqliteSaver, path: Path) -> Iterator[None]:
    saver.setup()
    with locked(path):
        yield


@pytest.mark.parametrize("alone", [True, False])
@pytest.mark.parametrize("api", APIS)
async def test_writes_do_not_wait_for_work_outside_the_database(
    saver: SqliteSaver, path: Path, api: str, alone: bool
) -> None:
    def steps() -> Steps[str]:
        yield insert("before")

        def work() -> str:
            with closing(sqlite3.connect(path, timeout=0)) as other:  # Does not wait.
                other.execute("INSERT INTO claims (thread_id, token, owner, expires_at) VALUES ('other', '', '', 1)")
                other.commit()
            assert isinstance(put("meanwhile").run_here(saver), dict)
            return "done"

        done: str = yield Offload(1, work)
        yield insert("after")
        return done

    others = [] if alone else [put("a"), put("b")]
    outcomes = await together(saver, path, api, [Op(steps), *others])
    assert outcomes[0] == "done"
    assert stored(saver) - {"a", "b"} == {"first", "meanwhile"}
    assert claimed(path) == {"before", "other", "after"}


async def test_a_cancelled_task_does_not_affect_its_batch(saver: SqliteSaver, path: Path) -> None:
    with locked(path) as unlock:
        first = asyncio.ensure_future(put("first").run(saver))
        await until(lambda: queue_of(saver)._leads.locked() and not queue_of(saver)._waiting)
        tasks = [asyncio.ensure_future(put(f"t {number}").run(saver)) for number in range(MANY)]
        await asyncio.sleep(0)
        for task in (first, *tasks[::2]):
            task.cancel()
        unlock()
        outcomes = await asyncio.gather(first, *tasks, return_exceptions=True)
    assert [type(each) for each in outcomes[2::2]] == [dict] * (MANY // 2)
    assert {type(each) for each in outcomes[1::2]} == {asyncio.CancelledError}
    assert stored(saver) - {"first"} == {f"t {number}" for number in range(1, MANY, 2)}


async def test_a_batch_wakes_each_loop_once(saver: SqliteSaver, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    loop = asyncio.get_running_loop()
    wakeups: list[Any] = []
    call_soon = loop.call_soon_threadsafe

    def counted(*args: Any, **kwargs: Any) -> asyncio.Handle:
        wakeups.append(args)
        return call_soon(*args, **kwargs)

    monkeypatch.setattr(loop, "call_soon_threadsafe", counted)
    await together(saver, path, "async", [put(f"t {number}") for number in range(MANY)])
    assert len(wakeups) == 2
    wakeups.clear()
    await asyncio.gather(*(saver.aget_tuple(config(f"t {number}")) for number in range(MANY)))
    assert len(wakeups) < MANY / 2


async def test_calls_of_other_loops_return_although_a_loop_has_ended(saver: SqliteSaver, path: Path) -> None:
    def leave() -> None:
        loop = asyncio.new_event_loop()
        task = loop.create_task(put("left").run(saver))
        loop.run_until_complete(asyncio.sleep(0))
        task.cancel()
        loop.run_until_complete(asyncio.gather(task, return_exceptions=True))
        loop.close()

    with locked(path) as unlock:
        first = asyncio.ensure_future(put("first").run(saver))
        await until(lambda: queue_of(saver)._leads.locked() and not queue_of(saver)._waiting)
        await asyncio.to_thread(leave)
        other = asyncio.ensure_future(put("other").run(saver))
        await asyncio.sleep(0)
        unlock()
        await asyncio.gather(first, other)
    assert stored(saver) - {"left"} == {"first", "other"}


@pytest.mark.parametrize("api", APIS)
async def test_closing_waits_for_everything_that_was_begun(path: Path, api: str) -> None:
    saver = SqliteSaver(path)
    saver.setup()
    work = [put(f"t {number}") for number in range(MANY)]

    async def close_it() -> None:
        closing_it = asyncio.ensure_future(saver.aclose())
        await until(lambda: saver._driver._connections.held.closed)  # type: ignore[attr-defined]
        unlock()
        await closing_it

    with locked(path) as unlock:
        if api == "async":
            tasks = [asyncio.ensure_future(each.run(saver)) for each in work]
            await asyncio.sleep(0)
            await close_it()
            outcomes = await asyncio.gather(*tasks, return_exceptions=True)
        else:
            with ThreadPoolExecutor(MANY) as workers:
                futures = [workers.submit(each.run_here, saver) for each in work]
                await until(lambda: len(queue_of(saver)._waiting) == MANY - 1)
                await close_it()
                outcomes = [await asyncio.wrap_future(each) for each in futures]
    assert {type(each) for each in outcomes} == {dict}
    with SqliteSaver(path) as again:
        assert len(stored(again)) == MANY


def test_a_fork_during_many_writes_loses_nothing(path: Path) -> None:
    program = f"""
import os, threading, sys
sys.path.insert(0, {str(Path(__file__).parents[2])!r})
from tests.drivers.test_sqlite_group_commit import put
from langgraph_checkpoint_custom import SqliteSaver
saver = SqliteSaver(sys.argv[1])
def work(name):
    for number in range(40):
        assert isinstance(put(f"{{name}} {{number}}").run_here(saver), dict)
threads = [threading.Thread(target=work, args=(name,)) for name in range(8)]
for thread in threads: thread.start()
children = []
for child in range(4):
    pid = os.fork()
    if pid == 0:
        work(f"child {{child}}")
        os._exit(0)
    children.append(pid)
for thread in threads: thread.join()
for pid in children: assert os.waitpid(pid, 0)[1] == 0
saver.close()
"""
    command = [sys.executable, "-W", "ignore::DeprecationWarning", "-c", program, str(path)]
    done = subprocess.run(command, stderr=subprocess.PIPE, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    with SqliteSaver(path) as saver:
        assert len(stored(saver)) == 12 * 40


def nothing() -> Operation[None]:
    return Operation("nothing", "write", lambda: iter(()))  # type: ignore[arg-type, return-value]


def store(name: str) -> Steps[str]:
    yield insert(name)
    return name


class InterruptedDeque(deque[Any]):
    """Is interrupted while waiting calls are put back into it."""

    def extendleft(self, waiters: Any) -> None:
        raise KeyboardInterrupt


@pytest.mark.parametrize("waiting", [deque, InterruptedDeque])
def test_the_other_writes_run_if_their_leader_is_interrupted(
    waiting: type[deque[Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite_group_commit, "MAX_WAIT", 0.05)
    queue = WriteQueue()
    queue._waiting = waiting()
    begun, go_on = threading.Event(), threading.Event()
    batches: list[int] = []

    def perform(calls: Sequence[QueuedOperation[Any]]) -> None:
        batches.append(len(calls))
        begun.set()
        assert go_on.wait(10)
        if len(batches) == 2:
            raise KeyboardInterrupt
        for call in calls:
            call.result = "done"

    def work(number: int) -> Any:
        call = QueuedOperation(nothing())
        try:
            queue.run([call], perform)
        except KeyboardInterrupt:
            return "interrupted"
        return call.outcome()

    with ThreadPoolExecutor(5) as workers:
        futures = [workers.submit(work, 0)]
        assert begun.wait(10)
        for number in range(1, 5):
            futures.append(workers.submit(work, number))
            while len(queue._waiting) < number:
                time.sleep(0.001)  # Until the other OS thread waits in the queue.
        go_on.set()
        found = [future.result(60) for future in futures]
    assert sorted(found) == ["done", "done", "done", "done", "interrupted"]
    assert sum(batches) == 1 + 4 + 3
    assert not queue._leads.locked()


def test_a_waiting_thread_leads_if_the_leader_was_interrupted_before_waking_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Even while the error references the interrupted frames, whose `with` waits for the other workers."""
    monkeypatch.setattr(sqlite_group_commit, "MAX_WAIT", 0.05)
    queue = WriteQueue()
    wake_next = queue._wake_next
    done: list[QueuedOperation[Any]] = []

    def interrupted() -> None:
        monkeypatch.setattr(queue, "_wake_next", wake_next)
        raise KeyboardInterrupt

    def perform(calls: Sequence[QueuedOperation[Any]]) -> None:
        while not done and len(queue._waiting) < 3:
            time.sleep(0.001)  # Until the others wait in the queue.
        done.extend(calls)

    monkeypatch.setattr(queue, "_wake_next", interrupted)
    with ThreadPoolExecutor(4) as workers:
        begun = threading.Event()

        def follow() -> None:
            assert begun.wait(60)
            queue.run([QueuedOperation(nothing())], perform)

        others = [workers.submit(follow) for _ in range(3)]

        def lead(calls: Sequence[QueuedOperation[Any]]) -> None:
            begun.set()
            perform(calls)

        try:
            queue.run([QueuedOperation(nothing())], lead)
        except KeyboardInterrupt:
            assert [other.result(60) for other in others] == [None] * 3
            queue.run([QueuedOperation(nothing())], perform)
    assert len(done) == 5


def test_an_interrupted_write_releases_its_locks_before_its_error_is_handled(saver: SqliteSaver, path: Path) -> None:
    def steps() -> Steps[None]:
        yield insert("interrupted")
        raise KeyboardInterrupt

    for where in ("the queue", "alone"):
        op = Op(steps, "write" if where == "the queue" else "dry_run")
        try:
            op.run_here(saver)
        except KeyboardInterrupt:
            put("here").run_here(saver)
            with ThreadPoolExecutor(1) as worker:
                worker.submit(put("there").run_here, saver).result(60)
    assert stored(saver) == {"here", "there"}
    assert claimed(path) == set()


class Interrupted(BaseException):
    """Ctrl-C."""


@contextmanager
def interrupt_at(number: int) -> Iterator[None]:
    """Interrupt this OS thread at one of the points where Python checks for signals, such as after a call."""
    points = itertools.count(1)

    def profile(frame: FrameType, event: str, arg: Any) -> None:
        if event in ("call", "c_return") and next(points) == number:
            sys.setprofile(None)
            raise Interrupted

    sys.setprofile(profile)
    try:
        yield
    finally:
        sys.setprofile(None)


@pytest.mark.parametrize("count", [1, 2])
def test_each_call_takes_effect_once_wherever_its_leader_is_interrupted(
    saver: SqliteSaver, path: Path, count: int
) -> None:
    """A deletion reports that it deleted a row, and nothing is stored twice."""

    def replace(old: str, new: str) -> Steps[tuple[bool, str]]:
        yield insert(new)
        (found,) = yield RoundTrip([Statement("delete", "DELETE FROM claims WHERE thread_id = ? RETURNING 1", (old,))])
        return bool(found), new

    queue, perform = queue_of(saver), saver._driver._write  # type: ignore[attr-defined]
    there: list[str] = []
    for point in itertools.count():
        before = [f"{point} {number} old" for number in range(count)]
        names = [f"{point} {number}" for number in range(count)]
        perform([QueuedOperation(Op(partial(store, name)).op) for name in before])
        calls = [QueuedOperation(Op(partial(replace, *each)).op) for each in zip(before, names, strict=True)]
        waiter = sqlite_group_commit._Waiter(calls)
        queue._waiting.append(waiter)
        interrupted = True
        with suppress(Interrupted), interrupt_at(point):
            queue._lead(sqlite_group_commit._Waiter(()), perform)  # By another thread.
            interrupted = False
        queue._lead(waiter, perform)
        assert [call.outcome() for call in calls] == [(True, name) for name in names], point
        there += names
        if point and not interrupted:
            break
    assert point > 20
    assert claimed(path) == set(there)


@pytest.mark.parametrize("begun", [False, True])
@pytest.mark.parametrize("count", [1, 2])
def test_a_callers_connection_works_wherever_an_interrupt_arrives(count: int, begun: bool) -> None:
    """Also in a transaction of the caller, which stays open."""
    with closing(sqlite3.connect(":memory:", check_same_thread=False, isolation_level=None)) as conn:
        saver = SqliteSaver(conn)
        saver.setup()
        if begun:
            conn.execute("BEGIN")
        perform = saver._driver._write  # type: ignore[attr-defined]
        for point in itertools.count(1):
            interrupted = True
            with suppress(Interrupted), interrupt_at(point):
                perform([QueuedOperation(Op(partial(store, f"{point} {number}")).op) for number in range(count)])
                interrupted = False
            call = QueuedOperation(Op(partial(store, f"{point} later")).op)
            perform([call])
            assert call.outcome() == f"{point} later", point
            assert conn.in_transaction is begun, point
            if not interrupted:
                break
        found = {thread_id for (thread_id,) in conn.execute("SELECT thread_id FROM claims")}
        assert {f"{number} later" for number in range(1, point + 1)} <= found
        saver.close()


def within(saver: SqliteSaver, call: Callable[[], Any], access: Access = "write") -> list[Any]:
    """The result of a call inside another one in the same OS thread, like that of a signal handler."""
    found: list[Any] = []

    def steps() -> Steps[str]:
        yield insert("outer")
        try:
            found.append(call())
        except Exception as error:
            found.append(error)
        return "done"

    assert Op(steps, access).run_here(saver) == "done"
    return found


@pytest.mark.parametrize("where", ["file", "memory"])
@pytest.mark.parametrize("access", ["write", "exclusive", "dry_run"])
@pytest.mark.parametrize("what", ["put", "dry_run", "setup", "close", "get"])
def test_a_call_inside_another_one_raises_instead_of_waiting_for_itself(
    path: Path, monkeypatch: pytest.MonkeyPatch, what: str, access: Access, where: str
) -> None:
    monkeypatch.setattr(sqlite_group_commit, "MAX_WAIT", 0.05)
    with SqliteSaver(path if where == "file" else ":memory:") as saver:
        first = put("first").run_here(saver)
        calls: dict[str, Callable[[], Any]] = {
            "put": lambda: saver._driver.run(Op(partial(store, "inner")).op),
            "dry_run": lambda: saver._driver.run(Op(lambda: iter(()), "dry_run").op),  # type: ignore[arg-type, return-value]
            "get": lambda: saver.get_tuple(first),
            "setup": saver.setup,
            "close": saver.close,
        }
        (found,) = within(saver, calls[what], access)
        if (what, where) == ("get", "file"):
            assert found is not None
        else:
            assert isinstance(found, ConfigError)
            assert "during another call" in str(found)
        with ThreadPoolExecutor(1) as worker:
            assert worker.submit(put("there").run_here, saver).result(60)
        assert isinstance(put("here").run_here(saver), dict)
        assert stored(saver) == {"first", "there", "here"}


def test_a_call_inside_another_one_does_not_affect_waiting_calls(saver: SqliteSaver) -> None:
    """They arrived before it, and would have been in its batch."""
    with ThreadPoolExecutor(3) as workers:
        others: list[Future[Any]] = []

        def call() -> Any:
            for number in range(3):
                others.append(workers.submit(put(f"t {number}").run_here, saver))
                while queue_of(saver)._leads.locked() < (number == 0) or len(queue_of(saver)._waiting) < number:
                    time.sleep(0.001)  # Until they wait in the queue.
            return saver.put(*put("inner").args)

        assert isinstance(within(saver, call, "dry_run")[0], ConfigError)
        assert {type(other.result(60)) for other in others} == {dict}
    assert stored(saver) == {"t 0", "t 1", "t 2"}


def test_a_call_inside_a_waiting_one_runs(saver: SqliteSaver, monkeypatch: pytest.MonkeyPatch) -> None:
    """No thread leads or wakes it then: the next leader is itself interrupted."""
    monkeypatch.setattr(sqlite_group_commit, "MAX_WAIT", 0.05)
    queue = queue_of(saver)
    inner: list[Any] = []

    class Stopped(sqlite_group_commit._Waiter):
        def __init__(self, calls: Sequence[QueuedOperation[Any]]) -> None:
            super().__init__(calls)
            self.waits = self  # type: ignore[assignment]

        def acquire(self, timeout: float) -> bool:
            monkeypatch.undo()
            monkeypatch.setattr(sqlite_group_commit, "MAX_WAIT", 0.05)
            queue._leads.release()
            inner.append(put("inner").run_here(saver))
            return True

        def wake(self) -> None:
            """No thread is awake."""

    monkeypatch.setattr(sqlite_group_commit, "_Waiter", Stopped)
    queue._leads.acquire()
    assert isinstance(put("outer").run_here(saver), dict)
    assert isinstance(inner[0], dict)
    assert stored(saver) == {"inner", "outer"}


def test_the_leader_does_not_wait_for_an_interrupted_call(monkeypatch: pytest.MonkeyPatch) -> None:
    queue = WriteQueue()
    led: list[int] = []

    class Interrupted(sqlite_group_commit._Waiter):
        def __init__(self, calls: Sequence[QueuedOperation[Any]]) -> None:
            super().__init__(calls)
            self.waits = self  # type: ignore[assignment]

        def acquire(self, timeout: float) -> None:
            raise KeyboardInterrupt

    def perform(calls: Sequence[QueuedOperation[Any]]) -> None:
        if not led:
            monkeypatch.setattr(sqlite_group_commit, "_Waiter", Interrupted)
            with ThreadPoolExecutor(1) as worker, pytest.raises(KeyboardInterrupt):
                worker.submit(queue.run, [QueuedOperation(nothing())], perform).result(20)
            monkeypatch.undo()
        led.append(len(calls))

    queue.run([QueuedOperation(nothing())], perform)
    queue.run([QueuedOperation(nothing())], perform)
    assert led == [1, 1]


@pytest.mark.skipif(not hasattr(signal, "SIGUSR1"), reason="there is no such signal")
def test_a_waiting_thread_checks_again_after_a_slow_signal_handler(
    saver: SqliteSaver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite_group_commit, "MAX_WAIT", 0.2)
    queue = queue_of(saver)

    def handle(*_: Any) -> None:
        time.sleep(0.4)  # Longer than the timeout of the waiting thread.
        queue._leads.release()  # Like a leader that is interrupted before it can wake the next.

    def interrupt() -> None:
        while not queue._waiting:
            time.sleep(0.001)  # Until it waits in the queue.
        signal.pthread_kill(main, signal.SIGUSR1)

    main = threading.get_ident()
    before = signal.signal(signal.SIGUSR1, handle)
    queue._leads.acquire()
    interrupting = threading.Thread(target=interrupt)
    interrupting.start()
    assert isinstance(put("t").run_here(saver), dict)
    interrupting.join()
    signal.signal(signal.SIGUSR1, before)


@pytest.mark.parametrize("kind", ["read", "write"])
async def test_a_call_made_while_the_workers_are_closed_raises(saver: SqliteSaver, kind: Any) -> None:
    await put("t").run(saver)
    await saver.aget_tuple(config("t"))
    worker = saver._driver._worker(kind)  # type: ignore[attr-defined]
    worker.executor.shutdown()  # Like `close()` on another OS thread.
    with pytest.raises(ClosedError):
        await (saver.aget_tuple(config("t")) if kind == "read" else put("t 2").run(saver))
    assert not worker._waiting
    assert stored(saver) == {"t"}


@pytest.mark.parametrize("order", ["first", "last"])
async def test_reads_do_not_wait_for_a_concurrent_long_read(saver: SqliteSaver, order: str) -> None:
    await put("t").run(saver)
    gate = threading.Event()

    def decode() -> Steps[str]:
        yield RoundTrip([Statement("one", "SELECT 1", {})])
        yield Offload(OFFLOAD_BYTES, lambda: gate.wait(10))
        return "long"

    long = Op(decode, "read").run(saver)
    others = [saver.aget_tuple(config("t")) for _ in range(5)]
    calls = [asyncio.ensure_future(each) for each in ([long, *others] if order == "first" else [*others, long])]
    waits = calls.pop(0 if order == "first" else -1)
    found = await asyncio.wait_for(asyncio.gather(*calls), 10)
    assert all(found)
    assert not waits.done()
    gate.set()
    assert await waits == "long"


@pytest.mark.parametrize("count", [1, 2])
def test_a_transaction_left_open_by_an_interrupt_is_ended(saver: SqliteSaver, path: Path, count: int) -> None:
    writer(saver).execute("BEGIN IMMEDIATE")
    writer(saver).execute(*insert("interrupted").statements[0][1:3])
    names = [f"t {number}" for number in range(count)]
    calls = [QueuedOperation(Op(partial(store, name)).op) for name in names]
    saver._driver._write(calls)  # type: ignore[attr-defined]
    assert [call.outcome() for call in calls] == names
    assert claimed(path) == set(names)


async def test_an_error_is_raised_if_no_os_thread_can_be_started(
    saver: SqliteSaver, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuses(*_: Any) -> None:
        raise RuntimeError("can't start new thread")

    await put("t").run(saver)
    for kind in ("read", "write"):
        monkeypatch.setattr(saver._driver._worker(kind).executor, "submit", refuses)  # type: ignore[attr-defined]
    with pytest.raises(RuntimeError, match="can't start new thread"):
        await put("t 2").run(saver)
    with pytest.raises(RuntimeError, match="can't start new thread"):
        await saver.asetup()
    assert stored(saver) == {"t"}
