"""Searchable metadata keys: each has an index on its value in the plaintext metadata projection.

Must not know: connections. Of SQL, it only knows where a key stands in a statement.

The index has the canonical JSON of the value, `?` if the projection of a row does not have the value, and `null` if the
key is missing. So a search for the wanted value or `?` finds every row that may match; see `model/filter.py`. The key
is part of the text of a statement, because a database uses an expression index only for the same expression.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence
from hashlib import sha256

from langgraph_checkpoint_custom.errors import ConfigError
from langgraph_checkpoint_custom.model.filter import projected_keys

# The placeholder of a key in the statements: in the name of the index, in the name of the view, and in a literal.
_PLACEHOLDER = re.compile(r"\b(searchable_|searched_)key\b|searchable key")
_PLAIN = re.compile(r"[a-z][a-z0-9_]{0,39}")


def searchable_keys(keys: Sequence[str]) -> list[str]:
    """Return the keys that `setup` is called with, each once, as the projection spells them."""
    if isinstance(keys, str) or not isinstance(keys, Collection) or not all(isinstance(key, str) for key in keys):
        raise ConfigError(f"searchable must be a list of metadata keys, such as ['user'], not {keys!r}")
    return projected_keys(keys)


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
