"""Retries are limited in number and in seconds."""

from __future__ import annotations

from langgraph_checkpoint_custom.drivers.postgres_errors import RetryPolicy


def test_pauses_grow_and_end() -> None:
    policy = RetryPolicy(attempts=5, seconds=10)
    pauses = [policy.pause(failed, 0.0) for failed in range(1, 6)]
    assert pauses[-1] is None
    for failed, pause in enumerate(pauses[:-1], start=1):
        assert pause is not None
        assert 0.025 * 2 ** (failed - 1) <= pause <= 0.05 * 2 ** (failed - 1)


def test_only_the_second_attempt_may_start_after_the_time_limit() -> None:
    assert RetryPolicy(attempts=100, seconds=1).pause(1, 60.0) is not None
    assert RetryPolicy(attempts=100, seconds=1).pause(2, 1.0) is None
    assert RetryPolicy(attempts=100, seconds=1).pause(2, 0.99) is not None
    assert RetryPolicy(attempts=1, seconds=1).pause(1, 60.0) is None


def test_a_pause_has_an_upper_bound() -> None:
    pause = RetryPolicy(attempts=100).pause(50, 0.0)
    assert pause is not None
    assert pause <= 2.0
