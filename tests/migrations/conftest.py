"""This version, and one that is still to come, as they are installed: two folders, each with an unpacked wheel."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.wheels import ROOT, next_version, unpacked

# A migration as those of 1.x have to be: statements of this version do not notice it.
ADDS = """
ALTER TABLE {}checkpoints ADD COLUMN note TEXT;
ALTER TABLE {}blobs ADD COLUMN note TEXT;
ALTER TABLE {}writes ADD COLUMN note TEXT NOT NULL DEFAULT '';
ALTER TABLE {}labels ADD COLUMN note TEXT;
ALTER TABLE {}threads ADD COLUMN note TEXT;
CREATE TABLE {}notes (id INTEGER PRIMARY KEY, note TEXT);
CREATE INDEX checkpoints_noted ON {}checkpoints (note);
"""


@pytest.fixture(scope="session")
def this_version(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel of this version."""
    return unpacked(ROOT, tmp_path_factory.mktemp("this"))


@pytest.fixture(scope="session")
def next_minor_version(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel of a version with one more migration, which lets this one go on."""
    source = next_version(tmp_path_factory.mktemp("source"), ADDS, oldest=1)
    return unpacked(source, tmp_path_factory.mktemp("next"))
