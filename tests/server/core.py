"""The service that the production server's core calls for threads and runs, with our saver, in a separate process."""

from __future__ import annotations

import asyncio
import sys


async def serve(port: int) -> None:
    """Serve until the process ends."""
    from langgraph_api import _checkpointer
    from langgraph_api.grpc import server

    await _checkpointer.start_checkpointer()
    await server.start_python_grpc_server(port=port, host="127.0.0.1")
    print("ready", flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(serve(int(sys.argv[1])))
