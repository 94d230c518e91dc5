"""Reads the tables of LangGraph's own PostgreSQL and SQLite savers, in every form that their current release reads.

If it is opened to write, it also stores checkpoints, in the form of the current release; only then it imports the
official savers' packages, which create the tables. The given serializer decodes and encodes the values; one from
`raw_reader` makes no objects. A thread is read in one read snapshot, so of a concurrent run it has what was stored up
to one point in time, and it is stored in one transaction.
"""

from __future__ import annotations

import json
import sqlite3
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote

from langgraph.checkpoint.serde.base import SerializerProtocol
from typing_extensions import Self

from langgraph_checkpoint_custom.encoding.langgraph_private import DeltaSnapshot
from langgraph_checkpoint_custom.encoding.objects import is_unicode
from langgraph_checkpoint_custom.encoding.raw import Raw
from langgraph_checkpoint_custom.errors import CheckpointError, ConfigError, SchemaForeign, StorageError
from langgraph_checkpoint_custom.tools.foreign import (
    PAGE,
    ForeignCheckpoint,
    ForeignWrite,
    Locations,
    Part,
    Place,
    locations_of,
)

_UNREADABLE = "LangGraph's tables cannot be read"

# A checkpoint without its writes: its place, the parent's id, the checkpoint and the metadata.
Document = tuple[Place, str | None, dict[str, Any], dict[str, Any]]


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


class OfficialStore(ABC):
    """The tables of an official saver, as a side of a move; statements have `{p}` where a parameter is.

    Attributes:
        name: The same for each address of the database, and another one for a copy of it.
        is_new: Whether the tables were created now.
        suffix: What follows the id of a thread of these tables that is moved to a thread of its own.
        excluded: The keys of metadata that are not stored.
        adds_values: Whether a `DeltaChannel` has a value in each checkpoint with its version, if it has one in any of
            them.
    """

    suffix = "-official"
    deletion = "delete_thread of LangGraph's saver"
    name: str
    is_new = False
    excluded: frozenset[str] = frozenset()
    adds_values = False
    _serde: SerializerProtocol
    # The module that connects to this database, with the classes of its errors.
    _api: Any
    # How this database marks a parameter, and what it calls the table of writes and the column of their values.
    _p: str
    _writes: str
    _value: str
    # The column of a task's path; '' in tables of an older release, which have none.
    _path: str

    def __enter__(self) -> Self:
        return self

    @abstractmethod
    def __exit__(self, *_: object) -> None: ...

    @abstractmethod
    def _ask(self, statement: str, params: Sequence[Sequence[Any]]) -> Sequence[Sequence[tuple[Any, ...]]]:
        """Return the rows of a statement for each list of parameters."""

    @abstractmethod
    def _store(self, statement: str, params: Iterable[Sequence[Any]]) -> None:
        """Execute a statement for each list of parameters."""

    @abstractmethod
    def _checkpoints(self, thread_id: str, places: Sequence[Place]) -> Iterator[Document]:
        """Yield those of these checkpoints that exist."""

    @abstractmethod
    def _put(self, one: ForeignCheckpoint, parent: Mapping[str, Any] | None) -> None:
        """Store a checkpoint, unless it exists."""

    @abstractmethod
    def snapshot(self) -> AbstractContextManager[None]:
        """Return a block that reads everything from one read snapshot."""

    @abstractmethod
    def _transaction(self) -> Any:
        """Return a block that is one transaction, and may write."""

    @contextmanager
    def storing(self) -> Iterator[None]:
        """Store everything in the block, or nothing."""
        with self._reported("the target cannot be written", "LangGraph's saver cannot store it"), self._transaction():
            yield

    @contextmanager
    def _reported(self, failure: str = _UNREADABLE, refusal: str = _UNREADABLE) -> Iterator[None]:
        """Raise errors of the database as ours: a failure ends the move, a refusal may be about this thread only."""
        try:
            yield
        except self._api.OperationalError as error:
            raise StorageError(f"{failure}: {str(error).strip()}", operation="migrate") from error
        except self._api.Error as error:
            # The rest of what PostgreSQL says may have values.
            reason = error.diag.message_primary or type(error).__name__ if hasattr(error, "diag") else error
            raise CheckpointError(f"{refusal}: {reason}") from error

    def _sql(self, text: str) -> str:
        return text.format(p=self._p, writes=self._writes, value=self._value, path=self._path)

    def threads(self) -> Iterator[Sequence[str]]:
        """Yield the thread ids in order, in pages; no cursor or transaction stays open between pages."""
        statement, after = _FIRST_THREADS, ""
        while rows := self._ask(self._sql(statement), [[after]])[0]:
            yield [row[0] for row in rows]
            statement, after = _NEXT_THREADS, rows[-1][0]

    def locations(self, thread_ids: Sequence[str]) -> Mapping[str, Locations]:
        """Return the checkpoints of threads with the number of their writes, older ones first."""
        return locations_of(thread_ids, self._ask(self._sql(_LOCATIONS), [[each, each] for each in thread_ids]))

    def read(self, thread_id: str, places: Sequence[Place]) -> Sequence[ForeignCheckpoint]:
        """Return those of these checkpoints that exist, with their values and writes."""
        found = list(self._checkpoints(thread_id, places))
        writes = self._written(thread_id, [place for place, *_ in found])
        return [
            ForeignCheckpoint(thread_id, *place, parent_id or None, checkpoint, metadata, written)
            for (place, parent_id, checkpoint, metadata), written in zip(found, writes, strict=True)
        ]

    def read_writes(self, thread_id: str, place: Place) -> Sequence[ForeignWrite]:
        """Return the writes of a checkpoint."""
        return self._written(thread_id, [place])[0]

    def _written(self, thread_id: str, places: Sequence[Place]) -> Sequence[Sequence[ForeignWrite]]:
        found = self._ask(self._sql(_WRITES), [[thread_id, *place] for place in places])
        return [
            [
                ForeignWrite(task_id, path, idx, channel, self._serde.loads_typed((type_, data)))
                for task_id, path, idx, channel, type_, data in rows
            ]
            for rows in found
        ]

    def store(self, part: Part) -> None:
        """Store a part of a thread."""
        for one, parent in part.checkpoints:
            self._put(one, parent)
        for key, writes in part.writes:
            self._store(
                self._sql(_STORE_WRITES),
                [(*key, *each[:4], *self._serde.dumps_typed(each.value)) for each in writes],
            )


# The first page may have the thread whose id is empty.
_FIRST_THREADS = f"""
    SELECT thread_id FROM checkpoints WHERE thread_id >= {{p}} GROUP BY thread_id ORDER BY thread_id LIMIT {PAGE}
"""
_NEXT_THREADS = _FIRST_THREADS.replace(">=", ">")
_LOCATIONS = """
    SELECT checkpoint_ns, checkpoint_id, coalesce(w.number, 0), coalesce(w.replaceable, 0)
    FROM checkpoints LEFT JOIN (
        SELECT checkpoint_ns, checkpoint_id, count(*) AS number, count(CASE WHEN idx < 0 THEN 1 END) AS replaceable
        FROM {writes} WHERE thread_id = {p} GROUP BY checkpoint_ns, checkpoint_id
    ) AS w USING (checkpoint_ns, checkpoint_id)
    WHERE thread_id = {p}
"""
_WRITES = """
    SELECT task_id, {path}, idx, channel, type, {value} FROM {writes}
    WHERE thread_id = {p} AND checkpoint_ns = {p} AND checkpoint_id = {p}
"""
_STORE_WRITES = """
    INSERT INTO {writes} AS w (
        thread_id, checkpoint_ns, checkpoint_id, task_id, task_path, idx, channel, type, {value}
    )
    VALUES ({p}, {p}, {p}, {p}, {p}, {p}, {p}, {p}, {p})
    ON CONFLICT (thread_id, checkpoint_ns, checkpoint_id, task_id, idx)
    DO UPDATE SET channel = excluded.channel, type = excluded.type, {value} = excluded.{value} WHERE w.idx < 0
"""


class OfficialSqlite(OfficialStore):
    """A file of the official `SqliteSaver` or `AsyncSqliteSaver`."""

    _api = sqlite3
    _p = "?"
    _writes = "writes"
    _value = "value"

    def __init__(self, path: str, serde: SerializerProtocol, writes: bool) -> None:
        self._serde = serde
        self.name = f"sqlite:{Path(path).resolve()}"
        if writes:
            self.is_new = _setup_sqlite(path)
        try:
            mode = "rw" if writes else "ro"
            self._file = sqlite3.connect(f"file:{quote(path)}?mode={mode}", uri=True, isolation_level=None)
            is_theirs = _is_theirs(self._file)
            paths = {row[1] for row in self._file.execute("PRAGMA table_info(writes)")} & {"task_path"}
        except sqlite3.Error as error:
            raise ConfigError(f"{path} cannot be read as a SQLite database: {error}") from error
        if not is_theirs:
            self._file.close()
            raise SchemaForeign(f"{path} has no tables of LangGraph's own SqliteSaver")
        self._path = "task_path" if paths else "''"

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def _ask(self, statement: str, params: Sequence[Sequence[Any]]) -> Sequence[Sequence[tuple[Any, ...]]]:
        with self._reported():
            return [self._file.execute(statement, each).fetchall() for each in params]

    def _store(self, statement: str, params: Iterable[Sequence[Any]]) -> None:
        self._file.executemany(statement, params)

    @contextmanager
    def snapshot(self) -> Iterator[None]:
        """Read everything in the block from one read snapshot."""
        self._file.execute("BEGIN")
        try:
            yield
        finally:
            with suppress(sqlite3.ProgrammingError):  # An interrupt may close the file before this block ends.
                self._file.execute("ROLLBACK")

    def _transaction(self) -> Any:
        self._file.execute("BEGIN IMMEDIATE")
        return self._file

    def _checkpoints(self, thread_id: str, places: Sequence[Place]) -> Iterator[Document]:
        statement = """
            SELECT parent_checkpoint_id, type, checkpoint, metadata FROM checkpoints
            WHERE thread_id = ? AND checkpoint_ns = ? AND checkpoint_id = ?
        """
        for place, rows in zip(places, self._ask(statement, [[thread_id, *place] for place in places]), strict=True):
            for parent_id, type_, checkpoint, metadata in rows:
                document = self._serde.loads_typed((type_, checkpoint))
                if type(document) is Raw:
                    raise CheckpointError(
                        f"checkpoint {place[1]!r} is stored as {document.type}, which cannot be read without its "
                        "classes; copy_from copies the thread"
                    )
                yield place, parent_id, document, {} if metadata is None else json.loads(metadata)

    def _put(self, one: ForeignCheckpoint, parent: Mapping[str, Any] | None) -> None:
        for channel, value in one.checkpoint["channel_values"].items():
            if type(value) is Raw:
                raise CheckpointError(
                    f"the value of channel {channel!r} is stored as {value.type}, and LangGraph's tables have one type "
                    "for all values of a checkpoint"
                )
        metadata = json.dumps(one.metadata, ensure_ascii=False).encode()
        self._file.execute(
            "INSERT OR IGNORE INTO checkpoints (thread_id, checkpoint_ns, checkpoint_id, parent_checkpoint_id, type, "
            "checkpoint, metadata) VALUES (?, ?, ?, ?, ?, ?, ?)",
            (*one.key, one.parent_id, *self._serde.dumps_typed(one.checkpoint), metadata),
        )


def _is_theirs(file: sqlite3.Connection) -> bool:
    """Return whether the table of checkpoints has the columns of LangGraph's own."""
    columns = {row[1] for row in file.execute("PRAGMA table_info(checkpoints)")}
    return {"parent_checkpoint_id", "type", "checkpoint", "metadata"} <= columns


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
            if "checkpoints" in tables and not _is_theirs(saver.conn):
                return False  # Those of another program, which stay as they are.
            saver.setup()
            return "checkpoints" not in tables
    except sqlite3.Error as error:
        raise ConfigError(f"{path} cannot be written as a SQLite database: {error}") from error


def connect_to(url: str, **options: Any) -> Any:
    """Return a connection to the PostgreSQL database of an official saver.

    Raises:
        ConfigError: The URL cannot be read.
        StorageError: There is no connection.
    """
    import psycopg  # Only the extra `postgres` installs it.

    try:
        return psycopg.connect(url, fallback_application_name="langgraph-checkpoint-custom", **options)
    except psycopg.ProgrammingError:  # Its message may contain the password.
        raise ConfigError("the URL of LangGraph's tables cannot be read; %-encode special characters in it") from None
    except psycopg.Error as error:
        raise StorageError(f"no connection to LangGraph's tables: {str(error).strip()}", operation="migrate") from None


class OfficialPostgres(OfficialStore):
    """The tables of the official `PostgresSaver` or `AsyncPostgresSaver`."""

    adds_values = True
    _p = "%s"
    _writes = "checkpoint_writes"
    _value = "blob"

    def __init__(self, url: str, serde: SerializerProtocol, writes: bool) -> None:
        import psycopg  # Only the extra `postgres` installs it.

        self._serde = serde
        self._api = psycopg
        self._connection = connect_to(url, autocommit=True, prepare_threshold=None)
        try:
            with self._reported():
                self._begin(writes)
        except BaseException:
            self._connection.close()
            raise

    def _begin(self, writes: bool) -> None:
        """Find out about the tables, or create them."""
        exists, has_path, is_other = self._tables()
        if writes and not (is_other or (exists and has_path)):
            self.is_new = not exists
            _setup_postgres(self._connection)
            exists, has_path, _ = self._tables()
        if not exists:
            raise SchemaForeign(
                "this database has no tables of LangGraph's own PostgresSaver in its search_path"
                + (", but others of these names; copy_from copies those of a ShallowPostgresSaver" if is_other else "")
            )
        self._path = "task_path" if has_path else "''"
        ((self.name, process),) = self._connection.execute(
            """
            SELECT concat_ws('/', 'postgresql:', system_identifier, d.oid, to_regclass('checkpoints')::oid),
                pg_backend_pid()
            FROM pg_control_system(), pg_database d WHERE d.datname = current_database()
            """
        ).fetchall()
        if process == self._connection.info.backend_pid:  # Behind a pooler, the next statement may reach another one.
            self._connection.prepare_threshold = 1
        if not writes:
            self._connection.read_only = True
            self._connection.isolation_level = self._api.IsolationLevel.REPEATABLE_READ

    def _tables(self) -> tuple[bool, bool, bool]:
        """Return whether the tables exist, whether writes have the paths of tasks, and whether another table exists."""
        ((exists, has_path, is_other),) = self._connection.execute(
            """
            SELECT is_theirs AND to_regclass('checkpoint_blobs') IS NOT NULL, (
                SELECT count(*) FROM pg_attribute
                WHERE attrelid = to_regclass('checkpoint_writes') AND attname = 'task_path'
            ) = 1, to_regclass('checkpoints') IS NOT NULL AND NOT is_theirs
            FROM (
                SELECT count(*) = 2 AS is_theirs FROM pg_attribute
                WHERE attrelid = to_regclass('checkpoints') AND attname IN ('parent_checkpoint_id', 'checkpoint')
            ) AS c
            """
        ).fetchall()
        return exists, has_path, is_other

    def __exit__(self, *_: object) -> None:
        self._connection.close()

    def _ask(self, statement: str, params: Sequence[Sequence[Any]]) -> Sequence[Sequence[tuple[Any, ...]]]:
        with self._reported(), self._connection.pipeline():
            cursors = [self._connection.execute(statement.encode(), each, binary=True) for each in params]
            return [cursor.fetchall() for cursor in cursors]

    def _store(self, statement: str, params: Iterable[Sequence[Any]]) -> None:
        with self._connection.cursor() as cursor:
            cursor.executemany(statement.encode(), list(params))

    @contextmanager
    def snapshot(self) -> Iterator[None]:
        """Read everything in the block from one read snapshot."""
        with self._reported(), self._transaction():
            yield

    def _transaction(self) -> Any:
        return self._connection.transaction()

    def store(self, part: Part) -> None:
        """Store a part of a thread in one round trip."""
        with self._connection.pipeline():
            super().store(part)

    def _checkpoints(self, thread_id: str, places: Sequence[Place]) -> Iterator[Document]:
        rows = self._ask(_CHECKPOINT, [[thread_id, *place] for place in places])
        found = [(place, *row) for place, each in zip(places, rows, strict=True) for row in each]
        # Each value once, though many checkpoints have it.
        names: dict[tuple[str, str, str], Any] = {}
        for (ns, _), _, checkpoint, _ in found:
            stated = (checkpoint.get("channel_versions") or {}).items()
            names.update(dict.fromkeys((ns, channel, _text(version)) for channel, version in stated))
        blobs = self._ask(_BLOB, [[thread_id, *name] for name in names])
        values = {name: self._serde.loads_typed(row) for name, rows in zip(names, blobs, strict=True) for row in rows}
        for (ns, checkpoint_id), parent_id, checkpoint, metadata in found:
            stated = (checkpoint.get("channel_versions") or {}).items()
            named = {channel: (ns, channel, _text(version)) for channel, version in stated}
            # The document has `true` for a delta snapshot whose value is a blob; the blob's value replaces it.
            checkpoint["channel_values"] = {
                **(checkpoint.get("channel_values") or {}),
                **{channel: values[name] for channel, name in named.items() if name in values},
            }
            yield (ns, checkpoint_id), parent_id, checkpoint, metadata

    def _put(self, one: ForeignCheckpoint, parent: Mapping[str, Any] | None) -> None:
        # With the values whose versions are not the parent's, unless they exist.
        from psycopg.types.json import Jsonb

        values = dict(one.checkpoint["channel_values"])
        # A delta snapshot is True in the document.
        blobs = {channel: value for channel, value in values.items() if not _is_inline(value)}
        for channel, value in blobs.items():
            del values[channel]
            if isinstance(value, DeltaSnapshot):
                values[channel] = True
        thread_id, ns, _ = one.key
        self._store(
            "INSERT INTO checkpoint_blobs (thread_id, checkpoint_ns, channel, version, type, blob) "
            "VALUES (%s, %s, %s, %s, %s, %s) ON CONFLICT DO NOTHING",
            [
                (thread_id, ns, channel, _text(version), *self._serde.dumps_typed(blobs[channel]))
                for channel, version in one.new_versions(parent).items()
                if channel in blobs
            ],
        )
        self._store(
            "INSERT INTO checkpoints (thread_id, checkpoint_ns, checkpoint_id, parent_checkpoint_id, checkpoint, "
            "metadata) VALUES (%s, %s, %s, %s, %s, %s) ON CONFLICT DO NOTHING",
            [(*one.key, one.parent_id, Jsonb({**one.checkpoint, "channel_values": values}), Jsonb(one.metadata))],
        )


_CHECKPOINT = """
    SELECT parent_checkpoint_id, checkpoint, metadata FROM checkpoints
    WHERE thread_id = %s AND checkpoint_ns = %s AND checkpoint_id = %s
"""
_BLOB = """
    SELECT type, blob FROM checkpoint_blobs
    WHERE thread_id = %s AND checkpoint_ns = %s AND channel = %s AND version = %s AND type <> 'empty'
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
    """Whether the document has a value: None, a number or a text, as the official saver stores them.

    What jsonb rejects or changes is a blob, which the official saver reads, too: 1e16 would come back as an integer,
    and -0.0 as 0.0.
    """
    if isinstance(value, float):
        return abs(value) < 1e16 and repr(value) != "-0.0"
    if isinstance(value, str):
        return "\0" not in value and is_unicode(value)
    return value is None or isinstance(value, int)


def _text(version: Any) -> str:
    """Return a version as the official saver's JSON contains it."""
    return version if isinstance(version, str) else json.dumps(version)
