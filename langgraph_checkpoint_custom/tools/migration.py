"""Moves from and to the official savers' tables, and copying from any saver object.

`migrate` reads the tables of LangGraph's own PostgreSQL and SQLite savers and stores the values as they are, without
making objects of them; `migrate_back` does the reverse. Both run next to live traffic, and you may kill them at any
time. They do not store again what the target already has, so a second run takes only what is new. What they store, they
read again and compare.

What was moved of a thread is remembered in the table `moves`, for both directions and also when the thread is deleted.
So no later run brings back what was deleted, unless the thread is named.

`copy_from` takes what any saver returns, decoded, and stores it again.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import BaseCheckpointSaver, CheckpointTuple
from langgraph.checkpoint.serde.base import SerializerProtocol
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer

from langgraph_checkpoint_custom.encoding.raw import raw_reader
from langgraph_checkpoint_custom.engine.operation import Operation
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
    Part,
    Place,
    difference,
    encode_foreign_writes,
    foreign_of,
    same,
)
from langgraph_checkpoint_custom.tools.move_plan import Moved, ThreadMove
from langgraph_checkpoint_custom.tools.official import OfficialStore, open_official
from langgraph_checkpoint_custom.tools.own import OwnThreads

# Checkpoints that are read, stored and compared together. Their values are in memory at the same time.
READ = 20
# Checkpoints whose versions are remembered, to see what is new in a child. Parents mostly come shortly before it.
REMEMBERED = 200


@dataclass
class MoveReport:
    """What a migration or a copy has done.

    Attributes:
        threads: Threads that were examined.
        checkpoints: Checkpoints that were stored, and by `migrate` compared, of threads that have no problem; those
            that the target had already are not counted.
        writes: Writes that were stored, or stored again, of these threads.
        deleted: Threads that were moved earlier and deleted in the target since; they were not moved again.
        problems: By thread id, what could not be moved or differs.
    """

    threads: int = 0
    checkpoints: int = 0
    writes: int = 0
    deleted: int = 0
    problems: dict[str, str] = field(default_factory=dict)


Diverged = Literal["report", "copy"]

Side = OfficialStore | OwnThreads

# Called after each thread with the number of threads that are done.
Progress = Callable[[int], None]


def migrate(
    source_url: str,
    target: CheckpointSaver,
    *,
    threads: Collection[str] | None = None,
    serde: SerializerProtocol | None = None,
    diverged: Diverged = "report",
    progress: Progress = lambda threads: None,
) -> MoveReport:
    """Move everything from the database of an official LangGraph saver; runs may continue there.

    What is stored is read again and compared: checkpoints, values, metadata and writes.

    Args:
        source_url: The database with the official saver's tables; see `open_official`.
        target: The saver to store to.
        threads: The ids of the threads to move, also if they were moved earlier and deleted since; by default all
            others.
        serde: The serializer of the source. With an `EncryptedSerializer` the values are decrypted, and encrypted again
            if the target's serializer encrypts.
        diverged: What to do with a thread that went on in both databases after an earlier migration. "report" stores
            nothing of it, and it is in `problems`. "copy" stores what the source has as a thread of its own, whose id
            ends with "-official". Once all of it is stored so, the thread is no problem any more.
        progress: Called after each thread with the number of threads that are done.

    Returns:
        What was moved. A thread that could not be moved is in `problems`; the others are moved nevertheless.

    Raises:
        CheckpointNotFound: One of `threads` does not exist; nothing was moved.
    """
    with open_official(source_url, raw_reader(serde or JsonPlusSerializer())) as source:
        own = OwnThreads(target, source.name)
        return _Move(source, own, own, diverged).run(threads, progress)


def migrate_back(
    source: CheckpointSaver,
    target_url: str,
    *,
    threads: Collection[str] | None = None,
    serde: SerializerProtocol | None = None,
    diverged: Diverged = "report",
    progress: Progress = lambda threads: None,
) -> MoveReport:
    """Move everything to the database of an official LangGraph saver; runs may continue there with that saver.

    Tables that do not exist are created as the official saver does it. Tables that `fence.close` has closed are opened.
    A thread is stored in one transaction. Threads of other frameworks are left out.

    Args:
        source: The saver to read from. The threads of a tenant are moved with the tenant's saver.
        target_url: The database of the official saver; see `open_official`.
        threads: The ids of the threads to move; by default all.
        serde: The serializer of the target. With an `EncryptedSerializer` the values are encrypted. A source that
            encrypts has to be given one: a `JsonPlusSerializer` stores the values readable.
        diverged: As for `migrate`. The id of a thread of its own ends with "-custom".
        progress: As for `migrate`.

    Returns:
        What was moved. A thread that could not be moved is in `problems`; the others are moved nevertheless. So is a
        thread that was moved earlier, was deleted here since, and still exists in the target.

    Raises:
        CheckpointNotFound: One of `threads` does not exist; nothing was moved.
        ConfigError: The source encrypts, and there is no `serde`; nothing was moved.
        SchemaForeign: The target has other tables.
    """
    if serde is None and source.backend.values.plaintext_keys is not None:
        raise ConfigError(
            "the values are encrypted here, and would be readable in LangGraph's tables: pass serde= with the "
            "EncryptedSerializer of these tables (in the command, --official-key), or a JsonPlusSerializer "
            "(--official-key unencrypted) to store them so"
        )
    reader = raw_reader(serde or JsonPlusSerializer())
    with open_official(target_url, reader, writes=True) as target:
        own = OwnThreads(source, target.name)
        open_again(target_url)
        if target.is_new:
            own.forget()
        return _Move(own, target, own, diverged).run(threads, progress)


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
    for thread_id in _thread_ids(threads, map(_thread_of, source.list(None)) if threads is None else ()):
        for arguments, writes in _copies(source.list(_thread(thread_id)), target, moved):
            target.put(*arguments)
            for operation in writes:
                target.backend.driver.run(operation)
    return moved


async def acopy_from(
    source: BaseCheckpointSaver[Any], target: CheckpointSaver, threads: Iterable[str] | None = None
) -> MoveReport:
    """Async version of `copy_from`."""
    if threads is None and isinstance(source, CheckpointSaver) and not source.backend.dialect.tenant:
        _check_tenants(await source.atenants())
    # Not all checkpoints are held in memory.
    found = {_thread_of(one) async for one in source.alist(None)} if threads is None else set[str]()
    moved = MoveReport()
    for thread_id in _thread_ids(threads, found):
        for arguments, writes in _copies([one async for one in source.alist(_thread(thread_id))], target, moved):
            await target.aput(*arguments)
            for operation in writes:
                await target.backend.driver.arun(operation)
    return moved


def _copies(
    found: Iterable[CheckpointTuple], target: CheckpointSaver, moved: MoveReport
) -> Iterator[tuple[tuple[RunnableConfig, Any, Any, Any], list[Operation[None]]]]:
    """Yield for each checkpoint of a thread, older ones first, the arguments of `put` and what stores its writes."""
    known = _Known()
    for one in sorted(map(foreign_of, found), key=lambda one: (one.checkpoint_id, one.checkpoint_ns)):
        encoded = encode_foreign_writes(target.backend.values, one.key, one.writes)
        writes = [put_writes(target.backend.dialect, one.key, rows, None) for rows in encoded]
        yield one.put_arguments(known.parent_of(one)), writes
        known.remember(one)
        moved.checkpoints += 1
        moved.writes += len(one.writes)
    moved.threads += 1


def _check_tenants(names: Sequence[str]) -> None:
    if names:
        raise ConfigError(
            f"the source has threads of {len(names)} tenants, which would be left behind; use transfer, or copy from "
            "source.for_tenant(…) for each, and name the threads of those without one"
        )


def _thread(thread_id: str) -> RunnableConfig:
    return {"configurable": {"thread_id": thread_id}}


def _thread_of(one: CheckpointTuple) -> str:
    return str(one.config["configurable"]["thread_id"])


def _thread_ids(named: Iterable[str] | None, found: Iterable[str]) -> list[str]:
    """Return the named threads, or those that were found."""
    if named is not None:
        return texts("thread", named, MAX_THREAD_ID)
    return sorted(set(found))


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


class _WentOn(CheckpointError):
    """A thread went on at both sides."""


class _Move:
    """One move of threads from a source to a target."""

    def __init__(self, source: Side, target: Side, ledger: OwnThreads, diverged: Diverged) -> None:
        self._source = source
        self._target = target
        self._ledger = ledger
        self._diverged = diverged
        self._are_named = False
        self._report = MoveReport()

    def run(self, threads: Collection[str] | None, progress: Progress) -> MoveReport:
        """Move the threads with these ids, also those that were deleted in the target, or all others."""
        report = self._report
        self._are_named = threads is not None
        for page in self._source.threads() if threads is None else self._chosen(threads):
            changed = self._changed(page)
            for thread_id in page:
                try:
                    if thread_id in changed:
                        self._move(thread_id)
                except (StorageError, ClosedError):
                    raise
                except (CheckpointError, TypeError, ValueError) as error:  # JSON and serializers raise the last two.
                    report.problems[thread_id] = str(error)
                report.threads += 1
                progress(report.threads)
        if threads is None:
            self._find_deleted()
        return report

    def _chosen(self, threads: Collection[str]) -> list[list[str]]:
        chosen = set(texts("thread", threads, MAX_THREAD_ID))
        if missing := chosen - self._source.locations(sorted(chosen)).keys():
            raise CheckpointNotFound(f"there is no thread {min(missing)!r} in the source")
        return [sorted(chosen)]

    def _find_deleted(self) -> None:
        """Report threads that were moved, and are not in the source any more."""
        for page in self._ledger.moved_threads():
            theirs = self._source.locations([*page, *(each.removesuffix(self._source.suffix) for each in page)])
            gone = [each for each in page if not {each, each.removesuffix(self._source.suffix)} & theirs.keys()]
            for thread_id in self._target.locations(gone):
                self._report.problems.setdefault(
                    thread_id,
                    "it was moved, and has been deleted in the source since; the target still has it: delete it there "
                    f"({self._target.deletion})",
                )

    def _threads(self, thread_ids: Sequence[str], suffix: str = "") -> Mapping[str, ThreadMove]:
        """Return what both sides have of threads, if those of the target have a suffix.

        A named thread that is not in the target is moved as if it were new. One of which a part is there is marked, see
        `Moved`. So if the move is killed, the next one moves the rest.
        """
        named = {each: f"{each}{suffix}" for each in thread_ids}
        theirs, ours = self._source.locations(thread_ids), self._target.locations(list(named.values()))
        moved = self._ledger.moved(list(named.values()))
        resumed = {
            name
            for name in named.values()
            if self._target is self._ledger and name in ours and moved[name].is_moved_again
        }
        return {
            each: ThreadMove(
                theirs[each],
                ours.get(name, {}),
                moved[name] if name in ours or not self._are_named else Moved(),
                self._are_named or name in resumed,
                name in resumed,
            )
            for each, name in named.items()
            if each in theirs
        }

    def _changed(self, thread_ids: Sequence[str]) -> set[str]:
        """Return the threads of which the target may lack something; reads no values."""
        threads = self._threads(thread_ids)
        copied_there = self._target.suffix  # Such a thread was never here.
        self._report.deleted += sum(
            thread.is_deleted and not each.endswith(copied_there) for each, thread in threads.items()
        )
        return {
            thread_id
            for thread_id, thread in threads.items()
            if thread.is_new or not (thread.is_deleted or (thread.is_remembered and not thread.to_do))
        }

    def _move(self, thread_id: str) -> None:
        """Move a thread, or store it as a thread of its own if it went on at both sides and that is asked for."""
        try:
            self._copy(thread_id, thread_id)
        except _WentOn:
            if self._diverged != "copy":
                raise
            other = f"{thread_id}{self._source.suffix}"
            if self._source.locations([other]):
                raise ConfigError(f"it went on in both databases, and there is a thread {other!r} already") from None
            self._copy(thread_id, other)

    def _is_copied(self, thread_id: str) -> bool:
        """Return whether all that the source has of a thread was stored earlier as a thread of its own."""
        copied = self._threads([thread_id], self._source.suffix)[thread_id]
        return bool(copied.moved) and copied.is_remembered

    def _copy(self, thread_id: str, name: str) -> None:
        """Store what the target does not have of a thread, under this name there, and compare it."""
        with self._source.snapshot():
            thread = self._threads([thread_id], name.removeprefix(thread_id)).get(thread_id)
            if thread is None:
                return
            if thread.is_deleted:
                if thread.is_new:
                    raise CheckpointError(
                        "it was moved, and has been deleted in the target since, but it went on in the source; nothing "
                        "of it was copied; --thread (in Python threads=) moves it again, or delete it in the source "
                        f"({self._source.deletion})"
                    )
                return
            if thread.diverges:
                if name == thread_id and self._is_copied(thread_id):
                    return
                raise _WentOn(
                    "it went on in both databases, so nothing of it was copied; --diverged copy (in Python "
                    f"diverged=\"copy\") stores the source's as thread '{thread_id}{self._source.suffix}'"
                )
            places = list(thread.to_do)
            known = _Known()
            done = MoveReport()
            different = None
            with self._target.storing():
                for at in range(0, len(places), READ):
                    page = places[at : at + READ]
                    part, theirs = self._part(thread_id, name, thread, known, page)
                    mark = b"" if at else thread.moved.mark(again=thread.moves_again)
                    part = part._replace(follows=bool(at or thread.ours), mark=mark)
                    self._target.store(part)
                    done.checkpoints += len(part.checkpoints)
                    done.writes += sum(len(each) for _, each in part.writes)
                    different = different or self._difference(name, thread, theirs)
                if different:
                    raise CheckpointError(different)
            # Only what was compared, so that a difference is reported again.
            if thread.moves_again or not thread.is_remembered:
                completes = self._target is self._ledger
                self._ledger.remember(name, thread.moved.stored_with(thread.theirs, completes=completes))
            self._report.checkpoints += done.checkpoints
            self._report.writes += done.writes

    def _part(
        self, thread_id: str, name: str, thread: ThreadMove, known: _Known, page: Sequence[Place]
    ) -> tuple[Part, Sequence[ForeignCheckpoint]]:
        """Return what the target lacks of some checkpoints, and the checkpoints to compare after it was stored."""
        read = self._read(thread_id, name, [each for each in page if thread.to_do[each] or each in thread.unproved])
        kept = [one.place for one in read if one.place in thread.ours and one.parent_id]
        cut = self._without_parents(name, thread, kept)
        new = [one for one in read if one.place not in thread.ours or one.place in cut]
        writes = [
            (one.key, one.writes if thread.to_do[one.place] else self._replaced(name, one.place, one.writes))
            for one in read
        ]
        for place in page:
            if not thread.to_do[place] and place not in thread.unproved:
                found = self._source.read_writes(thread_id, place)
                if replaced := self._replaced(name, place, found):
                    writes.append((Key(name, *place), replaced))
                    read += [one._replace(writes=found) for one in self._read(thread_id, name, [place])]
        parents = {(one.checkpoint_ns, one.parent_id or "") for one in new if known.parent_of(one) is None}
        for parent in self._read(thread_id, name, sorted(parents & thread.ours.keys())):
            known.remember(parent)
            if parent.place not in thread.to_do:  # A question may have been answered anew, for another branch.
                writes.append((parent.key, self._replaced(name, parent.place, parent.writes)))
        stored = []
        for one in new:
            stored.append((one, known.parent_of(one)))
            known.remember(one)
        return Part(name, stored, [each for each in writes if each[1]], follows=False, mark=b""), read

    def _without_parents(self, name: str, thread: ThreadMove, places: Sequence[Place]) -> set[Place]:
        """Return the checkpoints that have lost their parents in the target, if all of the thread is moved again."""
        if not (thread.is_named and thread.moved and places):
            return set()
        return {one.place for one in self._target.read(name, places) if one.parent_id is None}

    def _read(self, thread_id: str, name: str, places: Sequence[Place]) -> list[ForeignCheckpoint]:
        """Return checkpoints of the source as those of the thread with this name."""
        return [_renamed(one, name) for one in self._source.read(thread_id, places)]

    def _replaced(self, name: str, place: Place, writes: Sequence[ForeignWrite]) -> Sequence[ForeignWrite]:
        """Return the writes that have replaced others since the target stored them; comparing costs no commit."""
        special = [each for each in writes if each.idx < 0]
        found = self._target.read_writes(name, place) if special else ()
        ours = {(each.task_id, each.channel): each.value for each in found}
        return [each for each in special if not same(ours.get((each.task_id, each.channel)), each.value)]

    def _difference(self, name: str, thread: ThreadMove, theirs: Sequence[ForeignCheckpoint]) -> str | None:
        """Return how checkpoints of the source differ from what the target has; None if they do not."""
        ours = {one.key: one for one in self._target.read(name, [one.place for one in theirs])}
        for one in theirs:
            found = ours.get(one.key)
            what = "it is missing" if found is None else self._differs(thread, one, found)
            if what:
                return f"checkpoint {one.checkpoint_id!r} of namespace {one.checkpoint_ns!r}: {what}"
        return None

    def _differs(self, thread: ThreadMove, one: ForeignCheckpoint, found: ForeignCheckpoint) -> str | None:
        metadata = {key: value for key, value in one.metadata.items() if key not in self._target.excluded}
        one, found = thread.comparable(one._replace(metadata=metadata), found)
        if self._target.adds_values:
            found = found.without_values(set(one.delta_channels) - set(one.checkpoint["channel_values"]))
        return difference(one, found)


def _renamed(one: ForeignCheckpoint, name: str) -> ForeignCheckpoint:
    """Return a checkpoint as one of the thread with this name."""
    if one.thread_id == name:
        return one
    metadata = {
        key: name if (key, value) == ("thread_id", one.thread_id) else value for key, value in one.metadata.items()
    }
    return one._replace(thread_id=name, metadata=metadata)
