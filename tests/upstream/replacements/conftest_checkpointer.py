"""The savers of LangGraph's fixtures, made in the same way with another import, and all on one database."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager

from psycopg import conninfo
from psycopg.rows import dict_row
from psycopg_pool import AsyncConnectionPool, ConnectionPool

from langgraph_checkpoint_custom import (
    AsyncPostgresSaver,
    AsyncSqliteSaver,
    PostgresSaver,
    SqliteSaver,
)

from .replaced import DSN, empty

# Tests append the name of a database.
DEFAULT_POSTGRES_URI = conninfo.make_conninfo(DSN, dbname="") + " dbname="
SCHEMA = "langgraph_checkpoint"


@contextmanager
def _checkpointer_sqlite() -> Iterator[SqliteSaver]:
    with SqliteSaver.from_conn_string(":memory:") as checkpointer:
        yield checkpointer


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
async def _checkpointer_postgres_aio_pool() -> AsyncIterator[AsyncPostgresSaver]:
    async with AsyncConnectionPool(
        DSN, min_size=1, max_size=10, kwargs={"autocommit": True, "row_factory": dict_row}
    ) as pool:
        checkpointer = AsyncPostgresSaver(pool)
        await checkpointer.setup()
        yield checkpointer
    empty([SCHEMA])
