"""The demo: it kills an agent in the middle of its work, and continues from the database alone.

The graph is a real compiled one: an agent loop with a tool, a fan-out with `Send`, an approval with `interrupt`, and a
`DeltaChannel`. Only the model is a stand-in. It decides from the state alone, so the demo needs no key and no network,
and every run is the same. The graph cannot count its own executions, so each tool call appends a line to a journal, a
file outside of the database.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from textwrap import fill
from typing import Any
from urllib.parse import unquote

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.types import Command, StateSnapshot
from langsmith import tracing_context
from rich.console import Console
from rich.text import Text
from ulid import ULID

from langgraph_checkpoint_custom.demo.agent import PRICES, SLOW, TASK, Graph, Tools, build_graph, of_thread
from langgraph_checkpoint_custom.errors import CheckpointError, ConfigError
from langgraph_checkpoint_custom.saver import CheckpointSaver
from langgraph_checkpoint_custom.settings import open_saver
from langgraph_checkpoint_custom.tools.display import database_of

__all__ = ["DemoFailed", "build_graph", "run", "work"]

TITLE = "An agent buys coffee, is killed halfway, and loses no work. Only its model is a stand-in."
# Columns of a line that is not printed to a terminal.
WIDTH = 120
# Columns before the text of a step.
INDENT = 11
# Seconds to wait until the database has the other suppliers' results. Usually they take a few milliseconds.
RESULTS_TIMEOUT = 10.0
# The return code of a process that SIGKILL ended. Windows has no signals; TerminateProcess makes it 1.
KILLED = 1 if os.name == "nt" else -9


class DemoFailed(CheckpointError):
    """The demo could not show what it promises; the message says what differs."""


# The child processes


def work(phase: str, url: str, thread_id: str, journal: str) -> None:
    """Do the work of a child process.

    Args:
        phase: "start" runs the task until the process is killed; "finish" continues from the database to the end.
        url: The database.
        thread_id: The thread.
        journal: The path of the journal.
    """
    config = of_thread(thread_id)
    # So that the superstep in which one run ended and another one continued can be seen, for example by the inspector.
    config["configurable"]["run_id"] = f"process-{os.getpid()}"
    with tracing_context(enabled=False), open_saver(url) as saver:
        if phase == "start":
            graph = build_graph(saver, Tools(Path(journal), stuck_on=SLOW))
            graph.invoke(TASK, config, durability="sync")
        else:
            graph = build_graph(saver, Tools(Path(journal)))
            graph.invoke(None, config, durability="sync")
            graph.invoke(Command(resume="yes"), config, durability="sync")


def start_child(phase: str, url: str, thread_id: str, journal: Path) -> subprocess.Popen[str]:
    """Start a process that runs `work`; it prints its errors to the stderr of this process."""
    command = [sys.executable, "-m", "langgraph_checkpoint_custom", "_worker", phase, thread_id, str(journal)]
    return subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "CHECKPOINT_URL": url},
    )


# The parent process


def run(url: str | None) -> None:
    """Run the demo and print it.

    Args:
        url: The database; a new SQLite file in the current folder if None.

    Raises:
        DemoFailed: A proof did not hold.
    """
    if url is not None and unquote(url) in ("sqlite:///", "sqlite:///:memory:"):
        raise ConfigError("the demo runs in several processes, so it needs a database that they share; give a file")
    thread_id = "demo" if url is None else f"demo-{ULID()}"
    url = f"sqlite:///{new_file()}" if url is None else url
    with tempfile.TemporaryDirectory() as folder, tracing_context(enabled=False), open_saver(url) as saver:
        saver.setup()
        journal = Path(folder, "journal.txt")
        journal.touch()
        story = Story()
        demo = Demo(url, thread_id, journal, saver, build_graph(saver, Tools(journal)), story)
        story.begin()
        demo.start()
        demo.resume()
        demo.approve()
        demo.fork(demo.history())
        demo.copy()
        demo.prune()
    story.end(database_of(saver), url, thread_id)


@dataclass(frozen=True)
class Demo:
    """The steps of the demo on one thread; each prints a line or raises `DemoFailed`."""

    url: str = field(repr=False)  # It may contain a password.
    thread_id: str
    journal: Path
    saver: CheckpointSaver
    graph: Graph
    story: Story

    @property
    def config(self) -> RunnableConfig:
        """The thread of the demo."""
        return of_thread(self.thread_id)

    @property
    def copy_id(self) -> str:
        """The id of the copy of the demo's thread."""
        return f"{self.thread_id}-copy"

    def start(self) -> None:
        """Kill a process while one of its four parallel tasks is running."""
        with (
            self.story.working("a process runs the agent"),
            start_child("start", self.url, self.thread_id, self.journal) as child,
        ):
            try:
                ready = child.stdout is not None and child.stdout.readline()
                stored = self._wait_for_results(len(PRICES) - 1) if ready else []
            finally:
                child.kill()
        prove(bool(ready), f"the first process ended on its own, with exit code {child.returncode}")
        prove(child.returncode == KILLED, f"the killed process has the exit code {child.returncode}, not {KILLED}")
        self.story.step(
            "start",
            f"Process {child.pid} asks {len(PRICES)} suppliers for prices at once. Its steps are stored as "
            f"{self._count(self.thread_id)} checkpoints.",
        )
        self.story.step(
            "crash",
            f"SIGKILL ends it (exit code {child.returncode}) when {len(stored)} have answered. Their answers are "
            f"stored: {', '.join(stored)}.",
        )

    def resume(self) -> None:
        """Let a second process continue, answer the approval and finish."""
        with (
            self.story.working("a new process continues"),
            start_child("finish", self.url, self.thread_id, self.journal) as child,
        ):
            child.communicate()
        prove(child.returncode == 0, f"the second process ended with exit code {child.returncode}")
        calls = self._calls()
        expected = Counter([*PRICES, SLOW])
        prove(calls == expected, f"the suppliers were asked {counted(calls)}; it should have been {counted(expected)}")
        self.story.step(
            "resume",
            f"Process {child.pid} has only the database. It asks {SLOW} again and nobody else ({counted(calls)}).",
        )

    def approve(self) -> None:
        """Prove that the agent waited for a human, and that the final state is as if no process had been killed."""
        asked = self._asked()
        state = self.graph.get_state(self.config)
        prove_equal("the final state", undisturbed(), state.values)
        self.story.step(
            "approval",
            f'It asks a human: "{asked.interrupts[0].value}" After "yes", its state equals that of a run that nobody '
            "killed.",
        )

    def history(self) -> list[StateSnapshot]:
        """Return all checkpoints, newest first."""
        history = list(self.graph.get_state_history(self.config))
        steps = [snapshot.metadata["step"] for snapshot in history if snapshot.metadata]
        prove(steps == sorted(steps, reverse=True), f"the history is not in order: {steps}")
        self.story.step("history", f"All steps of both processes are there, in order: {len(history)} checkpoints.")
        return history

    def fork(self, history: Sequence[StateSnapshot]) -> None:
        """Go back to the question and answer it differently, in a new branch of the thread."""
        calls = self._calls()
        with self.story.working("back to the question"):
            asked = self._asked()
            self.graph.invoke(None, asked.config, durability="sync")
            self.graph.invoke(Command(resume="no"), self.config, durability="sync")
            branch = self.graph.get_state(self.config)
            first = self.graph.get_state(history[0].config)
        prove_equal("the first result after the fork", history[0].values, first.values)
        prove(branch.values["approved"] is False, f"the fork ended with {result(branch)!r}")
        prove(calls == self._calls(), f"the fork called tools again: {counted(self._calls() - calls)}")
        self.story.step(
            "fork",
            f'Back at the question, the answer is "no". Both ends exist: "{result(first)}" and "{result(branch)}"',
        )

    def copy(self) -> None:
        """Copy the thread with its complete history."""
        with self.story.working("copying the thread"):
            self.saver.copy_thread(self.thread_id, self.copy_id)
            original = list(self.graph.get_state_history(self.config))
            copied = list(self.graph.get_state_history(of_thread(self.copy_id)))
        prove(len(original) == len(copied), f"the copy has {len(copied)} checkpoints, the original {len(original)}")
        for left, right in zip(original, copied, strict=True):
            checkpoint_id = left.config["configurable"]["checkpoint_id"]
            prove_equal(f"checkpoint {checkpoint_id} of the copy", left.values, right.values)
        self.story.step("copy", f"{self.copy_id} has equal states in all {len(copied)} checkpoints, of both branches.")

    def prune(self) -> None:
        """Prune the thread, read its state with a new saver and compare it with the state before."""
        with self.story.working("pruning"):
            before = self.graph.get_state(self.config)
            count_before = self._count(self.thread_id)
            self.saver.prune([self.thread_id], strategy="keep_latest")
            with open_saver(self.url) as fresh:
                graph = build_graph(fresh)
                after = graph.get_state(self.config)
                copied = graph.get_state(of_thread(self.copy_id))
        count_after = self._count(self.thread_id)
        left = self.saver.get_tuple(self.config)
        prove(left is not None and "messages" not in left.checkpoint["channel_values"], "the messages are no delta")
        prove(count_after == 1, f"pruning left {count_after} checkpoints instead of 1")
        prove(self._count(self.copy_id) == count_before, "pruning the original has changed the history of the copy")
        prove_equal("the state after pruning", before.values, after.values)
        prove_equal("the state of the copy after pruning the original", before.values, copied.values)
        self.story.step(
            "prune",
            f"{self.thread_id} keeps {count_after} of {count_before} checkpoints, and its state with all "
            f"{len(after.values['messages'])} messages.",
        )

    def _wait_for_results(self, number: int) -> list[str]:
        """Wait until the database has so many prices, and return them; reads it from outside of the child process."""
        deadline = time.monotonic() + RESULTS_TIMEOUT
        while True:
            tasks = self.graph.get_state(self.config).tasks
            stored = [price for task in tasks if task.result for price in task.result["prices"]]
            if len(stored) >= number:
                return stored
            prove(time.monotonic() < deadline, f"after {RESULTS_TIMEOUT:g} s only these results were stored: {stored}")
            time.sleep(0.02)

    def _asked(self) -> StateSnapshot:
        """Return the checkpoint at which the agent asked for approval the first time."""
        asked = [snapshot for snapshot in self.graph.get_state_history(self.config) if snapshot.interrupts]
        prove(bool(asked), "no checkpoint has a question in it")
        return asked[-1]

    def _calls(self) -> Counter[str]:
        """Count how often each supplier was asked, in all processes."""
        return Counter(line for line in self.journal.read_text(encoding="utf-8").split() if line in PRICES)

    def _count(self, thread_id: str) -> int:
        return sum(1 for _ in self.saver.list(of_thread(thread_id)))


def undisturbed() -> dict[str, Any]:
    """Run the same task without a crash, in memory, and return the final state."""
    graph = build_graph(InMemorySaver())
    graph.invoke(TASK, of_thread("undisturbed"))
    graph.invoke(Command(resume="yes"), of_thread("undisturbed"))
    values: dict[str, Any] = graph.get_state(of_thread("undisturbed")).values
    return values


def new_file() -> str:
    """Create a file in the current folder, which only the owner may read, and return its name."""
    handle, path = tempfile.mkstemp(".db", "checkpoints-demo-", os.curdir)
    os.close(handle)
    return os.path.basename(path)


# Proofs


def prove(holds: bool, otherwise: str) -> None:
    """Raise DemoFailed unless a condition holds."""
    if not holds:
        raise DemoFailed(f"the demo failed: {otherwise}")


def prove_equal(what: str, expected: Mapping[str, Any], found: Mapping[str, Any]) -> None:
    """Raise DemoFailed unless two states are equal in all channels."""
    for channel in sorted(expected.keys() | found.keys()):
        left, right = (repr(state[channel]) if channel in state else "nothing" for state in (expected, found))
        equal = channel in expected and channel in found and expected[channel] == found[channel]
        prove(equal, f"{what} differs in channel {channel!r}: expected {left}, found {right}")


def counted(calls: Counter[str]) -> str:
    """Format the counts, for example "Aroma 1, Crema 2"."""
    return ", ".join(f"{name} {times}" for name, times in sorted(calls.items())) or "none"


def result(snapshot: StateSnapshot) -> str:
    """Return the text of the last message."""
    return str(snapshot.values["messages"][-1].content)


# Printing: in color and with something that moves on a terminal, as plain lines otherwise


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
