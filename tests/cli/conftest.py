"""Fixtures that run commands in the test's process, on both databases."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import re
import signal
import struct
import sys
import termios
from collections.abc import Mapping, Sequence
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import pytest

from langgraph_checkpoint_custom.cli import main
from tests.crash.processes import Process
from tests.moving.conftest import official as official  # A fixture.
from tests.stores import Store

# A part of PostgreSQL's URL that must never be printed, like its password.
SECRET = "n0t-for-the-screen"

PROGRAM = [sys.executable, "-m", "langgraph_checkpoint_custom"]


def on_terminal(*argv: str, columns: int = 1000, interrupt: str = "", **variables: str) -> tuple[int, str]:
    """Run a command on a terminal; returns its exit code and what it prints.

    With `interrupt`, also its errors, and Ctrl-C comes when it has printed something that this expression matches.
    """
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    inherited = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "LINES")}
    environment = {**inherited, "TERM": "xterm", **variables}
    shown = b""
    with Process(run_on, os.ttyname(theirs), argv, os.getcwd(), environment, shows_errors=interrupt != "") as child:
        child.receive()  # It has opened the terminal.
        os.close(theirs)
        try:
            while part := os.read(ours, 65_536):
                shown += part
                if interrupt and re.search(interrupt, shown.decode(errors="replace")):
                    child.interrupt()
                    interrupt = ""
        except OSError:  # Linux reports the end of a terminal as an error.
            pass
        os.close(ours)
        return child.wait(), shown.decode()


def run_on(
    connection: Connection,
    terminal: str,
    argv: Sequence[str],
    folder: str,
    environment: Mapping[str, str],
    *,
    shows_errors: bool,
) -> None:
    """The process of a command, which has imported what the program imports: that takes most of the time."""
    with open(terminal, "wb", buffering=0) as device, open(os.devnull, "r+b", buffering=0) as nothing:
        for number, file in enumerate((nothing, device, device if shows_errors else nothing)):
            os.dup2(file.fileno(), number)
    streams = [open(number, mode, encoding="utf-8", closefd=False) for number, mode in enumerate("rww")]  # noqa: SIM115
    sys.stdin, sys.stdout, sys.stderr = streams  # As in a process that begins there.
    connection.send("ready")
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    sys.exit(main(argv))


class Cli:
    """Runs commands, and checks that their output has no secrets and no control characters."""

    def __init__(self, store: Store, capsys: pytest.CaptureFixture[str]) -> None:
        self.store = store
        self._capsys = capsys
        self.error = ""

    def __call__(self, *argv: str, code: int = 0) -> str:
        """The output of a command that ends with this exit code."""
        self._capsys.readouterr()
        found = main(argv)
        output, self.error = self._capsys.readouterr()
        assert found == code, output + self.error
        for text in (output, self.error):
            assert all(line.isprintable() for line in text.split("\n")), repr(text)
            assert SECRET not in text
            assert "Traceback" not in text
        if code == 0:
            assert all(line.startswith("note: ") for line in self.error.splitlines())
        return output

    def json(self, *argv: str, code: int = 0) -> Any:
        """The JSON that a command prints with --json."""
        return json.loads(self(*argv, "--json", code=code))

    def fail(self, *argv: str, code: int = 1) -> str:
        """The line on stderr of a command that fails and prints nothing else."""
        assert self(*argv, code=code) == ""
        assert self.error.startswith("error: ")
        assert self.error.count("\n") == 1
        return self.error


def url_with_secret(store: Store) -> str:
    """The URL of a store, with a part that must not be printed."""
    return store.url if store.kind == "sqlite" else f"{store.url}&application_name={SECRET}"


@pytest.fixture
def cli(store: Store, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Cli:
    """Commands on an empty store, which CHECKPOINT_URL names."""
    return _on(store, capsys, monkeypatch, tmp_path)


@pytest.fixture
def own_cli(
    own_store: Store, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> Cli:
    """Like `cli`, on a store whose tables the test may change."""
    return _on(own_store, capsys, monkeypatch, tmp_path)


def _on(store: Store, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, folder: Path) -> Cli:
    for name in os.environ:
        if name.startswith(("CHECKPOINT_", "LANGGRAPH_")) and name != "CHECKPOINT_TEST_DSN":
            monkeypatch.delenv(name)
    monkeypatch.setenv("CHECKPOINT_URL", url_with_secret(store))
    monkeypatch.chdir(folder)
    with store.open() as saver:
        saver.setup()
    return Cli(store, capsys)
