"""The fixtures of these tests."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from langgraph_checkpoint_custom import SqliteSaver
from tests.faults.conftest import watcher as watcher


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Where a SQLite file may be."""
    return tmp_path / "checkpoints.db"


@pytest.fixture
def saver(path: Path) -> Iterator[SqliteSaver]:
    """A saver on that file, which waits long for other processes."""
    with SqliteSaver(path, busy_timeout=1000) as opened:
        opened.setup()
        yield opened
