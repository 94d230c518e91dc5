"""Wheels of the package: of this version, and of one that is still to come; and programs that run with one of them."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
from pathlib import Path
from typing import Any
from zipfile import ZipFile

ROOT = Path(__file__).parents[1]
PACKAGE = "langgraph_checkpoint_custom"
# Seconds; anything that takes longer hangs.
TIMEOUT = 300
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


class Application:
    """A process of a program with one version of the package, and the lines of JSON that it has printed.

    The program is started by its path, so that no other version is imported. It ends when a line is written to it.
    """

    def __init__(self, program: Path, package: Path, *arguments: str) -> None:
        self.lines: list[list[Any]] = []
        self._ended, self._said = False, ""
        self._changed = threading.Condition()
        self._errors = tempfile.TemporaryFile("w+")  # noqa: SIM115  # It lives as long as the process.
        self._process = subprocess.Popen(
            [sys.executable, str(program), str(package), *arguments],
            env=os.environ | {"PYTHONPATH": str(package)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
        )
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            with self._changed:
                self.lines += [json.loads(line)] if line.endswith("\n") else []  # The last one may be cut by a kill.
                self._changed.notify_all()
        with self._changed:
            self._ended = True
            self._changed.notify_all()

    def wait_for_more(self, number: int) -> None:
        """Wait for so many more lines."""
        with self._changed:
            enough = len(self.lines) + number
            assert self._changed.wait_for(lambda: self._ended or len(self.lines) >= enough, TIMEOUT), "nothing comes"
            assert not self._ended, self.lines[-1]

    def stop(self) -> None:
        """Let it end after what it is doing."""
        assert self._process.stdin is not None
        if self._process.poll() is None:
            self._process.stdin.write("\n")
            self._process.stdin.flush()

    def end(self, *, kill: bool = False) -> str:
        """Wait for its end, or kill it; returns what it wrote to stderr if it ended with an error."""
        if kill:
            self._process.kill()
        code = self._process.wait(TIMEOUT)
        self._reader.join()
        if not self._errors.closed:
            self._errors.seek(0)
            self._said = self._errors.read() if code not in (0, -9) else ""
            for file in (self._process.stdin, self._process.stdout, self._errors):
                assert file is not None
                file.close()
        return self._said
