"""Through PgBouncer in transaction mode, where each transaction may run in another server session."""

from __future__ import annotations

import asyncio
import configparser
import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import psycopg
import pytest
from langgraph.checkpoint.conformance.test_utils import generate_checkpoint, generate_config, generate_metadata
from psycopg_pool import AsyncConnectionPool, ConnectionPool

from langgraph_checkpoint_custom import PostgresSaver, StorageError
from tests.conftest import APIS
from tests.faults.bouncer import bounced
from tests.stores import Client

SERVERS = 2
PREPARED = "SELECT statement FROM pg_prepared_statements"
# psycopg prepares a statement that a connection has sent five times.
STEPS = 8


@pytest.fixture
def bouncer_url(postgres_url: str) -> Iterator[str]:
    """The test's database through a PgBouncer that has two connections to it."""
    with bounced(postgres_url, servers=SERVERS) as url:
        yield url


@pytest.mark.parametrize("api", APIS)
async def test_the_configuration_in_the_documents_works(postgres_url: str, api: str) -> None:
    document = (Path(__file__).parents[2] / "docs" / "postgres.md").read_text("utf-8")
    (text,) = re.findall(r"^```ini\n(.*?)^```$", document, re.MULTILINE | re.DOTALL)
    parser = configparser.ConfigParser()
    parser.read_string(text)
    assert parser.sections() == ["databases", "pgbouncer"]
    with bounced(postgres_url, settings=parser["pgbouncer"]) as url:
        async with PostgresSaver(url) as saver, PostgresSaver(url) as other:
            saver_client = Client(saver, api)
            await asyncio.gather(*(run(saver_client, f"thread {i}") for i in range(10)))
            await run(Client(saver.for_tenant("acme"), api), "thread 1")
            assert sorted(thread.thread_id for thread in other.for_tenant("acme").threads()) == ["thread 1"]


async def run(saver_client: Client, thread_id: str, steps: int = STEPS) -> None:
    """A small run: each step stores a checkpoint and a write, and reads both."""
    config = generate_config(thread_id)
    for step in range(steps):
        value = [thread_id, step]
        version = saver_client.saver.get_next_version(None, None)
        checkpoint = generate_checkpoint(channel_values={"list": value}, channel_versions={"list": version})
        config = await saver_client.put(config, checkpoint, generate_metadata(step=step), {"list": version})
        await saver_client.put_writes(config, [("list", value), ("step", step)], f"task {step}")
        found = await saver_client.get_tuple(generate_config(thread_id))
        assert found is not None
        assert found.checkpoint == checkpoint
        assert found.metadata["step"] == step
        assert found.pending_writes == [(f"task {step}", "list", value), (f"task {step}", "step", step)]


def prepared_by_pgbouncer(bouncer_url: str) -> list[list[str]]:
    """The prepared statements of each of PgBouncer's server sessions; that many open transactions reach all of them."""
    with ExitStack() as stack:
        clients = [stack.enter_context(psycopg.connect(bouncer_url)) for _ in range(SERVERS)]
        found = [[str(row[0]) for row in client.execute(PREPARED, prepare=False)] for client in clients]
        pids = [client.execute("SELECT pg_backend_pid()", prepare=False).fetchone() for client in clients]
        assert len(set(pids)) == SERVERS
    return found


@pytest.mark.parametrize("api", APIS)
async def test_fifty_concurrent_runs_share_two_server_sessions(postgres_url: str, bouncer_url: str, api: str) -> None:
    with ThreadPoolExecutor(50) as workers:
        asyncio.get_running_loop().set_default_executor(workers)
        async with PostgresSaver(bouncer_url, max_size=50) as saver:
            saver_client = Client(saver, api)
            await asyncio.gather(*(run(saver_client, f"thread {i}", steps=4) for i in range(50)))
            for i in range(50):
                found = await saver_client.all(generate_config(f"thread {i}"))
                lists = [each.checkpoint["channel_values"]["list"] for each in found]
                assert lists == [[f"thread {i}", step] for step in reversed(range(4))]
    with psycopg.connect(postgres_url) as watcher:
        row = watcher.execute(
            "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()"
            " AND backend_type = 'client backend' AND pid <> pg_backend_pid()"
        ).fetchone()
    assert row == (SERVERS,)
    assert prepared_by_pgbouncer(bouncer_url) == [[], []]


@pytest.mark.parametrize("api", APIS)
async def test_statements_are_prepared_only_without_pgbouncer(postgres_url: str, bouncer_url: str, api: str) -> None:
    """Checked on the server: in every session of PgBouncer's, and then in the session of a direct connection."""
    async with PostgresSaver(bouncer_url, max_size=1) as saver:
        await run(Client(saver, api), "pooled")
    assert prepared_by_pgbouncer(bouncer_url) == [[], []]
    assert await prepared_on_a_pool(bouncer_url, api) == []
    assert prepared_by_pgbouncer(bouncer_url) == [[], []]
    assert len(await prepared_on_a_pool(postgres_url, api)) == 3  # put, put_writes and get_tuple.


async def prepared_on_a_pool(url: str, api: str) -> list[str]:
    """The statements that a run has prepared in the only session of a pool."""
    options: dict[str, Any] = {"kwargs": {"autocommit": True}, "min_size": 1, "max_size": 1}
    if api == "sync":
        with ConnectionPool(url, **options, open=True) as pool:
            await run(Client(PostgresSaver(pool), api), "thread of a pool")
            with pool.connection() as connection:
                return [str(row[0]) for row in connection.execute(PREPARED, prepare=False)]
    async with AsyncConnectionPool(url, **options, open=False) as async_pool:
        await run(Client(PostgresSaver(async_pool), api), "thread of a pool")
        async with async_pool.connection() as async_connection:
            return [str(row[0]) async for row in await async_connection.execute(PREPARED, prepare=False)]


async def run_in_turn(bouncer_url: str, api: str, *, prepare: bool | None) -> None:
    """Two clients that use one server session, one after the other."""
    async with (
        PostgresSaver(bouncer_url, max_size=1, prepare=prepare) as first,
        PostgresSaver(bouncer_url, max_size=1, prepare=prepare) as second,
    ):
        for i in range(3):
            await run(Client(first, api), f"first {prepare} {i}")
            await run(Client(second, api), f"second {prepare} {i}")


@pytest.mark.parametrize("api", APIS)
async def test_forced_prepared_statements_fail_through_pgbouncer(bouncer_url: str, api: str) -> None:
    """Each client numbers its prepared statements, and finds those of the other one: the hazard is real."""
    await run_in_turn(bouncer_url, api, prepare=None)
    with pytest.raises(StorageError, match="prepared statement") as caught:
        await run_in_turn(bouncer_url, api, prepare=True)
    assert caught.value.sqlstate in ("42P05", "26000")  # It exists already, or it does not exist.
