"""Async calls on PostgreSQL that find no free connection are batched, and each of them returns its own result."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import partial
from typing import Any

import pytest
from langchain_core.runnables import RunnableConfig
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


async def read_in_one_batch(url: str, client: Client, configs: Sequence[RunnableConfig]) -> Sequence[Any]:
    """The checkpoints of configs, or the classes of errors, from one batch."""
    async with in_one_batch(
        url,
        lambda n: client.get_tuple(config("t", f"first {n}")),
        [partial(client.get_tuple, each) for each in configs],
    ) as calls:
        pass
    return [outcome(each) for each in calls[: len(configs)]]


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


async def test_readers_of_one_checkpoint_have_separate_objects(postgres_url: str) -> None:
    async with with_few(postgres_url) as saver:
        client = Client(saver, "async")
        old = await client.put(config("t"), a_checkpoint(1), generate_metadata(), NEW)
        new = await client.put(old, a_checkpoint(2), generate_metadata(), {"own": "2"})
        for configs in ([config("t")] * 3 + [config("missing")], [old, new, old, config("t", "none")]):
            async with in_one_batch(
                postgres_url,
                lambda n, configs=configs: client.get_tuple(configs[n]),  # type: ignore[misc]
                [partial(client.get_tuple, each) for each in configs],
            ) as calls:
                pass
            alone = [await client.get_tuple(each) for each in configs]
            assert [outcome(each) for each in calls[:4]] == alone
            assert (
                calls[0].result().checkpoint["channel_values"]["own"]
                is not calls[2].result().checkpoint["channel_values"]["own"]
            )


async def test_a_checkpoint_that_is_missing_gets_nothing_of_the_others(postgres_url: str) -> None:
    """Values in rows of their own have no checkpoint id in the reply."""
    large = a_checkpoint(1)
    large["channel_values"]["own"] = ["x" * 100_000]
    async with with_few(postgres_url) as saver:
        client = Client(saver, "async")
        there = await client.put(config("t"), large, generate_metadata(), NEW)
        configs = [config("t", "none"), there, config("t", "none")]
        found = await read_in_one_batch(postgres_url, client, configs)
        assert found[0] is found[2] is None
        assert found[1].checkpoint["channel_values"] == large["channel_values"]


async def test_a_checkpoint_without_large_values_is_read_with_one_that_has_some(postgres_url: str) -> None:
    """Large values of the namespace come with the reply, and the small checkpoint has pending writes."""
    large = a_checkpoint(2)
    large["channel_values"]["own"] = ["x" * 100_000]
    async with with_few(postgres_url) as saver:
        client = Client(saver, "async")
        small = await client.put(config("t"), a_checkpoint(1), generate_metadata(), NEW)
        await client.put_writes(small, [("a", 1)], "task", "path")
        there = await client.put(small, large, generate_metadata(), {"own": "2"})
        configs = [small, there, small]
        found = await read_in_one_batch(postgres_url, client, configs)
        assert found == [await client.get_tuple(each) for each in configs]


async def test_calls_of_a_tenant_are_batched_only_with_each_other(postgres_url: str) -> None:
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
            if autocommit:  # Otherwise each call also rolls back.
                assert proxy.round_trips - before < 100  # Of 120 calls.


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
