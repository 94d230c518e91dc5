"""How little an ordinary call can cost: a saver that only does what it promises then, in a straight line.

It checks ids, encodes with our exact serializer, projects the metadata, and uses our tables with all their indexes
through psycopg and sqlite3 as everybody does. It leaves out all that is rare: retries, errors, forks, interrupts,
claims, blobs. So it is no saver, but says what these may cost an ordinary call.
"""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from collections import defaultdict
from collections.abc import AsyncIterator, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import repeat
from pathlib import Path
from typing import Any

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import WRITES_IDX_MAP, BaseCheckpointSaver, CheckpointTuple
from psycopg_pool import AsyncConnectionPool, ConnectionPool

from langgraph_checkpoint_custom.encoding.encode import CHANGING, DOCUMENT
from langgraph_checkpoint_custom.encoding.metadata import merge_metadata
from langgraph_checkpoint_custom.encoding.rows import run_of
from langgraph_checkpoint_custom.encoding.serde import MSGPACK, NULL
from langgraph_checkpoint_custom.encoding.values import ValueCodec
from langgraph_checkpoint_custom.model.filter import project
from langgraph_checkpoint_custom.model.keys import MAX_ID, channel_text, config_of, key_of, text
from langgraph_checkpoint_custom.saver import CheckpointSaver

KEY = "thread_id, checkpoint_ns, checkpoint_id"
DATA = "parent_id, run_id, format, checkpoint_type, checkpoint, metadata_type, metadata, metadata_filter"
LISTS = "inline_channels, delta_channels, blob_channels, blob_versions"
REPLACED = ", ".join(f"{name} = excluded.{name}" for name in (*DATA.split(", "), *LISTS.split(", ")))
PUT = (
    f"INSERT INTO {{schema}}checkpoints ({KEY}, {DATA}, {LISTS}{{tenant}}) "
    f"VALUES (%s, %s, %s, %s, %s, %s, %s, %b, %s, %b, %s, {{no}}, {{no}}, {{no}}, {{no}}{{none}}) "
    f"ON CONFLICT ({KEY}) DO UPDATE SET {REPLACED}"
)
WRITE = "(%s, %s, %s, %s, %s, %s, %s, %s, %b)"
WRITES = (
    f"INSERT INTO {{schema}}writes ({KEY}, task_id, task_path, idx, channel, type, value) VALUES {{rows}} "
    f"ON CONFLICT ({KEY}, task_id, idx) DO UPDATE SET task_path = excluded.task_path, channel = excluded.channel, "
    "type = excluded.type, value = excluded.value WHERE excluded.idx < 0"
)
FOUND = "checkpoint_id, parent_id, checkpoint_type, checkpoint, metadata_type, metadata"
OF_THREAD = "WHERE thread_id = %s AND checkpoint_ns = %s AND NOT hidden"
NEWEST = f"SELECT {FOUND} FROM {{schema}}checkpoints {OF_THREAD} ORDER BY checkpoint_id DESC LIMIT 1"
BY_ID = f"SELECT {FOUND} FROM {{schema}}checkpoints {OF_THREAD} AND checkpoint_id = %s"
LIST = f"SELECT {FOUND} FROM {{schema}}checkpoints {OF_THREAD} ORDER BY checkpoint_id DESC LIMIT %s"
ITS_WRITES = f"SELECT task_path, task_id, idx, channel, type, value FROM writes WHERE ({KEY}) = (?, ?, ?)"
# On PostgreSQL, the checkpoints and their writes are read in one round trip, the checkpoints first.
TOGETHER = (
    "WITH found AS MATERIALIZED ({read}) SELECT *, NULL::int, NULL::text FROM found UNION ALL "
    "SELECT w.task_path, w.task_id, w.type, w.value, w.channel, NULL, w.idx, w.checkpoint_id FROM found "
    "JOIN {schema}writes w ON w.thread_id = %s AND w.checkpoint_ns = %s AND w.checkpoint_id = found.checkpoint_id"
)


def for_sqlite(sql: str) -> str:
    """A statement as SQLite takes it."""
    sql = sql.format(schema="", tenant="", none="", no="'[]'", json="", list="", rows="{rows}")
    return sql.replace("%s", "?").replace("%b", "?")


def for_postgres(sql: str) -> str:
    """A statement as PostgreSQL takes it."""
    parts = {"schema": "langgraph_checkpoint.", "tenant": ", tenant", "none": ", ''", "no": "'{}'"}
    return sql.format(json="::jsonb", list="::text[]", rows="{rows}", **parts)


class Straight(BaseCheckpointSaver[Any]):
    """Encoding and decoding; a subclass sends."""

    get_next_version = CheckpointSaver.get_next_version  # It uses no attribute.

    def __init__(self) -> None:
        super().__init__()
        self._codec = ValueCodec(self.serde, on_inexact="store")

    def _row(self, config: RunnableConfig, checkpoint: Any, metadata: Any) -> tuple[Any, ...]:
        thread_id, checkpoint_ns, parent_id = key_of(config)
        merged = merge_metadata(config, metadata, self._codec)
        for channel in checkpoint["channel_values"]:
            channel_text(channel)
        type_, document = self._codec.encode(checkpoint)
        assert len(document) <= DOCUMENT * CHANGING, "the values of a larger checkpoint are stored apart"
        return (
            thread_id, checkpoint_ns, text("checkpoint id", checkpoint["id"], MAX_ID), parent_id, run_of(merged),
            checkpoint["v"], type_, document, *self._codec.encode(merged), project(merged, None),
        )  # fmt: skip

    def _writes(self, config: RunnableConfig, writes: Sequence[tuple[str, Any]], task_id: str, path: str) -> list[Any]:
        head = (*key_of(config), text("task_id", task_id, MAX_ID), path)
        values: list[Any] = []
        for position, (channel, value) in enumerate(writes):
            values += head
            values += (WRITES_IDX_MAP.get(channel, position), channel_text(channel))
            values += self._codec.encode(value)
        return values

    def _tuple(self, config: RunnableConfig, row: Sequence[Any], writes: list[Any]) -> CheckpointTuple:
        thread_id, checkpoint_ns, _ = key_of(config)
        checkpoint_id, parent_id, _, document, _, metadata = row
        unpack = self._codec.plain[MSGPACK]
        writes.sort()
        return CheckpointTuple(
            config_of(thread_id, checkpoint_ns, checkpoint_id),
            unpack(document),
            unpack(metadata),
            config_of(thread_id, checkpoint_ns, parent_id) if parent_id else None,
            [
                (task_id, channel, None if type_ == NULL else unpack(data))
                for _, task_id, _, channel, type_, data in writes
            ],
        )


class StraightSqlite(Straight):
    """One connection and one lock; async calls run on one OS thread."""

    put_row, writes, newest, by_id, listed = map(for_sqlite, (PUT, WRITES, NEWEST, BY_ID, LIST))

    def __init__(self, path: Path) -> None:
        super().__init__()
        self._connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False, timeout=60)
        self._connection.execute("PRAGMA synchronous = FULL")
        self._lock = threading.Lock()
        self._worker = ThreadPoolExecutor(1)

    def put(self, config: RunnableConfig, checkpoint: Any, metadata: Any, new_versions: Any) -> RunnableConfig:
        row = self._row(config, checkpoint, metadata)
        with self._lock:
            self._connection.execute(self.put_row, row)
        return config_of(*row[:3])

    def put_writes(self, config: RunnableConfig, writes: Any, task_id: str, task_path: str = "") -> None:
        values = self._writes(config, writes, task_id, task_path)
        rows = ", ".join(["(?, ?, ?, ?, ?, ?, ?, ?, ?)"] * len(writes))
        with self._lock:
            self._connection.execute(self.writes.format(rows=rows), values)

    def get_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        thread_id, checkpoint_ns, checkpoint_id = key_of(config)
        sql, asked = self.newest, (thread_id, checkpoint_ns)
        if checkpoint_id:
            sql, asked = self.by_id, (thread_id, checkpoint_ns, checkpoint_id)  # type: ignore[assignment]
        execute = self._connection.execute
        with self._lock:
            execute("BEGIN")
            row = execute(sql, asked).fetchone()
            writes = execute(ITS_WRITES, (thread_id, checkpoint_ns, row[0])).fetchall() if row else []
            execute("COMMIT")
        return self._tuple(config, row, writes) if row else None

    def list(self, config: Any, *, limit: int | None = None, **_others: Any) -> Iterator[CheckpointTuple]:
        thread_id, checkpoint_ns, _ = key_of(config)
        execute = self._connection.execute
        with self._lock:
            execute("BEGIN")
            rows = execute(self.listed, (thread_id, checkpoint_ns, -1 if limit is None else limit)).fetchall()
            writes = [execute(ITS_WRITES, (thread_id, checkpoint_ns, row[0])).fetchall() for row in rows]
            execute("COMMIT")
        return map(self._tuple, repeat(config), rows, writes)

    async def aput(self, *call: Any) -> RunnableConfig:
        return await asyncio.get_running_loop().run_in_executor(self._worker, self.put, *call)

    async def aput_writes(self, *call: Any) -> None:
        await asyncio.get_running_loop().run_in_executor(self._worker, self.put_writes, *call)

    async def aget_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        return await asyncio.get_running_loop().run_in_executor(self._worker, self.get_tuple, config)

    async def alist(self, config: Any, *, limit: int | None = None, **_others: Any) -> AsyncIterator[CheckpointTuple]:
        def listed() -> Sequence[CheckpointTuple]:
            return [*self.list(config, limit=limit)]

        for found in await asyncio.get_running_loop().run_in_executor(self._worker, listed):
            yield found

    def close(self) -> None:
        """Close the connection."""
        self._worker.shutdown()
        self._connection.close()


class StraightPostgres(Straight):
    """A pool, its cursors, and their prepared statements; `pool` is of the api that is used."""

    put_row, writes = map(for_postgres, (PUT, WRITES))
    newest, by_id, listed = (
        TOGETHER.format(read=read.format(schema="langgraph_checkpoint."), schema="langgraph_checkpoint.")
        for read in (NEWEST, BY_ID, LIST)
    )

    def __init__(self, pool: ConnectionPool[Any] | AsyncConnectionPool[Any]) -> None:
        super().__init__()
        self._pool: Any = pool

    def put(self, config: RunnableConfig, checkpoint: Any, metadata: Any, new_versions: Any) -> RunnableConfig:
        row = self._row(config, checkpoint, metadata)
        with self._pool.connection() as connection:
            connection.execute(self.put_row, row)
        return config_of(*row[:3])

    async def aput(self, config: RunnableConfig, checkpoint: Any, metadata: Any, new_versions: Any) -> RunnableConfig:
        row = self._row(config, checkpoint, metadata)
        async with self._pool.connection() as connection:
            await connection.execute(self.put_row, row)
        return config_of(*row[:3])

    def put_writes(self, config: RunnableConfig, writes: Any, task_id: str, task_path: str = "") -> None:
        values = self._writes(config, writes, task_id, task_path)
        with self._pool.connection() as connection:
            connection.execute(self.writes.format(rows=", ".join([WRITE] * len(writes))), values)

    async def aput_writes(self, config: RunnableConfig, writes: Any, task_id: str, task_path: str = "") -> None:
        values = self._writes(config, writes, task_id, task_path)
        async with self._pool.connection() as connection:
            await connection.execute(self.writes.format(rows=", ".join([WRITE] * len(writes))), values)

    def get_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        with self._pool.connection() as connection:
            rows = connection.cursor(binary=True).execute(*self._read(config)).fetchall()
        return self._decoded(config, rows)

    async def aget_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        async with self._pool.connection() as connection:
            cursor = await connection.cursor(binary=True).execute(*self._read(config))
            rows = await cursor.fetchall()
        return self._decoded(config, rows)

    def _read(self, config: RunnableConfig) -> tuple[str, tuple[str, ...]]:
        thread_id, checkpoint_ns, checkpoint_id = key_of(config)
        if checkpoint_id:
            return self.by_id, (thread_id, checkpoint_ns, checkpoint_id, thread_id, checkpoint_ns)
        return self.newest, (thread_id, checkpoint_ns, thread_id, checkpoint_ns)

    def _decoded(self, config: RunnableConfig, rows: Sequence[Sequence[Any]]) -> CheckpointTuple | None:
        if not rows:
            return None
        (*row, _, _), *writes = rows
        ordered = [(path, task, idx, channel, kind, data) for path, task, kind, data, channel, _, idx, _ in writes]
        return self._tuple(config, row, ordered)

    def list(self, config: Any, *, limit: int | None = None, **_others: Any) -> Iterator[CheckpointTuple]:
        with self._pool.connection() as connection:
            rows = connection.cursor(binary=True).execute(*self._page(config, limit)).fetchall()
        return self._decoded_all(config, rows)

    async def alist(self, config: Any, *, limit: int | None = None, **_others: Any) -> AsyncIterator[CheckpointTuple]:
        async with self._pool.connection() as connection:
            cursor = await connection.cursor(binary=True).execute(*self._page(config, limit))
            rows = await cursor.fetchall()
        for found in self._decoded_all(config, rows):
            yield found

    def _page(self, config: RunnableConfig, limit: int | None) -> tuple[str, Sequence[Any]]:
        thread_id, checkpoint_ns, _ = key_of(config)
        return self.listed, (thread_id, checkpoint_ns, limit, thread_id, checkpoint_ns)

    def _decoded_all(self, config: RunnableConfig, rows: Sequence[Sequence[Any]]) -> Iterator[CheckpointTuple]:
        writes: defaultdict[str, list[Any]] = defaultdict(list)
        for path, task, kind, data, channel, _, idx, checkpoint_id in rows:
            if idx is not None:
                writes[checkpoint_id].append((path, task, idx, channel, kind, data))
        return (self._tuple(config, row[:6], writes[row[0]]) for row in rows if row[6] is None)
