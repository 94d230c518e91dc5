"""Which calls share a round trip. The tests use the queue alone, without a database."""

from __future__ import annotations

from langgraph_checkpoint_custom.engine.batching import BATCH_BYTES, CALLS, Call, Queue


def call(key: str | None = None, size: int = 1) -> Call[None]:
    return Call(["x" * size], key, None)


def waiting(*calls: Call[None]) -> Queue[None]:
    queue: Queue[None] = Queue()
    queue.waiting += calls
    return queue


def test_all_waiting_calls_are_taken_in_their_order() -> None:
    calls = [call("1"), call("2"), call("3")]
    queue = waiting(*calls)
    assert queue.take() == calls
    assert queue.take() == []


def test_only_the_first_call_of_a_key_is_taken_until_it_returns() -> None:
    first, second, third, other = call("1"), call("1"), call("1"), call("2")
    queue = waiting(first, second, third, other)
    assert queue.take() == [first, other]
    assert queue.take() == []
    queue.leave([other])
    assert queue.take() == []
    queue.leave([first])
    assert queue.take() == [second]
    queue.leave([second])
    assert queue.take() == [third]


def test_a_call_is_held_by_any_that_waits_and_by_those_in_flight_with_its_key() -> None:
    first = call("1")
    queue = waiting(first)
    assert queue.holds("2")
    queue.take()
    assert queue.holds("1")
    assert not queue.holds("2")
    assert not queue.holds(None)
    queue.leave([first])
    assert not queue.holds("1")


def test_a_queue_is_empty_when_all_calls_have_returned() -> None:
    first = call("1")
    queue = waiting(first)
    assert not queue.is_empty
    queue.take()
    assert not queue.is_empty
    queue.leave([first])
    assert queue.is_empty


def test_calls_without_a_key_do_not_wait_for_each_other() -> None:
    calls = [call(), call()]
    queue = waiting(*calls)
    assert queue.take() == calls
    queue.waiting += calls
    assert queue.take() == calls


def test_a_batch_has_a_maximum_number_of_calls() -> None:
    calls = [call(str(number)) for number in range(CALLS + 1)]
    queue = waiting(*calls)
    assert [queue.take(), queue.take()] == [calls[:-1], calls[-1:]]


def test_a_batch_has_a_maximum_size_in_bytes_that_a_single_call_may_exceed() -> None:
    huge, small, tiny = call("1", BATCH_BYTES + 1), call("2"), call("3")
    queue = waiting(huge, small, tiny)
    assert [queue.take(), queue.take()] == [[huge], [small, tiny]]


def test_a_call_that_does_not_fit_is_not_overtaken_by_a_later_one_with_its_key() -> None:
    first, large, late = call("1", BATCH_BYTES), call("2", 2), call("2", 0)
    assert waiting(first, large, late).take() == [first]
