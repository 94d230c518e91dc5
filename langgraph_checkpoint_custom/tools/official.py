"""Reads the tables of LangGraph's own PostgreSQL and SQLite savers, in every form that their current release reads.

Nothing is written, and nothing of those packages is needed. Values are decoded by the serializer that is given: with
one from `raw_reader` no object is made. A thread is read in one read snapshot, so a run that goes on meanwhile is seen
up to one point.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple, Protocol
from urllib.parse import quote, unquote

from langgraph.checkpoint.serde.base import SerializerProtocol
from typing_extensions import Self

from langgraph_checkpoint_custom.errors import ConfigError, SchemaForeign, StorageError
from langgraph_checkpoint_custom.tools.foreign import HeldCheckpoint, HeldWrite

# Threads whose ids are read together: a round trip for them takes less time than reading the ids of their checkpoints.
PAGE = 100


class Counted(NamedTuple):
    """How many writes a checkpoint has, and how many of them another one may replace: questions, answers, errors."""

    writes: int
    replaceable: int


# By namespace and id.
Places = Mapping[tuple[str, str], Counted]


class OfficialStore(Protocol):
    """The threads of an official saver."""

    def __enter__(self) -> Self: ...
    def __exit__(self, *_: object) -> None: ...
    def count(self) -> int: ...
    def threads(self) -> Iterator[Sequence[str]]: ...
    def snapshot(self) -> Any: ...
    def locations(self, thread_ids: Sequence[str]) -> Mapping[str, Places]: ...
    def read(self, thread_id: str, checkpoint_ns: str, checkpoint_id: str) -> HeldCheckpoint | None: ...
    def read_writes(self, thread_id: str, checkpoint_ns: str, checkpoint_id: str) -> Sequence[HeldWrite]: ...


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
        return sum(map(len, self.threads()))

    def threads(self) -> Iterator[Sequence[str]]:
        """Their ids, in order, a page at a time; nothing is held meanwhile."""
        return _pages(lambda sql, after: self._file.execute(sql.format("?"), [after]).fetchall())

    @contextmanager
    def snapshot(self) -> Iterator[None]:
        """What is read inside is of one point in time."""
        self._file.execute("BEGIN")
        try:
            yield
        finally:
            self._file.execute("ROLLBACK")

    def locations(self, thread_ids: Sequence[str]) -> Mapping[str, Places]:
        """The checkpoints of threads with the number of their writes, older ones first."""
        return _by_thread(
            self._file.execute(
                """
                WITH w AS (
                    SELECT thread_id, checkpoint_ns, checkpoint_id, count(*) AS count, sum(idx < 0) AS replaceable
                    FROM writes WHERE thread_id IN (SELECT value FROM json_each(:ids)) GROUP BY 1, 2, 3
                )
                SELECT thread_id, checkpoint_ns, checkpoint_id, coalesce(w.count, 0), coalesce(w.replaceable, 0)
                FROM checkpoints c LEFT JOIN w USING (thread_id, checkpoint_ns, checkpoint_id)
                WHERE c.thread_id IN (SELECT value FROM json_each(:ids)) ORDER BY checkpoint_id, checkpoint_ns
                """,
                {"ids": json.dumps(thread_ids)},
            )
        )

    def read(self, thread_id: str, checkpoint_ns: str, checkpoint_id: str) -> HeldCheckpoint | None:
        """A checkpoint with its values and writes."""
        key = (thread_id, checkpoint_ns, checkpoint_id)
        where = "thread_id = ? AND checkpoint_ns = ? AND checkpoint_id = ?"
        row = self._file.execute(
            f"SELECT parent_checkpoint_id, type, checkpoint, metadata FROM checkpoints WHERE {where}", key
        ).fetchone()
        if row is None:
            return None
        return HeldCheckpoint(
            *key,
            row[0] or None,
            self._serde.loads_typed((row[1], row[2])),
            json.loads(row[3]) if row[3] is not None else {},
            self.read_writes(*key),
        )

    def read_writes(self, thread_id: str, checkpoint_ns: str, checkpoint_id: str) -> Sequence[HeldWrite]:
        """The writes of a checkpoint."""
        sql = f"""
            SELECT task_id, {self._path}, idx, channel, type, value FROM writes
            WHERE thread_id = ? AND checkpoint_ns = ? AND checkpoint_id = ?
        """
        return _writes(self._serde, self._file.execute(sql, [thread_id, checkpoint_ns, checkpoint_id]))


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
        return sum(map(len, self.threads()))

    def threads(self) -> Iterator[Sequence[str]]:
        """Their ids, in order, a page at a time; nothing is held meanwhile."""
        return _pages(lambda sql, after: self._connection.execute(sql.format("%s").encode(), [after]).fetchall())

    @contextmanager
    def snapshot(self) -> Iterator[None]:
        """What is read inside is of one point in time."""
        with self._connection.transaction():
            yield

    def locations(self, thread_ids: Sequence[str]) -> Mapping[str, Places]:
        """The checkpoints of threads with the number of their writes, older ones first."""
        return _by_thread(
            self._connection.execute(
                """
                SELECT thread_id, checkpoint_ns, checkpoint_id, coalesce(w.count, 0), coalesce(w.replaceable, 0)
                FROM checkpoints c LEFT JOIN (
                    SELECT thread_id, checkpoint_ns, checkpoint_id,
                        count(*) AS count, count(*) FILTER (WHERE idx < 0) AS replaceable
                    FROM checkpoint_writes WHERE thread_id = ANY(%(ids)s) GROUP BY 1, 2, 3
                ) AS w USING (thread_id, checkpoint_ns, checkpoint_id)
                WHERE c.thread_id = ANY(%(ids)s) ORDER BY checkpoint_id COLLATE "C", checkpoint_ns
                """,
                {"ids": list(thread_ids)},
            )
        )

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
            self.read_writes(**key),
        )

    def read_writes(self, thread_id: str, checkpoint_ns: str, checkpoint_id: str) -> Sequence[HeldWrite]:
        """The writes of a checkpoint."""
        rows = self._one(
            f"""
            SELECT task_id, {self._path}, idx, channel, type, blob FROM checkpoint_writes
            WHERE thread_id = %(thread_id)s AND checkpoint_ns = %(checkpoint_ns)s AND checkpoint_id = %(checkpoint_id)s
            """,
            {"thread_id": thread_id, "checkpoint_ns": checkpoint_ns, "checkpoint_id": checkpoint_id},
        )
        return _writes(self._serde, rows)

    def _one(self, sql: str, params: Mapping[str, Any]) -> Sequence[tuple[Any, ...]]:
        return self._connection.execute(sql, params, binary=True).fetchall()


# From one to the next by the primary key: a thread may have any number of checkpoints.
_THREADS = f"""
    WITH RECURSIVE t (thread_id, number) AS (
        SELECT (SELECT thread_id FROM checkpoints WHERE thread_id {{order}} {{{{}}}} ORDER BY thread_id LIMIT 1), 1
        UNION ALL
        SELECT (SELECT c.thread_id FROM checkpoints c WHERE c.thread_id > t.thread_id ORDER BY c.thread_id LIMIT 1),
            number + 1
        FROM t WHERE t.thread_id IS NOT NULL AND number < {PAGE}
    )
    SELECT thread_id FROM t WHERE thread_id IS NOT NULL
"""


def _pages(ask: Callable[[str, str], Sequence[tuple[str]]]) -> Iterator[Sequence[str]]:
    """The ids of all threads; `ask` takes a statement, in which {} is the parameter, and that."""
    order, after = ">=", ""
    while rows := ask(_THREADS.format(order=order), after):
        yield [row[0] for row in rows]
        order, after = ">", rows[-1][0]


def _by_thread(rows: Iterable[tuple[Any, ...]]) -> Mapping[str, Places]:
    found: dict[str, dict[tuple[str, str], Counted]] = {}
    for thread_id, ns, checkpoint_id, writes, replaceable in rows:
        found.setdefault(thread_id, {})[ns, checkpoint_id] = Counted(writes, replaceable)
    return found


def _writes(serde: SerializerProtocol, rows: Iterable[tuple[Any, ...]]) -> list[HeldWrite]:
    return [
        HeldWrite(task_id, task_path, idx, channel, serde.loads_typed((type_, data)))
        for task_id, task_path, idx, channel, type_, data in rows
    ]


def _text(version: Any) -> str:
    """A version as the official saver's JSON has it."""
    return version if isinstance(version, str) else json.dumps(version)
