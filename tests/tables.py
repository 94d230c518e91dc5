"""Empties the tables of a store by hand."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from urllib.parse import unquote

import psycopg
from psycopg import sql

from tests.stores import Store

TABLES = ("checkpoints", "blobs", "writes", "threads", "sweeps", "moves", "labels", "claims")


def empty_tables(store: Store) -> None:
    """Delete all rows."""
    if store.kind == "sqlite":
        with closing(sqlite3.connect(unquote(store.url.removeprefix("sqlite:///")))) as file, file:
            file.execute("PRAGMA synchronous = OFF")
            tables = file.execute("SELECT count(*) FROM sqlite_schema").fetchone()
            for table in TABLES if tables[0] else ():
                file.execute(f"DELETE FROM {table}")
    else:
        with psycopg.connect(store.url) as server:
            for table in TABLES:
                server.execute(sql.SQL("DELETE FROM langgraph_checkpoint.{}").format(sql.Identifier(table)))
