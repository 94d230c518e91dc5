"""Golden stores as files: a SQLite database, and PostgreSQL's tables with their rows as SQL."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
from psycopg import sql
from psycopg.types.json import Jsonb

from tests.stores import Store

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
FILES = {"sqlite": "checkpoints.db", "postgres": "checkpoints.sql"}
TABLES = ("checkpoints", "blobs", "writes", "threads", "sweeps", "moves", "labels", "claims", "tenant_roles")


def versions() -> list[str]:
    """The versions of the package that a golden store was written by."""
    return sorted(path.name for path in HERE.iterdir() if (path / FILES["sqlite"]).exists())


def load(version: str, store: Store) -> None:
    """Load the golden store into an empty store."""
    file = HERE / version / FILES[store.kind]
    if store.kind == "sqlite":
        shutil.copyfile(file, store.url.removeprefix("sqlite:///"))
    else:
        with psycopg.connect(store.url) as connection:
            connection.execute(file.read_bytes())


def save(store: Store, file: Path) -> None:
    """Write a store to a file: on SQLite one file without a WAL, after all connections were closed."""
    if store.kind == "sqlite":
        shutil.copyfile(store.url.removeprefix("sqlite:///"), file)
        return
    with psycopg.connect(store.url, cursor_factory=psycopg.ClientCursor) as connection, file.open("w") as out:
        out.write((ROOT / "schema.sql").read_text("utf-8"))
        for table in TABLES:
            out.writelines(f"{statement};\n" for statement in inserts(connection, table))


def inserts(connection: psycopg.Connection[Any], table: str) -> Iterator[str]:
    """A statement for each row."""
    name = sql.Identifier("langgraph_checkpoint", table)
    cursor = connection.execute(sql.SQL("SELECT * FROM {} ORDER BY 1, 2").format(name))
    columns = [column.name for column in cursor.description or ()]
    for row in cursor.fetchall():
        cells = {
            column: Jsonb(cell) if isinstance(cell, dict) else cell for column, cell in zip(columns, row, strict=True)
        }
        insert = sql.SQL("INSERT INTO {} ({}) VALUES ({})").format(
            name, sql.SQL(", ").join(map(sql.Identifier, cells)), sql.SQL(", ").join(map(sql.Placeholder, cells))
        )
        yield psycopg.ClientCursor(connection).mogrify(insert, cells)
