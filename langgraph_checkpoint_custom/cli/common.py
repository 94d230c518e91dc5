"""The options that commands share, and the saver that they make."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from copy import copy
from pathlib import Path
from typing import Annotated, TypeVar
from urllib.parse import unquote

import typer

from langgraph_checkpoint_custom.core.model import KIND_MARK
from langgraph_checkpoint_custom.core.verbatim import verbatim
from langgraph_checkpoint_custom.errors import CheckpointError, ConfigError
from langgraph_checkpoint_custom.saver import CheckpointSaver
from langgraph_checkpoint_custom.settings import URL, settings_of
from langgraph_checkpoint_custom.url import open_saver

# As `safe` shows it.
_SHOWN_MARK = repr(KIND_MARK)[1:-1]


def thread_as_typed(text: str) -> str:
    r"""The id of a thread: that of another framework's can be typed as it is shown, beginning with \x1e."""
    return KIND_MARK + text.removeprefix(_SHOWN_MARK) if text.startswith(_SHOWN_MARK) else text


Url = Annotated[
    str | None,
    typer.Option(
        help=f"sqlite:///checkpoints.db or postgresql://user:password@host/database; by default {URL}",
        show_default=False,
    ),
]
Tenant = Annotated[
    str | None,
    typer.Option(help="the tenant whose threads are meant; by default those without one", show_default=False),
]
Json = Annotated[bool, typer.Option("--json", help="print one JSON document", show_default=False)]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="do not ask", show_default=False)]
DryRun = Annotated[bool, typer.Option("--dry-run", help="say what would be done and do nothing", show_default=False)]
Thread = Annotated[
    str, typer.Argument(metavar="THREAD", parser=thread_as_typed, help="the id of a thread", show_default=False)
]
Namespace = Annotated[
    str,
    typer.Option("--namespace", "-n", help="a checkpoint namespace; by default the root graph's", show_default=False),
]


class Refused(CheckpointError):
    """A command that cannot be meant as it was said; nothing was done."""


S = TypeVar("S", bound=CheckpointSaver)


def given(url: str | None) -> str:
    """The URL of the database."""
    url = url or os.environ.get(URL, "").strip()
    if not url:
        raise ConfigError(f"no database is given; use --url or set {URL}")
    return url


@contextmanager
def opened(url: str | None, tenant: str | None = None, *, may_be_new: bool = False) -> Iterator[CheckpointSaver]:
    """The saver that the options and the environment ask for.

    Args:
        url: What came as `--url`.
        tenant: What came as `--tenant`.
        may_be_new: Whether a SQLite file that is not there is to be made.
    """
    where = given(url)
    if not may_be_new:
        must_exist(where)
    settings = settings_of(os.environ, where)
    with open_saver(settings.url, **settings.all_options()) as saver:
        yield saver if tenant is None else saver.for_tenant(tenant)


def must_exist(url: str) -> None:
    """Refuse to look into a SQLite file that looking would make."""
    path = unquote(url.removeprefix("sqlite:///"))
    if url.startswith("sqlite:///") and path != ":memory:" and not Path(path).exists():
        raise ConfigError(f"there is no file {path!r}; setup makes one")


def without_classes(saver: S) -> S:
    """The same saver, reading values without importing or making anything."""
    clone = copy(saver)
    clone.serde = verbatim(saver.serde)
    return clone


def rows_of(saver: CheckpointSaver) -> int:
    """The rows of all tables, for a bar."""
    from langgraph_checkpoint_custom.core.sizes import sizes_of_store

    return sum(one.rows for one in saver._driver.run(sizes_of_store(saver._dialect, 1)).tables)


def confirm(question: str, *, yes: bool) -> None:
    """Go on only if somebody says so: on the command line, or here."""
    from langgraph_checkpoint_custom.cli.output import safe

    if yes:
        return
    if not sys.stdin.isatty():
        raise Refused("nobody can be asked here, since stdin is no terminal; use --yes")
    print(f"{safe(question)} [y/N] ", end="", file=sys.stderr, flush=True)
    if sys.stdin.readline().strip().lower() not in ("y", "yes"):
        raise ConfigError("nothing was changed")
