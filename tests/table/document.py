"""docs/values.md, made from `measured.json`."""

from __future__ import annotations

import json
import platform
from collections.abc import Iterable, Iterator, Mapping
from importlib.metadata import version
from itertools import groupby
from pathlib import Path

from tests.exactly import GIVEN
from tests.table.measuring import Fate, Name
from tests.table.values import GROUPS

DOCUMENT = Path(__file__).parents[2] / "docs" / "values.md"
MEASURED = Path(__file__).with_name("measured.json")
INTRODUCTION = """# Values

What comes back from LangGraph's own savers and from this one. `python -m tests.table` makes this page.

For each value, a node of a graph writes it to the state, with `durability="sync"`. Another process then reads it with
`get_state`. This saver gives the same results on both databases, here with the default `on_inexact`. We chose the
values ourselves.

- **same**: The same type and content at every level, private attributes included: `1` is not `True`, NaN is NaN.
- **which fields were given**: The same, except for `model_fields_set`.
- **changed**: What was stored → what came back, or the part that differs. An array that is **read-only** cannot be
  changed in place.
- **refused**: An error ends the run, and nothing of the value is stored. **Yet stored**: the value is in the state.
- **stuck**: An error ends the run or the read, and so does every later attempt to resume it.
"""
SAVERS = {
    "official sqlite": "LangGraph's on SQLite",
    "official postgres": "LangGraph's on PostgreSQL",
    "ours sqlite": "ours",
}
SAME = "same"
ONLY_GIVEN = f"changed: {GIVEN}"
# What begins with one of these, the first that matches.
COUNTED = {
    "the same": SAME,
    "the same, but for which fields were given": ONLY_GIVEN,
    "changed": "changed: ",
    "refused, nothing stored": "refused",
    "an error, yet stored": "an error, yet stored",
    "an error, and the thread is stuck": "**stuck**",
    "lost without an error": "**lost**",
}
Row = tuple[str, ...]
Rows = Mapping[Name, Row]


def rows_of(measured: Mapping[str, Mapping[Name, Fate]]) -> Rows:
    """What each of `SAVERS` does with each value."""
    return {name: tuple(measured[saver][name].text for saver in SAVERS) for name in measured["ours sqlite"]}


def versions() -> str:
    """The versions that a measurement depends on; an error if a package is missing whose values would be omitted."""
    savers = [f"langgraph{each}" for each in ("", "-checkpoint", "-checkpoint-postgres", "-checkpoint-sqlite")]
    packages = [*savers, "pydantic", *(kind.package for kind in GROUPS if kind.package)]
    return ", ".join([f"Python {platform.python_version()}", *(f"{each} {version(each)}" for each in packages)])


def write(rows: Rows, measured_with: str) -> None:
    """Write both files."""
    lines = [[measured_with], *([*name, *row] for name, row in rows.items())]
    MEASURED.write_text("[\n" + ",\n".join(json.dumps(line, ensure_ascii=False) for line in lines) + "\n]\n", "utf-8")
    DOCUMENT.write_text(text_of(rows, measured_with), "utf-8")


def read() -> tuple[Rows, str, str]:
    """What was measured, and with which versions; and the document."""
    (measured_with,), *lines = json.loads(MEASURED.read_text("utf-8"))
    return {(kind, name): tuple(row) for kind, name, *row in lines}, measured_with, DOCUMENT.read_text("utf-8")


def text_of(rows: Rows, measured_with: str) -> str:
    """The counts, lists of what all savers treat alike or both of LangGraph's do, and a table of the rest."""
    alike = {name: row[0] for name, row in rows.items() if len(set(row)) == 1}
    theirs = {name: row[0] for name, row in rows.items() if row[0] == row[1] != row[2] == SAME}
    given = [name for name, text in theirs.items() if text == ONLY_GIVEN]
    changed, lost = (
        {name: text.partition(": ")[2] for name, text in texts.items() if text.startswith("changed: ")}
        for texts in (alike, theirs)
    )
    apart = [name for name in rows if name not in alike and name not in theirs]
    return "\n".join(
        [
            INTRODUCTION,
            f"Measured with {measured_with}.\n",
            *_counts(rows),
            "\n## The same here, refused by LangGraph's savers\n",
            *_list(name for name, text in theirs.items() if text == "refused"),
            "\n## The same here, changed by LangGraph's savers\n",
            *_changes({name: change for name, change in lost.items() if name not in given}),
            "\n## Other differences\n",
            *_table(rows, apart),
            "\n## The same here; with LangGraph's savers, not which fields of a model were given\n",
            f"{len(given)} models and messages; `tests/table/values.py` has them.",
            "\n## Changed by all, in the same way\n",
            *_changes(changed),
            "\n## Refused by all, before anything is stored\n",
            *_list(name for name, text in alike.items() if text == "refused"),
            "\n## The same with all\n",
            f"The other {[*alike.values()].count(SAME)} values; `tests/table/values.py` has them.",
            "",
        ]
    )


def _counts(rows: Rows) -> Iterator[str]:
    yield f"| of {len(rows)} values | {' | '.join(SAVERS.values())} |"
    yield "|---|" + "---|" * len(SAVERS)
    left = [list(column) for column in zip(*rows.values(), strict=True)]
    for name, beginning in COUNTED.items():
        rest = [[text for text in column if not text.startswith(beginning)] for column in left]
        counts = [len(column) - len(others) for column, others in zip(left, rest, strict=True)]
        if any(counts):
            yield f"| {name} | {' | '.join(map(str, counts))} |"
        left = rest
    assert not any(left), f"not counted: {left}"


def _table(rows: Rows, names: Iterable[Name]) -> Iterator[str]:
    yield f"| value | {' | '.join(SAVERS.values())} |"
    yield "|---|" + "---|" * len(SAVERS)
    for kind, those in groupby(names, lambda name: name[0]):
        yield f"| **{kind}** |" + " |" * len(SAVERS)
        yield from (
            "| " + " | ".join(each.replace("|", "\\|") for each in (name[1], *rows[name])) + " |" for name in those
        )


def _list(names: Iterable[Name]) -> Iterator[str]:
    for kind, those in groupby(names, lambda name: name[0]):
        yield f"- **{kind}**: {'; '.join(name for _, name in those)}"


def _changes(changes: Mapping[Name, str]) -> Iterator[str]:
    """The names of each kind by what changed, the first that occurs first."""
    for kind, those in groupby(changes, lambda name: name[0]):
        names: dict[str, list[str]] = {}
        for name in those:
            names.setdefault(changes[name], []).append(name[1])
        yield f"- **{kind}**"
        yield from (f"  - {change}: {'; '.join(found)}" for change, found in names.items())
