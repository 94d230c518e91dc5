"""A checkpoint for people, read raw: its channels, chats also where they have to be rebuilt, its tasks; and in a line.

Must not know: SQL, connections, terminals, pages.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from langgraph.checkpoint.base import CheckpointTuple

from langgraph_checkpoint_custom.encoding.extensions import Extension
from langgraph_checkpoint_custom.encoding.langgraph_private import DeltaSnapshot
from langgraph_checkpoint_custom.encoding.raw import object_of, plain
from langgraph_checkpoint_custom.errors import CheckpointError, CorruptCheckpoint
from langgraph_checkpoint_custom.model.keys import key_of, kind_of
from langgraph_checkpoint_custom.model.records import CheckpointRecord, Question
from langgraph_checkpoint_custom.operations.inspector import WriteSize, sizes_of_checkpoint
from langgraph_checkpoint_custom.operations.thread_states import State, failures_of, open_among, sent_to, state_of
from langgraph_checkpoint_custom.saver import CheckpointSaver
from langgraph_checkpoint_custom.tools.chats import Message, chat_of, chat_of_framework, rebuilt
from langgraph_checkpoint_custom.tools.display import brief, counted

# Channels of LangGraph's own.
_INNER = ("branch:", "join:", "__start__", "__pregel_", "__input__", "__previous__")
# The keys under which a dict that asks has its question.
_ASKING = ("question", "message", "text", "prompt", "query")


class Channel(NamedTuple):
    """A channel of a state.

    Attributes:
        name: The channel.
        value: Its value, raw; None if it cannot be shown.
        chat: Its messages, if it is a chat.
        note: How the value was found, or why it is not here.
        readable: Whether there is a value.
        rebuilt: Whether it is a `DeltaChannel` whose value is not stored in this checkpoint.
        writes: For a `DeltaChannel` that is not a chat: the writes that it is made of.
        bytes: What it takes, stored; None if that is not known.
        shared: How many of these bytes the parent's value has as well.
    """

    name: str
    value: Any = None
    chat: Sequence[Message] | None = None
    note: str = ""
    readable: bool = True
    rebuilt: bool = False
    writes: Sequence[Any] = ()
    bytes: int | None = None
    shared: int = 0

    @property
    def inner(self) -> bool:
        """Whether it is one of LangGraph's own."""
        return self.name.startswith(_INNER)


def channels_of(saver: CheckpointSaver, found: CheckpointTuple) -> list[Channel]:
    """Return the channels of a checkpoint that `saver` has read raw; in a thread of another framework also its chat."""
    values = found.checkpoint["channel_values"]
    snapshot = "a snapshot of a DeltaChannel"
    channels = [
        Channel(name, value, chat_of(value), snapshot if isinstance(value, DeltaSnapshot) else "")
        for name, value in values.items()
    ]
    channels += _rebuilt_channels(saver, found)
    where = found.config["configurable"]
    kind = kind_of(where["thread_id"])
    if kind is None or where["checkpoint_ns"]:
        return channels
    chat = chat_of_framework(kind, values)
    if not chat:
        return channels
    own = Channel("messages", values["messages"], chat, f"the chat of a {kind} thread")
    return [own, *(channel for channel in channels if channel.name != "messages")]


def not_stored(found: CheckpointTuple) -> list[str]:
    """Return the `DeltaChannel`s that have no value in a checkpoint."""
    counters = found.metadata.get("counters_since_delta_snapshot")
    return [name for name in counters or () if name not in found.checkpoint["channel_values"]]


def _rebuilt_channels(saver: CheckpointSaver, found: CheckpointTuple) -> Iterator[Channel]:
    """Yield the `DeltaChannel`s without a value here: chats are rebuilt, by the rule of LangGraph's own reducer."""
    names = not_stored(found)
    try:
        histories = saver.get_delta_channel_history(config=found.config, channels=names) if names else {}
    except CheckpointError as error:
        yield from (Channel(name, note=reason_of(error), readable=False, rebuilt=True) for name in names)
        return
    for name in histories:
        writes, seed = [value for _, _, value in histories[name]["writes"]], histories[name].get("seed")
        value = rebuilt(seed, writes)
        source = f"{'a snapshot' if seed is not None else 'nothing'} and {counted(len(writes), 'write')}"
        if value is not None:
            note = f"rebuilt from {source} of earlier steps, by LangGraph's rule"
            yield Channel(name, value, chat_of(value), note, rebuilt=True)
        elif not writes and seed is None:
            yield Channel(name, note="nothing was written to it yet", rebuilt=True)
        else:
            note = (
                f"a DeltaChannel: its reducer, which only the application knows, makes the value of {source}; "
                "they follow in their order"
            )
            parts = writes if seed is None else [seed, *writes]
            yield Channel(name, note=note, readable=False, rebuilt=True, writes=parts)


def reason_of(error: CheckpointError) -> str:
    """Return why something cannot be read, and what helps where that is a key."""
    reason = str(error).partition(" (thread ")[0]
    if isinstance(error, CorruptCheckpoint) and "+" in (error.type or ""):
        return f"{reason}. The variables with the keys have to be in the environment"
    return reason


def nodes_of(saver: CheckpointSaver, found: CheckpointTuple) -> dict[str, str]:
    """Return the node of each task that wrote to a checkpoint."""
    if not found.pending_writes:
        return {}
    sizes = saver.backend.driver.run(sizes_of_checkpoint(saver.backend.dialect, key_of(found.config)))
    return task_nodes(sizes.writes, found.checkpoint["channel_values"]) if sizes else {}


def task_nodes(writes: Sequence[WriteSize], values: Mapping[str, Any]) -> dict[str, str]:
    """Return the node of each task of some writes; that of a sent one if the channel values have the `Send`."""
    sends = sent_to(values)
    return {write.task_id: node_at(write.task_path, sends) for write in writes}


def node_at(path: str, sends: Sequence[str]) -> str:
    """Return the node of a task by its path, as LangGraph writes it; `sends` has those of sent tasks."""
    kind, comma, name = path.lstrip("~").partition(", ")
    if not comma or kind != "__pregel_push":
        return name or kind
    number = name.partition(", ")[0]
    if number.isdecimal() and int(number) < len(sends) and sends[int(number)]:
        return sends[int(number)]
    return "sent task"


# A thread in a line


class Summary(NamedTuple):
    """What a list shows of a thread.

    Attributes:
        state: Its state; "deleted" or "unreadable" if its newest checkpoint is.
        who: Who has said something last, "asks" or "failed"; or empty.
        text: The error, the question, the last message or the state, in a line; or why it cannot be read.
        found: The newest checkpoint, read raw; None if it was deleted in the meantime, or cannot be read.
    """

    state: str
    who: str = ""
    text: str = ""
    found: CheckpointTuple | None = None


def summary_of(saver: CheckpointSaver, newest: CheckpointRecord, limit: int, only: State | None = None) -> Summary:
    """Return what a list shows of a thread with this newest checkpoint, which `saver` reads raw.

    Args:
        saver: The saver.
        newest: The newest checkpoint.
        limit: Characters of the text.
        only: The state of the threads that are listed; others need no text.
    """
    try:
        found = saver.get_tuple(newest.config)
    except CorruptCheckpoint as error:
        return Summary("unreadable", text=f"cannot be read: {reason_of(error)}")
    if found is None:
        return Summary("deleted")
    state = state_of(found)
    who, text = _last_said(saver, found, limit) if only in (None, state) else ("", "")
    return Summary(state, who, text, found)


def _last_said(saver: CheckpointSaver, found: CheckpointTuple, limit: int) -> tuple[str, str]:
    for _, error in failures_of(found):
        return "failed", _cut(error, limit)
    for question in questions_of(found):
        return "asks", text_of(question.value, limit)
    channels = channels_of(saver, found)
    for channel in channels:
        if channel.chat:
            last = channel.chat[-1]
            return last.name or last.role, _cut(last.text, limit)
    shown = [each for each in channels if each.readable and not each.inner and each.value is not None]
    return "", _cut(", ".join(f"{each.name}: {text_of(each.value, 60)}" for each in shown), limit)


def questions_of(found: CheckpointTuple) -> list[Question]:
    """Return the open questions of a checkpoint that was read raw."""
    return [question_of(each) for each in open_among(found.checkpoint, found.pending_writes or [])]


def question_of(interrupt: Any) -> Question:
    """Return the id and the question of an interrupt that was read raw; the id is empty if it has none."""
    if isinstance(interrupt, Question):
        return interrupt
    if isinstance(interrupt, dict) and interrupt.keys() == {"id", "value"}:  # How a `Question` is stored.
        return Question(**interrupt)
    stored = object_of(interrupt) if isinstance(interrupt, Extension) else None
    content = stored.content if stored and isinstance(stored.content, dict) else {"value": interrupt}
    return Question(str(content.get("id") or ""), content.get("value"))


def text_of(value: Any, limit: int) -> str:
    """Return what a value says in one line: a text itself, the question of a dict that asks, anything else briefly."""
    value = plain(value)
    chat = chat_of(value)
    if chat:
        return _cut(f"{chat[-1].name or chat[-1].role}: {chat[-1].text}", limit)
    if isinstance(value, dict):
        value = next((value[key] for key in _ASKING if isinstance(value.get(key), str)), value)
    return _cut(value, limit) if isinstance(value, str) else brief(value, limit)


def _cut(text: str, limit: int) -> str:
    text = " ".join(text[: 4 * limit].split())
    return text if len(text) <= limit else text[: limit - 1] + "…"
