"""The migrations, from an empty schema to the current tables. Both databases have the same numbers and names.

Never edit a released migration: databases in use have its tables.
"""

from __future__ import annotations

import re
from functools import cache
from importlib.resources import files
from typing import NamedTuple


class Migration(NamedTuple):
    """A migration.

    Attributes:
        number: Counts from 1 without gaps; that of the last migration that was applied is the version of the tables.
        name: The name in the file's name.
        oldest: The tables can still be used by a package whose last migration is this one, or a later one. The first
            line of the file says it.
        statements: The SQL.
    """

    number: int
    name: str
    oldest: int
    statements: tuple[str, ...]


@cache
def load_migrations(database: str) -> tuple[Migration, ...]:
    """Return the migrations of "postgres" or "sqlite", in order."""
    found = []
    for file in sorted(files(__name__).joinpath(database).iterdir(), key=lambda file: file.name):
        if match := re.fullmatch(r"(\d{4})_(\w+)\.sql", file.name):
            head, _, text = file.read_text("utf-8").partition("\n")
            oldest = int(head.removeprefix("-- oldest: "))
            statements = tuple(part.strip() for part in text.split(";\n") if part.strip())
            found.append(Migration(int(match[1]), match[2], oldest, statements))
    return tuple(found)


@cache
def load_shipped(database: str) -> tuple[str, ...]:
    """Return the catalog that all migrations create: one line for each object, as `catalog_lines` returns it."""
    return tuple(files(__name__).joinpath(database).joinpath("shipped.txt").read_text("utf-8").splitlines())
