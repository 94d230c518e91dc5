"""A label, a rollback or a deletion by name, and a prune of the same thread at the same time, on PostgreSQL."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from langgraph.checkpoint.conformance.test_utils import generate_config

from langgraph_checkpoint_custom import CheckpointLabelled, CheckpointNotFound, CheckpointSaver, PostgresSaver
from tests.drivers.test_maintenance_meets_runs import ConcurrentCall, complete, fill, held_open


def left(saver: CheckpointSaver) -> list[Any]:
    return [found.config for found in saver.list(generate_config("t"))]


@pytest.mark.parametrize("delta", [False, True], ids=["plain", "delta"])
def test_a_prune_waits_for_a_label_and_retains_its_checkpoint(postgres_url: str, delta: bool) -> None:
    with PostgresSaver(postgres_url) as saver:
        configs = fill(saver, delta=delta)
        with held_open(postgres_url) as other:
            other.label(configs[1], "label")
            prune = ConcurrentCall(lambda: saver.prune(["t"]))
            prune.wait_until_blocked(postgres_url)
        prune.join()
        assert left(saver) == [configs[3], configs[1]]
        assert saver.labels("t") == {"label": configs[1]}
        complete(saver)


@pytest.mark.parametrize("delta", [False, True], ids=["plain", "delta"])
def test_a_label_waits_for_a_prune_and_is_refused(postgres_url: str, delta: bool) -> None:
    with PostgresSaver(postgres_url) as saver:
        configs = fill(saver, delta=delta)
        with held_open(postgres_url) as other:
            other.prune(["t"])
            label = ConcurrentCall(lambda: saver.label(configs[1], "late"))
            label.wait_until_blocked(postgres_url)
        with pytest.raises(CheckpointNotFound):
            label.join()
        assert saver.labels("t") == {}
        assert left(saver) == [configs[3]]


BY_NAME: dict[str, Callable[[CheckpointSaver, list[Any]], Any]] = {
    "rollback": lambda saver, configs: saver.rollback("t", configs[1]["configurable"]["checkpoint_id"]),
    "delete_checkpoint": lambda saver, configs: saver.delete_checkpoint(configs[3]),
}


@pytest.mark.parametrize("name", BY_NAME)
@pytest.mark.parametrize("delta", [False, True], ids=["plain", "delta"])
def test_a_prune_after_a_deletion_retains_the_newest_remaining_checkpoint(
    postgres_url: str, name: str, delta: bool
) -> None:
    """The prune looks for the newest checkpoint after it has waited."""
    with PostgresSaver(postgres_url) as saver:
        configs = fill(saver, delta=delta)
        saver.label(configs[0], "first")
        with held_open(postgres_url) as other:
            BY_NAME[name](other, configs)
            prune = ConcurrentCall(lambda: saver.prune(["t"]))
            prune.wait_until_blocked(postgres_url)
        prune.join()
        newest = configs[1] if name == "rollback" else configs[2]
        assert left(saver) == [newest, configs[0]]
        complete(saver)


@pytest.mark.parametrize("name", BY_NAME)
def test_a_deletion_of_a_checkpoint_that_was_just_labelled_is_refused(postgres_url: str, name: str) -> None:
    with PostgresSaver(postgres_url) as saver:
        configs = fill(saver, delta=False)
        with held_open(postgres_url) as other:
            other.label(configs[3], "label")
            deletion = ConcurrentCall(lambda: BY_NAME[name](saver, configs))
            deletion.wait_until_blocked(postgres_url)
        with pytest.raises(CheckpointLabelled, match="'label'"):
            deletion.join()
        assert left(saver) == configs[::-1]
        complete(saver)
