"""Serves the inspector to the one person who has the address, on this machine.

Must not know: the store, pages.
"""

from __future__ import annotations

import secrets
import socket
from collections.abc import Callable, Collection
from contextlib import suppress

from starlette.types import ASGIApp

from langgraph_checkpoint_custom.errors import ConfigError

try:
    from uvicorn import Config, Server
except ModuleNotFoundError as error:
    if error.name != "uvicorn":
        raise
    raise ImportError("the inspector needs an extra: install langgraph-checkpoint-custom[ui]") from error

# Not the other addresses of the machine: the pages have no users and no TLS.
ADDRESS = "127.0.0.1"


def serve(make: Callable[[str, Collection[str]], ASGIApp], tell: Callable[[str], None], port: int = 0) -> None:
    """Serve an application on a port of this machine until Ctrl-C.

    Args:
        make: Returns the application, given its token and the Host headers to accept.
        tell: Called with the address, once it can be opened.
        port: The port; 0 takes a free one.

    Raises:
        ConfigError: The port is in use.
    """
    try:
        listening = socket.create_server((ADDRESS, port))
    except (OSError, OverflowError) as error:
        raise ConfigError(f"port {port} cannot be used ({error}); without --port, a free one is taken") from error
    with listening:
        port = listening.getsockname()[1]
        token = secrets.token_urlsafe(32)
        app = make(token, [f"{ADDRESS}:{port}", f"localhost:{port}"])
        # No log of requests: their addresses have the token, and what somebody looks at.
        config = Config(
            app, log_config=None, access_log=False, server_header=False, lifespan="off", timeout_graceful_shutdown=2
        )
        tell(f"http://{ADDRESS}:{port}/?token={token}")
        with suppress(KeyboardInterrupt):  # uvicorn has ended all requests, and then passes the signal on.
            Server(config).run(sockets=[listening])
