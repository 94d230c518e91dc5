"""The picture of a thread: columns, rows and marks."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from langgraph_checkpoint_custom.operations.inspector import TaskRecord, TimelineRecord
from langgraph_checkpoint_custom.tools.timeline import (
    ASKED,
    CHANGED,
    FAILED,
    HIDDEN,
    STOPPED,
    WAITS,
    Picture,
    graph_of,
    picture_of,
)
from langgraph_checkpoint_custom.ui.pages import drawn


def record(name: str, parent: str | None = None, *tasks: TaskRecord, **fields: Any) -> TimelineRecord:
    values = {"ns": "", "root": None, "run": "r", "hidden": False, "source": "loop"} | fields
    return TimelineRecord(
        values["ns"], name, parent, values["root"], values["run"], values["hidden"], values["source"], 1, list(tasks)
    )


def tree(text: str) -> list[TimelineRecord]:
    """Records from their names, each with that of its parent after a dash."""
    return [record(name, parent or None) for name, _, parent in (each.partition("-") for each in text.split())]


def task(node: str = "n", *, failed: bool = False, asked: bool = False, done: bool = False) -> TaskRecord:
    return TaskRecord(f"task-{node}", f"~__pregel_pull, {node}", failed, asked, done)


def rows(picture: Picture) -> dict[str, tuple[int, int]]:
    return {spot.record.checkpoint_id: (spot.column, spot.row) for spot in picture.spots}


def test_the_way_to_the_newest_checkpoint_is_straight() -> None:
    """1 - 2 - 3 - 4, left for 5 - 6 from 2, left for 7 from 3."""
    picture = picture_of(tree("1 2-1 3-2 4-3 5-2 6-5 7-3"), {})
    assert rows(picture) == {
        "1": (0, 0), "2": (1, 0), "3": (2, 0), "7": (3, 0), "4": (3, 1), "5": (2, 2), "6": (3, 2),
    }  # fmt: skip
    assert (picture.columns, picture.rows) == (4, 3)


def test_a_lane_is_used_again_where_it_is_free() -> None:
    picture = picture_of(tree("0 1-0 2-1 3-2 4-3 5-4 6-5 7-6 8-7 1a-1 6a-6"), {})
    # 6a is the newest by its text, but not of the newest branch.
    found = rows(picture)
    assert found["1a"] == (2, 1)
    assert {found["6a"][1], found["7"][1]} <= {0, 1}
    assert picture.rows == 2


def test_marks() -> None:
    def marks(*records: TimelineRecord) -> list[int]:
        return [spot.marks for spot in picture_of(records, {}).spots]

    assert marks(record("1", None, task(asked=True))) == [WAITS]
    assert marks(record("1", None, task(asked=True)), record("2", "1", run="other")) == [ASKED, 0]
    assert marks(record("1", None, task(asked=True, done=True)), record("2", "1")) == [ASKED, 0]
    assert marks(record("1", None, task(failed=True))) == [FAILED]
    assert marks(record("1", None, task("a", done=True))) == [STOPPED]
    assert marks(record("1", None, task("a", done=True)), record("2", "1", run="other")) == [STOPPED, 0]
    assert marks(record("1", None, task("a", done=True)), record("2", "1", run="other", source="input")) == [0, 0]
    assert marks(record("1", source="update", run=None), record("2", "1")) == [CHANGED, 0]
    assert marks(record("1", hidden=True)) == [HIDDEN]


def test_what_made_a_checkpoint() -> None:
    sent = TaskRecord("task-2", "~__pregel_push, 0000000000, 0000000000", failed=False, asked=False, done=True)
    picture = picture_of(
        [
            record("1", None, task("b", done=True), task("a", done=True), task("late"), sent),
            record("2", "1"),
            record("1x", None, ns="worker:task-2", root="1"),
        ],
        {},
    )
    assert picture.spots[1].nodes == ["b", "a", "worker"]
    sends = {("", "1"): ["tools", "tools"]}
    pushed = [sent, sent._replace(task_id="task-3", path="~__pregel_push, 0000000001, 0000000000")]
    assert picture_of([record("1", None, *pushed), record("2", "1")], sends).spots[1].nodes == ["tools ×2"]
    twice = [task("a", done=True), task("a", done=True)._replace(task_id="another")]
    assert picture_of([record("1", None, *twice), record("2", "1")], {}).spots[1].nodes == ["a ×2"]
    assert picture.spots[0].nodes == []
    (strip,) = picture.strips
    assert (strip.checkpoint_ns, strip.root, len(strip.spots)) == ("worker:task-2", 0, 1)


def test_a_graph_of_branches() -> None:
    """1 - 2 - 3 - 6, left for 4 from 1 and for 5 from 2."""
    lines = [(sign, one and one.checkpoint_id) for sign, one in graph_of(tree("6-3 5-2 4-1 3-2 2-1 1-gone"))]
    assert lines == [
        ("*", "6"),
        ("| *", "5"),
        ("| | *", "4"),
        ("* | |", "3"),
        ("|/  |", None),
        ("*   |", "2"),
        ("|__/", None),
        ("*", "1"),
    ]
    assert graph_of([]) == []


def test_parents_that_loop_or_are_gone() -> None:
    picture = picture_of(tree("1-3 2-1 3-2 4-pruned 5-5"), {})
    assert len(picture.spots) == 5
    assert {column for column, _ in rows(picture).values()} <= {0, 1, 2, 3}
    assert picture_of([], {}).spots == []


@given(st.lists(st.integers(min_value=-1, max_value=30), max_size=30))
def test_no_two_checkpoints_are_in_one_place(parents: list[int]) -> None:
    records = [record(f"{n:02}", f"{p:02}" if 0 <= p < n else None) for n, p in enumerate(parents)]
    picture = picture_of(records, {})
    places = list(rows(picture).values())
    assert len(set(places)) == len(places) == len(records)
    for spot in picture.spots:
        if spot.parent is not None:
            assert spot.column == picture.spots[spot.parent].column + 1
    if records:
        assert picture.spots[-1].row == 0
    json.dumps(drawn(picture, {}))
