"""`demo`, `setup`, `schema`, `ui`, and the hidden command that the child processes of the demo run."""

from __future__ import annotations

import os
import webbrowser
from dataclasses import replace
from typing import Annotated, Any, Literal

from langgraph_checkpoint_custom.cli.common import NotPossible, Options, command, given, option
from langgraph_checkpoint_custom.cli.output import say, show_source, tell
from langgraph_checkpoint_custom.errors import ConfigError
from langgraph_checkpoint_custom.operations.schema import script
from langgraph_checkpoint_custom.settings import URL, open_saver, settings_of, url_of
from langgraph_checkpoint_custom.sql.files import searchable_keys
from langgraph_checkpoint_custom.tools.display import database_of


def demo(
    url: Annotated[
        str | None, option("the database; by default a new SQLite file in this folder", metavar="URL")
    ] = None,
) -> None:
    """Kill an agent in the middle of its work and see what checkpoints are good for, without a key or a network."""
    try:
        from langgraph_checkpoint_custom.demo import run
    except ModuleNotFoundError as error:
        # The package `langgraph` exists even without LangGraph: langgraph-checkpoint installs `langgraph.checkpoint`.
        if not (error.name or "").startswith("langgraph."):
            raise
        raise ConfigError(
            "the demo runs a real graph, which needs LangGraph 1.2: install langgraph-checkpoint-custom[demo]"
        ) from error
    run(None if url is None else url_of(url))


def worker(phase: str, thread_id: str, journal: str) -> None:
    """Run a child process of the demo."""
    from langgraph_checkpoint_custom.demo import work

    # The URL is not an argument: the list of processes would show its password.
    work(phase, os.environ[URL], thread_id, journal)


@command()
def setup(
    options: Options,
    distribute: Annotated[
        str | None,
        option("PostgreSQL: distribute the tables by thread over the servers of a Citus cluster", metavar="citus"),
    ] = None,
    searchable: Annotated[
        list[str] | None, option("a metadata key to find threads by; may be given several times", metavar="KEY")
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


def schema(
    database: Annotated[
        Literal["postgresql", "sqlite"] | None, option(f"by default that of {URL}, or postgresql")
    ] = None,
    after: Annotated[
        int, option("only what comes after this version; see verify", min=0, metavar="VERSION", show_default=True)
    ] = 0,
    searchable: Annotated[
        list[str] | None,
        option("add SQL that makes a metadata key searchable during live traffic", metavar="KEY"),
    ] = None,
    as_json: Annotated[bool, option("print one JSON document", "--json")] = False,
) -> None:
    """Print the SQL of setup, for other migration tools, without opening a database."""
    if database is None:
        database = "sqlite" if url_of(os.environ.get(URL, "").strip()).lower().startswith("sqlite:") else "postgresql"
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


@command("tenant", json=False)
def ui(
    options: Options,
    port: Annotated[int, option("the port; by default a free one", min=0, max=65_535)] = 0,
    open_: Annotated[bool, option("open the page in the browser", "--open")] = False,
    write: Annotated[bool, option("allow changes; each is asked for once more, and logged", "--write")] = False,
) -> None:
    """Look at threads, states and timelines in the browser, until Ctrl-C.

    The page is for you alone: it is on this machine, and its address has a secret token. Without --write, it changes
    nothing.
    """
    from langgraph_checkpoint_custom.ui.app import serve

    options = replace(options, url=given(options.url, reads=not write))
    with options.opened(read_only=not write) as saver:

        def announce(address: str) -> None:
            offers = "with changes" if write else "read-only"
            say(f"{database_of(saver)}, {offers}. Open this address, which is for you alone:")
            show_source(f"\n    {address}\n\nCtrl-C ends it.")
            if open_:
                webbrowser.open(address)

        serve(saver, announce, write=write, port=port)
    say("Stopped.")
