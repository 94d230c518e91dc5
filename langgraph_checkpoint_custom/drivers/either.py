"""Code that is written once for psycopg's sync objects and for its async ones, which have methods of the same names.

It is a coroutine, which awaits what an async object returns. With sync objects it never waits for an event loop, so
`at_once` runs it to its end.
"""

from __future__ import annotations

from collections.abc import Coroutine
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


class Entered:
    """A sync or async context as an async one."""

    def __init__(self, context: Any) -> None:
        self._context = context
        self._is_async = hasattr(context, "__aenter__")

    async def __aenter__(self) -> Any:
        return await self._context.__aenter__() if self._is_async else self._context.__enter__()

    async def __aexit__(self, *raised: Any) -> Any:
        return await self._context.__aexit__(*raised) if self._is_async else self._context.__exit__(*raised)
