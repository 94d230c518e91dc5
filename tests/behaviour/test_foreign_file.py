"""A SQLite file with tables of another program is refused, and no byte of it changes."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from langgraph.checkpoint.sqlite import SqliteSaver as OfficialSqliteSaver

from langgraph_checkpoint_custom import SchemaForeign, SqliteSaver, StorageError
from tests.behaviour.helpers import checkpoint, config, metadata
from tests.conftest import needs_error_codes
from tests.stores import Client


def official(path: Path) -> None:
    with OfficialSqliteSaver.from_conn_string(str(path)) as saver:
        saver.put(config(), checkpoint("1", {"a": [1]}), metadata(), {})


def of_another_program(path: Path) -> None:
    """A file that is not in WAL mode, which is the default."""
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE checkpoints (mine TEXT)")
        connection.execute("INSERT INTO checkpoints VALUES ('precious')")
        connection.commit()


def writes_of_another_program(path: Path) -> None:
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE writes (mine TEXT)")
        connection.commit()


def threads_of_another_program(path: Path) -> None:
    """Of an application that keeps its own tables in the file of its checkpoints; names ignore case on SQLite."""
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE Threads (title TEXT)")
        connection.commit()


@pytest.mark.parametrize("owner", [official, of_another_program, writes_of_another_program, threads_of_another_program])
async def test_the_file_is_refused_and_unchanged(tmp_path: Path, api: str, owner: object) -> None:
    path = tmp_path / "theirs.db"
    owner(path)  # type: ignore[operator]
    before = path.read_bytes()
    saver = SqliteSaver(path)
    client = Client(saver, api)
    for _ in range(2):
        with pytest.raises(SchemaForeign, match=r"theirs\.db"):
            await client.put(config(), checkpoint("2", {"a": [1]}), metadata(), {})
        with pytest.raises(SchemaForeign):
            await client.get_tuple(config())
        with pytest.raises(SchemaForeign):
            await client._call("setup")
    saver.close()
    assert path.read_bytes() == before
    assert [each.name for each in tmp_path.iterdir()] == ["theirs.db"]


@needs_error_codes
async def test_a_file_that_is_not_a_database_is_unchanged(tmp_path: Path, api: str) -> None:
    path = tmp_path / "letter.txt"
    path.write_text("Dear Sir or Madam, " * 500)
    before = path.read_bytes()
    with SqliteSaver(path) as saver, pytest.raises(StorageError, match="not a SQLite database"):
        await Client(saver, api).get_tuple(config())
    assert path.read_bytes() == before


async def test_other_tables_may_be_in_the_same_file(tmp_path: Path, api: str) -> None:
    path = tmp_path / "shared.db"
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE customers (name TEXT)")
        connection.commit()
    with SqliteSaver(path) as saver:
        await Client(saver, api).put(config(), checkpoint("1"), metadata(), {})
        assert saver.get_tuple(config()) is not None
