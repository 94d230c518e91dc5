"""The sessions of connections: what is found out and set once for each, and how a transaction begins in it.

A prepared statement exists in one server process. A pooler such as PgBouncer lends that process to others. So
statements are prepared only in sessions that are known to be direct: the server process that answers has the id that
was reported when the connection was made.

Must not know: operations' steps, where connections come from.
"""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, NamedTuple

from psycopg import AsyncConnection, AsyncCursor, Connection, Cursor, pq
from psycopg.rows import tuple_row

from langgraph_checkpoint_custom.drivers.either import entered, settled
from langgraph_checkpoint_custom.engine.operation import Access, Row, Statement
from langgraph_checkpoint_custom.errors import ConfigError

AnyConnection = Connection[Any] | AsyncConnection[Any]

# Seconds after which silence ends a connection or a transaction; docs/postgres.md says what that covers. Shorter than
# the usual minutes of load balancers, longer than a failing switch or a paused virtual machine.
SILENCE = 60
# libpq's parameters for that, unless the connection string has them: for a peer that does not acknowledge what was
# sent, and for one from which nothing comes while nothing is sent.
KERNEL = {
    "keepalives_idle": SILENCE // 2,
    "keepalives_interval": SILENCE // 6,
    "keepalives_count": 3,
    "tcp_user_timeout": SILENCE * 1000,
}

# Returns the id of the server process that answers. If it is the one that was reported when the connection was made,
# and the connection is ours, then no other client uses the session, and these settings are made in it:
# - plan_cache_mode: generic plans. Otherwise PostgreSQL plans the put statement each time, because it estimates ten
#   rows for each array and so considers the generic plan expensive. That took 440 of 700 µs.
#   Citus routes a statement by its parameters, which it does not know in a generic plan, so there the setting stays.
# - random_page_cost: index scans. In a generic plan PostgreSQL estimates that a range of ids is a 200th of a thread. By
#   default a random page costs four times as much as a sequential one, so reading and sorting the complete thread can
#   seem cheaper than following the index, and each page of a list would read the complete thread.
# - jit: off. PostgreSQL compiles statements that seem expensive because of estimated rows. Where it has LLVM, as in
#   Debian, a history of 200 steps took 70 ms instead of 3.
# - default_transaction_read_only: on for a saver that only reads.
# - default_transaction_isolation: read committed, so that each statement sees what was committed before it. At a higher
#   level, a statement that has waited for a lock sees the state before the wait.
# - tcp_…, idle_in_transaction_session_timeout: the server ends the session of a client that is gone, with its locks.
# - client_connection_check_interval: also during a statement. Only Linux is certain to have what this needs.
_INSPECT = f"""
SELECT pid, CASE WHEN pid = %(expected)s AND %(own)s THEN
    set_config('plan_cache_mode', CASE WHEN citus THEN 'auto' ELSE 'force_generic_plan' END, false)
    || set_config('random_page_cost', '1', false)
    || set_config('jit', 'off', false)
    || set_config('default_transaction_isolation', 'read committed', false)
    || set_config('tcp_keepalives_idle', '{SILENCE // 2}', false)
    || set_config('tcp_keepalives_interval', '{SILENCE // 6}', false)
    || set_config('tcp_keepalives_count', '3', false)
    || set_config('tcp_user_timeout', '{SILENCE}s', false)
    || set_config('idle_in_transaction_session_timeout', '{SILENCE}s', false)
    || CASE WHEN version() LIKE '%%linux%%'
        THEN set_config('client_connection_check_interval', '{SILENCE // 6}s', false) ELSE '' END
    || CASE WHEN %(read_only)s THEN set_config('default_transaction_read_only', 'on', false) ELSE '' END END,
    citus
FROM pg_backend_pid() AS pid
CROSS JOIN (SELECT EXISTS (SELECT FROM pg_catalog.pg_extension WHERE extname = 'citus')) AS e (citus)
"""

# Encodings of a database that store every text. SQL_ASCII, which is not really an encoding, stores the bytes that it
# gets. None: a pooler may not report the encoding.
_HOLDS_ALL_TEXT = ("UTF8", "SQL_ASCII", None)

# In a session that others use as well, only settings of the transaction may be changed.
_SETTINGS = [
    Statement("setting", sql, ())
    for sql in ("SET LOCAL jit = off", f"SET LOCAL idle_in_transaction_session_timeout = '{SILENCE}s'")
]


class Session(NamedTuple):
    """What is known about the session of a connection.

    Attributes:
        own: Whether it is ours alone, so that our settings were made in it.
        prepares: psycopg's argument `prepare` for the statements of a run: None prepares those that are sent often.
    """

    own: bool
    prepares: bool | None

    @property
    def prepares_others(self) -> bool | None:
        """The same for all other statements: with other settings, a generic plan may read a thread for a page of it."""
        return self.prepares if self.own else False


class Sessions:
    """The sessions of the connections that are open.

    Args:
        own: Whether the connections are ours.
        prepare: Whether to prepare statements; None finds out for each connection whether it is direct.
        read_only: Whether the database has to refuse everything that is not a read.
    """

    def __init__(self, *, own: bool, prepare: bool | None, read_only: bool) -> None:
        self.own = own
        self._prepare = prepare
        self._read_only = read_only
        self._known: weakref.WeakKeyDictionary[AnyConnection, Session] = weakref.WeakKeyDictionary()
        self.citus = False  # Whether a session has been seen whose database has Citus.
        self.get = self._known.get

    async def inspect(self, connection: AnyConnection) -> Session:
        """Find out about the session of a connection, and set it up if it is ours.

        Raises:
            ConfigError: The session would not return texts as they were stored.
        """
        info = connection.info
        question = {"expected": info.backend_pid, "own": self.own, "read_only": self._read_only}
        ((pid, _, citus),) = await execute(connection, _INSPECT, question)
        direct = pid == info.backend_pid
        own = direct and self.own
        stored = info.parameter_status("server_encoding")
        if stored not in _HOLDS_ALL_TEXT:
            raise ConfigError(
                f"the database {info.dbname!r} has the encoding {stored}, which cannot store every text; "
                "use one in UTF8: CREATE DATABASE … ENCODING 'UTF8' TEMPLATE template0"
            )
        spoken = info.parameter_status("client_encoding")
        if spoken not in ("UTF8", None):
            raise ConfigError(f"client_encoding is {spoken} in this session; connect with client_encoding=UTF8")
        prepares = direct if self._prepare is None else self._prepare
        self.citus = self.citus or citus
        found = self._known[connection] = Session(own, None if prepares else False)
        return found

    def opening(self, connection: AnyConnection, session: Session, access: Access) -> Sequence[Statement]:
        """Return the statements that begin a transaction in a session.

        A lock is taken by a statement of its own. At READ COMMITTED, the next statement sees what was committed while
        it waited.
        """
        level = "REPEATABLE READ" if access == "snapshot" else "READ COMMITTED"
        begin = "BEGIN" if connection.autocommit else "SET TRANSACTION"  # psycopg has begun it then.
        begin += f" ISOLATION LEVEL {level}"
        if access == "snapshot" or self._read_only:
            begin += ", READ ONLY"
        return [Statement("begin", begin, ()), *([] if session.own else _SETTINGS)]


def in_transaction(connection: AnyConnection) -> bool:
    """Whether the next statement becomes part of a transaction or pipeline that the caller ends."""
    return bool(connection.pgconn.pipeline_status) or not connection.autocommit or has_begun(connection)


def has_begun(connection: AnyConnection) -> bool:
    """Whether a transaction has begun on a connection."""
    return connection.pgconn.transaction_status != pq.TransactionStatus.IDLE


def cursor_of(connection: AnyConnection) -> Any:
    """Return a cursor of ours, whatever kind a caller's connection creates."""
    if isinstance(connection, Connection):
        return Cursor(connection, row_factory=tuple_row)
    return AsyncCursor(connection, row_factory=tuple_row)


# The bytes of a statement, which psycopg looks up by their hash; bytes remember theirs.
as_bytes = lru_cache(maxsize=1000)(str.encode)


async def execute(connection: AnyConnection, sql: str, params: Any = None, prepare: bool | None = False) -> list[Row]:
    """Execute a statement and return its rows."""
    cursor = cursor_of(connection)
    if connection.pgconn.pipeline_status:  # A caller's: an inner one waits for the reply.
        async with entered(connection.pipeline()):
            await settled(cursor.execute(as_bytes(sql), params, prepare=prepare, binary=True))
    else:
        await settled(cursor.execute(as_bytes(sql), params, prepare=prepare, binary=True))
    return [] if cursor.rownumber is None else await settled(cursor.fetchall())
