"""A pytest plugin that gives our stores to CubeLoop's own tests, and reports which tests made one and which failed.

It is loaded with the tests of the framework's source distribution, in a separate process.
"""

from __future__ import annotations

import asyncio
import hashlib
import itertools
import json
import os
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from types import ModuleType
from typing import NamedTuple

import pytest
from cubeloop import checkpointer
from cubeloop.checkpointer import memory, sqlite

from langgraph_checkpoint_custom import CheckpointSaver, open_saver
from langgraph_checkpoint_custom.adapters.cubeloop import CubeLoopCheckpointer, stored

opened = ExitStack()
savers: dict[str, CheckpointSaver] = {}
numbers = itertools.count()
# The tests that made a store; the tests that failed, with their errors.
outcomes: dict[str, str | None] = {}


def tenant_of(name: str) -> CheckpointSaver:
    """The saver of the tenant with this name."""
    test, _ = os.environ["PYTEST_CURRENT_TEST"].rsplit(" ", 1)
    outcomes[test] = None
    if not savers:
        savers[""] = opened.enter_context(open_saver(os.environ["SWAPPED_STORES_URL"]))
    return savers.setdefault(name, savers[""].for_tenant(hashlib.sha256(name.encode()).hexdigest()[:16]))


class Run(NamedTuple):
    """What the tests read of a run. Of the time, they only check whether it is set."""

    completed_at: float | None = None
    completion_seq: int | None = None


class Memory(CubeLoopCheckpointer):
    """Replaces CubeLoop's store in memory."""

    def __init__(self) -> None:
        super().__init__(tenant_of(f"memory {next(numbers)}"))

    @property
    def _runs(self) -> dict[str, dict[str, Run]]:
        """The stored runs of the threads that the tests look at."""
        read = {thread_id: self._documents.read(stored(thread_id)) for thread_id in ("t", "src")}
        found = {thread_id: one.checkpoint["channel_values"] if one else {} for thread_id, one in read.items()}
        return {
            thread_id: {
                **dict.fromkeys(channels.get("claimed", ()), Run()),
                **{run_id: Run(position, position) for position, run_id in enumerate(channels.get("completed", ()), 1)},
            }
            for thread_id, channels in found.items()
        }


class Sqlite(CubeLoopCheckpointer):
    """Replaces CubeLoop's SQLite store."""

    def __init__(self, db_path: str) -> None:
        super().__init__(tenant_of(db_path))


for module, name, store in (
    (memory, "MemoryCheckpointer", Memory),
    (checkpointer, "MemoryCheckpointer", Memory),
    (sqlite, "SQLiteCheckpointer", Sqlite),
):
    setattr(module, name, store)
# Names that the tests of their other stores import; those tests are not run.
for name in ("aiomysql", "asyncpg"):
    sys.modules.setdefault(name, ModuleType(name))


@pytest.fixture(autouse=True)
def _loop(request: pytest.FixtureRequest) -> Iterator[None]:
    """An event loop for tests that are not in one and ask for the current one."""
    if asyncio.iscoroutinefunction(request.function):
        yield
        return
    with asyncio.Runner() as runner:  # type: ignore[attr-defined]  # Python 3.11, as CubeLoop needs.
        asyncio.set_event_loop(runner.get_loop())
        yield


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    if report.nodeid in outcomes and not report.passed:
        outcomes[report.nodeid] = str(report.longrepr)


def pytest_unconfigure() -> None:
    opened.close()
    Path(os.environ["SWAPPED_STORES_REPORT"]).write_text(json.dumps(outcomes), "utf-8")
