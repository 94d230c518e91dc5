"""The app with all commands; turns their errors into messages and exit codes."""

from __future__ import annotations

import logging
import os
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from importlib import metadata
from io import TextIOWrapper
from typing import Annotated, Any, cast

import typer
import typer.core

from langgraph_checkpoint_custom.cli.changing import copy, delete, fork, label, prune, rollback, unlabel
from langgraph_checkpoint_custom.cli.checking import doctor, stats, types, verify
from langgraph_checkpoint_custom.cli.common import PROGRAM
from langgraph_checkpoint_custom.cli.moving import export, import_, migrate, rekey
from langgraph_checkpoint_custom.cli.output import complain, logs_as_notes, say, show_bug, show_source
from langgraph_checkpoint_custom.cli.reading import failures, history, interrupts, labels, tenants, threads
from langgraph_checkpoint_custom.cli.starting import demo, schema, setup, ui, worker
from langgraph_checkpoint_custom.cli.states import diff, show
from langgraph_checkpoint_custom.cli.sweeping import erase, set_ttl, status, sweep, vacuum
from langgraph_checkpoint_custom.errors import CheckpointError, ConfigError, CorruptCheckpoint, StorageError
from langgraph_checkpoint_custom.settings import KEYS, SERVERS_KEY

# psycopg's pool logs each failed attempt to connect. The command's own error reports it once, so the log is silenced.
_SILENCE = logging.NullHandler()

# The exception for invalid arguments: click's, or that of the click which newer versions of typer contain.
_Refusal = cast("type[typer.BadParameter]", typer.BadParameter.__mro__[2])

# A hint for errors of encrypted values. An error of the saver names its argument `serde`, which no command has.
_KEYS = f"Here, {KEYS} names the variables that have the keys; without it, the key is in {SERVERS_KEY}"

# The commands as the help lists them, in the order of a day's work.
GROUPS: Mapping[str, Sequence[Callable[..., None]]] = {
    "Start": (demo, setup),
    "Look": (threads, failures, show, history, diff, interrupts, labels, tenants, ui),
    "Change": (label, unlabel, copy, fork, rollback),
    "Clean up": (prune, delete, erase, sweep, set_ttl, vacuum),
    "Check": (status, verify, doctor, stats, types),
    "Move": (export, import_, migrate, rekey, schema),
}


def name_of(function: Callable[..., None]) -> str:
    """Return the name of a command: that of its function, in the form of the command line."""
    return function.__name__.strip("_").replace("_", "-")


class _Program(typer.core.TyperGroup):
    """The program, whose help lists the commands in groups."""

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write the name and first sentence of each command."""
        for title, functions in GROUPS.items():
            # The formatter wraps a sentence; without a limit, none is cut.
            rows = [(name, self.commands[name].get_short_help_str(limit=1_000)) for name in map(name_of, functions)]
            with formatter.section(title):
                # As wide as the longest name in all groups, so that the columns of the groups are aligned.
                formatter.write_dl([(name.ljust(_LONGEST), text) for name, text in rows])


_COMMANDS = [function for functions in GROUPS.values() for function in functions]
_LONGEST = max(len(name_of(function)) for function in _COMMANDS)

app = typer.Typer(
    name=PROGRAM,
    cls=_Program,
    add_completion=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,  # They print local variables, which can contain passwords.
    # The help is as wide as the terminal; click's own limit is 80 columns.
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 1_000},
)
for _function in _COMMANDS:
    app.command(name_of(_function))(_function)
app.command("_worker", hidden=True)(worker)


@app.callback(invoke_without_command=True)
def _program(
    ctx: typer.Context,
    version: Annotated[bool, typer.Option("--version", help="Print the version.", show_default=False)] = False,
) -> None:
    """Look into, change and move the checkpoints of LangGraph, in PostgreSQL and SQLite."""
    if version:
        say(f"langgraph-checkpoint-custom {metadata.version('langgraph-checkpoint-custom')}")
        raise typer.Exit
    if ctx.invoked_subcommand is None:
        show_source(ctx.get_help())


def run(argv: Sequence[str]) -> int:
    """Run a command; return the exit code."""
    logging.getLogger("psycopg.pool").addHandler(_SILENCE)
    for name in ("stdin", "stdout", "stderr"):
        if getattr(sys, name) is None:  # It was closed before the program began.
            setattr(sys, name, open(os.devnull, "r" if name == "stdin" else "w"))  # noqa: SIM115  # Until its end.
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    with logs_as_notes():
        return _run(argv)


def _run(argv: Sequence[str]) -> int:
    try:
        code = app(list(argv), prog_name=PROGRAM, standalone_mode=False)
        sys.stdout.flush()
        if code == 130:  # typer's code for Ctrl-C.
            raise KeyboardInterrupt
        return int(code or 0)
    except (KeyboardInterrupt, typer.Abort):  # Older versions of typer raise Abort for Ctrl-C.
        complain("interrupted")
        return 130
    except BrokenPipeError:
        # The reading process has ended, for example `head`. Without this, Python's flush at exit would print an error.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except (ConfigError, ImportError) as error:  # ImportError: an extra is missing; the message says which.
        complain(str(error))
        return 2
    except CorruptCheckpoint as error:
        complain(f"{error}. {_KEYS}" if "+" in (error.type or "") else str(error))
        return 1
    except StorageError as error:  # Its text begins with the operation that failed, which means nothing here.
        complain(str(error).removeprefix(f"{error.operation}: "))
        return 1
    except (CheckpointError, OSError) as error:
        complain(str(error))
        return 1
    except _Refusal as error:
        # Whatever may be a URL is removed, since a URL can contain a password.
        complain(re.sub(r"\S*(://|=)\S*", "(a URL)", error.format_message()))
        return 2
    except Exception:  # A bug; the traceback helps to find it.
        show_bug()
        return 1
