"""`demo`."""

from __future__ import annotations

import os
from typing import Annotated

import typer

from langgraph_checkpoint_custom.errors import ConfigError
from langgraph_checkpoint_custom.settings import URL

commands = typer.Typer()


@commands.command()
def demo(
    url: Annotated[
        str | None, typer.Option(help="the database; by default a new SQLite file in this folder", show_default=False)
    ] = None,
) -> None:
    """Kill an agent in the middle of its work and see what checkpoints are good for; needs no key, no network."""
    try:
        from langgraph_checkpoint_custom.demo import run
    except ModuleNotFoundError as error:
        # `langgraph` itself is there without LangGraph: langgraph-checkpoint brings `langgraph.checkpoint`.
        if not (error.name or "").startswith("langgraph."):
            raise
        raise ConfigError("the demo runs a real graph, which needs LangGraph 1.2: pip install langgraph") from error
    run(url)


@commands.command("_worker", hidden=True)
def _worker(phase: str, thread_id: str, journal: str) -> None:
    """The demo's child processes."""
    from langgraph_checkpoint_custom.demo import work

    # The URL does not come as an argument, since the process list would show its password.
    work(phase, os.environ[URL], thread_id, journal)
