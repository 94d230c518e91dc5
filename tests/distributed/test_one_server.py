"""The statements for distributed tables, on one server: they are PostgreSQL's.

Without a cluster, these tests show that they store and read the same, in all kinds of sessions. A saver uses them here
because the table of checkpoints has a trigger like that of Citus.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from langgraph.checkpoint.conformance.test_utils import generate_checkpoint, generate_config, generate_metadata
from psycopg_pool import AsyncConnectionPool, ConnectionPool

from langgraph_checkpoint_custom import (
    CheckpointConflict,
    CheckpointNotFound,
    ClaimLost,
    PostgresSaver,
    StorageError,
    ThreadExists,
)
from langgraph_checkpoint_custom.sql.postgres_dialect import PostgresDialect
from tests.conftest import APIS
from tests.invariants import check_invariants
from tests.stores import Client, Store

LARGE = "x" * 5_000
LONG = [{"number": number, "text": f"{number} " * 50} for number in range(200)]  # In chunks.


@pytest.fixture
def url(own_postgres_url: str, is_citus: bool) -> Iterator[str]:
    if is_citus:
        pytest.skip("the other tests run on distributed tables")
    with psycopg.connect(own_postgres_url, autocommit=True) as server:
        server.execute(
            "CREATE FUNCTION citus_truncate_trigger() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END';"
            "CREATE TRIGGER truncated AFTER TRUNCATE ON langgraph_checkpoint.checkpoints"
            " EXECUTE FUNCTION citus_truncate_trigger()"
        )
    yield own_postgres_url
    check_invariants(Store("postgres", own_postgres_url))


def test_no_statement_is_chosen_before_it_is_known_how_the_tables_are_laid_out(url: str) -> None:
    with PostgresSaver(url) as saver:
        before = saver.backend.dialect.sends_forms
        assert saver.get_tuple(generate_config("thread")) is None
        assert (before, saver.backend.dialect.sends_forms) == (False, False)
        assert saver.backend.dialect.layout == "citus"


async def steps(client: Client, thread_id: str, values: list[Any]) -> list[Any]:
    """Store the values one after the other, with a write each, and read each in both ways."""
    where, stored = generate_config(thread_id), []
    for number, value in enumerate(values):
        checkpoint = generate_checkpoint(
            channel_values={"value": value, "kept": LARGE}, channel_versions={"value": f"{number}", "kept": "0"}
        )
        new: dict[str, Any] = {"value": f"{number}"} if number else {"value": "0", "kept": "0"}
        where = await client.put(where, checkpoint, generate_metadata(step=number), new)
        await client.put_writes(where, [("value", value), *[("log", each) for each in range(number)]], "task")
        for config in (where, generate_config(thread_id)):
            found = await client.get_tuple(config)
            assert found is not None
            assert found.checkpoint == checkpoint
            assert found.pending_writes == [
                ("task", "value", value),
                *[("task", "log", each) for each in range(number)],
            ]
        stored.append(where)
    return stored


# How often psycopg sends a statement before it prepares it.
THRESHOLD = 5
VALUES = [
    1,
    LARGE,
    LONG,
    [*LONG, {"number": 200}],
    None,
    "small",
    *[LARGE + str(number) for number in range(THRESHOLD)],
]


@pytest.mark.parametrize("api", APIS)
async def test_everything_is_read_as_it_was_stored(url: str, api: str) -> None:
    async with PostgresSaver(url, max_size=1) as saver:
        client = Client(saver, api)
        for thread_id in ("one", "another"):
            await steps(client, thread_id, VALUES)
        assert saver.backend.dialect.layout == "citus"
        tenant = Client(saver.for_tenant("tenant"), api)
        await steps(tenant, "one", VALUES[:3])
        assert len(await tenant.all(generate_config("one"))) == 3


@pytest.mark.parametrize("source", ["ConnectionPool", "AsyncConnectionPool", "Connection", "transaction"])
async def test_it_is_in_callers_sessions(url: str, source: str) -> None:
    if source == "AsyncConnectionPool":
        async with AsyncConnectionPool(url, min_size=1, max_size=1, open=False) as pool:
            await steps(Client(PostgresSaver(pool), "async"), "thread", VALUES)
        return
    if source == "ConnectionPool":
        with ConnectionPool(url, min_size=1, max_size=1, open=True) as pool:
            await steps(Client(PostgresSaver(pool), "sync"), "thread", VALUES)
        return
    with psycopg.connect(url, autocommit=source == "Connection") as connection:
        saver = PostgresSaver(connection)
        await steps(Client(saver, "sync"), "thread", VALUES)
        saver.copy_thread("thread", "copy")
        saver.fork_thread("thread", "fork")
        assert len(list(saver.list(generate_config("copy")))) == len(VALUES)


@pytest.mark.parametrize("api", APIS)
async def test_a_refused_call_stores_nothing_and_the_session_goes_on(url: str, api: str) -> None:
    async with (
        PostgresSaver(url, max_size=1) as saver,
        PostgresSaver(url, max_size=1, concurrent_writers="reject") as rejecting,
    ):
        client = Client(saver, api)
        (first,) = await steps(client, "thread", [LARGE])
        # In this context, and not in that of a worker: a run has its own.
        _ = (
            rejecting.get_tuple(generate_config("thread"))
            if api == "sync"
            else await rejecting.aget_tuple(generate_config("thread"))
        )
        checkpoint = generate_checkpoint(channel_values={"value": LONG}, channel_versions={"value": "8"})
        second = await client.put(first, checkpoint, generate_metadata(), {"value": "8"})
        checkpoint = generate_checkpoint(channel_values={"value": LARGE}, channel_versions={"value": "9"})
        with saver.claim("thread") as lease:
            late: Any = {"configurable": {**lease.config["configurable"], **second["configurable"]}}
        for _ in range(2 * THRESHOLD):
            with pytest.raises(CheckpointConflict):
                await Client(rejecting, api).put(first, checkpoint, generate_metadata(), {"value": "9"})
            with pytest.raises(ClaimLost):
                await client.put(late, checkpoint, generate_metadata(), {"value": "9"})
            with pytest.raises(ClaimLost):
                await client.put_writes(late, [("value", 1)], "late")
        assert len(await client.all(generate_config("thread"))) == 2
        await steps(client, "other", [LARGE])


@pytest.mark.parametrize("api", APIS)
async def test_copies_and_forks(url: str, api: str) -> None:
    async with PostgresSaver(url, max_size=1) as saver:
        client = Client(saver, api)
        stored = await steps(client, "thread", VALUES)
        await client.do("label", stored[1], "here")
        for _ in range(2):
            await client.do("copy_thread", "thread", "copy")
        copies = await client.all(generate_config("copy"))
        assert [each.checkpoint for each in copies] == [
            each.checkpoint for each in await client.all(generate_config("thread"))
        ]
        fork = await client.do(
            "fork_thread", "thread", "fork", checkpoint_id=stored[2]["configurable"]["checkpoint_id"]
        )
        found = await client.get_tuple(fork)
        assert found is not None
        assert found.checkpoint["channel_values"]["value"] == LONG
        with pytest.raises(ThreadExists):
            await client.do("copy_thread", "thread", "fork")
        with pytest.raises(CheckpointNotFound):
            await client.do("fork_thread", "nothing", "elsewhere")


def test_what_a_statement_stores_is_returned_without_a_query(dialect: PostgresDialect) -> None:
    """Citus refuses INSERT, UPDATE or DELETE with a query after RETURNING; tests/behaviour/test_labels.py found it."""
    texts = {name: text.rpartition("RETURNING")[2] for name, text in dialect._texts.items() if "RETURNING" in text}
    assert "label_checkpoint" in texts
    asking = [name for name, returned in texts.items() if "SELECT" in returned and "WITH" not in dialect._texts[name]]
    assert asking == []


async def test_many_tasks_and_deletions_at_once(url: str) -> None:
    async with PostgresSaver(url, max_size=4) as saver:
        client = Client(saver, "async")

        async def run(number: int) -> None:
            await steps(client, f"thread {number}", [LARGE, LONG, 1])
            await saver.acopy_thread(f"thread {number}", f"copy {number}")
            await saver.aprune([f"copy {number}"])
            await saver.adelete_thread(f"thread {number}")

        await asyncio.gather(*map(run, range(20)))
        for number in range(20):
            assert await saver.aget_tuple(generate_config(f"thread {number}")) is None
            assert len(await client.all(generate_config(f"copy {number}"))) == 1


async def test_an_error_of_the_server_rolls_back_everything(url: str) -> None:
    with psycopg.connect(url, autocommit=True) as server:
        server.execute("ALTER TABLE langgraph_checkpoint.checkpoints ADD CONSTRAINT no CHECK (thread_id <> 'no')")
    with PostgresSaver(url, max_size=1) as saver:
        client = Client(saver, "sync")
        for _ in range(THRESHOLD + 2):
            with pytest.raises(StorageError, match="check constraint"):
                await steps(client, "no", [LARGE])
            await steps(client, "yes", [LARGE])
