"""Lays out the timeline of a thread: a column for each step, a row for each branch, subgraphs below.

Must not know: the store, requests, HTML.

A checkpoint's column is its distance from the beginning, along the parents. The way to the newest checkpoint is row 0.
Each other branch takes the first free row below the one that it leaves.
"""

from __future__ import annotations

from bisect import insort
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from langgraph_checkpoint_custom.operations.inspector import TaskRecord, TimelineRecord
from langgraph_checkpoint_custom.tools.display import time_of
from langgraph_checkpoint_custom.ui.texts import line, marked

# Marks of a checkpoint, as bits in what is sent to the browser: it is hidden, waits for a human, has asked one, has
# failed, was stopped in the middle, was changed by hand.
HIDDEN, WAITS, ASKED, FAILED, STOPPED, CHANGED = 1, 2, 4, 8, 16, 32
_PULL = "__pregel_pull"


class Spot(NamedTuple):
    """A checkpoint in the picture."""

    record: TimelineRecord
    parent: int | None
    column: int
    row: int
    marks: int
    nodes: Sequence[str]
    """The nodes that have made it."""


class Strip(NamedTuple):
    """The checkpoints of a namespace; `root` is the position of the root graph's checkpoint that they belong to."""

    checkpoint_ns: str
    root: int | None
    spots: Sequence[Spot]


class Picture(NamedTuple):
    """A timeline: the root graph's checkpoints, oldest first, and those of subgraphs."""

    spots: Sequence[Spot]
    strips: Sequence[Strip]
    columns: int
    rows: int


def node_of(task: TaskRecord, called: Mapping[str, str]) -> str:
    """Return the name of a task's node; `called` has those of tasks that started subgraphs."""
    kind, _, name = task.path.lstrip("~").partition(", ")
    if kind == _PULL:
        return name
    return called.get(task.task_id) or ("" if not task.path else "sent task")


def picture_of(records: Iterable[TimelineRecord]) -> Picture:
    """Lay out the records of a thread."""
    by_namespace: dict[str, list[TimelineRecord]] = {}
    for record in records:
        by_namespace.setdefault(record.checkpoint_ns, []).append(record)
    called = {}
    for checkpoint_ns in by_namespace:
        for segment in checkpoint_ns.split("|"):
            name, _, task_id = segment.partition(":")
            called[task_id] = name
    spots = _spots(by_namespace.pop("", []), called)
    positions = {spot.record.checkpoint_id: number for number, spot in enumerate(spots)}
    strips = []
    for checkpoint_ns, own in by_namespace.items():
        roots = [positions[one.root_id] for one in own if one.root_id in positions]
        strips.append(Strip(checkpoint_ns, min(roots, default=None), _spots(own, called)))
    strips.sort(key=lambda strip: (strip.spots[0].record.checkpoint_id, strip.checkpoint_ns))
    columns = 1 + max((spot.column for spot in spots), default=-1)
    return Picture(spots, strips, columns, 1 + max((spot.row for spot in spots), default=-1))


def _spots(records: Sequence[TimelineRecord], called: Mapping[str, str]) -> list[Spot]:
    """Lay out the checkpoints of one namespace, oldest first."""
    ordered = sorted(records, key=lambda one: one.checkpoint_id)
    numbers = {one.checkpoint_id: number for number, one in enumerate(ordered)}
    parents = [numbers.get(one.parent_id or "") for one in ordered]
    columns = _columns(parents)
    children: list[list[int]] = [[] for _ in ordered]
    for number, parent in enumerate(parents):
        if parent is not None and columns[parent] < columns[number]:  # Otherwise the parents loop.
            children[parent].append(number)
    newest = list(range(len(ordered)))  # By checkpoint: the newest one that comes of it.
    for number in sorted(newest, key=lambda each: -columns[each]):
        newest[number] = max([number, *(newest[child] for child in children[number])])
    rows = _rows(parents, columns, children, newest)
    return [
        Spot(
            one,
            parents[number],
            columns[number],
            rows[number],
            _marks(one, [ordered[child] for child in children[number]]),
            _made_by(one, ordered[parent] if (parent := parents[number]) is not None else None, called),
        )
        for number, one in enumerate(ordered)
    ]


def _columns(parents: Sequence[int | None]) -> list[int]:
    found: list[int | None] = [None] * len(parents)
    for number in range(len(parents)):
        way: list[int] = []
        at: int | None = number
        while at is not None and found[at] is None:
            way.append(at)
            found[at] = 0  # Seen: a loop of parents ends here.
            at = parents[at]
        start = -1 if at is None else found[at] or 0
        for step, each in enumerate(reversed(way), 1):
            found[each] = start + step
    return [each or 0 for each in found]


def _rows(
    parents: Sequence[int | None], columns: Sequence[int], children: Sequence[Sequence[int]], newest: Sequence[int]
) -> list[int]:
    """Return the row of each checkpoint: a branch goes on in its row with the child that leads to the newest one."""
    preferred = [max(own, key=lambda child: newest[child], default=None) for own in children]
    heads = [number for number, parent in enumerate(parents) if parent is None or preferred[parent] != number]
    heads.sort(key=lambda head: (newest[head] != len(parents) - 1, head))
    rows = [0] * len(parents)
    taken: list[list[tuple[int, int]]] = []  # By row: the columns that are taken, from and to.
    for head in heads:
        branch = [head]
        while (following := preferred[branch[-1]]) is not None:
            branch.append(following)
        first, last = columns[head] - (parents[head] is not None), columns[branch[-1]]
        parent = parents[head]
        row = 0 if parent is None or preferred[parent] == head else rows[parent] + 1
        while row < len(taken) and any(first <= end and begin <= last for begin, end in taken[row]):
            row += 1
        while len(taken) <= row:
            taken.append([])
        insort(taken[row], (columns[head], last))
        for each in branch:
            rows[each] = row
    return rows


def _marks(one: TimelineRecord, children: Sequence[TimelineRecord]) -> int:
    asks = open_ = failed = failed_once = done = False
    for task in one.tasks:
        asks |= task.asked
        open_ |= task.asked and not task.done
        failed |= task.failed and not task.done
        failed_once |= task.failed
        done |= task.done
    waits = open_ and not children
    # Its superstep was begun by one run and ended by another, or by none so far.
    others = [child for child in children if child.source == "loop"]
    changed = one.source in ("update", "fork")
    left = bool(others) and not changed and all(child.run_id != one.run_id for child in others)
    left = left or (not children and not one.hidden and done)
    return (
        HIDDEN * one.hidden
        | WAITS * waits
        | ASKED * (asks and not waits)
        | FAILED * failed_once
        | STOPPED * (left and not asks and not failed)
        | CHANGED * changed
    )


def _made_by(one: TimelineRecord, parent: TimelineRecord | None, called: Mapping[str, str]) -> list[str]:
    if one.source in ("input", "update", "fork") or parent is None:
        return []
    names = [name for task in parent.tasks if task.done and (name := node_of(task, called))]
    if len(set(names)) == len(names):
        return names
    return [f"{name} ×{number}" if number > 1 else name for name, number in Counter(names).items()]


def as_json(picture: Picture, labels: Mapping[tuple[str, str], Sequence[str]], *, more: bool) -> dict[str, Any]:
    """Return a picture in a short form for the browser; texts are marked.

    Each spot is a list: id, parent, column, row, marks, step, source, run, time in milliseconds, what made it, labels.
    Run, source and maker are numbers of entries in `words`.
    """
    numbers: dict[str, int] = {}
    words: list[str] = []

    def word(text: object) -> int:
        text = str(text) if text else ""
        number = numbers.get(text)
        if number is None:
            number = numbers[text] = len(words)
            words.append(line(text, 60))
        return number

    def spots_of(spots: Sequence[Spot]) -> list[list[Any]]:
        found = []
        for spot in spots:
            record = spot.record
            time = time_of(record.checkpoint_id)
            found.append(
                [
                    record.checkpoint_id,
                    spot.parent,
                    spot.column,
                    spot.row,
                    spot.marks,
                    record.step if isinstance(record.step, int) else None,
                    word(record.source),
                    word(record.run_id),
                    int(time.timestamp() * 1000) if time else None,
                    word(", ".join(spot.nodes)),
                    [marked(name) for name in labels.get((record.checkpoint_ns, record.checkpoint_id), ())],
                ]
            )
        return found

    strips = [
        {
            "ns": strip.checkpoint_ns,
            "name": line(" / ".join(part.partition(":")[0] for part in strip.checkpoint_ns.split("|")), 60),
            "root": strip.root,
            "spots": spots_of(strip.spots),
        }
        for strip in picture.strips
    ]
    spots = spots_of(picture.spots)
    return {
        "spots": spots,
        "strips": strips,
        "words": words,
        "columns": picture.columns,
        "rows": picture.rows,
        "more": more,
    }
