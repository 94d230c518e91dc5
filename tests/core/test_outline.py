"""What a deletion decides by the outline of a thread, for random threads."""

from __future__ import annotations

from collections.abc import Set
from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from langgraph_checkpoint_custom.model.outline import (
    FORMAT_WITH_SENDS,
    Branch,
    Outline,
    OutlineRow,
    Place,
    Removal,
    later,
    of_checkpoint,
    of_runs,
    superseded,
    unless_newer,
)
from tests.model.random_threads import RUNS, random_thread

# A seed makes a thread in a tenth of the time in which Hypothesis would choose each of its rows.
randoms = st.integers(0, 1_000_000).map(Random)


def choices(outline: Outline, random: Random) -> list[Set[Place]]:
    """What each deletion chooses."""
    point = random.choice([row.place for row in outline] or [("", "1")])
    return [
        superseded(outline, 1),
        superseded(outline, 2),
        of_runs(outline, random.sample(RUNS, 2)),
        of_checkpoint(outline, point),
        later(outline, point[1]),
        unless_newer(outline, point[1]),
    ]


def read_by(outline: Outline, row: OutlineRow) -> set[Place]:
    """The ancestors that a checkpoint is rebuilt from, one channel after the other."""
    found: set[Place] = set()
    for channel in outline.delta_channels(row.checkpoint_ns):
        at: OutlineRow | None = row
        passed: set[Place] = set()
        while at and at.place not in passed and channel not in at.populated and at.parent_id is not None:
            passed.add(at.place)
            parent = at.checkpoint_ns, at.parent_id
            found.add(parent)
            at = outline.find(parent)
    return found


def needed_by(outline: Outline, rows: list[OutlineRow]) -> set[Place]:
    """All ancestors that these checkpoints need, with the sends that those of old formats find in their parents."""
    found = {place for row in rows for place in read_by(outline, row)}
    todo = rows + [row for place in found if (row := outline.find(place))]
    while todo:
        row = todo.pop()
        parent = row.checkpoint_ns, row.parent_id or ""
        if row.format < FORMAT_WITH_SENDS and parent in outline.sends and parent not in found:
            found.add(parent)
            if there := outline.find(parent):
                todo.append(there)
    return found


def after(outline: Outline, removal: Removal) -> Outline:
    """The outline of what is left."""
    rows = [
        row._replace(
            hidden=row.hidden or row.place in removal.hidden,
            parent_id=None if row.place in removal.cut else row.parent_id,
        )
        for row in outline
        if row.place not in removal.gone
    ]
    labels = {name: place for name, place in outline.labels.items() if name not in removal.labels}
    return Outline(rows, labels, outline.sends)


@settings(deadline=None)
@given(randoms)
def test_what_remains_is_complete_and_nothing_else_remains(random: Random) -> None:
    outline = random_thread(random).outline()
    for chosen in choices(outline, random):
        removal = Removal(outline, chosen)
        assert removal.gone | removal.hidden <= chosen
        namespaces = {checkpoint_ns for checkpoint_ns, _ in chosen}
        retained = [row for row in outline if row.checkpoint_ns in namespaces and row.place not in chosen]
        expected = needed_by(outline, retained) & chosen
        assert chosen - removal.gone == expected
        assert {place for place in expected if not outline.namespaces[place[0]][place[1]].hidden} == removal.hidden


@settings(deadline=None)
@given(randoms)
def test_blobs_go_with_the_last_checkpoint_that_names_them(random: Random) -> None:
    outline = random_thread(random).outline()
    for chosen in choices(outline, random):
        removal = Removal(outline, chosen)
        named = {blob for row in after(outline, removal) for blob in row.blobs()}
        assert removal.blobs == {blob for row in outline for blob in row.blobs()} - named
        assert removal.remaining_blobs({blob[:2] for blob in named}) == named


@settings(deadline=None)
@given(randoms)
def test_no_visible_checkpoint_names_a_deleted_parent(random: Random) -> None:
    outline = random_thread(random).outline()
    for chosen in choices(outline, random):
        removal = Removal(outline, chosen)
        for row in after(outline, removal):
            assert row.hidden or (row.checkpoint_ns, row.parent_id) not in removal.gone
        for row in outline:
            parent = row.checkpoint_ns, row.parent_id or ""
            if row.place in removal.hidden:  # The history ended here before.
                assert (row.place in removal.cut) == (row.parent_id is not None and outline.find(parent) is None)
            elif row.place in removal.cut:
                assert parent in removal.gone


@settings(deadline=None)
@given(randoms, st.integers(1, 3))
def test_a_prune_keeps_the_newest_and_the_labelled_and_a_second_one_changes_nothing(random: Random, keep: int) -> None:
    outline = random_thread(random).outline()
    removal = Removal(outline, superseded(outline, keep))
    left = after(outline, removal)
    assert left.visible("")[-keep:] == outline.visible("")[-keep:]
    for checkpoint_ns in outline.namespaces:
        if ":" not in checkpoint_ns:
            assert left.visible(checkpoint_ns)[-keep:] == outline.visible(checkpoint_ns)[-keep:]
    for name, place in outline.labels.items():
        row = outline.find(place)
        assert name in left.labels or row is None or row.hidden
        assert row is None or row.hidden or left.find(place)
    again = Removal(left, superseded(left, keep))
    hidden = {row.place for row in left if row.hidden}
    assert again.gone <= hidden  # What only a deleted checkpoint noted as a DeltaChannel is no longer needed.
    assert not again.hidden
    assert again.gone or not again.cut


@settings(deadline=None)
@given(randoms)
def test_a_fork_has_what_its_checkpoints_need_and_nothing_newer(random: Random) -> None:
    outline = random_thread(random).outline()
    for point in outline.visible(""):
        branch = Branch(outline, point)
        heads = branch.copied - branch.hidden
        assert ("", point) in heads
        assert all(checkpoint_id <= point or branch.is_open for _, checkpoint_id in heads)
        copies = Outline([row for row in outline if row.place in branch.copied], sends=outline.sends)
        needed = needed_by(copies, [row for row in copies if row.place in heads])
        assert branch.hidden == {place for place in needed if copies.find(place)} - heads
        assert branch.written == (branch.copied if branch.is_open else branch.hidden)
        for place in heads:
            row = outline.namespaces[place[0]][place[1]]
            assert (place in branch.cut) == (
                row.parent_id is not None and (place[0], row.parent_id) not in branch.copied
            )
