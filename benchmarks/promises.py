"""What the promises that an ordinary call keeps unseen cost: the straight line, and these in the simplest way.

- The row names the channels whose values it has, so that a deletion and the inspector need not decode it.
- A value of more than 1,024 bytes in a large document is stored once for each version. A read finds it in the same
  snapshot, on PostgreSQL in the same round trip.
- What is rebuilt from its parent, with a `DeltaChannel`, is stored only if the parent is there, and on PostgreSQL no
  deletion of the thread begins until it is committed.
- SQLite: a signal handler that calls the saver gets an error, not a deadlock; an interrupted call leaves no transaction
  open; a file that was moved or deleted is noticed within a tenth of a second.

Everything else that `straight.py` leaves out is left out here, too, such as the thread's row for sweeps, compression,
the run of a write, and a read of blobs that a deletion takes meanwhile. Blobs are only stored outside of races.
"""

from __future__ import annotations

import json
import os
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import CheckpointTuple

from benchmarks.straight import (
    BY_ID,
    DATA,
    FOUND,
    KEY,
    LIST,
    NEWEST,
    REPLACED,
    Straight,
    StraightPostgres,
    StraightSqlite,
    for_postgres,
    for_sqlite,
)
from langgraph_checkpoint_custom.encoding.encode import CHANGING, DOCUMENT
from langgraph_checkpoint_custom.encoding.metadata import merge_metadata
from langgraph_checkpoint_custom.encoding.rows import run_of
from langgraph_checkpoint_custom.encoding.serde import MSGPACK
from langgraph_checkpoint_custom.model.filter import project
from langgraph_checkpoint_custom.model.keys import MAX_ID, channel_texts, config_of, key_of, text

# Bytes of the largest value in a large document.
INLINE = 1_024
COLUMNS = f"{KEY}, {DATA}, inline_channels, delta_channels, blob_channels, blob_versions{{tenant}}"
SET = f"ON CONFLICT ({KEY}) DO UPDATE SET {REPLACED}"
VALUES = "%s, %s, %s, %s, %s, %s, %b, %s, %b, %s{json}, %s{list}, %s{list}, %s{list}, %s{list}{none}"
PUT = f"INSERT INTO {{schema}}checkpoints ({COLUMNS}) VALUES (%s, {VALUES}) {SET}"
PARENT = "SELECT thread_id FROM {schema}checkpoints WHERE thread_id = %s AND checkpoint_ns = %s AND checkpoint_id = %s"
ON_PARENT_SQLITE = f"INSERT INTO checkpoints ({COLUMNS}) VALUES (({PARENT} AND NOT hidden), {VALUES}) {SET}"
ON_PARENT_POSTGRES = (
    f"INSERT INTO {{schema}}checkpoints ({COLUMNS}) SELECT parent.thread_id, {VALUES} "
    f"FROM ({PARENT} AND NOT hidden FOR SHARE) AS parent "
    f"WHERE pg_try_advisory_xact_lock_shared(hashtextextended(%s, 0)) {SET}"
)
BLOB = (
    "INSERT INTO {schema}blobs (thread_id, checkpoint_ns, channel, version, type, value) "
    "VALUES (%s, %s, %s, %s, %s, %b) ON CONFLICT (thread_id, checkpoint_ns, channel, version) DO NOTHING"
)
ITS_BLOBS = (
    "SELECT b.channel, b.value FROM json_each(?) AS n CROSS JOIN blobs b "
    "ON b.thread_id = ? AND b.checkpoint_ns = ? AND b.channel = n.value AND b.version = ? ->> n.key"
)
ITS_WRITES = f"SELECT task_path, task_id, idx, channel, type, value FROM writes WHERE ({KEY}) = (?, ?, ?)"
TOGETHER = (
    f"WITH found AS MATERIALIZED ({{read}}) SELECT {FOUND}, NULL::int, NULL::text FROM found UNION ALL "
    "SELECT w.task_path, w.task_id, w.type, w.value, w.channel, NULL, w.idx, w.checkpoint_id FROM found "
    "JOIN {schema}writes w ON w.thread_id = %s AND w.checkpoint_ns = %s AND w.checkpoint_id = found.checkpoint_id "
    "UNION ALL SELECT NULL, NULL, b.type, b.value, b.channel, NULL, NULL, found.checkpoint_id FROM found "
    "CROSS JOIN LATERAL unnest(found.blob_channels, found.blob_versions) AS n (channel, version) "
    "JOIN {schema}blobs b ON b.thread_id = %s AND b.checkpoint_ns = %s "
    "AND b.channel = n.channel AND b.version = n.version"
)
Encoded = tuple[tuple[Any, ...], Sequence[tuple[Any, ...]], bool]


@lru_cache(maxsize=256)  # A graph has the same few lists of channels in all of its steps.
def as_json(names: tuple[str, ...]) -> str:
    """Names as a list in SQLite."""
    return json.dumps(names)


@lru_cache(maxsize=256)
def as_array(names: tuple[str, ...]) -> str:
    """Names as the text of an array in PostgreSQL: psycopg looks at each name of a list in Python."""
    quoted = ['"' + name.replace("\\", r"\\").replace('"', r"\"") + '"' for name in names]
    return "{" + ",".join(quoted) + "}"


class Keeping(Straight):
    """Encoding and decoding; a subclass sends."""

    array: Callable[[Any], str]

    def _encoded(self, config: RunnableConfig, checkpoint: Any, metadata: Any, new_versions: Any) -> Encoded:
        """The row, its new blobs, and whether it is rebuilt from its parent."""
        thread_id, checkpoint_ns, parent_id = key_of(config)
        merged = merge_metadata(config, metadata, self._codec)
        values, versions = checkpoint["channel_values"], checkpoint["channel_versions"]
        channel_texts(tuple(values))
        inline, stored, blobs = values, {}, []
        type_, document = self._codec.encode(checkpoint)
        if len(document) > DOCUMENT:
            old = {channel: value for channel, value in values.items() if channel not in new_versions}
            if len(document) > DOCUMENT * CHANGING or len(self._codec.encode(old)[1]) > DOCUMENT:
                inline = {}
                for channel, value in values.items():
                    kind, data = self._codec.encode(value)
                    if len(data) <= INLINE:
                        inline[channel] = value
                    else:
                        stored[channel] = versions[channel]
                        blobs.append((thread_id, checkpoint_ns, channel, versions[channel], kind, data))
                type_, document = self._codec.encode({**checkpoint, "channel_values": inline})
        delta = [channel for channel in merged.get("counters_since_delta_snapshot", ()) if channel in versions]
        row = (
            thread_id, checkpoint_ns, text("checkpoint id", checkpoint["id"], MAX_ID), parent_id, run_of(merged),
            checkpoint["v"], type_, document, *self._codec.encode(merged), project(merged, None),
            *map(self.array, map(tuple, (inline, delta, stored, stored.values()))),
        )  # fmt: skip
        return row, blobs, parent_id is not None and not values.keys() >= set(delta)

    def _found(
        self, config: RunnableConfig, row: Sequence[Any], writes: list[Any], blobs: Sequence[tuple[str, bytes]]
    ) -> CheckpointTuple:
        found = self._tuple(config, row[:6], writes)
        for channel, data in blobs:
            found.checkpoint["channel_values"][channel] = self._codec.plain[MSGPACK](data)
        return found


class KeepingSqlite(Keeping, StraightSqlite):
    """One connection and one lock, which knows its owner."""

    array = staticmethod(as_json)
    put_row, on_parent, blob = map(for_sqlite, (PUT, ON_PARENT_SQLITE, BLOB))
    newest, by_id, listed = (
        for_sqlite(sql.replace(" FROM", ", blob_channels, blob_versions FROM", 1)) for sql in (NEWEST, BY_ID, LIST)
    )

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self._path, self._there, self._until, self._owner = path, os.stat(path).st_ino, 0.0, 0

    def _locked(self, work: Callable[..., Any], *args: Any) -> Any:
        now, own = time.monotonic(), threading.get_ident()
        if self._owner == own:
            raise RuntimeError("the saver was called during another call in this OS thread")
        with self._lock:
            self._owner = own
            try:
                if now > self._until:
                    if os.stat(self._path).st_ino != self._there:
                        raise FileNotFoundError(f"{self._path} was moved")
                    self._until = now + 0.1
                return work(self._connection, *args)
            finally:
                self._owner = 0
                if self._connection.in_transaction:
                    self._connection.rollback()

    def _store(self, connection: sqlite3.Connection, row: Sequence[Any], blobs: Any, on_parent: bool) -> None:
        if blobs:
            connection.execute("BEGIN IMMEDIATE")
            connection.executemany(self.blob, blobs)
        if on_parent:
            sent = (*row[:2], row[3], *row[1:])
            connection.execute(self.on_parent, sent)  # Without a parent the thread is NULL, which is an error.
        else:
            connection.execute(self.put_row, row)
        if blobs:
            connection.execute("COMMIT")

    def _read(self, connection: sqlite3.Connection, sql: str, asked: Sequence[Any]) -> Sequence[tuple[Any, ...]]:
        execute = connection.execute
        execute("BEGIN")
        rows = execute(sql, asked).fetchall()
        found: list[tuple[Any, ...]] = []
        blobs: dict[Any, Any] = {}
        for row in rows:
            if row[6] != "[]" and row[6:] not in blobs:
                blobs[row[6:]] = execute(ITS_BLOBS, (row[6], *asked[:2], row[7])).fetchall()
            found.append((row, execute(ITS_WRITES, (*asked[:2], row[0])).fetchall(), blobs.get(row[6:], ())))
        execute("COMMIT")
        return found

    def put(self, config: RunnableConfig, checkpoint: Any, metadata: Any, new_versions: Any) -> RunnableConfig:
        row, blobs, on_parent = self._encoded(config, checkpoint, metadata, new_versions)
        self._locked(self._store, row, blobs, on_parent)
        return config_of(*row[:3])

    def put_writes(self, config: RunnableConfig, writes: Any, task_id: str, task_path: str = "") -> None:
        values = self._writes(config, writes, task_id, task_path)
        rows = ", ".join(["(?, ?, ?, ?, ?, ?, ?, ?, ?)"] * len(writes))
        self._locked(sqlite3.Connection.execute, self.writes.format(rows=rows), values)

    def get_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        thread_id, checkpoint_ns, checkpoint_id = key_of(config)
        if checkpoint_id:
            found = self._locked(self._read, self.by_id, (thread_id, checkpoint_ns, checkpoint_id))
        else:
            found = self._locked(self._read, self.newest, (thread_id, checkpoint_ns))
        return self._found(config, *found[0]) if found else None

    def list(self, config: Any, *, limit: int | None = None, **_others: Any) -> Iterator[CheckpointTuple]:
        thread_id, checkpoint_ns, _ = key_of(config)
        found = self._locked(self._read, self.listed, (thread_id, checkpoint_ns, -1 if limit is None else limit))
        return (self._found(config, *each) for each in found)


class KeepingPostgres(Keeping, StraightPostgres):
    """A pool, its cursors, and their prepared statements."""

    array = staticmethod(as_array)
    put_row, on_parent, blob = map(for_postgres, (PUT, ON_PARENT_POSTGRES, BLOB))
    newest, by_id, listed = (
        for_postgres(TOGETHER.replace("{read}", sql.replace(" FROM", ", blob_channels, blob_versions FROM", 1)))
        for sql in (NEWEST, BY_ID, LIST)
    )

    def put(self, config: RunnableConfig, checkpoint: Any, metadata: Any, new_versions: Any) -> RunnableConfig:
        row, blobs, on_parent = self._encoded(config, checkpoint, metadata, new_versions)
        with self._pool.connection() as connection:
            if blobs:
                with connection.pipeline(), connection.transaction():
                    for blob in blobs:
                        connection.execute(self.blob, blob)
                    connection.execute(self.put_row, row)
            elif on_parent:
                sent = (*row[1:], *row[:2], row[3], row[0])
                assert connection.execute(self.on_parent, sent).rowcount, "the parent is missing"
            else:
                connection.execute(self.put_row, row)
        return config_of(*row[:3])

    async def aput(self, config: RunnableConfig, checkpoint: Any, metadata: Any, new_versions: Any) -> RunnableConfig:
        row, blobs, on_parent = self._encoded(config, checkpoint, metadata, new_versions)
        async with self._pool.connection() as connection:
            if blobs:
                async with connection.pipeline(), connection.transaction():
                    for blob in blobs:
                        await connection.execute(self.blob, blob)
                    await connection.execute(self.put_row, row)
            elif on_parent:
                sent = (*row[1:], *row[:2], row[3], row[0])
                cursor = await connection.execute(self.on_parent, sent)
                assert cursor.rowcount, "the parent is missing"
            else:
                await connection.execute(self.put_row, row)
        return config_of(*row[:3])

    def _read(self, config: RunnableConfig) -> tuple[str, tuple[str, ...]]:
        sql, asked = super()._read(config)
        return sql, (*asked, *asked[:2])

    def _page(self, config: RunnableConfig, limit: int | None) -> tuple[str, Sequence[Any]]:
        sql, asked = super()._page(config, limit)
        return sql, (*asked, *asked[:2])

    def _decoded(self, config: RunnableConfig, rows: Sequence[Sequence[Any]]) -> CheckpointTuple | None:
        return next(self._decoded_all(config, rows), None)

    def _decoded_all(self, config: RunnableConfig, rows: Sequence[Sequence[Any]]) -> Iterator[CheckpointTuple]:
        writes: dict[str, list[Any]] = {}
        blobs: dict[str, list[Any]] = {}
        heads: list[Sequence[Any]] = []
        for row in rows:
            path, task, kind, data, channel, _, idx, checkpoint_id = row
            if checkpoint_id is None:
                heads.append(row)
            elif idx is None:
                blobs.setdefault(checkpoint_id, []).append((channel, data))
            else:
                writes.setdefault(checkpoint_id, []).append((path, task, idx, channel, kind, data))
        return (self._found(config, head, writes.get(head[0], []), blobs.get(head[0], ())) for head in heads)
