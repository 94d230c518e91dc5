"""Retention: what `sweep` deletes, and a policy that a saver applies at regular intervals.

A sweep goes from thread to thread, with a transaction for each. So it blocks no run for longer than a prune of one
thread does. You can stop it and start it again at any time. `operations/due_threads.py` says at which threads it looks,
`operations/sweep.py` what it does with each.
"""

from __future__ import annotations

import asyncio
import logging
import math
import secrets
import sys
import threading
import time
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from random import shuffle
from typing import Any, Protocol, TypeVar

from langgraph_checkpoint_custom.encoding.values import ValueCodec
from langgraph_checkpoint_custom.engine.operation import Driver, Operation, Operations, Pause, follow
from langgraph_checkpoint_custom.errors import CheckpointError, ConfigError, CorruptCheckpoint, StorageError, ThreadBusy
from langgraph_checkpoint_custom.model.filter import wanted
from langgraph_checkpoint_custom.model.keys import AFTER_ALL, TENANT_MARK, flag
from langgraph_checkpoint_custom.model.records import Swept, ThreadPage, ThreadRecord
from langgraph_checkpoint_custom.operations.delete import give_back_pages
from langgraph_checkpoint_custom.operations.due_threads import (
    BEFORE_ALL,
    LATE,
    WEEK,
    LastSweep,
    arm_threads,
    begin_policy,
    due_page,
    grown_page,
    grown_since,
    hasten_thread,
    ids_page,
    last_sweep,
    note_sweep,
)
from langgraph_checkpoint_custom.operations.labels import labels_of_thread
from langgraph_checkpoint_custom.operations.list_threads import ThreadsReply, dialects_of_tenants, threads_page
from langgraph_checkpoint_custom.operations.sizes import Counted, sizes_of_threads
from langgraph_checkpoint_custom.operations.sweep import (
    Policy,
    Verdict,
    delete_unless_it_fits,
    kept_threads,
    look_at_thread,
    put_off,
    rearm_threads,
    sweep_thread,
)
from langgraph_checkpoint_custom.operations.writers import release_claim, renew_claim, take_claim
from langgraph_checkpoint_custom.sql.dialect import SqlDialect

# Threads that one statement returns.
PAGE = 200
# Threads that a sweep looks at together.
TOGETHER = 50
# Seconds for which a sweep at regular intervals leaves all threads to another policy that has made them due.
DAY = 86_400.0
# Seconds; the claim of the sweeping process lasts at least this long. After that, another process may sweep.
SWEEPER_TTL = 60.0
# PostgreSQL's errors if a lock_timeout or statement_timeout of the role ends the wait for the lock of a thread, or the
# deletion of a long one. The sweep leaves the thread: otherwise each would end there, and come to no other thread.
LIMITED = ("55P03", "57014")
# Seconds that a sweep works on SQLite before it leaves the file to others, for half as long. Writers that wait look at
# the file every few milliseconds.
WORK = 0.01
# The sweeping process has a claim on this thread; no thread of a caller or tenant can have this id.
_SWEEPER = f"{TENANT_MARK}{TENANT_MARK}sweep"

_LOG = logging.getLogger("langgraph_checkpoint_custom")

T = TypeVar("T")


@dataclass(frozen=True)
class Retention:
    """What to keep; `sweep`, or a saver's option `retention`, deletes the rest.

    Without `older_than`, `keep_last` and `max_bytes`, only threads are swept whose time to live is over; see `set_ttl`.

    Attributes:
        older_than: Threads are deleted whose newest checkpoint, by its timestamp, is older. A copy, or a fork of an old
            checkpoint, has that one's until a run goes on.
        keep_last: In the other threads, this number of the newest checkpoints of each namespace is kept; `prune` does
            the same with 1.
        max_bytes: Threads are kept, those with the latest activity first, while their stored values take at most this
            number of bytes together. A thread that no longer fits is deleted. Older ones that still fit are kept.
            Each sweep then reads all threads.
        filter: Only threads whose newest checkpoint has this metadata, as in `threads`. The other threads, and those
            whose metadata cannot be read, are neither counted nor changed.
        keep_waiting: Whether a thread that waits for a human stays when its time to live is over.
        max_threads: A sweep ends after it has visited this number of threads; the next one goes on there.
        max_seconds: A sweep visits no more threads after this number of seconds; the next one goes on there.
        pause: Seconds that a sweep waits after each page of threads.
        every: Seconds between two sweeps, for a saver that sweeps at regular intervals.

    Raises:
        ConfigError: A value cannot be used.
    """

    older_than: timedelta | None = None
    keep_last: int | None = None
    max_bytes: int | None = None
    filter: Mapping[str, Any] | None = None
    keep_waiting: bool = True
    max_threads: int | None = None
    max_seconds: float | None = None
    pause: float = 0.0
    every: float = 3600.0

    def __post_init__(self) -> None:
        for name, (kinds, least, most, what) in _LIMITS.items():
            value = getattr(self, name)
            if value is None and name not in ("pause", "every"):
                continue
            if not isinstance(value, kinds) or isinstance(value, bool) or not least <= value <= most:
                raise ConfigError(f"{name} must be {what}, not {value!r}")
        wanted(self.filter)
        flag("keep_waiting", self.keep_waiting)
        if self.max_bytes is not None and not (self.max_threads is None and self.max_seconds is None):
            raise ConfigError("max_bytes reads all threads: leave out max_threads and max_seconds")


# The types of a value, the least and the most that it may be, and what it must be in words.
_LONGEST = threading.TIMEOUT_MAX
_LIMITS: Mapping[str, tuple[Any, Any, Any, str]] = {
    "older_than": (timedelta, timedelta.resolution, timedelta.max, "a positive timedelta, such as timedelta(days=30)"),
    "keep_last": (int, 1, math.inf, "an int of 1 or more, as the newest checkpoint always stays"),
    "max_bytes": (int, 0, math.inf, "an int of 0 or more"),
    "max_threads": (int, 1, math.inf, "an int of 1 or more"),
    "max_seconds": ((int, float), sys.float_info.min, math.inf, "more than 0 seconds"),
    "pause": ((int, float), 0, _LONGEST, f"0 to {_LONGEST:.0f} seconds"),
    "every": ((int, float), sys.float_info.min, _LONGEST, f"more than 0 seconds, and at most {_LONGEST:.0f}"),
}


def sweep_operations(
    d: SqlDialect,
    codec: ValueCodec,
    keep: Retention,
    now: float,
    *,
    dry_run: bool,
    tenants: bool,
    named: set[str] | None = None,
) -> Operations[Swept]:
    """The operations of a sweep, one after the other; the caller performs each and sends its result back.

    A saver that sweeps at regular intervals passes `named`, the policies of others that the log has named already. Such
    a sweep does not make all threads due if another policy has done so within a day: of two savers with different
    policies, each would at each sweep.
    """
    if not isinstance(keep, Retention):
        raise ConfigError(
            f"what to keep must be a Retention(…), such as Retention(keep_last=3), not a {type(keep).__name__}"
        )
    flag("dry_run", dry_run)
    all_of_them, limits = Swept(), _Limits(keep, shares=d.one_writer and not dry_run)
    dialects = yield from dialects_of_tenants(d, tenants)
    if limits.are_set:  # Else the first ones might take all, each time.
        shuffle(dialects)
    regular, named = named is not None, set() if named is None else named
    for each in dialects:
        sweep = _Sweep(each, codec, keep, limits, now, dry_run=dry_run)
        yield from sweep.run(named, regular=regular)
        all_of_them.add(sweep.swept)
    while not dry_run and (yield give_back_pages(d)):
        yield from limits.rest()
    return all_of_them


class _Limits:
    """How many more threads a sweep visits, until when, and when it waits; it `shares` the file with other writers."""

    def __init__(self, keep: Retention, *, shares: bool) -> None:
        self._shares = shares
        self._threads, self._pause = keep.max_threads, keep.pause
        self._end = None if keep.max_seconds is None else time.monotonic() + keep.max_seconds
        self.are_set = self._threads is not None or self._end is not None
        self._works_since = time.monotonic()

    def is_over(self) -> bool:
        """Return whether the time is over."""
        return self._end is not None and time.monotonic() > self._end

    def allow(self, threads: int) -> int:
        """Return how many of a number of threads may be visited, and count them."""
        if self.is_over():
            return 0
        if self._threads is not None:
            threads = min(threads, self._threads)
            self._threads -= threads
        return threads

    def has_read(self) -> None:
        """Note that the file was left to other writers: a read keeps none waiting."""
        self._works_since = time.monotonic()

    def rest(self) -> Operations[None]:
        """Leave the file to other writers if the sweep has had it for a while."""
        worked = time.monotonic() - self._works_since
        if self._shares and worked > WORK:
            yield Pause(worked / 2)
            self._works_since = time.monotonic()

    def pause(self) -> Operations[None]:
        """Wait after a page of threads."""
        if self._pause:
            yield Pause(self._pause)
            self.has_read()
        yield from self.rest()

    def pages(
        self,
        read: Callable[[T], Operation[Any]],
        starts: Iterable[T],
        visit: Callable[[Sequence[Any]], Operations[bool]],
    ) -> Operations[None]:
        """Read page after page of threads, from each of these starts, and visit them until `visit` returns False."""
        for start in starts:
            at: T | None = start
            while at is not None:
                threads, at, *_ = yield read(at)
                if not (yield from visit(threads)):
                    return
                if at is not None:
                    yield from self.pause()


class _Sweep:
    """A sweep of the threads of one tenant, or of those without a tenant; `swept` is what it has done so far."""

    def __init__(
        self, d: SqlDialect, codec: ValueCodec, keep: Retention, limits: _Limits, begun: float, *, dry_run: bool
    ) -> None:
        older_than = None if keep.older_than is None else keep.older_than.total_seconds()
        # What decides about each thread alone.
        self._policy = Policy(older_than, keep.keep_last, wanted(keep.filter), keep.keep_waiting)
        self._d, self._codec, self._keep = d, codec, keep
        self._limits, self._begun, self._dry_run = limits, begun, dry_run
        self._seen: set[str] = set()  # By a dry run: a thread may be due and have grown.
        self.swept = Swept()

    def run(self, named: set[str], *, regular: bool) -> Operations[None]:
        """The operations of the sweep."""
        d, begun, dry_run, keep, pages = self._d, self._begun, self._dry_run, self._keep, self._limits.pages
        last, is_guest = yield from self._last_sweep(named, regular=regular)
        armed = None if dry_run else (yield from self._arm(last, is_guest=is_guest))
        if dry_run and last is None:  # A sweep would arm all threads first.
            yield from pages(partial(ids_page, d), d.ranges(), self._visit)
        else:
            yield from pages(partial(due_page, d, begun), [BEFORE_ALL], self._visit)
        if dry_run and last is not None and keep.keep_last is not None and self.swept.complete:
            yield from pages(partial(grown_page, d), [grown_since(last.started_at, begun)], self._visit)
        if keep.max_bytes is not None:
            self.swept.threads = self.swept.deleted_threads
            yield from self._limit_bytes(keep.max_bytes)
        if armed is not None and self.swept.complete:
            yield note_sweep(d, armed._replace(finished_at=time.time()))

    def _last_sweep(self, named: set[str], *, regular: bool) -> Operations[tuple[LastSweep | None, bool]]:
        """Return the last sweep, None if all threads are due, and whether this sweep is a guest.

        A guest leaves all threads to the policy that they are armed for, and visits those that are due.
        """
        name = self._policy.name()
        last: LastSweep | None = yield last_sweep(self._d)
        # A clock that was ahead has made threads due in a far future.
        if last is None or not 0 < last.armed_at <= self._begun + LATE:
            return None, False
        if last.policy == name:
            return last, False
        is_recent = self._begun < last.armed_at + DAY
        if is_recent and not self._dry_run and last.policy not in named:
            named.add(last.policy)
            _LOG.warning(
                "two retentions sweep %s on one day, %s and %s; give all its savers and commands the same",
                self._d.location,
                last.policy,
                name,
            )
        is_guest = is_recent and regular
        return last if is_guest else None, is_guest

    def _arm(self, last: LastSweep | None, *, is_guest: bool) -> Operations[LastSweep | None]:
        """Make all threads due for a new policy, those that have grown otherwise; arm those without a row once a week.

        Returns what is stored about the sweep; a guest stores nothing.
        """
        d, begun, policy = self._d, self._begun, self._policy.name()

        def arm(thread_ids: Sequence[str], *, hasten: bool) -> Operations[bool]:
            held: Sequence[str] = yield arm_threads(d, thread_ids, begun, hasten=hasten)
            for thread_id in held:
                yield hasten_thread(d, thread_id)
            return True

        if last is None:
            yield begin_policy(d, policy)
        elif self._keep.keep_last is not None:
            grown = grown_since(last.started_at, begun)
            yield from self._limits.pages(partial(grown_page, d), [grown], partial(arm, hasten=True))
        if is_guest:
            return None
        armed_at = 0.0 if last is None else last.armed_at
        if armed_at + WEEK <= begun:
            yield from self._limits.pages(partial(ids_page, d), d.ranges(), partial(arm, hasten=last is None))
            armed_at = begun
        armed = LastSweep(policy, armed_at, begun, None)
        yield note_sweep(d, armed)
        return armed

    def _visit(self, thread_ids: Sequence[str]) -> Operations[bool]:
        """Visit the threads of a page; returns False if a limit has ended the sweep."""
        waiting = [each for each in thread_ids if each not in self._seen]
        if self._dry_run:
            self._seen.update(waiting)
        for at in range(0, len(waiting), TOGETHER):
            some = waiting[at : at + TOGETHER]
            allowed = some[: self._limits.allow(len(some))]
            if not ((yield from self._visit_some(allowed)) and allowed == some):
                self.swept.complete = False
                return False
        return True

    def _visit_some(self, thread_ids: Sequence[str]) -> Operations[bool]:
        """Visit threads: those that stay as they are together, the others one by one."""
        if not thread_ids:
            return True
        d, codec, policy, begun, limits = self._d, self._codec, self._policy, self._begun, self._limits
        try:
            found: Sequence[Verdict] = yield kept_threads(d, codec, thread_ids, policy, begun)
        except CorruptCheckpoint:  # One of them is damaged.
            found = ()
        kept = {each.thread_id for each in found}
        limits.has_read()
        if found and not self._dry_run:
            yield rearm_threads(d, found)
        self.swept.threads += sum(each.applies for each in found)
        for thread_id in [each for each in thread_ids if each not in kept]:
            yield from limits.rest()
            if limits.is_over():
                return False
            try:
                visit = look_at_thread if self._dry_run else sweep_thread
                self.swept.add((yield visit(d, codec, thread_id, policy, begun)))
            except CorruptCheckpoint as error:
                _leave(thread_id, error)
                if not self._dry_run:
                    yield put_off(d, thread_id, begun + WEEK)
            except StorageError as error:
                self._leave_for_now(thread_id, error)
        yield from limits.rest()
        return True

    def _leave_for_now(self, thread_id: str, error: StorageError) -> None:
        """Leave a thread to the next sweep if it was only a limit of the role; otherwise raise the error."""
        if error.sqlstate not in LIMITED:
            raise error
        _leave(thread_id, error)
        self.swept.complete = False

    def _limit_bytes(self, max_bytes: int) -> Operations[None]:
        """Delete the threads that do not fit, of all that match."""
        d, swept = self._d, self.swept
        gone = {thread_id for _, thread_id in swept.would_delete}

        def read(page: ThreadPage) -> Operation[ThreadsReply]:
            return threads_page(d, self._codec, page, self._policy.wanted, even_unreadable=True)

        def visit(records: Sequence[ThreadRecord]) -> Operations[bool]:
            thread_ids = [record.thread_id for record in records if record.thread_id not in gone]
            sizes: Mapping[str, Counted] = yield sizes_of_threads(d, thread_ids)
            for thread_id, (size, _) in sizes.items():
                room, is_gone = max_bytes - swept.kept_bytes, False
                if size.bytes > room and self._dry_run:
                    is_gone = not (yield labels_of_thread(d, thread_id))
                elif size.bytes > room:
                    try:
                        is_gone = yield delete_unless_it_fits(d, thread_id, room)
                    except StorageError as error:
                        self._leave_for_now(thread_id, error)
                swept.threads += 1
                if not is_gone:
                    swept.kept_bytes += size.bytes
                else:
                    swept.add(Swept(0, 1, size.checkpoints, size.bytes))
                    if self._dry_run:
                        swept.would_delete.append((d.tenant, thread_id))
                yield from self._limits.rest()
            return True

        yield from self._limits.pages(read, [ThreadPage(AFTER_ALL, "", (), PAGE)], visit)


def _leave(thread_id: str, error: CheckpointError) -> None:
    _LOG.warning("a sweep leaves thread %r as it is: %s", thread_id, error)


class _Stopped(Exception):
    """Ends a sweep whose saver is being closed."""


class HasBackend(Protocol):
    """The saver that is swept."""

    @property
    def backend(self) -> tuple[SqlDialect, Driver, ValueCodec]: ...


class Sweeper:
    """Sweeps at regular intervals, on a daemon thread of its own; of many processes, one sweeps at a time.

    It sweeps the threads without a tenant, then those of each tenant.

    It does not keep its saver alive, which lives as long as a copy of it. A forked process has no such thread, and does
    not sweep.
    """

    def __init__(self, saver: HasBackend, keep: Retention) -> None:
        self._saver = weakref.ref(saver)
        self._keep = keep
        self._named = set[str]()
        self._stopped = threading.Event()
        self._worker = threading.Thread(target=self._live, name="checkpoint-sweep", daemon=True)
        self._worker.start()

    def stop(self) -> None:
        """Stop sweeping; a sweep that is running ends after its current thread.

        It waits for that, unless the sweep may be waiting for the caller: for its event loop, or for its hook.
        """
        self._stopped.set()
        if not (asyncio._get_running_loop() or threading.current_thread() is self._worker):
            self._worker.join()

    def _live(self) -> None:
        while not self._stopped.wait(self._keep.every):
            saver = self._saver()
            if saver is None:
                return
            try:
                self._sweep(*saver.backend)
            except ThreadBusy:
                continue  # Another process sweeps.
            except Exception as error:  # Whatever it was, the next sweep may succeed.
                if not self._stopped.is_set():
                    is_known = isinstance(error, CheckpointError)
                    _LOG.warning("a sweep failed and will be repeated: %s", error, exc_info=not is_known)
            finally:
                del saver

    def _sweep(self, d: SqlDialect, driver: Driver, codec: ValueCodec) -> None:
        token = secrets.token_hex(16)
        lasts = max(SWEEPER_TTL, self._keep.every / 2)
        ttl_seconds = lasts + self._keep.pause
        driver.run(take_claim(d, _SWEEPER, token, "sweep", ttl_seconds))
        renewed = time.monotonic()

        def run(asked: Operation[Any] | Pause) -> Any:
            nonlocal renewed
            if self._stopped.is_set():
                raise _Stopped
            if isinstance(asked, Pause):
                return self._stopped.wait(asked.seconds)
            if time.monotonic() > renewed + lasts / 3:
                driver.run(renew_claim(d, _SWEEPER, token, ttl_seconds))
                renewed = time.monotonic()
            return driver.run(asked)

        try:
            sweep = sweep_operations(d, codec, self._keep, time.time(), dry_run=False, tenants=True, named=self._named)
            done = follow(sweep, run)
            _LOG.info("a sweep finished: %s", done)
        except _Stopped:
            pass  # The saver is being closed; the next sweep deletes what is left.
        finally:
            driver.run(release_claim(d, _SWEEPER, token))
