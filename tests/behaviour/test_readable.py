"""The view `checkpoints_readable` shows what a list returns to people and dashboards that query the database in SQL."""

from __future__ import annotations

import json
import re
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import psycopg
import pytest
from langgraph.checkpoint.serde.encrypted import EncryptedSerializer

from langgraph_checkpoint_custom import PostgresSaver
from langgraph_checkpoint_custom.sql.postgres_dialect import PostgresDialect
from tests.behaviour.helpers import (
    Database,
    NextId,
    config,
    id_of,
    made_role,
    metadata,
    put,
    put_chain,
    put_delta_chain,
)
from tests.stores import Client, Store

AES = EncryptedSerializer.from_pycryptodome_aes(key=b"0123456789abcdef")
COLUMNS = "tenant, thread_id, checkpoint_ns, checkpoint_id, parent_id, run_id, step, source, metadata, stored_thread_id"


def seen(database: Database, *, tenant: str = "", where: str = "true") -> list[dict[str, Any]]:
    """The rows of the view, as a session sees them that works for a tenant."""
    with closing(database.connect()) as connection:
        if database.kind == "postgres":
            connection.execute("SELECT set_config('langgraph_checkpoint_custom.tenant', %s, false)", [tenant])
        rows = connection.execute(f"SELECT {COLUMNS} FROM checkpoints_readable WHERE {where} ORDER BY checkpoint_id")
        found = [dict(zip(COLUMNS.split(", "), row, strict=True)) for row in rows.fetchall()]
    for row in found:
        if database.kind == "sqlite":
            row["metadata"] = json.loads(row["metadata"])
    return [row for row in found if row["tenant"] == tenant]


async def test_a_checkpoint_is_a_row_with_its_metadata(client: Client, database: Database, next_id: NextId) -> None:
    first = await put(client, next_id(), meta=metadata(-1, run_id="run"), thread_id="thread")
    extra: dict[str, Any] = {"user": "ann", "level": 1.5, "tags": ["a", {"b": None}], "none": None, "yes": True}
    second = await put(client, next_id(), meta=metadata(0, **extra, ähm="ü"), parent=first)
    third = await put(client, next_id(), ns="sub:1", meta=metadata(5))
    assert seen(database) == [
        {
            "tenant": "",
            "thread_id": "thread",
            "checkpoint_ns": ns,
            "checkpoint_id": id_of(where),
            "parent_id": parent and id_of(parent),
            "run_id": meta.get("run_id"),
            "step": meta["step"],
            "source": "loop",
            "metadata": meta,
            "stored_thread_id": "thread",
        }
        for where, ns, parent, meta in (
            (first, "", None, metadata(-1, run_id="run")),
            (second, "", first, metadata(0, **extra, **{"%C3%A4hm": "ü"})),
            (third, "sub:1", None, metadata(5)),
        )
    ]


async def test_odd_metadata_is_left_out_and_fails_no_query(client: Client, database: Database) -> None:
    odd: list[dict[str, Any]] = [
        {},
        {"step": "one", "source": 5},
        {"step": 1.5, "source": {"a": 1}},
        {"step": 10**30, "source": "a\0b"},
        {"step": None, "source": None},
        {"step": True, "source": 'say "hi"\\u0000'},
        {"long": "x" * 1000, "bytes": b"x", "nan": float("nan"), "half": "\ud800", "emoji": "🙂"},
        {"*": "star", "": "empty", 'quo"te': 1},
    ]
    for number, meta in enumerate(odd):
        await put(client, str(number), meta=meta)  # type: ignore[arg-type]
    rows = seen(database)
    assert [row["step"] for row in rows] == [None] * len(odd)
    assert [str(row["source"]) for row in rows[:3]] == [
        "None",
        "5",
        '{"a":1}' if database.kind == "sqlite" else '{"a": 1}',
    ]
    assert rows[4]["source"] is None
    assert rows[4]["metadata"] == {"step": None, "source": None}
    assert rows[6]["metadata"] == {}
    assert rows[7]["metadata"] == {"%2A": "star", "": "empty", "quo%22te": 1}
    assert (rows[3]["source"], rows[3]["metadata"]) == (None, {"step": 10**30})


async def test_what_a_list_does_not_return_is_not_in_the_view(
    client: Client, database: Database, next_id: NextId
) -> None:
    await put_delta_chain(client, next_id, 6, {1})
    await client.prune(["thread"])
    assert database.run("SELECT count(*) FROM checkpoints")[0][0] > 1
    (listed,) = await client.all(config())
    assert [row["checkpoint_id"] for row in seen(database)] == [id_of(listed)]


async def test_encrypted_metadata_stays_hidden(store: Store, database: Database, api: str) -> None:
    with store.open(serde=AES, plaintext_metadata=["user"]) as saver:
        await put(Client(saver, api), "1", meta=metadata(2, user="ann", secret="x", run_id="run"))
    (row,) = seen(database)
    assert row["metadata"] == {"source": "loop", "step": 2, "user": "ann", "run_id": "run"}
    assert (row["step"], row["source"]) == (2, "loop")


async def test_threads_of_tenants_have_their_own_ids(client: Client, database: Database) -> None:
    names = ["", "acme", "äcme 🙂", "acme2"]
    for number, name in enumerate(names):
        own = Client(client.saver.for_tenant(name) if name else client.saver, client.api)  # type: ignore[attr-defined]
        await put(own, str(number), thread_id="thread")
    for number, name in enumerate(names):
        (row,) = seen(database, tenant=name)
        assert (row["tenant"], row["thread_id"], row["checkpoint_id"]) == (name, "thread", str(number))
        ((stored,),) = database.run("SELECT thread_id FROM checkpoints WHERE checkpoint_id = :id", id=str(number))
        assert row["stored_thread_id"] == stored


async def test_nothing_can_be_changed_through_the_view(client: Client, database: Database, next_id: NextId) -> None:
    await put_chain(client, next_id, 2)
    for statement in (
        "UPDATE checkpoints_readable SET parent_id = 'x'",
        "DELETE FROM checkpoints_readable",
        "INSERT INTO checkpoints_readable (thread_id) VALUES ('x')",
    ):
        refused = sqlite3.OperationalError, psycopg.errors.ObjectNotInPrerequisiteState
        with closing(database.connect()) as connection, pytest.raises(refused):
            connection.execute(statement)
    assert len(seen(database)) == 2


# PostgreSQL: the view reads with the rights of the tables' owner, for whom the policies do not hold.


@pytest.fixture
def reader(postgres_url: str) -> Iterator[str]:
    """The URL of a role that may read the view and no table with values, as in docs/postgres.md."""
    readable = "langgraph_checkpoint.checkpoints_readable, langgraph_checkpoint.tenant_roles"
    with made_role(postgres_url, f"SELECT ON {readable}") as name:
        yield f"{postgres_url}&options=-c%20role%3D{name}"


@pytest.fixture
async def filled(postgres_url: str, api: str) -> None:
    """Threads without a tenant and of two tenants."""
    with PostgresSaver(postgres_url) as saver:
        for name in ("", "acme", "other"):
            own = Client(saver.for_tenant(name) if name else saver, api)
            await put(own, "1", meta=metadata(0, user=f"of {name}"))
        await saver.aclose()


def users(url: str, *before: str, where: str = "true") -> list[str]:
    """The users that the view shows after the statements `before`."""
    with psycopg.connect(url) as connection:
        for statement in before:
            connection.execute(statement)
        query = f"SELECT metadata ->> 'user' FROM langgraph_checkpoint.checkpoints_readable WHERE {where}"
        return [user for (user,) in connection.execute(query.encode())]


AS_ACME = "SET langgraph_checkpoint_custom.tenant = 'acme'"


@pytest.mark.usefixtures("filled")
def test_a_role_sees_the_tenant_that_its_session_names(postgres_url: str, reader: str) -> None:
    """The tables' owner, too, although it sees all rows of the table."""
    for url in (postgres_url, reader):
        assert users(url) == ["of "]
        assert users(url, AS_ACME) == ["of acme"]
    with psycopg.connect(reader) as connection, pytest.raises(psycopg.errors.InsufficientPrivilege):
        connection.execute("SELECT checkpoint FROM langgraph_checkpoint.checkpoints")


@pytest.mark.usefixtures("filled")
def test_a_role_of_one_tenant_sees_no_other_whatever_it_sets(postgres_url: str, reader: str) -> None:
    role = reader.rpartition("%3D")[2]
    with psycopg.connect(postgres_url) as connection:
        connection.execute("INSERT INTO langgraph_checkpoint.tenant_roles (role, tenant) VALUES (%s, 'other')", [role])
    for before in ("SELECT 1", AS_ACME, "SET langgraph_checkpoint_custom.tenant = ''"):
        assert users(reader, before) == ["of other"]
    with pytest.raises(psycopg.errors.InsufficientPrivilege):
        users(reader, "SET row_security = off")


@pytest.mark.usefixtures("filled")
def test_a_function_in_a_query_sees_no_row_of_another_tenant(reader: str) -> None:
    """PostgreSQL would call one that is cheap before it compares the tenant, if the view had no security barrier."""
    says: list[str] = []
    with psycopg.connect(reader) as connection:
        connection.add_notice_handler(lambda notice: says.append(notice.message_primary or ""))
        connection.execute(
            "CREATE FUNCTION pg_temp.leak(text) RETURNS boolean LANGUAGE plpgsql COST 0.0000001 AS"
            " $$BEGIN RAISE NOTICE '%', $1; RETURN true; END$$"
        )
        found = connection.execute(
            "SELECT count(*) FROM langgraph_checkpoint.checkpoints_readable WHERE pg_temp.leak(stored_thread_id)"
        ).fetchone()
    assert found == (1,)
    assert says == ["thread"]


def test_distributed_tables_are_the_same_but_for_row_level_security() -> None:
    """Nothing there could restrict the view to a tenant."""
    laid_out = PostgresDialect("langgraph_checkpoint")
    everything = created(laid_out)
    laid_out.learn_layout("citus")
    assert everything - created(laid_out) == {"tenant_roles", "checkpoints_readable"}
    assert not any("checkpoints_readable" in line for line in laid_out.shipped())


def created(laid_out: PostgresDialect) -> set[str]:
    """The tables and views of a layout, without those in which a schema counts its migrations."""
    statements = [sql for each in laid_out.migrations for sql in each.statements]
    return {name for sql in statements for name in re.findall(r'^CREATE (?:TABLE|VIEW) "\w+"\.(\w+)', sql)}
