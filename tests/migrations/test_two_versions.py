"""An older version of the package next to a newer one, on the same threads, during the migration and after it.

Both are wheels: of this version, and of this version with one more migration.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.behaviour.helpers import Database
from tests.stores import Store
from tests.wheels import next_version, unpacked

# Seconds; anything that takes longer hangs.
TIMEOUT = 300
# How many checkpoints an application stores before something else happens.
SOME = 20
# A migration that statements of this version do not survive.
RENAMES = "ALTER TABLE {}writes RENAME COLUMN task_path TO path_of_task;\n"

pytestmark = [pytest.mark.timeout(2 * TIMEOUT), pytest.mark.leaves_damage("the tables are of a version to come")]


class Application:
    """A process of `application.py` with one version of the package."""

    def __init__(self, package: Path, store: Store, *modes: str) -> None:
        program = Path(__file__).with_name("application.py")
        self._process = subprocess.Popen(
            [sys.executable, str(program), str(package), store.url, *modes],
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
def started(package: Path, store: Store, *modes: str) -> Iterator[Application]:
    application = Application(package, store, *modes)
    try:
        yield application
    finally:
        application.kill()


def done(package: Path, store: Store, *modes: str) -> Application:
    """An application that has ended without an error."""
    with started(package, store, *modes) as application:
        assert application.end() == ["ended"]
    return application


def test_both_versions_run_on_the_same_threads_before_and_after_a_restart(
    own_store: Store, this_version: Path, next_minor_version: Path
) -> None:
    with started(this_version, own_store, "set-up", "run") as older:
        older.wait_for_more()
        with started(next_minor_version, own_store, "set-up", "run") as newer:
            newer.wait_for_more()
            older.wait_for_more()
            older.stop()
            assert older.end() == ["ended"]
            with started(this_version, own_store, "set-up", "run") as restarted:
                restarted.wait_for_more()
                newer.wait_for_more()
                for each in (newer, restarted):
                    each.stop()
                assert [newer.end(), restarted.end()] == [["ended"], ["ended"]]
    stored = older.checkpoints() | newer.checkpoints() | restarted.checkpoints()
    found = done(next_minor_version, own_store, "read", "maintain").checkpoints()
    assert {location: found.get(location) for location in stored} == stored
    assert done(this_version, own_store, "read", "maintain", "read").checkpoints() == found


def test_a_version_whose_statements_no_longer_fit_raises_an_error_that_says_why(
    own_store: Store, this_version: Path, tmp_path: Path
) -> None:
    (tmp_path / "source").mkdir()
    newer_version = unpacked(next_version(tmp_path / "source", RENAMES, oldest=2), tmp_path)
    with started(this_version, own_store, "set-up", "run") as older:
        older.wait_for_more()
        done(newer_version, own_store, "set-up")
        errors = older.end()[1:]
    with started(this_version, own_store, "read") as restarted:
        errors += restarted.end()[1:]
    assert {name for name, _ in errors} == {"SchemaTooNew"}, errors
    assert all("upgrade langgraph-checkpoint-custom" in message for _, message in errors)
    schema = "langgraph_checkpoint." if own_store.kind == "postgres" else ""
    there = Database(own_store).run(f"SELECT thread_id, checkpoint_id FROM {schema}checkpoints")
    assert older.checkpoints().keys() <= {(thread_id, checkpoint_id) for thread_id, checkpoint_id in there}
