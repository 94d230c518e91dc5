"""`demo`, and the hidden command that its child processes run."""

from __future__ import annotations

import os
from typing import Annotated

import typer

from langgraph_checkpoint_custom.errors import ConfigError
from langgraph_checkpoint_custom.settings import URL
from langgraph_checkpoint_custom.url import url_of

commands = typer.Typer()


@commands.command()
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


@commands.command("_worker", hidden=True)
def _worker(phase: str, thread_id: str, journal: str) -> None:
    """Run a child process of the demo."""
    from langgraph_checkpoint_custom.demo import work

    # The URL is not an argument: the list of processes would show its password.
    work(phase, os.environ[URL], thread_id, journal)
