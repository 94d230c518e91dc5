"""The targets of the cases, as ratios of ours to something else: the table of the project's speed goals.

First what nearly every superstep does; then what has been published already, and must not get slower.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal, NamedTuple

from benchmarks.measuring import Result

Against = Literal["official", "itself"]
Limits = tuple[float | None, float | None]

# The client's CPU time of a step, in addition to its time.
CPU = "client CPU ms"


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

ORDINARY = [
    *_each("put small", (0.85, 0.85), (1.0, 1.0)),
    *_each("put_writes 1", (0.95, 0.8), (1.0, 0.75)),
    *_each("put_writes 5", (0.95, 0.8), (1.0, 0.75)),
    *_each("get small", (0.9, 0.9), (1.2, 0.4)),
    *_each("get small, by id", (0.9, 0.9), (1.2, 0.4)),
    *_each("get agent state with writes", (0.7, 0.8), (1.0, 0.3)),
    *_each("1 at a time", (0.9, 0.85), (1.0, 0.75)),
    *_each("1 at a time", (0.9, 0.8), (1.0, 0.86), of=CPU),
    *_each("8 at a time", (0.9, 0.44), (1.0, 0.66), of=CPU),
    *_each("32 at a time", (0.9, 0.39), (1.0, 0.52), of=CPU),
    *_each("64 at a time", (0.9, 0.33), (1.0, 0.5), of=CPU),
    *_each("superstep, durability sync", (0.95, 0.8), (1.0, 0.75)),
    *_each("superstep, durability async", (0.95, 0.8), (1.0, 0.75)),
    *_each("superstep, delta, durability sync", (0.95, 0.8), (1.0, 0.75)),
    *_each("superstep, delta, durability async", (0.95, 0.8), (1.0, 0.75)),
    *_each("resume 10 supersteps", (0.95, 0.8), (1.0, 0.75)),
    *_each("list 1", (0.5, 0.5), (1.0, 1.0)),
    *_each("list all", (0.3, 0.3), (1.0, 1.0)),
    *_each("delete_for_runs", (1.0, 1.0), (1.0, 1.0)),
]

# The previous report plus 5 %.
WON = [
    *_each("put chat to 200 messages", (0.41, 0.42), (0.85, 0.78)),
    *_each("put chat to 1,000 messages", (0.16, 0.18), (0.46, 0.46)),
    *_each("put wide, dicts", (0.82, 0.78), (0.37, 0.38)),
    *_each("put wide, text", (0.049, 0.061), (0.37, 0.38)),
    *_each("put files", (0.066, 0.076), (0.41, 0.43)),
    *_each("history, 100 steps", (0.66, 0.65), (0.71, 0.39)),
    *_each("history, 1,000 steps", (0.43, 0.44), (0.55, 0.39)),
    *_each("history, 5,000 steps", (0.36, 0.37), (0.53, 0.41)),
    *_each("history, snapshot 100 back", (0.37, 0.39), (0.77, 0.44)),
    *_each("history, snapshot 1,000 back", (0.47, 0.55), (0.59, 0.41)),
    *_each("history, 50 branches", (0.41, 0.45), (0.52, 0.45)),
    *_each("copy_thread", (0.026, 0.023), (0.043, 0.015)),
    *_each("prune", (0.23, 0.24), (0.47, 0.54)),
    *_each("64 at a time", (0.51, 0.18), (0.88, 0.19)),
    *_each("64 at a time, 2 ms away", (0.1, 0.066), (None, None)),
    *_each("200 chat steps, on disk", (0.074, None), (0.051, None)),
    *_each("1,000 chat steps, on disk", (0.015, None), (0.0094, None)),
    *_each("200 wide steps, on disk", (0.73, None), (0.063, None)),
    *_each("get latest, growth", _GROWTH, _GROWTH, against="itself"),
]

TARGETS = [*ORDINARY, *WON]


class Verdict(NamedTuple):
    """Whether a target is met; `reached` is None if a contestant failed."""

    target: Target
    reached: float | None

    @property
    def met(self) -> bool:
        """Whether the ratio is at or below the limit."""
        return self.reached is not None and self.reached <= self.target.limit


def verdicts(result: Result) -> list[Verdict]:
    """The targets of a result."""
    found = []
    for target in TARGETS:
        if target[:3] == (result.case, result.database, result.api):
            ours = result.best("ours")
            own = ours.median if ours else None
            reached = own if target.against == "itself" else result.ratio(target.against, target.of)
            found.append(Verdict(target, reached))
    return found
