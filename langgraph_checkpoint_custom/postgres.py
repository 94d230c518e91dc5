"""`PostgresSaver`: production, over psycopg 3; `AsyncPostgresSaver`, as LangGraph calls it."""

from __future__ import annotations

import logging
import re
from collections.abc import Sequence

from langgraph.checkpoint.serde.base import SerializerProtocol
from typing_extensions import Self, Unpack

from langgraph_checkpoint_custom.drivers.sqlite_callers import is_connection
from langgraph_checkpoint_custom.engine.operation import Operation
from langgraph_checkpoint_custom.errors import ConfigError
from langgraph_checkpoint_custom.model.keys import flag, text
from langgraph_checkpoint_custom.operations.schema import check_schema, setup
from langgraph_checkpoint_custom.options import PostgresOptions, SaverOptions, check_options
from langgraph_checkpoint_custom.saver import CheckpointSaver
from langgraph_checkpoint_custom.sql.postgres import DEFAULT_SCHEMA, PostgresDialect
from langgraph_checkpoint_custom.sql.searchable import searchable_keys

try:
    from psycopg import AsyncPipeline, Pipeline

    from langgraph_checkpoint_custom.drivers.postgres import PostgresDriver
    from langgraph_checkpoint_custom.drivers.postgres_address import Address
    from langgraph_checkpoint_custom.drivers.postgres_connections import Source, connections_from
except ImportError as error:
    raise ImportError("PostgresSaver needs psycopg: pip install 'langgraph-checkpoint-custom[postgres]'") from error

_LOG = logging.getLogger("langgraph_checkpoint_custom")


class PostgresSaver(CheckpointSaver):
    """Checkpoints in PostgreSQL 14 or later; run `setup()` once before use.

    Args:
        conn: A connection string, or a function that gives one, asked for each new connection (credentials that
            rotate); an async one for async methods only. Or a `ConnectionPool`, `AsyncConnectionPool`, `Connection` or
            `AsyncConnection` of psycopg, which stays the caller's to close.
        pipe: As with LangGraph's savers, the pipeline that the connection is in; it makes no difference.
        serde: How values become bytes.
        schema: The schema of the tables; nothing depends on `search_path`.
        min_size: Connections that are kept open, in each pool: one for all OS threads, one for each event loop.
        max_size: Connections that are open at most, in each pool.
        pool_timeout: Seconds to wait for a connection of the pool to come free.
        connect_timeout: Seconds to wait for a new connection.
        answer_timeout: Seconds that a read or write waits while the server says nothing; then the connection is closed.
            What a server does for that long in silence, such as waiting for a lock, ends with that, too. `setup()` is
            exempt. It is not for connections and pools of yours.
        prepare: Whether to prepare statements. By default they are on connections that are direct, and not behind a
            pooler such as PgBouncer, where one client could run another's.
        options: Those of every saver; see `CheckpointSaver`.

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
        answer_timeout: float = 60.0,
        prepare: bool | None = None,
        **options: Unpack[SaverOptions],
    ) -> None:
        own = {
            "serde": serde,
            "schema": schema,
            "min_size": min_size,
            "max_size": max_size,
            "pool_timeout": pool_timeout,
            "connect_timeout": connect_timeout,
            "answer_timeout": answer_timeout,
            "prepare": prepare,
        }
        check_options("PostgresSaver", {**own, **options})
        if not isinstance(pipe, (Pipeline, AsyncPipeline, type(None))):
            raise ConfigError(
                f"pipe is a pipeline of psycopg's, as with LangGraph's savers, not a {type(pipe).__name__}"
            )
        if pipe is not None:
            _LOG.info("pipe changes nothing: each call is one round trip anyway")
        if isinstance(conn, str) and (scheme := re.match(r"[\w+.-]+(?=://)", conn)):
            _check_scheme(scheme[0])
        if is_connection(conn):
            raise ConfigError("PostgresSaver was given a connection to SQLite; that is for SqliteSaver")
        if not text("schema", schema, 63) or schema.startswith("pg_"):
            raise ConfigError(f"{schema!r} cannot be the name of a schema: it is empty or starts with pg_")
        if not connect_timeout > 0:
            raise ConfigError(f"connect_timeout must be more than 0 seconds, not {connect_timeout!r}")
        connections = connections_from(
            conn,
            min_size=min_size,
            max_size=max_size,
            pool_timeout=pool_timeout,
            connect_timeout=connect_timeout,
            answer_timeout=answer_timeout,
        )
        dialect = PostgresDialect(schema)
        driver = PostgresDriver(connections, check=check_schema(dialect), setup=setup(dialect), prepare=prepare)
        super().__init__(dialect, driver, serde=serde, **options)
        self._given = None if isinstance(conn, str) or callable(conn) else conn
        self._postgres = dialect, driver

    def setup(
        self,
        *,
        partitions: int | None = None,
        searchable: Sequence[str] = (),
    ) -> None:
        """Create or migrate the tables; does nothing if they are current. Any number of processes may call it.

        Args:
            partitions: Make the large tables in so many partitions by thread. Tables that are there cannot be changed:
                set up another schema and move with `transfer`.
            searchable: Metadata keys by which `threads` and `count_threads` find few among many, by an index for each.
                In large tables, make it beside live traffic first: see `langgraph-checkpoint schema --searchable`.

        Raises:
            ConfigError: The tables are there already, in another number of partitions.
        """
        keys = searchable_keys(searchable)
        self._postgres[1].setup(self._setup_of(partitions))
        self._index(keys)

    async def asetup(
        self,
        *,
        partitions: int | None = None,
        searchable: Sequence[str] = (),
    ) -> None:
        """Create or migrate the tables; does nothing if they are current. Any number of processes may call it.

        Args:
            partitions: Make the large tables in so many partitions by thread. Tables that are there cannot be changed:
                set up another schema and move with `transfer`.
            searchable: Metadata keys by which `threads` and `count_threads` find few among many, by an index for each.
                In large tables, make it beside live traffic first: see `langgraph-checkpoint schema --searchable`.

        Raises:
            ConfigError: The tables are there already, in another number of partitions.
        """
        keys = searchable_keys(searchable)
        await self._postgres[1].asetup(self._setup_of(partitions))
        await self._aindex(keys)

    def _setup_of(self, partitions: int | None) -> Operation[None]:
        if partitions is not None and type(partitions) is not int:
            raise ConfigError(f"partitions is a whole number or None, not {partitions!r}")
        return setup(self._postgres[0].laid_out(partitions), partitions)

    @classmethod
    def from_conn_string(
        cls, conn_string: Address, *, pipeline: bool = False, **options: Unpack[PostgresOptions]
    ) -> Self:
        """A saver for a connection string; takes the options of the class and opens nothing yet.

        Args:
            conn_string: The connection string, or a function that gives one.
            pipeline: An option of LangGraph's savers that changes nothing: each call is one round trip anyway.
            options: Those of the class.
        """
        if flag("pipeline", pipeline):
            _LOG.info("pipeline=True changes nothing: each call is one round trip anyway")
        return cls(conn_string, **options)


def _check_scheme(scheme: str) -> None:
    """Refuse a URL that is none of PostgreSQL's; it is not shown, since a password may be in it."""
    if re.fullmatch(r"postgres(ql)?\+\w+", scheme):
        raise ConfigError(f"{scheme}:// is a URL of SQLAlchemy's; psycopg's begins with postgresql://")
    if scheme not in ("postgresql", "postgres"):
        raise ConfigError(
            f"PostgresSaver takes a URL that begins with postgresql://, not {scheme}://; open_saver takes those of "
            "either database"
        )


class AsyncPostgresSaver(PostgresSaver):
    """`PostgresSaver` with LangGraph's other name for it: `setup()` is to be awaited. Sync methods work, too."""

    setup = PostgresSaver.asetup  # type: ignore[assignment]
