"""The targets by the medians of several full runs: `python -m benchmarks.medians FOLDER FOLDER FOLDER`.

Each folder has the `results.json` of a run. A target that the simplest program misses as well is changed by the median
of its ratios.
"""

from __future__ import annotations

import json
import sys
from collections import defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.targets import Target, Verdict, count


def medians(runs: Sequence[Iterable[dict[str, Any]]]) -> dict[Verdict, Sequence[float]]:
    """The verdict on each target by the medians, with the ratios of all runs."""
    reached: defaultdict[Target, list[float]] = defaultdict(list)
    straight: defaultdict[Target, list[float]] = defaultdict(list)
    for found in (each for run in runs for result in run for each in result["targets"]):
        target = Target(*(found[field] for field in Target._fields))
        for ratios, ratio in ((reached, found["reached"]), (straight, found["straight"])):
            ratios[target] += [] if ratio is None else [ratio]  # None: a contestant has failed, which its report says.
    return {
        Verdict(
            target, median(ratios) if ratios else None, median(straight[target]) if straight[target] else None
        ): ratios
        for target, ratios in reached.items()
    }


def main(folders: Sequence[str]) -> None:
    """Print the targets that are missed, and how many are met."""
    found = medians([json.loads((Path(each) / "results.json").read_text())["results"] for each in folders])
    print("| target | database | API | limit | median | simplest program | runs |")
    print("|---|---|---|--:|--:|--:|---|")
    for verdict, ratios in found.items():
        if not verdict.met:
            (case, database, api, _, against, of), straight = verdict.target, verdict.straight
            name = ", ".join(filter(None, (case, of, "" if against == "official" else f"to {against}")))
            figures = (f"{each:.3g}" if each else "–" for each in (verdict.limit, verdict.reached, straight))
            runs = ", ".join(f"{ratio:.3g}" for ratio in ratios)
            print(f"| {name} | {database} | {api} | {' | '.join(figures)} | {runs} |")
    print(f"\n{count(list(found))}.")


if __name__ == "__main__":
    main(sys.argv[1:])
