"""Reads what the pages show: states with their sizes, rebuilt chats, pages of threads. Values are read raw.

Must not know: requests, HTML, SQL.

If a value cannot be read, because it is encrypted and there is no key, or because it is damaged, the structure and the
sizes of the checkpoint remain, with the reason.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from copy import copy
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, NamedTuple

from langgraph.checkpoint.base import CheckpointTuple
from langgraph.checkpoint.serde.types import ERROR, INTERRUPT, RESUME, SCHEDULED

from langgraph_checkpoint_custom.encoding.objects import pack
from langgraph_checkpoint_custom.encoding.raw import RawReader, without_classes
from langgraph_checkpoint_custom.engine.operation import Operation
from langgraph_checkpoint_custom.errors import CheckpointError, CheckpointNotFound, ConfigError, CorruptCheckpoint
from langgraph_checkpoint_custom.model.filter import matches, wanted
from langgraph_checkpoint_custom.model.id_times import time_of
from langgraph_checkpoint_custom.model.keys import AFTER_ALL, Key, config_of, thread_text
from langgraph_checkpoint_custom.model.records import CheckpointRecord, Question, ThreadPage, ThreadRecord, time_from
from langgraph_checkpoint_custom.operations.inspector import (
    CheckpointSize,
    TimelineRecord,
    ValueSize,
    WriteSize,
    sizes_of_checkpoint,
    timeline,
)
from langgraph_checkpoint_custom.operations.list_threads import ThreadsReply, threads_page
from langgraph_checkpoint_custom.operations.thread_states import State as ThreadState
from langgraph_checkpoint_custom.operations.thread_states import next_nodes, state_of, threads_in_state
from langgraph_checkpoint_custom.saver import CheckpointSaver
from langgraph_checkpoint_custom.tools.states import Channel, channels_of, questions_of, reason_of, task_nodes

# Checkpoints in the picture of a thread, the newest ones.
TIMELINE = 5_000
# Threads that a page looks at to find those in a state.
LOOKED_AT = 1_000


class Write(NamedTuple):
    """A pending write as it is stored, the node of its task, what it is, and its value if that can be read."""

    stored: WriteSize
    node: str
    what: str
    value: Any
    readable: bool


@dataclass
class State:
    """What the page of a checkpoint shows."""

    key: Key
    time: datetime | None
    sizes: CheckpointSize
    seconds: float | None = None
    """The time since its parent was stored."""
    metadata: Mapping[str, Any] = field(default_factory=dict)
    channels: Sequence[Channel] = ()
    writes: Sequence[Write] = ()
    questions: Sequence[Question] = ()
    following: Sequence[str] = ()
    problem: str = ""
    word: str = "unreadable"


class Store:
    """A saver, or the part of one tenant, whose values are read raw."""

    def __init__(self, saver: CheckpointSaver, tenant: str | None) -> None:
        try:
            saver = without_classes(saver)
        except ConfigError:  # A serializer of the user's own: what it stored is shown by type and size.
            saver = copy(saver)
            saver.serde = RawReader()
        self.saver = saver if tenant is None else saver.for_tenant(tenant)

    def run(self, op: Operation[Any]) -> Any:
        """Run an operation."""
        return self.saver.backend.driver.run(op)

    def threads(
        self,
        *,
        prefix: str = "",
        filter: dict[str, Any] | None = None,
        state: ThreadState | None = None,
        before: tuple[str, str] | None,
        limit: int,
        reach: int | None = None,
    ) -> ThreadsReply:
        """Return a page of threads, the newest first.

        `before` is the newest checkpoint id and the id of the last thread of the page before. With `reach`, a filter
        searches that number of the newest checkpoints, unless an index finds all. A state is searched for among
        `LOOKED_AT` threads.
        """
        d, _, codec = self.saver.backend
        conditions = wanted(filter)
        below, thread_id = before or (AFTER_ALL, "")
        page: ThreadPage | None = ThreadPage(below, thread_id, (), limit, thread_text(prefix, "prefix"))
        found: list[ThreadRecord] = []
        complete, pages = True, 0
        while page is not None and len(found) < limit and pages * limit < LOOKED_AT:
            if state is None:
                op = threads_page(d, codec, page, conditions, even_unreadable=True, reach=reach)
            else:
                op = threads_in_state(d, codec, page, conditions, state, even_unreadable=True, reach=reach)
                pages += 1
            reply = self.run(op)
            found += reply.threads
            page, complete = reply.after, reply.complete
        if len(found) > limit or (found and page is not None):
            found = found[:limit]
            page = ThreadPage(found[-1].newest.checkpoint_id, found[-1].thread_id, (), limit)
        return ThreadsReply(found, page, complete)

    def fits(self, record: ThreadRecord, filter: dict[str, Any] | None, state: ThreadState | None) -> bool:
        """Return whether the newest checkpoint of a thread has this metadata and is in this state."""
        contains = self.saver.backend.dialect.filter_contains
        if not matches(record.newest.metadata, wanted(filter), contains=contains):
            return False
        if state is None:
            return True
        with suppress(CorruptCheckpoint):
            found = self.saver.get_tuple(record.newest.config)
            return found is not None and state_of(found) == state
        return False

    def newest(self, thread_id: str) -> CheckpointRecord:
        """Return the newest checkpoint of a thread's root graph, or of any namespace if the root has none.

        Raises:
            CheckpointNotFound: The thread has no checkpoint.
        """
        with suppress(CorruptCheckpoint):  # Its metadata, which the timeline does not need.
            for record in self.saver.history(config_of(thread_id, "", ""), limit=1):
                return record
        found = [one for one in self.timeline(thread_id) if not one.hidden]
        roots = [one for one in found if one.checkpoint_ns == ""]
        for one in roots or found:
            return CheckpointRecord(thread_id, one.checkpoint_ns, one.checkpoint_id, one.parent_id, one.run_id, {})
        raise CheckpointNotFound(f"thread {thread_id!r} has no checkpoint")

    def timeline(self, thread_id: str, before: str = AFTER_ALL, limit: int = TIMELINE) -> Sequence[TimelineRecord]:
        """Return the newest checkpoints of a thread."""
        d = self.saver.backend.dialect
        found: Sequence[TimelineRecord] = self.run(timeline(d, thread_text(thread_id), before, limit))
        return found

    # One checkpoint

    def state(self, key: Key) -> State:
        """Read a checkpoint; a hidden one, too.

        Raises:
            CheckpointNotFound: It does not exist.
        """
        thread_id, _, checkpoint_id = key
        assert checkpoint_id is not None
        d = self.saver.backend.dialect
        sizes: CheckpointSize | None = self.run(sizes_of_checkpoint(d, key))
        if sizes is None:
            raise CheckpointNotFound(f"thread {thread_id!r} has no checkpoint {checkpoint_id!r}, or it was deleted")
        time, before = time_of(checkpoint_id), time_of(sizes.parent_id or "")
        state = State(key, time, sizes)
        if time and before:
            state.seconds = (time - before).total_seconds()
        try:
            found = self.saver.get_tuple(config_of(*key))  # type: ignore[arg-type]
        except CheckpointError as error:
            found = None
            state.problem = reason_of(error)
        if found is None:
            self._show_structure(state)
        else:
            self._show_values(state, found)
        return state

    def _show_structure(self, state: State) -> None:
        sizes = state.sizes
        inside = "in the checkpoint document"
        own = [Channel(name, readable=False, note=inside) for name in sizes.inline]
        own += [Channel(one.channel, bytes=one.bytes, shared=one.shared, readable=False) for one in sizes.values]
        there = {channel.name for channel in own}
        rebuilt_from = "rebuilt from earlier steps"
        own += [Channel(name, readable=False, note=rebuilt_from) for name in sizes.delta if name not in there]
        state.channels = sorted(own)
        nodes = task_nodes(sizes.writes, {})
        state.writes = [_write(one, nodes, None, readable=False) for one in sizes.writes]

    def _show_values(self, state: State, found: CheckpointTuple) -> None:
        document = found.checkpoint
        state.metadata = dict(found.metadata)
        state.time = time_from(document.get("ts")) or state.time
        stored = {one.channel: one for one in state.sizes.values}
        state.channels = [_sized(channel, stored.get(channel.name)) for channel in channels_of(self.saver, found)]
        pending = found.pending_writes or []
        # `pending` and the sizes are sorted alike, and come from two reads: a write may have been added in between.
        nodes = task_nodes(state.sizes.writes, document["channel_values"])
        state.writes = [
            _write(one, nodes, value, readable=(one.task_id, one.channel) == (task_id, channel))
            for one, (task_id, channel, value) in zip(state.sizes.writes, pending, strict=False)
        ]
        state.questions = questions_of(found)
        state.following = next_nodes(document["channel_values"])
        state.word = state_of(found)


_WHAT = {ERROR: "error", INTERRUPT: "interrupt", RESUME: "answer", SCHEDULED: "scheduled"}


def _write(one: WriteSize, nodes: Mapping[str, str], value: Any, *, readable: bool) -> Write:
    return Write(one, nodes[one.task_id], _WHAT.get(one.channel, "output"), value, readable)


def _sized(channel: Channel, stored: ValueSize | None) -> Channel:
    if stored is not None:
        return channel._replace(bytes=stored.bytes, shared=stored.shared)
    return channel if channel.rebuilt else channel._replace(bytes=_length(channel.value))


def _length(value: Any) -> int | None:
    try:
        return len(pack(value))
    except Exception:  # It came from bytes that cannot be written again.
        return None
