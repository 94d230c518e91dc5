"""Finding values that were changed in place, for `check_unchanged=True`: `put` runs this before it stores anything.

Must not know: SQL, connections.
"""

from __future__ import annotations

from collections.abc import Mapping

from langgraph_checkpoint_custom.encoding.in_place import ValueNow, changed_channels
from langgraph_checkpoint_custom.encoding.values import Values
from langgraph_checkpoint_custom.engine.operation import Steps, offload, operation
from langgraph_checkpoint_custom.errors import ChangedInPlace
from langgraph_checkpoint_custom.model.keys import Key
from langgraph_checkpoint_custom.operations.read import NextVersion, get_tuple
from langgraph_checkpoint_custom.sql.dialect import SqlDialect


@operation("read")
def check_unchanged(
    d: SqlDialect, codec: Values, next_version: NextVersion, parent: Key, now: Mapping[str, ValueNow]
) -> Steps[None]:
    """Raise an error if the parent has another value for a channel that has the same version there.

    Round trips: those of `get_tuple`, or 0 if there is nothing to compare.
    Raises: ChangedInPlace.
    """
    thread_id, checkpoint_ns, parent_id = parent
    if parent_id is None or not now:
        return
    found = yield from get_tuple(d, codec, next_version, None, parent).start()
    if found is None:
        return
    size = sum(len(each.value.value) for each in now.values() if each.value)
    changed = yield from offload(size, changed_channels, codec, found.checkpoint, now)
    if changed:
        raise ChangedInPlace(thread_id, checkpoint_ns, parent_id, changed)
