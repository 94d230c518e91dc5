"""The options that commands share, and the saver that is made from them."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import unquote

import typer

from langgraph_checkpoint_custom.cli.output import ask, counted, note
from langgraph_checkpoint_custom.errors import CheckpointError, ConfigError, SchemaOutdated
from langgraph_checkpoint_custom.model.keys import KIND_MARK
from langgraph_checkpoint_custom.operations.export_rows import next_threads
from langgraph_checkpoint_custom.operations.schema import check_schema
from langgraph_checkpoint_custom.saver import CheckpointSaver
from langgraph_checkpoint_custom.settings import SCHEMA, URL, settings_of
from langgraph_checkpoint_custom.tools.raw import without_classes as without_classes
from langgraph_checkpoint_custom.url import open_saver, url_of

# The name of the script. `python -m langgraph_checkpoint_custom` is the same program.
PROGRAM = "lgckpt"

# A note about tenants names at most this many.
TENANTS = 5

# `KIND_MARK` as `safe` prints it.
_PRINTED_MARK = repr(KIND_MARK)[1:-1]
_FILE = "sqlite:///"
# What a command that reads takes if no database is given.
NEARBY = "checkpoints.db"


def thread_as_typed(text: str) -> str:
    r"""Return the id of a thread. For another framework's thread, the text may begin with \x1e, as it is printed."""
    return KIND_MARK + text.removeprefix(_PRINTED_MARK) if text.startswith(_PRINTED_MARK) else text


Url = Annotated[
    str | None,
    typer.Option(
        metavar="URL",
        help=f"postgresql://user:password@host/database, or the path of a SQLite file; by default {URL}",
        show_default=False,
    ),
]
Schema = Annotated[
    str | None,
    typer.Option(metavar="NAME", help=f"PostgreSQL: the schema of the tables; by default {SCHEMA}", show_default=False),
]
Tenant = Annotated[
    str | None,
    typer.Option(
        metavar="NAME", help="use the threads of this tenant; by default those without a tenant", show_default=False
    ),
]
AnyTenant = Annotated[
    str | None,
    typer.Option(metavar="NAME", help="only the threads of this tenant; by default all threads", show_default=False),
]
NoTenants = Annotated[
    bool,
    typer.Option("--no-tenants", help="only the threads without a tenant; by default all", show_default=False),
]
Json = Annotated[bool, typer.Option("--json", help="print one JSON document", show_default=False)]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="do not ask", show_default=False)]
DryRun = Annotated[
    bool, typer.Option("--dry-run", help="report what would be done, and change nothing", show_default=False)
]
Thread = Annotated[
    str, typer.Argument(metavar="THREAD", parser=thread_as_typed, help="the id of a thread", show_default=False)
]
Namespace = Annotated[
    str,
    typer.Option(
        "--namespace",
        "-n",
        metavar="NAME",
        help="a checkpoint namespace; by default the root graph's",
        show_default=False,
    ),
]


class NotPossible(CheckpointError):
    """Something that the command needs does not exist, or something that exists prevents it. The exit code is 1.

    Invalid arguments are a ConfigError, and its exit code is 2.
    """


class Declined(CheckpointError):
    """The answer to the question was no. That is not an error, but the exit code is 1."""


def given(url: str | None, *, reads: bool = False) -> str:
    """Return the URL of the database, from `--url` or the environment; a command that reads looks here, too."""
    url = url or os.environ.get(URL, "").strip()
    if not url and reads and Path(NEARBY).is_file():
        note(f"no database given, so this is ./{NEARBY}")
        url = NEARBY
    if not url:
        raise ConfigError(f"no database given; use --url or set {URL}")
    return url_of(url)


@contextmanager
def opened(
    url: str | None,
    tenant: str | None = None,
    *,
    may_be_new: bool = False,
    may_be_anothers: bool = False,
    read_only: bool = False,
    reads: bool = False,
    schema: str | None = None,
) -> Iterator[CheckpointSaver]:
    """Open the saver that the options and the environment describe, until the end of the block.

    Args:
        url: The value of `--url`.
        tenant: The value of `--tenant`.
        may_be_new: Whether to create a SQLite file that does not exist.
        may_be_anothers: Whether to accept a database without our tables: the command creates none, or is meant to.
        read_only: Whether the database is to refuse every change.
        reads: Whether the command only reads. PostgreSQL is then to refuse every change. SQLite is not: it removes its
            files `-wal` and `-shm` only when a connection that may write is closed.
        schema: The value of `--schema`.
    """
    where = given(url, reads=reads)
    if not may_be_new:
        must_exist(where)
    settings = settings_of(os.environ, where)
    read_only = read_only or (reads and not where.lower().startswith("sqlite:"))
    options = {**_mode_of(where), **settings.all_options(), "read_only": read_only}
    options |= {} if schema is None else {"schema": schema}
    with open_saver(settings.url, **options) as saver:
        if not (may_be_new or may_be_anothers):
            must_have_tables(saver)
        yield saver if tenant is None else saver.for_tenant(tenant)


def _mode_of(url: str) -> dict[str, str]:
    """Return the option that leaves an existing SQLite file in its journal mode: its header says which one it has."""
    with suppress(OSError):
        if url.lower().startswith(_FILE) and Path(unquote(url[len(_FILE) :])).read_bytes()[18:20] == b"\1\1":
            return {"journal_mode": "DELETE"}
    return {}


def must_exist(url: str, advice: str = "; setup creates one") -> None:
    """Raise NotPossible if the URL names a SQLite file that does not exist; opening it would create it."""
    path = unquote(url[len(_FILE) :])
    if url.lower().startswith(_FILE) and path != ":memory:" and not Path(path).exists():
        raise NotPossible(f"there is no file {path!r}{advice}")


def must_have_tables(saver: CheckpointSaver) -> None:
    """Raise an error if the database does not have our tables.

    Otherwise a read on SQLite would create them, possibly in the file of another program.
    """
    with suppress(SchemaOutdated):  # The command migrates outdated tables, or raises this error itself.
        saver.backend.driver.look(check_schema(saver.backend.dialect))


def whether_all(tenant: str | None, no_tenants: bool) -> bool:
    """Return whether a command includes the threads of all tenants."""
    if tenant is not None and no_tenants:
        raise ConfigError("--tenant and --no-tenants cannot be combined")
    return tenant is None and not no_tenants


def mention_tenants(saver: CheckpointSaver, tenant: str | None, *, are_in: bool = False) -> None:
    """Print a note if the command leaves out tenants, or if its own tenant has no threads.

    Args:
        saver: The saver that the command uses.
        tenant: The value of `--tenant`.
        are_in: Whether the command includes all tenants.
    """
    if tenant is not None and not saver.backend.driver.run(next_threads(saver.backend.dialect, "", 1)):
        note(f"tenant {tenant!r} has no threads")
    if tenant is None and not are_in and (names := saver.tenants()):
        named = ", ".join(names[:TENANTS]) + (", …" if len(names) > TENANTS else "")
        note(f"{counted(len(names), 'tenant')} not included: {named}; --tenant NAME selects one")


def savers_of(saver: CheckpointSaver, tenants: bool) -> list[CheckpointSaver]:
    """Return the saver and, with `tenants`, a saver for each tenant."""
    names = saver.tenants() if tenants else ()
    return [saver, *map(saver.for_tenant, names)]


def count_all(saver: CheckpointSaver, tenants: bool, filter: dict[str, Any] | None = None) -> int:
    """Return the number of threads, for a progress bar."""
    return sum(own.count_threads(filter=filter) for own in savers_of(saver, tenants))


def rows_of(saver: CheckpointSaver, *, tenants: bool = False) -> int:
    """Return the number of rows of all tables, for a progress bar."""
    from langgraph_checkpoint_custom.operations.sizes import sizes_of_store

    found = saver.backend.driver.run(sizes_of_store(saver.backend.dialect, 1, saver.tenants() if tenants else ()))
    return sum(one.rows for one in found.tables)


def confirm(question: str, *, yes: bool) -> None:
    """Ask on the terminal, unless `--yes` was given.

    Raises:
        Declined: The answer is not yes.
        ConfigError: There is no terminal.
    """
    if yes:
        return
    if not sys.stdin.isatty():
        raise ConfigError("cannot ask for confirmation, because stdin is not a terminal; use --yes")
    if not ask(question):
        raise Declined("Nothing was changed.")
