"""Runs an adapter's operations with the driver of a saver."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timezone
from typing import Any, Concatenate, ParamSpec, TypeVar

from langgraph.checkpoint.base.id import uuid6

from langgraph_checkpoint_custom.adapters.documents import Attempt
from langgraph_checkpoint_custom.encoding.values import Values
from langgraph_checkpoint_custom.engine.operation import Operation
from langgraph_checkpoint_custom.errors import ConfigError
from langgraph_checkpoint_custom.saver import CheckpointSaver
from langgraph_checkpoint_custom.sql.dialect import SqlDialect

P = ParamSpec("P")
T = TypeVar("T")

Make = Callable[Concatenate[SqlDialect, Values, P], Operation[T]]


class OperationRunner:
    """Runs operations, sync and async; the caller closes the saver."""

    def __init__(self, saver: CheckpointSaver) -> None:
        if not isinstance(saver, CheckpointSaver):
            raise ConfigError(
                f"an adapter needs a saver of langgraph_checkpoint_custom, not a {type(saver).__name__}; make one with "
                "open_saver(url)"
            )
        self._saver = saver

    def run(self, make: Make[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """Run an operation and return its result."""
        dialect, driver, values = self._saver.backend
        return driver.run(make(dialect, values, *args, **kwargs))

    async def arun(self, make: Make[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """Async version of `run`."""
        dialect, driver, values = self._saver.backend
        return await driver.arun(make(dialect, values, *args, **kwargs))


def attempt() -> Attempt[Any]:
    """Return a new `Attempt`, with a new checkpoint id and the current time."""
    return Attempt(str(uuid6()), datetime.now(timezone.utc).isoformat())
