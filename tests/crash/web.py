"""A web application in many processes of gunicorn. Each request runs a graph on its thread to the end.

This module is gunicorn's configuration, too. With `WEB_PRELOAD`, the saver is opened and used in the master before the
fork, and a thread of the master continues to use it while workers are forked.

A killed process cannot report anything, so everything is noted in files, a line each: requests that begin, tasks
that run, connections that are made, and what the saver has acknowledged.
"""

from __future__ import annotations

import asyncio
import copy
import itertools
import json
import os
import threading
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl

from langgraph.types import Durability

from langgraph_checkpoint_custom import CheckpointSaver, PostgresSaver, open_saver
from tests.crash import agent

# Gunicorn's settings. Its timeout for silent workers would end one that a busy machine delays.
preload_app = bool(os.environ.get("WEB_PRELOAD"))
timeout = 0
graceful_timeout = 300
control_socket_disable = True  # Its path would be the same for all masters of a user.

FOLDER = Path(os.environ.get("WEB_FOLDER", "."))
URL = os.environ.get("WEB_URL", "")


@cache
def saver() -> CheckpointSaver:
    """The process's saver, used both sync and async."""
    made = open_saver(URL) if URL.startswith("sqlite") else PostgresSaver(_address)
    thread_id = f"process {os.getpid()}"
    agent.finish_run(_noting(made, thread_id), "sync", thread_id, ran(thread_id))
    asyncio.run(agent.afinish_run(_noting(made, f"a{thread_id}"), "async", f"a{thread_id}", ran(f"a{thread_id}")))
    return made


def _address() -> str:
    """Called by the saver whenever it connects."""
    _note(connected(), os.getpid())
    return URL


def ran(thread_id: str) -> Path:
    """The file with a line for each task that has begun on a thread."""
    return FOLDER / f"ran {thread_id}"


def acknowledged(thread_id: str) -> Path:
    """The file with what the saver has acknowledged on a thread."""
    return FOLDER / f"acknowledged {thread_id}"


def requests() -> Path:
    """The file with the number of each request that has begun, and its process."""
    return FOLDER / "requests"


def connected() -> Path:
    """The file with the process of each connection to PostgreSQL."""
    return FOLDER / "connected"


def _note(file: Path, what: Any) -> None:
    with file.open("ab", buffering=0) as out:
        out.write(json.dumps(what).encode() + b"\n")


def noted(file: Path) -> list[Any]:
    """The lines of a file; the last one is incomplete if its process was killed."""
    if not file.exists():
        return []
    *lines, _ = file.read_bytes().split(b"\n")
    return [json.loads(line) for line in lines]


def _noting(made: CheckpointSaver, thread_id: str) -> CheckpointSaver:
    """A copy of the saver that notes what is acknowledged on a thread."""
    found = copy.copy(made)
    agent.send_acknowledged(found, lambda stored: _note(acknowledged(thread_id), stored))
    return found


def _begins(query: str) -> tuple[CheckpointSaver, Durability, str, Path]:
    request: Any = dict(parse_qsl(query))
    _note(requests(), [int(request["number"]), os.getpid()])
    thread_id = request["thread"]
    return _noting(saver(), thread_id), request["durability"], thread_id, ran(thread_id)


def wsgi(environ: dict[str, Any], start_response: Callable[..., Any]) -> list[bytes]:
    """The application for gunicorn's own workers."""
    body = json.dumps(agent.finish_run(*_begins(environ["QUERY_STRING"]))).encode()
    start_response("200 OK", [("Content-Length", str(len(body)))])
    return [body]


async def asgi(scope: dict[str, Any], receive: Callable[..., Any], send: Callable[..., Any]) -> None:
    """The application for workers with an event loop."""
    assert scope["type"] == "http"
    body = json.dumps(await agent.afinish_run(*_begins(scope["query_string"].decode()))).encode()
    headers = [(b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": body})


class MasterRuns:
    """The master's own runs, one after the other, until they are stopped."""

    def __init__(self) -> None:
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        for number in itertools.count():
            if self._stop.is_set():
                return
            thread_id = f"master {number}"
            agent.finish_run(_noting(saver(), thread_id), "sync", thread_id, ran(thread_id))

    def stop(self) -> None:
        self._stop.set()
        self._thread.join()


_master_runs: list[MasterRuns] = []


def when_ready(server: Any) -> None:
    """Gunicorn calls this in the master, before the first fork."""
    if preload_app:
        saver()
        _master_runs.append(MasterRuns())


def post_worker_init(worker: Any) -> None:
    """Gunicorn calls this in a worker, before its first request."""
    saver()


def on_exit(server: Any) -> None:
    """Gunicorn calls this in the master, at its end."""
    for runs in _master_runs:
        runs.stop()


def acknowledged_threads() -> Iterator[str]:
    """All threads on which anything was acknowledged."""
    for file in FOLDER.glob("acknowledged *"):
        yield file.name.removeprefix("acknowledged ")
