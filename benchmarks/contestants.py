"""Our savers and the official ones with the same methods.

A call is a coroutine for both apis; that of a sync saver never waits, so it costs a microsecond more than the bare
method. What the official savers lack is done as an Agent Server does it: list, delete, and put again one by one.
"""

from __future__ import annotations

import os
import socket
import sqlite3
import threading
import time
import weakref
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from contextlib import (
    AbstractAsyncContextManager,
    AbstractContextManager,
    AsyncExitStack,
    asynccontextmanager,
    closing,
    contextmanager,
    suppress,
)
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psycopg
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import BaseCheckpointSaver, CheckpointTuple, DeltaChannelHistory
from langgraph.checkpoint.postgres import PostgresSaver as OfficialPostgresSaver
from langgraph.checkpoint.postgres.aio import AsyncPostgresSaver
from langgraph.checkpoint.sqlite import SqliteSaver as OfficialSqliteSaver
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver
from psycopg.rows import dict_row
from psycopg_pool import AsyncConnectionPool, ConnectionPool

from benchmarks.floors import TABLE, AsyncPostgres, Floor, Nothing, Postgres, Sqlite
from benchmarks.measuring import Role
from benchmarks.promises import KeepingPostgres, KeepingSqlite
from benchmarks.states import Put, Writes
from benchmarks.stores import Server
from benchmarks.straight import StraightPostgres, StraightSqlite
from langgraph_checkpoint_custom import PostgresSaver, SqliteSaver
from langgraph_checkpoint_custom.options import Synchronous

# Connections of each pool, ours, the official savers' and the floor's: our default.
CONNECTIONS = 20
# Whose databases a location has, besides those of the straight lines: database, name and role.
OWNERS = ("ours", "official", "floor")
STRAIGHT: Sequence[tuple[str, str, Role]] = [
    ("straight", "straight line", "straight"),
    ("promises", "straight line that keeps promises", "promises"),
]
DATABASES = (*OWNERS, *(whose for whose, *_ in STRAIGHT))
# Seconds; a call that takes longer hangs.
HANGS = 5


def config(thread_id: str, checkpoint_id: str | None = None) -> RunnableConfig:
    """The config of a checkpoint, or of the newest one."""
    location = {"thread_id": thread_id, "checkpoint_ns": ""}
    return {"configurable": location if checkpoint_id is None else location | {"checkpoint_id": checkpoint_id}}


class Contestant:
    """A saver with one api."""

    def __init__(self, name: str, role: Role, api: str, saver: BaseCheckpointSaver[Any]) -> None:
        self.name = name
        self.role: Role = role
        self.api = api
        self.saver = saver
        self.going_on: set[object] = set()
        self.since = 0.0
        self.hung = False
        _WATCHED.add(self)

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Give up a call that hangs: its connection is ended from outside, which ends a sync call, too."""
        call = object()
        self.going_on.add(call)
        self.since = time.monotonic()
        try:
            yield
        except Exception:  # Whatever a call raises when its connection is ended.
            if self.hung:
                raise TimeoutError(f"it hangs: nothing came for {HANGS} s") from None
            raise
        finally:
            self.since = time.monotonic()
            self.going_on.discard(call)

    async def _call(self, name: str, *args: Any, **kwargs: Any) -> Any:
        with self.watched():
            if self.api == "async":
                return await getattr(self.saver, f"a{name}")(*args, **kwargs)
            return getattr(self.saver, name)(*args, **kwargs)

    async def put(self, thread_id: str, put: Put) -> None:
        """Store a checkpoint."""
        where = config(thread_id, put.parent_id)
        await self._call("put", where, put.checkpoint, put.metadata, put.new_versions)

    async def put_writes(self, thread_id: str, writes: Writes) -> None:
        """Store the writes of a task."""
        await self._call("put_writes", config(thread_id, writes.checkpoint_id), writes.writes, writes.task_id)

    async def get(self, thread_id: str, checkpoint_id: str | None = None) -> CheckpointTuple:
        """A checkpoint, which must exist."""
        found: CheckpointTuple | None = await self._call("get_tuple", config(thread_id, checkpoint_id))
        assert found is not None, f"there is no checkpoint in {thread_id}"
        return found

    async def tuples(self, thread_id: str | None, **narrowing: Any) -> AsyncIterator[CheckpointTuple]:
        """Checkpoints, newest first."""
        where = None if thread_id is None else config(thread_id)
        with self.watched():
            if self.api == "async":
                async for found in self.saver.alist(where, **narrowing):
                    yield found
            else:
                for found in self.saver.list(where, **narrowing):
                    yield found

    async def count(self, thread_id: str | None, **narrowing: Any) -> int:
        """How many checkpoints a list returns, without holding any."""
        number = 0
        async for _ in self.tuples(thread_id, **narrowing):
            number += 1
        return number

    async def history(self, thread_id: str, checkpoint_id: str, channel: str) -> DeltaChannelHistory:
        """The history of a delta channel."""
        where = config(thread_id, checkpoint_id)
        found = await self._call("get_delta_channel_history", config=where, channels=[channel])
        history: DeltaChannelHistory = found[channel]
        return history

    async def delete_thread(self, thread_id: str) -> None:
        """Delete a thread."""
        await self._call("delete_thread", thread_id)

    async def delete_for_runs(self, run_ids: Sequence[str], thread_id: str) -> None:
        """Delete what runs stored; `thread_id` says where, which only the fallback needs."""
        if self._has("delete_for_runs"):
            return await self._call("delete_for_runs", run_ids)  # type: ignore[no-any-return]
        deleted = set(run_ids)
        found = [each async for each in self.tuples(thread_id) if each.metadata.get("run_id") not in deleted]
        await self.delete_thread(thread_id)
        await self._put_again(thread_id, reversed(found))

    async def copy_thread(self, source: str, target: str) -> None:
        """Copy a thread."""
        if self._has("copy_thread"):
            return await self._call("copy_thread", source, target)  # type: ignore[no-any-return]
        found = [each async for each in self.tuples(source)]
        await self._put_again(target, reversed(found))

    async def prune(self, thread_id: str) -> None:
        """Keep the newest checkpoint."""
        if self._has("prune"):
            return await self._call("prune", [thread_id])  # type: ignore[no-any-return]
        newest = await self.get(thread_id)
        await self.delete_thread(thread_id)
        await self._put_again(thread_id, [newest])

    def _has(self, method: str) -> bool:
        name = f"a{method}" if self.api == "async" else method
        return getattr(type(self.saver), name) is not getattr(BaseCheckpointSaver, name)

    async def _put_again(self, thread_id: str, found: Iterable[CheckpointTuple]) -> None:
        before: dict[str, Any] = {}
        for each in found:
            versions = each.checkpoint["channel_versions"]
            new = {channel: version for channel, version in versions.items() if before.get(channel) != version}
            before = dict(versions)
            parent_id = each.parent_config["configurable"]["checkpoint_id"] if each.parent_config else None
            put = Put(parent_id, each.checkpoint, each.metadata, new, None)
            await self.put(thread_id, put)
            tasks: dict[str, list[tuple[str, Any]]] = {}
            for task_id, channel, value in each.pending_writes or ():
                tasks.setdefault(task_id, []).append((channel, value))
            for task_id, writes in tasks.items():
                await self.put_writes(thread_id, Writes(each.checkpoint["id"], writes, task_id))


_WATCHED: weakref.WeakSet[Contestant] = weakref.WeakSet()


def _watch() -> None:
    while True:
        time.sleep(0.5)  # Often enough for calls that are given up after seconds.
        for each in list(_WATCHED):
            connection = getattr(each.saver, "conn", None)
            if (
                each.going_on
                and time.monotonic() - each.since > HANGS
                and isinstance(connection, (psycopg.Connection, psycopg.AsyncConnection))
                and not each.hung
            ):
                each.hung = True
                with suppress(Exception), closing(socket.socket(fileno=os.dup(connection.fileno()))) as end:
                    end.shutdown(socket.SHUT_RDWR)


threading.Thread(target=_watch, daemon=True).start()


class Location:
    """New databases for ours, the official savers and the floor; filled once, for both APIs."""

    def __init__(self, database: str, where: Path, server: Server | None) -> None:
        self.database = database
        self.where = where
        self._server = server
        self.filled: dict[str, Any] = {}

    @property
    def server(self) -> Server:
        """The PostgreSQL server."""
        assert self._server is not None, "there is no server for SQLite"
        return self._server

    def path(self, whose: str) -> Path:
        """The SQLite file of ours, the official savers or the floor."""
        return self.where / f"{whose}.db"

    def name(self, whose: str) -> str:
        """The PostgreSQL database of ours, the official savers or the floor."""
        return f"{self.where.name}_{whose}"

    def make(self) -> None:
        """Create the databases and their tables."""
        if self.database == "sqlite":
            with closing(sqlite3.connect(self.path("floor"))) as connection:
                connection.execute(TABLE.format(bytes="blob"))
            for whose, *_ in STRAIGHT:
                with SqliteSaver(self.path(whose)) as ours:
                    ours.setup()
            return
        for whose in DATABASES:
            self.server.create(self.name(whose))
        for whose in ("ours", *(whose for whose, *_ in STRAIGHT)):
            with PostgresSaver(self.server.of(self.name(whose))) as saver:
                saver.setup()
        with OfficialPostgresSaver.from_conn_string(self.server.of(self.name("official"))) as official:
            official.setup()
        self.server.execute(TABLE.format(bytes="bytea"), self.name("floor"))

    def drop(self) -> None:
        """Drop them."""
        if self.database == "postgres":
            for whose in DATABASES:
                self.server.drop(self.name(whose))

    @asynccontextmanager
    async def fillers(self) -> AsyncIterator[list[Contestant]]:
        """One of our savers and an official one that do not wait for the disk."""
        async with AsyncExitStack() as stack:
            ours: BaseCheckpointSaver[Any]
            official: BaseCheckpointSaver[Any]
            if self.database == "sqlite":
                ours = stack.enter_context(SqliteSaver(self.path("ours"), synchronous="OFF"))
                theirs = stack.enter_context(OfficialSqliteSaver.from_conn_string(str(self.path("official"))))
                theirs.setup()
                theirs.conn.execute("PRAGMA synchronous = OFF")
                official = theirs
            else:
                ours = stack.enter_context(PostgresSaver(self.server.of(self.name("ours"), asynchronous=True)))
                url = self.server.of(self.name("official"), asynchronous=True)
                official = stack.enter_context(OfficialPostgresSaver.from_conn_string(url))
            yield [Contestant("ours", "ours", "sync", ours), Contestant("official", "official", "sync", official)]


@dataclass
class Field:
    """All contestants on one location with one api."""

    savers: list[Contestant]
    straight: list[Contestant]
    floor: Floor
    serde: Floor = field(default_factory=lambda: Floor(Nothing()))


@asynccontextmanager
async def contestants(location: Location, api: str, *, through: dict[str, str] | None = None) -> AsyncIterator[Field]:
    """Open all contestants; `through` has other URLs for the databases of ours, the official savers and the floor."""
    async with AsyncExitStack() as stack:
        if location.database == "sqlite":
            savers = await _sqlite(location, api, stack)
            straight = _straight_sqlite(location, api, stack)
            floor = Floor(Sqlite(location.path("floor"), api))
        else:
            urls = through or {whose: location.server.of(location.name(whose)) for whose in DATABASES}
            savers = await _postgres(urls, api, stack)
            straight = await _straight_postgres(urls, api, stack)
            if api == "async":
                floor = Floor(await AsyncPostgres.open(urls["floor"], CONNECTIONS))
            else:
                floor = Floor(Postgres(urls["floor"], CONNECTIONS))
        stack.push_async_callback(floor.close)
        yield Field(savers, straight, floor)


async def _postgres(urls: dict[str, str], api: str, stack: AsyncExitStack) -> list[Contestant]:
    ours = await stack.enter_async_context(PostgresSaver(urls["ours"], max_size=CONNECTIONS))
    found = [Contestant("ours", "ours", api, ours)]
    official: BaseCheckpointSaver[Any]
    for name, pipeline in (("connection", False), ("pipeline", True)):
        if api == "async":
            tasks_of_one = AsyncPostgresSaver.from_conn_string(urls["official"], pipeline=pipeline)
            official = await tasks_of_one.__aenter__()
            stack.push_async_callback(_aclose, tasks_of_one)
        else:
            made = OfficialPostgresSaver.from_conn_string(urls["official"], pipeline=pipeline)
            official = made.__enter__()
            stack.callback(_close, made)
        found.append(Contestant(f"official {name}", "official", api, official))
    # As the official documentation says: these three settings are needed.
    needed: dict[str, Any] = {"autocommit": True, "prepare_threshold": 0, "row_factory": dict_row}
    if api == "async":
        tasks: AsyncConnectionPool[Any] = AsyncConnectionPool(
            urls["official"], max_size=CONNECTIONS, kwargs=needed, open=False
        )
        official = AsyncPostgresSaver(await stack.enter_async_context(tasks))
    else:
        threads: ConnectionPool[Any] = ConnectionPool(urls["official"], max_size=CONNECTIONS, kwargs=needed, open=False)
        official = OfficialPostgresSaver(stack.enter_context(threads))
    found.append(Contestant("official pool", "official", api, official))
    return found


# A connection that was given up cannot be closed without an error: in pipeline mode large puts hang at times.


def _close(made: AbstractContextManager[OfficialPostgresSaver]) -> None:
    with suppress(psycopg.Error):
        made.__exit__(None, None, None)


async def _aclose(made: AbstractAsyncContextManager[AsyncPostgresSaver]) -> None:
    with suppress(psycopg.Error):
        await made.__aexit__(None, None, None)


async def _sqlite(location: Location, api: str, stack: AsyncExitStack) -> list[Contestant]:
    ours = await stack.enter_async_context(SqliteSaver(location.path("ours")))
    found = [Contestant("ours", "ours", api, ours)]
    path = str(location.path("official"))
    official: BaseCheckpointSaver[Any]
    if api == "async":
        tasks = await stack.enter_async_context(AsyncSqliteSaver.from_conn_string(path))
        await tasks.setup()
        official = tasks
    else:
        threads = stack.enter_context(OfficialSqliteSaver.from_conn_string(path))
        threads.setup()
        official = threads
    found.append(Contestant("official", "official", api, official))
    if (theirs := official_synchronous(location)) != "FULL":
        same = await stack.enter_async_context(SqliteSaver(location.path("ours"), synchronous=theirs))
        found.append(Contestant(f"ours, synchronous={theirs}", "same", api, same))
    return found


def _straight_sqlite(location: Location, api: str, stack: AsyncExitStack) -> list[Contestant]:
    found = []
    for whose, name, of in STRAIGHT:
        saver = (KeepingSqlite if of == "promises" else StraightSqlite)(location.path(whose))
        stack.callback(saver.close)
        found.append(Contestant(name, of, api, saver))
    return found


async def _straight_postgres(urls: dict[str, str], api: str, stack: AsyncExitStack) -> list[Contestant]:
    # As ours, one connection unless more are needed; a pool takes them in turn, and each has to prepare its statements.
    settings = {"autocommit": True, "prepare_threshold": 0}
    options: dict[str, Any] = {"min_size": 1, "max_size": CONNECTIONS, "kwargs": settings, "open": False}
    pool: Any
    found = []
    for whose, name, of in STRAIGHT:
        if whose not in urls:
            continue
        if api == "async":
            pool = await stack.enter_async_context(AsyncConnectionPool(urls[whose], **options))
        else:
            pool = stack.enter_context(ConnectionPool(urls[whose], **options))
        found.append(Contestant(name, of, api, (KeepingPostgres if of == "promises" else StraightPostgres)(pool)))
    return found


def official_synchronous(location: Location) -> Synchronous:
    """When the official SQLite saver waits for the disk: it leaves that to how SQLite was built."""
    with OfficialSqliteSaver.from_conn_string(str(location.path("probe"))) as saver:
        saver.setup()
        (number,) = saver.conn.execute("PRAGMA synchronous").fetchone()
    return ("OFF", "NORMAL", "FULL", "EXTRA")[number]
