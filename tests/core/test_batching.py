"""Which calls share a trip, without any trip."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from langgraph_checkpoint_custom.engine.batching import BATCH_BYTES, BATCHES, CALLS, Batch, BatchQueue
from langgraph_checkpoint_custom.engine.operation import Batchable


@dataclass(eq=False)
class Call:
    batchable: Batchable
    gone: bool = False


def call(key: str | None = None, size: int = 1) -> Call:
    def merge(parts: Any) -> Any:
        raise AssertionError("nothing is merged here")

    return Call(Batchable("kind", key, size, None, merge))


AHEAD = call().batchable


@dataclass
class Road:
    """A lane, and the groups that are on the way in it."""

    lanes: BatchQueue[Call]
    away: list[Batch[Call]]

    def back(self) -> list[Call]:
        """The first group comes back; gives the calls that go instead."""
        group = self.lanes.leave("kind", self.away.pop(0))
        if group:
            self.away.append(group)
        return [*group.waiters] if group else []


def waiting(*calls: Call) -> Road:
    """As many on the way as may be, and these behind them."""
    lanes: BatchQueue[Call] = BatchQueue()
    away = [group for _ in range(BATCHES) if (group := lanes.enter("kind", AHEAD))]
    assert len(away) == BATCHES
    assert not lanes.enter("kind", AHEAD)
    for each in calls:
        lanes.wait("kind", each)
    return Road(lanes, away)


def test_who_waits_goes_when_somebody_comes_back() -> None:
    one, other = call("1"), call("2")
    road = waiting(one, other)
    assert road.lanes.enter("another kind", AHEAD)
    assert road.back() == [one, other]
    assert not road.lanes.enter("kind", AHEAD)
    assert road.back() == []
    assert road.lanes.enter("kind", AHEAD)


def test_nothing_is_remembered_of_a_kind_once_all_are_back() -> None:
    road = waiting()
    for _ in range(BATCHES):
        assert road.back() == []
    assert not road.lanes._queues


def test_a_group_that_nobody_holds_is_no_longer_on_its_way() -> None:
    """Its caller was interrupted before it could come back."""
    first, second, third = call("1"), call("1"), call("3")
    road = waiting(first, second, third)
    assert road.back() == [first, third]
    assert not road.lanes.enter("kind", third.batchable)
    road.away.pop()
    assert road.lanes.enter("kind", third.batchable)
    assert road.back() == [second]


def test_of_one_key_only_the_first_goes_and_the_others_keep_their_order() -> None:
    first, second, third, other = call("1"), call("1"), call("1"), call("2")
    road = waiting(first, second, third, other)
    assert road.back() == [first, other]
    assert road.back() == []
    assert not road.lanes.enter("kind", first.batchable)
    assert road.back() == [second]
    assert road.back() == [third]


def test_calls_without_a_key_never_meet() -> None:
    calls = [call(), call()]
    assert waiting(*calls).back() == calls


def test_a_group_has_a_bound_in_members() -> None:
    calls = [call(str(number)) for number in range(CALLS + 1)]
    road = waiting(*calls)
    assert [road.back(), road.back()] == [calls[:-1], calls[-1:]]


def test_a_group_has_a_bound_in_bytes_that_one_call_may_pass() -> None:
    huge, small, tiny = call("1", BATCH_BYTES + 1), call("2"), call("3")
    road = waiting(huge, small, tiny)
    assert [road.back(), road.back()] == [[huge], [small, tiny]]


def test_a_call_that_finds_no_room_is_not_passed_by_one_with_its_key() -> None:
    first, large, late = call("1", BATCH_BYTES), call("2", 2), call("2", 0)
    assert waiting(first, large, late).back() == [first]


def test_who_is_gone_or_gives_up_does_not_go() -> None:
    gone, impatient, patient = call("1"), call("2"), call("3")
    road = waiting(gone, impatient, patient)
    gone.gone = True
    assert road.lanes.give_up("kind", impatient)
    assert road.back() == [patient]
    assert not road.lanes.give_up("kind", patient)
    assert not road.lanes.give_up("a kind that nobody has", patient)
