"""Databases for official savers."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.moving.official import Official


@pytest.fixture(params=["sqlite", "postgres"])
def official(request: pytest.FixtureRequest, tmp_path: Path) -> Official:
    """An empty database for an official saver, once for each type."""
    if request.param == "sqlite":
        return Official("sqlite", f"sqlite:///{tmp_path / 'official.db'}")
    return Official("postgres", request.getfixturevalue("empty_postgres_url"))
