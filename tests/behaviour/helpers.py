"""Functions that make checkpoints, and access to the database without the saver."""

from __future__ import annotations

import asyncio
import gc
import os
import random
import re
import sqlite3
import string
import subprocess
import sys
import uuid
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, cast

import psycopg
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import (
    BaseCheckpointSaver,
    Checkpoint,
    CheckpointMetadata,
    CheckpointTuple,
    DeltaChannelHistory,
)
from langgraph.checkpoint.base.id import uuid6
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from langgraph.checkpoint.serde.types import _DeltaSnapshot
from langgraph.types import StateSnapshot
from ulid import ULID

from langgraph_checkpoint_custom.encoding.values import PROBE
from tests.stores import Client, Store

NextId = Callable[[], str]
TABLES = ("checkpoints", "writes", "blobs")
# Bytes of thread id, namespace and channel with which a key always fits into an index of PostgreSQL.
SURELY_FIT = 2_400
# Longer than a document with values without a new version; a blob with the fixture `changing_values_in_blobs`.
LONG = "long " * 900


def noise(length: int) -> str:
    """Text that no database can compress."""
    return "".join(random.Random(length).choices(string.ascii_letters + string.digits, k=length))


def next_uuid() -> str:
    """LangGraph's own ids: each is greater than the previous one."""
    return str(uuid6(clock_seq=-1))


def next_ulids() -> NextId:
    """Increasing ULIDs, a millisecond apart: within one millisecond, their order is random."""
    milliseconds = iter(range(1_700_000_000_000, 1_800_000_000_000))
    return lambda: str(ULID.from_timestamp(next(milliseconds)))


def config(thread_id: Any = "thread", checkpoint_id: Any = None, ns: Any = "") -> RunnableConfig:
    """The config of a checkpoint, or of the newest one of a namespace."""
    location = {"thread_id": thread_id, "checkpoint_ns": ns}
    return {"configurable": location if checkpoint_id is None else location | {"checkpoint_id": checkpoint_id}}


def anywhere(thread_id: str = "thread") -> RunnableConfig:
    """The config of all namespaces of a thread, for `list`."""
    return {"configurable": {"thread_id": thread_id}}


def metadata(step: int = 0, **extra: Any) -> CheckpointMetadata:
    """Metadata as LangGraph makes it."""
    return cast("CheckpointMetadata", {"source": "loop", "step": step, "parents": {}, **extra})


def checkpoint(
    checkpoint_id: str,
    values: Mapping[str, Any] | None = None,
    versions: Mapping[str, Any] | None = None,
    *,
    v: int = 4,
) -> Checkpoint:
    """A checkpoint document; every value has a version of its own unless `versions` says otherwise."""
    values = dict(values or {})
    return Checkpoint(
        v=v,
        id=checkpoint_id,
        ts="2024-05-04T06:32:42.235444+00:00",
        channel_values=values,
        channel_versions=dict(versions) if versions is not None else new_versions(values),
        versions_seen={},
        updated_channels=None,
    )


def new_versions(channels: Iterable[str]) -> dict[str, Any]:
    """A new, unique version for each channel."""
    return {channel: f"{1:032d}.{next_uuid()}" for channel in channels}


async def put(
    client: Client,
    checkpoint_id: str,
    values: Mapping[str, Any] | None = None,
    *,
    parent: RunnableConfig | None = None,
    thread_id: str = "thread",
    ns: str = "",
    versions: Mapping[str, Any] | None = None,
    new: Mapping[str, Any] | None = None,
    meta: CheckpointMetadata | None = None,
    v: int = 4,
) -> RunnableConfig:
    """Store a checkpoint; all of its versions are new unless `new` says otherwise."""
    document = checkpoint(checkpoint_id, values, versions, v=v)
    fresh = dict(document["channel_versions"] if new is None else new)
    where = config(thread_id, parent and id_of(parent), ns)
    return await client.put(where, document, metadata() if meta is None else meta, fresh)


async def put_chain(client: Client, next_id: NextId, length: int, **options: Any) -> list[RunnableConfig]:
    """A thread of `length` checkpoints, each the parent of the next one; `step` counts them."""
    configs: list[RunnableConfig] = []
    for step in range(length):
        parent = configs[-1] if configs else None
        configs.append(await put(client, next_id(), parent=parent, meta=metadata(step), **options))
    return configs


async def get(client: Client, where: RunnableConfig) -> CheckpointTuple:
    """The checkpoint, which has to exist."""
    found = await client.get_tuple(where)
    assert found is not None, f"there is no checkpoint {where}"
    return found


def id_of(found: CheckpointTuple | RunnableConfig) -> str:
    """The checkpoint id of a tuple or a config."""
    where: Mapping[str, Any] = found.config if isinstance(found, CheckpointTuple) else found
    return cast(str, where["configurable"]["checkpoint_id"])


def ids_of(found: Sequence[CheckpointTuple] | Sequence[RunnableConfig]) -> list[str]:
    """The checkpoint ids, in order."""
    return [id_of(each) for each in found]


class CountingSerializer(JsonPlusSerializer):
    """LangGraph's serializer, counting what goes through it."""

    def __init__(self) -> None:
        super().__init__()
        self.dumped = 0
        self.loaded = 0

    def dumps_typed(self, obj: Any) -> tuple[str, bytes]:
        dumped = super().dumps_typed(obj)
        self.dumped += obj != PROBE
        return dumped

    def loads_typed(self, data: tuple[str, bytes]) -> Any:
        self.loaded += 1
        return super().loads_typed(data)


class Database:
    """The tables of a store, without the saver. Parameters are written `:name`."""

    def __init__(self, store: Store) -> None:
        self.kind = store.kind
        self.url = store.url
        self.path = store.url.removeprefix("sqlite:///")

    def connect(self) -> Any:
        """A connection in a transaction."""
        if self.kind == "sqlite":
            return sqlite3.connect(self.path, isolation_level="IMMEDIATE", timeout=150, check_same_thread=False)
        return psycopg.connect(self.url, options="-c search_path=langgraph_checkpoint")

    def run(self, sql: str, **params: Any) -> list[tuple[Any, ...]]:
        """Run one statement and return its rows, if it has any. It must affect a row."""
        if self.kind == "postgres":
            sql = re.sub(r"(?<!:):(\w+)", r"%(\1)s", sql)
        with closing(self.connect()) as connection:
            cursor = connection.execute(sql, params)
            rows = cursor.fetchall() if cursor.description else []
            assert rows or cursor.rowcount > 0, f"{sql} did nothing"
            connection.commit()
        return rows

    def change(self, *statements: str) -> None:
        """Run statements that need not affect a row, such as those that change the tables."""
        with closing(self.connect()) as connection:
            for sql in statements:
                connection.execute(sql)
            connection.commit()

    def count(self, table: str) -> int:
        """The number of rows of a table."""
        return cast(int, self.run(f"SELECT count(*) FROM {table}")[0][0])

    def counts(self) -> dict[str, int]:
        """The number of rows of every table; zeros if the tables do not exist yet."""
        try:
            return {table: self.count(table) for table in TABLES}
        except (sqlite3.OperationalError, psycopg.errors.UndefinedTable):
            return dict.fromkeys(TABLES, 0)

    def cells(self) -> list[bytes]:
        """Every value in every column of every table, as bytes."""
        found: list[bytes] = []
        with closing(self.connect()) as connection:
            for table in TABLES:
                for row in connection.execute(f"SELECT * FROM {table}"):
                    found += [cell if isinstance(cell, bytes) else str(cell).encode() for cell in row]
        return found

    @contextmanager
    def locked(self) -> Iterator[Callable[[], None]]:
        """Block every write of others until the block ends or the yielded function is called."""
        with closing(self.connect()) as connection:
            if self.kind == "sqlite":
                connection.execute("BEGIN IMMEDIATE")
            else:
                connection.execute("LOCK TABLE blobs, writes, checkpoints IN EXCLUSIVE MODE")
            yield connection.rollback


@contextmanager
def running(program: str, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    """A process that has said "here"; it may use these helpers, and does not outlive the block."""
    command = [sys.executable, "-c", program, *arguments]
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as worker:
        try:
            assert worker.stdout is not None
            assert worker.stdout.readline() == "here\n"
            yield worker
        finally:
            worker.kill()


def resident(name: str) -> int:
    """Bytes of memory that this process has, by the name of a line in /proc: VmRSS, or VmHWM for the peak."""
    text = Path("/proc/self/status").read_text("utf-8")
    return 1024 * int(re.findall(rf"^{name}:\s+(\d+) kB$", text, re.MULTILINE)[0])


def peak(work: Callable[[], object]) -> int:
    """Bytes of memory that some work adds to this process at most; only Linux says so."""
    gc.collect()
    Path("/proc/self/clear_refs").write_text("5", "utf-8")  # The peak begins anew.
    before = resident("VmRSS")
    work()
    return resident("VmHWM") - before


@contextmanager
def made_role(url: str, granted: str, schema: str = "langgraph_checkpoint") -> Iterator[str]:
    """A role of PostgreSQL's that has some rights on tables of a schema, for the duration of a block."""
    name = f"role_{uuid.uuid4().hex[:12]}"
    rights = f"USAGE ON SCHEMA {schema}", granted
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(f"CREATE ROLE {name}".encode())
        for right in rights:
            connection.execute(f"GRANT {right} TO {name}".encode())
    try:
        yield name
    finally:
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute(f"DROP OWNED BY {name}; DROP ROLE {name}".encode())


async def put_delta_chain(
    client: Client, next_id: NextId, length: int, snapshots: Collection[int], *, thread_id: str = "thread", ns: str = ""
) -> list[RunnableConfig]:
    """A thread whose channel `delta` is stored at some steps only; the write of step 3 is 3, and so on.

    Each step also has its own value in the channel `plain`.
    """
    configs: list[RunnableConfig] = []
    for step in range(length):
        values: dict[str, Any] = {"plain": [LONG, step]}
        meta = metadata(step)
        if step in snapshots:
            values["delta"] = _DeltaSnapshot(list(range(step)))
        else:
            meta = metadata(step, counters_since_delta_snapshot={"delta": [1, 1]})
        versions = new_versions(["plain", "delta"])
        parent = configs[-1] if configs else None
        where = await put(
            client, next_id(), values, thread_id=thread_id, ns=ns, parent=parent, versions=versions, meta=meta
        )
        await client.put_writes(where, [("delta", step), ("other", step)], f"task {step}", f"path {step}")
        configs.append(where)
    return configs


def delta_history(seed: int | None, head: int) -> DeltaChannelHistory:
    """The history of a step of `put_delta_chain` whose nearest snapshot is at the step `seed`."""
    history: DeltaChannelHistory = {"writes": [(f"task {step}", "delta", step) for step in range(seed or 0, head)]}
    if seed is not None:
        history["seed"] = _DeltaSnapshot(list(range(seed)))
    return history


async def default_walk(
    client: Client, where: RunnableConfig, channels: Sequence[str]
) -> Mapping[str, DeltaChannelHistory]:
    """The history as LangGraph's base class finds it, with `get_tuple` alone."""
    if client.api == "async":
        return await BaseCheckpointSaver.aget_delta_channel_history(client.saver, config=where, channels=channels)
    walk = BaseCheckpointSaver.get_delta_channel_history
    return await asyncio.to_thread(walk, client.saver, config=where, channels=channels)


async def run_graph(client: Client, graph: Any, value: Any, where: Any, **options: Any) -> Any:
    """Run a compiled graph in the api of the test."""
    if client.api == "async":
        return await graph.ainvoke(value, where, **options)
    return await asyncio.to_thread(graph.invoke, value, where, **options)


async def state_of(client: Client, graph: Any, where: Any, **options: Any) -> StateSnapshot:
    """A state of a compiled graph."""
    if client.api == "async":
        found = await graph.aget_state(where, **options)
    else:
        found = await asyncio.to_thread(graph.get_state, where, **options)
    assert isinstance(found, StateSnapshot)
    return found


async def states_of(client: Client, graph: Any, where: Any) -> list[StateSnapshot]:
    """All states of a compiled graph's thread, newest first."""
    if client.api == "async":
        return [state async for state in graph.aget_state_history(where)]
    return await asyncio.to_thread(lambda: list(graph.get_state_history(where)))


async def cancel_the_rest() -> None:
    """Cancel what else runs in this loop and wait for it, as `asyncio.run` does in the end."""
    rest = asyncio.all_tasks() - {asyncio.current_task()}
    for task in rest:
        task.cancel()
    await asyncio.gather(*rest, return_exceptions=True)
