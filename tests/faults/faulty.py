"""A proxy that breaks a connection at a chosen point of the next request, or goes deaf."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal

from tests.proxy import Proxy

# Where the connection of the next request breaks: before the server sees any of it; when it has a part of it; when it
# has all of it; when it has done all of it, but before any of its answer comes back.
Cut = Literal["before the request", "within the request", "after the request", "before the answer"]
CUTS: tuple[Cut, ...] = ("before the request", "within the request", "after the request", "before the answer")


class FaultyProxy(Proxy):
    """A proxy that can be told to fail."""

    def __init__(self, url: str) -> None:
        self.deaf_to_come = 0
        self._pause = 0.0
        self._cut: Cut | None = None
        self._to_pass = 0
        self._victim: socket.socket | None = None
        self._deaf: set[socket.socket] = set()
        super().__init__(url)

    @property
    def armed(self) -> bool:
        """Whether the next cut is still to come."""
        return self._cut is not None

    def cut_next(self, where: Cut, *, after: int = 0) -> None:
        """Break the connection that carries the next request, or a later one; the others stay."""
        with self._lock:
            self._cut, self._to_pass, self._victim = where, after, None

    def hush(self) -> None:
        """Hold back everything that the server says from now on, on the connections that are open."""
        with self._lock:
            self._deaf |= self._sockets

    def trickle(self, pause: float) -> None:
        """Wait for so many seconds before each message that the server sends."""
        self._pause = pause

    def _connect(self) -> socket.socket:
        server = super()._connect()
        if server.family != socket.AF_UNIX:
            # Messages are forwarded one by one, and each would wait until the one before is acknowledged.
            server.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return server

    def _from_client(self, source: socket.socket) -> Iterator[bytes]:
        messages = super()._from_client(source)
        yield next(messages)  # The start-up message.
        passed = 0
        for message in messages:
            kind = message[:1]
            # A password is part of connecting, and a good-bye is no request.
            if kind in b"pX" or not self._chosen(source, kind in b"QS", *CUTS[:3]):
                yield message
                continue
            if self._cut == "before the request":
                self._break()
            yield message
            passed += 1
            # Parse, bind, describe, execute: the first statement of several is whole then, but nothing is done.
            if (self._cut == "within the request" and passed == 4) or kind in b"QS":
                self._break()

    def _from_server(self, source: socket.socket) -> Iterator[bytes]:
        with self._lock:
            if self.deaf_to_come:
                self.deaf_to_come -= 1
                self._deaf.add(source)
        connected = False
        for message in super()._from_server(source):
            time.sleep(self._pause)  # The slow network that a test asks for.
            if source in self._deaf:
                continue
            last = message[:1] == b"Z"  # Ready for the next query: what was asked for is committed.
            if not connected or not self._chosen(source, last, "before the answer"):
                connected = connected or last
                yield message
            elif last:
                self._break()

    def _chosen(self, source: socket.socket, last: bool, *where: Cut) -> bool:
        """Whether a message, the last one of a request perhaps, is on the connection to be cut at such a point."""
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
        raise EOFError  # Taken for the end of one side; the other one is then told.


@contextmanager
def faulty(url: str) -> Iterator[FaultyProxy]:
    """Such a proxy for the time of a block."""
    proxy = FaultyProxy(url)
    try:
        yield proxy
    finally:
        proxy.close()
