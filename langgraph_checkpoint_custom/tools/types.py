"""Finds the classes in the store without importing them or decoding values.

Must not know: SQL, connections.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import NamedTuple

import ormsgpack

from langgraph_checkpoint_custom.encoding.chunks import EXTENSIONS, end_of_token
from langgraph_checkpoint_custom.encoding.extensions import (
    DELTA,
    METHOD,
    NUMPY,
    PYDANTIC_2,
    REFERENCE,
    SINGLE,
    UnreadableValue,
)
from langgraph_checkpoint_custom.encoding.serde import MSGPACK
from langgraph_checkpoint_custom.encoding.values import ValueCodec, is_chunked
from langgraph_checkpoint_custom.engine.operation import Steps, offload, operation
from langgraph_checkpoint_custom.operations.rows import WITH_VALUES, Kind, Row, Start, page_of_rows, starts, values_of
from langgraph_checkpoint_custom.saver import CheckpointSaver
from langgraph_checkpoint_custom.sql.dialect import SqlDialect


class Found(NamedTuple):
    """What was found in some rows.

    Attributes:
        rows: The number of rows.
        classes: By module and name, how often each class occurs.
        unseen: By type, the number of values that were not examined, such as pickles. Type "unreadable" is for values
            that no key decrypts, or that are damaged.
    """

    rows: int
    classes: Counter[tuple[str, str]]
    unseen: Counter[str]


def classes_of(savers: Iterable[CheckpointSaver], progress: Callable[[int], None] = lambda rows: None) -> Found:
    """Find the classes in the threads of savers; `progress` is called with the number of rows that were read."""
    rows, classes, unseen = 0, Counter[tuple[str, str]](), Counter[str]()
    for d, driver, codec in (saver.backend for saver in savers):
        for kind, start in ((each, start) for each in WITH_VALUES for start in starts(d, each)):
            after: Start | None = start
            while after is not None:
                page, after = driver.run(_page(d, codec, kind, after))
                rows += page.rows
                classes.update(page.classes)
                unseen.update(page.unseen)
                progress(rows)
    return Found(rows, classes, unseen)


@operation("read")
def _page(d: SqlDialect, codec: ValueCodec, kind: Kind, start: Start) -> Steps[tuple[Found, Start | None]]:
    """Return what is in a page of rows, and where the next page starts; None if this was the last one.

    Round trips: 1.
    """
    rows, size, after = yield from page_of_rows(d, kind, start)
    found = yield from offload(size, _look, codec, kind, rows)
    return found, after


def _look(codec: ValueCodec, kind: Kind, rows: Sequence[Row]) -> Found:
    found = Found(len(rows), Counter(), Counter())
    for row in rows:
        for value in values_of(kind, row):
            if is_chunked(row[value.type]):  # Its classes are found in its chunks.
                continue
            try:
                own, plain = codec.unseal(row[value.type], bytes(row[value.bytes]), value.location)
            except UnreadableValue:
                found.unseen["unreadable"] += 1
                continue
            if own != MSGPACK:
                if own not in ("null", "bytes", "bytearray"):
                    found.unseen[own] += 1
                continue
            try:
                found.classes.update(list(classes(plain)))
            except (ValueError, IndexError):
                found.unseen["unreadable"] += 1
    return found


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
