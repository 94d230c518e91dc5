"""Work on a saver's own OS threads, which end with the saver, or on the event loop of a caller's connection."""

from __future__ import annotations

import asyncio
import warnings
from collections.abc import Callable, Coroutine
from concurrent.futures import Executor
from typing import Any, NoReturn, TypeVar

from langgraph_checkpoint_custom.errors import closed

T = TypeVar("T")


async def aside(executor: Executor, work: Callable[[], T]) -> T:
    """Run work on a worker; raises ClosedError if the workers are shut down, and what the work raises."""
    try:
        done = asyncio.get_running_loop().run_in_executor(executor, work)
    except RuntimeError as error:
        refuse(error)
    return await done


def on_loop(loop: asyncio.AbstractEventLoop, begin: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """Run a call on an event loop of another OS thread; cancel it if the wait is interrupted."""
    done = asyncio.run_coroutine_threadsafe(begin(), loop)
    try:
        return done.result()
    except BaseException:
        done.cancel()
        raise


def refuse(error: RuntimeError) -> NoReturn:
    """Raise ClosedError if the workers are shut down; otherwise the given error: no OS thread can start, say."""
    if "shutdown" in str(error):
        raise closed() from error
    raise error


def warn_unclosed(where: str) -> None:
    """Warn about a saver that was dropped without `close`, as the standard library warns about files and sockets."""
    warnings.warn(f"unclosed saver on {where}: close() it, or use `with`", ResourceWarning, stacklevel=2)
