"""Moving in: from the official savers' tables, or from any saver object.

`migrate` reads the tables of LangGraph's own PostgreSQL and SQLite savers and stores the values as they are, without
making objects of them. It runs beside live traffic and may be killed: what is there already is not stored again, so a
second pass, or a second run, takes only what came meanwhile. Then each checkpoint is read from both sides and compared.

`copy_from` takes what any saver returns, decoded, and stores it again.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field
from typing import Any

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import BaseCheckpointSaver, CheckpointTuple
from langgraph.checkpoint.serde.base import SerializerProtocol
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer

from langgraph_checkpoint_custom.adapters.official import OfficialStore, Places, open_official
from langgraph_checkpoint_custom.core.model import config_of, key_of, thread_text
from langgraph_checkpoint_custom.core.moving import HeldCheckpoint, difference, encode_held_writes, held, same
from langgraph_checkpoint_custom.core.read import thread_places
from langgraph_checkpoint_custom.core.verbatim import verbatim
from langgraph_checkpoint_custom.core.write import put_writes
from langgraph_checkpoint_custom.errors import CheckpointError, ClosedError, StorageError
from langgraph_checkpoint_custom.saver import CheckpointSaver

# Times that a thread is moved and compared again if it differs, since a run may have gone on in between.
ATTEMPTS = 3
# Checkpoints whose versions are remembered, to see what is new in a child: parents are mostly the ones just before.
REMEMBERED = 200


@dataclass
class Moved:
    """What a move has done.

    Attributes:
        threads: Threads that were looked at.
        checkpoints: Checkpoints that were stored; those that were there already are not counted.
        writes: Writes that were stored, or stored again.
        verified: Checkpoints that were read from both sides and are the same.
        problems: By thread, what could not be moved or differs.
    """

    threads: int = 0
    checkpoints: int = 0
    writes: int = 0
    verified: int = 0
    problems: dict[str, str] = field(default_factory=dict)

    def count(self, one: HeldCheckpoint) -> None:
        """Count a checkpoint that was stored with its writes."""
        self.checkpoints += 1
        self.writes += len(one.writes)


# Told after each thread: the pass ("copy", "catch up", "verify"), and how many threads it has done.
Progress = Callable[[str, int], None]


def migrate(
    source_url: str,
    target: CheckpointSaver,
    *,
    serde: SerializerProtocol | None = None,
    verify: bool = True,
    progress: Progress = lambda what, threads: None,
) -> Moved:
    """Move everything from an official saver's database, while runs may go on there.

    Args:
        source_url: Where the official saver's tables are, see `open_official`.
        target: Where to. Threads of the same id must not have gone on there by themselves.
        serde: The serializer of the source; with an `EncryptedSerializer` its values are decrypted, and encrypted again
            if the target has one.
        verify: Whether to read everything once more, from both sides, and compare: checkpoints, values, metadata,
            writes, and what is rebuilt of `DeltaChannel`s.
        progress: Told after each thread.

    Returns:
        What was moved. A thread that could not be is among its problems, and the others are moved all the same.
    """
    with open_official(source_url, verbatim(serde or JsonPlusSerializer())) as source:
        return _Move(source, target, progress).run(verify=verify)


def copy_from(source: BaseCheckpointSaver[Any], target: CheckpointSaver, threads: Iterable[str] | None = None) -> Moved:
    """Store what another saver returns, thread by thread; what is there already is stored again.

    Args:
        source: Any saver with sync methods.
        target: Where to.
        threads: The threads; all by default, if the source can list them.
    """
    moved = Moved()
    for thread_id in threads if threads is not None else _thread_ids(source.list(None)):
        known = _Known()
        for one in _oldest_first(source.list(_thread(thread_id))):
            target.put(*known.put_of(one))
            for key, rows in encode_held_writes(target._codec, one):
                target._driver.run(put_writes(target._dialect, key, rows, None))
            moved.count(one)
        moved.threads += 1
    return moved


async def acopy_from(
    source: BaseCheckpointSaver[Any], target: CheckpointSaver, threads: Iterable[str] | None = None
) -> Moved:
    """Store what another saver returns, thread by thread; what is there already is stored again.

    Args:
        source: Any saver with async methods.
        target: Where to.
        threads: The threads; all by default, if the source can list them.
    """
    moved = Moved()
    for thread_id in threads if threads is not None else _thread_ids([one async for one in source.alist(None)]):
        known = _Known()
        for one in _oldest_first([one async for one in source.alist(_thread(thread_id))]):
            await target.aput(*known.put_of(one))
            for key, rows in encode_held_writes(target._codec, one):
                await target._driver.arun(put_writes(target._dialect, key, rows, None))
            moved.count(one)
        moved.threads += 1
    return moved


def _thread(thread_id: str) -> RunnableConfig:
    return {"configurable": {"thread_id": thread_id}}


def _thread_ids(tuples: Iterable[CheckpointTuple]) -> list[str]:
    return sorted({str(one.config["configurable"]["thread_id"]) for one in tuples})


def _oldest_first(tuples: Iterable[CheckpointTuple]) -> Sequence[HeldCheckpoint]:
    return sorted(map(held, tuples), key=lambda one: (one.checkpoint_id, one.checkpoint_ns))


class _Known:
    """The versions in the checkpoints of a thread that were stored last: what is not among its parent's is new."""

    def __init__(self) -> None:
        self._versions: OrderedDict[tuple[str, str | None], Mapping[str, Any]] = OrderedDict()

    def note(self, one: HeldCheckpoint) -> None:
        """Remember a checkpoint that is stored."""
        self._versions[one.checkpoint_ns, one.checkpoint_id] = one.versions
        if len(self._versions) > REMEMBERED:
            self._versions.popitem(last=False)

    def has_parent(self, one: HeldCheckpoint) -> bool:
        """Whether the parent is remembered."""
        return (one.checkpoint_ns, one.parent_id) in self._versions

    def put_of(self, one: HeldCheckpoint) -> tuple[RunnableConfig, Any, Any, Any]:
        """The arguments of `put` for a checkpoint, which is remembered."""
        new = one.new_versions(self._versions.get((one.checkpoint_ns, one.parent_id)))
        config: RunnableConfig = {"configurable": {"thread_id": one.thread_id, "checkpoint_ns": one.checkpoint_ns}}
        if one.parent_id:
            config["configurable"]["checkpoint_id"] = one.parent_id
        self.note(one)
        return config, one.checkpoint, one.metadata, new


class _Move:
    """A move from an official store."""

    def __init__(self, source: OfficialStore, target: CheckpointSaver, progress: Progress) -> None:
        self._source = source
        # Copies share connections and caches.
        self._target = copy(target)
        self._target.serde = verbatim(target.serde)
        self._target._concurrent_writers = "allow"
        self._progress = progress
        self._moved = Moved()

    def run(self, *, verify: bool) -> Moved:
        """Copy, take what came meanwhile, and compare."""
        self._pass("copy", self._copy)
        self._pass("catch up", self._copy)
        if verify:
            self._pass("verify", self._verify)
        return self._moved

    def _pass(self, what: str, work: Callable[[str], None]) -> None:
        self._moved.problems = {}  # A later pass meets them again, or they are gone.
        number = 0
        for number, thread_id in enumerate(self._source.threads(), 1):
            try:
                work(thread_id)
            except (StorageError, ClosedError):
                raise
            except (CheckpointError, ValueError) as error:
                self._moved.problems[thread_id] = str(error)
            self._progress(what, number)
        self._moved.threads = number

    def _copy(self, thread_id: str) -> None:
        """Store what the target has not."""
        with self._source.snapshot():
            theirs = self._source.places(thread_id)
            ours = self._ours(thread_id)
            heads = dict(theirs.keys())  # By namespace, the newest: what was written there may still change.
            known = _Known()
            for (ns, checkpoint_id), writes in theirs.items():
                place = ns, checkpoint_id
                if ours.get(place) == writes and heads[ns] != checkpoint_id:
                    continue
                one = self._source.read(thread_id, ns, checkpoint_id)
                if one is None:
                    continue
                if place not in ours:
                    self._know_parent(known, one, ours)
                    self._target.put(*known.put_of(one))
                    self._moved.checkpoints += 1
                for key, rows in encode_held_writes(self._target._codec, one):
                    self._target._driver.run(put_writes(self._target._dialect, key, rows, None))
                self._moved.writes += len(one.writes)

    def _know_parent(self, known: _Known, one: HeldCheckpoint, ours: Places) -> None:
        if one.parent_id and not known.has_parent(one) and (one.checkpoint_ns, one.parent_id) in ours:
            parent = self._source.read(one.thread_id, one.checkpoint_ns, one.parent_id)
            if parent is not None:
                known.note(parent)

    def _ours(self, thread_id: str) -> Places:
        rows = self._target._driver.run(thread_places(self._target._dialect, thread_text(thread_id)))
        return {(ns, checkpoint_id): writes for ns, checkpoint_id, writes in rows}

    def _verify(self, thread_id: str) -> None:
        for attempt in range(1, ATTEMPTS + 1):
            count, problem = self._compare(thread_id)
            if problem is None:
                self._moved.verified += count
                return
            if attempt < ATTEMPTS:
                self._copy(thread_id)
        self._moved.problems[thread_id] = problem or ""

    def _compare(self, thread_id: str) -> tuple[int, str | None]:
        """The number of checkpoints that are the same, or what is not."""
        with self._source.snapshot():
            missing = dict(self._source.places(thread_id))
            count = len(missing)
            heads = dict(missing.keys())
            for found in self._target.list(_thread(thread_id)):
                _, ns, checkpoint_id = key_of(found.config)
                if missing.pop((ns, checkpoint_id or ""), None) is None:
                    continue  # It was stored after the move.
                one = self._source.read(thread_id, ns, checkpoint_id or "")
                if one and (what := difference(one, found)):
                    return 0, f"checkpoint {checkpoint_id!r} of namespace {ns!r}: {what}"
                if one and one.delta_channels and heads[ns] == checkpoint_id and (what := self._history_differs(one)):
                    return 0, f"checkpoint {checkpoint_id!r} of namespace {ns!r}: {what}"
            for ns, checkpoint_id in missing:
                return 0, f"checkpoint {checkpoint_id!r} of namespace {ns!r}: it is missing"
        return count, None

    def _history_differs(self, one: HeldCheckpoint) -> str | None:
        config = config_of(one.thread_id, one.checkpoint_ns, one.checkpoint_id)
        ours = self._target.get_delta_channel_history(config=config, channels=one.delta_channels)
        theirs = _Walk(self._source).get_delta_channel_history(config=config, channels=one.delta_channels)
        for channel in one.delta_channels:
            if not same(dict(ours[channel]), dict(theirs[channel])):
                return f"what channel {channel!r} is rebuilt from is not the same"
        return None


class _Walk(BaseCheckpointSaver[Any]):
    """LangGraph's own walk over the source."""

    def __init__(self, source: OfficialStore) -> None:
        super().__init__()
        self._source = source

    def get_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        thread_id, ns, checkpoint_id = key_of(config)
        one = self._source.read(thread_id, ns, checkpoint_id or "")
        return one and one.as_tuple()
