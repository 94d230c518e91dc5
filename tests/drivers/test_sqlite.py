"""The SQLite driver: settings, one writer with concurrent readers, several processes, and a full disk."""

from __future__ import annotations

import asyncio
import os
import sqlite3
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import Checkpoint
from langgraph.checkpoint.conformance.test_utils import generate_checkpoint, generate_config, generate_metadata

from langgraph_checkpoint_custom import Contention, SqliteSaver, StorageError
from langgraph_checkpoint_custom.drivers import sqlite_connections as connections_module
from langgraph_checkpoint_custom.drivers.sqlite_connections import IMPATIENCE
from tests.conftest import APIS, needs_error_codes
from tests.stores import Client


def a_checkpoint(size: int = 1) -> Checkpoint:
    return generate_checkpoint(channel_values={"a": [os.urandom(size)]}, channel_versions={"a": "1"})


def put(saver: SqliteSaver, thread_id: str, size: int = 1) -> RunnableConfig:
    return saver.put(generate_config(thread_id), a_checkpoint(size), generate_metadata(), {"a": "1"})


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[sqlite3.Connection]:
    """The connections that the driver opens."""
    connections: list[sqlite3.Connection] = []
    connect = sqlite3.connect

    def watched(*args: Any, **kwargs: Any) -> sqlite3.Connection:
        connections.append(connect(*args, **kwargs))
        return connections[-1]

    monkeypatch.setattr(sqlite3, "connect", watched)
    return connections


def pragma(connection: sqlite3.Connection, name: str) -> Any:
    return connection.execute(f"PRAGMA {name}").fetchone()[0]


@pytest.mark.parametrize("api", APIS)
async def test_a_relative_path_stays_the_same_after_a_change_of_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, api: str
) -> None:
    monkeypatch.chdir(tmp_path)
    with SqliteSaver("checkpoints.db") as saver:
        config = await Client(saver, api).put(generate_config("t"), a_checkpoint(), generate_metadata(), {"a": "1"})
        (tmp_path / "elsewhere").mkdir()
        monkeypatch.chdir(tmp_path / "elsewhere")
        assert await Client(saver, api).get_tuple(config) is not None
    assert list((tmp_path / "elsewhere").iterdir()) == []


def test_the_settings_are_those_of_a_store_that_survives_a_power_cut(path: Path, opened: list[Any]) -> None:
    with SqliteSaver(path) as saver:
        put(saver, "t")
        assert len(list(saver.list(None))) == 1
        writer, reader = opened
        assert pragma(writer, "journal_mode") == "wal"
        for connection in opened:
            assert pragma(connection, "synchronous") == 2
        # SQLite's own pauses grow to 100 ms, so a write that waits asks again and again instead.
        assert [pragma(connection, "busy_timeout") for connection in opened] == [
            IMPATIENCE if sys.version_info >= (3, 11) else 30_000,
            30_000,
        ]
        assert pragma(reader, "query_only") == 1


def test_the_settings_can_be_changed(path: Path, opened: list[Any]) -> None:
    with SqliteSaver(path, synchronous="NORMAL", busy_timeout=0.5) as saver:
        assert not list(saver.list(None))
        assert pragma(opened[0], "synchronous") == 1
        assert [pragma(connection, "busy_timeout") for connection in opened] == [
            IMPATIENCE if sys.version_info >= (3, 11) else 500,
            500,
        ]


def test_the_file_is_readable_by_its_owner_only(path: Path) -> None:
    with SqliteSaver(path) as saver:
        put(saver, "t")
        for file in path.parent.glob("checkpoints.db*"):
            assert stat.S_IMODE(file.stat().st_mode) == 0o600


def test_after_closing_there_is_one_file(path: Path) -> None:
    with SqliteSaver(path) as saver:
        put(saver, "t")
        assert saver.get_tuple(generate_config("t")) is not None
    assert [file.name for file in path.parent.iterdir()] == ["checkpoints.db"]


def arguments(thread_id: str) -> tuple[RunnableConfig, Checkpoint, Any, Any]:
    return generate_config(thread_id), a_checkpoint(), generate_metadata(), {"a": "1"}


@pytest.mark.parametrize("busy_timeout", [150.0, float("inf")])
@pytest.mark.parametrize("api", APIS)
async def test_a_write_of_another_process_delays_but_does_not_fail_a_call(
    path: Path, api: str, busy_timeout: float
) -> None:
    async with SqliteSaver(path, busy_timeout=busy_timeout) as saver:
        client = Client(saver, api)
        await client.put(*arguments("t"))
        other = sqlite3.connect(path, isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        waiting = asyncio.ensure_future(client.put(*arguments("t")))
        found = await client.all(generate_config("t"))
        assert len(found) == 1  # A read does not wait.
        await asyncio.sleep(0.3)  # Time for the put to ask for the lock.
        assert not waiting.done()
        other.commit()
        await waiting
        assert len(await client.all(generate_config("t"))) == 2
        other.close()


@needs_error_codes
@pytest.mark.parametrize("api", APIS)
async def test_a_lock_held_too_long_is_one_clear_error(path: Path, api: str) -> None:
    async with SqliteSaver(path, busy_timeout=0.05) as saver:
        client = Client(saver, api)
        await client.put(*arguments("t"))
        other = sqlite3.connect(path, isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(Contention, match="Raise busy_timeout") as caught:
            await client.put(*arguments("t"))
        assert (caught.value.operation, caught.value.sqlstate) == ("put", "SQLITE_BUSY")
        other.rollback()
        other.close()
        await client.put(*arguments("t"))
        assert len(await client.all(generate_config("t"))) == 2


class Unsettled(sqlite3.Connection):
    """A file that cannot be read for a moment, while others open it."""

    failures = 0
    where = ""

    def execute(self, sql: str, *args: Any) -> sqlite3.Cursor:
        if Unsettled.where in sql and Unsettled.failures:
            Unsettled.failures -= 1
            self.rollback()  # As SQLite does.
            error = sqlite3.OperationalError("disk I/O error")
            fields = {"sqlite_errorcode": 522, "sqlite_errorname": "SQLITE_IOERR_SHORT_READ"}
            vars(error).update(fields)
            raise error
        return super().execute(sql, *args)


@needs_error_codes
@pytest.mark.parametrize("failures", [2, 1000])
@pytest.mark.parametrize("where", ["PRAGMA journal_mode", "sqlite_schema"])
def test_a_temporary_disk_error_while_a_file_is_opened_is_retried(
    path: Path, monkeypatch: pytest.MonkeyPatch, failures: int, where: str
) -> None:
    connect = sqlite3.connect
    monkeypatch.setattr(sqlite3, "connect", lambda *args, **kwargs: connect(*args, **{**kwargs, "factory": Unsettled}))
    monkeypatch.setattr(Unsettled, "failures", failures)
    monkeypatch.setattr(Unsettled, "where", where)
    with SqliteSaver(path) as saver:
        if failures == 2:
            put(saver, "t")
        else:
            with pytest.raises(StorageError, match=r"the disk reported an error \(SQLITE_IOERR_SHORT_READ\)"):
                put(saver, "t")
            assert Unsettled.failures == failures - connections_module.OPENINGS


@pytest.mark.parametrize("read_before", [True, False])
@pytest.mark.parametrize("what", ["moved", "deleted", "replaced", "put back"])
@pytest.mark.parametrize("api", APIS)
async def test_a_file_that_is_removed_while_open_raises_and_no_file_is_created(
    path: Path, api: str, what: str, read_before: bool
) -> None:
    async with SqliteSaver(path) as saver:
        client = Client(saver, api)
        await client.put(*arguments("t"))
        if read_before:
            assert await client.get_tuple(generate_config("t")) is not None
        path.rename(path.with_name("moved")) if what != "deleted" else path.unlink()
        if what == "replaced":
            path.write_bytes(b"")
        before = sorted(path.parent.iterdir())
        await asyncio.sleep(connections_module.LOOK)
        said = "was moved, deleted or replaced"
        with pytest.raises(StorageError, match=said):
            await client.get_tuple(generate_config("t"))
        with pytest.raises(StorageError, match=said):
            await client.put(*arguments("t"))
        found = await asyncio.gather(*(client.put(*arguments("t")) for _ in range(5)), return_exceptions=True)
        assert all(isinstance(one, StorageError) and said in str(one) for one in found)
        assert len(set(map(id, found))) == 5
        assert sorted(path.parent.iterdir()) == before
        if what == "put back":
            path.with_name("moved").rename(path)
            await client.put(*arguments("t"))
            assert len(await client.all(generate_config("t"))) == 2


UNCLOSED = """
import sys, threading, time
from langgraph.checkpoint.conformance.test_utils import generate_checkpoint, generate_config
from langgraph_checkpoint_custom import SqliteSaver
saver = SqliteSaver(sys.argv[1])
def work(number):
    while True:
        saver.put(generate_config(f"t{number}"), generate_checkpoint(), {}, {})
for number in range(3):
    threading.Thread(target=work, args=[number], daemon=True).start()
time.sleep(0.3)  # So that it ends in the middle of what they store.
"""


def test_a_process_may_end_while_daemon_threads_store(tmp_path: Path) -> None:
    """With an unclosed saver; one in three ended with a segmentation fault."""
    ends = [subprocess.Popen([sys.executable, "-c", UNCLOSED, str(tmp_path / f"{n}.db")]) for n in range(4)]
    assert [end.wait(150) for end in ends] == [0] * 4
