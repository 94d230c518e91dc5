"""Operations as generators: they yield what they need from outside and are resumed with the answer.

Must not know: databases, event loops, OS threads, the clock.

One yielded `RoundTrip` is one round trip, so the latency of an operation is the number of its yields. A driver runs the
generator with `drive` or `adrive` and its own way to perform a request. Everything that has to be read from the
caller's objects is read before the operation is made: steps may start later, on another OS thread, or twice.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator, Hashable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial, wraps
from inspect import signature
from typing import Any, Generic, Literal, NamedTuple, ParamSpec, Protocol, TypeVar

Q = TypeVar("Q")
T = TypeVar("T")
P = ParamSpec("P")

# What an operation does to the database. The trips of a "migrate", a "dry_run" and an "exclusive" are one
# transaction; those of a "snapshot" read one point in time; the others' are atomic each, and on SQLite together. An
# error undoes a dry_run. While an exclusive goes on, nobody else writes to the threads that it locks.
Access = Literal["read", "snapshot", "write", "exclusive", "dry_run", "migrate"]
Row = Sequence[Any]
Params = Mapping[str, Any]


class Later(NamedTuple):
    """Parameters that are made when they are sent: those of a statement that shares a trip never are."""

    make: Callable[[], Params]


class Statement(NamedTuple):
    """One SQL statement with its parameters, by name or by position; `params` is a list where it runs once for each."""

    name: str
    sql: str
    params: Params | tuple[Any, ...] | Later | Sequence[Params | tuple[Any, ...]]

    def values(self) -> Any:
        """The parameters, to be sent."""
        return self.params.make() if isinstance(self.params, Later) else self.params


class RoundTrip(NamedTuple):
    """Statements sent together and atomic together; the reply is a list of rows for each of them.

    What is sent `before` and `after` them, such as a lock, is not part of the reply. `share` says how it can be one
    with other trips, if it can.
    """

    statements: Sequence[Statement]
    before: Sequence[Statement] = ()
    after: Sequence[Statement] = ()
    batchable: Batchable | None = None

    def sent(self) -> Sequence[Statement]:
        """All statements, in order."""
        return [*self.before, *self.statements, *self.after] if self.before else self.statements

    def reply(self, replies: Sequence[Any]) -> Sequence[Any]:
        """What is answered, of the replies to all statements."""
        first = len(self.before)
        return replies[first : first + len(self.statements)] if first else replies


class Batchable(NamedTuple):
    """What makes one trip of many, which do the same for different rows.

    Trips of one `kind` can be one, unless two have the same `key`: a statement changes no row twice. Without one there
    is nothing that they could both change. `size` is in bytes; `merge` takes the `part` of each.
    """

    kind: Hashable
    key: Hashable | None
    size: int
    part: Any
    merge: Callable[[Sequence[Any]], Combined]


class Combined(NamedTuple):
    """One trip for many, and what turns its reply into theirs."""

    round_trip: RoundTrip
    split: Callable[[Sequence[Any]], Sequence[Any]]


class Offload(NamedTuple):
    """Work on `size` bytes that needs no connection and may run on another OS thread; the reply is its result."""

    size: int
    work: Callable[[], Any]


# Bytes. Below this, decoding or compressing takes less time than the hop to a worker and back (about 0.1 ms).
OFFLOAD_BYTES = 65_536


def offload(size: int, work: Callable[..., T], *args: Any) -> Steps[T]:
    """Do work with these arguments: here if it is on few bytes, wherever the driver does it if it is on many."""
    if size < OFFLOAD_BYTES:
        return work(*args)
    found = yield Offload(size, partial(work, *args))
    return found  # type: ignore[no-any-return]  # What is answered is not typed.


Steps = Generator[RoundTrip | Offload, Any, T]


@dataclass(slots=True)  # Not frozen: that makes it four times as dear, and there is one for each call.
class Operation(Generic[T]):
    """A named unit of work; `start` gives fresh steps each time, so a driver may begin again."""

    name: str
    access: Access
    start: Callable[[], Steps[T]]
    arguments: Callable[[], Mapping[str, Any]] = dict
    """What it was made of, by name."""
    tells: bool = False
    """Whether the result is if something was changed. It is True, too, if an earlier attempt may have changed it, whose
    answer was lost."""


class Driver(Protocol):
    """What runs operations, sync and async."""

    def run(self, op: Operation[T]) -> T: ...
    async def arun(self, op: Operation[T]) -> T: ...
    def look(self, op: Operation[T]) -> T: ...
    async def aoffload(self, request: Offload) -> Any: ...
    def setup(self) -> None: ...
    async def asetup(self) -> None: ...
    def close(self) -> None: ...
    async def aclose(self) -> None: ...
    def stats(self) -> Mapping[str, Any]: ...


def operation(
    access: Access, *, locks: Sequence[str] = (), tells: bool = False
) -> Callable[[Callable[P, Steps[T]]], Callable[P, Operation[T]]]:
    """Turn a generator function into a function that makes an `Operation`.

    Args:
        access: What it does to the database.
        locks: For an "exclusive" one, which arguments name the threads that it locks, in the dialect `d`.
        tells: Whether its result is if it has changed something.
    """

    def decorate(function: Callable[P, Steps[T]]) -> Callable[P, Operation[T]]:
        name = function.__name__
        names = tuple(signature(function).parameters)

        def arguments(args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
            return {**dict(zip(names, args, strict=False)), **kwargs}

        def locked(*args: P.args, **kwargs: P.kwargs) -> Steps[T]:
            given = arguments(args, kwargs)
            if lock := given["d"].lock_threads([given[name] for name in locks]):
                yield lock
            return (yield from function(*args, **kwargs))

        steps = locked if locks else function

        @wraps(function)
        def make(*args: P.args, **kwargs: P.kwargs) -> Operation[T]:
            return Operation(name, access, partial(steps, *args, **kwargs), partial(arguments, args, kwargs), tells)

        return make

    return decorate


def drive(op: Operation[T], perform: Callable[[RoundTrip | Offload], Any]) -> T:
    """Run an operation; `perform` does what it asks for."""
    return follow(op.start(), perform)


async def adrive(op: Operation[T], perform: Callable[[RoundTrip | Offload], Awaitable[Any]]) -> T:
    """Run an operation; `perform` does what it asks for and is awaited."""
    return await afollow(op.start(), perform)


def done(found: T | Offload) -> T:
    """What was found, or what the work that is left of it gives, done here."""
    return found.work() if isinstance(found, Offload) else found


def follow(steps: Generator[Q, Any, T], answer: Callable[[Q], Any]) -> T:
    """Answer each request of a generator; returns what it returns."""
    try:
        reply = None
        while True:
            try:
                request = steps.send(reply)
            except StopIteration as done:
                return done.value  # type: ignore[no-any-return]  # StopIteration is not generic.
            reply = answer(request)
    finally:
        steps.close()


async def afollow(steps: Generator[Q, Any, T], answer: Callable[[Q], Awaitable[Any]]) -> T:
    """Answer each request of a generator, awaiting the answers; returns what it returns."""
    try:
        reply = None
        while True:
            try:
                request = steps.send(reply)
            except StopIteration as done:
                return done.value  # type: ignore[no-any-return]  # StopIteration is not generic.
            reply = await answer(request)
    finally:
        steps.close()
