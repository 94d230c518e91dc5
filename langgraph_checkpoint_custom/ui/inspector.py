"""What the pages share: the store, the templates, and addresses of pages."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timezone
from functools import partial
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import urlencode

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response

from langgraph_checkpoint_custom.errors import CheckpointNotFound
from langgraph_checkpoint_custom.model.id_times import time_of
from langgraph_checkpoint_custom.model.keys import kind_of, name_of
from langgraph_checkpoint_custom.saver import CheckpointSaver
from langgraph_checkpoint_custom.tools.chats import results_of
from langgraph_checkpoint_custom.tools.display import counted, duration, kind, size
from langgraph_checkpoint_custom.tools.states import question_of
from langgraph_checkpoint_custom.ui.reading import Store
from langgraph_checkpoint_custom.ui.values import age, clock, line, marked, namespace, tree

HERE = Path(__file__).parent


class Data(Response):
    """JSON in ASCII and without tags, so that ids and texts arrive as they are stored, and are nothing else."""

    media_type = "application/json"

    def render(self, content: Any) -> bytes:
        """Encode the answer."""
        text = json.dumps(content, separators=(",", ":"), allow_nan=False)
        return text.replace("<", r"\u003c").encode("ascii")


def _printed(value: Any) -> Any:
    """What each expression of a template becomes before it is escaped: a text without unseen characters."""
    return marked(value) if isinstance(value, str) and not isinstance(value, Markup) else value


def templates() -> Environment:
    """Return the templates, with their filters."""
    environment = Environment(
        loader=FileSystemLoader(HERE / "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=_printed,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    found = (line, size, clock, duration, kind, tree, counted, namespace, kind_of, name_of, time_of, question_of)
    environment.filters |= {each.__name__: each for each in found} | {"results": results_of}
    return environment


class Graph(Protocol):
    """A compiled graph, as far as answering an interrupt needs it."""

    def invoke(self, input: Any, config: Any) -> Any:
        """Run it."""


@dataclass(frozen=True)
class Inspector:
    """What the pages share.

    Attributes:
        saver: The store.
        name: What the store is called, in the head of each page.
        templates: The templates.
        write: Whether changes are allowed.
        graph: The graph with which interrupts are answered; None if they cannot be.
    """

    saver: CheckpointSaver
    name: str
    templates: Environment
    write: bool
    graph: Graph | None

    def check_tenant(self, request: Request) -> None:
        """Refuse a request that names another tenant than the one of the saver.

        Raises:
            CheckpointNotFound: It does.
        """
        own = self.saver.backend.dialect.tenant
        if own and tenant_of(request) not in (None, own):
            raise CheckpointNotFound(f"These pages show only the tenant {own!r}.")

    def store(self, request: Request) -> Store:
        """Return the store, or the part of the tenant that a request names."""
        return Store(self.saver, tenant_of(request))

    def page(self, request: Request, template: str, status: int = 200, **values: Any) -> HTMLResponse:
        """Render a page."""
        now = datetime.now(timezone.utc)
        return HTMLResponse(
            self.templates.get_template(template).render(
                name=self.name,
                tenant=tenant_of(request) or "",
                writes=self.write,
                answers=self.graph is not None and not tenant_of(request),
                of_tenant=bool(self.saver.backend.dialect.tenant),
                url=partial(link, request),
                given=partial(given, request),
                static=lambda file: f"{request.scope.get('root_path', '')}/static/{file}",
                age=lambda time: age(time, now),
                path=request.url.path.removeprefix(request.scope.get("root_path", "")),
                **values,
            ),
            status,
        )


def tenant_of(request: Request) -> str | None:
    """Return the tenant that a request names."""
    return request.query_params.get("tenant") or None


def link(request: Request, page: str, **params: Any) -> str:
    """Return the address of a page, in the tenant of the request; a parameter that is None is left out."""
    given = {"tenant": tenant_of(request)} | params
    query = urlencode([(name, value) for name, value in given.items() if value is not None])
    return f"{request.scope.get('root_path', '')}/{page}" + (f"?{query}" if query else "")


def given(request: Request, **fields: Any) -> Markup:
    """Return a hidden field of a form with these fields, and the tenant of the request.

    They are in one field, encoded: a browser would change line ends in fields of their own, and a page has no unseen
    characters.
    """
    query = urlencode({"tenant": tenant_of(request) or "", **fields})
    return Markup('<input type="hidden" name="given" value="{}">').format(query)


View = Callable[[Inspector, Request], Response]
