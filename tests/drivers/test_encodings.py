"""Text in databases and sessions of any encoding is read as it was stored, or the database is refused before use."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest
from langgraph.checkpoint.conformance.test_utils import generate_checkpoint, generate_config, generate_metadata
from psycopg import errors
from psycopg.conninfo import make_conninfo
from psycopg_pool import AsyncConnectionPool, ConnectionPool
from typing_extensions import LiteralString

from langgraph_checkpoint_custom import ConfigError, PostgresSaver
from tests.conftest import APIS, made_database
from tests.faults.workload import set_for_database
from tests.needs import need
from tests.stores import Client

TEXT = "ß日本\N{GRINNING FACE}"
STORES_ALL_TEXT: dict[str, LiteralString] = {
    "SQL_ASCII": "ENCODING 'SQL_ASCII' LC_COLLATE 'C' LC_CTYPE 'C'",
    "UTF8": "ENCODING 'UTF8' LC_COLLATE 'C' LC_CTYPE 'C'",
    "ICU": "ENCODING 'UTF8' LC_COLLATE 'C' LC_CTYPE 'C' LOCALE_PROVIDER icu ICU_LOCALE 'de-u-kn-ks-level2'",
}
STORES_SOME_TEXT: dict[str, LiteralString] = {
    "LATIN1": "ENCODING 'LATIN1' LC_COLLATE 'C' LC_CTYPE 'C'",
    "EUC_JP": "ENCODING 'EUC_JP' LC_COLLATE 'C' LC_CTYPE 'C'",
}


async def texts(client: Client) -> None:
    """Store and read texts wherever a caller can put one, often enough for statements to be prepared."""
    thread_id = f"thread {TEXT}"
    config = generate_config(thread_id)
    config["configurable"]["checkpoint_ns"] = TEXT
    newest = dict(config["configurable"])
    for step in range(7):
        version = f"{step}{TEXT}"
        checkpoint = generate_checkpoint(channel_values={TEXT: [TEXT, step]}, channel_versions={TEXT: version})
        metadata = generate_metadata(step=step, run_id=TEXT, user=TEXT)
        config = await client.put(config, checkpoint, metadata, {TEXT: version})
        await client.put_writes(config, [(TEXT, [TEXT])], TEXT, TEXT)
        found = await client.get_tuple({"configurable": newest})
        assert found is not None
        assert found.checkpoint == checkpoint
        assert found.metadata["user"] == TEXT  # type: ignore[typeddict-item]  # Metadata of the caller's.
        assert found.pending_writes == [(TEXT, TEXT, [TEXT])]
    await client.do("label", config, TEXT)
    assert await client.do("labels", thread_id) == {TEXT: config}
    threads = await client.collect("threads", filter={"user": TEXT})
    assert [thread.thread_id for thread in threads] == [thread_id]
    assert len(await client.all({"configurable": newest}, filter={"user": TEXT})) == 7
    await client.copy_thread(thread_id, f"copy {TEXT}")
    await client.prune([thread_id])
    await client.delete_for_runs([TEXT])


@pytest.mark.parametrize("api", APIS)
@pytest.mark.parametrize("encoding", STORES_ALL_TEXT)
async def test_all_text_is_read_as_it_was_stored(postgres_dsn: str, encoding: str, api: str) -> None:
    try:
        with made_database(postgres_dsn, "template0", STORES_ALL_TEXT[encoding]) as (_, url):
            async with PostgresSaver(url) as saver:
                await saver.asetup()
                await texts(Client(saver, api))
    except (errors.FeatureNotSupported, errors.InvalidParameterValue, errors.SyntaxError) as error:
        need(None, f"a PostgreSQL that makes such a database: {error}")


@pytest.mark.parametrize("api", APIS)
@pytest.mark.parametrize("encoding", STORES_SOME_TEXT)
async def test_setup_refuses_a_database_that_cannot_store_all_text(postgres_dsn: str, encoding: str, api: str) -> None:
    with made_database(postgres_dsn, "template0", STORES_SOME_TEXT[encoding]) as (_, url):
        async with PostgresSaver(url) as saver:
            with pytest.raises(ConfigError, match=f"has the encoding {encoding}, .* ENCODING 'UTF8'"):
                await Client(saver, api).do("setup")
        with psycopg.connect(url) as watcher:
            assert watcher.execute("SELECT FROM pg_namespace WHERE nspname = 'langgraph_checkpoint'").fetchall() == []


@pytest.mark.parametrize("api", APIS)
@pytest.mark.parametrize("where", ["database", "connection string", "environment"])
async def test_a_client_encoding_from_outside_changes_nothing(
    postgres_url: str, where: str, api: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = postgres_url
    if where == "database":
        with psycopg.connect(postgres_url, autocommit=True) as owner:
            set_for_database(owner, client_encoding="LATIN1")
    elif where == "environment":
        monkeypatch.setenv("PGCLIENTENCODING", "LATIN1")
    else:
        url = make_conninfo(postgres_url, client_encoding="LATIN1")
    async with PostgresSaver(url) as saver:
        await texts(Client(saver, api))


async def refused(source: Any, api: str, words: str) -> None:
    """Check that a saver refuses a pool, connection or URL."""
    async with PostgresSaver(source) as saver:
        with pytest.raises(ConfigError, match=words):
            await Client(saver, api).get_tuple(generate_config("t"))


async def test_a_callers_session_in_another_encoding_is_refused(postgres_url: str) -> None:
    url = make_conninfo(postgres_url, client_encoding="LATIN1")
    words = "client_encoding is LATIN1 in this session; connect with client_encoding=UTF8"
    with psycopg.connect(url) as connection:
        await refused(connection, "sync", words)
    with ConnectionPool(url, min_size=1, open=True) as pool:
        for api in APIS:
            await refused(pool, api, words)
    async with AsyncConnectionPool(url, min_size=1, open=False) as async_pool:
        await refused(async_pool, "async", words)
