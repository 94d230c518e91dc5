"""A second move: what either side has stored or deleted since the first one, and what a killed one had left."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import psycopg
import pytest
from langgraph.checkpoint.base import BaseCheckpointSaver, empty_checkpoint
from langgraph.checkpoint.serde.types import INTERRUPT, RESUME
from langgraph.types import Command

from langgraph_checkpoint_custom import CheckpointSaver, OperationEvent
from langgraph_checkpoint_custom.tools.migration import READ, MoveReport, migrate
from langgraph_checkpoint_custom.tools.own import OwnThreads
from tests.moving.application import graph_of, say
from tests.moving.official import Official, config, everything, plain, step
from tests.stores import Store


def spoil(official: Official, *tables: str) -> None:
    """Change the values in these tables so that reading one raises an error."""
    sets = {"writes": "value", "checkpoint_writes": "blob", "checkpoint_blobs": "blob", "checkpoints": "checkpoint"}
    if official.kind == "sqlite":
        with closing(sqlite3.connect(official.url.removeprefix("sqlite:///"))) as file, file:
            for table in tables:
                assert file.execute(f"UPDATE {table} SET type = 'msgpack', {sets[table]} = x'c1'").rowcount
    else:
        with psycopg.connect(official.url) as server:
            for table in tables:
                update = f"UPDATE {table} SET type = 'msgpack', {sets[table]} = '\\xc1'::bytea".encode()
                assert server.execute(update).rowcount


def tables_of(official: Official) -> tuple[str, str]:
    """Where the values of channels and writes are."""
    return ("checkpoints", "writes") if official.kind == "sqlite" else ("checkpoint_blobs", "checkpoint_writes")


def test_a_second_migration_reads_no_values_that_were_moved(official: Official, store: Store) -> None:
    """Neither in the source nor in the target, in a number of round trips that does not grow with the threads."""
    events: list[OperationEvent] = []
    with store.open(on_operation=events.append) as target, official.open() as source:
        for number in range(30):
            first = step(source, f"{number}", None, a=[1], b="x")
            source.put_writes(first, [("a", 1)], "task")
            source.put_writes(step(source, f"{number}", first, a=[2], b="y"), [("a", 2)], "task")
        target.setup()
        events.clear()
        assert migrate(official.url, target).checkpoints == 60
        # What each side has of a thread and what was moved of it, its rows, its rows again to compare them, and that it
        # was moved; on PostgreSQL, the lock, too.
        each = 6 if store.kind == "postgres" else 5
        assert sum(event.round_trips for event in events) == 30 * each + 4
        spoil(official, *tables_of(official))
        events.clear()
        assert migrate(official.url, target) == MoveReport(threads=30)
        assert [(event.name, event.round_trips) for event in events] == [
            ("checkpoints_of_threads", 1),
            ("moves_of_threads", 1),
            ("moved_threads", 1),  # To see which are not in the source any more.
            ("moved_threads", 1),
        ]

        step(source, "new", None, a=[3], b="z")
        events.clear()
        moved = migrate(official.url, target)
        assert (moved.threads, moved.checkpoints, moved.problems) == (31, 1, {})
        assert sum(event.name == "store_part" for event in events) == 1
        assert target.get_tuple(config("new")) is not None


def test_a_second_migration_reads_only_writes_that_may_have_changed(official: Official, saver: CheckpointSaver) -> None:
    """Interrupts and answers at the newest checkpoint; a second interrupt replaces the first."""
    with official.open() as source:
        old = step(source, "t", None, a=[1])
        source.put_writes(old, [(INTERRUPT, "asked long ago")], "task")
        location = step(source, "t", old, a=[2])
        source.put_writes(location, [("a", 3)], "another task")
        source.put_writes(location, [(INTERRUPT, "one?")], "task")
        source.put_writes(location, [(RESUME, ["one"])], "task")
        assert migrate(official.url, saver).problems == {}
        source.put_writes(location, [(INTERRUPT, "two?")], "task")
        source.put_writes(location, [(RESUME, ["one", "two"])], "task")
        source.put_writes(old, [(INTERRUPT, "an old question")], "task")
        moved = migrate(official.url, saver)
        assert (moved.checkpoints, moved.writes, moved.problems) == (0, 2, {})
        assert migrate(official.url, saver).writes == 0
    found = saver.get_tuple(config("t"))
    assert found is not None
    written = sorted(found.pending_writes or (), key=lambda write: write[1])
    assert written == [
        ("task", INTERRUPT, "two?"),
        ("task", RESUME, ["one", "two"]),
        ("another task", "a", 3),
    ]


def test_a_run_continues_during_the_migration(official: Official, saver: CheckpointSaver) -> None:
    """After each thread, a write to the checkpoint that was moved is stored, and then the next checkpoint."""
    with official.open() as source:
        last = {name: step(source, name, None, a=[0]) for name in "abc"}

        def run_on(number: int) -> None:
            name = "abc"[number - 1]
            source.put_writes(last[name], [("a", number)], "earlier task")
            last[name] = step(source, name, last[name], a=[number])
            source.put_writes(last[name], [("a", number)], "task")

        moved = migrate(official.url, saver, progress=run_on)
        assert moved == MoveReport(threads=3, checkpoints=3)
        assert migrate(official.url, saver) == MoveReport(threads=3, checkpoints=3, writes=6)
        assert [plain(found) for found in everything(saver)] == [plain(found) for found in everything(source)]


def talk(saver: BaseCheckpointSaver[Any], text: str, thread_id: str = "t") -> None:
    """A turn of a thread."""
    say(graph_of(saver), thread_id, text)


def log_of(saver: CheckpointSaver, thread_id: str = "t") -> Any:
    found = saver.get_tuple(config(thread_id))
    return found and found.checkpoint["channel_values"].get("log")


def test_a_thread_that_went_on_at_both_sides_is_a_problem(official: Official, saver: CheckpointSaver) -> None:
    with official.open() as source:
        for thread_id in ("t", "fine"):
            talk(source, "one", thread_id)
        assert migrate(official.url, saver).problems == {}
        for number in range(2):
            talk(saver, f"ours {number}")
            talk(source, f"theirs {number}")
            talk(source, f"theirs {number}", "fine")
            before = everything(saver)
            moved = migrate(official.url, saver)
            assert list(moved.problems) == ["t"]
            assert "it went on in both databases" in moved.problems["t"]
            assert "'t-official'" in moved.problems["t"]
            assert [one for one in everything(saver) if one.config["configurable"]["thread_id"] == "t"] == [
                one for one in before if one.config["configurable"]["thread_id"] == "t"
            ]
        assert log_of(saver, "fine")[-1] == "slow: theirs 1"
        assert log_of(saver)[-1] == "slow: ours 1"


def test_a_thread_that_went_on_here_alone_stays_as_it_is(official: Official, saver: CheckpointSaver) -> None:
    with official.open() as source:
        talk(source, "ask")
        assert migrate(official.url, saver).problems == {}
        for turn in range(2):  # The question and the answer are writes to a checkpoint of both sides.
            if turn:
                talk(saver, "ask")
            graph_of(saver).invoke(Command(resume="yes"), config("t"))
            before = everything(saver)
            moved = migrate(official.url, saver)
            assert (moved.checkpoints, moved.writes, moved.problems) == (0, 0, {})
            assert everything(saver) == before


def test_what_went_on_in_the_source_becomes_a_thread_of_its_own(official: Official, saver: CheckpointSaver) -> None:
    with official.open() as source:
        talk(source, "one")
        migrate(official.url, saver)
        talk(saver, "ours")
        for number in (1, 2):  # It may go on, and is copied again.
            talk(source, f"theirs {number}")
            moved = migrate(official.url, saver, diverged="copy")
            assert moved.problems == {}
            assert moved.checkpoints == (6 if number == 1 else 3)
            assert migrate(official.url, saver, diverged="copy") == MoveReport(threads=1)
            assert migrate(official.url, saver) == MoveReport(threads=1)  # It is no problem any more.
        assert log_of(saver)[-1] == "slow: ours"
        theirs = source.get_tuple(config("t"))
        assert theirs
        assert log_of(saver, "t-official") == theirs.checkpoint["channel_values"]["log"]
        talk(saver, "goes on", "t-official")
        assert log_of(saver, "t-official")[-3:] == ["goes on", "quick: goes on", "slow: goes on"]
        assert len(list(saver.list(config("t")))) == 6
        saver.delete_thread("t-official")
        assert migrate(official.url, saver).problems == {}
        talk(source, "theirs again")
        assert "it went on in both" in migrate(official.url, saver).problems["t"]


def test_what_was_deleted_here_does_not_return(official: Official, store: Store) -> None:
    """Erased users, pruned checkpoints: only a thread that is named is moved again, as a whole."""
    with official.open() as source, store.open() as saver:
        for thread_id in ("pruned", "erased", "copied"):
            for text in ("one", "two", "three"):
                talk(source, text, thread_id)
        assert migrate(official.url, saver).checkpoints == 27
        saver.prune(["pruned"])
        saver.delete_thread("erased")
        left = everything(saver)
        assert migrate(official.url, saver) == MoveReport(threads=3, deleted=1)
        assert everything(saver) == left

        talk(saver, "ours", "pruned")  # It goes on here, and its older checkpoints are deleted.
        saver.prune(["pruned"])
        assert migrate(official.url, saver).problems == {}
        talk(source, "theirs", "pruned")
        assert "it went on in both" in migrate(official.url, saver).problems["pruned"]
        talk(source, "theirs", "erased")
        moved = migrate(official.url, saver)
        assert moved.problems.keys() == {"pruned", "erased"}
        assert "it went on in the source; nothing" in moved.problems["erased"]
        assert saver.get_tuple(config("erased")) is None

        moved = migrate(official.url, saver, threads=["erased"])
        assert (moved.checkpoints, moved.problems) == (12, {})
        source.delete_thread("copied")  # An erased user is not forgotten here.
        assert "has been deleted in the source" in migrate(official.url, saver).problems["copied"]


@pytest.mark.parametrize("is_killed", [True, False], ids=["killed", "goes on"])
def test_a_thread_that_was_deleted_while_it_was_moved_does_not_return(
    official: Official, saver: CheckpointSaver, monkeypatch: pytest.MonkeyPatch, is_killed: bool
) -> None:
    """Between two parts of it."""
    parts: list[Any] = []

    def store(own: OwnThreads, part: Any) -> None:
        parts.append(part)
        if len(parts) == 2:
            assert len(list(saver.list(config("t")))) == READ
            saver.delete_thread("t")
            if is_killed:
                raise KeyboardInterrupt
        store_part(own, part)

    with official.open() as source:
        location = None
        for number in range(2 * READ + 1):
            location = step(source, "t", location, a=[number])
        store_part = OwnThreads.store
        monkeypatch.setattr(OwnThreads, "store", store)
        if is_killed:
            with pytest.raises(KeyboardInterrupt):
                migrate(official.url, saver)
        else:
            moved = migrate(official.url, saver)
            assert (moved.threads, moved.checkpoints, list(moved.problems)) == (1, 0, ["t"])
            assert "deleted in the target while it was moved" in moved.problems["t"]
        assert saver.get_tuple(config("t")) is None
        moved = migrate(official.url, saver)
        assert (moved.checkpoints, moved.deleted, list(moved.problems)) == (0, 1, ["t"])
        assert saver.get_tuple(config("t")) is None
        assert migrate(official.url, saver, threads=["t"]).checkpoints == 2 * READ + 1


@pytest.mark.parametrize("left", ["nothing", "the newest"])
def test_a_killed_move_of_a_named_thread_is_completed_by_the_next_one(
    official: Official, saver: CheckpointSaver, monkeypatch: pytest.MonkeyPatch, left: str
) -> None:
    """Although an earlier move of all threads had moved all of it, before it was deleted or pruned here."""
    store = OwnThreads.store

    def store_and_stop(own: OwnThreads, part: Any) -> None:
        store(own, part)
        raise KeyboardInterrupt

    def begin_again() -> None:
        with monkeypatch.context() as patched:
            patched.setattr(OwnThreads, "store", store_and_stop)
            with pytest.raises(KeyboardInterrupt):
                migrate(official.url, saver, threads=["t"])

    with official.open() as source:
        location = None
        for number in range(2 * READ + 1):
            location = step(source, "t", location, a=[number])
            source.put_writes(location, [("a", number)], "task")
        assert migrate(official.url, saver).checkpoints == 2 * READ + 1
        saver.delete_thread("t") if left == "nothing" else saver.prune(["t"])
        begin_again()
        assert len(list(saver.list(config("t")))) == READ + (left == "the newest")
        completed = MoveReport(threads=1, checkpoints=READ + 1, writes=READ + (left == "nothing"))
        assert migrate(official.url, saver) == completed
        assert [plain(found) for found in everything(saver)] == [plain(found) for found in everything(source)]
        saver.prune(["t"])
        # What is deleted after that does not return; nor does a thread that is deleted after a kill.
        assert migrate(official.url, saver) == MoveReport(threads=1)
        assert len(list(saver.list(config("t")))) == 1
        begin_again()
        saver.delete_thread("t")
        assert migrate(official.url, saver) == MoveReport(threads=1, deleted=1)


def test_a_checkpoint_that_arrives_late_is_moved(official: Official, saver: CheckpointSaver) -> None:
    """With an id below those that were moved: the clocks of two servers differ."""
    with official.open() as source:
        late = empty_checkpoint()
        location = step(source, "t", None, a=[1])
        source.put_writes(config("t", late["id"]), [("a", 2)], "task")  # Its writes come before it.
        assert migrate(official.url, saver).checkpoints == 1
        assert migrate(official.url, saver) == MoveReport(threads=1)
        source.put(location, late, {"source": "loop", "step": 1, "parents": {}}, {})
        moved = migrate(official.url, saver)
        assert (moved.checkpoints, moved.writes, moved.problems) == (1, 1, {})
        assert [plain(found) for found in everything(saver)] == [plain(found) for found in everything(source)]


def test_a_value_that_differs_is_reported_by_every_move(
    official: Official, saver: CheckpointSaver, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = OwnThreads.store

    def store_and_change(own: OwnThreads, part: Any) -> None:
        store(own, part)
        found = saver.get_tuple(config("t"))
        assert found is not None
        found.checkpoint["channel_values"]["a"] = ["changed"]
        saver.put(config("t"), found.checkpoint, found.metadata, found.checkpoint["channel_versions"])

    with official.open() as source:
        step(source, "t", None, a=["theirs"], b=[1])
        with monkeypatch.context() as patched:
            patched.setattr(OwnThreads, "store", store_and_change)
            moved = migrate(official.url, saver)
        assert (moved.checkpoints, list(moved.problems)) == (0, ["t"])
        assert "value of channel 'a'" in moved.problems["t"]
        assert migrate(official.url, saver) == moved
        saver.delete_thread("t")
        assert migrate(official.url, saver, threads=["t"]) == MoveReport(threads=1, checkpoints=1)
        assert migrate(official.url, saver) == MoveReport(threads=1)

        location = step(source, "u", None, a=[1])
        assert migrate(official.url, saver) == MoveReport(threads=2, checkpoints=1)
        source.put_writes(location, [("a", "theirs")], "task")
        saver.put_writes(location, [("a", "ours")], "task")
        moved = migrate(official.url, saver)
        assert "its writes differ" in moved.problems["u"]
        assert migrate(official.url, saver) == moved


def test_another_database_is_another_source(official: Official, tmp_path: Path, saver: CheckpointSaver) -> None:
    """After a rehearsal with a copy, and a deletion, the threads of the real one are moved."""
    rehearsal = Official("sqlite", f"sqlite:///{tmp_path / 'rehearsal.db'}")
    for one in (rehearsal, official):
        with one.open() as source:
            step(source, "t", None, a=[1])
        assert migrate(one.url, saver).checkpoints == 1
        saver.delete_thread("t")


def test_what_a_rollback_has_deleted_here_is_no_difference(official: Official, saver: CheckpointSaver) -> None:
    with official.open() as source:
        for text in ("one", "two"):
            talk(source, text)
    assert migrate(official.url, saver).problems == {}
    first = list(saver.history(config("t")))[3]
    saver.rollback("t", first.checkpoint_id)
    for _ in range(2):
        assert migrate(official.url, saver) == MoveReport(threads=1)
        assert len(list(saver.list(config("t")))) == 3
        talk(saver, "ours")
        saver.rollback("t", first.checkpoint_id)


def test_what_a_prune_has_deleted_in_the_source_is_no_difference(
    empty_postgres_url: str, saver: CheckpointSaver
) -> None:
    """LangGraph's saver takes the parent from a checkpoint that it keeps."""
    official = Official("postgres", empty_postgres_url)
    with official.open() as source:
        at = step(source, "t", step(source, "t", None, a=[1]), a=[2])
        source.put_writes(at, [(INTERRUPT, ["a question"])], "task")
        assert migrate(official.url, saver).problems == {}
        source.prune(["t"])
        source.put_writes(at, [(RESUME, ["an answer"])], "task")
        step(source, "t", at, a=[3])
        for checkpoints in (1, 0):
            moved = migrate(official.url, saver)
            assert (moved.checkpoints, moved.problems) == (checkpoints, {})
    assert [len(found.pending_writes or ()) for found in saver.list(config("t"))] == [0, 2, 0]


def test_a_question_that_was_answered_anew_for_another_branch(official: Official, saver: CheckpointSaver) -> None:
    with official.open() as source:
        asked = step(source, "t", None, a=[1])
        source.put_writes(asked, [(RESUME, "yes")], "task")
        step(source, "t", asked, a=[2])
        assert migrate(official.url, saver).problems == {}
        source.put_writes(asked, [(RESUME, "no")], "task")
        step(source, "t", asked, a=[3])
        moved = migrate(official.url, saver)
        assert (moved.checkpoints, moved.problems) == (1, {})
        assert [plain(found) for found in everything(saver)] == [plain(found) for found in everything(source)]
