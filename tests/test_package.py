"""The built wheel works on SQLite in a virtual environment without extras, and contains the files that it needs."""

from __future__ import annotations

import os
import subprocess
import sys
import venv
import zipfile
from pathlib import Path

import pytest

from tests.downloads import pip

ROOT = Path(__file__).parents[1]
PROGRAM = """
import sys
from langgraph_checkpoint_custom import SqliteSaver, open_saver
from importlib.resources import files
assert not {"psycopg", "langgraph.graph"} & set(sys.modules), "something heavy was imported"
checkpoint = {"v": 4, "id": "1", "ts": "", "channel_values": {"a": [1]}, "channel_versions": {"a": "1"}}
config = {"configurable": {"thread_id": "t"}}
with open_saver("sqlite:///" + sys.argv[1]) as saver:
    saver.put(config, checkpoint, {"step": 1}, {"a": "1"})
with SqliteSaver.from_conn_string(sys.argv[1]) as saver:
    assert saver.get_tuple(config).checkpoint == checkpoint
assert "CREATE TABLE" in files("langgraph_checkpoint_custom").joinpath("schema.sql").read_text()
try:
    open_saver("postgresql://localhost/x")
except ImportError as error:
    assert "install langgraph-checkpoint-custom[postgres]" in str(error), error
else:
    raise AssertionError("psycopg is not installed here")
print("works")
"""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    command = [
        sys.executable,
        "-m",
        "pip",
        "wheel",
        "-q",
        "--no-deps",
        "--no-build-isolation",
        "-w",
        str(folder),
        str(ROOT),
    ]
    subprocess.run(command, check=True)
    (built,) = folder.glob("*.whl")
    return built


def test_the_wheel_contains_schema_and_migrations(wheel: Path) -> None:
    names = set(zipfile.ZipFile(wheel).namelist())
    package = "langgraph_checkpoint_custom"
    assert f"{package}/schema.sql" in names
    assert f"{package}/py.typed" in names
    for database in ("postgres", "sqlite"):
        assert f"{package}/sql/{database}/checkpoints.sql" in names
        assert f"{package}/migrations/{database}/shipped.txt" in names
        for file in (ROOT / package / "migrations" / database).glob("*.sql"):
            assert f"{package}/migrations/{database}/{file.name}" in names
    for folder in ("templates", "static"):
        for file in (ROOT / package / "ui" / folder).iterdir():
            assert f"{package}/ui/{folder}/{file.name}" in names
    assert not any(name.startswith("tests") for name in names)


@pytest.mark.timeout(600)
def test_sqlite_runs_without_any_extra(wheel: Path, tmp_path: Path) -> None:
    pip("download", "ormsgpack", tmp_path)  # Skips without a network: the wheel's dependencies are downloaded, too.
    venv.create(tmp_path / "venv")
    python = tmp_path / "venv" / ("Scripts" if os.name == "nt" else "bin") / "python"
    command = [sys.executable, "-m", "pip", "--python", str(python), "install", "-q", "--no-compile", str(wheel)]
    subprocess.run(command, check=True)
    done = subprocess.run(
        [python, "-W", "error", "-c", PROGRAM, str(tmp_path / "store.db")],
        check=False,
        capture_output=True,
        text=True,
        cwd=tmp_path,
    )
    assert (done.stdout, done.stderr) == ("works\n", "")


def test_importing_the_package_does_not_change_psycopgs_logger() -> None:
    program = (
        "import logging, langgraph_checkpoint_custom as package; package.PostgresSaver;"
        "assert logging.getLogger('psycopg.pool').filters == []"
    )
    subprocess.run([sys.executable, "-c", program], check=True)
