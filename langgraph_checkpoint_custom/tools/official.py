"""Reads the tables of LangGraph's own PostgreSQL and SQLite savers, in every form that their current release reads.

If it is opened to write, it also stores checkpoints, in the form of the current release; only then it imports the
official savers' packages, which create the tables. The given serializer decodes and encodes the values; one from
`raw_reader` makes no objects. A thread is read in one read snapshot, so of a concurrent run it has what was stored up
to one point in time, and it is stored in one transaction.
"""

from __future__ import annotations

import json
import sqlite3
from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple, Protocol
from urllib.parse import quote, unquote

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import BaseCheckpointSaver, CheckpointTuple, DeltaChannelHistory
from langgraph.checkpoint.serde.base import SerializerProtocol
from typing_extensions import Self

from langgraph_checkpoint_custom.encoding.langgraph_private import DeltaSnapshot
from langgraph_checkpoint_custom.errors import CheckpointError, ConfigError, SchemaForeign, StorageError
from langgraph_checkpoint_custom.model.keys import Key, config_of, key_of
from langgraph_checkpoint_custom.tools.foreign import ForeignCheckpoint, ForeignWrite

# Thread ids in a page. With that many, the round trip takes less time than reading the ids of their checkpoints.
PAGE = 100


class WriteCounts(NamedTuple):
    """The number of a checkpoint's writes, and of those that a later one may replace: interrupts, resumes, errors."""

    writes: int
    replaceable: int


# The checkpoints of a thread, by namespace and id.
Locations = Mapping[tuple[str, str], WriteCounts]


class Part(NamedTuple):
    """A part of a thread, to be stored.

    Attributes:
        checkpoints: The checkpoints, older ones first, each with the versions of its parent if they are known.
        writes: The writes of these and of other checkpoints: regular ones keep the first value, special ones the last.
        is_first: Whether nothing of the thread was moved before.
        moved: What was moved of the thread, after the last part.
    """

    checkpoints: Sequence[tuple[ForeignCheckpoint, Mapping[str, Any] | None]]
    writes: Sequence[tuple[Key, Sequence[ForeignWrite]]]
    is_first: bool
    moved: bytes | None


class SourceThreads(Protocol):
    """The threads of one side of a move, to read them."""

    suffix: str
    """What follows the id of a thread that is moved to a thread of its own."""

    def snapshot(self) -> Any: ...
    def locations(self, thread_ids: Sequence[str]) -> Mapping[str, Locations]: ...
    def read(self, thread_id: str, places: Sequence[tuple[str, str]]) -> Sequence[ForeignCheckpoint]: ...
    def read_writes(self, thread_id: str, checkpoint_ns: str, checkpoint_id: str) -> Sequence[ForeignWrite]: ...
    def history(self, key: Key, channels: Sequence[str]) -> Mapping[str, DeltaChannelHistory]: ...


class TargetThreads(SourceThreads, Protocol):
    """The threads of the other side, to store what is missing."""

    excluded: frozenset[str]
    """The keys of metadata that are not stored."""
    adds_values: bool
    """Whether a `DeltaChannel` has a value in each checkpoint with its version, if it has one in any of them."""

    remembers: bool
    """Whether it also stores what was moved."""

    def storing(self) -> Any: ...
    def store(self, thread_id: str, part: Part) -> None: ...


class OfficialStore(TargetThreads, Protocol):
    """The tables of an official saver."""

    is_new: bool
    name: str

    def __enter__(self) -> Self: ...
    def __exit__(self, *_: object) -> None: ...
    def count(self) -> int: ...
    def threads(self) -> Iterator[Sequence[str]]: ...


def open_official(url: str, serde: SerializerProtocol, *, writes: bool = False) -> OfficialStore:
    """Open the tables of an official saver.

    Args:
        url: `sqlite:///file.db` or `postgresql://…`; PostgreSQL's `search_path` decides the schema.
        serde: Decodes and encodes the values.
        writes: Whether to store something; tables that do not exist are created.

    Raises:
        ConfigError: The URL is not one of SQLite or PostgreSQL, or the SQLite file cannot be read.
        SchemaForeign: The database does not have the tables of an official saver.
        StorageError: No connection to PostgreSQL.
    """
    if url.startswith("sqlite:///"):
        return OfficialSqlite(unquote(url.removeprefix("sqlite:///")), serde, writes)
    if url.startswith(("postgresql://", "postgres://")):
        return OfficialPostgres(url, serde, writes)
    raise ConfigError("the official savers have databases at sqlite:///… and postgresql://…")


@contextmanager
def open_dry(url: str, serde: SerializerProtocol) -> Iterator[OfficialStore]:
    """Open new tables of the same kind, which are gone after the block: in the same database, or in a temporary file.

    Args:
        url: As for `open_official`.
        serde: Decodes and encodes the values.
    """
    if url.startswith("sqlite:///"):
        with TemporaryDirectory() as folder, OfficialSqlite(f"{folder}/dry-run.db", serde, writes=True) as store:
            yield store
    else:
        with OfficialPostgres(url, serde, writes=True, temporary=True) as store:
            yield store


class _Walk(BaseCheckpointSaver[Any]):
    """Walks over the ancestors as LangGraph does."""

    def __init__(self, source: SourceThreads) -> None:
        super().__init__()
        self._source = source

    def get_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        thread_id, ns, checkpoint_id = key_of(config)
        for one in self._source.read(thread_id, [(ns, checkpoint_id or "")]):
            return one.as_tuple()
        return None


class _Official:
    """What the savers of both databases have in common."""

    suffix = "-official"
    excluded: frozenset[str] = frozenset()
    is_new = False
    adds_values = False
    remembers = False

    def history(self: SourceThreads, key: Key, channels: Sequence[str]) -> Mapping[str, DeltaChannelHistory]:
        """Return what `DeltaChannel`s are rebuilt from."""
        config = config_of(key.thread_id, key.checkpoint_ns, key.checkpoint_id or "")
        return _Walk(self).get_delta_channel_history(config=config, channels=channels)

    def count(self: OfficialStore) -> int:
        """Return the number of threads."""
        return sum(map(len, self.threads()))

    def store(self, thread_id: str, part: Part) -> None:
        """Store a part of a thread."""
        for one, parent in part.checkpoints:
            self.put(one, parent)
        for key, writes in part.writes:
            self.put_writes(key, writes)

    @abstractmethod
    def put(self, one: ForeignCheckpoint, parent: Mapping[str, Any] | None) -> None: ...

    @abstractmethod
    def put_writes(self, key: Key, writes: Sequence[ForeignWrite]) -> None: ...


class OfficialSqlite(_Official):
    """A file of the official `SqliteSaver` or `AsyncSqliteSaver`."""

    def __init__(self, path: str, serde: SerializerProtocol, writes: bool = False) -> None:
        self._serde = serde
        self.name = f"sqlite:{Path(path).resolve()}"
        if writes:
            self.is_new = _setup_sqlite(path)
        try:
            mode = "rw" if writes else "ro"
            self._file = sqlite3.connect(f"file:{quote(path)}?mode={mode}", uri=True, isolation_level=None)
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

    def read(self, thread_id: str, places: Sequence[tuple[str, str]]) -> Sequence[ForeignCheckpoint]:
        """Return those of these checkpoints that exist, with their values and writes."""
        sql = """
            SELECT parent_checkpoint_id, type, checkpoint, metadata FROM checkpoints
            WHERE thread_id = ? AND checkpoint_ns = ? AND checkpoint_id = ?
        """
        return [
            ForeignCheckpoint(
                thread_id,
                *place,
                parent_id or None,
                self._serde.loads_typed((type_, checkpoint)),
                json.loads(metadata) if metadata is not None else {},
                self.read_writes(thread_id, *place),
            )
            for place in places
            for parent_id, type_, checkpoint, metadata in self._file.execute(sql, [thread_id, *place])
        ]

    def read_writes(self, thread_id: str, checkpoint_ns: str, checkpoint_id: str) -> Sequence[ForeignWrite]:
        """Return the writes of a checkpoint."""
        sql = f"""
            SELECT task_id, {self._path}, idx, channel, type, value FROM writes
            WHERE thread_id = ? AND checkpoint_ns = ? AND checkpoint_id = ?
        """
        rows = self._file.execute(sql, [thread_id, checkpoint_ns, checkpoint_id])
        return [_write(self._serde, *row) for row in rows]

    @contextmanager
    def storing(self) -> Iterator[None]:
        """Store everything in the block, or nothing."""
        try:
            self._file.execute("BEGIN IMMEDIATE")
            with self._file:
                yield
        except sqlite3.OperationalError as error:
            raise StorageError(f"the target cannot be written: {error}", operation="migrate") from error
        except sqlite3.Error as error:
            raise CheckpointError(f"LangGraph's saver cannot store it: {error}") from error

    def put(self, one: ForeignCheckpoint, parent: Mapping[str, Any] | None) -> None:
        """Store a checkpoint, unless it exists."""
        metadata = json.dumps(one.metadata, ensure_ascii=False).encode()
        self._file.execute(
            "INSERT OR IGNORE INTO checkpoints (thread_id, checkpoint_ns, checkpoint_id, parent_checkpoint_id, type, "
            "checkpoint, metadata) VALUES (?, ?, ?, ?, ?, ?, ?)",
            (*one.key, one.parent_id, *self._serde.dumps_typed(one.checkpoint), metadata),
        )

    def put_writes(self, key: Key, writes: Sequence[ForeignWrite]) -> None:
        """Store writes: regular ones keep the first value, special ones the last."""
        self._file.executemany(
            _STORE_WRITES.format(table="writes", value="value", row=", ".join("?" * 9)),
            _rows_of_writes(self._serde, key, writes),
        )


def _setup_sqlite(path: str) -> bool:
    """Create or upgrade the tables as the official saver does; return whether there were none."""
    try:
        from langgraph.checkpoint.sqlite import SqliteSaver as Official
    except ImportError as error:
        raise ConfigError("the tables are LangGraph's: pip install langgraph-checkpoint-sqlite") from error
    try:
        with Official.from_conn_string(path) as saver:
            tables = {row[0] for row in saver.conn.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")}
            if "langgraph_checkpoint_migrations" in tables:
                raise SchemaForeign(f"{path} has the tables of this package, not those of LangGraph's own SqliteSaver")
            saver.setup()
            return "checkpoints" not in tables
    except sqlite3.Error as error:
        raise ConfigError(f"{path} cannot be written as a SQLite database: {error}") from error


class OfficialPostgres(_Official):
    """The tables of the official `PostgresSaver` or `AsyncPostgresSaver`."""

    adds_values = True

    def __init__(self, url: str, serde: SerializerProtocol, writes: bool = False, *, temporary: bool = False) -> None:
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
        if temporary:
            self._connection.execute("SET search_path TO pg_temp")
        exists, has_path = self._tables()
        if writes and not (exists and has_path):
            self.is_new = not exists
            _setup_postgres(self._connection)
            exists, has_path = self._tables()
        if not exists:
            self._connection.close()
            raise SchemaForeign("this database has no tables of LangGraph's own PostgresSaver in its search_path")
        self._path = "task_path" if has_path else "''"
        # The same for each address of the server, and another one for a copy of the database.
        ((self.name,),) = self._connection.execute(
            """
            SELECT concat_ws('/', 'postgresql:', system_identifier, d.oid, to_regclass('checkpoints')::oid)
            FROM pg_control_system(), pg_database d WHERE d.datname = current_database()
            """
        ).fetchall()
        if not writes:
            self._connection.read_only = True
            self._connection.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ

    def _tables(self) -> tuple[bool, bool]:
        """Return whether the tables exist, and whether writes have the paths of tasks."""
        ((exists, has_path),) = self._connection.execute(
            """
            SELECT (
                SELECT count(*) FROM pg_attribute
                WHERE attrelid = to_regclass('checkpoints') AND attname IN ('parent_checkpoint_id', 'checkpoint')
            ) = 2 AND to_regclass('checkpoint_blobs') IS NOT NULL, (
                SELECT count(*) FROM pg_attribute
                WHERE attrelid = to_regclass('checkpoint_writes') AND attname = 'task_path'
            ) = 1
            """
        ).fetchall()
        return exists, has_path

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._connection.close()

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

    def read(self, thread_id: str, places: Sequence[tuple[str, str]]) -> Sequence[ForeignCheckpoint]:
        """Return those of these checkpoints that exist, with their values and writes, in one round trip."""
        if not places:
            return ()
        params = {"thread_id": thread_id, "spaces": [ns for ns, _ in places], "ids": [each for _, each in places]}
        with self._connection.pipeline():
            checkpoints = self._connection.execute(_CHECKPOINTS, params, binary=True)
            blobs = self._connection.execute(_BLOBS, params, binary=True)
            written = self._connection.execute(_WRITES.format(path=self._path).encode(), params, binary=True)
        values = {tuple(row[:3]): self._serde.loads_typed((row[3], row[4])) for row in blobs}
        writes: dict[tuple[str, str], list[ForeignWrite]] = {}
        for ns, checkpoint_id, *cells in written:
            writes.setdefault((ns, checkpoint_id), []).append(_write(self._serde, *cells))
        found = {}
        for ns, checkpoint_id, parent_id, checkpoint, metadata in checkpoints:
            stated = (checkpoint.get("channel_versions") or {}).items()
            named = {channel: (ns, channel, _text(version)) for channel, version in stated}
            # The document has `true` for a delta snapshot whose value is a blob; the blob's value replaces it.
            checkpoint["channel_values"] = {
                **(checkpoint.get("channel_values") or {}),
                **{channel: values[name] for channel, name in named.items() if name in values},
            }
            place = ns, checkpoint_id
            found[place] = ForeignCheckpoint(
                thread_id, *place, parent_id or None, checkpoint, metadata, writes.get(place, ())
            )
        return [found[place] for place in places if place in found]

    def read_writes(self, thread_id: str, checkpoint_ns: str, checkpoint_id: str) -> Sequence[ForeignWrite]:
        """Return the writes of a checkpoint."""
        params = {"thread_id": thread_id, "spaces": [checkpoint_ns], "ids": [checkpoint_id]}
        rows = self._connection.execute(_WRITES.format(path=self._path).encode(), params, binary=True)
        return [_write(self._serde, *cells) for _, _, *cells in rows]

    @contextmanager
    def storing(self) -> Iterator[None]:
        """Store everything in the block, or nothing."""
        import psycopg

        try:
            with self._connection.transaction():
                yield
        except psycopg.OperationalError as error:
            raise StorageError(f"the target cannot be written: {str(error).strip()}", operation="migrate") from error
        except psycopg.Error as error:
            reason = error.diag.message_primary or type(error).__name__
            raise CheckpointError(f"LangGraph's saver cannot store it: {reason}") from error

    def store(self, thread_id: str, part: Part) -> None:
        """Store a part of a thread in one round trip."""
        with self._connection.pipeline():
            super().store(thread_id, part)

    def put(self, one: ForeignCheckpoint, parent: Mapping[str, Any] | None) -> None:
        """Store a checkpoint with the values whose versions are not the parent's, unless they exist."""
        from psycopg.types.json import Jsonb

        values = dict(one.checkpoint["channel_values"])
        # Text, numbers and None are in the document, as the official saver stores them; a delta snapshot is True there.
        blobs = {channel: value for channel, value in values.items() if not _is_inline(value)}
        for channel, value in blobs.items():
            del values[channel]
            if isinstance(value, DeltaSnapshot):
                values[channel] = True
        thread_id, ns, _ = one.key
        with self._connection.cursor() as cursor:
            cursor.executemany(
                "INSERT INTO checkpoint_blobs (thread_id, checkpoint_ns, channel, version, type, blob) "
                "VALUES (%s, %s, %s, %s, %s, %s) ON CONFLICT DO NOTHING",
                [
                    (thread_id, ns, channel, _text(version), *self._serde.dumps_typed(blobs[channel]))
                    for channel, version in one.new_versions(parent).items()
                    if channel in blobs
                ],
            )
            cursor.execute(
                "INSERT INTO checkpoints (thread_id, checkpoint_ns, checkpoint_id, parent_checkpoint_id, checkpoint, "
                "metadata) VALUES (%s, %s, %s, %s, %s, %s) ON CONFLICT DO NOTHING",
                (*one.key, one.parent_id, Jsonb({**one.checkpoint, "channel_values": values}), Jsonb(one.metadata)),
            )

    def put_writes(self, key: Key, writes: Sequence[ForeignWrite]) -> None:
        """Store writes: regular ones keep the first value, special ones the last."""
        with self._connection.cursor() as cursor:
            cursor.executemany(
                _STORE_WRITES.format(table="checkpoint_writes", value="blob", row=", ".join(["%s"] * 9)).encode(),
                list(_rows_of_writes(self._serde, key, writes)),
            )


_KEYS = "unnest(%(spaces)s::text[], %(ids)s::text[]) AS k (checkpoint_ns, checkpoint_id)"
_CHECKPOINTS = f"""
    SELECT checkpoint_ns, checkpoint_id, c.parent_checkpoint_id, c.checkpoint, c.metadata
    FROM {_KEYS} JOIN checkpoints c USING (checkpoint_ns, checkpoint_id) WHERE c.thread_id = %(thread_id)s
""".encode()
# Each value once, and by its key: LIMIT keeps the planner from reading all blobs of a thread.
_BLOBS = f"""
    SELECT n.checkpoint_ns, n.channel, n.version, b.type, b.blob
    FROM (
        SELECT DISTINCT checkpoint_ns, v.key AS channel, v.value AS version
        FROM {_KEYS} JOIN checkpoints c USING (checkpoint_ns, checkpoint_id)
        CROSS JOIN LATERAL jsonb_each_text(c.checkpoint -> 'channel_versions') AS v
        WHERE c.thread_id = %(thread_id)s
    ) AS n
    CROSS JOIN LATERAL (
        SELECT type, blob FROM checkpoint_blobs
        WHERE thread_id = %(thread_id)s AND checkpoint_ns = n.checkpoint_ns
            AND channel = n.channel AND version = n.version LIMIT 1
    ) AS b
    WHERE b.type <> 'empty'
""".encode()
_WRITES = f"""
    SELECT checkpoint_ns, checkpoint_id, task_id, {{path}}, idx, channel, type, blob
    FROM {_KEYS} JOIN checkpoint_writes w USING (checkpoint_ns, checkpoint_id) WHERE w.thread_id = %(thread_id)s
"""


def _setup_postgres(connection: Any) -> None:
    """Create or upgrade the tables as the official saver does."""
    import psycopg

    try:
        from langgraph.checkpoint.postgres import PostgresSaver as Official
    except ImportError as error:
        raise ConfigError("the tables are LangGraph's: pip install langgraph-checkpoint-postgres") from error
    try:
        Official(connection).setup()
    except psycopg.Error as error:
        raise StorageError(f"no tables can be created: {error.diag.message_primary}", operation="migrate") from error


def _is_inline(value: Any) -> bool:
    return value is None or isinstance(value, (str, int, float, bool))


_STORE_WRITES = """
    INSERT INTO {table} AS w (
        thread_id, checkpoint_ns, checkpoint_id, task_id, task_path, idx, channel, type, {value}
    )
    VALUES ({row})
    ON CONFLICT (thread_id, checkpoint_ns, checkpoint_id, task_id, idx)
    DO UPDATE SET channel = excluded.channel, type = excluded.type, {value} = excluded.{value} WHERE w.idx < 0
"""


def _rows_of_writes(serde: SerializerProtocol, key: Key, writes: Iterable[ForeignWrite]) -> Iterator[tuple[Any, ...]]:
    for task_id, task_path, idx, channel, value in writes:
        yield *key, task_id, task_path, idx, channel, *serde.dumps_typed(value)


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


def _write(
    serde: SerializerProtocol, task_id: str, task_path: str, idx: int, channel: str, type_: str, data: bytes
) -> ForeignWrite:
    return ForeignWrite(task_id, task_path, idx, channel, serde.loads_typed((type_, data)))


def _text(version: Any) -> str:
    """Return a version as the official saver's JSON contains it."""
    return version if isinstance(version, str) else json.dumps(version)
