"""The outline of a thread: its checkpoints and what each of them names, without values. And what a deletion does to it.

Must not know: databases, SQL, serializers. Everything here is computed from the outline alone.

Every deletion has the same steps:

1. Checkpoints are chosen. Each operation chooses others: `superseded`, `of_runs`, `of_checkpoint`, `later`.
2. A chosen checkpoint that a remaining one needs becomes `hidden` instead. A `DeltaChannel` needs the ancestors back to
   its seed, and a checkpoint older than format 4 needs the sends of its parent.
3. The others are deleted, with their writes and with the blobs that no remaining checkpoint names.

Lists of names stay the JSON texts that the database returns until they are needed: most never are.
"""

from __future__ import annotations

import json
from bisect import bisect_left
from collections.abc import Collection, Iterable, Iterator, Mapping, Set
from functools import lru_cache
from typing import Any, NamedTuple

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

    def blobs(self) -> Iterator[BlobPlace]:
        """The blobs that the checkpoint names."""
        if self.blob_channels != "[]":
            for channel, version in zip(_names(self.blob_channels), _decoded(self.blob_versions), strict=True):
                yield self.checkpoint_ns, channel, version


_DECODER = json.JSONDecoder()


def _decoded(text: str) -> list[str]:
    found: list[str] = _DECODER.raw_decode(text)[0]  # json.loads also looks for white space: twice the time.
    return found


# The checkpoints of a graph have few different lists of channels.
_names = lru_cache(maxsize=1024)(_decoded)


@lru_cache(maxsize=1024)
def _populated(inline_channels: str, blob_channels: str) -> frozenset[str]:
    return frozenset((*_names(inline_channels), *_names(blob_channels)))


class Outline:
    """The checkpoints of a thread by namespace and id.

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
        self.namespaces: dict[str, dict[str, OutlineRow]] = {}
        self._delta_channels: dict[str, frozenset[str]] = {}
        shared: dict[Any, Any] = {}
        for cells in rows:  # An id is also the parent's or root's of other rows, and most lists are equal.
            row = OutlineRow._make([shared.setdefault(cell, cell) for cell in cells])
            self.namespaces.setdefault(row.checkpoint_ns, {})[row.checkpoint_id] = row

    def __iter__(self) -> Iterator[OutlineRow]:
        return (row for rows in self.namespaces.values() for row in rows.values())

    def find(self, place: Place) -> OutlineRow | None:
        """Return the checkpoint at a place."""
        return self.namespaces.get(place[0], {}).get(place[1])

    def visible(self, checkpoint_ns: str) -> list[str]:
        """Return the ids of a namespace's checkpoints that are not hidden, the oldest first."""
        rows = self.namespaces.get(checkpoint_ns, {}).values()
        return sorted(row.checkpoint_id for row in rows if not row.hidden)

    def delta_channels(self, checkpoint_ns: str) -> frozenset[str]:
        """Return the channels of a namespace that are `DeltaChannel`s, as any of its checkpoints says."""
        if checkpoint_ns not in self._delta_channels:
            texts = {row.delta_channels for row in self.namespaces.get(checkpoint_ns, {}).values()}
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
        root = outline.namespaces[checkpoint_ns][ids[-1]].root_id
        if ":" in checkpoint_ns and _is_finished(outline, root, roots, labelled):
            continue
        retained.update((checkpoint_ns, checkpoint_id) for checkpoint_id in ids[-keep:])
        if checkpoint_ns and ":" not in checkpoint_ns:
            before = (bisect_left(ids, start) for start in starts)
            retained.update((checkpoint_ns, ids[at - 1]) for at in before if at)
    return {row.place for row in outline if row.hidden or row.place not in retained}


def _is_finished(outline: Outline, root: str | None, roots: list[str], labelled: Set[str]) -> bool:
    """Whether the root checkpoint that started a subgraph call does not remain.

    That one is deleted here, or it is older than the newest one and was deleted before. If it is newer, it is still to
    be stored.
    """
    if root is None or root in roots or root in labelled:
        return False
    return (bool(roots) and root < roots[-1]) or root in outline.namespaces.get("", {})


def of_runs(outline: Outline, run_ids: Collection[str]) -> Set[Place]:
    """Choose the checkpoints of runs, and the hidden ones of their namespaces, which may be there only for these."""
    namespaces = {row.checkpoint_ns for row in outline if row.run_id in run_ids}
    return {row.place for row in outline if row.checkpoint_ns in namespaces and (row.hidden or row.run_id in run_ids)}


def of_checkpoint(outline: Outline, place: Place) -> Set[Place]:
    """Choose a checkpoint and the hidden ones of its namespace; nothing if it does not exist or is hidden.

    With a root checkpoint, the subgraph calls that it started are chosen. If it is the newest one, the tasks of the
    checkpoint that becomes the newest run again. So the subgraph calls that these have started are chosen as well, and
    what subgraphs with a memory have stored since. This does not hold if the checkpoint is on another branch.
    """
    target = outline.find(place)
    if target is None or target.hidden:
        return set()
    checkpoint_ns, checkpoint_id = place
    chosen = {row.place for row in outline.namespaces[checkpoint_ns].values() if row.hidden} | {place}
    if checkpoint_ns:
        return chosen
    others = [other for other in outline.visible("") if other != checkpoint_id]
    newest = others[-1] if others else checkpoint_id
    reruns = not others or (newest < checkpoint_id and target.parent_id in (None, newest))
    for row in outline:
        if row.checkpoint_ns and (
            (":" in row.checkpoint_ns and row.root_id == checkpoint_id)
            or (reruns and (row.hidden or (row.root_id is not None and row.root_id >= newest)))
        ):
            chosen.add(row.place)
    return chosen


def later(outline: Outline, checkpoint_id: str) -> Set[Place]:
    """Choose everything after a root checkpoint, in all namespaces, and the hidden ones."""
    return {
        row.place
        for row in outline
        if row.hidden
        or row.checkpoint_id > checkpoint_id
        or (row.checkpoint_ns and row.root_id is not None and row.root_id >= checkpoint_id)
    }


def unless_newer(outline: Outline, newest: str) -> Set[Place]:
    """Choose everything, or nothing if there is a label or a newer checkpoint than `newest`."""
    if outline.labels or any(not row.hidden and row.checkpoint_id > newest for row in outline):
        return set()
    return {row.place for row in outline}


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
        row = outline.find((checkpoint_ns, checkpoint_id))
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
        self._outline = outline
        self._chosen = chosen
        namespaces = {checkpoint_ns for checkpoint_ns, _ in chosen}
        rows = [row for checkpoint_ns in namespaces for row in outline.namespaces[checkpoint_ns].values()]
        retained = needed(outline, (row for row in rows if row.place not in chosen))
        self.gone = chosen - retained
        self.hidden = {row.place for row in rows if not row.hidden and row.place in chosen and row.place in retained}
        self.cut = {row.place for row in rows if not row.hidden and row.parent_id is not None and self._is_cut(row)}
        self.labels = sorted(name for name, place in outline.labels.items() if place in chosen)
        self.blobs = {blob for row in rows if row.place in self.gone for blob in row.blobs()}
        for row in rows:
            if row.place not in self.gone:
                self.blobs.difference_update(row.blobs())

    def _is_cut(self, row: OutlineRow) -> bool:
        if row.place in self.gone:
            return False
        parent = row.checkpoint_ns, row.parent_id or ""
        return self._outline.find(parent) is None if row.place in self.hidden else parent in self.gone

    def remaining_blobs(self, channels: Collection[tuple[str, str]]) -> set[BlobPlace]:
        """Return the blobs that remaining checkpoints name, of these namespaces and channels."""
        remaining = (row for row in self._outline if row.place not in self.gone)
        return {blob for row in remaining for blob in row.blobs() if blob[:2] in channels}

    def found(self, place: Place) -> bool:
        """Whether there was a checkpoint that was not hidden."""
        row = self._outline.find(place)
        return row is not None and not row.hidden

    def deletes_visible(self) -> bool:
        """Whether a checkpoint is deleted that was not hidden."""
        return any(not row.hidden and row.place in self.gone for row in self._outline)

    def new_heads(self) -> list[Place]:
        """Return the checkpoints that become the newest of their namespace, unless they are on another branch.

        Their writes belong to what is deleted. LangGraph would take them for the outputs of tasks that have run
        already. On another branch, their tasks are still to go on.
        """
        heads = []
        for checkpoint_ns in {checkpoint_ns for checkpoint_ns, _ in self.gone}:
            rows = self._outline.namespaces[checkpoint_ns].values()
            gone = [row for row in rows if row.place in self.gone]
            newest = max((row.checkpoint_id for row in gone if not row.hidden), default=None)
            head = max(
                (row.checkpoint_id for row in rows if not row.hidden and row.place not in self._chosen), default=None
            )
            if newest is None or head is None or head > newest:
                continue
            if any(row.parent_id == head or (row.parent_id is None and not row.hidden) for row in gone):
                heads.append((checkpoint_ns, head))
        return heads

    def not_hidden(self, places: Iterable[Place]) -> list[Place]:
        """Return the places at which nothing is deleted or hidden; there may be no checkpoint yet."""
        rows = {place: self._outline.find(place) for place in places}
        return [
            place
            for place, row in rows.items()
            if place not in self.gone and place not in self.hidden and (row is None or not row.hidden)
        ]

    def read_by_children(self, places: Iterable[Place]) -> dict[Place, set[str]]:
        """Return for each of these places the channels whose writes a remaining child is rebuilt from."""
        found: dict[Place, set[str]] = {place: set() for place in places}
        for checkpoint_ns in {checkpoint_ns for checkpoint_ns, _ in found}:
            delta = self._outline.delta_channels(checkpoint_ns) - {SENDS}
            for row in self._outline.namespaces.get(checkpoint_ns, {}).values():
                channels = found.get((checkpoint_ns, row.parent_id or ""))
                if channels is not None and row.place not in self.gone:
                    channels |= delta - row.populated
                    if row.format < FORMAT_WITH_SENDS:
                        channels.add(SENDS)
        return found


class Branch:
    """What comes along when a thread is forked from a root checkpoint.

    That is the checkpoint; for each subgraph with a memory of its own, the checkpoint that a run from here goes on
    from; and what these need, as hidden checkpoints. If the checkpoint is the newest one, its superstep is open: its
    writes and the subgraph calls that it started belong to it. Otherwise they belong to what came after it.

    Attributes:
        is_open: Whether the superstep is open.
        copied: The checkpoints that are copied.
        hidden: Those of them that are hidden in the fork.
        cut: Those of them that have no parent in the fork.
        written: Those of them whose writes are copied.
        blobs: The blobs that they name.
    """

    def __init__(self, outline: Outline, checkpoint_id: str) -> None:
        self.is_open = is_open = outline.visible("")[-1] == checkpoint_id
        heads = {("", checkpoint_id)}
        for checkpoint_ns, rows in outline.namespaces.items():
            ids = [head for head in outline.visible(checkpoint_ns) if is_open or head < checkpoint_id]
            belongs = ":" not in checkpoint_ns or (is_open and ids and rows[ids[-1]].root_id == checkpoint_id)
            if checkpoint_ns and ids and belongs:
                heads.add((checkpoint_ns, ids[-1]))
        places = heads | needed(outline, [row for row in outline if row.place in heads])
        copies = Outline([row for row in outline if row.place in places], sends=outline.sends)
        gone = Removal(copies, {row.place for row in copies} - heads).gone  # Nothing in the fork needs them.
        along = [row for row in copies if row.place not in gone]
        self.copied = {row.place for row in along}
        self.hidden = self.copied - heads
        self.cut = {row.place for row in along if row.parent_id is not None and self._is_cut(outline, row)}
        self.written = self.copied if is_open else self.hidden
        self.blobs = {blob for row in along for blob in row.blobs()}

    def _is_cut(self, outline: Outline, row: OutlineRow) -> bool:
        parent = row.checkpoint_ns, row.parent_id or ""
        if row.place in self.hidden:  # As in a `Removal`.
            return not row.hidden and outline.find(parent) is None
        return parent not in self.copied
