"""Only its owner writes to a claimed thread. An owner whose claim has expired stores nothing any more."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing, nullcontext
from datetime import datetime, timezone
from functools import partial
from typing import Any

import pytest
from langchain_core.runnables import RunnableConfig
from langgraph.types import Command, interrupt

from langgraph_checkpoint_custom import CheckpointSaver, ClaimLost, ConfigError, ThreadBusy
from langgraph_checkpoint_custom.lease import Lease
from langgraph_checkpoint_custom.model.keys import CLAIM_KEY
from langgraph_checkpoint_custom.sql.postgres_dialect import PostgresDialect
from tests.behaviour.helpers import LONG, Database, checkpoint, config, get, ids_of, metadata, put, run_graph, running
from tests.graphs.scenarios.nodes import Log, chain, says
from tests.stores import Client, Store

pytestmark = pytest.mark.usefixtures("changing_values_in_blobs")

DURABILITIES = ["sync", "async", "exit"]
THREAD: Any = {"configurable": {"thread_id": "thread"}}


@asynccontextmanager
async def claimed(
    client: Client, thread_id: str = "thread", *, lost: bool = False, **options: Any
) -> AsyncIterator[Lease]:
    """A claim, sync or async. `lost` says whether it must be lost when the block ends."""
    lease = client.saver.claim(thread_id, **options)  # type: ignore[attr-defined]
    enter, leave = lease.__aenter__, lease.__aexit__
    if client.api == "sync":
        enter, leave = partial(asyncio.to_thread, lease.__enter__), partial(asyncio.to_thread, lease.__exit__)
    await enter()
    try:
        yield lease
    except BaseException as error:
        await leave(type(error), error, None)
        raise
    with pytest.raises(ClaimLost) if lost else nullcontext():
        await leave(None, None, None)


def takes_over(database: Database, thread_id: str = "thread") -> None:
    """Do what the next owner does once the claim has expired."""
    database.run("UPDATE claims SET token = 'another' WHERE thread_id = :thread_id", thread_id=thread_id)


def at(lease: Lease, checkpoint_id: str | None = None) -> RunnableConfig:
    """The config of a checkpoint that carries the claim."""
    location = config(checkpoint_id=checkpoint_id)["configurable"]
    return {"configurable": {**lease.config["configurable"], **location}}


@pytest.mark.parametrize("durability", DURABILITIES)
async def test_a_run_with_a_claim_works_like_any_run(client: Client, database: Database, durability: str) -> None:
    graph = chain(Log, one=says("one"), two=says("two")).compile(checkpointer=client.saver)
    async with claimed(client, owner="me") as lease:
        state = await run_graph(client, graph, {"log": ["x"]}, lease.config, durability=durability)
        assert state["log"] == ["x", "one", "two"]
        again = await run_graph(client, graph, {"log": ["y"]}, lease.config, durability=durability)
    found = await get(client, THREAD)
    assert found.checkpoint["channel_values"]["log"] == again["log"] == [*state["log"], "y", "one", "two"]
    token = lease.config["configurable"]["__langgraph_checkpoint_claim"]
    assert token not in str(found)
    assert all(token.encode() not in cell for cell in database.cells())


async def test_interrupts_and_subgraphs_keep_the_claim(client: Client, database: Database) -> None:
    """In the namespaces of subgraphs, too, it is the thread's claim."""

    def ask(state: Log) -> Any:
        return {"log": [interrupt("who?")]}

    inner = chain(Log, ask=ask, after=says("after")).compile()
    graph = chain(Log, inner=inner, last=says("last")).compile(checkpointer=client.saver)
    async with claimed(client, lost=True) as lease:
        await run_graph(client, graph, {"log": ["x"]}, lease.config)
        state = await run_graph(client, graph, Command(resume="me"), lease.config)
        assert state["log"][-3:] == ["me", "after", "last"]
        await run_graph(client, graph, {"log": ["y"]}, lease.config)
        takes_over(database)
        before = sorted(database.cells())
        with pytest.raises(ClaimLost):
            await run_graph(client, graph, Command(resume="me"), lease.config)
    assert sorted(database.cells()) == before


async def test_the_error_names_the_owner_and_the_end_of_the_claim(client: Client) -> None:
    async with claimed(client, owner="worker 1", ttl_seconds=100) as lease:
        assert lease.owner == "worker 1"
        with pytest.raises(ThreadBusy, match="'thread' is claimed by 'worker 1' until 20") as caught:
            async with claimed(client):
                pass
        assert (caught.value.thread_id, caught.value.owner) == ("thread", "worker 1")
        assert (caught.value.expires_at - datetime.now(timezone.utc)).total_seconds() <= 101
        async with claimed(client, "another"):
            pass
    async with claimed(client) as mine:
        assert mine.owner.endswith(f":{os.getpid()}")


async def test_the_claim_is_renewed_as_long_as_the_block_lasts(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each renewal moves the time at which it would end."""
    monkeypatch.setattr("langgraph_checkpoint_custom.lease.RENEWALS", 300)
    ends: set[datetime] = set()
    async with claimed(client, ttl_seconds=150):
        while len(ends) < 2:
            with pytest.raises(ThreadBusy) as caught:
                async with claimed(client):
                    pass
            ends.add(caught.value.expires_at)
            await asyncio.sleep(0.05)


async def test_a_write_with_a_lost_claim_is_not_stored(client: Client, database: Database) -> None:
    async with claimed(client, lost=True) as lease:
        await put(client, "1", {"a": ["x"]})
        await client.put_writes(at(lease, "1"), [("a", 1)], "task")
        takes_over(database)
        before = sorted(database.cells())
        with pytest.raises(ClaimLost, match="'thread'"):
            await client.put_writes(at(lease, "1"), [("a", 1), ("b", [2])], "task 2")
        with pytest.raises(ClaimLost, match="'thread'"):
            await client.put_writes(at(lease, "1"), [("__error__", "x")], "task")
        document = (await get(client, config(checkpoint_id="1"))).checkpoint | {"id": "2"}
        with pytest.raises(ClaimLost, match="'thread'"):
            await client.put(at(lease, "1"), document, {}, document["channel_versions"])
        assert sorted(database.cells()) == before
    assert ids_of(await client.all(config())) == ["1"]


@pytest.mark.parametrize("value", [1, [LONG] * 20])
async def test_a_first_checkpoint_with_a_lost_claim_leaves_no_row_of_the_thread(
    client: Client, database: Database, value: Any
) -> None:
    async with claimed(client, lost=True) as lease:
        takes_over(database)
        document = checkpoint("1", {"a": value})
        with pytest.raises(ClaimLost):
            await client.put(at(lease), document, metadata(), document["channel_versions"])
    assert set(database.counts().values()) == {0}


async def test_the_claim_of_one_thread_does_not_count_on_another(client: Client) -> None:
    async with claimed(client, "another") as lease:
        with pytest.raises(ClaimLost):
            await client.put_writes(at(lease, "1"), [("a", 1)], "task")


async def test_an_error_in_the_block_is_not_hidden_by_the_lost_claim(client: Client, database: Database) -> None:
    async def fails() -> None:
        async with claimed(client):
            takes_over(database)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await fails()


async def test_a_renewal_that_finds_the_claim_lost_raises(client: Client, database: Database) -> None:
    async with claimed(client, lost=True, ttl_seconds=0.3) as lease:
        takes_over(database)
        while not lease.is_lost:
            await asyncio.sleep(0.05)


async def test_a_write_waits_for_a_takeover_in_progress(client: Client, database: Database) -> None:
    """It is stored before the takeover or refused, never stored after it."""
    async with claimed(client, lost=True) as lease:
        with closing(database.connect()) as other:
            if database.kind == "postgres":
                (lock,) = PostgresDialect("langgraph_checkpoint")._lock("thread", alone=True)
                other.execute(lock.sql, lock.params)
            other.execute("UPDATE claims SET token = 'another'")
            writing = asyncio.create_task(client.put_writes(at(lease, "1"), [("a", 1)], "task"))
            await asyncio.sleep(0.3)  # It must not be done by then.
            assert not writing.done()
            other.commit()
        with pytest.raises(ClaimLost):
            await writing


async def test_a_claimed_run_does_not_bring_its_deleted_thread_back(client: Client, database: Database) -> None:
    """If the run has a claim, and the deletion takes one."""
    async with claimed(client, lost=True, ttl_seconds=1000) as lease:
        where = at(lease)
        document = checkpoint("1", {"a": LONG, "b": [1]})
        await client.put(where, document, metadata(), document["channel_versions"])
        with pytest.raises(ThreadBusy):  # The run continues.
            async with claimed(client):
                pass
        past = "0" if database.kind == "sqlite" else "to_timestamp(0)"
        database.run(f"UPDATE claims SET expires_at = {past}")
        async with claimed(client):
            await client.delete_thread("thread")
        late = checkpoint("2", {"a": LONG, "b": [2]})
        with pytest.raises(ClaimLost):
            await client.put(at(lease, "1"), late, metadata(), late["channel_versions"])
        with pytest.raises(ClaimLost):
            await client.put_writes(at(lease, "1"), [("a", 1)], "task")
    assert set(database.counts().values()) == {0}


OWNER = """
import os, signal, sys, time
from langgraph_checkpoint_custom import ClaimLost, open_saver
from tests.graphs.scenarios.nodes import Log, chain, says

def stop(state):
    time.sleep(0.3)  # What is being stored meanwhile is stored before the pause: on SQLite it holds the write lock.
    print("here", flush=True)
    os.kill(os.getpid(), getattr(signal, sys.argv[2]))
    return {"log": ["late"]}

with open_saver(sys.argv[1]) as saver:
    graph = chain(Log, one=says("one"), stop=stop, two=says("two")).compile(checkpointer=saver)
    try:
        with saver.claim("thread", ttl_seconds=2.0, owner="first") as lease:
            graph.invoke({"log": ["slow"]}, lease.config, durability="sync")
    except ClaimLost as error:
        print("lost", error, flush=True)
"""


def take_over(saver: CheckpointSaver) -> Lease:
    """Claim the thread as soon as that can be done."""
    while True:
        try:
            return saver.claim("thread", owner="second").__enter__()
        except ThreadBusy:
            time.sleep(0.05)  # Nothing announces that a claim expires.


def test_the_claim_of_a_killed_owner_expires(store: Store) -> None:
    with store.open() as saver:
        saver.setup()
        with running(OWNER, store.url, "SIGKILL") as worker:
            worker.wait(150)
        lease = take_over(saver)
        graph = chain(Log, one=says("one"), stop=says("quick"), two=says("two")).compile(checkpointer=saver)
        assert graph.invoke(None, lease.config)["log"] == ["slow", "one", "quick", "two"]
        lease.__exit__(None, None, None)


def test_a_paused_owner_whose_claim_expired_stores_nothing(store: Store) -> None:
    with store.open() as saver:
        saver.setup()
        graph = chain(Log, one=says("one"), stop=says("quick"), two=says("two")).compile(checkpointer=saver)
        with running(OWNER, store.url, "SIGSTOP") as worker:
            assert worker.stdout is not None
            os.waitid(os.P_PID, worker.pid, os.WSTOPPED | os.WNOWAIT)
            lease = take_over(saver)
            state = graph.invoke({"log": ["fast"]}, lease.config)
            before = [found.config for found in saver.list(THREAD)], graph.get_state(THREAD)
            os.kill(worker.pid, signal.SIGCONT)
            said = worker.stdout.read()
        assert said.startswith("lost")
        assert state["log"][-3:] == ["one", "quick", "two"]
        assert ([found.config for found in saver.list(THREAD)], graph.get_state(THREAD)) == before
        lease.__exit__(None, None, None)


async def test_an_empty_token_is_not_a_claim(client: Client) -> None:
    nobodys: RunnableConfig = {"configurable": {**config("thread", "1")["configurable"], CLAIM_KEY: ""}}
    async with claimed(client):
        with pytest.raises(ConfigError, match="token of the claim is empty"):
            await client.put(nobodys, checkpoint("2", {"a": 1}), metadata(), {})
        with pytest.raises(ConfigError, match="token of the claim is empty"):
            await client.put_writes(nobodys, [("a", 1)], "task")
    assert await client.all(None) == []


async def test_a_lease_is_for_one_block(client: Client) -> None:
    """In a second one, no heartbeat would renew the claim. A claim that was busy can be tried again."""
    async with claimed(client):
        second = client.saver.claim("thread")  # type: ignore[attr-defined]
        with pytest.raises(ThreadBusy):
            second.__enter__()
    with second:
        pass
    enter = asyncio.to_thread(second.__enter__) if client.api == "sync" else second.__aenter__()
    with pytest.raises(ConfigError, match="one block"):
        await enter


FORKS = """
import os, sys
from langgraph.checkpoint.base import empty_checkpoint
from langgraph_checkpoint_custom import open_saver
saver = open_saver(sys.argv[1])
with saver.claim("thread") as lease:
    if os.fork() == 0:
        sys.exit()
    assert os.wait()[1] == 0
    config = {"configurable": {**lease.config["configurable"], "checkpoint_ns": ""}}
    saver.put(config, empty_checkpoint(), {}, {})
saver.close()
"""


def test_a_forked_process_does_not_release_the_claim_of_its_parent(store: Store) -> None:
    subprocess.run([sys.executable, "-c", FORKS, store.url], check=True, timeout=600)


# Interrupted and cancelled owners


@pytest.mark.parametrize("moment", ["taking", "before releasing", "releasing"])
async def test_an_owner_that_is_interrupted_leaves_no_claim(
    client: Client, moment: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ctrl-C or a cancellation comes before the request is executed, or before its answer arrives."""
    lease = client.saver.claim("thread", ttl_seconds=3600)  # type: ignore[attr-defined]
    driver = client.saver.backend.driver  # type: ignore[attr-defined]
    run, arun = driver.run, driver.arun

    def interrupted(op: Any) -> Any:
        monkeypatch.undo()
        if moment != "before releasing":
            run(op)
        raise KeyboardInterrupt

    async def cancelled(op: Any) -> Any:
        monkeypatch.undo()
        if moment == "before releasing":
            task.cancel()
            await asyncio.sleep(0)
        done = await arun(op)
        task.cancel()
        await asyncio.sleep(0)
        return done

    def hold() -> None:
        if moment == "taking":
            monkeypatch.setattr(driver, "run", interrupted)
        with pytest.raises(KeyboardInterrupt), lease:
            monkeypatch.setattr(driver, "run", interrupted)

    async def ahold() -> None:
        if moment == "taking":
            monkeypatch.setattr(driver, "arun", cancelled)
        async with lease:
            monkeypatch.setattr(driver, "arun", cancelled)

    task = asyncio.create_task(ahold() if client.api == "async" else asyncio.to_thread(hold))
    (ended,) = await asyncio.gather(task, return_exceptions=True)
    assert isinstance(ended, asyncio.CancelledError if client.api == "async" else type(None))
    async with claimed(client):
        pass


async def test_owners_that_are_cancelled_at_any_moment_leave_no_claim(saver: CheckpointSaver) -> None:
    async with saver.claim("first"):
        pass
    for number in range(60):
        thread_id = f"thread {number}"
        inside, leaves = asyncio.Event(), asyncio.Event()

        async def hold(
            thread_id: str = thread_id, inside: asyncio.Event = inside, leaves: asyncio.Event = leaves
        ) -> None:
            async with saver.claim(thread_id, ttl_seconds=3600):
                inside.set()
                await leaves.wait()

        task = asyncio.create_task(hold())
        if number % 2:
            await asyncio.wait([task, asyncio.create_task(inside.wait())], return_when=asyncio.FIRST_COMPLETED)
            leaves.set()
        for _ in range(number // 2 % 10):
            await asyncio.sleep(0)
        await asyncio.sleep(0.0005 * (number // 20))  # A different moment for each.
        task.cancel()
        (ended,) = await asyncio.gather(task, return_exceptions=True)
        assert ended is None or isinstance(ended, asyncio.CancelledError)
        async with saver.claim(thread_id):
            pass
