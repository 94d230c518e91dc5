"""Tables on a terminal: a row is a line, an id is never cut, and what has room to spare ends with an ellipsis."""

from __future__ import annotations

import fcntl
import os
import pty
import struct
import subprocess
import sys
import termios
from uuid import UUID

import pytest
from rich.cells import cell_len
from rich.text import Text

from tests.behaviour.helpers import metadata
from tests.cli.conftest import Cli
from tests.cli.test_reading import put

THREAD = str(UUID(int=1))


def on_terminal(columns: int, *argv: str) -> list[str]:
    """The lines of a command's table on a terminal of this width."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    environment = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "LINES")}
    with subprocess.Popen(
        [sys.executable, "-m", "langgraph_checkpoint_custom", *argv],
        stdin=subprocess.DEVNULL,
        stdout=theirs,
        stderr=subprocess.DEVNULL,
        env={**environment, "TERM": "xterm"},
    ):
        os.close(theirs)
        shown = b""
        try:
            while part := os.read(ours, 65_536):
                shown += part
        except OSError:  # Linux reports the end of a terminal as an error.
            pass
    os.close(ours)
    return [line.rstrip() for line in Text.from_ansi(shown.decode().replace("\r\n", "\n")).plain.splitlines()]


@pytest.mark.parametrize("columns", [80, 120, 200])
def test_a_row_is_a_line_and_no_id_is_cut(cli: Cli, columns: int) -> None:
    with cli.store.open() as saver:
        where = put(saver, THREAD, meta=metadata(1, run_id=str(UUID(int=2))), text="long " * 100)
        put(saver, "short", text="x")
    checkpoint = where["configurable"]["checkpoint_id"]
    lines = on_terminal(columns, "threads")
    (row,) = (line for line in lines if THREAD in line)
    assert row.count("…") == 1
    assert "text: lon" in row
    assert len([line for line in lines if line.strip()]) == 4  # The head, its rule, and a line for each thread.
    (row,) = (line for line in on_terminal(columns, "history", THREAD) if checkpoint in line)
    head = next(line for line in on_terminal(columns, "history", THREAD) if "checkpoint" in line)
    assert "labels" not in head
    assert "namespace" not in head
    assert ("run" in head) == (columns > 80)
    assert all(cell_len(line) <= columns for line in on_terminal(columns, "history", THREAD, "--graph"))
    assert all(cell_len(line) <= columns for line in lines)
    assert ("checkpoints" in lines[1]) == (columns > 80)
    assert any("long long" in line and "…" in line for line in on_terminal(columns, "show", THREAD))
    assert "…" not in "".join(on_terminal(columns, "show", THREAD, "--full"))


@pytest.mark.parametrize("columns", [80, 120])
def test_a_narrow_history_tells_namespaces_before_numbers(cli: Cli, columns: int) -> None:
    """Without the namespace, the steps of a subgraph look like those of the graph."""
    with cli.store.open() as saver:
        top = put(saver, THREAD, text="x")
        put(saver, THREAD, {"configurable": {"thread_id": THREAD, "checkpoint_ns": f"research:{THREAD}"}}, text="x")
        put(saver, THREAD, top, text="y")
    lines = on_terminal(columns, "history", THREAD)
    assert "namespace" in lines[1]
    assert len([line for line in lines if "resea" in line]) == 1
    assert all(cell_len(line) <= columns for line in lines)
