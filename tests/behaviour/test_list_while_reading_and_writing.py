"""While the body of a `list` loop runs, nothing is held: the body may read, write, delete, or stop the loop."""

from __future__ import annotations

from contextlib import closing

import pytest

from langgraph_checkpoint_custom import CheckpointSaver
from langgraph_checkpoint_custom.saver import PAGE
from tests.behaviour.helpers import Database, NextId, config, ids_of, metadata, next_uuid, put, put_chain
from tests.stores import Client


@pytest.fixture
def saver(one_connection: CheckpointSaver) -> CheckpointSaver:
    """A request for a second connection would wait forever."""
    return one_connection


def is_idle(database: Database) -> bool:
    """Whether no connection has a transaction or a lock."""
    if database.kind == "sqlite":
        with closing(database.connect()) as connection:
            connection.execute("PRAGMA busy_timeout = 0")
            # A reader inside a statement would make this "busy", as a writer would.
            busy = connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0]
            return bool(busy == 0)
    states = database.run(
        "SELECT state FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
        " AND backend_type = 'client backend'"
    )
    return {state for (state,) in states} == {"idle"}


async def test_nothing_is_held_in_the_body(client: Client, database: Database) -> None:
    await put_chain(client, next_uuid, 3)
    async for _ in client.list(config()):
        assert is_idle(database)


async def test_the_body_may_write_newer_checkpoints(client: Client, next_id: NextId) -> None:
    """They are newer than the current position of the loop, so it does not return them."""
    ids = ids_of(await put_chain(client, next_id, PAGE + 3))
    seen = []
    async for found in client.list(config()):
        seen.append(found)
        where = await put(client, next_id(), {"a": [1]}, parent=found.config)
        await client.put_writes(where, [("a", 1)], "task")
    assert ids_of(seen) == ids[::-1]
    assert len(await client.all(config())) == 2 * len(ids)


async def test_the_body_may_delete_checkpoints_that_the_loop_has_returned(client: Client) -> None:
    for number in range(PAGE + 3):
        await put(client, next_uuid(), thread_id=f"t {number}", meta=metadata(number))
    seen = []
    async for found in client.list(None):
        seen.append(found.metadata["step"])
        await client.delete_thread(found.config["configurable"]["thread_id"])
    assert seen == list(range(PAGE + 3))[::-1]
    assert await client.all(None) == []


async def test_the_body_may_prune_the_listed_thread(client: Client, next_id: NextId) -> None:
    """Checkpoints deleted before their page is read are not returned; each returned checkpoint is complete."""
    ids = ids_of(await put_chain(client, next_id, 2 * PAGE, values={"a": [1]}))
    seen = []
    async for found in client.list(config()):
        seen.append(found)
        if len(seen) == 1:
            await client.prune(["thread"])
    assert ids_of(seen) == ids[: PAGE - 1 : -1]
    assert all(found.checkpoint["channel_values"] == {"a": [1]} for found in seen)


async def test_loops_may_be_nested(client: Client) -> None:
    await put_chain(client, next_uuid, 4)
    pairs = [
        (one.metadata["step"], two.metadata["step"])
        async for one in client.list(config())
        async for two in client.list(config())
    ]
    assert pairs == [(one, two) for one in (3, 2, 1, 0) for two in (3, 2, 1, 0)]


async def test_an_iterator_may_be_abandoned(client: Client, database: Database) -> None:
    await put_chain(client, next_uuid, PAGE + 3)
    abandoned = []
    for _ in range(5):
        iterator = client.list(config())
        await anext(iterator)
        abandoned.append(iterator)
    assert is_idle(database)
    await put(client, next_uuid())
    assert len(await client.all(config())) == PAGE + 4


async def test_an_iterator_may_be_closed_or_broken_out_of(client: Client) -> None:
    await put_chain(client, next_uuid, 3)
    async for _ in client.list(config()):
        break

    async def fail() -> None:
        async for _ in client.list(config()):
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await fail()
    assert len(await client.all(config())) == 3
