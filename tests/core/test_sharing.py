"""Which calls share a trip, without any trip."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from langgraph_checkpoint_custom.core.operation import Share
from langgraph_checkpoint_custom.core.sharing import GROUP_BYTES, GROUPS, MEMBERS, Lanes


@dataclass(eq=False)
class Call:
    share: Share
    gone: bool = False


def call(key: str | None = None, size: int = 1) -> Call:
    def merge(parts: Any) -> Any:
        raise AssertionError("nothing is merged here")

    return Call(Share("kind", key, size, None, merge))


AHEAD = call().share


def waiting(*calls: Call) -> Lanes[Call]:
    """As many on the way as may be, and these behind them."""
    lanes: Lanes[Call] = Lanes()
    assert [lanes.enter("kind", AHEAD) for _ in range(GROUPS + 1)] == [True] * GROUPS + [False]
    for each in calls:
        lanes.wait("kind", each)
    return lanes


def test_who_waits_goes_when_somebody_comes_back() -> None:
    one, other = call("1"), call("2")
    lanes = waiting(one, other)
    assert lanes.enter("another kind", AHEAD)
    assert lanes.leave("kind", [AHEAD]) == [one, other]
    assert not lanes.enter("kind", AHEAD)
    assert lanes.leave("kind", [AHEAD]) == []
    assert lanes.enter("kind", AHEAD)


def test_nothing_is_remembered_of_a_kind_once_all_are_back() -> None:
    lanes = waiting()
    for _ in range(GROUPS):
        assert lanes.leave("kind", [AHEAD]) == []
    assert not lanes._lanes


def test_of_one_key_only_the_first_goes_and_the_others_keep_their_order() -> None:
    first, second, third, other = call("1"), call("1"), call("1"), call("2")
    lanes = waiting(first, second, third, other)
    assert lanes.leave("kind", [AHEAD]) == [first, other]
    assert lanes.leave("kind", [AHEAD]) == []
    assert not lanes.enter("kind", first.share)
    assert lanes.leave("kind", [first.share, other.share]) == [second]
    assert lanes.leave("kind", [second.share]) == [third]


def test_calls_without_a_key_never_meet() -> None:
    calls = [call(), call()]
    assert waiting(*calls).leave("kind", [AHEAD]) == calls


def test_a_group_has_a_bound_in_members() -> None:
    calls = [call(str(number)) for number in range(MEMBERS + 1)]
    lanes = waiting(*calls)
    assert [lanes.leave("kind", [AHEAD]), lanes.leave("kind", [AHEAD])] == [calls[:-1], calls[-1:]]


def test_a_group_has_a_bound_in_bytes_that_one_call_may_pass() -> None:
    huge, small, tiny = call("1", GROUP_BYTES + 1), call("2"), call("3")
    lanes = waiting(huge, small, tiny)
    assert [lanes.leave("kind", [AHEAD]), lanes.leave("kind", [AHEAD])] == [[huge], [small, tiny]]


def test_a_call_that_finds_no_room_is_not_passed_by_one_with_its_key() -> None:
    first, large, late = call("1", GROUP_BYTES), call("2", 2), call("2", 0)
    assert waiting(first, large, late).leave("kind", [AHEAD]) == [first]


def test_who_is_gone_or_gives_up_does_not_go() -> None:
    gone, impatient, patient = call("1"), call("2"), call("3")
    lanes = waiting(gone, impatient, patient)
    gone.gone = True
    assert lanes.give_up("kind", impatient)
    assert lanes.leave("kind", [AHEAD]) == [patient]
    assert not lanes.give_up("kind", patient)
    assert not lanes.give_up("a kind that nobody has", patient)
