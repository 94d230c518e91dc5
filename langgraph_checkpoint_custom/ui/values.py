"""Prepares what was stored for the templates: texts, and values as trees of bounded size. Makes no stored object.

Must not know: the store, requests, HTML.

Jinja2 escapes HTML. It leaves characters that a browser interprets or hides: control characters, marks that change the
direction of text, invisible letters that can carry a message past a reader. Each is shown by its code point.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from datetime import datetime, timezone
from typing import Any, NamedTuple

from langgraph_checkpoint_custom.encoding.extensions import Extension
from langgraph_checkpoint_custom.encoding.raw import Raw, plain
from langgraph_checkpoint_custom.tools.display import DEEPEST, NOTHING, Inside, brief, counted, inside, size

# Control and format characters, line separators, lone surrogates, private and invisible letters. Not among them are
# newline and tab, and the two joiners, which emoji and several scripts need.
_UNSEEN = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b\u200e\u200f\u2028-\u202e"
    "\u2060-\u206f\u2800\u3164\ud800-\udfff\ufeff\uffa0\ufff0-\ufffb\U0001bca0-\U0001bca3\U0001d173-\U0001d17a"
    "\U000e0000-\U000e0fff]"
)


def marked(text: str) -> str:
    """Return a text in which each unseen character is replaced by its code point in brackets."""
    return _UNSEEN.sub(lambda found: f"⟨U+{ord(found[0]):04X}⟩", text.replace("\r\n", "\n"))


def line(text: str, limit: int = 160) -> str:
    """Return the beginning of a text in one line, marked."""
    short = marked(" ".join(text[: limit * 4].split()))
    return short if len(short) <= limit else short[: limit - 1] + "…"


def age(time: datetime | None, now: datetime) -> str:
    """Return how long ago a time was, in one unit; empty if it is not known."""
    if time is None:
        return ""
    seconds = (now - (time if time.tzinfo else time.replace(tzinfo=timezone.utc))).total_seconds()
    if seconds < 0:
        return "in the future"
    for unit, length in (("d", 86_400), ("h", 3_600), ("min", 60)):
        if seconds >= length:
            return f"{int(seconds // length):,} {unit} ago"
    return "just now" if seconds < 10 else f"{int(seconds)} s ago"


def clock(time: datetime | None) -> str:
    """Return a time in the zone of this process, with the name of the zone."""
    return time.astimezone().strftime("%Y-%m-%d %H:%M:%S %Z") if time else ""


def namespace(checkpoint_ns: str) -> str:
    """Return a namespace for people: the nodes that called subgraphs, each with the beginning of its task's id."""
    parts = (part.partition(":") for part in checkpoint_ns.split("|"))
    return " / ".join(f"{name} ({task[:8]})" if task else name for name, _, task in parts)


# Values

# Nodes of one value's tree, and characters of one text, that a page has. The whole value is a link away.
NODES = 2_000
CHARACTERS = 20_000


class Node(NamedTuple):
    """A node of a tree.

    Attributes:
        kind: "text", "number", "word" (null, true, false), "bytes", "dict", "list", "object", or "cut" for what is left
            out.
        text: What to show for a leaf.
        note: What it is: the number of elements, or the class.
        children: The elements, each with its key or None.
        brief: A line for a folded node.
    """

    kind: str
    text: str
    note: str = ""
    children: Sequence[tuple[str | None, Node]] = ()
    brief: str = ""


class _Room:
    def __init__(self) -> None:
        self.left = NODES


def tree(value: Any) -> Node:
    """Return the tree of a value as `raw_reader` returned it."""
    return _node(value, _Room(), 0)


def _node(value: Any, room: _Room, depth: int) -> Node:
    room.left -= 1
    value = plain(value)
    found = inside(value)
    if found is not None:
        return Node("cut", "nested too deeply") if depth > DEEPEST else _branch(value, found, room, depth)
    if isinstance(value, str):
        if len(value) <= CHARACTERS:
            return Node("text", value)
        return Node("text", value[:CHARACTERS], f"and {len(value) - CHARACTERS:,} more characters")
    if value is None or isinstance(value, bool):
        return Node("word", json.dumps(value))
    if isinstance(value, (int, float)):
        return Node("number", repr(value))
    if isinstance(value, (bytes, bytearray)):
        return Node("bytes", repr(bytes(value[:60])) + ("…" if len(value) > 60 else ""), size(len(value)))
    if type(value) is Raw:
        return Node("bytes", value.type, f"{size(len(value.data))}, not decoded")
    if type(value) is Extension:
        return Node("bytes", f"extension {value.code}", size(len(value.data)))
    return Node("text", brief(value, 400), type(value).__name__)


def _branch(value: Any, found: Inside, room: _Room, depth: int) -> Node:
    note = found.name or counted(found.number, "key" if found.kind == "dict" else "element")
    children: list[tuple[str | None, Node]] = []
    elements, pairs = found.number, found.pairs
    if found.kind == "object" and elements == 1:
        ((key, only),) = pairs = list(pairs)
        content = inside(plain(only))
        if key is NOTHING and content is None:
            return Node("text", only if isinstance(only, str) else brief(only, 400), note)
        if key is NOTHING and content is not None and content.kind == "dict":  # Such as an OrderedDict.
            elements, pairs = content.number, content.pairs
    for number, (key, each) in enumerate(pairs):
        if room.left <= 0:
            children.append((None, Node("cut", f"{elements - number:,} more")))
            break
        name: str | None = key if isinstance(key, str) else brief(key, 200)
        if key is NOTHING:
            name = None if found.kind == "object" else str(number)
        children.append((name, _node(each, room, depth + 1)))
    return Node("list" if found.kind == "tuple" else found.kind, "", note, children, brief(value, 80))
