"""The steps from an empty schema to the current one; the same numbers and names for both databases.

A released migration is never edited: what it made is in people's databases.
"""

from __future__ import annotations

import re
from functools import cache
from importlib.resources import files
from typing import NamedTuple


class Migration(NamedTuple):
    """One step; `number` counts from 1 without gaps."""

    number: int
    name: str
    statements: tuple[str, ...]


@cache
def load_migrations(database: str) -> tuple[Migration, ...]:
    """The migrations of "postgres" or "sqlite", in order."""
    found = []
    for file in sorted(files(__name__).joinpath(database).iterdir(), key=lambda file: file.name):
        if match := re.fullmatch(r"(\d{4})_(\w+)\.sql", file.name):
            statements = tuple(part.strip() for part in file.read_text("utf-8").split(";\n") if part.strip())
            found.append(Migration(int(match[1]), match[2], statements))
    return tuple(found)


@cache
def load_shipped(database: str) -> tuple[str, ...]:
    """What all migrations together make, a line for each thing, as the statement `catalog_lines` tells it."""
    return tuple(files(__name__).joinpath(database).joinpath("shipped.txt").read_text("utf-8").splitlines())
