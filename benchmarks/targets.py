"""The targets of the cases, as ratios of ours to something else: the table of the project's speed goals.

First what nearly every superstep does; then what has been published already, and must not get slower.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Literal, NamedTuple

from benchmarks.measuring import CPU, Result

Against = Literal["official", "straight", "itself"]
Limits = tuple[float | None, float | None]


class Target(NamedTuple):
    """A limit for a ratio; `of` is one of the further figures instead of the time."""

    case: str
    database: str
    api: str
    limit: float
    against: Against = "official"
    of: str | None = None


def _each(
    case: str, postgres: Limits, sqlite: Limits, against: Against = "official", of: str | None = None
) -> Iterator[Target]:
    """The targets of a case: sync and async, on each database."""
    for database, limits in (("postgres", postgres), ("sqlite", sqlite)):
        for api, limit in zip(("sync", "async"), limits, strict=True):
            if limit is not None:
                yield Target(case, database, api, limit, against, of)


# No growth; a quarter is left for noise.
_GROWTH = 1.25, 1.25
_CALLS = "put small", "put_writes 1", "put_writes 5", "get small", "get small, by id"

# What nearly every superstep does.
ORDINARY = [
    *(target for case in _CALLS for target in _each(case, (0.8, 0.65), (1.25, None), of=CPU)),
    *(target for case in _CALLS for target in _each(case, (1.25, 1.25), (1.25, None), against="straight", of=CPU)),
    *_each("put small", (0.9, 0.75), (1.05, 0.9)),
    *_each("put_writes 1", (1.0, 0.8), (1.05, 0.7)),
    *_each("put_writes 5", (1.0, 0.8), (1.05, 0.7)),
    *_each("get small", (0.85, 0.6), (0.95, 0.35)),
    *_each("get small, by id", (0.85, 0.6), (0.95, 0.35)),
    *_each("get small, right after a put", (0.85, 0.6), (0.95, 0.35)),
    *_each("get agent state with writes", (0.7, 0.65), (0.85, 0.35)),
    *(
        target
        for durability in ("sync", "async")
        for target in (
            *_each(f"superstep, durability {durability}", (0.85, 0.75), (1.05, 0.65)),
            *_each(f"superstep, delta, durability {durability}", (0.95, 0.85), (1.1, 0.75)),
        )
    ),
    *_each("list 1", (0.5, 0.5), (1.1, 1.1)),
    *_each("list all", (0.3, 0.3), (1.0, 1.0)),
    *_each("8 at a time", (0.7, 0.25), (1.0, 0.5)),
    *_each("32 at a time", (0.7, 0.2), (1.0, 0.5)),
    *_each("64 at a time", (0.7, 0.2), (1.0, 0.5)),
]

# What was reached before the straight line, plus a tenth.
WON = [
    *_each("put chat to 200 messages", (0.45, 0.46), (0.94, 0.86)),
    *_each("put chat to 1,000 messages", (0.18, 0.2), (0.51, 0.51)),
    *_each("put wide, dicts", (0.9, 0.86), (0.41, 0.42)),
    *_each("put wide, text", (0.054, 0.067), (0.41, 0.42)),
    *_each("put files", (0.073, 0.084), (0.45, 0.47)),
    *_each("history, 100 steps", (0.73, 0.72), (0.78, 0.43)),
    *_each("history, 1,000 steps", (0.47, 0.48), (0.61, 0.43)),
    *_each("history, 5,000 steps", (0.4, 0.41), (0.58, 0.45)),
    *_each("history, snapshot 100 back", (0.41, 0.43), (0.85, 0.48)),
    *_each("history, snapshot 1,000 back", (0.52, 0.61), (0.65, 0.45)),
    *_each("history, 50 branches", (0.45, 0.5), (0.57, 0.5)),
    *_each("copy_thread", (0.029, 0.025), (0.047, 0.017)),
    *_each("64 at a time, 2 ms away", (0.11, 0.073), (None, None)),
    *_each("200 chat steps, on disk", (0.081, None), (0.056, None)),
    *_each("1,000 chat steps, on disk", (0.017, None), (0.01, None)),
    *_each("200 wide steps, on disk", (0.8, None), (0.069, None)),
    *_each("get latest, growth", _GROWTH, _GROWTH, against="itself"),
]

TARGETS = [*ORDINARY, *WON]


# A target that the simplest program misses as well, which keeps the promises of `promises.py` or else is of the role
# `straight`, is changed to its ratio and a tenth.
CHANGED = 1.1


class Verdict(NamedTuple):
    """Whether a target is met.

    Attributes:
        target: The target.
        reached: The ratio of ours; None if a contestant failed.
        straight: The ratio of the simplest program to the official savers, if one took part in a race against them.
    """

    target: Target
    reached: float | None
    straight: float | None

    @property
    def is_changed(self) -> bool:
        """Whether both ours and the simplest program miss the target."""
        ratios = self.reached, self.straight
        return all(ratio is not None and ratio > self.target.limit for ratio in ratios)

    @property
    def limit(self) -> float:
        """The limit: that of the target, or what it was changed to."""
        if self.straight is None or not self.is_changed:
            return self.target.limit
        return self.straight * CHANGED

    @property
    def met(self) -> bool:
        """Whether the ratio is at or below the limit."""
        return self.reached is not None and self.reached <= self.limit


def verdicts(result: Result) -> list[Verdict]:
    """The targets of a result."""
    found = []
    for target in TARGETS:
        if target[:3] == (result.case, result.database, result.api):
            ours = result.best("ours")
            own = ours.median if ours else None
            reached = own if target.against == "itself" else result.ratio(target.against, target.of)
            simplest = result.simplest if target.against == "official" else None
            straight = result.ratio("official", target.of, whose=simplest.role) if simplest else None
            found.append(Verdict(target, reached, straight))
    return found


def count(found: Sequence[Verdict]) -> str:
    """How many targets are met."""
    met = [verdict for verdict in found if verdict.met]
    changed = [verdict for verdict in met if verdict.is_changed]
    slower = sum((verdict.reached or 0) > (verdict.straight or 0) for verdict in changed)
    return (
        f"{len(met)} of {len(found)} targets met, {len(changed)} of them changed by the simplest program, which is "
        f"faster than ours in {slower} of these"
    )
