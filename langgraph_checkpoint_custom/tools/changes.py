"""What differs between two states, channel by channel: messages, lines of text, and paths in other values.

Must not know: SQL, connections, terminals, pages.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from difflib import SequenceMatcher
from itertools import islice
from typing import Any, NamedTuple

from langgraph_checkpoint_custom.encoding.langgraph_private import DeltaSnapshot
from langgraph_checkpoint_custom.encoding.raw import plain
from langgraph_checkpoint_custom.tools.chats import Message
from langgraph_checkpoint_custom.tools.display import NOTHING, brief, counted, differences
from langgraph_checkpoint_custom.tools.states import Channel

# Differences of one channel that are returned by default, and unchanged lines around a change.
MOST = 200
AROUND = 2


class Line(NamedTuple):
    """A line of text: `sign` is "+", "-", a space for an unchanged line, or "…" for lines left out."""

    sign: str
    text: str


class PathChange(NamedTuple):
    """A place inside a value that differs; None where there is nothing."""

    path: str
    before: str | None
    after: str | None


class MessageChange(NamedTuple):
    """A message that was added ("+"), removed ("-") or changed ("~").

    A changed one has the lines of its text, and the other fields that differ.
    """

    sign: str
    message: Message
    lines: Sequence[Line] = ()
    fields: Sequence[PathChange] = ()


class Change(NamedTuple):
    """A channel that differs.

    Attributes:
        channel: The channel.
        what: "added", "removed", "changed", or "unknown" if it cannot be compared.
        note: Why it cannot be compared, or how many messages are the same.
        messages: For a chat.
        lines: For a text.
        paths: For other values.
        more: Whether there are more than these.
    """

    channel: str
    what: str
    note: str = ""
    messages: Sequence[MessageChange] = ()
    lines: Sequence[Line] = ()
    paths: Sequence[PathChange] = ()
    more: bool = False


def changes(
    before: Sequence[Channel], after: Sequence[Channel], *, most: int = MOST, around: int = AROUND
) -> tuple[list[Change], list[str]]:
    """Return what differs between two states, and the names of the channels that are the same.

    Args:
        before: The channels of one state.
        after: Those of the other.
        most: How many differences of a channel to return.
        around: How many unchanged lines to return around those that differ.
    """
    old = {channel.name: channel for channel in before if not channel.inner}
    new = {channel.name: channel for channel in after if not channel.inner}
    found, same = [], []
    for name in [*old, *(name for name in new if name not in old)]:
        change = _change(name, old.get(name), new.get(name), most, around)
        if change is None:
            same.append(name)
        else:
            found.append(change)
    return found, same


def _change(name: str, old: Channel | None, new: Channel | None, most: int, around: int) -> Change | None:
    what = "added" if old is None else "removed" if new is None else "changed"
    for channel in (old, new):
        if channel is not None and not channel.readable:
            return Change(name, "unknown", channel.note or "its value cannot be read")
    if all(channel is None or channel.chat is not None or _value(channel) in (None, []) for channel in (old, new)):
        one, other = ((channel.chat if channel else None) or () for channel in (old, new))
        if one or other:
            return _chats(Change(name, what), one, other, most, around)
    left, right = (NOTHING if channel is None else _value(channel) for channel in (old, new))
    if isinstance(left, str) and isinstance(right, str):
        lines = list(islice(_lines(left, right, around), most + 1))
        return Change(name, what, lines=lines[:most], more=len(lines) > most) if lines else None
    paths = _paths(left, right, most + 1)
    return Change(name, what, paths=paths[:most], more=len(paths) > most) if paths else None


def _value(channel: Channel) -> Any:
    value = plain(channel.value)
    return value.value if isinstance(value, DeltaSnapshot) else value


def _paths(left: Any, right: Any, most: int) -> list[PathChange]:
    found = islice(differences(left, right), most)
    return [PathChange(one.path, _side(one.left), _side(one.right)) for one in found]


def _side(value: Any) -> str | None:
    return None if value is NOTHING else brief(value, 2_000)


def _chats(change: Change, old: Sequence[Message], new: Sequence[Message], most: int, around: int) -> Change | None:
    before, after = ([message.id or f"\0{number}" for number, message in enumerate(chat)] for chat in (old, new))
    if not all(message.id for message in (*old, *new)):  # Without ids, the same text is the same message.
        before, after = ([f"{message.role}\0{message.text}" for message in chat] for chat in (old, new))
    found: list[MessageChange] = []
    kept = 0
    for tag, i, j, k, m in SequenceMatcher(None, before, after, autojunk=False).get_opcodes():
        if tag != "equal":
            found += [MessageChange("-", message) for message in old[i:j]]
            found += [MessageChange("+", message) for message in new[k:m]]
            continue
        for one, other in zip(old[i:j], new[k:m], strict=True):
            if one == other:
                kept += 1
            else:
                lines = list(islice(_lines(one.text, other.text, around), most))
                found.append(MessageChange("~", other, lines, _paths(_fields(one), _fields(other), most)))
    if not found:
        return None
    note = f"{counted(kept, 'message')} as before" if kept else ""
    return change._replace(note=note, messages=found[:most], more=len(found) > most)


def _fields(message: Message) -> dict[str, Any]:
    """Return what a message has besides its text."""
    parts = [part._asdict() for part in message.parts if part.kind != "text"]
    return {**message._asdict(), "parts": parts, "calls": [call._asdict() for call in message.calls]}


def _lines(old: str, new: str, around: int) -> Iterator[Line]:
    before, after = old.splitlines(keepends=True), new.splitlines(keepends=True)
    for group in SequenceMatcher(None, before, after, autojunk=False).get_grouped_opcodes(around):
        if group[0][1] or group[0][3]:
            yield Line("…", "")
        for tag, i, j, k, m in group:
            if tag == "equal":
                yield from (Line(" ", text.rstrip("\r\n")) for text in before[i:j])
            else:
                yield from (Line("-", text.rstrip("\r\n")) for text in before[i:j])
                yield from (Line("+", text.rstrip("\r\n")) for text in after[k:m])
