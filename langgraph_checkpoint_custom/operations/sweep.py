"""What a sweep reads, one thread after the other.

Must not know: SQL, connections, the clock.

`retention.py` decides what a sweep deletes and makes its dry run, with the operations of this file.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from datetime import datetime, timezone
from typing import NamedTuple

from langgraph_checkpoint_custom.encoding.decode import Decoder
from langgraph_checkpoint_custom.encoding.values import Values
from langgraph_checkpoint_custom.engine.operation import Steps, operation
from langgraph_checkpoint_custom.model.keys import Key
from langgraph_checkpoint_custom.model.records import time_from
from langgraph_checkpoint_custom.sql.dialect import SqlDialect


class VisibleCheckpoint(NamedTuple):
    """A checkpoint that is not hidden."""

    checkpoint_ns: str
    checkpoint_id: str
    labelled: bool


@operation("read")
def visible_checkpoints(d: SqlDialect, thread_id: str) -> Steps[list[VisibleCheckpoint]]:
    """Return the checkpoints of a thread that are not hidden.

    Round trips: 1.
    """
    (rows,) = yield d.select_visible_checkpoints(thread_id)
    return [VisibleCheckpoint(ns, checkpoint_id, bool(labelled)) for ns, checkpoint_id, labelled in rows]


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


def to_keep(checkpoints: Sequence[VisibleCheckpoint], keep: int | None) -> list[VisibleCheckpoint]:
    """Return the checkpoints that have a label or are among the `keep` newest of their namespace; all if it is None."""
    counts: Counter[str] = Counter()
    found = []
    for checkpoint in sorted(checkpoints, key=lambda checkpoint: checkpoint.checkpoint_id, reverse=True):
        counts[checkpoint.checkpoint_ns] += 1
        if keep is None or counts[checkpoint.checkpoint_ns] <= keep or checkpoint.labelled:
            found.append(checkpoint)
    return found
