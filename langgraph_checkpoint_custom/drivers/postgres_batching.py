"""How calls share trips: their waiting, in both colours; `engine/batching.py` decides who goes with whom.

A call that finds nobody on the way makes its trip itself, and so do those whose trip together was refused: each then
fails or succeeds by itself, whatever its neighbours do. That no answer came counts as refused: one of them may have
waited for a lock that is nothing to the others. If the connection was lost, or there was none, each is told so and
tries again by its own count.

In an event loop a group is a task of its own, so that whoever is cancelled takes nobody along. Calls that come back
together come again one after the other, within one pass of the loop, so the first of them waits for the end of that
pass: 64 tasks then send a third of the statements. Among OS threads, for which there is no such thing, the first of a
group makes the trip for all and wakes the others.
"""

from __future__ import annotations

import asyncio
import threading
import weakref
from collections.abc import Awaitable, Callable, Hashable, Sequence
from typing import Any

from psycopg_pool import PoolTimeout

from langgraph_checkpoint_custom.drivers.postgres_waiting import NoAnswer
from langgraph_checkpoint_custom.engine.batching import Group, Lanes
from langgraph_checkpoint_custom.engine.operation import Share, Statement, Trip
from langgraph_checkpoint_custom.errors import CheckpointError, ClosedError, ConnectionLost

# Seconds to wait for others: more than any trip takes, unless it waits for a lock. That may be none of one's own.
PATIENCE = 1.0

# Makes a trip; the operation and the statements are those that an error names.
Perform = Callable[[str, Sequence[Statement], Trip], Any]
APerform = Callable[[str, Sequence[Statement], Trip], Awaitable[Any]]

_ALONE = object()  # An answer: make your trip yourself.


class _Member:
    """A call that waits."""

    def __init__(self, trip: Trip, share: Share) -> None:
        self.trip = trip
        self.share = share

    @property
    def gone(self) -> bool:
        """Whether nobody waits for the answer any more."""
        return False


class LoopSharing:
    """The calls of an event loop."""

    def __init__(self, perform: APerform) -> None:
        self._perform = perform
        self._lanes: Lanes[_LoopMember] = Lanes()
        self._tasks: set[asyncio.Task[None]] = set()
        self._crowded = False  # Whether the last group had company.

    async def send(self, name: str, trip: Trip, share: Share) -> Any:
        """Make a trip, perhaps with others."""
        kind = name, share.kind
        loop = asyncio.get_running_loop()
        # In a crowd it takes the room of a group only, and its key when that goes.
        if alone := self._lanes.enter(kind, share._replace(key=None) if self._crowded else share):
            if not self._crowded:
                try:
                    return await self._perform(name, trip.statements, trip)
                finally:
                    self._next(name, kind, alone)
            loop.call_soon(self._next, name, kind, alone)
        member = _LoopMember(trip, share)
        self._lanes.wait(kind, member)
        timer = loop.call_later(PATIENCE, self._lose_patience, kind, member)
        try:
            answer = await member.answer
        finally:
            timer.cancel()
        return await self._perform(name, trip.statements, trip) if answer is _ALONE else _told(answer)

    def _lose_patience(self, kind: Hashable, member: _LoopMember) -> None:
        if self._lanes.give_up(kind, member):
            member.tell(_ALONE)

    def _next(self, name: str, kind: Hashable, back: _LoopGroup) -> None:
        if group := self._lanes.leave(kind, back):
            self._crowded = len(group.members) > 1
            task = asyncio.get_running_loop().create_task(self._go(name, kind, group))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _go(self, name: str, kind: Hashable, group: _LoopGroup) -> None:
        members = group.members
        answers: Sequence[Any] = [_ALONE] * len(members)
        try:
            merged = members[0].share.merge([member.share.part for member in members])
            answers = merged.split(await self._perform(name, members[0].trip.statements, merged.trip))
        except Exception as error:
            answers = _failed(members, error)
        finally:
            self._next(name, kind, group)
            for member, answer in zip(members, answers, strict=True):
                member.tell(answer)


class _LoopMember(_Member):
    def __init__(self, trip: Trip, share: Share) -> None:
        super().__init__(trip, share)
        self.answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

    @property
    def gone(self) -> bool:
        return self.answer.cancelled()

    def tell(self, answer: Any) -> None:
        if not self.gone:
            self.answer.set_result(answer)


_LoopGroup = Group[_LoopMember]


class WorkerSharing:
    """The calls of all OS threads.

    An interrupt may come between any two lines, and whoever was to wake others wakes nobody then. So nobody waits
    longer than `PATIENCE` without looking whether somebody still holds the group that he is in.
    """

    def __init__(self, perform: Perform) -> None:
        self._perform = perform
        self._lanes: Lanes[_WorkerMember] = Lanes()
        self._mutex = threading.Lock()

    def send(self, name: str, trip: Trip, share: Share) -> Any:
        """Make a trip, perhaps with others."""
        kind = name, share.kind
        with self._mutex:
            alone = self._lanes.enter(kind, share)
            if not alone:
                member = _WorkerMember(trip, share)
                self._lanes.wait(kind, member)
        if alone:
            try:
                return self._perform(name, trip.statements, trip)
            finally:
                self._next(kind, alone)
        self._wait(kind, member)
        answer = self._lead(name, kind, member, member.led) if member.led else member.answer
        return self._perform(name, trip.statements, trip) if answer is _ALONE else _told(answer)

    def _wait(self, kind: Hashable, member: _WorkerMember) -> None:
        try:
            while not member.ready.acquire(timeout=PATIENCE):
                with self._mutex:
                    self._lanes.give_up(kind, member)
                    if not member.is_led():
                        return
        except BaseException:  # Such as a KeyboardInterrupt.
            with self._mutex:
                self._lanes.give_up(kind, member)
                group = member.led
            if group:
                self._end(kind, group, [_ALONE] * len(group.members))
            raise

    def _next(self, kind: Hashable, back: _WorkerGroup) -> None:
        with self._mutex:
            group = self._lanes.leave(kind, back)
            if group:
                first, *others = group.members
                group.members = others  # The first one holds the group, which so ends with it.
                for member in others:
                    member.is_led = weakref.ref(group)
                first.led = group
        if group:
            first.ready.release()

    def _lead(self, name: str, kind: Hashable, first: _WorkerMember, group: _WorkerGroup) -> Any:
        members = [first, *group.members]
        answers: Sequence[Any] = [_ALONE] * len(members)
        try:
            merged = first.share.merge([member.share.part for member in members])
            answers = merged.split(self._perform(name, first.trip.statements, merged.trip))
        except Exception as error:
            answers = _failed(members, error)
            if not isinstance(error, CheckpointError):  # It has interrupted this OS thread.
                raise
        finally:
            self._end(kind, group, answers[1:])
        return answers[0]

    def _end(self, kind: Hashable, group: _WorkerGroup, answers: Sequence[Any]) -> None:
        self._next(kind, group)
        for member, answer in zip(group.members, answers, strict=True):
            member.answer = answer
            member.ready.release()


class _WorkerMember(_Member):
    def __init__(self, trip: Trip, share: Share) -> None:
        super().__init__(trip, share)
        self.ready = threading.Lock()
        self.ready.acquire()
        self.led: _WorkerGroup | None = None  # The group that it makes the trip for.
        self.is_led: Callable[[], _WorkerGroup | None] = lambda: None  # Gives the group that it goes with.
        self.answer: Any = _ALONE


_WorkerGroup = Group[_WorkerMember]


def _failed(group: Sequence[_Member], error: Exception) -> Sequence[Any]:
    """What each is told when their trip together was for nothing."""
    if isinstance(error.__cause__, NoAnswer) and len(group) > 1:
        return [_ALONE] * len(group)
    if isinstance(error, (ConnectionLost, ClosedError)) or isinstance(error.__cause__, PoolTimeout):
        return [_twin(error) for _ in group]
    return [_ALONE] * len(group)


def _twin(error: Exception) -> Exception:
    """The same error, for another caller to raise."""
    twin = type(error).__new__(type(error), *error.args)
    twin.__dict__.update(error.__dict__)
    twin.__cause__ = error.__cause__
    return twin


def _told(answer: Any) -> Any:
    """An answer as a result, or raised."""
    if isinstance(answer, Exception):
        raise answer
    return answer
