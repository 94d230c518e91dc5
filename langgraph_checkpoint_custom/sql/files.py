"""The `.sql` files: named statements, and fragments that several statements include.

    -- fragment: newest
    SELECT checkpoint_id FROM langgraph_checkpoint.checkpoints WHERE thread_id = %(thread_id)s

    -- name: select_newest_id
    -- include: newest
    ORDER BY checkpoint_id DESC LIMIT 1

An `include` line stands for the text of the fragment. A fragment may include other ones; it is never sent alone. The
line after `-- repeat` is a row of VALUES, which `with_rows` repeats for each row that a call inserts. Nothing else
composes statements.

What both databases have stands once, in `common/`, as PostgreSQL writes it; SQLite gets it in its own words. What
differs stands in `postgres/` and `sqlite/`. So a statement may stand in `common/` and include a fragment that differs.
The files in `citus/` change those of PostgreSQL for tables that are distributed over several servers: a block there
replaces the block of the same name, or adds one.

Names that cannot be parameters are filled in by `postgres_dialect.py` (the schema) and by `searchable.py` (the key of
an index).

Must not know: what the statements do.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from functools import cache
from importlib.resources import files
from types import MappingProxyType

DEFAULT_SCHEMA = "langgraph_checkpoint"

_HEAD = re.compile(r"^-- (name|fragment): (\w+)$", re.MULTILINE)
_INCLUDE = re.compile(r"^ *-- include: (\w+)$", re.MULTILINE)
_REPEATED = re.compile(r"^-- repeat\n(.*)$", re.MULTILINE)
_PARAMETER = re.compile(r"%\((\w+)\)[sb]|%[sb]")


def read_files(folder: str) -> Mapping[str, str]:
    """Return the text of each file of a folder, by name."""
    paths = files("langgraph_checkpoint_custom.sql").joinpath(folder).iterdir()
    return {path.name: path.read_text("utf-8") for path in sorted(paths, key=lambda path: path.name)}


@cache
def load_statements(database: str, changed_by: str | None = None) -> Mapping[str, str]:
    """Return the statements of a database by name, with the fragments that they include, without comments and margins.

    So they are short: psycopg remembers how it has read a text of up to 4,096 bytes, and reads a longer one each time.

    Those of `changed_by` replace blocks of the database's.
    """
    common = read_files("common").values()
    texts = [*(map(in_sqlite, common) if database == "sqlite" else common), *read_files(database).values()]
    return MappingProxyType(compose(texts, read_files(changed_by).values() if changed_by else ()))


def in_sqlite(text: str) -> str:
    """Return SQL in the words of SQLite: its parameters, and tables without a schema."""
    text = _PARAMETER.sub(lambda found: f":{found[1]}" if found[1] else "?", text)
    return text.replace(f"{DEFAULT_SCHEMA}.", "").replace("%%", "%")


def compose(texts: Iterable[str], changes: Iterable[str] = ()) -> dict[str, str]:
    """Return the statements in the texts of files, by name; a block of `changes` replaces one of the same name."""
    blocks = _blocks(texts) | _blocks(changes)
    bodies = {name: body for name, (_, body) in blocks.items()}
    statements = [name for name, (kind, _) in blocks.items() if kind == "name"]
    fragments = blocks.keys() - set(statements)

    def composed(name: str, through: tuple[str, ...] = ()) -> str:
        through = *through, name
        if name in through[:-1]:
            raise ValueError(f"fragments include each other in a circle: {' -> '.join(through)}")

        def included(match: re.Match[str]) -> str:
            if match[1] not in fragments:
                raise ValueError(
                    f"{name!r} includes {match[1]!r}, but the .sql files have no line '-- fragment: {match[1]}'"
                )
            return composed(match[1], through)

        return _without_comments(_INCLUDE.sub(included, bodies[name]))

    return {name: composed(name) for name in statements}


def _blocks(texts: Iterable[str]) -> dict[str, tuple[str, str]]:
    """Return the kind and the text of each block, by name."""
    blocks: dict[str, tuple[str, str]] = {}
    for text in texts:
        _, *found = _HEAD.split(text)
        for kind, name, body in zip(found[::3], found[1::3], found[2::3], strict=True):
            if name in blocks:
                raise ValueError(f"two blocks of the .sql files are named {name!r}; rename one of them")
            blocks[name] = kind, body
    return blocks


def with_rows(statement: str, count: int) -> str:
    """Return a statement with `count` rows of VALUES."""
    before, row, after = _REPEATED.split(statement)
    return before + ",\n".join([row] * count) + after


def _without_comments(text: str) -> str:
    lines = filter(None, map(str.strip, text.splitlines()))
    return "\n".join(line for line in lines if not line.startswith("--") or line == "-- repeat")
