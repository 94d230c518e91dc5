"""Tests that lack something are skipped loudly: a warning that is no error, one list at the end, and their names."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
TESTS = """
import shutil
import pytest
from tests.needs import need

@pytest.mark.parametrize("text", ["one", "and another"])
def test_through_pgbouncer(text):
    assert need(shutil.which("pgbouncer"), "PgBouncer: install it").endswith("/pgbouncer")

def test_without_it():
    pass
"""
NEEDY = """
from tests.needs import need
need({found}, "a framework: install the extra")

def test_of_the_framework():
    pass
"""
FILES = ("test_framework.py", "test_other.py", "package/__init__.py")
LIST = """\
PgBouncer: install it
    test_programs.py: 2
a framework: install the extra
    package
    test_framework.py
    test_other.py
=="""


def test_what_is_missing_is_listed_and_its_tests_run_where_it_is(tmp_path: Path, pytestconfig: pytest.Config) -> None:
    programs, names = tmp_path / "programs", tmp_path / "not-tested"
    programs.mkdir()
    inherited = {name: text for name, text in os.environ.items() if not name.startswith("PYTEST_")}
    rules = pytestconfig.getini("filterwarnings")
    (tmp_path / "pytest.ini").write_text("\n ".join(["[pytest]\nfilterwarnings =", *rules]))
    (tmp_path / "test_programs.py").write_text(TESTS)
    (tmp_path / "package").mkdir()
    for name in "ab":
        (tmp_path / "package" / f"test_{name}.py").write_text("def test_of_the_package(): pass")

    def run(*arguments: str, framework: object) -> str:
        for file in FILES:
            (tmp_path / file).write_text(NEEDY.format(found=framework))
        done = subprocess.run(
            [sys.executable, "-m", "pytest", "--color=no", "-p", "xdist.plugin", "-p", "tests.needs", *arguments],
            check=False,
            capture_output=True,
            text=True,
            cwd=tmp_path,
            env=inherited | {"PATH": str(programs), "PYTHONPATH": str(ROOT), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    said = run("-n", "2", f"--not-tested={names}", framework=None)
    assert LIST in said
    assert "1 passed" in said

    program = programs / "pgbouncer"
    program.touch(0o755)
    said = run(f"@{names}", framework=True)
    assert "NOT TESTED" not in said
    assert "6 passed" in said
