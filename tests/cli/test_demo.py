"""The command line as a user runs it: `demo` with its processes, `setup`, and errors without tracebacks."""

from __future__ import annotations

import os
import re
import sqlite3
import subprocess
import sys
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from langgraph_checkpoint_custom import CheckpointSaver, SqliteSaver
from langgraph_checkpoint_custom.cli import main
from tests.cli.conftest import PROGRAM, SECRET


def run(command: Sequence[str] | str, folder: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run a command, or a line in a shell; warnings are errors."""
    inherited = {name: value for name, value in os.environ.items() if name != "CHECKPOINT_URL"}
    return subprocess.run(
        command,
        cwd=folder,
        env={**inherited, "PYTHONWARNINGS": "error", **variables},
        shell=isinstance(command, str),
        capture_output=True,
        text=True,
        check=False,
    )


def succeed(command: Sequence[str] | str, folder: Path, **variables: str) -> str:
    """The output of a command that succeeds and prints nothing on stderr."""
    done = run(command, folder, **variables)
    assert (done.returncode, done.stderr) == (0, ""), done.stdout + done.stderr
    return done.stdout


def story(output: str) -> str:
    """The steps as text, in which wrapped lines are joined."""
    return " ".join(output.partition("\nTry next")[0].split())


def assert_all_promises_in(output: str) -> None:
    """Assert that the story has every promise of the demo, and is short."""
    text = story(output)
    assert "asks 4 suppliers for prices at once. Its steps are stored as 5 checkpoints." in text
    assert "SIGKILL ends it (exit code -9) when 3 have answered." in text
    assert "Their answers are stored: Aroma, Barista, Doppio." in text
    assert "It asks Crema again and nobody else (Aroma 1, Barista 1, Crema 2, Doppio 1)." in text
    assert 'It asks a human: "May I order 20 kg from Crema for 240 EUR?"' in text
    assert "its state equals that of a run that nobody killed." in text
    assert "in order: 9 checkpoints." in text
    assert 'Both ends exist: "Ordered 20 kg from Crema for 240 EUR." and "Nothing was ordered."' in text
    assert "has equal states in all 12 checkpoints, of both branches." in text
    assert "keeps 1 of 12 checkpoints, and its state with all 11 messages." in text
    steps = re.findall(r"^([1-8]) (\w+) ", output, re.MULTILINE)
    assert [number for number, _ in steps] == list("12345678")
    printed = output.partition("\nTry next")[0].rstrip().splitlines()
    assert len([line for line in printed if not line.startswith(" ")]) == 10  # The title, eight steps, the database.
    assert max(map(len, printed[:-1])) <= 120
    assert output.isascii()


def next_commands(output: str) -> list[str]:
    return re.findall(r"^  (\S.*?) +# .*$", output.partition("\nTry next")[2], flags=re.MULTILINE)


def assert_commands_run(output: str, folder: Path, **variables: str) -> None:
    """Assert that the commands at the end of the output work; a test of the inspector starts the last one."""
    # So that the script is found, as in an environment that is activated.
    variables["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    threads, show, history, ui = next_commands(output)
    assert " ui" in ui
    rows = [line for line in succeed(threads, folder, **variables).splitlines() if "ai: Nothing was ordered." in line]
    assert len(rows) >= 2
    text = succeed(show, folder, **variables)
    how = "rebuilt from a snapshot and 2 writes of earlier steps, by LangGraph's rule"
    assert f"messages: 11 messages, {how}\n  human   Buy 20 kg of coffee" in text
    assert "calls get_price(name='Crema')\n" in text
    assert succeed(f"{history} --json", folder, **variables).count('"parent_id"') == 12


def test_demo_on_a_new_sqlite_file_and_again_on_that(tmp_path: Path) -> None:
    output = succeed([*PROGRAM, "demo"], tmp_path)
    assert_all_promises_in(output)
    (file,) = tmp_path.iterdir()
    assert file.match("checkpoints-demo-*.db")
    assert file.stat().st_mode & 0o777 == 0o600
    assert f"Database:  {file.name}, threads demo and demo-copy\n" in output
    assert_commands_run(output, tmp_path)
    # Again in the same file, whose other threads remain. A shell needs quotes around its name.
    file.rename(tmp_path / "it's mine.db")
    with SqliteSaver(tmp_path / "it's mine.db") as saver:
        before = list(saver.threads())
    url = "sqlite:///it's mine.db"
    again = succeed([*PROGRAM, "demo", "--url", url], tmp_path)
    assert "Database:  it's mine.db" in again
    assert "Try next, with CHECKPOINT_URL set to the URL that you gave:" in again
    assert next_commands(again) != next_commands(output)
    with SqliteSaver(tmp_path / "it's mine.db") as saver:
        after = list(saver.threads())
        assert before
        assert [thread for thread in after if thread in before] == before


def test_demo_on_postgres(empty_postgres_url: str, tmp_path: Path) -> None:
    url = f"{empty_postgres_url}&application_name={SECRET}"
    output = succeed([*PROGRAM, "demo", "--url", url], tmp_path)
    assert_all_promises_in(output)
    assert "Database:  " in output
    assert SECRET not in output
    assert list(tmp_path.iterdir()) == []
    assert_commands_run(output, tmp_path, CHECKPOINT_URL=url)


def test_demo_says_which_state_differs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    real = CheckpointSaver.prune

    def prune(self: CheckpointSaver, thread_ids: Sequence[str], *, strategy: Any = "keep_latest") -> None:
        real(self, thread_ids, strategy=strategy)
        (file,) = tmp_path.glob("checkpoints-demo-*.db")
        with closing(sqlite3.connect(file)) as connection, connection:
            connection.execute("DELETE FROM writes WHERE thread_id = 'demo'")
        connection.close()

    monkeypatch.setattr(CheckpointSaver, "prune", prune)
    monkeypatch.chdir(tmp_path)
    assert main(["demo"]) == 1
    error = capsys.readouterr().err
    assert error.startswith("error: the demo failed: the state after pruning differs in channel 'messages': expected ")


def test_setup_imports_no_graph(tmp_path: Path) -> None:
    code = (
        "import sys; from langgraph_checkpoint_custom.cli import main; main(['setup', '--url', 'sqlite:///a.db']); "
        "print({'langgraph.graph', 'psycopg'} & set(sys.modules))"
    )
    assert succeed([sys.executable, "-c", code], tmp_path) == "The tables are ready.\nset()\n"


def test_arguments_are_not_shown_if_they_may_be_a_url(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    url = "postgresql://me:s3cret@host/app"
    for argv in (
        [url],
        ["setup", url],
        ["export", "file", url],
        ["setup", f"--uri={url}"],
        ["setup", "password=s3cret"],
    ):
        assert main(argv) == 2
        out, error = capsys.readouterr()
        assert out == "", argv
        assert "s3cret" not in error
        assert error.startswith("error: ")
    monkeypatch.setenv("CHECKPOINT_URL", url)
    for argv in (["--help"], ["setup", "--help"], ["migrate", "--help"]):
        assert main(argv) == 0
        assert "s3cret" not in capsys.readouterr().out


@pytest.mark.parametrize(
    ("missing", "url", "extra"),
    [
        ("typer", "sqlite:///a.db", "cli"),
        ("rich", "sqlite:///a.db", "cli"),
        ("psycopg", "postgresql://me:s3cret@localhost/db", "postgres"),
    ],
)
def test_without_a_package_the_error_names_the_extra(missing: str, url: str, extra: str, tmp_path: Path) -> None:
    code = (
        f"import sys; sys.modules['{missing}'] = None; from langgraph_checkpoint_custom.cli import main; "
        f"sys.exit(main(['setup', '--url', '{url}']))"
    )
    done = run([sys.executable, "-c", code], tmp_path)
    assert done.returncode == 2
    assert done.stderr.startswith("error: ")
    assert f"install langgraph-checkpoint-custom[{extra}]" in done.stderr
    assert "s3cret" not in done.stderr
    assert "Traceback" not in done.stderr
    assert list(tmp_path.iterdir()) == []
