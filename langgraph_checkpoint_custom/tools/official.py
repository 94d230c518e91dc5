"""Reads the tables of LangGraph's own PostgreSQL and SQLite savers, in every form that their current release reads.

It writes nothing and does not import the official savers' packages. The given serializer decodes the values; one from
`raw_reader` makes no objects. A thread is read in one read snapshot, so of a concurrent run it has what was stored up
to one point in time.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any, NamedTuple, Protocol
from urllib.parse import quote, unquote

from langgraph.checkpoint.serde.base import SerializerProtocol
from typing_extensions import Self

from langgraph_checkpoint_custom.errors import ConfigError, SchemaForeign, StorageError
from langgraph_checkpoint_custom.tools.foreign import ForeignCheckpoint, ForeignWrite

# Thread ids in a page. With that many, the round trip takes less time than reading the ids of their checkpoints.
PAGE = 100


class WriteCounts(NamedTuple):
    """The number of a checkpoint's writes, and of those that a later one may replace: interrupts, resumes, errors."""

    writes: int
    replaceable: int


# The checkpoints of a thread, by namespace and id.
Locations = Mapping[tuple[str, str], WriteCounts]


class OfficialThreads(Protocol):
    """Reads threads of an official saver."""

    def snapshot(self) -> Any: ...
    def locations(self, thread_ids: Sequence[str]) -> Mapping[str, Locations]: ...
    def read(self, thread_id: str, checkpoint_ns: str, checkpoint_id: str) -> ForeignCheckpoint | None: ...
    def read_writes(self, thread_id: str, checkpoint_ns: str, checkpoint_id: str) -> Sequence[ForeignWrite]: ...


class OfficialStore(OfficialThreads, Protocol):
    """The tables of an official saver."""

    def __enter__(self) -> Self: ...
    def __exit__(self, *_: object) -> None: ...
    def count(self) -> int: ...
    def threads(self) -> Iterator[Sequence[str]]: ...


def open_official(url: str, serde: SerializerProtocol) -> OfficialStore:
    """Open the tables of an official saver.

    Args:
        url: `sqlite:///file.db` or `postgresql://…`; PostgreSQL's `search_path` decides the schema.
        serde: Decodes the values.

    Raises:
        ConfigError: The URL is not one of SQLite or PostgreSQL, or the SQLite file cannot be read.
        SchemaForeign: The database does not have the tables of an official saver.
        StorageError: No connection to PostgreSQL.
    """
    if url.startswith("sqlite:///"):
        return OfficialSqlite(unquote(url.removeprefix("sqlite:///")), serde)
    if url.startswith(("postgresql://", "postgres://")):
        return OfficialPostgres(url, serde)
    raise ConfigError("the official savers have databases at sqlite:///… and postgresql://…")


class OfficialSqlite:
    """Reads a file of the official `SqliteSaver` or `AsyncSqliteSaver`."""

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
        """Return the number of threads."""
        return sum(map(len, self.threads()))

    def threads(self) -> Iterator[Sequence[str]]:
        """Yield the thread ids in order, in pages; no cursor or transaction stays open between pages."""
        return _pages(lambda sql, after: self._file.execute(sql.format("?"), [after]).fetchall())

    @contextmanager
    def snapshot(self) -> Iterator[None]:
        """Read everything in the block from one read snapshot."""
        self._file.execute("BEGIN")
        try:
            yield
        finally:
            with suppress(sqlite3.ProgrammingError):  # An interrupt may close the file before this block ends.
                self._file.execute("ROLLBACK")

    def locations(self, thread_ids: Sequence[str]) -> Mapping[str, Locations]:
        """Return the checkpoints of threads with the number of their writes, older ones first."""
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

    def read(self, thread_id: str, checkpoint_ns: str, checkpoint_id: str) -> ForeignCheckpoint | None:
        """Return a checkpoint with its values and writes; None if there is none."""
        key = (thread_id, checkpoint_ns, checkpoint_id)
        where = "thread_id = ? AND checkpoint_ns = ? AND checkpoint_id = ?"
        row = self._file.execute(
            f"SELECT parent_checkpoint_id, type, checkpoint, metadata FROM checkpoints WHERE {where}", key
        ).fetchone()
        if row is None:
            return None
        return ForeignCheckpoint(
            *key,
            row[0] or None,
            self._serde.loads_typed((row[1], row[2])),
            json.loads(row[3]) if row[3] is not None else {},
            self.read_writes(*key),
        )

    def read_writes(self, thread_id: str, checkpoint_ns: str, checkpoint_id: str) -> Sequence[ForeignWrite]:
        """Return the writes of a checkpoint."""
        sql = f"""
            SELECT task_id, {self._path}, idx, channel, type, value FROM writes
            WHERE thread_id = ? AND checkpoint_ns = ? AND checkpoint_id = ?
        """
        return _writes(self._serde, self._file.execute(sql, [thread_id, checkpoint_ns, checkpoint_id]))


class OfficialPostgres:
    """Reads the tables of the official `PostgresSaver` or `AsyncPostgresSaver`."""

    def __init__(self, url: str, serde: SerializerProtocol) -> None:
        import psycopg  # Only the extra `postgres` installs it.

        self._serde = serde
        try:
            self._connection = psycopg.connect(
                url, autocommit=True, prepare_threshold=1, fallback_application_name="langgraph-checkpoint-custom"
            )
        except psycopg.ProgrammingError:  # Its message may contain the password.
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
        """Return the number of threads."""
        return sum(map(len, self.threads()))

    def threads(self) -> Iterator[Sequence[str]]:
        """Yield the thread ids in order, in pages; no cursor or transaction stays open between pages."""
        return _pages(lambda sql, after: self._connection.execute(sql.format("%s").encode(), [after]).fetchall())

    @contextmanager
    def snapshot(self) -> Iterator[None]:
        """Read everything in the block from one read snapshot."""
        with self._connection.transaction():
            yield

    def locations(self, thread_ids: Sequence[str]) -> Mapping[str, Locations]:
        """Return the checkpoints of threads with the number of their writes, older ones first."""
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

    def read(self, thread_id: str, checkpoint_ns: str, checkpoint_id: str) -> ForeignCheckpoint | None:
        """Return a checkpoint with its values and writes; None if there is none."""
        key = {"thread_id": thread_id, "checkpoint_ns": checkpoint_ns, "checkpoint_id": checkpoint_id}
        where = "thread_id = %(thread_id)s AND checkpoint_ns = %(checkpoint_ns)s"
        row = self._rows(
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
        blobs = self._rows(
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
        # The document has `true` for a delta snapshot whose value is a blob; the blob's value replaces it.
        checkpoint["channel_values"] = {
            **(checkpoint.get("channel_values") or {}),
            **{channel: self._serde.loads_typed((type_, data)) for channel, type_, data in blobs},
        }
        return ForeignCheckpoint(
            thread_id,
            checkpoint_ns,
            checkpoint_id,
            parent_id or None,
            checkpoint,
            metadata,
            self.read_writes(**key),
        )

    def read_writes(self, thread_id: str, checkpoint_ns: str, checkpoint_id: str) -> Sequence[ForeignWrite]:
        """Return the writes of a checkpoint."""
        rows = self._rows(
            f"""
            SELECT task_id, {self._path}, idx, channel, type, blob FROM checkpoint_writes
            WHERE thread_id = %(thread_id)s AND checkpoint_ns = %(checkpoint_ns)s AND checkpoint_id = %(checkpoint_id)s
            """,
            {"thread_id": thread_id, "checkpoint_ns": checkpoint_ns, "checkpoint_id": checkpoint_id},
        )
        return _writes(self._serde, rows)

    def _rows(self, sql: str, params: Mapping[str, Any]) -> Sequence[tuple[Any, ...]]:
        return self._connection.execute(sql, params, binary=True).fetchall()


# Each step of the recursion looks the next thread up in the primary key, so it skips a thread's other checkpoints.
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
    """Yield the ids of all threads in pages.

    `ask` runs a statement. Its arguments are the statement, with {} where the parameter is, and the parameter.
    """
    order, after = ">=", ""
    while rows := ask(_THREADS.format(order=order), after):
        yield [row[0] for row in rows]
        order, after = ">", rows[-1][0]


def _by_thread(rows: Iterable[tuple[Any, ...]]) -> Mapping[str, Locations]:
    found: dict[str, dict[tuple[str, str], WriteCounts]] = {}
    for thread_id, ns, checkpoint_id, writes, replaceable in rows:
        found.setdefault(thread_id, {})[ns, checkpoint_id] = WriteCounts(writes, replaceable)
    return found


def _writes(serde: SerializerProtocol, rows: Iterable[tuple[Any, ...]]) -> list[ForeignWrite]:
    return [
        ForeignWrite(task_id, task_path, idx, channel, serde.loads_typed((type_, data)))
        for task_id, task_path, idx, channel, type_, data in rows
    ]


def _text(version: Any) -> str:
    """Return a version as the official saver's JSON contains it."""
    return version if isinstance(version, str) else json.dumps(version)
