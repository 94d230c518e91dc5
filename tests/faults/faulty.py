"""A proxy that breaks a connection at a chosen point of the next request, or stops forwarding replies."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal

from tests.proxy import Proxy

# Where the connection of the next request breaks: before the server gets any of it; when it has some of it; when it
# has all of it; when it has executed all of it, but before it replies.
Cut = Literal["before the request", "within the request", "after the request", "before the answer"]
CUTS: tuple[Cut, ...] = ("before the request", "within the request", "after the request", "before the answer")


class FaultyProxy(Proxy):
    """A proxy that can be made to fail."""

    def __init__(self, url: str) -> None:
        self.connections_to_ignore = 0
        self._pause = 0.0
        self._cut: Cut | None = None
        self._to_pass = 0
        self._victim: socket.socket | None = None
        self._deaf: set[socket.socket] = set()
        super().__init__(url)

    @property
    def armed(self) -> bool:
        """Whether the next cut has not happened yet."""
        return self._cut is not None

    def cut_next(self, where: Cut, *, after: int = 0) -> None:
        """Break the connection that carries the next request, or a later one; other connections stay."""
        with self._lock:
            self._cut, self._to_pass, self._victim = where, after, None

    def hush(self) -> None:
        """From now on, hold back everything that the server sends on the open connections."""
        with self._lock:
            self._deaf |= self._sockets

    def trickle(self, pause: float) -> None:
        """Wait for `pause` seconds before each message that the server sends."""
        self._pause = pause

    def _connect(self) -> socket.socket:
        server = super()._connect()
        if server.family != socket.AF_UNIX:
            # Messages are forwarded one by one, and each would wait until the previous one is acknowledged.
            server.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return server

    def _from_client(self, source: socket.socket) -> Iterator[bytes]:
        messages = super()._from_client(source)
        yield next(messages)  # The start-up message.
        passed = 0
        for message in messages:
            kind = message[:1]
            # A password is sent while connecting, and a termination message is not a request.
            if kind in b"pX" or not self._chosen(source, kind in b"QS", *CUTS[:3]):
                yield message
                continue
            if self._cut == "before the request":
                self._break()
            yield message
            passed += 1
            # Parse, bind, describe, execute: then the first statement of several is complete, but nothing is executed.
            if (self._cut == "within the request" and passed == 4) or kind in b"QS":
                self._break()

    def _from_server(self, source: socket.socket) -> Iterator[bytes]:
        with self._lock:
            if self.connections_to_ignore:
                self.connections_to_ignore -= 1
                self._deaf.add(source)
        connected = False
        for message in super()._from_server(source):
            time.sleep(self._pause)  # The slow network that a test needs.
            if source in self._deaf:
                continue
            last = message[:1] == b"Z"  # Ready for the next query: the request is committed.
            if not connected or not self._chosen(source, last, "before the answer"):
                connected = connected or last
                yield message
            elif last:
                self._break()

    def _chosen(self, source: socket.socket, last: bool, *where: Cut) -> bool:
        """Whether a message, perhaps the last one of a request, is where the connection is to be cut."""
        with self._lock:
            if self._cut not in where:
                return False
            if self._to_pass:
                self._to_pass -= last
                return False
            self._victim = self._victim or source
            return self._victim is source

    def _break(self) -> None:
        with self._lock:
            self._cut = None
        raise EOFError  # Counts as the end of one side; the other one is closed then.


@contextmanager
def faulty(url: str) -> Iterator[FaultyProxy]:
    """A faulty proxy for the duration of a block."""
    proxy = FaultyProxy(url)
    try:
        yield proxy
    finally:
        proxy.close()
