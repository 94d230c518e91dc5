"""Prints the demo's table, the list of checkpoints, and what to try next."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import zip_longest
from pathlib import Path
from textwrap import wrap
from urllib.parse import unquote, urlsplit

from langgraph.types import StateSnapshot

WIDTHS = (11, 41, 42)

INTRODUCTION = """\
An agent buys coffee, is killed halfway, and loses no work.
The model is a local stand-in; the graph, the database and the kill are real.

A checkpoint is the whole state of the agent after a step. A thread is one conversation: a chain of checkpoints.
"""


def print_rule() -> None:
    """Print a line between two rows."""
    print("-+-".join("-" * width for width in WIDTHS))


def print_row(*cells: str) -> None:
    """Print a row of the table, wrapped; before every row but the head, print a rule."""
    if cells[0] != "step":
        print_rule()
    columns = [wrap(cell, width) for cell, width in zip(cells, WIDTHS, strict=True)]
    for line in zip_longest(*columns, fillvalue=""):
        print(" | ".join(text.ljust(width) for text, width in zip(line, WIDTHS, strict=True)).rstrip(), flush=True)


def print_history(history: Sequence[StateSnapshot]) -> None:
    """Print a line for each checkpoint."""
    print("\nThe history of step 5, newest first (source: what made the checkpoint; next: what was to run after it):\n")
    print(f"{'no.':>4}  {'source':7} {'next':9} what is in it")
    for snapshot in history:
        metadata = snapshot.metadata or {}
        following = Counter(snapshot.next)
        nodes = ", ".join(name if times == 1 else f"{name} x{times}" for name, times in following.items())
        messages, prices = (snapshot.values.get(channel, ()) for channel in ("messages", "prices"))
        content = f"messages: {len(messages)}, prices: {len(prices)}"
        if snapshot.interrupts:
            content += f'; the question "{snapshot.interrupts[0].value}"'
        elif messages:
            content += f'; the last one: "{messages[-1]["text"]}"'
        print(f"{metadata.get('step', ''):>4}  {metadata.get('source', ''):7} {nodes or '(end)':9} {content}")


def print_ending(url: str, thread_id: str) -> None:
    """Print where the database is, and three commands to try next."""
    print(f"\nDatabase: {shown(url)}  (threads {thread_id} and {thread_id}-copy)")
    # A simple SQLite URL needs no quoting in a command. Any other may contain a password or characters of the shell.
    plain = re.fullmatch(r"sqlite:[\w:/.@+-]+", url)
    source = repr(url) if plain else "os.environ['CHECKPOINT_URL']"
    prelude = "" if plain else "import os; "
    hint = "" if plain else " (with CHECKPOINT_URL set to the URL that you gave)"
    print(f"\nTry next{hint}:")
    for title, code in next_steps(source, thread_id):
        print(f'\n  # {title}\n  {python()} -c "{prelude}{code}"')


def next_steps(source: str, thread_id: str) -> Iterator[tuple[str, str]]:
    """Yield titles and lines of Python, which have single quotes only."""
    opened = f"from langgraph_checkpoint_custom import open_saver; s = open_saver({source}); "
    config = "{{'configurable': {{'thread_id': '{}'}}}}".format
    yield (
        "every checkpoint of the copy, newest first",
        f"{opened}[print(c.metadata) for c in s.list({config(f'{thread_id}-copy')})]",
    )
    yield (
        "the whole conversation, from the one checkpoint that was kept",
        f"from langgraph_checkpoint_custom.demo import build_graph; {opened}"
        f"[print(m['by'], m['text'], sep=': ') for m in build_graph(s).get_state({config(thread_id)})"
        ".values['messages']]",
    )
    yield (
        "delete the copy",
        f"{opened}s.delete_thread('{thread_id}-copy'); print('deleted')",
    )


def python() -> str:
    """Return the command that runs this Python in a shell."""
    for name in ("python", "python3"):
        found = shutil.which(name)
        # The folders differ between a virtual environment and the Python that it links to.
        if (
            found
            and os.path.dirname(found) == os.path.dirname(sys.executable)
            and os.path.samefile(found, sys.executable)
        ):
            return name
    return shlex.quote(sys.executable)


def shown(url: str) -> str:
    """Return how to display a database: a path, or a URL without user, password and options."""
    parts = urlsplit(url)
    if parts.scheme == "sqlite":
        return str(Path(unquote(url[len("sqlite:///") :])).absolute())
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"
