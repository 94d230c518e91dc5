"""Metadata keys that threads are found by: an index for each, over what the projection shows of it.

Must not know: connections, and of SQL only where a key stands in it.

The index has the canonical JSON of the value, `?` where a row does not show it, and `null` where the key is missing. So
what is wanted, or `?`, leaves out no row that could match; see `filter`. A key is a part of the text of the statements,
since a database uses such an index only for the expression that it was made with.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from hashlib import sha256

from langgraph_checkpoint_custom.errors import ConfigError
from langgraph_checkpoint_custom.model.filter import plaintext_keys

# What stands for a key in the statements: in the name of its index, in that of its view, and in a literal.
_PLACE = re.compile(r"\b(searchable_|searched_)key\b|searchable key")
_PLAIN = re.compile(r"[a-z][a-z0-9_]{0,39}")


def searchable_keys(keys: Sequence[str]) -> list[str]:
    """The keys that a setup is asked for, each once, as the projection has them."""
    if isinstance(keys, str) or not isinstance(keys, Collection) or not all(isinstance(key, str) for key in keys):
        raise ConfigError(f"searchable is a list of metadata keys, such as ['user'], not {keys!r}")
    return plaintext_keys(keys)


def index_of(key: str) -> str:
    """The name of a key's index, of at most 63 bytes; no other key has it, whether or not letters' case counts."""
    return f"searchable_{_ending(key)}"


def about(sql: str, key: str, literal: str) -> str:
    """A statement for a key, which stands in its literals in the way that the database reads it."""
    return _PLACE.sub(lambda location: f"{location[1]}{_ending(key)}" if location[1] else literal, sql)


def _ending(key: str) -> str:
    if _PLAIN.fullmatch(key):
        return key
    # A plain key begins with a letter.
    readable = re.sub(r"[^a-z0-9]+", "_", key.lower())[:24].strip("_")
    return f"_{readable}_{sha256(key.encode()).hexdigest()[:16]}"


def first_searchable(filter: Mapping[str, str], there: Sequence[Sequence[object]]) -> str | None:
    """The first key of a filter that has an index which this role can use, by the reply about them."""
    usable = {name for name, valid, readable in there if valid and readable}
    return next((key for key in filter if index_of(key) in usable), None)
