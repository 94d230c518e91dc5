"""An older version of the package next to a newer one, on the same threads, during the migration and after it."""

from __future__ import annotations

import io
import json
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import pytest

from tests.behaviour.helpers import Database
from tests.needs import need
from tests.stores import Store

ROOT = Path(__file__).parents[2]
PACKAGE = "langgraph_checkpoint_custom"
# Seconds; anything that takes longer hangs.
TIMEOUT = 300
# How many checkpoints an application stores before something else happens.
SOME = 20
# A migration that does not affect older statements, and one that does.
ADDS = """
ALTER TABLE {}checkpoints ADD COLUMN note TEXT;
ALTER TABLE {}writes ADD COLUMN note TEXT NOT NULL DEFAULT '';
CREATE INDEX checkpoints_noted ON {}checkpoints (note);
"""
RENAMES = "ALTER TABLE {}writes RENAME COLUMN task_path TO path_of_task;\n"

pytestmark = [pytest.mark.timeout(2 * TIMEOUT), pytest.mark.leaves_damage("the tables are of a version to come")]


@pytest.fixture(scope="session")
def this_version(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the current package."""
    folder = tmp_path_factory.mktemp("this")
    shutil.copytree(ROOT / PACKAGE, folder / PACKAGE, ignore=shutil.ignore_patterns("__pycache__"))
    return folder


@pytest.fixture(scope="session")
def older_version(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the package as it was when the golden store was last written, from this repository's history."""
    try:
        commit = git("log", "-1", "--format=%H", "--", "tests/golden/0.1.0").decode().strip()
        archive = git("archive", "--format=zip", commit, PACKAGE)
    except (OSError, subprocess.CalledProcessError) as error:
        need(None, f"this repository's history, which has an older version: {error}")
    folder = tmp_path_factory.mktemp("older")
    with ZipFile(io.BytesIO(archive)) as files:
        files.extractall(folder)
    return folder


def git(*arguments: str) -> bytes:
    return subprocess.run(["git", "-C", str(ROOT), *arguments], check=True, capture_output=True).stdout


def with_migration(package: Path, folder: Path, text: str) -> Path:
    """A future version: the package with one more migration."""
    shutil.copytree(package, folder)
    for database, schema in (("postgres", "langgraph_checkpoint."), ("sqlite", "")):
        migrations = folder / PACKAGE / "migrations" / database
        number = len(list(migrations.glob("*.sql"))) + 1
        (migrations / f"{number:04}_more.sql").write_text(text.replace("{}", schema))
    return folder


class Application:
    """A process of `application.py` with one version of the package."""

    def __init__(self, package: Path, store: Store, mode: str) -> None:
        program = Path(__file__).with_name("application.py")
        self._process = subprocess.Popen(
            [sys.executable, str(program), str(package), store.url, mode],
            env=os.environ | {"PYTHONPATH": str(package)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        self._changed = threading.Condition()
        self._lines: list[list[Any]] = []
        self._ended = False
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            with self._changed:
                self._lines.append(json.loads(line))
                self._changed.notify_all()
        with self._changed:
            self._ended = True
            self._changed.notify_all()

    def wait_for_more(self) -> None:
        """Wait until some more checkpoints are stored."""
        with self._changed:
            enough = len(self._lines) + SOME
            assert self._changed.wait_for(lambda: self._ended or len(self._lines) >= enough, TIMEOUT), "nothing comes"
            assert not self._ended, self._lines[-1]

    def stop(self) -> None:
        """Let it end after its current runs."""
        assert self._process.stdin is not None
        self._process.stdin.write(b"\n")
        self._process.stdin.flush()

    def end(self) -> list[Any]:
        """Wait for its end; returns its last line."""
        assert self._process.wait(TIMEOUT) == 0
        self._reader.join()
        return self._lines[-1]

    def checkpoints(self) -> dict[tuple[str, str], Any]:
        """What was stored or read, by thread and id, after it has ended."""
        return {(thread_id, checkpoint_id): found for thread_id, checkpoint_id, found in self._lines[:-1]}

    def kill(self) -> None:
        self._process.kill()
        self._process.wait(TIMEOUT)
        self._reader.join()
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            pipe.close()


@contextmanager
def started(package: Path, store: Store, mode: str = "run") -> Iterator[Application]:
    application = Application(package, store, mode)
    try:
        yield application
    finally:
        application.kill()


def done(package: Path, store: Store, mode: str) -> Application:
    """An application that has ended without an error."""
    with started(package, store, mode) as application:
        assert application.end() == ["ended"]
    return application


@pytest.mark.parametrize("migration", [None, ADDS], ids=["same_tables", "migrated"])
def test_both_versions_run_on_the_same_threads_and_read_everything(
    own_store: Store, older_version: Path, this_version: Path, tmp_path: Path, migration: str | None
) -> None:
    newer_version = with_migration(this_version, tmp_path / "newer", migration) if migration else this_version
    done(older_version, own_store, "set-up")
    with started(older_version, own_store) as older:
        older.wait_for_more()
        done(newer_version, own_store, "set-up")
        with started(newer_version, own_store) as newer:
            newer.wait_for_more()
            older.wait_for_more()
            for each in (older, newer):
                each.stop()
            assert [older.end(), newer.end()] == [["ended"], ["ended"]]
    stored = older.checkpoints() | newer.checkpoints()
    found = done(newer_version, own_store, "read").checkpoints()
    assert {location: found.get(location) for location in stored} == stored
    if migration:
        with started(older_version, own_store, "read") as late:
            assert [name for name, _ in late.end()[1:]] == ["SchemaTooNew"]
    else:
        assert done(older_version, own_store, "read").checkpoints() == found


def test_a_version_whose_statements_no_longer_fit_raises_an_error_that_says_why(
    own_store: Store, this_version: Path, tmp_path: Path
) -> None:
    newer_version = with_migration(this_version, tmp_path / "newer", RENAMES)
    done(this_version, own_store, "set-up")
    with started(this_version, own_store) as older:
        older.wait_for_more()
        done(newer_version, own_store, "set-up")
        errors = older.end()[1:]
    assert {name for name, _ in errors} == {"SchemaTooNew"}, errors
    assert all("upgrade langgraph-checkpoint-custom" in message for _, message in errors)
    schema = "langgraph_checkpoint." if own_store.kind == "postgres" else ""
    there = Database(own_store).run(f"SELECT thread_id, checkpoint_id FROM {schema}checkpoints")
    assert older.checkpoints().keys() <= {(thread_id, checkpoint_id) for thread_id, checkpoint_id in there}
