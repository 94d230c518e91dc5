"""pydantic-deep's own tests of its stores, run with our stores."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tarfile
from importlib.metadata import version
from pathlib import Path

import pytest

from tests.stores import Store

pytest.importorskip("pydantic_deep", reason="no pydantic-deep: install the extra `pydantic-deep`")

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
    wanted = f"pydantic-deep=={version('pydantic-deep')}"
    # Its metadata needs hatchling, which is installed here.
    options = ["--quiet", "--no-deps", "--no-build-isolation", "--no-binary", ":all:", "--dest", str(folder)]
    done = subprocess.run(
        [sys.executable, "-m", "pip", "download", *options, wanted], check=False, capture_output=True, text=True
    )
    if done.returncode:
        pytest.skip(f"no source of {wanted}: {done.stderr[-500:]}")
    (archive,) = folder.glob("*.tar.gz")
    with tarfile.open(archive) as source:
        (member,) = [name for name in source.getnames() if name.partition("/")[2] == TESTS]
        file = source.extractfile(member)
        assert file is not None
        (folder / "test_checkpointing.py").write_bytes(file.read())
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
