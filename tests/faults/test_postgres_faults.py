"""What PostgreSQL and the network do wrong: an operation is then done once, or ends with one error that says why."""

from __future__ import annotations

import asyncio
import itertools
import threading
import time
import uuid
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any
from urllib.parse import urlsplit

import psycopg
import pytest
from psycopg import sql

from langgraph_checkpoint_custom import ConnectionLost, PostgresSaver, StorageError
from tests.behaviour.helpers import Database, config, get, metadata, put
from tests.conftest import COLOURS
from tests.faults.faulty import CUTS, Cut, faulty
from tests.graphs.running import Stored, Thread, in_memory, play
from tests.graphs.scenarios.parts import Log, chain, in_both_colours
from tests.proxy import proxied
from tests.stores import Face, Store

SESSIONS = (
    " FROM pg_stat_activity WHERE datname = current_database() AND backend_type = 'client backend'"
    " AND pid <> pg_backend_pid()"
)
WAITING = f"SELECT pid{SESSIONS} AND wait_event_type = 'Lock'"


@pytest.fixture
def watcher(postgres_url: str) -> Iterator[psycopg.Connection[Any]]:
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        yield connection


def set_for_database(watcher: psycopg.Connection[Any], **settings: str) -> None:
    """Settings of every session to come."""
    for name, value in settings.items():
        database = sql.Identifier(watcher.info.dbname)
        watcher.execute(
            sql.SQL("ALTER DATABASE {} SET {} = {}").format(database, sql.Identifier(name), sql.Literal(value))
        )


# Operations that are whole in spite of a fault


async def fill(face: Face, thread_id: str) -> None:
    """Three checkpoints with a value and a write each; the newest one is of another run."""
    parent = None
    for step in range(3):
        run_id = "kept" if step == 2 else f"run on {thread_id}"
        parent = await put(
            face,
            f"checkpoint {step}",
            {"list": [step]},
            parent=parent,
            thread_id=thread_id,
            versions={"list": f"{step}"},
            meta=metadata(step, run_id=run_id),
        )
        await face.put_writes(parent, [("list", [step])], f"task {step}")


async def put_one(face: Face, thread_id: str, checkpoint_id: str = "checkpoint 9") -> None:
    parent = config(thread_id, "checkpoint 1")
    await put(
        face, checkpoint_id, {"list": [9]}, parent=parent, thread_id=thread_id, versions={"list": "9"}, meta=metadata(9)
    )


async def read(face: Face, thread_id: str) -> Any:
    newest = await get(face, config(thread_id))
    return [
        (found.checkpoint, found.metadata["step"], found.pending_writes)
        for found in [newest, *await face.all(config(thread_id))]
    ]


Call = Callable[[Face, str], Awaitable[Any]]
OPERATIONS: Mapping[str, Call] = {
    "put": put_one,
    "put_writes": lambda face, thread_id: face.put_writes(
        config(thread_id, "checkpoint 2"), [("list", [9]), ("__interrupt__", "why"), ("other", None)], "task 9"
    ),
    "copy_thread": lambda face, thread_id: face.copy_thread(thread_id, f"{thread_id} copied"),
    "prune": lambda face, thread_id: face.prune([thread_id]),
    "delete_for_runs": lambda face, thread_id: face.delete_for_runs([f"run on {thread_id}"]),
    "delete_thread": lambda face, thread_id: face.delete_thread(thread_id),
}


def rows(connection: psycopg.Connection[Any]) -> list[Any]:
    """All that is stored in a database."""
    found: list[Any] = []
    for table in ("checkpoints", "blobs", "writes"):
        name = sql.Identifier("langgraph_checkpoint", table)
        found += connection.execute(sql.SQL("SELECT to_jsonb(t) FROM {} AS t ORDER BY 1").format(name)).fetchall()
    return found


@pytest.mark.parametrize("colour", COLOURS)
@pytest.mark.parametrize("cut", CUTS)
async def test_an_operation_whose_connection_is_cut_is_done_once(
    postgres_url: str, empty_postgres_url: str, watcher: psycopg.Connection[Any], cut: Cut, colour: str
) -> None:
    """What is stored in the end is equal to what is stored where nothing goes wrong."""
    with faulty(postgres_url) as proxy, psycopg.connect(empty_postgres_url, autocommit=True) as whole_watcher:
        async with PostgresSaver(proxy.url, max_size=1) as saver, PostgresSaver(empty_postgres_url) as whole_saver:
            face, whole = Face(saver, colour), Face(whole_saver, colour)
            whole_saver.setup()
            for name, call in {**OPERATIONS, "read": read}.items():
                await fill(face, name)
                await fill(whole, name)
                before = rows(watcher)
                proxy.cut_next(cut)
                assert await call(face, name) == await call(whole, name)
                assert not proxy.armed
                assert rows(watcher) == rows(whole_watcher), name
                assert (rows(watcher) == before) is (name == "read")


@pytest.mark.parametrize("colour", COLOURS)
@pytest.mark.parametrize("cut", ["within the request", "before the answer"])
async def test_tables_are_made_once_wherever_the_connection_is_cut(
    empty_postgres_url: str, cut: Cut, colour: str
) -> None:
    """Each round trip of `setup()` is cut once, until there is none left."""
    with faulty(empty_postgres_url) as proxy:
        for number in itertools.count():
            async with PostgresSaver(proxy.url, max_size=1, schema=f"schema {number}") as saver:
                proxy.cut_next(cut, after=number)
                await (saver.asetup() if colour == "async" else asyncio.to_thread(saver.setup))
                if proxy.armed:
                    break
                await fill(Face(saver, colour), "t")
                assert len(await Face(saver, colour).all(config("t"))) == 3
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


async def a_run_goes_on(url: str, colour: str, fault: Callable[[], None]) -> None:
    """A run sees, calls and stores what it does in memory, where nothing goes wrong."""
    calls: list[str] = []
    expected = await play(partial(steps, fault=lambda: None, calls=[]), in_memory(colour, "sync"))
    found = await play(partial(steps, fault=fault, calls=calls), Stored(Store("postgres", url), colour, "sync"))
    assert found == expected
    assert calls == ["one", "two", "three"]


@pytest.mark.parametrize("colour", COLOURS)
async def test_a_run_goes_on_when_the_server_ends_its_sessions_between_operations(
    postgres_url: str, watcher: psycopg.Connection[Any], colour: str
) -> None:
    ended: list[Any] = []

    def fault() -> None:
        ended.append(watcher.execute(f"SELECT pg_terminate_backend(pid, 5000){SESSIONS}").fetchall())

    await a_run_goes_on(postgres_url, colour, fault)
    assert len(ended) == 3
    assert all(ended)


@pytest.mark.parametrize("colour", COLOURS)
async def test_a_run_goes_on_when_the_server_ends_its_sessions_during_operations(
    postgres_url: str, colour: str
) -> None:
    """The operation that follows the node waits for a lock when its session is ended, and its next attempt has it."""
    ended: list[Any] = []
    helpers: list[threading.Thread] = []

    def end_what_waits(blocker: psycopg.Connection[Any]) -> None:
        with blocker, psycopg.connect(postgres_url, autocommit=True) as watcher:
            while not (waiting := watcher.execute(WAITING).fetchall()):
                time.sleep(0.005)
            for (pid,) in waiting:
                ended.append(watcher.execute("SELECT pg_terminate_backend(%s, 5000)", [pid]).fetchall())

    def fault() -> None:
        blocker = psycopg.connect(postgres_url)
        blocker.execute("LOCK TABLE langgraph_checkpoint.checkpoints, langgraph_checkpoint.writes IN EXCLUSIVE MODE")
        helpers.append(threading.Thread(target=end_what_waits, args=[blocker], daemon=True))
        helpers[-1].start()

    await a_run_goes_on(postgres_url, colour, fault)
    for helper in helpers:
        helper.join()
    assert len(ended) >= 3


@pytest.mark.parametrize("colour", COLOURS)
@pytest.mark.parametrize("cut", CUTS)
async def test_a_run_goes_on_when_its_connections_are_cut(postgres_url: str, cut: Cut, colour: str) -> None:
    with faulty(postgres_url) as proxy:
        await a_run_goes_on(proxy.url, colour, lambda: proxy.cut_next(cut))
        assert not proxy.armed


# A server that does not answer


@pytest.mark.parametrize("colour", COLOURS)
async def test_a_server_that_accepts_and_says_nothing_is_given_up_and_tried_again(
    postgres_url: str, colour: str
) -> None:
    with faulty(postgres_url) as proxy:
        proxy.deaf_to_come = 1
        async with PostgresSaver(proxy.url, connect_timeout=2) as saver:
            await asyncio.wait_for(fill(Face(saver, colour), "t"), 30)
        assert proxy.deaf_to_come == 0
        assert proxy.connections > 2


@pytest.mark.parametrize("colour", COLOURS)
async def test_a_session_that_falls_silent_holds_up_nobody_else_for_longer_than_the_pool_timeout(
    postgres_url: str, colour: str
) -> None:
    """Its own operation waits for as long as the network says nothing; then it is done once."""
    with faulty(postgres_url) as proxy:
        async with PostgresSaver(proxy.url, max_size=1, pool_timeout=0.5) as saver:
            face = Face(saver, colour)
            await fill(face, "t")
            proxy.hush()
            trips = proxy.trips
            waiting = asyncio.ensure_future(put_one(face, "t"))
            while proxy.trips == trips:
                await asyncio.sleep(0.01)
            with pytest.raises(StorageError, match="raise max_size or pool_timeout"):
                await asyncio.wait_for(face.get_tuple(config("t")), 30)
            proxy.cut()
            await asyncio.wait_for(waiting, 30)
            assert len(await face.all(config("t"))) == 4


# Too many connections


@contextmanager
def limited_role(url: str, watcher: psycopg.Connection[Any], limit: int) -> Iterator[tuple[str, Callable[[int], None]]]:
    """A URL with a role that may have so many connections, and a function that changes how many."""
    name, password = f"test_{uuid.uuid4().hex[:12]}", uuid.uuid4().hex
    role = sql.Identifier(name)

    def set_limit(limit: int) -> None:
        watcher.execute(sql.SQL("ALTER ROLE {} CONNECTION LIMIT {}").format(role, sql.Literal(limit)))

    try:
        watcher.execute(sql.SQL("CREATE ROLE {} LOGIN PASSWORD {}").format(role, sql.Literal(password)))
    except psycopg.errors.InsufficientPrivilege:
        pytest.skip("the role in CHECKPOINT_TEST_DSN may not create roles, and superusers have no limit")
    try:
        set_limit(limit)
        watcher.execute(sql.SQL("GRANT USAGE ON SCHEMA langgraph_checkpoint TO {}").format(role))
        watcher.execute(sql.SQL("GRANT ALL ON ALL TABLES IN SCHEMA langgraph_checkpoint TO {}").format(role))
        parts = urlsplit(url)
        address = parts.netloc.rpartition("@")[2]
        yield parts._replace(netloc=f"{name}:{password}@{address}").geturl(), set_limit
    finally:
        watcher.execute("SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE usename = %s", [name])
        watcher.execute(sql.SQL("DROP OWNED BY {}").format(role))
        watcher.execute(sql.SQL("DROP ROLE {}").format(role))


@pytest.mark.parametrize("colour", COLOURS)
@pytest.mark.parametrize("limit", [1, 2])
async def test_fewer_connections_than_the_pool_may_have_are_shared(
    postgres_url: str, watcher: psycopg.Connection[Any], limit: int, colour: str
) -> None:
    with limited_role(postgres_url, watcher, limit) as (url, _):
        async with PostgresSaver(url, max_size=10) as saver:
            face = Face(saver, colour)
            await asyncio.gather(*(fill(face, f"t{i}") for i in range(20)))
            assert len(await face.all(None)) == 60


@pytest.mark.parametrize("colour", COLOURS)
async def test_a_connection_that_comes_free_in_time_is_waited_for(
    postgres_url: str, watcher: psycopg.Connection[Any], colour: str
) -> None:
    with limited_role(postgres_url, watcher, limit=0) as (url, set_limit):
        async with PostgresSaver(url) as saver:
            waiting = asyncio.ensure_future(fill(Face(saver, colour), "t"))
            await asyncio.sleep(0.5)
            assert not waiting.done()
            set_limit(3)
            await asyncio.wait_for(waiting, 30)


async def test_too_many_connections_are_one_clear_error(postgres_url: str, watcher: psycopg.Connection[Any]) -> None:
    """Both colours at the same time, since they wait for seconds."""

    async def refused(url: str, colour: str) -> None:
        async with PostgresSaver(url) as saver:
            with pytest.raises(ConnectionLost, match="too many connections"):
                await Face(saver, colour).get_tuple(config("t"))

    with limited_role(postgres_url, watcher, limit=0) as (url, _):
        await asyncio.wait_for(asyncio.gather(*(refused(url, colour) for colour in COLOURS)), 60)


# A server that refuses


@pytest.mark.parametrize("colour", COLOURS)
async def test_a_read_only_database_is_one_clear_error_and_can_be_read(
    postgres_url: str, watcher: psycopg.Connection[Any], colour: str
) -> None:
    async with PostgresSaver(postgres_url) as saver:
        await fill(Face(saver, colour), "t")
    before = rows(watcher)
    set_for_database(watcher, default_transaction_read_only="on")
    with faulty(postgres_url) as proxy:
        async with PostgresSaver(proxy.url, max_size=1) as saver:
            face = Face(saver, colour)
            expected = await read(face, "t")
            for name, call in OPERATIONS.items():
                trips = proxy.trips
                with pytest.raises(StorageError, match="read-only; give the address of the primary") as caught:
                    await call(face, "t")
                assert caught.value.sqlstate == "25006"
                assert caught.value.operation.startswith(name)
                assert proxy.trips - trips <= 2  # The operation, and the end of its transaction.
            assert await read(face, "t") == expected
    assert rows(watcher) == before


@pytest.mark.parametrize("colour", COLOURS)
async def test_setup_of_a_read_only_database_is_one_clear_error(empty_postgres_url: str, colour: str) -> None:
    with psycopg.connect(empty_postgres_url, autocommit=True) as watcher:
        set_for_database(watcher, default_transaction_read_only="on")
    async with PostgresSaver(empty_postgres_url) as saver:
        with pytest.raises(StorageError, match="read-only; give the address of the primary"):
            await (saver.asetup() if colour == "async" else asyncio.to_thread(saver.setup))


@pytest.mark.parametrize("colour", COLOURS)
async def test_a_statement_timeout_is_one_clear_error_and_what_it_stopped_can_be_repeated(
    postgres_url: str, watcher: psycopg.Connection[Any], colour: str
) -> None:
    set_for_database(watcher, statement_timeout="200ms")
    async with PostgresSaver(postgres_url, max_size=1) as saver:
        face = Face(saver, colour)
        await fill(face, "t")
        before = rows(watcher)
        for name, call in OPERATIONS.items():
            with Database(Store("postgres", postgres_url)).locked():
                with pytest.raises(StorageError, match="statement_timeout") as caught:
                    await call(face, "t")
                assert caught.value.sqlstate == "57014"
                assert caught.value.operation.startswith(name)
                assert rows(watcher) == before
        for call in OPERATIONS.values():
            await call(face, "t")


@pytest.mark.parametrize("colour", COLOURS)
async def test_a_callers_connection_is_usable_after_an_operation_that_failed(
    postgres_url: str, watcher: psycopg.Connection[Any], colour: str
) -> None:
    set_for_database(watcher, default_transaction_read_only="on")
    async with await psycopg.AsyncConnection.connect(postgres_url, autocommit=True) as async_connection:
        with psycopg.connect(postgres_url, autocommit=True) as connection:
            source = connection if colour == "sync" else async_connection
            face = Face(PostgresSaver(source), colour)
            for call in OPERATIONS.values():
                with pytest.raises(StorageError, match="read-only"):
                    await call(face, "t")
                assert await face.get_tuple(config("t")) is None


async def test_a_callers_connection_is_usable_after_an_operation_that_was_cancelled(
    postgres_url: str, watcher: psycopg.Connection[Any]
) -> None:
    async with await psycopg.AsyncConnection.connect(postgres_url, autocommit=True) as connection:
        face = Face(PostgresSaver(connection), "async")
        await fill(face, "t")
        with Database(Store("postgres", postgres_url)).locked():
            waiting = asyncio.ensure_future(face.delete_thread("t"))
            while not watcher.execute(WAITING).fetchall():
                await asyncio.sleep(0.01)
            waiting.cancel()
            await asyncio.wait([waiting])
        assert len(await face.all(config("t"))) == 3


# Contention


@pytest.mark.parametrize("colour", COLOURS)
async def test_a_serialization_failure_is_tried_again(
    postgres_url: str, watcher: psycopg.Connection[Any], colour: str
) -> None:
    """A transaction that changes the same rows commits while an operation waits for it."""
    set_for_database(watcher, default_transaction_isolation="serializable")
    calls: dict[str, Call] = {
        **OPERATIONS,
        "put": lambda face, thread_id: put_one(face, thread_id, "checkpoint 2"),
        "put_writes": lambda face, thread_id: face.put_writes(
            config(thread_id, "checkpoint 2"), [("__interrupt__", "another")], "task 2"
        ),
    }
    del calls["copy_thread"]  # It changes nothing that was there.
    with faulty(postgres_url) as proxy:
        async with PostgresSaver(proxy.url, max_size=1) as saver:
            face = Face(saver, colour)
            for name, call in calls.items():
                await fill(face, name)
                await face.put_writes(config(name, "checkpoint 2"), [("__interrupt__", "one")], "task 2")
                with psycopg.connect(postgres_url) as other:
                    other.execute("SET search_path = langgraph_checkpoint")
                    other.execute("UPDATE checkpoints SET format = format WHERE thread_id = %s", [name])
                    other.execute("UPDATE writes SET type = type WHERE thread_id = %s", [name])
                    trips = proxy.trips
                    waiting = asyncio.ensure_future(call(face, name))
                    while not watcher.execute(WAITING).fetchall():
                        await asyncio.sleep(0.01)
                    other.commit()
                await asyncio.wait_for(waiting, 30)
                assert proxy.trips - trips >= 2, name


@pytest.mark.parametrize("colour", COLOURS)
async def test_writers_that_conflict_all_succeed_when_transactions_are_serializable(
    postgres_url: str, watcher: psycopg.Connection[Any], colour: str
) -> None:
    set_for_database(watcher, default_transaction_isolation="serializable")
    async with PostgresSaver(postgres_url) as saver:
        face = Face(saver, colour)
        await fill(face, "t")
        for i in range(5):
            await asyncio.gather(
                put_one(face, "t"),
                put_one(face, "t"),
                face.put_writes(config("t", "checkpoint 9"), [("__interrupt__", i)], "task 9"),
                face.put_writes(config("t", "checkpoint 9"), [("__interrupt__", i)], "task 9"),
                face.prune(["t"]),
            )
        newest = await get(face, config("t"))
        assert newest.checkpoint["channel_values"] == {"list": [9]}
        assert newest.pending_writes == [("task 9", "__interrupt__", 4)]


@pytest.mark.parametrize("colour", COLOURS)
async def test_a_deadlock_is_tried_again(postgres_url: str, watcher: psycopg.Connection[Any], colour: str) -> None:
    """The operation has locked the checkpoints and waits for a blob; who has that one wants the checkpoints."""
    with faulty(postgres_url) as proxy:
        async with PostgresSaver(proxy.url, max_size=1) as saver:
            face = Face(saver, colour)
            for i in range(5):
                await fill(face, f"t{i}")
                trips = proxy.trips
                try:
                    with psycopg.connect(postgres_url) as other:
                        other.execute("SET search_path = langgraph_checkpoint")
                        other.execute("UPDATE blobs SET type = type WHERE thread_id = %s", [f"t{i}"])
                        waiting = asyncio.ensure_future(face.delete_thread(f"t{i}"))
                        while not watcher.execute(WAITING).fetchall():
                            await asyncio.sleep(0.01)
                        await asyncio.to_thread(
                            other.execute, "UPDATE checkpoints SET format = format WHERE thread_id = %s", [f"t{i}"]
                        )
                except psycopg.errors.DeadlockDetected:
                    # The server looks for a deadlock a second after a wait has begun. This one came later than that.
                    await waiting
                    continue
                await asyncio.wait_for(waiting, 30)
                assert proxy.trips - trips >= 2
                assert await face.get_tuple(config(f"t{i}")) is None
                return
    pytest.fail("the operation was never the one that the server ended")


# Connections


@pytest.mark.parametrize("colour", COLOURS)
async def test_there_are_never_more_sessions_than_the_pool_may_have_and_none_is_left_busy(
    postgres_url: str, watcher: psycopg.Connection[Any], colour: str
) -> None:
    url = f"{postgres_url}&application_name=the-application"
    seen: list[list[str]] = []

    def look() -> list[str]:
        seen.append(
            [str(row[0]) for row in watcher.execute(f"SELECT state{SESSIONS} AND application_name = 'the-application'")]
        )
        return seen[-1]

    saver = PostgresSaver(url, max_size=3)
    face = Face(saver, colour)
    await fill(face, "t")
    work = [asyncio.ensure_future(fill(face, f"t{i}")) for i in range(30)]
    while len(look()) < 3:
        await asyncio.sleep(0.005)
    # Sessions that end and, where that is possible, calls that are given up.
    watcher.execute(f"SELECT pg_terminate_backend(pid, 5000) FROM (SELECT pid{SESSIONS} LIMIT 1) AS one")
    if colour == "async":
        for task in work[::5]:
            task.cancel()
    while not all(task.done() for task in work):
        look()
        await asyncio.sleep(0.005)
    results = await asyncio.gather(*work, return_exceptions=True)
    assert all(result is None or isinstance(result, asyncio.CancelledError) for result in results)
    assert max(map(len, seen)) == 3
    while set(look()) - {"idle"}:
        await asyncio.sleep(0.01)
    assert 1 <= len(look()) <= 3
    await (saver.aclose() if colour == "async" else asyncio.to_thread(saver.close))
    while look():
        await asyncio.sleep(0.01)


@pytest.mark.parametrize("colour", COLOURS)
async def test_calls_that_wait_too_long_for_the_pool_do_not_each_connect(postgres_url: str, colour: str) -> None:
    with proxied(postgres_url) as proxy:
        async with PostgresSaver(proxy.url, max_size=1, pool_timeout=0.5) as saver:
            face = Face(saver, colour)
            await fill(face, "t")
            before = proxy.connections
            with Database(Store("postgres", postgres_url)).locked() as unlock:
                waiting = [asyncio.ensure_future(put_one(face, "t")) for _ in range(6)]
                while sum(task.done() for task in waiting) < 5:
                    await asyncio.sleep(0.01)
                unlock()
            results = await asyncio.gather(*waiting, return_exceptions=True)
            assert sum(isinstance(result, StorageError) for result in results) == 5
            assert proxy.connections - before <= 1
