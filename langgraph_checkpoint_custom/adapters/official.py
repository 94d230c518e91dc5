"""Reads the tables of LangGraph's own PostgreSQL and SQLite savers, in every form that their current release reads.

Nothing is written, and nothing of those packages is needed. Values are decoded by the serializer that is given: with
one from `verbatim` no object is made. A thread is read in one read snapshot, so a run that goes on meanwhile is seen up
to one point.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Protocol
from urllib.parse import quote, unquote

from langgraph.checkpoint.serde.base import SerializerProtocol
from typing_extensions import Self

from langgraph_checkpoint_custom.core.moving import HeldCheckpoint, HeldWrite
from langgraph_checkpoint_custom.errors import ConfigError, SchemaForeign, StorageError

# (checkpoint_ns, checkpoint_id) → the number of its writes.
Places = Mapping[tuple[str, str], int]


class OfficialStore(Protocol):
    """The threads of an official saver."""

    def __enter__(self) -> Self: ...
    def __exit__(self, *_: object) -> None: ...
    def count(self) -> int: ...
    def threads(self) -> Iterator[str]: ...
    def snapshot(self) -> Any: ...
    def places(self, thread_id: str) -> Places: ...
    def read(self, thread_id: str, checkpoint_ns: str, checkpoint_id: str) -> HeldCheckpoint | None: ...


def open_official(url: str, serde: SerializerProtocol) -> OfficialStore:
    """The official saver's tables in a database.

    Args:
        url: `sqlite:///file.db` or `postgresql://…`; PostgreSQL's `search_path` decides about the schema.
        serde: What decodes the values.

    Raises:
        ConfigError: The URL names no database that the official savers use.
        SchemaForeign: There are no such tables.
    """
    if url.startswith("sqlite:///"):
        return OfficialSqlite(unquote(url.removeprefix("sqlite:///")), serde)
    if url.startswith(("postgresql://", "postgres://")):
        return OfficialPostgres(url, serde)
    raise ConfigError("the official savers have databases at sqlite:///… and postgresql://…")


class OfficialSqlite:
    """A file of the official `SqliteSaver` or `AsyncSqliteSaver`."""

    def __init__(self, path: str, serde: SerializerProtocol) -> None:
        self._serde = serde
        try:
            self._file = sqlite3.connect(f"file:{quote(path)}?mode=ro", uri=True, isolation_level=None)
            columns = {row[1] for row in self._file.execute("PRAGMA table_info(checkpoints)")}
            paths = {row[1] for row in self._file.execute("PRAGMA table_info(writes)")} & {"task_path"}
        except sqlite3.Error as error:
            raise ConfigError(f"{path} cannot be read as a SQLite database: {error}") from error
        if not {"parent_checkpoint_id", "type", "checkpoint", "metadata"} <= columns:
            self._file.close()
            raise SchemaForeign(f"{path} has no tables of LangGraph's own SqliteSaver")
        self._path = "task_path" if paths else "''"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def count(self) -> int:
        """The number of threads."""
        return sum(1 for _ in self.threads())

    def threads(self) -> Iterator[str]:
        """Their ids, in order; each is looked up by itself, so nothing is held meanwhile."""
        sql = "SELECT thread_id FROM checkpoints WHERE thread_id {} ? ORDER BY thread_id LIMIT 1"
        row = self._file.execute(sql.format(">="), [""]).fetchone()
        while row:
            yield row[0]
            row = self._file.execute(sql.format(">"), row).fetchone()

    @contextmanager
    def snapshot(self) -> Iterator[None]:
        """What is read inside is of one point in time."""
        self._file.execute("BEGIN")
        try:
            yield
        finally:
            self._file.execute("ROLLBACK")

    def places(self, thread_id: str) -> Places:
        """The checkpoints of a thread with the number of their writes, older ones first."""
        rows = self._file.execute(
            """
            SELECT checkpoint_ns, checkpoint_id, (
                SELECT count(*) FROM writes w WHERE w.thread_id = c.thread_id
                AND w.checkpoint_ns = c.checkpoint_ns AND w.checkpoint_id = c.checkpoint_id
            )
            FROM checkpoints c WHERE thread_id = ? ORDER BY checkpoint_id, checkpoint_ns
            """,
            [thread_id],
        )
        return {(ns, checkpoint_id): count for ns, checkpoint_id, count in rows}

    def read(self, thread_id: str, checkpoint_ns: str, checkpoint_id: str) -> HeldCheckpoint | None:
        """A checkpoint with its values and writes."""
        key = (thread_id, checkpoint_ns, checkpoint_id)
        where = "thread_id = ? AND checkpoint_ns = ? AND checkpoint_id = ?"
        row = self._file.execute(
            f"SELECT parent_checkpoint_id, type, checkpoint, metadata FROM checkpoints WHERE {where}", key
        ).fetchone()
        if row is None:
            return None
        writes = self._file.execute(
            f"SELECT task_id, {self._path}, idx, channel, type, value FROM writes WHERE {where}", key
        )
        return HeldCheckpoint(
            *key,
            row[0] or None,
            self._serde.loads_typed((row[1], row[2])),
            json.loads(row[3]) if row[3] is not None else {},
            _writes(self._serde, writes),
        )


class OfficialPostgres:
    """The tables of the official `PostgresSaver` or `AsyncPostgresSaver`."""

    def __init__(self, url: str, serde: SerializerProtocol) -> None:
        import psycopg  # An extra brings it.

        self._serde = serde
        try:
            self._connection = psycopg.connect(
                url, autocommit=True, prepare_threshold=1, fallback_application_name="langgraph-checkpoint-custom"
            )
        except psycopg.ProgrammingError:  # Its words may hold the password.
            raise ConfigError("the source's URL cannot be read; %-encode special characters in it") from None
        except psycopg.Error as error:
            raise StorageError(f"no connection to the source: {str(error).strip()}", operation="migrate") from None
        self._connection.read_only = True
        self._connection.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        columns = self._connection.execute(
            """
            SELECT (
                SELECT count(*) FROM pg_attribute
                WHERE attrelid = to_regclass('checkpoints') AND attname IN ('parent_checkpoint_id', 'checkpoint')
            ) = 2 AND to_regclass('checkpoint_blobs') IS NOT NULL, (
                SELECT count(*) FROM pg_attribute
                WHERE attrelid = to_regclass('checkpoint_writes') AND attname = 'task_path'
            )
            """
        ).fetchone()
        if not columns or not columns[0]:
            self._connection.close()
            raise SchemaForeign("this database has no tables of LangGraph's own PostgresSaver in its search_path")
        self._path = "task_path" if columns[1] else "''"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._connection.close()

    def count(self) -> int:
        """The number of threads."""
        return sum(1 for _ in self.threads())

    def threads(self) -> Iterator[str]:
        """Their ids, in order; nothing is held meanwhile."""
        sql = "SELECT thread_id FROM checkpoints WHERE thread_id {} %s ORDER BY thread_id LIMIT 1"
        row = self._connection.execute(sql.format(">="), [""]).fetchone()
        while row:
            yield row[0]
            row = self._connection.execute(sql.format(">"), row).fetchone()

    @contextmanager
    def snapshot(self) -> Iterator[None]:
        """What is read inside is of one point in time."""
        with self._connection.transaction():
            yield

    def places(self, thread_id: str) -> Places:
        """The checkpoints of a thread with the number of their writes, older ones first."""
        rows = self._connection.execute(
            """
            SELECT checkpoint_ns, checkpoint_id, coalesce(w.count, 0)
            FROM checkpoints c LEFT JOIN (
                SELECT checkpoint_ns, checkpoint_id, count(*) AS count FROM checkpoint_writes
                WHERE thread_id = %(thread_id)s GROUP BY 1, 2
            ) AS w USING (checkpoint_ns, checkpoint_id)
            WHERE c.thread_id = %(thread_id)s ORDER BY checkpoint_id COLLATE "C", checkpoint_ns
            """,
            {"thread_id": thread_id},
        )
        return {(ns, checkpoint_id): count for ns, checkpoint_id, count in rows}

    def read(self, thread_id: str, checkpoint_ns: str, checkpoint_id: str) -> HeldCheckpoint | None:
        """A checkpoint with its values and writes."""
        key = {"thread_id": thread_id, "checkpoint_ns": checkpoint_ns, "checkpoint_id": checkpoint_id}
        where = "thread_id = %(thread_id)s AND checkpoint_ns = %(checkpoint_ns)s"
        row = self._one(
            f"""
            SELECT parent_checkpoint_id, checkpoint, metadata FROM checkpoints
            WHERE {where} AND checkpoint_id = %(checkpoint_id)s
            """,
            key,
        )
        if not row:
            return None
        parent_id, checkpoint, metadata = row[0]
        versions = checkpoint.get("channel_versions") or {}
        blobs = self._one(
            f"""
            SELECT b.channel, b.type, b.blob
            FROM unnest(%(channels)s::text[], %(versions)s::text[]) AS n (channel, version)
            CROSS JOIN LATERAL (
                SELECT * FROM checkpoint_blobs b
                WHERE {where} AND b.channel = n.channel AND b.version = n.version LIMIT 1
            ) AS b
            WHERE b.type <> 'empty'
            """,
            {**key, "channels": list(versions), "versions": [_text(version) for version in versions.values()]},
        )
        writes = self._one(
            f"""
            SELECT task_id, {self._path}, idx, channel, type, blob FROM checkpoint_writes
            WHERE {where} AND checkpoint_id = %(checkpoint_id)s
            """,
            key,
        )
        # A value that is not in the document leaves `true` there if it is a snapshot of a DeltaChannel.
        checkpoint["channel_values"] = {
            **(checkpoint.get("channel_values") or {}),
            **{channel: self._serde.loads_typed((type_, data)) for channel, type_, data in blobs},
        }
        return HeldCheckpoint(
            thread_id,
            checkpoint_ns,
            checkpoint_id,
            parent_id or None,
            checkpoint,
            metadata,
            _writes(self._serde, writes),
        )

    def _one(self, sql: str, params: Mapping[str, Any]) -> Sequence[tuple[Any, ...]]:
        return self._connection.execute(sql, params, binary=True).fetchall()


def _writes(serde: SerializerProtocol, rows: Iterable[tuple[Any, ...]]) -> list[HeldWrite]:
    return [
        HeldWrite(task_id, task_path, idx, channel, serde.loads_typed((type_, data)))
        for task_id, task_path, idx, channel, type_, data in rows
    ]


def _text(version: Any) -> str:
    """A version as the official saver's JSON has it."""
    return version if isinstance(version, str) else json.dumps(version)
