"""`demo` and `ui`, and the hidden command that the child processes of the demo run."""

from __future__ import annotations

import os
import webbrowser
from dataclasses import replace
from typing import Annotated

import typer

from langgraph_checkpoint_custom.cli.common import Options, command, given
from langgraph_checkpoint_custom.cli.output import say, show_source
from langgraph_checkpoint_custom.errors import ConfigError
from langgraph_checkpoint_custom.settings import URL, url_of
from langgraph_checkpoint_custom.tools.display import database_of


def demo(
    url: Annotated[
        str | None,
        typer.Option(
            metavar="URL", help="the database; by default a new SQLite file in this folder", show_default=False
        ),
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


@command("tenant", json=False)
def ui(
    options: Options,
    port: Annotated[
        int, typer.Option(min=0, max=65_535, help="the port; by default a free one", show_default=False)
    ] = 0,
    open_: Annotated[bool, typer.Option("--open", help="open the page in the browser", show_default=False)] = False,
    write: Annotated[
        bool, typer.Option("--write", help="allow changes; each is asked for once more, and logged", show_default=False)
    ] = False,
) -> None:
    """Look at threads, states and timelines in the browser, until Ctrl-C.

    The page is for you alone: it is on this machine, and its address has a secret token. Without --write, it changes
    nothing.
    """
    from langgraph_checkpoint_custom.ui import create_app
    from langgraph_checkpoint_custom.ui.serving import serve

    options = replace(options, url=given(options.url, reads=not write))
    with options.opened(read_only=not write) as saver:

        def tell(address: str) -> None:
            offers = "with changes" if write else "read-only"
            say(f"{database_of(saver)}, {offers}. Open this address, which is for you alone:")
            show_source(f"\n    {address}\n\nCtrl-C ends it.")
            if open_:
                webbrowser.open(address)

        serve(lambda token, hosts: create_app(saver, write=write, token=token, hosts=hosts), tell, port)
    say("Stopped.")
