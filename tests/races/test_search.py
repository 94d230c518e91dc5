"""The search finds an order if there is one, and says so if there is none. No database is used."""

from __future__ import annotations

from functools import partial

import pytest

from tests.model.storing import exact
from tests.races.calls import Answer, Call, Done
from tests.races.model import Model, State, config_of
from tests.races.pairs import id_of, put
from tests.races.rounds import FinalState
from tests.races.search import Verdict, explain, steps_of

THREADS = ["t", "u"]
OK: Answer = ("ok", exact(None))
PRUNE = Call("prune", (["t"],))
LABEL = Call("label", (config_of(("t", "", id_of(1))), "label"))
ROLLBACK = Call("rollback", ("t", id_of(1)))
LIST = Call("list", ({"configurable": {"thread_id": "t"}},))


def small(number: int, thread_id: str = "t") -> Call:
    call = put(thread_id, number, parent=number - 1 or None, values={"small": number}, new=["small"])
    return Call(call.name, call.args, single_row=True)


def config(number: int) -> Answer:
    return "ok", exact(config_of(("t", "", id_of(number))))


class Store:
    """A model with three checkpoints in "t", and the final state after some calls."""

    def __init__(self) -> None:
        self.model = Model()
        self.start = self.after(State(), small(1), small(2), small(3))

    def after(self, state: State, *calls: Call) -> State:
        for call in calls:
            for effect in self.model.effects(call, THREADS, among=False):
                answer = self.model.answer(state, call, effect.thread_id)
                (state,) = self.model.outcomes(state, effect, answer)
        return state

    def left(self, *calls: Call) -> FinalState:
        state = self.after(self.start, *calls)
        keys = {thread_id: self.model.ids(state, thread_id) for thread_id in THREADS}
        answers = [(call, self.model.answer(state, call)) for call in (LIST, Call("labels", ("t",)))]
        return FinalState(
            {name: seen for name, (seen, _) in keys.items()}, {name: set() for name in keys}, {}, answers, []
        )

    def seen(self, *calls: Call) -> Answer:
        return self.model.answer(self.after(self.start, *calls), LIST)

    def verdict(self, left: FinalState, *history: tuple[Call, int, int, Answer]) -> Verdict:
        done = [Done(str(number), *each) for number, each in enumerate(history)]
        steps = steps_of(self.model, done, THREADS)
        return explain(self.model, self.start, steps, THREADS, partial(left.is_of, self.model)).verdict


@pytest.fixture
def store() -> Store:
    return Store()


def test_a_call_that_has_ended_is_visible(store: Store) -> None:
    left = store.left(PRUNE)
    assert store.verdict(left, (PRUNE, 1, 2, OK), (LIST, 3, 4, store.seen(PRUNE))) is Verdict.FINE
    assert store.verdict(left, (PRUNE, 1, 2, OK), (LIST, 3, 4, store.seen())) is Verdict.WRONG


def test_what_was_read_once_stays_visible(store: Store) -> None:
    history = [(PRUNE, 0, 9, OK), (LIST, 1, 2, store.seen(PRUNE)), (LIST, 3, 4, store.seen())]
    assert store.verdict(store.left(PRUNE), *history) is Verdict.WRONG


def test_a_checkpoint_with_a_label_stays(store: Store) -> None:
    history = [(PRUNE, 0, 9, OK), (LABEL, 0, 9, config(1))]
    assert store.verdict(store.left(LABEL, PRUNE), *history) is Verdict.FINE
    assert store.verdict(store.left(PRUNE), *history) is Verdict.WRONG
    assert store.verdict(store.left(PRUNE), history[0], (LABEL, 0, 9, ("error", "CheckpointNotFound"))) is Verdict.FINE


def test_two_concurrent_deletions_do_not_delete_everything(store: Store) -> None:
    history = [(PRUNE, 0, 9, OK), (ROLLBACK, 0, 9, config(1))]
    assert store.verdict(store.left(ROLLBACK, PRUNE), *history) is Verdict.FINE
    assert store.verdict(store.left(Call("delete_thread", ("t",))), *history) is Verdict.WRONG


def test_a_copy_looks_at_its_target_before_its_source(store: Store) -> None:
    copy, to_target, to_source = Call("copy_thread", ("t", "u")), small(5, "u"), small(4)
    stored = ("ok", exact(config_of(("u", "", id_of(5)))))
    left = store.left(to_source, copy, to_target)
    assert (
        store.verdict(left, (copy, 0, 9, OK), (to_target, 1, 2, stored), (to_source, 3, 4, config(4))) is Verdict.LATE
    )
    assert (
        store.verdict(left, (copy, 0, 2, OK), (to_target, 1, 3, stored), (to_source, 4, 5, config(4))) is Verdict.WRONG
    )


def test_every_thread_is_checked(store: Store) -> None:
    copy = Call("copy_thread", ("t", "u"))
    history = [(copy, 1, 2, OK), (PRUNE, 1, 2, OK)]
    assert store.verdict(store.left(copy, PRUNE), *history) is Verdict.FINE
    assert store.verdict(store.left(PRUNE, copy), *history) is Verdict.FINE
    assert store.verdict(store.left(PRUNE), *history) is Verdict.WRONG
    assert store.verdict(store.left(copy), *history) is Verdict.WRONG
