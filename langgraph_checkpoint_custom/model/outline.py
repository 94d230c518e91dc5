"""The outline of a thread: its checkpoints and what each of them names, without values. And what is decided by it.

Must not know: databases, SQL, serializers. Everything here is computed from the outline alone.

Every deletion has the same steps (forks are at the end of this file):

1. Checkpoints are chosen. Each operation chooses others: `superseded`, `of_runs`, `of_checkpoint`, `later`.
2. A chosen checkpoint that a remaining one needs becomes `hidden` instead. A `DeltaChannel` needs the ancestors back to
   its seed, and a checkpoint older than format 4 needs the sends of its parent.
3. The others are deleted, with their writes and with the blobs that no remaining checkpoint names.

Lists of names stay the JSON texts that the database returns until they are needed: most never are. What needs them
raises `ValueError` if they are damaged; `reading_names` makes it the error of the thread.
"""

from __future__ import annotations

import json
from bisect import bisect_left
from collections.abc import Collection, Iterable, Iterator, Mapping, Set
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

from langgraph_checkpoint_custom.errors import CorruptCheckpoint

Place = tuple[str, str]
"""A namespace and a checkpoint id."""
BlobPlace = tuple[str, str, str]
"""A namespace, a channel and a version; the version may be the name of a chunk."""

# LangGraph's channel for sends.
SENDS = "__pregel_tasks"
# The newest format of LangGraph's checkpoints. Before it, a checkpoint finds the sends in the writes of its parent.
FORMAT_WITH_SENDS = 4


class OutlineRow(NamedTuple):
    """A checkpoint without its document and metadata. Lists are JSON texts."""

    checkpoint_ns: str
    checkpoint_id: str
    parent_id: str | None
    root_id: str | None
    run_id: str | None
    format: int
    hidden: bool
    inline_channels: str
    delta_channels: str
    blob_channels: str
    blob_versions: str

    @property
    def place(self) -> Place:
        """Its key in the thread."""
        return self.checkpoint_ns, self.checkpoint_id

    @property
    def populated(self) -> frozenset[str]:
        """The channels that have a value here."""
        return _populated(self.inline_channels, self.blob_channels)


@contextmanager
def reading_names(thread_id: str) -> Iterator[None]:
    """Raise `CorruptCheckpoint`, which names the thread, if lists of names are damaged."""
    try:
        yield
    except ValueError as error:
        raise CorruptCheckpoint(
            f"thread {thread_id!r}: a checkpoint's list of channels, or of their versions, is damaged, so something "
            "else has written to the tables; restore the thread from a backup"
        ) from error


def blobs_of(rows: Iterable[OutlineRow]) -> set[BlobPlace]:
    """Return the blobs that checkpoints name."""
    lists = {(row.checkpoint_ns, row.blob_channels, row.blob_versions) for row in rows}  # Fewer than rows, mostly.
    return {
        (checkpoint_ns, channel, version)
        for checkpoint_ns, channels, versions in lists
        for channel, version in zip(_names(channels), _decoded(versions), strict=True)
    }


_DECODER = json.JSONDecoder()


def _decoded(text: str) -> list[str]:
    found: list[str] = _DECODER.raw_decode(text)[0]  # json.loads also looks for white space: twice the time.
    if type(found) is not list or not {str}.issuperset(map(type, found)):
        raise ValueError("not a list of names")
    return found


# The checkpoints of a graph have few different lists of channels.
_names = lru_cache(maxsize=1024)(_decoded)


@lru_cache(maxsize=1024)
def _populated(inline_channels: str, blob_channels: str) -> frozenset[str]:
    return frozenset((*_names(inline_channels), *_names(blob_channels)))


class Outline:
    """The checkpoints of a thread by their places, and by namespace.

    Args:
        rows: The cells of each `OutlineRow`.
        labels: The place that each label names.
        sends: The checkpoints whose writes have sends; needed only if there are formats below 4.
    """

    def __init__(
        self,
        rows: Iterable[Iterable[Any]],
        labels: Mapping[str, Place] | None = None,
        sends: Collection[Place] = (),
    ) -> None:
        self.labels = labels or {}
        self.sends = sends
        self.rows: dict[Place, OutlineRow] = {}
        self.namespaces: dict[str, list[OutlineRow]] = {}
        self._delta_channels: dict[str, frozenset[str]] = {}
        share = dict[Any, Any]().setdefault
        for cells in rows:  # An id is also the parent's or root's of other rows, and most lists are equal.
            row = OutlineRow._make([share(cell, cell) for cell in cells])
            self.rows[row[:2]] = row
            self.namespaces.setdefault(row.checkpoint_ns, []).append(row)

    def visible(self, checkpoint_ns: str) -> list[str]:
        """Return the ids of a namespace's checkpoints that are not hidden, the oldest first."""
        return sorted(row.checkpoint_id for row in self.namespaces.get(checkpoint_ns, ()) if not row.hidden)

    def root(self, checkpoint_id: str | None = None, run_id: str | None = None) -> str | None:
        """Return the root checkpoint that is named, or the last one of a run, or the newest; None if there is none."""
        ids = [
            each
            for each in self.visible("")
            if each == checkpoint_id or (checkpoint_id is None and run_id in (None, self.rows["", each].run_id))
        ]
        return ids[-1] if ids else None

    def delta_channels(self, checkpoint_ns: str) -> frozenset[str]:
        """Return the channels of a namespace that are `DeltaChannel`s, as any of its checkpoints says."""
        if checkpoint_ns not in self._delta_channels:
            texts = {row.delta_channels for row in self.namespaces.get(checkpoint_ns, ())}
            self._delta_channels[checkpoint_ns] = frozenset().union(*map(_names, texts))
        return self._delta_channels[checkpoint_ns]


# What is chosen


def superseded(outline: Outline, keep: int) -> Set[Place]:
    """Choose everything but what a prune retains.

    That is: the `keep` newest checkpoints of each namespace; those with a label; and, for each subgraph with a memory
    of its own, the checkpoint that a run goes on from if it starts at a root checkpoint with a label, or at one that
    remains besides the newest. The namespace of a subgraph call contains a colon before a task id, unlike that of a
    subgraph with checkpointer=True. The newest checkpoints of a finished call are not retained.
    """
    newest = {checkpoint_ns: outline.visible(checkpoint_ns) for checkpoint_ns in outline.namespaces}
    roots = newest.get("", [])[-keep:]
    labelled = {checkpoint_id for checkpoint_ns, checkpoint_id in outline.labels.values() if not checkpoint_ns}
    starts = labelled.union(roots[:-1])
    retained = set(outline.labels.values())
    for checkpoint_ns, ids in newest.items():
        if not ids:
            continue
        root = outline.rows[checkpoint_ns, ids[-1]].root_id
        if ":" in checkpoint_ns and _is_finished(outline, root, roots, labelled):
            continue
        retained.update((checkpoint_ns, checkpoint_id) for checkpoint_id in ids[-keep:])
        if checkpoint_ns and ":" not in checkpoint_ns:
            before = (bisect_left(ids, start) for start in starts)
            retained.update((checkpoint_ns, ids[at - 1]) for at in before if at)
    return outline.rows.keys() - retained


def _is_finished(outline: Outline, root: str | None, roots: list[str], labelled: Set[str]) -> bool:
    """Whether the root checkpoint that started a subgraph call does not remain.

    That one is deleted here, or it is older than the newest one and was deleted before. If it is newer, it is still to
    be stored.
    """
    if root is None or root in roots or root in labelled:
        return False
    return (bool(roots) and root < roots[-1]) or ("", root) in outline.rows


def of_runs(outline: Outline, run_ids: Set[str]) -> Set[Place]:
    """Choose the checkpoints of runs, and the hidden ones of their namespaces, which may be there only for these."""
    namespaces = {row.checkpoint_ns for row in outline.rows.values() if row.run_id in run_ids}
    return {
        place
        for place, row in outline.rows.items()
        if row.run_id in run_ids or (row.hidden and row.checkpoint_ns in namespaces)
    }


def of_checkpoint(outline: Outline, place: Place) -> Set[Place]:
    """Choose a checkpoint and the hidden ones of its namespace; nothing if it does not exist or is hidden.

    With a root checkpoint, the subgraph calls that it started are chosen. If it is the newest one, the tasks of the
    checkpoint that becomes the newest run again. So the subgraph calls that these have started are chosen as well, and
    what subgraphs with a memory have stored since. This does not hold if the checkpoint is on another branch.
    """
    target = outline.rows.get(place)
    if target is None or target.hidden:
        return set()
    checkpoint_ns, checkpoint_id = place
    chosen = {row.place for row in outline.namespaces[checkpoint_ns] if row.hidden} | {place}
    if checkpoint_ns:
        return chosen
    others = [other for other in outline.visible("") if other != checkpoint_id]
    newest = others[-1] if others else checkpoint_id
    reruns = not others or (newest < checkpoint_id and target.parent_id in (None, newest))
    for other, row in outline.rows.items():
        started_here = ":" in row.checkpoint_ns and row.root_id == checkpoint_id
        if started_here or (reruns and (row.hidden or (row.root_id is not None and row.root_id >= newest))):
            chosen.add(other)
    return chosen


def later(outline: Outline, checkpoint_id: str) -> Set[Place]:
    """Choose everything after a root checkpoint, in all namespaces, and the hidden ones."""
    return {
        place
        for place, row in outline.rows.items()
        if row.hidden or row.checkpoint_id > checkpoint_id or (row.root_id is not None and row.root_id >= checkpoint_id)
    }


# What becomes of it


def needed(outline: Outline, retained: Iterable[OutlineRow]) -> Set[Place]:
    """Return what the retained checkpoints need, and these themselves if they need anything.

    From each of them, the walk goes to its ancestors as long as there is a delta channel without a seed, or the parent
    holds sends of a checkpoint older than format 4. That holds for ancestors as well, because a hidden checkpoint has
    to be complete, too.
    """
    found: set[tuple[str, str, frozenset[str]]] = set()
    steps = [
        (*row.place, delta)
        for row in retained
        if (delta := outline.delta_channels(row.checkpoint_ns)) or row.format < FORMAT_WITH_SENDS
    ]
    while steps:
        step = steps.pop()
        if step in found:
            continue
        found.add(step)
        checkpoint_ns, checkpoint_id, unseeded = step
        row = outline.rows.get((checkpoint_ns, checkpoint_id))
        if row is None or row.parent_id is None:
            continue
        unseeded -= row.populated
        if unseeded or (row.format < FORMAT_WITH_SENDS and (checkpoint_ns, row.parent_id) in outline.sends):
            steps.append((checkpoint_ns, row.parent_id, unseeded))
    return {(checkpoint_ns, checkpoint_id) for checkpoint_ns, checkpoint_id, _ in found}


class Removal:
    """What a deletion does to the rows of a thread.

    Attributes:
        hidden: The checkpoints that become hidden.
        gone: The checkpoints that are deleted, with their writes.
        cut: The checkpoints that lose their parent. It is deleted; or it was missing when they become hidden, so that
            no deletion has cut off the history there. A hidden checkpoint keeps the id of a deleted parent, so that a
            walk can tell it from one that never existed.
        labels: The names of the labels of chosen checkpoints.
        blobs: The blobs that only deleted checkpoints name.
    """

    def __init__(self, outline: Outline, chosen: Set[Place]) -> None:
        self._rows, self._outline, self._chosen = outline.rows, outline, chosen
        retained = needed(outline, (row for place, row in self._rows.items() if place not in chosen))
        self.gone = chosen - retained
        self.hidden = {place for place in chosen & retained if not self._rows[place].hidden}
        self.cut = {place for place in self._rows.keys() - self.gone if self._is_cut(self._rows[place])}
        self.labels = sorted(name for name, place in outline.labels.items() if place in chosen)
        blobs = blobs_of(map(self._rows.__getitem__, self.gone))
        self.blobs = blobs - self.remaining_blobs({blob[:2] for blob in blobs})

    def _is_cut(self, row: OutlineRow) -> bool:
        if row.hidden or row.parent_id is None:
            return False
        parent = row.checkpoint_ns, row.parent_id
        return parent not in self._rows if row.place in self.hidden else parent in self.gone

    def remaining_blobs(self, channels: Collection[tuple[str, str]]) -> set[BlobPlace]:
        """Return the blobs that remaining checkpoints name, of these namespaces and channels."""
        namespaces = {checkpoint_ns for checkpoint_ns, _ in channels}
        remaining = (row for name in namespaces for row in self._outline.namespaces[name] if row.place not in self.gone)
        return {blob for blob in blobs_of(remaining) if blob[:2] in channels}

    def was_visible(self, place: Place) -> bool:
        """Whether there was a checkpoint that was not hidden."""
        return place in self._rows and not self._rows[place].hidden

    def chosen_visible(self) -> int:
        """Return the number of chosen checkpoints that were not hidden."""
        return sum(map(self.was_visible, self._chosen))

    def changes(self) -> bool:
        """Whether a checkpoint is deleted or becomes hidden."""
        return bool(self.gone or self.hidden)

    def empties(self) -> bool:
        """Whether no checkpoint remains."""
        return len(self.gone) == len(self._rows)

    def deletes_visible(self) -> bool:
        """Whether a checkpoint is deleted that was not hidden."""
        return any(map(self.was_visible, self.gone))

    def reopened(self) -> dict[Place, set[str]]:
        """Return the checkpoints that become the newest of their namespace, unless they are on another branch.

        Their writes belong to what is deleted. LangGraph would take them for the outputs of tasks that have run
        already. On another branch, their tasks are still to go on. With each comes what `_read_by_children` returns.
        """
        heads = []
        for checkpoint_ns in {checkpoint_ns for checkpoint_ns, _ in self.gone}:
            rows = self._outline.namespaces[checkpoint_ns]
            gone = [row for row in rows if row.place in self.gone]
            newest = max((row.checkpoint_id for row in gone if not row.hidden), default=None)
            head = max(
                (row.checkpoint_id for row in rows if not row.hidden and row.place not in self._chosen), default=None
            )
            if newest is None or head is None or head > newest:
                continue
            if any(row.parent_id == head or (row.parent_id is None and not row.hidden) for row in gone):
                heads.append((checkpoint_ns, head))
        return self._read_by_children(heads)

    def still_open(self, places: Iterable[Place]) -> dict[Place, set[str]]:
        """Return the places at which nothing is deleted or hidden, as `reopened`; there may be no checkpoint yet."""
        closed = self.gone | self.hidden | {place for place, row in self._rows.items() if row.hidden}
        return self._read_by_children(place for place in places if place not in closed)

    def _read_by_children(self, places: Iterable[Place]) -> dict[Place, set[str]]:
        """Return for each of these places the channels whose writes a remaining child is rebuilt from."""
        found: dict[Place, set[str]] = {place: set() for place in places}
        for checkpoint_ns in {checkpoint_ns for checkpoint_ns, _ in found}:
            delta = self._outline.delta_channels(checkpoint_ns) - {SENDS}
            for row in self._outline.namespaces.get(checkpoint_ns, ()):
                channels = found.get((checkpoint_ns, row.parent_id or ""))
                if channels is not None and row.place not in self.gone:
                    channels |= delta - row.populated
                    if row.format < FORMAT_WITH_SENDS:
                        channels.add(SENDS)
        return found


# What a fork has


@dataclass(frozen=True)
class Copies:
    """What comes along when a thread is forked from another one.

    Attributes:
        checkpoints: The checkpoints that are copied.
        written: Those of them whose writes are copied.
        blobs: The blobs that they name.
        hidden: Those of them that become hidden.
        cut: Those of them that have no parent in the copy.
        is_open: Whether the writes of the newest checkpoint are copied, which may still be stored.
    """

    checkpoints: Set[Place]
    written: Set[Place]
    blobs: Set[BlobPlace]
    hidden: Set[Place]
    cut: Set[Place]
    is_open: bool


def branch(outline: Outline, checkpoint_id: str) -> Copies:
    """Return what a fork from a root checkpoint has.

    That is the checkpoint; for each subgraph with a memory of its own, the checkpoint that a run from here goes on
    from; and what these need, as hidden checkpoints. If the checkpoint is the newest one, its superstep is open: its
    writes and the subgraph calls that it started belong to it. Otherwise they belong to what came after it.
    """
    is_open = outline.visible("")[-1] == checkpoint_id
    heads = {("", checkpoint_id)}
    for checkpoint_ns in outline.namespaces.keys() - {""}:
        for head in [head for head in outline.visible(checkpoint_ns) if is_open or head < checkpoint_id][-1:]:
            root_id = outline.rows[checkpoint_ns, head].root_id
            if ":" not in checkpoint_ns or (is_open and root_id == checkpoint_id):
                heads.add((checkpoint_ns, head))
    places = heads | needed(outline, [outline.rows[head] for head in heads])
    along = Outline([row for place, row in outline.rows.items() if place in places], sends=outline.sends)
    copied = along.rows.keys() - Removal(along, along.rows.keys() - heads).gone  # Nothing in the fork needs these.
    hidden = copied - heads

    def is_cut(row: OutlineRow) -> bool:
        parent = row.checkpoint_ns, row.parent_id or ""
        if row.place in hidden:  # As in a `Removal`.
            return not row.hidden and parent not in outline.rows
        return parent not in copied

    rows = [along.rows[place] for place in copied]
    cut = {row.place for row in rows if row.parent_id is not None and is_cut(row)}
    return Copies(copied, copied if is_open else hidden, blobs_of(rows), hidden, cut, is_open)
