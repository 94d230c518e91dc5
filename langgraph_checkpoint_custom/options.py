"""The options of savers, for type checkers, and checks of what these do not find."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from typing import Any, Literal, TypedDict, get_args, get_origin, get_type_hints

from langgraph.checkpoint.serde.base import SerializerProtocol

from langgraph_checkpoint_custom.encoding.allowlist import Allowed
from langgraph_checkpoint_custom.encoding.serde import OnInexact, OnLoad, OnUnreadable
from langgraph_checkpoint_custom.errors import ConfigError
from langgraph_checkpoint_custom.observed import OnOperation
from langgraph_checkpoint_custom.operations.writers import ConcurrentWriters
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


OPTIONS = {"SqliteSaver": get_type_hints(SqliteOptions), "PostgresSaver": get_type_hints(PostgresOptions)}


def check_options(saver: str, options: Mapping[str, Any]) -> None:
    """Refuse what would change nothing, or something else, without an error: a misspelled option, or one of its words.

    Raises:
        ConfigError: It names the option.
    """
    own = OPTIONS[saver]
    for name, value in options.items():
        if name not in own:
            other = next((kind for kind, names in OPTIONS.items() if name in names), None)
            near = get_close_matches(name, own, 1)
            hint = f"; it is an option of {other}" if other else f"; did you mean {near[0]}?" if near else ""
            raise ConfigError(f"{saver} has no option {name!r}{hint}")
        words = get_args(own[name]) if get_origin(own[name]) is Literal else ()
        if words and value not in words:
            raise ConfigError(f"{name} must be one of {', '.join(words)}, not {value!r}")
        if own[name] == Sequence[str] and isinstance(value, str):  # Type checkers allow it. Its letters are not meant.
            raise ConfigError(f"{name} must be a list of metadata keys, not {value!r}")
    if options.get("read_only") and options.get("retention"):
        raise ConfigError("a saver with read_only=True deletes nothing; leave out retention")
