"""What differs between two states, channel by channel: messages, lines of text, and paths in other values.

Must not know: the store, requests, HTML.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from difflib import SequenceMatcher
from itertools import islice
from typing import Any, NamedTuple

from langgraph_checkpoint_custom.encoding.langgraph_private import DeltaSnapshot
from langgraph_checkpoint_custom.tools.chats import Message
from langgraph_checkpoint_custom.tools.display import NOTHING, brief, counted, differences, plain
from langgraph_checkpoint_custom.ui.reading import Channel

# Differences of one channel that are shown, and unchanged lines around a change.
MOST = 200
AROUND = 2


class Line(NamedTuple):
    """A line of text: `sign` is "+", "-", a space for an unchanged line, or "…" for lines left out."""

    sign: str
    text: str


class MessageChange(NamedTuple):
    """A message that was added ("+"), removed ("-") or changed ("~"); a changed one has the lines of its text."""

    sign: str
    message: Message
    lines: Sequence[Line] = ()


class PathChange(NamedTuple):
    """A place inside a value that differs; None where there is nothing."""

    path: str
    before: str | None
    after: str | None


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


def changes(before: Sequence[Channel], after: Sequence[Channel]) -> tuple[list[Change], list[str]]:
    """Return what differs between two states, and the names of the channels that are the same."""
    old = {channel.name: channel for channel in before if not channel.inner}
    new = {channel.name: channel for channel in after if not channel.inner}
    found, same = [], []
    for name in [*old, *(name for name in new if name not in old)]:
        change = _change(name, old.get(name), new.get(name))
        if change is None:
            same.append(name)
        else:
            found.append(change)
    return found, same


def _change(name: str, old: Channel | None, new: Channel | None) -> Change | None:
    what = "added" if old is None else "removed" if new is None else "changed"
    for channel in (old, new):
        if channel is not None and not channel.readable:
            return Change(name, "unknown", channel.note or "its value cannot be read")
    if all(channel is None or channel.chat is not None or _is_empty(channel) for channel in (old, new)):
        one, other = ((channel.chat if channel else None) or () for channel in (old, new))
        if one or other:
            return _chats(name, what, one, other)
    left, right = (NOTHING if channel is None else _value(channel) for channel in (old, new))
    if isinstance(left, str) and isinstance(right, str):
        if left == right:
            return None
        lines = list(islice(_lines(left, right), MOST + 1))
        return Change(name, what, lines=lines[:MOST], more=len(lines) > MOST)
    paths = list(islice(differences(left, right), MOST + 1))
    if not paths:
        return None
    shown = [PathChange(one.path, _side(one.left), _side(one.right)) for one in paths[:MOST]]
    return Change(name, what, paths=shown, more=len(paths) > MOST)


def _is_empty(channel: Channel) -> bool:
    return _value(channel) in (None, [])


def _value(channel: Channel) -> Any:
    value = plain(channel.value)
    return value.value if isinstance(value, DeltaSnapshot) else value


def _side(value: Any) -> str | None:
    return None if value is NOTHING else brief(value, 2_000)


def _chats(name: str, what: str, old: Sequence[Message], new: Sequence[Message]) -> Change | None:
    before, after = ([message.id or f"\0{number}" for number, message in enumerate(chat)] for chat in (old, new))
    if not all(message.id for message in (*old, *new)):  # Without ids, the same text is the same message.
        before, after = ([f"{message.role}\0{message.text}" for message in chat] for chat in (old, new))
    found: list[MessageChange] = []
    kept = 0
    for tag, i, j, k, m in SequenceMatcher(None, before, after, autojunk=False).get_opcodes():
        if tag == "equal":
            for one, other in zip(old[i:j], new[k:m], strict=True):
                if one == other:
                    kept += 1
                else:
                    found.append(MessageChange("~", other, list(islice(_lines(one.text, other.text), MOST))))
        else:
            found += [MessageChange("-", message) for message in old[i:j]]
            found += [MessageChange("+", message) for message in new[k:m]]
    if not found:
        return None
    note = f"{counted(kept, 'message')} as before" if kept else ""
    return Change(name, what, note, messages=found[:MOST], more=len(found) > MOST)


def _lines(old: str, new: str) -> Iterator[Line]:
    before, after = old.splitlines(), new.splitlines()
    for group in SequenceMatcher(None, before, after, autojunk=False).get_grouped_opcodes(AROUND):
        if group[0][1] or group[0][3]:
            yield Line("…", "")
        for tag, i, j, k, m in group:
            if tag == "equal":
                yield from (Line(" ", text) for text in before[i:j])
            else:
                yield from (Line("-", text) for text in before[i:j])
                yield from (Line("+", text) for text in after[k:m])
