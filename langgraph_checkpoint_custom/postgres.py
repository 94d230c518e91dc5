"""`PostgresSaver`, for PostgreSQL over psycopg 3, and `AsyncPostgresSaver`, the name that LangGraph uses."""

from __future__ import annotations

import re
from collections.abc import Sequence

from langgraph.checkpoint.serde.base import SerializerProtocol
from typing_extensions import Self, Unpack

from langgraph_checkpoint_custom.drivers.sqlite_callers import is_connection
from langgraph_checkpoint_custom.errors import ConfigError
from langgraph_checkpoint_custom.model.keys import text
from langgraph_checkpoint_custom.operations.schema import check_schema
from langgraph_checkpoint_custom.options import PostgresOptions, SaverOptions, check_options
from langgraph_checkpoint_custom.pairs import shared_docstrings
from langgraph_checkpoint_custom.saver import CheckpointSaver
from langgraph_checkpoint_custom.sql.files import DEFAULT_SCHEMA
from langgraph_checkpoint_custom.sql.postgres_dialect import PostgresDialect

try:
    from psycopg import AsyncPipeline, Pipeline
    from psycopg.conninfo import conninfo_to_dict

    from langgraph_checkpoint_custom.drivers.postgres import PostgresDriver
    from langgraph_checkpoint_custom.drivers.postgres_address import Address
    from langgraph_checkpoint_custom.drivers.postgres_connections import Source, connections_from
except ImportError as error:
    raise ImportError("PostgresSaver needs psycopg: install langgraph-checkpoint-custom[postgres]") from error


@shared_docstrings
class PostgresSaver(CheckpointSaver):
    """Stores checkpoints in PostgreSQL 15 or later; call `setup()` once before use.

    Args:
        conn: A connection string. Or a function that returns one, which the saver calls for each new connection, for
            credentials that rotate; an async function works with the async methods only. Or a `ConnectionPool`,
            `AsyncConnectionPool`, `Connection` or `AsyncConnection` of psycopg, which stays yours to close.
        pipe: The pipeline that the connection is in, as with LangGraph's savers. It changes nothing.
        serde: The serializer; LangGraph's `JsonPlusSerializer` by default.
        schema: The schema of the tables. The saver does not use `search_path`.
        min_size: Connections that each pool keeps open. There is one pool for all OS threads and one for each event
            loop.
        max_size: The largest number of connections in each pool.
        pool_timeout: Seconds to wait for a free connection of the pool.
        connect_timeout: Seconds to wait for a new connection, unless the connection string has a `connect_timeout`.
        prepare: Whether to prepare statements. By default the saver prepares them on direct connections, and not behind
            a pooler such as PgBouncer, where one client could run the statement of another.
        read_only: Whether to change nothing: in all sessions of the saver, PostgreSQL refuses to write
            (`default_transaction_read_only`), and every method that would change something raises `ConfigError`. Needs
            a connection string.
        options: The options of every saver, which `help(CheckpointSaver)` explains: `previous_serdes`,
            `plaintext_metadata`, `exclude_metadata`, `strict`, `allow`, `on_unreadable`, `on_inexact`, `on_load`,
            `concurrent_writers`, `compress`, `chunk_cache_bytes`, `on_operation` and `retention`.

    Example:
        ```python
        async with PostgresSaver.from_conn_string("postgresql://localhost/app") as saver:
            await saver.asetup()
            graph = builder.compile(checkpointer=saver)
        ```
    """

    def __init__(
        self,
        conn: Source,
        pipe: Pipeline | AsyncPipeline | None = None,
        serde: SerializerProtocol | None = None,
        *,
        schema: str = DEFAULT_SCHEMA,
        min_size: int = 1,
        max_size: int = 20,
        pool_timeout: float = 30.0,
        connect_timeout: float = 10.0,
        prepare: bool | None = None,
        read_only: bool = False,
        **options: Unpack[SaverOptions],
    ) -> None:
        check_options("PostgresSaver", {**options, "read_only": read_only})
        if not isinstance(pipe, (Pipeline, AsyncPipeline, type(None))):
            raise ConfigError(
                f"pipe must be a pipeline of psycopg's, as with LangGraph's savers, not a {type(pipe).__name__}"
            )
        if isinstance(conn, str) and (scheme := re.match(r"[\w+.-]+(?=://)", conn)):
            _check_scheme(scheme[0])
        if is_connection(conn):  # It is callable.
            raise ConfigError("PostgresSaver was given a connection to SQLite; that is for SqliteSaver")
        if not text("schema", schema, 63) or schema.startswith("pg_"):
            raise ConfigError(f"{schema!r} cannot be the name of a schema: it is empty or starts with pg_")
        if not connect_timeout > 0:
            raise ConfigError(f"connect_timeout must be more than 0 seconds, not {connect_timeout!r}")
        if read_only and not (isinstance(conn, str) or callable(conn)):
            raise ConfigError(
                "read_only needs a connection string: the sessions of a connection or pool of yours are yours to set up"
            )
        connections, sessions = connections_from(
            conn,
            prepare=prepare,
            read_only=read_only,
            min_size=min_size,
            max_size=max_size,
            pool_timeout=pool_timeout,
            connect_timeout=connect_timeout,
        )
        dialect = PostgresDialect(schema)
        driver = PostgresDriver(connections, sessions, check=check_schema(dialect), read_only=read_only)
        super().__init__(dialect, driver, serde=serde, **options)
        self._given = None if isinstance(conn, str) or callable(conn) else conn
        self._database = f"{_name_of(conn)}, {dialect.location}"

    def setup(
        self,
        *,
        distribute: str | None = None,
        searchable: Sequence[str] = (),
    ) -> None:
        """Create or migrate the tables; does nothing if they are current.

        Any number of processes may call it at the same time.

        Args:
            distribute: "citus" distributes the tables by thread over the servers of a Citus cluster, without row-level
                security. You cannot change existing tables: set up another schema and move with `transfer`.
            searchable: Metadata keys that get an index each, so that `threads` and `count_threads` find few threads
                among many. If a large table is in use, create the index without blocking writes first: see
                `lgckpt schema --searchable`.

        Raises:
            ConfigError: The tables exist and are not distributed.
            SchemaTooNew: The tables need a newer version of this package.
            SchemaForeign: The schema has a table of another program with the name of one of ours.
        """
        self._set_up(searchable, distribute)

    async def asetup(
        self,
        *,
        distribute: str | None = None,
        searchable: Sequence[str] = (),
    ) -> None:
        """Async version of `setup`."""
        await self._aset_up(searchable, distribute)

    @classmethod
    def from_conn_string(
        cls, conn_string: Address, *, pipeline: bool = False, **options: Unpack[PostgresOptions]
    ) -> Self:
        """Return a saver for a connection string, without connecting yet.

        Args:
            conn_string: The connection string, or a function that returns one.
            pipeline: An option of LangGraph's savers. It changes nothing: each call is one round trip anyway.
            options: The options of the class.
        """
        return cls(conn_string, **options)


def _check_scheme(scheme: str) -> None:
    """Raise an error for a URL that is not PostgreSQL's; the message omits the URL, which may hold a password."""
    if re.fullmatch(r"postgres(ql)?\+\w+", scheme):
        raise ConfigError(f"{scheme}:// is a URL of SQLAlchemy's; psycopg's begins with postgresql://")
    if scheme not in ("postgresql", "postgres"):
        raise ConfigError(
            f"PostgresSaver takes a URL that begins with postgresql://, not {scheme}://; open_saver takes those of "
            "either database"
        )


class AsyncPostgresSaver(PostgresSaver):
    """`PostgresSaver` under LangGraph's name for async programs: here you await `setup()`.

    All other methods are those of `PostgresSaver`, sync ones included.
    """

    async def setup(  # type: ignore[override]
        self,
        *,
        distribute: str | None = None,
        searchable: Sequence[str] = (),
    ) -> None:
        """Create or migrate the tables, as `asetup` does."""
        await self.asetup(distribute=distribute, searchable=searchable)


def _name_of(conn: object) -> str:
    """Return what a database is called, without what may be secret in its connection string."""
    parts = conninfo_to_dict(conn) if isinstance(conn, str) else {}
    where = f" on {parts['host']}" if "host" in parts else ""
    return f"{parts.get('dbname', 'PostgreSQL')}{where}"
