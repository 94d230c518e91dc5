"""Prints tables, JSON and progress: the only module of the command line that writes to stdout or stderr.

Text from the database is never sent to a terminal unchecked. Characters that are not printable, such as control
characters and marks that change the direction of text, are printed as Python's escapes. Nothing is interpreted as
markup.
"""

from __future__ import annotations

import json
import logging
import re
import sys
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TextIO

from langgraph_checkpoint_custom.model.id_times import time_of
from langgraph_checkpoint_custom.model.records import time_from
from langgraph_checkpoint_custom.tools.display import counted as counted
from langgraph_checkpoint_custom.tools.display import size as size

if TYPE_CHECKING:
    from rich.console import Console

# Characters that a column keeps in which a row may be cut.
SPARED = 9

Style = Literal["good", "bad", "strong", "dim", "plain"]
_STYLES: Mapping[Style, str] = {"good": "green", "bad": "bold red", "strong": "bold", "dim": "dim", "plain": ""}


def safe(text: str) -> str:
    """Escape what is not printable, so that a text cannot affect a terminal."""
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else repr(char)[1:-1] for char in text)


def complain(message: str) -> None:
    """Print an error to stderr, in one line."""
    # PostgreSQL's errors have several lines.
    in_one_line = re.sub(r"\s*\n\s*", "; ", message.strip())
    print(f"error: {safe(in_one_line)}", file=sys.stderr)


def note(message: str) -> None:
    """Print a note for people to stderr, in one line."""
    print(f"note: {safe(message)}", file=sys.stderr)


def say(text: str) -> None:
    """Print a line for people."""
    print(safe(text))


def show_source(text: str, file: TextIO | None = None) -> None:
    """Print text of several lines, such as SQL or a help."""
    print("\n".join(map(safe, text.split("\n"))), file=file, flush=True)


def ask(question: str) -> bool:
    """Ask on stderr before a change, and return whether the answer on stdin is yes."""
    print(f"{safe(question)} [y/N] ", end="", file=sys.stderr, flush=True)
    if sys.stdin.readline().strip().lower() in ("y", "yes"):
        return True
    print("Nothing was changed.", file=sys.stderr)
    return False


def show_bug() -> None:
    """Print the traceback of the exception that is handled, which may contain text from the database."""
    show_source(traceback.format_exc().rstrip("\n"), sys.stderr)


class _Notes(logging.Handler):
    """Prints warnings of loggers as notes; without a handler, Python prints them as they are."""

    def emit(self, record: logging.LogRecord) -> None:
        note(record.getMessage())


@contextmanager
def logs_as_notes() -> Iterator[None]:
    """Print what is logged, and Python's warnings, as notes."""
    handler, root = _Notes(logging.WARNING), logging.getLogger()
    logging.captureWarnings(True)
    root.addHandler(handler)
    try:
        yield
    finally:
        root.removeHandler(handler)
        logging.captureWarnings(False)


def tell(what: Any) -> None:
    """Print one JSON document, with times in ISO format. What is not ASCII is escaped: it cannot affect a terminal."""
    print(json.dumps(what, indent=2, default=lambda one: one.isoformat() if isinstance(one, datetime) else str(one)))


class Times:
    """Formats times, all in the local zone or in UTC; a table says the zone in its head."""

    def __init__(self, utc: bool) -> None:
        now = datetime.now(timezone.utc) if utc else datetime.now().astimezone()
        self._zone, self._year = now.tzinfo, now.year

    def head(self, name: str) -> str:
        """Return the head of a column of times."""
        return f"{name} ({self._zone})"

    def short(self, time: datetime | str | None) -> str:
        """Return a time, or that of a checkpoint's id, for a table; empty if it is not known."""
        found = time_of(time) if isinstance(time, str) else time
        if found is None:
            return ""
        try:
            local = found.astimezone(self._zone)
        except (OverflowError, ValueError):  # An id can say any time.
            return ""
        return local.strftime("%m-%d %H:%M:%S" if local.year == self._year else "%Y-%m-%d %H:%M")

    def full(self, text: object) -> str:
        """Return the time of a checkpoint from what it says of itself, with the zone."""
        time = time_from(text)
        with suppress(OverflowError, ValueError):
            if time:
                return f"{time.astimezone(self._zone):%Y-%m-%d %H:%M:%S} {self._zone}"
        return "at an unknown time"


class Column(NamedTuple):
    """A column of a table.

    Attributes:
        head: Its name.
        cell: What a row has there: a key or an attribute of the row, or a function of it.
        right: Whether it is aligned to the right.
        cut: Whether its cells may be cut with an ellipsis on a narrow terminal.
        drop: Whether it may be left out there.
    """

    head: str
    cell: str | Callable[[Any], object]
    right: bool = False
    cut: bool = False
    drop: bool = False

    def of(self, row: Any) -> str:
        """Return the cell of a row as a text; numbers get thousands separators."""
        if callable(self.cell):
            cell = self.cell(row)
        else:
            cell = row.get(self.cell) if isinstance(row, dict) else getattr(row, self.cell)
        if cell is None:
            return ""
        return f"{cell:,}" if isinstance(cell, int) and not isinstance(cell, bool) else safe(str(cell))


def number(head: str, cell: str | Callable[[Any], object]) -> Column:
    """Return a column of numbers, which a narrow terminal leaves out."""
    return Column(head, cell, right=True, drop=True)


def table(columns: Sequence[Column], rows: Iterable[Any], styles: Sequence[Style] = ()) -> None:
    """Print a table, without columns that are empty. Unless stdout is a terminal, its lines are as long as they are.

    On a terminal, a row is a line: columns are cut and, the last one first, left out if there is no room for them. The
    others, such as ids, are never cut. If no column may be cut or left out, all are folded.

    Args:
        columns: The columns.
        rows: The rows.
        styles: The style of each row; without it, all are plain.
    """
    from rich import box
    from rich.cells import cell_len
    from rich.table import Table
    from rich.text import Text

    found = list(rows)
    cells = {column: [column.of(row) for row in found] for column in columns}
    shown = [column for column in columns if not found or any(cells[column])]
    console, one_line = _console(), any(column.cut or column.drop for column in columns)
    widths = {column: max(map(cell_len, (column.head, *cells[column]))) for column in shown}
    if one_line and console.is_terminal:
        widths |= {column: min(SPARED, widths[column]) for column in shown if column.cut}
        droppable = [column for column in shown if column.drop]
        while droppable and sum(widths.values()) + 3 * len(widths) > console.width:
            del widths[droppable.pop()]
        shown = list(widths)
    if one_line or not console.is_terminal:
        console.width = max(console.width, sum(widths.values()) + 3 * len(widths))
    printed = Table(box=box.SIMPLE_HEAD, pad_edge=False, header_style="bold")
    for column in shown:
        printed.add_column(
            Text(column.head, no_wrap=True, overflow="ellipsis"),
            justify="right" if column.right else "left",
            no_wrap=one_line and not column.cut,
        )
    for at in range(len(found)):
        texts = (Text(cells[each][at], no_wrap=one_line, overflow="ellipsis" if one_line else "fold") for each in shown)
        printed.add_row(*texts, style=_STYLES[styles[at]] if styles else "")
    if console.is_terminal:
        console.print(printed)
        return
    with console.capture() as captured:
        console.print(printed)
    print("\n".join(line.rstrip() for line in captured.get().strip("\n").splitlines()))


def lines(rows: Iterable[tuple[Style, str]]) -> None:
    """Print lines of text, each in its style, and an empty one."""
    if not sys.stdout.isatty():
        print("\n".join(safe(text) for _, text in rows), end="\n\n")
        return
    from rich.text import Text

    console = _console()
    for style, text in rows:
        console.print(Text(safe(text), style=_STYLES[style]), soft_wrap=True)
    console.print()


def _console() -> Console:
    from rich.console import Console

    # Colors depend only on whether stdout is a terminal, not on environment variables.
    terminal = sys.stdout.isatty()
    return Console(
        file=sys.stdout,
        force_terminal=terminal,
        no_color=None if terminal else True,
        width=None if terminal else 10_000,
        markup=False,
        highlight=False,
        emoji=False,
        soft_wrap=False,
    )


@contextmanager
def progress(what: str, unit: str, total: Callable[[], int]) -> Iterator[Callable[[int], None]]:
    """Display a progress bar on stderr, with rate and remaining time, if stderr is a terminal.

    Args:
        what: What is done: "export".
        unit: What is counted: "threads".
        total: Returns the number at the end; 0 if it is not known, then there is no bar. Called only if stderr is a
            terminal.

    Yields:
        A function that is called with the number that is done.
    """
    if not (sys.stderr.isatty() and (end := total())):
        yield lambda done: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, ProgressColumn, Task, TextColumn, TimeRemainingColumn
    from rich.text import Text

    class Rate(ProgressColumn):
        def render(self, task: Task) -> Text:
            # The first rows come at once, which says nothing about the others.
            speed = (task.finished_speed or task.speed) if (task.elapsed or 0) >= 1 else None
            done = f"{task.completed:,.0f} of {task.total:,.0f} {unit}"
            return Text(done + ("" if speed is None else f", {speed:,.1f}/s"))

    columns = (TextColumn("{task.description}", markup=False), BarColumn(), Rate(), TimeRemainingColumn(compact=True))
    console = Console(stderr=True, markup=False, highlight=False, emoji=False)
    with Progress(*columns, console=console) as bar:
        task = bar.add_task(what, total=end)
        yield lambda done: bar.update(task, completed=done)
