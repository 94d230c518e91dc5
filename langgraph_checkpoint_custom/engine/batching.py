"""Which calls share a trip: while some are on their way, those that come wait, and go together as the next group.

Must not know: databases, event loops, OS threads, the clock.

Whoever finds nobody on the way goes at once and alone. So nothing ever waits for company: a group is what has come
together while others were away.
"""

from __future__ import annotations

import weakref
from collections import defaultdict
from collections.abc import Collection, Hashable, Sequence
from typing import Generic, Protocol, TypeVar

from langgraph_checkpoint_custom.engine.operation import Share

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


class Group(Generic[M]):
    """Calls on the way together; a call that goes by itself is one without members.

    Whoever makes their trip holds it, so that one that was dropped, by an interrupt at an odd moment, is no longer on
    its way.
    """

    def __init__(self, keys: Collection[Hashable], members: Sequence[M] = ()) -> None:
        self.keys = keys
        self.members = members


class _Lane(Generic[M]):
    """The calls of one kind."""

    def __init__(self) -> None:
        self._refs: list[weakref.ref[Group[M]]] = []
        self.waiting: list[M] = []

    @property
    def away(self) -> list[Group[M]]:
        """The groups on the way."""
        return [group for ref in self._refs if (group := ref())]

    def begin(self, group: Group[M]) -> Group[M]:
        self._refs.append(weakref.ref(group))
        return group

    @property
    def is_empty(self) -> bool:
        """Whether nobody is on the way, as of the last `end`, or waits."""
        return not self._refs and not self.waiting

    def end(self, back: Group[M]) -> None:
        self._refs = [ref for ref in self._refs if ref() not in (None, back)]

    def take(self) -> Group[M] | None:
        """The next group: in the order of arrival, but nobody before one with its key is back."""
        members: list[M] = []
        left: list[M] = []
        keys = {key for group in self.away for key in group.keys}
        size = 0
        for member in self.waiting:
            if member.gone:
                continue
            share = member.share
            if len(members) == MEMBERS or share.key in keys or (members and size + share.size > GROUP_BYTES):
                left.append(member)
            else:
                members.append(member)
                size += share.size
            if share.key is not None:
                keys.add(share.key)
        self.waiting = left
        return self.begin(Group({member.share.key for member in members} - {None}, members)) if members else None


class Lanes(Generic[M]):
    """Who is on the way and who waits, by kind."""

    def __init__(self) -> None:
        self._lanes: defaultdict[Hashable, _Lane[M]] = defaultdict(_Lane)

    def enter(self, kind: Hashable, share: Share) -> Group[M] | None:
        """Go at once, until `leave`; None if the call has to wait."""
        lane = self._lanes.get(kind)
        if lane is None:
            lane = self._lanes[kind] = _Lane()
        elif (away := lane.away) and (len(away) == GROUPS or any(share.key in group.keys for group in away)):
            return None
        return lane.begin(Group(() if share.key is None else (share.key,)))

    def wait(self, kind: Hashable, member: M) -> None:
        """Wait for one that is on the way."""
        self._lanes[kind].waiting.append(member)

    def give_up(self, kind: Hashable, member: M) -> bool:
        """No longer wait; false if the member was taken into a group before."""
        if kind not in self._lanes or member not in self._lanes[kind].waiting:
            return False
        self._lanes[kind].waiting.remove(member)
        return True

    def leave(self, kind: Hashable, group: Group[M]) -> Group[M] | None:
        """Come back from a trip; gives the group that is on the way instead, if somebody waits."""
        lane = self._lanes[kind]
        lane.end(group)
        following = lane.take() if lane.waiting else None
        if lane.is_empty:
            del self._lanes[kind]
        return following
