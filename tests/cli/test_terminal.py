"""Tables on a terminal: a row is a line, an id is never cut, and what has room to spare ends with an ellipsis."""

from __future__ import annotations

from uuid import UUID

import pytest
from rich.cells import cell_len
from rich.text import Text

from tests.behaviour.helpers import metadata
from tests.cli.conftest import Cli, on_terminal
from tests.cli.test_reading import put
from tests.ui.stories import chat, forked, research

THREAD = str(UUID(int=1))


def lines_of(columns: int, *argv: str) -> list[str]:
    """The lines of a command's table on a terminal of this width."""
    _, shown = on_terminal(*argv, columns=columns)
    return [line.rstrip() for line in Text.from_ansi(shown.replace("\r\n", "\n")).plain.splitlines()]


@pytest.mark.parametrize("columns", [80, 120, 200])
def test_a_row_is_a_line_and_no_id_is_cut(cli: Cli, columns: int) -> None:
    with cli.store.open() as saver:
        where = put(saver, THREAD, meta=metadata(1, run_id=str(UUID(int=2)), user="ada"), text="long " * 100)
        put(saver, "short", text="x")
    checkpoint = where["configurable"]["checkpoint_id"]
    lines = lines_of(columns, "threads")
    (row,) = (line for line in lines if THREAD in line)
    assert row.count("…") == 1
    assert "text: lon" in row
    assert len([line for line in lines if line.strip()]) == 4  # The head, its rule, and a line for each thread.
    history = lines_of(columns, "history", THREAD)
    (row,) = (line for line in history if checkpoint in line)
    head = next(line for line in history if "checkpoint" in line)
    assert "labels" not in head
    assert "namespace" not in head
    assert ("run" in head) == (columns > 80)
    assert all(cell_len(line) <= columns for line in lines_of(columns, "history", THREAD, "--graph"))
    assert all(cell_len(line) <= columns for line in lines)
    assert ("checkpoints" in lines[1]) == (columns > 80)
    assert any("long long" in line and "…" in line for line in lines_of(columns, "show", THREAD))
    assert "…" not in "".join(lines_of(columns, "show", THREAD, "--full"))


@pytest.mark.parametrize("columns", [80, 120])
def test_branches_questions_and_ids_fit_the_terminal(cli: Cli, columns: int) -> None:
    """Of real graphs: three branches with labels, subgraphs, a question, a thread with an id of the usual length."""
    with cli.store.open() as saver:
        saver.setup()
        chat(saver, THREAD, answered=False)
        forked(saver, "forked")
        research(saver, "nested")
    for argv, heads in (
        (("history", "forked", "--graph"), {"made by", "state"}),
        (("history", "nested"), {"made by", "state", "namespace"}),
        (("interrupts",), {"thread", "question"}),
        (("threads",), {"thread", "state", "last m"}),
    ):
        lines = lines_of(columns, *argv)
        assert all(cell_len(line) <= columns for line in lines)
        assert all(head in lines[1] for head in heads)
        assert ("(" in lines[1]) == (columns > 80 or argv[0] != "history")  # A time, which makes room for these.
    shown = lines_of(columns, "show", THREAD)
    assert all(cell_len(line) <= columns for line in shown[:3])
    assert THREAD in shown[0]


@pytest.mark.parametrize("columns", [80, 120])
def test_a_narrow_history_tells_namespaces_before_numbers(cli: Cli, columns: int) -> None:
    """Without the namespace, the steps of a subgraph look like those of the graph."""
    with cli.store.open() as saver:
        top = put(saver, THREAD, text="x")
        put(saver, THREAD, {"configurable": {"thread_id": THREAD, "checkpoint_ns": f"research:{THREAD}"}}, text="x")
        put(saver, THREAD, top, text="y")
    lines = lines_of(columns, "history", THREAD)
    assert "namespace" in lines[1]
    assert len([line for line in lines if "resea" in line]) == 1
    assert all(cell_len(line) <= columns for line in lines)
