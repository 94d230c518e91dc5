"""A slow network: forwards a local port to a Unix socket, each byte some seconds later.

`python -m benchmarks.delay SOCKET SECONDS` prints its port and runs until it is killed.
"""

from __future__ import annotations

import asyncio
import socket
import sys
from contextlib import suppress


async def forward(source: asyncio.StreamReader, sink: asyncio.StreamWriter, seconds: float) -> None:
    """Forward bytes in one direction, without waiting until earlier ones are delivered."""
    loop = asyncio.get_running_loop()
    under_way: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue()

    async def deliver() -> None:
        while True:
            due, data = await under_way.get()
            if (wait := due - loop.time()) > 0:
                await asyncio.sleep(wait)
            if not data:
                sink.close()
                return
            sink.write(data)

    delivery = asyncio.create_task(deliver())
    data = b"some"
    while data:
        data = b""
        with suppress(ConnectionError):
            data = await source.read(1 << 18)
        under_way.put_nowait((loop.time() + seconds, data))
    await delivery


async def main(target: str, seconds: float) -> None:
    """Listen forever."""

    async def connected(client: asyncio.StreamReader, client_end: asyncio.StreamWriter) -> None:
        client_end.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        server, server_end = await asyncio.open_unix_connection(target)
        await asyncio.gather(forward(client, server_end, seconds), forward(server, client_end, seconds))

    listener = await asyncio.start_server(connected, "127.0.0.1", 0)
    print(listener.sockets[0].getsockname()[1], flush=True)
    await listener.serve_forever()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], float(sys.argv[2])))
