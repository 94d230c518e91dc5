"""`lgckpt` itself: help, version, completion, and how a database is named."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from langgraph.checkpoint.base import empty_checkpoint

import langgraph_checkpoint_custom
from langgraph_checkpoint_custom import SqliteSaver
from langgraph_checkpoint_custom.cli import main
from langgraph_checkpoint_custom.cli.app import GROUPS, name_of
from langgraph_checkpoint_custom.cli.common import PROGRAM
from langgraph_checkpoint_custom.settings import url_of
from tests.cli.conftest import Cli
from tests.cli.test_document import COMMANDS

# The script that pip installs beside the interpreter.
SCRIPT = Path(sys.executable).parent / PROGRAM


def output(capsys: pytest.CaptureFixture[str], *argv: str) -> str:
    """What a command that succeeds prints."""
    capsys.readouterr()
    assert main(argv) == 0
    found, error = capsys.readouterr()
    assert error == ""
    return found


def test_a_bare_call_and_both_options_print_the_help(capsys: pytest.CaptureFixture[str]) -> None:
    text = output(capsys)
    assert text == output(capsys, "-h") == output(capsys, "--help")
    assert text.startswith("Usage: lgckpt ")
    assert "_worker" not in text
    assert output(capsys, "threads", "-h") == output(capsys, "threads", "--help")


def test_the_help_lists_every_command_once_in_its_group(capsys: pytest.CaptureFixture[str]) -> None:
    listed = [name_of(command) for commands in GROUPS.values() for command in commands]
    assert sorted(listed) == sorted(COMMANDS)
    text = output(capsys)
    assert re.findall(r"^  ([a-z][a-z-]*)  ", text, re.MULTILINE) == listed
    assert re.findall(r"^([A-Z][a-z ]+):$", text, re.MULTILINE) == ["Options", *GROUPS]


def test_the_version_is_that_of_the_package(capsys: pytest.CaptureFixture[str]) -> None:
    assert output(capsys, "--version") == f"langgraph-checkpoint-custom {langgraph_checkpoint_custom.__version__}\n"


def test_the_script_and_the_module_are_the_same_program() -> None:
    for command in ([str(SCRIPT)], [sys.executable, "-m", "langgraph_checkpoint_custom"]):
        done = subprocess.run([*command, "-h"], capture_output=True, text=True, check=True)
        assert done.stdout.startswith("Usage: lgckpt ")


@pytest.mark.parametrize(
    ("text", "url"),
    [
        ("checkpoints.db", "sqlite:///checkpoints.db"),
        ("/var/lib/my app?.sqlite", "sqlite:////var/lib/my%20app%3F.sqlite"),
        ("data/store", "sqlite:///data/store"),
        ("sqlite:///a.db", "sqlite:///a.db"),
        ("postgresql://me@host/app.db", "postgresql://me@host/app.db"),
        ("host=a password=/b.db", "host=a password=/b.db"),
        ("host=/run dbname=app.db", "host=/run dbname=app.db"),
        ("host=primary.db", "host=primary.db"),
        ("password=x.db", "password=x.db"),
        ("user=me", "user=me"),
        ("lr=0.1.db", "sqlite:///lr%3D0.1.db"),
        ("lr=0.1/seed=2.sqlite3", "sqlite:///lr%3D0.1/seed%3D2.sqlite3"),
        ("/data/lr=0.1/store", "sqlite:////data/lr%3D0.1/store"),
        ("my runs/lr=0.1/a.db", "sqlite:///my%20runs/lr%3D0.1/a.db"),
        ("me:secret@host/app.db", "me:secret@host/app.db"),
        ("localhost", "localhost"),
    ],
)
def test_a_path_names_a_sqlite_file(text: str, url: str) -> None:
    assert url_of(text) == url


def test_commands_take_paths(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    output(capsys, "setup", "--url", "100% mine.db")
    assert [path.name for path in tmp_path.iterdir()] == ["100% mine.db"]
    Path("100% mine.db").rename("store")
    assert output(capsys, "threads", "--url", "store", "--json").startswith('{\n  "threads": []')
    Path("store").rename("run=1")
    monkeypatch.setenv("CHECKPOINT_URL", "run=1")
    output(capsys, "verify")
    Path("run=1").rename("store")
    monkeypatch.setenv("CHECKPOINT_URL", "store")
    output(capsys, "migrate", "--from", "store", "--url", "other.db")
    with SqliteSaver("other.db") as saver:
        assert list(saver.list(None)) == []


@pytest.mark.parametrize(
    "argv",
    [
        ("threads", "--url", "caf\udce9.db"),
        ("threads", "--url", "sqlite:///caf\udce9.db"),
        ("setup", "--url", "postgresql://me:n0t-for-the-screen\udce9@127.0.0.1:1/app"),
        ("migrate", "--from", "caf\udce9.db"),
        ("threads", "--where", f"a={'[' * 100_000}"),
        ("erase", "--where", f"a={'[' * 100_000}{']' * 100_000}", "--yes"),
        ("sweep", "--max-bytes", "9" * 400, "--yes"),
    ],
    ids=lambda argv: f"{argv[0]} {argv[2][:25]!a}",
)
def test_what_no_program_can_read_is_an_error_in_a_line(cli: Cli, argv: tuple[str, ...]) -> None:
    """Bytes that are not UTF-8, JSON that is too deep, a number that is too large."""
    assert len(cli.fail(*argv, code=2)) < 500


def test_an_error_of_a_connection_is_a_line_without_names_of_ours(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["threads", "--url", "postgresql://127.0.0.1:1/app"]) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("error: no connection to PostgreSQL: ")
    assert "\\" not in line


@pytest.mark.parametrize("closed", [0, 1, 2])
def test_a_closed_stream_is_no_bug(closed: int, tmp_path: Path) -> None:
    """Its number may be that of another file of the process, so nothing is written to it."""
    with SqliteSaver(tmp_path / "a.db") as saver:
        saver.put({"configurable": {"thread_id": "1", "checkpoint_ns": ""}}, empty_checkpoint(), {}, {})

    def run(*argv: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "langgraph_checkpoint_custom", *argv, "--url", str(tmp_path / "a.db")],
            preexec_fn=lambda: os.close(closed),
            capture_output=True,
            text=True,
            check=False,
        )

    asked = run("delete", "1")
    assert asked.returncode == 2
    assert "Traceback" not in asked.stdout + asked.stderr
    for argv in (["threads"], ["export", str(tmp_path / "all.zst")], ["sweep", "--yes"]):
        done = run(*argv)
        assert (done.returncode, done.stderr) == (0, "")
