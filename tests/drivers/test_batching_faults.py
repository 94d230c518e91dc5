"""Batched calls on PostgreSQL: one fails or is cancelled, or the connection is lost."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any

import psycopg
import pytest
from langgraph.checkpoint.conformance.test_utils import generate_metadata

from langgraph_checkpoint_custom import ClosedError, ConnectionLost, PostgresSaver, StorageError
from langgraph_checkpoint_custom.drivers.postgres_batching import Batches
from langgraph_checkpoint_custom.drivers.postgres_errors import RetryPolicy
from langgraph_checkpoint_custom.drivers.postgres_pools import ALONE
from langgraph_checkpoint_custom.engine.operation import Batching, RoundTrip, Row
from tests.behaviour.helpers import config
from tests.drivers.batches import (
    CONNECTIONS,
    NEW,
    Calls,
    a_checkpoint,
    a_life,
    in_one_batch,
    jammed,
    outcome,
    with_few,
)
from tests.faults.workload import WAITING
from tests.proxy import Proxy
from tests.stores import Client

BROKEN: dict[str, tuple[str, Callable[[Client, str], Awaitable[Any]]]] = {
    "put": (
        "checkpoints",
        lambda client, thread: client.put(config(thread), a_checkpoint(1), generate_metadata(), NEW),
    ),
    "put_writes": ("writes", lambda client, thread: client.put_writes(config(thread, "id"), [("a", thread)], "task")),
}


@pytest.mark.parametrize("what", BROKEN)
async def test_a_call_that_fails_does_not_affect_its_batch(own_postgres_url: str, what: str) -> None:
    table, call = BROKEN[what]
    with psycopg.connect(own_postgres_url, autocommit=True) as watcher:
        watcher.execute(f"ALTER TABLE langgraph_checkpoint.{table} ADD CONSTRAINT no CHECK (thread_id <> 't3')")
        async with with_few(own_postgres_url) as saver:
            client = Client(saver, "async")
            threads = [f"t{number}" for number in range(8)]
            async with in_one_batch(
                own_postgres_url,
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


def waiting_since(url: str) -> set[Any]:
    """When the statements that wait have begun."""
    with psycopg.connect(url, autocommit=True) as watcher:
        return set(watcher.execute(WAITING.replace("pid", "query_start", 1)))


@pytest.mark.parametrize("when", ["waiting", "in flight"])
async def test_a_cancelled_call_does_not_affect_its_batch(postgres_url: str, when: str) -> None:
    async with with_few(postgres_url) as saver:
        client = Client(saver, "async")
        calls: Calls = [
            partial(client.put, config(f"t{number}"), a_checkpoint(1), generate_metadata(), NEW) for number in range(4)
        ]
        async with in_one_batch(
            postgres_url, lambda n: client.put(config(f"first {n}"), a_checkpoint(1), {}, NEW), calls
        ) as futures:
            if when == "in flight":
                before = waiting_since(postgres_url)
                futures[-1].cancel()
                while waiting_since(postgres_url) <= before:  # Until the batch waits in place of that call.
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


async def test_a_batch_whose_connection_is_lost_is_retried_call_by_call(postgres_url: str) -> None:
    """Each call counts its own attempts, and each is stored once."""
    async with with_few(postgres_url) as saver:
        client = Client(saver, "async")
        calls: Calls = [
            partial(client.put_writes, config(f"t{number}", "id"), [("a", number)], "task") for number in range(8)
        ]
        with psycopg.connect(postgres_url, autocommit=True) as watcher:
            with jammed(postgres_url) as blocker:
                futures = [asyncio.ensure_future(call()) for call in calls]
                until = time.monotonic() + 120
                for batch in range(3):  # First those that were sent alone, then the others as a batch.
                    while not (pids := watcher.execute(WAITING).fetchall()) or (batch == 0 and len(pids) < CONNECTIONS):
                        state = batch, pids, saver.stats(), asyncio.all_tasks()
                        assert time.monotonic() < until, state
                        assert not any(future.done() for future in futures), state
                        await asyncio.sleep(0.002)
                    for (pid,) in pids:
                        watcher.execute("SELECT pg_terminate_backend(%s, 5000)", [pid])
                blocker.rollback()
            assert await asyncio.gather(*futures) == [None] * 8
            rows = watcher.execute("SELECT thread_id FROM langgraph_checkpoint.writes ORDER BY 1").fetchall()
            assert rows == [(f"t{number}",) for number in range(8)]


async def test_a_lost_batch_is_reported_if_no_connection_can_be_made_any_more(
    own_postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each of its calls may have been executed."""
    monkeypatch.setattr(RetryPolicy, "pause", RetryPolicy(attempts=2).pause)
    with psycopg.connect(own_postgres_url, autocommit=True) as watcher:
        watcher.execute(
            "CREATE FUNCTION slow() RETURNS trigger LANGUAGE plpgsql AS "
            "$$ BEGIN PERFORM pg_sleep(300); RETURN new; END $$"
        )
        watcher.execute(
            "CREATE TRIGGER slow BEFORE INSERT ON langgraph_checkpoint.writes FOR EACH ROW EXECUTE FUNCTION slow()"
        )
        proxy = Proxy(own_postgres_url)
        async with PostgresSaver(proxy.url, pool_timeout=1, connect_timeout=2) as saver:
            await saver.aget_tuple(config("t"))
            calls = [
                asyncio.ensure_future(saver.aput_writes(config(f"t{number}", "id"), [("a", 1)], "task"))
                for number in range(ALONE + 3)
            ]
            asleep = "SELECT query LIKE '%unnest%' FROM pg_stat_activity WHERE wait_event = 'PgSleep'"
            while sorted(watcher.execute(asleep).fetchall()) != [(False,)] * ALONE + [(True,)]:
                await asyncio.sleep(0.01)
            proxy.close()
            errors = await asyncio.gather(*calls, return_exceptions=True)
            assert [isinstance(each, ConnectionLost) and each.unanswered for each in errors] == [True] * (ALONE + 3)
            assert len({id(each) for each in errors}) == ALONE + 3
        watcher.execute("SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE wait_event = 'PgSleep'")


async def test_calls_of_a_batch_that_gets_no_connection_wait_for_one_only_once(postgres_url: str) -> None:
    """One that has come while the batch waited waits for the rest of its time."""
    async with PostgresSaver(postgres_url, max_size=1, pool_timeout=6) as saver:
        await saver.aget_tuple(config("t"))
        with jammed(postgres_url):
            first = asyncio.ensure_future(saver.aget_tuple(config("t")))
            while saver.stats()["loops"][0]["pool_available"]:
                await asyncio.sleep(0)
            others = [asyncio.ensure_future(saver.aget_tuple(config("t"))) for _ in range(3)]
            await asyncio.sleep(0.1)
            others.append(asyncio.ensure_future(saver.aget_tuple(config("t"))))
            errors = [str(each) for each in await asyncio.gather(*others, return_exceptions=True)]
            assert all("raise max_size or pool_timeout" in each for each in errors)
            assert ["after 6.00 sec" in each for each in errors] == [True, True, True, False], errors
            assert saver.stats()["loops"][0]["requests_errors"] == 2  # The batch, and the call that came late.
        await first


async def test_closing_ends_waiting_calls(postgres_url: str) -> None:
    saver = with_few(postgres_url)
    client = Client(saver, "async")
    async with in_one_batch(
        postgres_url,
        lambda n: client.put_writes(config(f"first {n}", "id"), [("a", 1)], "task"),
        [lambda: client.put_writes(config("t", "id"), [("a", 1)], "task")] * 3,
    ) as calls:
        closing = asyncio.ensure_future(saver.aclose())
        await asyncio.wait(calls[:3])
    assert [outcome(each) for each in calls[:3]] == [ClosedError] * 3
    assert len({id(each.exception()) for each in calls[:3]}) == 3
    await closing


def test_a_loop_that_ends_with_waiting_calls_does_not_disturb_the_next_one(postgres_url: str) -> None:
    with with_few(postgres_url) as saver, psycopg.connect(postgres_url, autocommit=True) as watcher:
        client = Client(saver, "async")

        async def cut_short() -> None:
            await saver.aget_tuple(config("t"))
            with jammed(postgres_url):
                calls = [asyncio.ensure_future(a_life(client, f"t{number}")) for number in range(10)]
                while len(watcher.execute(WAITING).fetchall()) < CONNECTIONS:  # The others wait for these.
                    await asyncio.sleep(0.002)
                for call in calls[:2]:
                    call.cancel()
                await asyncio.sleep(0.02)

        async def complete() -> None:
            await asyncio.gather(*(a_life(client, f"after {number}") for number in range(10)))

        asyncio.run(cut_short())
        asyncio.run(complete())


async def test_a_batch_that_is_cancelled_before_it_begins_keeps_no_call_waiting() -> None:
    """As when a program cancels all tasks of its loop after Ctrl-C, and some of them call the saver once more."""
    batches = Batches()
    batching = Batching(None, lambda calls: RoundTrip(()), lambda reply, calls: [[] for _ in calls])

    async def exchange(take: Callable[[], RoundTrip | None]) -> Sequence[Any]:
        return [[]] if take() else ()

    async def alone(failure: Exception | None) -> list[Row]:
        return [("alone",)]

    def call(*, may_be_alone: bool) -> asyncio.Task[list[Row]]:
        return asyncio.create_task(batches.send_together(exchange, batching, (), alone, may_be_alone=may_be_alone))

    others = asyncio.all_tasks()
    first, second = (call(may_be_alone=False) for _ in range(2))
    await asyncio.sleep(0)  # They have made the task of the batch, which has not had a step.
    (batch,) = asyncio.all_tasks() - others - {first, second}
    batch.cancel()
    first.cancel()
    assert await asyncio.wait_for(second, 300) == [("alone",)]
    assert await asyncio.wait_for(call(may_be_alone=True), 300) == [("alone",)]
    assert not batches.queues


async def test_a_call_that_waits_for_an_earlier_one_with_its_key_begins_no_batches_meanwhile() -> None:
    """They would take no call, and one would follow the other as long as the earlier call takes."""
    batches, begun, goes_on = Batches(), 0, asyncio.Event()
    batching = Batching(lambda params: params[0], lambda calls: RoundTrip(()), lambda reply, calls: [[] for _ in calls])
    sent: list[str] = []

    async def exchange(take: Callable[[], RoundTrip | None]) -> Sequence[Any]:
        nonlocal begun
        begun += 1
        return [[]] if take() else ()

    async def alone(name: str, failure: Exception | None) -> list[Row]:
        sent.append(name)
        await goes_on.wait()
        return []

    def call(key: str, name: str) -> asyncio.Task[list[Row]]:
        send = batches.send_together(exchange, batching, (key,), partial(alone, name), may_be_alone=False)
        return asyncio.create_task(send)

    async def settle() -> None:
        for _ in range(20):
            await asyncio.sleep(0)

    calls = [call("a", "first")]
    await settle()
    calls += [call("a", "second"), call("a", "third")]
    await settle()
    assert (sent, begun) == (["first"], 1)
    calls.append(call("b", "other"))
    await settle()
    assert (sent, begun) == (["first", "other"], 2)
    calls[2].cancel()
    goes_on.set()
    await asyncio.wait_for(asyncio.gather(*calls, return_exceptions=True), 300)
    assert sent == ["first", "other", "second"]
    assert not batches.queues
