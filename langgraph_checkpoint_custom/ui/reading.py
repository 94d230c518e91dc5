"""Reads what the pages show: states with their sizes, rebuilt chats, lines for lists. Values are read raw.

Must not know: requests, HTML, SQL.

If a value cannot be read, because it is encrypted and there is no key, or because it is damaged, the structure and the
sizes of the checkpoint remain, with the reason.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from copy import copy
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, NamedTuple

from langgraph.checkpoint.base import CheckpointTuple
from langgraph.checkpoint.serde.types import ERROR, INTERRUPT, RESUME, SCHEDULED

from langgraph_checkpoint_custom.encoding.langgraph_private import DeltaSnapshot
from langgraph_checkpoint_custom.encoding.objects import pack
from langgraph_checkpoint_custom.encoding.raw import RawReader
from langgraph_checkpoint_custom.engine.operation import Operation
from langgraph_checkpoint_custom.errors import CheckpointError, CheckpointNotFound, ConfigError, CorruptCheckpoint
from langgraph_checkpoint_custom.model.filter import wanted
from langgraph_checkpoint_custom.model.keys import AFTER_ALL, Key, config_of, prefix_text, thread_text
from langgraph_checkpoint_custom.model.namespaced_ids import kind_of
from langgraph_checkpoint_custom.model.records import CheckpointRecord, ThreadPage, ThreadRecord, time_from
from langgraph_checkpoint_custom.operations.export_rows import next_thread
from langgraph_checkpoint_custom.operations.inspector import (
    CheckpointSize,
    TimelineRecord,
    WriteSize,
    sizes_of_checkpoint,
    timeline,
)
from langgraph_checkpoint_custom.operations.interrupts import open_among
from langgraph_checkpoint_custom.operations.list_threads import threads_page
from langgraph_checkpoint_custom.operations.sizes import MOST, Counted, sizes_up_to
from langgraph_checkpoint_custom.saver import CheckpointSaver
from langgraph_checkpoint_custom.tools.chats import Message, chat_of, rebuilt
from langgraph_checkpoint_custom.tools.display import counted, plain, sent_to, tasks, time_of
from langgraph_checkpoint_custom.tools.frameworks import LOGS, chat_of_framework
from langgraph_checkpoint_custom.tools.raw import without_classes
from langgraph_checkpoint_custom.tools.summary import question_of, text_of
from langgraph_checkpoint_custom.ui.texts import line

# Checkpoints in the picture of a thread, the newest ones.
TIMELINE = 5_000
# Channels of LangGraph's own, which say what runs next.
_INNER = ("branch:", "join:", "__start__", "__pregel_", "__input__", "__previous__")


class Channel(NamedTuple):
    """A channel of a state.

    Attributes:
        name: The channel.
        value: Its value, raw; None if it cannot be shown.
        chat: Its messages, if it is a chat.
        bytes: What it takes, stored; None if that is not known.
        shared: How many of these bytes the parent's value has as well.
        note: How the value was found, or why it is not here.
        readable: Whether there is a value.
        writes: For a `DeltaChannel` that is not a chat: the writes that it is made of.
        inner: Whether it is one of LangGraph's own.
    """

    name: str
    value: Any = None
    chat: Sequence[Message] | None = None
    bytes: int | None = None
    shared: int = 0
    note: str = ""
    readable: bool = True
    writes: Sequence[Any] = ()
    inner: bool = False


class Write(NamedTuple):
    """A pending write, with its value if that can be read."""

    task_id: str
    node: str
    channel: str
    what: str
    value: Any
    bytes: int
    run_id: str | None
    readable: bool


class Part(NamedTuple):
    """A run, and how many tasks of a superstep it has done."""

    run_id: str
    tasks: int


class Question(NamedTuple):
    """An open interrupt."""

    id: str | None
    value: Any


@dataclass
class State:
    """What the page of a checkpoint shows."""

    key: Key
    parent_id: str | None
    run_id: str | None
    time: datetime | None
    sizes: CheckpointSize
    seconds: float | None = None
    """The time since its parent was stored."""
    metadata: Mapping[str, Any] = field(default_factory=dict)
    versions: Mapping[str, Any] = field(default_factory=dict)
    channels: Sequence[Channel] = ()
    writes: Sequence[Write] = ()
    questions: Sequence[Question] = ()
    answered: Sequence[Question] = ()
    answers: Sequence[Any] = ()
    following: Sequence[str] = ()
    problem: str = ""


class Summary(NamedTuple):
    """A thread in a line: its state in a word, the last message or state, and its size."""

    state: str
    role: str
    text: str
    counted: Counted


class ThreadList(NamedTuple):
    """A page of threads, and where the next one begins; `complete` is False if a search has not come to all threads."""

    threads: Sequence[ThreadRecord]
    after: tuple[str, str] | None
    complete: bool = True


class Store:
    """A saver, or the part of one tenant, whose values are read raw."""

    def __init__(self, saver: CheckpointSaver, tenant: str | None = None) -> None:
        try:
            saver = without_classes(saver)
        except ConfigError:  # A serializer of the user's own: what it stored is shown by type and size.
            saver = copy(saver)
            saver.serde = RawReader()
        self.saver = saver if tenant is None else saver.for_tenant(tenant)
        self.tenant = tenant

    def run(self, op: Operation[Any]) -> Any:
        """Run an operation."""
        return self.saver.backend.driver.run(op)

    def threads(
        self,
        *,
        prefix: str = "",
        filter: dict[str, Any] | None = None,
        before: tuple[str, str] | None,
        limit: int,
        reach: int | None = None,
    ) -> ThreadList:
        """Return a page of threads, the newest first.

        `before` is the newest checkpoint id and the id of the last thread of the page before. With `reach`, a filter
        searches that number of the newest checkpoints, unless an index finds all.
        """
        d, _, codec = self.saver.backend
        conditions = wanted(filter)
        below, thread_id = before or (AFTER_ALL, "")
        page: ThreadPage | None = ThreadPage(below, thread_id, (), limit, prefix_text(prefix))
        found: list[ThreadRecord] = []
        complete = True
        while page is not None and len(found) < limit:
            reply = self.run(threads_page(d, codec, page, conditions, even_unreadable=True, reach=reach))
            found += reply.threads
            page, complete = reply.after, reply.complete
        after = None
        if len(found) > limit or (found and page is not None):
            found = found[:limit]
            after = found[-1].newest.checkpoint_id, found[-1].thread_id
        return ThreadList(found, after, complete)

    def thread_ids(self, prefix: str, after: str, limit: int) -> list[str]:
        """Return the ids above `after` that begin with `prefix`, in their order, from one to the next."""
        d = self.saver.backend.dialect
        found = [prefix] if prefix > after and self.saver.thread_exists(prefix) else []
        last = max(prefix, after)
        while len(found) < limit:
            following: str | None = self.run(next_thread(d, last))
            if following is None or not following.startswith(prefix):
                break
            last = following
            found.append(last)
        return found

    def newest(self, thread_id: str) -> CheckpointRecord:
        """Return the newest checkpoint of a thread's root graph, or of any namespace if the root has none.

        Raises:
            CheckpointNotFound: The thread has no checkpoint.
        """
        where: Any = {"configurable": {"thread_id": thread_id, "checkpoint_ns": ""}}
        with suppress(CorruptCheckpoint):  # Its metadata, which the timeline does not need.
            for record in self.saver.history(where, limit=1):
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

    def labels(self, thread_id: str) -> dict[tuple[str, str], list[str]]:
        """Return the labels of a thread, by namespace and checkpoint."""
        found: dict[tuple[str, str], list[str]] = {}
        for name, config in self.saver.labels(thread_id).items():
            part = config["configurable"]
            found.setdefault((part["checkpoint_ns"], part["checkpoint_id"]), []).append(name)
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
        state = State(key, sizes.parent_id, sizes.run_id, time, sizes)
        if time and before:
            state.seconds = (time - before).total_seconds()
        try:
            found = self.saver.get_tuple(config_of(*key))  # type: ignore[arg-type]
        except CheckpointError as error:
            found = None
            state.problem = _reason(error)
        if found is None:
            self._show_structure(state)
        else:
            self._show_values(state, found)
        return state

    def _show_structure(self, state: State) -> None:
        sizes = state.sizes
        inside = "in the checkpoint document"
        own = [Channel(name, readable=False, note=inside, inner=_is_inner(name)) for name in sizes.inline]
        own += [
            Channel(one.channel, bytes=one.bytes, shared=one.shared, readable=False, inner=_is_inner(one.channel))
            for one in sizes.values
        ]
        there = {channel.name for channel in own}
        rebuilt_from = "rebuilt from earlier steps"
        own += [Channel(name, readable=False, note=rebuilt_from) for name in sizes.delta if name not in there]
        state.channels = sorted(own)
        state.writes = [_write(one, None, (), readable=False) for one in sizes.writes]

    def _show_values(self, state: State, found: CheckpointTuple) -> None:
        document = found.checkpoint
        state.metadata = dict(found.metadata)
        state.time = time_from(document.get("ts")) or state.time
        state.versions = document.get("channel_versions") or {}
        stored = {one.channel: one for one in state.sizes.values}
        channels = []
        for name, value in document["channel_values"].items():
            size = stored.get(name)
            channels.append(
                Channel(
                    name,
                    value,
                    chat_of(value),
                    size.bytes if size else _length(value),
                    size.shared if size else 0,
                    "a snapshot of a DeltaChannel" if isinstance(value, DeltaSnapshot) else "",
                    inner=_is_inner(name),
                )
            )
        state.channels = self._with_framework([*channels, *self._deltas(state, found)], state.key, found)
        pending = found.pending_writes or []
        # `pending` and the sizes are sorted alike, and come from two reads: a write may have been added in between.
        sends = sent_to(document["channel_values"])
        state.writes = [
            _write(one, value, sends, readable=(one.task_id, one.channel) == (task_id, channel))
            for one, (task_id, channel, value) in zip(state.sizes.writes, pending, strict=False)
        ]
        state.questions = [Question(*question_of(each)) for each in open_among(pending)]
        seen = {question.id for question in state.questions}
        asked = [Question(*question_of(each)) for each in _elements(state.writes, "interrupt")]
        state.answered = [question for question in asked if question.id not in seen]
        state.answers = list(_elements(state.writes, "answer"))
        state.following = tasks(document["channel_values"])

    def _with_framework(self, channels: list[Channel], key: Key, found: CheckpointTuple) -> Sequence[Channel]:
        """Return the channels, and in a thread of another framework its chat, which may be in a log of its own."""
        kind = kind_of(key.thread_id)
        if kind is None or key.checkpoint_ns:
            return channels
        values = found.checkpoint["channel_values"]
        entries: Sequence[Any] = ()
        if kind in LOGS and isinstance(values.get("log"), str):
            log = self.saver.get_tuple(config_of(key.thread_id, LOGS[kind], values["log"]))
            entries = [value for _, _, value in (log and log.pending_writes) or ()]
        chat = chat_of_framework(kind, values, entries)
        if not chat:
            return channels
        value = values.get("messages", entries)
        own = Channel("messages", value, chat, _length(value), note=f"the chat of a {kind} thread")
        return [own, *(channel for channel in channels if channel.name != "messages")]

    def _deltas(self, state: State, found: CheckpointTuple) -> Sequence[Channel]:
        """Return the `DeltaChannel`s without a value of their own, rebuilt where LangGraph's rules are known."""
        counters = found.metadata.get("counters_since_delta_snapshot") or {}
        names = [name for name in counters if name not in found.checkpoint["channel_values"]]
        if not names:
            return ()
        try:
            histories = self.saver.get_delta_channel_history(config=config_of(*state.key), channels=names)  # type: ignore[arg-type]
        except CheckpointError as error:
            return [Channel(name, readable=False, note=_reason(error)) for name in names]
        channels = []
        for name in names:
            writes = [value for _, _, value in histories[name]["writes"]]
            seed = histories[name].get("seed")
            made = rebuilt(seed, writes)
            since = "a snapshot" if seed is not None else "nothing"
            if made is not None:
                earlier = counted(len(writes), "write")
                note = f"rebuilt from {since} and {earlier} of earlier steps, by LangGraph's rule"
                channels.append(Channel(name, made.value, chat_of(made.value), note=note))
            elif not writes and seed is None:
                channels.append(Channel(name, readable=False, note="nothing was written to it yet"))
            else:
                note = (
                    f"a DeltaChannel: its reducer, which only the application knows, makes the value of {since} and "
                    f"{counted(len(writes), 'write')}; they follow in their order"
                )
                parts = writes if seed is None else [seed, *writes]
                channels.append(Channel(name, readable=False, note=note, writes=parts))
        return channels

    # Lists

    def summary(self, thread_id: str) -> Summary:
        """Return a thread in a line."""
        d = self.saver.backend.dialect
        counted: Counted = self.run(sizes_up_to(d, [thread_text(thread_id)], MOST))[thread_id]
        newest = self.newest(thread_id)
        state = self.state(Key(thread_id, newest.checkpoint_ns, newest.checkpoint_id))
        role, text = _line_of(state)
        return Summary(state_of(state), role, text, counted)


def state_of(state: State) -> str:
    """Return the state of a thread whose newest checkpoint this is, in a word."""
    if state.problem:
        return "unreadable"
    if state.questions:
        return "waits"
    done = {write.task_id for write in state.writes if write.what == "output"}
    if any(write.what == "error" and write.task_id not in done for write in state.writes):
        return "failed"
    return "unfinished" if state.following else "done"


def parts_of(state: State) -> list[Part]:
    """Return the runs between which a superstep was divided, because the first one was stopped; mostly none.

    A question to a human divides a superstep, too. Then this returns nothing.
    """
    by_task = {write.task_id: write.run_id for write in reversed(state.writes) if write.what == "output"}
    counts = Counter(run_id for run_id in by_task.values() if run_id)
    if len(counts) < 2 or any(write.what == "interrupt" for write in state.writes):
        return []
    return sorted([Part(*each) for each in counts.items()], key=lambda part: part.run_id != state.run_id)


def thread_record(store: Store, thread_id: str) -> ThreadRecord | None:
    """Return the record of one thread; None if it does not exist."""
    try:
        return ThreadRecord(thread_id, store.newest(thread_id))
    except CheckpointNotFound:
        return None


def _line_of(state: State) -> tuple[str, str]:
    """Return the role and the text of the last message, or the state in a line."""
    if state.problem:
        return "", state.problem
    for question in state.questions:
        return "asks", line(text_of(question.value, 300))
    for channel in state.channels:
        if channel.chat:
            return channel.chat[-1].role, line(channel.chat[-1].text)
    shown = [f"{each.name}: {line(text_of(each.value, 60), 60)}" for each in state.channels if _is_shown(each)]
    return "", line(", ".join(shown))


def _is_shown(channel: Channel) -> bool:
    return channel.readable and not channel.inner and channel.value is not None


def _elements(writes: Sequence[Write], what: str) -> Iterator[Any]:
    """Yield the elements of the writes of a kind, such as the interrupts of a task, each once."""
    seen: list[Any] = []
    for write in writes:
        value = plain(write.value) if write.what == what and write.readable else ()
        for each in value if isinstance(value, (list, tuple)) else [value]:
            if each not in seen:
                seen.append(each)
                yield each


_WHAT = {ERROR: "error", INTERRUPT: "interrupt", RESUME: "answer", SCHEDULED: "scheduled"}


def _write(size: WriteSize, value: Any, sends: Sequence[str], *, readable: bool) -> Write:
    what = _WHAT.get(size.channel, "output")
    return Write(
        size.task_id, _node(size.task_path, sends), size.channel, what, value, size.bytes, size.run_id, readable
    )


def _node(path: str, sends: Sequence[str]) -> str:
    """Return the node of a task; that of a sent one is known if the checkpoint has what was sent."""
    kind, comma, name = path.lstrip("~").partition(", ")
    if not comma or kind != "__pregel_push":
        return name or kind
    number = name.partition(", ")[0]
    if number.isdecimal() and int(number) < len(sends) and sends[int(number)]:
        return sends[int(number)]
    return "sent task"


def _is_inner(name: str) -> bool:
    return name.startswith(_INNER)


def _length(value: Any) -> int | None:
    try:
        return len(pack(value))
    except Exception:  # It came from bytes that cannot be written again.
        return None


def _reason(error: CheckpointError) -> str:
    """Return why something cannot be read, and what helps where that is a key."""
    reason = str(error).partition(" (thread ")[0]
    if isinstance(error, CorruptCheckpoint) and "+" in (error.type or ""):
        return f"{reason}. The variables with the keys have to be in the environment of the inspector"
    return reason
