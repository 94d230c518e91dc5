"""Migration from the official savers' tables, and copying from any saver object.

`migrate` reads the tables of LangGraph's own PostgreSQL and SQLite savers and stores the values as they are, without
making objects of them. It runs next to live traffic, and you may kill it at any time. It does not store again what the
target already has, so a second pass or a second run takes only what is new. Then it reads each checkpoint from both
sides and compares them.

`copy_from` takes what any saver returns, decoded, and stores it again.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Literal
from uuid import UUID

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import BaseCheckpointSaver, CheckpointTuple
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
from langgraph_checkpoint_custom.model.keys import MAX_THREAD_ID, Key, config_of, key_of, texts, thread_text
from langgraph_checkpoint_custom.operations.read import checkpoints_of_threads
from langgraph_checkpoint_custom.operations.write import put_writes
from langgraph_checkpoint_custom.saver import CheckpointSaver
from langgraph_checkpoint_custom.tools.foreign import (
    ForeignCheckpoint,
    ForeignWrite,
    difference,
    encode_foreign_writes,
    foreign_of,
    same,
)
from langgraph_checkpoint_custom.tools.official import Locations, OfficialThreads, open_official

# How often a thread that differs is moved and compared again: a run may have continued in between.
ATTEMPTS = 3
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
        problems: By thread id, what could not be moved or differs.
    """

    threads: int = 0
    checkpoints: int = 0
    writes: int = 0
    verified: int = 0
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
        threads: The ids of the threads to move; by default all.
        serde: The serializer of the source. With an `EncryptedSerializer` the values are decrypted, and encrypted again
            if the target's serializer encrypts.
        verify: Which threads to read again from both sides and to compare: checkpoints, values, metadata, writes, and
            what `DeltaChannel`s are rebuilt from. By default, each thread in which something was stored, right after
            that; with True all threads, at the end; with False none.
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
        chosen = None if threads is None else sorted(set(threads))
        for thread_id in chosen or ():
            if not source.locations([thread_id]):
                raise CheckpointNotFound(f"there is no thread {thread_id!r} in the source")
        pages = source.threads if chosen is None else partial(iter, [chosen])
        return _Move(source, target, pages, diverged, progress).run(verify)


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
            target.put(*known.put_of(one))
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
            await target.aput(*known.put_of(one))
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

    def has_parent(self, one: ForeignCheckpoint) -> bool:
        """Return whether the parent is remembered."""
        return (one.checkpoint_ns, one.parent_id) in self._versions

    def put_of(self, one: ForeignCheckpoint) -> tuple[RunnableConfig, Any, Any, Any]:
        """Return the arguments of `put` for a checkpoint, and remember the checkpoint."""
        new = one.new_versions(self._versions.get((one.checkpoint_ns, one.parent_id)))
        config: RunnableConfig = {"configurable": {"thread_id": one.thread_id, "checkpoint_ns": one.checkpoint_ns}}
        if one.parent_id:
            config["configurable"]["checkpoint_id"] = one.parent_id
        self.remember(one)
        return config, one.checkpoint, one.metadata, new


# The number of writes of each checkpoint, by namespace and id.
_Ours = Mapping[tuple[str, str], int]


def _goes_on(one: Locations | _Ours, other: Locations | _Ours) -> bool:
    """Return whether a thread has checkpoints at one side that are newer than all that both sides have."""
    last = max((checkpoint_id for _, checkpoint_id in one.keys() & other.keys()), default="")
    return any(checkpoint_id > last for _, checkpoint_id in one.keys() - other.keys())


def _to_do(theirs: Locations, ours: _Ours) -> dict[tuple[str, str], bool]:
    """Return the checkpoints that may differ in the target, older ones first, and whether each certainly differs.

    A checkpoint differs for certain if the target does not have it or has another number of its writes. With the same
    number, only the newest checkpoint of a namespace may differ: there an interrupt, a resume or an error may have
    replaced an earlier one. If the thread went on in the target, the target has more writes of checkpoints that both
    sides have.
    """
    heads = dict(theirs.keys())
    goes_on = _goes_on(ours, theirs)
    found = {}
    for location, (writes, replaceable) in theirs.items():
        is_head = heads[location[0]] == location[1]
        if goes_on and location in ours:
            if is_head and ours[location] < writes:
                found[location] = True
            continue
        is_new = ours.get(location) != writes
        if is_new or (replaceable and is_head):
            found[location] = is_new
    return found


def _diverges(theirs: Locations, ours: _Ours) -> bool:
    """Return whether a thread went on at both sides."""
    answered = any(location in ours for location in _to_do(theirs, ours))
    return _goes_on(ours, theirs) and (answered or _goes_on(theirs, ours))


def _heads(theirs: Locations) -> Sequence[tuple[str, str]]:
    """Return the newest checkpoints of the graph and of its subgraphs with a memory, without those of single calls."""
    return [(ns, checkpoint_id) for ns, checkpoint_id in dict(theirs.keys()).items() if ":" not in ns]


class _WentOn(CheckpointError):
    """A thread went on at both sides."""


def _is_key(thread_id: str) -> bool:
    """Return whether the id can be the id of a thread in the target."""
    try:
        thread_text(thread_id)
    except ConfigError:
        return False
    return True


class _Move:
    """One call of `migrate`."""

    def __init__(
        self,
        source: OfficialThreads,
        target: CheckpointSaver,
        pages: Callable[[], Iterable[Sequence[str]]],
        diverged: Diverged,
        progress: Progress,
    ) -> None:
        self._source = source
        self._pages = pages
        self._diverged = diverged
        # A shallow copy of a saver shares its connections and caches.
        self._target = copy(target)
        self._target.serde = raw_reader(target.serde)
        self._target._concurrent_writers = "allow"
        self._progress = progress
        self._moved = MoveReport()
        # By thread, how many checkpoints are the same, or what differs.
        self._compared: dict[str, int | str] = {}

    def run(self, verify: bool | None) -> MoveReport:
        """Copy, copy again what was stored during the first pass, and compare."""
        work = _Move._copy_and_verify if verify is None else _Move._copy
        self._pass("copy", work, self._changed)
        if self._moved.checkpoints:
            self._pass("catch up", work, self._changed)
        if verify:
            self._pass("verify", _Move._verify, set)
        for thread_id, result in self._compared.items():
            if isinstance(result, int):
                self._moved.verified += result
            else:
                self._moved.problems.setdefault(thread_id, result)
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
            other = f"{thread_id}-official"
            if self._source.locations([other]):
                raise ConfigError(f"it went on at both sides, and there is a thread {other!r} already") from None
            renamed = copy(self)
            renamed._source = _Renamed(self._source, thread_id, other)
            work(renamed, other)

    def _changed(self, thread_ids: Sequence[str]) -> set[str]:
        """Return the threads of which the target may lack something; reads no values."""
        theirs, ours = self._source.locations(thread_ids), self._ours(thread_ids)
        return {each for each in theirs if _to_do(theirs[each], ours.get(each, {}))}

    def _copy_and_verify(self, thread_id: str) -> None:
        """Store what the target does not have, and compare if there was something."""
        before = self._moved.checkpoints, self._moved.writes
        self._copy(thread_id)
        if (self._moved.checkpoints, self._moved.writes) != before:
            self._verify(thread_id)

    def _copy(self, thread_id: str) -> None:
        """Store what the target does not have."""
        with self._source.snapshot():
            theirs = self._source.locations([thread_id]).get(thread_id, {})
            ours = self._ours([thread_id]).get(thread_id, {})
            known = _Known()
            diverges = _diverges(theirs, ours)
            heads = [self._source.read(thread_id, *head) for head in _heads(theirs)] if diverges else []
            if diverges and self._diverged != "head":
                raise _WentOn(
                    "it went on in the source and here, so nothing of it was copied; --diverged copy (in Python "
                    f"diverged=\"copy\") stores the source's as thread '{thread_id}-official', and head makes the "
                    "source's newest checkpoint the newest"
                )
            if any(head and head.writes for head in heads):
                raise _WentOn(
                    "it went on in the source and here, and the pending writes of the source's newest checkpoint are "
                    'for no other id; nothing of it was copied; use --diverged copy (in Python diverged="copy")'
                )
            for (ns, checkpoint_id), is_new in _to_do(theirs, ours).items():
                if (ns, checkpoint_id) in ours:
                    location = thread_id, ns, checkpoint_id
                    writes = self._source.read_writes(*location)
                    self._put_writes(Key(*location), writes if is_new else self._replaced(location, writes))
                elif one := self._source.read(thread_id, ns, checkpoint_id):
                    self._know_parent(known, one, ours)
                    self._target.put(*known.put_of(one))
                    self._moved.checkpoints += 1
                    self._put_writes(one.key, one.writes)
            for head in heads:
                self._make_newest(known, head, max(checkpoint_id for _, checkpoint_id in ours))

    def _make_newest(self, known: _Known, head: ForeignCheckpoint | None, newest: str) -> None:
        """Store a checkpoint once more, under an id above `newest`, unless it has one."""
        if head is not None and head.checkpoint_id < newest:
            fresh = max(str(uuid6()), str(UUID(int=UUID(newest).int + 1)))
            checkpoint = {**head.checkpoint, "id": fresh}
            metadata = {**head.metadata, "source": "fork"}
            self._target.put(
                *known.put_of(head._replace(checkpoint_id=fresh, checkpoint=checkpoint, metadata=metadata))
            )
            self._moved.checkpoints += 1

    def _replaced(self, location: tuple[str, str, str], writes: Sequence[ForeignWrite]) -> Sequence[ForeignWrite]:
        """Return the writes that have replaced others since the target stored them; comparing costs no commit."""
        found = self._target.get_tuple(config_of(*location))
        ours = {(task_id, channel): value for task_id, channel, value in (found and found.pending_writes) or ()}
        return [
            each for each in writes if each.idx < 0 and not same(ours.get((each.task_id, each.channel)), each.value)
        ]

    def _put_writes(self, key: Key, writes: Sequence[ForeignWrite]) -> None:
        for rows in encode_foreign_writes(self._target.backend.values, key, writes):
            self._target.backend.driver.run(put_writes(self._target.backend.dialect, key, rows, None))
        self._moved.writes += len(writes)

    def _know_parent(self, known: _Known, one: ForeignCheckpoint, ours: _Ours) -> None:
        if one.parent_id and not known.has_parent(one) and (one.checkpoint_ns, one.parent_id) in ours:
            parent = self._source.read(one.thread_id, one.checkpoint_ns, one.parent_id)
            if parent is not None:
                known.remember(parent)

    def _ours(self, thread_ids: Sequence[str]) -> Mapping[str, _Ours]:
        can_be = [thread_id for thread_id in thread_ids if _is_key(thread_id)]
        found = (
            self._target.backend.driver.run(checkpoints_of_threads(self._target.backend.dialect, can_be))
            if can_be
            else []
        )
        return {
            thread_id: {(ns, checkpoint_id): writes for ns, checkpoint_id, writes in rows}
            for thread_id, rows in zip(can_be, found, strict=True)
        }

    def _verify(self, thread_id: str) -> None:
        for attempt in range(1, ATTEMPTS + 1):
            count, problem = self._compare(thread_id)
            if problem is None:
                break
            if attempt < ATTEMPTS:
                self._copy(thread_id)
        self._compared[thread_id] = count if problem is None else problem

    def _compare(self, thread_id: str) -> tuple[int, str | None]:
        """Return the number of checkpoints and None if all are the same, else 0 and a description of what differs."""
        with self._source.snapshot():
            missing = dict(self._source.locations([thread_id]).get(thread_id, {}))
            goes_on = _goes_on(self._ours([thread_id]).get(thread_id, {}), missing)
            count = len(missing)
            heads = dict(missing.keys())
            for found in self._target.list(_thread(thread_id)):
                _, ns, checkpoint_id = key_of(found.config)
                if missing.pop((ns, checkpoint_id or ""), None) is None:
                    continue  # It was stored after the move.
                one = self._source.read(thread_id, ns, checkpoint_id or "")
                if one and goes_on:  # Its tasks have gone on here, and have written more.
                    one, found = one._replace(writes=()), found._replace(pending_writes=[])
                if one and (what := difference(self._without_excluded(one), found)):
                    return 0, f"checkpoint {checkpoint_id!r} of namespace {ns!r}: {what}"
                if one and one.delta_channels and heads[ns] == checkpoint_id and (what := self._history_differs(one)):
                    return 0, f"checkpoint {checkpoint_id!r} of namespace {ns!r}: {what}"
            for ns, checkpoint_id in missing:
                return 0, f"checkpoint {checkpoint_id!r} of namespace {ns!r}: it is missing"
        return count, None

    def _without_excluded(self, one: ForeignCheckpoint) -> ForeignCheckpoint:
        """Leave out the metadata keys that the target does not store."""
        excluded = self._target.backend.values.excluded
        return one._replace(metadata={key: value for key, value in one.metadata.items() if key not in excluded})

    def _history_differs(self, one: ForeignCheckpoint) -> str | None:
        config = config_of(one.thread_id, one.checkpoint_ns, one.checkpoint_id)
        ours = self._target.get_delta_channel_history(config=config, channels=one.delta_channels)
        theirs = _Walk(self._source).get_delta_channel_history(config=config, channels=one.delta_channels)
        for channel in one.delta_channels:
            if not same(dict(ours[channel]), dict(theirs[channel])):
                return f"what channel {channel!r} is rebuilt from differs"
        return None


class _Renamed:
    """The source, in which one thread has another id."""

    def __init__(self, source: OfficialThreads, thread_id: str, other: str) -> None:
        self._source = source
        self._thread_id = thread_id
        self._other = other

    def snapshot(self) -> Any:
        return self._source.snapshot()

    def locations(self, thread_ids: Sequence[str]) -> Mapping[str, Locations]:
        return {self._other: self._source.locations([self._thread_id]).get(self._thread_id, {})}

    def read(self, thread_id: str, checkpoint_ns: str, checkpoint_id: str) -> ForeignCheckpoint | None:
        one = self._source.read(self._thread_id, checkpoint_ns, checkpoint_id)
        if one is None:
            return None
        renamed = {"thread_id": self._other} if one.metadata.get("thread_id") == self._thread_id else {}
        return one._replace(thread_id=self._other, metadata={**one.metadata, **renamed})

    def read_writes(self, thread_id: str, checkpoint_ns: str, checkpoint_id: str) -> Sequence[ForeignWrite]:
        return self._source.read_writes(self._thread_id, checkpoint_ns, checkpoint_id)


class _Walk(BaseCheckpointSaver[Any]):
    """Walks over the ancestors in the source as LangGraph does."""

    def __init__(self, source: OfficialThreads) -> None:
        super().__init__()
        self._source = source

    def get_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        thread_id, ns, checkpoint_id = key_of(config)
        one = self._source.read(thread_id, ns, checkpoint_id or "")
        return one and one.as_tuple()
