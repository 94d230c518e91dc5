"""What commands share: options, the saver that is made from them, and the choice between a table and JSON."""

from __future__ import annotations

import os
import re
import shlex
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, fields
from datetime import datetime, timedelta, timezone
from functools import wraps
from inspect import Parameter, Signature, signature
from pathlib import Path
from typing import Annotated, Any, get_type_hints
from urllib.parse import unquote

import typer

from langgraph_checkpoint_custom.cli.output import Column, Times, ask, counted, note, say, table, tell
from langgraph_checkpoint_custom.encoding.raw import without_classes
from langgraph_checkpoint_custom.errors import CheckpointError, ConfigError, SchemaOutdated
from langgraph_checkpoint_custom.model.keys import KIND_MARK
from langgraph_checkpoint_custom.operations.export_rows import next_threads
from langgraph_checkpoint_custom.operations.schema import check_schema
from langgraph_checkpoint_custom.operations.sizes import sizes_of_store
from langgraph_checkpoint_custom.saver import CheckpointSaver
from langgraph_checkpoint_custom.settings import SCHEMA, URL, open_saver, settings_of, url_of
from langgraph_checkpoint_custom.tools.finding import savers_of

# The name of the script. `python -m langgraph_checkpoint_custom` is the same program.
PROGRAM = "lgckpt"

# A note about tenants names at most this many.
TENANTS = 5

# `KIND_MARK` as `safe` prints it.
_PRINTED_MARK = repr(KIND_MARK)[1:-1]
_FILE = "sqlite:///"
# What a command that reads takes if no database is given.
NEARBY = "checkpoints.db"

_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}
_BYTES = {"": 1, "K": 10**3, "M": 10**6, "G": 10**9, "T": 10**12}


# What a person types


def thread_as_typed(text: str) -> str:
    r"""Return the id of a thread. For another framework's thread, the text may begin with \x1e, as it is printed."""
    return KIND_MARK + text.removeprefix(_PRINTED_MARK) if text.startswith(_PRINTED_MARK) else text


def span(text: str) -> timedelta:
    """Return a span of time, such as "90m"."""
    if found := re.fullmatch(r"(\d+(?:\.\d+)?)([smhdw])", text):
        with suppress(OverflowError):
            return timedelta(seconds=float(found[1]) * _SECONDS[found[2]])
    raise ConfigError(f"{text!r} is not a time; write a number and s, m, h, d or w, such as 30d")


def moment(text: str | None) -> datetime | None:
    """Return the time that a text says: "24h" ago, a date, or a date with a time, in the local zone or with another."""
    if text is None:
        return None
    with suppress(ValueError, OverflowError):
        if text[-1:].isalpha() and not text.endswith("Z"):
            return datetime.now(timezone.utc) - span(text)
        return datetime.fromisoformat(text.replace("Z", "+00:00")).astimezone()
    raise ConfigError(f"{text!r} is not a time; write for example 24h, 2026-01-31, or 2026-01-31T18:30")


def amount(text: str) -> int:
    """Return a number of bytes, such as "10GB"."""
    if found := re.fullmatch(r"(\d+(?:\.\d+)?)([KMGT]?)B?", text, re.IGNORECASE):
        with suppress(OverflowError):
            return int(float(found[1]) * _BYTES[found[2].upper()])
    raise ConfigError(f"{text!r} is not a size; write a number and B, KB, MB, GB or TB, such as 10GB")


# Arguments and options


def option(help: str, *names: str, **more: Any) -> Any:
    """Declare an option of a command: without names it has that of the parameter, and its help says no default."""
    return typer.Option(*names, help=help, **{"show_default": False, **more})


def argument(help: str, **more: Any) -> Any:
    """Declare an argument of a command; its help says no default."""
    return typer.Argument(help=help, show_default=False, **more)


def thread_argument(help: str, metavar: str = "THREAD") -> Any:
    """Declare an argument that is the id of a thread, or several."""
    return argument(help, metavar=metavar, parser=thread_as_typed)


Thread = Annotated[str, thread_argument("the id of a thread")]
Namespace = Annotated[
    str, option("a checkpoint namespace; by default the root graph's", "--namespace", "-n", metavar="NAME")
]
Limit = Annotated[int, option("how many at most", "--limit", "-l", metavar="N", min=1, show_default=True)]
Full = Annotated[bool, option("show values in full", "--full")]
Where = Annotated[
    list[str] | None,
    option(
        "metadata that the newest checkpoint has; the value is JSON, also with operators, otherwise text; may be given "
        "several times",
        metavar="KEY=VALUE",
    ),
]


class NotPossible(CheckpointError):
    """Something that the command needs does not exist, or something that exists prevents it. The exit code is 1.

    Invalid arguments are a ConfigError, and its exit code is 2.
    """


@dataclass(frozen=True, kw_only=True)
class Options:
    """The values of the shared options: which store a command works on, how it prints, and whether it asks."""

    utc: Annotated[bool, option("print times in UTC, not local ones", "--utc")] = False
    dry_run: Annotated[bool, option("report what would be done, and change nothing", "--dry-run")] = False
    yes: Annotated[bool, option("do not ask", "--yes", "-y")] = False
    url: Annotated[
        str | None,
        option(
            f"postgresql://user:password@host/database, or the path of a SQLite file; by default {URL}", metavar="URL"
        ),
    ] = None
    schema: Annotated[
        str | None, option(f"PostgreSQL: the schema of the tables; by default {SCHEMA}", metavar="NAME")
    ] = None
    tenant: Annotated[str | None, option("only the threads of this tenant", metavar="NAME")] = None
    no_tenants: Annotated[bool | None, option("only the threads without a tenant; by default all", "--no-tenants")] = (
        None
    )
    as_json: Annotated[bool, option("print one JSON document", "--json")] = False

    def __post_init__(self) -> None:
        if self.tenant is not None and self.no_tenants:
            raise ConfigError("--tenant and --no-tenants cannot be combined")

    @property
    def tenants(self) -> bool:
        """Whether the command includes the threads of all tenants; without the option `--no-tenants`, it does not."""
        return self.tenant is None and self.no_tenants is False

    @property
    def times(self) -> Times:
        """Formats times in the zone that was asked for."""
        return Times(self.utc)

    @contextmanager
    def opened(
        self,
        *,
        reads: bool = False,
        lists: bool = False,
        may_be_new: bool = False,
        may_be_anothers: bool = False,
        read_only: bool = False,
    ) -> Iterator[CheckpointSaver]:
        """Open the saver that the options and the environment describe, until the end of the block.

        Args:
            reads: Whether the command only reads, values without their classes. PostgreSQL is then to refuse every
                change. SQLite is not: it removes its files `-wal` and `-shm` only when a connection that may write is
                closed.
            lists: Whether the command is about many threads: in the end, a note names the tenants that it left out.
            may_be_new: Whether to create a SQLite file that does not exist.
            may_be_anothers: Whether to accept a database without our tables: the command creates none, or is meant to.
            read_only: Whether the database is to refuse every change.
        """
        where = given(self.url, reads=reads)
        if not may_be_new:
            must_exist(where)
        settings = settings_of(os.environ, where)
        read_only = read_only or (reads and not where.lower().startswith("sqlite:"))
        options = {**_mode_of(where), **settings.all_options(), "read_only": read_only}
        options |= {} if self.schema is None else {"schema": self.schema}
        with open_saver(settings.url, **options) as saver:
            if not (may_be_new or may_be_anothers):
                must_have_tables(saver)
            own = saver if self.tenant is None else saver.for_tenant(self.tenant)
            yield without_classes(own) if reads else own
            if lists and not self.tenants:
                self.mention_tenants(saver)

    def mention_tenants(self, saver: CheckpointSaver) -> None:
        """Print a note that the command leaves out tenants, or that its own tenant has no threads."""
        if self.tenant is not None:
            own = saver.for_tenant(self.tenant).backend
            if not own.driver.run(next_threads(own.dialect, "", 1)):
                note(f"tenant {self.tenant!r} has no threads")
        elif names := saver.tenants():
            named = ", ".join(names[:TENANTS]) + (", …" if len(names) > TENANTS else "")
            note(f"{counted(len(names), 'tenant')} not included: {named}; --tenant NAME selects one")

    def confirm(self, question: str) -> None:
        """Ask on the terminal, unless `--yes` or `--dry-run` was given; after another answer, the exit code is 1.

        Raises:
            ConfigError: There is no terminal.
        """
        if self.yes or self.dry_run:
            return
        if not sys.stdin.isatty():
            raise ConfigError("cannot ask for confirmation, because stdin is not a terminal; use --yes")
        if not ask(question):
            raise typer.Exit(1)

    def report(self, result: Mapping[str, Any], sentence: str) -> None:
        """Print what a command has done: as JSON, or in a sentence."""
        if self.as_json:
            tell(result)
        else:
            say(sentence)

    def listing(
        self,
        name: str,
        rows: Iterable[Any],
        columns: Iterable[Column],
        shown: Iterable[Any] | None = None,
        *,
        nothing: str | None = None,
        paging: str = "",
        **more: Any,
    ) -> None:
        """Print a list, as JSON or as a table.

        Args:
            name: The key of the list in JSON.
            rows: Dicts, named tuples or texts.
            columns: Those of the table.
            shown: The rows of the table, if they are others.
            nothing: The sentence in place of an empty table; by default, that there are no such things.
            paging: What to say before how to go on, if there is a next page.
            more: What else is in the JSON document. Where there are pages, `next` is the cursor of the next one.
        """
        rows = list(rows)
        if self.as_json:
            tell({name: [row._asdict() if hasattr(row, "_asdict") else row for row in rows], **more})
        elif rows:
            table(list(columns), rows if shown is None else shown)
        else:
            say(nothing or f"No {name}.")
        if more.get("next") and not self.as_json:
            say(f"{paging}More with --before {shlex.quote(more['next'])}")


def command(*options: str, json: bool = True) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Give a command these shared options, which are fields of `Options`, and `--url`, `--schema` and `--json`.

    Their values are its first argument, the `Options`.
    """
    names = [*options, "url", "schema", *(["as_json"] if json else [])]
    types = get_type_hints(Options, include_extras=True)
    defaults = {field.name: field.default for field in fields(Options)} | {"no_tenants": False}
    shared = [Parameter(name, Parameter.KEYWORD_ONLY, default=defaults[name], annotation=types[name]) for name in names]

    def decorate(function: Callable[..., None]) -> Callable[..., None]:
        @wraps(function)
        def run(**values: Any) -> None:
            function(Options(**{name: values.pop(name) for name in names}), **values)

        _, *own = signature(function, eval_str=True).parameters.values()
        run.__signature__ = Signature([*own, *shared])  # type: ignore[attr-defined]  # What typer reads.
        return run

    return decorate


def given(url: str | None, *, reads: bool = False) -> str:
    """Return the URL of the database, from `--url` or the environment; a command that reads looks here, too."""
    url = url or os.environ.get(URL, "").strip()
    if not url and reads and Path(NEARBY).is_file():
        note(f"no database given, so this is ./{NEARBY}")
        url = NEARBY
    if not url:
        raise ConfigError(f"no database given; use --url or set {URL}")
    return url_of(url)


def _mode_of(url: str) -> dict[str, str]:
    """Return the option that leaves an existing SQLite file in its journal mode: its header says which one it has."""
    if not url.lower().startswith(_FILE):
        return {}
    with suppress(OSError), Path(unquote(url[len(_FILE) :])).open("rb") as file:
        if file.read(20)[18:] == b"\1\1":
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


def count_all(saver: CheckpointSaver, tenants: bool) -> int:
    """Return the number of threads, for a progress bar."""
    return sum(own.count_threads() for own in savers_of(saver, tenants))


def rows_of(saver: CheckpointSaver, tenants: bool) -> int:
    """Return the number of rows of all tables, for a progress bar."""
    found = saver.backend.driver.run(sizes_of_store(saver.backend.dialect, 1, saver.tenants() if tenants else ()))
    return sum(one.rows for one in found.tables)
