"""What a sweep reads, one thread after the other.

Must not know: SQL, connections, the clock.

`retention.py` decides what a sweep deletes and makes its dry run, with the operations of this file.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from datetime import datetime, timezone
from typing import NamedTuple

from langgraph_checkpoint_custom.encoding.decode import Decoder
from langgraph_checkpoint_custom.encoding.values import Values
from langgraph_checkpoint_custom.engine.operation import Steps, offload, operation
from langgraph_checkpoint_custom.model.keys import Key
from langgraph_checkpoint_custom.model.outline import Outline, Place, superseded
from langgraph_checkpoint_custom.model.records import time_from
from langgraph_checkpoint_custom.operations.delete import BYTES
from langgraph_checkpoint_custom.sql.dialect import SqlDialect


class Prospect(NamedTuple):
    """What a sweep can do to a thread.

    Attributes:
        newest: The newest checkpoint of all namespaces.
        checkpoints: The number of checkpoints that are not hidden.
        labelled: Whether any has a label.
        superseded: How many of these a prune would delete or hide, by the number that it keeps.
    """

    newest: Place
    checkpoints: int
    labelled: bool
    superseded: Mapping[int, int]


@operation("read")
def prospect(d: SqlDialect, thread_id: str, keeps: Collection[int]) -> Steps[Prospect | None]:
    """Return what a sweep can do to a thread, if it keeps one of these numbers; None if it has no checkpoint.

    Round trips: 1.
    Rows: all checkpoints of the thread, without values.
    """
    rows, labels = yield d.read_outline(thread_id)
    if not rows:
        return None

    def look() -> Prospect | None:
        outline = Outline(rows, {name: (checkpoint_ns, checkpoint_id) for name, checkpoint_ns, checkpoint_id in labels})
        visible = {row.place for row in outline.rows.values() if not row.hidden}
        if not visible:
            return None
        newest = max(visible, key=lambda place: place[1])
        gone = {keep: len(visible & superseded(outline, keep)) for keep in keeps}
        return Prospect(newest, len(visible), bool(labels), gone)

    return (yield from offload(len(rows) * BYTES, look))


@operation("read")
def time_of(d: SqlDialect, codec: Values, key: Key) -> Steps[datetime | None]:
    """Return when LangGraph made a checkpoint; None if its document has no time, cannot be read, or was deleted.

    Round trips: 1.
    """
    (rows,) = yield d.select_document(key)
    if not rows:
        return None
    ((type_, data),) = rows
    try:
        decoder = Decoder(codec, key.thread_id, key.checkpoint_ns, key.checkpoint_id or "")
        time = time_from(decoder.outline(type_, data).get("ts"))
    except Exception:  # The document cannot be read, for any reason.
        return None
    return time if time is None or time.tzinfo else time.replace(tzinfo=timezone.utc)
