"""`ui`: the inspector, pages over a store in the browser."""

from __future__ import annotations

import webbrowser
from typing import Annotated
from urllib.parse import unquote, urlsplit

import typer

from langgraph_checkpoint_custom.cli.common import Schema, Tenant, Url, given, opened
from langgraph_checkpoint_custom.cli.output import say, show_source

commands = typer.Typer()


@commands.command()
def ui(
    port: Annotated[
        int, typer.Option(min=0, max=65_535, help="the port; by default a free one", show_default=False)
    ] = 0,
    open_: Annotated[bool, typer.Option("--open", help="open the page in the browser", show_default=False)] = False,
    write: Annotated[
        bool, typer.Option("--write", help="allow changes; each is asked for once more, and logged", show_default=False)
    ] = False,
    url: Url = None,
    schema: Schema = None,
    tenant: Tenant = None,
) -> None:
    """Look at threads, states and timelines in the browser, until Ctrl-C.

    The page is for you alone: it is on this machine, and its address has a secret token. Without --write, it changes
    nothing.
    """
    from langgraph_checkpoint_custom.ui import create_app
    from langgraph_checkpoint_custom.ui.serving import serve

    where = given(url, reads=not write)
    name = name_of(where)

    def tell(address: str) -> None:
        say(f"{name}, {'with changes' if write else 'read-only'}. Open this address, which is for you alone:")
        show_source(f"\n    {address}\n\nCtrl-C ends it.")
        if open_:
            webbrowser.open(address)

    with opened(where, tenant, schema=schema, read_only=not write) as saver:
        serve(lambda token, hosts: create_app(saver, write=write, name=name, token=token, hosts=hosts), tell, port)
    say("Stopped.")


def name_of(url: str) -> str:
    """Return what a database is called, without what may be secret in its URL."""
    if url.lower().startswith("sqlite:"):
        return unquote(url[len("sqlite:///") :])
    parts = urlsplit(url)
    database = unquote(parts.path.lstrip("/")) or "PostgreSQL"
    return f"{database} on {parts.hostname}" if parts.hostname else database
