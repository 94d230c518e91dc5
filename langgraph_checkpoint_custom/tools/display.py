"""Displays stored values to people: as `raw_reader` returns them, with class names. Imports no class, makes no object.

Must not know: SQL, connections, checkpoints, terminals.
"""

from __future__ import annotations

import math
from base64 import b64encode
from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any, NamedTuple

import ormsgpack

from langgraph_checkpoint_custom.encoding.chunks import EXTENSIONS, end_of_token
from langgraph_checkpoint_custom.encoding.extensions import (
    DELTA,
    KEYWORDS,
    METHOD,
    NUMPY,
    POSITIONAL,
    PYDANTIC_1,
    PYDANTIC_2,
    REFERENCE,
    SINGLE,
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
    if depth > DEEPEST:
        yield "…"
    elif isinstance(value, (str, bytes)):
        yield repr(value[: limit + 1])
    elif isinstance(value, dict):
        yield "{"
        yield from _pairs(value, limit, depth, lambda key: brief(key, limit) + ": ")
        yield "}"
    elif isinstance(value, (list, tuple)):
        yield "[" if isinstance(value, list) else "("
        yield from _elements(value, limit, depth)
        yield "]" if isinstance(value, list) else ")"
    elif isinstance(value, DeltaSnapshot):
        yield "snapshot("
        yield from _pieces(value.value, limit, depth + 1)
        yield ")"
    elif type(value) is Extension:
        yield from _object(value, limit, depth)
    elif type(value) is Raw:
        yield f"<{value.type}, {len(value.data)} bytes>"
    else:
        yield repr(value)


def _object(value: Extension, limit: int, depth: int) -> Iterator[str]:
    found = object_of(value)
    if found is None:
        yield f"<extension {value.code}, {len(value.data)} bytes>"
        return
    yield found.path + (f".{found.method}" if found.code == METHOD and found.method not in (PARTS, CODEC) else "") + "("
    content = found.content
    if found.code in (KEYWORDS, PYDANTIC_1, PYDANTIC_2, NUMPY) and isinstance(content, dict):
        yield from _pairs(content, limit, depth, lambda key: f"{key}=")
    elif found.code == POSITIONAL and isinstance(content, list):
        yield from _elements(content, limit, depth)
    else:
        yield from _pieces(content, limit, depth + 1)
    yield ")"


def _pairs(pairs: Mapping[Any, Any], limit: int, depth: int, name: Any) -> Iterator[str]:
    for number, (key, value) in enumerate(pairs.items()):
        yield (", " if number else "") + name(key)
        yield from _pieces(value, limit, depth + 1)


def _elements(elements: list[Any] | tuple[Any, ...], limit: int, depth: int) -> Iterator[str]:
    for number, element in enumerate(elements):
        if number:
            yield ", "
        yield from _pieces(element, limit, depth + 1)


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
    if isinstance(value, (list, tuple)):
        return [json_of(element, depth + 1) for element in value]
    if isinstance(value, DeltaSnapshot):
        return {"snapshot": json_of(value.value, depth + 1)}
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


# Finding classes in msgpack without decoding values


def classes(data: bytes) -> Iterator[tuple[str, str]]:
    """Yield the module and name of each class in a sequence of msgpack values, nested ones too.

    Raises:
        ValueError: The data ends in the middle of a value.
    """
    at = 0
    while at < len(data):
        end = end_of_token(data, at)
        width = EXTENSIONS.get(data[at])
        if width is not None:
            code = at + 1 + width
            yield from _classes_of(data[code], data[code + 1 : end])
        at = end
    if at > len(data):
        raise ValueError("it ends in the middle of a value")


def _classes_of(code: int, data: bytes) -> Iterator[tuple[str, str]]:
    if code in (DELTA, NUMPY) or not SINGLE <= code <= PYDANTIC_2:
        yield from classes(data) if code == DELTA else ()
        return
    content = ormsgpack.unpackb(data, ext_hook=lambda *_: None, option=ormsgpack.OPT_NON_STR_KEYS)
    module, name, stored = islice(content, 3)
    if (module, name) == REFERENCE:  # A class or function itself.
        module, _, name = str(stored).partition(":")
    if code != METHOD:  # What is stored with a method is always allowed.
        yield str(module), str(name)
    yield from classes(data)


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
