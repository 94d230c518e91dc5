"""A run that references an unreferenced value, and a concurrent `doctor --fix` that deletes it.

As in `test_maintenance_meets_runs.py`, both orders are forced on PostgreSQL.
"""

from __future__ import annotations

import psycopg
from langchain_core.runnables import RunnableConfig

from langgraph_checkpoint_custom import CheckpointSaver, PostgresSaver
from langgraph_checkpoint_custom.operations.doctor import look, repair
from tests.drivers.test_maintenance_meets_runs import BIG, ConcurrentCall, fill, fork, held_open


def with_an_unreferenced_value(saver: CheckpointSaver, url: str) -> RunnableConfig:
    """A parent whose rows were deleted by hand, but not the value."""
    configs = fill(saver, delta=False)
    deleted = [config["configurable"]["checkpoint_id"] for config in configs[:2]]
    with psycopg.connect(url) as server:
        for table in ("checkpoints", "writes"):
            server.execute(f"DELETE FROM langgraph_checkpoint.{table} WHERE checkpoint_id = ANY(%s)", [deleted])
    found = saver.backend.driver.run(look(saver.backend.dialect, saver.backend.dialect.only("t")))
    unused = [(one.check, one.names) for one in found.findings if one.check.startswith("unused")]
    assert unused == [("unused value", ["big", "0"])]
    return configs[1]


def check(saver: CheckpointSaver, stored: RunnableConfig) -> None:
    found = saver.get_tuple(stored)
    assert found is not None
    assert found.checkpoint["channel_values"] == {"big": [*BIG, "0"]}


def test_a_run_stores_a_value_again_that_is_being_deleted(postgres_url: str) -> None:
    with PostgresSaver(postgres_url) as saver:
        parent = with_an_unreferenced_value(saver, postgres_url)
        with held_open(postgres_url) as other:
            assert other.backend.driver.run(repair(other.backend.dialect, "t")) == 1
            run = ConcurrentCall(lambda: fork(saver, parent, delta=False))
            run.wait_until_blocked(postgres_url)
        check(saver, run.join())


def test_a_value_that_a_run_has_just_referenced_is_retained(postgres_url: str) -> None:
    with PostgresSaver(postgres_url) as saver:
        parent = with_an_unreferenced_value(saver, postgres_url)
        with held_open(postgres_url) as other:
            stored = fork(other, parent, delta=False)
            repairing = ConcurrentCall(lambda: saver.backend.driver.run(repair(saver.backend.dialect, "t")))
            repairing.wait_until_blocked(postgres_url)
        assert repairing.join() == 0
        check(saver, stored)
