"""The app with all commands; turns their errors into messages and exit codes."""

from __future__ import annotations

import logging
import os
import re
import sys
from collections.abc import Sequence
from typing import cast

import typer

from langgraph_checkpoint_custom.cli import changing, counting, health, moving, reading, sweeping, tables, trying
from langgraph_checkpoint_custom.cli.common import Refused
from langgraph_checkpoint_custom.cli.output import complain
from langgraph_checkpoint_custom.errors import CheckpointError, CorruptCheckpoint
from langgraph_checkpoint_custom.settings import KEYS, SERVERS_KEY

# psycopg's pool logs each failed attempt to connect. The command's own error reports it once, so the log is silenced.
_SILENCE = logging.NullHandler()

# The exception for invalid arguments: click's, or that of the click which newer versions of typer contain.
_Refusal = cast("type[typer.BadParameter]", typer.BadParameter.__mro__[2])

# A hint for errors of encrypted values. An error of the saver names its argument `serde`, which no command has.
_KEYS = f"Here, {KEYS} names the variables that have the keys; without it, the key is in {SERVERS_KEY}"

app = typer.Typer(
    name="langgraph-checkpoint",
    help="Checkpoints for LangGraph on PostgreSQL and SQLite.",
    no_args_is_help=False,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,  # They print local variables, which can contain passwords.
)
for _group in (trying, tables, reading, counting, health, changing, sweeping, moving):
    app.add_typer(_group.commands)


def run(argv: Sequence[str]) -> int:
    """Run a command; return the exit code."""
    logging.getLogger("psycopg.pool").addHandler(_SILENCE)
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")
    try:
        code = app(list(argv), prog_name="langgraph-checkpoint", standalone_mode=False)
        sys.stdout.flush()
        if code == 130:  # typer's code for Ctrl-C.
            raise KeyboardInterrupt
        return int(code or 0)
    except KeyboardInterrupt:
        complain("interrupted")
        return 130
    except typer.Abort:  # Older versions of typer raise this for Ctrl-C.
        complain("interrupted")
        return 130
    except BrokenPipeError:
        # The reading process has ended, for example `head`. Without this, Python's flush at exit would print an error.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except (
        CheckpointError,
        ImportError,
        OSError,
    ) as error:  # ImportError: an extra is missing; the message says which.
        encrypted = isinstance(error, CorruptCheckpoint) and "+" in (error.type or "")
        complain(f"{error}. {_KEYS}" if encrypted else str(error))
        return 2 if isinstance(error, Refused) else 1
    except _Refusal as error:
        # Whatever may be a URL is removed, since a URL can contain a password.
        complain(re.sub(r"\S*(://|=)\S*", "(a URL)", error.format_message()))
        return 2
