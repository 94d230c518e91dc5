"""Space of deleted rows: a SQLite file that the saver has created gives it back, other files stay as they are.

That of the WAL file is given back in any file.
"""

from __future__ import annotations

import asyncio
import sqlite3
from contextlib import closing
from datetime import timedelta
from pathlib import Path

import pytest

from langgraph_checkpoint_custom import Retention, SqliteSaver
from langgraph_checkpoint_custom.drivers.sqlite_connections import KEPT_WAL
from langgraph_checkpoint_custom.operations.delete import KEEPS_FREE, STEP, give_back_pages
from tests.behaviour.helpers import checkpoint, config, metadata, noise
from tests.conftest import APIS

EVERYTHING = Retention(older_than=timedelta(days=1))


def fill(saver: SqliteSaver, threads: int = 60) -> None:
    """Store threads of about 20 pages each, which are old."""
    for number in range(threads):
        saver.put(config(f"t{number}"), checkpoint("1", {"a": noise(80_000)}), metadata(), {"a": "1"})


def pages(path: Path) -> tuple[int, int, int]:
    """The mode of the file, its pages, and how many of these are free."""
    with closing(sqlite3.connect(path)) as file:
        names = ("auto_vacuum", "page_count", "freelist_count")
        mode, count, free = (file.execute(f"PRAGMA {name}").fetchone()[0] for name in names)
    return mode, count, free


@pytest.mark.parametrize("api", APIS)
def test_a_sweep_gives_pages_back_but_those_that_are_used_next(tmp_path: Path, api: str) -> None:
    path = tmp_path / "new.db"
    with SqliteSaver(path, synchronous="OFF") as saver:
        fill(saver)
        mode, before, _ = pages(path)
        saver.sweep(EVERYTHING, dry_run=True)
        assert pages(path)[1] == before
        asyncio.run(saver.asweep(EVERYTHING)) if api == "async" else saver.sweep(EVERYTHING)
        _, after, free = pages(path)
        assert mode == 2
        assert before > 1_000
        assert after < before / 10
        assert free * KEEPS_FREE <= after
    assert path.stat().st_size == after * 4096


def test_a_step_frees_its_number_of_pages(tmp_path: Path) -> None:
    path = tmp_path / "new.db"
    with SqliteSaver(path, synchronous="OFF") as saver:
        fill(saver)
        for number in range(60):
            saver.delete_thread(f"t{number}")
        _, before, _ = pages(path)
        step = give_back_pages(saver.backend.dialect)
        assert saver.backend.driver.run(step)
        assert STEP <= before - pages(path)[1] <= STEP + 2  # And what says where the pages belong.
        while saver.backend.driver.run(step):
            pass
        assert pages(path)[1] < before / 10


@pytest.mark.parametrize("whose", ["an existing file", "a caller's connection"])
def test_files_that_the_saver_has_not_created_are_not_changed(tmp_path: Path, whose: str) -> None:
    path = tmp_path / "theirs.db"
    with closing(sqlite3.connect(path, check_same_thread=False)) as theirs:
        if whose == "an existing file":
            theirs.execute("CREATE TABLE notes (a)")
        with SqliteSaver(path if whose == "an existing file" else theirs, synchronous="OFF") as saver:
            fill(saver, 20)
            _, before, _ = pages(path)
            saver.sweep(EVERYTHING)
    mode, after, free = pages(path)
    assert (mode, after) == (0, before)
    assert free > 200


def test_a_wal_file_that_has_grown_during_a_read_becomes_small_again(tmp_path: Path) -> None:
    path = tmp_path / "new.db"
    wal = tmp_path / "new.db-wal"
    with SqliteSaver(path, synchronous="OFF") as saver:
        fill(saver, 1)
        with closing(sqlite3.connect(path)) as reader:
            reader.execute("BEGIN")
            reader.execute("SELECT count(*) FROM checkpoints").fetchall()
            fill(saver, KEPT_WAL // 80_000)
            assert wal.stat().st_size > KEPT_WAL
        fill(saver, 2)  # The first one moves the WAL into the file, the next one begins it anew.
        assert 0 < wal.stat().st_size <= KEPT_WAL
