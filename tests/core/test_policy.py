"""What a retention makes of a thread, and when it looks at the thread again."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from langgraph.checkpoint.base import BaseCheckpointSaver

from langgraph_checkpoint_custom.encoding.values import ValueCodec
from langgraph_checkpoint_custom.engine.operation import Offload, RoundTrip, drive
from langgraph_checkpoint_custom.model.filter import wanted
from langgraph_checkpoint_custom.model.outline import Removal, superseded
from langgraph_checkpoint_custom.model.records import Swept
from langgraph_checkpoint_custom.operations.sweep import Policy, Thread, fate, kept_threads
from langgraph_checkpoint_custom.sql.postgres_dialect import PostgresDialect
from tests.model.random_threads import random_thread

ALL = Policy(None, None, (), keep_waiting=True)
WANTED, OLD = Thread(is_wanted=True, is_labelled=False, age=50.0), 40.0


def test_the_name_of_a_policy_is_the_same_in_each_process() -> None:
    """Otherwise all threads were due after each start. Texts of `$in` are a set, whose order differs.

    It tells no value of the filter.
    """
    filters = {"user": {"$in": ["a", "b", "c", "d"]}, "source": "loop"}, {"source": "loop", "user": {"$in": [*"dcba"]}}
    (name,) = {ALL._replace(wanted=wanted(each)).name() for each in filters}
    assert name == '{"older_than": null, "keep_last": null, "keep_waiting": true, "filter": "7bdd577a03d19cb6"}'
    assert ALL.name() not in name


def test_the_figures_of_a_thread_are_added_without_copying_those_before() -> None:
    """A dry run adds the names of its threads one by one, and may have a million of them."""
    swept = Swept()
    names = swept.would_delete
    for name in ("a", "b"):
        swept.add(Swept(1, 1, 2, 100, would_delete=[("", name)]))
    assert (swept.threads, swept.deleted_checkpoints, swept.freed_bytes) == (2, 4, 200)
    assert swept.would_delete is names
    assert names == [("", "a"), ("", "b")]


@pytest.mark.parametrize(
    ("policy", "thread", "expected"),
    [
        (ALL, WANTED, (None, 100)),
        (ALL._replace(older_than=OLD), WANTED, (0, 40)),
        (ALL._replace(older_than=OLD), WANTED._replace(is_labelled=True), (1, 40)),
        (ALL._replace(older_than=OLD), WANTED._replace(age=10.0), (None, 30)),
        (ALL._replace(older_than=OLD), WANTED._replace(age=None), (None, 100)),
        (ALL._replace(older_than=OLD), WANTED._replace(is_wanted=False), (None, 40)),
        (ALL._replace(older_than=500.0, keep_last=3), WANTED, (3, 100)),
        (ALL._replace(older_than=OLD, keep_last=3), WANTED, (0, 40)),
        (ALL._replace(keep_last=3), WANTED._replace(is_wanted=False), (None, 100)),
        (ALL._replace(older_than=OLD), WANTED._replace(ttl=60.0, strategy="delete"), (None, 10)),
        (ALL, WANTED._replace(ttl=20.0, strategy="delete", is_labelled=True, is_wanted=False), (0, 20)),
        (ALL, WANTED._replace(ttl=20.0, strategy="keep_latest"), (1, 20)),
        (ALL, WANTED._replace(ttl=20.0, strategy="delete", is_waiting=True), (None, 20)),
        (ALL._replace(keep_waiting=False), WANTED._replace(ttl=20.0, strategy="delete", is_waiting=True), (0, 20)),
    ],
)
def test_what_becomes_of_a_thread(policy: Policy, thread: Thread, expected: tuple[int | None, float]) -> None:
    assert fate(policy, thread, 100.0) == expected


@settings(max_examples=300)
@given(st.integers(0, 1_000_000).map(Random), st.integers(1, 4))
def test_a_thread_stays_if_its_outline_says_so_whether_that_is_read_or_not(random: Random, keep: int) -> None:
    outline = random_thread(random).outline()
    newest = sorted((row for row in outline.rows.values() if not row.checkpoint_ns), key=lambda row: row.checkpoint_id)
    hidden = [row.hidden for row in newest[-keep - 1 :]]
    decides = max(outline.labels, default=None), len(outline.namespaces), None if any(hidden) else len(hidden) or None
    replies: dict[str, Any] = {
        "select_visit": [("", "", "", b"", "", "", "", b"", 0.0, None, None, *decides)],
        "select_outline": [*outline.rows.values()],
        "select_labels": [(name, *place) for name, place in outline.labels.items()],
        "select_sends": outline.sends,
    }

    def perform(request: RoundTrip | Offload) -> Any:
        if isinstance(request, Offload):
            return request.work()
        return request.reply([replies[statement.name] for statement in request.sent()])

    policy, codec = ALL._replace(keep_last=keep), ValueCodec(BaseCheckpointSaver.serde)
    kept = drive(kept_threads(PostgresDialect("langgraph_checkpoint"), codec, ["t"], policy, 0.0), perform)
    stays = bool(outline.rows) and not Removal(outline, superseded(outline, keep)).changes()
    assert [each.thread_id for each in kept] == ["t"] * stays
