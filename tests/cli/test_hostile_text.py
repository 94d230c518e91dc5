"""Text from the store never reaches a terminal as it is: every command, on a store full of hostile text."""

from __future__ import annotations

import ast
import logging
import re
import sys
import warnings
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from langchain_core.messages import AIMessage, HumanMessage
from langgraph.checkpoint.serde.encrypted import EncryptedSerializer
from langgraph.checkpoint.serde.types import ERROR, INTERRUPT
from langgraph.types import Interrupt

import langgraph_checkpoint_custom.cli as package
from langgraph_checkpoint_custom import SqliteSaver
from langgraph_checkpoint_custom.adapters.sessions import SessionCheckpoint, SessionStore
from langgraph_checkpoint_custom.cli.app import run
from langgraph_checkpoint_custom.cli.output import logs_as_notes
from langgraph_checkpoint_custom.cli.reading import threads
from langgraph_checkpoint_custom.model.keys import thread_of
from tests.behaviour.helpers import config, id_of, metadata
from tests.cli.conftest import Cli, on_terminal
from tests.cli.test_document import COMMANDS
from tests.cli.test_reading import put

# A title, colours, a bell, a backspace, an erased line, a line of its own, marks that turn
# the direction of text, characters without width, and rich's markup.
PIECES = ("\x1b]0;owned\x07", "\x1b[31m", "\x9b31m", "\x08", "\x1b[2K", "\r\n", "\u202e", "\u2066", "\u200b", "\u2028")
HOSTILE = "a" + "".join(PIECES) + "[bold red]z"
SHOWN = r"a\x1b]0;owned\x07\x1b[31m\x9b31m\x08\x1b[2K\r\n\u202e\u2066\u200b\u2028[bold red]z"
# The end of it, which is the same in the id of another framework's thread.
END = r"\u202e\u2066\u200b\u2028[bold red]z"
# What rich itself writes to a terminal.
COLOURS = re.compile(r"\x1b\[[0-9;]*m")

# {thread} is the hostile id, {first} and {last} are checkpoints of it.
LINES: dict[str, list[list[str]]] = {
    "demo": [],  # It shows nothing that is in the store already.
    "setup": [["setup"]],
    "threads": [["threads"], ["threads", "--limit", "1"], ["threads", "--tenant", HOSTILE]],
    "show": [["show", "{thread}"], ["show", "{thread}", "--full"], ["show", "{thread}", "--namespace", HOSTILE]],
    "history": [["history", "{thread}"]],
    "diff": [["diff", "--thread", "{thread}", "{first}", "{last}"], ["diff", "{thread}", "{session}"]],
    "failures": [["failures"]],
    "interrupts": [["interrupts"]],
    "labels": [["labels", "{thread}"]],
    "tenants": [["tenants"]],
    "label": [["label", "{thread}", f"{HOSTILE}2"]],
    "unlabel": [["unlabel", "{thread}", f"{HOSTILE}2"]],
    "copy": [["copy", "{thread}", f"{HOSTILE}3"]],
    "fork": [["fork", "{thread}", f"{HOSTILE}4"]],
    "rollback": [["rollback", f"{HOSTILE}4", "{last}", "--dry-run"], ["rollback", f"{HOSTILE}3", "{last}", "--yes"]],
    "prune": [["prune", "{thread}", "--dry-run"], ["prune", f"{HOSTILE}3", "--yes"]],
    "delete": [["delete", f"{HOSTILE}3", "--yes"], ["delete", "{thread}", "--dry-run"]],
    "sweep": [["sweep", "--keep-last", "5", "--yes"]],
    "set-ttl": [["set-ttl", "{thread}", "30d"]],
    "status": [["status"]],
    "erase": [["erase", "--where", f"{HOSTILE}={HOSTILE}", "--dry-run"]],
    "verify": [["verify"]],
    "doctor": [["doctor"]],
    "stats": [["stats"], ["stats", "{thread}"]],
    "types": [["types"]],
    "export": [["export", "all.zst"]],
    "import": [["import", "all.zst", "--url", "other.db"]],
    "migrate": [["migrate", "--from", "other.db"]],
    "rekey": [["rekey", "--dry-run"]],
    "schema": [["schema"]],
    "vacuum": [],  # It shows nothing that is stored.
}
# With their exit codes.
FAILING = (
    (1, ["show", f"{HOSTILE} nobody"]),
    (1, ["show", "{thread}", f"{HOSTILE} x"]),
    (1, ["unlabel", "{thread}", HOSTILE + "x"]),
    (2, ["copy", "{thread}", "{session}"]),
    (1, ["rollback", "{thread}", "{first}", "--yes"]),
    (1, ["label", "{thread}", HOSTILE, "{last}"]),
    (1, ["import", HOSTILE]),
    (1, ["threads", "--url", f"sqlite:///{HOSTILE}"]),
    (2, [HOSTILE]),
    (2, ["threads", f"--{HOSTILE}"]),
)


@pytest.fixture
def names(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """A store in which everything that can be a text is hostile; the names in `LINES`."""
    monkeypatch.setenv("KEY", "0123456789abcdef")
    module = ModuleType(f"module{HOSTILE}")
    monkeypatch.setitem(sys.modules, module.__name__, module)

    @dataclass
    class Gone:
        text: str

    Gone.__module__, Gone.__qualname__ = module.__name__, f"Gone{HOSTILE}"
    setattr(module, Gone.__qualname__, Gone)
    call: Any = {"name": HOSTILE, "args": {HOSTILE: HOSTILE}, "id": HOSTILE}
    values: dict[str, Any] = {HOSTILE: HOSTILE, "object": Gone(HOSTILE), "dict": {HOSTILE: [HOSTILE]}}
    with cli.store.open() as saver:
        chat = [HumanMessage(HOSTILE, id=HOSTILE, name=HOSTILE), AIMessage(HOSTILE, tool_calls=[call])]
        about = metadata(1, user=HOSTILE, source=HOSTILE, run_id=HOSTILE, **{HOSTILE: HOSTILE})
        first = put(saver, HOSTILE, meta=about, messages=chat, text="one\ntwo", **values)
        saver.label(first, HOSTILE)
        inner = put(saver, HOSTILE, config(HOSTILE, ns=HOSTILE), about, messages=chat, **values)
        last = put(saver, HOSTILE, first, about, messages=[*chat, AIMessage(HOSTILE)], text=f"one\n{HOSTILE}", new=1)
        saver.label(last, f"{HOSTILE}last")
        saver.put_writes(last, [(INTERRUPT, [Interrupt(value=HOSTILE, id=HOSTILE)])], HOSTILE)
        saver.put_writes(inner, [(HOSTILE, HOSTILE), (ERROR, HOSTILE)], HOSTILE)
        SessionStore(saver, HOSTILE).save(
            SessionCheckpoint(HOSTILE, 1, [{"role": HOSTILE, "content": HOSTILE}], {}, {HOSTILE: HOSTILE})
        )
        put(saver.for_tenant(HOSTILE), HOSTILE, meta=about, messages=chat)
    session = thread_of("session", HOSTILE, HOSTILE)
    return {"thread": HOSTILE, "first": id_of(first), "last": id_of(last), "session": session}


def filled(line: list[str], names: dict[str, str]) -> list[str]:
    return [names.get(each[1:-1], each) if each.startswith("{") else each for each in line]


def test_no_command_prints_it_as_it_is(names: dict[str, str], cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    """The fixture asserts that all that is printed is printable."""
    for name, lines in LINES.items():
        if name == "rekey":
            monkeypatch.setenv("CHECKPOINT_ENCRYPTION_KEYS", "KEY,unencrypted")
        for line in lines:
            text = cli(*filled(line, names))
            if name in ("threads", "show", "history", "interrupts", "labels", "tenants", "stats", "types"):
                assert END in text, line
    for name in ("threads", "show", "history", "interrupts", "labels", "tenants", "stats", "types", "diff"):
        for line in LINES[name]:
            cli.json(*filled(line, names))
    for code, line in FAILING:
        assert "\\u202e" in cli.fail(*filled(line, names), code=code)


def test_every_command_is_tried() -> None:
    assert set(LINES) == set(COMMANDS) - {"ui"}


def test_a_terminal_gets_colours_and_nothing_of_the_text(names: dict[str, str], cli: Cli) -> None:
    for name in ("threads", "show", "diff"):
        for line in LINES[name]:
            code, text = on_terminal(*filled(line, names))
            assert code == 0, text
            assert "\x1b[1m" in text, line
            left = COLOURS.sub("", text).replace("\r\n", "\n")
            assert all(each.isprintable() for each in left.split("\n")), repr(left)
            assert "owned" in left or name == "diff", line


def test_errors_about_stored_values_are_escaped(cli: Cli) -> None:
    with cli.store.open(serde=EncryptedSerializer.from_pycryptodome_aes(key=b"0123456789abcdef")) as saver:
        put(saver, HOSTILE, **{HOSTILE: HOSTILE})
    for argv in (["show", HOSTILE], ["threads"], ["diff", HOSTILE, HOSTILE]):
        assert "\\x1b]0;owned" in cli.fail(*argv)


def test_logs_warnings_and_bugs_are_escaped(
    cli: Cli, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with logs_as_notes(), warnings.catch_warnings():
        warnings.simplefilter("always")
        logging.getLogger("anything").warning("a %s", HOSTILE)
        warnings.warn(HOSTILE, stacklevel=1)
    text = capsys.readouterr().err
    assert text.startswith(f"note: a {SHOWN}\nnote: ")
    assert all(line.isprintable() for line in text.split("\n"))

    def fail(*_: object) -> None:
        raise RuntimeError(HOSTILE)

    monkeypatch.setattr(SqliteSaver, "threads", fail)
    monkeypatch.setattr("langgraph_checkpoint_custom.cli.common.without_classes", fail)
    assert run(["threads"]) == 1
    text = capsys.readouterr().err
    assert "Traceback" in text
    assert threads.__name__ in text
    assert all(line.isprintable() for line in text.split("\n"))


def test_only_one_module_prints() -> None:
    """So there is one place that escapes. `__init__.py` prints before that module can be imported."""
    for path in sorted(Path(package.__path__[0]).glob("*.py")):
        if path.name in ("output.py", "__init__.py"):
            continue
        tree = ast.parse(path.read_text("utf-8"))
        for node in ast.walk(tree):
            assert not (isinstance(node, ast.Name) and node.id == "print"), path.name
            assert not (isinstance(node, ast.Attribute) and node.attr in ("echo", "secho", "write")), path.name
