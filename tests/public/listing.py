"""A line for each public name of the code: Python, environment variables, commands with their JSON, the view."""

from __future__ import annotations

import inspect
import io
import json
import os
import re
import shlex
import sqlite3
from collections.abc import Iterator
from contextlib import closing, redirect_stdout
from enum import Enum
from importlib import import_module
from pathlib import Path
from typing import Any, get_type_hints
from unittest.mock import patch

import typer.main
from langgraph.graph import START, StateGraph
from langgraph.types import interrupt

import langgraph_checkpoint_custom
from langgraph_checkpoint_custom import SqliteSaver, settings
from langgraph_checkpoint_custom.cli import main
from langgraph_checkpoint_custom.cli.app import app
from langgraph_checkpoint_custom.options import PostgresOptions, SqliteOptions

FILE = Path(__file__).with_name("public.txt")
PACKAGE = langgraph_checkpoint_custom.__name__
# The public names of other modules than the package itself, which lists its own.
MODULES: dict[str, tuple[str, ...]] = {
    "server": ("checkpointer",),
    "ui": ("create_app",),
    "otel": ("instrumentation",),
    "lease": ("Lease",),
    "lifecycle": ("Backend",),
    "operations.reencrypt": ("Renewal",),
    "tools.migration": ("migrate", "migrate_back", "copy_from", "acopy_from", "MoveReport"),
    "tools.fence": ("close", "open_again"),
    "tools.exchange": (
        *("export_file", "import_file", "transfer", "count_exported", "ExchangeReport", "BrokenExport"),
    ),
    "adapters": ("thread_of",),
    "adapters.sessions": ("SessionStore", "SessionCheckpoint", "SessionVersion"),
    "adapters.key_values": ("KeyValueStore", "Item"),
}
# Public, too, in packages that need more than this one: `adapters.cubeloop` and `adapters.pydantic_deep`.
# The commands that print JSON, in an order in which each finds something. FIRST is a checkpoint's id.
COMMANDS = """
setup
threads
show asks
show chat
history chat
failures
interrupts
label chat named
labels chat
unlabel chat named
tenants
diff chat asks
copy chat copied
fork chat forked
types
stats
stats chat
verify
doctor
schema
export exported.zst
import exported.zst --url imported.db
rollback copied FIRST --yes
prune copied --dry-run
prune copied --yes
delete copied --dry-run
delete copied --yes
sweep --keep-last 1 --dry-run
sweep --keep-last 1 --yes
migrate --from imported.db --url moved.db --dry-run
migrate --from imported.db --url moved.db
rekey --dry-run
vacuum --yes
"""


def listing(folder: Path) -> list[str]:
    """All lines, sorted; `folder` is empty."""
    return sorted({*_python(), *_options(), *_variables(), *_commands(), *_json(folder)})


def _python() -> Iterator[str]:
    modules = {PACKAGE: tuple(langgraph_checkpoint_custom.__all__)}
    modules |= {f"{PACKAGE}.{module}": names for module, names in MODULES.items()}
    objects = {
        f"{module}.{name}": getattr(import_module(module), name) for module in modules for name in modules[module]
    }
    classes = [found for found in objects.values() if inspect.isclass(found)]
    for name, found in objects.items():
        if found in classes:
            yield f"class {name}({', '.join(base.__name__ for base in found.__bases__ if base is not object)})"
            inherited = {
                base for other in classes if other is not found for base in other.__mro__ if other in found.__mro__
            }
            yield from (f"in {name}: {member}" for member in _members(found, inherited))
        else:
            yield f"function {name}{_signature(found)}"


def _members(cls: Any, inherited: set[Any]) -> Iterator[str]:
    """The public methods, properties and fields; of an error, its attributes; without those of classes in the list."""
    own = [base for base in cls.__mro__ if base.__module__.startswith(PACKAGE) and base not in inherited]
    if not issubclass(cls, BaseException) and "__init__" in {name for base in own for name in vars(base)}:
        yield f"__init__{_signature(cls.__init__)}"
    for base in own:
        text = re.search(r"^ *Attributes:\n((?: {4,}.*\n?| *\n)+)", inspect.cleandoc(base.__doc__ or ""), re.MULTILINE)
        yield from re.findall(r"^    (\w+):", text[1], re.MULTILINE) if text else ()
        yield from getattr(base, "_fields", ())
        for name, member in vars(base).items():
            if not name.startswith("_") and name not in getattr(base, "_fields", ()):
                member = member.__func__ if isinstance(member, (classmethod, staticmethod)) else member
                yield f"{name}{_signature(member)}" if inspect.isfunction(member) else name


def _signature(function: Any) -> str:
    """The parameters with those defaults that have a text of their own."""
    texts: list[str] = []
    is_keyword = False
    for parameter in inspect.signature(function).parameters.values():
        if parameter.kind is parameter.KEYWORD_ONLY and not is_keyword:
            is_keyword = True
            texts.append("*")
        elif parameter.kind is parameter.VAR_POSITIONAL:
            is_keyword = True
        prefix = {"VAR_POSITIONAL": "*", "VAR_KEYWORD": "**"}.get(parameter.kind.name, "")
        default = parameter.default
        plain = isinstance(default, (str, int, float, tuple, type(None))) and not isinstance(default, Enum)
        ending = "" if default is parameter.empty else f"={default!r}" if plain else "=…"
        texts.append(f"{prefix}{parameter.name}{ending}")
    return f"({', '.join(texts)})"


def _options() -> Iterator[str]:
    for saver, options in (("SqliteSaver", SqliteOptions), ("PostgresSaver", PostgresOptions)):
        yield from (f"option {saver}({name})" for name in get_type_hints(options))


def _variables() -> Iterator[str]:
    yield from (f"variable {name}" for name in {*settings._KNOWN, settings.SERVERS_KEY})


def _commands() -> Iterator[str]:
    group: Any = typer.main.get_command(app)
    for name, command in group.commands.items():
        if not command.hidden:
            words = [max(each.opts, key=len) for each in command.params if each.name != "help"]
            yield f"command lgckpt {name}: {' '.join(sorted(words, key=lambda word: (word.startswith('-'), word)))}"


def _json(folder: Path) -> Iterator[str]:
    """The keys of the JSON of each command, and of the objects in its lists; and the columns of the view."""
    variables = {"CHECKPOINT_ENCRYPTION_KEYS": "KEY,unencrypted", "KEY": "0123456789abcdef"}
    with patch.dict(os.environ, {"CHECKPOINT_URL": str(folder / "store.db"), **variables}):
        with SqliteSaver(folder / "store.db") as saver:
            first = _fill(saver)
        commands = re.sub(r"\w+\.(db|zst)", lambda file: str(folder / file[0]), COMMANDS.replace("FIRST", first))
        for line in commands.strip().splitlines():
            output = io.StringIO()
            with redirect_stdout(output):
                assert main([*shlex.split(line), "--json"]) in (0, 1), line
            name = line.split()[0]
            for key, value in json.loads(output.getvalue()).items():
                yield f"json {name}: {key}"
                rows = value if isinstance(value, list) else []
                yield from (f"json {name}: {key}[].{inner}" for row in rows if isinstance(row, dict) for inner in row)
        with closing(sqlite3.connect(folder / "store.db")) as file:
            columns = file.execute("SELECT * FROM checkpoints_readable").description
            yield from (f"view checkpoints_readable: {column[0]}" for column in columns)


def _fill(saver: SqliteSaver) -> str:
    """Store threads that have ended, ask and failed, and one of a tenant; returns the first id of the thread chat."""

    def chat(state: dict[str, Any]) -> dict[str, Any]:
        return {"said": [*state["said"], "hello"]}

    def ask(state: dict[str, Any]) -> dict[str, Any]:
        return {"said": [interrupt("who?")]}

    def fail(state: dict[str, Any]) -> dict[str, Any]:
        raise ValueError("no")

    for node, thread_id in ((chat, "chat"), (ask, "asks"), (fail, "fails"), (chat, "tenant's")):
        builder: Any = StateGraph(dict)
        builder.add_node("node", node)
        builder.add_edge(START, "node")
        graph = builder.compile(checkpointer=saver.for_tenant("acme") if thread_id == "tenant's" else saver)
        try:
            graph.invoke({"said": []}, {"configurable": {"thread_id": thread_id}}, durability="sync")
        except ValueError:
            assert thread_id == "fails"
    *_, first = saver.list({"configurable": {"thread_id": "chat"}})
    return str(first.config["configurable"]["checkpoint_id"])
