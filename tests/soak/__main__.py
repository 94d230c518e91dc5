"""Soak both databases and write a report: `python -m tests.soak --minutes 15 --report soak.md`."""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path

from tests.conftest import made_database, running_postgres
from tests.soak.chaos import Outcome, soak
from tests.stores import Store


def report(outcomes: list[Outcome], seed: int) -> str:
    """The results, in Markdown."""
    lines = ["# Soak", "", f"Seed {seed}.", ""]
    for each in outcomes:
        lines += [f"## {each.database}", ""]
        lines += [f"{each.graphs} graphs for {each.seconds / 60:.1f} minutes did {each.rounds:,} rounds.", ""]
        lines += [f"- {what}: {number:,}" for what, number in sorted(each.done.items())]
        lines += [f"- {what} raised to a caller that retried: {number:,}" for what, number in each.errors.items()]
        lines += [f"- server sessions before and after: {each.sessions[0]} and {each.sessions[1]}", ""]
        lines += ["| | MB | threads | files |", "|---|--:|--:|--:|"]
        lines += [
            f"| {what} | {a.megabytes:.0f} → {b.megabytes:.0f} | {a.threads} → {b.threads} | {a.files} → {b.files} |"
            for what, (a, b) in each.held.items()
        ]
        lines += ["", *(f"- **{problem}**" for problem in each.problems or ["nothing was wrong"]), ""]
    return "\n".join(lines)


def main() -> int:
    """Soak; returns how many databases had a problem."""
    parser = argparse.ArgumentParser("python -m tests.soak", description=__doc__)
    parser.add_argument("--minutes", type=float, default=15, help="for both databases together")
    parser.add_argument("--graphs", type=int, default=64, help="at a time, on each database")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(10**9))
    parser.add_argument("--report", type=Path, help="the file to write to")
    options = parser.parse_args()
    outcomes = []
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        dsn = stack.enter_context(running_postgres())
        _, url = stack.enter_context(made_database(dsn))
        for store in (Store("sqlite", f"sqlite:///{folder / 'checkpoints.db'}"), Store("postgres", url)):
            seconds = options.minutes * 60 / 2
            outcomes.append(soak(store, seconds=seconds, graphs=options.graphs, seed=options.seed))
    text = report(outcomes, options.seed)
    print(text)
    if options.report:
        options.report.write_text(text)
    return sum(bool(each.problems) for each in outcomes)


if __name__ == "__main__":
    sys.exit(main())
