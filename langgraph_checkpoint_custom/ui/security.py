"""Keeps everybody else out of the inspector.

Must not know: the store, pages.

What could go wrong, and what prevents it:

- Another user or program on the machine opens the port: a random token, which only the printed address has. It moves
  into a cookie that no script can read, and out of the address.
- A page on the internet resolves its own name to 127.0.0.1 (DNS rebinding): the Host header has to name this server.
- A page on the internet, or one of another port here, posts a form or starts a request (CSRF): Origin has to be this
  server, the cookie is `SameSite=Strict`, and what a browser says about the origin of a request (`Sec-Fetch-Site`) has
  to fit. A request that changes something and has no Origin is refused.
- Stored text contains HTML or scripts: templates escape it, and if they did not, the Content-Security-Policy allows
  neither inline scripts nor inline styles nor another host. `nosniff` keeps a download from becoming a page.
- A page shows the inspector in a frame and catches clicks: `frame-ancestors 'none'`.
- The browser keeps or passes on what it has seen: `no-store`, and a referrer for these pages only. With `no-referrer`,
  browsers would send `Origin: null` with the forms of these pages, too.
"""

from __future__ import annotations

import secrets
from collections.abc import Collection
from urllib.parse import urlencode

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import Request
from starlette.responses import PlainTextResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

POLICY = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self'",
        "connect-src 'self'",
        "form-action 'self'",
        "base-uri 'none'",
        "frame-ancestors 'none'",
    )
)
HEADERS = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
}
_READS = ("GET", "HEAD")


class Guard:
    """Passes on the requests that may be answered, and adds headers to all answers.

    Args:
        app: The pages.
        token: What the address has to contain at first, and a cookie after that; None leaves that to an application
            around this one.
        hosts: The values of the Host header that are accepted; none accepts all, for an application around this one.
    """

    def __init__(self, app: ASGIApp, *, token: str | None, hosts: Collection[str]) -> None:
        self._app = app
        self._token = token
        self._hosts = frozenset(host.lower() for host in hosts)
        self._session = secrets.token_urlsafe(32)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, or pass it on."""
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        if scope["type"] != "http":  # No page opens a web socket.
            return

        async def answer(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                headers.update(HEADERS)
                headers.setdefault("Cache-Control", "no-store")
            await send(message)

        refusal = self._refusal(scope) or self._entry(scope)
        await (refusal or self._app)(scope, receive, answer)

    def _refusal(self, scope: Scope) -> Response | None:
        """Return the answer to a request that comes from another place; None for all others."""
        headers = Headers(scope=scope)
        host = headers.get("host", "").lower()
        if self._hosts and host not in self._hosts:
            return PlainTextResponse("This server does not have that name; use the printed address.\n", 421)
        origin, site = headers.get("origin"), headers.get("sec-fetch-site", "same-origin")
        if scope["method"] not in _READS:
            if origin is None or origin.partition("://")[2].lower() != host or site != "same-origin":
                return PlainTextResponse("The request comes from another page.\n", 403)
        elif site not in ("same-origin", "none") and headers.get("sec-fetch-mode") != "navigate":
            return PlainTextResponse("The request comes from another page.\n", 403)
        return None

    def _entry(self, scope: Scope) -> Response | None:
        """Return the answer to a request without the cookie: one that sets it, if it has the token."""
        request = Request(scope)
        # Browsers send the cookies of all ports of a host to each of them.
        _, _, port = request.headers.get("host", "").rpartition(":")
        cookie = f"checkpoint-ui-{port if port.isdecimal() else 'default'}"
        if self._token is None or _same(request.cookies.get(cookie, ""), self._session):
            return None
        query = request.query_params.multi_items()
        given = [value for name, value in query if name == "token"]
        if scope["method"] not in _READS or not (given and _same(given[0], self._token)):
            return PlainTextResponse("Open the complete address that the command has printed.\n", 401)
        rest = urlencode([(name, value) for name, value in query if name != "token"])
        entered = RedirectResponse(scope["path"] + (f"?{rest}" if rest else ""), 303)
        path = scope.get("root_path", "") or "/"
        entered.set_cookie(cookie, self._session, path=path, httponly=True, samesite="strict")
        return entered


def _same(one: str, other: str) -> bool:
    return secrets.compare_digest(one.encode(), other.encode())
