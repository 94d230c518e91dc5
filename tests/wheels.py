"""Wheels of the package: of this version, and of one that is still to come."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path
from zipfile import ZipFile

ROOT = Path(__file__).parents[1]
PACKAGE = "langgraph_checkpoint_custom"
# What a build reads.
SOURCES = ("pyproject.toml", "README.md", "LICENSE", "schema.sql")


def build(source: Path, folder: Path) -> Path:
    """Build the wheel of a source tree into a folder, without an environment of its own."""
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    subprocess.run(command, cwd=source, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    (built,) = folder.glob("*.whl")
    return built


def unpacked(source: Path, folder: Path) -> Path:
    """Build a wheel and unpack it; returns the folder with the package."""
    with ZipFile(build(source, folder)) as files:
        files.extractall(folder / "unpacked")
    return folder / "unpacked"


def next_version(folder: Path, migration: str, *, oldest: int) -> Path:
    """The source tree of a version to come: this one with one more migration, which may have `{}` for the schema."""
    for name in SOURCES:
        shutil.copy(ROOT / name, folder)
    package = folder / PACKAGE
    shutil.copytree(ROOT / PACKAGE, package, ignore=shutil.ignore_patterns("__pycache__"))
    with (package / "__init__.py").open("a") as file:
        file.write('__version__ = "1.99.0"\n')
    for database, schema in (("postgres", "langgraph_checkpoint."), ("sqlite", "")):
        migrations = package / "migrations" / database
        number = len(list(migrations.glob("*.sql"))) + 1
        text = f"-- oldest: {oldest}\n{migration.replace('{}', schema)}"
        (migrations / f"{number:04}_more.sql").write_text(text)
    return folder
