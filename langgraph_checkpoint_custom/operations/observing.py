"""Counting what an operation does. The operation is wrapped, so operations that are not observed cost nothing.

Must not know: SQL, connections, the clock. The bytes of values and metadata are counted, but not read.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from langgraph_checkpoint_custom.encoding.rows import Draft, Encoded
from langgraph_checkpoint_custom.engine.operation import Offload, Operation, RoundTrip, Steps, through
from langgraph_checkpoint_custom.model.keys import CheckpointRow, Key, Page

T = TypeVar("T")


@dataclass(frozen=True)
class OperationEvent:
    """An operation that has ended; `on_operation` gets one for each.

    Attributes:
        name: `put`, `get_tuple`, `list_page` and so on.
        database: "postgresql" or "sqlite".
        seconds: The time from the call to its end, including all waiting.
        round_trips: Round trips to the database, including those of failed attempts.
        rows: Rows that the database returned.
        bytes: Bytes of values that were sent and returned.
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


class Counts:
    """What an operation has done so far."""

    def __init__(self) -> None:
        self.attempts = 0
        self.round_trips = 0
        self.rows = 0
        self.bytes = 0

    def counting(self, op: Operation[T]) -> Operation[T]:
        """Return the same operation, which also counts what it does here."""
        return replace(op, start=lambda: self._steps(op))

    def _steps(self, op: Operation[T]) -> Steps[T]:
        self.attempts += 1
        if self.attempts == 1:
            self.bytes += sum(map(_size, op.arguments().values()))
        return through(op.start(), self._counted)

    def _counted(self, request: RoundTrip | Offload) -> Steps[Any]:
        if isinstance(request, Offload):
            return (yield request)
        self.round_trips += 1
        reply = yield request
        for rows in reply:
            self.rows += len(rows)
            self.bytes += sum(_bytes_in(row) for row in rows)
        return reply


def location_of(op: Operation[Any]) -> tuple[str | None, str | None]:
    """Return the thread and the namespace that an operation is about."""
    arguments: Mapping[str, Any] = op.arguments()
    for what in arguments.values():
        if isinstance(what, (Encoded, Draft)):
            return what.row.thread_id, what.row.checkpoint_ns
        if isinstance(what, (CheckpointRow, Key, Page)):
            return what.thread_id, what.checkpoint_ns
    return arguments.get("thread_id", arguments.get("source")), arguments.get("checkpoint_ns")


def _size(argument: Any) -> int:
    """Return the bytes of the values in an argument of an operation."""
    if isinstance(argument, CheckpointRow):
        return _bytes_in(argument)
    if isinstance(argument, Encoded):
        return _bytes_in(argument.row) + sum(map(_bytes_in, argument.blobs))
    if isinstance(argument, Sequence) and not isinstance(argument, (str, bytes)):
        return sum(_bytes_in(row) for row in argument if isinstance(row, tuple))
    return 0


def _bytes_in(row: Iterable[Any]) -> int:
    return sum(len(cell) for cell in row if isinstance(cell, (bytes, memoryview)))
