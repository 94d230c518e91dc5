"""Searchable metadata keys change how fast threads are found, not which."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import closing
from typing import Any

import pytest
from langgraph.checkpoint.serde.encrypted import EncryptedSerializer

from langgraph_checkpoint_custom import CheckpointSaver, ThreadRecord
from langgraph_checkpoint_custom.operations import list_threads as core_threads
from langgraph_checkpoint_custom.sql.files import index_of, searchable_keys
from tests.behaviour.helpers import Database, metadata, next_uuid, put, put_delta_chain
from tests.behaviour.test_filter import DIFFERENT, EQUAL, KEYS
from tests.stores import Client, Store

AES = EncryptedSerializer.from_pycryptodome_aes(key=b"0123456789abcdef")
VALUES = [pair.stored for pair in (*EQUAL, *DIFFERENT)]
SIMILAR = ["userId", "userid", "user_id", "user-id", "id", "of_run", "key", "searchable key", "5", "[0]", "~", "a" * 41]
GIVEN = [pair.given for pair in (*EQUAL, *DIFFERENT)]


@pytest.fixture(autouse=True)
def few_are_recent(monkeypatch: pytest.MonkeyPatch) -> None:
    """The newest checkpoints are hardly ever enough, so that an index has to find the threads."""
    monkeypatch.setattr(core_threads, "FILTERED", 1)


def opened(store: Store, **options: Any) -> CheckpointSaver:
    return store.open(**({"synchronous": "OFF"} if store.kind == "sqlite" else {}), **options)


async def found(client: Client, filters: Sequence[dict[str, Any]], prefixes: Sequence[str] = ("",)) -> list[Any]:
    """Everything that these filters find."""
    answers: list[Any] = []
    for filter in filters:
        for prefix in prefixes:
            every: list[ThreadRecord] = list(await client.collect("threads", filter=filter, prefix=prefix))
            # Not the metadata, since NaN is not equal to itself.
            ids = [(each.thread_id, each.newest.checkpoint_id) for each in every]
            answers += [filter, prefix, ids, await client.do("count_threads", filter=filter, prefix=prefix)]
            if every:
                middle = every[len(every) // 2]
                after = await client.collect("threads", filter=filter, prefix=prefix, limit=2, before=middle)
                answers.append([each.thread_id for each in after])
    return answers


async def test_any_value_is_found_with_and_without_searchable_keys(own_store: Store, api: str) -> None:
    with opened(own_store) as saver:
        client = Client(saver, api)
        for number, value in enumerate(VALUES):
            await put(client, next_uuid(), thread_id=f"t{number}", meta=metadata(mine="earlier"))
            await put(client, next_uuid(), thread_id=f"t{number}", meta=metadata(mine=value, other=number % 3))
        await put(client, next_uuid(), thread_id="missing", meta=metadata())
        filters: list[dict[str, Any]] = [{"mine": value} for value in (*GIVEN, "earlier")]
        filters += [{"mine": "a", "other": 0}, {"other": 1}, {"other": 1, "mine": None}, {"nobody's": 1}]
        without = await found(client, filters)
        await client.do("setup", searchable=["mine", "other"])
        assert await found(client, filters) == without


async def test_any_key_may_be_searchable(own_store: Store, api: str) -> None:
    keys = [*KEYS, *SIMILAR]
    with opened(own_store) as saver:
        client = Client(saver, api)
        for number, key in enumerate(keys):
            meta: Any = {**metadata(), "thread_id": None, key: f"value {number}"}
            await put(client, next_uuid(), thread_id=f"t{number}", meta=meta)
        filters = [{key: value} for number, key in enumerate(keys) for value in (f"value {number}", "loop", None)]
        without = await found(client, filters)
        await client.do("setup", searchable=keys)
        assert await found(client, filters) == without
        keys_of_indexes = searchable_keys(keys)
        assert len({index_of(key).lower() for key in keys_of_indexes}) == len(keys)
        assert all(len(index_of(key)) <= 63 for key in keys_of_indexes)
        assert index_of("user_id") == "searchable_user_id"


async def test_encrypted_metadata_is_found_too(own_store: Store, api: str) -> None:
    filters: list[dict[str, Any]] = [{key: value} for key in ("user", "team", "nobody's") for value in ("a", "b", None)]
    with opened(own_store) as plain:
        client = Client(plain, api)
        await client.do("setup", searchable=["user", "team", "nobody's"])
        for user in "aab":
            await put(client, next_uuid(), thread_id=next_uuid(), meta=metadata(user=user, team=user))
    with opened(own_store, serde=AES, previous_serdes=[plain.serde], plaintext_metadata=["team"]) as saver:
        client = Client(saver, api)
        others: list[Any] = ["a", "b", "b", float("nan"), "long " * 100]
        for other in others:
            await put(client, next_uuid(), thread_id=next_uuid(), meta=metadata(user=other, team=other))
        searched = await found(client, filters)
        drop_all(own_store)
        assert await found(client, filters) == searched
        assert [await client.do("count_threads", filter=filter) for filter in filters] == [3, 3, 0, 3, 3, 0, 0, 0, 8]


async def test_only_the_newest_checkpoint_of_a_thread_counts(own_store: Store, api: str) -> None:
    with opened(own_store) as saver:
        client = Client(saver, api)
        await client.do("setup", searchable=["user"])
        for thread_id, users in {"a": "xy", "b": "yx", "c": "xx"}.items():
            for user in users:
                await put(client, next_uuid(), thread_id=thread_id, meta=metadata(user=user))
        await put(client, next_uuid(), thread_id="a", ns="sub:1", meta=metadata(user="x"))
        for ns in ("one", "two"):
            await put(
                client, next_uuid(), thread_id="subgraphs", ns=ns, meta=metadata(user="x" if ns == "one" else "y")
            )
        await put_delta_chain(client, next_uuid, 4, {1})
        await client.prune(["thread"])
        expected: dict[str | None, list[str]] = {"x": ["subgraphs", "c", "b"], "y": ["a"], None: ["thread"]}
        for wanted, threads in expected.items():
            assert [each.thread_id for each in await client.collect("threads", filter={"user": wanted})] == threads
            assert await client.do("count_threads", filter={"user": wanted}) == len(threads)


async def test_a_dropped_index_changes_no_result(own_store: Store, api: str) -> None:
    with opened(own_store) as saver:
        client = Client(saver, api)
        await client.do("setup", searchable=["user"])
        await put(client, next_uuid(), meta=metadata(user="a"))
        drop_all(own_store)
        assert await client.do("count_threads", filter={"user": "a"}) == 1
        assert len(await client.collect("threads", filter={"user": "a"})) == 1


async def test_a_setup_that_finds_its_indexes_does_not_wait_for_writers(own_store: Store, api: str) -> None:
    with opened(own_store) as saver:
        await Client(saver, api).do("setup", searchable=["user", "team"])
    with closing(Database(own_store).connect()) as writer, opened(own_store) as saver:
        writer.execute(
            "BEGIN IMMEDIATE" if own_store.kind == "sqlite" else "LOCK TABLE checkpoints IN SHARE ROW EXCLUSIVE MODE"
        )
        await asyncio.wait_for(Client(saver, api).do("setup", searchable=["team", "user"]), timeout=150)


def drop_all(store: Store) -> None:
    """Drop the indexes by hand."""
    database = Database(store)
    connection = database.connect()
    table, column = ("sqlite_schema", "name") if store.kind == "sqlite" else ("pg_indexes", "indexname")
    names = connection.execute(f"SELECT {column} FROM {table} WHERE {column} LIKE 'searchable%'").fetchall()
    assert names
    for (name,) in names:
        connection.execute(f'DROP INDEX "{name}"')
    connection.commit()
    connection.close()
