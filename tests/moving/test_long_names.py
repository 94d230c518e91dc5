"""Threads with long names are moved to every database that can hold them; the others stay behind, and are reported."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from langgraph_checkpoint_custom import CheckpointSaver, open_saver
from langgraph_checkpoint_custom.tools.exchange import ExchangeReport, export_file, import_file, transfer
from langgraph_checkpoint_custom.tools.migration import migrate
from tests.behaviour.helpers import LONG, noise
from tests.behaviour.test_names import deep_nest, wide_join
from tests.moving.official import Official, config, everything, step
from tests.stores import Store

pytestmark = pytest.mark.usefixtures("changing_values_in_blobs")

COMPRESSIBLE = "name" * 5_000


@pytest.fixture
def source(tmp_path: Path) -> Iterator[CheckpointSaver]:
    """A saver on a SQLite file, which limits no names."""
    with open_saver(f"sqlite:///{tmp_path / 'source.db'}") as opened:
        yield opened


def threads_of(saver: CheckpointSaver) -> list[str]:
    return sorted(thread.thread_id for thread in saver.threads())


def test_a_thread_that_the_target_cannot_hold_is_a_problem(tmp_path: Path, store: Store) -> None:
    official = Official("sqlite", f"sqlite:///{tmp_path / 'official.db'}")
    with official.open() as source, store.open() as target:
        for thread_id in ("a", "z"):
            step(source, thread_id, None, a=[1])
        # PostgreSQL can hold this one: the value is part of the document, and the key of a write has no channel.
        join = step(source, "join", None, **{noise(3_000): ["b"]})
        source.put_writes(join, [(noise(3_000), "b")], "task")
        step(source, "large", None, **{noise(3_000): [LONG]})
        nested = config("nested")
        nested["configurable"]["checkpoint_ns"] = noise(3_000)
        step(source, "nested", nested, a=[1])
        problems = migrate(official.url, target).problems
        if store.kind == "sqlite":
            assert problems == {}
            assert len(everything(target)) == len(everything(source))
        else:
            assert sorted(problems) == ["large", "nested"]
            assert "put: PostgreSQL cannot have names of this length in an index" in problems["large"]
            assert "checkpoint_ns" in problems["nested"]
            assert threads_of(target) == ["a", "join", "z"]
            found = target.get_tuple(config("join"))
            assert found is not None
            assert found.pending_writes == [("task", noise(3_000), "b")]


def through_a_file(source: CheckpointSaver, target: CheckpointSaver, folder: Path) -> ExchangeReport:
    export_file(source, folder / "all.zst")
    return import_file(target, folder / "all.zst")


def directly(source: CheckpointSaver, target: CheckpointSaver, folder: Path) -> ExchangeReport:
    return transfer(source, target)


@pytest.mark.parametrize("move", [through_a_file, directly])
def test_long_names_are_exported_and_imported(
    source: CheckpointSaver, store: Store, tmp_path: Path, move: Callable[..., ExchangeReport]
) -> None:
    for number, make in enumerate((wide_join, deep_nest)):
        make().compile(source).invoke({"log": []}, {"configurable": {"thread_id": f"{number}"}})
    for thread_id, name in (("t", COMPRESSIBLE), ("too long", noise(3_000)), ("z", "short")):
        nested = config(thread_id)
        nested["configurable"]["checkpoint_ns"] = COMPRESSIBLE
        step(source, thread_id, nested, **{name: [LONG]})
        source.put_writes(step(source, thread_id, None, **{name: [LONG]}), [(name, 1)], "task")
    left = {"too long"} if store.kind == "postgres" else set()
    with store.open() as target:
        target.setup()
        moved = move(source, target, tmp_path)
        assert moved.problems.keys() == left
        if left:
            assert "PostgreSQL cannot have names of this length in an index" in moved.problems["too long"]
        assert threads_of(target) == sorted({"0", "1", "t", "too long", "z"} - left)
        expected = [found for found in everything(source) if found.config["configurable"]["thread_id"] not in left]
        assert everything(target) == expected
