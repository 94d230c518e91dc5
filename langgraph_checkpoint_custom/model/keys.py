"""The rows of the tables, their keys, and the checks of ids.

Must not know: serializers, SQL, connections.

Ids come from users and from HTTP requests. This module converts them to text and checks them once, before anything is
encoded or sent. No later code checks them again.
"""

from __future__ import annotations

import re
from collections.abc import Hashable, Iterable, Mapping, Sequence
from functools import lru_cache
from operator import index
from typing import Any, NamedTuple
from uuid import UUID

from langchain_core.runnables import RunnableConfig

from langgraph_checkpoint_custom.errors import ConfigError

# Bytes of UTF-8.
MAX_THREAD_ID = 1000
MAX_TENANT = 60
MAX_ID = 200  # Of a checkpoint, a task or a run.
# Of a namespace, a channel or a channel version. LangGraph makes these from the names of nodes: those of all nodes of a
# join, or of all levels of nested subgraphs. PostgreSQL has a lower limit: the key of a value, which is thread id,
# namespace, channel and version, has to fit into an index entry of 2,704 bytes. The server compresses long names, so
# only the server knows whether a key fits.
MAX_NAME = 2**20
# Characters. Of longer names and lists of names, a cache of results keeps only the last one.
LONG_NAME, LONG_NAMES = 200, 50_000
# The unit separator. If a stored thread id starts with it, the name of the tenant follows, up to the next one.
TENANT_MARK = "\x1f"

# The record separator. Thread ids of other frameworks start with it, see the end of this file. Lists of LangGraph's
# threads skip the range from KIND_MARK up to but not including ABOVE_KINDS.
KIND_MARK = "\x1e"
ABOVE_KINDS = "\x1f"

# The key in `configurable` with the token of a claim. LangGraph does not merge keys that start like this into the
# metadata.
CLAIM_KEY = "__langgraph_checkpoint_claim"

# Above every checkpoint id: ids are compared byte-wise, and no real id starts with the last code point.
AFTER_ALL = "\U0010ffff"

# Appended to a prefix, it is above every thread id with that prefix: the last code point, more often than an id can
# have it.
ABOVE_THREADS = AFTER_ALL * (MAX_THREAD_ID // len(AFTER_ALL.encode()) + 1)


class Range(NamedTuple):
    """The thread ids, or checkpoint ids, from `bottom` up to but not including `top`."""

    bottom: str
    top: str


def right_above(own_id: str) -> str:
    """The lowest possible id above an id; ids contain no NUL."""
    return f"{own_id}\x01"


class Key(NamedTuple):
    """The key of a checkpoint; `checkpoint_id` is None for the newest one."""

    thread_id: str
    checkpoint_ns: str
    checkpoint_id: str | None


Location = tuple[str, ...]
"""Where in a thread a value is stored: the table, and the key of the row without the thread."""


def location_of_checkpoint(checkpoint_ns: str, checkpoint_id: str) -> Location:
    """The location of a checkpoint document."""
    return "checkpoint", checkpoint_ns, checkpoint_id


def location_of_metadata(checkpoint_ns: str, checkpoint_id: str) -> Location:
    """The location of a checkpoint's metadata."""
    return "metadata", checkpoint_ns, checkpoint_id


def location_of_blob(checkpoint_ns: str, channel: str, version: str) -> Location:
    """The location of a blob."""
    return "blob", checkpoint_ns, channel, version


def location_of_write(checkpoint_ns: str, checkpoint_id: str, task_id: str, idx: int, channel: str) -> Location:
    """The location of a write."""
    return "write", checkpoint_ns, checkpoint_id, task_id, str(idx), channel


class BlobRow(NamedTuple):
    """A row of `blobs`: a channel value, or a chunk of one.

    `value` has no upper bound. `chunks` has the names of its chunks as JSON, or None if it is in one piece.
    """

    channel: str
    version: str
    type: str
    value: bytes
    chunks: str | None = None


class BlobRef(NamedTuple):
    """A blob that may be stored already.

    If it is `required`, it holds an unchanged value of the checkpoint. Or, if `begins` is given, it is the previous
    version of a value that shares its chunks, and its column `chunks` must start with `begins`. If it is not required,
    it is the delta snapshot of a `DeltaChannel` that the checkpoint comes without, because it was stored before.
    """

    channel: str
    version: str
    required: bool
    begins: str = ""


class WriteRow(NamedTuple):
    """A row of `writes`: one output of one task. `idx` is negative for the special writes of `WRITES_IDX_MAP`."""

    task_id: str
    task_path: str
    run_id: str | None
    idx: int
    channel: str
    type: str
    value: bytes


class CheckpointRow(NamedTuple):
    """A row of `checkpoints`: one encoded superstep, without the columns that the database sets."""

    thread_id: str
    checkpoint_ns: str
    checkpoint_id: str
    parent_id: str | None
    root_id: str | None
    run_id: str | None
    format: int
    inline_channels: Sequence[str]
    delta_channels: Sequence[str]
    blob_channels: Sequence[str]
    blob_versions: Sequence[str]
    checkpoint_type: str
    checkpoint: bytes
    metadata_type: str
    metadata: bytes
    metadata_filter: str


class TupleRow(NamedTuple):
    """One row of the reply to a read.

    Which fields are set depends on `kind`:

    - `checkpoint`: `name` is the parent's id, `idx` the format, `type`/`value` the document, `type2`/`value2` the
      metadata, `channels`/`versions` the blobs that belong to it
    - `blob`: `name` is the channel, `key` its version, `path` the names of its chunks as JSON; or one of these chunks,
      with its name as `key`
    - `write`, `send`: `name` is the channel, `key` the task, `path` and `idx` its position in the superstep; a `send`
      is a write of the parent that a checkpoint older than format 4 needs
    """

    kind: str
    thread_id: str
    checkpoint_ns: str
    checkpoint_id: str
    name: str | None
    key: str | None
    path: str | None
    idx: int | None
    type: str | None
    value: bytes | None
    type2: str | None
    value2: bytes | None
    channels: Any
    versions: Any


class Ahead(NamedTuple):
    """What is known of the checkpoints of a thread that the next pages of a list have; see `operations/pages.py`.

    Attributes:
        keys: The id and namespace of each checkpoint, newest first.
        spaces: The namespaces of the thread; None if there are too many to look into each.
        following: How many keys to choose after these; 0 if there are no others.
        matching: Whether these are only the checkpoints that match a filter.
    """

    keys: Sequence[tuple[str, str]]
    spaces: Sequence[str] | None
    following: int
    matching: bool = False


class Page(NamedTuple):
    """The request for one page of a list: the rows below (`before`, `thread_below`, `ns_below`), newest first.

    `floor` is the lowest checkpoint id, `limit` the number of rows. If `checkpoint_ns` is None, the page is of all
    namespaces; if `thread_id` is None, of all threads and namespaces. `filter` is what `narrowing` in `filter.py`
    returns. `ahead` is what an earlier page of all namespaces of a thread has found out.
    """

    thread_id: str | None
    checkpoint_ns: str | None
    floor: str
    before: str
    thread_below: str
    ns_below: str
    filter: Sequence[Mapping[str, Any]]
    limit: int
    ahead: Ahead | None = None

    @property
    def keys(self) -> Sequence[tuple[str, str]]:
        """The keys whose rows are read: all that are known if a filter leaves rows out, or as many as asked for."""
        if self.ahead is None:
            return ()
        return self.ahead.keys if self.filter and not self.ahead.matching else self.ahead.keys[: self.limit]


def text(what: str, value: object, limit: int) -> str:
    """Check an id and return it as text that both databases store unchanged, of at most `limit` bytes."""
    if type(value) is str and value.isascii() and len(value) <= limit and "\0" not in value:
        return value  # True for nearly all.
    if type(value) is not str:
        if isinstance(value, str):
            value = str.__str__(value)
        elif isinstance(value, UUID) or (isinstance(value, int) and not isinstance(value, bool)):
            value = str(value)
        else:
            raise ConfigError(f"{what} must be text, an int or a UUID, not {type(value).__name__}")
    assert isinstance(value, str)
    if "\0" in value:
        raise ConfigError(f"{what} contains a NUL character, which no database stores in a key; remove it")
    try:
        size = len(value.encode())
    except UnicodeEncodeError as error:
        raise ConfigError(f"{what} is not valid Unicode text: {error.reason}") from None
    if size > limit:
        raise ConfigError(f"{what} has {size:,} bytes, the limit is {limit:,}; use a shorter one, such as a hash of it")
    return value


@lru_cache(maxsize=4096, typed=True)
def channel_text(value: Hashable) -> str:
    """Check the name of a channel. The results are cached: a graph has the same few channels in each superstep."""
    if not isinstance(value, str):
        raise ConfigError(f"channel must be text, not {type(value).__name__}")
    if len(value) > LONG_NAME:
        channel_text.cache_clear()
    return text("channel", value, MAX_NAME)


@lru_cache(maxsize=256)  # A graph has the same few lists of channels in all of its steps.
def channel_texts(values: tuple[Hashable, ...]) -> Sequence[str]:
    """Check the names of a checkpoint's channels, as `channel_text` does."""
    found = tuple(map(channel_text, values))
    if sum(map(len, found)) > LONG_NAMES:
        channel_texts.cache_clear()
    return found


def thread_text(value: object, what: str = "thread_id") -> str:
    """Check a thread id, or a prefix of some, and return it as text: `5` becomes `"5"`."""
    thread_id = text(what, value, MAX_THREAD_ID)
    if thread_id.startswith(TENANT_MARK):
        raise ConfigError(f"{what} begins with a unit separator (U+001F), which marks a tenant; use for_tenant()")
    return thread_id


def tenant_text(value: object) -> str:
    """Check the name of a tenant."""
    tenant = text("tenant", value, MAX_TENANT)
    if not tenant or TENANT_MARK in tenant:
        raise ConfigError(f"{tenant!r} cannot be a tenant: it is empty or contains a unit separator (U+001F)")
    return tenant


def label_text(value: object) -> str:
    """Check the name of a label."""
    name = text("label", value, MAX_ID)
    if not name:
        raise ConfigError("a label cannot be empty")
    return name


class OneForMany(ConfigError, TypeError):
    """One id was given instead of a sequence of ids. A TypeError as well, because LangGraph's savers raise that."""


def texts(what: str, values: Iterable[object], limit: int) -> list[str]:
    """Check a sequence of ids; a single string is an error, because it would be read letter by letter."""
    if isinstance(values, (str, bytes)):
        raise OneForMany(f"{what}s must be a sequence of ids, not one {type(values).__name__}; write [{values!r}]")
    if not isinstance(values, Iterable):
        raise OneForMany(f"{what}s must be a sequence of ids, not {type(values).__name__}")
    return [text(what, value, limit) for value in values]


def flag(what: str, value: object) -> bool:
    """Check an argument that must be True or False: another value could delete too much by mistake."""
    if not isinstance(value, bool):
        hint = f"; for the threads of one tenant use saver.for_tenant({value!r})" if what == "tenants" else ""
        raise ConfigError(f"{what} must be True or False, not {value!r}{hint}")
    return value


def configurable(config: RunnableConfig) -> Mapping[str, Any]:
    """The `configurable` part of a config."""
    try:
        part = config["configurable"]
    except (KeyError, TypeError):
        part = None
    if type(part) is not dict and not isinstance(part, Mapping):
        raise ConfigError('config has no "configurable": pass {"configurable": {"thread_id": …}}')
    return part


def key_of(config: RunnableConfig) -> Key:
    """The key that a config names: a missing namespace is the root's, a missing checkpoint id the newest."""
    part: Mapping[str, Any] | None = config.get("configurable") if type(config) is dict else None
    if part is None or type(part) is not dict:
        part = configurable(config)
    thread_id, checkpoint_ns = part.get("thread_id"), part.get("checkpoint_ns") or ""
    checkpoint_id = part.get("checkpoint_id") or None
    if type(thread_id) is str and type(checkpoint_ns) is str and (checkpoint_id is None or type(checkpoint_id) is str):
        together = thread_id + checkpoint_ns + (checkpoint_id or "")
        if together.isascii() and len(together) <= MAX_ID and "\0" not in together and thread_id[:1] > TENANT_MARK:
            return Key(thread_id, checkpoint_ns, checkpoint_id)  # True for nearly all.
    if thread_id is None:
        raise ConfigError('config has no thread_id: pass {"configurable": {"thread_id": …}}')
    return Key(
        thread_text(thread_id),
        text("checkpoint_ns", checkpoint_ns, MAX_NAME),
        None if checkpoint_id is None else text("checkpoint_id", checkpoint_id, MAX_ID),
    )


def claim_of(config: RunnableConfig) -> str | None:
    """The token of the claim in a config that names a thread, or None."""
    token = config["configurable"].get(CLAIM_KEY)
    if token is None:
        return None
    if token == "":
        raise ConfigError("the token of the claim is empty; pass the lease.config that saver.claim() gives you")
    return text("the token of a claim", token, MAX_ID)


def config_of(thread_id: str, checkpoint_ns: str, checkpoint_id: str) -> RunnableConfig:
    """The config of a stored checkpoint: only the three keys, nothing else from the caller's config."""
    return {
        "configurable": {"thread_id": thread_id, "checkpoint_ns": checkpoint_ns, "checkpoint_id": checkpoint_id},
    }


def limit_number(limit: Any, negative: int | None) -> int | None:
    """Check a limit; None means all. A limit below zero becomes `negative`, which depends on the database."""
    try:
        number = None if limit is None else index(limit)
    except TypeError:
        raise ConfigError(f"limit must be a whole number or None, not {limit!r}") from None
    return negative if number is not None and number < 0 else number


def before_id(before: RunnableConfig | None) -> str | None:
    """The checkpoint id in `before`, which may be a config or its inner dict.

    None if there is no `before`. An empty text if it has no checkpoint id: no checkpoint is before that.
    """
    if not before:
        return None
    if not isinstance(before, Mapping):
        raise ConfigError(f"before must be the config of a checkpoint, not a {type(before).__name__}")
    part: Mapping[str, Any] = before.get("configurable") or before
    value = part.get("checkpoint_id")
    return text("checkpoint_id of before", value, MAX_ID) if value else ""


# The thread ids of other frameworks
#
# Such an id starts with a mark that no thread id of LangGraph's starts with. The kind of thread and the parts of its
# name follow, separated by slashes as in a path. A slash inside a part is written as `%2F`, so the names `a/b`, `c` and
# `a`, `b/c` have different ids. In such a thread, the newest checkpoint of a namespace holds a record, and the earlier
# ones hold its earlier versions.

_RESERVED = re.compile(r"[%/\x00-\x1f\x7f]")
_ESCAPED = re.compile(r"%([0-9A-F]{2})")


def thread_of(kind: str, *name: str) -> str:
    """Return the id of another framework's thread, from its kind, such as "cubeloop", and the parts of its name."""
    for part in name:
        if not isinstance(part, str):
            raise ConfigError(f"the name of a {kind} must be text, not {type(part).__name__}")
    return text(f"the name of a {kind}", "/".join([f"{KIND_MARK}{kind}", *map(_escaped, name)]), MAX_THREAD_ID)


def kind_of(thread_id: str) -> str | None:
    """The kind of a thread; None for a thread of LangGraph's."""
    return thread_id[len(KIND_MARK) :].split("/", 1)[0] if thread_id.startswith(KIND_MARK) else None


def name_of(thread_id: str) -> tuple[str, ...]:
    """The parts of the name of a thread; for a thread of LangGraph's, only its id."""
    if kind_of(thread_id) is None:
        return (thread_id,)
    return tuple(_ESCAPED.sub(lambda found: chr(int(found[1], 16)), part) for part in thread_id.split("/")[1:])


def check_kind(operation: str, thread_id: str, target: str) -> None:
    """Raise ConfigError if an operation would copy a thread to another kind."""
    if kind_of(target) != kind_of(thread_id):
        own, other = (which or "LangGraph" for which in (kind_of(thread_id), kind_of(target)))
        raise ConfigError(
            f"{operation} cannot make thread {target!r} of the framework {other} from one of the framework {own}"
        )


def _escaped(part: str) -> str:
    return _RESERVED.sub(lambda found: f"%{ord(found[0]):02X}", part)
