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

Names that cannot be parameters are filled in: the schema by `postgres_dialect.py`, and the key of a searchable metadata
key's index at the end of this file.

Must not know: what the statements do.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import cache
from hashlib import sha256
from importlib.resources import files
from types import MappingProxyType

from langgraph_checkpoint_custom.errors import ConfigError
from langgraph_checkpoint_custom.model.filter import projected

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


# Searchable metadata keys: each has an index on its value in the plaintext metadata projection
#
# The index has the canonical JSON of the value, `?` if the projection of a row does not have the value, and `null` if
# the key is missing. So a search for the wanted value or `?` finds every row that may match; see `model/filter.py`. The
# key is part of the text of a statement, because a database uses an expression index only for the same expression.

# The placeholder of a key in the statements: in the name of the index, in the name of the view, and in a literal.
_PLACEHOLDER = re.compile(r"\b(searchable_|searched_)key\b|searchable key")
_PLAIN = re.compile(r"[a-z][a-z0-9_]{0,39}")


def searchable_keys(keys: Sequence[str]) -> list[str]:
    """Return the keys that `setup` is called with, each once, as the projection spells them."""
    if isinstance(keys, str) or not isinstance(keys, Collection) or not all(isinstance(key, str) for key in keys):
        raise ConfigError(f"searchable must be a list of metadata keys, such as ['user'], not {keys!r}")
    return list(dict.fromkeys(map(projected, keys)))


def index_of(key: str) -> str:
    """Return the name of a key's index: at most 63 bytes, and unique even if upper and lower case are the same."""
    return f"searchable_{_ending(key)}"


def with_key(sql: str, key: str, literal: str) -> str:
    """Return a statement for a key; `literal` is the key as it is written in the statement's literals."""
    return _PLACEHOLDER.sub(lambda match: f"{match[1]}{_ending(key)}" if match[1] else literal, sql)


def _ending(key: str) -> str:
    # The underscore keeps a digest apart from plain keys, which begin with a letter.
    return key if _PLAIN.fullmatch(key) else f"_{sha256(key.encode()).hexdigest()[:32]}"


def first_searchable(keys: Iterable[str], there: Sequence[Sequence[object]]) -> str | None:
    """Return the first of these keys with an index that this role can use; `there` is the reply about the indexes."""
    usable = {name for name, is_usable in there if is_usable}
    return next((key for key in keys if index_of(key) in usable), None)
