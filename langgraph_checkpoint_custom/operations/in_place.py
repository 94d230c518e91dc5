"""Finding values that were changed in place, for `check_unchanged=True`: `put` runs this before it stores anything.

Must not know: SQL, connections.

The values of channels that have no new version are compared with those of the parent, by the bytes of the serializer.
Two values are the same if they have the same bytes, or would have after both were read. The order of a set does not
matter, since reading a set may change it. Nor does it matter whether a value is in a delta snapshot, because the type
of a channel may have changed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

from langgraph.checkpoint.base import ChannelVersions, Checkpoint

from langgraph_checkpoint_custom.encoding.extensions import SINGLE, Extension, unpack_plain
from langgraph_checkpoint_custom.encoding.langgraph_private import DeltaSnapshot
from langgraph_checkpoint_custom.encoding.objects import pack
from langgraph_checkpoint_custom.encoding.serde import MSGPACK
from langgraph_checkpoint_custom.encoding.values import PROBE, Stored, Values
from langgraph_checkpoint_custom.engine.operation import Steps, offload, operation
from langgraph_checkpoint_custom.errors import ChangedInPlace, ConfigError
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
    """Return the channels that have the parent's version and another value.

    Raises:
        ConfigError: The bytes do not tell, because the serializer encrypts, for example.
    """
    values, versions = parent["channel_values"], parent["channel_versions"]
    changed = [
        channel
        for channel, (version, value) in now.items()
        if channel in values and versions.get(channel) == version and not _is_same(codec, values[channel], value)
    ]
    if changed and codec.dumps_unsealed(PROBE) != codec.dumps_unsealed(PROBE):
        raise ConfigError("check_unchanged compares bytes, but this serde has other bytes for the same value each time")
    return changed


def _encoded(codec: Values, value: Any) -> Stored | None:
    with suppress(Exception):  # A serializer may raise anything.
        return codec.dumps_unsealed(value.value if isinstance(value, DeltaSnapshot) else value)
    return None


def _is_same(codec: Values, stored: Any, now: Stored | None) -> bool:
    before = _encoded(codec, stored)
    if now is None or before is None:  # What cannot be encoded was not stored.
        return False
    with suppress(Exception):  # A serializer may raise anything.
        return now == before or _in_order(codec.dumps_unsealed(codec.loads_unsealed(*now))) == _in_order(before)
    return False


def _in_order(stored: Stored) -> Stored:
    """Return the same bytes with the elements of each set in one order."""
    return Stored(MSGPACK, pack(_sorted(unpack_plain(stored.value)))) if stored.type == MSGPACK else stored


def _sorted(value: Any) -> Any:
    if type(value) is list:
        return list(map(_sorted, value))
    if type(value) is dict:
        return {key: _sorted(each) for key, each in value.items()}
    if type(value) is Extension:
        content = _sorted(unpack_plain(value.data))
        if value.code == SINGLE and content[:2] in (["builtins", "set"], ["builtins", "frozenset"]):
            content[2].sort(key=pack)
        return Extension(value.code, pack(content))
    return value
