"""The sessions of connections: what is read and set when one is first used, and how a transaction begins in it.

Must not know: operations' steps, where connections come from, how statements are sent.
"""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from typing import Any

from psycopg import AsyncConnection, Connection, pq

from langgraph_checkpoint_custom.drivers.postgres_prepared import HOT, MANY, Process, Session
from langgraph_checkpoint_custom.engine.operation import Access, Row, Statement
from langgraph_checkpoint_custom.errors import ConfigError

AnyConnection = Connection[Any] | AsyncConnection[Any]

# Returns the id of the server process that answers. If it is the one that was reported when the connection was made,
# and the connection is ours, then no other client uses the session, and these settings are made in it:
# - plan_cache_mode: generic plans. Otherwise PostgreSQL plans the put statement each time, because it estimates ten
#   rows for each array and so considers the generic plan expensive. That took 440 of 700 µs.
#   Citus routes a statement by its parameters, which it does not know in a generic plan, so there the setting stays.
# - random_page_cost: index scans. In a generic plan PostgreSQL estimates that a range of ids is a 200th of a thread. By
#   default a random page costs four times as much as a sequential one, so reading and sorting the complete thread can
#   seem cheaper than following the index, and each page of a list would read the complete thread.
# - jit: off. PostgreSQL compiles statements that seem expensive because of estimated rows. Where it has LLVM, as in
#   Debian, a history of 200 steps took 70 ms instead of 3, and 1.5 s with partitions.
# - array_nulls: on, so that NULL in the text of an array means NULL.
# - default_transaction_read_only: on for a saver that only reads, see `_BEGIN_READ_ONLY` for other sessions.
# - default_transaction_isolation: read committed, so that each statement sees what was committed before it. At a higher
#   level, a statement that has waited for a lock sees the state before the wait.
INSPECT = """
SELECT pid, CASE WHEN pid = %(expected)s AND %(own)s THEN
    set_config('plan_cache_mode', CASE WHEN citus THEN 'auto' ELSE 'force_generic_plan' END, false)
    || set_config('random_page_cost', '1', false)
    || set_config('jit', 'off', false)
    || set_config('array_nulls', 'on', false)
    || set_config('default_transaction_isolation', 'read committed', false)
    || CASE WHEN %(read_only)s THEN set_config('default_transaction_read_only', 'on', false) ELSE '' END END,
    current_setting('array_nulls'),
    (SELECT (extract(epoch FROM backend_start) * 1000000)::bigint FROM pg_stat_get_activity(pid)),
    citus
FROM pg_backend_pid() AS pid
CROSS JOIN (SELECT EXISTS (SELECT FROM pg_catalog.pg_extension WHERE extname = 'citus')) AS e (citus)
"""

# Ends the server process of a session that was given up. A different process may have the same pid by now, or on
# another server; it did not start in the same microsecond. This calls the function instead of its view
# pg_stat_activity, because some servers do not let their users read the view. Citus has a function of this name, too,
# for its own ids.
TERMINATE = """
SELECT pg_terminate_backend(%(pid)s::integer) FROM pg_stat_get_activity(%(pid)s)
WHERE (extract(epoch FROM backend_start) * 1000000)::bigint = %(began)s
"""

# Encodings of a database that store every text. SQL_ASCII, which is not really an encoding, stores the bytes that it
# gets. None: a pooler may not report the encoding.
_HOLDS_ALL_TEXT = ("UTF8", "SQL_ASCII", None)

# In a session that others use as well, only settings of the transaction may be changed.
_BEGIN = "BEGIN ISOLATION LEVEL READ COMMITTED"
_BEGIN_READ_ONLY = f"{_BEGIN}, READ ONLY"
_COMMITTED = "SET TRANSACTION ISOLATION LEVEL READ COMMITTED"
_NO_COMPILER = "SET LOCAL jit = off"
_SNAPSHOT = "SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY"

# Statements for which PostgreSQL would compile nothing, so they need no transaction to turn the compiler off.
_NEVER_COMPILED = (HOT | MANY) - {"select_delta_history", "delete_all_but_newest"}


class Sessions:
    """What is known about the session of each connection that is open.

    Args:
        own: Whether the connections are ours.
        prepare: Whether to prepare statements; None finds out for each connection whether it is direct.
        read_only: Whether the database has to refuse everything that is not a read.

    Attributes:
        given_up: Server processes to be ended: they may not have read yet what they were sent.
    """

    def __init__(self, *, own: bool, prepare: bool | None, read_only: bool) -> None:
        self._own = own
        self._prepare = prepare
        self._read_only = read_only
        self._known: weakref.WeakKeyDictionary[AnyConnection, Session] = weakref.WeakKeyDictionary()
        self.given_up: set[Process] = set()

    def has(self, connection: AnyConnection) -> bool:
        """Whether the session of a connection is known; otherwise `INSPECT` has to be sent first."""
        return connection in self._known

    def of(self, connection: AnyConnection) -> Session:
        """Return the session of a connection."""
        return self._known[connection]

    def expected(self, connection: AnyConnection) -> dict[str, Any]:
        """Return the parameters of `INSPECT`."""
        return {"expected": connection.info.backend_pid, "own": self._own, "read_only": self._read_only}

    def note(self, connection: AnyConnection, answer: Row | None) -> None:
        """Remember what `INSPECT` has found out about the session of a connection.

        A session is direct if the server process that answers is the one that was reported when the connection was
        made.

        Raises:
            ConfigError: The session would not return texts or lists as they were stored.
        """
        assert answer is not None
        pid, _, array_nulls, began, citus = answer
        direct = pid == connection.info.backend_pid
        own = direct and self._own
        stored = connection.info.parameter_status("server_encoding")
        if stored not in _HOLDS_ALL_TEXT:
            raise ConfigError(
                f"the database {connection.info.dbname!r} has the encoding {stored}, which cannot store every text; "
                "use one in UTF8: CREATE DATABASE … ENCODING 'UTF8' TEMPLATE template0"
            )
        spoken = connection.info.parameter_status("client_encoding")
        if spoken not in ("UTF8", None):
            raise ConfigError(f"client_encoding is {spoken} in this session; connect with client_encoding=UTF8")
        if not own and array_nulls != "on":
            raise ConfigError("array_nulls is off in this session; ALTER ROLE … SET array_nulls = on, and reconnect")
        prepares = direct if self._prepare is None else self._prepare
        process = Process(pid, began) if own and began is not None else None
        self._known[connection] = Session(connection, prepares=prepares, own=own, process=process, citus=citus)

    def note_given_up(self, connection: AnyConnection) -> None:
        """Mark the server process of a session to be ended if its connection was closed during a call."""
        session = self._known.get(connection)
        if session is not None and session.process is not None and connection.closed:
            self.given_up.add(session.process)

    def settings(self, access: Access, connection: AnyConnection) -> Sequence[str]:
        """Return the statements that set up the transaction of an operation; none in a caller's transaction."""
        if in_transaction(connection) or access == "migrate":
            return ()
        level = _SNAPSHOT if access == "snapshot" else _COMMITTED
        return [level] if self._known[connection].own else [level, _NO_COMPILER]

    def settings_of_parts(self, session: Session, atomic: bool) -> Sequence[str]:
        """Return the statements that set up the transaction of a round trip with several parts."""
        if session.own or not atomic:
            return ()
        return [f"{_COMMITTED}, READ ONLY" if self._read_only else _COMMITTED, _NO_COMPILER]

    def opening(self, statements: Sequence[Statement], session: Session) -> Sequence[str]:
        """Return what to send before the statements of a round trip; nothing for one that needs no transaction."""
        if self._read_only and not session.own:
            return (_BEGIN_READ_ONLY, _NO_COMPILER)
        if not session.own and not _NEVER_COMPILED.issuperset(statement.name for statement in statements):
            return (_BEGIN, _NO_COMPILER)
        return (_BEGIN,) if len(statements) > 1 else ()


def in_transaction(connection: AnyConnection) -> bool:
    """Whether the next statement becomes part of a transaction or pipeline that the caller ends."""
    if connection.pgconn.pipeline_status:
        return True
    return not connection.autocommit or connection.pgconn.transaction_status != pq.TransactionStatus.IDLE
