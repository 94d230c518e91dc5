"""Helpers for concurrent calls of a SQLite saver: make them, and count their commits."""

from __future__ import annotations

import asyncio
import sqlite3
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from langchain_core.runnables import RunnableConfig

from langgraph_checkpoint_custom import SqliteSaver
from langgraph_checkpoint_custom.drivers.sqlite_group_commit import WriteQueue
from langgraph_checkpoint_custom.engine.operation import Access, Operation, RoundTrip, Statement, Steps
from tests.behaviour.helpers import checkpoint, config, metadata

Outcomes = list[Any]


def writer(saver: SqliteSaver) -> sqlite3.Connection:
    """The connection that writes."""
    connection: sqlite3.Connection = saver._driver._connections.held.writer  # type: ignore[attr-defined]
    return connection


@contextmanager
def commits(saver: SqliteSaver) -> Iterator[list[str]]:
    """The commits of a block: of transactions, and of single statements that need none."""
    found: list[str] = []
    connection = writer(saver)

    def note(sql: str) -> None:
        if sql == "COMMIT" or (sql.startswith("INSERT") and not connection.in_transaction):
            found.append(sql)

    connection.set_trace_callback(note)
    yield found
    writer(saver).set_trace_callback(None)


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
        return await saver._driver.arun(self.op)

    def run_here(self, saver: SqliteSaver) -> Any:
        try:
            return saver._driver.run(self.op)
        except Exception as error:
            return error


def insert(thread_id: str) -> RoundTrip:
    """A statement that stores a row that `claimed` finds."""
    sql = "INSERT INTO claims (thread_id, token, owner, expires_at) VALUES (:thread_id, 'token', 'test', 1e12)"
    return RoundTrip([Statement("insert", sql, {"thread_id": thread_id})])


def claimed(path: Path) -> set[str]:
    """The thread ids that `insert` has stored."""
    with closing(sqlite3.connect(path)) as connection:
        return {thread_id for (thread_id,) in connection.execute("SELECT thread_id FROM claims")}


@contextmanager
def locked(path: Path) -> Iterator[Callable[[], None]]:
    """Block writes until the block ends or the function that it yields is called."""
    with closing(sqlite3.connect(path, isolation_level=None, check_same_thread=False)) as other:
        other.execute("BEGIN IMMEDIATE")
        yield lambda: other.rollback()


async def together(saver: SqliteSaver, path: Path, api: str, work: Sequence[Work]) -> Outcomes:
    """Make calls in this order while another one is in its transaction, so that they form the next batch."""
    with locked(path) as unlock:
        first = asyncio.ensure_future(put("first").run(saver))
        await until(lambda: queue_of(saver)._leads.locked() and not queue_of(saver)._waiting)
        if api == "async":
            tasks = [asyncio.ensure_future(each.run(saver)) for each in work]
            await asyncio.sleep(0)
            unlock()
            found = await asyncio.gather(*tasks, return_exceptions=True)
        else:
            with ThreadPoolExecutor(len(work)) as workers:
                futures = []
                for number, each in enumerate(work):
                    futures.append(workers.submit(each.run_here, saver))
                    await until(lambda number=number: len(queue_of(saver)._waiting) == number + 1)  # type: ignore[misc]
                unlock()
                found = [await asyncio.wrap_future(each) for each in futures]
        await first
    return found


def queue_of(saver: SqliteSaver) -> WriteQueue:
    queue: WriteQueue = saver._driver._queue  # type: ignore[attr-defined]
    return queue


async def until(condition: Callable[[], bool]) -> None:
    """Run the loop until a condition is true."""
    ends = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < ends, "it never came so far"
        await asyncio.sleep(0.001)  # Until another OS thread gets this far.


def stored(saver: SqliteSaver) -> set[str]:
    """The threads that have a checkpoint."""
    return {found.config["configurable"]["thread_id"] for found in saver.list(None)}
