"""LangGraph's checkpoint methods, each in a sync and an async version.

This module contains no SQL and opens no connection. `threads.py` has the methods that LangGraph does not
define, `lifecycle.py` opening, closing, copies and tenants.

Each method encodes the caller's new values before the first `await` and before a worker takes over. The graph continues
to run and may change these objects.
"""

from __future__ import annotations

import os
import random
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from functools import partial
from itertools import count
from typing import Any, cast, get_args

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

from langgraph_checkpoint_custom.blob_cache import BlobCache
from langgraph_checkpoint_custom.encoding.allowlist import Allowed, strict_serde
from langgraph_checkpoint_custom.encoding.chunks import KnownBlobs
from langgraph_checkpoint_custom.encoding.encode import encode_checkpoint, encode_writes
from langgraph_checkpoint_custom.encoding.encoded import Encoded
from langgraph_checkpoint_custom.encoding.metadata import check_excluded, merge_metadata
from langgraph_checkpoint_custom.encoding.rows import run_of
from langgraph_checkpoint_custom.encoding.serde import OnInexact, OnLoad, OnUnreadable
from langgraph_checkpoint_custom.encoding.values import ValueCodec
from langgraph_checkpoint_custom.engine.operation import (
    OFFLOAD_BYTES,
    Driver,
    Form,
    Offload,
    Operation,
    Operations,
    Row,
)
from langgraph_checkpoint_custom.errors import ConfigError
from langgraph_checkpoint_custom.model.filter import Condition, wanted
from langgraph_checkpoint_custom.model.keys import (
    MAX_ID,
    MAX_NAME,
    MAX_THREAD_ID,
    CheckpointRow,
    Key,
    Page,
    check_kind,
    config_of,
    key_of,
    limit_number,
    texts,
    thread_text,
)
from langgraph_checkpoint_custom.observed import ObservedDriver, OnOperation
from langgraph_checkpoint_custom.operations.copies import copy_thread
from langgraph_checkpoint_custom.operations.delete import delete_for_runs, delete_thread, prune_thread, threads_of_runs
from langgraph_checkpoint_custom.operations.delta_history import get_delta_channel_history
from langgraph_checkpoint_custom.operations.pages import asked_page, at_one_time, page_below
from langgraph_checkpoint_custom.operations.read import (
    PageReply,
    Reading,
    Remember,
    build_tuple,
    build_tuples,
    get_tuple,
    get_tuple_to_write,
    list_page,
    size_of,
)
from langgraph_checkpoint_custom.operations.write import put, put_on_hidden, put_writes
from langgraph_checkpoint_custom.operations.writers import ConcurrentWriters, Scope, must_be_newest, note_read
from langgraph_checkpoint_custom.options import Strategy
from langgraph_checkpoint_custom.pairs import shared_docstrings
from langgraph_checkpoint_custom.retention import Retention, Sweeper
from langgraph_checkpoint_custom.sql.dialect import SqlDialect
from langgraph_checkpoint_custom.threads import ThreadMethods

# Checkpoints that `list` reads at a time and holds in memory.
PAGE = 50
_NUMBERS = count()
# Own random numbers: an application may seed those of the module `random`, and then two branches could get the same
# version. `secrets` would give the GIL away with each number, and the graph would wait for other OS threads.
_RANDOM = random.Random()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_RANDOM.seed)

# Metadata keys that stay readable with an encrypting serializer: LangGraph sets their values, and the id is a column
# anyway.
PLAINTEXT_METADATA = ("source", "step", "run_id")


@shared_docstrings
class CheckpointSaver(ThreadMethods, BaseCheckpointSaver[str]):
    """The methods of every saver. To create a saver, use `SqliteSaver` or `PostgresSaver`.

    Every method has a sync and an async version. You can call both from any OS thread and any event loop. Shallow
    copies of a saver share its driver and connections; they differ only in `serde` or in the tenant. LangGraph makes
    such copies.

    Args:
        dialect: The SQL statements of the database.
        driver: The object that runs the statements.
        serde: The serializer; LangGraph's `JsonPlusSerializer` by default. With LangGraph's `EncryptedSerializer` the
            saver encrypts every value and binds it to its location in the database. Reading a value that is not
            encrypted is then an error.
        previous_serdes: `EncryptedSerializer`s with other keys, which the saver also uses for reading. Add a
            `JsonPlusSerializer` if some rows may not be encrypted yet. You need them until `reencrypt()` has stored all
            rows again with `serde`.
        plaintext_metadata: Metadata keys that stay readable in the database although the serializer encrypts, in
            addition to `source`, `step` and `run_id`. Filters on these keys do not have to decrypt.
        exclude_metadata: Metadata keys that are not stored. LangGraph makes metadata of each text and number in
            `configurable` and `metadata` of a config, also of a token. Without encryption, the log names once each key
            that looks like a secret.
        strict: Whether to read only objects of types that are known to be safe, of those with a registered codec, and
            of the types in `allow`. It restricts the `JsonPlusSerializer` that you pass as `serde`, also the one inside
            an `EncryptedSerializer`. Without it, anyone who can write to the database can have any constructor called
            with any arguments.
        allow: Further types for `strict`, as classes or as pairs `("module", "Name")`; `with_allowlist` adds more.
        on_unreadable: What to do with a stored object that cannot be restored, because its class has changed or because
            `strict` does not allow it. "raise" raises `CorruptCheckpoint`. "raw" returns the stored data of the object,
            usually a dict. A type that LangGraph's own allowlists reject (`allowed_msgpack_modules`,
            `LANGGRAPH_STRICT_MSGPACK`) always comes back as its stored data, with LangGraph's warning.
        on_inexact: What to do with an object that would not come back as it was, for example because its class is
            defined inside a function and cannot be found by name. "store" stores it as LangGraph does and logs this
            once for each class. "raise" raises `CheckpointEncodeError`. Not all such objects are noticed, see
            `docs/guarantees.md`.
        on_load: Replacements for stored objects of earlier versions of your code, by the full name that their class had
            when they were stored: `{"my_app.state.Plan": …}`. A class as replacement: the saver restores the object as
            an instance of that class, with the stored fields and without calling the constructor. A function as
            replacement: the saver calls it with the stored data, and its return value replaces the object.
            The stored data is what `on_unreadable="raw"` returns, and the function may change it: a `dict[str, Any]` of
            the fields, private and other attributes for a model, dataclass or named tuple; the value for an enum; what
            LangGraph passes to the constructor for other classes. Objects inside it are restored first, by their own
            entry if they have one. An exception in the function raises `CorruptCheckpoint` with thread, checkpoint,
            channel and class. The function runs each time the value is read, in an event loop or on any OS thread,
            until a run stores the channel again. A class that is named here does not have to be in `allow`.
        concurrent_writers: What happens if two runs write to one thread at the same time. "reject": one of them wins,
            and the next checkpoint of the other raises `CheckpointConflict`; a run that you start from an older
            checkpoint still forks. "allow", as in LangGraph's savers: both succeed, and the older result is only in
            the history.
        compress: Whether to compress values of 1,600 bytes or more with Zstandard, unless they are encrypted. The
            default is True on PostgreSQL, where it saves time and space, and False on SQLite, where it makes files
            about half as large but reading and writing slower. Both forms are read with either setting. To convert
            stored values to the current setting, call `reencrypt()`.
        chunk_cache_bytes: How many bytes of large values, of 16 KB or more, and of the versions of others, the saver
            and its copies keep in memory, however many threads there are. The next version of a large value then shares
            its chunks.
        on_operation: A function that is called with an `OperationEvent` after each operation, where the operation ran.
            It should be quick, and must not block an event loop. `otel.instrumentation()` returns such a function.
        retention: What to keep. The saver deletes the rest at regular intervals, on an OS thread of its own that ends
            with the saver; of many processes, one sweeps at a time. See `sweep`.

    Raises:
        ConfigError: `allow` is given without `strict=True`, or `on_load` or `strict` with a serializer that would not
            use it, or `exclude_metadata` has a key that is needed, such as `step`.
    """

    def __init__(
        self,
        dialect: SqlDialect,
        driver: Driver,
        *,
        serde: SerializerProtocol | None = None,
        previous_serdes: Sequence[SerializerProtocol] = (),
        plaintext_metadata: Sequence[str] = (),
        exclude_metadata: Sequence[str] = (),
        strict: bool = False,
        allow: Sequence[Allowed] = (),
        on_unreadable: OnUnreadable = "raise",
        on_inexact: OnInexact = "store",
        on_load: OnLoad | None = None,
        concurrent_writers: ConcurrentWriters = "allow",
        compress: bool | None = None,
        chunk_cache_bytes: int = 16_000_000,
        on_operation: OnOperation | None = None,
        retention: Retention | None = None,
    ) -> None:
        if allow and not strict:
            raise ConfigError("without strict=True everything is allowed; allow=[…] needs strict=True")
        check_excluded(exclude_metadata)
        super().__init__(serde=strict_serde(serde or self.serde, allow) if strict else serde)
        self._dialect = dialect
        self._driver: Driver = driver
        if on_operation:
            self._driver = cast("Driver", ObservedDriver(driver, dialect.system, on_operation))
        self._blob_cache = BlobCache(chunk_cache_bytes)
        self._make_codec = partial(
            ValueCodec,
            previous=tuple(previous_serdes),
            clear=(*PLAINTEXT_METADATA, *plaintext_metadata),
            excluded=exclude_metadata,
            compress=dialect.compresses if compress is None else compress,
            raw=on_unreadable == "raw",
            on_inexact=on_inexact,
            on_load=dict(on_load or {}),
        )
        self._values = self._make_codec(self.serde)
        self._sweeper = Sweeper(self, retention) if retention else None
        self._said = set()
        self._concurrent_writers = concurrent_writers
        self._number = next(_NUMBERS)

    # Writing

    def put(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        """Store a checkpoint.

        Args:
            config: The thread, the namespace and the id of the parent checkpoint; without an id there is no parent.
            checkpoint: The checkpoint.
            metadata: Its metadata.
            new_versions: The channels whose values have changed since the parent, with their new versions.

        Returns:
            The config that names the stored checkpoint.

        Raises:
            CheckpointEncodeError: A value cannot be serialized; nothing was stored.
            CheckpointConflict: With `concurrent_writers="reject"`, another run has stored a newer checkpoint.
            CheckpointNotFound: A `DeltaChannel` needs the parent or an older ancestor, and a prune has removed it.
            ClaimLost: The config carries a claim that is no longer held.
            NameTooLong: PostgreSQL cannot have the names in an index; nothing was stored.

        Idempotent: by (thread_id, checkpoint_ns, checkpoint_id); storing again replaces.
        Source: BaseCheckpointSaver.put.
        """
        encoded = self._encode(config, checkpoint, metadata, new_versions)
        if isinstance(encoded, Offload):
            encoded = encoded.work()
        if statement := self._one_statement(encoded):
            reply = self._driver.send(*statement)
            if reply or not statement[0].confirms:  # Without a row, the parent may be missing or locked.
                return self._remember_stored(encoded)
        if stored := self._driver.run(self._put(encoded)):
            return self._remember_stored(stored)
        return self._remember_stored(self._driver.run(self._put_on_hidden(encoded)))

    async def aput(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        """Async version of `put`."""
        encoded = self._encode(config, checkpoint, metadata, new_versions)
        if isinstance(encoded, Offload):
            encoded = await self._driver.aoffload(encoded)
        if statement := self._one_statement(encoded):
            reply = await self._driver.asend(*statement)
            if reply or not statement[0].confirms:  # Without a row, the parent may be missing or locked.
                return self._remember_stored(encoded)
        if stored := await self._driver.arun(self._put(encoded)):
            return self._remember_stored(stored)
        return self._remember_stored(await self._driver.arun(self._put_on_hidden(encoded)))

    def put_writes(
        self, config: RunnableConfig, writes: Sequence[tuple[str, Any]], task_id: str, task_path: str = ""
    ) -> None:
        """Store the outputs of a task as pending writes of a checkpoint.

        Args:
            config: The thread, the namespace and the id of the checkpoint that the task started from.
            writes: Pairs of channel and value.
            task_id: The id of the task.
            task_path: The path of the task, which decides the order of the writes of several tasks.

        Raises:
            CheckpointEncodeError: A value cannot be serialized; nothing was stored.
            ConfigError: The config has no checkpoint id.
            ClaimLost: The config carries a claim that is no longer held.
            NameTooLong: PostgreSQL cannot have the names in an index; nothing was stored.

        Regular writes keep the first value, special ones (errors, interrupts, resumes, scheduled tasks) the last.

        Idempotent: by (thread_id, checkpoint_ns, checkpoint_id, task_id, idx).
        Source: BaseCheckpointSaver.put_writes; WRITES_IDX_MAP; writes_sort_key.
        """
        encoded = encode_writes(self._codec, config, writes, task_id, task_path)
        if isinstance(encoded, Offload):
            encoded = encoded.work()
        key, rows, claim = encoded
        dialect = self._dialect
        form = dialect.writes_form(rows)
        if form and claim is None and dialect.sends_forms:
            self._driver.send(form, dialect.writes_params(key, rows))
        else:
            self._driver.run(put_writes(dialect, key, rows, claim))

    async def aput_writes(
        self, config: RunnableConfig, writes: Sequence[tuple[str, Any]], task_id: str, task_path: str = ""
    ) -> None:
        """Async version of `put_writes`."""
        encoded = encode_writes(self._codec, config, writes, task_id, task_path)
        if isinstance(encoded, Offload):
            encoded = await self._driver.aoffload(encoded)
        key, rows, claim = encoded
        form = self._dialect.writes_form(rows)
        if form and claim is None and self._dialect.sends_forms:
            await self._driver.asend(form, self._dialect.writes_params(key, rows))
        else:
            await self._driver.arun(put_writes(self._dialect, key, rows, claim))

    # Reading

    def get_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        """Return a checkpoint with its pending writes.

        Args:
            config: The thread; the namespace, by default the root graph's; the checkpoint id, by default the newest.

        Returns:
            The checkpoint, or None if there is none.

        Raises:
            CorruptCheckpoint: A stored value cannot be restored.

        Source: BaseCheckpointSaver.get_tuple.
        """
        if self._concurrent_writers == "reject":
            return self._note_start(config, self._driver.run(get_tuple_to_write(*self._read_arguments(config))))
        dialect = self._dialect
        if dialect.sends_forms:
            return self._build(self._driver.send(*dialect.read_form(key_of(config))))
        return self._driver.run(get_tuple(*self._read_arguments(config)))

    async def aget_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        """Async version of `get_tuple`."""
        if self._concurrent_writers == "reject":
            return self._note_start(config, await self._driver.arun(get_tuple_to_write(*self._read_arguments(config))))
        dialect = self._dialect
        if dialect.sends_forms:
            rows = await self._driver.asend(*dialect.read_form(key_of(config)))
            if (size := size_of(rows)) < OFFLOAD_BYTES:
                return self._build(rows)
            found: CheckpointTuple | None = await self._driver.aoffload(Offload(size, partial(self._build, rows)))
            return found
        return await self._driver.arun(get_tuple(*self._read_arguments(config)))

    def list(
        self,
        config: RunnableConfig | None,
        *,
        filter: dict[str, Any] | None = None,
        before: RunnableConfig | None = None,
        limit: int | None = None,
    ) -> Iterator[CheckpointTuple]:
        """Iterate over checkpoints, newest first.

        The saver reads pages of 50 checkpoints. Between two checkpoints it holds no connection, lock or transaction, so
        the loop may read and write.

        Args:
            config: The thread, and its namespace and checkpoint id if the config has them. None means all threads.
            filter: Metadata keys and the values that they must have, compared as JSON; None also matches a missing key.
                On PostgreSQL a dict or list matches a value that contains it. Instead of a value, a dict of operators:
                `$eq`, `$ne`, `$in`, `$nin`, `$gt`, `$gte`, `$lt`, `$lte`, `$exists`.
            before: The config of a checkpoint; only checkpoints with lower ids are returned.
            limit: The largest number of checkpoints; None means all.

        Raises:
            ConfigError: The filter cannot be used, for example because of an unknown operator.
            CorruptCheckpoint: A stored value cannot be restored.

        Source: BaseCheckpointSaver.list.
        """
        conditions, limit = wanted(filter), limit_number(limit, self._dialect.negative_limit)
        page, dialect = asked_page(config, before, limit, PAGE), self._dialect
        while page and page.checkpoint_ns is not None and not conditions and dialect.sends_forms:
            found = self._build_page(page, self._driver.send(*dialect.page_form(page)))
            page, limit = page_below(page, found, limit, PAGE)  # Now: the caller may change what it gets.
            yield from found
            del found
        if page:
            yield from self._pages(lambda page: self._list_page(page, conditions), page, limit, PAGE)

    async def alist(
        self,
        config: RunnableConfig | None,
        *,
        filter: dict[str, Any] | None = None,
        before: RunnableConfig | None = None,
        limit: int | None = None,
    ) -> AsyncIterator[CheckpointTuple]:
        """Async version of `list`."""
        conditions, limit = wanted(filter), limit_number(limit, self._dialect.negative_limit)
        page, dialect = asked_page(config, before, limit, PAGE), self._dialect
        while page and page.checkpoint_ns is not None and not conditions and dialect.sends_forms:
            rows = await self._driver.asend(*dialect.page_form(page))
            found: Sequence[CheckpointTuple]
            if (size := size_of(rows)) < OFFLOAD_BYTES:
                found = self._build_page(page, rows)
            else:
                found = await self._driver.aoffload(Offload(size, partial(self._build_page, page, rows)))
            page, limit = page_below(page, found, limit, PAGE)
            del rows
            for each in found:
                yield each
            del found
        if page:
            async for each in self._apages(lambda page: self._list_page(page, conditions), page, limit, PAGE):
                yield each

    def get_delta_channel_history(
        self, *, config: RunnableConfig, channels: Sequence[str]
    ) -> Mapping[str, DeltaChannelHistory]:
        """Return what `DeltaChannel`s are rebuilt from: the writes of a checkpoint's ancestors.

        Args:
            config: The checkpoint.
            channels: The names of the channels.

        Returns:
            For each channel, the writes of the ancestors, oldest first, back to the nearest stored value, which is the
            `seed`.

        Raises:
            CheckpointNotFound: A channel needs an ancestor that was pruned or deleted.
            CorruptCheckpoint: A stored value cannot be restored.

        Source: BaseCheckpointSaver.get_delta_channel_history.
        """
        return self._driver.run(self._history(config, channels))

    async def aget_delta_channel_history(
        self, *, config: RunnableConfig, channels: Sequence[str]
    ) -> Mapping[str, DeltaChannelHistory]:
        """Async version of `get_delta_channel_history`."""
        return await self._driver.arun(self._history(config, channels))

    # Deleting and copying

    def delete_thread(self, thread_id: str) -> None:
        """Delete all checkpoints, values, writes and labels of a thread.

        Idempotent: yes.
        Source: BaseCheckpointSaver.delete_thread.
        """
        self._run(delete_thread(self._dialect, thread_text(thread_id)))

    async def adelete_thread(self, thread_id: str) -> None:
        """Async version of `delete_thread`."""
        await self._arun(delete_thread(self._dialect, thread_text(thread_id)))

    def delete_for_runs(self, run_ids: Sequence[str]) -> None:
        """Delete the checkpoints and writes of runs, in all threads.

        A checkpoint that a later one still needs is hidden instead. Each thread is one transaction.

        Args:
            run_ids: The ids of the runs.

        Idempotent: yes.
        Source: BaseCheckpointSaver.delete_for_runs.
        """
        self._run(self._delete_for_runs(run_ids))

    async def adelete_for_runs(self, run_ids: Sequence[str]) -> None:
        """Async version of `delete_for_runs`."""
        await self._arun(self._delete_for_runs(run_ids))

    def copy_thread(self, source_thread_id: str, target_thread_id: str) -> None:
        """Copy a thread with its whole history to another id, inside the database.

        Args:
            source_thread_id: The thread to copy.
            target_thread_id: The id of the copy.

        Raises:
            ThreadExists: The target has checkpoints or writes of its own; nothing was copied.

        Idempotent: yes.
        Source: BaseCheckpointSaver.copy_thread.
        """
        self._run(self._copy(source_thread_id, target_thread_id))

    async def acopy_thread(self, source_thread_id: str, target_thread_id: str) -> None:
        """Async version of `copy_thread`."""
        await self._arun(self._copy(source_thread_id, target_thread_id))

    def prune(  # type: ignore[override]  # Type checkers find a misspelled strategy.
        self, thread_ids: Sequence[str], *, strategy: Strategy = "keep_latest"
    ) -> None:
        """Delete old checkpoints of threads.

        Each thread is one transaction. With "keep_latest", checkpoints with a label stay, and so do those that a
        remaining one still needs, hidden.

        Args:
            thread_ids: The threads.
            strategy: "keep_latest" keeps the newest checkpoint of each namespace. "delete" deletes the threads;
                "delete_all" is another name for it.

        Idempotent: yes.
        Source: BaseCheckpointSaver.prune.
        """
        self._run(self._prune(thread_ids, strategy))

    async def aprune(  # type: ignore[override]  # Type checkers find a misspelled strategy.
        self, thread_ids: Sequence[str], *, strategy: Strategy = "keep_latest"
    ) -> None:
        """Async version of `prune`."""
        await self._arun(self._prune(thread_ids, strategy))

    # Versions

    def get_next_version(self, current: str | None, channel: None) -> str:
        """Return the channel version after `current`.

        It sorts after `current` as text and ends in random digits, so that no other branch has the same version.

        Args:
            current: The current version, or None for the first one.
            channel: Not used; LangGraph passes None.

        Raises:
            ConfigError: `current` is not a version of LangGraph's, because the thread belongs to another framework.

        Source: BaseCheckpointSaver.get_next_version.
        """
        try:
            number = 0 if current is None else int(str(current).partition(".")[0])
        except ValueError:
            raise ConfigError(
                f"{current!r} is not a channel version of LangGraph: the thread belongs to another framework; a graph "
                "needs a thread of its own"
            ) from None
        # As wide as LangGraph's, so that a thread can move to another saver and continue there.
        return f"{number + 1:032d}.{int(_RANDOM.random() * 10**16):016d}"

    # Shared by the methods

    @property
    def _codec(self) -> ValueCodec:
        """Stores and restores values; a new one is made if `serde` has changed since the last call."""
        values = self._values
        if values.serde is not self.serde:
            values = self._values = self._make_codec(self.serde)
        return values

    def _encode(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> Encoded | Offload:
        """Encode a checkpoint."""
        codec, key = self._codec, key_of(config)
        before = self._blob_cache.of(self._stored_key(key), codec.cipher) if self._blob_cache.entries else None
        return encode_checkpoint(codec, key, config, checkpoint, metadata, new_versions, before)

    def _one_statement(self, encoded: Encoded) -> tuple[Form, Sequence[Any]] | None:
        """Return what may store a checkpoint by itself, and its parameters; None if that takes an operation.

        The cases are in CONTRIBUTING, "Which statement stores a checkpoint".
        """
        row, dialect = encoded.row, self._dialect
        if encoded.claim or encoded.parent is None or self._concurrent_writers != "allow" or not dialect.sends_forms:
            return None
        if encoded.replayed or encoded.blobs or encoded.references:
            return dialect.put_on_parent_form(encoded) if row.parent_id else None
        if row.parent_id or row.checkpoint_ns or dialect.first_put_is_complete:
            return dialect.put_form(row)
        return None

    def _build(self, rows: Sequence[Row]) -> CheckpointTuple | None:
        """Build the checkpoint that a driver has read."""
        return build_tuple(self._dialect, self._codec, self._remember, rows)

    def _build_page(self, page: Page, rows: Sequence[Row]) -> Sequence[CheckpointTuple]:
        """Build the checkpoints of a page that a driver has read."""
        if page.limit == 1:
            found = build_tuple(self._dialect, self._codec, None, rows)
            return [found] if found else ()
        return build_tuples(self._dialect, self._codec, rows, ())

    def _put(self, encoded: Encoded) -> Operation[Encoded | None]:
        return put(self._dialect, encoded, only_newest=self._must_be_newest(encoded.row))

    def _put_on_hidden(self, encoded: Encoded) -> Operation[Encoded]:
        return put_on_hidden(self._dialect, encoded, only_newest=self._must_be_newest(encoded.row))

    def _remember_stored(self, encoded: Encoded) -> RunnableConfig:
        """Remember the blobs of a stored checkpoint; return the config that names it."""
        thread_id, checkpoint_ns, checkpoint_id, parent_id, *_ = encoded.row
        if encoded.known or self._blob_cache.entries:
            self._remember(thread_id, checkpoint_ns, checkpoint_id, encoded.known, parent_id)
        return config_of(thread_id, checkpoint_ns, checkpoint_id)

    def _remember(
        self,
        thread_id: str,
        checkpoint_ns: str,
        checkpoint_id: str,
        known: KnownBlobs | None,
        parent_id: str | None = None,
    ) -> None:
        """Remember the blobs of a checkpoint that was stored or read; None means that it has none."""
        if known or self._blob_cache.entries:
            here = Key(self._dialect.stored_thread(thread_id), checkpoint_ns, checkpoint_id)
            self._blob_cache.remember(here, self._codec.cipher, known, parent_id)

    def _stored_key(self, key: Key) -> Key:
        stored = self._dialect.stored_thread(key.thread_id)
        return key if stored is key.thread_id else key._replace(thread_id=stored)

    def _read_arguments(self, config: RunnableConfig) -> tuple[SqlDialect, ValueCodec, Remember, Key]:
        return self._dialect, self._codec, self._remember, key_of(config)

    def _note_start(self, config: RunnableConfig, reading: Reading) -> CheckpointTuple | None:
        """Remember the checkpoint that a run may start from."""
        found = reading.found
        here = key_of(found.config) if found else key_of(config)
        parent_id = key_of(found.parent_config).checkpoint_id if found and found.parent_config else None
        run_id = run_of(merge_metadata(config, {}))
        note_read(self._scope_of(here), run_id, here.checkpoint_id, parent_id, older=reading.is_older)
        return found

    def _must_be_newest(self, row: CheckpointRow) -> bool:
        """Whether the checkpoint may be stored only if its parent is the newest of its namespace."""
        return self._concurrent_writers == "reject" and must_be_newest(self._scope_of(row), row.run_id, row.parent_id)

    def _scope_of(self, key: Key | CheckpointRow) -> Scope:
        return self._number, self._dialect.stored_thread(key.thread_id), key.checkpoint_ns

    def _history(self, config: RunnableConfig, channels: Sequence[str]) -> Operation[Mapping[str, DeltaChannelHistory]]:
        names = texts("channel", channels, MAX_NAME)
        return get_delta_channel_history(self._dialect, self._codec, key_of(config), names)

    def _list_page(self, page: Page, conditions: Sequence[Condition]) -> Operation[PageReply]:
        found = list_page(self._dialect, self._codec, page, conditions)
        found.all_servers = page.thread_id is None
        return at_one_time(found, page)

    def _delete_for_runs(self, run_ids: Sequence[str]) -> Operations[None]:
        ids = texts("run_id", run_ids, MAX_ID)
        for thread_id in (yield threads_of_runs(self._dialect, ids)):
            yield delete_for_runs(self._dialect, thread_id, ids)

    def _copy(self, source_thread_id: str, target_thread_id: str) -> Operation[None]:
        source, target = thread_text(source_thread_id), thread_text(target_thread_id)
        check_kind("copy_thread", source, target)
        return copy_thread(self._dialect, source, target)

    def _prune(self, thread_ids: Sequence[str], strategy: Strategy) -> Operations[None]:
        if strategy not in get_args(Strategy):
            raise ConfigError(f"unknown prune strategy {strategy!r}; use 'keep_latest' or 'delete'")
        prune_or_delete = prune_thread if strategy == "keep_latest" else delete_thread
        for thread_id in list(map(thread_text, texts("thread_id", thread_ids, MAX_THREAD_ID))):
            yield prune_or_delete(self._dialect, thread_id)
