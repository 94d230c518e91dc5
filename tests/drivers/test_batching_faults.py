"""Batched calls on PostgreSQL: one fails, is cancelled or waits too long, or the connection is lost."""

from __future__ import annotations

import asyncio
import ctypes
import gc
import random
import sys
import threading
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

import psycopg
import pytest
from langgraph.checkpoint.conformance.test_utils import generate_metadata

from langgraph_checkpoint_custom import ClosedError, PostgresSaver, StorageError
from langgraph_checkpoint_custom.drivers import postgres_batching
from langgraph_checkpoint_custom.engine.batching import BATCHES
from langgraph_checkpoint_custom.engine.operation import Batchable, Combined, RoundTrip
from tests.behaviour.helpers import config
from tests.conftest import APIS
from tests.drivers.batches import (
    NEW,
    WAITING,
    Calls,
    a_checkpoint,
    a_life,
    driver_of,
    in_one_batch,
    jammed,
    outcome,
    waiting,
)
from tests.stores import Client

pytestmark = pytest.mark.usefixtures("room_for_many")


BROKEN: dict[str, tuple[str, Callable[[Client, str], Awaitable[Any]]]] = {
    "put": (
        "checkpoints",
        lambda client, thread: client.put(config(thread), a_checkpoint(1), generate_metadata(), NEW),
    ),
    "put_writes": ("writes", lambda client, thread: client.put_writes(config(thread, "id"), [("a", thread)], "task")),
}


@pytest.mark.parametrize("api", APIS)
@pytest.mark.parametrize("what", BROKEN)
async def test_a_call_that_fails_does_not_affect_its_batch(postgres_url: str, what: str, api: str) -> None:
    table, call = BROKEN[what]
    with psycopg.connect(postgres_url, autocommit=True) as watcher:
        watcher.execute(f"ALTER TABLE langgraph_checkpoint.{table} ADD CONSTRAINT no CHECK (thread_id <> 't3')")
        async with PostgresSaver(postgres_url) as saver:
            client = Client(saver, api)
            threads = [f"t{number}" for number in range(8)]
            async with in_one_batch(
                client,
                postgres_url,
                lambda n: call(client, f"first {n}"),
                [partial(call, client, thread) for thread in threads],
            ) as calls:
                pass
            assert [each.exception() is None for each in calls[:8]] == [thread != "t3" for thread in threads]
            error = calls[3].exception()
            assert isinstance(error, StorageError)
            assert (error.operation, error.sqlstate) == (what, "23514")
            stored = watcher.execute(
                f"SELECT DISTINCT thread_id FROM langgraph_checkpoint.{table} WHERE thread_id LIKE 't%%' ORDER BY 1"
            )
            assert [thread for (thread,) in stored] == [thread for thread in threads if thread != "t3"]


@pytest.mark.parametrize("when", ["waiting", "in flight"])
async def test_a_cancelled_call_does_not_affect_its_batch(postgres_url: str, when: str) -> None:
    async with PostgresSaver(postgres_url) as saver:
        client = Client(saver, "async")
        calls: Calls = [
            partial(client.put, config(f"t{number}"), a_checkpoint(1), generate_metadata(), NEW) for number in range(4)
        ]
        async with in_one_batch(
            client, postgres_url, lambda n: client.put(config(f"first {n}"), a_checkpoint(1), {}, NEW), calls
        ) as futures:
            if when == "in flight":
                futures[-1].cancel()
                while waiting(saver):
                    await asyncio.sleep(0.001)
            futures[1].cancel()
        assert outcome(futures.pop(1)) == "cancelled"
        if when == "waiting":
            assert await client.get_tuple(config("t1")) is None
        else:
            assert outcome(futures.pop()) == "cancelled"
        for each in futures:
            assert await client.get_tuple(outcome(each)) is not None
        await a_life(client, "after")


@pytest.mark.parametrize("api", APIS)
async def test_a_batch_whose_connection_is_lost_is_retried_call_by_call(postgres_url: str, api: str) -> None:
    """Each call counts its own attempts, and each is stored once."""
    async with PostgresSaver(postgres_url) as saver:
        client = Client(saver, api)
        calls: Calls = [
            partial(client.put_writes, config(f"t{number}", "id"), [("a", number)], "task") for number in range(8)
        ]
        with psycopg.connect(postgres_url, autocommit=True) as watcher:
            with jammed(postgres_url) as blocker:
                futures = [asyncio.ensure_future(call()) for call in calls]
                until = time.monotonic() + 120
                for batch in range(3):  # First those that were sent alone, then the others as a batch.
                    while not (pids := watcher.execute(WAITING).fetchall()) or (batch == 0 and len(pids) < BATCHES):
                        state = batch, pids, driver_of(saver).stats(), asyncio.all_tasks()
                        assert time.monotonic() < until, state
                        assert not any(future.done() for future in futures), state
                        await asyncio.sleep(0.002)
                    for (pid,) in pids:
                        watcher.execute("SELECT pg_terminate_backend(%s, 5000)", [pid])
                blocker.rollback()
            assert await asyncio.gather(*futures) == [None] * 8
            rows = watcher.execute("SELECT thread_id FROM langgraph_checkpoint.writes ORDER BY 1").fetchall()
            assert rows == [(f"t{number}",) for number in range(8)]


@pytest.mark.parametrize("api", APIS)
async def test_closing_ends_waiting_calls(postgres_url: str, api: str) -> None:
    saver = PostgresSaver(postgres_url)
    client = Client(saver, api)
    async with in_one_batch(
        client,
        postgres_url,
        lambda n: client.put_writes(config(f"first {n}", "id"), [("a", 1)], "task"),
        [lambda: client.put_writes(config("t", "id"), [("a", 1)], "task")] * 3,
    ) as calls:
        driver_of(saver)._closed = True  # The first step of `close()`, which then waits for its pool.
    assert [outcome(each) for each in calls[:3]] == [ClosedError] * 3
    assert len({id(each.exception()) for each in calls[:3]}) == 3
    await saver.aclose()


def test_a_loop_that_ends_with_waiting_calls_leaves_no_queue(postgres_url: str) -> None:
    with PostgresSaver(postgres_url) as saver:
        client = Client(saver, "async")

        async def cut_short() -> None:
            await saver.aget_tuple(config("t"))
            with jammed(postgres_url):
                calls = [asyncio.ensure_future(a_life(client, f"t{number}")) for number in range(10)]
                while waiting(saver) < 10 - BATCHES:
                    await asyncio.sleep(0.001)
                for call in calls[:2]:
                    call.cancel()
                await asyncio.sleep(0.02)

        async def complete() -> None:
            await asyncio.gather(*(a_life(client, f"after {number}") for number in range(10)))

        asyncio.run(cut_short())
        asyncio.run(complete())
        assert len(driver_of(saver)._loop_batchings) == 1


@pytest.mark.parametrize("api", APIS)
async def test_a_call_that_has_waited_too_long_is_sent_separately(
    postgres_url: str, api: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A lock on the rows of one thread does not delay calls of other threads."""
    monkeypatch.setattr(postgres_batching, "MAX_WAIT", 0.05)
    async with PostgresSaver(postgres_url) as saver:
        client = Client(saver, api)
        again = a_checkpoint(1)
        for number in range(BATCHES):
            await client.put(config(f"t{number}"), again, generate_metadata(), NEW)
        with psycopg.connect(postgres_url) as blocker:
            blocker.execute("SELECT FROM langgraph_checkpoint.checkpoints FOR UPDATE")
            stuck = [
                asyncio.ensure_future(client.put(config(f"t{number}"), again, generate_metadata(), NEW))
                for number in range(BATCHES)
            ]
            await asyncio.sleep(0.05)
            started = time.monotonic()
            await client.put(config("free"), a_checkpoint(1), generate_metadata(), NEW)
            assert time.monotonic() - started < 5
            assert not any(each.done() for each in stuck)
            blocker.rollback()
        await asyncio.gather(*stuck)


@pytest.mark.parametrize("api", APIS)
async def test_calls_of_a_batch_without_an_answer_are_sent_separately(
    postgres_url: str, api: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One call waits for a lock on its row, and nothing blocks the others."""
    monkeypatch.setattr(postgres_batching, "MAX_WAIT", 60)
    async with PostgresSaver(postgres_url, answer_timeout=4) as saver:
        client = Client(saver, api)
        again = a_checkpoint(1)
        await client.put(config("locked"), again, generate_metadata(), NEW)

        with psycopg.connect(postgres_url) as locker:
            locker.execute("SELECT FROM langgraph_checkpoint.checkpoints WHERE thread_id = 'locked' FOR UPDATE")

            async def let_go() -> None:
                await asyncio.wait(calls[1:3])
                assert not calls[0].done()
                locker.rollback()

            async with in_one_batch(
                client,
                postgres_url,
                lambda n: client.put(config(f"first {n}"), a_checkpoint(1), generate_metadata(), NEW),
                [
                    partial(client.put, config(thread), again, generate_metadata(), NEW)
                    for thread in ("locked", "free", "free too")
                ],
                "SHARE ROW EXCLUSIVE",  # Compatible with the row lock that `locker` holds.
            ) as calls:
                letting_go = asyncio.ensure_future(let_go())
            await letting_go
        for each in calls:
            assert await client.get_tuple(outcome(each)) is not None


@pytest.mark.parametrize("leads", [False, True])
def test_an_interrupt_of_a_waiting_worker_does_not_affect_the_others(
    leads: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Like Ctrl-C in the main thread: while it waits, or when it is to make the round trip for all."""
    monkeypatch.setattr(postgres_batching, "MAX_WAIT", 10 if leads else 0.2)
    gate = threading.Event()
    made: list[int] = []

    def perform(name: str, statements: Any, round_trip: Any) -> Any:
        assert gate.wait(10)
        made.append(len(round_trip.statements))
        return list(round_trip.statements)

    def merge(items: Sequence[Any]) -> Combined:
        return Combined(RoundTrip(items), lambda reply: [[each] for each in reply])

    answers: dict[int, Any] = {}

    def call(number: int) -> None:
        round_trip: Any = RoundTrip([number])  # type: ignore[list-item]  # Any object serves as a statement here.
        try:
            answers[number] = batching.send("name", round_trip, Batchable("kind", number, 1, number, merge))
        except KeyboardInterrupt:
            answers[number] = "interrupted"

    batching = postgres_batching.WorkerBatching(perform)
    queues = batching._queue._queues
    threads = []
    for number in range(BATCHES + 3):
        threads.append(threading.Thread(target=call, args=[number]))
        threads[-1].start()
        while not queues or len(queues["name", "kind"].in_flight) + len(queues["name", "kind"].waiting) <= number:
            time.sleep(0.001)  # No event is raised when another OS thread begins to wait.
    ctypes.pythonapi.PyThreadState_SetAsyncExc(
        ctypes.c_ulong(threads[BATCHES].ident or 0), ctypes.py_object(KeyboardInterrupt)
    )
    if not leads:
        while len(queues["name", "kind"].waiting) == 3:
            time.sleep(0.001)  # Nor when it gives up.
    gate.set()
    for thread in threads:
        thread.join()
    assert answers == {number: "interrupted" if number == BATCHES else [number] for number in range(BATCHES + 3)}
    assert not queues


def test_many_interrupts_leave_no_call_waiting_and_no_queue_full(monkeypatch: pytest.MonkeyPatch) -> None:
    """At any line, in any of eight OS threads."""
    monkeypatch.setattr(postgres_batching, "MAX_WAIT", 0.02)
    # An interrupt may arrive where nothing can be raised, or after the last line.
    monkeypatch.setattr(sys, "unraisablehook", lambda _: None)
    monkeypatch.setattr(threading, "excepthook", lambda _: None)
    chance = random.Random(seed := random.randrange(10**6))
    print("seed", seed)

    def perform(name: str, statements: Any, round_trip: Any) -> Any:
        time.sleep(chance.random() / 2000)
        return list(round_trip.statements)

    def merge(items: Sequence[Any]) -> Combined:
        return Combined(RoundTrip(items), lambda reply: [[each] for each in reply])

    batching = postgres_batching.WorkerBatching(perform)
    stop = threading.Event()
    answered, interrupted = Counter[int](), Counter[int]()

    def calls(number: int) -> None:
        step = 0
        while not stop.is_set():
            with suppress(KeyboardInterrupt):
                try:
                    while not stop.is_set():
                        step += 1
                        round_trip: Any = RoundTrip([(number, step)])  # type: ignore[list-item]  # As above.
                        batchable = Batchable("kind", number, 1, (number, step), merge)
                        assert batching.send("name", round_trip, batchable) == [(number, step)]
                        answered[number] += 1
                except KeyboardInterrupt:
                    interrupted[number] += 1

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)  # So that interrupts arrive between any two lines.
    try:
        threads = [threading.Thread(target=calls, args=[number], daemon=True) for number in range(8)]
        for thread in threads:
            thread.start()
        for _ in range(1000):
            time.sleep(chance.random() / 500)
            ident = chance.choice(threads).ident or 0
            ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(ident), ctypes.py_object(KeyboardInterrupt))
        stop.set()
        for thread in threads:
            thread.join(150)
            assert not thread.is_alive()
    finally:
        sys.setswitchinterval(interval)
    assert interrupted.total() > 300
    assert answered.total() > 300
    gc.collect()  # An interrupted error may be part of a reference cycle.
    assert not [batch for queue in batching._queue._queues.values() for batch in queue.in_flight]
