"""Decides which values are inline, as far as a checkpoint's document has room; the others are blobs.

Must not know: serializers, SQL.
"""

from __future__ import annotations

from langgraph.checkpoint.base import ChannelVersions

from langgraph_checkpoint_custom.encoding.chunks import SPLIT_FROM
from langgraph_checkpoint_custom.encoding.known import KnownValues

# Bytes of the largest encoded value in the document, and of all such values together. Each of them is stored again with
# every superstep. Four values of 1,000 bytes of which one is new, compared with values in blobs: a put takes 0.7 of the
# time on PostgreSQL and 0.8 on SQLite, a get 0.9, and a checkpoint takes 2.6 times the bytes. Larger values would take
# more bytes, and on SQLite not less time.
SMALL_VALUE = 1_024
SMALL_VALUES = 4_096
# A value that changes with every superstep, such as the messages of an agent, would as a blob be stored just as often.
# From its third new version in consecutive checkpoints, it is in the document, up to these bytes of all such values
# together; larger ones are worth chunks. With 30 messages, a superstep takes 0.8 of the time on PostgreSQL and 0.95 on
# SQLite. When the value stops changing, the next checkpoint stores it once more, as a blob. With two versions instead
# of three, that would happen in each run of a graph with one node, which would take a third more bytes and as long.
CHANGES = 3
CHANGING_VALUES = SPLIT_FROM


class Room:
    """The room in a document: for small values, and for those that change with every superstep.

    Attributes:
        changes: In how many checkpoints one after the other, including this one, the channels that were asked about
            have a new version.
    """

    __slots__ = ("_before", "_changing", "_new", "_small", "changes")

    def __init__(self, new_versions: ChannelVersions, before: KnownValues | None) -> None:
        self.changes: dict[str, int] = {}
        self._new = new_versions
        self._before = before.changes if before else {}
        self._changing = CHANGING_VALUES
        self._small = SMALL_VALUES

    def is_too_large(self, channel: str, size: int) -> bool:
        """Whether a value of this size gets no room, however much is left for small values."""
        return size > SMALL_VALUE and not self._is_changing(channel)

    def takes(self, channel: str, size: int) -> bool:
        """Whether there is room for the value of a channel; if so, it is reserved."""
        if self._is_changing(channel):
            if fits := size <= self._changing:
                self._changing -= size
        elif fits := size <= min(SMALL_VALUE, self._small):
            self._small -= size
        return fits

    def _is_changing(self, channel: str) -> bool:
        """Whether the value of a channel changes with every superstep."""
        if channel not in self._new:
            return False
        changes = self.changes[channel] = self._before.get(channel, 0) + 1
        return changes >= CHANGES
