"""Finding values that were changed in place, for `check_unchanged=True`: `put` runs this before it stores anything.

Must not know: SQL, connections.

The values of channels that have no new version are compared with those of the parent. Two values are the same if the
serializer makes the same bytes of them, or if they are equal after both were read, such as sets in another order. It
does not matter whether a value is in a delta snapshot, because the type of a channel may have changed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

from langgraph.checkpoint.base import ChannelVersions, Checkpoint

from langgraph_checkpoint_custom.encoding.langgraph_private import DeltaSnapshot
from langgraph_checkpoint_custom.encoding.values import Stored, Values
from langgraph_checkpoint_custom.engine.operation import Steps, offload, operation
from langgraph_checkpoint_custom.errors import ChangedInPlace
from langgraph_checkpoint_custom.model.keys import Key
from langgraph_checkpoint_custom.operations.read import NextVersion, get_tuple
from langgraph_checkpoint_custom.sql.dialect import SqlDialect

# The channels of joins, `add_edge(["a", "b"], "c")`. LangGraph itself changes their sets in place, and with durability
# "async", `put` may begin after that.
_JOIN = "join:"


class ValueNow(NamedTuple):
    """A channel when `put` was called: its version, and its value; None if that cannot be encoded."""

    version: object
    value: Stored | None


def encode_unchanged(codec: Values, checkpoint: Checkpoint, new_versions: ChannelVersions) -> Mapping[str, ValueNow]:
    """Encode the values of the channels that have no new version, as they are now."""
    versions = checkpoint.get("channel_versions") or {}
    return {
        channel: ValueNow(versions[channel], _encoded(codec, value))
        for channel, value in (checkpoint.get("channel_values") or {}).items()
        if channel in versions and channel not in new_versions and not channel.startswith(_JOIN)
    }


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
    changed = yield from offload(size, _changed_channels, codec, found.checkpoint, now)
    if changed:
        raise ChangedInPlace(thread_id, checkpoint_ns, parent_id, changed)


def _changed_channels(codec: Values, parent: Checkpoint, now: Mapping[str, ValueNow]) -> Sequence[str]:
    """Return the channels that have the parent's version and another value."""
    values, versions = parent["channel_values"], parent["channel_versions"]
    return [
        channel
        for channel, (version, value) in now.items()
        if channel in values and versions.get(channel) == version and not _is_same(codec, values[channel], value)
    ]


def _encoded(codec: Values, value: Any) -> Stored | None:
    with suppress(Exception):  # A serializer may raise anything.
        return codec.dumps_unsealed(value.value if isinstance(value, DeltaSnapshot) else value)
    return None


def _is_same(codec: Values, stored: Any, now: Stored | None) -> bool:
    before = _encoded(codec, stored)
    if now is None or before is None:  # What cannot be encoded was not stored.
        return False
    with suppress(Exception):  # A serializer may raise anything, and so may a comparison.
        return now == before or bool(codec.loads_unsealed(*now) == stored)
    return False
