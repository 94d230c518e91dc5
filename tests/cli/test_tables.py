"""`setup`, `verify`, `schema`: unchanged tables, and tables that were changed by hand."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import psycopg
import pytest

from tests.behaviour.helpers import Database
from tests.cli.conftest import Cli


def test_setup(cli: Cli) -> None:
    assert cli("setup") == "The tables are ready.\n"
    assert cli.json("setup")["ready"] is True


def test_the_shipped_catalog_is_what_the_migrations_make(cli: Cli) -> None:
    """`shipped.txt` has exactly the lines of the catalog."""
    found = cli.json("verify")
    assert (found["ok"], found["missing"], found["added"], found["version"]) == (True, [], [], found["shipped"])
    output = cli("verify")
    assert "as shipped" in output
    assert "no " not in [line[:3] for line in output.splitlines()]


@pytest.mark.leaves_damage("the tables are changed")
def test_drift_is_reported_line_by_line(own_cli: Cli) -> None:
    Database(own_cli.store).change(
        "DROP INDEX checkpoints_of_run",
        "ALTER TABLE writes ADD COLUMN mine text",
        "CREATE INDEX mine ON blobs (channel)",
        "CREATE TABLE theirs (a integer)",
    )
    found = own_cli.json("verify", code=1)
    assert not found["ok"]
    assert [line for line in found["missing"] if "checkpoints_of_run" in line] == found["missing"] != []
    added = "\n".join(found["added"])
    assert "column writes.mine" in added
    assert "INDEX mine ON blobs" in added
    assert "table theirs" in added
    output = own_cli("verify", code=1)
    assert "missing or changed" in output
    assert "added or changed" in output


@pytest.mark.leaves_damage("the tables are changed")
def test_additions_are_no_problem(own_cli: Cli) -> None:
    Database(own_cli.store).change("CREATE INDEX mine ON blobs (channel)")
    assert own_cli.json("verify")["ok"] is True


def test_searchable_keys_are_no_drift(own_cli: Cli) -> None:
    assert own_cli("setup", "--searchable", "user", "--searchable", "Team") == "The tables are ready.\n"
    found = own_cli.json("verify")
    assert (found["missing"], found["added"], found["ok"]) == ([], [], True)
    assert own_cli.json("doctor")["ok"] is True
    printed = own_cli.json("schema", "--searchable", "user", "--searchable", "Team")["sql"]
    assert printed.count("searchable_") == 2
    assert "searchable_" not in own_cli("schema")


@pytest.mark.parametrize("store", ["sqlite"], indirect=True)
def test_a_policy_that_was_weakened_is_drift(own_postgres_url: str, cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CHECKPOINT_URL", own_postgres_url)
    with psycopg.connect(own_postgres_url) as server:
        server.execute("ALTER POLICY tenants ON langgraph_checkpoint.writes USING (true)")
        server.execute("ALTER TABLE langgraph_checkpoint.blobs DISABLE ROW LEVEL SECURITY")
        body = "RETURNS text LANGUAGE sql STABLE RETURN 'all'"
        server.execute(f"CREATE OR REPLACE FUNCTION langgraph_checkpoint.current_tenant() {body}")
        definition = "SELECT tenant, thread_id FROM langgraph_checkpoint.checkpoints"
        server.execute("DROP VIEW langgraph_checkpoint.checkpoints_readable")
        server.execute(f"CREATE VIEW langgraph_checkpoint.checkpoints_readable AS {definition}")
    found = cli.json("verify", code=1)
    assert {line.split()[0] for line in found["missing"]} == {"policy", "table", "function", "view"}
    assert "view checkpoints_readable SELECT tenant, thread_id FROM checkpoints;" in found["added"]
    assert "function current_tenant() RETURNS text LANGUAGE sql STABLE RETURN 'all'::text" in found["added"]
    assert "policy tenants on writes for * using true" in found["added"]


@pytest.mark.leaves_damage("the tables are changed")
def test_another_schema_version_is_reported_and_nothing_is_changed(own_cli: Cli) -> None:
    shipped = own_cli.json("verify")["shipped"]
    later = f"INSERT INTO langgraph_checkpoint_migrations (number, name, oldest) VALUES ({shipped + 7}, 'later', 1)"
    Database(own_cli.store).change(later)
    found = own_cli.json("verify")
    assert (found["version"], found["oldest"], found["ok"]) == (shipped + 7, 1, True)
    Database(own_cli.store).change(f"UPDATE langgraph_checkpoint_migrations SET oldest = {shipped + 1}")
    found = own_cli.json("verify", code=1)
    assert (found["version"], found["ok"]) == (shipped + 7, False)
    assert "upgrade" in own_cli("verify", code=1)
    Database(own_cli.store).change("DELETE FROM langgraph_checkpoint_migrations")
    assert own_cli.json("verify", code=1)["version"] == 0
    assert "run setup" in own_cli("verify", code=1)
    assert own_cli.json("verify", code=1)["version"] == 0


@pytest.mark.parametrize("store", ["sqlite"], indirect=True)
def test_missing_tables_and_tables_of_another_program(
    cli: Cli, empty_postgres_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    empty = tmp_path / "empty.db"
    theirs = tmp_path / "theirs.db"
    for path in (empty, theirs):
        with closing(sqlite3.connect(path)) as file:
            file.execute("VACUUM")
            if path is theirs:
                file.execute("CREATE TABLE checkpoints (a)")
    for url in (f"sqlite:///{empty}", empty_postgres_url):
        found = cli.json("verify", "--url", url, code=1)
        assert (found["version"], found["foreign"], found["ok"]) == (None, None, False)
        assert "run setup" in cli("verify", "--url", url, code=1)
        assert cli.json("verify", "--url", url, code=1)["version"] is None
    assert cli.json("verify", "--url", f"sqlite:///{theirs}", code=1)["foreign"] == "checkpoints"


@pytest.mark.parametrize("store", ["sqlite"], indirect=True)
def test_the_schema_makes_the_tables_on_sqlite(cli: Cli, tmp_path: Path) -> None:
    made = tmp_path / "made.db"
    with closing(sqlite3.connect(made)) as file:
        file.executescript(cli("schema", "--database", "sqlite"))
    found = cli.json("verify", "--url", f"sqlite:///{made}")
    assert (found["ok"], found["added"]) == (True, [])


@pytest.mark.parametrize("store", ["sqlite"], indirect=True)
def test_the_schema_makes_the_tables_on_postgres(
    cli: Cli, empty_postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CHECKPOINT_SCHEMA", 'my "own" 100% schema')
    monkeypatch.setenv("CHECKPOINT_URL", empty_postgres_url)
    with psycopg.connect(empty_postgres_url, autocommit=True) as server:
        server.execute(cli("schema").encode())
    found = cli.json("verify")
    assert (found["ok"], found["missing"], found["added"]) == (True, [], [])


def test_the_schema_after_a_version(cli: Cli) -> None:
    complete = cli.json("schema")
    assert complete["database"] == {"sqlite": "sqlite", "postgres": "postgresql"}[cli.store.kind]
    rest = cli.json("schema", "--after", str(complete["version"]))["sql"]
    assert rest.split() == ["BEGIN;", "COMMIT;"]
    assert "'oracle'" in cli.fail("schema", "--database", "oracle", code=2)


def test_the_schema_is_that_of_the_file_that_is_named(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    for url, database in (("checkpoints.db", "sqlite"), ("sqlite:///a.db", "sqlite"), ("", "postgresql")):
        monkeypatch.setenv("CHECKPOINT_URL", url)
        assert cli.json("schema")["database"] == database
