"""Each tenant has its own threads, whatever their ids. On PostgreSQL, row-level security enforces it too."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from langgraph_checkpoint_custom import CheckpointSaver, ConfigError, CorruptCheckpoint, PostgresSaver, ThreadBusy
from langgraph_checkpoint_custom.model.keys import MAX_ID, MAX_TENANT, MAX_THREAD_ID
from tests.behaviour.helpers import (
    LONG,
    SURELY_FIT,
    Database,
    NextId,
    anywhere,
    config,
    delta_history,
    get,
    ids_of,
    made_role,
    metadata,
    next_uuid,
    noise,
    put,
    put_delta_chain,
)
from tests.stores import Client

pytestmark = pytest.mark.usefixtures("changing_values_in_blobs")

TENANTS = ["", "acme", "acme2", "ACME", "a%me", "acme/", "äcme", "'); DROP TABLE checkpoints"]


def clients(client: Client) -> list[Client]:
    """The store as each tenant sees it, and as seen without a tenant."""
    return [Client(client.saver.for_tenant(tenant) if tenant else client.saver, client.api) for tenant in TENANTS]  # type: ignore[attr-defined]


async def fill(own: Client, number: int) -> None:
    """Store the same ids for every tenant, with different values."""
    meta = metadata(number, run_id="run", thread_id="thread")
    first = await put(own, "1", {"a": [LONG, number]}, versions={"a": "1"}, meta=meta)
    second = await put(own, "2", {"a": [LONG, number]}, parent=first, versions={"a": "1"}, new={}, meta=meta)
    await own.put_writes(second, [("w", [number])], "task")
    await put(own, "3", {"s": number}, ns="sub", meta=meta)


async def seen(own: Client) -> list[Any]:
    """Everything that can be read."""
    pages = [await own.all(None), await own.all(anywhere()), await own.all(None, filter={"thread_id": "thread"})]
    alone = [await get(own, where) for where in (config(), config(checkpoint_id="1"), config(ns="sub"))]
    return [*itertools.chain(*pages), *alone]


async def test_tenants_see_nothing_of_each_other(client: Client) -> None:
    all_faces = clients(client)
    for number, own in enumerate(all_faces):
        assert await own.all(None) == []
        await fill(own, number)
    for number, own in enumerate(all_faces):
        found = await seen(own)
        assert len(found) == 12
        assert {each.metadata["step"] for each in found} == {number}
        assert {each.metadata["thread_id"] for each in found} == {"thread"}
        assert {each.config["configurable"]["thread_id"] for each in found} == {"thread"}
        newest = await get(own, config())
        assert newest.checkpoint["channel_values"] == {"a": [LONG, number]}
        assert newest.pending_writes == [("task", "w", [number])]


@pytest.mark.parametrize("what", ["prune", "delete_thread", "delete_for_runs", "copy_thread"])
async def test_tenants_cannot_change_each_others_threads(client: Client, what: str) -> None:
    all_faces = clients(client)
    for number, own in enumerate(all_faces):
        await fill(own, number)
    before = [await seen(own) for own in all_faces]
    for position in (0, 3):
        own = all_faces[position]
        if what == "prune":
            await own.prune(["thread"])
            assert ids_of(await own.all(config())) == ["2"]
        elif what == "delete_thread":
            await own.delete_thread("thread")
            assert await own.all(None) == []
        elif what == "delete_for_runs":
            await own.delete_for_runs(["run"])
            assert await own.all(None) == []
        else:
            await own.copy_thread("thread", "copy")
            copied = await get(own, config("copy"))
            assert copied.metadata["thread_id"] == "copy"  # type: ignore[typeddict-item]
            assert copied.checkpoint["channel_values"] == {"a": [LONG, position]}
            assert len(await own.all(None, filter={"thread_id": "copy"})) == 3
        for other, earlier in zip(all_faces, before, strict=True):
            if other not in (all_faces[0], all_faces[3]):
                assert await seen(other) == earlier


async def test_pages_histories_and_claims_belong_to_the_tenant(client: Client) -> None:
    own, other = clients(client)[1:3]
    for number in range(60):
        await put(own, f"{number:03}", thread_id=f"t{number % 7}", meta=metadata(number))
        await put(other, f"{number:03}", thread_id=f"t{number % 7}", meta=metadata(-number))
    assert [each.metadata["step"] for each in await own.all(None)] == list(range(59, -1, -1))
    assert len(await own.all(None, before=config(checkpoint_id="010"))) == 10

    chained = await put_delta_chain(own, next_uuid, 5, {2})
    assert await own.history(chained[-1], ["delta"]) == {"delta": delta_history(2, 4)}
    assert await other.history(chained[-1], ["delta"]) == {"delta": {"writes": []}}

    with own.saver.claim("thread", owner="me"):  # type: ignore[attr-defined]
        with pytest.raises(ThreadBusy, match="thread 'thread' is claimed by 'me'"):
            own.saver.claim("thread").__enter__()  # type: ignore[attr-defined]
        with other.saver.claim("thread"), client.saver.claim("thread"):  # type: ignore[attr-defined]
            pass


async def test_labels_belong_to_the_tenant(client: Client) -> None:
    all_faces = clients(client)
    first, second = config(checkpoint_id="1"), config(checkpoint_id="2")
    for number, own in enumerate(all_faces):
        await fill(own, number)
        assert await own.do("labels", "thread") == {}
        assert await own.do("label", first if number % 2 else second, "mine") == (first if number % 2 else second)
    for number, own in enumerate(all_faces):
        assert await own.do("labels", "thread") == {"mine": first if number % 2 else second}
        await own.prune(["thread"])
        assert ids_of(await own.all(config())) == (["2", "1"] if number % 2 else ["2"])
    assert await all_faces[1].do("unlabel", "thread", "mine") is True
    await all_faces[3].delete_thread("thread")
    for number, own in enumerate(all_faces):
        gone = number in (1, 3)
        assert await own.do("labels", "thread") == ({} if gone else {"mine": first if number % 2 else second})


async def test_errors_name_the_thread_as_the_caller_does(client: Client, database: Database) -> None:
    own = clients(client)[1]
    await put(own, "1", {"a": [LONG]})
    database.run("UPDATE blobs SET value = :value", value=b"\xc1")
    with pytest.raises(CorruptCheckpoint) as caught:
        await own.get_tuple(config())
    assert caught.value.thread_id == "thread"
    assert "\x1f" not in str(caught.value)


@pytest.mark.parametrize("name", ["", "a\x1fb", "\x1f", "a\0b", "x" * 61, "ä" * 31, None, ["a"], "\ud800"])
def test_an_impossible_tenant_is_refused(saver: CheckpointSaver, name: Any) -> None:
    with pytest.raises(ConfigError, match="tenant"):
        saver.for_tenant(name)


async def test_no_thread_id_reaches_threads_of_a_tenant(client: Client) -> None:
    own = clients(client)[1]
    await put(own, "1")
    for outside in (client, clients(client)[2]):
        for thread_id in ("\x1facme\x1fthread", "\x1f", "\x1f\x1f"):
            with pytest.raises(ConfigError, match="U\\+001F"):
                await outside.get_tuple(config(thread_id))
            with pytest.raises(ConfigError, match="U\\+001F"):
                await outside.delete_thread(thread_id)
            with pytest.raises(ConfigError, match="U\\+001F"):
                await outside.prune([thread_id])
            with pytest.raises(ConfigError, match="U\\+001F"):
                await outside.copy_thread("thread", thread_id)
        await put(outside, "1", thread_id="acme\x1fthread")  # Only the first character is a mark.
        assert ids_of(await outside.all(None)) == ["1"]
    assert ids_of(await own.all(None)) == ["1"]


async def test_the_longest_keys_fit_together_with_the_longest_tenant(client: Client) -> None:
    own = Client(client.saver.for_tenant("t" * MAX_TENANT), client.api)  # type: ignore[attr-defined]
    thread_id, ns = noise(MAX_THREAD_ID), noise(1000)
    channel = noise(SURELY_FIT - MAX_THREAD_ID - 1000 - MAX_TENANT - 2)
    values, versions = {channel: [LONG]}, {channel: noise(MAX_ID)}
    await put(own, "9" * MAX_ID, values, thread_id=thread_id, ns=ns, versions=versions)
    assert (await get(own, config(thread_id, ns=ns))).checkpoint["channel_values"] == values


# PostgreSQL


@pytest.fixture
def role(postgres_url: str) -> Iterator[str]:
    """A role that only runs graphs: it may read and write all rows that the policies allow."""
    with made_role(postgres_url, "SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA langgraph_checkpoint") as name:
        yield name


TABLES = ("checkpoints", "blobs", "writes", "labels", "threads", "claims")


def rows(url: str, *before: str) -> dict[str, list[str]]:
    """The threads that raw SQL sees in each table, after the statements `before`."""
    with psycopg.connect(url) as connection:
        for statement in before:
            connection.execute(statement)
        query = "SELECT DISTINCT thread_id FROM langgraph_checkpoint.{}"
        return {table: [row[0] for row in connection.execute(query.format(table))] for table in TABLES}


async def test_raw_sql_sees_no_tenants_rows_without_its_name(postgres_url: str, role: str, api: str) -> None:
    as_role = f"{postgres_url}&options=-c%20role%3D{role}"
    with PostgresSaver(as_role) as saver:
        for name in ("", "acme", "other"):
            own = Client(saver.for_tenant(name) if name else saver, api)
            await fill(own, 1)
            assert len(await own.all(None)) == 3
            await own.do("label", config(checkpoint_id="1"), "mine")
            (own.saver.claim("thread")).__enter__()._stopped.set()  # type: ignore[attr-defined]
        await saver.aclose()
    assert rows(as_role) == {table: ["thread"] for table in TABLES}
    statement = "SET langgraph_checkpoint_custom.tenant = 'acme'"
    assert rows(as_role, statement) == {table: ["\x1facme\x1fthread"] for table in TABLES}
    assert all(len(found) == 3 for found in rows(postgres_url).values())  # The owner sees all.
    with psycopg.connect(as_role) as connection:
        for table in TABLES:
            changed = connection.execute(f"DELETE FROM langgraph_checkpoint.{table} WHERE thread_id LIKE '%acme%'")
            assert changed.rowcount == 0
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            connection.execute(
                "INSERT INTO langgraph_checkpoint.blobs VALUES (E'\\x1facme\\x1fthread', '', 'a', '9', 'null', '')"
            )


async def test_a_role_of_one_tenant_cannot_reach_another_whatever_it_sets(
    postgres_url: str, role: str, api: str
) -> None:
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        connection.execute("INSERT INTO langgraph_checkpoint.tenant_roles (role, tenant) VALUES (%s, 'acme')", [role])
    as_role = f"{postgres_url}&options=-c%20role%3D{role}"
    with PostgresSaver(postgres_url) as saver:
        for name in ("", "acme", "other"):
            await fill(Client(saver.for_tenant(name) if name else saver, api), 1)
        await saver.aclose()
    for statement in ("SELECT 1", "SET langgraph_checkpoint_custom.tenant = 'other'"):
        assert rows(as_role, statement)["checkpoints"] == ["\x1facme\x1fthread"]
    with PostgresSaver(as_role) as saver:
        own = Client(saver.for_tenant("acme"), api)
        await put(own, "4")
        assert len(await own.all(None)) == 4
        for name in ("", "other"):
            foreign = Client(saver.for_tenant(name) if name else saver, api)
            assert await foreign.all(None) == []
            with pytest.raises(Exception, match="row-level security"):
                await put(foreign, "5")
        await saver.aclose()
    with psycopg.connect(as_role, autocommit=True) as connection:
        assert connection.execute("SELECT tenant FROM langgraph_checkpoint.tenant_roles").fetchall() == [("acme",)]
        assert connection.execute("DELETE FROM langgraph_checkpoint.tenant_roles").rowcount == 0
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            connection.execute("INSERT INTO langgraph_checkpoint.tenant_roles VALUES ('somebody', 'other')")


def test_the_tenant_is_not_left_set_in_a_callers_transaction(postgres_url: str) -> None:
    with psycopg.connect(postgres_url) as connection:
        saver = PostgresSaver(connection)
        saver.for_tenant("acme").get_tuple(config())
        assert connection.execute("SELECT langgraph_checkpoint.current_tenant()").fetchone() == ("",)


def test_a_tenant_that_the_caller_has_set_stays_set(postgres_url: str) -> None:
    with psycopg.connect(postgres_url) as connection:
        connection.execute("SELECT set_config('langgraph_checkpoint_custom.tenant', 'own', true)")
        PostgresSaver(connection).for_tenant("acme").get_tuple(config())
        assert connection.execute("SELECT langgraph_checkpoint.current_tenant()").fetchone() == ("own",)


async def test_tenants_lists_the_tenants_that_have_threads(client: Client) -> None:
    assert await client.do("tenants") == []
    names = ["a", "a b", "a!", "acme", "b", "z\U0010ffff"]
    for name in reversed(names):
        for thread_id in ("1", "2"):
            own = Client(client.saver.for_tenant(name), client.api)  # type: ignore[attr-defined]
            await put(own, "1", thread_id=thread_id)
    await put(client, "1")
    await put(client, "1", thread_id="zzz")
    assert await client.do("tenants") == names
    assert await Client(client.saver.for_tenant("a"), client.api).do("tenants") == ["a"]  # type: ignore[attr-defined]
    assert await Client(client.saver.for_tenant("x"), client.api).do("tenants") == []  # type: ignore[attr-defined]


async def test_the_end_of_a_with_block_of_a_tenant_closes_nothing(client: Client, next_id: NextId) -> None:
    saver = client.saver
    assert isinstance(saver, CheckpointSaver)
    where = await put(client, next_id())
    if client.api == "async":
        async with saver.for_tenant("acme") as tenants:
            await tenants.aget_tuple(where)
        await saver.for_tenant("acme").aclose()
    else:
        with saver.for_tenant("acme") as tenants:
            await asyncio.to_thread(tenants.get_tuple, where)
        saver.for_tenant("acme").close()
    assert await get(client, where)
    assert await Client(tenants, client.api).get_tuple(where) is None
