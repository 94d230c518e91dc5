"""Where PostgreSQL connections come from: pools of our own, or what a caller brings."""

from __future__ import annotations

import asyncio
import re
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any, Protocol

from psycopg import AsyncConnection, Connection, ProgrammingError
from psycopg.conninfo import conninfo_to_dict
from psycopg_pool import AsyncConnectionPool, ConnectionPool

from langgraph_checkpoint_custom.drivers.postgres_pools import (
    LoopConnection,
    LoopPool,
    OwnPools,
    SyncConnection,
    SyncPool,
)
from langgraph_checkpoint_custom.errors import ConfigError

Source = str | SyncPool | LoopPool | SyncConnection | LoopConnection


class Connections(Protocol):
    """What the driver needs of a source of connections."""

    replaceable: bool
    """Whether a broken connection is followed by a new one, so that trying again makes sense."""

    own: bool
    """Whether the sessions are the saver's, to be set as it likes."""

    by_worker: bool
    """Whether async calls have to run their sync twin on a worker."""

    def borrow(self) -> Any: ...
    def aborrow(self) -> Any: ...
    def distrust(self) -> None: ...
    async def adistrust(self) -> None: ...
    def forget(self) -> None: ...
    def stats(self) -> dict[str, Any]: ...
    def close(self) -> None: ...
    async def aclose(self) -> None: ...


def connections_from(
    source: Source,
    *,
    min_size: int,
    max_size: int,
    pool_timeout: float,
    connect_timeout: float,
    answer_timeout: float,
) -> Connections:
    """The connections for what a caller gave."""
    if not answer_timeout > 0:
        raise ConfigError(f"answer_timeout must be more than 0 seconds, not {answer_timeout!r}")
    if isinstance(source, str):
        if not 0 <= min_size <= max_size or max_size < 1:
            raise ConfigError(f"pool sizes must be 0 <= min_size <= max_size, not {min_size} and {max_size}")
        if not _is_clear(source):
            # Neither the text nor libpq's words about it, which can hold the password.
            raise ConfigError("the connection string cannot be read; %-encode special characters in it")
        kwargs = {
            "autocommit": True,
            "connect_timeout": max(1, round(connect_timeout)),
            "fallback_application_name": "langgraph-checkpoint-custom",
        }
        return OwnPools(source, kwargs, min_size, max_size, pool_timeout, answer_timeout)
    if isinstance(source, (ConnectionPool, AsyncConnectionPool)):
        return CallersPool(source)
    if isinstance(source, (Connection, AsyncConnection)):
        return CallersConnection(source)
    raise ConfigError(
        "PostgresSaver takes a connection string, a psycopg ConnectionPool or AsyncConnectionPool, or a psycopg "
        f"Connection or AsyncConnection, not a {type(source).__name__}"
    )


def _is_clear(conninfo: str) -> bool:
    """Whether a connection string can be read, and is not read as another one than was meant.

    To libpq the account of a URL ends at the first @ and the host at the first /. With one of those in the password,
    the rest of it would be a part of the host, port or database, and so of every error and log.
    """
    try:
        conninfo_to_dict(conninfo)
    except ProgrammingError:
        return False
    if not conninfo.startswith(("postgresql://", "postgres://")):
        return True
    account, at, rest = conninfo.partition("://")[2].partition("@")
    if not at:
        return True
    if "/" in account:
        return "?" in account  # The @ is that of an option.
    # A question mark may be in a password, but what looks like an option is one, and the account was left out.
    return not re.search(r"\?\w*=", account) and "@" not in rest.partition("?")[0]


def _check_ours(of_parent: bool) -> None:
    if of_parent:
        raise ConfigError(
            "this process was forked, and the connections that this saver was given are its parent's; make a saver "
            "with new ones after os.fork()"
        )


class CallersPool:
    """A caller's pool for one colour; for the other one, own pools with the same connection settings."""

    replaceable = True
    own = False
    by_worker = False

    def __init__(self, pool: SyncPool | LoopPool) -> None:
        self._pool = pool
        if not isinstance(pool.conninfo, str):
            raise ConfigError("a pool whose conninfo is a function cannot be used in both colours; give it as text")
        kwargs = {**(pool.kwargs if isinstance(pool.kwargs, dict) else {}), "autocommit": True}
        self._other = OwnPools(pool.conninfo, kwargs, 0, pool.max_size or 20, pool.timeout)
        self._of_parent = False

    def borrow(self) -> Any:
        """A connection for an OS thread."""
        _check_ours(self._of_parent)
        return self._pool.connection() if isinstance(self._pool, ConnectionPool) else self._other.borrow()

    def aborrow(self) -> Any:
        """A connection for the running loop."""
        _check_ours(self._of_parent)
        return self._pool.connection() if isinstance(self._pool, AsyncConnectionPool) else self._other.aborrow()

    def distrust(self) -> None:
        """Drop the idle connections that do not answer."""
        self._pool.check() if isinstance(self._pool, ConnectionPool) else self._other.distrust()

    async def adistrust(self) -> None:
        """Drop the idle connections that do not answer."""
        await (self._pool.check() if isinstance(self._pool, AsyncConnectionPool) else self._other.adistrust())

    def forget(self) -> None:
        """Leave the caller's pool to the parent of this process, which was forked."""
        self._of_parent = True
        self._other.forget()

    def stats(self) -> dict[str, Any]:
        """What psycopg_pool counts of the caller's pool, and of those beside it."""
        return {"given": self._pool.get_stats(), **self._other.stats()}

    def close(self) -> None:
        """Close what is not the caller's."""
        self._other.close()

    async def aclose(self) -> None:
        """Close what is not the caller's."""
        await self._other.aclose()


class CallersConnection:
    """A caller's one connection, used by one operation at a time; its transaction stays the caller's."""

    replaceable = False
    own = False

    def __init__(self, connection: SyncConnection | LoopConnection) -> None:
        self._connection = connection
        self._lock = threading.Lock()
        self._loop_lock = asyncio.Lock()
        self.by_worker = isinstance(connection, Connection)
        self._of_parent = False

    @contextmanager
    def borrow(self) -> Iterator[SyncConnection]:
        """The connection."""
        _check_ours(self._of_parent)
        if not isinstance(self._connection, Connection):
            raise ConfigError(
                "this saver has an AsyncConnection, which works in its event loop only; for sync calls give "
                "PostgresSaver a connection string or a pool"
            )
        with self._lock:
            yield self._connection

    @asynccontextmanager
    async def aborrow(self) -> AsyncIterator[LoopConnection]:
        """The connection."""
        _check_ours(self._of_parent)
        assert isinstance(self._connection, AsyncConnection)
        async with self._loop_lock:
            yield self._connection

    def forget(self) -> None:
        """Leave the connection to the parent of this process, which was forked."""
        self._of_parent = True

    def stats(self) -> dict[str, Any]:
        """There is nothing to count."""
        return {}

    def distrust(self) -> None:
        """There is no other connection."""

    async def adistrust(self) -> None:
        """There is no other connection."""

    def close(self) -> None:
        """The connection is the caller's."""

    async def aclose(self) -> None:
        """The connection is the caller's."""
