"""Concurrent async writes to one SQLite file share a transaction, and each has its own result."""

from __future__ import annotations

import asyncio
import gc
import sqlite3
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from langchain_core.runnables import RunnableConfig

from langgraph_checkpoint_custom import (
    CheckpointConflict,
    ClaimLost,
    ClosedError,
    Contention,
    SqliteSaver,
    StorageError,
)
from langgraph_checkpoint_custom.drivers import sqlite_workers
from langgraph_checkpoint_custom.encoding.encode import encode_checkpoint
from langgraph_checkpoint_custom.encoding.encoded import Encoded
from langgraph_checkpoint_custom.engine.operation import OFFLOAD_BYTES, Offload, RoundTrip, Statement, Steps
from langgraph_checkpoint_custom.model.keys import CLAIM_KEY, key_of
from langgraph_checkpoint_custom.operations import write
from tests.behaviour.helpers import config
from tests.conftest import APIS, needs_error_codes
from tests.drivers.group_commits import (
    Op,
    TracedSaver,
    Work,
    begun,
    claimed,
    commits,
    insert,
    locked,
    put,
    put_writes,
    stored,
    together,
    traced,
    until,
)

MANY = 60


@pytest.fixture
def saver(path: Path) -> Iterator[TracedSaver]:
    with traced(path, busy_timeout=1000) as opened:
        yield opened


async def test_waiting_writes_are_one_transaction(saver: TracedSaver, path: Path) -> None:
    with commits(saver) as found:
        outcomes = await together(saver, path, [put(f"t {number}") for number in range(MANY)])
    assert len(found) == 2  # The first, and the one of all that arrived during it.
    assert [each["configurable"]["thread_id"] for each in outcomes] == [f"t {number}" for number in range(MANY)]
    assert stored(saver) == {"first", *(f"t {number}" for number in range(MANY))}


async def test_a_single_write_is_one_statement(saver: TracedSaver) -> None:
    """The transaction and the savepoint of a batch would be four more."""
    await put("t").run(saver)
    before = len(saver.executed)
    await put("t", parent="1").run(saver)
    await put_writes(config("t", "2")).run(saver)
    executed = [(sql.split()[0], inside) for sql, inside in saver.executed[before:]]
    # On Python 3.10, a call that comes a tenth of a second later says how long it waits for other processes.
    assert [each for each in executed if each[0] != "PRAGMA"] == [("INSERT", False)] * 2


async def test_calls_one_after_the_other_are_made_on_one_os_thread(saver: TracedSaver) -> None:
    used: set[threading.Thread] = set()

    def note() -> Steps[None]:
        used.add(threading.current_thread())
        yield RoundTrip([Statement("one", "SELECT 1", {})])

    for access in ("read", "write"):
        used.clear()
        for _ in range(20):
            await Op(note, access).run(saver)
        assert len(used - {threading.current_thread()}) == 1


@pytest.mark.filterwarnings("ignore:unclosed saver:ResourceWarning")
async def test_the_os_threads_end_with_a_saver_that_nobody_has(path: Path) -> None:
    before = set(threading.enumerate())
    saver = SqliteSaver(path)
    await put("t").run(saver)
    await saver.aget_tuple(config("t"))
    workers = set(threading.enumerate()) - before
    assert {worker.name for worker in workers} == {"checkpoint-write", "checkpoint-read"}
    del saver
    while any(worker.is_alive() for worker in workers):
        gc.collect()  # A worker has its last call for a moment longer than the caller.
        await asyncio.sleep(0.001)


async def test_the_size_of_a_batch_is_limited(saver: TracedSaver, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sqlite_workers, "MOST", 20)
    with commits(saver) as found:
        await together(saver, path, [put(f"t {number}") for number in range(MANY)])
    assert len(found) == 1 + 3
    assert len(stored(saver)) == MANY + 1


async def test_a_failed_write_does_not_fail_the_others(saver: TracedSaver, path: Path) -> None:
    put("conflict").run_here(saver)  # It is newer than the parent of the one that follows.
    late = put("conflict", parent="0").args
    encoded = encode_checkpoint(saver.backend.values, key_of(late[0]), *late)
    assert isinstance(encoded, Encoded)
    lost: RunnableConfig = {"configurable": {**config("lost", "1")["configurable"], CLAIM_KEY: "a token"}}

    def fails() -> Steps[None]:
        yield insert("of one that fails")
        raise LookupError("on purpose")

    def refused() -> Steps[None]:
        yield insert("refused")
        yield insert("refused")

    conflict = Op(write.put(saver.backend.dialect, encoded, only_newest=True).start)
    work: list[Work] = [put("a"), put_writes(lost), put("b"), Op(fails), put("c"), conflict, Op(refused), put("d")]
    with commits(saver) as found:
        outcomes = await together(saver, path, work)
    assert len(found) == 2
    assert [type(each) for each in outcomes] == [
        dict, ClaimLost, dict, LookupError, dict, CheckpointConflict, StorageError, dict,
    ]  # fmt: skip
    assert (outcomes[6].operation, outcomes[6].statement) == ("test", "insert")
    assert stored(saver) == {"first", "conflict", "a", "b", "c", "d"}
    assert claimed(path) == set()
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("SELECT count(*) FROM writes").fetchone() == (0,)


async def test_if_the_commit_fails_each_write_is_tried_separately(saver: TracedSaver, path: Path) -> None:
    failures = 1 + 3  # The batch, and then the first three separately.

    def authorize(action: int, word: str | None, *_: Any) -> int:
        nonlocal failures
        commit = action == sqlite3.SQLITE_TRANSACTION and word == "COMMIT"
        alone = action == sqlite3.SQLITE_INSERT and not saver.writer.in_transaction  # The statement commits itself.
        if (commit or alone) and failures:
            failures -= 1
            return sqlite3.SQLITE_DENY
        return sqlite3.SQLITE_OK

    def arm() -> Steps[None]:
        saver.writer.set_authorizer(authorize)  # Statements are prepared again, which calls it.
        yield insert("armed")

    work = [Op(arm), *(put(f"t {number}") for number in range(6))]
    outcomes = await together(saver, path, work)
    saver.writer.set_authorizer(lambda *_: sqlite3.SQLITE_OK)
    failed = [isinstance(each, StorageError) for each in outcomes]
    assert failed == [True] * 3 + [False] * 4
    assert {each.operation for each in outcomes[:3]} == {"test", "put"}
    assert stored(saver) == {"first", *(f"t {number}" for number in range(2, 6))}
    assert claimed(path) == set()


@needs_error_codes
@pytest.mark.parametrize("api", APIS)
async def test_many_calls_wait_for_another_process_together(
    path: Path, api: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those that have waited behind another call do not wait once more."""
    monkeypatch.setattr(sqlite_workers, "MOST", 5)
    with SqliteSaver(path, busy_timeout=0.3) as saver:
        saver.setup()
        with locked(path):
            work = [put(f"t {number}") for number in range(40)]
            if api == "async":
                outcomes = await asyncio.gather(*(each.run(saver) for each in work), return_exceptions=True)
            else:
                with ThreadPoolExecutor(40) as workers:
                    outcomes = list(workers.map(lambda each: each.run_here(saver), work))
        assert {type(each) for each in outcomes} == {Contention}
        assert len(set(map(id, outcomes))) == 40  # Each call has its own error, with its own traceback.
        assert {getattr(each, "operation", None) for each in outcomes} == {"put"}
        await put("later").run(saver)


@needs_error_codes
@pytest.mark.parametrize("mode", ["WAL", "DELETE"])
def test_a_call_that_waited_behind_others_does_not_wait_as_long_again_for_another_process(
    path: Path, monkeypatch: pytest.MonkeyPatch, mode: Any
) -> None:
    with (
        ThreadPoolExecutor(1) as worker,
        SqliteSaver(path, busy_timeout=1_000_000, journal_mode=mode) as saver,
    ):
        saver.setup()
        with locked(path):
            long_ago = SimpleNamespace(monotonic=lambda: time.monotonic() - 2_000_000)
            monkeypatch.setattr("langgraph_checkpoint_custom.drivers.sqlite.time", long_ago)
            assert isinstance(worker.submit(put("long ago").run_here, saver).result(150), Contention)


async def test_a_cancelled_task_does_not_affect_its_batch(saver: TracedSaver, path: Path) -> None:
    with locked(path) as unlock:
        first = await begun(saver, put("first"))
        tasks = [asyncio.ensure_future(put(f"t {number}").run(saver)) for number in range(MANY)]
        await asyncio.sleep(0)
        for task in (first, *tasks[::2]):
            task.cancel()
        await asyncio.wait((first, *tasks[::2]))  # A call that is cancelled later may have begun.
        unlock()
        outcomes = await asyncio.gather(first, *tasks, return_exceptions=True)
    assert [type(each) for each in outcomes[2::2]] == [dict] * (MANY // 2)
    assert {type(each) for each in outcomes[1::2]} == {asyncio.CancelledError}
    assert stored(saver) - {"first"} == {f"t {number}" for number in range(1, MANY, 2)}


async def test_calls_of_other_loops_return_although_a_loop_has_ended(saver: TracedSaver, path: Path) -> None:
    def leave() -> None:
        loop = asyncio.new_event_loop()
        task = loop.create_task(put("left").run(saver))
        loop.run_until_complete(asyncio.sleep(0))
        task.cancel()
        loop.run_until_complete(asyncio.gather(task, return_exceptions=True))
        loop.close()

    with locked(path) as unlock:
        first = await begun(saver, put("first"))
        await asyncio.to_thread(leave)
        other = asyncio.ensure_future(put("other").run(saver))
        await asyncio.sleep(0)
        unlock()
        await asyncio.gather(first, other)
    assert stored(saver) - {"left"} == {"first", "other"}


async def test_closing_waits_for_async_calls_that_were_begun(path: Path) -> None:
    saver = SqliteSaver(path, busy_timeout=1000)
    saver.setup()
    with locked(path) as unlock:
        tasks = [asyncio.ensure_future(put(f"t {number}").run(saver)) for number in range(MANY)]
        await asyncio.sleep(0)
        closing_it = asyncio.ensure_future(saver.aclose())
        await until(lambda: any(each.name.startswith("checkpoint-close") for each in threading.enumerate()))
        unlock()
        await closing_it
        outcomes = await asyncio.gather(*tasks, return_exceptions=True)
    assert {type(each) for each in outcomes} == {dict}
    with SqliteSaver(path) as again:
        assert len(stored(again)) == MANY


async def test_a_call_made_while_the_saver_closes_raises(saver: TracedSaver) -> None:
    await put("t").run(saver)
    begins, gate = threading.Event(), threading.Event()

    def waits() -> Steps[None]:
        yield RoundTrip([Statement("one", "SELECT 1", {})])
        begins.set()
        gate.wait()

    running = asyncio.ensure_future(Op(waits, "read").run(saver))
    await until(begins.is_set)
    closing_it = asyncio.ensure_future(saver.aclose())  # It waits for that read.
    try:
        for call in (lambda: put("t 2").run(saver), lambda: saver.aget_tuple(config("t"))):
            with suppress(ClosedError):
                while True:  # Until the workers are shut down.
                    await call()
    finally:
        gate.set()
        await asyncio.gather(running, closing_it)


@pytest.mark.parametrize("order", ["first", "last"])
async def test_reads_do_not_wait_for_a_concurrent_long_read(saver: TracedSaver, order: str) -> None:
    await put("t").run(saver)
    gate = threading.Event()

    def decode() -> Steps[str]:
        yield RoundTrip([Statement("one", "SELECT 1", {})])
        yield Offload(OFFLOAD_BYTES, gate.wait)
        return "long"

    long = Op(decode, "read").run(saver)
    others = [saver.aget_tuple(config("t")) for _ in range(5)]
    calls = [asyncio.ensure_future(each) for each in ([long, *others] if order == "first" else [*others, long])]
    waits = calls.pop(0 if order == "first" else -1)
    try:
        assert all(await asyncio.gather(*calls))
        assert not waits.done()
    finally:
        gate.set()
    assert await waits == "long"
