"""Metadata filters: what is kept beside the metadata for them, and when a checkpoint matches.

Must not know: SQL, serializers.

A key matches when the stored value equals the given one as JSON, and None also matches a missing key. On PostgreSQL
(`SqlDialect.filter_contains`) a dict or list matches what contains it, as with LangGraph's saver there: a dict one that
has its keys with values that match, a list one in which each of its items is matched by some item. `matches` decides,
on the metadata as it was stored. The database only narrows the search with a
projection, one short canonical JSON text a metadata key, and it must never leave out a row that matches. So the
projection says where it does not know: a key whose value is not JSON or long maps to null, and the key `*` says that
there may be keys that it does not show (an encrypting serializer must not leak them).
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping
from json.encoder import encode_basestring_ascii
from typing import Any
from urllib.parse import quote

from langgraph_checkpoint_custom.errors import ConfigError

# Characters of canonical JSON. Longer values are compared by `matches` alone: nobody searches for an essay, and a row
# should not hold it twice.
LONGEST = 200
MORE = "*"
# How the text of a dict or list begins.
_NESTED = ("{", "[")
# json.dumps makes an encoder with each call that asks for more than its defaults, which takes longer than to encode.
_CANONICAL = json.JSONEncoder(sort_keys=True, separators=(",", ":"), allow_nan=False).encode
_PLAIN = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-.: /")


def canonical(value: Any) -> str | None:
    """The one JSON text of a value, or None if it is not JSON: equal values have equal texts."""
    kind = type(value)
    if kind is str:
        return encode_basestring_ascii(value)
    if kind is dict and not value:
        return "{}"
    try:
        if kind is int:
            return str(value)
        return _CANONICAL(_plain(value))
    except (TypeError, ValueError, RecursionError):
        return None


def _plain(value: Any) -> Any:
    if isinstance(value, float) and value.is_integer():
        return int(value)  # JSON has one kind of number: 1.0 is 1.
    if isinstance(value, Mapping):
        if not all(isinstance(key, str) for key in value):
            raise TypeError("JSON has only text as keys")
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    return value


def _shown(key: str) -> str:
    """A key as the projection has it: text that needs no escape in JSON, so that every database reads it alike."""
    return key if _PLAIN.issuperset(key) else quote(key, safe="", errors="surrogatepass")


def project(metadata: Mapping[str, Any], only: Collection[str] | None) -> str:
    """The projection of metadata as a JSON text; of the keys in `only` if that is given."""
    shown: dict[str, str | None] = {}
    for key, value in metadata.items():
        if isinstance(key, str) and (only is None or key in only):
            text = encode_basestring_ascii(value) if type(value) is str else canonical(value)
            # Half a character, which a serializer may change, cannot be told from a whole one here.
            known = text is not None and len(text) <= LONGEST and "\\ud" not in text
            shown[key if _PLAIN.issuperset(key) else _shown(key)] = text if known else None
    if only is not None:
        shown[MORE] = None
    pairs = [
        f'"{key}":null' if text is None else f'"{key}":{encode_basestring_ascii(text)}' for key, text in shown.items()
    ]
    return f"{{{','.join(pairs)}}}"


def hide(shown: Mapping[str, str | None], only: Collection[str]) -> dict[str, str | None]:
    """What is left of a projection if only the keys in `only` may be shown."""
    names = set(map(_shown, only))
    return {key: value for key, value in shown.items() if key in names} | {MORE: None}


def wanted(filter: Mapping[str, Any] | None) -> dict[str, str]:
    """The canonical texts of a filter's values, by key."""
    if filter is not None and not isinstance(filter, Mapping):
        raise ConfigError(f"a filter is a dict of metadata keys and values, not {filter!r}")
    texts: dict[str, str] = {}
    for key, value in (filter or {}).items():
        if not isinstance(key, str):
            raise ConfigError(f"a filter key must be text, not {type(key).__name__}")
        text = canonical(value)
        if text is None:
            raise ConfigError(f"the filter value of {key!r} is not JSON, so no stored value can equal it")
        texts[key] = text
    return texts


def plaintext_keys(keys: Iterable[str]) -> list[str]:
    """Keys as the projection has them, each once."""
    return list(dict.fromkeys(map(_shown, keys)))


def narrowing(texts: Mapping[str, str], *, contains: bool) -> dict[str, str]:
    """What a database compares the projection with, by an index or not.

    A key with a dot is left to `matches`: it may be inside the value of another one. So is a dict or list that others
    may contain.
    """
    return {
        _shown(key): text for key, text in texts.items() if not ("." in key or (contains and text.startswith(_NESTED)))
    }


def matches(metadata: Mapping[str, Any], texts: Mapping[str, str], *, contains: bool) -> bool:
    """Whether stored metadata matches a filter."""
    return all(
        _contains(_value_of(metadata, key), json.loads(text))
        if contains and text.startswith(_NESTED)
        else canonical(_value_of(metadata, key)) == text
        for key, text in texts.items()
    )


def _contains(stored: Any, given: Any) -> bool:
    """Whether a stored value contains one of a filter, as PostgreSQL's operator `@>` means it."""
    if isinstance(given, dict):
        return isinstance(stored, Mapping) and all(
            key in stored and _contains(stored[key], value) for key, value in given.items()
        )
    if isinstance(given, list):
        return isinstance(stored, (list, tuple)) and all(
            any(_contains(each, item) for each in stored) for item in given
        )
    return canonical(stored) == canonical(given)


def _value_of(metadata: Mapping[str, Any], key: str) -> Any:
    """The value of a key. `a.b` is also what the dict `a` has as `b`, as in the official SQLite saver."""
    if key in metadata:
        return metadata[key]
    first, dot, rest = key.partition(".")
    inner = metadata.get(first) if dot else None
    return _value_of(inner, rest) if isinstance(inner, Mapping) else None
