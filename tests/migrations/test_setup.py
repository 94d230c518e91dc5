"""Creating the tables: by any number of processes, by any permitted role, and never over tables of another program."""

from __future__ import annotations

import asyncio
import json
import shlex
import sqlite3
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import psycopg
import pytest
from langgraph.checkpoint.conformance.test_utils import generate_checkpoint, generate_config, generate_metadata
from langgraph.checkpoint.postgres import PostgresSaver as OfficialPostgresSaver

from langgraph_checkpoint_custom import (
    ConfigError,
    PostgresSaver,
    SchemaForeign,
    SchemaMissing,
    SchemaOutdated,
    SchemaTooNew,
    SqliteSaver,
    open_saver,
)
from langgraph_checkpoint_custom.cli import main
from langgraph_checkpoint_custom.migrations import load_migrations
from tests.behaviour.helpers import Database
from tests.conftest import APIS
from tests.crash.processes import Process
from tests.crash.programs import set_up
from tests.migrations.test_searchable import KEYS
from tests.stores import Client, Store

ROOT = Path(__file__).parents[2]


def works(url: str, **options: Any) -> None:
    with open_saver(url, **options) as saver:
        checkpoint = generate_checkpoint(channel_values={"a": [1]}, channel_versions={"a": "1"})
        config = saver.put(generate_config("t"), checkpoint, generate_metadata(), {"a": "1"})
        found = saver.get_tuple(config)
        assert found is not None
        assert found.checkpoint == checkpoint


def test_schema_sql_is_the_result_of_the_migrations(
    empty_postgres_url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """`verify` compares it with `shipped.txt`, which another test compares with what the migrations make."""
    with psycopg.connect(empty_postgres_url) as connection:
        connection.execute((ROOT / "schema.sql").read_text("utf-8").encode())
        rows = connection.execute("SELECT number, name FROM langgraph_checkpoint.langgraph_checkpoint_migrations")
        assert rows.fetchall() == [(migration.number, migration.name) for migration in load_migrations("postgres")]
    assert main(["verify", "--url", empty_postgres_url, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["missing"], found["added"]) == ([], [])
    works(empty_postgres_url)


def test_both_databases_have_the_same_migrations() -> None:
    names = [(migration.number, migration.name) for migration in load_migrations("postgres")]
    assert names == [(migration.number, migration.name) for migration in load_migrations("sqlite")]
    assert [number for number, _ in names] == list(range(1, len(names) + 1))


def test_ten_processes_may_call_setup_concurrently(empty_postgres_url: str, tmp_path: Path) -> None:
    for url in (empty_postgres_url, f"sqlite:///{tmp_path / 'new.db'}"):
        store = Store("sqlite" if url.startswith("sqlite") else "postgres", url)
        with ExitStack() as stack:
            processes = [stack.enter_context(Process(set_up, store)) for _ in range(10)]
            assert [process.wait() for process in processes] == [0] * 10
        works(url)


def test_asetup_makes_the_tables(empty_postgres_url: str, tmp_path: Path) -> None:
    async def make(url: str) -> None:
        async with open_saver(url) as saver:
            await saver.asetup()
            await saver.asetup()

    for url in (empty_postgres_url, f"sqlite:///{tmp_path / 'new.db'}"):
        asyncio.run(make(url))
        works(url)


def test_dropped_tables_are_reported_as_missing(own_postgres_url: str) -> None:
    with open_saver(own_postgres_url) as saver:
        assert saver.get_tuple(generate_config("t")) is None
        with psycopg.connect(own_postgres_url) as connection:
            connection.execute("DROP SCHEMA langgraph_checkpoint CASCADE")
        with pytest.raises(SchemaMissing, match=r"run setup\(\)"):
            saver.get_tuple(generate_config("t"))


@pytest.mark.parametrize("api", APIS)
async def test_setup_makes_the_tables_again_that_were_dropped_from_an_open_file(tmp_path: Path, api: str) -> None:
    path = tmp_path / "new.db"
    arguments: Any = (generate_config("t"), generate_checkpoint(), generate_metadata(), {})
    async with SqliteSaver(path) as saver:
        client = Client(saver, api)
        await client.put(*arguments)
        with closing(sqlite3.connect(path)) as file, file:
            for kind, name in file.execute(
                "SELECT type, name FROM sqlite_schema WHERE sql LIKE 'CREATE _%'"
            ).fetchall():
                file.execute(f"DROP {kind} IF EXISTS {name}")
        with pytest.raises(SchemaMissing, match=r"run setup\(\)"):
            await client.put(*arguments)
        await client.do("setup")
        await client.put(*arguments)
        assert len(await client.all(generate_config("t"))) == 1


@pytest.mark.parametrize("schema", ["Other", 'sp ace"quote', "per%cent", "it's", "select", "ümlaut"])
def test_any_schema_name_works_next_to_another_schema(own_postgres_url: str, schema: str) -> None:
    with PostgresSaver(own_postgres_url, schema=schema) as saver:
        saver.setup(searchable=KEYS)
        assert [saver.count_threads(filter={key: "a"}) for key in KEYS] == [0] * len(KEYS)
    works(own_postgres_url, schema=schema)
    with open_saver(own_postgres_url) as saver:
        assert list(saver.list(None)) == []


@pytest.mark.parametrize("schema", ["", "pg_own", "x" * 64, "nul\0"])
def test_impossible_schema_names_are_refused(schema: str) -> None:
    with pytest.raises(ConfigError, match="schema"):
        PostgresSaver("postgresql://nowhere", schema=schema)


def test_setup_inside_a_transaction_that_rolls_back_leaves_nothing(empty_postgres_url: str) -> None:
    with psycopg.connect(empty_postgres_url) as connection:
        saver = PostgresSaver(connection)
        connection.execute("SELECT 1")
        saver.setup()
        assert saver.get_tuple(generate_config("t")) is None
        connection.rollback()
    with open_saver(empty_postgres_url) as other, pytest.raises(SchemaMissing):
        other.get_tuple(generate_config("t"))


def test_tables_of_a_newer_version_are_refused_if_they_say_so(own_store: Store) -> None:
    with own_store.open() as saver:
        saver.setup()
    database, known = Database(own_store), len(load_migrations(own_store.kind))
    future = f"(number, name, oldest) VALUES (9999, 'future', {known})"
    database.change(f"INSERT INTO langgraph_checkpoint_migrations {future}")
    with own_store.open() as saver:
        saver.setup()
        assert saver.get_tuple(generate_config("t")) is None
    database.change(f"UPDATE langgraph_checkpoint_migrations SET oldest = {known + 1}")
    with own_store.open() as saver:
        with pytest.raises(SchemaTooNew, match="upgrade langgraph-checkpoint-custom"):
            saver.get_tuple(generate_config("t"))
        with pytest.raises(SchemaTooNew):
            saver.setup()


def test_older_tables_on_postgres_wait_for_setup(own_postgres_url: str) -> None:
    database = Database(Store("postgres", own_postgres_url))
    database.change("DELETE FROM langgraph_checkpoint_migrations WHERE number = 1")
    with open_saver(own_postgres_url) as saver, pytest.raises(SchemaOutdated, match=r"run setup\(\)"):
        saver.get_tuple(generate_config("t"))


def test_the_official_postgres_savers_tables_can_be_in_the_same_database(own_postgres_url: str) -> None:
    with OfficialPostgresSaver.from_conn_string(own_postgres_url) as official:
        official.setup()
    works(own_postgres_url)
    with open_saver(own_postgres_url, schema="public") as saver:
        with pytest.raises(SchemaForeign, match=r"Choose another schema.*custom migrate --from …"):
            saver.setup()
        with pytest.raises(SchemaForeign):
            saver.get_tuple(generate_config("t"))


def test_a_schema_with_a_table_of_another_program_is_refused(own_postgres_url: str) -> None:
    with psycopg.connect(own_postgres_url) as connection:
        connection.execute("CREATE SCHEMA app; CREATE TABLE app.threads (title text)")
    with open_saver(own_postgres_url, schema="app") as saver, pytest.raises(SchemaForeign, match="a table 'threads'"):
        saver.setup()


@pytest.mark.parametrize(
    ("schema", "command"),
    [
        ("langgraph_checkpoint", "setup --url …"),
        ("mine", "setup --schema mine --url …"),
        ("it's mine", """setup --schema 'it'"'"'s mine' --url …"""),
    ],
)
def test_the_error_for_a_missing_schema_has_the_command_that_makes_it(
    empty_postgres_url: str, schema: str, command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with PostgresSaver(empty_postgres_url, schema=schema) as saver:
        with pytest.raises(SchemaMissing, match=r"run setup\(\)") as raised:
            saver.get_tuple(generate_config("t"))
        assert f"`python -m langgraph_checkpoint_custom {command}`" in str(raised.value)
        name, *arguments = shlex.split(command)
        assert main([name, *arguments[:-1], empty_postgres_url]) == 0, capsys.readouterr().err
        assert saver.get_tuple(generate_config("t")) is None
