"""Metadata filters: the projection that the database searches, and the decision whether a checkpoint matches.

Must not know: SQL, serializers.

A filter is a list of conditions, each about one key. Values are compared as JSON. A missing key counts as None, except
for `$exists`. What JSON cannot hold equals nothing, and is neither less nor greater than anything.

- A value without an operator matches an equal one. On PostgreSQL (`SqlDialect.filter_contains`), a dict or list matches
  a value that contains it, as in LangGraph's saver there: a dict is contained in one that has its keys with matching
  values, a list in one that has a match for each of its items.
- A dict with operators, all of which have to hold, means the same on both databases. `$eq` and `$in` match equal
  values, `$ne` and `$nin` all others. `$gt`, `$gte`, `$lt` and `$lte` compare numbers with numbers, exactly, and texts
  with texts, by code point. `$exists` asks if the key is there.

`matches` decides on the metadata as it was stored. The database only narrows the search with the projection: one short
canonical JSON text for each metadata key. It must never leave out a row that matches. So the projection marks what it
does not know: a key whose value is long or not JSON maps to null, and the key `*` means that there may be keys that the
projection omits, because the serializer encrypts them.
"""

from __future__ import annotations

import json
import operator
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import lru_cache
from json.encoder import encode_basestring_ascii
from typing import Any, NamedTuple
from urllib.parse import quote

from langgraph_checkpoint_custom.errors import ConfigError
from langgraph_checkpoint_custom.model.keys import LONG_NAME

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
_ORDERS = {"$gt": operator.gt, "$gte": operator.ge, "$lt": operator.lt, "$lte": operator.le}
_EXCEPT = ("$ne", "$nin")
_OPERATORS = ("$eq", "$in", *_EXCEPT, *_ORDERS, "$exists")
# JSON escapes these characters, or they sort before the quote at the end of a JSON text.
_SORTS_OTHERWISE = re.compile(r"[^#-\[\]-~]")
# Above all characters of a JSON text.
_ABOVE_TEXTS = "\x7f"
# The absolute value of a number in the projection is smaller, because it has fewer digits.
_ABOVE_NUMBERS = 1e300
_MISSING = object()
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


@lru_cache(maxsize=1000)
def projected(key: str) -> str:
    """A key as it is in the projection: text without JSON escapes, so that both databases read it the same way."""
    if len(key) > LONG_NAME:
        projected.cache_clear()
    return key if _PLAIN.issuperset(key) else quote(key, safe="", errors="surrogatepass")


def project(metadata: Mapping[str, Any], only: Collection[str] | None) -> str:
    """The projection of metadata as a JSON text; restricted to the keys in `only`, unless that is None."""
    pairs = []
    for key, value in metadata.items():
        if isinstance(key, str) and (only is None or key in only):
            if type(value) is str:
                text: str | None = encode_basestring_ascii(value)
            else:
                text = canonical(value) if key != _UNKNOWN else None
            # A serializer may change a lone surrogate. Here it looks like half of a valid pair, so neither is known.
            if text is None or len(text) > LONGEST or "\\ud" in text:
                pairs.append(f'"{projected(key)}":null')
            else:
                pairs.append(f'"{projected(key)}":{encode_basestring_ascii(text)}')
    if only is not None:
        pairs.append(f'"{MORE}":null')
    return f"{{{','.join(pairs)}}}"


def hide(projection: Mapping[str, str | None], only: Collection[str]) -> dict[str, str | None]:
    """Restrict a projection to the keys in `only`; the others stay unreadable in the database."""
    names = set(map(projected, only))
    return {key: value for key, value in projection.items() if key in names} | {MORE: None}


class Condition(NamedTuple):
    """What a filter asks of the value of a key: an operator, and the canonical texts of what it compares with.

    `operator` is empty for a value without one. Only `$in` and `$nin` have more or fewer than one text.
    """

    key: str
    operator: str
    texts: frozenset[str]

    @property
    def text(self) -> str:
        """The only text."""
        (text,) = self.texts
        return text


def wanted(filter: Mapping[str, Any] | None) -> Sequence[Condition]:
    """Check a filter, and return its conditions."""
    if filter is None:
        return ()
    if not isinstance(filter, Mapping):
        raise ConfigError(f"a filter is a dict of metadata keys and values, not {filter!r}")
    return [condition for key, value in filter.items() for condition in _conditions(key, value)]


def _conditions(key: Any, value: Any) -> list[Condition]:
    if not isinstance(key, str):
        raise ConfigError(f"a filter key must be text, not {type(key).__name__}")
    if not (isinstance(value, Mapping) and any(isinstance(name, str) and name.startswith("$") for name in value)):
        return [Condition(key, "", frozenset([_given(key, value)]))]
    for name in value:
        if name not in _OPERATORS:
            raise ConfigError(
                f"{name!r} in the filter of {key!r} is not an operator; the operators are {', '.join(_OPERATORS)}, and "
                f"{{'$eq': {{…}}}} finds a stored dict whose keys begin with $"
            )
    return [Condition(key, name, frozenset(_operands(key, name, given))) for name, given in value.items()]


def _operands(key: str, name: str, given: Any) -> list[str]:
    if name in ("$in", "$nin"):
        if not isinstance(given, (list, tuple)):
            other = "$eq" if name == "$in" else "$ne"
            raise ConfigError(
                f"{name} in the filter of {key!r} takes a list of values, not {type(given).__name__}; for one value, "
                f"use {other}"
            )
        return [_given(key, each) for each in given]
    if name == "$exists" and not isinstance(given, bool):
        raise ConfigError(f"$exists in the filter of {key!r} takes True or False, not {type(given).__name__}")
    if name in _ORDERS and _kind(canonical(given)) is None:
        what = "NaN or infinity" if isinstance(given, float) else type(given).__name__
        raise ConfigError(
            f"{name} in the filter of {key!r} takes a number or a text, not {what}; store and compare a time as a text "
            "in ISO format or as a number"
        )
    return [_given(key, given)]


def _given(key: str, value: Any) -> str:
    text = canonical(value)
    if text is None:
        raise ConfigError(f"the filter value of {key!r} is not JSON, so no stored value can equal it")
    return text


def _kind(text: str | None) -> type | None:
    """The type of a canonical text that has an order."""
    return None if not text else str if text[0] == '"' else float if text[0] in "-0123456789" else None


def narrowing(conditions: Iterable[Condition], *, contains: bool) -> Sequence[Mapping[str, Any]]:
    """The part of a filter that the database compares with the projection: a key of it, and what its value must be.

    - `texts`, `among`: one of these texts, or none of them if not `among`. The text of a missing key is empty.
    - `low`, `high`: a JSON text between these two, or one with a backslash, which sorts otherwise than the text that it
      stands for. The range is too wide if the given text has such characters, too.
    - `least`, `most`: a number between these two. The range is a billionth too wide, because SQLite has no decimal
      numbers, and may miss the nearest floating-point number when it converts a text.

    Only `matches` compares keys with a dot, because they may name a key inside another value. With `contains`, only it
    compares dicts and lists without an operator.
    """
    return [
        {"key": projected(each.key), **_bounds(each)} for each in conditions if _is_projected(each, contains=contains)
    ]


def equal_texts(conditions: Iterable[Condition], *, contains: bool) -> dict[str, Collection[str]]:
    """The keys of the projection for which a filter lists the values, with the texts of these."""
    return {
        projected(each.key): each.texts
        for each in conditions
        if each.operator in ("", "$eq", "$in") and _is_projected(each, contains=contains)
    }


def _is_projected(condition: Condition, *, contains: bool) -> bool:
    return "." not in condition.key and not (contains and _is_nested(condition))


def _is_nested(condition: Condition) -> bool:
    return not condition.operator and condition.text.startswith(_NESTED)


def _bounds(condition: Condition) -> dict[str, Any]:
    _, name, texts = condition
    if name == "$exists":
        return {"texts": [""], "among": condition.text == "false"}
    if name not in _ORDERS:
        return {"texts": [*texts, *[""] * ("null" in texts)], "among": name not in _EXCEPT}
    given = json.loads(condition.text)
    is_lower = name in ("$gt", "$gte")
    if isinstance(given, str):
        text = '"' + _SORTS_OTHERWISE.split(given, maxsplit=1)[0]
        return {"low": text if is_lower else '"', "high": ('"' if is_lower else text) + _ABOVE_TEXTS}
    number = float(max(-_ABOVE_NUMBERS, min(given, _ABOVE_NUMBERS)))
    slack = abs(number) / 1e9 + 1 / _ABOVE_NUMBERS
    least, most = (number - slack, _ABOVE_NUMBERS) if is_lower else (-_ABOVE_NUMBERS, number + slack)
    return {"least": least, "most": most}


def matches(metadata: Mapping[str, Any], conditions: Iterable[Condition], *, contains: bool) -> bool:
    """Whether stored metadata matches a filter."""
    return all(_holds(each, _value_of(metadata, each.key), contains=contains) for each in conditions)


def _holds(condition: Condition, stored: Any, *, contains: bool) -> bool:
    _, name, texts = condition
    if name == "$exists":
        return (stored is not _MISSING) == (condition.text == "true")
    if stored is _MISSING:
        stored = None
    if contains and _is_nested(condition):
        return _contains(stored, json.loads(condition.text))
    text = canonical(stored)
    if name in _ORDERS:
        given = condition.text
        return (
            text is not None
            and _kind(text) is _kind(given)
            and bool(_ORDERS[name](json.loads(text), json.loads(given)))
        )
    return (text in texts) != (name in _EXCEPT)


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
    return _value_of(inner, rest) if isinstance(inner, Mapping) else _MISSING
