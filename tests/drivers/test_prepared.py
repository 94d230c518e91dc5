"""Statements that psycopg has prepared, and the texts in them."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest
from langgraph.checkpoint.conformance.test_utils import generate_checkpoint, generate_config, generate_metadata
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer

from langgraph_checkpoint_custom import PostgresSaver, StorageError
from tests.conftest import APIS
from tests.stores import Client

CALLS = 11  # Of each type, so that the last ones are prepared: psycopg prepares after five uses.


class Odd(JsonPlusSerializer):
    """Returns a type with a NUL character for one value, and for a document that contains it."""

    def dumps_typed(self, obj: Any) -> tuple[str, bytes]:
        kind, data = super().dumps_typed(obj)
        return (f"{kind}\0odd" if b"odd" in data else kind), data


async def calls(client: Client, thread_id: str, value: Any, times: int) -> None:
    """Store and read a value and a pending write, several times."""
    config = generate_config(thread_id)
    for number in range(times):
        version = f"{number}, {value}"
        checkpoint = generate_checkpoint(channel_values={"a": value}, channel_versions={"a": version})
        config = await client.put(config, checkpoint, generate_metadata(), {"a": version})
        await client.put_writes(config, [("a", value)], f"task {number}")
        found = await client.get_tuple(generate_config(thread_id))
        assert found is not None
        assert found.checkpoint == checkpoint
        assert found.pending_writes == [(f"task {number}", "a", value)]


@pytest.mark.parametrize("api", APIS)
async def test_a_nul_character_is_refused_and_never_cut_off(postgres_url: str, api: str) -> None:
    async with PostgresSaver(postgres_url, min_size=1, max_size=1, serde=Odd()) as saver:
        client = Client(saver, api)
        for number in range(2 * CALLS):
            await calls(client, "t", [number], 1)
        before = await client.all(generate_config("t"))
        with pytest.raises(StorageError, match="NUL"):
            await calls(client, "t", ["odd"], 1)
        assert await client.all(generate_config("t")) == before
        await calls(client, "t", ["even"], 1)


@pytest.mark.parametrize("api", APIS)
async def test_a_session_without_its_prepared_statements_prepares_them_again(own_postgres_url: str, api: str) -> None:
    """Psycopg drops prepared statements after a rollback if it has prepared some itself, here for a tenant's calls."""
    with psycopg.connect(own_postgres_url, autocommit=True) as watcher:
        watcher.execute(
            "ALTER TABLE langgraph_checkpoint.checkpoints ADD CONSTRAINT no CHECK (thread_id NOT LIKE '%no')"
        )
    async with PostgresSaver(own_postgres_url, min_size=1, max_size=1) as saver:
        client, tenant = Client(saver, api), Client(saver.for_tenant("a"), api)
        await calls(client, "t", ["before"], CALLS)
        await calls(tenant, "t", ["a tenant's"], CALLS)
        with pytest.raises(StorageError, match="check constraint"):
            await calls(tenant, "no", ["refused"], 1)
        await calls(client, "t", ["after"], CALLS)
