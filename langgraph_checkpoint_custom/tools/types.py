"""Finds the classes in the store without importing them.

Must not know: SQL, connections.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from langgraph_checkpoint_custom.encoding.extensions import UnreadableValue
from langgraph_checkpoint_custom.encoding.serde import MSGPACK
from langgraph_checkpoint_custom.encoding.values import ValueCodec, is_chunked
from langgraph_checkpoint_custom.engine.operation import Steps, offload, operation
from langgraph_checkpoint_custom.operations.rows import Kind, Row, Start, page_of_rows, values_of
from langgraph_checkpoint_custom.sql.dialect import SqlDialect
from langgraph_checkpoint_custom.tools.display import classes


class TypesPage(NamedTuple):
    """The classes in a page of rows.

    Attributes:
        rows: The number of rows.
        classes: By module and name, how often each class occurs.
        unseen: By type, the number of values that were not examined, such as pickles. Type "unreadable" is for values
            that no key decrypts, or that are damaged.
        after: Where the next page starts; None if this was the last one.
    """

    rows: int
    classes: Counter[tuple[str, str]]
    unseen: Counter[str]
    after: Start | None


@operation("read")
def types_page(d: SqlDialect, codec: ValueCodec, kind: Kind, start: Start) -> Steps[TypesPage]:
    """Return the classes in a page of rows.

    Round trips: 1.
    """
    rows, size, after = yield from page_of_rows(d, kind, start)
    found, unseen = yield from offload(size, _look, codec, kind, rows)
    return TypesPage(len(rows), found, unseen, after)


def _look(codec: ValueCodec, kind: Kind, rows: Sequence[Row]) -> tuple[Counter[tuple[str, str]], Counter[str]]:
    found: Counter[tuple[str, str]] = Counter()
    unseen: Counter[str] = Counter()
    for row in rows:
        for value in values_of(kind, row):
            if is_chunked(row[value.type]):  # Its classes are found in its chunks.
                continue
            try:
                own, plain = codec.unseal(row[value.type], bytes(row[value.bytes]), value.location)
            except UnreadableValue:
                unseen["unreadable"] += 1
                continue
            if own != MSGPACK:
                if own not in ("null", "bytes", "bytearray"):
                    unseen[own] += 1
                continue
            try:
                found.update(list(classes(plain)))
            except (ValueError, IndexError):
                unseen["unreadable"] += 1
    return found, unseen
