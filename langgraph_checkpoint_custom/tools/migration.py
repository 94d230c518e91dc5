"""Moves from and to the official savers' tables, and copying from any saver object.

`migrate` reads the tables of LangGraph's own PostgreSQL and SQLite savers and stores the values as they are, without
making objects of them; `migrate_back` does the reverse. Both run next to live traffic, and you may kill them at any
time. They do not store again what the target already has, so a second pass or a second run takes only what is new. Then
they read each checkpoint from both sides and compare them.

What was moved of a thread is remembered in the table `moves`, for both directions and also when the thread is deleted.
So no later run brings back what was deleted, unless the thread is named.

`copy_from` takes what any saver returns, decoded, and stores it again.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import Any, Literal
from uuid import UUID

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import BaseCheckpointSaver, CheckpointTuple, DeltaChannelHistory
from langgraph.checkpoint.base.id import uuid6
from langgraph.checkpoint.serde.base import SerializerProtocol
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer

from langgraph_checkpoint_custom.encoding.raw import raw_reader
from langgraph_checkpoint_custom.errors import (
    CheckpointError,
    CheckpointNotFound,
    ClosedError,
    ConfigError,
    StorageError,
)
from langgraph_checkpoint_custom.model.keys import MAX_THREAD_ID, Key, texts
from langgraph_checkpoint_custom.operations.write import put_writes
from langgraph_checkpoint_custom.saver import CheckpointSaver
from langgraph_checkpoint_custom.tools.fence import open_again
from langgraph_checkpoint_custom.tools.foreign import (
    ForeignCheckpoint,
    ForeignWrite,
    difference,
    encode_foreign_writes,
    foreign_of,
    same,
)
from langgraph_checkpoint_custom.tools.official import (
    Locations,
    Part,
    SourceThreads,
    TargetThreads,
    open_dry,
    open_official,
)
from langgraph_checkpoint_custom.tools.own import Moved, OwnThreads

# How often a thread that differs is moved and compared again: a run may have continued in between.
ATTEMPTS = 3
# Checkpoints that are read, stored and compared together. Their values are in memory at the same time.
READ = 20
# Checkpoints whose versions are remembered, to see what is new in a child. Parents mostly come shortly before it.
REMEMBERED = 200


@dataclass
class MoveReport:
    """What a migration or a copy has done.

    Attributes:
        threads: Threads that were examined.
        checkpoints: Checkpoints that were stored; those that `migrate` found in the target are not counted.
        writes: Writes that were stored, or stored again.
        verified: Checkpoints that were read from both sides and are the same.
        deleted: Threads that were moved earlier and deleted in the target since; they were not moved again.
        problems: By thread id, what could not be moved or differs.
    """

    threads: int = 0
    checkpoints: int = 0
    writes: int = 0
    verified: int = 0
    deleted: int = 0
    problems: dict[str, str] = field(default_factory=dict)

    def count(self, one: ForeignCheckpoint) -> None:
        """Count a checkpoint that was stored, and its writes."""
        self.checkpoints += 1
        self.writes += len(one.writes)


Diverged = Literal["report", "copy", "head"]

# Called after each thread with the pass ("copy", "catch up", "verify") and the number of threads that it has done.
Progress = Callable[[str, int], None]


def migrate(
    source_url: str,
    target: CheckpointSaver,
    *,
    threads: Collection[str] | None = None,
    serde: SerializerProtocol | None = None,
    verify: bool | None = None,
    diverged: Diverged = "report",
    progress: Progress = lambda what, threads: None,
) -> MoveReport:
    """Move everything from the database of an official LangGraph saver; runs may continue there.

    Args:
        source_url: The database with the official saver's tables; see `open_official`.
        target: The saver to store to.
        threads: The ids of the threads to move, also if they were moved earlier and deleted since; by default all
            others.
        serde: The serializer of the source. With an `EncryptedSerializer` the values are decrypted, and encrypted again
            if the target's serializer encrypts.
        verify: What to read again from both sides and to compare: checkpoints, values, metadata, writes, and what
            `DeltaChannel`s are rebuilt from. By default, what was stored, right after that; with True everything, at
            the end; with False nothing.
        diverged: What to do with a thread that went on in both databases after an earlier migration. "report" stores
            nothing of it, and it is in `problems`. "copy" stores what the source has as a thread of its own, whose id
            ends with "-official". "head" stores both branches in the thread, and makes the newest checkpoint of the
            source its newest one, under a new id; if that checkpoint has pending writes, the thread is in `problems`.
        progress: Called after each thread with the name of the pass and the number of threads that it has done.

    Returns:
        What was moved. A thread that could not be moved is in `problems`; the others are moved nevertheless.

    Raises:
        CheckpointNotFound: One of `threads` does not exist; nothing was moved.
    """
    with open_official(source_url, raw_reader(serde or JsonPlusSerializer())) as source:
        pages = _pages(source, source.threads, threads)
        own = OwnThreads(target, source.name)
        move = _Move(source, own, own, pages, diverged, progress)
        return move.run(verify, are_named=threads is not None)


def migrate_back(
    source: CheckpointSaver,
    target_url: str,
    *,
    threads: Collection[str] | None = None,
    serde: SerializerProtocol | None = None,
    verify: bool | None = None,
    diverged: Diverged = "report",
    progress: Progress = lambda what, threads: None,
    dry_run: bool = False,
) -> MoveReport:
    """Move everything to the database of an official LangGraph saver; runs may continue there with that saver.

    Tables that do not exist are created as the official saver does it. Tables that `fence.close` has closed are opened.
    A thread is stored in one transaction. Threads of other frameworks are left out.

    Args:
        source: The saver to read from. The threads of a tenant are moved with the tenant's saver.
        target_url: The database of the official saver; see `open_official`.
        threads: The ids of the threads to move; by default all.
        serde: The serializer of the target. With an `EncryptedSerializer` the values are encrypted.
        verify: As for `migrate`.
        diverged: As for `migrate`. The id of a thread of its own ends with "-custom".
        progress: As for `migrate`.
        dry_run: Whether to move everything to new temporary tables instead, and change nothing: on PostgreSQL in the
            same database, for SQLite in a temporary file.

    Returns:
        What was moved. A thread that could not be moved is in `problems`; the others are moved nevertheless. So is a
        thread that was moved earlier, was deleted here since, and still exists in the target.

    Raises:
        CheckpointNotFound: One of `threads` does not exist; nothing was moved.
        SchemaForeign: The target has other tables.
    """
    reader = raw_reader(serde or JsonPlusSerializer())
    with open_dry(target_url, reader) if dry_run else open_official(target_url, reader, writes=True) as target:
        own = OwnThreads(source, None if dry_run else target.name)
        if not dry_run:
            open_again(target_url)
            if target.is_new:
                own.forget()
        move = _Move(own, target, own, _pages(own, own.threads, threads), diverged, progress)
        return move.run(verify, are_named=threads is not None)


def _pages(
    source: SourceThreads, every: Callable[[], Iterable[Sequence[str]]], threads: Collection[str] | None
) -> Callable[[], Iterable[Sequence[str]]]:
    """Return a function that yields pages of the chosen threads, or of all.

    Raises:
        CheckpointNotFound: A chosen thread does not exist.
    """
    if threads is None:
        return every
    chosen = sorted(set(threads))
    for thread_id in chosen:
        if not source.locations([thread_id]):
            raise CheckpointNotFound(f"there is no thread {thread_id!r} in the source")
    return partial(iter, [chosen])


def copy_from(
    source: BaseCheckpointSaver[Any], target: CheckpointSaver, threads: Iterable[str] | None = None
) -> MoveReport:
    """Store what another saver returns, thread by thread; what the target already has is stored again.

    Args:
        source: Any saver with sync methods. If it is one of this package, `transfer` also copies the threads of
            tenants.
        target: The saver to store to.
        threads: The ids of the threads. The default is all threads, if the source can list them.

    Returns:
        What was copied.

    Raises:
        ConfigError: The source has tenants, whose threads would be left out.
    """
    if threads is None and isinstance(source, CheckpointSaver) and not source.backend.dialect.tenant:
        _check_tenants(source.tenants())
    moved = MoveReport()
    for thread_id in _thread_ids(source.list(None)) if threads is None else _texts(threads):
        known = _Known()
        for one in _oldest_first(source.list(_thread(thread_id))):
            target.put(*one.put_arguments(known.parent_of(one)))
            known.remember(one)
            for rows in encode_foreign_writes(target.backend.values, one.key, one.writes):
                target.backend.driver.run(put_writes(target.backend.dialect, one.key, rows, None))
            moved.count(one)
        moved.threads += 1
    return moved


async def acopy_from(
    source: BaseCheckpointSaver[Any], target: CheckpointSaver, threads: Iterable[str] | None = None
) -> MoveReport:
    """Async version of `copy_from`."""
    if threads is None and isinstance(source, CheckpointSaver) and not source.backend.dialect.tenant:
        _check_tenants(await source.atenants())
    moved = MoveReport()
    for thread_id in _thread_ids([one async for one in source.alist(None)]) if threads is None else _texts(threads):
        known = _Known()
        for one in _oldest_first([one async for one in source.alist(_thread(thread_id))]):
            await target.aput(*one.put_arguments(known.parent_of(one)))
            known.remember(one)
            for rows in encode_foreign_writes(target.backend.values, one.key, one.writes):
                await target.backend.driver.arun(put_writes(target.backend.dialect, one.key, rows, None))
            moved.count(one)
        moved.threads += 1
    return moved


def _check_tenants(names: Sequence[str]) -> None:
    if names:
        raise ConfigError(
            f"the source has threads of {len(names)} tenants, which would be left behind; use transfer, or copy from "
            "source.for_tenant(…) for each, and name the threads of those without one"
        )


def _thread(thread_id: str) -> RunnableConfig:
    return {"configurable": {"thread_id": thread_id}}


def _thread_ids(tuples: Iterable[CheckpointTuple]) -> list[str]:
    return sorted({str(one.config["configurable"]["thread_id"]) for one in tuples})


def _texts(threads: Iterable[str]) -> list[str]:
    return texts("thread", threads, MAX_THREAD_ID)


def _oldest_first(tuples: Iterable[CheckpointTuple]) -> Sequence[ForeignCheckpoint]:
    return sorted(map(foreign_of, tuples), key=lambda one: (one.checkpoint_id, one.checkpoint_ns))


class _Known:
    """Remembers the channel versions of the last stored checkpoints. A version that the parent does not have is new."""

    def __init__(self) -> None:
        self._versions: OrderedDict[tuple[str, str | None], Mapping[str, Any]] = OrderedDict()

    def remember(self, one: ForeignCheckpoint) -> None:
        """Remember a checkpoint that was stored."""
        self._versions[one.checkpoint_ns, one.checkpoint_id] = one.versions
        if len(self._versions) > REMEMBERED:
            self._versions.popitem(last=False)

    def parent_of(self, one: ForeignCheckpoint) -> Mapping[str, Any] | None:
        """Return the versions of the parent, if it is remembered."""
        return self._versions.get((one.checkpoint_ns, one.parent_id))


def _goes_on(one: Locations, other: Locations, moved: Moved) -> bool:
    """Return whether a thread has checkpoints at one side that are newer than all that both sides have, or had."""
    apart = one.keys() ^ other.keys()
    moved_once = set(filter(moved.has, apart))
    last = max((checkpoint_id for _, checkpoint_id in (one.keys() & other.keys()) | moved_once), default="")
    return any(location[1] > last for location in (apart - moved_once) & one.keys())


def _to_do(theirs: Locations, ours: Locations, moved: Moved, goes_on: bool) -> dict[tuple[str, str], bool]:
    """Return the checkpoints that may differ in the target, older ones first, and whether each certainly differs.

    A checkpoint differs for certain if the target does not have it or has another number of its writes. With the same
    number, only the newest checkpoint of a namespace may differ: there an interrupt, a resume or an error may have
    replaced an earlier one. If the thread goes on in the target, the target has more writes of checkpoints that both
    sides have. A checkpoint that was moved and is not there any more was deleted; so were writes.
    """
    heads = dict(theirs.keys())
    found = {}
    for location, (writes, replaceable) in theirs.items():
        is_head = heads[location[0]] == location[1]
        if location not in ours:
            if not moved.has(location):
                found[location] = True
        elif goes_on:
            if is_head and ours[location].writes < writes and not moved.has(location, writes):
                found[location] = True
        elif ours[location].writes != writes:
            if not moved.has(location, writes):
                found[location] = True
        elif replaceable and is_head:
            found[location] = False
    return found


def _heads(theirs: Locations) -> Sequence[tuple[str, str]]:
    """Return the newest checkpoints of the graph and of its subgraphs with a memory, without those of single calls."""
    return [(ns, checkpoint_id) for ns, checkpoint_id in dict(theirs.keys()).items() if ":" not in ns]


class _WentOn(CheckpointError):
    """A thread went on at both sides."""


@dataclass
class _Thread:
    """What the two sides have of a thread, and what was moved of it earlier, from either side to the other."""

    theirs: Locations
    ours: Locations
    moved: Moved
    is_named: bool

    @property
    def is_deleted(self) -> bool:
        """Whether the thread was deleted in the target after it had been moved."""
        return bool(self.moved) and not self.ours and not self.is_named

    @property
    def is_new(self) -> bool:
        """Whether the source has checkpoints that were never moved."""
        return not all(map(self.moved.has, self.theirs))

    @property
    def is_remembered(self) -> bool:
        """Whether it is remembered that all of the source was moved."""
        return not self.is_new and all(self.moved.has(each, writes) for each, (writes, _) in self.theirs.items())

    @cached_property
    def goes_on(self) -> bool:
        """Whether the thread goes on in the target."""
        return _goes_on(self.ours, self.theirs, self.moved)

    @cached_property
    def to_do(self) -> dict[tuple[str, str], bool]:
        """What may differ in the target; see `_to_do`."""
        return _to_do(self.theirs, self.ours, Moved() if self.is_named else self.moved, self.goes_on)

    @property
    def diverges(self) -> bool:
        """Whether the thread went on at both sides."""
        answered = any(location in self.ours for location in self.to_do)
        return self.goes_on and (answered or _goes_on(self.theirs, self.ours, self.moved))

    def comparable(self, one: ForeignCheckpoint) -> ForeignCheckpoint:
        """Return a checkpoint of the source without what the target may lack: what was deleted there after the move."""
        place, parent = (one.checkpoint_ns, one.checkpoint_id), (one.checkpoint_ns, one.parent_id or "")
        if not self.is_named and parent not in self.ours and self.moved.has(parent):
            one = one._replace(parent_id=None)
        return one._replace(writes=()) if self.has_other_writes(place) else one

    def has_other_writes(self, place: tuple[str, str]) -> bool:
        """Whether the target has written more to a checkpoint, or has deleted some of its writes."""
        if self.goes_on:
            return True
        there, here = self.theirs[place].writes, self.ours.get(place)
        return here is not None and here.writes < there and not self.is_named and self.moved.has(place, there)


class _Move:
    """One move of threads from a source to a target."""

    def __init__(
        self,
        source: SourceThreads,
        target: TargetThreads,
        ledger: OwnThreads,
        pages: Callable[[], Iterable[Sequence[str]]],
        diverged: Diverged,
        progress: Progress,
    ) -> None:
        self._source = source
        self._target = target
        self._ledger = ledger
        self._pages = pages
        self._diverged = diverged
        self._progress = progress
        self._are_named = False
        self._compares = False
        self._moved = MoveReport()
        # By thread, what differs.
        self._different: dict[str, str] = {}
        self._deleted: set[str] = set()

    def run(self, verify: bool | None, *, are_named: bool) -> MoveReport:
        """Copy, copy again what was stored during the first pass, and compare.

        `are_named` also copies what was deleted in the target.
        """
        self._are_named = are_named
        self._compares = verify is None
        self._pass("copy", _Move._copy, self._changed)
        if self._moved.checkpoints:
            self._pass("catch up", _Move._copy, self._changed)
        if verify:
            self._pass("verify", _Move._verify, set)
        self._moved.problems = {**self._different, **self._moved.problems}
        self._moved.deleted = len(self._deleted)
        if not are_named:
            self._find_deleted()
        return self._moved

    def _pass(self, what: str, work: Callable[[_Move, str], None], chosen: Callable[[Sequence[str]], set[str]]) -> None:
        """Call `work` with each thread that `chosen` returns of a page of ids."""
        self._moved.problems = {}  # A later pass finds a problem again if it is still there.
        number = 0
        for page in self._pages():
            concerned = chosen(page)
            for thread_id in page:
                number += 1
                try:
                    if thread_id in concerned:
                        self._work_on(thread_id, work)
                except (StorageError, ClosedError):
                    raise
                except (CheckpointError, ValueError) as error:
                    self._moved.problems[thread_id] = str(error)
                self._progress(what, number)
        self._moved.threads = number

    def _work_on(self, thread_id: str, work: Callable[[_Move, str], None]) -> None:
        try:
            work(self, thread_id)
        except _WentOn:
            if self._diverged != "copy":
                raise
            other = f"{thread_id}{self._source.suffix}"
            self._different.pop(thread_id, None)  # It is compared with the other one.
            if self._source.locations([other]):
                raise ConfigError(f"it went on in both databases, and there is a thread {other!r} already") from None
            renamed = copy(self)
            renamed._source = _Renamed(self._source, thread_id, other)
            work(renamed, other)

    def _find_deleted(self) -> None:
        """Report threads that were moved, and are not in the source any more."""
        for page in self._ledger.moved_threads():
            theirs = self._source.locations([*page, *(each.removesuffix(self._source.suffix) for each in page)])
            gone = [each for each in page if not {each, each.removesuffix(self._source.suffix)} & theirs.keys()]
            for thread_id in self._target.locations(gone):
                self._moved.problems.setdefault(
                    thread_id,
                    "it was moved, and has been deleted in the source since; the target still has it: delete it there",
                )

    def _threads(self, thread_ids: Sequence[str]) -> Mapping[str, _Thread]:
        theirs, ours = self._source.locations(thread_ids), self._target.locations(thread_ids)
        moved = self._ledger.moved(thread_ids)
        return {
            each: _Thread(theirs[each], ours.get(each, {}), moved[each], self._are_named)
            for each in thread_ids
            if each in theirs
        }

    def _changed(self, thread_ids: Sequence[str]) -> set[str]:
        """Return the threads of which the target may lack something; reads no values."""
        threads = self._threads(thread_ids)
        copied_there = self._target.suffix  # Such a thread was never here.
        self._deleted |= {
            each for each, thread in threads.items() if thread.is_deleted and not each.endswith(copied_there)
        }
        return {
            thread_id
            for thread_id, thread in threads.items()
            if thread.is_new or not (thread.is_deleted or (thread.is_remembered and not thread.to_do))
        }

    def _copy(self, thread_id: str) -> None:
        """Store what the target does not have, and compare it."""
        with self._source.snapshot():
            thread = self._threads([thread_id]).get(thread_id)
            if thread is None:
                return
            if thread.is_deleted:
                if thread.is_new:
                    raise CheckpointError(
                        "it was moved, and has been deleted in the target since, but it went on in the source; nothing "
                        "of it was copied; --thread (in Python threads=) moves it again"
                    )
                return
            to_do, newest = thread.to_do, self._new_heads(thread_id, thread)
            places = list(to_do)
            moved = None if thread.is_remembered else thread.moved.stored_with(thread.theirs)
            known = _Known()
            with self._target.storing():
                for at in range(0, len(places), READ):
                    page = {place: to_do[place] for place in places[at : at + READ]}
                    last = (newest, moved) if at + READ >= len(places) else ((), None)
                    self._store(thread_id, thread, known, page, *last, is_first=not (at or thread.moved))
            if moved is not None and not (places and self._target.remembers):
                self._ledger.remember(thread_id, moved)

    def _new_heads(self, thread_id: str, thread: _Thread) -> Sequence[ForeignCheckpoint]:
        """Return the newest checkpoints of the source under new ids, which make them the newest ones of the target.

        Raises:
            _WentOn: The thread went on at both sides, and its checkpoints may not become the newest ones, or cannot.
        """
        if not thread.diverges:
            return ()
        if self._diverged != "head":
            raise _WentOn(
                "it went on in both databases, so nothing of it was copied; --diverged copy (in Python "
                f"diverged=\"copy\") stores the source's as thread '{thread_id}{self._source.suffix}', and head "
                "makes the source's newest checkpoint the newest"
            )
        heads = self._source.read(thread_id, _heads(thread.theirs))
        if any(head.writes for head in heads):
            raise _WentOn(
                "it went on in both databases, and the pending writes of the source's newest checkpoint are "
                'for no other id; nothing of it was copied; use --diverged copy (in Python diverged="copy")'
            )
        newest = max(checkpoint_id for _, checkpoint_id in thread.ours)
        return [_with_newer_id(head, newest) for head in heads if head.checkpoint_id < newest]

    def _store(
        self,
        thread_id: str,
        thread: _Thread,
        known: _Known,
        page: Mapping[tuple[str, str], bool],
        newest: Sequence[ForeignCheckpoint],
        moved: bytes | None,
        *,
        is_first: bool,
    ) -> None:
        """Store a page of what the target lacks, and compare it."""
        new = self._source.read(thread_id, [place for place in page if place not in thread.ours])
        writes = [(one.key, one.writes) for one in new]
        written = []
        for place, differs in page.items():
            if place in thread.ours:
                found = self._source.read_writes(thread_id, *place)
                if found := found if differs else self._replaced(thread_id, place, found):
                    writes.append((Key(thread_id, *place), found))
                    written.append(place)
        parents = {(one.checkpoint_ns, one.parent_id or "") for one in new if known.parent_of(one) is None}
        for parent in self._source.read(thread_id, sorted(parents & thread.ours.keys())):
            known.remember(parent)
        stored = []
        for one in (*new, *newest):
            stored.append((one, known.parent_of(one)))
            known.remember(one)
        self._target.store(thread_id, Part(stored, writes, is_first, moved))
        self._moved.checkpoints += len(stored)
        self._moved.writes += sum(len(each) for _, each in writes)
        if self._compares and writes:
            self._compare(thread_id, thread, [*new, *self._source.read(thread_id, written)])

    def _replaced(
        self, thread_id: str, place: tuple[str, str], writes: Sequence[ForeignWrite]
    ) -> Sequence[ForeignWrite]:
        """Return the writes that have replaced others since the target stored them; comparing costs no commit."""
        ours = {
            (each.task_id, each.channel): each.value
            for one in self._target.read(thread_id, [place])
            for each in one.writes
        }
        return [
            each for each in writes if each.idx < 0 and not same(ours.get((each.task_id, each.channel)), each.value)
        ]

    def _verify(self, thread_id: str) -> None:
        """Compare all of a thread."""
        for attempt in range(1, ATTEMPTS + 1):
            with self._source.snapshot():
                thread = self._threads([thread_id]).get(thread_id)
                places = list(thread.theirs) if thread else []
                before = self._moved.verified
                self._different.pop(thread_id, None)
                for at in range(0, len(places), READ):
                    ones = self._source.read(thread_id, places[at : at + READ])
                    assert thread is not None
                    self._compare(thread_id, thread, ones)
            if thread_id not in self._different:
                break
            self._moved.verified = before
            if attempt < ATTEMPTS:
                self._copy(thread_id)

    def _compare(self, thread_id: str, thread: _Thread, ones: Sequence[ForeignCheckpoint]) -> None:
        """Compare checkpoints of the source with those of the target."""
        heads = dict(thread.theirs.keys())
        places = [(one.checkpoint_ns, one.checkpoint_id) for one in ones]
        ours = {one.key: one for one in self._target.read(thread_id, places)}
        for one in ones:
            place, found = (one.checkpoint_ns, one.checkpoint_id), ours.get(one.key)
            if found is None and thread.moved.has(place):
                continue  # It was deleted after the move.
            what = "it is missing" if found is None else self._difference(thread, one, found)
            if not what and one.delta_channels and heads[one.checkpoint_ns] == one.checkpoint_id:
                what = self._history_differs(one)
            if what:
                self._different[thread_id] = f"checkpoint {place[1]!r} of namespace {place[0]!r}: {what}"
                return
            self._moved.verified += 1

    def _difference(self, thread: _Thread, one: ForeignCheckpoint, found: ForeignCheckpoint) -> str | None:
        excluded = self._target.excluded
        metadata = {key: value for key, value in one.metadata.items() if key not in excluded}
        one = thread.comparable(one._replace(metadata=metadata))
        if thread.has_other_writes((one.checkpoint_ns, one.checkpoint_id)):
            found = found._replace(writes=())
        if self._target.adds_values:
            found = found.without_values(set(one.delta_channels) - set(one.checkpoint["channel_values"]))
        return difference(one, found)

    def _history_differs(self, one: ForeignCheckpoint) -> str | None:
        ours = self._target.history(one.key, one.delta_channels)
        theirs = self._source.history(one.key, one.delta_channels)
        for channel in one.delta_channels:
            if not same(dict(ours[channel]), dict(theirs[channel])):
                return f"what channel {channel!r} is rebuilt from differs"
        return None


def _with_newer_id(head: ForeignCheckpoint, newest: str) -> ForeignCheckpoint:
    """Return a checkpoint under an id above `newest`."""
    fresh = max(str(uuid6()), str(UUID(int=UUID(newest).int + 1)))
    checkpoint = {**head.checkpoint, "id": fresh}
    return head._replace(checkpoint_id=fresh, checkpoint=checkpoint, metadata={**head.metadata, "source": "fork"})


class _Renamed:
    """The source, in which one thread has another id."""

    def __init__(self, source: SourceThreads, thread_id: str, other: str) -> None:
        self._source = source
        self._thread_id = thread_id
        self._other = other
        self.suffix = source.suffix

    def snapshot(self) -> Any:
        return self._source.snapshot()

    def locations(self, thread_ids: Sequence[str]) -> Mapping[str, Locations]:
        return {self._other: self._source.locations([self._thread_id]).get(self._thread_id, {})}

    def read(self, thread_id: str, places: Sequence[tuple[str, str]]) -> Sequence[ForeignCheckpoint]:
        return [
            one._replace(
                thread_id=self._other,
                metadata={
                    key: self._other if (key, value) == ("thread_id", self._thread_id) else value
                    for key, value in one.metadata.items()
                },
            )
            for one in self._source.read(self._thread_id, places)
        ]

    def read_writes(self, thread_id: str, checkpoint_ns: str, checkpoint_id: str) -> Sequence[ForeignWrite]:
        return self._source.read_writes(self._thread_id, checkpoint_ns, checkpoint_id)

    def history(self, key: Key, channels: Sequence[str]) -> Mapping[str, DeltaChannelHistory]:
        return self._source.history(key._replace(thread_id=self._thread_id), channels)
