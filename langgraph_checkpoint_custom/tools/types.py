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
from langgraph_checkpoint_custom.engine.operation import Row, Steps, offload, operation
from langgraph_checkpoint_custom.operations.reencrypt import Start, Table, key_of_row, size_of
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
def types_page(d: SqlDialect, codec: ValueCodec, table: Table, start: Start) -> Steps[TypesPage]:
    """Return the classes in a page of a table.

    Round trips: 1.
    """
    (rows,) = yield d.stored_rows(table.name, *start)
    size = size_of(rows)
    found, unseen = yield from offload(size, _look, codec, table, rows)
    after = start.after(key_of_row(d, table, rows[-1]), len(rows), size) if rows else None
    return TypesPage(len(rows), found, unseen, after)


def _look(codec: ValueCodec, table: Table, rows: Sequence[Row]) -> tuple[Counter[tuple[str, str]], Counter[str]]:
    found: Counter[tuple[str, str]] = Counter()
    unseen: Counter[str] = Counter()
    for row in rows:
        for type_, data, location in table.cells(row):
            if is_chunked(type_):  # Its classes are found in its chunks.
                continue
            try:
                own, plain = codec.unseal(type_, bytes(data), location)
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
