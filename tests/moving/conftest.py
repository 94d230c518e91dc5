"""Databases for official savers, and others to which threads are moved."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from langgraph_checkpoint_custom import CheckpointSaver, OperationEvent, open_saver
from tests.moving.official import Official


@pytest.fixture(params=["sqlite", "postgres"])
def official(request: pytest.FixtureRequest, tmp_path: Path) -> Official:
    """An empty database for an official saver, once for each type."""
    if request.param == "sqlite":
        return Official("sqlite", f"sqlite:///{tmp_path / 'official.db'}")
    return Official("postgres", request.getfixturevalue("empty_postgres_url"))


@pytest.fixture(params=["sqlite", "postgres"])
def other_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Another empty database, once for each type."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'other.db'}"
    return str(request.getfixturevalue("own_postgres_url"))


@pytest.fixture
def events() -> list[OperationEvent]:
    """The operations of `other`."""
    return []


@pytest.fixture
def other(other_url: str, events: list[OperationEvent]) -> Iterator[CheckpointSaver]:
    """A saver on another empty database."""
    with open_saver(other_url, on_operation=events.append) as opened:
        opened.setup()
        yield opened
