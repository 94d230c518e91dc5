"""Helpers for concurrent calls of a SQLite saver: make them, and count their commits."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest
from langchain_core.runnables import RunnableConfig

from langgraph_checkpoint_custom import SqliteSaver
from langgraph_checkpoint_custom.engine.operation import Access, Operation, RoundTrip, Statement, Steps
from tests.behaviour.helpers import checkpoint, config, metadata

Outcomes = list[Any]
CONNECT = sqlite3.connect


class TracedSaver(SqliteSaver):
    """A saver that notes its connections, and what they execute, each with whether it is in a transaction."""

    opened: list[sqlite3.Connection]
    executed: list[tuple[str, bool]]

    @property
    def writer(self) -> sqlite3.Connection:
        """The connection that writes."""
        return self.opened[0]


@contextmanager
def traced(path: Path, **options: Any) -> Iterator[TracedSaver]:
    """Such a saver on a file."""
    with pytest.MonkeyPatch.context() as patch, TracedSaver(path, **options) as saver:
        saver.opened, saver.executed = [], []

        def connect(*args: Any, **kwargs: Any) -> sqlite3.Connection:
            connection: sqlite3.Connection = CONNECT(*args, **kwargs)
            connection.set_trace_callback(lambda sql: saver.executed.append((sql, connection.in_transaction)))
            saver.opened.append(connection)
            return connection

        patch.setattr(sqlite3, "connect", connect)
        saver.setup()
        yield saver


@contextmanager
def commits(saver: TracedSaver) -> Iterator[list[str]]:
    """The commits of a block: of transactions, and of single statements that need none."""
    found: list[str] = []
    before = len(saver.executed)
    yield found
    for sql, is_inside in saver.executed[before:]:
        if sql == "COMMIT" or (sql.startswith("INSERT") and not is_inside):
            found.append(sql)


class Work:
    """One call of a saver, in either api."""

    def __init__(self, name: str, *args: Any, **kwargs: Any) -> None:
        self.name, self.args, self.kwargs = name, args, kwargs

    async def run(self, saver: SqliteSaver) -> Any:
        return await getattr(saver, f"a{self.name}")(*self.args, **self.kwargs)

    def run_here(self, saver: SqliteSaver) -> Any:
        try:
            return getattr(saver, self.name)(*self.args, **self.kwargs)
        except Exception as error:
            return error


def put(thread_id: str, parent: str | None = None) -> Work:
    document = checkpoint("2" if parent else "1", {"a": ["x"]})
    return Work("put", config(thread_id, parent), document, metadata(), document["channel_versions"])


def put_writes(where: RunnableConfig, task: str = "task") -> Work:
    return Work("put_writes", where, [("a", 1), ("b", [2])], task)


class Op(Work):
    """An operation that the test defines."""

    def __init__(self, steps: Callable[[], Steps[Any]], access: Access = "write") -> None:
        self.op = Operation("test", access, steps)

    async def run(self, saver: SqliteSaver) -> Any:
        return await saver.backend.driver.arun(self.op)

    def run_here(self, saver: SqliteSaver) -> Any:
        try:
            return saver.backend.driver.run(self.op)
        except Exception as error:
            return error


def insert(thread_id: str) -> RoundTrip:
    """A statement that stores a row that `claimed` finds."""
    sql = "INSERT INTO claims (thread_id, token, owner, expires_at) VALUES (:thread_id, 'token', 'test', 1e12)"
    return RoundTrip([Statement("insert", sql, {"thread_id": thread_id})])


def claimed(path: Path) -> set[str]:
    """The thread ids that `insert` has stored."""
    with closing(CONNECT(path)) as connection:
        return {thread_id for (thread_id,) in connection.execute("SELECT thread_id FROM claims")}


@contextmanager
def locked(path: Path) -> Iterator[Callable[[], None]]:
    """Block writes until the block ends or the function that it yields is called."""
    with closing(CONNECT(path, isolation_level=None, check_same_thread=False)) as other:
        other.execute("BEGIN IMMEDIATE")
        yield lambda: other.rollback()


async def begun(saver: TracedSaver, work: Work) -> asyncio.Future[Any]:
    """Make a call, and wait until the worker runs it, alone."""
    before = len(saver.executed)
    call = asyncio.ensure_future(work.run(saver))
    await until(lambda: any(sql.startswith(("BEGIN IMMEDIATE", "INSERT")) for sql, _ in saver.executed[before:]))
    return call


async def together(saver: TracedSaver, path: Path, work: Sequence[Work]) -> Outcomes:
    """Make calls in this order while another one is in its transaction, so that they form the next batch."""
    with locked(path) as unlock:
        first = await begun(saver, put("first"))
        tasks = [asyncio.ensure_future(each.run(saver)) for each in work]
        await asyncio.sleep(0)
        unlock()
        found = await asyncio.gather(*tasks, return_exceptions=True)
        await first
    return found


async def until(condition: Callable[[], bool]) -> None:
    """Run the loop until a condition is true."""
    while not condition():
        await asyncio.sleep(0.001)  # Until another OS thread gets this far.


def stored(saver: SqliteSaver) -> set[str]:
    """The threads that have a checkpoint."""
    return {found.config["configurable"]["thread_id"] for found in saver.list(None)}
