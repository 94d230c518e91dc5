"""Whatever our saver has goes back to LangGraph's own savers, which continue the threads."""

from __future__ import annotations

import math
import sqlite3
import tracemalloc
from contextlib import closing
from pathlib import Path
from random import Random
from typing import Any

import pytest
from langgraph.checkpoint.base import empty_checkpoint
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from langgraph.types import Command

from langgraph_checkpoint_custom import CheckpointNotFound, CheckpointSaver, ConfigError, SchemaForeign, StorageError
from langgraph_checkpoint_custom.adapters.key_values import KeyValueStore
from langgraph_checkpoint_custom.tools.migration import READ, MoveReport, migrate, migrate_back
from langgraph_checkpoint_custom.tools.own import OwnThreads
from tests.moving.application import graph_of, say
from tests.moving.official import Official, config, everything, plain, play, step
from tests.moving.test_migrate import CIPHER
from tests.stores import Store


def test_everything_goes_back_and_the_official_saver_reads_it(official: Official, store: Store) -> None:
    """Also threads with a `DeltaChannel`, whose values are rebuilt from the same writes."""
    with store.open() as ours:
        threads = play(ours)
        moved = migrate_back(ours, official.url)
        with official.open() as theirs:
            kept = [one for one in everything(ours) if one.config["configurable"]["thread_id"] not in moved.problems]
            read = [plain(found) for found in everything(theirs)]
            expected = [plain(found) for found in kept]
            if official.kind == "postgres":  # A value of a version is in each checkpoint with that version there.
                for there, here in zip(read, expected, strict=True):
                    for channel in here["metadata"].get("counters_since_delta_snapshot") or ():
                        if channel not in here["checkpoint"]["channel_values"]:
                            there["checkpoint"]["channel_values"].pop(channel, None)
            assert read == expected
            assert moved.threads == len(threads)
            assert moved.checkpoints == len(kept) > 100
            deltas = 0
            for found in kept:
                channels = list(found.metadata.get("counters_since_delta_snapshot") or ())
                if channels and (official.kind == "sqlite" or "becomes" not in str(found.config)):
                    deltas += 1
                    history = ours.get_delta_channel_history(config=found.config, channels=channels)
                    assert theirs.get_delta_channel_history(config=found.config, channels=channels) == history
            assert deltas > 10
        assert moved.problems == {}


def test_the_official_saver_continues_every_thread(official: Official, saver: CheckpointSaver) -> None:
    """One that was there before, one that is new, one that waits for an answer."""
    with official.open() as theirs:
        say(graph_of(theirs), "old", "one")
    assert migrate(official.url, saver).problems == {}
    ours = graph_of(saver)
    say(ours, "old", "two")
    say(ours, "new", "three")
    say(ours, "asked", "ask")
    states = {thread_id: ours.get_state(config(thread_id)) for thread_id in ("old", "new", "asked")}
    moved = migrate_back(saver, official.url)
    assert moved.problems == {}
    assert migrate_back(saver, official.url) == MoveReport(threads=3)
    with official.open() as theirs:
        graph = graph_of(theirs)
        for thread_id, state in states.items():
            found = graph.get_state(config(thread_id))
            assert (found.values, found.next, found.interrupts) == (state.values, state.next, state.interrupts)
            assert len(list(graph.get_state_history(config(thread_id)))) == len(
                list(ours.get_state_history(config(thread_id)))
            )
        assert say(graph, "old", "four")[:4] == ["one", "quick: one", "slow: one", "two"]
        assert graph.invoke(Command(resume="yes"), config("asked"))["log"] == ["ask", "quick: ask", "slow: yes"]
        expected = {thread_id: graph.get_state(config(thread_id)).values for thread_id in states}
    assert migrate(official.url, saver).problems == {}  # And here again.
    assert {thread_id: ours.get_state(config(thread_id)).values for thread_id in states} == expected
    assert "went on in both" not in str(migrate_back(saver, official.url).problems)


def test_what_was_deleted_at_one_side_does_not_return(official: Official, saver: CheckpointSaver) -> None:
    graph = graph_of(saver)
    for thread_id in ("kept", "erased there", "erased here"):
        say(graph, thread_id, "one")
    assert migrate_back(saver, official.url).problems == {}
    with official.open() as theirs:
        theirs.delete_thread("erased there")
    saver.delete_thread("erased here")
    moved = migrate_back(saver, official.url)
    assert (moved.deleted, moved.checkpoints, moved.writes) == (1, 0, 0)
    assert moved.problems.keys() == {"erased here"}
    assert moved.problems["erased here"].endswith("delete it there (delete_thread of LangGraph's saver)")
    assert migrate_back(saver, official.url, threads=["erased there"]).checkpoints == 3
    with pytest.raises(CheckpointNotFound, match="erased here"):
        migrate_back(saver, official.url, threads=["erased here"])


def test_what_a_run_stores_meanwhile_is_no_difference(
    official: Official, saver: CheckpointSaver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A write is stored each time that the source was read."""
    location = step(saver, "t", None, a=[1])
    assert migrate_back(saver, official.url).problems == {}
    saver.put_writes(location, [("a", 0)], "0")
    tasks: list[str] = []

    def read_and_write(own: OwnThreads, *arguments: Any) -> Any:
        found = read(own, *arguments)
        tasks.append(f"{len(tasks) + 1}")
        saver.put_writes(location, [("a", 1)], tasks[-1])
        return found

    read = OwnThreads.read
    with monkeypatch.context() as patched:
        patched.setattr(OwnThreads, "read", read_and_write)
        assert migrate_back(saver, official.url) == MoveReport(threads=1, writes=1)
    assert tasks
    assert migrate_back(saver, official.url).problems == {}
    with official.open() as theirs:
        assert [plain(found) for found in everything(theirs)] == [plain(found) for found in everything(saver)]


def test_a_new_file_of_the_same_name_gets_everything(tmp_path: Path, saver: CheckpointSaver) -> None:
    official = Official("sqlite", f"sqlite:///{tmp_path / 'official.db'}")
    step(saver, "t", None, a=[1])
    assert migrate_back(saver, official.url).checkpoints == 1
    for file in tmp_path.glob("official.db*"):
        file.unlink()
    assert migrate_back(saver, official.url).checkpoints == 1


def test_threads_of_tenants_and_of_other_frameworks_are_left_out(official: Official, saver: CheckpointSaver) -> None:
    KeyValueStore(saver).put(["notes"], "a", {"text": "b"})
    step(saver, "nobody's", None, a=[1])
    acme = saver.for_tenant("acme")
    step(acme, "theirs", None, a=[1])
    assert migrate_back(saver, official.url).threads == 1
    assert migrate_back(acme, official.url).problems == {}
    with official.open() as theirs:
        assert {one.config["configurable"]["thread_id"] for one in everything(theirs)} == {"nobody's", "theirs"}


def test_a_thread_of_many_checkpoints_is_not_held_in_memory(official: Official, saver: CheckpointSaver) -> None:
    """Both ways; of 200 checkpoints of 80 KB, a few are in memory."""
    location = None
    for number in range(200):
        location = step(saver, "long", location, text=[f"{number:04}" * 20_000])

    def back() -> MoveReport:
        return migrate_back(saver, official.url)

    def here() -> MoveReport:
        return migrate(official.url, saver, threads=["long"])

    for move in (back, here):
        tracemalloc.start()
        moved = move()
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert (moved.checkpoints, moved.problems) == (200, {})
        assert peak < 8_000_000
        saver.delete_thread("long")


@pytest.mark.parametrize("note", ["a lone surrogate \ud800", b"bytes"], ids=["surrogate", "bytes"])
def test_a_thread_that_cannot_be_stored_there_is_not_stored_at_all(
    official: Official, saver: CheckpointSaver, note: Any
) -> None:
    """Although many of its checkpoints could be, in parts before; the official savers' metadata is JSON."""
    location = None
    for _ in range(READ + 1):
        location = step(saver, "bad", location, a=[1])
    metadata: Any = {"source": "loop", "step": 0, "parents": {}, "note": note}
    saver.put(location or {}, empty_checkpoint(), metadata, {})
    step(saver, "fine", None, a=[1])
    moved = migrate_back(saver, official.url)
    assert (moved.checkpoints, list(moved.problems)) == (1, ["bad"])
    with official.open() as theirs:
        assert {one.config["configurable"]["thread_id"] for one in everything(theirs)} == {"fine"}


def test_values_that_are_no_json_go_back(official: Official, saver: CheckpointSaver) -> None:
    """Also to PostgreSQL, where the official saver cannot store a checkpoint with such a value, but reads it."""
    values = {"inf": math.inf, "less": -math.inf, "nul": "a\0b", "in a list": [math.inf, "a\0b"]}
    step(saver, "t", step(saver, "t", None, **values), nan=math.nan)
    assert migrate_back(saver, official.url).problems == {}
    with official.open() as theirs:
        newest, first = theirs.list(config("t"))
    assert first.checkpoint["channel_values"] == values
    assert math.isnan(newest.checkpoint["channel_values"]["nan"])


def test_values_are_encrypted_with_the_key_of_the_target(official: Official, saver: CheckpointSaver) -> None:
    saver.put_writes(step(saver, "t", None, a=["a secret"], b=1), [("a", ["another"])], "task", "a path")
    assert migrate_back(saver, official.url, serde=CIPHER).problems == {}
    with official.open(CIPHER) as theirs:
        assert [plain(found) for found in everything(theirs)] == [plain(found) for found in everything(saver)]


def test_encrypted_values_are_not_decrypted_by_default(official: Official, store: Store) -> None:
    with store.open(serde=CIPHER) as saver:
        step(saver, "t", None, a=["a secret"])
        with pytest.raises(ConfigError, match="would be readable in LangGraph's tables: pass serde="):
            migrate_back(saver, official.url)
        with official.open() as theirs:
            assert everything(theirs) == []
        assert migrate_back(saver, official.url, serde=JsonPlusSerializer()).problems == {}
        with official.open() as theirs:
            assert [plain(found) for found in everything(theirs)] == [plain(found) for found in everything(saver)]


def test_a_tuple_is_a_list_for_a_strict_serializer_as_in_the_official_savers(
    official: Official, saver: CheckpointSaver
) -> None:
    """LangGraph's serializer knows no `builtins.tuple`, as which a tuple is stored here."""
    step(saver, "t", None, a=(1, (2, [3])))
    assert migrate_back(saver, official.url).problems == {}
    strict = JsonPlusSerializer(allowed_msgpack_modules=None)
    for serde, expected in ((None, (1, (2, [3]))), (strict, [1, [2, [3]]])):
        with official.open(serde) as theirs:
            found = theirs.get_tuple(config("t"))
            assert found is not None
            assert found.checkpoint["channel_values"]["a"] == expected


def test_a_thread_that_was_copied_here_because_it_went_on_is_copied_back_as_well(
    official: Official, saver: CheckpointSaver
) -> None:
    """The official tables still have their own thread of this id, which nothing overwrites."""
    with official.open() as theirs:
        say(graph_of(theirs), "t", "one")
        migrate(official.url, saver)
        say(graph_of(theirs), "t", "theirs")
        say(graph_of(saver), "t", "ours")
        assert migrate(official.url, saver, diverged="copy").problems == {}
        before = everything(theirs)
        assert "it went on in both databases" in migrate_back(saver, official.url).problems["t"]
        assert everything(theirs) == before
        options: list[Any] = ["copy", "report", "copy"]
        for diverged in options:
            assert migrate_back(saver, official.url, diverged=diverged).problems == {}
            assert migrate(official.url, saver, diverged=diverged).problems == {}
        found = {one.config["configurable"]["thread_id"] for one in everything(theirs)}
        last = {each: graph_of(theirs).get_state(config(each)).values["log"][-1] for each in found}
        assert last == {"t": "slow: theirs", "t-custom": "slow: ours"}  # "t-official" was "t", and is not moved.
        assert {one.thread_id for one in saver.threads()} == {"t", "t-official"}


def test_numbers_that_json_changes_go_back(official: Official, saver: CheckpointSaver) -> None:
    values = {"large": 1e16, "larger": 1.5e300, "zero": -0.0, "small": 5e-324, "whole": 1e15, "int": 10**18}
    step(saver, "t", None, **values)
    assert migrate_back(saver, official.url).problems == {}
    with official.open() as theirs:
        (found,) = everything(theirs)
    returned = found.checkpoint["channel_values"]
    assert {name: repr(returned[name]) for name in returned} == {name: repr(values[name]) for name in values}


def test_a_value_of_another_type_does_not_go_to_sqlite(tmp_path: Path, store: Store) -> None:
    """There a checkpoint is one value of one type."""
    serde = JsonPlusSerializer(pickle_fallback=True)
    with store.open(serde=serde) as saver:
        step(saver, "t", None, a=Random(1), b=["x" * 20_000])
        step(saver, "u", None, a=1)
        moved = migrate_back(saver, f"sqlite:///{tmp_path / 'official.db'}")
    assert (moved.checkpoints, list(moved.problems)) == (1, ["t"])
    assert "stored as pickle" in moved.problems["t"]


def test_tables_of_another_program_are_not_changed(tmp_path: Path, saver: CheckpointSaver) -> None:
    step(saver, "t", None, a=1)
    with closing(sqlite3.connect(tmp_path / "theirs.db")) as file:
        file.execute("CREATE TABLE checkpoints (id)")
    before = (tmp_path / "theirs.db").read_bytes()
    with pytest.raises(SchemaForeign):
        migrate_back(saver, f"sqlite:///{tmp_path / 'theirs.db'}")
    assert (tmp_path / "theirs.db").read_bytes() == before


def test_an_error_about_the_target_does_not_name_the_source(saver: CheckpointSaver) -> None:
    with pytest.raises(StorageError, match="no connection to LangGraph's tables"):
        migrate_back(saver, "postgresql://localhost:1/nowhere")
