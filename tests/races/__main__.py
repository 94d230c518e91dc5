"""Make many concurrent calls, and check that the results are consistent: `python -m tests.races --minutes 30 --seed 7`.

A round is a few calls by a few callers on a few shared threads. Then a search looks for an order of these calls that
explains all results and the final state. The seed determines which calls are made, and after how long, but not
what happens then: a round that has failed is repeated with `--again` (and `--first`, its number) until it fails again.

`--only` limits the operations, and finds in seconds what these do to one another. It found these bugs:

- `prune,rollback`, `prune,delete_for_runs` and `prune,delete_checkpoint`: each deleted what the other one left
- `prune,label` and `sweep,label`: a checkpoint was deleted whose label had been acknowledged
- `fork_thread`, `copy_thread` and both: two threads were mixed into one
- `copy_thread,prune` and `copy_thread,delete_checkpoint`: a repeated copy relied on values that were being deleted
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path

from tests.conftest import made_database, running_postgres
from tests.races.plans import EVERYTHING, Mix
from tests.races.rounds import Outcome, races
from tests.stores import Store


def report(database: str, outcome: Outcome) -> str:
    """A summary of the rounds."""
    lines = [f"{database}: {outcome.rounds:,} rounds in {outcome.seconds:.1f} s"]
    lines += [f"  {number:6,} {verdict.value}" for verdict, number in sorted(outcome.verdicts.items(), key=str)]
    lines.append("  " + ", ".join(f"{name} {number:,}" for name, number in sorted(outcome.calls.items())))
    if outcome.rolled_back:
        lines.append(f"  rolled back by the database: {dict(outcome.rolled_back)}")
    if not outcome.is_meaningful:
        lines.append("  too many rounds are undecided, or too many calls were rolled back")
    return "\n".join([*lines, *outcome.problems])


def main() -> int:
    """Play rounds; returns how many databases had a problem, or rounds that say too little."""
    parser = argparse.ArgumentParser("python -m tests.races", description=__doc__)
    parser.add_argument("--minutes", type=float, default=30, help="for all databases together")
    parser.add_argument("--rounds", type=int, help="at most, for each database")
    parser.add_argument("--first", type=int, default=0, help="the number of the first round")
    parser.add_argument("--again", action="store_true", help="make the first round again and again")
    parser.add_argument("--seed", default=str(random.SystemRandom().randrange(10**9)))
    parser.add_argument("--database", choices=["sqlite", "postgres"], action="append")
    parser.add_argument("--only", help="operations that are called, with commas: prune,rollback")
    parser.add_argument("--problems", type=int, default=1, help="how many to find before it ends")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--callers", type=int, default=5, help="at most")
    parser.add_argument("--calls", type=int, default=2, help="of each caller, at most")
    parser.add_argument("--hold", type=float, default=0.3, help="how many transactions are held open, from 0 to 1")
    options = parser.parse_args()
    weights = EVERYTHING
    if options.only:
        weights = {name: EVERYTHING[name] for name in options.only.split(",")}
    mix = Mix(weights, options.processes, options.callers, options.calls, options.hold)
    databases = options.database or ["sqlite", "postgres"]
    seconds = options.minutes * 60 / len(databases)
    print(f"seed {options.seed}", flush=True)
    failed = 0
    with ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        for database in databases:
            url = f"sqlite:///{Path(folder) / 'checkpoints.db'}"
            if database == "postgres":
                _, url = stack.enter_context(made_database(stack.enter_context(running_postgres())))
            with races(Store(database, url), mix.processes) as running:
                outcome = running.run(
                    options.seed,
                    mix,
                    rounds=options.rounds,
                    seconds=seconds,
                    problems=options.problems,
                    first=options.first,
                    again=options.again,
                )
            print(report(database, outcome), flush=True)
            failed += bool(outcome.problems) or not outcome.is_meaningful
    return failed


if __name__ == "__main__":
    sys.exit(main())
