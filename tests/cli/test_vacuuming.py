"""`vacuum`."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from langgraph_checkpoint_custom import SqliteSaver
from tests.behaviour.test_space import EVERYTHING, fill, pages
from tests.cli.conftest import Cli


@pytest.mark.parametrize("store", ["sqlite"], indirect=True)
def test_a_file_is_rewritten_and_gives_pages_back_from_then_on(cli: Cli, tmp_path: Path) -> None:
    path = tmp_path / "theirs.db"
    with closing(sqlite3.connect(path)) as theirs:
        theirs.execute("CREATE TABLE notes (a)")
    with SqliteSaver(path, synchronous="OFF") as saver:
        fill(saver)
        saver.sweep(EVERYTHING)
    mode, before, free = pages(path)
    assert mode == 0
    assert "use --yes" in cli.fail("vacuum", "--url", str(path), code=2)
    done = cli.json("vacuum", "--yes", "--url", str(path))
    mode, after, _ = pages(path)
    assert mode == 2
    assert before - free <= after <= before - free + 2  # With what says where the pages belong.
    assert (done["bytes_before"], done["bytes_after"]) == (before * 4096, after * 4096)
    assert done["seconds"] >= 0
    with SqliteSaver(path, synchronous="OFF") as saver:
        fill(saver)
        saver.sweep(EVERYTHING)
    assert pages(path)[1] < before / 10
    assert "Writes waited for" in cli("vacuum", "--yes", "--url", str(path))


@pytest.mark.parametrize("store", ["postgres"], indirect=True)
def test_postgresql_frees_space_by_itself(cli: Cli) -> None:
    assert "VACUUM FULL" in cli.fail("vacuum", "--yes")
