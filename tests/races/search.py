"""Is there an order of all calls that explains every result and the final state?

After Wing and Gong, and Lowe: go through the orders that agree with real time (a call that ended before another began
comes before it), one call at a time, and remember which calls were made and what state they left, so that nothing is
tried twice. A call whose result says that it has changed nothing is taken as soon as that is correct: no order is lost.

A call happens at one moment, with one exception, `Verdict.LATE`. A call that stores a single row (a small `put`,
`put_writes`) never waits. So a deletion may have looked before that, and become visible after it. The result is as if
the deletion had come first, but a reader in between sees the row and not yet the deletion. The same applies to a copy
or a fork: the target has what its source had when the copy looked, and calls for all threads that run meanwhile do not
see the target. It looks at the target before it looks at the source.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from enum import Enum
from typing import NamedTuple

from tests.model.storing import exact
from tests.races.calls import READS, Done
from tests.races.model import Effect, Model, State

# How many states are looked at before the result is "unknown": a second or two.
MOST = 100_000


class Verdict(Enum):
    """The result of a search."""

    FINE = "there is such an order"
    LATE = "there is one, if a deletion or a copy may be seen after a row that came after it"
    WRONG = "there is no such order"
    UNKNOWN = "there are too many orders"


SEVERITY = (Verdict.FINE, Verdict.LATE, Verdict.UNKNOWN, Verdict.WRONG)


class Step(NamedTuple):
    """An effect of a call that was made."""

    effect: Effect
    done: Done


class Pending(NamedTuple):
    """A step that has read the state and is not visible yet, and the rows stored since."""

    step: int
    base: State
    after: tuple[int, ...] = ()


class Found(NamedTuple):
    """The verdict and, for people, the states that the orders with correct results leave."""

    verdict: Verdict
    ends: Sequence[State]
    furthest: Sequence[Step]
    """The longest order of calls whose answers were right."""


def steps_of(model: Model, history: Sequence[Done], threads: Sequence[str]) -> list[Step]:
    """The calls that were made, as steps."""
    return [
        Step(effect, done)
        for done in sorted(history, key=lambda done: done.end)
        for effect in model.effects(done.call, threads, among=_is_among(done, history))
    ]


def _is_among(done: Done, history: Sequence[Done]) -> bool:
    others = [other for other in history if other is not done]
    # The ids of a round have no time of today: by them, a sweep does not find what has grown since another sweep.
    was_swept = done.call.name == "sweep" and any(
        other.call.name == "sweep" and other.start < done.start for other in others
    )
    return was_swept or any(other.start < done.end and done.start < other.end for other in others)


def explain(
    model: Model,
    start: State,
    steps: Sequence[Step],
    threads: Sequence[str],
    is_left: Callable[[State, Collection[str]], bool],
) -> Found:
    """Look for an order; `is_left` says whether some threads of a state agree with the final state.

    Threads that no call connects are searched separately: if there is an order for each, there is one for all of
    them.
    """
    found = []
    for together in _groups(model, start, steps, threads):
        own = [step for step in steps if model.reaches(step.effect, start) & together]
        found.append(_explain(model, start, own, _confined(is_left, together)))
    return max(found, key=lambda each: SEVERITY.index(each.verdict))


def _confined(is_left: Callable[[State, Collection[str]], bool], threads: Collection[str]) -> Callable[[State], bool]:
    return lambda state: is_left(state, threads)


def _groups(model: Model, start: State, steps: Sequence[Step], threads: Sequence[str]) -> list[set[str]]:
    groups = [{thread_id} for thread_id in threads]
    for step in steps:
        reached = model.reaches(step.effect, start)
        if step.effect.call.name == "list" and step.effect.call.args == (None,):
            reached = set(threads)
        touched = [group for group in groups if group & reached]
        groups = [group for group in groups if group not in touched]
        groups += [set().union(*touched)] if touched else []
    return groups


def _explain(model: Model, start: State, steps: Sequence[Step], is_left: Callable[[State], bool]) -> Found:
    strict = _Search(model, steps, is_left, late=False)
    try:
        if strict.finds_order(0, start, ()):
            return Found(Verdict.FINE, (), ())
        if _Search(model, steps, is_left, late=True).finds_order(0, start, ()):
            return Found(Verdict.LATE, strict.ends, strict.furthest)
    except _TooManyStates:
        return Found(Verdict.UNKNOWN, strict.ends, strict.furthest)
    return Found(Verdict.WRONG, strict.ends, strict.furthest)


def _says_nothing_changed(done: Done) -> bool:
    return (
        done.call.name in READS
        or done.answer[0] != "ok"
        or done.call.name == "reencrypt"
        or (done.call.name in ("unlabel", "delete_checkpoint") and done.answer[1] == exact(False))
    )


class _TooManyStates(Exception):
    pass


class _Search:
    def __init__(self, model: Model, steps: Sequence[Step], is_left: Callable[[State], bool], *, late: bool) -> None:
        self._model = model
        self._steps = steps
        self._is_left = is_left
        self._late = late
        self._all = (1 << len(steps)) - 1
        # The calls that must come before each one.
        self._before = [
            sum(1 << number for number, other in enumerate(steps) if other.done.end < step.done.start) for step in steps
        ]
        self._seen: set[tuple[int, State, tuple[Pending, ...]]] = set()
        self._order: list[int] = []
        self.ends: list[State] = []
        self.furthest: list[Step] = []

    def finds_order(self, done: int, state: State, pending: tuple[Pending, ...]) -> bool:
        """Whether the remaining calls can be ordered."""
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
                raise _TooManyStates
            return self._tries(done, state, pending)
        finally:
            del self._order[length:]

    def _tries(self, done: int, state: State, pending: tuple[Pending, ...]) -> bool:
        for number in self._possible(done, state, pending):
            self._order.append(number)
            for left in self._outcomes(number, state):
                if self.finds_order(done | 1 << number, left, self._with_row(number, pending, state)):
                    return True
            self._order.pop()
        if self._late:
            for number in self._possible(done, state, pending):
                begun = (*pending, Pending(number, state))
                if self._may_be_late(number, state) and self.finds_order(done, state, begun):
                    return True
            for each in pending:
                others = tuple(other for other in pending if other is not each)
                later = self._looking_later(each, state)
                if later != each and self.finds_order(done, state, (*others, later)):
                    return True
                self._order.append(each.step)
                for left in self._committed(each, state):
                    if self.finds_order(done | 1 << each.step, left, others):
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
            and not self._must_wait(number, state, pending)
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
        return list(self._model.outcomes(state, step.effect, step.done.answer))

    def _outcomes_after(self, number: int, state: State, base: State) -> list[State]:
        """The outcomes of a row that was stored after a deletion had looked.

        It may lose its parent in the end. And of several writes, each a single row, one may have conflicted with a row
        that is deleted then.
        """
        step = self._steps[number]
        effects = [step.effect, *self._model.without_parent(step.effect)]
        found = [left for effect in effects for left in self._model.outcomes(state, effect, step.done.answer)]
        return found + list(self._model.over_deleted(state, step.effect, base, step.done.answer))

    # Steps that are not visible yet

    def _may_be_late(self, number: int, state: State) -> bool:
        is_claim = self._steps[number].effect.call.name in ("claim", "release")
        return not is_claim and not self._never_waits(number) and bool(self._outcomes(number, state))

    def _never_waits(self, number: int) -> bool:
        call = self._steps[number].effect.call
        return call.single_row or call.name in READS

    def _must_wait(self, number: int, state: State, pending: tuple[Pending, ...]) -> bool:
        """Whether a step has to wait for a pending one."""
        if not pending or self._never_waits(number):
            return False
        locked = self._model.changes(self._steps[number].effect, state)
        return any(locked & self._model.changes(self._steps[each.step].effect, state) for each in pending)

    def _with_row(self, number: int, pending: tuple[Pending, ...], state: State) -> tuple[Pending, ...]:
        if not pending or not self._never_waits(number):
            return pending
        return tuple(each._replace(after=(*each.after, number)) for each in pending)

    def _looking_later(self, each: Pending, state: State) -> Pending:
        """A copy or a fork that has looked at the target, and looks at its source only now."""
        effect = self._steps[each.step].effect
        if effect.call.name not in ("copy_thread", "fork_thread"):
            return each
        sources = self._model.reaches(effect, each.base) - self._model.changes(effect, each.base)
        return each._replace(base=each.base.having({name: state.content(name) for name in sources}))

    def _committed(self, each: Pending, state: State) -> list[State]:
        """The states after a pending step is committed: as if the later rows had come after it."""
        reached = self._model.changes(self._steps[each.step].effect, each.base)
        found = []
        for left in self._outcomes(each.step, each.base):
            states = [left]
            for number in each.after:
                if self._model.reaches(self._steps[number].effect, each.base) <= reached:
                    states = [after for before in states for after in self._outcomes_after(number, before, each.base)]
            contents: list[Mapping[str, int]] = [{name: one.content(name) for name in reached} for one in states]
            found += [state.having(changed) for changed in contents]
        return found
