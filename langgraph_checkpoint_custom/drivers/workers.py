"""Work on OS threads that are a saver's own and end with it, or on the event loop of a caller's connection."""

from __future__ import annotations

import asyncio
import warnings
from collections.abc import Callable, Coroutine
from concurrent.futures import Executor
from typing import Any, NoReturn, TypeVar

from langgraph_checkpoint_custom.errors import closed

T = TypeVar("T")


async def aside(executor: Executor, work: Callable[[], T]) -> T:
    """Have work done by a worker; raises ClosedError if they were shut down, and what the work raises."""
    try:
        done = asyncio.get_running_loop().run_in_executor(executor, work)
    except RuntimeError as error:
        refuse(error)
    return await done


def on_loop(loop: asyncio.AbstractEventLoop, begin: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """Have a call done by an event loop that runs in another OS thread; cancelled if waiting for it is interrupted."""
    done = asyncio.run_coroutine_threadsafe(begin(), loop)
    try:
        return done.result()
    except BaseException:
        done.cancel()
        raise


def refuse(error: RuntimeError) -> NoReturn:
    """Say why a worker does not begin: they were shut down, or no OS thread can be started."""
    if "shutdown" in str(error):
        raise closed() from error
    raise error


def warn_unclosed(where: str) -> None:
    """Warn of a saver that was dropped with something open, as the standard library does of files and sockets."""
    warnings.warn(f"unclosed saver on {where}: close() it, or use `with`", ResourceWarning, stacklevel=2)
