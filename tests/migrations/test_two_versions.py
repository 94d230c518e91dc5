"""An older version of the package next to a newer one, on the same threads, during the migration and after it.

Both are wheels: of this version, and of this version with one more migration.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.behaviour.helpers import Database
from tests.stores import Store
from tests.wheels import TIMEOUT, Application, next_version, unpacked

# How many checkpoints an application stores before something else happens.
SOME = 20
# A migration that statements of this version do not survive.
RENAMES = "ALTER TABLE {}writes RENAME COLUMN task_path TO path_of_task;\n"

pytestmark = [pytest.mark.timeout(2 * TIMEOUT), pytest.mark.leaves_damage("the tables are of a version to come")]


@contextmanager
def started(package: Path, store: Store, *modes: str) -> Iterator[Application]:
    """A process of `application.py` with one version of the package."""
    application = Application(Path(__file__).with_name("application.py"), package, store.url, *modes)
    try:
        yield application
    finally:
        application.end(kill=True)


def last_line(application: Application) -> list[Any]:
    """What it has printed last, after its end."""
    assert application.end() == ""
    return application.lines[-1]


def checkpoints(application: Application) -> dict[tuple[str, str], Any]:
    """What was stored or read, by thread and id, after its end."""
    return {(thread_id, checkpoint_id): found for thread_id, checkpoint_id, found in application.lines[:-1]}


def done(package: Path, store: Store, *modes: str) -> dict[tuple[str, str], Any]:
    """The checkpoints of an application that has ended without an error."""
    with started(package, store, *modes) as application:
        assert last_line(application) == ["ended"]
    return checkpoints(application)


def test_both_versions_run_on_the_same_threads_before_and_after_a_restart(
    own_store: Store, this_version: Path, next_minor_version: Path
) -> None:
    with started(this_version, own_store, "set-up", "run") as older:
        older.wait_for_more(SOME)
        with started(next_minor_version, own_store, "set-up", "run") as newer:
            newer.wait_for_more(SOME)
            older.wait_for_more(SOME)
            older.stop()
            assert last_line(older) == ["ended"]
            with started(this_version, own_store, "set-up", "run") as restarted:
                restarted.wait_for_more(SOME)
                newer.wait_for_more(SOME)
                for each in (newer, restarted):
                    each.stop()
                assert [*map(last_line, (newer, restarted))] == [["ended"], ["ended"]]
    stored = checkpoints(older) | checkpoints(newer) | checkpoints(restarted)
    found = done(next_minor_version, own_store, "read", "maintain")
    assert {location: found.get(location) for location in stored} == stored
    assert done(this_version, own_store, "read", "maintain", "read") == found


def test_a_version_whose_statements_no_longer_fit_raises_an_error_that_says_why(
    own_store: Store, this_version: Path, tmp_path: Path
) -> None:
    (tmp_path / "source").mkdir()
    newer_version = unpacked(next_version(tmp_path / "source", RENAMES, oldest=2), tmp_path)
    with started(this_version, own_store, "set-up", "run") as older:
        older.wait_for_more(SOME)
        done(newer_version, own_store, "set-up")
        errors = last_line(older)[1:]
    with started(this_version, own_store, "read") as restarted:
        errors += last_line(restarted)[1:]
    assert {name for name, _ in errors} == {"SchemaTooNew"}, errors
    assert all("upgrade langgraph-checkpoint-custom" in message for _, message in errors)
    schema = "langgraph_checkpoint." if own_store.kind == "postgres" else ""
    there = Database(own_store).run(f"SELECT thread_id, checkpoint_id FROM {schema}checkpoints")
    assert checkpoints(older).keys() <= {(thread_id, checkpoint_id) for thread_id, checkpoint_id in there}
