"""Channel versions increase as text, and two branches never share one."""

from __future__ import annotations

import pytest
from langgraph.checkpoint.memory import InMemorySaver

from langgraph_checkpoint_custom import CheckpointSaver, SqliteSaver


@pytest.fixture
def saver() -> CheckpointSaver:
    return SqliteSaver(":memory:")


def test_versions_increase_as_text(saver: CheckpointSaver) -> None:
    version = saver.get_next_version(None, None)
    for _ in range(1100):  # Past 10, 100 and 1000.
        following = saver.get_next_version(version, None)
        assert following > version
        version = following


def test_two_branches_never_share_a_version(saver: CheckpointSaver) -> None:
    current = saver.get_next_version(None, None)
    branches = {saver.get_next_version(current, None) for _ in range(1000)}
    assert len(branches) == 1000
    assert len({saver.get_next_version(None, None) for _ in range(1000)}) == 1000


def test_versions_continue_from_those_of_other_savers(saver: CheckpointSaver) -> None:
    """As in a thread that was moved here: the official savers' texts, and plain numbers."""
    memory = InMemorySaver()
    theirs = memory.get_next_version(memory.get_next_version(None, None), None)
    ours = saver.get_next_version(theirs, None)
    assert ours > theirs
    assert memory.get_next_version(ours, None) > ours
    number: str = 7  # type: ignore[assignment]
    assert saver.get_next_version(number, None).partition(".")[0] == f"{8:032d}"
