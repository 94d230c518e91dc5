"""The options of savers, for type checkers; each value is also checked when it is given.

Otherwise a mistake would only appear in the middle of a run, or in a worker, which would end.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from difflib import get_close_matches
from inspect import iscoroutinefunction
from typing import Any, Literal, TypedDict, get_args

from langgraph.checkpoint.serde.base import SerializerProtocol

from langgraph_checkpoint_custom.encoding.serde import Allowed, OnInexact, OnLoad, OnUnreadable
from langgraph_checkpoint_custom.errors import ConfigError
from langgraph_checkpoint_custom.observed import OnOperation
from langgraph_checkpoint_custom.operations.conflicts import ConcurrentWriters
from langgraph_checkpoint_custom.retention import Retention

Synchronous = Literal["OFF", "NORMAL", "FULL", "EXTRA"]
# Those that survive a crash; PERSIST, which does as well, would leave deleted rows in a second file.
JournalMode = Literal["WAL", "DELETE", "TRUNCATE"]
Strategy = Literal["keep_latest", "delete", "delete_all"]


class SaverOptions(TypedDict, total=False):
    """The keyword options of every saver, without `serde`; `CheckpointSaver` explains them."""

    previous_serdes: Sequence[SerializerProtocol]
    plaintext_metadata: Sequence[str]
    exclude_metadata: Sequence[str]
    strict: bool
    allow: Sequence[Allowed]
    on_unreadable: OnUnreadable
    on_inexact: OnInexact
    on_load: OnLoad | None
    concurrent_writers: ConcurrentWriters
    check_unchanged: bool
    compress: bool | None
    chunk_cache_bytes: int
    on_operation: OnOperation | None
    retention: Retention | None


class SqliteOptions(SaverOptions, total=False):
    """The keyword options of `SqliteSaver`."""

    serde: SerializerProtocol | None
    busy_timeout: float
    synchronous: Synchronous
    journal_mode: JournalMode
    read_only: bool


class PostgresOptions(SaverOptions, total=False):
    """The keyword options of `PostgresSaver`."""

    serde: SerializerProtocol | None
    schema: str
    min_size: int
    max_size: int
    pool_timeout: float
    connect_timeout: float
    prepare: bool | None
    read_only: bool


class Options(PostgresOptions, total=False):
    """The keyword options of `open_saver`: those of the database that the URL names."""

    busy_timeout: float
    synchronous: Synchronous
    journal_mode: JournalMode


_SAVERS = {"SqliteSaver": SqliteOptions.__annotations__, "PostgresSaver": PostgresOptions.__annotations__}


def check_options(saver: str, options: Mapping[str, Any]) -> None:
    """Refuse options that a saver does not have or that have the wrong type; the drivers check the range of numbers.

    Raises:
        ConfigError: It names the option.
    """
    own = _SAVERS[saver]
    for name, value in options.items():
        if name not in own:
            other = next((kind for kind, names in _SAVERS.items() if name in names), None)
            near = get_close_matches(name, own, 1)
            hint = f"; it is an option of {other}" if other else f"; did you mean {near[0]}?" if near else ""
            raise ConfigError(f"{saver} has no option {name!r}{hint}")
        what, holds = _CHECKS[name]
        if not holds(value):
            # A key may have been passed as the serializer by mistake.
            given = f"a {type(value).__name__}" if "serde" in name else repr(value)
            raise ConfigError(f"{name} must be {what}, not {given}")
    if options.get("read_only") and options.get("retention"):
        raise ConfigError("a saver with read_only=True deletes nothing; leave out retention")


def check_strategy(strategy: object) -> None:
    """Refuse anything that is not a strategy of `prune`."""
    if strategy not in get_args(Strategy):
        raise ConfigError(f"unknown prune strategy {strategy!r}; use 'keep_latest' or 'delete'")


def _is_serde(value: Any) -> bool:
    """Whether it has LangGraph's methods, or those of untyped serializers, which LangGraph wraps."""
    pairs = ("dumps_typed", "loads_typed"), ("dumps", "loads")
    return any(all(callable(getattr(value, name, None)) for name in pair) for pair in pairs)


def _is_class(value: Any) -> bool:
    return isinstance(value, type) or (isinstance(value, (tuple, list)) and [*map(type, value)] == [str, str])


def _is_on_load(value: Any) -> bool:
    """Whether it has sync functions or classes, by names with a module."""
    return isinstance(value, Mapping) and all(
        isinstance(name, str) and "." in name and callable(load) and not iscoroutinefunction(load)
        for name, load in value.items()
    )


def _one_of(words: Sequence[str]) -> tuple[str, Callable[[Any], bool]]:
    *most, last = map(repr, words)
    return f"{', '.join(most)} or {last}", lambda value: isinstance(value, str) and value in words


def _list_of(what: str, holds: Callable[[Any], bool]) -> tuple[str, Callable[[Any], bool]]:
    """A text is not a list: it would be read letter by letter."""
    return (
        f"a list of {what}",
        lambda value: (
            isinstance(value, Collection) and not isinstance(value, (str, bytes, Mapping)) and all(map(holds, value))
        ),
    )


_NUMBER = "a whole number", lambda value: isinstance(value, int) and not isinstance(value, bool)
_BYTES = "a number of bytes", lambda value: _NUMBER[1](value) and value >= 0
_SECONDS = "a number of seconds", lambda value: isinstance(value, (int, float)) and not isinstance(value, bool)
_FINITE = "a number of seconds", lambda value: _SECONDS[1](value) and math.isfinite(value)
_YES = "True or False", lambda value: isinstance(value, bool)
_YES_OR_NONE = "True, False or None", lambda value: value is None or isinstance(value, bool)
_KEYS = _list_of("metadata keys", lambda value: isinstance(value, str))
_CHECKS: Mapping[str, tuple[str, Callable[[Any], bool]]] = {
    "serde": (
        "a serializer with dumps_typed and loads_typed, or None",
        lambda value: value is None or _is_serde(value),
    ),
    "previous_serdes": _list_of("serializers with dumps_typed and loads_typed", _is_serde),
    "plaintext_metadata": _KEYS,
    "exclude_metadata": _KEYS,
    "strict": _YES,
    "allow": _list_of('classes, or of pairs such as ("my_app.state", "Plan")', _is_class),
    "on_unreadable": _one_of(get_args(OnUnreadable)),
    "on_inexact": _one_of(get_args(OnInexact)),
    "on_load": (
        'a dict of classes or functions (not async) by full class name, such as {"my_app.state.Plan": Plan}, or None',
        lambda value: value is None or _is_on_load(value),
    ),
    "concurrent_writers": _one_of(get_args(ConcurrentWriters)),
    "check_unchanged": _YES,
    "compress": _YES_OR_NONE,
    "chunk_cache_bytes": _BYTES,
    "on_operation": ("a function, or None", lambda value: value is None or callable(value)),
    "retention": (
        "a Retention(…), such as Retention(keep_last=3), or None",
        lambda value: value is None or isinstance(value, Retention),
    ),
    "busy_timeout": _SECONDS,
    "synchronous": (
        "one of " + ", ".join(get_args(Synchronous)),
        lambda value: str(value).upper() in get_args(Synchronous),
    ),
    "journal_mode": (
        "one of " + ", ".join(get_args(JournalMode)),
        lambda value: str(value).upper() in get_args(JournalMode),
    ),
    "schema": ("the name of a schema", lambda value: isinstance(value, str)),
    "min_size": _NUMBER,
    "max_size": _NUMBER,
    "pool_timeout": _FINITE,
    "connect_timeout": _FINITE,
    "prepare": _YES_OR_NONE,
    "read_only": _YES,
}
