"""Each value through a graph: stored in one process, and read in another.

Both processes create the values, so only the store is between what is stored and what is read.
"""

from __future__ import annotations

import json
import subprocess
import sys
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import asdict, dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.graph import START, StateGraph
from typing_extensions import TypedDict

from langgraph_checkpoint_custom import open_saver
from tests.conftest import made_database
from tests.exactly import difference
from tests.moving.official import Official

SAVERS = ("official sqlite", "official postgres", "ours sqlite", "ours postgres")
Name = tuple[str, str]  # Of a value: its group and its name in the group.


@dataclass(frozen=True)
class Fate:
    """The result for a value.

    Attributes:
        refused: The error that ended the run which was to store it.
        unreadable: The error that ended the first read by a new process.
        there: Whether that read found a value.
        changed: How it differed from the stored value.
        stuck: The error when the run was resumed, although the node would return another value.
    """

    refused: str = ""
    unreadable: str = ""
    there: bool = False
    changed: str = ""
    stuck: str = ""

    @property
    def text(self) -> str:
        """The text in the table."""
        if self.unreadable:
            return "**stuck**: stored, and an error with each read"
        if self.stuck:
            return "**stuck**: an error, and again when the run is resumed"
        if not self.there:
            return "refused" if self.refused else "**lost** without an error"
        if self.refused:
            return "an error, yet stored" + (f", changed: {self.changed}" if self.changed else "")
        return f"changed: {self.changed}" if self.changed else "same"


class State(TypedDict, total=False):
    name: Sequence[str]
    value: Any


@contextmanager
def opened(saver: str, url: str) -> Iterator[Any]:
    """A saver, by its name; on SQLite, it does not wait for the disk."""
    whose, kind = saver.split()
    if whose == "ours":
        options: Any = {"synchronous": "OFF"} if kind == "sqlite" else {}
        with closing(open_saver(url, **options)) as ours:
            ours.setup()
            yield ours
        return
    with Official(kind, url).open() as official:
        if isinstance(official, SqliteSaver):
            official.conn.execute("PRAGMA synchronous = OFF")
        yield official


@contextmanager
def empty_stores(dsn: str, folder: Path) -> Iterator[dict[str, str]]:
    """A database for each saver, on a PostgreSQL server and in a folder; its URL, by the saver's name."""
    with ExitStack() as stack:
        yield {
            saver: f"sqlite:///{folder / saver}.db"
            if saver.endswith("sqlite")
            else stack.enter_context(made_database(dsn))[1]
            for saver in SAVERS
        }


def values() -> dict[Name, Any]:
    """The values of the installed packages."""
    from tests.table.values import GROUPS

    there = [kind for kind in GROUPS if not kind.package or find_spec(kind.package)]
    return {(kind.name, name): value for kind in there for name, value in kind.make().items()}


def _graph(saver: Any, give: Any) -> Any:
    builder = StateGraph(State)
    builder.add_node("give", give)
    builder.add_edge(START, "give")
    return builder.compile(checkpointer=saver)


def _thread(number: int) -> Any:
    return {"configurable": {"thread_id": str(number)}}


def _error_of(graph: Any, given: Any, thread: Any) -> str:
    try:
        graph.invoke(given, thread, durability="sync")
    except Exception as error:
        return type(error).__name__
    return ""


def store(saver: str, url: str) -> list[Any]:
    """Run a graph that returns each value, on separate threads; returns the errors of the runs."""
    given = values()
    with opened(saver, url) as checkpointer:
        graph = _graph(checkpointer, lambda state: {"value": given[tuple(state["name"])]})
        return [[*name, _error_of(graph, {"name": name}, _thread(number))] for number, name in enumerate(given)]


def look(saver: str, url: str, errors: Sequence[Any]) -> list[Any]:
    """The state of the threads, and whether a run that ended with an error but stored something can be resumed."""
    given = values()
    with opened(saver, url) as checkpointer:
        graph = _graph(checkpointer, lambda state: {"value": "another"})
        return [
            [kind, name, asdict(_fate(graph, _thread(number), refused, given[kind, name]))]
            for number, (kind, name, refused) in enumerate(errors)
        ]


def _fate(graph: Any, thread: Any, refused: str, value: Any) -> Fate:
    try:
        found = graph.get_state(thread).values
    except Exception as error:
        return Fate(refused, unreadable=type(error).__name__)
    there = "value" in found
    changed = difference(value, found["value"]) if there else ""
    stuck = _error_of(graph, None, thread) if refused and there else ""
    return Fate(refused, there=there, changed=changed, stuck=stuck)


def measure(urls: Mapping[str, str], folder: Path) -> dict[str, dict[Name, Fate]]:
    """The result for each value with each saver, on empty databases; in two processes."""
    file = folder / "measured.json"
    file.write_text(json.dumps({saver: [url, []] for saver, url in urls.items()}), "utf-8")
    for step in ("store", "look"):
        command = [sys.executable, "-m", "tests.table.measuring", step, str(file)]
        done = subprocess.run(command, check=False, capture_output=True, text=True, cwd=Path(__file__).parents[2])
        assert done.returncode == 0, done.stderr
    found = json.loads(file.read_text("utf-8"))
    return {saver: {(kind, name): Fate(**fate) for kind, name, fate in fates} for saver, (_, fates) in found.items()}


def main(step: str, file: Path) -> None:
    """One of the two steps, with all savers."""
    warnings.simplefilter("ignore")
    known = json.loads(file.read_text("utf-8"))
    for saver, (url, errors) in known.items():
        known[saver] = [url, store(saver, url) if step == "store" else look(saver, url, errors)]
    file.write_text(json.dumps(known), "utf-8")


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
