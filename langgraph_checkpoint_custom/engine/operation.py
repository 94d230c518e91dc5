"""Operations as generators: they yield requests for I/O and are resumed with the replies.

Must not know: databases, event loops, OS threads, the clock.

Each yielded `RoundTrip` is one round trip, so the latency of an operation is the number of its yields. A driver runs
the generator with `drive` or `adrive` and its own way to perform a request. Everything that has to be read from the
caller's objects is read before the operation is created, because its steps may start later, on another OS thread, or
twice.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator, Hashable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial, wraps
from typing import Any, Generic, Literal, NamedTuple, ParamSpec, Protocol, TypeVar

Q = TypeVar("Q")
T = TypeVar("T")
P = ParamSpec("P")

# What an operation does to the database. All round trips of a "transaction" or a "migrate" are one transaction. Those
# of a "snapshot" read one point in time. Each round trip of a "read" or "write" is atomic; on SQLite, each operation is
# one transaction. An operation asks for its locks itself.
Access = Literal["read", "snapshot", "write", "transaction", "migrate"]
READS = frozenset({"read", "snapshot"})
"""The accesses of operations that change nothing."""

Row = Sequence[Any]
Params = Mapping[str, Any]

Execute = Callable[[str, Any], Any]  # Returns a cursor of SQLite.
# Reads rows with several statements of one transaction, given what sends one, and the first one with its parameters.
# Only SQLite reads in this way, where no statement crosses a network.
Read = Callable[[Execute, str, Any], list[Row]]


class Statement(NamedTuple):
    """One SQL statement with its parameters, by name or by position; a list of them runs it once for each."""

    name: str
    sql: str
    params: Params | tuple[Any, ...] | Sequence[Params | tuple[Any, ...]]


class RoundTrip(NamedTuple):
    """Statements that are sent together and are atomic together; the reply is a list of rows for each of them.

    Attributes:
        statements: The statements.
        before, after: What is sent around them, such as a lock; their rows are not part of the reply.
        read: How SQLite reads the rows of each statement, if that takes more than this statement.
    """

    statements: Sequence[Statement]
    before: Sequence[Statement] = ()
    after: Sequence[Statement] = ()
    read: Read | None = None

    def sent(self) -> Sequence[Statement]:
        """Return all statements in the order in which they are sent."""
        return [*self.before, *self.statements, *self.after] if self.before or self.after else self.statements

    def reply(self, replies: Sequence[Any]) -> Sequence[Any]:
        """Return the replies to `statements`, out of the replies to everything that was sent."""
        first = len(self.before)
        return replies[first : first + len(self.statements)]


def one_trip(trips: Sequence[RoundTrip]) -> RoundTrip:
    """Return one round trip for several that send the same around their statements, and have the same `read`."""
    return trips[0]._replace(statements=[statement for trip in trips for statement in trip.statements])


class Batching(NamedTuple):
    """How several calls of one form become one round trip.

    Attributes:
        key: Returns the key of the row that a call changes, given its parameters. Calls with one key are never in one
            round trip, and are sent in their order. None for reads, which may meet.
        merge: Returns the round trip for the parameters of several calls.
        split: Returns the rows for each call, given the reply to the round trip and the parameters of the calls.
    """

    key: Callable[[Sequence[Any]], Hashable] | None
    merge: Callable[[Sequence[Sequence[Any]]], RoundTrip]
    split: Callable[[Sequence[Any], Sequence[Sequence[Any]]], Sequence[list[Row]]]


@dataclass(frozen=True, slots=True, eq=False)  # Its fields are read faster than those of a named tuple.
class Form:
    """A statement that is all of a call, unless it `confirms`, apart from its parameters.

    A dialect makes its forms once. The driver sends one with the parameters of a call: by position, the thread first,
    then the namespace. `read` is that of its round trip; it is not needed if `is_whole` says that the rows of the
    statement are all. With `confirms`, nothing was stored unless the reply has a row. If it has one, `each` is executed
    with each of the rows in the last parameter. Only SQLite has that, because its statements insert into one table.
    """

    operation: str
    access: Access
    name: str
    sql: str
    batching: Batching | None = None
    read: Read | None = None
    is_whole: Callable[[Sequence[Row]], bool] | None = None
    confirms: bool = False
    each: str = ""

    def with_params(self, params: Sequence[Any]) -> Statement:
        """Return the statement of one call."""
        return Statement(self.name, self.sql, tuple(params[:-1] if self.each else params))


class Offload(NamedTuple):
    """Work on `size` bytes that needs no connection and may run on another OS thread; the reply is its result."""

    size: int
    work: Callable[[], Any]


# Bytes. Below this, decoding or compressing takes less time than switching to a worker and back (about 0.1 ms).
OFFLOAD_BYTES = 65_536


def offload(size: int, work: Callable[..., T], *args: Any) -> Steps[T]:
    """Call `work` with these arguments: immediately for few bytes, as an `Offload` to the driver for many."""
    if size < OFFLOAD_BYTES:
        return work(*args)
    found = yield Offload(size, partial(work, *args))
    return found  # type: ignore[no-any-return]  # Replies are not typed.


Steps = Generator[RoundTrip | Offload, Any, T]


@dataclass(slots=True)  # Not frozen: that makes it four times as expensive, and each call creates one.
class Operation(Generic[T]):
    """A named unit of work; each `start` returns new steps, so a driver can run it again."""

    name: str
    access: Access
    start: Callable[[], Steps[T]]
    reports_change: bool = False
    """Whether the result says if something was changed.

    It is then also True if an earlier attempt may have changed something and its reply was lost.
    """
    checks_first: bool = False
    """Whether it stores by what it has read before, so that its round trips, if there are several, are one transaction.

    Several are needed with tables that Citus distributes. (On SQLite, those of a "write" are one transaction anyway.)
    """
    joins: bool = True
    """Whether it may be part of a transaction that the caller has begun or will end."""
    all_servers: bool = False
    """Whether it asks all servers of a cluster, and returns states. With Citus, it is a "snapshot" then.

    Citus answers such a statement in several steps. Each would see what was committed before it.
    """

    @property
    def arguments(self) -> Mapping[str, Any]:
        """The arguments of the function that its steps come from, by name."""
        if not isinstance(self.start, partial):
            return {}
        names = self.start.func.__code__.co_varnames
        return {**dict(zip(names, self.start.args, strict=False)), **self.start.keywords}


class Pause(NamedTuple):
    """A wait between two operations."""

    seconds: float


Operations = Generator[Operation[Any] | Pause, Any, T]
"""Several operations: whoever runs them performs each request and sends its result back."""


class Driver(Protocol):
    """Runs operations, sync and async."""

    def send(self, form: Form, params: Sequence[Any]) -> list[Row]: ...
    async def asend(self, form: Form, params: Sequence[Any]) -> list[Row]: ...
    def run(self, op: Operation[T]) -> T: ...
    async def arun(self, op: Operation[T]) -> T: ...
    def look(self, op: Operation[T]) -> T: ...
    async def aoffload(self, request: Offload) -> Any: ...
    def setup(self, op: Operation[None]) -> None: ...
    async def asetup(self, op: Operation[None]) -> None: ...
    def close(self) -> None: ...
    async def aclose(self) -> None: ...
    def stats(self) -> Mapping[str, Any]: ...


def operation(
    access: Access, *, reports_change: bool = False, checks_first: bool = False, joins: bool = True
) -> Callable[[Callable[P, Steps[T]]], Callable[P, Operation[T]]]:
    """Turn a generator function into a function that creates an `Operation`.

    Args:
        access: What it does to the database.
        reports_change: Whether its result says if something was changed.
        checks_first: Whether it stores by what it has read before.
        joins: Whether it may be part of a transaction of the caller's.
    """

    def decorate(function: Callable[P, Steps[T]]) -> Callable[P, Operation[T]]:
        name = function.__name__

        @wraps(function)
        def make(*args: P.args, **kwargs: P.kwargs) -> Operation[T]:
            return Operation(name, access, partial(function, *args, **kwargs), reports_change, checks_first, joins)

        return make

    return decorate


def operation_of(form: Form, params: Sequence[Any]) -> Operation[list[Row]]:
    """Return the operation that sends one statement, for where a driver's `send` is not enough."""
    return Operation(form.operation, form.access, partial(_sent, form, params))


def _sent(form: Form, params: Sequence[Any]) -> Steps[list[Row]]:
    (rows,) = yield RoundTrip((form.with_params(params),), read=form.read)
    if rows and form.each and params[-1]:
        yield RoundTrip((Statement(form.name, form.each, params[-1]),))
    return rows  # type: ignore[no-any-return]  # Replies are not typed.


def drive(op: Operation[T], perform: Callable[[RoundTrip], Any]) -> T:
    """Run an operation; `perform` makes each round trip and returns the reply. Work is done here."""
    return follow(op.start(), lambda each: each.work() if isinstance(each, Offload) else perform(each))


async def adrive(
    op: Operation[T], perform: Callable[[RoundTrip], Awaitable[Any]], offload: Callable[[Offload], Awaitable[Any]]
) -> T:
    """Async version of `drive`; `offload` has work done on another OS thread."""
    return await afollow(op.start(), lambda each: offload(each) if isinstance(each, Offload) else perform(each))


def work_out(found: T | Offload) -> T:
    """Return a value, or run the `Offload` that makes it and return its result."""
    return found.work() if isinstance(found, Offload) else found  # pyright: ignore[reportReturnType]  # T is none.


def follow(steps: Generator[Q, Any, T], answer: Callable[[Q], Any]) -> T:
    """Answer each request of a generator; an error is raised in it. Returns what the generator returns."""
    resume: Callable[[Any], Q] = steps.send
    try:
        reply: Any = None
        while True:
            try:
                request = resume(reply)
            except StopIteration as end:
                return end.value  # type: ignore[no-any-return]  # StopIteration is not generic.
            try:
                resume, reply = steps.send, answer(request)
            except Exception as error:
                resume, reply = steps.throw, error
    finally:
        steps.close()


async def afollow(steps: Generator[Q, Any, T], answer: Callable[[Q], Awaitable[Any]]) -> T:
    """Async version of `follow`; the answers are awaited."""
    resume: Callable[[Any], Q] = steps.send
    try:
        reply: Any = None
        while True:
            try:
                request = resume(reply)
            except StopIteration as end:
                return end.value  # type: ignore[no-any-return]  # StopIteration is not generic.
            try:
                resume, reply = steps.send, await answer(request)
            except Exception as error:
                resume, reply = steps.throw, error
    finally:
        steps.close()


def together(many: Sequence[Steps[T]]) -> Steps[list[T]]:
    """Run steps side by side, with one round trip for what they request at the same time; returns what each returns."""
    results: dict[int, T] = {}
    replies: dict[int, Any] = dict.fromkeys(range(len(many)))
    try:
        while replies:
            asked: dict[int, RoundTrip] = {}
            for number, reply in list(replies.items()):
                try:
                    request = many[number].send(reply)
                    while isinstance(request, Offload):
                        request = many[number].send((yield request))
                    asked[number] = request
                except StopIteration as end:
                    results[number] = end.value
            replies = {}
            if asked:
                found = iter((yield one_trip(list(asked.values()))))
                replies = {number: [next(found) for _ in trip.statements] for number, trip in asked.items()}
        return [results[number] for number in range(len(many))]
    finally:
        for steps in many:
            steps.close()


def through(steps: Steps[T], answer: Callable[[RoundTrip | Offload], Steps[Any]]) -> Steps[T]:
    """Run steps inside other steps: `answer` requests what they request, in its own way, and returns the reply.

    An error is raised in the inner steps.
    """
    resume: Callable[[Any], RoundTrip | Offload] = steps.send
    try:
        reply: Any = None
        while True:
            try:
                request = resume(reply)
            except StopIteration as end:
                return end.value  # type: ignore[no-any-return]  # StopIteration is not generic.
            try:
                reply = yield from answer(request)
                resume = steps.send
            except Exception as error:
                resume, reply = steps.throw, error
    finally:
        steps.close()
