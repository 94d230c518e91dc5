"""The ASGI application with all pages, and serving it to one person on this machine."""

from __future__ import annotations

import logging
import secrets
import socket
from collections.abc import Awaitable, Callable, Collection, Mapping
from contextlib import suppress
from functools import partial, wraps
from typing import Any
from urllib.parse import parse_qsl

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp

from langgraph_checkpoint_custom.errors import CheckpointError, CheckpointNotFound, ConfigError
from langgraph_checkpoint_custom.saver import CheckpointSaver
from langgraph_checkpoint_custom.tools.display import database_of
from langgraph_checkpoint_custom.ui import change, pages
from langgraph_checkpoint_custom.ui.inspector import HERE, Data, Graph, Inspector, View, templates
from langgraph_checkpoint_custom.ui.security import Guard
from langgraph_checkpoint_custom.ui.values import marked

ROUTES: Mapping[str, View] = {
    "/": pages.threads,
    "/summary": pages.summary,
    "/suggestions": pages.suggestions,
    "/inbox": pages.inbox,
    "/space": pages.space,
    "/tenants": pages.tenants,
    "/thread": pages.thread,
    "/checkpoint": pages.checkpoint,
    "/checkpoints": pages.checkpoints,
    "/timeline": pages.timeline,
    "/difference": pages.difference,
    "/value": pages.value,
}
# Bytes. A form has a few ids and an answer.
LARGEST_FORM = 1_000_000
# Where `serve` listens. Not at the other addresses of the machine: the pages have no users and no TLS.
ADDRESS = "127.0.0.1"

_LOG = logging.getLogger("langgraph_checkpoint_custom")


def _unpack(request: Request) -> None:
    """Put what `given` has encoded into the query of a request."""
    query = request.scope["query_string"].decode("latin-1")
    packed = [value for name, value in parse_qsl(query) if name == "given"]
    request.scope["query_string"] = "&".join([*packed, query]).encode("latin-1", "replace")


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
            inspector.check_tenant(request)
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
            cookie after that, which only the process knows that gave it: with a token, use one process.
        hosts: The Host headers that are accepted, such as `localhost:8000`; by default all.
    """
    if graph is not None and not write:
        raise ConfigError("a graph answers interrupts, which is a change; pass write=True as well")
    if token == "":
        raise ConfigError("an empty token lets everybody in; pass a text, or None if the application around it decides")
    inspector = Inspector(saver, name or database_of(saver), templates(), write, graph)
    routes: list[Any] = [Route(path, _endpoint(inspector, view), methods=["GET"]) for path, view in ROUTES.items()]
    if write:
        routes.append(Route("/change", _endpoint(inspector, change.ask), methods=["GET"]))
        routes.append(Route("/change", _endpoint(inspector, change.change), methods=["POST"]))
    routes.append(Mount("/static", StaticFiles(directory=HERE / "static")))
    routed = Starlette(routes=routes, exception_handlers={404: partial(_not_found, inspector)})
    return Guard(routed, token=token, hosts=hosts)


def _not_found(inspector: Inspector, request: Request, error: Exception) -> Response:
    return _problem(inspector, request, 404, "There is no such page.")


def serve(saver: CheckpointSaver, announce: Callable[[str], None], *, write: bool = False, port: int = 0) -> None:
    """Serve the inspector of a store on a port of this machine until Ctrl-C, to whoever has the address.

    Args:
        saver: The store.
        announce: Called with the address, once it can be opened.
        write: Whether to offer changes.
        port: The port; 0 takes a free one.

    Raises:
        ConfigError: The port is in use.
        ImportError: uvicorn is missing, which an application around the inspector does not need.
    """
    try:
        from uvicorn import Config, Server
    except ModuleNotFoundError as error:
        if error.name != "uvicorn":
            raise
        raise ImportError("the inspector needs an extra: install langgraph-checkpoint-custom[ui]") from error
    try:
        listening = socket.create_server((ADDRESS, port))
    except (OSError, OverflowError) as error:
        raise ConfigError(f"port {port} cannot be used ({error}); without --port, a free one is taken") from error
    with listening:
        port = listening.getsockname()[1]
        token = secrets.token_urlsafe(32)
        app = create_app(saver, write=write, token=token, hosts=[f"{ADDRESS}:{port}", f"localhost:{port}"])
        # No log of requests: their addresses have the token, and what somebody looks at.
        config = Config(
            app, log_config=None, access_log=False, server_header=False, lifespan="off", timeout_graceful_shutdown=2
        )
        announce(f"http://{ADDRESS}:{port}/?token={token}")
        with suppress(KeyboardInterrupt):  # uvicorn has ended all requests, and then passes the signal on.
            Server(config).run(sockets=[listening])
