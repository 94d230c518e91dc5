"""Metadata filters: the projection that the database searches, and the decision whether a checkpoint matches.

Must not know: SQL, serializers.

A key matches if the stored value equals the filter's value as JSON; None also matches a missing key. On PostgreSQL
(`SqlDialect.filter_contains`), a dict or list in a filter matches a value that contains it, as in LangGraph's saver
there: a dict is contained in one that has its keys with matching values, a list in one that has a match for each of its
items.

`matches` decides on the metadata as it was stored. The database only narrows the search with the projection: one short
canonical JSON text for each metadata key. It must never leave out a row that matches. So the projection marks what it
does not know: a key whose value is long or not JSON maps to null, and the key `*` means that there may be keys that the
projection omits, because the serializer encrypts them.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping
from json.encoder import encode_basestring_ascii
from typing import Any
from urllib.parse import quote

from langgraph_checkpoint_custom.errors import ConfigError

# Characters of canonical JSON. Only `matches` compares longer values: filters rarely have them, and a row should not
# store them twice.
LONGEST = 200
MORE = "*"
# A key of LangGraph's in each checkpoint of a graph with a `DeltaChannel`. Nobody searches for it, and `matches` can.
_UNKNOWN = "counters_since_delta_snapshot"
# The first character of the text of a dict or list.
_NESTED = ("{", "[")
# One encoder for all calls: json.dumps with options creates one each time, which takes longer than encoding.
_CANONICAL = json.JSONEncoder(sort_keys=True, separators=(",", ":"), allow_nan=False).encode
_PLAIN = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-.: /")


def canonical(value: Any) -> str | None:
    """The canonical JSON text of a value, or None if it is not JSON. Equal values have equal texts."""
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
        return int(value)  # JSON has one type of number: 1.0 equals 1.
    if isinstance(value, Mapping):
        if not all(isinstance(key, str) for key in value):
            raise TypeError("JSON has only text as keys")
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    return value


def _projected(key: str) -> str:
    """A key as it is in the projection: text without JSON escapes, so that both databases read it the same way."""
    return key if _PLAIN.issuperset(key) else quote(key, safe="", errors="surrogatepass")


def project(metadata: Mapping[str, Any], only: Collection[str] | None) -> str:
    """The projection of metadata as a JSON text; restricted to the keys in `only`, unless that is None."""
    projection: dict[str, str | None] = {}
    for key, value in metadata.items():
        if isinstance(key, str) and (only is None or key in only):
            if type(value) is str:
                text: str | None = encode_basestring_ascii(value)
            else:
                text = canonical(value) if key != _UNKNOWN else None
            # A serializer may change a lone surrogate. Here it looks like half of a valid pair, so neither is known.
            known = text is not None and len(text) <= LONGEST and "\\ud" not in text
            projection[key if _PLAIN.issuperset(key) else _projected(key)] = text if known else None
    if only is not None:
        projection[MORE] = None
    pairs = [
        f'"{key}":null' if text is None else f'"{key}":{encode_basestring_ascii(text)}'
        for key, text in projection.items()
    ]
    return f"{{{','.join(pairs)}}}"


def hide(projection: Mapping[str, str | None], only: Collection[str]) -> dict[str, str | None]:
    """Restrict a projection to the keys in `only`; the others stay unreadable in the database."""
    names = set(map(_projected, only))
    return {key: value for key, value in projection.items() if key in names} | {MORE: None}


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


def projected_keys(keys: Iterable[str]) -> list[str]:
    """The keys as they are in the projection, without duplicates."""
    return list(dict.fromkeys(map(_projected, keys)))


def narrowing(texts: Mapping[str, str], *, contains: bool) -> dict[str, str]:
    """The part of a filter that the database compares with the projection.

    Only `matches` compares keys with a dot, because they may name a key inside another value. With `contains`, only it
    compares dicts and lists.
    """
    return {
        _projected(key): text
        for key, text in texts.items()
        if not ("." in key or (contains and text.startswith(_NESTED)))
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
    """Whether a stored value contains a value of a filter, in the sense of PostgreSQL's operator `@>`."""
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
    """The value of a key; `a.b` also names the key `b` in the dict `a`, as in the official SQLite saver."""
    if key in metadata:
        return metadata[key]
    first, dot, rest = key.partition(".")
    inner = metadata.get(first) if dot else None
    return _value_of(inner, rest) if isinstance(inner, Mapping) else None
