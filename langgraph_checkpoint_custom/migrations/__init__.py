"""The migrations, from an empty schema to the current tables. Both databases have the same numbers and names.

Never edit a released migration: databases in use have its tables.
"""

from __future__ import annotations

import re
from functools import cache
from importlib.resources import files
from typing import NamedTuple


class Migration(NamedTuple):
    """A migration; `number` counts from 1 without gaps."""

    number: int
    name: str
    statements: tuple[str, ...]


@cache
def load_migrations(database: str) -> tuple[Migration, ...]:
    """Return the migrations of "postgres" or "sqlite", in order."""
    found = []
    for file in sorted(files(__name__).joinpath(database).iterdir(), key=lambda file: file.name):
        if match := re.fullmatch(r"(\d{4})_(\w+)\.sql", file.name):
            statements = tuple(part.strip() for part in file.read_text("utf-8").split(";\n") if part.strip())
            found.append(Migration(int(match[1]), match[2], statements))
    return tuple(found)


@cache
def load_shipped(database: str) -> tuple[str, ...]:
    """Return the catalog that all migrations create: one line for each object, as `catalog_lines` returns it."""
    return tuple(files(__name__).joinpath(database).joinpath("shipped.txt").read_text("utf-8").splitlines())
