"""Code that is written once for psycopg's sync objects and for its async ones, which have methods of the same names.

It is a coroutine, which awaits what an async object returns. With sync objects it never waits for an event loop, so
`at_once` runs it to its end.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from typing import Any, TypeVar

T = TypeVar("T")


def at_once(steps: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine that uses sync objects only."""
    try:
        steps.send(None)
    except StopIteration as end:
        return end.value  # type: ignore[no-any-return]  # StopIteration is not generic.
    raise AssertionError


async def settled(found: Any) -> Any:
    """Return what a method has returned: at once of a sync object, awaited of an async one."""
    # `isinstance` with Awaitable takes three times as long.
    return await found if hasattr(found, "__await__") else found


@asynccontextmanager
async def entered(context: Any) -> AsyncIterator[None]:
    """A sync or async context as an async one."""
    if hasattr(context, "__aenter__"):
        async with context:
            yield
    else:
        with context:
            yield
