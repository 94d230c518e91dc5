"""In a store of 200,000 checkpoints, no statement of a command that shows something, or of a page, reads all of it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from langgraph_checkpoint_custom import open_saver
from langgraph_checkpoint_custom.cli import main
from langgraph_checkpoint_custom.engine.operation import Form, RoundTrip, Statement
from langgraph_checkpoint_custom.model.keys import Key
from langgraph_checkpoint_custom.sql.dialect import SqlDialect
from langgraph_checkpoint_custom.sql.postgres_dialect import PostgresDialect
from langgraph_checkpoint_custom.sql.sqlite_dialect import SqliteDialect
from langgraph_checkpoint_custom.sql.statements import Statements
from langgraph_checkpoint_custom.ui import create_app
from tests.plans.explaining import connected, explain, sqlite_reads, table_reads

COMMANDS = {
    "threads": ("threads",),
    "threads by metadata": ("threads", "--where", 'run="run7-10"'),
    "threads that failed": ("threads", "--state", "failed"),
    "history": ("history", "t0"),
    "show": ("show", "t0"),
    "diff": ("diff", "--thread", "t0", "003999", "004000"),
}
# The number of rows that a statement may read. The timeline has up to 5,000 checkpoints with their writes. For the
# sizes of a thread, up to 10,000 checkpoints, values and writes each are counted; of t0, these are all 16,441 rows.
PAGES = {
    "/": 100_000,
    "/?label=none": 10_000,
    "/?prefix=t7": 1_000,
    "/suggestions?of=labels": 10_000,
    "/suggestions?of=keys": 100_000,
    "/?state=failed": 100_000,
    "/?where=run=nobody": 100_000,
    "/summary?thread=t0": 25_000,
    "/thread?thread=t0": 20_000,
    "/checkpoint?thread=t0&id=002000": 100,
    "/checkpoints?thread=t0": 500,
    "/checkpoints?thread=t0&before=002000": 500,
    "/timeline?thread=t0": 25_000,
    "/difference?thread=t0": 1_000,
    "/inbox": 1_000,
}
# What a statement may read from end to end: there are few labels, and no index finds them by name.
COMPLETE = {"threads_with_label": "labels", "label_names": "labels"}


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> list[Statement]:
    """The statements that a dialect has made to be sent."""
    found: list[Statement] = []
    own = Statements._send

    def send(self: Statements, *statements: Statement, **options: Any) -> RoundTrip:
        found.extend(statements)
        return own(self, *statements, **options)

    monkeypatch.setattr(Statements, "_send", send)
    for dialect in (PostgresDialect, SqliteDialect):
        monkeypatch.setattr(dialect, "read_form", _recorded(dialect.read_form, found))
    return found


def _recorded(form_of: Callable[..., Any], found: list[Statement]) -> Callable[..., Any]:
    def read_form(self: SqlDialect, key: Key) -> tuple[Form, tuple[str, ...]]:
        form, params = form_of(self, key)
        found.append(form.with_params(params))
        return form, params

    return read_form


def get(url: str, page: str) -> None:
    with open_saver(url, read_only=True) as saver:
        assert TestClient(create_app(saver), base_url="http://127.0.0.1").get(page).status_code == 200


def run(url: str, *argv: str) -> None:
    assert main([*argv, "--url", url]) in (0, 1)  # 1: The documents of the store are empty, and so not readable.


def check_postgres(url: str, sent: list[Statement], bound: int) -> None:
    names = set()
    with connected(url, owner=True) as connection:
        for statement in sent:
            if not statement.name.startswith("schema_"):
                scans, rows = table_reads(explain(connection, statement))
                scans = [scan for scan in scans if scan.split()[0] != COMPLETE.get(statement.name)]
                assert (statement.name, scans) == (statement.name, [])
                assert rows <= bound, statement.name
                names.add(statement.name)
    assert names


@pytest.mark.parametrize("command", COMMANDS)
def test_commands_on_postgres(postgres_store: str, sent: list[Statement], command: str) -> None:
    run(postgres_store, *COMMANDS[command])
    bounds = {"history": 5_000}  # Of 1,000 checkpoints, and the writes to them.
    check_postgres(postgres_store, sent, bounds.get(command, 100_000 if "threads" in command else 500))


@pytest.mark.parametrize("page", PAGES)
def test_pages_on_postgres(postgres_store: str, sent: list[Statement], page: str) -> None:
    get(postgres_store, page)
    check_postgres(postgres_store, sent, PAGES[page])


@pytest.mark.parametrize("command", COMMANDS)
def test_commands_on_sqlite(sqlite_store: Path, sent: list[Statement], command: str) -> None:
    run(f"sqlite:///{sqlite_store}", *COMMANDS[command])
    for statement in sent:
        assert (statement.name, sqlite_reads(sqlite_store, statement)) == (statement.name, [])


@pytest.mark.parametrize("page", PAGES)
def test_pages_on_sqlite(sqlite_store: Path, sent: list[Statement], page: str) -> None:
    get(f"sqlite:///{sqlite_store}", page)
    for statement in sent:
        assert (statement.name, sqlite_reads(sqlite_store, statement)) == (statement.name, [])
