"""Connections that do not wait forever, for a server that no longer answers or for the confirmation of a cancellation.

psycopg waits in steps of a tenth of a second, and resumes the generator that it runs even if nothing came. A generator
around that one counts the time. It costs no round trip, no timer, and about one microsecond per call, of 100 and more.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any, TypeVar, cast

from psycopg import AsyncConnection, Connection, OperationalError
from psycopg.abc import PQGen
from psycopg.errors import QueryCanceled
from typing_extensions import Self

from langgraph_checkpoint_custom.drivers.postgres_address import Address, aresolve, resolve

T = TypeVar("T")

# Seconds from a cancellation until the connection is closed if the server has not confirmed it. The request for a
# cancellation needs a connection of its own, which takes milliseconds; psycopg allows it five seconds, twice.
CANCEL_TIMEOUT = 1.0


class NoAnswer(OperationalError):
    """The server has sent nothing for `answer_timeout`."""


class _AnswerTimeout:
    """Shared by sync and async connections."""

    pgconn: Any

    answer_timeout: float | None = None
    """Seconds without a byte from the server after which the connection is closed."""

    made_at = 0.0
    """When the connection was made, by the monotonic clock."""

    _cancel_until: float | None = None

    def _answered(self, steps: PQGen[T]) -> PQGen[T]:
        """Return the same steps, which raise an error when nothing has come for too long."""
        self._cancel_until = None
        return self._with_an_end(steps)

    def _with_an_end(self, steps: PQGen[T]) -> PQGen[T]:
        heard = time.monotonic()
        try:
            wanted = next(steps)
            while True:
                ready = yield wanted
                if ready:
                    heard = time.monotonic()
                elif self._cancel_until is not None and time.monotonic() >= self._cancel_until:
                    # psycopg takes this for a confirmed cancellation, so the call ends as cancelled.
                    self._give_up(steps, QueryCanceled("the server did not confirm the cancellation"))
                elif self.answer_timeout is not None and time.monotonic() - heard >= self.answer_timeout:
                    self._give_up(steps, NoAnswer(f"no answer for {self.answer_timeout:g} s (answer_timeout)"))
                wanted = steps.send(ready)
        except StopIteration as end:
            return cast(T, end.value)

    def _give_up(self, steps: PQGen[T], error: OperationalError) -> None:
        self.pgconn.finish()
        with suppress(BaseException):  # Their cleanup needs the connection.
            steps.throw(error)
        raise error

    def _cancelling(self, timeout: float) -> float:
        """Note that a cancellation was requested; returns the seconds that the request may take."""
        self._cancel_until = time.monotonic() + CANCEL_TIMEOUT
        return min(timeout, CANCEL_TIMEOUT)


class TimedConnection(_AnswerTimeout, Connection[Any]):
    """A connection that is closed when the server sends nothing for `answer_timeout`."""

    @classmethod
    def connect(  # type: ignore[override]  # psycopg names some of the options.
        cls, conninfo: str = "", *, address: Address = "", made: list[Self] | None = None, **kwargs: Any
    ) -> Self:
        """Take one of the connections in `made`, or connect to the current address if none is left."""
        with suppress(IndexError):
            return (made or []).pop()
        return super().connect(resolve(address), **kwargs)

    def wait(self, gen: PQGen[T], *args: Any, **kwargs: Any) -> T:
        """Run the steps of a call."""
        return super().wait(self._answered(gen), *args, **kwargs)

    def cancel_safe(self, *, timeout: float = 30.0) -> None:
        """Ask the server to cancel the statement; psycopg calls this when a wait is interrupted."""
        super().cancel_safe(timeout=self._cancelling(timeout))


class TimedAsyncConnection(_AnswerTimeout, AsyncConnection[Any]):
    """Async version of `TimedConnection`."""

    @classmethod
    async def connect(  # type: ignore[override]  # psycopg names some of the options.
        cls, conninfo: str = "", *, address: Address = "", made: list[Self] | None = None, **kwargs: Any
    ) -> Self:
        """Async version of `TimedConnection.connect`."""
        with suppress(IndexError):
            return (made or []).pop()
        return await super().connect(await aresolve(address), **kwargs)

    async def wait(self, gen: PQGen[T], *args: Any, **kwargs: Any) -> T:
        """Run the steps of a call."""
        return await super().wait(self._answered(gen), *args, **kwargs)

    async def cancel_safe(self, *, timeout: float = 30.0) -> None:
        """Ask the server to cancel the statement; psycopg calls this when a wait is cancelled."""
        await super().cancel_safe(timeout=self._cancelling(timeout))


@contextmanager
def no_timeout(connection: Connection[Any] | AsyncConnection[Any]) -> Iterator[None]:
    """Let a connection wait without a limit: `setup()` waits for other processes that set up."""
    if not isinstance(connection, _AnswerTimeout):
        yield
        return
    usual, connection.answer_timeout = connection.answer_timeout, None
    try:
        yield
    finally:
        connection.answer_timeout = usual
