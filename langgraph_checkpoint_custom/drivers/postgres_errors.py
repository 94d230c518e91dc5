"""Which errors PostgreSQL and psycopg's pool raised, what to do about them, and how long to wait before a retry.

A message has the server's words, but no SQL and no password.

Must not know: the operation that failed, apart from its name; the clock.
"""

from __future__ import annotations

import dataclasses
import json
import random
from collections.abc import Iterator, Sequence
from typing import Any

import psycopg
from psycopg import AsyncConnection, Connection
from psycopg_pool import PoolClosed, PoolTimeout

from langgraph_checkpoint_custom.engine.operation import Statement
from langgraph_checkpoint_custom.errors import (
    CheckpointError,
    ClosedError,
    ConnectionLost,
    Contention,
    NameTooLong,
    SchemaMissing,
    StorageError,
    no_list_of_names,
)
from langgraph_checkpoint_custom.model.keys import TENANT_MARK

# https://www.postgresql.org/docs/current/errcodes-appendix.html
_LOST = ("08", "57P01", "57P02", "57P03", "53300")
# How Citus reports that it has lost one of the other servers, in part as an internal error. Its planner's errors are
# others.
_LOST_BY_CITUS = ("XX000", "58030", "58000")
# The function of Citus that refuses, also as an internal error, what only the coordinator does.
_ONLY_ON_COORDINATOR = "EnsureCoordinator"
_CONTENTION = ("40001", "40P01", "55P03")
# A table, column or schema that a statement names does not exist.
_OTHER_TABLES = ("42P01", "42703", "3F000")
# A text is not JSON, or it is JSON but not a list.
_NO_JSON_LIST = ("22P02", "22023")
# A limit of the server is exceeded; and the functions that refuse a row because its entry in an index is too large.
_LIMIT = "54000"
_INDEXING = ("_bt_check_third_page", "index_form_tuple")
# Where the channels of blobs are among the parameters of a form.
_CHANNELS = {"insert_checkpoint_with_blobs": 7}
_SHOWN = 60  # Characters of a name in a message.
_WAY_OUT = {
    "25006": "the server is read-only; give the address of the primary",
    "42501": "this role lacks a privilege; see the roles in the documentation",
    "53100": "the server's disk is full; nothing of this operation was stored",
    "57014": "the server cancelled the statement (statement_timeout, perhaps)",
}


@dataclasses.dataclass(frozen=True)
class RetryPolicy:
    """Exponential back-off with jitter.

    Attributes:
        attempts: Maximum number of attempts, including the first one. The pauses between eight add up to three
            to five seconds; a small PostgreSQL server restarts in two to four.
        seconds: No attempt starts later after the beginning of the call, except the second one: the first one may have
            waited longer than this for a server that does not answer.
    """

    attempts: int = 8
    seconds: float = 30.0

    def pause(self, failed: int, elapsed: float) -> float | None:
        """Return the seconds to wait after `failed` attempts that took `elapsed` seconds, or None to give up."""
        if failed >= self.attempts or (failed > 1 and elapsed >= self.seconds):
            return None
        longest: float = min(0.05 * 2 ** (failed - 1), 2.0)
        return longest * (0.5 + random.random() / 2)


def pool_error(error: PoolClosed | PoolTimeout, operation: str, statement: str | None, *, own: bool) -> CheckpointError:
    """Return the error of this package for a pool that gives no connection; `own` is whether it is the saver's pool."""
    if isinstance(error, PoolClosed):
        if "not open" in str(error):
            return ClosedError(f"{operation}: your pool is not open yet; open it before its first use")
        return ClosedError("the connection pool was closed; open a new saver")
    said = f"{operation}: every connection of the pool was busy ({error}); raise max_size or pool_timeout"
    if not own:
        said = f"{operation}: your pool gave no connection ({error}): all are busy, or it cannot connect; see its log"
    return StorageError(said, operation=operation, statement=statement)


def server_error(
    error: psycopg.Error,
    operation: str,
    statements: Sequence[Statement],
    connection: Connection[Any] | AsyncConnection[Any] | None,
    *,
    citus: bool,
) -> CheckpointError:
    """Return the error of this package for one of psycopg.

    Args:
        error: The error. The password is removed from it.
        operation: The name of the operation.
        statements: Its statements, as far as known.
        connection: The connection, or None if there was none yet.
        citus: Whether the database has Citus.
    """
    wants_password = error.pgconn is not None and error.pgconn.needs_password
    _forget_password(error)
    state = error.sqlstate
    words = error.diag.message_primary or str(error).strip() or type(error).__name__
    statement = statements[0].name if len(statements) == 1 else None
    details: dict[str, Any] = {"operation": operation, "statement": statement, "sqlstate": state}
    if wants_password:  # libpq has no other sign of a refused login than words, which are translated.
        return StorageError(f"{operation}: the server asks for a password, and none was given: {words}", **details)
    broken = connection is not None and connection.closed
    refused = error.diag.source_function == _ONLY_ON_COORDINATOR
    what = None
    if broken or (state or "").startswith(_LOST) or (state is None and isinstance(error, psycopg.OperationalError)):
        what = "no connection to PostgreSQL" if connection is None else "the connection to PostgreSQL was lost"
    elif citus and (state or "").startswith(_LOST_BY_CITUS) and not refused:
        what = "Citus reports an internal error, as it does if it loses a server"
    if what is not None:
        lost = ConnectionLost(f"{operation}: {what}: {words}", **details)
        lost.unanswered = connection is not None
        return lost
    if state in _CONTENTION:
        return Contention(f"{operation}: conflict with other transactions: {words}", **details)
    if state in _OTHER_TABLES:
        return SchemaMissing(f"{operation}: {words}; the tables were changed or dropped: run setup()")
    # What another server of a cluster reports comes without the place in the source.
    if state == _LIMIT and ((error.diag.source_function or "").startswith(_INDEXING) or citus):
        names = ", ".join(_names(statements)) or "a thread id, a namespace and a channel"
        return NameTooLong(
            f"{operation}: PostgreSQL cannot have names of this length in an index: {names} ({words}); nothing was "
            "stored. Give the nodes shorter names, or use SQLite, which has no such limit"
        )
    if state in _NO_JSON_LIST and (error.diag.source_file == "jsonfuncs.c" or citus):
        return no_list_of_names(operation)
    way_out = f" ({_WAY_OUT[state]})" if state in _WAY_OUT else ""
    if refused:
        way_out = " (connect to the coordinator of the cluster)"
    return StorageError(f"{operation}: PostgreSQL refused: {words}{way_out}", **details)


def _names(statements: Sequence[Statement]) -> Iterator[str]:
    """Yield the thread, the namespace and the channel in the parameters of statements, the longest one of each."""
    found: dict[str, list[str]] = {"thread_id": [], "checkpoint_ns": [], "channel": []}
    for statement in statements:
        params: Any = statement.params
        if isinstance(params, tuple):  # Of a form: the thread first, then the namespace.
            channels = params[_CHANNELS[statement.name]] if statement.name in _CHANNELS else "{}"
            params = {**dict(zip(found, params[:2], strict=False)), "channels": channels}
        for what, names in found.items():
            names += [params[what]] if params.get(what) else []
        # The text of an array, which has the texts in it as JSON has them.
        found["channel"] += json.loads(f"[{params.get('channels', '{}')[1:-1]}]", strict=False)
    for what, names in found.items():
        if name := max(names, key=len, default=""):
            if what == "thread_id" and name.startswith(TENANT_MARK):
                name = name.split(TENANT_MARK, 2)[2]
            yield (
                f"{what} {name!r}"
                if len(name) <= _SHOWN
                else f"{what} {name[:_SHOWN]!r}… ({len(name.encode()):,} bytes)"
            )


def _forget_password(error: psycopg.Error) -> None:
    """Remove the password from the connection data in psycopg's error, which becomes the cause of our error."""
    failed: Any = error.pgconn
    if dataclasses.is_dataclass(failed):  # Otherwise it is libpq's object, which nobody reads by accident.
        for name, nothing in (("password", b""), ("info", [])):
            if hasattr(failed, name):
                setattr(failed, name, nothing)
