"""What each case has to reach, as a ratio of ours to something else: the table of the project's speed goals.

A throughput of four times the official saver's is a quarter of the time for each step.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

from benchmarks.measuring import Result

Against = Literal["official", "floor", "itself"]


class Target(NamedTuple):
    """A limit for a ratio; `colour` None is both."""

    case: str
    database: str
    limit: float
    colour: str | None = None
    against: Against = "official"


def _both(case: str, postgres: float, sqlite: float, colour: str | None = None) -> list[Target]:
    return [Target(case, "postgres", postgres, colour), Target(case, "sqlite", sqlite, colour)]


TARGETS = [
    *_both("put small", 0.75, 1.0),
    Target("put small", "postgres", 1.25, against="floor"),
    *_both("put chat to 200 messages", 0.35, 0.7),
    *_both("put chat to 1,000 messages", 0.2, 0.4),
    *_both("put wide, dicts", 0.45, 0.2),
    *_both("put wide, text", 0.05, 0.2),
    *_both("put files", 0.3, 0.3),
    *_both("put_writes 1", 0.8, 1.0),
    *_both("put_writes 50", 0.4, 0.75),
    *_both("get small", 0.55, 1.0, "sync"),
    *_both("get chat of 200 messages", 0.85, 1.0, "sync"),
    *_both("get chat of 1,000 messages", 0.85, 1.0, "sync"),
    *_both("get wide, dicts", 0.5, 1.0, "sync"),
    *_both("get small", 0.5, 0.35, "async"),
    *_both("get chat of 200 messages", 0.8, 0.9, "async"),
    *_both("get chat of 1,000 messages", 0.8, 0.9, "async"),
    *_both("get wide, dicts", 0.5, 0.9, "async"),
    # No growth: what is left for noise is a quarter.
    Target("get latest, growth", "postgres", 1.25, against="itself"),
    Target("get latest, growth", "sqlite", 1.25, against="itself"),
    *_both("list 10", 0.3, 1.0),
    *_both("list all", 0.3, 0.9),
    *_both("history, 1,000 steps", 0.25, 0.25),
    *_both("history, 5,000 steps", 0.25, 0.25),
    *_both("history, snapshot 100 back", 0.12, 0.3),
    *_both("64 at a time", 1 / 4, 1 / 3.5, "async"),
    *_both("64 at a time", 1 / 3, 1 / 1.2, "sync"),
    Target("64 at a time, 2 ms away", "postgres", 1 / 12),
    *_both("superstep, durability sync", 0.5, 0.7),
    *_both("superstep, durability async", 0.5, 0.7),
    *_both("copy_thread", 0.03, 0.08),
    *_both("prune", 0.3, 0.5),
    *_both("delete_for_runs", 0.3, 0.3),
    *_both("200 chat steps, on disk", 1 / 10, 1 / 30),
    *_both("1,000 chat steps, on disk", 1 / 25, 1 / 100),
    *_both("200 wide steps, on disk", 1.0, 1 / 12),
]


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
        if (target.case, target.database) == (result.case, result.database) and target.colour in (None, result.colour):
            if target.against == "itself":
                ours = result.best("ours")
                found.append(Verdict(target, ours.median if ours else None))
            else:
                found.append(Verdict(target, result.ratio(target.against)))
    return found
