"""`journal_mode`: outside WAL mode, a SQLite file does the same as in it. Core tests of other files run here again."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from langgraph_checkpoint_custom import Contention, SchemaForeign, SqliteSaver, StorageError
from langgraph_checkpoint_custom.cli import main
from langgraph_checkpoint_custom.drivers.sqlite_connections import LOOK
from tests.behaviour.helpers import Database, checkpoint, config, metadata, next_uuid, put, put_chain
from tests.behaviour.test_cancellation import test_a_put_is_stored_completely_or_not_at_all  # noqa: F401
from tests.behaviour.test_concurrency import (  # noqa: F401
    test_64_tasks_run_concurrently,
    test_os_threads_and_tasks_run_concurrently,
)
from tests.behaviour.test_foreign_file import official
from tests.behaviour.test_lifecycle import test_closing_during_a_list_ends_it_with_an_error  # noqa: F401
from tests.behaviour.test_list_while_reading_and_writing import (  # noqa: F401
    test_loops_may_be_nested,
    test_the_body_may_prune_the_listed_thread,
    test_the_body_may_write_newer_checkpoints,
)
from tests.conftest import check_what_is_left, needs_error_codes
from tests.crash import test_kill
from tests.crash.processes import Process
from tests.crash.programs import set_up
from tests.crash.test_fork import (  # noqa: F401
    test_the_child_has_its_own_connections_and_its_end_does_not_matter,
)
from tests.crash.test_kill import (  # noqa: F401
    randomly,
    test_what_was_acknowledged_survives_a_kill_and_nothing_is_half_stored,
    test_what_was_acknowledged_to_concurrent_callers_survives_a_kill,
)
from tests.drivers import test_sqlite
from tests.drivers.test_sqlite import pragma
from tests.stores import Client, Store

ORIGINAL = sqlite3.connect

opened = test_sqlite.opened


@pytest.fixture
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    """An empty store in a SQLite file that is not in WAL mode."""
    found = Store("sqlite", f"sqlite:///{tmp_path / 'checkpoints.db'}", (("journal_mode", "DELETE"),))
    yield found
    if (tmp_path / "checkpoints.db").exists():
        assert mode_of(tmp_path / "checkpoints.db") == "delete"
    check_what_is_left(request, found)


@pytest.fixture
def own_store(store: Store) -> Store:
    """The same, for tests that change the tables."""
    return store


@pytest.fixture(autouse=True)
def few_kills(monkeypatch: pytest.MonkeyPatch) -> None:
    """In WAL mode, the tests kill more often."""
    monkeypatch.setattr(test_kill, "KILLS", 20)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "file.db"


def mode_of(path: Path) -> str:
    """The mode that a new connection finds: "wal" or "delete", which stands for the other modes."""
    with closing(sqlite3.connect(path)) as connection:
        return str(pragma(connection, "journal_mode"))


@pytest.mark.parametrize(("mode", "synchronous"), [("DELETE", 3), ("TRUNCATE", 2)])
def test_reads_and_writes_use_one_connection(path: Path, opened: list[Any], mode: Any, synchronous: int) -> None:
    """Deleting the journal is what commits, and only EXTRA writes that to the disk."""
    with SqliteSaver(path, journal_mode=mode) as saver:
        for number in range(3):
            saver.put(config(), checkpoint(str(number)), metadata(), {})
            assert len(list(saver.list(config()))) == number + 1
        assert list(saver.interrupts()) == []
        (connection,) = opened
        assert pragma(connection, "journal_mode") == mode.lower()
        assert pragma(connection, "synchronous") == synchronous
        assert saver.stats() == {"reading": 0, "idle": 0}
    assert not Path(f"{path}-wal").exists()


async def test_nothing_is_locked_in_the_body_of_a_loop(client: Client, database: Database) -> None:
    await put_chain(client, next_uuid, 3)
    with closing(sqlite3.connect(database.path, timeout=0, isolation_level=None)) as other:
        async for _ in client.list(config()):
            other.execute("BEGIN EXCLUSIVE")
            other.execute("ROLLBACK")


def is_being_written(path: str) -> bool:
    """Whether a connection has begun to write: no other one can then."""
    with closing(sqlite3.connect(path, timeout=0, isolation_level=None)) as connection:
        try:
            connection.execute("BEGIN IMMEDIATE")
        except sqlite3.OperationalError:
            return True
    return False


async def test_a_write_waits_for_the_read_of_another_process(client: Client, database: Database) -> None:
    await put(client, "1")
    with closing(database.connect()) as other:
        cursor = other.execute("SELECT * FROM checkpoints, json_each('[1, 2]')")
        assert cursor.fetchone()
        waiting = asyncio.ensure_future(put(client, "2"))
        while not is_being_written(database.path):
            assert not waiting.done()
            await asyncio.sleep(0.005)  # No event is raised when a write begins to wait.
        assert not waiting.done()
        cursor.close()
        await waiting
    assert len(await client.all(config())) == 2


async def test_a_read_of_a_file_that_was_removed_raises(client: Client, database: Database) -> None:
    await put(client, "1")
    Path(database.path).rename(database.path + ".moved")
    await asyncio.sleep(LOOK)
    with pytest.raises(StorageError, match="was moved, deleted or replaced"):
        await client.get_tuple(config())


@pytest.mark.parametrize("modes", [("WAL", "DELETE"), ("WAL", "TRUNCATE"), ("DELETE", "WAL"), ("TRUNCATE", "WAL")])
async def test_an_existing_file_is_converted(path: Path, api: str, modes: tuple[Any, Any]) -> None:
    for number, mode in enumerate(modes):
        with SqliteSaver(path, journal_mode=mode) as saver:
            await put(Client(saver, api), str(number), {"a": [number]})
            assert len(await Client(saver, api).all(config())) == number + 1
        assert (mode_of(path) == "wal") == (mode == "WAL")


async def test_a_file_that_is_open_in_wal_mode_is_not_converted(path: Path, api: str) -> None:
    with SqliteSaver(path) as first, SqliteSaver(path, journal_mode="DELETE", busy_timeout=0.1) as second:
        await put(Client(first, api), "1")
        with pytest.raises(Contention, match="has the journal mode WAL, and cannot get DELETE while another"):
            await put(Client(second, api), "2")
        first.close()
        await put(Client(second, api), "2")
        assert len(await Client(second, api).all(config())) == 2


async def test_a_saver_that_only_reads_and_the_commands_leave_the_mode(
    path: Path, api: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with SqliteSaver(path, journal_mode="DELETE") as saver:
        await put(Client(saver, api), "1")
        for options in ({}, {"journal_mode": "DELETE"}):
            with SqliteSaver(path, read_only=True, **options) as reader:  # type: ignore[arg-type]
                assert len(await Client(reader, api).all(config())) == 1
        assert main(["label", "thread", "mine", "--url", str(path)]) == 0, capsys.readouterr().err
        assert main(["threads", "--url", str(path)]) == 0
        assert "thread" in capsys.readouterr().out
        assert saver.labels("thread")
    assert mode_of(path) == "delete"


def test_a_file_of_another_program_stays_in_its_mode(path: Path) -> None:
    official(path)
    before = path.read_bytes()
    with SqliteSaver(path, journal_mode="DELETE") as saver, pytest.raises(SchemaForeign):
        saver.setup()
    assert path.read_bytes() == before
    assert mode_of(path) == "wal"


def test_in_memory_the_mode_does_not_matter() -> None:
    with SqliteSaver(":memory:", journal_mode="DELETE") as saver:
        saver.put(config(), checkpoint("1"), metadata(), {})
        assert saver.get_tuple(config()) is not None


# The link cannot be opened, like the shared memory of a file where there is none.
@needs_error_codes
async def test_without_shared_memory_the_error_names_the_option_which_then_converts_the_file(
    path: Path, api: str
) -> None:
    Path(f"{path}-shm").symlink_to("/nowhere/shm")
    with SqliteSaver(path) as saver, pytest.raises(StorageError, match="journal_mode='DELETE'"):
        await put(Client(saver, api), "1")
    with SqliteSaver(path, journal_mode="DELETE") as saver, SqliteSaver(path, journal_mode="DELETE") as other:
        for number, each in enumerate((saver, other)):
            await put(Client(each, api), str(number))
        assert len(await Client(saver, api).all(config())) == 2


def test_a_file_system_on_which_wal_is_impossible_is_an_error_that_names_the_option(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SQLite keeps the mode without an error, as with this way to lock files."""
    monkeypatch.setattr(
        sqlite3, "connect", lambda path, **options: ORIGINAL(f"file:{path}?vfs=unix-dotfile", **options | {"uri": True})
    )
    with (
        SqliteSaver(path) as saver,
        pytest.raises(StorageError, match=r"stays in the mode DELETE; .*journal_mode='DEL"),
    ):
        saver.setup()
    with SqliteSaver(path, journal_mode="DELETE") as saver:
        saver.put(config(), checkpoint("1"), metadata(), {})
        assert saver.get_tuple(config()) is not None


def test_many_processes_create_the_file_and_write(store: Store) -> None:
    processes = [Process(set_up, store) for _ in range(10)]
    assert [process.wait() for process in processes] == [0] * 10
