"""`setup`, `verify`, `schema`: the commands about the tables."""

from __future__ import annotations

import os
from operator import itemgetter
from typing import Annotated, Any, Literal

import typer

from langgraph_checkpoint_custom.cli.common import NotPossible, Options, command
from langgraph_checkpoint_custom.cli.output import Column, Style, show_source, table, tell
from langgraph_checkpoint_custom.errors import ConfigError
from langgraph_checkpoint_custom.operations.schema import Verified, script
from langgraph_checkpoint_custom.operations.schema import verify as verify_tables
from langgraph_checkpoint_custom.settings import URL, open_saver, settings_of
from langgraph_checkpoint_custom.sql.searchable import searchable_keys


@command()
def setup(
    options: Options,
    distribute: Annotated[
        str | None,
        typer.Option(
            metavar="citus",
            help="PostgreSQL: distribute the tables by thread over the servers of a Citus cluster",
            show_default=False,
        ),
    ] = None,
    searchable: Annotated[
        list[str] | None,
        typer.Option(
            metavar="KEY", help="a metadata key to find threads by; may be given several times", show_default=False
        ),
    ] = None,
) -> None:
    """Create or migrate the tables; changes nothing if they are current."""
    with options.opened(may_be_new=distribute is None, may_be_anothers=True) as saver:
        layout: dict[str, Any] = {"searchable": searchable or ()}
        if distribute is not None:
            if saver.backend.dialect.system != "postgresql":
                raise ConfigError("--distribute is for PostgreSQL")
            layout["distribute"] = distribute
        try:
            saver.setup(**layout)
        except ConfigError as error:
            if distribute is None:
                raise
            raise NotPossible(str(error)) from error  # The tables exist with another layout.
        version = len(saver.backend.dialect.migrations)
    options.report({"ready": True, "version": version}, "The tables are ready.")


@command()
def verify(options: Options) -> None:
    """Compare the tables with those that this package ships, but not owners and privileges; changes nothing."""
    with options.opened(may_be_anothers=True, reads=True) as saver:
        found = saver.backend.driver.look(verify_tables(saver.backend.dialect))
        location = saver.backend.dialect.location
    if options.as_json:
        tell({"ok": found.holds, **found._asdict()})
    else:
        rows = _lines(found, location)
        styles: list[Style] = [{"yes": "plain", "no": "bad", "": "dim"}[good] for good, _, _ in rows]  # type: ignore[misc]
        table([Column(head, itemgetter(at)) for at, head in enumerate(("ok", "what", ""))], rows, styles)
    if not found.holds:
        raise typer.Exit(1)


def _lines(found: Verified, location: str) -> list[tuple[str, str, str]]:
    """Return what was compared in lines: "yes", "no", or nothing for what is no problem; what; and the detail."""
    if found.foreign is not None:
        theirs = f"{location} has a table {found.foreign!r} that belongs to another program; our tables are not there"
        return [("no", "tables", theirs)]
    if found.version is None:
        return [("no", "tables", f"there are none in {location}; run setup")]
    version = f"{found.version}, this package has {found.shipped}"
    if found.version < found.shipped:
        version += "; run setup"
    elif not found.is_usable:
        version += f"; the tables need {found.oldest}: upgrade langgraph-checkpoint-custom"
    lines = [("yes", "tables", location), ("yes" if found.is_usable else "no", "version", version)]
    lines += [("no", "missing or changed", line) for line in found.missing]
    lines += [("", "added or changed", line) for line in found.added]
    if not found.missing and not found.added:
        lines.append(("yes", "as shipped", "everything"))
    return lines


def schema(
    database: Annotated[
        Literal["postgresql", "sqlite"] | None,
        typer.Option(help=f"by default that of {URL}, or postgresql", show_default=False),
    ] = None,
    after: Annotated[
        int, typer.Option(min=0, metavar="VERSION", help="only what comes after this version; see verify")
    ] = 0,
    searchable: Annotated[
        list[str] | None,
        typer.Option(
            metavar="KEY", help="add SQL that makes a metadata key searchable during live traffic", show_default=False
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="print one JSON document", show_default=False)] = False,
) -> None:
    """Print the SQL of setup, for other migration tools, without opening a database."""
    if database is None:
        database = "sqlite" if os.environ.get(URL, "").strip().lower().startswith("sqlite:") else "postgresql"
    # A saver opens no connection until it is used.
    settings = settings_of(os.environ, "sqlite:///:memory:" if database == "sqlite" else "postgresql:///")
    with open_saver(settings.url, **dict(settings.options)) as saver:
        d = saver.backend.dialect
        version = len(d.migrations)
        sql = script(d, after, searchable_keys(searchable or ()))
    if as_json:
        tell({"database": database, "version": version, "after": after, "sql": sql})
    else:
        show_source(sql)
