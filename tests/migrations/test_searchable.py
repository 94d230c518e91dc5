"""Searchable keys are created once, by any number of processes, by permitted roles, and during live traffic."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, TimeoutError
from contextlib import contextmanager
from typing import Any

import psycopg
import pytest

from langgraph_checkpoint_custom import PostgresSaver, StorageError
from langgraph_checkpoint_custom.model.keys import TENANT_MARK
from langgraph_checkpoint_custom.operations.schema import script
from langgraph_checkpoint_custom.sql.files import searchable_keys
from langgraph_checkpoint_custom.sql.postgres_dialect import PostgresDialect
from tests.behaviour.helpers import Database, checkpoint, config, metadata, next_uuid, put
from tests.conftest import APIS
from tests.faults.workload import SESSIONS
from tests.stores import Client, Store

KEYS = ["user", "100 %", "it's", "ümlaut"]
INDEXES = """
SELECT c.oid, c.relname, x.indisvalid FROM pg_class c JOIN pg_index x ON x.indexrelid = c.oid
WHERE c.relname LIKE 'searchable%' AND c.relnamespace = 'langgraph_checkpoint'::regnamespace ORDER BY 2
"""


def indexes(store: Store) -> list[Any]:
    """The indexes, by name; on PostgreSQL another one each time that it is created."""
    if store.kind == "sqlite":
        sql = "SELECT name, rootpage FROM sqlite_schema WHERE name LIKE 'searchable%' ORDER BY 1"
    else:
        sql = INDEXES.replace("%", "%%")
    connection = Database(store).connect()
    rows = connection.execute(sql, ()).fetchall()
    connection.close()
    return list(rows)


@pytest.mark.parametrize("api", APIS)
async def test_setup_twice_changes_nothing(own_store: Store, api: str) -> None:
    with own_store.open() as saver:
        client = Client(saver, api)
        await client.do("setup", searchable=KEYS)
        await put(client, next_uuid(), meta=metadata(user="a"))
        made = indexes(own_store)
        assert len(made) == len(KEYS)
        await client.do("setup", searchable=KEYS)
        assert indexes(own_store) == made
        await client.do("setup")
        await client.do("setup", searchable=["user", "team", "team"])
        assert len(indexes(own_store)) == len(KEYS) + 1
        if api == "async":
            await saver.aclose()


def test_indexes_that_setup_makes_in_a_transaction_are_rolled_back_with_it(own_postgres_url: str) -> None:
    with psycopg.connect(own_postgres_url) as connection:
        connection.execute("SELECT 1")  # It begins a transaction.
        PostgresSaver(connection).setup(searchable=["user"])
        connection.rollback()
    assert indexes(Store("postgres", own_postgres_url)) == []


# During live traffic


@contextmanager
def reading(url: str) -> Iterator[psycopg.Connection[Any]]:
    """A transaction that concurrent index creation has to wait for."""
    with psycopg.connect(url) as connection:
        connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        connection.execute("SELECT count(*) FROM langgraph_checkpoint.checkpoints")
        yield connection
        connection.rollback()


def run_by_hand(url: str) -> None:
    """Run what `lgckpt schema --searchable` prints, a statement at a time."""
    d = PostgresDialect("langgraph_checkpoint")
    with psycopg.connect(url, autocommit=True) as connection:
        for sql in script(d, len(d.migrations), searchable_keys(KEYS)).split(";\n"):
            connection.execute(sql.encode())


def test_an_index_made_by_hand_is_used(own_postgres_url: str) -> None:
    store = Store("postgres", own_postgres_url)
    run_by_hand(own_postgres_url)
    made = indexes(store)
    assert len(made) == len(KEYS)
    with PostgresSaver(own_postgres_url) as saver:
        saver.setup(searchable=KEYS)
    assert indexes(store) == made


def test_an_invalid_index_is_made_again(own_postgres_url: str) -> None:
    store = Store("postgres", own_postgres_url)
    with ThreadPoolExecutor() as workers, reading(own_postgres_url):
        by_hand = workers.submit(run_by_hand, own_postgres_url)
        while not indexes(store):
            assert not by_hand.done()
        with psycopg.connect(own_postgres_url) as other:
            other.execute(f"SELECT pg_cancel_backend(pid){SESSIONS} AND query LIKE '%CREATE INDEX%'")
        with pytest.raises(psycopg.errors.QueryCanceled):
            by_hand.result(150)
    assert [valid for _, _, valid in indexes(store)] == [False]
    with PostgresSaver(own_postgres_url) as saver:
        assert saver.count_threads(filter={"user": "a"}) == 0
        saver.setup(searchable=KEYS)
    assert [valid for _, _, valid in indexes(store)] == [True] * 4


def test_setup_waits_for_an_index_that_is_made_by_hand(own_postgres_url: str) -> None:
    store = Store("postgres", own_postgres_url)
    with ThreadPoolExecutor() as workers, reading(own_postgres_url) as reader:
        by_hand = workers.submit(run_by_hand, own_postgres_url)
        while not indexes(store):
            assert not by_hand.done()
        with PostgresSaver(own_postgres_url) as saver:
            setup = workers.submit(saver.setup, searchable=KEYS)
            with pytest.raises(TimeoutError):
                setup.result(0.5)
            with PostgresSaver(own_postgres_url) as other:
                workers.submit(other.setup).result(150)  # It does not have to wait.
            reader.rollback()
            setup.result(150)
            by_hand.result(150)
    assert [valid for _, _, valid in indexes(store)] == [True] * 4


# Roles


def test_a_read_only_role_uses_the_indexes_and_sees_only_its_tenant(own_postgres_url: str) -> None:
    with PostgresSaver(own_postgres_url) as saver:
        saver.setup(searchable=["user"])
        for tenant in ("", "acme"):
            own = saver.for_tenant(tenant) if tenant else saver
            own.put(config("t"), checkpoint(next_uuid()), metadata(user="a"), {})
    with psycopg.connect(own_postgres_url) as connection:
        connection.execute("CREATE ROLE searching")
        connection.execute("GRANT USAGE ON SCHEMA langgraph_checkpoint TO searching")
        connection.execute("GRANT SELECT ON ALL TABLES IN SCHEMA langgraph_checkpoint TO searching")
        connection.execute("SET LOCAL ROLE searching")
        saver = PostgresSaver(connection)
        saver.setup(searchable=["user"])
        with pytest.raises(StorageError, match="role lacks a privilege") as caught:
            saver.setup(searchable=["team"])
        assert caught.value.sqlstate == "42501"
        for found in (saver, saver.for_tenant("acme")):
            assert found.count_threads(filter={"user": "a"}) == 1
        connection.execute("SELECT set_config('langgraph_checkpoint_custom.tenant', 'acme', true)")
        rows = connection.execute("SELECT thread_id FROM langgraph_checkpoint.searched_user").fetchall()
        assert rows == [(f"{TENANT_MARK}acme{TENANT_MARK}t",)]
        connection.rollback()
