"""The methods of a saver that LangGraph does not define, each in a sync and an async version.

They list threads and runs without reading values, list open interrupts, set labels, fork threads, delete one
checkpoint or everything after one, sweep old threads and checkpoints, claim threads, and encrypt rows again. This
module contains no SQL and opens no connection.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta, timezone
from typing import Any, Literal, get_args

from langchain_core.runnables import RunnableConfig

from langgraph_checkpoint_custom.engine.operation import Operation, Operations
from langgraph_checkpoint_custom.errors import ConfigError
from langgraph_checkpoint_custom.lease import Lease
from langgraph_checkpoint_custom.lifecycle import Lifecycle
from langgraph_checkpoint_custom.model.filter import Condition, wanted
from langgraph_checkpoint_custom.model.id_times import ids_between
from langgraph_checkpoint_custom.model.keys import (
    AFTER_ALL,
    MAX_ID,
    Key,
    before_id,
    check_kind,
    key_of,
    label_text,
    limit_number,
    text,
    thread_text,
)
from langgraph_checkpoint_custom.model.records import (
    RECORDS,
    CheckpointRecord,
    RunRecord,
    SweepStatus,
    Swept,
    ThreadPage,
    ThreadRecord,
    WaitingThread,
)
from langgraph_checkpoint_custom.operations.copies import fork_thread
from langgraph_checkpoint_custom.operations.delete import delete_checkpoint, rollback
from langgraph_checkpoint_custom.operations.due_threads import set_ttl, sweep_status
from langgraph_checkpoint_custom.operations.erase import Erased, erase_operations
from langgraph_checkpoint_custom.operations.labels import label, labels_of_thread, unlabel
from langgraph_checkpoint_custom.operations.list_threads import (
    ThreadsReply,
    count_threads,
    history_page,
    tenants,
    thread_exists,
    threads_page,
)
from langgraph_checkpoint_custom.operations.pages import asked_page, at_one_time
from langgraph_checkpoint_custom.operations.reencrypt import Renewal, reencryption
from langgraph_checkpoint_custom.operations.thread_states import (
    State,
    WaitingReply,
    check_interrupt,
    runs_of_thread,
    threads_in_state,
    waiting_threads,
)
from langgraph_checkpoint_custom.pairs import awaited, iterated
from langgraph_checkpoint_custom.retention import Retention, sweep_operations

_LOG = logging.getLogger("langgraph_checkpoint_custom")


class ThreadMethods(Lifecycle):
    """The methods of `CheckpointSaver` that LangGraph does not define."""

    _is_behind_server = False
    _said: set[str]
    """What was logged once, by this saver or a copy of it."""

    # Retention

    def sweep(self, keep: Retention, *, dry_run: bool = False, tenants: bool = True) -> Swept:
        """Delete what a retention does not keep, thread by thread.

        Each thread is one transaction. Runs may continue meanwhile. What stays resumes as before, including
        `DeltaChannel`s, pending interrupts and the memory of subgraphs. A checkpoint with a label stays, and so does
        its thread, unless it has a time to live.

        Args:
            keep: What to keep.
            dry_run: Only count. The bytes that `keep_last` frees are not counted, because only a real prune can find
                these.
            tenants: Whether to include the threads of all tenants, with a `max_bytes` of its own for each. The saver of
                a tenant sweeps only that tenant's threads.

        Returns:
            The numbers of threads and checkpoints that were deleted, and the bytes that were freed.
        """
        return self._run(
            sweep_operations(self._dialect, self._codec, keep, time.time(), dry_run=dry_run, tenants=tenants)
        )

    asweep = awaited(sweep)

    def set_ttl(
        self, thread_id: str, ttl: timedelta | None, *, strategy: Literal["delete", "keep_latest"] = "delete"
    ) -> None:
        """Give a thread a time to live: if its newest checkpoint is older than that, a sweep deletes it.

        For this thread it replaces the `older_than` of a retention, whose filter and whose labels it outranks. Each
        checkpoint that a run stores begins the time anew. Until a sweep comes, the thread can be read and continued.
        If there was never a sweep, and this saver has no `retention`, it logs a warning once.

        Args:
            thread_id: The thread.
            ttl: The time, or None to take it back.
            strategy: "delete" deletes the thread. "keep_latest" keeps the newest checkpoint of each namespace and those
                with a label, and deletes the others.

        Raises:
            CheckpointNotFound: The thread has no checkpoint yet.
        """
        return self._run(self._set_ttl(thread_id, ttl, strategy))

    aset_ttl = awaited(set_ttl)

    def _set_ttl(self, thread_id: str, ttl: timedelta | None, strategy: str) -> Operations[None]:
        if ttl is not None and not (isinstance(ttl, timedelta) and ttl > timedelta()):
            raise ConfigError(f"ttl must be a positive timedelta, such as timedelta(days=30), or None, not {ttl!r}")
        if self._is_behind_server:
            raise ConfigError("behind an Agent Server, use the server's own ttl: it deletes threads with their runs")
        if strategy not in ("delete", "keep_latest"):
            raise ConfigError(f"unknown strategy {strategy!r}; use 'delete' or 'keep_latest'")
        seconds = None if ttl is None else ttl.total_seconds()
        has_been_swept = yield set_ttl(
            self._dialect, thread_text(thread_id), seconds, None if ttl is None else strategy
        )
        if not (has_been_swept or self._sweeper or "never swept" in self._said):
            self._said.add("never swept")
            _LOG.warning(
                "set_ttl() was called, but there was no sweep yet, and without one nothing is deleted: give a saver a "
                "retention, such as retention=Retention(), or call sweep() or `lgckpt sweep` regularly"
            )

    def sweep_status(self) -> SweepStatus:
        """Return when the last sweep ended and how many threads are due, of those without a tenant or of one tenant."""
        return self._run(sweep_status(self._dialect, time.time()))

    asweep_status = awaited(sweep_status)

    # Erasing

    def erase(self, filter: Mapping[str, Any], *, dry_run: bool = False, tenants: bool = True) -> Erased:
        """Delete all threads of a person: those with a checkpoint of any namespace whose metadata matches.

        Labels protect nothing here, and threads of other frameworks are included. Each thread is one transaction. End
        the person's runs first: what a run stores later is there again. You can stop it and start it again.

        Args:
            filter: Metadata keys and the values that they must have, as in `list`, such as `{"user_id": "ada"}`.
            dry_run: Only count.
            tenants: Whether to include the threads of all tenants. The saver of a tenant erases only that tenant's.

        Returns:
            What was deleted of which thread, and the threads with metadata that cannot be read.

        Raises:
            ConfigError: The filter is empty; or row-level security hides tenants from this role, and they are included.
        """
        return self._run(erase_operations(self._dialect, self._codec, filter, dry_run=dry_run, tenants=tenants))

    aerase = awaited(erase)

    # Threads, runs and checkpoints without values

    def threads(
        self,
        *,
        prefix: str = "",
        filter: dict[str, Any] | None = None,
        state: State | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        before: ThreadRecord | RunnableConfig | None = None,
        limit: int | None = None,
    ) -> Iterator[ThreadRecord]:
        """Iterate over threads with their newest checkpoint, the most recent first.

        Without `state`, it reads no channel values. Between two threads it holds no connection, lock or transaction. A
        thread that is written to during the iteration moves to the front, so the iteration can miss it.

        Args:
            prefix: Only threads whose ids start with this.
            filter: Only threads whose newest checkpoint has this metadata; the values are compared as in `list`.
            state: Only threads whose newest checkpoint is in this state: "failed", a task has failed and not succeeded
                since; "waiting", a question to a human is open; "unfinished", anything else is left to do; "done".
            since: Only threads whose newest checkpoint was made at this time or later, as its id says.
            until: Only threads whose newest checkpoint was made before this time. A thread whose ids say no time is not
                returned with `since` or `until`.
            before: The last thread of the previous page, or the config of a checkpoint; only threads whose newest
                checkpoint is older are returned.
            limit: The largest number of threads; None means all.
        """
        conditions, limit = wanted(filter), limit_number(limit, self._dialect.negative_limit)
        page = _first_threads(prefix, before, limit, since, until)
        return self._pages(lambda page: self._threads_page(page, conditions, state), page, limit, RECORDS)

    athreads = iterated(threads)

    def _threads_page(
        self, page: ThreadPage, conditions: Sequence[Condition], state: State | None
    ) -> Operation[ThreadsReply]:
        if state is None:
            return threads_page(self._dialect, self._codec, page, conditions)
        if state not in get_args(State):
            raise ConfigError(f"there is no state {state!r}; the states are {', '.join(get_args(State))}")
        return threads_in_state(self._dialect, self._codec, page, conditions, state)

    def tenants(self) -> list[str]:
        """Return the names of the tenants that have threads, to pass to `for_tenant`.

        On PostgreSQL, row-level security can hide tenants from a role; the saver logs a warning if it does.
        """
        return self._run(tenants(self._dialect))

    atenants = awaited(tenants)

    def count_threads(self, *, prefix: str = "", filter: dict[str, Any] | None = None) -> int:
        """Count the threads, or those that match a prefix and a filter.

        Args:
            prefix: Only threads whose ids start with this.
            filter: Only threads whose newest checkpoint has this metadata; the values are compared as in `list`.
        """
        return self._run(count_threads(self._dialect, self._codec, thread_text(prefix, "prefix"), wanted(filter)))

    acount_threads = awaited(count_threads)

    def thread_exists(self, thread_id: str) -> bool:
        """Return whether a thread has a checkpoint."""
        return self._run(thread_exists(self._dialect, thread_text(thread_id)))

    athread_exists = awaited(thread_exists)

    def runs(self, thread_id: str) -> list[RunRecord]:
        """Return the runs that stored checkpoints of a thread's root graph; the run that began last comes first."""
        return self._run(runs_of_thread(self._dialect, self._codec, thread_text(thread_id)))

    aruns = awaited(runs)

    def history(
        self,
        config: RunnableConfig | None,
        *,
        filter: dict[str, Any] | None = None,
        before: RunnableConfig | None = None,
        limit: int | None = None,
    ) -> Iterator[CheckpointRecord]:
        """Iterate over the checkpoints that `list` returns, as records without values and writes.

        Args:
            config: The thread, and its namespace and checkpoint id if the config has them. None means all threads.
            filter: Metadata keys and the values that they must have, as in `list`.
            before: The config of a checkpoint; only checkpoints with lower ids are returned.
            limit: The largest number of checkpoints; None means all.
        """
        conditions, limit = wanted(filter), limit_number(limit, self._dialect.negative_limit)
        page = asked_page(config, before, limit, RECORDS)
        return self._pages(
            lambda page: at_one_time(history_page(self._dialect, self._codec, page, conditions), page),
            page,
            limit,
            RECORDS,
        )

    ahistory = iterated(history)

    # Labels

    def label(self, config: RunnableConfig, name: str) -> RunnableConfig:
        """Give a checkpoint a name that is unique in its thread.

        No prune deletes a checkpoint with a label.

        Args:
            config: The thread and namespace; the checkpoint id, by default the newest.
            name: The label.

        Returns:
            The config that names the checkpoint by its id.

        Raises:
            CheckpointNotFound: The checkpoint does not exist, or it was pruned.
            LabelExists: Another checkpoint of the thread has this label.
        """
        return self._run(label(self._dialect, key_of(config), label_text(name)))

    alabel = awaited(label)

    def unlabel(self, thread_id: str, name: str) -> bool:
        """Remove a label from its checkpoint.

        Returns:
            Whether the label existed. This is also True if the call was repeated after a lost connection, and an
            earlier attempt may have removed the label.
        """
        return self._run(unlabel(self._dialect, thread_text(thread_id), label_text(name)))

    aunlabel = awaited(unlabel)

    def labels(self, thread_id: str) -> dict[str, RunnableConfig]:
        """Return all labels of a thread, each with the config of its checkpoint, to invoke a graph or to fork from."""
        return self._run(labels_of_thread(self._dialect, thread_text(thread_id)))

    alabels = awaited(labels)

    # Interrupts

    def interrupts(
        self, *, prefix: str = "", after: WaitingThread | None = None, limit: int | None = None
    ) -> list[WaitingThread]:
        """Return the threads that wait for a human, the one that has waited longest first.

        These are the threads with an open `interrupt()`, in the root graph or in a subgraph. A run that
        `interrupt_before` has stopped is not among them, because it asks nothing. Neither is a question of the root
        graph whose answer is stored.

        Args:
            prefix: Only threads whose ids start with this.
            after: The last thread of the previous page.
            limit: The largest number of threads; None means all.
        """
        return self._run(self._interrupts(prefix, after, limit))

    ainterrupts = awaited(interrupts)

    def _interrupts(
        self, prefix: str, after: WaitingThread | None, limit: int | None
    ) -> Operations[list[WaitingThread]]:
        limit = limit_number(limit, self._dialect.negative_limit)
        place = ("", "") if after is None else (after.checkpoint_id, thread_text(after.thread_id))
        prefix = thread_text(prefix, "prefix")
        found: WaitingReply = yield waiting_threads(self._dialect, self._codec, prefix, place, limit)
        return list(found.threads)

    def check_interrupt(self, config: RunnableConfig, interrupt_id: str) -> None:
        """Raise an error unless an interrupt is still open in a thread's newest checkpoint.

        Call it before `Command(resume=…)`, which answers whatever interrupt is open at that moment.

        Args:
            config: The thread and namespace.
            interrupt_id: The `id` of the interrupt that you want to answer.

        Raises:
            StaleInterrupt: The interrupt is not open.
        """
        key = key_of(config)._replace(checkpoint_id=None)
        return self._run(check_interrupt(self._dialect, self._codec, key, interrupt_id))

    acheck_interrupt = awaited(check_interrupt)

    # Forks

    def fork_thread(
        self,
        source_thread_id: str,
        target_thread_id: str,
        *,
        checkpoint_id: str | None = None,
        run_id: str | None = None,
    ) -> RunnableConfig:
        """Start a new thread from a checkpoint of another thread's root graph.

        The new thread has this checkpoint and everything that it needs, and nothing that came after it. The metadata of
        the checkpoint names its origin in `forked_from_thread` and `forked_from_checkpoint`.

        Args:
            source_thread_id: The thread to fork.
            target_thread_id: The id of the new thread, which must not have checkpoints or writes.
            checkpoint_id: The checkpoint to start from; the newest by default.
            run_id: Start from the last checkpoint of this run instead.

        Returns:
            The config of the new thread's checkpoint.

        Raises:
            ThreadExists: The target has checkpoints or writes.
            CheckpointNotFound: The checkpoint does not exist, or it was pruned.
            ConfigError: Both `checkpoint_id` and `run_id` are given.

        Idempotent: yes, as long as the new thread has no newer checkpoints.
        """
        if checkpoint_id is not None and run_id is not None:
            raise ConfigError("fork_thread takes a checkpoint_id or a run_id, not both")
        source, target = thread_text(source_thread_id), thread_text(target_thread_id)
        check_kind("fork_thread", source, target)
        return self._run(
            fork_thread(
                self._dialect,
                self._codec,
                source,
                target,
                None if checkpoint_id is None else text("checkpoint_id", checkpoint_id, MAX_ID),
                None if run_id is None else text("run_id", run_id, MAX_ID),
            )
        )

    afork_thread = awaited(fork_thread)

    # Deleting

    def delete_checkpoint(self, config: RunnableConfig) -> bool:
        """Delete one checkpoint, with the subgraph calls that it started.

        If a descendant's `DeltaChannel` needs the checkpoint, it is hidden until nothing needs it. If it was the
        newest, the thread continues from its parent, and the parent's tasks run again.

        Args:
            config: The thread, the namespace and the checkpoint id.

        Returns:
            Whether the checkpoint existed. This is also True if the call was repeated after a lost connection, and an
            earlier attempt may have deleted the checkpoint.

        Raises:
            CheckpointLabelled: The checkpoint has a label.
            ConfigError: The config has no checkpoint id.

        Idempotent: yes.
        """
        key = key_of(config)
        if key.checkpoint_id is None:
            raise ConfigError(
                "the config has no checkpoint_id, and the newest checkpoint is not deleted by default; name it"
            )
        return self._run(delete_checkpoint(self._dialect, key))

    adelete_checkpoint = awaited(delete_checkpoint)

    def rollback(self, thread_id: str, checkpoint_id: str) -> RunnableConfig:
        """Make an earlier checkpoint of the root graph the newest: delete everything after it, in all namespaces.

        The thread continues as if nothing had come after that checkpoint. Tasks that have run since then run again.

        Args:
            thread_id: The thread.
            checkpoint_id: The checkpoint that becomes the newest.

        Returns:
            The config of that checkpoint.

        Raises:
            CheckpointNotFound: The checkpoint does not exist, or it was pruned.
            CheckpointLabelled: A checkpoint that would be deleted has a label; nothing was deleted.

        Idempotent: yes.
        """
        key = Key(thread_text(thread_id), "", text("checkpoint_id", checkpoint_id, MAX_ID))
        return self._run(rollback(self._dialect, key))

    arollback = awaited(rollback)

    # Claims and keys

    def claim(self, thread_id: str, *, ttl_seconds: float = 30.0, owner: str | None = None) -> Lease:
        """Claim a thread for a block, so that nobody else can claim it: `with saver.claim("1") as lease: …`.

        Works with `with` and `async with`. Run graphs with `lease.config`: what they store with it is stored only while
        the claim is held.

        Args:
            thread_id: The thread.
            ttl_seconds: Seconds until the claim expires if its owner stops renewing it. The lease renews it three times
                in that time.
            owner: The name that `ThreadBusy` shows to others; host name and process id by default.

        Raises:
            ThreadBusy: On entering the block, if somebody else has claimed the thread.
            ClaimLost: From a write, or at the end of the block, if somebody else has taken over the thread.
        """
        return Lease(self._driver, self._dialect, thread_id, ttl_seconds=ttl_seconds, owner=owner)

    def reencrypt(
        self, *, dry_run: bool = False, progress: Callable[[int], None] = lambda rows: None, tenants: bool = True
    ) -> Renewal:
        """Store all rows again that the current key of `serde` has not encrypted.

        Use it to change the key, or to encrypt rows for the first time. Runs may continue meanwhile. You can stop it at
        any time and start it again.

        Args:
            dry_run: Only count.
            progress: Called after each page with the number of rows that were read so far.
            tenants: Whether to include the rows of all tenants. The saver of a tenant processes only that tenant's
                rows.

        Returns:
            The number of rows that were read and that were stored again, and up to 100 rows that no key decrypts.

        Raises:
            ConfigError: Row-level security hides tenants from this role, and they are included.
        """
        return self._run(reencryption(self._dialect, self._codec, dry_run=dry_run, progress=progress, tenants=tenants))

    areencrypt = awaited(reencrypt)


def _first_threads(
    prefix: str,
    before: ThreadRecord | RunnableConfig | None,
    limit: int | None,
    since: datetime | None,
    until: datetime | None,
) -> ThreadPage | None:
    prefix = thread_text(prefix, "prefix")
    period = _limit("since", since, _FIRST), _limit("until", until, _LAST)
    if limit == 0:
        return None
    page = ThreadPage(AFTER_ALL, "", (), RECORDS if limit is None else min(limit, RECORDS), prefix)
    ceiling, thread_below = before_id(None if isinstance(before, ThreadRecord) else before), ""
    if isinstance(before, ThreadRecord):
        ceiling, thread_below = before.newest.checkpoint_id, thread_text(before.thread_id)
    page = page._replace(before=AFTER_ALL if ceiling is None else ceiling, thread_below=thread_below)
    if since is None and until is None:
        return page
    return page._replace(below=ids_between(*(each.timestamp() for each in period)), period=period).next_range()


_FIRST, _LAST = (datetime(year, 1, 1, tzinfo=timezone.utc) for year in (1970, 9999))


def _limit(name: str, moment: datetime | None, otherwise: datetime) -> datetime:
    if moment is None:
        return otherwise
    if not isinstance(moment, datetime) or moment.tzinfo is None:
        raise ConfigError(f"{name} must be a datetime with a zone, such as datetime.now(timezone.utc), not {moment!r}")
    return min(max(moment, _FIRST), _LAST)
