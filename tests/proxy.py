"""A proxy in front of PostgreSQL that counts round trips, cuts connections and can look like a pooler.

A client waits for a reply exactly where it has sent `Query` or `Sync`, so those messages are the round trips.
"""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from urllib.parse import parse_qs, quote, unquote, urlsplit


class Proxy:
    """Listens on loopback and forwards to a server given by a URL.

    Args:
        url: The URL of the server.
        other_pid: Whether to send clients a wrong backend process id, as a pooler does.
    """

    def __init__(self, url: str, *, other_pid: bool = False) -> None:
        parts = urlsplit(url)
        query = {name: values[0] for name, values in parse_qs(parts.query).items()}
        host = parts.hostname or query.get("host") or "localhost"
        port = parts.port or int(query.get("port", "5432"))
        self._server = (unquote(host), port)
        self._other_pid = other_pid
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._sockets: set[socket.socket] = set()
        self._lock = threading.Lock()
        self.round_trips = 0
        self.connections = 0
        self.prepares = 0
        self.statements: list[str] = []
        address = f"127.0.0.1:{self._listener.getsockname()[1]}"
        account = quote(unquote(parts.username or ""), safe="")
        if parts.password:
            account += f":{quote(unquote(parts.password), safe='')}"
        self.url = f"postgresql://{account}@{address}{parts.path}?sslmode=disable&gssencmode=disable"
        threading.Thread(target=self._accept, daemon=True).start()

    def cut(self) -> int:
        """Cut every open connection; returns how many."""
        with self._lock:
            sockets = list(self._sockets)
        for each in sockets:
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
        return len(sockets) // 2

    def close(self) -> None:
        """Stop listening and cut every open connection."""
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self.cut()

    def _connect(self) -> socket.socket:
        host, port = self._server
        if host.startswith("/"):
            server = socket.socket(socket.AF_UNIX)
            server.connect(str(Path(host) / f".s.PGSQL.{port}"))
            return server
        server = socket.create_connection((host, port))
        server.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return server

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            try:
                server = self._connect()
            except OSError:
                client.close()
                continue
            client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            with self._lock:
                self._sockets |= {client, server}
                self.connections += 1
            threading.Thread(target=self._forward, args=(client, server, self._from_client), daemon=True).start()
            threading.Thread(target=self._forward, args=(server, client, self._from_server), daemon=True).start()

    def _forward(
        self, source: socket.socket, sink: socket.socket, watch: Callable[[socket.socket], Iterator[bytes]]
    ) -> None:
        with suppress(OSError, EOFError):
            for message in watch(source):
                sink.sendall(message)
        for each in (source, sink):
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()
        with self._lock:
            self._sockets -= {source, sink}

    def _from_client(self, source: socket.socket) -> Iterator[bytes]:
        head = _exactly(source, 4)
        yield head + _exactly(source, struct.unpack("!i", head)[0] - 4)  # The start-up message has no type.
        for kind, message in _messages(source):
            with self._lock:
                self.round_trips += kind in b"QS"
                # A named statement is a prepared one.
                self.prepares += kind == b"P" and message[5] != 0
                if kind in b"PQ":  # In `Parse`, the statement's name comes before the text.
                    self.statements.append(message[5:].split(b"\0")[kind == b"P"].decode())
            yield message

    def _from_server(self, source: socket.socket) -> Iterator[bytes]:
        for kind, message in _messages(source):
            if kind == b"K" and self._other_pid:
                (pid,) = struct.unpack("!i", message[5:9])
                yield message[:5] + struct.pack("!i", pid + 1) + message[9:]
            else:
                yield message


def _messages(source: socket.socket) -> Iterator[tuple[bytes, bytes]]:
    while True:
        head = _exactly(source, 5)
        yield head[:1], head + _exactly(source, struct.unpack("!i", head[1:])[0] - 4)


def _exactly(source: socket.socket, size: int) -> bytes:
    data = bytearray()
    while len(data) < size:
        received = source.recv(size - len(data))
        if not received:
            raise EOFError
        data += received
    return bytes(data)


@contextmanager
def proxied(url: str, *, other_pid: bool = False) -> Iterator[Proxy]:
    """A proxy that is closed at the end of the block."""
    proxy = Proxy(url, other_pid=other_pid)
    try:
        yield proxy
    finally:
        proxy.close()
