"""The real server in a separate process, with an empty folder: `langgraph dev` with nothing else."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.error import URLError
from urllib.request import urlopen

from tests.stores import Store

ROOT = Path(__file__).parents[2]
GRAPHS = ("steps", "many", "questions", "family", "deltas", "values", "failing")
# Seconds; on the slowest machine, nothing here takes that long unless it hangs.
TIMEOUT = 150.0
LOOK = 0.05
CONFIG = {
    "dependencies": ["."],
    "graphs": {name: f"{ROOT}/tests/server/graphs.py:{name}" for name in GRAPHS},
    "auth": {"path": f"{ROOT}/tests/server/auth.py:auth", "disable_studio_auth": True},
    "checkpointer": {"path": "langgraph_checkpoint_custom.server.checkpointer"},
    # Among the files of the server are its runs: one that was in progress when it was killed never ends.
    "disable_persistence": True,
}


def environment(store: Store) -> dict[str, str]:
    """The environment of this process, without variables that would change what is tested, or need the network."""
    inherited = {name: text for name, text in os.environ.items() if not name.startswith(("LANG", "CHECKPOINT_"))}
    return inherited | {
        "CHECKPOINT_URL": store.url,
        "LANGGRAPH_CLI_NO_ANALYTICS": "1",
        "LANGGRAPH_NO_VERSION_CHECK": "true",
        "LANGSMITH_TRACING": "false",
        "LOG_JSON": "true",
        "PYTHONPATH": str(ROOT),
    }


class Server:
    """A server that runs until it is stopped or killed, and can be started again.

    Args:
        store: The database for `CHECKPOINT_URL`.
        folder: The server's working directory, where it also stores its own threads and runs.
        isolated: Whether each run has its own event loop and OS thread.
        variables: Additional environment variables, such as options of the checkpointer.
    """

    def __init__(self, store: Store, folder: Path, *, isolated: bool, variables: dict[str, str] | None = None) -> None:
        self.store = store
        self.folder = folder
        self.environment = environment(store) | {"BG_JOB_ISOLATED_LOOPS": str(isolated).lower()} | (variables or {})
        (folder / "langgraph.json").write_text(json.dumps(CONFIG))
        self.log = folder / "log"
        self.start()

    def start(self) -> None:
        """Start it; `wait` waits until it answers."""
        self.url = f"http://127.0.0.1:{free_port()}"
        command = [sys.executable, "-m", "langgraph_cli", "dev", "--no-browser", "--no-reload", "--host", "127.0.0.1"]
        command += ["--port", self.url.rpartition(":")[2], "--n-jobs-per-worker", "10"]
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                command, cwd=self.folder, env=self.environment, stdout=log, stderr=log, stdin=subprocess.DEVNULL
            )

    def wait(self) -> Server:
        """Wait until the server answers."""
        deadline = time.monotonic() + TIMEOUT
        while not self._answers():
            assert self.process.poll() is None, f"the server has ended:\n{self.log.read_text()}"
            assert time.monotonic() < deadline, f"the server does not answer:\n{self.log.read_text()}"
            time.sleep(LOOK)  # It has no other sign of being ready.
        return self

    def _answers(self) -> bool:
        try:
            with urlopen(f"{self.url}/ok", timeout=TIMEOUT) as answer:
                return bool(answer.status == 200)
        except URLError:
            return False

    def kill(self) -> None:
        """End it at once, as if the machine were lost."""
        self.process.kill()
        self.process.wait(TIMEOUT)

    def stop(self) -> int:
        """End it as Ctrl-C does; returns its exit code."""
        self.process.send_signal(signal.SIGINT)
        try:
            return self.process.wait(TIMEOUT)
        finally:
            self.process.kill()

    def events(self) -> Sequence[Mapping[str, Any]]:
        """What it has logged."""
        return [json.loads(line) for line in self.log.read_text().splitlines() if line.startswith("{")]


def free_port() -> int:
    """A port on which no program listens."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


@contextmanager
def running(*servers: Server) -> Iterator[None]:
    """Wait until servers have started; at the end, kill those that still run."""
    try:
        for server in servers:
            server.wait()
        yield
    finally:
        for server in servers:
            server.kill()
