"""What a saver has beyond LangGraph's methods, in sync/async pairs; no SQL and no connection is known here.

Threads and their runs without reading values; the inbox; labels; forks; deleting one checkpoint, or
all behind one.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Iterator, Mapping
from typing import Any, TypeVar

from langchain_core.runnables import RunnableConfig

from langgraph_checkpoint_custom.encoding.values import Values
from langgraph_checkpoint_custom.engine.operation import Driver, Operation, afollow, follow
from langgraph_checkpoint_custom.errors import ConfigError
from langgraph_checkpoint_custom.model.filter import narrowing, wanted
from langgraph_checkpoint_custom.model.keys import (
    AFTER_ALL,
    MAX_ID,
    Key,
    Page,
    before_id,
    key_of,
    label_text,
    limit_number,
    namespace_of,
    prefix_text,
    text,
    thread_text,
)
from langgraph_checkpoint_custom.model.namespaced_ids import check_kind
from langgraph_checkpoint_custom.model.records import (
    RECORDS,
    CheckpointRecord,
    RunRecord,
    ThreadPage,
    ThreadRecord,
    WaitingThread,
)
from langgraph_checkpoint_custom.operations.copies import fork_thread
from langgraph_checkpoint_custom.operations.delete import delete_checkpoint, rollback
from langgraph_checkpoint_custom.operations.interrupts import waiting_threads
from langgraph_checkpoint_custom.operations.labels import label, labelled, labels_of_thread, unlabel
from langgraph_checkpoint_custom.operations.list_threads import (
    count_threads,
    history_page,
    runs_of_thread,
    tenants,
    thread_exists,
    threads_page,
    write_places,
)
from langgraph_checkpoint_custom.retention import Retention, Swept, now, sweep_operations
from langgraph_checkpoint_custom.sql.dialect import SqlDialect, first_page


class ThreadMethods(ABC):
    """The methods of `CheckpointSaver` that LangGraph does not know."""

    _dialect: SqlDialect
    _driver: Driver

    @property
    @abstractmethod
    def _codec(self) -> Values: ...

    # Keeping the store small

    def sweep(self, keep: Retention, *, dry_run: bool = False, tenants: bool = True) -> Swept:
        """Delete what a retention does not keep, thread by thread; runs may go on meanwhile.

        What stays resumes as before: `DeltaChannel`s, pending interrupts, the memory of subgraphs. Checkpoints with a
        label stay, and so do their threads.

        Args:
            keep: What to keep.
            dry_run: Only count. Of namespaces of subgraph calls, and of bytes that `keep_last` frees, too little is
                counted then, since only a prune finds out.
            tenants: Whether to sweep the threads of all tenants, too, each with a `max_bytes` of its own. A tenant's
                saver sweeps that tenant's.
        """
        operations = sweep_operations(self._dialect, self._codec, keep, now(), dry_run=dry_run, tenants=tenants)
        return follow(operations, self._driver.run)

    async def asweep(self, keep: Retention, *, dry_run: bool = False, tenants: bool = True) -> Swept:
        """Delete what a retention does not keep, thread by thread; runs may go on meanwhile.

        What stays resumes as before: `DeltaChannel`s, pending interrupts, the memory of subgraphs. Checkpoints with a
        label stay, and so do their threads.

        Args:
            keep: What to keep.
            dry_run: Only count. Of namespaces of subgraph calls, and of bytes that `keep_last` frees, too little is
                counted then, since only a prune finds out.
            tenants: Whether to sweep the threads of all tenants, too, each with a `max_bytes` of its own. A tenant's
                saver sweeps that tenant's.
        """
        operations = sweep_operations(self._dialect, self._codec, keep, now(), dry_run=dry_run, tenants=tenants)
        return await afollow(operations, self._driver.arun)

    # Threads, runs and checkpoints without values

    def threads(
        self,
        *,
        prefix: str = "",
        filter: dict[str, Any] | None = None,
        before: ThreadRecord | RunnableConfig | None = None,
        limit: int | None = None,
    ) -> Iterator[ThreadRecord]:
        """Threads with their newest checkpoints, the newest first; no value is read, and nothing held between two.

        A thread that is written to meanwhile goes to the top, and so may not come any more.

        Args:
            prefix: What their ids begin with.
            filter: What the metadata of the newest checkpoint has to hold, as in `list`.
            before: The last thread that was seen, or a config: only threads whose newest checkpoint is older.
            limit: How many at most.
        """
        texts, limit = wanted(filter), limit_number(limit, self._dialect.negative_limit)
        page = _first_threads(prefix, before, limit)
        while page is not None:
            reply = self._driver.run(threads_page(self._dialect, self._codec, page, texts))
            yield from reply.threads[:limit]
            page, limit = _next(reply.after, len(reply.threads), limit)

    async def athreads(
        self,
        *,
        prefix: str = "",
        filter: dict[str, Any] | None = None,
        before: ThreadRecord | RunnableConfig | None = None,
        limit: int | None = None,
    ) -> AsyncIterator[ThreadRecord]:
        """Threads with their newest checkpoints, the newest first; no value is read, and nothing held between two.

        A thread that is written to meanwhile goes to the top, and so may not come any more.

        Args:
            prefix: What their ids begin with.
            filter: What the metadata of the newest checkpoint has to hold, as in `list`.
            before: The last thread that was seen, or a config: only threads whose newest checkpoint is older.
            limit: How many at most.
        """
        texts, limit = wanted(filter), limit_number(limit, self._dialect.negative_limit)
        page = _first_threads(prefix, before, limit)
        while page is not None:
            reply = await self._driver.arun(threads_page(self._dialect, self._codec, page, texts))
            for found in reply.threads[:limit]:
                yield found
            page, limit = _next(reply.after, len(reply.threads), limit)

    def tenants(self) -> list[str]:
        """The names of the tenants that have threads, for `for_tenant`, as far as the database's role sees them."""
        return self._driver.run(tenants(self._dialect))

    async def atenants(self) -> list[str]:
        """The names of the tenants that have threads, for `for_tenant`, as far as the database's role sees them."""
        return await self._driver.arun(tenants(self._dialect))

    def count_threads(self, *, prefix: str = "", filter: dict[str, Any] | None = None) -> int:
        """The number of threads, or of those that `threads` would give with a prefix and a filter."""
        texts = wanted(filter)
        if not self._is_decided_there(texts):
            return sum(1 for _ in self.threads(prefix=prefix, filter=filter))
        return self._driver.run(count_threads(self._dialect, self._codec, prefix_text(prefix), texts))

    async def acount_threads(self, *, prefix: str = "", filter: dict[str, Any] | None = None) -> int:
        """The number of threads, or of those that `threads` would give with a prefix and a filter."""
        texts = wanted(filter)
        if not self._is_decided_there(texts):
            return len([one async for one in self.athreads(prefix=prefix, filter=filter)])
        return await self._driver.arun(count_threads(self._dialect, self._codec, prefix_text(prefix), texts))

    def thread_exists(self, thread_id: str) -> bool:
        """Whether a thread has a checkpoint."""
        return self._driver.run(thread_exists(self._dialect, thread_text(thread_id)))

    async def athread_exists(self, thread_id: str) -> bool:
        """Whether a thread has a checkpoint."""
        return await self._driver.arun(thread_exists(self._dialect, thread_text(thread_id)))

    def runs(self, thread_id: str) -> list[RunRecord]:
        """The runs that have stored checkpoints of a thread's root graph, the one that began last first."""
        return self._driver.run(runs_of_thread(self._dialect, self._codec, thread_text(thread_id)))

    async def aruns(self, thread_id: str) -> list[RunRecord]:
        """The runs that have stored checkpoints of a thread's root graph, the one that began last first."""
        return await self._driver.arun(runs_of_thread(self._dialect, self._codec, thread_text(thread_id)))

    def history(
        self,
        config: RunnableConfig | None,
        *,
        filter: dict[str, Any] | None = None,
        before: RunnableConfig | None = None,
        limit: int | None = None,
    ) -> Iterator[CheckpointRecord]:
        """What `list` gives, as records without values and writes."""
        texts, limit = wanted(filter), limit_number(limit, self._dialect.negative_limit)
        page = _first_records(config, texts, before, limit)
        while page is not None:
            reply = self._driver.run(history_page(self._dialect, self._codec, page, texts))
            yield from reply.records[:limit]
            page, limit = _next(reply.after, len(reply.records), limit)

    async def ahistory(
        self,
        config: RunnableConfig | None,
        *,
        filter: dict[str, Any] | None = None,
        before: RunnableConfig | None = None,
        limit: int | None = None,
    ) -> AsyncIterator[CheckpointRecord]:
        """What `list` gives, as records without values and writes."""
        texts, limit = wanted(filter), limit_number(limit, self._dialect.negative_limit)
        page = _first_records(config, texts, before, limit)
        while page is not None:
            reply = await self._driver.arun(history_page(self._dialect, self._codec, page, texts))
            for found in reply.records[:limit]:
                yield found
            page, limit = _next(reply.after, len(reply.records), limit)

    # Labels

    def label(self, config: RunnableConfig, name: str) -> RunnableConfig:
        """Give the checkpoint that a config names, or the newest, a name in its thread; no prune takes it then.

        Returns:
            The config that names the checkpoint by its id.

        Raises:
            CheckpointNotFound: There is no such checkpoint, or it was pruned.
            LabelExists: Another checkpoint of the thread has that name.
        """
        return self._driver.run(label(self._dialect, key_of(config), label_text(name)))

    async def alabel(self, config: RunnableConfig, name: str) -> RunnableConfig:
        """Give the checkpoint that a config names, or the newest, a name in its thread; no prune takes it then.

        Returns:
            The config that names the checkpoint by its id.

        Raises:
            CheckpointNotFound: There is no such checkpoint, or it was pruned.
            LabelExists: Another checkpoint of the thread has that name.
        """
        return await self._driver.arun(label(self._dialect, key_of(config), label_text(name)))

    def unlabel(self, thread_id: str, name: str) -> bool:
        """Take a name from its checkpoint; whether there was such a one, as `delete_checkpoint` tells it."""
        return self._driver.run(unlabel(self._dialect, thread_text(thread_id), label_text(name)))

    async def aunlabel(self, thread_id: str, name: str) -> bool:
        """Take a name from its checkpoint; whether there was such a one, as `delete_checkpoint` tells it."""
        return await self._driver.arun(unlabel(self._dialect, thread_text(thread_id), label_text(name)))

    def labelled(self, thread_id: str, name: str) -> RunnableConfig:
        """The config of the checkpoint with a name, to invoke or fork from; raises `CheckpointNotFound`."""
        return self._driver.run(labelled(self._dialect, thread_text(thread_id), label_text(name)))

    async def alabelled(self, thread_id: str, name: str) -> RunnableConfig:
        """The config of the checkpoint with a name, to invoke or fork from; raises `CheckpointNotFound`."""
        return await self._driver.arun(labelled(self._dialect, thread_text(thread_id), label_text(name)))

    def labels(self, thread_id: str) -> dict[str, RunnableConfig]:
        """All labels of a thread, each with the config of its checkpoint."""
        return self._driver.run(labels_of_thread(self._dialect, thread_text(thread_id)))

    async def alabels(self, thread_id: str) -> dict[str, RunnableConfig]:
        """All labels of a thread, each with the config of its checkpoint."""
        return await self._driver.arun(labels_of_thread(self._dialect, thread_text(thread_id)))

    def _write_places(self, config: RunnableConfig) -> list[tuple[str, str, int]]:
        """For an overlay, which has to bring its writes in among ours."""
        return self._driver.run(write_places(self._dialect, _exact(config)))

    async def _awrite_places(self, config: RunnableConfig) -> list[tuple[str, str, int]]:
        """For an overlay, which has to bring its writes in among ours."""
        return await self._driver.arun(write_places(self._dialect, _exact(config)))

    # The inbox

    def interrupts(self, *, prefix: str = "") -> list[WaitingThread]:
        """The threads that wait for a human, since when and for what, those that have waited longest first.

        That is what `interrupt()` asks, in subgraphs too; a run that was stopped by `interrupt_before` asks nothing.

        Args:
            prefix: Only threads whose ids begin so.
        """
        return self._driver.run(waiting_threads(self._dialect, self._codec, prefix_text(prefix)))

    async def ainterrupts(self, *, prefix: str = "") -> list[WaitingThread]:
        """The threads that wait for a human, since when and for what, those that have waited longest first.

        That is what `interrupt()` asks, in subgraphs too; a run that was stopped by `interrupt_before` asks nothing.

        Args:
            prefix: Only threads whose ids begin so.
        """
        return await self._driver.arun(waiting_threads(self._dialect, self._codec, prefix_text(prefix)))

    # Forks

    def fork_thread(
        self,
        source_thread_id: str,
        target_thread_id: str,
        *,
        checkpoint_id: str | None = None,
        run_id: str | None = None,
    ) -> RunnableConfig:
        """Start a thread from a checkpoint of another one's root graph, with all that it needs and nothing after it.

        The checkpoint's metadata says where it comes from, in `forked_from_thread` and `forked_from_checkpoint`.

        Args:
            source_thread_id: The thread to fork.
            target_thread_id: A thread without checkpoints.
            checkpoint_id: The checkpoint to start from; the newest one by default.
            run_id: Start from the last checkpoint of this run instead.

        Returns:
            The config of the new thread's checkpoint.

        Raises:
            ThreadExists: The target has checkpoints.
            CheckpointNotFound: There is no such checkpoint, or it was pruned.
        """
        return self._driver.run(self._fork(source_thread_id, target_thread_id, checkpoint_id, run_id))

    async def afork_thread(
        self,
        source_thread_id: str,
        target_thread_id: str,
        *,
        checkpoint_id: str | None = None,
        run_id: str | None = None,
    ) -> RunnableConfig:
        """Start a thread from a checkpoint of another one's root graph, with all that it needs and nothing after it.

        The checkpoint's metadata says where it comes from, in `forked_from_thread` and `forked_from_checkpoint`.

        Args:
            source_thread_id: The thread to fork.
            target_thread_id: A thread without checkpoints.
            checkpoint_id: The checkpoint to start from; the newest one by default.
            run_id: Start from the last checkpoint of this run instead.

        Returns:
            The config of the new thread's checkpoint.

        Raises:
            ThreadExists: The target has checkpoints.
            CheckpointNotFound: There is no such checkpoint, or it was pruned.
        """
        return await self._driver.arun(self._fork(source_thread_id, target_thread_id, checkpoint_id, run_id))

    def _fork(
        self, source_thread_id: str, target_thread_id: str, checkpoint_id: str | None, run_id: str | None
    ) -> Operation[RunnableConfig]:
        if checkpoint_id is not None and run_id is not None:
            raise ConfigError("fork_thread takes a checkpoint_id or a run_id, not both")
        source, target = thread_text(source_thread_id), thread_text(target_thread_id)
        check_kind("fork_thread", source, target)
        return fork_thread(
            self._dialect,
            self._codec,
            source,
            target,
            None if checkpoint_id is None else text("checkpoint_id", checkpoint_id, MAX_ID),
            None if run_id is None else text("run_id", run_id, MAX_ID),
        )

    # Deleting

    def delete_checkpoint(self, config: RunnableConfig) -> bool:
        """Delete the checkpoint that a config names by its id, with the subgraph calls that it started.

        One that a descendant's `DeltaChannel` goes back to is hidden instead, until nothing needs it. If it was the
        newest, the thread goes on from its parent, whose tasks run again.

        Returns:
            Whether there was such a checkpoint. True as well if it had to be tried again, after the connection was
            lost, and the first attempt may have deleted it.

        Raises:
            CheckpointLabelled: It has a label.
        """
        return self._driver.run(self._deletion(config))

    async def adelete_checkpoint(self, config: RunnableConfig) -> bool:
        """Delete the checkpoint that a config names by its id, with the subgraph calls that it started.

        One that a descendant's `DeltaChannel` goes back to is hidden instead, until nothing needs it. If it was the
        newest, the thread goes on from its parent, whose tasks run again.

        Returns:
            Whether there was such a checkpoint. True as well if it had to be tried again, after the connection was
            lost, and the first attempt may have deleted it.

        Raises:
            CheckpointLabelled: It has a label.
        """
        return await self._driver.arun(self._deletion(config))

    def rollback(self, thread_id: str, checkpoint_id: str) -> RunnableConfig:
        """Make a checkpoint of the root graph the newest: all that came behind it goes, in all namespaces.

        The thread goes on from there as if nothing had come behind: tasks that have run since run again.

        Returns:
            The config of that checkpoint.

        Raises:
            CheckpointNotFound: There is no such checkpoint, or it was pruned.
            CheckpointLabelled: One that would go has a label.
        """
        return self._driver.run(self._rollback(thread_id, checkpoint_id))

    async def arollback(self, thread_id: str, checkpoint_id: str) -> RunnableConfig:
        """Make a checkpoint of the root graph the newest: all that came behind it goes, in all namespaces.

        The thread goes on from there as if nothing had come behind: tasks that have run since run again.

        Returns:
            The config of that checkpoint.

        Raises:
            CheckpointNotFound: There is no such checkpoint, or it was pruned.
            CheckpointLabelled: One that would go has a label.
        """
        return await self._driver.arun(self._rollback(thread_id, checkpoint_id))

    def _is_decided_there(self, texts: Mapping[str, str]) -> bool:
        """Whether the database compares all that a filter has."""
        return len(narrowing(texts, contains=self._dialect.filter_contains)) == len(texts)

    def _deletion(self, config: RunnableConfig) -> Operation[bool]:
        key = _exact(config)
        check_kind("delete_checkpoint", key.thread_id)
        return delete_checkpoint(self._dialect, key)

    def _rollback(self, thread_id: str, checkpoint_id: str) -> Operation[RunnableConfig]:
        key = _root(thread_id, checkpoint_id)
        check_kind("rollback", key.thread_id)
        return rollback(self._dialect, key)


def _exact(config: RunnableConfig) -> Key:
    """The key of a config that names its checkpoint."""
    key = key_of(config)
    if key.checkpoint_id is None:
        raise ConfigError("the config has no checkpoint_id, and the newest one is not deleted by chance; name it")
    return key


def _root(thread_id: str, checkpoint_id: str) -> Key:
    """The key of a checkpoint of the root graph."""
    return Key(thread_text(thread_id), "", text("checkpoint_id", checkpoint_id, MAX_ID))


def _first_threads(prefix: str, before: ThreadRecord | RunnableConfig | None, limit: int | None) -> ThreadPage | None:
    prefix = prefix_text(prefix)
    if limit == 0:
        return None
    size = RECORDS if limit is None else min(limit, RECORDS)
    if isinstance(before, ThreadRecord):
        return ThreadPage(before.newest.checkpoint_id, thread_text(before.thread_id), {}, size, prefix)
    ceiling = before_id(before)
    return ThreadPage(AFTER_ALL if ceiling is None else ceiling, "", {}, size, prefix)


def _first_records(
    config: RunnableConfig | None, filter: Mapping[str, str], before: RunnableConfig | None, limit: int | None
) -> Page | None:
    thread_id = checkpoint_ns = exact = None
    if config:
        thread_id, _, exact = key_of(config)
        checkpoint_ns = namespace_of(config)
    if limit == 0:
        return None
    size = RECORDS if limit is None else min(limit, RECORDS)
    return first_page(thread_id, checkpoint_ns, exact, before_id(before), filter, size)


AnyPage = TypeVar("AnyPage", ThreadPage, Page)


def _next(after: AnyPage | None, found: int, limit: int | None) -> tuple[AnyPage | None, int | None]:
    """The page after one on which so many were found, and what is left of the limit."""
    if limit is not None:
        limit -= found
    if after is None or (limit is not None and limit <= 0):
        return None, limit
    # Where the database cannot decide a filter, a page holds fewer than were asked for, and the next one is a full one.
    return after._replace(limit=min(limit, RECORDS) if limit is not None and found == after.limit else RECORDS), limit
