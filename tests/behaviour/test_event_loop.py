"""Async methods never block the event loop: it runs on while the database makes them wait."""

from __future__ import annotations

import asyncio
import sqlite3
import sys
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from langgraph_checkpoint_custom import CheckpointSaver, SqliteSaver
from tests.behaviour.helpers import Database, checkpoint, config, metadata, put
from tests.stores import Client

WRITES: dict[str, Callable[[CheckpointSaver], Awaitable[object]]] = {
    "put": lambda saver: saver.aput(config(), checkpoint("2", {"a": [1]}), metadata(), {"a": "1"}),
    "put_writes": lambda saver: saver.aput_writes(config(checkpoint_id="1"), [("a", 1)], "task"),
    "copy_thread": lambda saver: saver.acopy_thread("thread", "copy"),
    "prune": lambda saver: saver.aprune(["thread"]),
    "prune delete": lambda saver: saver.aprune(["thread"], strategy="delete"),
    "delete_for_runs": lambda saver: saver.adelete_for_runs(["run"]),
    "delete_thread": lambda saver: saver.adelete_thread("thread"),
}


@pytest.mark.parametrize("operation", WRITES)
async def test_the_loop_runs_on_while_a_write_waits(saver: CheckpointSaver, database: Database, operation: str) -> None:
    """The loop itself ends what the write waits for. If the loop is blocked, a timer does so after a while."""
    await put(Client(saver, "async"), "0")
    await put(Client(saver, "async"), "1", {"a": [1]}, meta=metadata(run_id="run"))
    rescued = threading.Event()
    with database.locked() as unlock:

        def rescue() -> None:
            rescued.set()
            unlock()

        timer = threading.Timer(150, rescue)
        timer.start()
        task = asyncio.ensure_future(WRITES[operation](saver))
        for _ in range(5):
            await asyncio.sleep(0.001)
        assert not task.done()
        assert not rescued.is_set()
        timer.cancel()
        unlock()
        await task


@contextmanager
def watched() -> Iterator[list[str]]:
    """The blocking calls that this OS thread makes, as far as Python reports them."""
    seen: list[str] = []

    def watch(frame: FrameType, event: str, function: Any) -> None:
        if event == "c_call":
            owner = getattr(function, "__self__", None)
            module = getattr(function, "__module__", None) or type(owner).__module__
            name = function.__name__
            if isinstance(owner, (sqlite3.Connection, sqlite3.Cursor)) or module in ("sqlite3", "_sqlite3"):
                seen.append(f"sqlite3 {name}")
            elif function is time.sleep or (module == "posix" and name in ("open", "stat", "fsync", "mkdir", "unlink")):
                seen.append(f"{module} {name}")

    sys.setprofile(watch)
    try:
        yield seen
    finally:
        sys.setprofile(None)


def test_a_call_on_the_loops_os_thread_is_noticed(tmp_path: Path) -> None:
    """Shows that the next test can fail."""
    with watched() as seen, closing(sqlite3.connect(tmp_path / "a.db")) as connection:
        connection.execute("SELECT 1").fetchall()
        time.sleep(0)  # Not to wait, but as a call that has to be noticed.
        tmp_path.stat()
    assert {"sqlite3 execute", "sqlite3 fetchall", "time sleep", "posix stat"} <= set(seen)


async def use(saver: CheckpointSaver) -> None:
    """Call every async method, from the first use to the close."""
    await saver.asetup()
    await put(Client(saver, "async"), "1", {"a": ["x" * 200_000]}, meta=metadata(run_id="run"))
    await saver.aput_writes(config(checkpoint_id="1"), [("a", 1)], "task")
    await saver.aget_tuple(config())
    assert [found async for found in saver.alist(config())]
    await saver.aget_delta_channel_history(config=config(), channels=["a"])
    await saver.acopy_thread("thread", "copy")
    await saver.aprune(["thread"])
    await saver.adelete_for_runs(["run"])
    await saver.adelete_thread("thread")
    await saver.aclose()


async def test_sqlite_is_never_called_on_the_loops_os_thread(tmp_path: Path) -> None:
    with watched() as seen:
        await use(SqliteSaver(tmp_path / "a.db"))
        await use(SqliteSaver(":memory:"))
    assert seen == []
