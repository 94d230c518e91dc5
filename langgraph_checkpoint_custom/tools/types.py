"""Finds the classes in the store without importing them.

Must not know: SQL, connections.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from langgraph_checkpoint_custom.encoding.extensions import UnreadableValue
from langgraph_checkpoint_custom.encoding.serde import MSGPACK
from langgraph_checkpoint_custom.encoding.values import Values, is_chunked
from langgraph_checkpoint_custom.engine.operation import Row, Steps, offload, operation
from langgraph_checkpoint_custom.operations.reencrypt import PAGE, Table, key_of_row
from langgraph_checkpoint_custom.sql.dialect import SqlDialect
from langgraph_checkpoint_custom.tools.display import classes


class TypesPage(NamedTuple):
    """The classes in a page of rows.

    Attributes:
        rows: The number of rows.
        classes: By module and name, how often each class occurs.
        unseen: By type, the number of values that were not examined, such as pickles. Type "unreadable" is for values
            that no key decrypts, or that are damaged.
        after: The key after which the next page begins; None if this was the last one.
    """

    rows: int
    classes: Counter[tuple[str, str]]
    unseen: Counter[str]
    after: Mapping[str, Any] | None


@operation("read")
def types_page(d: SqlDialect, codec: Values, table: Table, after: Mapping[str, Any]) -> Steps[TypesPage]:
    """Return the classes in a page of a table.

    Round trips: 1.
    """
    (rows,) = yield d.stored_rows(table.name, after, PAGE)
    size = sum(len(cell) for row in rows for cell in row if isinstance(cell, (bytes, memoryview)))
    found, unseen = yield from offload(size, _look, codec, table, rows)
    return TypesPage(len(rows), found, unseen, key_of_row(d, table, rows[-1]) if len(rows) == PAGE else None)


def _look(codec: Values, table: Table, rows: Sequence[Row]) -> tuple[Counter[tuple[str, str]], Counter[str]]:
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
