"""What a retention makes of a thread, and when it looks at the thread again."""

from __future__ import annotations

import pytest

from langgraph_checkpoint_custom.model.filter import wanted
from langgraph_checkpoint_custom.operations.sweep import Policy, Thread, fate

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
