"""Connections that break: an operation is then done once, and a run goes on."""

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
from langgraph_checkpoint_custom.engine.operation import Steps, operation
from langgraph_checkpoint_custom.engine.retry import RetryPolicy
from langgraph_checkpoint_custom.sql.dialect import SqlDialect
from tests.behaviour.helpers import checkpoint, config, metadata, put
from tests.conftest import APIS
from tests.faults.faulty import CUTS, Cut, faulty
from tests.faults.workload import OPERATIONS, SESSIONS, WAITING, fill, read, rows
from tests.graphs.running import Stored, Thread, in_memory, play
from tests.graphs.scenarios.parts import Log, chain, in_both_colours
from tests.stores import Client, Store


@pytest.mark.parametrize("api", APIS)
@pytest.mark.parametrize("cut", CUTS)
async def test_an_operation_whose_connection_is_cut_is_done_once(
    postgres_url: str, empty_postgres_url: str, watcher: psycopg.Connection[Any], cut: Cut, api: str
) -> None:
    """What is stored in the end is equal to what is stored where nothing goes wrong."""
    with faulty(postgres_url) as proxy, psycopg.connect(empty_postgres_url, autocommit=True) as whole_watcher:
        async with PostgresSaver(proxy.url, max_size=1) as saver, PostgresSaver(empty_postgres_url) as whole_saver:
            client, whole = Client(saver, api), Client(whole_saver, api)
            whole_saver.setup()
            for name, call in {**OPERATIONS, "read": read}.items():
                await fill(client, name)
                await fill(whole, name)
                before = rows(watcher)
                proxy.cut_next(cut)
                assert await call(client, name) == await call(whole, name)
                assert not proxy.armed
                assert rows(watcher) == rows(whole_watcher), name
                assert (rows(watcher) == before) is (name == "read")


@pytest.mark.parametrize("api", APIS)
@pytest.mark.parametrize("cut", CUTS)
async def test_a_claim_whose_end_is_asked_for_twice_was_held(postgres_url: str, cut: Cut, api: str) -> None:
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
            async with saver.claim("t"):  # Nobody has it any more.
                pass


@pytest.mark.parametrize("api", APIS)
async def test_what_is_deleted_twice_for_a_lost_answer_was_there(postgres_url: str, api: str) -> None:
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


@pytest.mark.parametrize(("cut", "api"), [("within the request", "async"), ("before the answer", "sync")])
async def test_tables_are_made_once_wherever_the_connection_is_cut(empty_postgres_url: str, cut: Cut, api: str) -> None:
    """Each round trip of `setup()` is cut once, until there is none left."""
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
    """A run of three nodes, each of which meets a fault after it has worked."""

    def node(word: str) -> Any:
        def work(state: Any) -> dict[str, Any]:
            calls.append(word)
            fault()
            return {"log": [word], "last": word}

        return in_both_colours(work)

    graph = thread.graph(chain(Log, **{word: node(word) for word in ("one", "two", "three")}))
    state = await graph.invoke({"log": ["start"]})
    assert state.values == {"log": ["start", "one", "two", "three"], "last": "three"}


async def a_run_goes_on(url: str, api: str, fault: Callable[[], None]) -> None:
    """A run sees, calls and stores what it does in memory, where nothing goes wrong."""
    calls: list[str] = []
    expected = await play(partial(steps, fault=lambda: None, calls=[]), in_memory(api, "sync"))
    found = await play(partial(steps, fault=fault, calls=calls), Stored(Store("postgres", url), api, "sync"))
    assert found == expected
    assert calls == ["one", "two", "three"]


@pytest.mark.parametrize("api", APIS)
async def test_a_run_goes_on_when_the_server_ends_its_sessions_between_operations(
    postgres_url: str, watcher: psycopg.Connection[Any], api: str
) -> None:
    ended: list[Any] = []

    def fault() -> None:
        ended.append(watcher.execute(f"SELECT pg_terminate_backend(pid, 5000){SESSIONS}").fetchall())

    await a_run_goes_on(postgres_url, api, fault)
    assert len(ended) == 3
    assert ended[0]
    assert sum(map(bool, ended)) >= 2  # On a busy machine the pool may not have connected again yet.


@pytest.mark.parametrize("api", APIS)
async def test_a_run_goes_on_when_the_server_ends_its_sessions_during_operations(postgres_url: str, api: str) -> None:
    """The operation that follows the node waits for a lock when its session is ended, and its next attempt has it."""
    ended: list[Any] = []
    helpers: list[threading.Thread] = []

    def end_what_waits(blocker: psycopg.Connection[Any]) -> None:
        with blocker, psycopg.connect(postgres_url, autocommit=True) as watcher:
            while not (waiting := watcher.execute(WAITING).fetchall()):
                time.sleep(0.005)  # Nobody is told when a session begins to wait.
            for (pid,) in waiting:
                ended.append(watcher.execute("SELECT pg_terminate_backend(%s, 5000)", [pid]).fetchall())

    def fault() -> None:
        blocker = psycopg.connect(postgres_url)
        blocker.execute("LOCK TABLE langgraph_checkpoint.checkpoints, langgraph_checkpoint.writes IN EXCLUSIVE MODE")
        helpers.append(threading.Thread(target=end_what_waits, args=[blocker], daemon=True))
        helpers[-1].start()

    await a_run_goes_on(postgres_url, api, fault)
    for helper in helpers:
        helper.join()
    assert len(ended) >= 3


@pytest.mark.parametrize("api", APIS)
@pytest.mark.parametrize("cut", CUTS)
async def test_a_run_goes_on_when_its_connections_are_cut(postgres_url: str, cut: Cut, api: str) -> None:
    with faulty(postgres_url) as proxy:
        await a_run_goes_on(proxy.url, api, lambda: proxy.cut_next(cut))
        assert not proxy.armed


@pytest.mark.parametrize("api", APIS)
@pytest.mark.parametrize("cut", CUTS)
async def test_what_tells_whether_it_did_something_knows_of_an_answer_that_was_lost(
    postgres_url: str, cut: Cut, api: str
) -> None:
    @operation("write", tells=True)
    def unlabels(d: SqlDialect, thread_id: str, name: str) -> Steps[bool]:
        (rows,) = yield d.delete_label(thread_id, name)
        return bool(rows)

    with faulty(postgres_url) as proxy:
        async with PostgresSaver(proxy.url, max_size=1) as saver:
            client = Client(saver, api)
            await fill(client, "t")
            await client.do("label", config("t", "checkpoint 1"), "here")
            driver, dialect = saver._driver, saver._dialect

            async def call() -> bool:
                op = unlabels(dialect, "t", "here")
                return await (driver.arun(op) if api == "async" else asyncio.to_thread(driver.run, op))

            proxy.cut_next(cut)
            assert await call() is True
            assert not proxy.armed
            assert await client.do("labels", "t") == {}
            assert await call() is False, "nothing was lost this time"


@pytest.mark.parametrize("api", APIS)
@pytest.mark.parametrize("name", ["put", "put_writes", "copy_thread"])
async def test_a_refusal_says_that_the_attempt_without_an_answer_may_have_been_done(
    postgres_url: str, watcher: psycopg.Connection[Any], monkeypatch: pytest.MonkeyPatch, name: str, api: str
) -> None:
    """It was, and others came in before the next one."""
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
            before, driver = rows(watcher), saver._driver
            usual = driver._pause  # type: ignore[attr-defined]

            def pause(*args: Any) -> Any:
                assert rows(watcher) != before
                come_in()
                return usual(*args)

            monkeypatch.setattr(driver, "_pause", pause)
            said = f"{name} was retried because no answer came; the first attempt may have succeeded. Then: "
            proxy.cut_next("before the answer")
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
async def test_an_answer_that_was_lost_is_known_when_there_is_no_connection_any_more(
    postgres_url: str, watcher: psycopg.Connection[Any], monkeypatch: pytest.MonkeyPatch, api: str
) -> None:
    with faulty(postgres_url) as proxy:
        async with PostgresSaver(proxy.url, max_size=1, connect_timeout=2) as saver:
            monkeypatch.setattr(saver._driver, "_retry", RetryPolicy(attempts=2))
            client = Client(saver, api)
            await fill(client, "t")
            before = rows(watcher)
            proxy.cut_next("before the answer")
            proxy.deaf_to_come = 1_000
            with pytest.raises(ConnectionLost, match="no connection to PostgreSQL") as caught:
                await client.delete_thread("t")
            assert rows(watcher) != before
            assert caught.value.unanswered


@pytest.mark.parametrize("api", APIS)
async def test_a_connection_that_could_not_be_made_has_lost_no_answer(postgres_url: str, api: str) -> None:
    async with PostgresSaver("postgresql://127.0.0.1:1/nowhere") as saver:
        with pytest.raises(ConnectionLost) as caught:
            await Client(saver, api).get_tuple(config("t"))
        assert not caught.value.unanswered
