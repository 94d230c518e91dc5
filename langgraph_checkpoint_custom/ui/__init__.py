"""The inspector: pages over a store, for people. `create_app(saver)` makes an ASGI application.

Why Starlette, Jinja2 and plain JavaScript. Weighed in November 2026, each installed into an empty environment:

- Starlette with Jinja2 and uvicorn are 9 packages and 7 MB. Pages are made on the server, so they can be tested without
  a browser, work with a screen reader and a keyboard as any page does, and need no inline script or style: the
  Content-Security-Policy can be strict. An application in FastAPI can mount them, since FastAPI is Starlette.
- NiceGUI is 49 packages and 104 MB, with the Vue and Quasar that it ships. Its pages are a JavaScript program that
  talks to the server over a web socket. That is more to keep accessible, to test and to guard than these pages need.
- Django or Flask would be a second framework next to the ASGI servers that agents run on.

What has to be drawn or to move is a few hundred lines of JavaScript and SVG in `static/`, without a build step.

`app.py` makes the application and serves it on this machine, and `security.py` guards it. `pages.py` and `change.py`
have the pages; they share `inspector.py`. `reading.py` reads from the store, and `values.py` prepares what was stored
for the templates. Nothing here knows SQL, and nothing makes an object of a stored class.
"""

from __future__ import annotations

try:
    from langgraph_checkpoint_custom.ui.app import create_app
except ModuleNotFoundError as error:
    if (error.name or "").partition(".")[0] not in ("starlette", "jinja2", "markupsafe", "anyio"):
        raise
    raise ImportError("the inspector needs an extra: install langgraph-checkpoint-custom[ui]") from error

__all__ = ["create_app"]
