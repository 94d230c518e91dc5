"""The results of a run as JSON, as a Markdown report and as SVG plots."""

from __future__ import annotations

import json
from collections.abc import Sequence
from html import escape
from math import log10
from pathlib import Path
from typing import Any

from benchmarks.measuring import Figures, Result
from benchmarks.targets import Verdict, count, verdicts


def write(folder: Path, about: dict[str, Any], results: Sequence[Result]) -> None:
    """Write all reports."""
    folder.mkdir(parents=True, exist_ok=True)
    data = {"about": about, "results": [as_json(result) for result in results]}
    (folder / "results.json").write_text(json.dumps(data, indent=1) + "\n")
    (folder / "report.md").write_text(report(about, results))
    for database in dict.fromkeys(result.database for result in results):
        for api in dict.fromkeys(result.api for result in results if result.database == database):
            chosen = [each for each in results if (each.database, each.api) == (database, api)]
            (folder / f"{database}-{api}.svg").write_text(plot(f"{database}, {api}", chosen))


def as_json(result: Result) -> dict[str, Any]:
    """A result with everything that is known."""
    return {
        "case": result.case,
        "database": result.database,
        "api": result.api,
        "unit": result.unit,
        "note": result.note,
        "ratio to official": result.ratio("official"),
        "ratio to floor": result.ratio("floor"),
        "targets": [
            {**v.target._asdict(), "reached": v.reached, "straight": v.straight, "changed": v.is_changed, "met": v.met}
            for v in verdicts(result)
        ],
        "contestants": [
            {
                "name": each.name,
                "role": each.role,
                "median": each.median,
                "p99": each.p99,
                "samples": len(each.samples),
                **({"extras": each.extras} if each.extras else {}),
                **({"error": each.error} if each.error else {}),
            }
            for each in result.figures
        ],
    }


def report(about: dict[str, Any], results: Sequence[Result]) -> str:
    """The tables: a summary with the targets, then every contestant."""
    judged = [verdict for result in results for verdict in verdicts(result)]
    lines = ["# Benchmarks", "", *(f"- {name}: {_said(value)}" for name, value in about.items()), ""]
    lines += [
        f"{count(judged)}. Ratios are of ours to the best official form and to the floor, each the median of the",
        "ratios of all rounds; less is better.",
        "",
    ]
    lines += _ordinary(results)
    lines += _changed(results)
    for database in dict.fromkeys(result.database for result in results):
        chosen = [result for result in results if result.database == database]
        lines += [
            f"## {database}",
            "",
            "| case | API | ours | best official | floor | to official | to floor | target | |",
            "|---|---|--:|--:|--:|--:|--:|--:|---|",
            *map(_summary, chosen),
            "",
        ]
    lines += ["## Every contestant", ""]
    lines += [
        "| case | database | API | contestant | median | p99 | samples | more |",
        "|---|---|---|---|--:|--:|--:|---|",
    ]
    lines += [_detail(result, each) for result in results for each in result.figures]
    lines += [""]
    return "\n".join(lines)


# The cases of an ordinary superstep: those of a whole one, and its calls.
SUPERSTEPS = tuple(
    f"superstep,{kind} durability {durability}" for kind in ("", " delta,") for durability in ("sync", "async")
)
CALLS = ("put small", "put_writes 1", "get small", "get agent state with writes")
RARE = ("put chat to 1,000 messages", "copy_thread", "prune")


def _ordinary(results: Sequence[Result]) -> list[str]:
    """What nearly every superstep costs, and in one sentence what a user of each database gains and loses."""
    ratios = {(each.case, each.database, each.api): each.ratio("official") for each in results}
    columns = list(dict.fromkeys((each.database, each.api) for each in results))

    def spread(cases: Sequence[str], database: str) -> str:
        said = []
        for api in (api for name, api in columns if name == database):
            known = [ratio for case in cases if (ratio := ratios.get((case, database, api))) is not None]
            if known:
                said.append(f"{_ratio(min(known))} to {_ratio(max(known))} times as long in {api} programs")
        return " and ".join(said)

    lines = []
    for database in dict.fromkeys(database for database, _ in columns):
        takes = {"An ordinary superstep": SUPERSTEPS, f"What is rarer ({', '.join(RARE)})": RARE}
        said = [f"{what} takes {found}" for what, cases in takes.items() if (found := spread(cases, database))]
        if said:
            lines += [f"- {database}, compared with the fastest official saver: {'. '.join(said)}."]
    table = [
        f"| {case} | {' | '.join(_ratio(ratios.get((case, *column))) for column in columns)} |"
        for case in (*SUPERSTEPS, *CALLS)
        if any((case, *column) in ratios for column in columns)
    ]
    if not lines or not table:
        return []
    head = [
        f"| case | {' | '.join(f'{database} {api}' for database, api in columns)} |",
        "|---|" + "--:|" * len(columns),
    ]
    return ["## The ordinary superstep", "", *lines, "", *head, *table, ""]


def _changed(results: Sequence[Result]) -> list[str]:
    """The targets that the simplest program does not reach either."""
    found = [(result, verdict) for result in results for verdict in verdicts(result) if verdict.is_changed]
    if not found:
        return []
    return [
        "## Targets that the simplest program misses as well",
        "",
        "The straight line that keeps promises (`promises.py`) does only what an ordinary call does, and what is",
        "promised beyond that. For growing chats, the simplest program encodes all messages and stores the new ones.",
        "It ran in the same rounds. A target that both miss counts as met only if ours is within a tenth of the ratio",
        "of that program.",
        "",
        "| case | database | API | of | target | ours | simplest program | | changed to | best official | |",
        "|---|---|---|---|--:|--:|---|--:|--:|--:|---|",
        *(_changed_row(*each) for each in found),
        "",
    ]


def _changed_row(result: Result, verdict: Verdict) -> str:
    target, official, simplest = verdict.target, result.best("official"), result.simplest
    figure = _median(official)
    if target.of:
        figure = official.extras.get(target.of) if official else None
    cells = [
        *target[:3],
        target.of or "time",
        _ratio(target.limit),
        _ratio(verdict.reached),
        simplest.name if simplest else "–",
        _ratio(verdict.straight),
        _ratio(verdict.limit),
        amount(figure, "ms" if target.of else result.unit),
        "met" if verdict.met else "**not met**",
    ]
    return f"| {' | '.join(cells)} |"


def _said(value: Any) -> str:
    return ", ".join(f"{k} {v}" for k, v in value.items()) if isinstance(value, dict) else str(value)


def _summary(result: Result) -> str:
    official, floor = result.best("official"), result.best("floor")
    errors = [each for each in result.figures if each.error]
    found = verdicts(result)
    limits = ", ".join(f"≤ {v.limit:.3g}{' (changed)' if v.is_changed else ''}{_reached(v)}" for v in found)
    said = ", ".join("met" if v.met else "**not met**" for v in found)
    if errors:
        said += f" (failed: {', '.join(each.name for each in errors)})"
    name = f"{result.case} ({result.note})" if result.note else result.case
    best = f"{amount(official.median, result.unit)} ({official.name.removeprefix('official ')})" if official else "–"
    if result.unit == "×":
        ratios = ["–", "–"]
    else:
        ratios = [_ratio(result.ratio("official")), _ratio(result.ratio("floor"))]
    cells = [
        name,
        result.api,
        amount(_median(result.best("ours")), result.unit),
        best,
        amount(_median(floor), result.unit),
        *ratios,
        limits,
        said.strip(),
    ]
    return f"| {' | '.join(cells)} |"


def _reached(verdict: Verdict) -> str:
    of = verdict.target.of
    return f" {of.removesuffix(' ms')}: {_ratio(verdict.reached)}" if of else ""


def _detail(result: Result, each: Figures) -> str:
    more = each.error or ", ".join(f"{value:,.3g} {unit}" for unit, value in each.extras.items())
    cells = [
        result.case,
        result.database,
        result.api,
        each.name,
        amount(each.median, result.unit),
        amount(each.p99, result.unit),
        str(len(each.samples)),
        more.replace("|", "\\|").replace("\n", " "),
    ]
    return f"| {' | '.join(cells)} |"


def _median(figures: Figures | None) -> float | None:
    return figures.median if figures else None


def _ratio(value: float | None) -> str:
    return "–" if value is None else f"{value:.2f}" if value >= 0.1 else f"{value:.3f}"


def amount(value: float | None, unit: str) -> str:
    """A figure with its unit."""
    if value is None:
        return "–"
    if unit == "s":
        return f"{value * 1000:,.0f} ms" if value >= 1 else f"{value * 1000:.3g} ms"
    if unit == "B":
        return f"{value / 1e6:,.1f} MB" if abs(value) >= 1e5 else f"{value / 1e3:,.1f} KB"
    return f"{value:.2f} {unit}"


# A bar from the middle means once as much; the ends are a hundredth and a hundred times.
WIDTH, LABEL, ROW, DECADES = 900, 300, 20, 2


def plot(title: str, results: Sequence[Result]) -> str:
    """A bar for each case: the ratio to the best official saver on a logarithmic scale, and a tick for the target."""
    rows = [(each, ratio) for each in results if each.unit != "×" and (ratio := each.ratio("official")) and ratio > 0]
    span = (WIDTH - LABEL - 70) / 2

    def x(ratio: float) -> float:
        return LABEL + span + max(-DECADES, min(DECADES, log10(ratio))) / DECADES * span

    height = 60 + ROW * len(rows)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height}" font-family="sans-serif" '
        'font-size="12">',
        f'<rect width="{WIDTH}" height="{height}" fill="white"/>',
        f'<text x="10" y="20" font-size="14">{escape(title)}: ours against the best official saver</text>',
    ]
    for tick in (0.01, 0.1, 1, 10, 100):
        parts.append(f'<line x1="{x(tick):.1f}" x2="{x(tick):.1f}" y1="44" y2="{height}" stroke="#ddd"/>')
        parts.append(f'<text x="{x(tick):.1f}" y="40" text-anchor="middle" fill="#666">{tick:g} ×</text>')
    for number, (result, ratio) in enumerate(rows):
        y = 50 + ROW * number
        left, right = sorted((x(ratio), x(1)))
        api = "#2b8a5a" if ratio <= 1 else "#c0392b"
        parts += [
            f'<text x="{LABEL - 8}" y="{y + 11}" text-anchor="end">{escape(result.case)}</text>',
            f'<rect x="{left:.1f}" y="{y}" width="{max(1, right - left):.1f}" height="14" fill="{api}"/>',
            f'<text x="{WIDTH - 60}" y="{y + 11}">{_ratio(ratio)} ×</text>',
        ]
        for verdict in verdicts(result):
            if verdict.target.against == "official" and verdict.target.of is None:
                at = x(verdict.limit)
                parts.append(f'<line x1="{at:.1f}" x2="{at:.1f}" y1="{y - 2}" y2="{y + 16}" stroke="black"/>')
    return "\n".join([*parts, "</svg>", ""])
