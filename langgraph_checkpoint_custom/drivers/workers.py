"""Work on a saver's own OS threads, which end with the saver."""

from __future__ import annotations

import asyncio
import warnings
from collections.abc import Callable
from concurrent.futures import Executor, ThreadPoolExecutor
from typing import NoReturn, TypeVar

from langgraph_checkpoint_custom.errors import closed_error

T = TypeVar("T")


async def run_aside(executor: Executor, work: Callable[[], T]) -> T:
    """Run work on a worker; raises ClosedError if the workers are shut down, and what the work raises."""
    try:
        future = asyncio.get_running_loop().run_in_executor(executor, work)
    except RuntimeError as error:
        refuse(error)
    return await future


async def close_aside(work: Callable[[], None]) -> None:
    """Run what closes a saver on an OS thread of its own: a loop that is ending has shut down its workers."""
    executor = ThreadPoolExecutor(1, "checkpoint-close")
    done = False
    try:
        try:
            closing = asyncio.get_running_loop().run_in_executor(executor, work)
        except RuntimeError:  # The process is ending, so no OS thread starts any more.
            work()
        else:
            await closing
        done = True
    finally:
        executor.shutdown(wait=done)  # No OS thread is left, unless the call was cancelled while it works.


def refuse(error: RuntimeError) -> NoReturn:
    """Raise ClosedError if the workers are shut down; otherwise the given error: no OS thread can start, say."""
    if "shutdown" in str(error):
        raise closed_error() from error
    raise error


def warn_unclosed(where: str) -> None:
    """Warn about a saver that was dropped without `close`, as the standard library warns about files and sockets."""
    warnings.warn(f"unclosed saver on {where}: close() it, or use `with`", ResourceWarning, stacklevel=2)
