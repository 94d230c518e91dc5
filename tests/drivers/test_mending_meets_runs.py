"""A run that refers to a value that nobody names, and a `doctor --fix` that deletes it, at the same time.

As in `test_maintenance_meets_runs.py`, both orders are made certain on PostgreSQL.
"""

from __future__ import annotations

import psycopg
from langchain_core.runnables import RunnableConfig

from langgraph_checkpoint_custom import CheckpointSaver, PostgresSaver
from langgraph_checkpoint_custom.operations.doctor import TABLES, Finding, look, repair
from tests.drivers.test_maintenance_meets_runs import BIG, Meanwhile, fill, fork, held_open


def with_a_value_of_nobody(saver: CheckpointSaver, url: str) -> tuple[RunnableConfig, list[Finding]]:
    """What a run goes on from, though somebody has deleted its row by hand, and what `doctor` finds then."""
    configs = fill(saver, delta=False)
    gone = [config["configurable"]["checkpoint_id"] for config in configs[:2]]
    with psycopg.connect(url) as server:
        server.execute("DELETE FROM langgraph_checkpoint.checkpoints WHERE checkpoint_id = ANY(%s)", [gone])
    blobs = next(table for table in TABLES if table.name == "blobs")
    findings = list(saver._driver.run(look(saver._dialect, blobs, blobs.first)).findings)
    assert [(one.check, one.names) for one in findings] == [("value of nobody", ["big", "0"])]
    return configs[1], findings


def check(saver: CheckpointSaver, stored: RunnableConfig) -> None:
    found = saver.get_tuple(stored)
    assert found is not None
    assert found.checkpoint["channel_values"] == {"big": [*BIG, "0"]}


def test_a_run_stores_a_value_again_that_is_being_deleted(postgres_url: str) -> None:
    with PostgresSaver(postgres_url) as saver:
        parent, findings = with_a_value_of_nobody(saver, postgres_url)
        with held_open(postgres_url) as other:
            assert other._driver.run(repair(other._dialect, findings)) == 1
            run = Meanwhile(lambda: fork(saver, parent, delta=False))
            run.wait_until_blocked(postgres_url)
        check(saver, run.join())


def test_a_value_stays_that_a_run_has_just_named(postgres_url: str) -> None:
    with PostgresSaver(postgres_url) as saver:
        parent, findings = with_a_value_of_nobody(saver, postgres_url)
        with held_open(postgres_url) as other:
            stored = fork(other, parent, delta=False)
            mending = Meanwhile(lambda: saver._driver.run(repair(saver._dialect, findings)))
            mending.wait_until_blocked(postgres_url)
        assert mending.join() == 0
        check(saver, stored)
