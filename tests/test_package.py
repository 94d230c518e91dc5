"""The built wheel works on SQLite in a virtual environment without extras, and contains the files that it needs."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
import tarfile
import venv
import zipfile
from collections.abc import Iterable
from email import message_from_bytes
from email.message import Message
from importlib.metadata import requires
from importlib.util import find_spec
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from langgraph_checkpoint_custom import __version__
from tests.downloads import pip
from tests.needs import need
from tests.wheels import PACKAGE, ROOT, build

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
# What an import costs: the modules that were not there with LangGraph's base class, by package.
IMPORTED = """
import sys, langgraph.checkpoint.base
before = set(sys.modules)
import langgraph_checkpoint_custom
print(*sorted(set(sys.modules) - before))
"""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(ROOT, tmp_path_factory.mktemp("wheel"))


def metadata_of(wheel: Path) -> tuple[Message, str]:
    """The metadata of a wheel, and its entry points."""
    with zipfile.ZipFile(wheel) as files:
        (folder,) = {name.partition("/")[0] for name in files.namelist() if ".dist-info/" in name}
        return (
            message_from_bytes(files.read(f"{folder}/METADATA")),
            files.read(f"{folder}/entry_points.txt").decode(),
        )


def test_the_wheel_says_what_it_is(wheel: Path) -> None:
    metadata, entry_points = metadata_of(wheel)
    assert metadata["Version"] == __version__
    assert (metadata["License-Expression"], metadata["License-File"]) == ("MIT", "LICENSE")
    assert metadata["Requires-Python"] == ">=3.10"
    assert {"postgres", "otel", "cli", "ui", "demo"} <= set(metadata.get_all("Provides-Extra", ()))
    assert "lgckpt = langgraph_checkpoint_custom.cli:main" in entry_points
    assert f"## {__version__} " in (ROOT / "CHANGELOG.md").read_text("utf-8")


def test_sdist_and_wheel_pass_the_checks_of_the_package_index(wheel: Path, tmp_path: Path) -> None:
    need(find_spec("build") and find_spec("twine"), "build and twine: pip install -e '.[release]'")
    command = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(tmp_path), str(ROOT)]
    subprocess.run(command, check=True, capture_output=True)
    sdist, again = sorted(tmp_path.iterdir(), key=lambda path: path.suffix)
    done = subprocess.run(
        [sys.executable, "-m", "twine", "check", "--strict", str(sdist), str(again)],
        check=False,
        capture_output=True,
        text=True,
    )
    assert done.stdout.count("PASSED") == 2, done.stdout + done.stderr
    # build makes the wheel from the sdist.
    assert set(zipfile.ZipFile(again).namelist()) == set(zipfile.ZipFile(wheel).namelist())
    with tarfile.open(sdist) as files:
        names = {name.partition("/")[2] for name in files.getnames()}
    assert {"LICENSE", "SECURITY.md", "CHANGELOG.md", "schema.sql", "tests/conftest.py", "docs/versions.md"} <= names


@pytest.mark.timeout(600)
def test_the_extras_can_be_installed_together(wheel: Path, tmp_path: Path) -> None:
    pip("download", "ormsgpack", tmp_path)  # Skips without a network.
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--dry-run", "--ignore-installed"]
    subprocess.run([*command, f"{wheel}[postgres,otel,cli,ui,demo]"], check=True, stdout=subprocess.DEVNULL)


def test_the_wheel_contains_schema_and_migrations(wheel: Path) -> None:
    names = set(zipfile.ZipFile(wheel).namelist())
    package = PACKAGE
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


def installed(folder: Path, *wanted: str) -> Path:
    """Install this into a new environment; returns its Python. Skips the test without a network."""
    pip("download", "ormsgpack", folder)  # The wheel's dependencies are downloaded, too.
    venv.create(folder / "venv")
    python = folder / "venv" / ("Scripts" if os.name == "nt" else "bin") / "python"
    command = [sys.executable, "-m", "pip", "--python", str(python), "install", "-q", "--no-compile", *wanted]
    subprocess.run(command, check=True)
    return python


@pytest.mark.timeout(600)
def test_the_readmes_install_line_brings_what_its_example_needs(wheel: Path, tmp_path: Path) -> None:
    """The line, with the wheel in place of the package; the second run of the example remembers the first one."""
    readme = (ROOT / "README.md").read_text("utf-8")
    ((*command, package, langgraph),) = map(shlex.split, re.findall(r"^(pip install .*)$", readme, re.MULTILINE))
    assert command == ["pip", "install"]
    name, bracket, extras = package.partition("[")
    assert name in (".", "langgraph-checkpoint-custom")
    python = installed(tmp_path, f"{wheel}{bracket}{extras}", langgraph)
    (example,) = re.findall(r"^```python\n(.*?)^```$", readme, re.MULTILINE | re.DOTALL)
    said: list[str] = []
    for _ in range(2):
        done = subprocess.run([python, "-c", example], check=False, capture_output=True, text=True, cwd=tmp_path)
        assert (done.returncode, done.stderr) == (0, "")
        said += done.stdout.splitlines()
    asked = ["Hello!", "What did I say?"] * 2
    assert said == [f"You said {asked[:number]}." for number in range(1, 5)]
    threads = [str(python.with_name("lgckpt")), "threads"]
    assert "ai: You said" in subprocess.run(threads, check=True, capture_output=True, text=True, cwd=tmp_path).stdout
    subprocess.run([python, "-c", f"from {PACKAGE} import PostgresSaver"], check=True)


@pytest.mark.timeout(600)
def test_sqlite_runs_without_any_extra(wheel: Path, tmp_path: Path) -> None:
    python = installed(tmp_path, str(wheel))
    done = subprocess.run(
        [python, "-W", "error", "-c", PROGRAM, str(tmp_path / "store.db")],
        check=False,
        capture_output=True,
        text=True,
        cwd=tmp_path,
    )
    assert (done.stdout, done.stderr) == ("works\n", "")
    command = [str(python.with_name("lgckpt")), "threads"]
    done = subprocess.run(command, check=False, capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 2
    assert "install langgraph-checkpoint-custom[cli]" in done.stderr


def test_the_package_brings_one_package_that_langgraph_does_not(wheel: Path) -> None:
    ours = requirements(map(Requirement, metadata_of(wheel)[0].get_all("Requires-Dist", ())))
    assert ours - requirements([Requirement("langgraph-checkpoint")]) == {"python-ulid"}
    assert wheel.stat().st_size < 600_000


def requirements(wanted: Iterable[Requirement]) -> set[str]:
    """The names of the packages that are installed with these, without extras."""
    found: set[str] = set()
    open_ones = list(wanted)
    while open_ones:
        one = open_ones.pop()
        name = re.sub("[-_.]+", "-", one.name).lower()
        if name not in found and (one.marker is None or one.marker.evaluate({"extra": ""})):
            found.add(name)
            open_ones += map(Requirement, requires(name) or ())
    return found


def test_an_import_loads_few_modules() -> None:
    done = subprocess.run([sys.executable, "-c", IMPORTED], check=True, capture_output=True, text=True)
    modules = done.stdout.split()
    foreign = {name for name in modules if name.partition(".")[0] not in {PACKAGE, *sys.stdlib_module_names}}
    assert foreign <= {"langgraph.checkpoint.memory", "zstandard", "zstandard.backend_c"}, foreign
    assert len(modules) <= 100, modules


def test_importing_the_package_does_not_change_psycopgs_logger() -> None:
    program = (
        "import logging, langgraph_checkpoint_custom as package; package.PostgresSaver;"
        "assert logging.getLogger('psycopg.pool').filters == []"
    )
    subprocess.run([sys.executable, "-c", program], check=True)
