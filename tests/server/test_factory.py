"""The factory is entered as the server enters it: many times at the same time, and hardly ever exited."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from langgraph_checkpoint_custom import (
    ClosedError,
    ConfigError,
    PostgresSaver,
    SqliteSaver,
    StorageError,
    open_saver,
    server,
)
from langgraph_checkpoint_custom.server import checkpointer
from tests.behaviour.helpers import config
from tests.conftest import BACKENDS, made_database, needs_error_codes
from tests.invariants import check_invariants
from tests.server.conftest import check_no_session, need_server
from tests.server.entering import THREADS
from tests.server.processes import TIMEOUT, environment
from tests.stores import Store

PROCESSES = 3


@pytest.fixture(params=BACKENDS)
def empty(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    """A database without tables."""
    if request.param == "sqlite":
        yield Store("sqlite", f"sqlite:///{tmp_path / 'checkpoints.db'}")
        return
    with made_database(request.getfixturevalue("postgres_dsn")) as (_, url):
        yield Store("postgres", url)


@pytest.fixture
def named(empty: Store, monkeypatch: pytest.MonkeyPatch) -> Store:
    """The database of `CHECKPOINT_URL`, without tables."""
    monkeypatch.setenv("CHECKPOINT_URL", empty.url)
    return empty


@pytest.mark.parametrize("guard", ["free", "guarded"])
def test_os_threads_and_processes_may_enter_concurrently_and_never_exit(
    empty: Store, tmp_path: Path, guard: str
) -> None:
    """The tables are created, each process has one saver, and all processes end on their own."""
    if guard == "guarded":
        need_server()
    command = [sys.executable, "-m", "tests.server.entering", guard]
    processes = [
        subprocess.Popen(
            command, cwd=tmp_path, env=environment(empty), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        for _ in range(PROCESSES)
    ]
    try:
        ended = [(*process.communicate(timeout=TIMEOUT), process.returncode) for process in processes]
    finally:
        for process in processes:
            process.kill()
    assert [(output, code) for output, _, code in ended] == [("entered\n", 0)] * PROCESSES, ended
    # Before Python 3.12, a wait with a timeout is a task, and each abandoned loop reports the one of its pool.
    said = [line for _, error, _ in ended for line in error.splitlines()]
    assert [line for line in said if "destroyed but" not in line and "coro=<Event.wait() running" not in line] == []
    assert sys.version_info < (3, 12) or said == []
    check_no_session(empty)
    with empty.open() as saver:
        assert len(list(saver.list(None))) == THREADS
    check_invariants(empty)


async def test_the_saver_is_shared_until_the_last_entry_exits(named: Store) -> None:
    async with checkpointer() as saver:
        assert type(saver) is (SqliteSaver if named.kind == "sqlite" else PostgresSaver)
        async with checkpointer() as other:
            assert other is saver
        assert await saver.aget_tuple(config()) is None
        with pytest.raises(ConfigError, match="use the server's own ttl"):
            await saver.aset_ttl("thread", timedelta(days=1))
    with pytest.raises(ClosedError):
        await saver.aget_tuple(config())
    check_no_session(named)
    async with checkpointer() as again:
        assert again is not saver
        assert await again.aget_tuple(config()) is None


def test_the_connections_of_an_ended_loop_are_closed(named: Store) -> None:
    """Other entries continue to use the saver; the last one to exit closes it, from any loop."""
    entry = checkpointer()
    saver = asyncio.run(entry.__aenter__())
    check_no_session(named)
    assert asyncio.run(saver.aget_tuple(config())) is None
    asyncio.run(entry.__aexit__(None, None, None))
    with pytest.raises(ClosedError):
        asyncio.run(saver.aget_tuple(config()))


async def test_a_cancelled_entry_does_not_keep_the_saver_open(named: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    begun, goes_on, ended = threading.Event(), threading.Event(), threading.Event()

    def slow(url: str, **options: Any) -> Any:
        begun.set()
        goes_on.wait()
        try:
            return open_saver(url, **options)
        finally:
            ended.set()

    monkeypatch.setattr(server, "open_saver", slow)
    task = asyncio.ensure_future(checkpointer().__aenter__())
    await asyncio.to_thread(begun.wait)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    goes_on.set()
    await asyncio.to_thread(ended.wait)
    async with checkpointer() as saver:
        assert await saver.aget_tuple(config()) is None
    with pytest.raises(ClosedError):
        await saver.aget_tuple(config())
    assert server._SHARED == {}


@needs_error_codes
async def test_a_failed_entry_leaves_nothing_open(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CHECKPOINT_URL", f"sqlite:///{tmp_path}")
    with pytest.raises(StorageError, match="cannot be opened"):
        async with checkpointer():
            raise AssertionError("it was entered")
    assert server._SHARED == {}
