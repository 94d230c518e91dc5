"""Prepares stored values for the templates: as a tree of bounded size, with class names. Makes no object.

Must not know: the store, requests, HTML.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from langgraph_checkpoint_custom.encoding.extensions import Extension
from langgraph_checkpoint_custom.encoding.langgraph_private import DeltaSnapshot
from langgraph_checkpoint_custom.encoding.raw import Raw, object_of, plain
from langgraph_checkpoint_custom.tools.display import DEEPEST, brief, counted, size

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
    if depth > DEEPEST:
        return Node("cut", "nested too deeply")
    if isinstance(value, dict):
        pairs = ((_key(key), each) for key, each in value.items())
        return _many("dict", counted(len(value), "key"), pairs, len(value), value, room, depth)
    if isinstance(value, (list, tuple)):
        pairs = ((str(number), each) for number, each in enumerate(value))
        return _many("list", counted(len(value), "element"), pairs, len(value), value, room, depth)
    if isinstance(value, DeltaSnapshot):
        return _many("object", "snapshot", iter([(None, value.value)]), 1, value, room, depth)
    if type(value) is Extension:
        found = object_of(value)
        if found is None:
            return Node("bytes", f"extension {value.code}", size(len(value.data)))
        content = found.content
        if isinstance(content, dict):
            pairs = ((_key(key), each) for key, each in content.items())
            return _many("object", found.path, pairs, len(content), value, room, depth)
        leaf = not isinstance(content, (dict, list, tuple, Extension))
        if leaf:
            return Node("text", content if isinstance(content, str) else brief(content, 400), found.path)
        return _many("object", found.path, iter([(None, content)]), 1, value, room, depth)
    return Node("text", brief(value, 400), type(value).__name__)


def _many(
    kind: str,
    note: str,
    pairs: Iterator[tuple[str | None, Any]],
    number: int,
    value: Any,
    room: _Room,
    depth: int,
) -> Node:
    found: list[tuple[str | None, Node]] = []
    for key, each in pairs:
        if room.left <= 0:
            found.append((None, Node("cut", f"{number - len(found):,} more")))
            break
        found.append((key, _node(each, room, depth + 1)))
    return Node(kind, "", note, found, brief(value, 80))


def _key(key: Any) -> str:
    return key if isinstance(key, str) else brief(key, 200)
