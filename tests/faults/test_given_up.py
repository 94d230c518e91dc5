"""What a caller has given up ends in the server, too, and is not done again."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from typing import Any

import psycopg
import pytest

from langgraph_checkpoint_custom import PostgresSaver, StorageError
from langgraph_checkpoint_custom.operations.sizes import sizes_of_store
from tests.behaviour.helpers import config
from tests.conftest import APIS
from tests.faults.workload import WAITING, elsewhere, fill, put_one, set_for_database, within_limit
from tests.proxy import proxied
from tests.stores import Client

CALLS: Mapping[str, Callable[[Client], Any]] = {
    "put": lambda client: put_one(client, "t"),
    "get_tuple": lambda client: client.get_tuple(config("t")),
    "prune": lambda client: client.prune(["t"]),
    "copy_thread": lambda client: client.copy_thread("t", "copy"),
    "count_threads": lambda client: client.do("count_threads"),
}


async def test_a_cancelled_call_ends_in_the_server(postgres_url: str, watcher: psycopg.Connection[Any]) -> None:
    """Nobody but the client tells the server; the connection is used again."""
    async with PostgresSaver(elsewhere(postgres_url), max_size=1) as saver:
        client = Client(saver, "async")
        await fill(client, "t")
        for name, call in CALLS.items():
            with psycopg.connect(postgres_url) as other:
                other.execute("LOCK TABLE langgraph_checkpoint.checkpoints IN ACCESS EXCLUSIVE MODE")
                task = asyncio.ensure_future(call(client))
                while not watcher.execute(WAITING).fetchall():
                    await asyncio.sleep(0.01)
                task.cancel()
                await asyncio.wait([task])
                assert task.cancelled()
                until = time.monotonic() + 120
                while watcher.execute(WAITING).fetchall():
                    assert time.monotonic() < until, f"{name} goes on in the server"
                other.rollback()
            assert len(await client.all(config("t"))) == 3


@pytest.mark.parametrize("api", APIS)
async def test_a_read_of_the_whole_store_is_not_repeated_after_a_statement_timeout(
    postgres_url: str, watcher: psycopg.Connection[Any], api: str
) -> None:
    async with PostgresSaver(postgres_url) as other:
        await fill(Client(other, api), "t")
    set_for_database(watcher, statement_timeout="200ms")
    with proxied(postgres_url) as proxy:
        async with PostgresSaver(proxy.url, max_size=1) as saver:
            client = Client(saver, api)
            await within_limit(lambda: client.get_tuple(config("t")))
            d, driver = saver.backend.dialect, saver.backend.driver

            async def stats() -> Any:
                op = sizes_of_store(d, 10)
                return await (driver.arun(op) if api == "async" else asyncio.to_thread(driver.run, op))

            reads: Mapping[str, Callable[[], Any]] = {
                "count_threads": lambda: client.do("count_threads"),
                "threads": lambda: client.collect("threads"),
                "list": lambda: client.all(None),
                "stats": stats,
            }
            with watcher.transaction():
                watcher.execute("LOCK TABLE langgraph_checkpoint.checkpoints IN ACCESS EXCLUSIVE MODE")
                for name, read in reads.items():
                    before = proxy.round_trips
                    with pytest.raises(StorageError, match="statement_timeout"):
                        await read()
                    assert proxy.round_trips - before == 1, name
            assert await within_limit(lambda: client.do("count_threads")) == 1
