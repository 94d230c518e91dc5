"""The ASGI application with all pages."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Collection
from dataclasses import dataclass
from datetime import datetime, timezone
from functools import partial, wraps
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp

from langgraph_checkpoint_custom.errors import CheckpointError, CheckpointNotFound, ConfigError
from langgraph_checkpoint_custom.saver import CheckpointSaver
from langgraph_checkpoint_custom.tools.chats import calls_of
from langgraph_checkpoint_custom.tools.display import counted, kind, size
from langgraph_checkpoint_custom.ui.reading import Store
from langgraph_checkpoint_custom.ui.security import Guard
from langgraph_checkpoint_custom.ui.texts import age, clock, line, marked, namespace, visible
from langgraph_checkpoint_custom.ui.values import tree


class Data(Response):
    """JSON in ASCII and without tags, so that ids and texts arrive as they are stored, and are nothing else."""

    media_type = "application/json"

    def render(self, content: Any) -> bytes:
        """Encode the answer."""
        text = json.dumps(content, separators=(",", ":"), allow_nan=False)
        return text.replace("<", r"\u003c").encode("ascii")


_HERE = Path(__file__).parent
_LOG = logging.getLogger("langgraph_checkpoint_custom")


def _printed(value: Any) -> Any:
    """What each expression of a template becomes before it is escaped: a text without unseen characters."""
    return marked(value) if isinstance(value, str) and not isinstance(value, Markup) else value


def _templates() -> Environment:
    made = Environment(
        loader=FileSystemLoader(_HERE / "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=_printed,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters |= {"visible": visible, "line": line, "size": size, "clock": clock, "kind": kind, "tree": tree}
    made.filters |= {"counted": counted, "namespace": namespace, "calls": calls_of}
    return made


@dataclass(frozen=True)
class Inspector:
    """What the pages share.

    Attributes:
        saver: The store.
        name: What the store is called, in the head of each page.
        templates: The templates.
    """

    saver: CheckpointSaver
    name: str
    templates: Environment

    def store(self, request: Request) -> Store:
        """Return the store, or the part of the tenant that a request names."""
        return Store(self.saver, request.query_params.get("tenant") or None)

    def page(self, request: Request, template: str, status: int = 200, **values: Any) -> HTMLResponse:
        """Render a page."""
        now = datetime.now(timezone.utc)
        return HTMLResponse(
            self.templates.get_template(template).render(
                name=self.name,
                tenant=request.query_params.get("tenant") or "",
                of_tenant=bool(self.saver.backend.dialect.tenant),
                url=partial(link, request),
                static=lambda file: f"{request.scope.get('root_path', '')}/static/{file}",
                age=lambda time: age(time, now),
                path=request.url.path.removeprefix(request.scope.get("root_path", "")),
                **values,
            ),
            status,
        )


def link(request: Request, page: str, **params: Any) -> str:
    """Return the address of a page, in the tenant of the request; a parameter that is None is left out."""
    given = {"tenant": request.query_params.get("tenant") or None} | params
    query = urlencode([(name, value) for name, value in given.items() if value is not None])
    return f"{request.scope.get('root_path', '')}/{page}" + (f"?{query}" if query else "")


View = Callable[[Inspector, Request], Response]


def _endpoint(inspector: Inspector, view: View) -> Callable[[Request], Response]:
    """Return the endpoint of a view; Starlette runs it on a worker, since it is not async. Errors become pages."""

    @wraps(view)
    def answer(request: Request) -> Response:
        try:
            return view(inspector, request)
        except CheckpointError as error:
            status = 404 if isinstance(error, CheckpointNotFound) else 400 if isinstance(error, ConfigError) else 500
            return _problem(inspector, request, status, str(error))
        except Exception as error:
            _LOG.exception("the inspector could not make the page %s", request.url.path)
            return _problem(
                inspector, request, 500, f"The page could not be made ({type(error).__name__}); the log says why."
            )

    return answer


def _problem(inspector: Inspector, request: Request, status: int, reason: str) -> Response:
    if request.headers.get("accept", "").startswith("application/json"):
        return Data({"problem": marked(reason)}, status)
    return inspector.page(request, "problem.html", status, reason=reason, missing=status == 404)


def create_app(
    saver: CheckpointSaver, *, name: str | None = None, token: str | None = None, hosts: Collection[str] = ()
) -> ASGIApp:
    """Return the inspector of a store as an ASGI application.

    Mount it in an application of yours in Starlette or FastAPI, behind your own authentication:
    `app.mount("/checkpoints", create_app(saver))`. Whoever can open it sees every thread, those of all tenants
    included; with `create_app(saver.for_tenant("acme"))`, only those of one.

    It changes nothing. To have the database enforce that, pass a saver with `read_only=True`.

    Args:
        saver: The store. It stays yours to close.
        name: What to call the store in the head of each page; by default, where it is.
        token: A text without which nobody may enter: the address has to contain it at first, as `?token=…`, and a
            cookie after that.
        hosts: The Host headers that are accepted, such as `localhost:8000`; by default all.
    """
    from langgraph_checkpoint_custom.ui.pages import ROUTES

    inspector = Inspector(saver, name or saver.backend.dialect.location, _templates())
    routes: list[Any] = [
        Route(path, _endpoint(inspector, view), methods=["GET"], name=path) for path, view in ROUTES.items()
    ]
    routes.append(Mount("/static", StaticFiles(directory=_HERE / "static")))
    pages = Starlette(routes=routes, exception_handlers={404: partial(_not_found, inspector)})
    return Guard(pages, token=token, hosts=hosts)


def _not_found(inspector: Inspector, request: Request, error: Exception) -> Response:
    return _problem(inspector, request, 404, "There is no such page.")
