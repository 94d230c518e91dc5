"""CubeLoop's own tests, run with our stores.

They come from the source distribution of 0.14.1, the last one that has tests, and run with the installed version of
CubeLoop.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.downloads import suite_of
from tests.stores import Store

PLUGIN = Path(__file__).parent / "plugin"
# Tests that read the connection or the tables of CubeLoop's own SQLite store.
LOOK_INSIDE = {
    "tests/checkpointer/test_save_pending_request_run_id.py": [
        "test_sqlite_migration_from_v2_table_adds_run_id_column"  # Creates an old table of theirs first.
    ],
    "tests/checkpointer/test_sqlite.py": [  # Damage a row by hand.
        "TestCheckpointCorruption::test_corrupt_json_row_raises_typed",
        "TestCheckpointCorruption::test_unknown_role_raises_typed",
    ],
    "tests/checkpointer/test_sqlite_concurrency.py": [
        "test_lock_timeout_surfaces_as_typed_error"  # Sets its busy_timeout.
    ],
    "tests/checkpointer/test_sqlite_runs.py": [
        "test_completion_seq_monotonic_per_thread"  # Selects from the table; that of the memory store passes.
    ],
    "tests/checkpointer/test_sqlite_schema.py": [
        "test_runs_table_and_columns_exist_after_init",
        "test_busy_timeout_is_set",
    ],
    "tests/hitl/test_checkpointer_pending_request.py": [
        "test_sqlite_create_table_idempotent"  # Creates the table again.
    ],
}
# How many tests make a store and pass with CubeLoop's stores.
TESTS = 168


# Plugins that are installed for other tests are switched off. These tests share an event loop, and so a pool.
OPTIONS = ["-p", "swapped_stores", "-p", "no:xdist", "-p", "no:randomly", "-p", "no:cacheprovider"]
OPTIONS += [f"--override-ini=asyncio_default_{what}_loop_scope=session" for what in ("test", "fixture")]


@pytest.mark.timeout(600)
def test_their_own_tests_pass(store: Store, tmp_path: Path) -> None:
    theirs = suite_of("cubeloop==0.14.1", tmp_path)
    paths = [
        str(path.relative_to(theirs))
        for path in sorted(theirs.glob("tests/**/test_*.py"))
        if re.search("(Memory|SQLite)Checkpointer", path.read_text("utf-8"))
    ]
    report = tmp_path / "report.json"
    variables = {
        "PYTHONPATH": os.pathsep.join(filter(None, [str(PLUGIN), os.environ.get("PYTHONPATH")])),
        "SWAPPED_STORES_URL": store.url,
        "SWAPPED_STORES_REPORT": str(report),
    }
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", *OPTIONS, *paths],
        check=False,
        capture_output=True,
        text=True,
        cwd=theirs,
        env={key: value for key, value in os.environ.items() if not key.startswith("PYTEST_")} | variables,
    )
    assert report.exists(), done.stdout + done.stderr
    outcomes = json.loads(report.read_text("utf-8"))
    wrong = {test: text for test, text in outcomes.items() if text is not None}
    expected = {f"{path}::{name}" for path, names in LOOK_INSIDE.items() for name in names}
    assert wrong.keys() == expected, "\n".join(text for test, text in wrong.items() if test not in expected)
    assert all("object has no attribute '_db'" in text for text in wrong.values())
    assert len(outcomes) == TESTS
