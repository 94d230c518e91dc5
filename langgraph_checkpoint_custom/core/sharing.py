"""Which calls share a trip: while some are on their way, those that come wait, and go together as the next group.

Must not know: databases, event loops, OS threads, the clock.

Whoever finds nobody on the way goes at once and alone. So nothing ever waits for company: a group is what has come
together while others were away.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterable
from dataclasses import dataclass, field
from typing import Generic, Protocol, TypeVar

from langgraph_checkpoint_custom.core.operation import Share

# Groups of one kind on the way at once. With four, 64 OS threads made twice the trips of two, for a tenth more time and
# half as much again of the server's CPU; with one they were no faster, and one that is slow would stop everybody.
GROUPS = 2
# Calls in a group at most.
MEMBERS = 64
# Bytes that a group sends at most; a call that sends more goes by itself.
GROUP_BYTES = 262_144


class Member(Protocol):
    """A call that waits."""

    @property
    def share(self) -> Share: ...
    @property
    def gone(self) -> bool: ...


M = TypeVar("M", bound=Member)


@dataclass
class _Lane(Generic[M]):
    """The calls of one kind."""

    going: int = 0
    away: set[Hashable] = field(default_factory=set)  # The keys of those on the way.
    waiting: list[M] = field(default_factory=list)

    def take(self) -> list[M]:
        """The next group: in the order of arrival, but nobody before one with its key is back."""
        group: list[M] = []
        left: list[M] = []
        keys = set(self.away)
        size = 0
        for member in self.waiting:
            if member.gone:
                continue
            share = member.share
            if len(group) == MEMBERS or share.key in keys or (group and size + share.size > GROUP_BYTES):
                left.append(member)
            else:
                group.append(member)
                size += share.size
            if share.key is not None:
                keys.add(share.key)
        self.waiting = left
        self.away.update(member.share.key for member in group if member.share.key is not None)
        return group


class Lanes(Generic[M]):
    """Who is on the way and who waits, by kind."""

    def __init__(self) -> None:
        self._lanes: defaultdict[Hashable, _Lane[M]] = defaultdict(_Lane)

    def enter(self, kind: Hashable, share: Share) -> bool:
        """Whether a call may go at once; it is on the way then, until `leave`."""
        lane = self._lanes[kind]
        if lane.going == GROUPS or share.key in lane.away:
            return False
        lane.going += 1
        if share.key is not None:
            lane.away.add(share.key)
        return True

    def wait(self, kind: Hashable, member: M) -> None:
        """Wait for one that is on the way."""
        self._lanes[kind].waiting.append(member)

    def give_up(self, kind: Hashable, member: M) -> bool:
        """No longer wait; false if the member was taken into a group before."""
        if kind not in self._lanes or member not in self._lanes[kind].waiting:
            return False
        self._lanes[kind].waiting.remove(member)
        return True

    def leave(self, kind: Hashable, shares: Iterable[Share]) -> list[M]:
        """Come back from a trip; gives the group that is on the way instead, which may be nobody."""
        lane = self._lanes[kind]
        lane.away.difference_update([share.key for share in shares])
        group = lane.take() if lane.waiting else []
        if not group:
            lane.going -= 1
            if not lane.going:
                del self._lanes[kind]
        return group
