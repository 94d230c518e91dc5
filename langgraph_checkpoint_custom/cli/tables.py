"""`setup`, `verify`, `schema`: the commands about the tables."""

from __future__ import annotations

import os
from typing import Annotated

import typer

from langgraph_checkpoint_custom.cli.common import Json, NotPossible, Schema, Url, opened
from langgraph_checkpoint_custom.cli.output import Style, say, show_source, table, tell
from langgraph_checkpoint_custom.errors import ConfigError
from langgraph_checkpoint_custom.operations.schema import Verified, script
from langgraph_checkpoint_custom.operations.schema import verify as verify_tables
from langgraph_checkpoint_custom.settings import URL, settings_of
from langgraph_checkpoint_custom.sql.searchable import searchable_keys
from langgraph_checkpoint_custom.url import open_saver

commands = typer.Typer()

# What `verify` does not compare.
NOT_CHECKED = {
    "postgresql": ("owners and privileges", "settings of tables"),
    "sqlite": ("expressions of generated columns",),
}


@commands.command()
def setup(
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
    url: Url = None,
    schema: Schema = None,
    as_json: Json = False,
) -> None:
    """Create or migrate the tables; changes nothing if they are current."""
    with opened(url, may_be_new=distribute is None, may_be_anothers=True, schema=schema) as saver:
        if distribute is None:
            saver.setup(searchable=searchable or ())
        elif saver.backend.dialect.system == "postgresql":
            from langgraph_checkpoint_custom.postgres import PostgresSaver

            assert isinstance(saver, PostgresSaver)
            try:
                saver.setup(distribute=distribute, searchable=searchable or ())
            except ConfigError as error:  # The tables exist with another layout.
                raise NotPossible(str(error)) from error
        else:
            raise ConfigError("--distribute is for PostgreSQL")
        version = len(saver.backend.dialect.migrations)
    if as_json:
        tell({"ready": True, "version": version})
    else:
        say("The tables are ready.")


@commands.command()
def verify(url: Url = None, schema: Schema = None, as_json: Json = False) -> None:
    """Compare the tables with those that this package ships; changes nothing."""
    with opened(url, may_be_anothers=True, schema=schema, reads=True) as saver:
        found = saver.backend.driver.look(verify_tables(saver.backend.dialect))
        database, location = saver.backend.dialect.system, saver.backend.dialect.location
    if as_json:
        _tell(found, database)
    else:
        _show(found, database, location)
    if not found.holds:
        raise typer.Exit(1)


def _tell(found: Verified, database: str) -> None:
    tell(
        {
            "ok": found.holds,
            "version": found.version,
            "oldest": found.oldest,
            "shipped": found.shipped,
            "foreign": found.foreign,
            "missing": found.missing,
            "added": found.added,
            "not_checked": NOT_CHECKED[database],
        }
    )


def _show(found: Verified, database: str, location: str) -> None:
    rows: list[tuple[str, str, str]] = []
    styles: list[Style] = []

    def row(good: bool | None, what: str, detail: str) -> None:
        rows.append(("yes" if good else "no" if good is False else "", what, detail))
        styles.append("plain" if good else "bad" if good is False else "dim")

    if found.foreign is not None:
        row(
            False,
            "tables",
            f"{location} has a table {found.foreign!r} that belongs to another program; our tables are not there",
        )
    elif found.version is None:
        row(False, "tables", f"there are none in {location}; run setup")
    else:
        row(True, "tables", location)
        what = f"{found.version}, this package has {found.shipped}"
        if found.version < found.shipped:
            what += "; run setup"
        elif not found.is_usable:
            what += f"; the tables need {found.oldest}: upgrade langgraph-checkpoint-custom"
        row(found.is_usable, "version", what)
        for line in found.missing:
            row(False, "missing or changed", line)
        for line in found.added:
            row(None, "added or changed", line)
        if not found.missing and not found.added:
            row(True, "as shipped", "tables, columns, indexes" + (", policies" if database == "postgresql" else ""))
    row(None, "not checked", ", ".join(NOT_CHECKED[database]))
    table(("ok", "what", ""), rows, styles=styles)


@commands.command()
def schema(
    database: Annotated[
        str | None,
        typer.Option(
            metavar="NAME", help=f"postgresql or sqlite; by default that of {URL}, or postgresql", show_default=False
        ),
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
    as_json: Json = False,
) -> None:
    """Print the SQL of setup, for other migration tools, without opening a database."""
    if database is None:
        database = "sqlite" if os.environ.get(URL, "").strip().lower().startswith("sqlite:") else "postgresql"
    if database not in ("postgresql", "sqlite"):
        raise ConfigError("--database must be postgresql or sqlite")
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
