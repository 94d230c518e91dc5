"""What is decided by the outline of a random thread: the rules are stated here a second time, row by row."""

from __future__ import annotations

import json
from collections.abc import Iterable, Set
from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from langgraph_checkpoint_custom.model.outline import (
    FORMAT_WITH_SENDS,
    SENDS,
    BlobPlace,
    Outline,
    OutlineRow,
    Place,
    Removal,
    branch,
    later,
    of_checkpoint,
    of_runs,
    superseded,
)
from tests.model.random_threads import RUNS, random_thread

# A seed makes a thread in a tenth of the time in which Hypothesis would choose each of its rows.
randoms = st.integers(0, 1_000_000).map(Random)
many = settings(max_examples=200)


def named(rows: Iterable[OutlineRow]) -> set[BlobPlace]:
    return {
        (row.checkpoint_ns, *blob)
        for row in rows
        for blob in zip(json.loads(row.blob_channels), json.loads(row.blob_versions), strict=True)
    }


def choices(outline: Outline, random: Random) -> list[Set[Place]]:
    """What each deletion chooses."""
    point = random.choice([*outline.rows] or [("", "1")])
    return [
        superseded(outline, 1),
        superseded(outline, 2),
        of_runs(outline, set(random.sample(RUNS, 2))),
        of_checkpoint(outline, point),
        later(outline, point[1]),
        outline.rows.keys(),
    ]


def parent_of(row: OutlineRow) -> Place:
    return row.checkpoint_ns, row.parent_id or "none"


def populated(row: OutlineRow) -> list[str]:
    return [*json.loads(row.inline_channels), *json.loads(row.blob_channels)]


def is_call(checkpoint_ns: str) -> bool:
    return ":" in checkpoint_ns


def is_memory(checkpoint_ns: str) -> bool:
    return checkpoint_ns != "" and not is_call(checkpoint_ns)


def newer(outline: Outline, row: OutlineRow) -> int:
    """How many visible checkpoints of the namespace are newer."""
    same = [other for other in outline.rows.values() if other.checkpoint_ns == row.checkpoint_ns and not other.hidden]
    return sum(other.checkpoint_id > row.checkpoint_id for other in same)


def newest_of(outline: Outline, checkpoint_ns: str, below: str = "~") -> OutlineRow | None:
    """The newest visible checkpoint of a namespace, maybe below an id: a run from that one goes on from it."""
    same = [row for row in outline.rows.values() if row.checkpoint_ns == checkpoint_ns and not row.hidden]
    return max((row for row in same if row.checkpoint_id < below), key=lambda row: row.checkpoint_id, default=None)


def read_by(outline: Outline, row: OutlineRow) -> set[Place]:
    """The ancestors that a checkpoint is rebuilt from, one channel after the other."""
    found: set[Place] = set()
    for channel in outline.delta_channels(row.checkpoint_ns):
        at: OutlineRow | None = row
        passed: set[Place] = set()
        while at and at.place not in passed and channel not in populated(at) and at.parent_id is not None:
            passed.add(at.place)
            found.add(parent_of(at))
            at = outline.rows.get(parent_of(at))
    return found


def needed_by(outline: Outline, rows: list[OutlineRow]) -> set[Place]:
    """All ancestors that these checkpoints need, with the sends that those of old formats find in their parents."""
    found = {place for row in rows for place in read_by(outline, row)}
    todo = rows + [row for place in found if (row := outline.rows.get(place))]
    while todo:
        row = todo.pop()
        if row.format < FORMAT_WITH_SENDS and parent_of(row) in outline.sends and parent_of(row) not in found:
            found.add(parent_of(row))
            if there := outline.rows.get(parent_of(row)):
                todo.append(there)
    return found


def after(outline: Outline, removal: Removal) -> Outline:
    """The outline of what is left."""
    rows = [
        row._replace(
            hidden=row.hidden or place in removal.hidden, parent_id=None if place in removal.cut else row.parent_id
        )
        for place, row in outline.rows.items()
        if place not in removal.gone
    ]
    labels = {name: place for name, place in outline.labels.items() if name not in removal.labels}
    return Outline(rows, labels, outline.sends)


# What is chosen


@many
@given(randoms, st.integers(1, 3))
def test_a_prune_keeps_the_newest_the_labelled_and_the_memories_that_runs_go_on_from(random: Random, keep: int) -> None:
    outline = random_thread(random).outline()
    labelled = set(outline.labels.values())

    def root_stays(root_id: str) -> bool:
        row = outline.rows.get(("", root_id))
        return ("", root_id) in labelled or (row is not None and not row.hidden and newer(outline, row) < keep)

    def is_over(checkpoint_ns: str) -> bool:
        newest, root = newest_of(outline, checkpoint_ns), newest_of(outline, "")
        started = newest.root_id if newest else None
        if not is_call(checkpoint_ns) or started is None or root_stays(started):
            return False
        return ("", started) in outline.rows or (root is not None and started < root.checkpoint_id)

    starts = [checkpoint_id for checkpoint_ns, checkpoint_id in labelled if checkpoint_ns == ""]
    roots = [row for row in outline.rows.values() if row.checkpoint_ns == "" and not row.hidden]
    starts += [row.checkpoint_id for row in roots if 0 < newer(outline, row) < keep]
    chosen = superseded(outline, keep)
    for place, row in outline.rows.items():
        is_start = is_memory(row.checkpoint_ns) and row in [newest_of(outline, place[0], start) for start in starts]
        is_new = newer(outline, row) < keep and not is_over(row.checkpoint_ns)
        assert (place not in chosen) == (not row.hidden and (place in labelled or is_start or is_new))


@many
@given(randoms, st.integers(1, 3))
def test_a_second_prune_changes_nothing(random: Random, keep: int) -> None:
    outline = random_thread(random).outline()
    left = after(outline, Removal(outline, superseded(outline, keep)))
    again = Removal(left, superseded(left, keep))
    # What only a deleted checkpoint noted as a DeltaChannel is no longer needed.
    assert again.gone <= {place for place, row in left.rows.items() if row.hidden}
    assert not again.hidden
    assert again.gone or not again.cut


@many
@given(randoms)
def test_deleting_runs_chooses_theirs_and_what_is_hidden_beside_them(random: Random) -> None:
    outline, runs = random_thread(random).outline(), set(random.sample(RUNS, 2))
    rows = outline.rows.values()
    expected = {row.place for row in rows if row.run_id in runs}
    for row in rows:
        expected |= {other.place for other in rows if other.hidden and row.run_id in runs and other[0] == row[0]}
    assert of_runs(outline, runs) == expected


@many
@given(randoms)
def test_deleting_a_checkpoint_chooses_the_calls_that_it_or_the_tasks_that_run_again_have_started(
    random: Random,
) -> None:
    outline = random_thread(random).outline()
    for place, target in outline.rows.items():
        chosen = of_checkpoint(outline, place)
        if target.hidden:
            assert chosen == set()
            continue
        others = [row for row in outline.rows.values() if row[0] == "" and not row.hidden and row.place != place]
        head = max(others, key=lambda row: row.checkpoint_id, default=target)
        in_order = head is target or (head.checkpoint_id < target.checkpoint_id and target.parent_id is None)
        follows = head.checkpoint_id < target.checkpoint_id and target.parent_id == head.checkpoint_id
        for other, row in outline.rows.items():
            expected = other == place or (row.hidden and row.checkpoint_ns == target.checkpoint_ns)
            if target.checkpoint_ns == "" and row.checkpoint_ns != "":
                expected |= is_call(row.checkpoint_ns) and row.root_id == target.checkpoint_id
                if in_order or follows:
                    expected |= row.hidden or (row.root_id or "") >= head.checkpoint_id
            assert (other in chosen) == expected
    assert of_checkpoint(outline, ("", "no such id")) == set()


@many
@given(randoms)
def test_a_rollback_chooses_what_was_stored_after_its_point(random: Random) -> None:
    outline = random_thread(random).outline()
    for point in {row.checkpoint_id for row in outline.rows.values()}:
        chosen = later(outline, point)
        for place, row in outline.rows.items():
            is_old = row.checkpoint_id <= point and (row.checkpoint_ns == "" or (row.root_id or "") < point)
            assert (place not in chosen) == (is_old and not row.hidden)


# What becomes of it


@many
@given(randoms)
def test_what_remains_is_complete_and_nothing_else_remains(random: Random) -> None:
    outline = random_thread(random).outline()
    for chosen in choices(outline, random):
        removal = Removal(outline, chosen)
        retained = [row for place, row in outline.rows.items() if place not in chosen]
        expected = needed_by(outline, retained) & chosen
        assert removal.gone == chosen - expected
        assert removal.hidden == {place for place in expected if not outline.rows[place].hidden}
        assert removal.labels == sorted(name for name, place in outline.labels.items() if place in chosen)
        visible = {place for place, row in outline.rows.items() if not row.hidden}
        assert removal.deletes_visible() == bool(removal.gone & visible)
        assert {place for place in [*outline.rows, ("", "no such id")] if removal.was_visible(place)} == visible


@many
@given(randoms)
def test_what_stays_is_read_as_before(random: Random) -> None:
    outline = random_thread(random).outline()
    for chosen in choices(outline, random):
        left = after(outline, Removal(outline, chosen))
        for place, row in left.rows.items():
            if not row.hidden:
                assert read_by(outline, outline.rows[place]) & outline.rows.keys() <= left.rows.keys()
                steps = [place, *read_by(outline, outline.rows[place]) & outline.rows.keys()]
                kept = [
                    step for step in steps if outline.rows[step].parent_id in {s[1] for s in steps if s[0] == step[0]}
                ]
                assert all(left.rows[step].parent_id == outline.rows[step].parent_id for step in kept)


@many
@given(randoms)
def test_blobs_go_with_the_last_checkpoint_that_names_them(random: Random) -> None:
    outline = random_thread(random).outline()
    for chosen in choices(outline, random):
        removal = Removal(outline, chosen)
        left = named(after(outline, removal).rows.values())
        assert removal.blobs == named(outline.rows.values()) - left
        channels = {blob[:2] for blob in left if random.random() < 0.5}
        assert removal.remaining_blobs(channels) == {blob for blob in left if blob[:2] in channels}


@many
@given(randoms)
def test_a_checkpoint_loses_a_parent_that_is_deleted(random: Random) -> None:
    outline = random_thread(random).outline()
    for chosen in choices(outline, random):
        removal = Removal(outline, chosen)
        for place, row in outline.rows.items():
            is_cut = not row.hidden and parent_of(row) in removal.gone
            if place in removal.hidden:  # The history ended here before.
                is_cut = row.parent_id is not None and parent_of(row) not in outline.rows
            assert (place in removal.cut) == (is_cut and place not in removal.gone)


@many
@given(randoms)
def test_the_writes_of_a_new_newest_checkpoint_go_if_its_tasks_run_again(random: Random) -> None:
    outline = random_thread(random).outline()
    for chosen in choices(outline, random):
        removal = Removal(outline, chosen)
        opened = removal.reopened()
        for place, row in outline.rows.items():
            same = [other for other in outline.rows.values() if other[0] == row[0] and other is not row]
            gone = [other for other in same if other.place in removal.gone]
            is_head = not row.hidden and place not in chosen
            is_head &= not any(
                other.checkpoint_id > row.checkpoint_id and not other.hidden and other.place not in chosen
                for other in same
            )
            was_newest = not any(other.checkpoint_id > row.checkpoint_id and not other.hidden for other in gone)
            follow = [
                other for other in gone if other.parent_id == place[1] or (other.parent_id is None and not other.hidden)
            ]
            assert (place in opened) == (is_head and not was_newest and bool(follow))
        assert opened == {place: read_from(outline, removal, place) for place in opened}


@many
@given(randoms)
def test_writes_of_runs_go_where_a_checkpoint_is_visible_or_still_to_come(random: Random) -> None:
    outline = random_thread(random).outline()
    for chosen in choices(outline, random):
        removal = Removal(outline, chosen)
        places = [*outline.rows, ("", "no such id")]
        left = after(outline, removal)
        expected = [
            place
            for place in places
            if place not in outline.rows or (place in left.rows and not left.rows[place].hidden)
        ]
        assert removal.still_open(places) == {place: read_from(outline, removal, place) for place in expected}


def read_from(outline: Outline, removal: Removal, place: Place) -> set[str]:
    """The channels whose writes to a checkpoint a remaining child is rebuilt from."""
    found = set()
    for child in outline.rows.values():
        if parent_of(child) == place and child.place not in removal.gone:
            found |= {
                each for each in outline.delta_channels(place[0]) if each != SENDS and each not in populated(child)
            }
            found |= {SENDS for _ in [child] if child.format < 4}
    return found


# What is copied


@many
@given(randoms)
def test_a_fork_has_what_a_run_goes_on_from_and_what_that_needs(random: Random) -> None:
    outline = random_thread(random).outline()
    roots = outline.visible("")
    for point in roots:
        copies = branch(outline, point)
        is_newest = point == roots[-1]
        heads = {("", point)}
        for checkpoint_ns in outline.namespaces:
            head = newest_of(outline, checkpoint_ns, "~" if is_newest else point)
            if head and is_memory(checkpoint_ns):
                heads.add(head.place)
            if head and is_call(checkpoint_ns) and is_newest and head.root_id == point:
                heads.add(head.place)
        assert copies.is_open == is_newest
        assert copies.checkpoints - copies.hidden == heads
        along = Outline(
            [row for place, row in outline.rows.items() if place in copies.checkpoints], sends=outline.sends
        )
        needed = needed_by(along, [along.rows[head] for head in heads])
        assert copies.hidden == (needed & outline.rows.keys()) - heads
        assert copies.written == (copies.checkpoints if is_newest else copies.hidden)
        assert copies.blobs == named(along.rows.values())
        for place, row in along.rows.items():
            ends = parent_of(row) not in (copies.checkpoints if place in heads else outline.rows)
            is_cut = ends and row.parent_id is not None and (place in heads or not row.hidden)
            assert (place in copies.cut) == is_cut
