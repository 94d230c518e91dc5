"""Observing: what each operation did is counted and reported to a hook.

An operation is wrapped, so operations that are not observed cost nothing. What is observed is always an operation: no
statement is sent by itself, and on PostgreSQL none in a batch. The bytes of values and metadata are counted in each
round trip, but not read.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from langgraph_checkpoint_custom.encoding.encoded import Encoded
from langgraph_checkpoint_custom.engine.operation import (
    Driver,
    Form,
    Offload,
    Operation,
    RoundTrip,
    Row,
    Steps,
    operation_of,
    through,
)
from langgraph_checkpoint_custom.model.keys import TENANT_MARK, Key, Page

T = TypeVar("T")

_LOG = logging.getLogger("langgraph_checkpoint_custom")


@dataclass(frozen=True)
class OperationEvent:
    """An operation that has ended; `on_operation` gets one for each.

    Attributes:
        name: `put`, `get_tuple`, `list_page` and so on.
        database: "postgresql" or "sqlite".
        seconds: The time from the call to its end, including all waiting.
        round_trips: Round trips to the database, including those of failed attempts.
        rows: Rows that the database returned.
        bytes: Bytes of values that were sent and returned, including those of failed attempts.
        retries: Attempts after the first one.
        thread_id: The thread, if the operation is about one thread.
        checkpoint_ns: The namespace, if the operation is about one namespace.
        error: The class of the error that ended the operation; None if it succeeded.
    """

    name: str
    database: str
    seconds: float
    round_trips: int
    rows: int
    bytes: int
    retries: int
    thread_id: str | None
    checkpoint_ns: str | None
    error: str | None


OnOperation = Callable[[OperationEvent], None]


class ObservedDriver:
    """A driver that calls `hook` when an operation has ended; an exception of the hook is only logged."""

    def __init__(self, driver: Driver, database: str, hook: OnOperation) -> None:
        self._driver = driver
        self._database = database
        self._hook = hook

    def __getattr__(self, name: str) -> Any:
        """Return a method of the driver that is not reported."""
        return getattr(self._driver, name)

    def send(self, form: Form, params: Sequence[Any]) -> list[Row]:
        """Send a statement and report it as an operation."""
        return self.run(operation_of(form, params))

    async def asend(self, form: Form, params: Sequence[Any]) -> list[Row]:
        """Async version of `send`."""
        return await self.arun(operation_of(form, params))

    def run(self, op: Operation[T]) -> T:
        """Run an operation and report it."""
        with self._reported(op) as counting:
            return self._driver.run(counting)

    async def arun(self, op: Operation[T]) -> T:
        """Async version of `run`."""
        with self._reported(op) as counting:
            return await self._driver.arun(counting)

    @contextmanager
    def _reported(self, op: Operation[T]) -> Iterator[Operation[T]]:
        """Yield the operation to run, which counts what it does, and report it after that."""
        counts, started, error = _Counts(), time.perf_counter(), None
        try:
            yield replace(op, start=lambda: counts.steps(op))
        except BaseException as raised:
            error = type(raised).__name__
            raise
        finally:
            event = OperationEvent(
                op.name,
                self._database,
                time.perf_counter() - started,
                counts.round_trips,
                counts.rows,
                counts.bytes,
                max(0, counts.attempts - 1),
                *_location_of(op),
                error,
            )
            try:
                self._hook(event)
            except Exception:  # The user's code; it must not make a successful operation fail.
                _LOG.exception("on_operation failed")


class _Counts:
    """What an operation has done so far."""

    def __init__(self) -> None:
        self.attempts = 0
        self.round_trips = 0
        self.rows = 0
        self.bytes = 0

    def steps(self, op: Operation[T]) -> Steps[T]:
        """Make an attempt, and count it and what it does."""
        self.attempts += 1
        return through(op.start(), self._counted)

    def _counted(self, request: RoundTrip | Offload) -> Steps[Any]:
        if isinstance(request, Offload):
            return (yield request)
        self.round_trips += bool(request.sent())  # SQLite has no statement for a lock alone.
        reply = yield request
        self.rows += sum(map(len, reply))
        self.bytes += _bytes_in([each.params for each in request.statements]) + _bytes_in(reply)
        return reply


def _location_of(op: Operation[Any]) -> tuple[str | None, str | None]:
    """Return the thread and the namespace that an operation is about."""
    arguments = op.arguments
    for what in arguments.values():
        if isinstance(what, Encoded):
            return what.row.thread_id, what.row.checkpoint_ns
        if isinstance(what, (Key, Page)):
            return what.thread_id, what.checkpoint_ns
    thread_id, checkpoint_ns = arguments.get("thread_id", arguments.get("source")), arguments.get("checkpoint_ns")
    if "form" in arguments:
        thread_id, checkpoint_ns, *_ = arguments["params"]
    if thread_id and thread_id.startswith(TENANT_MARK):  # A statement of a tenant has the stored id.
        _, tenant, own = thread_id.split(TENANT_MARK, 2)
        thread_id = own if tenant else thread_id
    return thread_id, checkpoint_ns


def _bytes_in(what: Any) -> int:
    """Return the bytes of values in rows or parameters."""
    if isinstance(what, (bytes, memoryview)):
        return len(what)
    cells = what.values() if isinstance(what, Mapping) else what if isinstance(what, (list, tuple)) else ()
    return sum(map(_bytes_in, cells))
