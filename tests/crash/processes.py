"""Processes that a test starts, communicates with and kills.

Each is forked from a server process that has imported everything and has one OS thread, so that hundreds of them take
seconds. The server process never uses a saver: each process opens its own.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
from collections.abc import Callable
from multiprocessing.connection import Connection
from types import TracebackType
from typing import Any, Concatenate, ParamSpec

P = ParamSpec("P")

# Seconds; nothing here takes that long unless it hangs.
TIMEOUT = 150.0

_CONTEXT = multiprocessing.get_context("forkserver")
# A process imports the main program of its parent, which may be pytest's, and the module of its function.
_CONTEXT.set_forkserver_preload(
    ["pytest", "tests.crash.agent", "tests.crash.family", "tests.crash.programs", "langgraph_checkpoint_custom.cli.app"]
)


def pipe() -> tuple[Connection, Connection]:
    """Two ends of a pipe; one of them may be passed to a process."""
    return _CONTEXT.Pipe()


def answer(connection: Connection) -> Any:
    """The next message, which must come."""
    assert connection.poll(TIMEOUT), "the process hangs"
    try:
        return connection.recv()
    except (EOFError, ConnectionResetError):
        raise AssertionError("the process has ended") from None


class Process:
    """A process that runs a function, which gets a connection to its test before its other arguments.

    It is killed when the block ends, if it has not ended by then.
    """

    def __init__(self, program: Callable[Concatenate[Connection, P], None], *args: P.args, **kwargs: P.kwargs) -> None:
        self._connection, theirs = pipe()
        self._process = _CONTEXT.Process(target=program, args=(theirs, *args), kwargs=kwargs)
        self._process.start()
        theirs.close()

    def __enter__(self) -> Process:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.kill()
        self._process.join()
        self._connection.close()

    def send(self, message: Any) -> None:
        """Send a message to the process."""
        self._connection.send(message)

    def receive(self) -> Any:
        """The next message of the process, which must come."""
        return answer(self._connection)

    def received(self) -> list[Any]:
        """The messages that have already arrived."""
        messages = []
        try:
            while self._connection.poll():
                messages.append(self._connection.recv())
        except (EOFError, ConnectionResetError):
            pass  # It has ended.
        return messages

    def kill(self) -> bool:
        """End the process at once, as `kill -9` does; returns whether it was still running."""
        self._process.kill()
        code = self.wait()
        assert code in (0, -signal.SIGKILL), "the process has failed; see its traceback"
        return code != 0

    def interrupt(self) -> None:
        """Send it a Ctrl-C."""
        assert self._process.pid is not None
        os.kill(self._process.pid, signal.SIGINT)

    def wait(self) -> int:
        """Wait for the process to end; returns its exit code."""
        self._process.join(TIMEOUT)
        code = self._process.exitcode
        assert code is not None, "the process does not end"
        return code
