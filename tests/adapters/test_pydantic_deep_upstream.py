"""pydantic-deep's own tests of its stores, run with our stores."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.downloads import suite_of
from tests.needs import need
from tests.stores import Store

need(find_spec("pydantic_deep"), "the extra pydantic-deep")

ROOT = Path(__file__).parents[2]
TESTS = "tests/test_checkpointing.py"
PASSED = 78
# They assert that the loaded object is the saved one. An object from a database never is.
IDENTITY = {
    "TestInMemoryCheckpointStore::test_save_and_get",
    "TestInMemoryCheckpointStore::test_get_by_label",
    "TestInMemoryCheckpointStore::test_get_by_label_skips_non_matching",
}


@pytest.fixture(scope="module")
def upstream(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The test file of the release that is installed, from where pip finds its source."""
    folder = tmp_path_factory.mktemp("upstream")
    theirs = suite_of(f"pydantic-deep=={version('pydantic-deep')}", folder)
    (theirs / TESTS).rename(folder / "test_checkpointing.py")
    (folder / "pytest.ini").write_text("[pytest]\nasyncio_mode = auto\nasyncio_default_fixture_loop_scope = function\n")
    return folder


def test_upstream_tests_pass_except_those_of_object_identity(store: Store, upstream: Path) -> None:
    with store.open() as saver:
        saver.setup()
    options = ["-q", "-rf", "-c", str(upstream / "pytest.ini"), "-p", "tests.adapters.upstream_deep"]
    options += ["-p", "no:randomly", "-p", "no:cacheprovider", "-p", "no:xdist"]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *options, str(upstream / "test_checkpointing.py")],
        check=False,
        capture_output=True,
        text=True,
        cwd=ROOT,
        env={**os.environ, "UPSTREAM_URL": store.url},
    )
    failed = set(re.findall(r"^FAILED [^:]*::(\S+)", done.stdout, re.MULTILINE))
    assert failed == IDENTITY, done.stdout + done.stderr
    assert f"{len(IDENTITY)} failed, {PASSED} passed" in done.stdout
    assert done.stdout.count("assert result is") >= len(IDENTITY), done.stdout
