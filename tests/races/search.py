"""Is there an order of all calls in which every answer and what is left in the end make sense?

After Wing and Gong, and Lowe: go through the orders that agree with real time (what ended before another began comes
before it), one call at a time, and remember which calls were made and what was left by then, so that nothing is tried
twice. A call whose answer says that it has changed nothing is taken as soon as that is right: no order is lost.

A call is one moment, with one exception, which `Verdict.LATE` tells. What stores a row that is whole by itself (a small
`put`, `put_writes`) waits for nobody, nor does `unlabel`. So a deletion may have looked before that, and be seen after
it: that is as if it had come first, but whoever reads in between sees the row and not yet the deletion. So it is with a
copy or a fork: what its source had when it looked is in its target when it is seen, and what goes over all threads
meanwhile passes over the target.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from enum import Enum
from typing import NamedTuple

from tests.model.oracle import exact
from tests.races.calls import READS, Done
from tests.races.model import Model, Part, State

# Moments that are looked at before nobody knows: a second or two.
MOST = 100_000


class Verdict(Enum):
    """What was found."""

    FINE = "there is such an order"
    LATE = "there is one, if a deletion or a copy may be seen after a row that came behind it"
    WRONG = "there is no such order"
    UNKNOWN = "there are too many orders"


SEVERITY = (Verdict.FINE, Verdict.LATE, Verdict.UNKNOWN, Verdict.WRONG)


class Step(NamedTuple):
    """A part of a call that was made."""

    part: Part
    done: Done


class Pending(NamedTuple):
    """A step that has looked at the state and is not to be seen yet, and the rows that have come since."""

    step: int
    base: State
    behind: tuple[int, ...] = ()


class Found(NamedTuple):
    """The verdict, and for whoever has to understand it, what was left where all answers were right."""

    verdict: Verdict
    ends: Sequence[State]
    furthest: Sequence[Step]
    """The longest order of calls whose answers were right."""


def steps_of(model: Model, history: Sequence[Done], threads: Sequence[str]) -> list[Step]:
    """The calls that were made, in parts."""
    return [
        Step(part, done)
        for done in sorted(history, key=lambda done: done.end)
        for part in model.parts(done.call, threads, among=_is_among(done, history))
    ]


def _is_among(done: Done, history: Sequence[Done]) -> bool:
    return any(other is not done and other.start < done.end and done.start < other.end for other in history)


def explain(
    model: Model,
    start: State,
    steps: Sequence[Step],
    threads: Sequence[str],
    is_left: Callable[[State, Collection[str]], bool],
) -> Found:
    """Look for an order; `is_left` tells whether a state has in some threads what was found in the end.

    Threads that no call has brought together are looked at by themselves: if there is an order for each, there is one
    for all.
    """
    found = []
    for together in _groups(model, start, steps, threads):
        own = [step for step in steps if model.reaches(step.part, start) & together]
        found.append(_explain(model, start, own, _confined(is_left, together)))
    return max(found, key=lambda each: SEVERITY.index(each.verdict))


def _confined(is_left: Callable[[State, Collection[str]], bool], threads: Collection[str]) -> Callable[[State], bool]:
    return lambda state: is_left(state, threads)


def _groups(model: Model, start: State, steps: Sequence[Step], threads: Sequence[str]) -> list[set[str]]:
    groups = [{thread_id} for thread_id in threads]
    for step in steps:
        reached = model.reaches(step.part, start)
        if step.part.call.name == "list" and step.part.call.args == (None,):
            reached = set(threads)
        touched = [group for group in groups if group & reached]
        groups = [group for group in groups if group not in touched]
        groups += [set().union(*touched)] if touched else []
    return groups


def _explain(model: Model, start: State, steps: Sequence[Step], is_left: Callable[[State], bool]) -> Found:
    strict = _Search(model, steps, is_left, late=False)
    try:
        if strict.goes_on(0, start, ()):
            return Found(Verdict.FINE, (), ())
        if _Search(model, steps, is_left, late=True).goes_on(0, start, ()):
            return Found(Verdict.LATE, strict.ends, strict.furthest)
    except _TooMany:
        return Found(Verdict.UNKNOWN, strict.ends, strict.furthest)
    return Found(Verdict.WRONG, strict.ends, strict.furthest)


def _says_nothing_changed(done: Done) -> bool:
    return (
        done.call.name in READS
        or done.answer[0] != "ok"
        or done.call.name == "reencrypt"
        or (done.call.name in ("unlabel", "delete_checkpoint") and done.answer[1] == exact(False))
    )


class _TooMany(Exception):
    pass


class _Search:
    def __init__(self, model: Model, steps: Sequence[Step], is_left: Callable[[State], bool], *, late: bool) -> None:
        self._model = model
        self._steps = steps
        self._is_left = is_left
        self._late = late
        self._all = (1 << len(steps)) - 1
        # Those that have to be done before each one.
        self._before = [
            sum(1 << number for number, other in enumerate(steps) if other.done.end < step.done.start) for step in steps
        ]
        self._seen: set[tuple[int, State, tuple[Pending, ...]]] = set()
        self._order: list[int] = []
        self.ends: list[State] = []
        self.furthest: list[Step] = []

    def goes_on(self, done: int, state: State, pending: tuple[Pending, ...]) -> bool:
        """Whether what is left to do can be done."""
        length = len(self._order)
        done = self._take_what_changes_nothing(done, state, pending)
        if len(self._order) > len(self.furthest):
            self.furthest = [self._steps[number] for number in self._order]
        try:
            if done == self._all:
                if state not in self.ends:
                    self.ends.append(state)
                return self._is_left(state)
            if (done, state, pending) in self._seen:
                return False
            self._seen.add((done, state, pending))
            if len(self._seen) > MOST:
                raise _TooMany
            return self._tries(done, state, pending)
        finally:
            del self._order[length:]

    def _tries(self, done: int, state: State, pending: tuple[Pending, ...]) -> bool:
        for number in self._possible(done, state, pending):
            self._order.append(number)
            for left in self._outcomes(number, state):
                if self.goes_on(done | 1 << number, left, self._behind(number, pending, state)):
                    return True
            self._order.pop()
        if self._late:
            for number in self._possible(done, state, pending):
                begun = (*pending, Pending(number, state))
                if self._may_be_late(number, state) and self.goes_on(done, state, begun):
                    return True
            for each in pending:
                others = tuple(other for other in pending if other is not each)
                self._order.append(each.step)
                for left in self._committed(each, state):
                    if self.goes_on(done | 1 << each.step, left, others):
                        return True
                self._order.pop()
        return False

    def _possible(self, done: int, state: State, pending: tuple[Pending, ...]) -> list[int]:
        begun = {each.step for each in pending}
        return [
            number
            for number in range(len(self._steps))
            if not done >> number & 1
            and number not in begun
            and self._before[number] & ~done == 0
            and not self._is_in_the_way(number, state, pending)
        ]

    def _take_what_changes_nothing(self, done: int, state: State, pending: tuple[Pending, ...]) -> int:
        again = True
        while again:
            again = False
            for number in self._possible(done, state, pending):
                if _says_nothing_changed(self._steps[number].done) and self._outcomes(number, state):
                    done |= 1 << number
                    self._order.append(number)
                    again = True
        return done

    def _outcomes(self, number: int, state: State) -> Sequence[State]:
        step = self._steps[number]
        return list(self._model.outcomes(state, step.part, step.done.answer))

    def _outcomes_behind(self, number: int, state: State, base: State) -> list[State]:
        """Those of a row that came while a deletion had looked already.

        It may have lost its parent in the end. And of several writes, each a row of its own, one may have found a row
        in its way that is deleted then.
        """
        step = self._steps[number]
        parts = [step.part, *self._model.without_parent(step.part)]
        found = [left for part in parts for left in self._model.outcomes(state, part, step.done.answer)]
        return found + list(self._model.over_deleted(state, step.part, base, step.done.answer))

    # What is not to be seen yet

    def _may_be_late(self, number: int, state: State) -> bool:
        is_claim = self._steps[number].part.call.name in ("claim", "release")
        return not is_claim and not self._waits_for_nobody(number) and bool(self._outcomes(number, state))

    def _waits_for_nobody(self, number: int) -> bool:
        call = self._steps[number].part.call
        return call.alone or call.name == "unlabel" or call.name in READS

    def _is_in_the_way(self, number: int, state: State, pending: tuple[Pending, ...]) -> bool:
        """Whether a step has to wait for one that is pending."""
        if not pending or self._waits_for_nobody(number):
            return False
        locked = self._model.changes(self._steps[number].part, state)
        return any(locked & self._model.changes(self._steps[each.step].part, state) for each in pending)

    def _behind(self, number: int, pending: tuple[Pending, ...], state: State) -> tuple[Pending, ...]:
        if not pending or not self._waits_for_nobody(number):
            return pending
        return tuple(each._replace(behind=(*each.behind, number)) for each in pending)

    def _committed(self, each: Pending, state: State) -> list[State]:
        """What is seen of a pending step: as if what came since had come behind it."""
        reached = self._model.changes(self._steps[each.step].part, each.base)
        found = []
        for left in self._outcomes(each.step, each.base):
            states = [left]
            for number in each.behind:
                if self._model.reaches(self._steps[number].part, each.base) <= reached:
                    states = [after for before in states for after in self._outcomes_behind(number, before, each.base)]
            contents: list[Mapping[str, int]] = [{name: one.content(name) for name in reached} for one in states]
            found += [state.having(changed) for changed in contents]
        return found
