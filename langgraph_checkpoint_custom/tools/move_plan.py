"""What is left to do of a thread that is moved: decided from the keys at both sides, and from what was moved earlier.

Must not know: databases, values.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from hashlib import blake2b

from langgraph_checkpoint_custom.tools.foreign import ForeignCheckpoint, Locations, Place

# Bytes of a digest. In a thread of a million checkpoints, two are the same with a chance of one in 10 million.
DIGEST = 8
# What stands among the digests of a thread from the first part of its move to the last. If the thread is deleted
# meanwhile, it does not return. If the move is killed, the next one completes it: of a thread that was moved again
# because it was named, also what was moved before, and was deleted since.
BEGUN, AGAIN = bytes(DIGEST), b"\xff" * DIGEST


class Moved:
    """What was moved of a thread, as digests: each checkpoint, and each with the number of writes that it had then."""

    def __init__(self, stored: bytes = b"") -> None:
        self._digests = {stored[start : start + DIGEST] for start in range(0, len(stored), DIGEST)}

    def __bool__(self) -> bool:
        return bool(self._digests)

    def has(self, place: Place, writes: int | None = None) -> bool:
        """Return whether a checkpoint was moved, or whether it was moved with that many writes."""
        return _digest(place, writes) in self._digests

    @property
    def is_moved_again(self) -> bool:
        """Whether a move of the thread, as a named one, has begun and was not completed."""
        return AGAIN in self._digests

    def mark(self, *, again: bool) -> bytes:
        """Return what is stored with the first part of a move; `again` for a named thread of which a part is there."""
        return b"".join(sorted(self._digests | {AGAIN})) if again else b"" if self else BEGUN

    def stored_with(self, locations: Locations, *, completes: bool) -> bytes:
        """Return what is stored if these were moved, too; and whether that completes what `mark` has begun."""
        added = {_digest(each, number) for each, (writes, _) in locations.items() for number in (None, writes)}
        return b"".join(sorted((self._digests | added) - ({AGAIN} if completes else set())))


def _digest(place: Place, writes: int | None) -> bytes:
    return blake2b("\0".join([*place, str(writes)]).encode(), digest_size=DIGEST).digest()


@dataclass
class ThreadMove:
    """What the two sides have of a thread, and what was moved of it earlier, from either side to the other.

    Attributes:
        theirs: What the source has.
        ours: What the target has.
        moved: What was moved earlier.
        is_named: Whether all of it is to be moved, also what was deleted in the target since.
        resumes: Whether that was begun by a move that was killed.
    """

    theirs: Locations
    ours: Locations
    moved: Moved
    is_named: bool
    resumes: bool = False

    @property
    def is_deleted(self) -> bool:
        """Whether the thread was deleted in the target after it had been moved."""
        return bool(self.moved) and not self.ours and not self.is_named

    @property
    def is_new(self) -> bool:
        """Whether the source has checkpoints that were never moved."""
        return not all(map(self.moved.has, self.theirs))

    @property
    def is_remembered(self) -> bool:
        """Whether it is remembered that all of the source was moved."""
        return not (self.resumes or self.is_new) and all(
            self.moved.has(each, writes) for each, (writes, _) in self.theirs.items()
        )

    @cached_property
    def goes_on(self) -> bool:
        """Whether the thread goes on in the target."""
        return _goes_on(self.ours, self.theirs, self.moved)

    @cached_property
    def unproved(self) -> set[Place]:
        """Checkpoints of an earlier move that was killed, or has found a difference; of a named thread, all."""
        if not self.moved:
            return set()
        return {each for each, (writes, _) in self.theirs.items() if self.is_named or not self.moved.has(each, writes)}

    @cached_property
    def moves_again(self) -> bool:
        """Whether something is moved again of which the target still has a part."""
        return self.is_named and bool(self.moved) and any(self.to_do.values())

    @cached_property
    def to_do(self) -> dict[Place, bool]:
        """The checkpoints that may differ in the target, older ones first, and whether each certainly differs.

        A checkpoint differs for certain if the target does not have it or has another number of its writes. With the
        same number, only an unproved one or the newest checkpoint of a namespace may differ: there an interrupt, a
        resume or an error may have replaced an earlier one. If the thread goes on in the target, the target has more
        writes of checkpoints that both sides have. A checkpoint that was moved and is not there any more was deleted;
        so were writes.
        """
        ours, moved = self.ours, Moved() if self.is_named else self.moved
        heads = dict(self.theirs.keys())
        found = {}
        for place, (writes, replaceable) in self.theirs.items():
            is_head = heads[place[0]] == place[1]
            if place not in ours:
                if not moved.has(place):
                    found[place] = True
            elif self.goes_on:
                if is_head and ours[place].writes < writes and not moved.has(place, writes):
                    found[place] = True
                elif place in self.unproved and ours[place].writes == writes and not replaceable:
                    found[place] = False
            elif ours[place].writes != writes:
                if not moved.has(place, writes):
                    found[place] = True
            elif (replaceable and is_head) or place in self.unproved:
                found[place] = False
        return found

    @property
    def diverges(self) -> bool:
        """Whether the thread went on at both sides."""
        answered = any(differs and place in self.ours for place, differs in self.to_do.items())
        return self.goes_on and (answered or _goes_on(self.theirs, self.ours, self.moved))

    def comparable(
        self, one: ForeignCheckpoint, found: ForeignCheckpoint
    ) -> tuple[ForeignCheckpoint, ForeignCheckpoint]:
        """Return a checkpoint of the source, and the target's, without a parent that was deleted after the move."""
        if not self.is_named and self._has_lost_parent(one, self.ours):
            one = one._replace(parent_id=None)
        if one.parent_id is None and self._has_lost_parent(found, self.theirs):  # By a prune.
            found = found._replace(parent_id=None)
        return one, found

    def _has_lost_parent(self, one: ForeignCheckpoint, other: Locations) -> bool:
        """Return whether the parent was moved, and the other side does not have it any more."""
        parent = (one.checkpoint_ns, one.parent_id or "")
        return parent not in other and self.moved.has(parent)


def _goes_on(one: Locations, other: Locations, moved: Moved) -> bool:
    """Return whether a thread has checkpoints at one side that are newer than all that both sides have, or had."""
    apart = one.keys() ^ other.keys()
    moved_once = set(filter(moved.has, apart))
    last = max((checkpoint_id for _, checkpoint_id in (one.keys() & other.keys()) | moved_once), default="")
    return any(place[1] > last for place in (apart - moved_once) & one.keys())
