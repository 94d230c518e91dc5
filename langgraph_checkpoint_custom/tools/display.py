"""Displays stored values to people: as `raw_reader` returns them, with class names. Imports no class, makes no object.

Must not know: SQL, connections, checkpoints, terminals.
"""

from __future__ import annotations

import math
from base64 import b64encode
from collections.abc import Iterable, Iterator
from itertools import repeat
from typing import Any, NamedTuple

from langgraph_checkpoint_custom.encoding.extensions import (
    KEYWORDS,
    METHOD,
    NUMPY,
    POSITIONAL,
    PYDANTIC_1,
    PYDANTIC_2,
    Extension,
)
from langgraph_checkpoint_custom.encoding.langgraph_private import DeltaSnapshot
from langgraph_checkpoint_custom.encoding.leaves import CODEC, PARTS
from langgraph_checkpoint_custom.encoding.raw import Raw, object_of, plain
from langgraph_checkpoint_custom.tools.foreign import same

# Levels of nesting that are displayed; deeper ones are left out.
DEEPEST = 60


def kind(value: Any) -> str:
    """Return what a value is, in a word or two: "list of 12", "my_app.state.Plan"."""
    value = plain(value)
    if type(value) is Extension:
        found = object_of(value)
        return found.path if found else f"extension {value.code}"
    if type(value) is Raw:
        return f"{value.type} of {len(value.data)} bytes"
    if isinstance(value, DeltaSnapshot):
        return f"snapshot: {kind(value.value)}"
    if isinstance(value, (list, tuple, dict, str, bytes)) and value:
        return f"{type(value).__name__} of {len(value)}"
    return "None" if value is None else type(value).__name__


def brief(value: Any, limit: int) -> str:
    """Return a value much as `repr` would, cut after `limit` characters; control characters in texts are escaped."""
    size = 0
    found = []
    for piece in _pieces(value, limit, 0):
        found.append(piece)
        size += len(piece)
        if size > limit:
            return "".join(found)[: max(1, limit - 1)] + "…"
    return "".join(found)


def _pieces(value: Any, limit: int, depth: int) -> Iterator[str]:
    value = plain(value)
    found = inside(value)
    if depth > DEEPEST:
        yield "…"
    elif found is not None:
        opening, between, closing = _SIGNS[found.kind]
        yield found.name + found.method + opening
        for number, (key, each) in enumerate(found.pairs):
            yield ", " if number else ""
            if key is not NOTHING:
                yield (str(key) if found.kind == "object" else brief(key, limit)) + between
            yield from _pieces(each, limit, depth + 1)
        yield closing
    elif isinstance(value, (str, bytes)):
        yield repr(value[: limit + 1])
    elif type(value) is Extension:
        yield f"<extension {value.code}, {len(value.data)} bytes>"
    elif type(value) is Raw:
        yield f"<{value.type}, {len(value.data)} bytes>"
    else:
        yield repr(value)


# What stands around the elements of a value, and between a key and its element.
_SIGNS = {"dict": ("{", ": ", "}"), "list": ("[", "", "]"), "tuple": ("(", "", ")"), "object": ("(", "=", ")")}


class Inside(NamedTuple):
    """What a value consists of.

    Attributes:
        kind: "dict", "list", "tuple" or "object".
        name: Of an object, its class; "snapshot" for that of a `DeltaChannel`.
        number: How many elements it has.
        pairs: The elements, each with its key: any value in a dict, the name of a field in an object, or `NOTHING`.
        method: Of an object, the method of its class that makes it, after a dot; empty if the class does.
    """

    kind: str
    name: str
    number: int
    pairs: Iterable[tuple[Any, Any]]
    method: str = ""


def inside(value: Any) -> Inside | None:
    """Return what a value consists of that `plain` has returned; None if it has no elements."""
    if isinstance(value, dict):
        return Inside("dict", "", len(value), value.items())
    if isinstance(value, DeltaSnapshot):  # It is a tuple.
        return Inside("object", "snapshot", 1, [(NOTHING, value.value)])
    if isinstance(value, (list, tuple)):
        return Inside("list" if isinstance(value, list) else "tuple", "", len(value), zip(repeat(NOTHING), value))
    found = object_of(value) if type(value) is Extension else None
    if found is None:
        return None
    name, content = found.path, found.content
    method = f".{found.method}" if found.code == METHOD and found.method not in (PARTS, CODEC) else ""
    if found.code in (KEYWORDS, PYDANTIC_1, PYDANTIC_2, NUMPY) and isinstance(content, dict):
        return Inside("object", name, len(content), content.items())
    if found.code == POSITIONAL and isinstance(content, list):
        return Inside("object", name, len(content), zip(repeat(NOTHING), content))
    return Inside("object", name, 1, [(NOTHING, content)], method)


def json_of(value: Any, depth: int = 0) -> Any:
    """Convert a value for JSON; a type that JSON does not have becomes an object whose key names it."""
    value = plain(value)
    if depth > DEEPEST:
        return {"text": brief(value, 1000)}
    if value is None or isinstance(value, (bool, int, str)):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else {"float": repr(value)}
    if isinstance(value, (bytes, bytearray)):
        return {"bytes": b64encode(value).decode()}
    if isinstance(value, dict):
        if all(type(key) is str for key in value):
            return {key: json_of(element, depth + 1) for key, element in value.items()}
        return {"pairs": [[json_of(key, depth + 1), json_of(element, depth + 1)] for key, element in value.items()]}
    if isinstance(value, DeltaSnapshot):  # It is a tuple.
        return {"snapshot": json_of(value.value, depth + 1)}
    if isinstance(value, (list, tuple)):
        return [json_of(element, depth + 1) for element in value]
    if type(value) is Extension:
        found = object_of(value)
        if found is None:
            return {"extension": value.code, "bytes": b64encode(value.data).decode()}
        return {"class": found.path, "value": json_of(found.content, depth + 1)}
    return (
        {"type": value.type, "bytes": b64encode(value.data).decode()} if type(value) is Raw else {"text": repr(value)}
    )


class Difference(NamedTuple):
    """A path at which two values differ; `left` or `right` is `NOTHING` if that value has nothing at the path."""

    path: str
    left: Any
    right: Any


class _Nothing:
    def __repr__(self) -> str:
        return "nothing"


NOTHING = _Nothing()


def differences(left: Any, right: Any, path: str = "", depth: int = 0) -> Iterator[Difference]:
    """Yield the differences of two values, inside nested dicts and lists too."""
    left, right = plain(left), plain(right)
    if left is not NOTHING and right is not NOTHING and same(left, right):
        return
    if depth < DEEPEST and isinstance(left, dict) and isinstance(right, dict):
        for key in [*left, *(key for key in right if key not in left)]:
            name = str(key) if not path else f"{path}.{key}"
            yield from differences(left.get(key, NOTHING), right.get(key, NOTHING), name, depth + 1)
    elif depth < DEEPEST and isinstance(left, (list, tuple)) and type(left) is type(right):
        for number in range(max(len(left), len(right))):
            one = left[number] if number < len(left) else NOTHING
            other = right[number] if number < len(right) else NOTHING
            yield from differences(one, other, f"{path}[{number}]", depth + 1)
    else:
        yield Difference(path, left, right)


def database_of(saver: object) -> str:
    """Return what the database of a saver is called, as the saver's `repr` says it: without a password."""
    return repr(saver)[1:-1].partition(" of ")[2]


def size(number: int) -> str:
    """Format a number of bytes for people."""
    if number < 1000:
        return f"{number} B"
    amount = float(number)
    for unit in ("kB", "MB", "GB", "TB"):
        amount /= 1000
        if amount < 999.5 or unit == "TB":
            break
    return f"{amount:.1f} {unit}" if amount < 10 else f"{amount:.0f} {unit}"


def counted(number: int, thing: str) -> str:
    """Format a number of things: "1 thread", "2 threads"."""
    return f"{number:,} {thing}" + ("" if number == 1 else "s")


def up_to(most: int, number: int) -> str:
    """Format a number that was counted up to `most`, and one more: "12", or "> 10,000"."""
    return f"{number:,}" if number <= most else f"> {most:,}"


def duration(seconds: float) -> str:
    """Return a duration in one unit."""
    for unit, length in (("h", 3_600), ("min", 60), ("s", 1)):
        if seconds >= length:
            return f"{seconds / length:,.1f} {unit}"
    return f"{seconds * 1_000:,.1f} ms"
