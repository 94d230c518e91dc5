"""Closes the tables of an official saver after their threads have moved, and opens them again.

A trigger on each table rejects inserts, updates and deletions, in words that name the new store. It also works on
connections that were open before. Reading goes on.
"""

from __future__ import annotations

import sqlite3
from contextlib import closing
from time import monotonic
from typing import Any
from urllib.parse import quote, unquote

from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer

from langgraph_checkpoint_custom.errors import StorageError
from langgraph_checkpoint_custom.tools.official import connect_to, open_official

NAME = "langgraph_checkpoint_custom_closed"
# Seconds to wait for a transaction of somebody else that has written to the tables: others wait behind this.
LOCK_SECONDS = 10
# Seconds to wait for each of PostgreSQL's tables. The official saver stores into them in this order and deletes in
# another one. So after that the locks are given up and tried again, before PostgreSQL takes it for a deadlock and ends
# a transaction (`deadlock_timeout`, one second).
TRY_SECONDS = 0.25
_POSTGRES = ("checkpoint_blobs", "checkpoints", "checkpoint_writes")
# SQLite has a trigger for each table and event.
_SQLITE = [(table, event) for table in ("checkpoints", "writes") for event in ("INSERT", "UPDATE", "DELETE")]


def close(url: str, store: str) -> str | None:
    """Let the official saver's tables reject all writes from now on; writes that have begun are finished before.

    Args:
        url: The database of the official saver; see `open_official`.
        store: What the error calls the place where the threads are now.

    Returns:
        Why the tables could not be closed; None if they are.

    Raises:
        ConfigError: As for `open_official`.
        SchemaForeign: There are other tables, which stay open.
    """
    words = (
        f"these checkpoint tables are closed, because the threads have moved to {store}; start the version of the "
        "application that uses it (lgckpt migrate --to official moves the threads back and opens these tables)"
    )
    try:
        with open_official(url, JsonPlusSerializer()):  # Our own tables have the same names in SQLite.
            pass
        _change_file(url, words) if url.startswith("sqlite:") else _change_server(url, words)
    except StorageError as error:
        return str(error)
    return None


def open_again(url: str) -> None:
    """Let the tables accept writes again; does nothing if they are not closed.

    Raises:
        ConfigError: The URL cannot be read.
        StorageError: They cannot be opened.
    """
    _change_file(url, None) if url.startswith("sqlite:") else _change_server(url, None)


def _change_file(url: str, words: str | None) -> None:
    """Remove the triggers of a SQLite file and, with words, create them."""
    path = unquote(url.removeprefix("sqlite:///"))
    raised = "" if words is None else words.replace("'", "''")
    try:
        file = sqlite3.connect(f"file:{quote(path)}?mode=rw", uri=True, isolation_level=None, timeout=LOCK_SECONDS)
        with closing(file), file:
            if words is None and not file.execute(_TRIGGERS_OF_FILE, [f"{NAME}%"]).fetchone():
                return
            file.execute("BEGIN IMMEDIATE")
            for table, event in _SQLITE:
                file.execute(f"DROP TRIGGER IF EXISTS {NAME}_{table}_{event}")
                if words is not None:
                    file.execute(
                        f"CREATE TRIGGER {NAME}_{table}_{event} BEFORE {event} ON {table} "
                        f"BEGIN SELECT RAISE(ABORT, '{raised}'); END"
                    )
    except sqlite3.Error as error:
        raise StorageError(f"{path}: {error}", operation="migrate") from error


_TRIGGERS_OF_FILE = "SELECT 1 FROM sqlite_schema WHERE type = 'trigger' AND name LIKE ?"


def _change_server(url: str, words: str | None) -> None:
    """Remove the triggers of PostgreSQL's tables and, with words, create them."""
    import psycopg
    from psycopg import sql

    try:
        with connect_to(url) as server:
            found = server.execute(_STATE_OF_SERVER, [NAME]).fetchall()
            schema, closed = found[0] if found else ("", False)
            function, name = sql.Identifier(schema, NAME), sql.Identifier(NAME)
            if words is None and not closed:
                return
            _lock(server, schema, closes=words is not None)
            if words is not None:
                body = sql.SQL(_BODY).format(words=sql.Literal(words)).as_string(server)
                server.execute(sql.SQL(_FUNCTION).format(function=function, body=sql.Literal(body)))
            for table in _POSTGRES:
                drop = sql.SQL("DROP TRIGGER IF EXISTS {} ON {}").format(name, sql.Identifier(schema, table))
                create = sql.SQL(_TRIGGER).format(name=name, table=sql.Identifier(schema, table), function=function)
                server.execute(drop if words is None else create)
            if words is None:
                server.execute(sql.SQL("DROP FUNCTION {}()").format(function))
    except psycopg.Error as error:
        raise StorageError(error.diag.message_primary or str(error).strip(), operation="migrate") from error


def _lock(server: Any, schema: str, *, closes: bool) -> None:
    """Lock PostgreSQL's tables until the end of the transaction, as a trigger that is created or removed needs it."""
    from psycopg import errors, sql

    tables = sql.SQL(", ").join(sql.Identifier(schema, table) for table in _POSTGRES)
    mode = sql.SQL("SHARE ROW EXCLUSIVE" if closes else "ACCESS EXCLUSIVE")
    lock = sql.SQL("LOCK TABLE {} IN {} MODE").format(tables, mode)
    server.execute(_LOCK_TIMEOUT, [f"{TRY_SECONDS}s"])
    end = monotonic() + LOCK_SECONDS
    while True:
        try:
            with server.transaction():
                server.execute(lock)
            break
        except errors.LockNotAvailable:
            if monotonic() > end:
                raise
    server.execute(_LOCK_TIMEOUT, [f"{LOCK_SECONDS}s"])  # The function may be locked, too.


_LOCK_TIMEOUT = "SELECT set_config('lock_timeout', %s, true)"
_STATE_OF_SERVER = """
    SELECT n.nspname, EXISTS (SELECT FROM pg_trigger WHERE tgrelid = c.oid AND tgname = %s)
    FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE c.oid = to_regclass('checkpoints')
"""
_BODY = "BEGIN RAISE EXCEPTION USING ERRCODE = 'object_not_in_prerequisite_state', MESSAGE = {words}; END"
_FUNCTION = "CREATE OR REPLACE FUNCTION {function}() RETURNS trigger LANGUAGE plpgsql AS {body}"
_TRIGGER = (
    "CREATE OR REPLACE TRIGGER {name} BEFORE INSERT OR UPDATE OR DELETE ON {table} "
    "FOR EACH STATEMENT EXECUTE FUNCTION {function}()"
)
