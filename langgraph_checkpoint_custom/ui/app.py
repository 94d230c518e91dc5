"""The ASGI application with all pages."""

from __future__ import annotations

import json
import logging
from collections.abc import Awaitable, Callable, Collection
from dataclasses import dataclass
from datetime import datetime, timezone
from functools import partial, wraps
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import parse_qsl, urlencode

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
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
from langgraph_checkpoint_custom.ui.texts import age, clock, duration, line, marked, namespace, visible
from langgraph_checkpoint_custom.ui.values import tree


class Data(Response):
    """JSON in ASCII and without tags, so that ids and texts arrive as they are stored, and are nothing else."""

    media_type = "application/json"

    def render(self, content: Any) -> bytes:
        """Encode the answer."""
        text = json.dumps(content, separators=(",", ":"), allow_nan=False)
        return text.replace("<", r"\u003c").encode("ascii")


# Bytes. A form has a few ids and an answer.
LARGEST_FORM = 1_000_000

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
    made.filters |= {
        "visible": visible,
        "line": line,
        "size": size,
        "clock": clock,
        "duration": duration,
        "kind": kind,
        "tree": tree,
    }
    made.filters |= {"counted": counted, "namespace": namespace, "calls": calls_of}
    return made


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
    write: bool = False
    graph: Graph | None = None

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
                writes=self.write,
                answers=self.graph is not None and not request.query_params.get("tenant"),
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


def link(request: Request, page: str, **params: Any) -> str:
    """Return the address of a page, in the tenant of the request; a parameter that is None is left out."""
    given = {"tenant": request.query_params.get("tenant") or None} | params
    query = urlencode([(name, value) for name, value in given.items() if value is not None])
    return f"{request.scope.get('root_path', '')}/{page}" + (f"?{query}" if query else "")


def given(request: Request, **fields: Any) -> Markup:
    """Return a hidden field of a form with these fields, and the tenant of the request.

    They are in one field, encoded: a browser would change line ends in fields of their own, and a page has no unseen
    characters.
    """
    query = urlencode({"tenant": request.query_params.get("tenant") or "", **fields})
    return Markup('<input type="hidden" name="given" value="{}">').format(query)


def _unpack(request: Request) -> None:
    """Put what `given` has encoded into the query of a request."""
    query = request.scope["query_string"].decode("latin-1")
    packed = [value for name, value in parse_qsl(query) if name == "given"]
    request.scope["query_string"] = "&".join([*packed, query]).encode("latin-1", "replace")


View = Callable[[Inspector, Request], Response]


def _endpoint(inspector: Inspector, view: View) -> Callable[[Request], Awaitable[Response]]:
    """Return the endpoint of a view, which runs on a worker. Errors become pages."""

    @wraps(view)
    async def answer(request: Request) -> Response:
        _unpack(request)
        if request.method == "POST":
            request.state.form = await _form(request)
        return await run_in_threadpool(page, request)

    def page(request: Request) -> Response:
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


async def _form(request: Request) -> dict[str, str]:
    """The fields of a form, as browsers send them by default."""
    body = bytearray()
    async for part in request.stream():
        body += part
        if len(body) > LARGEST_FORM:
            return {}
    fields = dict(parse_qsl(body.decode("utf-8", "replace"), keep_blank_values=True))
    return dict(parse_qsl(fields.get("given", ""), keep_blank_values=True)) | fields


def _problem(inspector: Inspector, request: Request, status: int, reason: str) -> Response:
    if request.headers.get("accept", "").startswith("application/json"):
        return Data({"problem": marked(reason)}, status)
    return inspector.page(request, "problem.html", status, reason=reason, missing=status == 404)


def create_app(
    saver: CheckpointSaver,
    *,
    write: bool = False,
    graph: Graph | None = None,
    name: str | None = None,
    token: str | None = None,
    hosts: Collection[str] = (),
) -> ASGIApp:
    """Return the inspector of a store as an ASGI application.

    Mount it in an application of yours in Starlette or FastAPI, behind your own authentication:
    `app.mount("/checkpoints", create_app(saver))`. Whoever can open it sees every thread, those of all tenants
    included; with `create_app(saver.for_tenant("acme"))`, only those of one.

    By default it changes nothing. To have the database enforce that, pass a saver with `read_only=True`.

    Args:
        saver: The store. It stays yours to close.
        write: Whether to offer changes: label, fork, roll back, delete, prune. Each is asked for once more, and logged.
        graph: With `write`, the compiled graph that answers interrupts; its checkpointer has to be `saver`.
        name: What to call the store in the head of each page; by default, where it is.
        token: A text without which nobody may enter: the address has to contain it at first, as `?token=…`, and a
            cookie after that.
        hosts: The Host headers that are accepted, such as `localhost:8000`; by default all.
    """
    from langgraph_checkpoint_custom.ui.pages import ROUTES, change

    if graph is not None and not write:
        raise ConfigError("a graph answers interrupts, which is a change; pass write=True as well")
    inspector = Inspector(saver, name or saver.backend.dialect.location, _templates(), write, graph)
    routes: list[Any] = [Route(path, _endpoint(inspector, view), methods=["GET"]) for path, view in ROUTES.items()]
    if write:
        routes.append(Route("/change", _endpoint(inspector, change.ask), methods=["GET"]))
        routes.append(Route("/change", _endpoint(inspector, change.change), methods=["POST"]))
    routes.append(Mount("/static", StaticFiles(directory=_HERE / "static")))
    pages = Starlette(routes=routes, exception_handlers={404: partial(_not_found, inspector)})
    return Guard(pages, token=token, hosts=hosts)


def _not_found(inspector: Inspector, request: Request, error: Exception) -> Response:
    return _problem(inspector, request, 404, "There is no such page.")
