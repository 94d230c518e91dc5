"""Transactions that conflict with others: the operation is retried."""

from __future__ import annotations

import asyncio
import itertools
from typing import Any

import psycopg
import pytest

from langgraph_checkpoint_custom import PostgresSaver
from tests.behaviour.helpers import config
from tests.conftest import APIS
from tests.faults.faulty import faulty
from tests.faults.workload import OPERATIONS, WAITING, Call, fill, put_one
from tests.stores import Client

FAILS_ONCE = """
SET search_path = langgraph_checkpoint;
CREATE SEQUENCE failures;
SELECT setval('failures', 2);
CREATE FUNCTION fail_once() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF nextval('langgraph_checkpoint.failures') = 1 THEN
        RAISE EXCEPTION 'could not serialize access' USING ERRCODE = '40001';
    END IF;
    RETURN NULL;
END $$;
CREATE TRIGGER fails_once BEFORE INSERT OR UPDATE OR DELETE ON checkpoints EXECUTE FUNCTION fail_once();
CREATE TRIGGER fails_once BEFORE INSERT OR UPDATE OR DELETE ON writes EXECUTE FUNCTION fail_once();
"""


@pytest.mark.parametrize("api", APIS)
async def test_a_serialization_failure_is_retried(own_postgres_url: str, api: str) -> None:
    """The server raises it for the first change of each operation, as for a transaction that conflicts with another."""
    calls: dict[str, Call] = {
        **OPERATIONS,
        "put": lambda client, thread_id: put_one(client, thread_id, "checkpoint 2"),
        "put_writes": lambda client, thread_id: client.put_writes(
            config(thread_id, "checkpoint 2"), [("__interrupt__", "another")], "task 2"
        ),
    }
    with faulty(own_postgres_url) as proxy, psycopg.connect(own_postgres_url, autocommit=True) as owner:
        owner.execute(FAILS_ONCE)
        async with PostgresSaver(proxy.url, max_size=1) as saver:
            client = Client(saver, api)
            for name, call in calls.items():
                await fill(client, name)
                await client.put_writes(config(name, "checkpoint 2"), [("__interrupt__", "one")], "task 2")
                owner.execute("SELECT setval('langgraph_checkpoint.failures', 1, false)")
                round_trips = proxy.round_trips
                await asyncio.wait_for(call(client, name), 150)
                assert proxy.round_trips - round_trips >= 2, name
                assert owner.execute("SELECT last_value > 1 FROM langgraph_checkpoint.failures").fetchone() == (True,)


@pytest.mark.parametrize("api", APIS)
async def test_a_deadlock_is_retried(postgres_url: str, watcher: psycopg.Connection[Any], api: str) -> None:
    """The operation has locked the checkpoints and waits for a blob, whose owner wants the checkpoints."""
    with faulty(postgres_url) as proxy:
        async with PostgresSaver(proxy.url, max_size=1) as saver:
            client = Client(saver, api)
            for i in itertools.count():
                await fill(client, f"t{i}")
                round_trips = proxy.round_trips
                try:
                    with psycopg.connect(postgres_url) as other:
                        other.execute("SET search_path = langgraph_checkpoint")
                        other.execute("UPDATE blobs SET type = type WHERE thread_id = %s", [f"t{i}"])
                        waiting = asyncio.ensure_future(client.delete_thread(f"t{i}"))
                        while not watcher.execute(WAITING).fetchall():
                            await asyncio.sleep(0.01)
                        await asyncio.to_thread(
                            other.execute, "UPDATE checkpoints SET format = format WHERE thread_id = %s", [f"t{i}"]
                        )
                except psycopg.errors.DeadlockDetected:
                    # The server looks for a deadlock a second after a wait has begun. This wait began later than that.
                    await waiting
                    continue
                await asyncio.wait_for(waiting, 150)
                assert proxy.round_trips - round_trips >= 2
                assert await client.get_tuple(config(f"t{i}")) is None
                break
