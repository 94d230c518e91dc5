"""The story of a thread: its checkpoints with the nodes that made them, marks, and a layout for a picture or a list.

Must not know: SQL, connections, requests, HTML, terminals.

A checkpoint's column is its distance from the beginning, along the parents. The way to the newest checkpoint is row 0.
Each other branch takes the first free row below the one that it leaves.
"""

from __future__ import annotations

from bisect import insort
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from typing import NamedTuple

from langgraph_checkpoint_custom.errors import CheckpointError
from langgraph_checkpoint_custom.model.id_times import time_of
from langgraph_checkpoint_custom.model.keys import config_of
from langgraph_checkpoint_custom.operations.inspector import TimelineRecord
from langgraph_checkpoint_custom.operations.thread_states import sent_to
from langgraph_checkpoint_custom.saver import CheckpointSaver
from langgraph_checkpoint_custom.tools.states import node_at

# Marks of a checkpoint, as bits in what is sent to the browser: it is hidden, waits for a human, has asked one, has
# failed, was stopped in the middle, was changed by hand.
HIDDEN, WAITS, ASKED, FAILED, STOPPED, CHANGED = 1, 2, 4, 8, 16, 32
WORDS = {FAILED: "failed", WAITS: "waiting", STOPPED: "stopped", ASKED: "asked", CHANGED: "changed"}
# The newest checkpoints with sent tasks whose nodes are read from their values.
NAMED = 50
_PUSH = "__pregel_push"

# The nodes of the `Send`s of checkpoints, by namespace and id.
Sends = Mapping[tuple[str, str], Sequence[str]]


class Spot(NamedTuple):
    """A checkpoint in the picture.

    Attributes:
        record: The checkpoint.
        parent: The position of its parent among those of its namespace.
        column, row: Its place.
        marks: What is special about it, as bits.
        nodes: The nodes that made it.
        seconds: The time since its parent was stored, if that was in the same run.
    """

    record: TimelineRecord
    parent: int | None
    column: int
    row: int
    marks: int
    nodes: Sequence[str]
    seconds: float | None

    @property
    def made_by(self) -> str:
        """The nodes that made it, or else its source, such as "input"."""
        return ", ".join(self.nodes) or str(self.record.source or "")

    @property
    def words(self) -> Sequence[str]:
        """What is special about it: "failed", "waiting", "stopped", "asked", "changed"."""
        return [word for mark, word in WORDS.items() if self.marks & mark]


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


def sends_of(saver: CheckpointSaver, thread_id: str, records: Iterable[TimelineRecord]) -> Sends:
    """Return the nodes of the sent tasks of checkpoints, given newest first, with a saver that reads raw."""
    sending = [one for one in records if any(_PUSH in task.path for task in one.tasks)]
    found: dict[tuple[str, str], Sequence[str]] = {}
    for one in sending[:NAMED]:
        with suppress(CheckpointError):  # Without the key of encrypted values, the names are not known.
            read = saver.get_tuple(config_of(thread_id, one.checkpoint_ns, one.checkpoint_id))
            found[one.checkpoint_ns, one.checkpoint_id] = sent_to(read.checkpoint["channel_values"]) if read else ()
    return found


def lines_of(records: Sequence[TimelineRecord], sends: Sends, *, whole: bool) -> list[Spot]:
    """Return checkpoints of all namespaces for a list, newest first.

    Unless they are `whole`, there are newer ones: then a checkpoint without a child is not taken for an end.
    """
    picture = picture_of(records, sends, whole=whole)
    found = [*picture.spots, *(spot for strip in picture.strips for spot in strip.spots)]
    return sorted(found, key=lambda each: (each.record.checkpoint_id, each.record.checkpoint_ns), reverse=True)


def graph_of(records: Sequence[TimelineRecord]) -> list[tuple[str, TimelineRecord | None]]:
    """Draw the branches of a namespace, given newest first: a line for each checkpoint, and one where branches meet."""
    known = {one.checkpoint_id for one in records}
    lanes: list[str | None] = []  # By lane: the checkpoint that comes next in it.
    found: list[tuple[str, TimelineRecord | None]] = []
    for one in records:
        own = [number for number, following in enumerate(lanes) if following == one.checkpoint_id]
        if not own:
            own = [lanes.index(None) if None in lanes else len(lanes)]
            lanes[own[0] : own[0] + 1] = [one.checkpoint_id]
        for other in reversed(own[1:]):
            lanes[other] = None
            signs = [*" ".join("|" if each else " " for each in lanes)]
            for at in range(2 * own[0] + 1, 2 * other - 1):
                signs[at] = "_" if signs[at] == " " else signs[at]
            signs[2 * other - 1] = "/"
            found.append(("".join(signs).rstrip(), None))
        signs = ["*" if number == own[0] else "|" if each else " " for number, each in enumerate(lanes)]
        found.append((" ".join(signs).rstrip(), one))
        lanes[own[0]] = one.parent_id if one.parent_id in known else None
        while lanes and lanes[-1] is None:
            lanes.pop()
    return found


def picture_of(records: Iterable[TimelineRecord], sends: Sends, *, whole: bool = True) -> Picture:
    """Lay out the records of a thread. Unless they are `whole`, there are newer ones."""
    by_namespace: dict[str, list[TimelineRecord]] = {}
    for record in records:
        by_namespace.setdefault(record.checkpoint_ns, []).append(record)
    called = {}
    for checkpoint_ns in by_namespace:
        for segment in checkpoint_ns.split("|"):
            name, _, task_id = segment.partition(":")
            called[task_id] = name
    spots = _spots(by_namespace.pop("", []), called, sends, whole)
    positions = {spot.record.checkpoint_id: number for number, spot in enumerate(spots)}
    strips = []
    for checkpoint_ns, own in by_namespace.items():
        roots = [positions[one.root_id] for one in own if one.root_id in positions]
        strips.append(Strip(checkpoint_ns, min(roots, default=None), _spots(own, called, sends, whole)))
    strips.sort(key=lambda strip: (strip.spots[0].record.checkpoint_id, strip.checkpoint_ns))
    columns = 1 + max((spot.column for spot in spots), default=-1)
    return Picture(spots, strips, columns, 1 + max((spot.row for spot in spots), default=-1))


def _spots(records: Sequence[TimelineRecord], called: Mapping[str, str], sends: Sends, whole: bool) -> list[Spot]:
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
    found = []
    for number, one in enumerate(ordered):
        at = parents[number]
        before = None if at is None else ordered[at]
        marks = _marks(one, [ordered[child] for child in children[number]], whole)
        nodes = _made_by(one, before, called, sends)
        found.append(Spot(one, at, columns[number], rows[number], marks, nodes, _seconds(before, one)))
    return found


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


def _marks(one: TimelineRecord, children: Sequence[TimelineRecord], whole: bool) -> int:
    asks = open_ = failed = failed_once = done = False
    for task in one.tasks:
        asks |= task.asked
        open_ |= task.asked and not task.done
        failed |= task.failed and not task.done
        failed_once |= task.failed
        done |= task.done
    is_end = whole and not children
    waits = open_ and is_end
    # Its superstep was begun by one run and ended by another, or by none so far.
    others = [child for child in children if child.source == "loop"]
    changed = one.source in ("update", "fork")
    left = bool(others) and not changed and all(child.run_id != one.run_id for child in others)
    left = left or (is_end and not one.hidden and done)
    return (
        HIDDEN * one.hidden
        | WAITS * waits
        | ASKED * (asks and not waits)
        | FAILED * failed_once
        | STOPPED * (left and not asks and not failed)
        | CHANGED * changed
    )


def _made_by(one: TimelineRecord, parent: TimelineRecord | None, called: Mapping[str, str], sends: Sends) -> list[str]:
    """Return the nodes that made a checkpoint; `called` has those of tasks that started subgraphs."""
    if one.source in ("input", "update", "fork") or parent is None:
        return []
    sent = sends.get((parent.checkpoint_ns, parent.checkpoint_id), ())
    found = (called.get(task.task_id) or node_at(task.path, sent) for task in parent.tasks if task.done)
    names = [name for name in found if name]
    if len(set(names)) == len(names):
        return names
    return [f"{name} ×{number}" if number > 1 else name for name, number in Counter(names).items()]


def _seconds(parent: TimelineRecord | None, one: TimelineRecord) -> float | None:
    """Return how long a run took from one checkpoint to the next; runs may have no id."""
    if parent is None or one.source != "loop" or one.run_id != parent.run_id:
        return None
    paused = any(task.asked or task.failed for task in parent.tasks)
    begin, end = time_of(parent.checkpoint_id), time_of(one.checkpoint_id)
    return (end - begin).total_seconds() if begin and end and not paused else None
