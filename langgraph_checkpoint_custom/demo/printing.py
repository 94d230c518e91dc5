"""Prints the demo: in color and with something that moves on a terminal, as plain lines otherwise."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from importlib.util import find_spec
from textwrap import fill

from rich.console import Console
from rich.text import Text

TITLE = "An agent buys coffee, is killed halfway, and loses no work. Only its model is a stand-in."
# Columns of a line that is not printed to a terminal.
WIDTH = 120
# Columns before the text of a step.
INDENT = 11


class Story:
    """What the demo prints: a title, a line for each step that was proved, and what to do next."""

    def __init__(self) -> None:
        self._terminal = sys.stdout.isatty()
        self._console = Console(
            force_terminal=self._terminal, highlight=False, markup=False, emoji=False, soft_wrap=True
        )
        self._width = min(self._console.width, WIDTH) if self._terminal else WIDTH
        self._number = 0

    def begin(self) -> None:
        """Print the title."""
        self._print("bold", fill(TITLE, self._width))

    def step(self, name: str, text: str) -> None:
        """Print a step that was proved."""
        self._number += 1
        head = f"{self._number} {name}".ljust(INDENT)
        self._print("green bold", head, fill(head + text, self._width, subsequent_indent=" " * INDENT)[INDENT:])

    def working(self, what: str) -> AbstractContextManager[object]:
        """Show that work goes on, until the end of the block; only on a terminal."""
        return self._console.status(f"{what} …") if self._terminal else nullcontext()

    def end(self, database: str, url: str, thread_id: str) -> None:
        """Print where the database is, and the commands to try next."""
        self._print("bold", "Database:".ljust(INDENT), f"{database}, threads {thread_id} and {thread_id}-copy")
        # A simple path needs no quoting in a command. Another URL may contain a password or characters of the shell.
        plain = re.fullmatch(r"sqlite:///([\w/.@+-]+)", url)
        hint = "" if plain else ", with CHECKPOINT_URL set to the URL that you gave"
        self._print("bold", f"\nTry next{hint}:")
        commands = list(next_commands(thread_id, f" --url {plain[1]}" if plain else ""))
        widest = max(len(command) for command, _ in commands)
        for command, what in commands:
            self._print("cyan", f"  {command.ljust(widest)}", f"  # {what}")

    def _print(self, style: str, text: str, rest: str = "") -> None:
        """Print a text in a style, and the rest of the line without one."""
        self._console.print(Text(text, style=style).append(rest, style="default"))


def next_commands(thread_id: str, url: str) -> Iterator[tuple[str, str]]:
    """Yield commands that show what the demo has left, and what each shows."""
    yield f"{program()} threads{url}", "both threads, with their last messages"
    yield f"{program()} show {thread_id}{url}", "the conversation, from the one checkpoint that was kept"
    yield f"{program()} history {thread_id}-copy{url}", "every step, with the crash and the fork"
    if find_spec("starlette") is not None:  # From the extra `ui`.
        yield f"{program()} ui{url}", "all of that in the browser"


def program() -> str:
    """Return the command that runs this program in a shell: the script, or the module if that is not on the path."""
    found = shutil.which("lgckpt")
    if found and os.path.dirname(found) == os.path.dirname(sys.executable):
        return "lgckpt"
    return f"{shlex.quote(sys.executable)} -m langgraph_checkpoint_custom"
