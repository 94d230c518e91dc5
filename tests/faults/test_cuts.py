"""Broken connections: an operation still takes effect once, and a run continues."""

from __future__ import annotations

import asyncio
import itertools
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any

import psycopg
import pytest
from langchain_core.runnables import RunnableConfig

from langgraph_checkpoint_custom import (
    CheckpointConflict,
    CheckpointError,
    ClaimLost,
    ConnectionLost,
    PostgresSaver,
    ThreadExists,
)
from langgraph_checkpoint_custom.drivers.postgres_errors import RetryPolicy
from tests.behaviour.helpers import checkpoint, config, metadata, put
from tests.conftest import APIS
from tests.faults.faulty import CUTS, Cut, faulty
from tests.faults.workload import OPERATIONS, WAITING, fill, read, rows
from tests.graphs.running import Stored, Thread, in_memory, play
from tests.graphs.scenarios.nodes import Log, chain, sync_and_async
from tests.stores import Client, Store


@pytest.mark.parametrize("api", APIS)
@pytest.mark.parametrize("cut", CUTS)
async def test_an_operation_whose_connection_is_cut_takes_effect_once(
    postgres_url: str, empty_postgres_url: str, watcher: psycopg.Connection[Any], cut: Cut, api: str
) -> None:
    """The tables end up the same as without the fault."""
    with faulty(postgres_url) as proxy, psycopg.connect(empty_postgres_url, autocommit=True) as reference_watcher:
        async with PostgresSaver(proxy.url, max_size=1) as saver, PostgresSaver(empty_postgres_url) as reference_saver:
            client, reference = Client(saver, api), Client(reference_saver, api)
            reference_saver.setup()
            for name, call in {**OPERATIONS, "read": read}.items():
                await fill(client, name)
                await fill(reference, name)
                before = rows(watcher)
                proxy.cut_next(cut)
                assert await call(client, name) == await call(reference, name)
                assert not proxy.armed
                assert rows(watcher) == rows(reference_watcher), name
                assert (rows(watcher) == before) is (name == "read")


@pytest.mark.parametrize("api", APIS)
@pytest.mark.parametrize("cut", CUTS)
async def test_a_claim_whose_release_is_retried_is_released(postgres_url: str, cut: Cut, api: str) -> None:
    with faulty(postgres_url) as proxy:
        async with PostgresSaver(proxy.url, max_size=1) as saver:

            def hold() -> None:
                with saver.claim("t"):
                    proxy.cut_next(cut)

            if api == "sync":
                await asyncio.to_thread(hold)
            else:
                async with saver.claim("t"):
                    proxy.cut_next(cut)
            assert not proxy.armed
            async with saver.claim("t"):  # The claim is free again.
                pass


@pytest.mark.parametrize("api", APIS)
async def test_a_deletion_repeated_after_a_lost_reply_reports_that_it_deleted(postgres_url: str, api: str) -> None:
    with faulty(postgres_url) as proxy:
        async with PostgresSaver(proxy.url, max_size=1) as saver:
            client = Client(saver, api)
            await fill(client, "t")
            await client.do("label", config("t", "checkpoint 1"), "mine")
            for name, arguments in (("unlabel", ("t", "mine")), ("delete_checkpoint", (config("t", "checkpoint 1"),))):
                proxy.cut_next("before the answer")
                assert await client.do(name, *arguments) is True
                assert not proxy.armed
                assert await client.do(name, *arguments) is False


@pytest.mark.parametrize("api", APIS)
async def test_an_erasure_says_what_it_has_deleted_although_a_reply_was_lost(postgres_url: str, api: str) -> None:
    """Each round trip is cut once, until none is left."""
    with faulty(postgres_url) as proxy:
        async with PostgresSaver(proxy.url, max_size=1) as saver:
            client = Client(saver, api)
            for number in itertools.count():
                await fill(client, "t")
                proxy.cut_next("before the answer", after=number)
                (gone,) = (await client.do("erase", {"source": "loop"})).threads
                assert (gone.thread_id, gone.checkpoints) == ("t", 3)
                assert not saver.thread_exists("t")
                if proxy.armed:
                    break
            assert number > 3


@pytest.mark.parametrize(("cut", "api"), [("within the request", "async"), ("before the answer", "sync")])
async def test_tables_are_created_once_wherever_the_connection_is_cut(
    empty_postgres_url: str, cut: Cut, api: str
) -> None:
    """Each round trip of `setup()` is cut once, until none is left."""
    with faulty(empty_postgres_url) as proxy:
        for number in itertools.count():
            async with PostgresSaver(proxy.url, max_size=1, schema=f"schema {number}") as saver:
                proxy.cut_next(cut, after=number)
                await (saver.asetup() if api == "async" else asyncio.to_thread(saver.setup))
                if proxy.armed:
                    break
                await fill(Client(saver, api), "t")
                assert len(await Client(saver, api).all(config("t"))) == 3
        assert number > 3


# Runs


async def steps(thread: Thread, fault: Callable[[], None], calls: list[str]) -> None:
    """A run of three nodes, each of which meets a fault after its work."""

    def node(word: str) -> Any:
        def work(state: Any) -> dict[str, Any]:
            calls.append(word)
            fault()
            return {"log": [word], "last": word}

        return sync_and_async(work)

    graph = thread.graph(chain(Log, **{word: node(word) for word in ("one", "two", "three")}))
    state = await graph.invoke({"log": ["start"]})
    assert state.values == {"log": ["start", "one", "two", "three"], "last": "three"}


async def check_that_a_run_continues(url: str, api: str, fault: Callable[[], None]) -> None:
    """A run returns, calls and stores the same as in memory without faults."""
    calls: list[str] = []
    expected = await play(partial(steps, fault=lambda: None, calls=[]), in_memory(api, "sync"))
    found = await play(partial(steps, fault=fault, calls=calls), Stored(Store("postgres", url), api, "sync"))
    assert found == expected
    assert calls == ["one", "two", "three"]


@pytest.mark.parametrize("api", APIS)
async def test_a_run_continues_when_the_server_ends_its_sessions_during_operations(postgres_url: str, api: str) -> None:
    """The operation after the node waits for a lock when its session is ended; its next attempt gets the lock."""
    ended: list[Any] = []
    helpers: list[threading.Thread] = []

    def end_what_waits(blocker: psycopg.Connection[Any]) -> None:
        with blocker, psycopg.connect(postgres_url, autocommit=True) as watcher:
            while not (waiting := watcher.execute(WAITING).fetchall()):
                time.sleep(0.005)  # Nothing announces that a session begins to wait.
            for (pid,) in waiting:
                ended.append(watcher.execute("SELECT pg_terminate_backend(%s, 5000)", [pid]).fetchall())

    def fault() -> None:
        blocker = psycopg.connect(postgres_url)
        blocker.execute("LOCK TABLE langgraph_checkpoint.checkpoints, langgraph_checkpoint.writes IN EXCLUSIVE MODE")
        helpers.append(threading.Thread(target=end_what_waits, args=[blocker], daemon=True))
        helpers[-1].start()

    await check_that_a_run_continues(postgres_url, api, fault)
    for helper in helpers:
        helper.join()
    assert len(ended) >= 3


@pytest.mark.parametrize("api", APIS)
@pytest.mark.parametrize("cut", CUTS)
async def test_a_run_continues_when_its_connections_are_cut(postgres_url: str, cut: Cut, api: str) -> None:
    with faulty(postgres_url) as proxy:
        await check_that_a_run_continues(proxy.url, api, lambda: proxy.cut_next(cut))
        assert not proxy.armed


@pytest.mark.parametrize("api", APIS)
@pytest.mark.parametrize("name", ["put", "put_writes", "copy_thread"])
async def test_a_refusal_says_that_the_attempt_without_a_reply_may_have_taken_effect(
    postgres_url: str, watcher: psycopg.Connection[Any], monkeypatch: pytest.MonkeyPatch, name: str, api: str
) -> None:
    """It took effect, and other calls came before the next attempt."""
    with faulty(postgres_url) as proxy, PostgresSaver(postgres_url) as others:
        async with PostgresSaver(proxy.url, max_size=1, concurrent_writers="reject") as saver:
            client, lease = Client(saver, api), others.claim("t")
            await fill(client, "t")
            await client.get_tuple({**config("t"), "metadata": {"run_id": "run"}})
            lease.__enter__()
            own = metadata(3, run_id="run")
            calls: dict[str, tuple[Callable[[], Any], type[CheckpointError], Callable[[], Any]]] = {
                "put": (
                    lambda: put(client, "checkpoint 3", parent=config("t", "checkpoint 2"), thread_id="t", meta=own),
                    CheckpointConflict,
                    lambda: others.put(config("t", "checkpoint 3"), checkpoint("checkpoint 4"), metadata(4), {}),
                ),
                "put_writes": (
                    lambda: client.put_writes(_with(lease.config, "checkpoint 2"), [("list", 9)], "task 9"),
                    ClaimLost,
                    lambda: watcher.execute("DELETE FROM langgraph_checkpoint.claims"),
                ),
                "copy_thread": (
                    lambda: client.copy_thread("t", "copied"),
                    ThreadExists,
                    lambda: others.put(config("copied", "checkpoint 2"), checkpoint("checkpoint 3"), metadata(3), {}),
                ),
            }
            call, error, come_in = calls[name]
            before = rows(watcher)

            pause = RetryPolicy.pause

            def meanwhile(policy: RetryPolicy, failed: int, elapsed: float) -> float | None:
                """Let other calls come before the next attempt."""
                assert rows(watcher) != before
                come_in()
                return pause(policy, failed, elapsed)

            monkeypatch.setattr(RetryPolicy, "pause", meanwhile)
            said = f"{name} was retried because no answer came; an earlier attempt may have succeeded. Then: "
            # A copy has looked at the target, and copied the rows, before it commits.
            proxy.cut_next("before the answer", after=2 if name == "copy_thread" else 0)
            with pytest.raises(error, match=said):
                await call()
            assert not proxy.armed
            with pytest.raises(error) as caught:
                await call()
            assert "was retried" not in str(caught.value), "nothing was lost this time"
            with suppress(ClaimLost):
                lease.__exit__(None, None, None)


def _with(claim: RunnableConfig, checkpoint_id: str) -> RunnableConfig:
    return {"configurable": {**claim["configurable"], "checkpoint_ns": "", "checkpoint_id": checkpoint_id}}


@pytest.mark.parametrize("api", APIS)
async def test_a_lost_reply_is_reported_if_no_connection_can_be_made_any_more(
    postgres_url: str, watcher: psycopg.Connection[Any], monkeypatch: pytest.MonkeyPatch, api: str
) -> None:
    with faulty(postgres_url) as proxy:
        async with PostgresSaver(proxy.url, max_size=1, connect_timeout=2, pool_timeout=1) as saver:
            client = Client(saver, api)
            await fill(client, "t")
            before = rows(watcher)
            monkeypatch.setattr(RetryPolicy, "pause", RetryPolicy(attempts=2).pause)
            proxy.cut_next("before the answer")
            proxy.connections_to_ignore = 1_000
            with pytest.raises(ConnectionLost, match="no connection to PostgreSQL") as caught:
                await client.delete_thread("t")
            assert rows(watcher) != before
            assert caught.value.unanswered


@pytest.mark.parametrize("api", APIS)
async def test_a_failed_connection_attempt_does_not_count_as_a_lost_reply(postgres_url: str, api: str) -> None:
    async with PostgresSaver("postgresql://127.0.0.1:1/nowhere") as saver:
        with pytest.raises(ConnectionLost) as caught:
            await Client(saver, api).get_tuple(config("t"))
        assert not caught.value.unanswered
