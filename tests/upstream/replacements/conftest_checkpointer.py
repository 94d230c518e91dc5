"""The savers of LangGraph's fixtures, made in the same way with another import, and all on one database."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager

from langgraph.checkpoint.serde.encrypted import EncryptedSerializer
from psycopg import AsyncConnection, Connection, conninfo
from psycopg.rows import dict_row
from psycopg_pool import AsyncConnectionPool, ConnectionPool

from langgraph_checkpoint_custom import (
    AsyncPostgresSaver,
    AsyncSqliteSaver,
    CheckpointSaver,
    PostgresSaver,
    SqliteSaver,
)

from .replaced import DSN, InMemorySaver, empty

# Tests append the name of a database.
DEFAULT_POSTGRES_URI = conninfo.make_conninfo(DSN, dbname="") + " dbname="
SCHEMA = "langgraph_checkpoint"


@contextmanager
def _checkpointer_memory() -> Iterator[CheckpointSaver]:
    yield InMemorySaver()


@contextmanager
def _checkpointer_sqlite() -> Iterator[SqliteSaver]:
    with SqliteSaver.from_conn_string(":memory:") as checkpointer:
        yield checkpointer


@contextmanager
def _checkpointer_sqlite_aes() -> Iterator[SqliteSaver]:
    with SqliteSaver.from_conn_string(":memory:") as checkpointer:
        checkpointer.serde = EncryptedSerializer.from_pycryptodome_aes(key=b"1234567890123456")
        yield checkpointer


@contextmanager
def _checkpointer_postgres() -> Iterator[PostgresSaver]:
    with PostgresSaver.from_conn_string(DSN) as checkpointer:
        checkpointer.setup()
        yield checkpointer
    empty([SCHEMA])


@contextmanager
def _checkpointer_postgres_pipe() -> Iterator[PostgresSaver]:
    with PostgresSaver.from_conn_string(DSN, pipeline=True) as checkpointer:
        checkpointer.setup()
        yield checkpointer
    empty([SCHEMA])


@contextmanager
def _checkpointer_postgres_connection() -> Iterator[PostgresSaver]:
    with Connection.connect(DSN, autocommit=True, prepare_threshold=0, row_factory=dict_row) as connection:
        checkpointer = PostgresSaver(connection)
        checkpointer.setup()
        yield checkpointer
    empty([SCHEMA])


@contextmanager
def _checkpointer_postgres_pool() -> Iterator[PostgresSaver]:
    with ConnectionPool(DSN, min_size=1, max_size=10, kwargs={"autocommit": True, "row_factory": dict_row}) as pool:
        checkpointer = PostgresSaver(pool)
        checkpointer.setup()
        yield checkpointer
    empty([SCHEMA])


@asynccontextmanager
async def _checkpointer_sqlite_aio() -> AsyncIterator[AsyncSqliteSaver]:
    async with AsyncSqliteSaver.from_conn_string(":memory:") as checkpointer:
        yield checkpointer


@asynccontextmanager
async def _checkpointer_postgres_aio() -> AsyncIterator[AsyncPostgresSaver]:
    async with AsyncPostgresSaver.from_conn_string(DSN) as checkpointer:
        await checkpointer.setup()
        yield checkpointer
    empty([SCHEMA])


@asynccontextmanager
async def _checkpointer_postgres_aio_pipe() -> AsyncIterator[AsyncPostgresSaver]:
    async with AsyncPostgresSaver.from_conn_string(DSN, pipeline=True) as checkpointer:
        await checkpointer.setup()
        yield checkpointer
    empty([SCHEMA])


@asynccontextmanager
async def _checkpointer_postgres_aio_connection() -> AsyncIterator[AsyncPostgresSaver]:
    async with await AsyncConnection.connect(
        DSN, autocommit=True, prepare_threshold=0, row_factory=dict_row
    ) as connection:
        checkpointer = AsyncPostgresSaver(connection)
        await checkpointer.setup()
        yield checkpointer
    empty([SCHEMA])


@asynccontextmanager
async def _checkpointer_postgres_aio_pool() -> AsyncIterator[AsyncPostgresSaver]:
    async with AsyncConnectionPool(
        DSN, min_size=1, max_size=10, kwargs={"autocommit": True, "row_factory": dict_row}
    ) as pool:
        checkpointer = AsyncPostgresSaver(pool)
        await checkpointer.setup()
        yield checkpointer
    empty([SCHEMA])
