"""Observing: a driver that reports each operation to a hook, and a hook that logs slow operations."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, TypeVar

from langgraph_checkpoint_custom.engine.operation import Driver, Form, Offload, Operation, Row, operation_of
from langgraph_checkpoint_custom.errors import ConfigError
from langgraph_checkpoint_custom.operations.observing import Counts, OperationEvent, location_of

T = TypeVar("T")

OnOperation = Callable[[OperationEvent], None]

_LOG = logging.getLogger("langgraph_checkpoint_custom")


class ObservedDriver:
    """A driver that calls `hook` when an operation has ended; an exception of the hook is only logged."""

    def __init__(self, driver: Driver, database: str, hook: OnOperation) -> None:
        self._driver = driver
        self._database = database
        self._hook = hook

    def send(self, form: Form, params: Sequence[Any]) -> list[Row]:
        """Send a statement and report it as an operation."""
        return self.run(operation_of(form, params))

    async def asend(self, form: Form, params: Sequence[Any]) -> list[Row]:
        """Async version of `send`."""
        return await self.arun(operation_of(form, params))

    def run(self, op: Operation[T]) -> T:
        """Run an operation and report it."""
        counts, started = Counts(), time.perf_counter()
        error: BaseException | None = None
        try:
            return self._driver.run(counts.counting(op))
        except BaseException as raised:
            error = raised
            raise
        finally:
            self._report(op, counts, time.perf_counter() - started, error)

    async def arun(self, op: Operation[T]) -> T:
        """Async version of `run`."""
        counts, started = Counts(), time.perf_counter()
        error: BaseException | None = None
        try:
            return await self._driver.arun(counts.counting(op))
        except BaseException as raised:
            error = raised
            raise
        finally:
            self._report(op, counts, time.perf_counter() - started, error)

    def look(self, op: Operation[T]) -> T:
        """Read the tables as they are; this is not an operation of a run, and is not reported."""
        return self._driver.look(op)

    def setup(self) -> None:
        """Create or migrate the tables; this is not an operation of a run, and is not reported."""
        self._driver.setup()

    async def aoffload(self, request: Offload) -> Any:
        """Run work for the next operation; it is not reported."""
        return await self._driver.aoffload(request)

    async def asetup(self) -> None:
        """Async version of `setup`."""
        await self._driver.asetup()

    def close(self) -> None:
        """Close the driver."""
        self._driver.close()

    async def aclose(self) -> None:
        """Async version of `close`."""
        await self._driver.aclose()

    def stats(self) -> Mapping[str, Any]:
        """Return the driver's statistics."""
        return self._driver.stats()

    def _report(self, op: Operation[Any], counts: Counts, seconds: float, error: BaseException | None) -> None:
        thread_id, checkpoint_ns = location_of(op)
        event = OperationEvent(
            op.name,
            self._database,
            seconds,
            counts.round_trips,
            counts.rows,
            counts.bytes,
            max(0, counts.attempts - 1),
            thread_id,
            checkpoint_ns,
            type(error).__name__ if error is not None else None,
        )
        try:
            self._hook(event)
        except Exception:  # The user's code; it must not make a successful operation fail.
            _LOG.exception("on_operation failed")


def log_slow_operations(seconds: float) -> OnOperation:
    """Return a function for `on_operation` that logs slow operations.

    They are logged as warnings of the logger `langgraph_checkpoint_custom`.

    Args:
        seconds: Operations that take this many seconds or longer are logged.
    """
    if not isinstance(seconds, (int, float)):
        raise ConfigError(f"log_slow_operations takes a number of seconds, not {seconds!r}")

    return partial(_log_if_slow, seconds)


def _log_if_slow(seconds: float, event: OperationEvent) -> None:
    if event.seconds >= seconds:
        _LOG.warning(
            "%s took %.3f s (%d round trips, %d retries, %d rows, %d bytes) on thread %r, namespace %r",
            event.name,
            event.seconds,
            event.round_trips,
            event.retries,
            event.rows,
            event.bytes,
            event.thread_id,
            event.checkpoint_ns,
        )
