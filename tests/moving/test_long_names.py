"""Threads with long names are moved to every database that can hold them; the others stay behind, and are reported."""

from __future__ import annotations

from pathlib import Path

import pytest

from langgraph_checkpoint_custom.tools.migration import migrate
from tests.behaviour.helpers import LONG, noise
from tests.moving.official import Official, config, everything, step
from tests.stores import Store

pytestmark = pytest.mark.usefixtures("changing_values_in_blobs")


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
            assert "store_part: PostgreSQL cannot have names of this length in an index" in problems["large"]
            assert '"checkpoints_pkey' in problems["nested"]  # On a cluster, the number of a shard follows.
            assert sorted(thread.thread_id for thread in target.threads()) == ["a", "join", "z"]
            found = target.get_tuple(config("join"))
            assert found is not None
            assert found.pending_writes == [("task", noise(3_000), "b")]
