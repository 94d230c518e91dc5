"""The factory, entered as the server enters it: many times at once, and left hardly ever."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from langgraph_checkpoint_custom import ClosedError, PostgresSaver, SqliteSaver, StorageError, server
from langgraph_checkpoint_custom.server import checkpointer
from tests.behaviour.helpers import config
from tests.conftest import BACKENDS, made_database, needs_error_codes
from tests.invariants import check_invariants
from tests.server.conftest import HAS_SERVER, check_no_session
from tests.server.entering import THREADS
from tests.server.processes import PATIENCE, environment
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
    """A database without tables that `CHECKPOINT_URL` names."""
    monkeypatch.setenv("CHECKPOINT_URL", empty.url)
    return empty


GUARDED = pytest.param(
    "guarded", marks=pytest.mark.skipif(not HAS_SERVER, reason="no Agent Server: its guard is missing")
)


@pytest.mark.parametrize("guard", ["free", GUARDED])
def test_threads_and_processes_that_enter_at_once_and_never_leave(empty: Store, tmp_path: Path, guard: str) -> None:
    """The tables are made, each process has one saver, and all of them end by themselves."""
    command = [sys.executable, "-m", "tests.server.entering", guard]
    processes = [
        subprocess.Popen(
            command, cwd=tmp_path, env=environment(empty), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        for _ in range(PROCESSES)
    ]
    try:
        ended = [(*process.communicate(timeout=PATIENCE), process.returncode) for process in processes]
    finally:
        for process in processes:
            process.kill()
    assert [(output, code) for output, _, code in ended] == [("entered\n", 0)] * PROCESSES, ended
    # Before Python 3.12 a wait with a timeout is a task, and each loop that was left tells of the one of its pool.
    said = [line for _, error, _ in ended for line in error.splitlines()]
    assert [line for line in said if "destroyed but" not in line and "coro=<Event.wait() running" not in line] == []
    assert sys.version_info < (3, 12) or said == []
    check_no_session(empty)
    with empty.open() as saver:
        assert len(list(saver.list(None))) == THREADS
    check_invariants(empty)


async def test_the_saver_is_shared_until_the_last_one_leaves(named: Store) -> None:
    async with checkpointer() as saver:
        assert type(saver) is (SqliteSaver if named.kind == "sqlite" else PostgresSaver)
        async with checkpointer() as other:
            assert other is saver
        assert await saver.aget_tuple(config()) is None
    with pytest.raises(ClosedError):
        await saver.aget_tuple(config())
    check_no_session(named)
    async with checkpointer() as again:
        assert again is not saver
        assert await again.aget_tuple(config()) is None


def test_a_loop_that_ends_takes_its_connections_with_it(named: Store) -> None:
    """Others go on with the saver; whoever leaves last closes it, from whatever loop."""
    entry = checkpointer()
    saver = asyncio.run(entry.__aenter__())
    check_no_session(named)
    assert asyncio.run(saver.aget_tuple(config())) is None
    asyncio.run(entry.__aexit__(None, None, None))
    with pytest.raises(ClosedError):
        asyncio.run(saver.aget_tuple(config()))


@needs_error_codes
async def test_an_entry_that_fails_keeps_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CHECKPOINT_URL", f"sqlite:///{tmp_path}")
    with pytest.raises(StorageError, match="cannot be opened"):
        async with checkpointer():
            raise AssertionError("it was entered")
    assert server._SHARED == {}
