"""Which calls share a round trip. The tests use the queue alone, without a database."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from langgraph_checkpoint_custom.engine.batching import BATCH_BYTES, BATCHES, CALLS, Batch, BatchQueue
from langgraph_checkpoint_custom.engine.operation import Batchable


@dataclass(eq=False)
class Call:
    batchable: Batchable
    cancelled: bool = False


def call(key: str | None = None, size: int = 1) -> Call:
    def merge(calls: Any) -> Any:
        raise AssertionError("nothing is merged here")

    return Call(Batchable("kind", key, size, None, merge))


FIRST = call().batchable


@dataclass
class Traffic:
    """A queue, and the batches of it that are in progress."""

    queue: BatchQueue[Call]
    sent: list[Batch[Call]]

    def batch_returns(self) -> list[Call]:
        """The first batch returns; returns the calls that are sent next."""
        batch = self.queue.leave("kind", self.sent.pop(0))
        if batch:
            self.sent.append(batch)
        return [*batch.waiters] if batch else []


def waiting(*calls: Call) -> Traffic:
    """As many batches in progress as may be, and these calls waiting after them."""
    queue: BatchQueue[Call] = BatchQueue()
    sent = [batch for _ in range(BATCHES) if (batch := queue.enter("kind", FIRST))]
    assert len(sent) == BATCHES
    assert not queue.enter("kind", FIRST)
    for each in calls:
        queue.wait("kind", each)
    return Traffic(queue, sent)


def test_waiting_calls_are_sent_when_a_batch_returns() -> None:
    one, other = call("1"), call("2")
    traffic = waiting(one, other)
    assert traffic.queue.enter("another kind", FIRST)
    assert traffic.batch_returns() == [one, other]
    assert not traffic.queue.enter("kind", FIRST)
    assert traffic.batch_returns() == []
    assert traffic.queue.enter("kind", FIRST)


def test_a_type_of_calls_is_forgotten_when_all_its_batches_have_returned() -> None:
    traffic = waiting()
    for _ in range(BATCHES):
        assert traffic.batch_returns() == []
    assert not traffic.queue._queues


def test_a_batch_that_is_no_longer_referenced_does_not_count_as_in_progress() -> None:
    """Its caller was interrupted before it could report the return."""
    first, second, third = call("1"), call("1"), call("3")
    traffic = waiting(first, second, third)
    assert traffic.batch_returns() == [first, third]
    assert not traffic.queue.enter("kind", third.batchable)
    traffic.sent.pop()
    assert traffic.queue.enter("kind", third.batchable)
    assert traffic.batch_returns() == [second]


def test_only_the_first_call_of_a_key_is_sent_and_the_others_keep_their_order() -> None:
    first, second, third, other = call("1"), call("1"), call("1"), call("2")
    traffic = waiting(first, second, third, other)
    assert traffic.batch_returns() == [first, other]
    assert traffic.batch_returns() == []
    assert not traffic.queue.enter("kind", first.batchable)
    assert traffic.batch_returns() == [second]
    assert traffic.batch_returns() == [third]


def test_calls_without_a_key_do_not_wait_for_each_other() -> None:
    calls = [call(), call()]
    assert waiting(*calls).batch_returns() == calls


def test_a_batch_has_a_maximum_number_of_calls() -> None:
    calls = [call(str(number)) for number in range(CALLS + 1)]
    traffic = waiting(*calls)
    assert [traffic.batch_returns(), traffic.batch_returns()] == [calls[:-1], calls[-1:]]


def test_a_batch_has_a_maximum_size_in_bytes_that_a_single_call_may_exceed() -> None:
    huge, small, tiny = call("1", BATCH_BYTES + 1), call("2"), call("3")
    traffic = waiting(huge, small, tiny)
    assert [traffic.batch_returns(), traffic.batch_returns()] == [[huge], [small, tiny]]


def test_a_call_that_does_not_fit_is_not_overtaken_by_a_later_one_with_its_key() -> None:
    first, large, late = call("1", BATCH_BYTES), call("2", 2), call("2", 0)
    assert waiting(first, large, late).batch_returns() == [first]


def test_a_call_that_was_interrupted_or_gave_up_is_not_sent() -> None:
    interrupted, timed_out, waiting_call = call("1"), call("2"), call("3")
    traffic = waiting(interrupted, timed_out, waiting_call)
    interrupted.cancelled = True
    assert traffic.queue.give_up("kind", timed_out)
    assert traffic.batch_returns() == [waiting_call]
    assert not traffic.queue.give_up("kind", waiting_call)
    assert not traffic.queue.give_up("an unknown type", waiting_call)
