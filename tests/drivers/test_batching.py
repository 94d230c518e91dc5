"""Async calls on PostgreSQL beyond the few that are underway are batched, and each of them returns its own result."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Any

import pytest
from langgraph.checkpoint.conformance.test_utils import generate_metadata
from psycopg_pool import AsyncConnectionPool

from langgraph_checkpoint_custom import PostgresSaver
from tests.behaviour.helpers import config
from tests.drivers.batches import (
    NEW,
    a_checkpoint,
    a_life,
    in_one_batch,
    outcome,
    with_few,
)
from tests.proxy import proxied
from tests.stores import Client


async def test_many_concurrent_threads_are_stored_and_read_in_few_round_trips(postgres_url: str) -> None:
    with proxied(postgres_url) as proxy:
        async with PostgresSaver(proxy.url) as saver:
            client = Client(saver, "async")
            await a_life(client, "first")
            before = proxy.round_trips
            await asyncio.gather(*(a_life(client, f"t{number}") for number in range(60)))
            # Of 360 calls. A new session takes a few round trips. On a busy machine tasks arrive one after the other.
            assert proxy.round_trips - before < 250


async def test_writes_of_one_task_keep_their_order(postgres_url: str) -> None:
    """A regular write keeps the first value, a special one the last."""
    async with with_few(postgres_url) as saver:
        client = Client(saver, "async")
        location = await client.put(config("t"), a_checkpoint(1), generate_metadata(), NEW)
        async with in_one_batch(
            postgres_url,
            lambda n: client.put_writes(config(f"first {n}", "id"), [("a", 1)], "task"),
            [
                partial(client.put_writes, location, [("a", number), ("__error__", number)], "task")
                for number in range(5)
            ],
        ) as calls:
            pass
        assert [outcome(each) for each in calls[:5]] == [None] * 5
        found = await client.get_tuple(location)
        assert found is not None
        assert found.pending_writes is not None
        values = {channel: value for _, channel, value in found.pending_writes}
        assert values["a"] == 0
        assert values["__error__"] == 4


async def test_each_reader_of_a_batch_gets_its_own_checkpoint_and_its_own_objects(postgres_url: str) -> None:
    """Large values come for the namespace, in rows without a checkpoint id. The small checkpoint has a write."""
    large = a_checkpoint(3)
    large["channel_values"]["own"] = ["x" * 100_000]
    async with with_few(postgres_url) as saver:
        client = Client(saver, "async")
        old = await client.put(config("t"), a_checkpoint(1), generate_metadata(), NEW)
        await client.put_writes(old, [("a", 1)], "task", "path")
        new = await client.put(old, a_checkpoint(2), generate_metadata(), {"own": "2"})
        there = await client.put(new, large, generate_metadata(), {"own": "3"})
        missing = config("t", "none")
        for configs in (
            [*[config("t")] * 3, config("missing")],
            [old, new, old, missing],
            [missing, there, missing],
            [old, there, old],
        ):
            async with in_one_batch(
                postgres_url,
                lambda n, configs=configs: client.get_tuple(configs[n]),  # type: ignore[misc]
                [partial(client.get_tuple, each) for each in configs],
            ) as calls:
                pass
            found = [outcome(each) for each in calls[: len(configs)]]
            assert found == [await client.get_tuple(each) for each in configs]
            values = [each.checkpoint["channel_values"]["own"] for each in found if each is not None]
            assert len(set(map(id, values))) == len(values)


async def test_calls_of_a_tenant_are_not_batched_with_those_of_others(postgres_url: str) -> None:
    async with PostgresSaver(postgres_url) as saver:
        clients = [Client(each, "async") for each in (saver, saver.for_tenant("a"), saver.for_tenant("b"))]
        await asyncio.gather(*(a_life(client, f"t{number}") for client in clients for number in range(12)))
        for client in clients:
            assert len(await client.all(None)) == 24


@pytest.mark.parametrize("autocommit", [True, False])
async def test_calls_on_a_callers_pool_are_batched_too(postgres_url: str, autocommit: bool) -> None:
    kwargs = {"autocommit": autocommit}
    with proxied(postgres_url) as proxy:
        async with AsyncConnectionPool(proxy.url, kwargs=kwargs, min_size=1, max_size=2, open=False) as pool:
            client = Client(PostgresSaver(pool), "async")
            await a_life(client, "first")
            before = proxy.round_trips
            await asyncio.gather(*(a_life(client, f"t{number}") for number in range(20)))
            # Of 120 calls; without autocommit, each also rolls back.
            assert proxy.round_trips - before < (100 if autocommit else 200)


RESUME = "__resume__"


async def resumed(client: Client, thread_id: str) -> Any:
    """The value of the RESUME write of a thread."""
    found = await client.get_tuple(config(thread_id))
    assert found is not None
    (value,) = [value for _, channel, value in found.pending_writes or () if channel == RESUME]
    return value


async def test_a_write_that_waits_in_a_batch_is_not_overtaken_by_a_later_one(postgres_url: str) -> None:
    """Of two RESUME writes of a task the later one remains, also if it finds a free connection."""
    async with with_few(postgres_url) as saver:
        client = Client(saver, "async")
        location = await client.put(config("t"), a_checkpoint(1), generate_metadata(), NEW)
        late: list[asyncio.Future[Any]] = []
        async with in_one_batch(
            postgres_url,
            lambda n: client.put_writes(config(f"first {n}", "id"), [("a", 1)], "task"),
            [partial(client.put_writes, location, [(RESUME, "early")], "task")],
        ) as (early, *first):
            for each in first:  # When the first one returns its connection, the early call still waits for it.
                each.add_done_callback(
                    lambda _: late.append(
                        asyncio.ensure_future(client.put_writes(location, [(RESUME, f"late {len(late)}")], "task"))
                    )
                )
        await asyncio.gather(early, *late)
        assert len(late) == len(first)
        assert await resumed(client, "t") == f"late {len(late) - 1}"
