"""Concurrent calls on PostgreSQL are batched, and each of them returns its own result."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

import psycopg
import pytest
from langgraph.checkpoint.base import Checkpoint
from langgraph.checkpoint.conformance.test_utils import generate_checkpoint, generate_metadata
from psycopg_pool import AsyncConnectionPool, ConnectionPool

from langgraph_checkpoint_custom import PostgresSaver
from langgraph_checkpoint_custom.engine.batching import BATCH_BYTES, BATCHES
from tests.behaviour.helpers import config
from tests.conftest import APIS
from tests.drivers.batches import (
    NEW,
    ODD,
    WAITING,
    a_checkpoint,
    a_life,
    in_one_batch,
    jammed,
    outcome,
)
from tests.proxy import proxied
from tests.stores import Client

pytestmark = pytest.mark.usefixtures("room_for_many")


@pytest.mark.parametrize("api", APIS)
async def test_many_concurrent_threads_are_stored_and_read_in_few_round_trips(postgres_url: str, api: str) -> None:
    with proxied(postgres_url) as proxy:
        async with PostgresSaver(proxy.url) as saver:
            client = Client(saver, api)
            await a_life(client, "first")
            before = proxy.round_trips
            await asyncio.gather(*(a_life(client, f"t{number}") for number in range(60)))
            # Of 360 calls. A new session takes a few round trips. OS threads arrive one after the other, and so do
            # tasks on a busy machine.
            assert proxy.round_trips - before < (200 if api == "async" else 300)


@pytest.mark.parametrize("api", APIS)
async def test_names_with_any_characters_are_read(postgres_url: str, api: str) -> None:
    async with PostgresSaver(postgres_url) as saver:
        client = Client(saver, api)
        values = {name: [name] for name in ODD}
        parent = generate_checkpoint(channel_values=dict(values), channel_versions={name: f"v{name}" for name in ODD})
        child = generate_checkpoint(channel_values=dict(values), channel_versions={name: f"v{name}" for name in ODD})

        def put(thread: str, checkpoint: Checkpoint, before: Any, versions: Any) -> Callable[[], Awaitable[Any]]:
            return lambda: client.put(before, checkpoint, generate_metadata(), versions)

        threads = [f"t{name}" for name in ODD]
        async with in_one_batch(
            client,
            postgres_url,
            lambda n: client.put(config(f"first {n}"), a_checkpoint(1), {}, NEW),
            [put(thread, parent, config(thread), parent["channel_versions"]) for thread in threads],
        ) as parents:
            pass
        async with in_one_batch(
            client,
            postgres_url,
            lambda n: client.put(config(f"first {n}"), a_checkpoint(1), {}, NEW),
            [put(thread, child, one.result(), {}) for thread, one in zip(threads, parents, strict=False)],
        ) as children:
            pass
        for each in children[: len(threads)]:
            found = await client.get_tuple(outcome(each))
            assert found is not None
            assert found.checkpoint == child


@pytest.mark.parametrize("api", APIS)
async def test_writes_of_one_task_keep_their_order(postgres_url: str, api: str) -> None:
    """A regular write keeps the first value, a special one the last."""
    async with PostgresSaver(postgres_url) as saver:
        client = Client(saver, api)
        location = await client.put(config("t"), a_checkpoint(1), generate_metadata(), NEW)
        async with in_one_batch(
            client,
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


@pytest.mark.parametrize("api", APIS)
async def test_concurrent_puts_in_one_namespace_are_all_stored(postgres_url: str, api: str) -> None:
    """The same twice, two with one parent, and one whose parent is being stored; all have one value in common."""
    async with PostgresSaver(postgres_url) as saver:
        client = Client(saver, api)
        parent, child, other = a_checkpoint(1), a_checkpoint(2), a_checkpoint(3)
        child_of = config("t", parent["id"])
        async with in_one_batch(
            client,
            postgres_url,
            lambda n: client.put(config(f"first {n}"), a_checkpoint(1), {}, NEW),
            [
                lambda: client.put(config("t"), parent, generate_metadata(), NEW),
                lambda: client.put(child_of, child, generate_metadata(), {"own": "2"}),
                lambda: client.put(child_of, other, generate_metadata(), {"own": "3"}),
                lambda: client.put(child_of, child, generate_metadata(again=True), {"own": "2"}),
            ],
        ) as calls:
            pass
        assert [outcome(each) for each in calls[:4]] == [
            config("t", each["id"]) for each in (parent, child, other, child)
        ]
        found = {each.checkpoint["id"]: each for each in await client.all(config("t"))}
        assert {checkpoint["id"]: checkpoint for checkpoint in (parent, child, other)} == {
            checkpoint_id: each.checkpoint for checkpoint_id, each in found.items()
        }


@pytest.mark.parametrize("api", APIS)
async def test_readers_of_one_checkpoint_have_separate_objects(postgres_url: str, api: str) -> None:
    async with PostgresSaver(postgres_url) as saver:
        client = Client(saver, api)
        old = await client.put(config("t"), a_checkpoint(1), generate_metadata(), NEW)
        new = await client.put(old, a_checkpoint(2), generate_metadata(), {"own": "2"})
        for configs in ([config("t")] * 3 + [config("missing")], [old, new, old, config("t", "none")]):
            async with in_one_batch(
                client,
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


def test_several_loops_and_os_threads_run_concurrently(postgres_url: str) -> None:
    with PostgresSaver(postgres_url) as saver:
        failures: list[BaseException] = []

        def run(name: str, api: str) -> None:
            async def lives() -> None:
                await asyncio.gather(*(a_life(Client(saver, api), f"{name} {number}") for number in range(10)))

            try:
                asyncio.run(lives())
            except BaseException as error:
                failures.append(error)

        threads = [threading.Thread(target=run, args=(f"{api} {number}", api)) for number in range(3) for api in APIS]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert failures == []


@pytest.mark.parametrize("api", APIS)
async def test_calls_of_a_tenant_are_batched_only_with_each_other(postgres_url: str, api: str) -> None:
    async with PostgresSaver(postgres_url) as saver:
        clients = [Client(each, api) for each in (saver, saver.for_tenant("a"), saver.for_tenant("b"))]
        await asyncio.gather(*(a_life(client, f"t{number}") for client in clients for number in range(12)))
        for client in clients:
            assert len(await client.all(None)) == 24


@pytest.mark.parametrize("api", APIS)
async def test_large_values_are_sent_separately(postgres_url: str, api: str) -> None:
    async with PostgresSaver(postgres_url) as saver:
        client = Client(saver, api)
        await client.get_tuple(config("t"))
        big = bytes(range(256)) * (BATCH_BYTES // 256) + b"!"
        with jammed(postgres_url) as blocker, psycopg.connect(postgres_url, autocommit=True) as watcher:
            calls = [
                asyncio.ensure_future(client.put_writes(config(f"t{number}", "id"), [("a", big * 8)], "task"))
                for number in range(BATCHES + 2)
            ]
            while len(watcher.execute(WAITING).fetchall()) < BATCHES + 2:
                await asyncio.sleep(0.005)
            blocker.rollback()
        await asyncio.gather(*calls)


@pytest.mark.parametrize("api", APIS)
@pytest.mark.parametrize("autocommit", [True, False])
async def test_calls_on_a_callers_pool_are_batched_too(postgres_url: str, api: str, autocommit: bool) -> None:
    kwargs = {"autocommit": autocommit}
    if api == "sync":
        with ConnectionPool(postgres_url, kwargs=kwargs, max_size=4, open=True) as pool:
            client = Client(PostgresSaver(pool), api)
            await asyncio.gather(*(a_life(client, f"t{number}") for number in range(20)))
    else:
        async with AsyncConnectionPool(postgres_url, kwargs=kwargs, max_size=4, open=False) as apool:
            client = Client(PostgresSaver(apool), api)
            await asyncio.gather(*(a_life(client, f"t{number}") for number in range(20)))
