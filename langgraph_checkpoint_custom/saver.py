"""LangGraph's methods in sync/async pairs, one line each; no SQL and no connection is known here.

Those that LangGraph does not know are in `threads.py`.

What the caller's objects hold is read in the first line of each method, before the first await or hop to a worker: the
graph goes on and may change them meanwhile.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from copy import copy
from itertools import count
from types import TracebackType
from typing import TYPE_CHECKING, Any

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import (
    BaseCheckpointSaver,
    ChannelVersions,
    Checkpoint,
    CheckpointMetadata,
    CheckpointTuple,
    DeltaChannelHistory,
)
from langgraph.checkpoint.serde.base import SerializerProtocol
from typing_extensions import Self

from langgraph_checkpoint_custom.encoding.encode import (
    Encoded,
    encode_checkpoint,
    encode_writes,
    merge_metadata,
    run_of,
)
from langgraph_checkpoint_custom.encoding.serde import Allowed, OnInexact, OnLoad, OnUnreadable, strict_serde
from langgraph_checkpoint_custom.encoding.values import Values, ciphers_of
from langgraph_checkpoint_custom.engine.operation import Driver, Offload, Operation, afollow, done, follow
from langgraph_checkpoint_custom.errors import ConfigError
from langgraph_checkpoint_custom.lease import Lease
from langgraph_checkpoint_custom.model.filter import wanted
from langgraph_checkpoint_custom.model.keys import (
    MAX_CHANNEL,
    MAX_ID,
    MAX_THREAD_ID,
    CheckpointRow,
    Key,
    Page,
    before_id,
    config_of,
    key_of,
    limit_number,
    namespace_of,
    newest,
    own_key_of,
    tenant_text,
    texts,
    thread_text,
)
from langgraph_checkpoint_custom.model.namespaced_ids import check_kind
from langgraph_checkpoint_custom.observed import ObservedDriver, OnOperation
from langgraph_checkpoint_custom.operations.conflicts import ConcurrentWriters, Place, must_be_newest, note_read
from langgraph_checkpoint_custom.operations.copies import copy_thread
from langgraph_checkpoint_custom.operations.delete import delete_for_runs, delete_thread, prune_thread
from langgraph_checkpoint_custom.operations.delta_history import get_delta_channel_history
from langgraph_checkpoint_custom.operations.interrupts import check_open
from langgraph_checkpoint_custom.operations.read import (
    NextVersion,
    Note,
    PageReply,
    Reading,
    get_tuple,
    get_tuple_to_write,
    list_page,
)
from langgraph_checkpoint_custom.operations.reencrypt import Renewal, reencryption
from langgraph_checkpoint_custom.operations.searchable import make_searchable, missing_searchable
from langgraph_checkpoint_custom.operations.write import put, put_writes
from langgraph_checkpoint_custom.options import Strategy, check_strategy
from langgraph_checkpoint_custom.recent import Recent
from langgraph_checkpoint_custom.retention import Retention, Sweeper
from langgraph_checkpoint_custom.sql.dialect import SqlDialect, first_page
from langgraph_checkpoint_custom.sql.searchable import searchable_keys
from langgraph_checkpoint_custom.threads import ThreadMethods

# Checkpoints that a list holds in memory at a time.
PAGE = 50
_NUMBERS = count()

# What LangGraph's savers have, and what there is instead.
_INSTEAD = {
    "conn": (
        "it opens connections by itself, several at a time; for SQL of your own open one, and to close the saver's "
        "call close() or aclose()"
    ),
    "cursor": "for SQL of your own open a connection of your own",
    "lock": "any number of threads and tasks may call a saver",
    "is_setup": "setup() does nothing if the tables are current",
    "jsonplus_serde": "the serializer is its serde",
    "pipe": "each call is one round trip anyway",
}

# What stays readable beside an encrypting serializer: LangGraph's own words and the ids that are keys anyway.
CLEAR_METADATA = ("source", "step", "run_id")


class CheckpointSaver(ThreadMethods, BaseCheckpointSaver[str]):
    """A checkpoint saver over a dialect and a driver; use `SqliteSaver` or `PostgresSaver`.

    Every method works sync and async, from any OS thread and any event loop. Shallow copies share the driver with its
    connections and differ in `serde` or the tenant at most; the former is how LangGraph clones a saver.

    Args:
        dialect: The statements of the database.
        driver: What runs them.
        serde: How values become bytes; LangGraph's `JsonPlusSerializer` by default. With LangGraph's
            `EncryptedSerializer` all of them are encrypted, each for its place, and what is not encrypted is refused.
        previous_serdes: `EncryptedSerializer`s with earlier keys, which are read too, or a `JsonPlusSerializer` if rows
            may not be encrypted yet; until `reencrypt()` has stored everything anew with `serde`.
        clear_metadata: Metadata keys that stay readable in the database although the serializer encrypts, besides
            `source`, `step` and `run_id`: filters on them need not decrypt.
        strict: Read only objects of types that are known to be safe, and of those in `allow`. Otherwise whoever can
            write to the database can have any constructor called with any arguments.
        allow: Further types, as classes or as pairs `("module", "Name")`; `with_allowlist` adds more.
        on_unreadable: "raise" if a stored object cannot be what it was, since its class has changed or `strict` does
            not allow it; "raw" gives what is left of it, a dict as a rule. What an allowlist of LangGraph's does not
            allow (`allowed_msgpack_modules`, `LANGGRAPH_STRICT_MSGPACK`) comes as that anyway, with its warning.
        on_inexact: "store" if an object that would not come back as it was is stored as LangGraph stores it, such as
            one of a class that cannot be found by its name, since it is defined in a function; the log says so once
            for each class. "raise" makes it a `CheckpointEncodeError`.
        on_load: For state of an earlier schema: what comes in the place of stored objects, by the full name that their
            class had then, `{"my_app.state.Plan": …}`. A class: the object is made of it as it would have been of the
            old one, with the fields as they were and without its constructor. Or a function of what was stored, which
            returns what comes in its place, whatever it is. It gets what `on_unreadable="raw"` gives, to change as it
            likes: of a model, dataclass or named tuple a `dict[str, Any]` of the fields, private and other attributes,
            of an enum its value, of other classes what LangGraph gives their constructor. Objects in there are made
            already, by their own entry if they have one. If it raises, that is `CorruptCheckpoint` with thread,
            checkpoint, channel and class. It is called with each reading, from the event loop or any OS thread, until
            a run stores the channel anew. What is named need not be in `allow`.
        concurrent_writers: "reject" lets one of two runs that are on a thread at the same time win: the next checkpoint
            of the other raises `CheckpointConflict`. A run that is told to begin at an older checkpoint still forks.
            With "allow", as with LangGraph's savers, both succeed and one result is not seen again.
        compress: Whether to compress values of 1,000 bytes and more with Zstandard, unless they are encrypted: by
            default on PostgreSQL, where that saves time and room, and not in SQLite files, which get about half as
            large and take longer to write and to read. Whatever is chosen, both forms are read; `reencrypt()` gives the
            chosen one to what is there.
        on_operation: Called after each operation with an `OperationEvent`, where the operation ran: it should be quick,
            and in an event loop it must not block. `log_slow_operations(seconds)` makes one, and so does
            `otel.instrumentation()`.
        retention: What to keep: the rest is deleted now and then, by one process at a time, on an OS thread of the
            saver's own, which ends with it. See `sweep`.
    """

    def __init__(
        self,
        dialect: SqlDialect,
        driver: Driver,
        *,
        serde: SerializerProtocol | None = None,
        previous_serdes: Sequence[SerializerProtocol] = (),
        clear_metadata: Sequence[str] = (),
        strict: bool = False,
        allow: Sequence[Allowed] = (),
        on_unreadable: OnUnreadable = "raise",
        on_inexact: OnInexact = "store",
        on_load: OnLoad | None = None,
        concurrent_writers: ConcurrentWriters = "allow",
        compress: bool | None = None,
        on_operation: OnOperation | None = None,
        retention: Retention | None = None,
    ) -> None:
        if allow and not strict:
            raise ConfigError("everything is allowed without strict=True; allow=[…] goes with that")
        super().__init__(serde=strict_serde(serde, allow) if strict else serde)
        self._dialect = dialect
        self._driver = ObservedDriver(driver, dialect.system, on_operation) if on_operation else driver
        self._recent = Recent()
        self._earlier = ciphers_of(previous_serdes)
        self._clear = (*CLEAR_METADATA, *clear_metadata)
        self._on_unreadable = on_unreadable
        self._on_inexact = on_inexact
        self._on_load = dict(on_load or {})
        self._compress = dialect.compresses if compress is None else compress
        self._values: Values | None = None
        self._sweeper = Sweeper(self, retention) if retention else None
        self._concurrent_writers = concurrent_writers
        self._number = next(_NUMBERS)
        self._is_of_tenant = False
        if on_load:
            _ = self._codec  # Which refuses a serializer that would not ask.

    _given: Any = None

    @property
    def conn(self) -> Any:
        """The connection or pool that the saver was given, under the name that it has in LangGraph's savers."""
        if self._given is None:
            raise AttributeError
        return self._given

    if not TYPE_CHECKING:  # To type checkers every name would be there.

        def __getattr__(self, name: str) -> Any:
            """Say what is here instead of an attribute that LangGraph's savers have."""
            instead = f"; {_INSTEAD[name]}" if name in _INSTEAD else ""
            said = f"{type(self).__name__!r} object has no attribute {name!r}{instead}"
            raise AttributeError(said, name=name, obj=self)

    # Life

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    def setup(self, *, searchable: Sequence[str] = ()) -> None:
        """Create or migrate the tables; does nothing if they are current. Any number of processes may call it.

        Args:
            searchable: Metadata keys by which `threads` and `count_threads` find few among many, by an index for each.
        """
        keys = searchable_keys(searchable)
        self._driver.setup()
        self._index(keys)

    async def asetup(self, *, searchable: Sequence[str] = ()) -> None:
        """Create or migrate the tables; does nothing if they are current. Any number of processes may call it.

        Args:
            searchable: Metadata keys by which `threads` and `count_threads` find few among many, by an index for each.
        """
        keys = searchable_keys(searchable)
        await self._driver.asetup()
        await self._aindex(keys)

    def close(self) -> None:
        """Close what this saver opened; it cannot be used after that. A tenant's is closed with that which made it."""
        if self._is_of_tenant:
            return
        if self._sweeper:
            self._sweeper.stop()
        self._driver.close()

    async def aclose(self) -> None:
        """Close what this saver opened; it cannot be used after that. A tenant's is closed with that which made it."""
        if self._is_of_tenant:
            return
        if self._sweeper:
            await asyncio.to_thread(self._sweeper.stop)
        await self._driver.aclose()

    def stats(self) -> Mapping[str, Any]:
        """Figures of the connections at this moment: psycopg_pool's for each pool, or how many read a SQLite file."""
        return self._driver.stats()

    # Writing

    def put(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        """Store a checkpoint; returns the config that names it."""
        encoded = done(self._encoded(config, checkpoint, metadata, new_versions))
        return self._stored(self._driver.run(self._put(encoded)))

    async def aput(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        """Store a checkpoint; returns the config that names it."""
        encoded = self._encoded(config, checkpoint, metadata, new_versions)
        if isinstance(encoded, Offload):
            encoded = await self._driver.aoffload(encoded)
        return self._stored(await self._driver.arun(self._put(encoded)))

    def put_writes(
        self, config: RunnableConfig, writes: Sequence[tuple[str, Any]], task_id: str, task_path: str = ""
    ) -> None:
        """Store the outputs of a task."""
        encoded = done(encode_writes(self._codec, config, writes, task_id, task_path))
        self._driver.run(put_writes(self._dialect, *encoded))

    async def aput_writes(
        self, config: RunnableConfig, writes: Sequence[tuple[str, Any]], task_id: str, task_path: str = ""
    ) -> None:
        """Store the outputs of a task."""
        encoded = encode_writes(self._codec, config, writes, task_id, task_path)
        if isinstance(encoded, Offload):
            encoded = await self._driver.aoffload(encoded)
        await self._driver.arun(put_writes(self._dialect, *encoded))

    # Reading

    def get_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        """The checkpoint that a config names, or the newest of its namespace; None if there is none."""
        if self._concurrent_writers == "reject":
            return self._note(config, self._driver.run(get_tuple_to_write(*self._asked(config))))
        return self._driver.run(get_tuple(*self._asked(config)))

    async def aget_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        """The checkpoint that a config names, or the newest of its namespace; None if there is none."""
        if self._concurrent_writers == "reject":
            return self._note(config, await self._driver.arun(get_tuple_to_write(*self._asked(config))))
        return await self._driver.arun(get_tuple(*self._asked(config)))

    def list(
        self,
        config: RunnableConfig | None,
        *,
        filter: dict[str, Any] | None = None,
        before: RunnableConfig | None = None,
        limit: int | None = None,
    ) -> Iterator[CheckpointTuple]:
        """Checkpoints, newest first; nothing is held between two of them, so the loop may read and write."""
        texts, limit = wanted(filter), limit_number(limit, self._dialect.negative_limit)
        page = self._first_page(config, texts, before, limit)
        while page is not None:
            reply = self._driver.run(self._list_page(page, texts))
            yield from reply.tuples[:limit]
            page, limit = _next_page(page, reply, limit)

    async def alist(
        self,
        config: RunnableConfig | None,
        *,
        filter: dict[str, Any] | None = None,
        before: RunnableConfig | None = None,
        limit: int | None = None,
    ) -> AsyncIterator[CheckpointTuple]:
        """Checkpoints, newest first; nothing is held between two of them, so the loop may read and write."""
        texts, limit = wanted(filter), limit_number(limit, self._dialect.negative_limit)
        page = self._first_page(config, texts, before, limit)
        while page is not None:
            reply = await self._driver.arun(self._list_page(page, texts))
            for found in reply.tuples[:limit]:
                yield found
            page, limit = _next_page(page, reply, limit)

    def get_delta_channel_history(
        self, *, config: RunnableConfig, channels: Sequence[str]
    ) -> Mapping[str, DeltaChannelHistory]:
        """For each channel the ancestors' writes, oldest first, back to the nearest stored value."""
        return self._driver.run(self._history(config, channels))

    async def aget_delta_channel_history(
        self, *, config: RunnableConfig, channels: Sequence[str]
    ) -> Mapping[str, DeltaChannelHistory]:
        """For each channel the ancestors' writes, oldest first, back to the nearest stored value."""
        return await self._driver.arun(self._history(config, channels))

    def check_interrupt(self, config: RunnableConfig, interrupt_id: str) -> None:
        """Raise `StaleInterrupt` unless this interrupt waits in the newest checkpoint of a thread.

        To be called before `Command(resume=…)`, which answers whatever question waits by then.
        """
        check_open(self.get_tuple(newest(config)), interrupt_id)

    async def acheck_interrupt(self, config: RunnableConfig, interrupt_id: str) -> None:
        """Raise `StaleInterrupt` unless this interrupt waits in the newest checkpoint of a thread.

        To be called before `Command(resume=…)`, which answers whatever question waits by then.
        """
        check_open(await self.aget_tuple(newest(config)), interrupt_id)

    # Deleting and copying

    def delete_thread(self, thread_id: str) -> None:
        """Delete everything of a thread."""
        self._driver.run(delete_thread(self._dialect, thread_text(thread_id)))

    async def adelete_thread(self, thread_id: str) -> None:
        """Delete everything of a thread."""
        await self._driver.arun(delete_thread(self._dialect, thread_text(thread_id)))

    def delete_for_runs(self, run_ids: Sequence[str]) -> None:
        """Delete what runs stored, in all threads; what a later checkpoint still needs is hidden instead."""
        self._driver.run(delete_for_runs(self._dialect, texts("run_id", run_ids, MAX_ID)))

    async def adelete_for_runs(self, run_ids: Sequence[str]) -> None:
        """Delete what runs stored, in all threads; what a later checkpoint still needs is hidden instead."""
        await self._driver.arun(delete_for_runs(self._dialect, texts("run_id", run_ids, MAX_ID)))

    def copy_thread(self, source_thread_id: str, target_thread_id: str) -> None:
        """Copy a thread to an id that has no checkpoints of its own."""
        self._driver.run(self._copy(source_thread_id, target_thread_id))

    async def acopy_thread(self, source_thread_id: str, target_thread_id: str) -> None:
        """Copy a thread to an id that has no checkpoints of its own."""
        await self._driver.arun(self._copy(source_thread_id, target_thread_id))

    def prune(  # type: ignore[override]  # A slip in the name of a strategy is seen by type checkers, too.
        self, thread_ids: Sequence[str], *, strategy: Strategy = "keep_latest"
    ) -> None:
        """Keep the newest checkpoint of each namespace with what it needs, or ("delete") nothing."""
        for op in self._prunes(thread_ids, strategy):
            self._driver.run(op)

    async def aprune(  # type: ignore[override]  # A slip in the name of a strategy is seen by type checkers, too.
        self, thread_ids: Sequence[str], *, strategy: Strategy = "keep_latest"
    ) -> None:
        """Keep the newest checkpoint of each namespace with what it needs, or ("delete") nothing."""
        for op in self._prunes(thread_ids, strategy):
            await self._driver.arun(op)

    # Owners, tenants and keys

    def claim(self, thread_id: str, *, ttl_seconds: float = 30.0, owner: str | None = None) -> Lease:
        """Claim a thread for a block: `with saver.claim("1") as lease: graph.invoke(x, lease.config)`.

        Works with `with` and `async with`. What is stored with `lease.config` is stored only while the claim is held.

        Args:
            thread_id: The thread.
            ttl_seconds: How long the claim outlives its owner; the heart beats three times as often.
            owner: What others are told; host and process id by default.

        Raises:
            ThreadBusy: On entering, if somebody else has claimed the thread.
            ClaimLost: From a write, or at the end of the block, if somebody else has taken the thread over.
        """
        return Lease(self._driver, self._dialect, thread_id, ttl_seconds=ttl_seconds, owner=owner)

    def for_tenant(self, tenant: str) -> Self:
        """A saver on the same connections that reads and writes the rows of one tenant only.

        Thread ids of different tenants, or of none, are never the same thread. On PostgreSQL the tables' row-level
        security confines each statement a second time, unless the role owns the tables. The connections stay this
        saver's: neither `close` of the tenant's saver nor the end of its `with` closes them.
        """
        clone = copy(self)
        clone._is_of_tenant = True
        clone._dialect = self._dialect.for_tenant(tenant_text(tenant))
        return clone

    def reencrypt(
        self, *, dry_run: bool = False, progress: Callable[[int], None] = lambda rows: None, tenants: bool = True
    ) -> Renewal:
        """Store everything anew that `serde` has not encrypted: with its key, or for the first time.

        Runs may go on meanwhile. It can be stopped at any time and begun again.

        Args:
            dry_run: Only count.
            progress: Told after each page how many rows were seen.
            tenants: Whether to go through what all tenants have, too. A tenant's saver does that tenant's.
        """
        pages = reencryption(self._dialect, self._codec, dry_run=dry_run, progress=progress, tenants=tenants)
        return follow(pages, self._driver.run)

    async def areencrypt(
        self, *, dry_run: bool = False, progress: Callable[[int], None] = lambda rows: None, tenants: bool = True
    ) -> Renewal:
        """Store everything anew that `serde` has not encrypted: with its key, or for the first time.

        Runs may go on meanwhile. It can be stopped at any time and begun again.

        Args:
            dry_run: Only count.
            progress: Told after each page how many rows were seen.
            tenants: Whether to go through what all tenants have, too. A tenant's saver does that tenant's.
        """
        pages = reencryption(self._dialect, self._codec, dry_run=dry_run, progress=progress, tenants=tenants)
        return await afollow(pages, self._driver.arun)

    # Versions

    def get_next_version(self, current: str | None, channel: None) -> str:
        """The version after `current`: greater as text, and with a random end that no other branch has."""
        try:
            number = 0 if current is None else int(str(current).partition(".")[0])
        except ValueError:
            raise ConfigError(
                f"{current!r} is no channel version of LangGraph's: the thread is another framework's; a graph needs a "
                "thread of its own"
            ) from None
        # As wide as LangGraph's, so that a thread can move to another saver and go on there.
        return f"{number + 1:032d}.{secrets.randbelow(10**16):016d}"

    # What the methods share

    def _index(self, keys: Sequence[str]) -> None:
        if missing := self._driver.run(missing_searchable(self._dialect, keys)):
            self._driver.run(make_searchable(self._dialect, missing))

    async def _aindex(self, keys: Sequence[str]) -> None:
        if missing := await self._driver.arun(missing_searchable(self._dialect, keys)):
            await self._driver.arun(make_searchable(self._dialect, missing))

    @property
    def _codec(self) -> Values:
        """How values are stored and read; `serde` may be another one with each call."""
        values = self._values
        if values is None or values.serde is not self.serde:
            values = self._values = Values(
                self.serde,
                earlier=self._earlier,
                clear=self._clear,
                compress=self._compress,
                raw=self._on_unreadable == "raw",
                on_inexact=self._on_inexact,
                on_load=self._on_load,
            )
        return values

    def _encoded(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> Encoded | Offload:
        codec, key = self._codec, own_key_of(config)
        before = self._recent.of(self._stored_key(key), codec.cipher)
        return encode_checkpoint(codec, key, config, checkpoint, metadata, new_versions, before)

    def _put(self, encoded: Encoded) -> Operation[Encoded]:
        return put(self._dialect, encoded, only_newest=self._must_be_newest(encoded))

    def _stored(self, encoded: Encoded) -> RunnableConfig:
        """The config of a checkpoint that was stored."""
        thread_id, checkpoint_ns, checkpoint_id, parent_id = encoded.row[:4]
        place = self._dialect.stored_thread(thread_id), checkpoint_ns
        self._recent.note(Key(*place, checkpoint_id), self._codec.cipher, encoded.known, Key(*place, parent_id))
        return config_of(thread_id, checkpoint_ns, checkpoint_id)

    def _stored_key(self, key: Key) -> Key:
        stored = self._dialect.stored_thread(key.thread_id)
        return key if stored is key.thread_id else key._replace(thread_id=stored)

    def _asked(self, config: RunnableConfig) -> tuple[SqlDialect, Values, NextVersion, Note, Key]:
        return self._dialect, self._codec, self.get_next_version, self._recent.note, key_of(config)

    def _note(self, config: RunnableConfig, reading: Reading) -> CheckpointTuple | None:
        """Remember where a run may begin."""
        found = reading.found
        here = key_of(found.config) if found else key_of(config)
        parent_id = key_of(found.parent_config).checkpoint_id if found and found.parent_config else None
        run_id = run_of(merge_metadata(config, {}))
        note_read(self._place(here), run_id, here.checkpoint_id, parent_id, older=reading.is_older)
        return found

    def _must_be_newest(self, encoded: Encoded) -> bool:
        """Whether the parent of a checkpoint has to be the newest of its namespace."""
        row = encoded.row
        return self._concurrent_writers == "reject" and must_be_newest(self._place(row), row.run_id, row.parent_id)

    def _place(self, key: Key | CheckpointRow) -> Place:
        return self._number, self._dialect.stored_thread(key.thread_id), key.checkpoint_ns

    def _history(self, config: RunnableConfig, channels: Sequence[str]) -> Operation[Mapping[str, DeltaChannelHistory]]:
        names = texts("channel", channels, MAX_CHANNEL)
        return get_delta_channel_history(self._dialect, self._codec, key_of(config), names)

    def _first_page(
        self, config: RunnableConfig | None, filter: Mapping[str, str], before: RunnableConfig | None, limit: int | None
    ) -> Page | None:
        thread_id = checkpoint_ns = exact = None
        if config:
            thread_id, _, exact = key_of(config)
            checkpoint_ns = namespace_of(config)
        if limit == 0:
            return None
        size = PAGE if limit is None else min(limit, PAGE)
        return first_page(thread_id, checkpoint_ns, exact, before_id(before), filter, size)

    def _list_page(self, page: Page, filter: Mapping[str, str]) -> Operation[PageReply]:
        return list_page(self._dialect, self._codec, self.get_next_version, page, filter)

    def _copy(self, source_thread_id: str, target_thread_id: str) -> Operation[None]:
        source, target = thread_text(source_thread_id), thread_text(target_thread_id)
        check_kind("copy_thread", source, target)
        return copy_thread(self._dialect, source, target)

    def _prunes(self, thread_ids: Sequence[str], strategy: Strategy) -> Sequence[Operation[None]]:
        """An operation, and so a transaction, a thread."""
        check_strategy(strategy)
        ids = list(map(thread_text, texts("thread_id", thread_ids, MAX_THREAD_ID)))
        if strategy == "keep_latest":
            return [prune_thread(self._dialect, thread_id) for thread_id in ids]
        return [delete_thread(self._dialect, thread_id) for thread_id in ids]


def _next_page(page: Page, reply: PageReply, limit: int | None) -> tuple[Page | None, int | None]:
    """The page to ask for after a reply, and what is left of the limit."""
    if limit is not None:
        limit -= len(reply.tuples)
        if limit <= 0:
            return None, limit
    if reply.after is None:
        return None, limit
    # Where the database cannot decide a filter, a page holds fewer than were asked for, and the next one is a full one.
    decided = len(reply.tuples) == page.limit
    return reply.after._replace(limit=min(limit, PAGE) if limit is not None and decided else PAGE), limit
