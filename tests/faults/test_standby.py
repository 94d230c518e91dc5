"""A hot standby: it can be read, refuses writes with a clear error, and accepts them once it is the primary."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from langgraph_checkpoint_custom import PostgresSaver, StorageError
from tests.behaviour.helpers import config
from tests.conftest import APIS
from tests.faults.cluster import Cluster, running_cluster, running_standby
from tests.faults.workload import OPERATIONS, fill, read, rows
from tests.stores import Client


@pytest.fixture(scope="module")
def primary(postgres_programs: None) -> Iterator[Cluster]:
    """A server with the tables in it."""
    with running_cluster() as cluster:
        with PostgresSaver(cluster.url()) as saver:
            saver.setup()
        yield cluster


@pytest.fixture
def standby(primary: Cluster) -> Iterator[Cluster]:
    with running_standby(primary) as cluster:
        yield cluster


def follow(primary: psycopg.Connection[Any], standby: psycopg.Connection[Any]) -> None:
    """Wait until a standby has everything that its primary has."""
    position = primary.execute("SELECT pg_current_wal_insert_lsn()").fetchone()
    assert position is not None
    while standby.execute("SELECT pg_last_wal_replay_lsn() >= %s", position).fetchone() != (True,):
        time.sleep(0.01)  # Nothing announces that a standby has replayed.


@pytest.mark.parametrize("api", APIS)
async def test_a_standby_can_be_read_and_refuses_writes_with_a_clear_error(
    primary: Cluster, standby: Cluster, api: str
) -> None:
    thread_id = f"thread of {api}"
    with psycopg.connect(primary.url(), autocommit=True) as first, psycopg.connect(standby.url()) as second:
        second.autocommit = True
        assert second.execute("SELECT pg_is_in_recovery()").fetchone() == (True,)
        async with PostgresSaver(primary.url()) as saver, PostgresSaver(standby.url()) as copy:
            client, copy_client = Client(saver, api), Client(copy, api)
            await fill(client, thread_id)
            follow(first, second)
            before = rows(second)
            assert await read(copy_client, thread_id) == await read(client, thread_id)
            for name, call in OPERATIONS.items():
                with pytest.raises(StorageError, match="read-only; give the address of the primary") as caught:
                    await call(copy_client, thread_id)
                assert caught.value.sqlstate == "25006"
                assert caught.value.operation.startswith(name)
            assert rows(second) == before
            assert await read(copy_client, thread_id) == await read(client, thread_id)
            # A program that calls setup() when it starts may be given a standby to read from.
            await (copy.asetup() if api == "async" else asyncio.to_thread(copy.setup))
            with (
                PostgresSaver(standby.url(), schema="another") as another,
                pytest.raises(StorageError, match="read-only; give the address of the primary"),
            ):
                another.setup()

            # The reads see what the standby replicates, and writes go to it once it is the primary.
            await client.put_writes(config(thread_id, "checkpoint 2"), [("more", 1)], "task 9")
            follow(first, second)
            expected = await read(client, thread_id)
            assert await read(copy_client, thread_id) == expected
            await asyncio.to_thread(standby.run, "pg_ctl", "promote", "-w", "-D", str(standby.data))
            for call in OPERATIONS.values():
                await call(copy_client, thread_id)
            assert await copy_client.get_tuple(config(thread_id)) is None
            assert await read(client, thread_id) == expected
