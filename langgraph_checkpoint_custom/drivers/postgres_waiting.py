"""Connections that do not wait forever, for a server that no longer answers or for the confirmation of a cancellation.

`complete` waits for an `Exchange`, which sends the statements that a run repeats. psycopg sends all others. For
these, psycopg waits in steps of a tenth of a second and resumes the generator that it runs even if nothing came. A
generator around that one counts the time.
"""

from __future__ import annotations

import asyncio
import select
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any, TypeVar, cast

from psycopg import AsyncConnection, Connection, OperationalError
from psycopg.abc import PQGen
from psycopg.errors import QueryCanceled
from psycopg.pq.abc import PGresult
from typing_extensions import Self

from langgraph_checkpoint_custom.drivers.postgres_address import Address, aresolve, resolve
from langgraph_checkpoint_custom.drivers.postgres_exchange import WRITABLE, Exchange, is_active

T = TypeVar("T")

# Seconds from a cancellation until the connection is closed if the server has not confirmed it. The request for a
# cancellation needs a connection of its own, which takes milliseconds; psycopg allows it five seconds, twice.
CANCEL_TIMEOUT = 1.0

# Milliseconds. A signal does not end a wait if another OS thread has received it; then it is noticed after this time.
_STEP = 100


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
                    self._give_up(steps, _no_answer(self.answer_timeout))
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

    def complete(self, exchange: Exchange) -> Sequence[PGresult]:
        """Wait for the results of an exchange, and return them; an interrupt cancels what was sent."""
        try:
            self._wait_for(exchange, self.answer_timeout)
        except BaseException:
            if is_active(self.pgconn):
                try:
                    self.cancel_safe()
                    self._wait_for(exchange, CANCEL_TIMEOUT)
                except Exception:  # It could not be cancelled. What interrupted the call is raised below.
                    self.pgconn.finish()
                except BaseException:
                    self.pgconn.finish()
                    raise
            raise
        return exchange.results

    def _wait_for(self, exchange: Exchange, timeout: float | None) -> None:
        events = exchange.advance()
        poller = select.poll()
        while events:
            poller.register(self.pgconn.socket, events)
            heard = time.monotonic()
            while not poller.poll(_STEP):
                if timeout is not None and time.monotonic() - heard >= timeout:
                    self.pgconn.finish()
                    raise _no_answer(timeout)
            events = exchange.advance()

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

    async def complete(self, exchange: Exchange) -> Sequence[PGresult]:
        """Async version of `TimedConnection.complete`; a cancellation of the task is an interrupt."""
        try:
            await self._wait_for(exchange, self.answer_timeout)
        except BaseException:
            if is_active(self.pgconn):
                try:
                    await self.cancel_safe()
                    await self._wait_for(exchange, CANCEL_TIMEOUT)
                except Exception:  # It could not be cancelled. What interrupted the call is raised below.
                    self.pgconn.finish()
                except BaseException:
                    self.pgconn.finish()
                    raise
            raise
        return exchange.results

    async def _wait_for(self, exchange: Exchange, timeout: float | None) -> None:
        loop, socket = asyncio.get_running_loop(), self.pgconn.socket
        while events := exchange.advance():
            ready: asyncio.Future[bool] = loop.create_future()
            timer = loop.call_later(timeout, _set, ready, False) if timeout is not None else None
            loop.add_reader(socket, _set, ready, True)
            if events & WRITABLE:
                loop.add_writer(socket, _set, ready, True)
            try:
                heard = await ready
            finally:
                loop.remove_reader(socket)
                if events & WRITABLE:
                    loop.remove_writer(socket)
                if timer is not None:
                    timer.cancel()
            if not heard:
                self.pgconn.finish()
                raise _no_answer(timeout)

    async def cancel_safe(self, *, timeout: float = 30.0) -> None:
        """Ask the server to cancel the statement; psycopg calls this when a wait is cancelled."""
        await super().cancel_safe(timeout=self._cancelling(timeout))


def _set(future: asyncio.Future[bool], result: bool) -> None:
    if not future.done():
        future.set_result(result)


def _no_answer(timeout: float | None) -> NoAnswer:
    return NoAnswer(f"no answer for {timeout:g} s (answer_timeout)")


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
